r"""The local ellipsoid with one score per class.

Moving a row's scores by ``t`` multiplies every probability by a factor within :math:`e^{\pm r}`, :math:`r = \max t - \min t`, and with it the variance
:math:`v^\top h v = \min_c \sum_k p_k (v_k - c)^2`. So the proof of :mod:`glru.regions.local` holds with the range of a move in place of its size:
:math:`\kappa \ge \max_{k, a, b} \|x_k (e_a - e_b)\|_{H^{-1}}`, and the self-concordance constant is 1.

What is asked of a row are *queries*: its ``K`` scores, each measured from the mean of all (the optimum's sum to zero), and by how much one class, its
*reference*, leads each of the others.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, ScoreBounds, convert_queries, widen
from glru.certificate import Certificate, ball_radius
from glru.linalg import FEW, TINY, Array, Matrix, as_matrix, gamma, powers_of_two
from glru.metric.classes import EXPONENTS, ClassMetric, pair_norms, score_norms
from glru.metric.columns import ColumnMetric
from glru.problem import Point, Problem
from glru.regions.class_sums import ClassSums, ClassValues, pack_classes, sum_classes, unpack_classes
from glru.regions.gap import Region
from glru.regions.local import CLOSE, local_radius
from glru.rows import MAX_COLUMNS

MAX_DRIFT = 2.5
"""A metric is not used where scores have moved by a larger range from those at which it was formed: norms grow by the exponential of that range."""


def has_classes(problem: Problem) -> bool:
    """Whether there is one score per class, and the Hessian over classes and columns is small enough to form."""
    largest = problem.largest if problem.in_memory else MAX_COLUMNS
    return problem.loss.several and count_unknowns(problem) <= largest


def count_unknowns(problem: Problem) -> int:
    """Unknowns of the Hessian over classes and columns."""
    return problem.n_scores * (problem.n_columns + int(problem.fit_intercept))


def has_class_ball(problem: Problem) -> bool:
    """Whether a duality gap bounds the coefficients of all classes: rows in memory that stand for themselves, every column penalised."""
    if not (problem.loss.several and problem.in_memory and problem.penalty.strong_convexity > 0.0):
        return False
    return problem.matrix.noise is None


def require_classes(problem: Problem) -> None:
    """Refuse a problem of which nothing is proven: the Hessian is too large to form, and some column is not penalised or the rows are in blocks."""
    if has_classes(problem) or has_class_ball(problem):
        return
    if not problem.in_memory:
        raise ValueError(
            f"proofs with {problem.loss!r} of rows in blocks sum a Hessian over classes and columns, of at most {MAX_COLUMNS} unknowns; "
            f"got {count_unknowns(problem)}. Use fewer columns, load the rows, or use a one-vs-rest model."
        )
    raise ValueError(
        f"with columns that are not penalised, proofs with {problem.loss!r} form a Hessian over classes and columns, of at most "
        f"{problem.largest} unknowns; got {count_unknowns(problem)}. Penalise every column, use fewer of them, or a one-vs-rest model."
    )


@final
@dataclass(frozen=True, eq=False)
class Absent:
    r"""Columns that leave a model, in the metric with them.

    The inverse of the Hessian without them is a Schur complement of that with them, so that

    .. math:: \|g\|_{H_{--}^{-1}} = \min_v \|(g, v)\|_{H^{-1}} :

    whatever stands in the entries of the columns that leave, a norm in the metric with them is an upper bound, of gradients and of queries.
    """

    places: NDArray[np.intp]  # their unknowns, of all classes
    images: Array  # shape (n_unknowns, n_places): the unit vectors of these unknowns times the inverse of the metric

    @classmethod
    def of(cls, metric: ClassMetric, columns: NDArray[np.intp]) -> "Absent":
        """Some columns of a metric."""
        places = (metric.width * np.arange(metric.n_scores)[:, None] + columns).ravel()
        units = np.zeros((metric.n_scores * metric.width, places.size))
        units[places, np.arange(places.size)] = 1.0
        return cls(places, metric.solve(units))

    def solve(self, right: Array) -> Array:
        """The inverse of the block of these unknowns in the inverse of the metric, times a vector; without proof."""
        return np.asarray(np.linalg.lstsq(self.images[self.places], right, rcond=None)[0], dtype=np.float64)

    def clear(self, model: Array) -> Array:
        """A model with zeros in these unknowns."""
        found = model.ravel().copy()
        found[self.places] = 0.0
        return found.reshape(model.shape)

    def extend(self, gradient: Array) -> Array:
        """A gradient with those entries in these unknowns that make its norm about as small as it gets."""
        found = self.clear(gradient).ravel()
        entries = -self.solve(self.images.T @ found)
        found[self.places] = np.where(np.isfinite(entries), entries, 0.0)
        return found.reshape(gradient.shape)


@final
@dataclass(frozen=True, eq=False)
class ClassEllipsoid(Region):
    """All models within a radius of one, in the metric of the Hessian there or near, with one score per class."""

    # The problem and the centre.
    problem: Problem
    point: Point
    metric: ClassMetric  # the inverse metric of the Hessian
    metric_scores: Array | None  # shape (n_rows, n_classes): the scores where the Hessian was taken, of rows in memory
    gradient: Array  # shape (n_classes, n_unknowns): the objective's gradient, that of the gauge included
    nu: float  # at least its norm in the inverse of the exact Hessian; infinite where nothing is known
    # Columns of the problem that the model does not have: the optimum is the one without them.
    absent: "Absent | None" = None

    @classmethod
    def at(cls, problem: Problem, point: Point) -> "ClassEllipsoid":
        """The ellipsoid at a model, in the metric of the Hessian there."""
        assert has_classes(problem)
        if not problem.in_memory:
            return cls.of_sums(problem, point, sum_classes(problem, point))
        values = ClassValues.at(problem, point)
        here = ClassSums.of(problem, values, values.slopes(problem))
        return cls._around(problem, point, here, ClassMetric(problem, values.likely), values.scores, 0.0)

    @classmethod
    def of_sums(cls, problem: Problem, point: Point, here: ClassSums) -> "ClassEllipsoid":
        """The ellipsoid at a model from sums there, the Hessian among them."""
        return cls._around(problem, point, here, ClassMetric(problem, None, losses=here.hessian), None, 0.0)

    @classmethod
    def _around(
        cls,
        problem: Problem,
        point: Point,
        here: ClassSums,
        metric: ClassMetric,
        metric_scores: Array | None,
        drift: float,
        absent: "Absent | None" = None,
    ) -> "ClassEllipsoid":
        """The ellipsoid around a model from sums there, in the metric of a Hessian from which scores have drifted."""
        model, depth = pack_classes(point, problem.fit_intercept), problem.totals.depth
        gradient = here.gradient + metric.strengths * model + metric.gauge * model.sum(axis=0)
        if not (metric.eta < 0.5 and drift < MAX_DRIFT):
            return cls(problem, point, metric, metric_scores, gradient, np.inf, absent)
        slack = here.slope_error(problem, gamma(2 * depth + 16)) * problem.totals.column_norms
        sizes = metric.strengths * np.abs(model) + metric.gauge * np.abs(model).sum(axis=0)
        slack = slack + gamma(problem.n_scores + 16) * (sizes + np.abs(gradient))
        # The Hessian was taken at computed scores; those of two classes are apart by twice the error at most.
        loosening = float(np.exp(2.0 * here.largest_error.value + drift)) / (1.0 - metric.eta)
        if absent is not None:
            gradient, slack = absent.extend(gradient), absent.clear(slack)
        nu = (metric.gradient_norm(gradient.ravel(), slack.ravel()) + here.score_error(problem)) * loosening
        return cls(problem, point, metric, metric_scores, gradient, float(nu) * (1.0 + FEW), absent)

    def without(self, columns: NDArray[np.intp]) -> "ClassEllipsoid":
        """The ellipsoid that holds the optimum without some columns, after a Newton step with their coefficients at zero."""
        absent = Absent.of(self.metric, columns)
        model, shape = pack_classes(self.point, self.problem.fit_intercept), self.gradient.shape
        ahead = model - self.metric.solve(self.gradient.ravel()).reshape(shape)
        ahead = ahead - (absent.images @ absent.solve(ahead.ravel()[absent.places])).reshape(shape)
        return self._moved(ahead, absent)

    def _moved(self, model: Array, absent: "Absent | None") -> "ClassEllipsoid":
        """The ellipsoid around another model in the same metric; of rows in blocks, where a pass gives it, in that of the Hessian there."""
        problem = self.problem
        point = unpack_classes(model if absent is None else absent.clear(model), problem.fit_intercept)
        if self.metric_scores is None:
            assert absent is None  # the optimum without columns is one of rows in memory
            return ClassEllipsoid.at(problem, point)
        values = ClassValues.at(problem, point)
        here = ClassSums.of(problem, values, values.slopes(problem))
        # The Hessian at the model is smaller by at most the exponential of the range by which a row's scores have moved.
        drift = bound_range((values.scores - self.metric_scores)[problem.weights > 0.0])
        return ClassEllipsoid._around(problem, point, here, self.metric, self.metric_scores, drift, absent)

    @cached_property
    def radius(self) -> float:
        """How far the optimum is at most; infinite where nothing is proven."""
        if not np.isfinite(self.nu):
            return np.inf
        norm = self._rough_norm if self.is_close else self.metric.largest_norm(self.problem)
        return float(local_radius(1.0, norm, np.asarray(self.nu), 0.0))

    @property
    def is_close(self) -> bool:
        """Whether a bound of all rows' norms that costs nothing gives about the same radius as their norms."""
        return self._rough_norm * self.nu < CLOSE

    @property
    def _rough_norm(self) -> float:
        return self.metric.largest_pair_norm(self.problem.totals.largest_norm)

    @property
    def gap(self) -> float:
        """An upper bound of the objective's distance from its optimum."""
        return self.nu * self.radius * (1.0 + FEW) + TINY**2 if np.isfinite(self.radius) else np.inf

    def take_step(self) -> "ClassEllipsoid":
        """The ellipsoid one Newton step further, in the same metric: a product with the data each way instead of a Hessian."""
        step = self.metric.solve(self.gradient.ravel()).reshape(self.gradient.shape)
        return self._moved(pack_classes(self.point, self.problem.fit_intercept) - step, self.absent)

    def score_bounds(self, X: Matrix) -> ScoreBounds:
        return convert_queries(*self.queries(X, self.leaders(X)))

    def leaders(self, X: Matrix) -> NDArray[np.intp]:
        """The classes of the largest scores at the centre."""
        return compute_scores_with_errors(X, self.point, self.problem.fit_intercept)[0].argmax(axis=1)

    def coef_bounds(self) -> Bounds:
        return widen(self.point.coef, self._axis_widths[:, : self.problem.n_columns])

    def intercept_bounds(self) -> Bounds:
        if not self.problem.fit_intercept:
            return np.zeros(self.problem.n_scores), np.zeros(self.problem.n_scores)
        return widen(self.point.intercept, self._axis_widths[:, -1])

    @property
    def _axis_widths(self) -> Array:
        """How far each coefficient (the intercept last) is at most from the optimal one, one line per class."""
        if not np.isfinite(self.radius):
            return np.full(self.gradient.shape, np.inf)
        return self.radius * self.metric.axis_norms.reshape(self.gradient.shape) * (1.0 + FEW)

    def queries(self, X: Matrix, reference: NDArray[np.intp], forms: Array | None = None) -> Bounds:
        """Bounds of the queries of some rows, whose forms in the metric may be given."""
        scores, errors = compute_scores_with_errors(X, self.point, self.problem.fit_intercept)
        if not np.isfinite(self.radius):
            return make_unbounded_queries(*scores.shape)
        forms = self.metric.all_forms(X) if forms is None else forms
        return query_bounds(scores, forms, self.metric.unit, np.full(len(scores), self.radius), errors, reference)


@final
@dataclass(frozen=True, eq=False)
class ClassBall(Region):
    r"""All models with :math:`\sum_{kj} \lambda_j (w_{kj} - \hat w_{kj})^2 \le 2 G`, with one score per class, and the intercepts that belong to them.

    A query is a row times a vector over the classes, of squared norm ``1 - 1 / K`` for a score that is measured from the mean of all, 2 for a difference.

    Intercepts are not penalised. Given the optimal coefficients they minimise a convex function of ``K`` numbers. The scores of row ``i`` without them have
    moved by :math:`u_i` of range at most :math:`\rho_i = 2 \sqrt{G} \|x_i\|_{\Lambda^{-1}}`, so that the Hessian in the intercepts is at least
    :math:`M = \sum_i s_i e^{-\rho_i} h_i` at the old ones. Its gradient there is the old one, :math:`\gamma`, and
    :math:`\int_0^1 \sum_i s_i h_i(\tau) u_i \, d\tau`. With :math:`h_i(\tau) \preceq e^{\tau \rho_i} h_i` and Cauchy's inequality,

    .. math:: \nu \le \|\gamma\|_{M^{-1}} + \Bigl(\sum_i s_i e^{3 \rho_i} u_i^\top h_i u_i\Bigr)^{1/2}, \qquad
        u_i^\top h_i u_i \le \rho_i^2 \min(\tfrac14, 1 - \max_a p_{ia}),

    and :mod:`glru.regions.local` bounds the way to the optimal intercepts in the metric :math:`M`.
    """

    certificate: Certificate

    @property
    def radius(self) -> float:
        """``sqrt(2 G)`` where it bounds the coefficients; infinite where it does not."""
        return float(ball_radius(self.certificate.gap)) if self.certificate.penalty.strong_convexity > 0.0 else np.inf

    @cached_property
    def intercept_widths(self) -> tuple[Array, Array]:
        """How far an intercept, measured from the mean of all, and a difference of two are at most from the optimal ones."""
        problem = self.certificate.problem
        if not problem.fit_intercept:
            return np.zeros(problem.n_scores), np.zeros((problem.n_scores, problem.n_scores))
        with np.errstate(all="ignore"):
            return self._intercept_widths(problem)

    def _intercept_widths(self, problem: Problem) -> tuple[Array, Array]:
        n_scores, used = problem.n_scores, problem.weights > 0.0
        values = ClassValues.at(problem, self.certificate.point)
        # From the computed scores, which may be off.
        ranges = float(np.sqrt(2.0)) * self.radius * self._lengths(problem.matrix) + 2.0 * values.errors
        ranges = np.where(used, ranges * (1.0 + FEW), 0.0)
        unknown = np.full(n_scores, np.inf), np.full((n_scores, n_scores), np.inf)
        if not float(ranges.max(initial=0.0)) < MAX_DRIFT:
            return unknown
        weighted = (problem.weights * np.exp(-ranges))[:, None] * values.likely
        pairs = weighted.T @ values.likely
        np.fill_diagonal(pairs, 0.0)
        matrix = np.diag(pairs.sum(axis=1)) - pairs
        matrix += float(np.square(1.0 / powers_of_two(np.diagonal(matrix))).mean()) / n_scores
        metric = ColumnMetric(np.triu(matrix), False, problem.n_rows + n_scores + 16, 0.0)
        # Every pair's share of the Hessian is a sum of non-negative terms, each off by a share of itself.
        unit = gamma(2 * problem.n_rows + 2 * n_scores + EXPONENTS + 16)
        eta = (metric.eta + 2.0 * unit) * (1.0 + FEW) + TINY
        if not eta < 0.5:
            return unknown
        slopes = problem.weights[:, None] * values.slopes(problem)
        gradient, slack = slopes.sum(axis=0), unit * np.abs(slopes).sum(axis=0)
        likely = np.minimum(0.25, (values.likely.sum(axis=1) - values.likely.max(axis=1)) * (1.0 + unit) + unit)
        moved = float(np.sqrt(np.sum(problem.weights * np.exp(3.0 * ranges) * np.square(ranges) * likely)))
        loose = 1.0 / float(np.sqrt(1.0 - eta)) * (1.0 + FEW)
        nu = metric.gradient_norm(gradient, slack) * loose + moved * (1.0 + unit + FEW) + TINY
        first, second = np.divmod(np.arange(n_scores**2), n_scores)
        unit_vectors = np.eye(n_scores)
        differences = metric.norms(as_matrix(unit_vectors[first] - unit_vectors[second])) * loose * (1.0 + FEW)
        means = metric.norms(as_matrix(n_scores * unit_vectors - 1.0)) / n_scores * loose * (1.0 + FEW)
        radius = float(local_radius(1.0, float(differences.max()), np.asarray(nu), 0.0))
        widths = (radius * differences * (1.0 + FEW)).reshape(n_scores, n_scores)
        np.fill_diagonal(widths, 0.0)
        return radius * means * (1.0 + FEW), widths

    def _lengths(self, X: Matrix) -> Array:
        """Upper bounds of the norms of rows in the inverse of the penalty's strengths."""
        inverse = 1.0 / self.certificate.problem.quadratic
        lengths: Array = np.sqrt(X.squared_row_norms(inverse)) * (1.0 + gamma(X.shape[1] + 16))
        return lengths + TINY * float(np.sqrt(inverse.max(initial=0.0)))

    def score_bounds(self, X: Matrix) -> ScoreBounds:
        return convert_queries(*self.queries(X, self.leaders(X)))

    def leaders(self, X: Matrix) -> NDArray[np.intp]:
        """The classes of the largest scores at the centre."""
        point, fit_intercept = self.certificate.point, self.certificate.problem.fit_intercept
        return compute_scores_with_errors(X, point, fit_intercept)[0].argmax(axis=1)

    def queries(self, X: Matrix, reference: NDArray[np.intp]) -> Bounds:
        """Bounds of the queries of some rows."""
        problem = self.certificate.problem
        scores, errors = compute_scores_with_errors(X, self.certificate.point, problem.fit_intercept)
        if not np.isfinite(self.radius):
            return make_unbounded_queries(*scores.shape)
        n_scores = scores.shape[1]
        directions = np.sqrt(np.repeat([1.0 - 1.0 / n_scores, 2.0], n_scores))
        half = self.radius * np.outer(self._lengths(X), directions) * (1.0 + FEW)
        means, differences = self.intercept_widths
        half += np.hstack([np.broadcast_to(means, scores.shape), differences[reference]])
        return widen_queries(scores, half, errors, reference)

    def coef_bounds(self) -> Bounds:
        coef, radius = self.certificate.coef, self.radius
        if not np.isfinite(radius):
            return np.full(coef.shape, -np.inf), np.full(coef.shape, np.inf)
        return widen(
            coef, radius / np.sqrt(np.broadcast_to(self.certificate.problem.quadratic, coef.shape)) * (1.0 + FEW)
        )

    def intercept_bounds(self) -> Bounds:
        """Bounds of the intercepts that sum to zero."""
        if not self.certificate.problem.fit_intercept:
            return np.zeros(len(self.certificate.coef)), np.zeros(len(self.certificate.coef))
        intercepts = centre_scores(self.certificate.point.intercept[None, :])[0]
        off = gamma(intercepts.size + 8) * float(np.abs(self.certificate.point.intercept).max())
        half = self.intercept_widths[0] + off
        known = np.isfinite(half)
        return widen(np.where(known, intercepts, 0.0), np.where(known, half, np.inf))


def bound_range(moves: Array) -> float:
    """An upper bound of the largest range of a row's moves, which are differences of stored scores."""
    return float((np.ptp(moves, axis=1) + FEW * np.abs(moves).max(axis=1)).max()) * (1.0 + FEW)


def compute_scores_with_errors(X: Matrix, point: Point, fit_intercept: bool) -> tuple[Array, Array]:
    """Scores of some rows, and how far those of a row may be off."""
    scores: Array = X @ point.coef.T
    unit = X.depths(3) * (1.0 + 2.0 * gamma(X.shape[1] + 8))
    sizes = X.absolute_product(np.abs(point.coef).max(axis=0))
    if fit_intercept:
        scores, sizes = scores + point.intercept, sizes + float(np.abs(point.intercept).max())
    errors = unit * sizes
    return scores, errors if X.noise is None else errors + X.noise


def make_unbounded_queries(n_rows: int, n_scores: int) -> Bounds:
    """Bounds of queries that nothing is known of."""
    return np.full((n_rows, 2 * n_scores), -np.inf), np.full((n_rows, 2 * n_scores), np.inf)


def centre_scores(scores: Array) -> Array:
    """Scores measured from the mean of all classes, which is off by a few units of the largest."""
    return scores - scores.mean(axis=1, keepdims=True)


def query_centers(scores: Array, reference: NDArray[np.intp]) -> Array:
    """The queries that scores stand for: measured from their mean, and by how much the reference leads."""
    leads = scores[np.arange(len(scores)), reference][:, None] - scores
    return np.hstack([centre_scores(scores), leads])


def query_norms(forms: Array, unit: float, reference: NDArray[np.intp]) -> Array:
    """Upper bounds of the norms of the queries, from forms in the inverse metric."""
    return np.hstack([score_norms(forms, unit), pair_norms(forms, unit, reference)])


def query_bounds(
    scores: Array, forms: Array, unit: float, radius: Array, errors: Array, reference: NDArray[np.intp]
) -> Bounds:
    """Bounds of the queries of some rows around computed scores, which may be off by ``errors``."""
    return widen_queries(scores, query_norms(forms, unit, reference) * radius[:, None], errors, reference)


def widen_queries(scores: Array, half: Array, errors: Array, reference: NDArray[np.intp]) -> Bounds:
    """Bounds of queries: ``half`` around those of some scores, and what rounding does to scores and to differences of them."""
    centers = query_centers(scores, reference)
    # Two scores are off by their errors, the mean and the difference by a few units of the largest.
    off = 2.0 * errors + gamma(scores.shape[1] + 8) * np.abs(scores).max(axis=1)
    half = half * (1.0 + FEW) + off[:, None] + FEW * np.abs(centers)
    known = np.isfinite(half) & np.isfinite(centers)
    lower, upper = widen(np.where(known, centers, 0.0), np.where(known, half, np.inf))
    # A class and itself are apart by nothing.
    own = np.arange(len(scores)), scores.shape[1] + reference
    lower[own] = upper[own] = 0.0
    return lower, upper
