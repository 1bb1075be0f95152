"""No run costs much more than training its rows: steps that cost more than they decide end, by counted work."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import glru
from tests.cases import make
from tests.core import ClassMetric, add_work, cascade, counted, single, unbounded


class Wasteful(single.OneScore):
    """Removals whose first step spends half a training on each row and decides only every eighth."""

    def __init__(self, run):
        super().__init__(run)
        self.tried, self.n_trained = [], 0

    def refine(self, rows):
        add_work(0.5 * self.solution.work * rows.size)
        self.tried.extend(rows)
        lower, upper = unbounded(rows.size)
        lower[rows % 8 == 0], upper[rows % 8 == 0] = 1.0, 2.0
        return lower, upper

    def train(self, rows):
        self.n_trained += rows.size
        add_work(self.solution.work)
        return np.ones(rows.size), np.full(rows.size, 2.0)

    @property
    def steps(self):
        step = cascade.Step
        return {
            "certified": (
                step("refine", "", cascade.always, self.batches, Wasteful.refine),
                step("refine", "", cascade.always, cascade.each, Wasteful.refine),
                step("training", "", cascade.always, cascade.each, Wasteful.train),
            )
        }

    @staticmethod
    def batches(removals):
        return cascade.in_parts([removals.run.open_rows()])


def test_steps_that_lose_end():
    """The rest goes to training, and all steps together lose at most the allowed share and a batch each."""
    solution = glru.solve(make(glru.Logistic(), glru.L2(0.01), 400, 5))
    run, before = cascade.Cascade(Wasteful, solution), counted()
    run.follow("certified")
    assert run.n_open == 0 and run.n_trainings == run.removals.n_trained > 300
    assert 0 < len(run.removals.tried) < 300
    # A part of each of two steps, half a training for each of its rows, and two trainings of a step.
    most = (1.0 + cascade.LOSSES) * 400 + 2 * (0.5 * cascade.MANY_ROWS + 2)
    assert counted() - before <= most * 1.1 * solution.work


def test_steps_that_pay_go_on(monkeypatch):
    """A step that decides what it costs takes all rows."""
    solution = glru.solve(make(glru.Logistic(), glru.L2(0.01), 100, 5))
    monkeypatch.setattr(Wasteful, "refine", lambda self, rows: Wasteful.train(self, rows))
    run = cascade.Cascade(Wasteful, solution)
    run.follow("certified")
    assert run.n_trainings == 0 and run.removals.n_trained == 100


@pytest.mark.parametrize(
    "loss", [glru.Logistic(), glru.SquaredHinge(), glru.Hinge()], ids=lambda loss: type(loss).__name__
)
def test_work_is_the_same_in_every_run(loss):
    """Counts do not depend on what earlier questions have left behind, so that every run takes the same steps."""
    solution = glru.solve(make(loss, glru.L2(0.01), 20, 60, fit_intercept=True))
    spent = []
    for _ in range(2):
        before = counted()
        again = glru.solve(solution.problem)
        assert again.work == solution.work > 0
        found = glru.loocv(again, width="labels")
        spent.append((counted() - before, found.decided_by))
    assert spent[0] == spent[1]


def unlike_units(loss, n, d, seed=0):
    """Wide data whose columns differ in their units, so that leaving out a row moves scores far."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-2, 2, d)
    scores = (X / X.std(axis=0)) @ rng.normal(size=d) / np.sqrt(d) + rng.normal(size=n)
    y = np.digitize(scores, [-0.7, 0.7]) if loss.several else np.where(scores > 0.0, 1.0, -1.0)
    return glru.Problem(X, y, loss, glru.L2(1.0 / n), fit_intercept=True)


def test_rows_in_unlike_units_need_one_hessian_each(monkeypatch):
    """A gradient that is small enough is asked for bounds, whatever the norms of the rows."""
    made, init = [], ClassMetric.__init__
    monkeypatch.setattr(ClassMetric, "__init__", lambda self, *a, **k: (made.append(1), init(self, *a, **k))[1])
    found = glru.loocv(unlike_units(glru.Multinomial(), 40, 160), width="labels")
    assert found.n_undetermined == 0 and found.n_trainings == found.decided_by["training"] > 10
    assert len(made) <= found.n_trainings + 6


def test_narrowing_takes_what_labels_have_spared():
    """Where labels cost about as much as trainings, a default call leaves the intervals at that."""
    problem, spent = unlike_units(glru.Multinomial(), 40, 160), []
    for width in ("labels", None):
        solution, before = glru.solve(problem), counted()
        found = glru.loocv(solution, width=width)
        spent.append(counted() - before)
        assert found.n_undetermined == 0
    assert spent[0] <= spent[1] <= 1.25 * spent[0]
    # Where they cost little, intervals are narrow.
    easy = glru.loocv(make(glru.Logistic(), glru.L2(0.01), 60, 4))
    assert np.mean(easy.bounds.width) <= easy.aim


def test_wide_classes_are_trained_in_the_space_of_the_rows_whatever_ends_them():
    """A stopping rule sees the model in the columns of the data, and changes nothing by looking."""
    problem, seen = unlike_units(glru.Multinomial(), 30, 90), []
    plain, watched = glru.solve(problem), glru.solve(problem, until=lambda state: seen.append(state) or False)
    assert len(seen) > 1 and all(state.coef.shape == (3, 90) for state in seen)
    for state in seen:
        scores = problem.X @ state.coef.T + state.intercept
        np.testing.assert_allclose(scores, state.scores, atol=1e-6 * np.abs(scores).max())
    np.testing.assert_allclose(watched.coef, plain.coef, atol=1e-3 * np.abs(plain.coef).max())
    assert watched.work < 3 * plain.work


def test_refitted_classes_are_not_trained_where_steps_decide_them():
    """The first training of wide data says little about trainings of rows with strengths of their own, which take many times as long."""
    X, y = make_classification(60, 300, n_informative=8, n_redundant=0, n_classes=3, class_sep=0.8, random_state=3)
    model = make_pipeline(StandardScaler(), LogisticRegression())
    result = glru.loocv(model, X, y, width="labels")
    assert result.n_trainings == 0 and result.decided_by["newton"] == 60


def make_sparse(n_rows, n_columns, density, lam, sample=np.ones_like):
    """A logistic problem on sparse rows, and its solution."""
    rng = np.random.default_rng(1)
    shape = {"shape": (n_rows, n_columns), "density": density}
    X = sp.random_array(**shape, rng=rng, format="csr", data_sampler=lambda size: sample(rng.standard_normal(size)))
    y = np.where(X @ rng.standard_normal(n_columns) + 3.0 * rng.standard_normal(n_rows) > 0.0, 1.0, -1.0)
    return glru.solve(glru.Problem(X, y, glru.Logistic(), glru.L2(lam), fit_intercept=True))


def test_what_a_training_of_text_takes_is_known_without_one_by_factors():
    """A step that has lost too much is compared with one row's training, which products do: it is no training in full."""
    solution = make_sparse(600, 6000, 0.012, 2.0**-12, lambda values: np.exp(1.5 * values))
    problem, result = solution.problem, glru.loocv(solution, width="labels")
    assert result.n_trainings == 0 and result.bounds.decided.all()
    middles = np.abs(result.score_lower + result.score_upper)
    for row in np.argsort(middles)[:4]:
        alone = glru.solve(problem.without(np.array([row])), tol=1e-14)
        assert (
            result.score_lower[row] <= problem.matrix[[row]] @ alone.coef + alone.intercept <= result.score_upper[row]
        )


def test_moments_narrow_intervals_before_second_derivatives(monkeypatch):
    """Of sparse data with many rows these cost a hundred times as much; most rows do not need them."""
    asked, bound = [], single.bound_to_second_order
    monkeypatch.setattr(
        single, "bound_to_second_order", lambda family, rows: asked.append(rows.size) or bound(family, rows)
    )
    solution = make_sparse(12_000, 80, 0.15, 2.0**-5)
    width = 8e-6 * float(np.ptp(solution.scores))
    result = glru.loocv(solution, width=width)
    assert np.all(result.score_upper - result.score_lower <= width)
    assert 0 < sum(asked) < 4000
