r"""The jackknife of a model's coefficients, by rows or by groups of rows, with certified intervals.

With :math:`\Delta_g = w_{-g} - w` the exact moves of ``G`` deletions and :math:`c` a centre (0, or their mean), the covariance is
:math:`\frac{G-1}{G} \sum_g (\Delta_g - c)(\Delta_g - c)^\top` and the bias :math:`(G - 1)` times the mean. The moves are known up to
:math:`|\Delta_{gj} - \delta_{gj}| \le a_j \rho_g`, :math:`a_j = \|e_j\|_{B^{-1}}`, so that a standard error is known up to
:math:`a_j \sqrt{\tfrac{G-1}{G} \sum_g \rho_g^2}` and an entry of the covariance by the products of both.
"""

from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from glru._options import Center, check_call
from glru._results import find_display, make_frame
from glru.bounds import Bounds
from glru.changes import rows_of
from glru.deletion.deletions import Deletions, delete, require_deletions
from glru.deletion.intervals import absolute, around, enlarge, middle
from glru.deletion.result import DeletionResult
from glru.linalg import FEW, TINY, Array, gamma, length, outward
from glru.losses import WithOffset
from glru.problem import Problem
from glru.solution import Solution
from glru.updates.gradients import compute_model_scores
from glru.updates.moments import coordinates


@final
class Jackknife(DeletionResult):
    r"""Covariance, standard errors and bias by the jackknife, with certified intervals; made by :func:`glru.jackknife`.

    Attributes
    ----------
    coef_names : list of str
        The coefficients, the intercept last.
    coef : array of shape (n_coefs,)
        The model of all rows.
    covariance : array of shape (n_coefs, n_coefs)
        The middles of the certified intervals; ``covariance_bounds`` are the ends.
    standard_errors, bias : array of shape (n_coefs,)
        Likewise; ``standard_error_bounds`` and ``bias_bounds`` are the ends.
    groups : array or None
        The labels of the groups in sorted order; None where every row is left out on its own.
    n_deletions : int
        How many models there are: one per row, or one per group.
    center : {"estimate", "mean"}
        What the covariance is centred at.
    unknown : array of int
        Rows or groups without which no optimum is proven to exist; if there are any, every interval is infinite.
    decided_by : dict
        How many models each stage decided.
    n_trainings : int
        Models that were trained; Newton steps of one model are counted in the stage "refine".

    Examples
    --------
    >>> import numpy as np, glru
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(120, 2)), np.repeat(np.arange(12), 10)
    >>> y = X[:, 0] + rng.normal(size=120) + np.repeat(rng.normal(size=12), 10)
    >>> problem = glru.Problem(X, y, glru.Squared(), glru.L2(np.zeros(2)), fit_intercept=True, scaling="sum")
    >>> result = glru.jackknife(problem, groups=groups)
    >>> result.standard_errors.round(4)
    array([0.1027, 0.1096, 0.2912])
    """

    def __init__(self, deletions: Deletions, width: float, groups: NDArray[Any] | None, center: Center) -> None:
        super().__init__(deletions, width)
        self.groups, self.center = groups, center
        # A row without weight is no deletion.
        if groups is None:
            self._members = np.flatnonzero(self.problem.weights > 0.0)

    @property
    def n_deletions(self) -> int:
        """How many models there are."""
        return self._members.size

    @property
    def unknown(self) -> NDArray[np.intp]:
        """Rows or groups of which nothing is known."""
        return self._members[~np.isfinite(self._deletions.radii[self._members])]

    @cached_property
    def _moves(self) -> Array:
        """The candidates' moves of the coefficients, one row per deletion."""
        deletions = self._deletions
        found = np.empty((self.n_deletions, deletions.reference.size))
        for here in deletions.chunks(self._members.size):
            found[here] = deletions.directions(self._members[here]) @ deletions.reference.metric.inverse.T
        return found

    @cached_property
    def _slacks(self) -> Array:
        return self._slack(self._members)

    @cached_property
    def _centred(self) -> tuple[Array, Array]:
        """The moves around the centre, and at least their errors in the metric."""
        if self.center == "estimate":
            return self._moves, self._slacks
        unit = gamma(self.n_deletions + 8) * float(np.mean(self._deletions.lengths[self._members]))
        return self._moves - self._moves.mean(axis=0), self._slacks + float(np.mean(self._slacks)) * (1.0 + FEW) + unit

    @property
    def _factor(self) -> float:
        return (self.n_deletions - 1) / self.n_deletions

    @cached_property
    def standard_error_bounds(self) -> Bounds:
        """Certified ends of the standard errors, the intercept's last."""
        moves, slack = self._centred
        root, axes = np.sqrt(self._factor), self._deletions.reference.axis_norms
        unit = gamma(self.n_deletions + 16)
        with np.errstate(all="ignore"):
            sizes = np.asarray(length(moves, axis=0))
            half = axes * float(length(slack)) * (1.0 + unit) + unit * sizes
            lower, upper = around(root * sizes, root * half)
        return np.maximum(lower, 0.0), upper

    @property
    def standard_errors(self) -> Array:
        """The standard errors, the intercept's last."""
        return middle(self.standard_error_bounds)

    @cached_property
    def covariance_bounds(self) -> Bounds:
        """Certified ends of the covariance, entry by entry."""
        moves, slack = self._centred
        axes, unit = self._deletions.reference.axis_norms, gamma(self.n_deletions + 16)
        with np.errstate(all="ignore"):
            found = moves.T @ moves
            # |d_j + e_j| |d_k + e_k| with |e_gj| <= a_j rho_g.
            mixed = np.outer(np.abs(moves).T @ slack, axes)
            half = mixed + mixed.T + np.outer(axes, axes) * float(slack @ slack)
            sizes = np.asarray(length(moves, axis=0))
            half = half * (1.0 + unit) + unit * np.outer(sizes, sizes)
            return around(self._factor * found, self._factor * half)

    @property
    def covariance(self) -> Array:
        """The covariance of the coefficients, the intercept's row and column last."""
        return middle(self.covariance_bounds)

    @cached_property
    def bias_bounds(self) -> Bounds:
        """Certified ends of the jackknife's estimate of the bias, the intercept's last."""
        n, axes = self.n_deletions, self._deletions.reference.axis_norms
        unit = gamma(n + 16)
        with np.errstate(all="ignore"):
            sums = np.abs(self._moves).mean(axis=0)
            half = (axes * float(np.mean(self._slacks)) + unit * sums) * (1.0 + unit)
            return around((n - 1) * self._moves.mean(axis=0), (n - 1) * half)

    @property
    def bias(self) -> Array:
        """The jackknife's estimate of the bias, the intercept's last."""
        return middle(self.bias_bounds)

    @check_call
    def confidence_interval(self, level: float = 0.95) -> Bounds:
        """Confidence intervals of the coefficients: the estimate and a quantile of Student's t times the standard error's upper end.

        Parameters
        ----------
        level : float, default=0.95
            The level.

        Returns
        -------
        tuple of array of shape (n_coefs,)
            Ends of the intervals; the quantile is that of one degree of freedom less than there are deletions.
        """
        half = float(stdtrit(self.n_deletions - 1, 0.5 + 0.5 * level)) * self.standard_error_bounds[1]
        return self.coef - half, self.coef + half

    @check_call
    def prediction_interval(self, X: Any, level: float = 0.9, offset: Any = None) -> tuple[Bounds, Bounds]:
        r"""Jackknife+ intervals of new targets, from the exact models without each row or group; certified bounds of both ends.

        With :math:`\mu_{-i}` the prediction of the model without row ``i`` (or its group) and :math:`R_i = |y_i - \mu_{-i}(x_i)|`, the interval of ``x`` goes
        from the :math:`(n + 1 - k)`-th smallest of :math:`\mu_{-i}(x) - R_i` to the ``k``-th smallest of :math:`\mu_{-i}(x) + R_i`,
        :math:`k = \lceil \text{level} (n + 1) \rceil`; with too few rows for the level, to infinity. It contains a new target with probability at least
        :math:`2\,\text{level} - 1`, usually about ``level``, if rows are exchangeable [1]_.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            New rows.
        level : float, default=0.9
            The level.
        offset : array of shape (n_queries,), default=None
            The offsets of the new rows, for a model with an offset.

        Returns
        -------
        lower, upper : tuple of array of shape (n_queries,)
            Bounds of the lower ends, and bounds of the upper ends.

        References
        ----------
        .. [1] R. F. Barber, E. J. Candes, A. Ramdas and R. J. Tibshirani, "Predictive inference with the jackknife+", Annals of Statistics, 2021.

        Examples
        --------
        >>> import numpy as np, glru
        >>> from sklearn.linear_model import Ridge
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(100, 2))
        >>> y = X[:, 0] + rng.normal(size=100)
        >>> lower, upper = glru.jackknife(Ridge(), X, y).prediction_interval([[0.0, 0.0]])
        >>> lower[0].round(6), upper[1].round(6)
        (array([-2.02345]), array([1.651373]))
        """
        problem, deletions, reference = self.problem, self._deletions, self._deletions.reference
        if problem.loss.task != "regression" or problem.loss.link == "logit":
            raise ValueError(f"prediction_interval needs a regression of numbers; got {problem.loss!r}.")
        matrix = rows_of(X, "X", problem.n_columns, problem.column_names, None)
        if (offset is None) != (not isinstance(problem.loss, WithOffset)):
            raise ValueError("offset must be given for a model with an offset, and only for such a model.")
        shifts = np.zeros(matrix.shape[0]) if offset is None else np.asarray(offset, dtype=np.float64)
        if shifts.shape != (matrix.shape[0],) or not np.isfinite(shifts).all():
            raise ValueError(f"offset must have one finite number per row of X, {matrix.shape[0]}; got {offset!r}.")
        used = np.flatnonzero(problem.weights > 0.0)
        owners = np.searchsorted(self._members, used) if deletions.codes is None else deletions.codes[used]
        directions, slack = deletions.directions(self._members), self._slacks
        with np.errstate(all="ignore"):
            own = np.einsum("ij,ij->i", coordinates(problem.take(used), reference.metric), directions[owners])
            half = reference.norms[used] * slack[owners] + reference.errors[used]
            residuals = self._residuals(used, reference.values.scores[used] + own, half)
            point = reference.point
            scores = matrix @ point.coef + point.intercept
            unit = matrix.depths(3) * (1.0 + 2.0 * gamma(problem.n_columns + 8))
            errors = unit * (matrix.absolute_product(np.abs(point.coef)) + abs(point.intercept))
            norms = reference.metric.norms(matrix)
            places = compute_model_scores(matrix, reference.metric.inverse, problem.fit_intercept)
            k = ceil(Fraction(str(float(level))) * (used.size + 1))
            found = np.empty((4, matrix.shape[0]))
            for query in range(matrix.shape[0]):
                moved = (directions @ places[query])[owners]
                half = norms[query] * slack[owners] + errors[query] + FEW * np.abs(moved)
                means = self._means(scores[query] + moved, half, shifts[query])
                found[:, query] = _ends(means, residuals, k)
        return (found[0], found[1]), (found[2], found[3])

    def _means(self, scores: Array, half: Array, offset: Any) -> Bounds:
        """Bounds of predictions from scores and at least their errors; an offset is added to them."""
        lower, upper = around(scores + offset, half + FEW * (np.abs(scores) + np.abs(offset)))
        if self.problem.loss.link == "identity":
            return lower, upper
        # What overflows is at least the largest number, and what underflows at most the smallest.
        lower, upper = enlarge((np.exp(lower), np.exp(upper)), 16.0 * FEW)
        return np.clip(lower - TINY, 0.0, np.finfo(np.float64).max), upper + TINY

    def _residuals(self, rows: NDArray[np.intp], scores: Array, half: Array) -> Bounds:
        """Bounds of the absolute residuals of rows under the models without them."""
        targets = self.problem.targets[rows]
        lower, upper = self._means(scores, half, self.problem.offset[rows])
        rounding = FEW * (np.abs(targets) + np.maximum(np.abs(lower), np.abs(upper)))
        return absolute((targets - upper - rounding, targets - lower + rounding))

    def to_frame(self) -> Any:
        """One line per coefficient (a pandas or polars frame): estimate, and both ends of standard error and bias."""
        columns = {"coefficient": self.coef_names, "estimate": self.coef}
        for name, bounds in {"standard_error": self.standard_error_bounds, "bias": self.bias_bounds}.items():
            columns |= {f"{name}_lower": bounds[0], f"{name}_upper": bounds[1]}
        return make_frame(columns)

    @check_call
    def plot(self, ax: Any = None, level: float = 0.95) -> Any:
        """Draw the confidence intervals of the coefficients; returns a :class:`glru.display.IntervalsDisplay`.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; a new figure if not given.
        level : float, default=0.95
            As in :meth:`confidence_interval`.
        """
        label = f"coefficient, with its {100 * level:g} % confidence interval by the jackknife"
        ends = self.confidence_interval(level)
        return find_display("IntervalsDisplay")(*ends, self.coef_names, label).plot(ax)

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        what = f"{self.n_deletions} {'rows' if self.groups is None else 'groups'}"
        lines = []
        shown = min(len(self.coef_names), 12)
        lower, upper = self.standard_error_bounds
        for name, coef, low, high in zip(self.coef_names[:shown], self.coef, lower, upper, strict=False):
            digits = f"{0.5 * (low + high):.6g}" if high - low <= 1e-3 * high else f"{low:.4g} to {high:.4g}"
            lines.append((name, f"{coef:.6g}, standard error {digits}"))
        if shown < len(self.coef_names):
            lines.append(("...", f"{len(self.coef_names) - shown} more coefficients"))
        if self.unknown.size:
            lines.append(("unknown", f"without {self.unknown.size} of them no optimum is proven"))
        lines.append(("decided by", ", ".join(f"{stage} {count}" for stage, count in self.decided_by.items())))
        lines.append(("trainings", f"{self.n_trainings} of {self.n_deletions}"))
        return f"Jackknife({what}, {len(self.coef_names)} coefficients)", lines


def _ends(means: Bounds, residuals: Bounds, k: int) -> tuple[float, float, float, float]:
    """Bounds of the lower and of the upper end of a jackknife+ interval: order statistics of intervals are those of their ends."""
    n = residuals[0].size
    if k > n:
        return -np.inf, -np.inf, np.inf, np.inf
    low = [np.partition(values, n - k)[n - k] for values in (means[0] - residuals[1], means[1] - residuals[0])]
    high = [np.partition(values, k - 1)[k - 1] for values in (means[0] + residuals[0], means[1] + residuals[1])]
    lower, upper = outward(np.array([low[0], high[0]]), -np.inf), outward(np.array([low[1], high[1]]), np.inf)
    return float(lower[0]), float(upper[0]), float(lower[1]), float(upper[1])


@np.errstate(all="ignore")  # overflow ends in infinite bounds: nothing is proven then
def compute_jackknife(
    model: Problem | Solution, groups: Any, center: Center | None, width: float, *how: Any
) -> Jackknife:
    """The jackknife of a problem or of its solution; ``how``: the rest of the parameters of :func:`delete`."""
    problem = model.problem if isinstance(model, Solution) else model
    require_deletions(problem, "jackknife")
    labels, codes = (None, None) if groups is None else _group_codes(groups, problem)
    deletions = delete(model, codes, width, *how)
    chosen: Center = center if center is not None else "mean" if groups is None else "estimate"
    return Jackknife(deletions, width, labels, chosen)


def _group_codes(groups: Any, problem: Problem) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The labels of the groups, and the number of every row's group."""
    values = np.asarray(groups)
    if values.shape != (problem.n_rows,):
        raise ValueError(f"groups must have one entry per row, {problem.n_rows}; got an array of shape {values.shape}.")
    missing = np.count_nonzero(np.isnan(values)) if values.dtype.kind == "f" else 0
    if missing:
        raise ValueError(
            f"groups must be all numbers or all text, without gaps; got {missing} entries that are NaN. Name a group for them, or leave these rows out."
        )
    try:
        labels, codes = np.unique(values, return_inverse=True)
    except TypeError as error:
        kinds = ", ".join(sorted({type(value).__name__ for value in values}))
        raise ValueError(f"groups must be all numbers or all text, without gaps; got values of {kinds}.") from error
    used = np.bincount(codes, problem.weights > 0.0, labels.size) > 0.0
    if np.count_nonzero(used) < 2:
        raise ValueError(
            f"the jackknife needs at least two groups with rows of weight above 0; got {np.count_nonzero(used)}."
        )
    if not used.all():
        # Groups without weight are no deletions: their rows go with any other group, where they change nothing.
        kept = np.flatnonzero(used)
        codes = np.searchsorted(kept, np.where(used[codes], codes, kept[0]))
        labels = labels[kept]
    return labels, codes.astype(np.intp)
