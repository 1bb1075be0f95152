"""Hostile problems without single rows and groups of rows: every quantity of influence and the jackknife against models in 40 digits."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

import glru
from glru.verify.precise import precise_problem
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
            self.exact = replace(precise_problem(problem, DIGITS), mp=self.mp)

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
        """The exact Hessian at the optimum of all rows, of a loss with a curvature everywhere."""
        problem, mp = self.problem, self.mp
        X = problem.matrix.dense()
        X = np.column_stack([X, np.ones(len(X))]) if problem.fit_intercept else X
        rows = [[mp.mpf(float(v)) for v in line] for line in X]
        weights = self.weights()
        lam = [mp.mpf(float(v)) for v in problem.quadratic] + [mp.zero] * int(problem.fit_intercept)
        size = len(lam)
        found = mp.matrix(size, size)
        scores = self.full.scores(problem.matrix.dense())
        for row, (line, s, (z, _)) in enumerate(zip(rows, weights, scores, strict=True)):
            _, h = self.slope(row, z)
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

    def shifted(self, row: int, z: Any) -> tuple[Any, Any]:
        """The target of a row, and its score with the offset."""
        mp, problem = self.mp, self.problem
        return mp.mpf(float(problem.targets[row])), z + mp.mpf(float(problem.offset[row]))

    def slope(self, row: int, z: Any) -> tuple[Any, Any]:
        """The first and second derivative of a row's loss at a score."""
        return self.exact.slope(*self.shifted(row, z))

    def deviance(self, row: int, z: Any) -> Any:
        """The signed root of twice a row's loss at a score, above its least value."""
        mp, loss, (y, z) = self.mp, self.exact.loss, self.shifted(row, z)

        def entropy(u: Any) -> Any:
            return u * mp.log(u) if u else mp.zero

        if isinstance(loss, glru.Squared):
            return y - z
        if isinstance(loss, glru.Logistic):
            return y * mp.sqrt(2 * mp.log1p(mp.exp(-y * z)))
        if isinstance(loss, glru.losses.Binomial):
            value = mp.log1p(mp.exp(z)) - y * z + entropy(y) + entropy(1 - y)
        elif isinstance(loss, glru.Poisson):
            value = mp.exp(z) - y * z + entropy(y) - y
        elif isinstance(loss, glru.Gamma):
            value = y * mp.exp(-z) - 1 + z - mp.log(y)
        elif isinstance(loss, glru.Tweedie):
            a, b = 2 - mp.mpf(loss.power), mp.mpf(loss.power) - 1
            value = mp.exp(a * z) / a + y * mp.exp(-b * z) / b - y**a / (a * b)
        else:
            t = mp.mpf(loss.theta)
            value = (y + t) * (mp.log(t + mp.exp(z)) - mp.log(t + y)) - y * z + entropy(y)
        return -mp.sign(self.exact.slope(y, z)[0]) * mp.sqrt(2 * max(value, 0))

    def dispersion(self, freedom: Any) -> Any:
        """The dispersion, of Pearson's statistic where it is not known; None without degrees of freedom."""
        mp, loss = self.mp, self.exact.loss
        power = {glru.Squared: 0, glru.Gamma: 2, glru.Tweedie: getattr(loss, "power", 0)}.get(type(loss))
        if power is None:
            return mp.one
        weights, left = self.weights(), int(np.count_nonzero(self.problem.weights)) - freedom
        if not left > 0:
            return None
        total = mp.zero
        for row, (z, _) in enumerate(self.full.scores(self.problem.matrix.dense())):
            y, z = self.shifted(row, z)
            mean = z if power == 0 else mp.exp(z)
            total += weights[row] * (y - mean) ** 2 / (mean**power if power else 1)
        return total / self.mean_weight() / left

    def mean_weight(self) -> Any:
        """The mean weight of the rows that have one."""
        weights = self.weights()
        return self.mp.fsum(weights) / sum(1 for w in weights if w)


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
    scaled = problem.loss.self_concordance is not None
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
        if scaled:
            yield from residuals(truth, result, int(row), *after[row])
            yield from scaled_answers(truth, result, int(row), move, doubts, H, inverse, rows_exact, weights)


def residuals(truth, result, row, z, doubt) -> Iterator[Answer]:
    """Both residuals of a row at its held-out score."""
    mp = truth.mp
    slope, curvature = truth.slope(row, z)
    slack = 2 * curvature * doubt + mp.mpf(10) ** -30 * abs(slope)
    lower, upper = result.measure_bounds("deletion_residual")
    yield "deletion residual", [(-slope, slack)], lower[row], upper[row]
    ends = truth.deviance(row, z - doubt), truth.deviance(row, z + doubt)
    middle = truth.deviance(row, z)
    # Of values near 0 half of the digits are lost.
    slack = abs(ends[0] - ends[1]) + mp.mpf(10) ** -15 * mp.sqrt(mp.mpf(10) ** -20 * (1 + abs(z) + abs(slope)))
    lower, upper = result.measure_bounds("deviance_residual")
    yield "deviance residual", [(middle, slack)], lower[row], upper[row]


def scaled_answers(truth, result, row, move, doubts, H, inverse, rows, weights) -> Iterator[Answer]:
    """Quantities in units of the Hessian at the optimum of all rows."""
    mp, size = truth.mp, len(move)

    def form(left, matrix, right):
        return mp.fsum(left[a] * matrix[a, b] * right[b] for a in range(size) for b in range(size))

    # Doubts of the Hessian are those of the scores, far below the slack of 1e-25.
    slack = mp.mpf(10) ** -22
    scores = truth.full.scores(truth.problem.matrix.dense())
    leverages = [
        s * truth.slope(k, z)[1] * form(line, inverse, line)
        for k, (line, s, (z, _)) in enumerate(zip(rows, weights, scores, strict=True))
    ]
    lower, upper = result.measure_bounds("leverage")
    yield "leverage", [(leverages[row], slack * leverages[row])], lower[row], upper[row]
    freedom = mp.fsum(leverages) if np.any(truth.problem.quadratic) else size
    dispersion = truth.dispersion(freedom)
    if not dispersion or not freedom:
        return
    mean = truth.mean_weight() * dispersion
    cook = form(move, H, move) / (freedom * mean)
    off = mp.sqrt(form(doubts, mp.matrix([[abs(H[a, b]) for b in range(size)] for a in range(size)]), doubts))
    off = (2 * mp.sqrt(form(move, H, move)) * off + off**2) / (freedom * mean) + slack * cook
    lower, upper = result.measure_bounds("cooks_distance")
    yield "Cook's distance", [(cook, off)], lower[row], upper[row]
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
