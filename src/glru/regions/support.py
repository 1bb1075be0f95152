r"""The local ellipsoid of a penalty with absolute values: on the support of a model, if that provably is the optimum's.

Let ``A`` be some columns with signs :math:`\sigma`, those without an absolute value in their penalty among them. On the side of zero that the signs
name, the objective of these columns alone is smooth: :math:`\kappa_j |w_j| = \sigma_j \kappa_j w_j`. Let :math:`w^A` be the optimum of that *restricted*
problem. If its coefficients have the signs :math:`\sigma` and every other column :math:`|X_j^\top (s \circ \ell'(X_A w^A))| < \kappa_j`, the
conditions of optimality hold for all columns with zeros on the others, so that :math:`w^A` is an optimum of the whole problem; and the only one, since
the others' zeros follow from any dual optimum and :math:`w^A` is the only optimum of the restricted problem near it (its Hessian is regular, or that of the rows which
stay on their curved pieces is: :mod:`glru.regions.pieces`). It needs no squares in the penalty: the lasso is proven like this.
"""

from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, unbounded
from glru.linalg import FEW, SMALLEST, TINY, Array, Matrix, gamma
from glru.metric.columns import ColumnMetric
from glru.penalties import Tilted
from glru.problem import Point, Problem
from glru.regions.gap import Region
from glru.regions.local import LocalEllipsoid

Signs = NDArray[np.int8]
"""For every column of a problem the sign of its coefficient, 0 where it has none."""


class Verdicts(NamedTuple):
    """What models of a restricted problem tell of its support, one entry or column per model."""

    holds: NDArray[np.bool_]  # where the optimum of the restricted problem is proven to be that of all columns
    # The support that the models themselves speak for: without the coefficients whose sign is wrong, with the columns that break a condition.
    signs: Signs


@final
class Support:
    """The ``columns`` of a problem that have coefficients of some ``signs`` (0: no absolute value), and the smooth ``problem`` of these columns."""

    def __init__(self, problem: Problem, signs: Signs) -> None:
        kappa = np.broadcast_to(problem.penalty.absolute, (problem.n_columns,))
        used = (signs != 0) | (kappa == 0.0)
        self.columns, self.others = np.flatnonzero(used), np.flatnonzero(~used)
        self.signs = np.where(kappa[self.columns] > 0.0, signs[self.columns], 0.0)
        self.limits = kappa[self.others]
        self.problem = problem.derive(
            X=problem.matrix[:, self.columns],
            penalty=Tilted(problem.quadratic[self.columns], self.signs * kappa[self.columns]),
            column_names=None,
        )
        self.rest = problem.matrix[:, self.others]

    @property
    def n_unknowns(self) -> int:
        """Coefficients and intercept of the restricted problem."""
        return int(self.columns.size) + int(self.problem.fit_intercept)

    def restrict(self, point: Point) -> Point:
        """A model without its coefficients off the support, as one of the restricted problem."""
        return Point(point.coef[self.columns], point.intercept)

    def holds(
        self,
        models: Array,
        radii: Array,
        axis_norms: Array,
        row_norms: Array,
        left_out: tuple[NDArray[np.intp], NDArray[np.intp]] | None = None,
        factors: Array | float = 1.0,
        share: float = 0.0,
    ) -> "Verdicts":
        """For which restricted problems the optimum is that of all columns.

        ``models``: of the restricted problem, one per column, the intercept last; ``radii``: at least their distances from the optima in some metric;
        ``axis_norms``, ``row_norms``: at least the norms of the unit vectors and of the rows in its inverse; ``left_out``: rows, and the models that are trained
        without them; ``factors``: what the weights of each model's rows are multiplied by; ``share``: at least the relative error of the penalty's strengths.
        """
        problem, loss, n_columns = self.problem, self.problem.loss, self.columns.size
        with np.errstate(all="ignore"):
            coefs = models[:n_columns]
            slack = radii * axis_norms[:n_columns, None] * (1.0 + FEW) + FEW * np.abs(coefs)
            free, ahead = self.signs[:, None] == 0.0, self.signs[:, None] * coefs
            holds = ((ahead > slack) | free).all(axis=0) & np.isfinite(radii)
            signs = np.zeros((n_columns + self.others.size, models.shape[1]), dtype=np.int8)
            signs[self.columns] = np.where(ahead > 0.0, self.signs[:, None], 0.0)
            if not self.others.size:
                return Verdicts(holds, signs)
            scores = problem.matrix @ coefs
            sizes = abs(problem.matrix) @ np.abs(coefs) + TINY
            if problem.fit_intercept:
                scores = scores + models[-1]
                sizes = sizes + np.abs(models[-1])
            # Scores are those of the optima up to the way there and their rounding, slopes up to the smoothness times that.
            off = row_norms[:, None] * radii + 2.0 * gamma(n_columns + 8) * sizes + problem.score_noise
            slopes = loss.gradient(problem.y[:, None], scores)
            off = loss.smoothness * off * (1.0 + FEW) + FEW * np.abs(slopes)
            weights = problem.weights[:, None] * factors
            # Weights and their products may be subnormal, with an absolute error, which long columns make large.
            lost = 8.0 * SMALLEST * (1.0 + np.abs(slopes) + off)
            slopes, off = weights * slopes, weights * off * (1.0 + FEW) + lost
            if left_out is not None:
                slopes[left_out] = 0.0
            unit = 16.0 * gamma(problem.n_rows + 16)
            seen, limits = self.rest.T @ slopes, self.limits[:, None] * (1.0 - share - FEW)
            slack = (abs(self.rest).T @ (off + unit * np.abs(slopes))) * (1.0 + unit) + 8.0 * (
                problem.n_rows + 8
            ) * SMALLEST
            signs[self.others] = np.where(np.abs(seen) < limits, 0.0, -np.sign(seen))
            return Verdicts(holds & (np.abs(seen) + slack < limits).all(axis=0), signs)


MAX_STEPS = 10
"""Steps on a support: with their own metric they roughly square the error, with that of an earlier step they leave a tenth of it or less."""

KEPT_METRIC = 0.1
"""A step that leaves less than this share of the gradient's norm, measured in the metric before it, needs no new metric."""

NEGLIGIBLE_GRADIENT = 1e-11
"""A gradient whose norm is at most this share of the model's is not worth a further step: rounding alone is not much smaller."""


@final
class SupportEllipsoid(Region):
    """The local ellipsoid of a restricted problem; all models where the support may be another.

    ``share``: it holds the optima of all penalties whose strengths are within this relative error.
    """

    def __init__(self, problem: Problem, point: Point, share: float = 0.0) -> None:
        self.n_columns, self.proven = problem.n_columns, False
        support = self.support = Support(problem, guess_support(problem, point))
        self.inner: LocalEllipsoid | None = None
        if support.n_unknowns == 0:
            # Nothing but zeros.
            nothing = np.zeros(0)
            norms = np.zeros(problem.n_rows)
            self.proven = bool(support.holds(nothing[:, None], np.zeros(1), nothing, norms, share=share).holds[0])
            return
        if support.n_unknowns > problem.largest:
            return
        here, before = support.restrict(point), np.inf
        for _ in range(MAX_STEPS):
            # After a short step the metric that is there serves as well, without a Hessian.
            last: LocalEllipsoid | None = None if problem.loss.self_concordance is None else self.inner
            inner = None if last is None else last.carry_to(here)
            if inner is None or not inner.nu < KEPT_METRIC * before:
                inner = LocalEllipsoid.at(support.problem, here, share=share)
            if not inner.nu < 0.5 * before:
                break
            self.inner, before = inner, inner.nu
            if not isinstance(inner.metric, ColumnMetric):
                break
            size = float(np.linalg.norm(inner.metric.factor @ here.pack(problem.fit_intercept)))
            if inner.nu <= NEGLIGIBLE_GRADIENT * size:
                break
            here = inner.take_step()
        if self.inner is not None and np.isfinite(self.inner.radius):
            metric, model = self.inner.metric, self.inner.point.pack(problem.fit_intercept)[:, None]
            norms, radius = metric.norms(support.problem.matrix), np.array([self.inner.radius])
            self.proven = bool(support.holds(model, radius, metric.axis_norms(), norms, share=share).holds[0])

    def score_bounds(self, X: Matrix) -> Bounds:
        if not self.proven:
            return unbounded(X.shape[0])
        if self.inner is None:
            return np.zeros(X.shape[0]), np.zeros(X.shape[0])
        return self.inner.score_bounds(X[:, self.support.columns])

    def coef_bounds(self) -> Bounds:
        if not self.proven:
            return unbounded(self.n_columns)
        lower, upper = np.zeros(self.n_columns), np.zeros(self.n_columns)
        if self.inner is not None:
            lower[self.support.columns], upper[self.support.columns] = self.inner.coef_bounds()
        return lower, upper

    def intercept_bounds(self) -> tuple[float, float]:
        if not self.proven:
            return -np.inf, np.inf
        return (0.0, 0.0) if self.inner is None else self.inner.intercept_bounds()


def guess_support(problem: Problem, point: Point) -> Signs:
    """The signs of coefficients after a step of each on its own, which a model near the optimum has right."""
    scores = problem.scores(point.coef, point.intercept)
    slopes, curvatures = problem.loss.expand_slope(problem.y, scores)
    with np.errstate(all="ignore"):
        squares = problem.matrix.squared_column_norms(problem.weights * curvatures)
        ahead = squares * point.coef - problem.matrix.T @ (problem.weights * slopes)
    return np.where(np.abs(ahead) > problem.penalty.absolute, np.sign(ahead), 0.0).astype(np.int8)
