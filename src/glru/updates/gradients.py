r"""Gradients of many models at once with bounds of their norms, and Newton directions with the Hessian of each model.

A batch of models is a matrix with one model per column, the intercept's entry last. The sums over the rows that its gradients need
are made in one pass, for rows in memory, on a device or in blocks. The Newton directions are found by conjugate gradients in front of
one factored metric.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.linalg import FEW, TINY, Array, Arrays, Entries, Matrix, gamma, to_host, weighted_norm
from glru.losses import Loss
from glru.metric.columns import ColumnMetric
from glru.problem import Point, Problem
from glru.regions.local import local_radius
from glru.rows import Memory
from glru.sums import slope_error_norm, slope_spread
from glru.updates.carried_rows import rounded_norms, row_norms, sum_error

ACCURACY = 1e-3
"""Share of a gradient's norm (in the inverse metric) that a step may leave; the error of the Newton step itself is of the same order."""

MAX_PRODUCTS = 40
"""Products with the Hessians in a step."""

CACHED, MODELS_TOGETHER, FEW_MODELS = 1 << 16, 256, 24
"""Scores of a chunk of rows under some models, and the number of these: a few arrays of that size stay in the cache of a core. Scores under few models are kept model by model, since NumPy's loops over short lines are slow."""

EXACT_STEPS = 12
"""The largest number of steps with a model's own Hessian; each squares the error."""

Map = Callable[[Any], Any]


def split_models(models: Any, fit_intercept: bool) -> tuple[Any, Any]:
    """Coefficients and intercepts of models, one model per column."""
    return (models[:-1, :], models[-1, :]) if fit_intercept else (models, np.zeros(models.shape[1]))


def compute_model_scores(X: Matrix, models: Any, fit_intercept: bool) -> Any:
    """Scores of rows under models, one column per model."""
    coefs, shifts = split_models(models, fit_intercept)
    scores = X @ coefs
    if fit_intercept:
        scores += shifts
    return scores


def split_rows(part: Problem, n_models: int) -> list[tuple[slice, Matrix]]:
    """Chunks of rows whose scores under a number of models stay in the cache of a core."""
    matrix, n_rows = part.matrix, part.n_rows
    if matrix.only_products or n_rows * n_models <= CACHED:
        # Only products of the whole matrix are quick on a device.
        return [(slice(0, n_rows), matrix)]
    height = max(CACHED // min(n_models, MODELS_TOGETHER), 2 * part.n_columns)
    parts = (slice(start, min(start + height, n_rows)) for start in range(0, n_rows, height))
    return [(here, matrix[here]) for here in parts]


@final
@dataclass(frozen=True, eq=False)
class SlopeSums:
    """Sums over the rows at several models."""

    gradients: Any  # shape (n_unknowns, n_models): ``X^T (s o l')``, the intercept's sum last, where X lives
    # Shape (n_models,): ``sqrt(sum_i s_i l'_i^2)``, and ``sqrt(sum_i s_i l''_i^2)`` of a loss without smoothness (0 otherwise).
    slope_norms: Array
    curvature_norms: Array
    moved: Array  # shape (n_models,): the largest move of a score from the model that the moves are counted from

    def __add__(self, other: "SlopeSums") -> "SlopeSums":
        return SlopeSums(
            self.gradients + other.gradients,
            np.hypot(self.slope_norms, other.slope_norms),
            np.hypot(self.curvature_norms, other.curvature_norms),
            np.maximum(self.moved, other.moved),
        )


def slope_sums(part: Problem, left_out: Any, models: Any, origin: Point) -> SlopeSums:
    """The sums of a part; ``left_out``: rows of it in ascending order, and for each the model that is trained without it."""
    places, owners = left_out or (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    arrays, n_models = part.arrays, models.shape[1]
    chunks, width = split_rows(part, n_models), n_models
    if len(chunks) > 1:
        width = min(n_models, MODELS_TOGETHER)
    base, found = part.scores(origin.coef, origin.intercept), []
    for first in range(0, n_models, width):
        block, sums = models if width == n_models else models[:, first : first + width], None
        for here, X in chunks:
            near = slice(*np.searchsorted(places, (here.start, here.stop)))
            mine = (owners[near] >= first) & (owners[near] < first + width)
            entries = places[near][mine] - here.start, owners[near][mine] - first
            more = _slope_sums(part, here, X, entries, block, base[here])
            sums = more if sums is None else sums + more
        assert sums is not None
        found.append(sums)
    if len(found) == 1:
        return found[0]
    gradients = arrays.concatenate([sums.gradients for sums in found], axis=1)
    names = ("slope_norms", "curvature_norms", "moved")
    return SlopeSums(gradients, *(np.concatenate([getattr(sums, name) for sums in found]) for name in names))


def _slope_sums(part: Problem, here: slice, X: Matrix, left_out: Entries, models: Any, base: Array) -> SlopeSums:
    arrays = part.arrays
    scores = compute_model_scores(X, models, part.fit_intercept)
    if type(scores) is np.ndarray and 1 < scores.shape[1] <= FEW_MODELS:
        scores = np.asfortranarray(scores)
    weights, curved = arrays.put(part.weights[here]), np.zeros(models.shape[1])
    if np.isfinite(part.loss.smoothness):
        slopes = part.loss.gradient(arrays.put(part.y[here])[:, None], scores)
    else:
        slopes, curvatures = part.loss.expand_slope(part.y[here][:, None], scores)
        curved = weighted_norm(weights, arrays.zero_out(curvatures, left_out) if left_out[0].size else curvatures)
    scores -= arrays.put(base)[:, None]
    if left_out[0].size:
        slopes, scores = arrays.zero_out(slopes, left_out), arrays.zero_out(scores, left_out)
    if not part.weights[here].all():
        scores = arrays.without_rows(scores, part.weights[here] == 0.0)
    moved = to_host(arrays.xp.max(arrays.absolute(scores), axis=0))
    weighted = slopes * weights[:, None]
    sizes = weighted_norm(weights, slopes, weighted)
    gradients = X.T @ weighted
    if part.fit_intercept:
        gradients = arrays.append_row(gradients, arrays.xp.sum(weighted, axis=0))
    return SlopeSums(gradients, sizes, curved, moved)


@final
@dataclass(frozen=True, eq=False)
class Measured:
    """Models measured on all rows."""

    gradients: Any  # shape (n_unknowns, n_models): the gradients of their objectives, where X lives
    # Shape (n_models,): at least their norms in the inverse metric, and what of that is due to rounding.
    nu: Array
    rounding: Array
    moved: Array  # shape (n_models,): at least the largest move of a score from the exact scores of the origin
    # Shape (n_models,) each: the error of a row's score is at most ``|x| first + second``.
    score_errors: tuple[Array, Array]
    slope_norms: Array  # shape (n_models,): ``sqrt(sum_i s_i l'_i^2)`` with the weights of each model, as computed

    def take(self, members: NDArray[np.bool_] | NDArray[np.intp], arrays: Arrays) -> "Measured":
        """Some of the models."""
        first, second = self.score_errors
        return Measured(
            arrays.take(self.gradients, members),
            self.nu[members],
            self.rounding[members],
            self.moved[members],
            (first[members], second[members]),
            self.slope_norms[members],
        )


@final
class Gradients:
    """Gradients of models near one, each with its own factor on the losses, and bounds of their norms.

    Parameters
    ----------
    problem : Problem
        All rows.
    metric : ColumnMetric
        The metric of the norms.
    origin : Point
        The model that moves of scores are counted from.
    origin_error : float
        At least the error of a score there.
    largest_factor : float, default=1.0
        At least the factor of any model.
    eta : float, default=inf
        The Hessian at the origin with the factor of any model is at most ``1 + eta`` times the metric.
    """

    def __init__(
        self,
        problem: Problem,
        metric: ColumnMetric,
        origin: Point,
        origin_error: float,
        largest_factor: float = 1.0,
        eta: float = np.inf,
    ) -> None:
        self.problem, self.metric, self.totals, self.eta = problem, metric, problem.totals, eta
        self.origin, self.origin_error = origin, origin_error
        self.largest_factor = largest_factor * (1.0 + FEW)

    @cached_property
    def slope_norm(self) -> float:
        """The norm as a gradient that errors of size 1 in the slopes (in the metric of the weights) can have."""
        columns = self.totals.column_norms * float(np.sqrt(self.largest_factor)) * (1.0 + FEW)
        return self.metric.error_norm(columns)

    @cached_property
    def _axis_norms(self) -> Any:
        return self.metric.arrays.put(self.metric.axis_norms())

    def score_errors(self, models: Any) -> tuple[Array, Array]:
        """The error of a row's score under each model is at most ``|x| first + second``."""
        coefs, shifts = split_models(models, self.metric.fit_intercept)
        unit = gamma(coefs.shape[0] + 3) * (1.0 + gamma(coefs.shape[0] + 8))
        lengths = np.sqrt(self.metric.arrays.inner(coefs, coefs)) * (1.0 + FEW)
        return unit * lengths, unit * np.abs(to_host(shifts)) + self.totals.score_noise

    def at(
        self,
        models: Any,
        left_out: NDArray[np.int64] | Entries | None = None,
        factors: Array | None = None,
        fixed: Entries | None = None,
    ) -> Measured:
        """Measure models.

        Parameters
        ----------
        models : array of shape (n_unknowns, n_models)
            The models, where X lives.
        left_out : array of int or pair of array, default=None
            For every model the row that it is trained without; or rows in memory, in ascending order, and for each the model that is
            trained without it.
        factors : array of shape (n_models,), default=None
            What the weights of each model's rows are multiplied by; 1 if not given.
        fixed : pair of array, default=None
            Pairs of a column and a model that does not have it.
        """
        arrays, totals = self.metric.arrays, self.totals
        own: dict[int, Any]
        if isinstance(left_out, tuple):
            assert isinstance(self.problem.rows, Memory)
            own = {self.problem.rows.number: left_out}
        else:
            own = {} if left_out is None else dict(self.problem.locate(left_out))
        sums: SlopeSums = self.problem.sum(slope_sums, models, self.origin, own=own)
        gradients, sizes, curved = sums.gradients, sums.slope_norms, sums.curvature_norms
        if factors is not None:
            roots = np.sqrt(factors)
            gradients, sizes, curved = gradients * arrays.put(factors), sizes * roots, curved * roots
        # The intercept has no strength.
        strengths = np.append(totals.quadratic, 0.0) if totals.fit_intercept else totals.quadratic
        penalty = arrays.put(strengths)[:, None] * models
        gradients = gradients + penalty
        if totals.penalty.linear.any():
            slopes = np.append(totals.penalty.linear, 0.0) if totals.fit_intercept else totals.penalty.linear
            gradients = gradients + slopes[:, None]
            penalty = np.abs(penalty) + np.abs(slopes)[:, None]
        if fixed is not None:
            gradients = arrays.zero_out(gradients, fixed)
        errors = self.score_errors(models)
        moved = sums.moved + totals.largest_norm * errors[0] + errors[1] + self.origin_error
        norms = self.metric.gradient_norms(gradients)
        rounding = self.rounding(penalty, sizes, curved, errors, moved=moved)
        nu = (norms + rounding) * (1.0 + FEW) + TINY
        return Measured(gradients, nu, rounding, moved, errors, sizes)

    def rounding(
        self,
        penalty: Any,
        sizes: Array,
        curved: Array,
        errors: tuple[Array, Array],
        more: float = 0.0,
        moved: Array | float = np.inf,
    ) -> Array:
        """Upper bounds of the norms of the errors of gradients whose sums have the given norms of slopes and curvatures.

        ``more``: what the rows of a model have beyond those of the data, as a norm like :attr:`slope_norm`. ``moved``: at least the largest move of a score from the origin, where rows and columns are those of the metric.
        """
        totals, arrays, root = self.totals, self.metric.arrays, float(np.sqrt(self.largest_factor)) * (1.0 + FEW)
        size = sizes * (1.0 + gamma(2 * totals.depth + 8))
        # Errors: of the sums, of the slopes at scores that are off, of the slopes' own evaluation (Minkowski's inequality).
        wrong = errors[0] * (totals.norm * root) + errors[1] * (float(np.sqrt(totals.weight_sum)) * root)
        slopes = slope_spread(totals, wrong, totals.largest_norm * errors[0] + errors[1], curved)
        response = self.slope_norm + more
        slopes = np.fmin(slopes * response, math.sqrt(1.0 + self.eta) * slope_error_norm(totals.loss, wrong, moved))
        # Entry by entry, so that the units of the columns do not matter, nor what their squares would underflow to.
        outer = FEW * to_host(self._axis_norms @ arrays.xp.abs(penalty)) * (1.0 + gamma(penalty.shape[0] + 8))
        summed = sum_error(totals.depth) * size * response
        return (summed + (slopes + FEW * size * response) * (1.0 + FEW) + outer) * (1.0 + FEW) + TINY


def has_balls(problem: Problem) -> bool:
    """Whether the theory applies: a self-concordant loss that is not quadratic, an L2 penalty on every column, of which there are some, rows in memory on the host."""
    penalty = problem.penalty
    known = bool(problem.loss.self_concordance) and penalty.smooth and not penalty.linear.any()
    return (
        problem.n_columns > 0
        and known
        and penalty.strong_convexity > 0.0
        and problem.in_memory
        and problem.arrays.stable
    )


@final
@dataclass(frozen=True, eq=False)
class PenaltyBalls:
    r"""Balls around models without one row each in the metric of the penalty: no Hessian, and no base that a model must be near.

    Let every column be penalised, :math:`\Lambda` the strengths and :math:`h` the curvatures at a model :math:`\hat w` over the rows that it is
    trained on, with :math:`S = \sum_k s_k h_k`, ``c`` the mean of these rows under the weights :math:`s h`, and :math:`L \ge \|x_k\|_{\Lambda^{-1}}` for each.
    Then :math:`H \succeq \Lambda + S \tilde c \tilde c^\top`, and as :math:`\|c\|_{\Lambda^{-1}} \le L`,

    .. math:: \|\tilde x\|^2_{H^{-1}} \le (\|x\|_{\Lambda^{-1}} + L)^2 + 1 / S, \qquad
              \|(G, G_\beta)\|_{H^{-1}} \le \|G\|_{\Lambda^{-1}} + |G_\beta| \, (L + S^{-1/2}) ;

    without an intercept :math:`\|x\|_{\Lambda^{-1}}` and :math:`\|G\|_{\Lambda^{-1}}`. The radius of :func:`glru.regions.local.local_radius` needs no more than such
    bounds of norms. They are far above the norms themselves: what makes the radius small is a gradient that is.

    Rounding: a slope at a score that is off by at most ``e`` errs by at most :math:`e \, e^{M e} h_k`, and errors :math:`\epsilon` of the slopes make a
    gradient of at most :math:`\|B\|_2 (\sum_k s_k \epsilon_k^2)^{1/2}`, where ``B`` has the rows :math:`s_k^{1/2} \Lambda^{-1/2} x_k` and its spectral norm is at
    most the root of the Frobenius norm of :math:`B^\top B`.
    """

    gradients: Gradients  # what has measured the models

    @property
    def problem(self) -> Problem:
        """All rows."""
        return self.gradients.problem

    @cached_property
    def lengths(self) -> Array:
        """Upper bounds of the norms of the rows in the metric of the penalty."""
        return rounded_norms(row_norms(self.problem), self.problem)

    @cached_property
    def longest(self) -> float:
        """The largest of these, of rows that count."""
        return float(self.lengths[self.problem.weights > 0.0].max(initial=0.0))

    @cached_property
    def _column_norm(self) -> float:
        """An upper bound of the Frobenius norm of ``B``, at the largest factor."""
        totals = self.gradients.totals
        columns = totals.column_norms[: totals.n_columns] / np.sqrt(totals.quadratic)
        root = float(np.sqrt(self.gradients.largest_factor))
        return float(np.linalg.norm(columns)) * root * (1.0 + gamma(columns.size + 8))

    @cached_property
    def _spectral_norm(self) -> float:
        """An upper bound of the spectral norm of ``B``, at the largest factor."""
        problem, frobenius = self.problem, self._column_norm
        roots = np.sqrt(self.gradients.totals.quadratic)
        gram = np.triu(problem.matrix.column_gram(problem.weights)) / roots / roots[:, None]
        square = 2.0 * float(np.sum(np.square(gram))) - float(np.sum(np.square(np.diagonal(gram))))
        # The entries err by gamma times the products of the columns' norms, in the Frobenius norm by gamma times that of X squared.
        error = gamma(self.gradients.totals.depth + gram.shape[0] + 16) * frobenius**2
        found = float(np.sqrt(square)) * (1.0 + gamma(gram.size + 8)) * self.gradients.largest_factor + error
        return min(frobenius, float(np.sqrt(found)) * (1.0 + FEW))

    def gradient_norms(self, found: Measured, models: Any) -> tuple[Array, Array]:
        """Upper bounds of the norms of computed gradients in the penalised columns, and the sizes of their entries for the intercept; slopes may still be off."""
        problem, totals = self.problem, self.gradients.totals
        columns, borders = split_models(found.gradients, problem.fit_intercept)
        coefs, _ = split_models(models, problem.fit_intercept)
        strengths = totals.quadratic[:, None]
        unit = 1.0 + gamma(totals.n_columns + 8)
        norms = np.sqrt(np.sum(np.square(columns) / strengths, axis=0)) * unit
        norms = norms + FEW * np.sqrt(np.sum(strengths * np.square(coefs), axis=0)) * unit
        # Sums over the rows, and the slopes' own evaluation.
        spread = (sum_error(totals.depth) + FEW) * found.slope_norms * (1.0 + gamma(2 * totals.depth + 8))
        norms = norms + spread * self._column_norm + TINY * (1.0 + float(strengths.min()) ** -0.5)
        return norms * (1.0 + FEW), (np.abs(borders) + spread * self._border_norm) * (1.0 + FEW) + TINY

    @property
    def _border_norm(self) -> float:
        """An upper bound of the root of the sum of the weights, at the largest factor; 0 without an intercept."""
        root = float(np.sqrt(self.gradients.totals.weight_sum * self.gradients.largest_factor))
        return root * (1.0 + FEW) if self.problem.fit_intercept else 0.0

    def find_promising(self, found: Measured, models: Any) -> NDArray[np.bool_]:
        """The models whose gradients are small enough for a finite radius."""
        norms, borders = self.gradient_norms(found, models)
        constant, longest = float(self.problem.loss.self_concordance or 0.0), self.longest
        return constant * longest * (norms + borders * longest) < 1.0

    def half_widths(self, found: Measured, models: Any, rows: NDArray[np.intp], factors: Array) -> Array:
        """An upper bound of how far the scores of the left-out rows are from those at the optima; infinite where nothing is proven.

        ``found``: what was measured of the models; ``models`` (shape (n_unknowns, n_models)): the models; ``rows`` (shape (n_models,)): the row that
        each is trained without; ``factors`` (shape (n_models,)): what the weights of each model's rows are multiplied by.
        """
        problem, totals, longest = self.problem, self.gradients.totals, self.longest
        constant, own = float(problem.loss.self_concordance or 0.0), self.lengths[rows]
        norms, borders = self.gradient_norms(found, models)
        off = totals.largest_norm * found.score_errors[0] + found.score_errors[1]
        with np.errstate(all="ignore"):
            near = np.exp(constant * off) * (1.0 + FEW)
            sums, curved = self._sum_curvatures(models, (rows, np.arange(rows.size)))
            # Errors of the slopes, with the weights of the largest factor.
            root = float(np.sqrt(self.gradients.largest_factor))
            wrong = curved * off * near * (root * (1.0 + gamma(2 * problem.n_rows + 16)))
            nu = (norms + wrong * self._spectral_norm) * (1.0 + FEW)
            largest = np.full(rows.size, longest)
            if problem.fit_intercept:
                # Curvatures that underflow are not known to a few units of themselves.
                sums = sums * (1.0 - gamma(problem.n_rows + 16)) - problem.n_rows * TINY * totals.weight_sum
                held = factors * sums * ((1.0 - sum_error(totals.depth)) / near) * (1.0 - FEW)
                free = np.where(held > 0.0, 1.0 / np.sqrt(held), np.inf) * (1.0 + FEW)
                nu = (nu + (borders + wrong * self._border_norm) * (longest + free)) * (1.0 + FEW)
                own = np.hypot(own + longest, free) * (1.0 + FEW)
                largest = np.hypot(2.0 * longest, free) * (1.0 + FEW)
            return own * local_radius(constant, largest, nu, 0.0) * (1.0 + FEW)

    def _sum_curvatures(self, models: Any, left_out: Entries) -> tuple[Array, Array]:
        """``sum_k s_k h_k`` of each model and the root of ``sum_k s_k h_k^2``, without the left-out rows."""
        problem = self.problem
        scores = compute_model_scores(problem.matrix, models, problem.fit_intercept)
        curvatures = problem.loss.curvature(problem.y[:, None], scores)
        curvatures = problem.arrays.zero_out(curvatures, left_out)
        return problem.weights @ curvatures, weighted_norm(problem.weights, curvatures)


def newton_directions(
    problem: Problem,
    models: Any,
    gradients: Any,
    solve: Map,
    left_out: Entries | None = None,
    factors: Array | None = None,
    accuracy: float = ACCURACY,
) -> Any:
    """Newton directions of models, one per column.

    Parameters
    ----------
    problem : Problem
        The data, the loss and the penalty; its rows are in memory.
    models, gradients : array of shape (n_unknowns, n_models)
        The models (the intercept last) and their gradients.
    solve : callable
        The inverse of a metric that is close to every Hessian, times a matrix.
    left_out : pair of arrays, default=None
        A row and a model that is trained without it, for every model.
    factors : array of shape (n_models,), default=None
        What the weights of each model's rows are multiplied by; 1 if not given.
    accuracy : float, default=ACCURACY
        Share of a gradient's norm that a direction may leave.
    """
    arrays, X = problem.arrays, problem.matrix
    scores = compute_model_scores(X, models, problem.fit_intercept)
    curvatures = problem.loss.curvature(arrays.put(problem.y)[:, None], scores)
    curvatures *= arrays.put(problem.weights)[:, None]
    if factors is not None:
        curvatures *= arrays.put(factors)
    if left_out is not None:
        curvatures = arrays.zero_out(curvatures, left_out)
    strengths = arrays.put(np.append(problem.quadratic, 0.0) if problem.fit_intercept else problem.quadratic)[:, None]

    def hessians(directions: Any) -> Any:
        weighted = compute_model_scores(X, directions, problem.fit_intercept)
        weighted *= curvatures
        products = X.T @ weighted
        if problem.fit_intercept:
            products = arrays.append_row(products, arrays.xp.sum(weighted, axis=0))
        return products + strengths * directions

    return -conjugate_gradients(arrays, hessians, solve, gradients, accuracy)


LINE_SEARCH_STEPS = 40
"""Evaluations of the slope along a step."""


def find_lengths(
    loss: Loss,
    y: Array,
    scores: Array,
    moves: Array,
    weights: Array,
    start: Array,
    growth: Array,
    full: NDArray[np.bool_],
    share: float = 1e-9,
) -> Array:
    """How far to go along steps of models, one per column: all the way, or to where the objective is lowest; 0 where moves are not numbers.

    Parameters
    ----------
    loss : Loss
        The loss.
    y : array of shape (n_rows, 1)
        The targets.
    scores, moves, weights : array of shape (n_rows, n_models)
        The scores, how steps move them, and the weights of the rows.
    start, growth : array of shape (n_models,)
        The derivative of the penalty along the step, and its second derivative.
    full : array of bool of shape (n_models,)
        Models that take their full step.
    share : float, default=1e-9
        What may be left of the derivative along the step.
    """
    weighted = weights * moves

    def along(members: NDArray[np.intp], lengths: Array) -> tuple[Array, Array]:
        there = scores[:, members] + lengths * moves[:, members]
        slopes, curvatures = loss.expand_slope(y, there)
        own = weighted[:, members]
        slope = np.einsum("ij,ij->j", own, slopes) + start[members] + lengths * growth[members]
        return slope, np.einsum("ij,ij,ij->j", own, curvatures, moves[:, members]) + growth[members]

    going = np.flatnonzero(~full)
    lengths = np.where(np.isfinite(moves).all(axis=0), 1.0, 0.0)
    first = np.abs(along(going, np.zeros(going.size))[0])
    low, high = np.zeros(going.size), np.full(going.size, np.inf)
    for _ in range(LINE_SEARCH_STEPS):
        if not going.size:
            break
        now = lengths[going]
        slope, curvature = along(going, now)
        low, high = np.where(slope < 0.0, now, low), np.where(slope > 0.0, now, high)
        # Slopes are linear between kinks.
        ahead = now - slope / curvature
        inside = (ahead > low) & (ahead < high)
        ahead = np.where(inside, ahead, np.where(np.isfinite(high), 0.5 * (low + high), 4.0 * now))
        left = (np.abs(slope) > share * first) & ~(high - low <= 1e-12 * high)
        left |= np.isinf(high) & (slope < -share * first)
        lengths[going] = np.where(left, ahead, now)
        going, low, high, first = going[left], low[left], high[left], first[left]
    return lengths


SECANTS = 6
"""Number of past steps kept for models that are stepped with a shared Hessian."""

Secant = tuple[Any, Any]
"""Steps of models, one per column, and the changes of their gradients along them."""


@final
class Descent:
    """Steps of many models with a Hessian that all of them share, one model per column; what proves them is made elsewhere.

    Directions are those of L-BFGS: earlier steps tell how each model's Hessian differs from the shared one. A step at whose end the objective
    rises is taken back to where it is about lowest along the step.

    ``arrays``: operations on the models; ``pairs``: the last steps and the changes of the gradients along them; ``last``: where the last step began, the
    step, and the gradients before it.
    """

    def __init__(self, arrays: Arrays, pairs: Sequence[Secant] = (), last: tuple[Any, Any, Any] | None = None) -> None:
        self.arrays, self.pairs, self.last = arrays, list(pairs), last

    def next(
        self,
        members: NDArray[np.bool_],
        models: Any,
        gradients: Any,
        noise: Array,
        solve: Map,
        newton: Callable[[Any, Any], Any] | None = None,
    ) -> tuple[Any, "Descent"]:
        """The next models of some members, and what is remembered of these.

        Parameters
        ----------
        members : array of bool
            Which models go on.
        models, gradients : array of shape (n_unknowns, n_models)
            All models as they are now, and their gradients.
        noise : array of shape (n_models,)
            What of the gradients' norms may be rounding: no guide to the length of a step.
        solve : callable
            The inverse of the shared Hessian times a matrix, for these members.
        newton : callable, default=None
            ``newton(models, gradients)``: Newton directions with Hessians of the models' own, instead of those of L-BFGS.
        """
        arrays, xp = self.arrays, self.arrays.xp
        models, gradients = arrays.take(models, members), arrays.take(gradients, members)
        pairs = [(arrays.take(step, members), arrays.take(change, members)) for step, change in self.pairs]
        if self.last is None:
            ahead = -solve(gradients) if newton is None else newton(models, gradients)
            return models + ahead, Descent(arrays, pairs, (models, ahead, gradients))
        start, step, before = (arrays.take(part, members) for part in self.last)
        descent, slope = arrays.inner(before, step), arrays.inner(gradients, step)
        known = arrays.put(np.where(np.isfinite(slope), 1.0, 0.0)) > 0.0
        pairs = [*pairs[1 - SECANTS :], (step, xp.where(known, gradients - before, 0.0 * step))]
        ahead = secant_directions(arrays, pairs, gradients, solve) if newton is None else newton(models, gradients)
        ahead = xp.where(xp.isfinite(ahead), ahead, 0.0 * ahead)
        rises = _rises(descent, slope, noise[members])
        if rises.any():
            with np.errstate(all="ignore"):  # false position, kept away from the ends
                share = np.where(np.isfinite(slope), np.clip(descent / (descent - slope), 0.1, 0.9), 0.1)
            back = arrays.put(np.where(rises, 1.0, 0.0)) > 0.0
            models, gradients = xp.where(back, start, models), xp.where(back, before, gradients)
            ahead = xp.where(back, step * arrays.put(share), ahead)
        return models + ahead, Descent(arrays, pairs, (models, ahead, gradients))

    def lowest(self, members: NDArray[np.bool_], models: Any, gradients: Any, noise: Array) -> Any:
        """The models of some members; those that the last step began from where the objective rises at its end."""
        arrays = self.arrays
        models, gradients = arrays.take(models, members), arrays.take(gradients, members)
        if self.last is None:
            return models
        start, step, before = (arrays.take(part, members) for part in self.last)
        rises = _rises(arrays.inner(before, step), arrays.inner(gradients, step), noise[members])
        return arrays.xp.where(arrays.put(np.where(rises, 1.0, 0.0)) > 0.0, start, models)


def _rises(descent: Array, slope: Array, noise: Array) -> NDArray[np.bool_]:
    """Whether an objective rises at the end of a step, from its slopes along the step at both ends."""
    return ~(slope <= -0.5 * descent) & ~(-descent <= np.square(noise))


def secant_directions(arrays: Arrays, secants: Sequence[Secant], gradients: Any, solve: Map) -> Any:
    """Steps of L-BFGS, one per column: minus the inverse of a Hessian, corrected by earlier steps, times the gradients.

    Hessians that differ from the one of ``solve`` in a few directions are learned from this many steps.
    """
    vector = -gradients
    used = []
    for step, change in reversed(secants):
        product = arrays.inner(step, change)
        inverse = np.divide(1.0, product, out=np.zeros_like(product), where=product > 0.0)
        share = inverse * arrays.inner(step, vector)
        vector = vector - change * arrays.put(share)
        used.append((step, change, inverse, share))
    vector = solve(vector)
    for step, change, inverse, share in reversed(used):
        vector = vector + step * arrays.put(share - inverse * arrays.inner(change, vector))
    return vector


def conjugate_gradients(arrays: Arrays, product: Map, solve: Map, right: Any, accuracy: float = ACCURACY) -> Any:
    """Solutions of linear systems, one per column, up to a share of the right side in the norm of the preconditioner."""
    residual = right
    direction = solve(residual)
    found = 0.0 * direction
    size = arrays.inner(residual, direction)
    target = accuracy**2 * size
    for _ in range(MAX_PRODUCTS):
        image = product(direction)
        # A column that is done stays as it is: none depends on the others beside it.
        length = arrays.put(np.where(size > target, _quotient(size, arrays.inner(direction, image)), 0.0))
        found = found + direction * length
        residual = residual - image * length
        solved = solve(residual)
        before, size = size, arrays.inner(residual, solved)
        if np.all(size <= target):
            break
        direction = solved + direction * arrays.put(_quotient(size, before))
    return found


def _quotient(above: Array, below: Array) -> Array:
    """``above / below``; 0 where nothing is left to do, or nothing more can be done."""
    with np.errstate(all="ignore"):
        return np.where(np.isfinite(above / below) & (below > 0.0), above / below, 0.0)
