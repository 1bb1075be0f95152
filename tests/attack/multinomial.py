"""Hostile multinomial problems: leave-one-out, the family of removals and changes against models retrained in 40 digits."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import mpmath
import numpy as np

import glru
from tests.attack.cases import DIGITS, Answer
from tests.certificates.class_truth import retrain_classes
from tests.certificates.test_after import KINDS, make_change
from tests.certificates.test_multinomial import problems, wide_problems
from tests.core import (
    ClassBall,
    ClassBlocks,
    ClassEllipsoid,
    ClassFolds,
    ClassRows,
    Refits,
    WideClasses,
    certify,
    class_space,
    has_class_folds,
    summed,
    train,
)
from tests.rows.data import in_blocks


def exact_model(problem: glru.Problem) -> tuple[Any, list[list[Any]], Any] | None:
    """Coefficients with the intercept last, one line per class, and how far any of them may be off; None where that is not known."""
    mp = mpmath.mp.clone()
    mp.dps = DIGITS + 10
    weight = [mp.mpf(float(w)) for w in problem.sample_weight]
    total = mp.fsum(weight) if problem.scaling == "mean" else mp.one
    s = [w / total for w in weight]
    X = problem.matrix.dense()
    X = np.column_stack([X, np.ones(problem.n_rows)]) if problem.fit_intercept else X
    n_scores, width = problem.n_scores, X.shape[1]
    lam = [float(v) for v in problem.quadratic] + [0.0] * int(problem.fit_intercept)
    weights = np.array([float(w) for w in s])
    model, _ = retrain_classes(
        problem.matrix.dense(), problem.y, weights, problem.quadratic, n_scores, problem.fit_intercept
    )
    W = [[mp.mpf(float(v)) for v in line] for line in model]
    rows = [[mp.mpf(float(v)) for v in line] for line in X]
    z = X @ model.astype(float).T
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    h = p[:, :, None] * np.eye(n_scores) - p[:, :, None] * p[:, None, :]
    hessian = np.einsum("i,iab,ij,ik->ajbk", weights, h, X, X, optimize=True)
    gauge = np.einsum("ajaj->j", hessian) + np.array(lam) + 1e-300
    for j in range(width):
        hessian[:, j, :, j] += gauge[j] + lam[j] * np.eye(n_scores)
    hessian = hessian.reshape(n_scores * width, -1)
    scale = 1.0 / np.sqrt(np.diag(hessian))
    inverse = np.linalg.inv(hessian * scale * scale[:, None]) * scale * scale[:, None]
    used = [i for i in range(problem.n_rows) if s[i] != 0]
    before = mp.inf
    for _ in range(60):
        gradient = [[lam[j] * W[a][j] for j in range(width)] for a in range(n_scores)]
        for i in used:
            scores = [mp.fdot(W[a], rows[i]) for a in range(n_scores)]
            top = max(scores)
            likely = [mp.exp(v - top) for v in scores]
            whole = mp.fsum(likely)
            for a in range(n_scores):
                slope = s[i] * (likely[a] / whole - (1 if a == problem.y[i] else 0))
                for j in range(width):
                    gradient[a][j] += slope * rows[i][j]
        size = max(abs(v) for line in gradient for v in line)
        if size == 0:
            doubt = mp.zero
            break
        if size > 0.5 * before:
            break
        before = size
        # The step is rounded, the gradient is not: the error falls by the relative error of the factor each time.
        flat = np.array([float(v / size) for line in gradient for v in line])
        step = (inverse @ flat).reshape(n_scores, width)
        W = [[W[a][j] - size * mp.mpf(float(step[a, j])) for j in range(width)] for a in range(n_scores)]
        means = [mp.fsum(W[a][j] for a in range(n_scores)) / n_scores for j in range(width)]
        W = [[W[a][j] - means[j] for j in range(width)] for a in range(n_scores)]
        doubt = size * mp.mpf(float(np.abs(step).max()))
        if doubt < mp.mpf(10) ** (-DIGITS + 5):
            break
    else:
        return None
    return mp, W, min(doubt, before * mp.mpf(float(np.abs(inverse).sum())))


def queries_of(
    found: tuple[Any, list[list[Any]], Any] | None, x: Any, fit_intercept: bool, reference: int
) -> list[tuple[Any, Any]] | None:
    """The scores of a row under an exact model, and by how much its reference leads, each with its doubt."""
    if found is None:
        return None
    mp, W, doubt = found
    row = [mp.mpf(float(v)) for v in x] + [mp.one] * int(fit_intercept)
    doubt = doubt * (mp.fsum(abs(v) for v in row) + 1)
    if not doubt < mp.mpf(10) ** -22:
        return None
    scores = [mp.fdot(line, row) for line in W]
    queries = scores + [scores[reference] - v for v in scores]
    return [(value, 2 * doubt) for value in queries]


def exact_queries(problem: glru.Problem, row: int, reference: int) -> list[tuple[Any, Any]] | None:
    """The queries of a row under the model without it; None where that was not found."""
    weight = np.array(problem.sample_weight)
    weight[row] = 0.0
    found = exact_model(problem.derive(sample_weight=weight))
    return queries_of(found, problem.matrix[[row]].dense()[0], problem.fit_intercept, reference)


def removals(random: np.random.Generator) -> Iterator[Answer]:
    """The family of removals, the region of each row's own problem, and leave-one-out as a whole."""
    problem = problems(int(random.integers(1 << 40)))
    solution = train(problem, tol=10.0 ** -random.uniform(2, 9))
    n_scores = problem.n_scores
    rows = np.sort(random.choice(problem.n_rows, min(3, problem.n_rows), replace=False))
    reference = random.integers(0, n_scores, rows.size)
    exact, known = [], []
    for place, row in enumerate(rows):
        found = exact_queries(problem, int(row), int(reference[place]))
        if found is not None:
            known.append(place)
            exact.append(found)
    if not known:
        return
    rows, reference = rows[known], reference[known]
    flat = [value for line in exact for value in line]

    def never(lower: Any, upper: Any) -> Any:
        return np.zeros(len(lower), dtype=bool)

    with np.errstate(all="ignore"):
        family = ClassRows(problem, solution.point)
        if family.usable:
            yield "ClassRows, closed form", flat, *(ends.ravel() for ends in family.bounds(rows, reference))
            for n_steps in (1, 3):
                found = family.refined(rows, reference, never, n_steps)
                yield f"ClassRows, {n_steps} steps", flat, *(ends.ravel() for ends in found)
        for factored in (False, True):
            for numbers in _step_together(problem, solution.point, rows, exact, factored):
                yield "ClassFolds, without a row", *numbers
        weight = np.array(problem.sample_weight)
        weight[rows[0]] = 0.0
        alone = problem.derive(sample_weight=weight)
        region = ClassEllipsoid.at(alone, train(alone, tol=1e-8, start=solution).point)
        lower, upper = region.queries(problem.matrix[rows[:1]], reference[:1])
        yield "ClassEllipsoid", exact[0], lower[0], upper[0]
        trained = train(alone, tol=10.0 ** -random.uniform(3, 14), start=solution)
        lower, upper = ClassBall(certify(alone, trained.point)).queries(problem.matrix[rows[:1]], reference[:1])
        yield "ClassBall", exact[0], lower[0], upper[0]
        result = glru.loocv(solution, width=random.choice([None, "labels"]), max_seconds=5.0)
    scores = [value for line in exact for value in line[:n_scores]]
    yield "leave-one-out, multinomial", scores, result.bounds.lower[rows].ravel(), result.bounds.upper[rows].ravel()
    labels, decided = np.ma.getdata(result.labels), result.decided[rows]
    for line, row in zip([exact[k] for k in np.flatnonzero(decided)], rows[decided], strict=True):
        place = int(np.searchsorted(problem.classes, labels[row]))
        leads = [(line[place][0] - line[k][0], 2 * line[k][1]) for k in range(n_scores) if k != place]
        yield "label, multinomial", leads, np.zeros(len(leads)), np.full(len(leads), np.inf)


def _step_together(
    problem: glru.Problem, start: Any, rows: Any, exact: list[Any], factored: bool
) -> Iterator[tuple[list[Any], Any, Any]]:
    """Models without one row each stepped together, in the metric of the smallest weights and probabilities: exact queries and bounds.

    ``exact``: the scores of each row; bounds come with a reference of their own.
    """
    folds, n_scores = [problem.without(rows[k : k + 1]) for k in range(rows.size)], problem.n_scores
    if not has_class_folds(problem, folds):
        return
    family = ClassFolds(problem, [problem] * rows.size)
    family.is_factored = factored and problem.matrix.stores_zeros
    family.approach(start)
    with patch.object(ClassFolds, "_shares_metric", lambda family: bool(np.ptp(family.strengths, axis=0).max() == 0.0)):
        found = family.with_folds(folds).bounds(start, list(rows[:, None]), lambda low, up: np.zeros(len(low), bool))
    for scores, ((lower, upper), _) in zip(exact, found, strict=True):
        reference = int(np.argmax(lower[0, n_scores:] == 0.0))
        leads = [(scores[reference][0] - value, 2 * doubt) for value, doubt in scores[:n_scores]]
        yield scores[:n_scores] + leads, lower[0], upper[0]


def hostile_wide_classes(random: np.random.Generator) -> glru.Problem:
    """A problem of more columns than rows, some with columns of heavy tails."""
    problem = wide_problems(int(random.integers(1 << 40)))
    if random.random() < 0.4:
        X = problem.matrix.dense()
        problem = problem.derive(X=X * np.exp(random.uniform(0.5, 2.5) * random.normal(size=X.shape)))
    return problem


def wide(random: np.random.Generator) -> Iterator[Answer]:
    """The family of removals over the rows of wide data, and leave-one-out as a whole."""
    problem = hostile_wide_classes(random)
    solution = train(problem, tol=10.0 ** -random.uniform(3, 9))
    rows = np.sort(random.choice(problem.n_rows, 3, replace=False))
    reference = random.integers(0, problem.n_scores, rows.size)
    with np.errstate(all="ignore"):
        space = class_space(problem)
        if space is None:
            return
        start = solution if problem.scaling == "sum" else summed(solution)
        refits = Refits(alone=np.zeros(problem.n_rows, dtype=bool))
        family, found = WideClasses(start, refits.summed(problem) if start is not solution else refits), {}
        for n_steps in (1, 3):
            found[f"{n_steps} steps"] = family.bounds(
                rows, reference, lambda lower, upper: np.zeros(len(lower), dtype=bool), n_steps
            )
        whole = glru.loocv(solution, width=random.choice([None, "labels"]), max_seconds=5.0).bounds
        lines = [exact_queries(problem, int(row), int(reference[place])) for place, row in enumerate(rows)]
        known = [place for place, line in enumerate(lines) if line is not None]
        for small, start in ((problem, solution.point), (space.problem, space.place(solution))):
            for numbers in _step_together(small, start, rows[known], [lines[k] for k in known], False) if known else ():
                yield f"ClassFolds, {'wide' if small is problem else 'in the space of the rows'}", *numbers
        for place, row in enumerate(rows):
            exact = lines[place]
            if exact is None:
                continue
            for name, (lower, upper) in found.items():
                yield f"WideClasses, {name}", exact, lower[place], upper[place]
            yield (
                "leave-one-out of wide data, multinomial",
                exact[: problem.n_scores],
                whole.lower[row],
                whole.upper[row],
            )


def blocks(random: np.random.Generator) -> Iterator[Answer]:
    """The family of removals of rows in blocks, and leave-one-out as a whole."""
    problem = problems(int(random.integers(1 << 40)))
    problem = problem.derive(X=problem.matrix.dense())
    rows = np.sort(random.choice(problem.n_rows, min(3, problem.n_rows), replace=False))
    with TemporaryDirectory() as folder, np.errstate(all="ignore"):
        held = in_blocks(Path(folder), problem, int(random.integers(1, 5)))
        solution = train(held, tol=10.0 ** -random.uniform(2, 9))
        family = ClassBlocks(held, solution.point)
        if not family.usable:
            return
        _, _, reference, first = family.closed_form()
        found = {"closed form": (first[0][rows], first[1][rows])}
        for n_steps in (1, 3):
            found[f"{n_steps} steps"] = family.refined(
                rows, reference[rows], lambda lower, upper: np.zeros(len(lower), dtype=bool), n_steps
            )
        whole = glru.loocv(solution, max_trainings=1).bounds
    for place, row in enumerate(rows):
        exact = exact_queries(problem, int(row), int(reference[row]))
        if exact is None:
            continue
        for name, (lower, upper) in found.items():
            yield f"ClassBlocks, {name}", exact, lower[place], upper[place]
        yield "leave-one-out of blocks, multinomial", exact[: problem.n_scores], whole.lower[row], whole.upper[row]


def changes(random: np.random.Generator) -> Iterator[Answer]:
    """What ``after`` proves of scores, differences, labels, probabilities and coefficients after one to three changes."""
    problem = problems(int(random.integers(1 << 40)))
    solution = train(problem, tol=10.0 ** -random.uniform(2, 9))
    change, changed = None, problem
    for kind in random.choice(KINDS, int(random.integers(1, 4))):
        if kind == "add-columns" and changed.n_columns > 5:
            continue
        step = make_change(str(kind), changed, int(random.integers(1, 4)), int(random.integers(1 << 30)))
        change, changed = step if change is None else change + step, step.apply(changed)
    if change is None:
        return
    exact = None
    if not changed.fit_intercept or np.unique(changed.y[changed.weights > 0.0]).size == changed.n_scores:
        with np.errstate(all="ignore"):
            exact = exact_model(changed)
    if exact is None:
        return
    n_scores, free = changed.n_scores, changed.fit_intercept
    places = random.choice(changed.n_rows, min(3, changed.n_rows), replace=False)
    X = changed.matrix[np.sort(places)].dense()
    bounds = ["auto", "local"] + ["primal"] * bool(np.all(changed.quadratic > 0.0))
    out = glru.after(
        solution,
        change,
        candidate=str(random.choice(["auto", "auto", "carry", "newton"])),
        bound=str(random.choice(bounds)),
        max_steps=random.choice([None, None, 0, 2]),
    )
    lower, upper = out.score_bounds(X)
    leads, decided = out.lead_bounds(X), out.decided(X)
    likely, labels = out.probability_bounds(X), np.ma.getdata(out.labels(X))
    for k, x in enumerate(X):
        leader = (
            int(np.flatnonzero((leads[0][k] == 0.0) & (leads[1][k] == 0.0))[0]) if np.any(leads[0][k] == 0.0) else 0
        )
        line = queries_of(exact, x, free, leader)
        if line is None:
            return
        scores = line[:n_scores]
        yield "after, scores", scores, lower[k], upper[k]
        yield "after, leads", line[n_scores:], leads[0][k], leads[1][k]
        mp = exact[0]
        top = max(value for value, _ in scores)
        sizes = [mp.exp(value - top) for value, _ in scores]
        whole = mp.fsum(sizes)
        yield "after, probabilities", [(v / whole, 4 * line[0][1]) for v in sizes], likely[0][k], likely[1][k]
        if decided[k]:
            place = int(np.searchsorted(changed.classes, labels[k]))
            margins = [(scores[place][0] - v, 2 * d) for j, (v, d) in enumerate(scores) if j != place]
            yield "after, labels", margins, np.zeros(len(margins)), np.full(len(margins), np.inf)
    if exact[2] < mpmath.mpf(10) ** -22:
        low, high = out.coef_bounds()
        flat = [(v, exact[2]) for line in exact[1] for v in line[: changed.n_columns]]
        yield "after, coefficients", flat, low.ravel(), high.ravel()
        if free:
            ends = out.intercept_bounds()
            yield "after, intercepts", [(line[-1], exact[2]) for line in exact[1]], *ends


def eliminations(random: np.random.Generator) -> Iterator[Answer]:
    """Models without one column, bounded in the metric with it, and the values of a step of a search."""
    problem = problems(int(random.integers(1 << 40)))
    if problem.n_columns < 2:
        return
    solution = train(problem, tol=10.0 ** -random.uniform(2, 9))
    j, n_scores, free = int(random.integers(problem.n_columns)), problem.n_scores, problem.fit_intercept
    kept = np.delete(np.arange(problem.n_columns), j)
    places = np.sort(random.choice(problem.n_rows, min(4, problem.n_rows), replace=False))
    y, X = problem.y[places], problem.matrix[places].dense()
    with np.errstate(all="ignore"):
        exact = exact_model(problem.select_columns(kept))
        lines = [queries_of(exact, x[kept], free, int(place)) for x, place in zip(X, y, strict=True)]
        if any(line is None for line in lines):
            return
        region = ClassEllipsoid.at(problem, solution.point).without(np.array([j]))
        for step in range(3):
            lower, upper = region.queries(problem.matrix[places], y)
            flat = [value for line in lines for value in line]
            yield f"ClassEllipsoid without a column, {step} steps", flat, lower.ravel(), upper.ravel()
            region = region.take_step()
        for criterion in ("error", "log_loss"):
            labels = problem.classes[y]
            found = glru.stepwise(solution, X_val=X, y_val=labels, criterion=criterion, max_steps=1, forced=True)
            step = found.path[0]
            mp = exact[0]
            leads = [
                [value for k, (value, _) in enumerate(line[n_scores:]) if k != p]
                for line, p in zip(lines, y, strict=True)
            ]
            doubt = 4 * max(d for line in lines for _, d in line)
            if criterion == "error":
                if any(abs(v) <= doubt for line in leads for v in line):
                    continue
                value = mp.mpf(sum(min(line) <= 0 for line in leads))
            else:
                value = mp.fsum(mp.log1p(mp.fsum(mp.exp(-v) for v in line)) for line in leads) / len(leads)
            place = [columns for _, columns in step.candidates].index((j,))
            yield f"stepwise, {criterion}", [(value, doubt)], step.lower[[place]], step.upper[[place]]


MULTINOMIAL = (removals, wide, blocks, changes, eliminations)
