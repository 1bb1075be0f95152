"""``certify``: how far a fitted estimator is from the optimum of its own objective."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from glru._results import Shown, make_frame, unmask_column
from glru.bounds import ScoreBounds, convert_queries
from glru.certificate import Certificate, ball_radius
from glru.certificate import certify as certify_point
from glru.changed import has_newton
from glru.duality import primal_value
from glru.linalg import Array
from glru.problem import Point, Problem
from glru.regions import Region, list_regions, score_bounds
from glru.regions.classes import ClassEllipsoid
from glru.sklearn.adapt import adapt
from glru.sklearn.adapted import Adapted
from glru.sklearn.objectives import find_chosen_model
from glru.solution import find_dual, relative
from glru.solvers import solve
from glru.updates import MAX_STEPS, find_newton_candidate


@final
@dataclass(frozen=True, eq=False, repr=False)
class ModelCertificate(Shown):
    """How far a fitted estimator is from the optimum of its objective.

    Made by :func:`glru.certify`. All bounds hold for the exact optimum and include the rounding of their own computation.

    Attributes
    ----------
    adapted : Adapted
        The estimator's problems and classes.
    fitted : tuple of Certificate
        The fitted coefficients of each problem with the best dual point that was found.
    better : tuple of Certificate
        A point nearer to each optimum, from where scores are bounded more tightly.

    Examples
    --------
    >>> import numpy as np, glru
    >>> from sklearn.linear_model import LogisticRegression
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> y = X[:, 0] > 0.3
    >>> certificate = glru.certify(LogisticRegression().fit(X, y), X, y)
    >>> certificate.gap < 0.1
    True
    """

    adapted: Adapted
    fitted: tuple[Certificate, ...]
    better: tuple[Certificate, ...]
    certified: ClassVar[bool] = True
    """Whether everything stated is proven; here, always."""

    @property
    def objective(self) -> float:
        """The objective at the fitted coefficients, summed over the problems, in the scaling of :attr:`adapted`."""
        return sum(primal_value(c.problem, c.coef, c.problem.scores(c.coef, c.intercept)) for c in self.fitted)

    @property
    def gap(self) -> float:
        """The objective is above its optimum by at most this much."""
        return sum(certificate.gap for certificate in self.fitted)

    @property
    def relative_gap(self) -> float:
        """The gap divided by the objective."""
        return relative(self.gap, self.objective)

    @property
    def radius(self) -> float:
        """No optimal coefficient vector is farther than this from the fitted one; inf where that is unknown."""
        strengths = [certificate.penalty.strong_convexity for certificate in self.fitted]
        if min(strengths) == 0.0:
            return np.inf
        return max(float(ball_radius(c.gap / lam)) for c, lam in zip(self.fitted, strengths, strict=True))

    def score_bounds(self, X: Any) -> ScoreBounds:
        """Lower and upper bounds of the scores at the optimum, shaped as ``decision_function``.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries.
        """
        rows = self.adapted.rows(X)
        if self.adapted.targets.joint:
            better = self.better[0]
            region = ClassEllipsoid.at(better.problem, Point(better.coef, better.intercept))
            return convert_queries(*region.queries(rows, self.scores(X).argmax(axis=1)))
        bounds = []
        for pair in zip(self.fitted, self.better, strict=True):
            regions = [region for certificate in pair for region in _regions(certificate)]
            bounds.append(score_bounds(regions, rows, pair[0].columns.dead))
        return self.adapted.bounds(bounds)

    def scores(self, X: Any) -> Array:
        """The scores of the fitted estimator."""
        rows = self.adapted.rows(X)
        return self.adapted.stack([rows @ c.coef.T + c.intercept for c in self.fitted])

    @property
    def classes(self) -> NDArray[Any] | None:
        """The caller's classes in sorted order; None for a regression."""
        return self.adapted.classes

    def labels(self, X: Any) -> NDArray[Any]:
        """The optimum's labels, classes as the caller has them; masked where they are not proven."""
        return self.score_bounds(X).labels(self._require_labels())

    def _require_labels(self) -> NDArray[Any]:
        if self.classes is None:
            raise ValueError("a regression has no labels. Use score_bounds.")
        return self.classes

    def decided(self, X: Any) -> NDArray[np.bool_]:
        """Which of the fitted estimator's labels are proven to be those of the optimum; a classifier's only."""
        self._require_labels()
        _, stays = self.score_bounds(X).changes(self.scores(X))
        return stays

    def to_frame(self, X: Any) -> Any:
        """One line per query: the optimum's label, missing where it is open, and bounds of its score or scores (a pandas or polars frame).

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries.
        """
        bounds, classes = self.score_bounds(X), self.classes
        columns = {} if classes is None else {"label": unmask_column(bounds.labels(classes))}
        return make_frame(columns | bounds.columns(classes))

    def plot(self, X: Any, ax: Any = None) -> Any:
        """Draw by how much the optimum's scores differ from the fitted ones, with their certified intervals.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries.
        ax : matplotlib Axes, default=None
            Where to draw; a new figure if not given.

        Returns
        -------
        glru.display.AfterDisplay
        """
        lower, upper = (np.ravel(end) for end in self.score_bounds(X))
        # Pictures are a layer above, and are loaded only for those who draw.
        kind = import_module("glru.display").AfterDisplay
        display = kind(lower, upper, np.ravel(self.scores(X)), f"scores at the optimum, gap {self.gap:.3g}").plot(ax)
        display.ax_.set(xlabel="fitted score", ylabel="score at the optimum minus the fitted one")
        return display

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        lines = [("objective", f"{self.objective:.10g}"), ("gap", f"{self.gap:.3g}")]
        lines += [("relative gap", f"{self.relative_gap:.3g}"), ("radius", f"{self.radius:.3g}")]
        return f"ModelCertificate({type(self.adapted.estimator).__name__})", lines


def certify_estimator(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> ModelCertificate:
    """How far a fitted estimator is from the optimum of its objective; see :func:`glru.certify`."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(estimator)
    adapted = adapt(find_chosen_model(estimator), X, y, sample_weight, keep=True)
    points = adapted.points(estimator)
    pairs = [_certify_pair(problem, point) for problem, point in zip(adapted.problems, points, strict=True)]
    return ModelCertificate(adapted, tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs))


def _certify_pair(problem: Problem, point: Point) -> tuple[Certificate, Certificate]:
    """The certificate of a point with the best dual point there is, and that of a better point."""
    own = Point(point.coef, point.intercept, find_dual(problem, problem.scores(point.coef, point.intercept)))
    if has_newton(problem) and not problem.loss.several:
        better = find_newton_candidate(problem, own, MAX_STEPS)
    else:
        better = certify_point(problem, solve(problem, tol=1e-9, start=own).point)
    shared = Point(own.coef, own.intercept, better.point.dual)
    fitted = min(certify_point(problem, own), certify_point(problem, shared), key=lambda c: c.gap)
    return fitted, better


def _regions(certificate: Certificate) -> list[Region]:
    return list(list_regions(certificate, certificate.problem.fit_intercept))
