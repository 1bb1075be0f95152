"""Leave-one-out in the metric of the penalty with an unpenalised intercept, which the curvature of a few rows holds: balls around candidates and the old optimum."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, widen
from glru.certificate import ball_radius
from glru.linalg import FEW, Array, gamma, to_host
from glru.metric.rows import RowSide
from glru.problem import Problem
from glru.solution import Solution
from glru.updates.carried_rows import removal_factors, shared_norms, shared_part, weight_error
from glru.updates.row_models import RowModels, Rows

FindRadii = Callable[[Array, Array], Array]

EXPONENTS = (0.5, 2.0, 4.0, 7.0, 10.0)
"""Values of ``T`` that are tried around the old optimum: a large one is met by more rows, and weakens the hold of the losses on the intercept."""

BALL_EXPONENTS = (0.1, 0.5, 2.0)
"""Values of ``T`` that are tried for balls around candidates, which are small."""

HOLDING_SHARES = (0.25, 0.8)
"""Shares of the curvature in the intercept that the rows have which hold it, the shortest first: in balls around candidates, and around the old optimum."""


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
    r"""Bounds of every row's score under the model trained without it, from the old optimum.

    The gradient there is :math:`G = r - s_i \ell'_i \tilde x_i`, ``r`` what training left and the other rows' new weights add. With :math:`\bar H` the mean Hessian
    on the way the row's score moves by :math:`s_i \ell'_i \tilde x_i^\top \bar H^{-1} \tilde x_i - \tilde x_i^\top \bar H^{-1} r`: by its own slope towards the other side only.
    """
    problem, scores = solution.problem, solution.scores
    side, factors = RowSide.of_products(problem), removal_factors(problem)
    with np.errstate(all="ignore"):
        slopes, curvatures = problem.loss.expand_slope(problem.y, scores)
        weights, off, wrong = problem.weights, solution.certificate.score_errors, weight_error(problem)
        slope_errors = problem.loss.slope_errors(problem.y, scores, off)
        # Sums over the rows, their weights, and slopes at scores that are off.
        missed = weights * (slope_errors + (gamma(problem.n_rows + 8) + FEW + wrong) * np.abs(slopes))
        sums, penalty = problem.matrix.T @ (weights * slopes), problem.quadratic * solution.coef
        kept = _norm(side.inverse, penalty + sums) + FEW * _norm(side.inverse, penalty)
        kept += 2.0 * float(missed @ side.norms)
        growing = _norm(side.inverse, sums) + float(missed @ side.norms)
        rest = kept + (np.abs(factors - 1.0) * (1.0 + FEW) + wrong) * growing
        border = factors * (abs(float(weights @ slopes)) + 2.0 * float(missed.sum())) * (1.0 + FEW)
        own = factors * weights * (np.abs(slopes) * (1.0 + wrong + FEW) + slope_errors)
        balls = Balls(RowModels(problem, side), scores, weights * curvatures, factors, HOLDING_SHARES[1])
        errors = np.zeros(problem.n_rows), np.full(problem.n_rows, float(off[weights > 0.0].max()))

        def find_radii(border: Array, reach: Array) -> Array:
            return (own * reach + rest + border) * (1.0 + FEW)

        half, radii = balls.held(np.arange(problem.n_rows), None, errors, border, find_radii, EXPONENTS)
        # A half-width is the row's norm times the radius; what its own slope makes of that goes to one side only.
        middle = 0.5 * factors * weights * slopes * np.square(half / radii)
        half = (half - np.abs(middle)) * (1.0 + FEW) + off + FEW * (np.abs(scores) + np.abs(middle))
    usable = np.isfinite(half) & np.isfinite(middle)
    return widen(np.where(usable, scores + middle, 0.0), np.where(usable, half, np.inf))


def _norm(inverse: Array, vector: Array) -> float:
    """An upper bound of a norm in the inverse metric of the penalty."""
    return float(np.sqrt(vector @ (inverse * vector))) * (1.0 + gamma(vector.size + 8))


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
    """

    members: NDArray[np.bool_]  # shape (n_rows,): the rows
    total: float  # at most the sum of their ``d``
    distances: Array  # shape (n_rows,): at least the distance of every row from ``c`` in the metric of the penalty
    # The largest of these among the members, and that of the origin.
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
    """Balls around candidates for models without one row each, with every column penalised, from their duality gaps or gradients."""

    models: RowModels  # the models
    # Shape (n_rows,): scores from which those of the candidates are not far, and the weighted curvatures there.
    base: Array
    curvatures: Array
    # Shape (n_rows,): what the weights in these curvatures are multiplied by when a row leaves; not finite where nothing is proven.
    ratios: Array
    share: float = HOLDING_SHARES[0]  # the share of the curvature that the rows have which hold an intercept

    @cached_property
    def norms(self) -> Array:
        """Upper bounds of the norms of the rows in the metric of the penalty.

        A column with a value in one row only gets the coefficient exactly 0 when that row leaves, in the candidate as at
        the optimum: it does not widen the row's bounds.
        """
        return shared_norms(self.models.problem, shared_part(self.models.problem))

    @cached_property
    def holds(self) -> list[Hold]:
        """Two sets of rows that hold the intercept, without a row in common: one of them has no part in a removal."""
        side, curvatures = self.models.side, self.curvatures
        order = np.argsort(side.norms, kind="stable")
        # Curvatures that underflowed are not known to a few units of themselves.
        order = order[(curvatures > np.finfo(float).tiny * np.maximum(1.0, 2.0 * self.models.problem.weights))[order]]
        shares = np.cumsum(curvatures[order])
        nearest = order[: 2 + int(np.searchsorted(shares, self.share * shares[-1]))] if order.size else order
        return [Hold.of(side, curvatures, rows) for rows in (nearest[::2], nearest[1::2]) if rows.size]

    def half_widths(self, rows: Rows, duals: Any, scores: Any, free: Array, gaps: Array) -> tuple[Array, Array]:
        """An upper bound of how far the removed rows' scores are from those at the optimum, and the radii of the balls that say so.

        ``duals``, ``scores``, ``gaps``: of :meth:`~glru.updates.row_models.RowModels.gaps`.
        """
        side = self.models.side
        errors = side.score_errors(duals, free)
        with np.errstate(all="ignore"):
            radii = ball_radius(gaps)
            missed = self._missed(duals) if side.n_free else np.zeros(rows.size)
            return self._half_widths(rows, scores, errors, missed, lambda border, _: border + np.hypot(border, radii))

    def half_widths_by_gradients(
        self, rows: Rows, scores: Any, errors: tuple[Array, Array], norms: Array, missed: Array
    ) -> Array:
        """An upper bound of how far the removed rows' scores are from those at the optimum, from the gradients of candidates without them.

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
            return self._half_widths(rows, scores, errors, missed, lambda border, _: border + norms)[0]

    def _half_widths(
        self, rows: Rows, scores: Any, errors: tuple[Array, Array], missed: Array, find_radii: FindRadii
    ) -> tuple[Array, Array]:
        """Half-widths and radii; ``find_radii`` makes these of the norms of what is missed in the intercept, and of the rows."""
        side, arrays = self.models.side, self.models.arrays
        if side.n_free:
            away = arrays.absolute(scores - arrays.put(self.base)[:, None])
            half, radii = self.held(rows, away, errors, missed, find_radii, BALL_EXPONENTS)
        else:
            radii = find_radii(np.zeros(rows.size), self.norms[rows])
            half = radii * self.norms[rows]
        return half + side.norms[rows] * errors[0] + errors[1], radii

    def held(
        self,
        rows: Rows,
        away: Any,
        errors: tuple[Array, Array],
        missed: Array,
        find_radii: FindRadii,
        exponents: Sequence[float],
    ) -> tuple[Array, Array]:
        """The half-widths and radii with an intercept; infinite where no hold is proven.

        ``away``: how far the candidates' scores are from :attr:`base`, one column each; None where they are these. ``exponents``: values of ``T``.
        """
        models, arrays = self.models, self.models.arrays
        half, radii = np.full(rows.size, np.inf), np.full(rows.size, np.inf)
        factors = np.abs(np.log(self.ratios[rows])) * (1.0 + FEW)
        for hold in self.holds:
            moved = np.zeros(rows.size) if away is None else arrays.find_largest(away, hold.members)
            drop = models.exponent(moved, errors, hold.members) + factors
            for exponent in exponents:
                free = np.sqrt(np.exp(drop + exponent) / hold.total) * (1.0 + FEW)
                border = missed * np.hypot(hold.length, free) * (1.0 + FEW)
                reach = np.hypot(hold.distances[rows], free) * (1.0 + FEW)
                size = find_radii(border, reach) * (1.0 + FEW)
                farthest = np.hypot(hold.farthest, free) * size * (1.0 + FEW)
                holds = ~hold.members[rows] & (models.constant * farthest < exponent)
                # Half-widths and radii of the same rows that hold: their quotient is the norm of the row under these.
                better = holds & (reach * size < half)
                half, radii = np.where(better, reach * size, half), np.where(better, size, radii)
        return half, radii

    def _missed(self, duals: Any) -> Array:
        """Upper bounds of the sums of duals, which are zero where these are feasible."""
        arrays = self.models.arrays
        ones = arrays.put(np.ones(self.base.size))
        # The exact weights, and so the exact duals, differ from those used here.
        rounding = gamma(self.base.size + 8) + weight_error(self.models.problem) + FEW
        missed: Array = np.abs(to_host(ones @ duals)) + rounding * to_host(ones @ arrays.xp.abs(duals))
        return missed
