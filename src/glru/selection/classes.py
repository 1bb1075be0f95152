r"""The judge of validation rows for models with one score per class.

A validation row of class ``y`` is judged by how much its class leads each of the others, :math:`t_k = z_y - z_k`: it is an error unless all leads are
above zero, and its log-loss is :math:`\log(1 + \sum_{k \ne y} e^{-t_k})`. Small models are stepped on together, without proof, and then certified one by one. Removals from others are bounded in the metric of
the present model, all of them with its one Hessian (:meth:`glru.regions.classes.ClassEllipsoid.without`); additions are stepped on from the present model.
"""

from collections.abc import Sequence
from functools import cached_property
from math import fsum
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from glru._options import Budget
from glru.bounds import Bounds, intersect
from glru.linalg import Array, Matrix, gamma
from glru.problem import Point, Problem, make_memory_error
from glru.refine import LOCAL_STEPS, class_ellipsoids
from glru.regions.classes import ClassEllipsoid, compute_scores_with_errors, has_classes
from glru.selection.contest import Contest, Goal
from glru.selection.criteria import Criterion
from glru.selection.judge import ROUGH, Judge, Screened, Value, label_equal_columns
from glru.selection.moves import Columns, Model, Move

MAX_UNKNOWNS = 64
"""Models with more unknowns than this are not stepped together: their Hessians cost more than that saves."""

ENTRIES_TOGETHER = 2_000_000
"""The largest number of entries in the data of all classes and sets that are handled together."""

MAX_STEPS, LONGEST_MOVE, NEAR = 10, 8.0, 1e-3
"""The largest number of Newton steps of a set of columns, the largest move of a score in one, and the move after which the next one would be about as small as rounding."""


@final
class ClassRows:
    """Validation rows in the columns of a whole problem with one score per class, and what leads say of them."""

    def __init__(
        self, whole: Problem, X: Matrix, y: NDArray[np.intp], criterion: Criterion, weights: Array | None = None
    ) -> None:
        self.whole, self.X, self.y, self.criterion, self.weights = whole, X, y, criterion, weights

    def terms(self, lower: Array, upper: Array) -> Bounds:
        """The least and the largest term of every row, from bounds of its leads (that of its own class is zero)."""
        others = np.arange(lower.shape[1]) != self.y[:, None]
        if self.criterion.counts:
            wrong = (others & (upper <= 0.0)).any(axis=1)
            doubtful = (others & ~(lower > 0.0)).any(axis=1)
            return wrong.astype(np.float64), doubtful.astype(np.float64)
        # An exponential is off by at most 1600 units of itself where it does not underflow, and each addition by a few.
        unit = gamma(16 * lower.shape[1] + 1600)
        with np.errstate(all="ignore"):
            least, most = (np.logaddexp.reduce(np.where(others, -ends, -np.inf), axis=1) for ends in (upper, lower))
            least, most = np.logaddexp(0.0, least) * (1.0 - unit), np.logaddexp(0.0, most) * (1.0 + unit)
        return np.where(np.isnan(least), 0.0, least), np.where(np.isnan(most), np.inf, most)

    def sum_bounds(self, leads: Bounds, chosen: Columns) -> tuple[float, float]:
        """Bounds of the criterion's sum under the optimum with some columns, from bounds of the leads."""
        zero = self.zeros(chosen)
        terms = self.terms(*(np.where(zero, 0.0, ends) for ends in leads))
        low, high = self.criterion.add_terms(*terms, self.weights)
        return float(low), float(high)

    def sum_at(self, point: Point, chosen: Columns) -> float:
        """The sum of a model as it is; a lead within its rounding error of zero counts as an error."""
        scores, errors = compute_scores_with_errors(self.select(chosen), point, self.whole.fit_intercept)
        leads = scores[np.arange(self.y.size), self.y][:, None] - scores
        off = 2.0 * errors[:, None]
        return self.sum_bounds((leads - off, leads + off), chosen)[1]

    def select(self, chosen: Columns) -> Matrix:
        """The rows with some columns."""
        return self.X if chosen.size == self.X.shape[1] else self.X[:, chosen]

    def zeros(self, chosen: Columns) -> NDArray[np.bool_]:
        """The leads that are exactly zero whatever the coefficients of some columns."""
        if not self.whole.fit_intercept:
            return np.asarray(~self._filled[:, chosen].any(axis=1))[:, None]
        return self._balanced[self.y] if chosen.size == 0 else np.zeros((1, 1), dtype=bool)

    @cached_property
    def _filled(self) -> NDArray[np.bool_]:
        """Which entries can contribute to a score."""
        filled: NDArray[np.bool_] = self.X.dense() != 0.0
        return filled & ~self.whole.dead_columns

    @cached_property
    def _balanced(self) -> NDArray[np.bool_]:
        """Which pairs of classes have exactly the same weight: without columns their intercepts are the same."""
        problem, n_scores = self.whole, self.whole.n_scores
        signs = np.equal.outer(np.arange(n_scores), problem.y).astype(np.float64)
        return np.array([[fsum(problem.weights * (a - b)) == 0.0 for b in signs] for a in signs])


@final
class ClassJudge(Judge):
    """A model with one score per class judged on validation rows, by the methods "certified" and "naive" of :func:`glru.stepwise`."""

    def __init__(self, model: Model, rows: ClassRows, method: str = "certified") -> None:
        self.model, self.rows, self.method = model, rows, method
        self._found: dict[Move, tuple[ClassEllipsoid, Bounds]] = {}
        self._near: dict[Move, tuple[Array, Array]] = {}

    @property
    def n_rows(self) -> int:
        return int(self.rows.y.size)

    @cached_property
    def _region(self) -> ClassEllipsoid:
        """The ellipsoid of the present model, in whose metric removals are bounded."""
        return ClassEllipsoid.at(self.model.problem, self.model.solution.point)

    @cached_property
    def _forms(self) -> Array:
        """The validation rows in the metric of the present model."""
        return self._region.metric.all_forms(self.rows.select(self.model.chosen))

    @cached_property
    def precision(self) -> float:
        """A sum known up to this is known well enough; the present model's sum tells the scale."""
        criterion, model = self.rows.criterion, self.model
        present = self.rows.sum_at(model.solution.point, model.chosen)
        return 0.0 if criterion.counts else 0.05 * criterion.resolution * present

    def value(self, thorough: bool = False) -> Value:
        goal = Goal(budget=self.model.budget, rough=not thorough)
        return self._narrow(self._region, self.model.chosen, goal, self._forms)[0]

    def screen(self, moves: Sequence[Move], budget: Budget, contest: Contest | None = None) -> Screened:
        found = Screened.unknown(len(moves), "newton")
        self._approach(moves, budget)
        for k, move in enumerate(moves):
            budget.check()
            if not move.add and move not in self._near:
                region = self._region.without(np.flatnonzero(np.isin(self.model.chosen, move.columns)))
                chosen = move.apply(self.model.chosen)
                bounds = self._leads(region, self.model.chosen, self._forms)
                self._found[move] = region, bounds
                found.lower[k], found.upper[k] = self.rows.sum_bounds(bounds, chosen)
                low, high = self.rows.terms(*(np.where(self.rows.zeros(chosen), 0.0, ends) for ends in bounds))
                found.certain[k] = np.count_nonzero(high - low <= self.precision / max(self.n_rows, 1))
        return found

    def _approach(self, moves: Sequence[Move], budget: Budget) -> None:
        """Find small models after all moves to as many columns together, without proof."""
        whole, point = self.model.whole, self.model.solution.point
        sets = [move.apply(self.model.chosen) for move in moves]
        coef = np.zeros((whole.n_scores, whole.n_columns))
        coef[:, self.model.chosen] = point.coef
        small = {one.size for one in sets if (one.size + whole.fit_intercept) * whole.n_scores <= MAX_UNKNOWNS}
        for size in small:
            here = [k for k, one in enumerate(sets) if len(one) == size]
            width = max(1, ENTRIES_TOGETHER // max(whole.n_rows * whole.n_scores * (size + 1), 1))
            for start in range(0, len(here), width):
                budget.check()
                part = here[start : start + width]
                columns = np.array([sets[k] for k in part]).reshape(len(part), size)
                starts = np.moveaxis(coef[:, columns], 0, 1)
                found = approach_classes(whole, columns, starts, np.asarray(point.intercept))
                self._near.update({moves[k]: one for k, one in zip(part, zip(*found, strict=True), strict=True)})

    def refine(self, move: Move, goal: Goal) -> Value:
        chosen = move.apply(self.model.chosen)
        if self.method != "naive" and move in self._found:
            value, region, bounds = self._narrow(self._found[move][0], chosen, goal, self._forms, self._found[move][1])
            self._found[move] = region, bounds
            if self._is_known(goal, value.lower, value.upper):
                return value
        problem, point = self._start(move)
        if self.method == "naive":
            guess = self.rows.sum_at(self.model.train(problem, point).point, chosen)
            return Value(guess, guess, "training", guess)
        stepped = self._step_on(problem, point, chosen, goal)
        if stepped is not None:
            return stepped
        value, _, _ = self._narrow(ClassEllipsoid.at(problem, self.model.train(problem, point).point), chosen, goal)
        return Value(value.lower, value.upper, "training", value.guess)

    def _step_on(self, problem: Problem, point: Point, chosen: Columns, goal: Goal) -> Value | None:
        """The value of the model with some columns, from Newton steps that begin at a point; None where these do not tell it."""
        found: Bounds | None = None
        metric, forms = None, np.empty(0)
        for region in class_ellipsoids(problem, point):
            if not region.is_close:
                continue
            if region.metric is not metric:
                metric, forms = region.metric, region.metric.all_forms(self.rows.select(chosen))
            leads = self._leads(region, chosen, forms)
            found = leads if found is None else intersect(found, leads)
            low, high = self.rows.sum_bounds(found, chosen)
            if self._is_known(goal, low, high):
                return Value(low, high, "refine", self._guess(region, chosen, chosen))
        return None

    def _narrow(
        self,
        region: ClassEllipsoid,
        chosen: Columns,
        goal: Goal,
        forms: Array | None = None,
        bounds: Bounds | None = None,
    ) -> tuple[Value, ClassEllipsoid, Bounds]:
        """The value of the model with some columns, after Newton steps until it is known well enough or they gain no more.

        Also the last ellipsoid, and the bounds of the leads. ``forms``: those in the metric of the present model, if the ellipsoid is in it.
        """
        columns = chosen if forms is None else self.model.chosen
        forms = region.metric.all_forms(self.rows.select(chosen)) if forms is None else forms
        before, stage = np.inf, "newton"
        found = self._leads(region, columns, forms) if bounds is None else bounds
        for _ in range(LOCAL_STEPS):
            low, high = self.rows.sum_bounds(found, chosen)
            if self._is_known(goal, low, high) or not region.nu < 0.5 * before:
                break
            before, stage, region = region.nu, "refine", region.take_step()
            found = intersect(found, self._leads(region, columns, forms))
        return Value(low, high, stage, self._guess(region, columns, chosen)), region, found

    def _leads(self, region: ClassEllipsoid, columns: Columns, forms: Array) -> Bounds:
        """Bounds of the leads of the rows' own classes."""
        lower, upper = region.queries(self.rows.select(columns), self.rows.y, forms)
        n_scores = lower.shape[1] // 2
        return lower[:, n_scores:], upper[:, n_scores:]

    def _guess(self, region: ClassEllipsoid, columns: Columns, chosen: Columns) -> float:
        """The sum at the centre of an ellipsoid over some columns, of the model of the ``chosen`` ones."""
        kept = np.isin(columns, chosen)
        return self.rows.sum_at(Point(region.point.coef[:, kept], region.point.intercept), chosen)

    def _is_known(self, goal: Goal, low: float, high: float) -> bool:
        precision = self.precision
        if goal.rough and not self.rows.criterion.counts and np.isfinite(high):
            precision = max(precision, ROUGH * high)
        return high - low <= precision or goal.is_reached(low, high)

    def after(self, move: Move) -> "ClassJudge":
        return ClassJudge(self.model.after(move, self._start(move)[1]), self.rows, self.method)

    def _start(self, move: Move) -> tuple[Problem, Point]:
        """The problem after a move, and where to train it from: Newton steps ahead of the present model, if there are any."""
        problem, point = self.model.trial(move)
        if move in self._near:
            return problem, Point(*self._near[move], point.dual)
        if move not in self._found:
            return problem, point
        near, kept = self._found[move][0].point, np.isin(self.model.chosen, move.apply(self.model.chosen))
        return problem, Point(near.coef[:, kept], near.intercept, point.dual)

    def find_ties(self, moves: Sequence[Move], budget: Budget) -> list[int]:
        return label_equal_columns(moves, self.model.whole, self.rows.X)


def approach_classes(whole: Problem, columns: Columns, coefs: Array, intercept: Array) -> tuple[Array, Array]:
    r"""Coefficients of shape (n_sets, n_scores, n_columns) and intercepts near the optima of sets of columns, by Newton steps of all sets in the same products.

    With probabilities ``p`` and weights ``s`` a Hessian is the blocks :math:`X^\top (s p_a) X` of all classes less :math:`Z^\top Z`, :math:`Z = (\sqrt s p_a X)_a`.
    """
    used = np.flatnonzero(whole.weights > 0.0)
    weights, y = whole.weights[used], whole.y[used]
    A = whole.matrix.dense()[used].T[columns]
    strengths, models = whole.quadratic[columns], coefs
    if whole.fit_intercept:
        A = np.concatenate([A, np.ones((len(A), 1, used.size))], axis=1)
        strengths = np.hstack([strengths, np.zeros((len(columns), 1))])
        models = np.concatenate([coefs, np.tile(intercept[:, None], (len(columns), 1, 1))], axis=2)
    n_sets, n_scores, width = models.shape
    targets, each = np.equal.outer(np.arange(n_scores), y).astype(np.float64), np.arange(n_scores)
    # One number added to the intercepts of all classes changes nothing: the gauge makes the system regular.
    gauge = np.append(np.zeros(columns.shape[1]), np.full(width - columns.shape[1], weights.sum()))
    for _ in range(MAX_STEPS):
        likely = softmax(np.matmul(models, A), axis=1)
        gradients = np.matmul(weights * (likely - targets), np.swapaxes(A, 1, 2)) + strengths[:, None] * models
        Z = ((np.sqrt(weights) * likely)[:, :, None, :] * A[:, None]).reshape(n_sets, n_scores * width, -1)
        hessians = -np.matmul(Z, np.swapaxes(Z, 1, 2)).reshape(n_sets, n_scores, width, n_scores, width)
        blocks = np.matmul((weights * likely)[:, :, None, :] * A[:, None], np.swapaxes(A, 1, 2)[:, None])
        blocks[:, :, np.arange(width), np.arange(width)] += strengths[:, None]
        hessians[:, each, :, each, :] += np.swapaxes(blocks, 0, 1)
        hessians[:, :, np.arange(width), :, np.arange(width)] += gauge[:, None, None, None]
        try:
            steps = np.linalg.solve(hessians.reshape(n_sets, n_scores * width, -1), gradients.reshape(n_sets, -1, 1))
        except np.linalg.LinAlgError:
            break
        steps = np.where(np.isfinite(steps), steps, 0.0).reshape(models.shape)
        moved = np.abs(np.matmul(steps, A)).max(axis=(1, 2))
        models = models - steps / np.maximum(1.0, moved / LONGEST_MOVE)[:, None, None]
        if moved.max() < NEAR:
            break
    return models[:, :, : columns.shape[1]], models[:, :, -1] if whole.fit_intercept else np.zeros((n_sets, n_scores))


def require_judge(problem: Problem, method: str) -> None:
    """Refuse what a search does not have with one score per class."""
    if method not in ("certified", "naive"):
        raise ValueError(f"{problem.loss!r} has method='certified' or 'naive'; got {method!r}.")
    if not problem.in_memory:
        raise make_memory_error(problem, f"stepwise with {problem.loss!r}")
    if method == "certified" and not has_classes(problem):
        raise ValueError(
            f"stepwise with {problem.loss!r} forms a Hessian over classes and columns, of at most {problem.largest} unknowns; got "
            f"{problem.n_scores} classes of {problem.n_columns} columns. Use fewer columns, or method='naive'."
        )
