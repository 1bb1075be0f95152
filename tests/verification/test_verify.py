"""The checker: it agrees with the other oracle, finds nothing wrong where nothing is, and sees what is wrong."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import glru
from glru.verify.retraining import retrain, retrain_classes
from tests.attack.multinomial import exact_model
from tests.cases import LOSSES, PENALTIES, PROBLEMS, each, make, uneven, with_bounds
from tests.certificates import exact
from tests.certificates.truth import trained
from tests.core import ScoreBounds


@each(LOSSES, "loss")
@each(PENALTIES, "penalty")
@pytest.mark.parametrize("options", [{}, {"fit_intercept": True}, {"scaling": "sum", "sample_weight": uneven(20)}])
def test_retraining_agrees_with_the_oracle_of_the_tests(loss, penalty, options):
    """Two programs that share nothing but the definitions give the same 30 digits."""
    problem = make(loss, penalty, 20, 5, seed=3, **options)
    start = trained(problem, 1e-13)
    other, own = exact.optimum(problem, start.coef, start.intercept), retrain(problem)
    if isinstance(loss, glru.Hinge) and isinstance(penalty, glru.L1) and own is None:
        return  # a linear program: its sets are not always found, and that is said
    assert own is not None and other is not None
    for mine, theirs in zip([*own.coef, own.intercept], [*other.coef, other.intercept], strict=True):
        assert abs(mine - own.mp.mpf(str(theirs))) <= own.mp.mpf(10) ** -30 * (1 + abs(mine))


@each(PROBLEMS, "build")
@each({name: LOSSES[name] for name in ("logistic", "huber", "hinge")}, "loss")
def test_leave_one_out(build, loss):
    """Nothing is wrong with certified bounds, whatever the layout, weights and scaling."""
    problem = build(loss, glru.L2(0.05))
    found = glru.verify(glru.loocv(problem), problem, sample=3, digits=30)
    assert found.checked + found.unchecked == 3
    # The sets of rows at the kink of a hinge are not always found in high precision, and that is said.
    assert found.checked >= 2 or isinstance(loss, glru.Hinge)
    assert found.wrong == ()


def test_every_kind_of_result():
    """Folds, changes and steps are checked, each against models of their own."""
    problem = make(glru.Logistic(), glru.L2(0.05), 40, 6)
    folds = glru.verify(glru.cross_val_predict(problem, cv=4), problem, sample=None)
    assert (folds.checked, folds.wrong, folds.unchecked) == (40, (), 0)
    out = glru.after(glru.solve(problem), glru.RemoveRows([1, 2]) + glru.RemoveColumns([0]))
    changed = glru.verify(out, problem, sample=None, queries=problem.X[:5, 1:])
    assert (changed.checked, changed.wrong) == (5 + 5 + 1 + 38, ())
    assert 0.0 <= changed.tightest <= 1.0
    rows = make(glru.Logistic(), glru.L2(0.05), 30, 6, seed=5)
    for direction in ("backward", "forward"):
        for criterion in ("error", "log_loss"):
            path = glru.stepwise(problem, X_val=rows.X, y_val=rows.y, direction=direction, criterion=criterion)
            steps = glru.verify(path, problem, sample=None, queries=rows.X, targets=rows.y)
            assert steps.checked == sum(step.n_candidates for step in path.path)
            assert steps.wrong == ()


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_several_classes(fit_intercept):
    """Retraining agrees with the oracle of the tests, and every kind of result is checked and right."""
    random = np.random.default_rng(0)
    # A power of two: both take the weights 1 / n as they are.
    X, y = random.normal(size=(32, 3)) * [1.0, 30.0, 0.01], np.array(["a", "b", "c", "d"])[np.arange(32) % 4]
    problem = glru.Problem(X, y, glru.Multinomial(), glru.L2([0.1, 1.0, 1e-4]), fit_intercept)
    own, other = retrain_classes(problem), exact_model(problem)
    width = 3 + int(fit_intercept)
    assert own is not None and other is not None
    for mine, theirs in zip(own.model[:, :width].ravel(), np.ravel(other[1]), strict=True):
        assert abs(mine - own.mp.mpf(str(theirs))) <= own.mp.mpf(10) ** -30 * (1 + abs(mine))
    rows = glru.verify(glru.loocv(problem), problem, sample=8)
    assert (rows.checked, rows.wrong) == (8, ())
    folds = glru.verify(glru.cross_val_predict(problem, cv=3), problem, sample=12)
    assert (folds.checked, folds.wrong) == (12, ())
    out = glru.after(problem, glru.RemoveRows([1, 2]) + glru.RemoveColumns([0]))
    changed = glru.verify(out, problem, sample=None, queries=X[:2, 1:])
    assert (changed.checked, changed.wrong) == (2 * 7 + 4 * (2 + 1) + 30 * 4, ())


def test_wrong_bounds_of_several_classes_are_seen():
    random = np.random.default_rng(0)
    problem = glru.Problem(random.normal(size=(20, 2)), np.arange(20) % 3, glru.Multinomial(), glru.L2(0.1))
    result = glru.loocv(problem, width=1e-9)
    bounds = result.bounds
    moved = ScoreBounds(bounds.lower + 1e-8, bounds.upper + 1e-8, (bounds.winners + 1) % 3)
    wrong = replace(result, results=replace(result.rows, bounds=moved))
    found = glru.verify(wrong, problem, sample=None)
    assert found.n_wrong >= found.checked * 0.8
    assert any("label of row" in text for text in found.wrong)


def test_wrong_bounds_are_seen():
    """An interval that misses its score by a hair is reported, with the numbers."""
    problem = make(glru.Logistic(), glru.L2(0.05), 20, 4)
    result = glru.loocv(problem, width=1e-9)
    moved = with_bounds(result, result.score_lower + 2e-9, result.score_upper + 2e-9)
    found = glru.verify(moved, problem, sample=None)
    assert found.n_wrong == 20
    assert "score of row 0" in found.wrong[0] and "is not between" in found.wrong[0]
    assert found.tightest < 0.0


def test_open_bounds_are_counted():
    """An L1 penalty bounds no score: nothing to check, and that is said."""
    problem = make(glru.Squared(), glru.L1(0.3), 10, 3)
    out = glru.after(glru.solve(problem), glru.RemoveRows([0]), candidate="carry", bound="primal")
    found = glru.verify(out, problem, queries=problem.X)
    assert found.undetermined == 13 + 9 and found.checked == 1


def test_a_model_without_optimum_is_unchecked():
    """Separable rows without a penalty have no optimal model."""
    problem = glru.Problem([[-2.0], [-1.0], [1.0], [2.0]], [0, 0, 1, 1], penalty=glru.L2([0.0]))
    assert retrain(problem, 30) is None


def test_errors():
    """What cannot be verified is refused."""
    problem = make(glru.Logistic(), glru.L2(0.05), 20, 4)
    result = glru.loocv(problem)
    with pytest.raises(TypeError, match=r"verify takes what glru\.loocv"):
        glru.verify(problem, problem)
    with pytest.raises(TypeError, match=r"its glru\.Problem"):
        glru.verify(result, result)
    with pytest.raises(ValueError, match="at least 30"):
        glru.verify(result, problem, digits=15)
    with pytest.raises(ValueError, match="at least 1"):
        glru.verify(result, problem, sample=0)
    with pytest.raises(ValueError, match="proves nothing"):
        glru.verify(glru.loocv(problem, method="naive"), problem)
    with pytest.raises(ValueError, match="of 20 rows"):
        glru.verify(result, make(glru.Logistic(), glru.L2(0.05), 21, 4))
    path = glru.stepwise(problem, X_val=problem.X, y_val=problem.y, max_steps=1)
    with pytest.raises(ValueError, match="validation rows"):
        glru.verify(path, problem)


@pytest.mark.parametrize("loss", [glru.Logistic(), glru.Squared()])
@pytest.mark.parametrize("lam", [0.0, 0.3])
def test_information_criteria(loss, lam):
    """The likelihood of the training rows, and the trace of the hat matrix where there is a penalty."""
    random = np.random.default_rng(0)
    X, weight = random.normal(size=(20, 3)), random.uniform(1.0, 3.0, 20)
    z = X[:, 0] + random.normal(size=20)
    y = z if loss.task == "regression" else z > 0.0
    problem = glru.Problem(X, y, loss, glru.L2(np.array([0.0, lam, 2.0 * lam])), True, sample_weight=weight)
    path = glru.stepwise(problem, criterion="bic", max_steps=1)
    found = glru.verify(path, problem, sample=None, digits=30)
    assert found.checked == 3 and found.wrong == ()
    step = replace(path.path[0], lower=path.path[0].upper + 1e-5, upper=path.path[0].upper + 2e-5)
    assert len(glru.verify(replace(path, path=(step,)), problem, sample=None, digits=30).wrong) == 3


REFITTED = {
    "scaled": make_pipeline(StandardScaler(), LogisticRegression(C=0.3)),
    "filled": make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression(class_weight="balanced")),
    "row-by-row": make_pipeline(StandardScaler(), PCA(2), Ridge()),
    "balanced": LogisticRegression(C=1e-2, class_weight="balanced"),
}


@each(REFITTED, "estimator")
def test_results_of_pipelines(estimator):
    """The models are those of steps and weights fitted without the held-out rows."""
    X, y = load_breast_cancer(return_X_y=True)
    X, y = X[::30, :4].copy(), y[::30]
    if "SimpleImputer" in repr(estimator):
        X[[2, 5], [1, 3]] = np.nan
    found = glru.cross_val_predict(estimator, X, y, cv=3, width=1e-5, return_result=True)
    for result in (glru.loocv(estimator, X, y), found):
        checked = glru.verify(result, result.problem, sample=8)
        assert checked.checked == 8
        assert checked.n_wrong == 0, checked.wrong
        with pytest.raises(ValueError, match=r"Give result\.problem"):
            glru.verify(result, result.problem.derive())
    wrong = replace(found, bounds=ScoreBounds(found.bounds.lower + 0.1, found.bounds.upper + 0.1))
    assert glru.verify(wrong, wrong.problem, sample=8).n_wrong == 8


def test_one_model_per_class_is_refused():
    X, y = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30) % 3
    model = OneVsRestClassifier(LogisticRegression())
    for result in (glru.loocv(model, X, y), glru.cross_val_predict(model, X, y, cv=3, return_result=True)):
        with pytest.raises(ValueError, match="verify retrains one model; got a result of 3, one per class"):
            glru.verify(result, sample=2)
