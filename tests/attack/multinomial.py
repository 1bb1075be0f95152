"""Hostile multinomial problems: leave-one-out and the family of removals against models retrained in 40 digits."""

from collections.abc import Iterator
from typing import Any

import mpmath
import numpy as np

import glru
from tests.attack.cases import DIGITS, Answer
from tests.certificates.class_truth import retrain_classes
from tests.certificates.test_multinomial import problems
from tests.core import ClassEllipsoid, ClassRows, train


def exact_queries(problem: glru.Problem, row: int, reference: int) -> list[tuple[Any, Any]] | None:
    """The scores of a row under the model without it, and by how much its reference leads, each with its doubt; None where none was found."""
    mp = mpmath.mp.clone()
    mp.dps = DIGITS + 10
    weight = [mp.mpf(float(w)) for w in problem.sample_weight]
    weight[row] = mp.zero
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
        if size == 0 or size > 0.5 * before:
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
    reach = mp.fsum(abs(v) for v in rows[row]) + 1
    doubt = min(doubt, before * mp.mpf(float(np.abs(inverse).sum()))) * reach
    if not doubt < mp.mpf(10) ** -22:
        return None
    scores = [mp.fdot(W[a], rows[row]) for a in range(n_scores)]
    queries = scores + [scores[reference] - v for v in scores]
    return [(value, 2 * doubt) for value in queries]


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
        weight = np.array(problem.sample_weight)
        weight[rows[0]] = 0.0
        alone = problem.derive(sample_weight=weight)
        region = ClassEllipsoid.at(alone, train(alone, tol=1e-8, start=solution).point)
        lower, upper = region.queries(problem.matrix[rows[:1]], reference[:1])
        yield "ClassEllipsoid", exact[0], lower[0], upper[0]
        result = glru.loocv(solution, width=random.choice([None, "labels"]), max_seconds=5.0)
    scores = [value for line in exact for value in line[:n_scores]]
    yield "leave-one-out, multinomial", scores, result.bounds.lower[rows].ravel(), result.bounds.upper[rows].ravel()
    labels, decided = np.ma.getdata(result.labels), result.decided[rows]
    for line, row in zip([exact[k] for k in np.flatnonzero(decided)], rows[decided], strict=True):
        place = int(np.searchsorted(problem.classes, labels[row]))
        leads = [(line[place][0] - line[k][0], 2 * line[k][1]) for k in range(n_scores) if k != place]
        yield "label, multinomial", leads, np.zeros(len(leads)), np.full(len(leads), np.inf)


MULTINOMIAL = (removals,)
