"""Leave-one-out the obvious way: every row's problem trained by itself, as far as float64 goes."""

import warnings

import numpy as np
import scipy.sparse as sp

import glru
from tests.cases import stored


def derived(problem, weight):
    """The problem with other sample weights."""
    return problem.derive(sample_weight=np.array(weight, dtype=float))


def carefully(problem, start=None):
    """The optimum, as near as float64 comes to it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rough = isinstance(problem.loss, glru.Hinge)
        solution = glru.solve(problem, tol=1e-13 if rough else 1e-22, start=start)
        if rough or solution.reached(1e-15):
            return solution
        others = [glru.solve(problem, tol=1e-22, start=point) for point in (solution, None)]
    return min(solution, *others, key=lambda s: s.solver_gap)


def scores_after(problem, weight, rows, start=None):
    """Scores of some rows under the model trained with other weights, and how far each may be from the truth."""
    solution = carefully(derived(problem, weight), start)
    scores = solution.scores[rows]
    lam = problem.penalty.strong_convexity
    size = np.sqrt(problem.squared_row_norms[rows])
    rounding = 1e-12 * (1.0 + np.abs(scores) + size * np.linalg.norm(solution.coef))
    if lam == 0.0 or problem.fit_intercept:
        # No radius is known here; a smooth loss was trained to a gap of about 1e-20, a hinge to about 1e-13.
        rough = isinstance(problem.loss, glru.Hinge) or lam == 0.0
        return scores, rounding + (1e-3 if rough else 1e-7) * (1.0 + np.abs(scores))
    return scores, rounding + np.sqrt(2.0 * max(solution.gap, 0.0) / lam) * size


def held_out(solution, rows=None):
    """Every row's score under the model trained without it, and how far it may be from the truth."""
    problem = solution.problem
    found = []
    for row in range(problem.n_rows) if rows is None else rows:
        weight = problem.sample_weight.copy()
        weight[row] = 0.0
        score, off = scores_after(problem, weight, [row], solution)
        found.append((score[0], off[0]))
    return tuple(np.array(found).T)


def assert_inside(scores, off, lower, upper):
    """No interval misses its score by more than the score itself may be off; the ends are numbers in order."""
    assert not np.isnan(lower).any()
    assert not np.isnan(upper).any()
    assert np.all(lower <= upper)
    missed = np.flatnonzero((scores + off < lower) | (scores - off > upper))
    assert not missed.size, [(int(i), scores[i], off[i], lower[i], upper[i]) for i in missed[:5]]


def assert_proven(result, scores, off):
    """Intervals hold the retrained scores, and no label that is given is wrong."""
    assert_inside(scores, off, result.score_lower, result.score_upper)
    if result.labels is not None:
        sure = np.abs(scores) > off
        wrong = sure & (result.bounds.signs != 0) & (result.bounds.signs != np.sign(scores))
        assert not wrong.any(), np.flatnonzero(wrong)
        assert np.array_equal(result.bounds.signs == 1, result.score_lower > 0.0)
        assert np.array_equal(result.bounds.signs == -1, result.score_upper < 0.0)
    assert sum(result.decided_by.values()) == result.problem.n_rows


def standardised(X):
    """Columns of mean 0 and variance 1, constant ones left out."""
    X = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=float)
    X = X[:, X.std(axis=0) > 0.0]
    return (X - X.mean(axis=0)) / X.std(axis=0)


def real(name):
    """``X, y`` of a dataset in the folder ``GLRU_DATA``, standardised; the test is skipped where it is absent."""
    data = stored(name)
    return standardised(data.X), data.y
