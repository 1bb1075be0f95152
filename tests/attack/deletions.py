"""Hostile problems without single rows and groups of rows: every quantity of influence and the jackknife against models in 40 digits."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

import glru
from glru.verify.retraining import retrain
from tests.attack.cases import DIGITS, Answer, quiet
from tests.attack.generators import LOG_LINK, hostile_problem, problem_with_far_rows, unscaled_problem
from tests.core import GroupRows

SMOOTH = (*3 * (glru.Logistic(), glru.Squared()), *2 * (glru.Logistic(), glru.Huber(0.5)), *LOG_LINK)


def some_problem(random: np.random.Generator) -> glru.Problem:
    """A hostile problem of a loss with a curvature."""
    loss = SMOOTH[random.integers(len(SMOOTH))]
    kind = random.random()
    if kind < 0.2:
        return problem_with_far_rows(random)
    if kind < 0.35:
        return nearly_dependent_problem(random)
    return hostile_problem(random, loss) if kind < 0.7 else unscaled_problem(random, loss)


def nearly_dependent_problem(random: np.random.Generator) -> glru.Problem:
    """A column is nearly a combination of the others, a power of a number, or nearly constant; there is hardly a penalty or none."""
    n, d = int(random.integers(10, 24)), int(random.integers(2, 5))
    X = random.normal(size=(n, d))
    noise = 10.0 ** random.uniform(-12.0, -3.0) * random.normal(size=n)
    kind = random.integers(3)
    if kind == 0:
        X[:, -1] = X[:, :-1] @ random.choice([-1.0, 0.3, 1.0], d - 1) + noise
    elif kind == 1:
        X = np.vander(1.0 + 10.0 ** random.uniform(-3.0, 0.0) * np.sort(random.random(n)), d + 1)[:, :-1]
    else:
        X[:, 0] = 10.0 ** random.uniform(0.0, 3.0) + noise
    X = X * 2.0 ** random.integers(-30, 31, d)
    z = random.normal(size=n)
    penalty = glru.L2(np.where(random.random(d) < 0.8, 0.0, 10.0 ** random.uniform(-12.0, 0.0)))
    loss = (glru.Squared(), glru.Logistic(), *LOG_LINK)[min(random.integers(6), random.integers(2 + len(LOG_LINK)))]
    y = np.where(np.argsort(np.argsort(z)) < n // 2, -1.0, 1.0) if isinstance(loss, glru.Logistic) else z
    if loss.link != "identity":
        y = random.random(n) if loss.link == "logit" else random.gamma(2.0, 1.0, n) + 1e-3
    scaling = str(random.choice(["sum", "mean"]))
    return glru.Problem(X, y, loss, penalty, fit_intercept=bool(random.random() < 0.8), scaling=scaling)


class Truth:
    """The exact model of all rows, and what is asked of those without some."""

    def __init__(self, problem: glru.Problem) -> None:
        self.problem, self.full = problem, retrain(problem, DIGITS)
        if self.full is not None:
            self.mp = self.full.mp

    def move(self, rows: np.ndarray) -> tuple[list[Any], list[Any], Any] | None:
        """The exact change of every coefficient (the intercept last) without some rows, its doubts, and that model."""
        problem = self.problem.without(rows)
        if not problem.weights.any():
            return None
        truth = retrain(problem, DIGITS)
        if truth is None:
            return None
        ends = slice(None) if self.problem.fit_intercept else slice(-1)
        before = [*self.full.coef, self.full.intercept][ends]
        after = [*truth.coef, truth.intercept][ends]
        doubts = [a + b for a, b in zip(self.full.doubts, truth.doubts, strict=True)][ends]
        return [b - a for a, b in zip(after, before, strict=True)], doubts, truth

    def hessian(self) -> Any:
        """The exact Hessian at the optimum of all rows, for the logistic and the squared loss."""
        problem, mp = self.problem, self.mp
        X = problem.matrix.dense()
        X = np.column_stack([X, np.ones(len(X))]) if problem.fit_intercept else X
        rows = [[mp.mpf(float(v)) for v in line] for line in X]
        weights = self.weights()
        lam = [mp.mpf(float(v)) for v in problem.quadratic] + [mp.zero] * int(problem.fit_intercept)
        size = len(lam)
        found = mp.matrix(size, size)
        for line, s, (z, _) in zip(rows, weights, self.full.scores(problem.matrix.dense()), strict=True):
            h = self.curvature(z)
            for a in range(size):
                for b in range(size):
                    found[a, b] += s * h * line[a] * line[b]
        for a in range(size):
            found[a, a] += lam[a]
        return found, rows, weights

    def weights(self) -> list[Any]:
        """The exact weights of the objective."""
        weights = [self.mp.mpf(float(w)) for w in self.problem.sample_weight]
        total = self.mp.fsum(weights) if self.problem.scaling == "mean" else self.mp.one
        return [w / total for w in weights]

    def curvature(self, z: Any) -> Any:
        """The second derivative of the loss at a score."""
        if isinstance(self.problem.loss, glru.Squared):
            return self.mp.one
        return 1 / ((1 + self.mp.exp(z)) * (1 + self.mp.exp(-z)))


@contextmanager
def closed_forms_of_few(random: np.random.Generator) -> Iterator[None]:
    """Half of the time, the stages that are worth their overhead on many rows or groups only."""

    def knows_second_order(groups: Any) -> bool:
        plain = groups.family.base.constant > 0.0 and bool(np.all(groups.factors == 1.0))
        return plain and groups.family.knows_second_order

    if random.random() < 0.5:
        yield
        return
    with (
        patch("glru.deletion.deletions.MANY_ROWS", -1),
        patch("glru.deletion.deletions.WORTH_A_STAGE", -1.0),
        patch.object(GroupRows, "has_second_order", property(knows_second_order)),
    ):
        yield


def influence(random: np.random.Generator) -> Iterator[Answer]:
    """Changes of coefficients, of fitted values, Cook's distance and leverages of some rows."""
    problem = some_problem(random)
    truth = Truth(problem)
    if truth.full is None or problem.n_used < 2:
        return
    solution, width = quiet(problem, random), float(random.choice([1e-1, 1e-3, 1e-6, 1e-12]))
    try:
        with closed_forms_of_few(random):
            result = glru.influence(solution, width=width, max_seconds=10.0)
    except ValueError as error:
        if "regular" in str(error) or "optimum" in str(error):
            return
        raise
    rows = random.choice(problem.n_rows, min(2, problem.n_rows), replace=False)
    scaled = isinstance(problem.loss, glru.Logistic | glru.Squared)
    H = rows_exact = weights = inverse = None
    if scaled:
        H, rows_exact, weights = truth.hessian()
        try:
            inverse = H**-1
        except ZeroDivisionError:
            return
    X = problem.matrix.dense()
    for row in rows:
        if problem.weights[row] == 0.0:
            continue
        found = truth.move(np.array([row]))
        if found is None:
            continue
        move, doubts, without = found
        yield (
            f"dfbeta, {result.stages[row]}",
            list(zip(move, doubts, strict=True)),
            *(e[0] for e in result.dfbeta([row])),
        )
        before, after = truth.full.scores(X), without.scores(X)
        changes = [(a - b, off + more) for (a, off), (b, more) in zip(before, after, strict=True)]
        yield "changes of fitted values", changes, *(ends[0] for ends in result.fitted_changes([row]))
        lower, upper = result.measure_bounds("score_change")
        yield "own fitted value", [changes[row]], lower[row], upper[row]
        lower, upper = result.measure_bounds("held_out_score")
        yield "held-out score", [after[row]], lower[row], upper[row]
        if scaled and isinstance(problem.loss, glru.Logistic):
            yield from scaled_answers(truth, result, int(row), move, doubts, H, inverse, rows_exact, weights)


def scaled_answers(truth, result, row, move, doubts, H, inverse, rows, weights) -> Iterator[Answer]:
    """Quantities in units of the Hessian at the optimum of all rows; the dispersion of the logistic loss is 1."""
    mp, size = truth.mp, len(move)

    def form(left, matrix, right):
        return mp.fsum(left[a] * matrix[a, b] * right[b] for a in range(size) for b in range(size))

    # Doubts of the Hessian are those of the scores, far below the slack of 1e-25.
    slack = mp.mpf(10) ** -22
    mean = mp.fsum(weights) / sum(1 for w in weights if w)
    leverages = [
        s * truth.curvature(z) * form(line, inverse, line)
        for line, s, (z, _) in zip(rows, weights, truth.full.scores(truth.problem.matrix.dense()), strict=True)
    ]
    freedom = mp.fsum(leverages) if np.any(truth.problem.quadratic) else size
    cook = form(move, H, move) / (freedom * mean)
    off = mp.sqrt(form(doubts, mp.matrix([[abs(H[a, b]) for b in range(size)] for a in range(size)]), doubts))
    off = (2 * mp.sqrt(form(move, H, move)) * off + off**2) / (freedom * mean) + slack * cook
    lower, upper = result.measure_bounds("cooks_distance")
    yield "Cook's distance", [(cook, off)], lower[row], upper[row]
    lower, upper = result.measure_bounds("leverage")
    yield "leverage", [(leverages[row], slack * leverages[row])], lower[row], upper[row]
    units = [mp.sqrt(mean * inverse[a, a]) for a in range(size)]
    values = [(m / u, (d + slack * abs(m)) / u) for m, d, u in zip(move, doubts, units, strict=True)]
    yield "dfbetas", values, *(ends[0] for ends in result.dfbetas([row]))
    change = mp.fdot(rows[row], move)
    unit = mp.sqrt(mean * form(rows[row], inverse, rows[row]))
    if unit:
        off = mp.fdot([abs(v) for v in rows[row]], doubts) + slack * abs(change)
        lower, upper = result.measure_bounds("dffits")
        yield "dffits", [(change / unit, off / unit)], lower[row], upper[row]


def jackknife(random: np.random.Generator) -> Iterator[Answer]:
    """Standard errors, covariance and bias of groups of rows."""
    problem = some_problem(random)
    truth = Truth(problem)
    n_groups = int(random.integers(2, 5))
    groups = random.integers(0, n_groups, problem.n_rows)
    used = np.unique(groups[problem.weights > 0.0])
    if truth.full is None or used.size < 2:
        return
    center = str(random.choice(["estimate", "mean"]))
    solution, width = quiet(problem, random), float(random.choice([1e-1, 1e-3, 1e-6, 1e-12]))
    try:
        with closed_forms_of_few(random):
            result = glru.jackknife(solution, groups=groups, width=width, center=center, max_seconds=10.0)
    except ValueError as error:
        if "regular" in str(error) or "optimum" in str(error):
            return
        raise
    found = [truth.move(np.flatnonzero(groups == g)) for g in used]
    if any(one is None for one in found):
        return
    mp, n, size = truth.mp, used.size, len(found[0][0])
    moves = [[-v for v in one[0]] for one in found]
    doubt = max(d for one in found for d in one[1])
    means = [mp.fsum(m[j] for m in moves) / n for j in range(size)]
    bias = [((n - 1) * v, 2 * n * doubt) for v in means]
    yield "jackknife, bias", bias, *result.bias_bounds
    if center == "mean":
        moves = [[v - c for v, c in zip(m, means, strict=True)] for m in moves]
    factor = mp.mpf(n - 1) / n
    covariance = [[factor * mp.fsum(m[a] * m[b] for m in moves) for b in range(size)] for a in range(size)]
    largest = max(abs(v) for m in moves for v in m)
    off = 8 * n * doubt * (largest + doubt)
    lower, upper = result.covariance_bounds
    yield "jackknife, covariance", [(v, off) for line in covariance for v in line], lower.ravel(), upper.ravel()
    errors = [(mp.sqrt(covariance[a][a]), 4 * n * doubt) for a in range(size)]
    yield "jackknife, standard errors", errors, *result.standard_error_bounds
    if problem.loss.task == "regression" and problem.loss.link != "logit":
        models = {int(g): one[2] for g, one in zip(used, found, strict=True)}
        yield from prediction_intervals(random, mp, problem, groups, models, result)


def prediction_intervals(random, mp, problem, groups, models, result) -> Iterator[Answer]:
    """Both ends of jackknife+ intervals of some rows, by their definition."""
    X, rows = problem.matrix.dense(), np.flatnonzero(problem.weights > 0.0)
    queries = X[random.choice(problem.n_rows, 2)] * random.choice([1.0, -3.0])
    shifted = isinstance(problem.loss, glru.losses.WithOffset)
    offset = random.normal(size=2) if shifted else None

    def means(model, points, shifts):
        scores = [(z + mp.mpf(float(o)), off) for (z, off), o in zip(model.scores(points), shifts, strict=True)]
        if problem.loss.link == "identity":
            return scores
        return [(mp.exp(z), mp.exp(z) * mp.expm1(off)) for z, off in scores]

    shifts = offset if shifted else np.zeros(2)
    own = {g: means(model, X, problem.offset) for g, model in models.items()}
    new = {g: means(model, queries, shifts) for g, model in models.items()}
    k = int(random.integers(1, rows.size + 1))
    # A level whose rank is k for certain.
    ends = result.prediction_interval(queries, (k - 0.5) / (rows.size + 1), offset)
    for query in range(2):
        values = []
        for row in rows:
            (mean, off), (fitted, more) = new[groups[row]][query], own[groups[row]][row]
            values.append((mean, abs(mp.mpf(float(problem.targets[row])) - fitted), off + more))
        doubt = max(off for _, _, off in values)
        exact = sorted(m - r for m, r, _ in values)[rows.size - k], sorted(m + r for m, r, _ in values)[k - 1]
        for name, value, (lower, upper) in zip(("lower", "upper"), exact, ends, strict=True):
            yield f"prediction interval, {name} end", [(value, doubt)], lower[[query]], upper[[query]]


def leave_one_out(random: np.random.Generator) -> Iterator[Answer]:
    """Held-out scores where columns are nearly dependent, so that the metric is made from the rows."""
    problem = nearly_dependent_problem(random)
    result = glru.loocv(quiet(problem, random), width=float(random.choice([1.0, 1e-3, 1e-9])), max_seconds=10.0)
    for row in random.choice(problem.n_rows, 3, replace=False):
        truth = retrain(problem.without(np.array([row])), DIGITS)
        if truth is not None:
            ends = result.bounds.lower[[row]], result.bounds.upper[[row]]
            yield f"held-out score, {result.stages[row]}", [truth.scores(problem.matrix.dense())[row]], *ends


DELETIONS = (influence, influence, jackknife, leave_one_out)
