"""The paper's bound for every single column that leaves (Algorithm 5), all at once."""

import numpy as np

from glru.bounds import widen
from glru.certificate import ball_radius, loss_terms, penalty_terms
from glru.linalg import FEW, HOST, Array, Matrix, gamma
from glru.regions.base import centers
from glru.solution import Solution
from glru.updates.columns.common import Columns, rounded_norms


def carried_columns(solution: Solution, queries: Matrix, columns: Columns) -> tuple[Array, Array]:
    """The paper's bound (Algorithm 5): Primal-SCB around the old optimum without each column.

    Needs a strongly convex penalty and no intercept.
    """
    problem, root = solution.problem, solution.certificate
    inverse = 1.0 / np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))
    queries_squares = queries.squared_row_norms(inverse)
    score, score_off = centers(queries, solution.coef, 0.0)
    kept = penalty_terms(problem.penalty, solution.coef, root.correlations, root.correlation_errors)
    total = float(kept.sum()) * (1.0 + gamma(problem.n_columns + 2))
    lower, upper = np.empty((queries.shape[0], columns.size)), np.empty((queries.shape[0], columns.size))
    width = max(16, HOST.chunk // problem.n_rows)
    for start in range(0, columns.size, width):
        here = columns[start : start + width]
        block = problem.matrix.dense(here)
        moved = block * solution.coef[here]
        scores = solution.scores[:, None] - moved
        errors = root.score_errors[:, None] + 4.0 * FEW * (np.abs(moved) + np.abs(scores))
        terms = loss_terms(problem.loss, problem.y[:, None], scores, errors, solution.dual[:, None])
        terms[problem.weights == 0.0] = 0.0
        losses = (problem.weights @ terms) * (1.0 + gamma(problem.n_rows + 4))
        gaps = (losses + np.maximum(total - kept[here] * (1.0 - FEW), 0.0) + FEW * total) * (1.0 + FEW)
        gaps = np.where(np.isfinite(gaps), gaps, np.inf)
        asked = queries.dense(here)
        shift = asked * solution.coef[here]
        own = np.square(asked) * inverse[here]
        squares = queries_squares[:, None] - own + gamma(problem.n_columns + 8) * (queries_squares[:, None] + own)
        reach = rounded_norms(np.maximum(squares, 0.0), problem)
        off = score_off[:, None] + 4.0 * FEW * (np.abs(score)[:, None] + np.abs(shift))
        part = slice(start, start + width)
        lower[:, part], upper[:, part] = widen(score[:, None] - shift, ball_radius(gaps) * reach * (1.0 + FEW) + off)
    return lower, upper
