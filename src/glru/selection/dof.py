r"""Effective degrees of freedom of a model with a penalty of squares.

They are the trace of the hat matrix: with :math:`D` the weighted curvatures of the losses at the optimum, :math:`\Lambda` the strengths
and :math:`A = \tilde X^\top D \tilde X`, the intercept among the columns,

.. math:: \mathrm{df}(D) = \mathrm{tr}\,(A + \Lambda)^{-1} A
    = |U| + \sum_k \frac{\sigma_k^2}{1 + \sigma_k^2},

:math:`\sigma_k` the singular values of :math:`D^{1/2} X_P \Lambda_P^{-1/2}` on the penalised columns after the unpenalised ones
:math:`U` are projected out. Without a penalty it is the number of columns. Three facts make an interval of it:

* it grows with every entry of :math:`D`, and :math:`\mathrm{df}(c D) \le c\, \mathrm{df}(D)` for :math:`c \ge 1`, so curvatures known up
  to a factor give it up to that factor;
* one column more adds between 0 and 1 (singular values interlace);
* a perturbed matrix has singular values that differ by at most the norm of the perturbation (Weyl).
"""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.linalg import FEW, TINY, UNIT, Array, gamma, length
from glru.problem import Problem

Columns = NDArray[np.intp]


@final
@dataclass(frozen=True, eq=False)
class Freedom:
    """Bounds of the degrees of freedom of a model whose scores are ``scores``."""

    scores: Array  # shape (n_rows,): where the curvatures were taken
    # Bounds of the trace with these curvatures.
    lower: float
    upper: float


def count_parameters(problem: Problem, chosen: Columns) -> tuple[int, int]:
    """The unpenalised columns among some, the intercept included, and all of them."""
    n_free = int(np.count_nonzero(problem.quadratic[chosen] == 0.0)) + problem.fit_intercept
    return n_free, chosen.size + problem.fit_intercept


def count_freedom(problem: Problem, scores: Array) -> Freedom:
    """The degrees of freedom of the model of a problem's columns, with curvatures at some scores."""
    penalised = problem.quadratic > 0.0
    n_free, most = count_parameters(problem, np.arange(problem.n_columns))
    if n_free == most:
        return Freedom(scores, float(most), float(most))
    used = problem.weights > 0.0
    roots = np.sqrt(problem.weights[used] * problem.loss.curvature(problem.y[used], scores[used]))
    X = problem.matrix[np.flatnonzero(used)].dense()
    values = X[:, penalised] / np.sqrt(problem.quadratic[penalised])
    G = roots[:, None] * values
    # What underflows of a root is below TINY. Entries err by a few units and by what the curvatures do, factors by their size times this, in any
    # stable order.
    unit = 16.0 * (sum(G.shape) + n_free + 8) * UNIT + (problem.loss.self_concordance or 0.0) * problem.score_noise
    off = unit * length(G) + TINY * length(values)
    if n_free:
        U = np.column_stack([X[:, ~penalised], *([np.ones(len(X))] if problem.fit_intercept else [])])
        U = U / np.maximum(np.abs(U).max(axis=0), TINY) * roots[:, None]
        sizes = length(U, axis=0)
        U = U / np.where(sizes > 0.0, sizes, 1.0)
        Q, R = np.linalg.qr(U)
        least = float(np.linalg.svd(R, compute_uv=False)[-1]) - unit * length(U)
        # The space of the free columns is off by their relative error over their least singular value, and takes as much of what is projected.
        with np.errstate(divide="ignore"):
            off = (off + 2.0 * unit * length(U) * length(G) / least) if least > 0.0 else np.inf
        G = G - Q @ (Q.T @ G)
    if not np.isfinite(off) or not np.all(np.isfinite(G)):
        return Freedom(scores, float(n_free), float(most))
    sigma = np.linalg.svd(G, compute_uv=False)
    lower, upper = (_share(np.maximum(sigma + side * off, 0.0)) for side in (-1.0, 1.0))
    # Singular values that a small matrix leaves out are zero, but for the perturbation.
    error = 1.0 + gamma(sigma.size + 8)
    low = (n_free + float(lower.sum()) / error) * (1.0 - FEW)
    return Freedom(scores, max(low, float(n_free)), min(n_free + float(upper.sum()) * error, float(most)) * (1.0 + FEW))


def _share(sigma: Array) -> Array:
    """``sigma^2 / (1 + sigma^2)``."""
    return np.square(sigma / np.hypot(1.0, sigma))


def bounds_nearby(
    problem: Problem, known: Freedom, counts: tuple[Any, Any], changed: tuple[Any, Any], lower: Array, upper: Array
) -> tuple[Array, Array]:
    """Bounds of the degrees of freedom of models whose scores are within bounds.

    Parameters
    ----------
    problem : Problem
        The whole problem.
    known : Freedom
        Of a model nearby.
    counts : tuple of (int or array of shape (n_models,))
        The unpenalised columns of the models, and all of them, as :func:`count_parameters` counts them.
    changed : tuple of (int or array of shape (n_models,))
        How many columns they have more than the model nearby (less if below zero), at least and at most.
    lower, upper : array of shape (n_rows,) or (n_rows, n_models)
        Bounds of the scores of the training rows.
    """
    n_free, most = (np.broadcast_to(count, lower.shape[1:]).astype(np.float64) for count in counts)
    if np.array_equal(n_free, most):
        return n_free, most
    used = problem.weights > 0.0
    scores = known.scores[used].reshape((-1,) + (1,) * (lower.ndim - 1))
    moved = np.maximum(upper[used] - scores, scores - lower[used]).max(axis=0)
    constant = float(problem.loss.self_concordance or 0.0)
    # Logarithms of curvatures move by at most the constant times the score; a loss of constant curvature by nothing.
    growth = np.exp(constant * moved * (1.0 + FEW)) * (1.0 + FEW) if constant > 0.0 else np.ones_like(moved)
    low = np.maximum(known.lower + np.minimum(changed[0], 0), 0.0) / growth * (1.0 - FEW)
    high = (known.upper + np.maximum(changed[1], 0)) * growth * (1.0 + FEW)
    return np.fmax(low, n_free), np.fmin(high, most)
