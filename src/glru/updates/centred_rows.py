r"""Leave-one-out with an unpenalised intercept in the metric of the penalty: from the old optimum, and balls around candidates.

Let :math:`G` be the gradient without row ``i`` at the old optimum, :math:`\bar H` the mean Hessian on the way from there to the new one, and
``B`` some of the other rows. Suppose that no score of ``B`` moves by more than :math:`T / M` on the way, ``M`` the self-concordance constant.
Then the curvatures of these rows are at least :math:`e^{-T} d_k`, and with :math:`S = e^{-T} \sum_B d_k` and ``c`` the mean of the rows of ``B``
under the weights ``d``

.. math:: \bar H \succeq \Lambda + e^{-T} \sum_B d_k \tilde x_k \tilde x_k^\top \quad\Rightarrow\quad
          \|\tilde x\|^2_{\bar H^{-1}} \le A^2(x) = \|x - c\|^2_{\Lambda^{-1}} + 1 / S .

The way is at most :math:`\|G\|_{\bar H^{-1}} \le \nu` long in :math:`\bar H`, so scores of ``B`` move by at most :math:`A(x_k) \nu`. Where that is below
:math:`T / M` for all of ``B``, the supposition holds: it holds near the old optimum, and on the part of the way on which it does, the directional
derivative of the convex objective is negative and the same bound holds, so that no score reaches :math:`T / M` first.

With :math:`G = r - s_i \ell'_i \tilde x_i` the row's own score moves by :math:`s_i \ell'_i \tilde x_i^\top \bar H^{-1} \tilde x_i - \tilde x_i^\top \bar H^{-1} r`:
towards the other side by at most :math:`s_i |\ell'_i| A^2(x_i)`, and by at most :math:`A(x_i) \|r\|` for what training left and for the other rows' new weights.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, intersect, unbounded, widen
from glru.certificate import ball_radius
from glru.linalg import FEW, Array, gamma, to_host
from glru.metric.rows import RowSide
from glru.problem import Problem
from glru.solution import Solution
from glru.updates.carried_rows import (
    removal_factors,
    rounded_norms,
    row_norms,
    shared_norms,
    shared_part,
    weight_error,
)
from glru.updates.row_models import RowModels, Rows

SETS = (0.25, 0.75)
"""Shares of the curvature in the intercept that the rows of ``B`` have, those nearest to the mean first."""

EXPONENTS = (0.5, 2.0, 4.0, 7.0, 10.0)
"""Values of ``T`` that are tried: a large one is met by more rows, and weakens the hold of the losses on the intercept."""

BALL_EXPONENTS = (0.1, 0.5, 2.0)
"""Values of ``T`` that are tried for balls around candidates, which are small."""

HOLDING_SHARE = 0.25
"""Share of the curvature in the intercept that the rows have which hold it in a ball, the shortest first."""


def has_centred(problem: Problem) -> bool:
    """Whether the theory applies: an intercept, every column penalised, a self-concordant loss that is not quadratic."""
    loss, strength = problem.loss, problem.penalty.strong_convexity
    return (
        problem.fit_intercept
        and problem.penalty.smooth
        and strength > 0.0
        and bool(loss.self_concordance)
        and not loss.several
    )


def bound_centred(solution: Solution) -> Bounds:
    """Bounds of every row's score under the model trained without it."""
    problem, found = solution.problem, unbounded(solution.problem.n_rows)
    inverse = 1.0 / np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))
    weights, scores, errors = problem.weights, solution.scores, solution.certificate.score_errors
    with np.errstate(all="ignore"):
        _, slopes, curvatures = problem.loss.expand(problem.y, scores)
        held = weights * curvatures
        lengths = rounded_norms(row_norms(problem), problem)
        center = problem.matrix.T @ held / held.sum()
        order = np.argsort(_distances(problem, inverse, lengths, center)[0], kind="stable")
        order = order[held[order] > 0.0]
        shares = np.cumsum(held[order])
        # What is left of the gradient: of training, and of the weights that grow.
        sums = problem.matrix.T @ (weights * slopes)
        border = float(weights @ slopes)
        slope_errors = problem.loss.slope_errors(problem.y, scores, errors)
        off = weights * (slope_errors + (gamma(problem.n_rows + 8) + FEW) * np.abs(slopes))
        off = off + weight_error(problem) * weights * np.abs(slopes)
        rest = _norm(inverse, problem.penalty.quadratic * solution.coef + sums) + 2.0 * float(off @ lengths)
        rest = rest + FEW * _norm(inverse, problem.penalty.quadratic * solution.coef)
        growing = _norm(inverse, sums) + float(off @ lengths)
        left = rest, growing, abs(border) + 2.0 * float(off.sum())
        for share in SETS if shares.size else ():
            members = order[: 1 + int(np.searchsorted(shares, share * shares[-1]))]
            bounds = _bounds(problem, inverse, lengths, (scores, slopes, errors), held, members, left)
            for lower, upper in bounds:
                found = intersect(found, (lower, upper))
    return found


def _norm(inverse: Array, vector: Array) -> float:
    """At least a norm in the inverse metric of the penalty."""
    return float(np.sqrt(vector @ (inverse * vector))) * (1.0 + gamma(vector.size + 8))


def _distances(problem: Problem, inverse: Array, lengths: Array, center: Array) -> tuple[Array, float]:
    """At least the distances of the rows from a centre in the metric of the penalty, and its own length."""
    length = _norm(inverse, center)
    squares = row_norms(problem) - 2.0 * (problem.matrix @ (inverse * center)) + length**2
    # The parts cancel; each is off by a share of (|x| + |c|)^2.
    squares = np.maximum(squares, 0.0) + 4.0 * gamma(problem.n_columns + 16) * np.square(lengths + length)
    return np.sqrt(squares) * (1.0 + FEW), length


def _bounds(
    problem: Problem,
    inverse: Array,
    lengths: Array,
    rows: tuple[Array, Array, Array],
    held: Array,
    members: NDArray[np.intp],
    left: tuple[float, float, float],
) -> list[Bounds]:
    """Bounds of all rows for one choice of ``B`` and every exponent; infinite where the supposition is not proven.

    ``rows``: scores, slopes and errors of the scores; ``held``: the weighted curvatures; ``left``: at least the norms of the gradient of all
    rows, of its part that grows with the factors, and of its entry for the intercept.
    """
    scores, slopes, errors = rows
    constant, factors = float(problem.loss.self_concordance or 0.0), removal_factors(problem)
    known = np.isfinite(factors)
    factors = np.where(known, factors, 1.0)
    chosen = np.zeros(problem.n_rows)
    chosen[members] = held[members]
    total, unit = float(chosen.sum()), gamma(problem.n_rows + 16)
    center = problem.matrix.T @ chosen / total
    distances, length = _distances(problem, inverse, lengths, center)
    # The centre was rounded: so far it is at most from the mean.
    distances = distances + 2.0 * unit * float(chosen @ lengths) / total
    length = length + 2.0 * unit * float(chosen @ lengths) / total
    # Without row i, if it is one of B, the mean is another: x_i - c_i = (x_i - c) S / (S - d_i).
    others = (total - chosen) * (1.0 - unit) - unit * total
    others = np.where(others > 0.0, others, 0.0)
    shift = chosen / others * distances * (1.0 + FEW)
    own, highest = distances + shift, float(distances[members].max()) + shift
    pulls = factors * problem.weights
    size = pulls * np.abs(slopes)
    # The slope and the weight of the row itself are off, too.
    size_off = pulls * problem.loss.slope_errors(problem.y, scores, errors) + (weight_error(problem) + FEW) * size
    found = []
    for exponent in EXPONENTS:
        weakened = np.exp(-exponent - constant * float(errors[members].max())) * (1.0 - FEW)
        hold = factors * others * weakened * (1.0 - weight_error(problem) - FEW)
        free = 1.0 / np.sqrt(hold) * (1.0 + FEW)
        squares = (np.square(own) + np.square(free)) * (1.0 + FEW)
        reach = np.sqrt(squares) * (1.0 + FEW)
        rest = left[0] + (np.abs(factors - 1.0) * (1.0 + FEW) + weight_error(problem)) * left[1]
        rest = (rest + factors * left[2] * (length + shift + free)) * (1.0 + FEW)
        nu = (size + size_off) * reach + rest
        holds = known & (constant * (highest + free) * nu * (1.0 + FEW) < exponent)
        middle = 0.5 * pulls * slopes * squares
        half = 0.5 * size * squares + size_off * squares + reach * rest + errors
        half = half * (1.0 + FEW) + FEW * (np.abs(scores) + np.abs(middle))
        holds &= np.isfinite(half) & np.isfinite(middle)
        found.append(widen(np.where(holds, scores + middle, 0.0), np.where(holds, half, np.inf)))
    return found


@final
@dataclass(frozen=True, eq=False)
class Hold:
    r"""Rows whose curvature holds the intercept of an L2 problem.

    Let no score of these rows be farther than :math:`T / M` from where their curvatures :math:`d_k` were taken. With
    :math:`S = e^{-T} \sum d_k` and ``c`` their mean under the weights ``d``,

    .. math:: H \succeq \Lambda + S \, \tilde c \tilde c^\top \quad\Rightarrow\quad \|\tilde x\|^2_{H^{-1}} \le \|x - c\|^2_{\Lambda^{-1}} + 1 / S .

    Let ``F`` be the summed Fenchel-Young terms of a model and its dual ``b``, :math:`\sigma = \sum b_k`, and :math:`\delta` the way to the optimum. Convexity
    gives :math:`\tfrac12 \|\delta\|^2_H \le F + \sigma \, \delta_\beta` in a mean ``H`` of the Hessians on every part of the way, so that
    :math:`\|\delta\|_H \le |\sigma| a + \sqrt{\sigma^2 a^2 + 2 F}` with ``a`` the norm of the intercept's coordinate. Where the scores of these rows move by less than
    :math:`T / M` in a ball of that radius, none is the first to reach it, and the supposition holds on the whole way. The same argument holds for a model with the
    gradient :math:`(G, G_\beta)`: the objective falls along the way, so that :math:`\|\delta\|_H \le \|G\|_{\Lambda^{-1}} + |G_\beta| a`.

    Attributes
    ----------
    members : array of bool of shape (n_rows,)
        The rows.
    total : float
        At most the sum of their ``d``.
    distances : array of shape (n_rows,)
        At least the distance of every row from ``c`` in the metric of the penalty.
    farthest, length : float
        The largest of these among the members, and that of the origin.
    """

    members: NDArray[np.bool_]
    total: float
    distances: Array
    farthest: float
    length: float

    @classmethod
    def of(cls, side: RowSide, curvatures: Array, rows: Rows) -> "Hold":
        """Some rows under their curvatures."""
        members = np.zeros(curvatures.size, dtype=bool)
        members[rows] = True
        total = float(curvatures[rows].sum())
        mean = np.where(members, curvatures, 0.0) / total
        image = to_host(side.gram @ side.arrays.put(mean[:, None]))[:, 0]
        size, square = float(side.norms @ mean) * (1.0 + FEW), max(float(mean @ image), 0.0)
        # The parts cancel; each is off by a share of (|x| + sum |x_k| mean_k)^2. The mean itself was rounded.
        off = 2.0 * gamma(curvatures.size + 16) * size
        squares = np.maximum(np.square(side.norms) - 2.0 * image + square, 0.0)
        squares = squares + 4.0 * side.unit * np.square(side.norms + size)
        distances = np.sqrt(squares) * (1.0 + FEW) + off
        length = float(np.sqrt(square + 4.0 * side.unit * size**2)) * (1.0 + FEW) + off
        return cls(members, total * (1.0 - gamma(curvatures.size + 8)), distances, float(distances[rows].max()), length)


@final
@dataclass(frozen=True, eq=False)
class Balls:
    """Balls around candidates for models without one row each, with every column penalised, from their duality gaps or gradients.

    Attributes
    ----------
    models : RowModels
        The models.
    base, curvatures : array of shape (n_rows,)
        Scores from which those of the candidates are not far, and the weighted curvatures there.
    ratios : array of shape (n_rows,)
        What the weights in these curvatures are multiplied by when a row leaves; not finite where nothing is proven.
    """

    models: RowModels
    base: Array
    curvatures: Array
    ratios: Array

    @cached_property
    def norms(self) -> Array:
        """At least the norms of the rows in the metric of the penalty.

        A column with a value in one row only gets the coefficient exactly 0 when that row leaves, in the candidate as at
        the optimum: it does not widen the row's bounds.
        """
        return shared_norms(self.models.problem, shared_part(self.models.problem))

    @cached_property
    def holds(self) -> list[Hold]:
        """Two sets of rows that hold the intercept, without a row in common: one of them has no part in a removal."""
        side, curvatures = self.models.products, self.curvatures
        order = np.argsort(side.norms, kind="stable")
        # Curvatures that underflowed are not known to a few units of themselves.
        order = order[(curvatures > np.finfo(float).tiny * np.maximum(1.0, 2.0 * self.models.problem.weights))[order]]
        shares = np.cumsum(curvatures[order])
        nearest = order[: 2 + int(np.searchsorted(shares, HOLDING_SHARE * shares[-1]))] if order.size else order
        return [Hold.of(side, curvatures, rows) for rows in (nearest[::2], nearest[1::2]) if rows.size]

    def half_widths(self, rows: Rows, duals: Any, scores: Any, free: Array, gaps: Array) -> tuple[Array, Array]:
        """At least how far the removed rows' scores are from those at the optimum, and the radii of the balls that say so.

        ``duals``, ``scores``, ``gaps``: of :meth:`~glru.updates.row_models.RowModels.gaps`.
        """
        side = self.models.products
        errors = side.score_errors(duals, free)
        with np.errstate(all="ignore"):
            radii = ball_radius(gaps)
            missed = self._missed(duals) if side.n_free else np.zeros(rows.size)
            return self._half_widths(rows, scores, errors, missed, lambda border: border + np.hypot(border, radii))

    def half_widths_by_gradients(
        self, rows: Rows, scores: Any, errors: tuple[Array, Array], norms: Array, missed: Array
    ) -> Array:
        """At least how far the removed rows' scores are from those at the optimum, from the gradients of candidates without them.

        Parameters
        ----------
        rows : array of int
            The removed rows; their own ``b`` is 0 in the candidates.
        scores, errors : array of shape (n_rows, n_models), pair of array
            The candidates' scores, and their errors as in :meth:`~glru.metric.rows.RowSide.score_errors`.
        norms, missed : array of shape (n_models,)
            At least the norms of the penalised columns' gradients in the metric of the penalty, and of the intercept's entries.
        """
        with np.errstate(all="ignore"):
            return self._half_widths(rows, scores, errors, missed, lambda border: border + norms)[0]

    def _half_widths(
        self, rows: Rows, scores: Any, errors: tuple[Array, Array], missed: Array, find_radii: Callable[[Array], Array]
    ) -> tuple[Array, Array]:
        """Half-widths and radii; ``find_radii`` makes these of the norms of what is missed in the intercept."""
        side = self.models.products
        if side.n_free:
            half, radii = self._held(rows, scores, errors, missed, find_radii)
        else:
            radii = find_radii(np.zeros(rows.size))
            half = radii * self.norms[rows]
        return half + side.norms[rows] * errors[0] + errors[1], radii

    def _held(
        self, rows: Rows, scores: Any, errors: tuple[Array, Array], missed: Array, find_radii: Callable[[Array], Array]
    ) -> tuple[Array, Array]:
        """The half-widths and radii with an intercept; infinite where no hold is proven."""
        models, arrays = self.models, self.models.arrays
        half, radii = np.full(rows.size, np.inf), np.full(rows.size, np.inf)
        away = arrays.absolute(scores - arrays.put(self.base)[:, None])
        factors = np.abs(np.log(self.ratios[rows])) * (1.0 + FEW)
        for hold in self.holds:
            drop = models.exponent(arrays.find_largest(away, hold.members), errors, hold.members) + factors
            for exponent in BALL_EXPONENTS:
                free = np.sqrt(np.exp(drop + exponent) / hold.total) * (1.0 + FEW)
                border = missed * np.hypot(hold.length, free) * (1.0 + FEW)
                size = find_radii(border) * (1.0 + FEW)
                farthest = np.hypot(hold.farthest, free) * size * (1.0 + FEW)
                reach = np.hypot(hold.distances[rows], free) * size * (1.0 + FEW)
                holds = ~hold.members[rows] & (models.constant * farthest < exponent)
                half, radii = (np.where(holds, np.fmin(a, b), a) for a, b in ((half, reach), (radii, size)))
        return half, radii

    def _missed(self, duals: Any) -> Array:
        """At least the sums of duals, which are zero where these are feasible."""
        arrays = self.models.arrays
        ones = arrays.put(np.ones(self.base.size))
        # The exact weights, and so the exact duals, differ from those used here.
        rounding = gamma(self.base.size + 8) + weight_error(self.models.problem) + FEW
        missed: Array = np.abs(to_host(ones @ duals)) + rounding * to_host(ones @ arrays.xp.abs(duals))
        return missed
