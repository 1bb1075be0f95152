"""What the deletion of every row does to a model: exact case-deletion diagnostics with certified intervals."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from glru._options import is_whole
from glru._results import Drawable, Shown, find_display, format_count, make_frame, show_interval
from glru.bounds import Bounds, Interval, ScoreBounds, shift
from glru.cascade import Rows
from glru.deletion.deletions import OPEN, SHORT_ROWS, STAGES, Deletions, delete, require_deletions, weight_slack
from glru.deletion.intervals import absolute, around, divide, enlarge, middle, negate
from glru.linalg import FEW, TINY, Array, gamma, length
from glru.losses import CUT_OFF, Gamma, Hinge, Loss, Squared, Tweedie, WithOffset
from glru.model_selection.result import HeldOutScores
from glru.problem import Problem
from glru.solution import Solution

QUANTITIES = (
    "cooks_distance",
    "leverage",
    "score_change",
    "dffits",
    "held_out_score",
    "deletion_residual",
    "deviance_residual",
)
"""What is known about every row."""

RANKING_ROUNDS = 12
"""How often the widest of the rows that a ranking leaves contested are narrowed to a tenth."""

MIN_CURVATURE = 1e-300
"""What a curvature that underflows is at most."""

COEF_CHUNK_WIDTH = 4
"""Arrays of a chunk of changes of coefficients that are to stay in the cache together."""

LOSS_UNITS = 256.0 * FEW
"""Relative error of a value or a derivative of a loss."""


class DeletionResult(Shown):
    """What the results of deletions share."""

    certified: ClassVar[bool] = True
    """Whether what is stated is proven: here it always is."""

    def __init__(self, deletions: Deletions, width: float) -> None:
        self._deletions, self.width, self.problem = deletions, width, deletions.problem
        problem = self.problem
        names = problem.column_names or tuple(f"x{j}" for j in range(problem.n_columns))
        self.coef_names = [*map(str, names), "intercept"] if problem.fit_intercept else list(map(str, names))
        self._members = np.arange(deletions.n_deletions)

    @property
    def n_trainings(self) -> int:
        """Models that were trained."""
        return self._deletions.n_trainings

    @property
    def coef(self) -> Array:
        """The coefficients of the model of all rows, the intercept last."""
        return self._deletions.reference.point.pack(self.problem.fit_intercept)

    @property
    def decided_by(self) -> dict[str, int]:
        """How many models each stage decided."""
        counts = np.bincount(self._deletions.stage_codes[self._members], minlength=len(STAGES))
        return {stage: int(count) for stage, count in zip(STAGES, counts, strict=True) if count}

    def _slack(self, rows: Rows | slice) -> Array:
        """Upper bounds of the distances of the exact moves from the candidates, with the rounding of products with these."""
        deletions = self._deletions
        return deletions.radii[rows] + 8.0 * deletions.reference.metric.solve_error * deletions.lengths[rows]


def _measure(name: str, what: str) -> property:
    """A property: the middles of the intervals of a quantity."""
    return property(lambda self: middle(self.measure_bounds(name)), doc=f"{what}, the middles of their intervals.")


@final
@dataclass(frozen=True, eq=False, repr=False)
class Ranking(Drawable):
    """The rows in which a quantity is largest in absolute value, the largest first.

    Attributes
    ----------
    by : str
        The quantity.
    rows : array of int
        The rows.
    lower, upper : array
        Bounds of the quantity's absolute value.
    certified : bool
        Whether no other row can be among them.
    ties : list of tuple of int
        Rows next to each other in the ranking whose order is not proven, and the first row beyond it where that might belong to it.

    Examples
    --------
    >>> import numpy as np, glru
    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> y = X[:, 0] > 0.3 * np.arange(50) / 50
    >>> top = glru.influence(glru.Problem(X, y, penalty=glru.L2(0.1))).top(3)
    >>> top.rows.size, top.certified, top.ties
    (3, True, [])
    """

    by: str
    rows: Rows
    lower: Array
    upper: Array
    certified: bool
    ties: list[tuple[int, int]]

    def to_frame(self) -> Any:
        """One line per row of the ranking, with both ends of the quantity (a pandas or polars frame)."""
        return make_frame({"row": self.rows, f"{self.by}_lower": self.lower, f"{self.by}_upper": self.upper})

    def _display(self) -> Any:
        names, label = [f"row {row}" for row in self.rows], self.by.replace("cooks_", "Cook's ").replace("_", " ")
        return find_display("IntervalsDisplay")(self.lower, self.upper, names, label)

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        proof = "proven" if self.certified else "not proven"
        title = f"Ranking({self.rows.size} rows by {self.by}, {proof})"
        lines = [
            (f"row {row}", show_interval(float(low), float(high)))
            for row, low, high in zip(self.rows, self.lower, self.upper, strict=True)
        ]
        if self.ties:
            lines.append(("ties", ", ".join(f"{first} and {second}" for first, second in self.ties)))
        return title, lines


@final
class Influence(DeletionResult, HeldOutScores):  # type: ignore[override]
    r"""What leaving out each row does to a model, with certified intervals; made by :func:`glru.influence`.

    With :math:`w` the optimum of all rows and :math:`w_{-i}` the one without row ``i``, :math:`H` the Hessian of the objective at :math:`w`
    (penalty included), :math:`\bar s` the mean weight of a row and :math:`\varphi` the dispersion:

    * ``dfbeta``: :math:`w_j - w_{-i,j}`; ``dfbetas``: that divided by the standard error :math:`\sqrt{\varphi \bar s (H^{-1})_{jj}}` of the model
      of all rows;
    * ``score_change``: :math:`x_i^\top (w - w_{-i})`, the change of the row's own fitted value on the scale of the scores; ``dffits``: that divided by
      :math:`\sqrt{\varphi \bar s \, x_i^\top H^{-1} x_i}`;
    * ``cooks_distance``: :math:`(w - w_{-i})^\top H (w - w_{-i}) / (p \varphi \bar s)`, ``p`` the sum of the leverages, without a penalty the number of coefficients;
    * ``leverage``: :math:`s_i \ell''_i \, x_i^\top H^{-1} x_i`;
    * ``held_out_score``: :math:`x_i^\top w_{-i}`, an offset not counted; ``deletion_residual``: minus the derivative of the loss there, which is the
      target less the prediction for the squared, the logistic and the Poisson loss; ``deviance_residual``: the signed root of twice the loss there above its least value.

    Attributes
    ----------
    cooks_distance, leverage, score_change, dffits, held_out_score, deletion_residual, deviance_residual : array of shape (n_rows,)
        The middles of the certified intervals; :meth:`measure_bounds` gives the ends. NaN where nothing is known, because there is no
        unique optimum without the row.
    bounds, labels, decided, n_errors, metric_bounds
        As in :class:`glru.results.LOOCVResult`: bounds of the held-out scores, and what follows from them.
    coef_names : list of str
        The coefficients, the intercept last.
    coef, standard_errors : array of shape (n_coefs,)
        The model of all rows and the standard errors that ``dfbetas`` are scaled by.
    dispersion : tuple of float
        Bounds of :math:`\varphi`: 1; for the squared loss the weighted residual variance with :math:`n - p` degrees of freedom, for the Gamma and
        Tweedie losses Pearson's statistic divided by them.
    width : float
        The accuracy that was asked for: the change of the model without a row is known to this share of its length, or of the root
        mean square of all lengths if that is more.
    stages : array of str
        What gave each row's interval: "closed form", "second order", "newton", "refine", "training"; "open": wider than asked.
    decided_by : dict
        How many rows each stage decided.
    n_trainings : int
        Models that were trained; Newton steps of one model are counted in the stage "refine".

    Examples
    --------
    >>> import numpy as np, glru
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 2))
    >>> y = X[:, 0] + rng.normal(size=60)
    >>> y[7] += 10.0
    >>> result = glru.influence(glru.Problem(X, y, glru.Squared(), glru.L2(np.zeros(2)), fit_intercept=True, scaling="sum"))
    >>> result.top(1).rows
    array([7])
    >>> lower, upper = result.dfbetas(rows=[7])
    >>> lower.shape, bool(np.all(upper - lower < 1e-9))
    ((1, 3), True)
    """

    def __init__(
        self,
        deletions: Deletions,
        width: float,
        n_observations: float | None = None,
        variance_power: float | None = None,
    ) -> None:
        super().__init__(deletions, width)
        self._n_observations = n_observations
        self._variance_power = _variance_power(deletions.problem.loss) if variance_power is None else variance_power

    def _held_out(self) -> tuple[ScoreBounds, Array]:
        bounds = ScoreBounds(*self.measure_bounds("held_out_score"))
        with_offset = isinstance(self.problem.loss, WithOffset)
        return shift(bounds, self.problem.offset) if with_offset else bounds, self.problem.targets

    @property
    def bounds(self) -> ScoreBounds:
        """Bounds of each row's score without it, an offset included, as :func:`glru.loocv` has them."""
        return self._bounds

    @property
    def decided(self) -> NDArray[np.bool_]:
        """Where the held-out label is proven; for a regression, where the row's move is as well known as was asked for."""
        return self._deletions.stage_codes != OPEN if self.classes is None else self._bounds.decided

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return self.problem.n_rows

    @property
    def seconds(self) -> dict[str, float]:
        """Time spent in each stage."""
        return dict(self._deletions.seconds)

    @property
    def stages(self) -> NDArray[np.str_]:
        """What gave each row's interval."""
        return np.array(STAGES)[self._deletions.stage_codes]

    cooks_distance = _measure("cooks_distance", "Cook's distances")
    leverage = _measure("leverage", "Leverages")
    score_change = _measure("score_change", "Changes of the rows' own fitted values")
    dffits = _measure("dffits", "Scaled changes of the rows' own fitted values")
    held_out_score = _measure("held_out_score", "Scores under the models without the rows")
    deletion_residual = _measure("deletion_residual", "Minus the derivatives of the losses at the held-out scores")
    deviance_residual = _measure("deviance_residual", "Deviance residuals at the held-out scores")

    def measure_bounds(self, name: str) -> Bounds:
        """Certified ends of a quantity of every row.

        Parameters
        ----------
        name : {"cooks_distance", "leverage", "score_change", "dffits", "held_out_score", "deletion_residual", "deviance_residual"}
            The quantity.

        Returns
        -------
        tuple of array
            Lower and upper ends, one entry per row.
        """
        if name not in QUANTITIES:
            raise ValueError(f"the quantity must be one of {', '.join(QUANTITIES)}; got {name!r}.")
        lower, upper, measure = *np.empty((2, self.n_rows)), getattr(self, f"_{name}")
        with np.errstate(all="ignore"):  # overflow ends in infinite bounds: nothing is proven then
            for here in self._deletions.chunks(self.n_rows, SHORT_ROWS):
                lower[here], upper[here] = measure(here)
        return lower, upper

    # What all quantities are made of.

    @cached_property
    def _theta(self) -> float:
        """The relative error of a squared norm in the metric or in its inverse, against the exact Hessian."""
        theta = self._deletions.reference.theta + weight_slack(self.problem)
        return theta / (1.0 - theta) + FEW if theta < 0.5 else np.inf

    @property
    def _n_counted(self) -> float:
        """The number of observations that degrees of freedom are counted from."""
        return self._n_observations or float(np.count_nonzero(self.problem.weights))

    @cached_property
    def _mean_weight(self) -> float:
        """The weight of one observation: the mean of the rows', or 1 where weights count observations."""
        if self._n_observations is not None:
            return 1.0
        weights = self.problem.weights
        return float(weights.sum()) / max(int(np.count_nonzero(weights)), 1)

    @property
    def relative_weights(self) -> Array:
        """The weights of the rows in units of one observation's."""
        return self.problem.weights / self._mean_weight

    def _row_norms(self, rows: slice) -> Bounds:
        """Bounds of the norms of rows in the inverse of the exact Hessian."""
        reference = self._deletions.reference
        return self._exact_norms(reference.norms[rows], 2.0 * reference.metric.tiny)

    @cached_property
    def _axis_norms(self) -> Bounds:
        return self._exact_norms(self._deletions.reference.axis_norms)

    def _exact_norms(self, upper: Array, tiny: float = 0.0) -> Bounds:
        """Bounds of norms in the inverse of the exact Hessian, from norms that were rounded up by a solve error and what covers underflow."""
        lower = upper * (1.0 - 3.0 * self._deletions.reference.metric.solve_error) - tiny
        return np.maximum(lower * (1.0 - self._theta), 0.0), upper * (1.0 + self._theta)

    @cached_property
    def _freedom(self) -> Interval:
        r"""Bounds of the sum of the leverages, the degrees of freedom of the model.

        With :math:`H = X^\top D X + \Lambda` it is :math:`\sum_i d_i x_i^\top H^{-1} x_i = \operatorname{tr} H^{-1} X^\top D X`: of the eigenvalues of that matrix none is above 1,
        and without a penalty all are 1, so that it is at most the number of coefficients, and then equal to it. Under the mean of the losses both :math:`D` and the leverages are those of
        the weights divided by their sum.
        """
        size = self._deletions.reference.size
        if not np.any(self.problem.quadratic):
            return float(size), float(size)
        lower, upper = self.measure_bounds("leverage")
        unit = gamma(lower.size + 8)
        return float(lower.sum()) * (1.0 - unit), min(float(upper.sum()) * (1.0 + unit), float(size))

    @property
    def freedom(self) -> float:
        """The sum of the leverages, which Cook's distance is divided by: without a penalty the number of coefficients."""
        return 0.5 * sum(self._freedom)

    @cached_property
    def dispersion(self) -> Interval:
        """Bounds of the dispersion."""
        problem, reference = self.problem, self._deletions.reference
        if self._variance_power is not None:
            return self._estimate_dispersion(self._variance_power)
        if not isinstance(problem.loss, Squared):
            return 1.0, 1.0
        # The weighted residuals move by at most the norm of the move of the model.
        root = np.sqrt(problem.weights)
        size = float(length(root * reference.values.slopes))
        off = reference.radius * (1.0 + self._theta) + float(length(root * reference.errors))
        off += (gamma(problem.n_rows + 8) + weight_slack(problem)) * size
        unit = float(np.sqrt(self._mean_weight))
        least, most = max(size - off, 0.0) / unit, (size + off) / unit
        n_used, (low, high) = self._n_counted, self._freedom
        if not n_used - high > 0.0:
            return (0.0, np.inf)
        return (
            least**2 / (n_used - low) * (1.0 - 4.0 * FEW - 2.0 * weight_slack(problem)),
            most**2 / (n_used - high) * (1.0 + 4.0 * FEW + 2.0 * weight_slack(problem)),
        )

    def _estimate_dispersion(self, power: float) -> Interval:
        """Bounds of the sum of ``s (y - mu)^2 / mu^p`` by the degrees of freedom: a signed root of a term falls with its score."""
        problem, reference = self.problem, self._deletions.reference
        # A power of the mean multiplies the errors of its logarithm by less than 2, and its own evaluation is off by a few units.
        half = reference.norms * reference.radius + reference.errors + problem.score_noise + 64.0 * FEW
        scores = reference.values.scores + problem.offset
        with np.errstate(all="ignore"):
            ends = [
                np.exp(-0.5 * power * z) * (problem.targets - np.exp(z))
                for z in (scores + half + FEW * np.abs(scores), scores - half - FEW * np.abs(scores))
            ]
            lower, upper = absolute(enlarge((ends[0], ends[1]), LOSS_UNITS))
            weights = self.relative_weights
            share = gamma(problem.n_rows + 16) + 2.0 * weight_slack(problem) + LOSS_UNITS
            least, most = float(weights @ np.square(lower)), float(weights @ np.square(upper))
        n_used, (low, high) = self._n_counted, self._freedom
        if not (n_used - high > 0.0 and np.isfinite(most)):
            return 0.0, np.inf
        return float(least / (n_used - low) * (1.0 - share)), float(most / (n_used - high) * (1.0 + share))

    @cached_property
    def _unit(self) -> Interval:
        """Bounds of the root of the dispersion and the mean weight: what standard errors are in units of."""
        root, share = float(np.sqrt(self._mean_weight)), 4.0 * FEW + weight_slack(self.problem)
        low, high = self.dispersion
        return float(np.sqrt(low)) * root * (1.0 - share), float(np.sqrt(high)) * root * (1.0 + share)

    def _divide_by_errors(self, bounds: Bounds, norms: Bounds) -> Bounds:
        """Quantities divided by their standard errors, the dispersion's root times norms in the inverse Hessian."""
        low, high = self._unit
        return divide(bounds, enlarge((norms[0] * low, norms[1] * high), FEW))

    @property
    def standard_error_bounds(self) -> Bounds:
        """Certified ends of the standard errors of the model of all rows, the intercept's last."""
        (lower, upper), (low, high) = self._axis_norms, self._unit
        return enlarge((lower * low, upper * high), FEW)

    @property
    def standard_errors(self) -> Array:
        """The standard errors of the model of all rows, the intercept's last."""
        return middle(self.standard_error_bounds)

    def _cooks_distance(self, rows: slice) -> Bounds:
        lower, upper = around(self._deletions.lengths[rows], self._slack(rows))
        (low, high), (least, most) = self._freedom, self._unit
        # One factor for all rows, each end rounded outward. Where the factor is not known, an end is negative or not a number.
        lower = lower * (1.0 - self._theta) / most * (1.0 - FEW)
        upper = upper * (1.0 + self._theta) / least * (1.0 + FEW)
        lower = np.square(np.where(lower > 0.0, lower, 0.0)) / high * (1.0 - 4.0 * FEW)
        # A square may underflow: the next number is at least what it would be.
        upper = np.nextafter(np.square(upper) / low * (1.0 + 4.0 * FEW), np.inf)
        return np.where(np.isfinite(lower), lower, 0.0), np.where(np.isnan(upper), np.inf, upper)

    def _leverage(self, rows: slice) -> Bounds:
        problem, reference = self.problem, self._deletions.reference
        norms, curvatures = self._row_norms(rows), reference.values.curvatures[rows]
        # Multiplied first: squares of norms may overflow where leverages do not.
        weights = problem.weights[rows]
        lower, upper = (
            norms[0] * np.sqrt(weights * curvatures),
            norms[1] * np.sqrt(weights * (curvatures + MIN_CURVATURE)),
        )
        moves = reference.norms[rows] * reference.radius + reference.errors[rows]
        # The curvature at the optimum's score; of a loss without a self-concordance constant the one at the model.
        drift = np.expm1((problem.loss.self_concordance or 0.0) * moves) + LOSS_UNITS + weight_slack(problem)
        lower, upper = np.square(lower) * (1.0 - drift), np.nextafter(np.square(upper) * (1.0 + drift), np.inf)
        # Without a proof a leverage is a number between 0 and 1 all the same.
        return np.where((lower > 0.0) & (lower <= 1.0), lower, 0.0), np.where(upper < 1.0, upper, 1.0)

    def _score_change(self, rows: slice) -> Bounds:
        return negate(
            around(self._deletions.own_moves(rows), self._deletions.reference.norms[rows] * self._slack(rows))
        )

    def _dffits(self, rows: slice) -> Bounds:
        return self._divide_by_errors(self._score_change(rows), self._row_norms(rows))

    def _held_out_score(self, rows: slice) -> Bounds:
        reference, moves = self._deletions.reference, self._deletions.own_moves(rows)
        scores = reference.values.scores[rows]
        half = (
            reference.norms[rows] * self._slack(rows) + reference.errors[rows] + FEW * (np.abs(scores) + np.abs(moves))
        )
        return around(scores + moves, half)

    def _widen_scores(self, rows: slice) -> Bounds:
        """Held-out scores, widened by what the evaluation of a loss does as an error of its score."""
        (lower, upper), noise = self._held_out_score(rows), self.problem.score_noise + 16.0 * FEW
        return lower - noise - 16.0 * FEW * np.abs(lower), upper + noise + 16.0 * FEW * np.abs(upper)

    def _deletion_residual(self, rows: slice) -> Bounds:
        lower, upper = self._widen_scores(rows)
        loss, y = self.problem.loss, self.problem.y[rows]
        # Derivatives of a convex loss grow with the score.
        least, most = -loss.derivative(y, upper)[1], -loss.derivative(y, lower)[0]
        low, high = loss.outer_derivative_range(y)
        known = np.isfinite(lower) & np.isfinite(upper)
        least, most = enlarge((least, most), LOSS_UNITS)
        # What underflows is smaller than this, and what was cut off is larger.
        least, most = np.where(least < -CUT_OFF, -np.inf, least - TINY), np.where(most > CUT_OFF, np.inf, most + TINY)
        return np.where(known, np.maximum(least, -high), -high), np.where(known, np.minimum(most, -low), -low)

    def _deviance_residual(self, rows: slice) -> Bounds:
        lower, upper = self._widen_scores(rows)
        known = np.isfinite(lower) & np.isfinite(upper)
        found = enlarge((self._compute_deviances(rows, upper), self._compute_deviances(rows, lower)), LOSS_UNITS)
        # The root of a loss that underflows is smaller than TINY.
        return np.where(known, found[0] - TINY, -np.inf), np.where(known, found[1] + TINY, np.inf)

    def _compute_deviances(self, rows: slice, scores: Array) -> Array:
        """The signed roots of twice the losses, whose least value is 0; they fall with the scores."""
        values, slopes, _ = self.problem.loss.expand(self.problem.y[rows], scores)
        # What was cut off is larger.
        values = np.where(values > CUT_OFF, np.inf, values)
        return -np.sign(slopes) * np.sqrt(2.0 * np.maximum(values, 0.0))

    def _chosen(self, rows: Sequence[int] | Rows | None) -> Rows:
        if rows is None:
            return np.arange(self.n_rows)
        given = np.asarray(rows)
        chosen = given.reshape(-1)
        if chosen.size and (chosen.dtype.kind not in "iu" or chosen.min() < 0 or chosen.max() >= self.n_rows):
            raise ValueError(f"rows must be whole numbers from 0 to {self.n_rows - 1}; got {rows!r}.")
        return chosen.astype(np.intp)

    def dfbeta(self, rows: Sequence[int] | Rows | None = None) -> Bounds:
        """Certified ends of the change of every coefficient: the model of all rows minus the model without a row.

        Parameters
        ----------
        rows : sequence of int, default=None
            The rows; all if not given, which takes memory for every row and coefficient, twice.

        Returns
        -------
        tuple of array of shape (n_chosen, n_coefs)
            Lower and upper ends, the intercept's column last.
        """
        ones = np.ones(self._deletions.reference.size)
        return self._coef_changes(rows, (ones, ones))

    def _coef_changes(self, rows: Sequence[int] | Rows | None, units: Bounds) -> Bounds:
        """Bounds of the changes of all coefficients, each divided by a number within bounds."""
        deletions, chosen = self._deletions, None if rows is None else self._chosen(rows)
        size = self.n_rows if chosen is None else chosen.size
        lower, upper = np.empty((2, size, deletions.reference.size))
        with np.errstate(all="ignore"):
            scale = 0.5 / units[0] + 0.5 / units[1]
            # A quotient lies within this share of the one by the middle; FEW covers every rounding here but that of the product.
            share = np.maximum(1.0 - 1.0 / (units[1] * scale), 1.0 / (units[0] * scale) - 1.0) + FEW
            known = np.isfinite(scale) & np.isfinite(share)
            largest = float(share.max(initial=0.0, where=known))
            scaled = deletions.reference.metric.inverse * -np.where(known, scale, 0.0)[:, None]
            axes = np.where(known, deletions.reference.axis_norms * scale * (1.0 + largest), np.inf)
            # By Cauchy-Schwarz a quotient is at most the length of the move times that of the axis.
            half = (self._slack(slice(None)) + (largest + FEW) * deletions.lengths) * (1.0 + FEW) + TINY
            for here in deletions.chunks(size, COEF_CHUNK_WIDTH * deletions.reference.size):
                members = here if chosen is None else chosen[here]
                changes = deletions.project_moves(members, scaled.T)
                np.multiply(half[members, None], axes, out=upper[here])
                np.subtract(changes, upper[here], out=lower[here])
                upper[here] += changes
                # What overflows proves nothing; half-widths are above 0, so that nothing else is not a number.
                if not np.isfinite(changes.sum()):
                    lower[here][np.isnan(lower[here])] = -np.inf
                    upper[here][np.isnan(upper[here])] = np.inf
        return lower, upper

    def dfbetas(self, rows: Sequence[int] | Rows | None = None) -> Bounds:
        """Certified ends of the change of every coefficient in units of its standard error under the model of all rows.

        Parameters
        ----------
        rows : sequence of int, default=None
            The rows; all if not given.

        Returns
        -------
        tuple of array of shape (n_chosen, n_coefs)
            Lower and upper ends, the intercept's column last.
        """
        return self._coef_changes(rows, self.standard_error_bounds)

    def fitted_changes(
        self, rows: Sequence[int] | Rows | None = None, of: Sequence[int] | Rows | None = None
    ) -> Bounds:
        """Certified ends of the change of all fitted values, on the scale of the scores: the model of all rows minus the model without a row.

        Parameters
        ----------
        rows : sequence of int, default=None
            The rows that are left out; all if not given.
        of : sequence of int, default=None
            The rows whose fitted values are asked about; all if not given.

        Returns
        -------
        tuple of array of shape (n_rows_left_out, n_fitted)
            Lower and upper ends.
        """
        chosen, asked, deletions = self._chosen(rows), self._chosen(of), self._deletions
        places, norms = deletions.place_rows(asked), deletions.reference.norms[asked]
        with np.errstate(all="ignore"):
            moves = deletions.directions(chosen) @ places.T
            return negate(around(moves, np.outer(self._slack(chosen), norms)))

    def top(self, k: int = 10, by: str = "cooks_distance", column: str | int | None = None) -> Ranking:
        """The rows in which a quantity is largest in absolute value; only intervals of rows whose rank is open are narrowed further.

        Parameters
        ----------
        k : int, default=10
            How many rows.
        by : str, default="cooks_distance"
            A quantity of :meth:`measure_bounds`, or "dfbetas" with a ``column``.
        column : str or int, default=None
            The name or the place of the coefficient, for "dfbetas".

        Returns
        -------
        Ranking
            The rows, bounds of the quantity, and whether they are proven; rows that float64 cannot put in order are named as ties.
        """
        if not is_whole(k) or not 1 <= k <= self.n_rows:
            raise ValueError(f"k must be a whole number from 1 to the number of rows, {self.n_rows}; got {k!r}.")
        place = self.place_of(by, column)
        name = by if place is None else f"dfbetas of {self.coef_names[place]}"
        for _ in range(RANKING_ROUNDS):
            lower, upper = self._sizes(by, place)
            contested = find_contested_rows(lower, upper, k)
            if not contested.size or by == "leverage" or self._deletions.budget.spent:
                break
            deletions = self._deletions
            before = deletions.radii[contested].copy()
            widest = float((before / deletions.scale[contested]).max())
            deletions.narrow(contested, 0.1 * widest if np.isfinite(widest) else self.width)
            if not np.any(deletions.radii[contested] < 0.5 * before):
                break
        return rank(name, *self._sizes(by, place), k)

    def place_of(self, by: str, column: str | int | None) -> int | None:
        """The place of the coefficient that a quantity is of; None where it is of the row."""
        if by != "dfbetas":
            if column is not None:
                raise ValueError(f"column is for by='dfbetas'; got by={by!r}.")
            if by not in QUANTITIES:
                raise ValueError(f"by must be one of {', '.join((*QUANTITIES, 'dfbetas'))}; got {by!r}.")
            return None
        if isinstance(column, str) and column in self.coef_names:
            return self.coef_names.index(column)
        if is_whole(column) and 0 <= column < len(self.coef_names):
            return int(column)
        raise ValueError(f"'dfbetas' needs a column, one of {', '.join(self.coef_names)} or its place; got {column!r}.")

    def _sizes(self, by: str, place: int | None) -> Bounds:
        """Bounds of the absolute values of a quantity."""
        if place is None:
            return absolute(self.measure_bounds(by))
        reference, deletions = self._deletions.reference, self._deletions
        moves = np.empty(self.n_rows)
        for here in deletions.chunks(self.n_rows):
            moves[here] = deletions.project_moves(here, reference.metric.inverse[place][:, None])[:, 0]
        norms = self._axis_norms[0][place : place + 1], self._axis_norms[1][place : place + 1]
        return absolute(
            self._divide_by_errors(around(moves, self._slack(slice(None)) * reference.axis_norms[place]), norms)
        )

    def to_frame(self, dfbetas: bool = False) -> Any:
        """One line per row (a pandas or polars frame): target, both ends of every quantity, and the stage.

        Parameters
        ----------
        dfbetas : bool, default=False
            Whether to add both ends of the ``dfbetas`` of every coefficient.
        """
        columns: dict[str, Any] = {"y": self.targets}
        for name in QUANTITIES:
            columns[f"{name}_lower"], columns[f"{name}_upper"] = self.measure_bounds(name)
        if dfbetas:
            lower, upper = self.dfbetas()
            for j, name in enumerate(self.coef_names):
                columns |= {f"dfbetas_lower_{name}": lower[:, j], f"dfbetas_upper_{name}": upper[:, j]}
        return make_frame(columns | {"decided_by": self.stages})

    @property
    def targets(self) -> NDArray[Any]:
        """The targets as the caller has them."""
        problem = self.problem
        return problem.targets if problem.classes is None else problem.classes[(problem.y > 0.0).astype(np.intp)]

    def plot(self, ax: Any = None, kind: str = "leverage", column: str | int | None = None) -> Any:
        """Draw a picture of the deletions.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; a new figure if not given.
        kind : {"leverage", "cooks_distance", "dfbetas"}, default="leverage"
            Deviance residuals against leverages with contours of Cook's distance; Cook's distance of every row; or ``dfbetas`` of one
            coefficient, or of all.
        column : str or int, default=None
            The coefficient for "dfbetas"; all if not given.

        Returns
        -------
        glru.display.DeletionDisplay
        """
        return find_display("DeletionDisplay").from_result(self, kind, column).plot(ax)

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        lines = []
        lower, upper = self.measure_bounds("cooks_distance")
        if self.n_rows:
            row = int(np.argmax(lower))
            lines.append(
                ("largest", f"Cook's distance {show_interval(float(lower[row]), float(upper[row]))}, row {row}")
            )
            high = self.measure_bounds("leverage")
            row = int(np.argmax(high[0]))
            lines.append(("", f"leverage {show_interval(float(high[0][row]), float(high[1][row]))}, row {row}"))
        lines.append(("decided by", ", ".join(f"{stage} {count}" for stage, count in self.decided_by.items())))
        n_open = int(np.count_nonzero(self._deletions.stage_codes == OPEN))
        unknown = int(np.count_nonzero(~np.isfinite(self._deletions.radii)))
        if n_open:
            what = f"{format_count(n_open, 'row')} known less accurately than width={self.width:g} asks for"
            lines.append(("open", what + (f"; of {unknown} nothing is known" if unknown else "")))
        lines.append(("trainings", f"{self.n_trainings} of {self.n_rows}"))
        lines.append(("seconds", ", ".join(f"{stage} {time:.3g}" for stage, time in self.seconds.items())))
        return f"Influence({self.n_rows} rows, {len(self.coef_names)} coefficients)", lines


@np.errstate(all="ignore")  # overflow ends in infinite bounds: nothing is proven then
def compute_influence(
    model: Problem | Solution, n_observations: float | None, variance_power: float | None, width: float, *how: Any
) -> Influence:
    """The deletions of all rows of a problem or of its solution; ``how``: the rest of the parameters of :func:`delete`.

    ``n_observations``: where weights are those of a likelihood, so that standard errors shrink as they grow, how many observations there are.
    ``variance_power``: the power of the mean that the variance is proportional to, where its dispersion is to be estimated; that of the loss if not given.
    """
    problem = model.problem if isinstance(model, Solution) else model
    require_deletions(problem, "influence")
    if isinstance(problem.loss, Hinge):
        raise ValueError(
            f"glru.influence needs a loss with a curvature; got {problem.loss!r}. Use glru.SmoothedHinge() or glru.SquaredHinge(), "
            "or glru.loocv for held-out scores."
        )
    deletions = delete(model, None, width, *how)
    return Influence(deletions, width, n_observations, variance_power)


def _variance_power(loss: Loss) -> float | None:
    """The power of the mean that a variance with an unknown dispersion is proportional to; None where the dispersion is known, or not of this kind."""
    inner = loss.loss if isinstance(loss, WithOffset) else loss
    return 2.0 if isinstance(inner, Gamma) else inner.power if isinstance(inner, Tweedie) else None


def find_contested_rows(lower: Array, upper: Array, k: int) -> Rows:
    """The rows whose place among the first ``k`` is not proven, or whose membership is not."""
    # The k-th largest lower end: rows below it cannot belong to the first k.
    bar = np.partition(lower, lower.size - k)[lower.size - k]
    rows = np.flatnonzero(upper >= bar)
    order = rows[np.argsort(-0.5 * (lower[rows] + upper[rows]), kind="stable")]
    open_ = np.zeros(order.size, dtype=bool)
    if order.size > k:
        # Members above all that are not proven to be out are safe.
        rest = upper[order[k:]].max()
        open_[k:] = True
        open_[:k] |= lower[order[:k]] <= rest
    overlap = lower[order[:-1]] <= upper[order[1:]]
    overlap[k:] = False
    open_[:-1] |= overlap
    open_[1:] |= overlap
    # Intervals that are single numbers cannot be narrowed.
    return order[open_ & (upper[order] > lower[order])]


def rank(by: str, lower: Array, upper: Array, k: int) -> Ranking:
    """The first rows by their intervals, and what is proven about that."""
    with np.errstate(invalid="ignore"):
        order = np.argsort(-np.where(np.isfinite(upper), 0.5 * (lower + upper), np.inf), kind="stable")
    first, rest = order[:k], order[k:]
    certified = rest.size == 0 or bool(upper[rest].max() < lower[first].min())
    near = order[: k + 1]
    ties = [(int(a), int(b)) for a, b in pairwise(near) if not lower[a] > upper[b]]
    return Ranking(by, first, lower[first], upper[first], certified, ties)
