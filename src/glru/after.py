"""What is proven about the model that retraining on changed data would give: the result of :func:`glru.after`."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from glru._results import Drawable, Shown, find_display, make_frame, unmask_column
from glru.bounds import Bounds, ScoreBounds, require_probabilities
from glru.changed import ChangedModel
from glru.changes import Change, Layout, read_layout, rows_of
from glru.linalg import Array, Matrix
from glru.problem import Point, Problem
from glru.solution import Solution
from glru.solvers.newton import Until

Verdict = Literal["yes", "no", "undetermined"]


@final
@dataclass(frozen=True, eq=False, repr=False)
class Retraining(Drawable):
    """Whether retraining would change a model's answers to some queries.

    Attributes
    ----------
    verdict : {"yes", "no", "undetermined"}
        ``"no"``: it is proven that nothing changes. ``"yes"``: it is proven that at least one answer changes. ``"undetermined"``: neither
        is proven without training.
    flips : array of int
        The queries whose answers would or could change.
    proven : array of bool
        Which of these are proven to change.
    bounds : ScoreBounds
        Proven bounds of the retrained scores (with a log or logit link, of the means), without training.
    present : array
        What the present model says, in the same form.

    Examples
    --------
    >>> import numpy as np, glru
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> model = glru.GLRUClassifier(C=0.1).fit(X, X[:, 0] > 0.3)
    >>> model.needs_retraining(X[:5], remove=[0, 1]).verdict
    'no'
    """

    verdict: Verdict
    flips: NDArray[np.intp]
    proven: NDArray[np.bool_]
    bounds: ScoreBounds
    present: Array
    certified: ClassVar[bool] = True
    """Whether everything stated is proven; here, always."""

    @classmethod
    def of(cls, bounds: ScoreBounds, present: Array, within: float | None) -> "Retraining":
        """Whether the scores after retraining change the labels of the present ones, or move by more than ``within``."""
        changes, stays = bounds.changes(present, within)
        flips = np.flatnonzero(~stays)
        verdict: Verdict = "yes" if changes.any() else "no" if stays.all() else "undetermined"
        return cls(verdict, flips, changes[flips], bounds, present)

    @property
    def decided(self) -> NDArray[np.bool_]:
        """Where it is proven whether a query changes, one entry per query."""
        decided = np.ones(self.present.shape[0], dtype=bool)
        decided[self.flips] = self.proven
        return decided

    def to_frame(self) -> Any:
        """One line per query that would change or could, and whether that is proven (a pandas or polars frame)."""
        return make_frame({"query": self.flips, "proven": self.proven})

    def _display(self) -> Any:
        lower, upper = (np.ravel(end) for end in self.bounds)
        return find_display("AfterDisplay")(lower, upper, np.ravel(self.present), f"retraining needed: {self.verdict}")

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        n_proven = int(self.proven.sum())
        lines = [("change", f"{n_proven} queries, proven"), ("may change", f"{self.flips.size - n_proven} more")]
        return f"Retraining({self.verdict})", lines


@final
@dataclass(frozen=True, eq=False)
class Origin:
    """The origin of changed problems, which says what their columns and scores mean to the caller."""

    change: Change  # the change of the caller's data
    classes: NDArray[Any] | None  # the caller's classes in sorted order; None for a regression
    estimator: str | None = None  # the name of the estimator's class; None for a problem
    # The value of the constant first column whose coefficient is a penalised intercept; None where there is none.
    constant: float | None = None


class ScoreProofs(Shown):
    """What is proven about the scores of any queries, and what follows from their bounds."""

    certified: ClassVar[bool] = True
    """Whether everything stated is proven; here, always."""

    @property
    @abstractmethod
    def classes(self) -> NDArray[Any] | None:
        """The caller's classes in sorted order; None for a regression."""

    @abstractmethod
    def score_bounds(self, X: Any) -> ScoreBounds:
        """Lower and upper bounds of the scores of queries."""

    def labels(self, X: Any) -> NDArray[Any]:
        """The labels, classes as the caller has them; masked where they are not proven."""
        return self.score_bounds(X).labels(self._require_labels())

    def to_frame(self, X: Any) -> Any:
        """One line per query: its label, and bounds of its score or scores (a pandas or polars frame).

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries, with the columns of the model. Labels that are open are missing.
        """
        bounds = self.score_bounds(X)
        columns = {} if self.classes is None else {"label": unmask_column(bounds.labels(self.classes))}
        return make_frame(columns | bounds.columns(self.classes))

    def _require_labels(self) -> NDArray[Any]:
        if self.classes is None:
            raise ValueError("a regression has no labels. Use score_bounds.")
        return self.classes


@final
@dataclass(frozen=True, eq=False, repr=False)
class After(ScoreProofs):
    """What is proven about the model that retraining on the changed data would give.

    Made by :func:`glru.after`. Every bound holds for the exact optimum on the changed data, whether or not
    the old training had converged, and includes the rounding of its own computation. Scores are shaped as ``X @ coef``,
    with one column per class if an estimator has one problem per class.

    Attributes
    ----------
    origin : Origin
        The caller's change and classes.
    parts : tuple of ChangedModel
        What is proven about each problem: one, or one per class.

    Examples
    --------
    >>> import numpy as np, glru
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> solution = glru.solve(glru.Problem(X, X[:, 0] > 0.3, penalty=glru.L2(0.1)))
    >>> after = glru.after(solution, glru.RemoveRows([0]))
    >>> after.decided_by(X), after.needs_retraining(X).verdict
    ({'newton': 40}, 'no')
    >>> lower, upper = after.coef_bounds()
    >>> bool(np.all(lower <= after.retrain(tol=1e-12).coef) and np.all(after.retrain(tol=1e-12).coef <= upper))
    True
    """

    origin: Origin
    parts: tuple[ChangedModel, ...]

    @property
    def change(self) -> Change:
        """The change of the caller's data."""
        return self.origin.change

    @property
    def classes(self) -> NDArray[Any] | None:
        """The caller's classes in sorted order; None for a regression."""
        return self.origin.classes

    @property
    def part(self) -> ChangedModel:
        """The part of the only problem."""
        if len(self.parts) > 1:
            raise ValueError(f"this model has {len(self.parts)} problems, one per class. Ask each of `parts`.")
        return self.parts[0]

    @property
    def solution(self) -> Solution:
        """The old model."""
        return self.part.solution

    @property
    def problem(self) -> Problem:
        """The changed problem."""
        return self.part.problem

    @property
    def point(self) -> Point:
        """The best candidate for the retrained model."""
        return self.part.point

    @property
    def gap(self) -> float:
        """Proven upper bound of how far the objective of the best candidate is above the optimum; the largest of several problems."""
        return max(part.gap for part in self.parts)

    @property
    def radius(self) -> float:
        """Upper bound of the distance between the retrained coefficients and the best candidate; inf if unknown."""
        return max(part.radius for part in self.parts)

    @property
    def n_steps(self) -> int:
        """Newton steps and training iterations used so far, for all problems together."""
        return sum(part.n_steps for part in self.parts)

    @property
    def n_passes(self) -> float:
        """Passes over rows in blocks."""
        return sum(part.n_passes for part in self.parts)

    @property
    def remark(self) -> str | None:
        """Why a changed problem has no optimum or more than one, in which case nothing can be proven; None otherwise."""
        return next((part.remark for part in self.parts if part.remark is not None), None)

    def score_bounds(self, X: Any) -> ScoreBounds:
        """Lower and upper bounds of the retrained scores ``X w* + b*``.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries, with the columns of the changed data.
        """
        return self._answer(X)[1]

    def _answer(self, X: Any, train: bool = True) -> tuple[ScoreBounds, ScoreBounds]:
        """Bounds of the retrained scores before any training, and after the trainings that labels need."""
        first = self.parts[0]
        queries = self._rows(X, first.change.check(read_layout(first.solution.problem)))
        found = [part.bound_untrained(queries) for part in self.parts]
        before = last = _stack(found)
        if not train or self.classes is None:
            return before, last
        for k, part in enumerate(self.parts):
            rows = np.flatnonzero(~last.decided)
            if not (rows.size and part.may_train):
                continue
            known = [one.take(rows) for one in found]

            def enough(lower: Array, upper: Array, known: list[ScoreBounds] = known, k: int = k) -> bool:
                return bool(_stack([*known[:k], ScoreBounds(lower, upper), *known[k + 1 :]]).decided.all())

            found[k] = found[k].put(rows, part.narrow(queries[rows], known[k], enough))
            last = _stack(found)
        return before, last

    def decided_by(self, X: Any) -> dict[str, int]:
        """How many of the retrained labels each stage decides.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries, with the columns of the changed data.

        Returns
        -------
        dict
            ``"carry"``: by the old model; ``"newton"``: by Newton steps of the changed problem; ``"training"``: by a training that
            stops as soon as all labels are decided; ``"undetermined"``: open, because a limit or float64 ended the work.
        """
        self._require_labels()
        first, last = self._answer(X)
        return self.parts[0].count_stages(first.decided, last.decided)

    def decided(self, X: Any) -> NDArray[np.bool_]:
        """Which of the retrained labels are proven."""
        self._require_labels()
        return self.score_bounds(X).decided

    def determination_rate(self, X: Any) -> float:
        """The share of queries whose retrained label is proven (the paper's label determination rate)."""
        return float(np.mean(self.decided(X)))

    def needs_retraining(self, X: Any, within: float | None = None) -> Retraining:
        """Whether retraining would change the present model's answers to some queries; never trains.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries, with the columns of the data, which a change must leave as they are.
        within : float, default=None
            How far a prediction (with a log or logit link, a mean) may move and still count as the same; for a regression only, and needed there.

        Returns
        -------
        Retraining
        """
        if self.classes is None and (within is None or not within >= 0.0):
            raise ValueError(
                "within must be a number >= 0 for a regression: how far a prediction may move and still count as the same; "
                f"got {within!r}."
            )
        if self.classes is not None and within is not None:
            raise ValueError(f"within is for regressions; labels are the same or not. Leave it out; got {within!r}.")
        present, bounds, loss = (
            self.present_scores(X),
            self._answer(X, train=False)[1],
            self.parts[0].solution.problem.loss,
        )
        if self.classes is None and loss.link != "identity":
            present = np.exp(present) if loss.link == "log" else expit(present)
            bounds = ScoreBounds(*bounds.means(loss))
        return Retraining.of(bounds, present, within)

    def probability_bounds(self, X: Any) -> Bounds:
        """Lower and upper bounds of the retrained class probabilities, one column per class, for a logistic or a multinomial model.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries, with the columns of the changed data.
        """
        require_probabilities("probability_bounds", self.parts[0].solution.problem.loss, len(self.parts) > 1)
        return self.score_bounds(X).probabilities()

    def lead_bounds(self, X: Any) -> Bounds:
        """Bounds of the lead of each query's leading class over every other class, for a multinomial model.

        The leading class is the one with a zero at both ends in its column; its label is proven where all other lower ends are above zero.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries, with the columns of the changed data.
        """
        part, loss = self.parts[0], self.parts[0].solution.problem.loss
        if not loss.several:
            raise ValueError(
                f"lead_bounds is for a multinomial model; got {loss!r}. Use score_bounds, labels and decided."
            )
        return part.lead_bounds(self._rows(X, part.change.check(read_layout(part.solution.problem))))

    def coef_bounds(self) -> Bounds:
        """Lower and upper bounds of the retrained coefficients; infinite where nothing is known (Remark 1).

        Shaped as the model's ``coef``; one line per class where there is one problem per class.
        """
        first = 0 if self.origin.constant is None else 1
        return _stack_ends([tuple(end[..., first:] for end in part.coef_bounds()) for part in self.parts])

    def intercept_bounds(self) -> tuple[Any, Any]:
        """Lower and upper bound of the retrained intercept, or of those of every class."""
        constant = self.origin.constant
        if constant is None:
            return _stack_ends([part.intercept_bounds() for part in self.parts])
        # A constant column's coefficient times its value, which may round.
        ends = [np.sort(constant * np.array(part.coef_bounds())[:, 0]) for part in self.parts]
        return _stack_ends([(np.nextafter(low, -np.inf), np.nextafter(high, np.inf)) for low, high in ends])

    def dual_bounds(self) -> Bounds:
        """Lower and upper bounds of the retrained dual variables (Theorem 1 (i-D)), one per row of the changed problem."""
        lower, upper = _stack_ends([part.dual_bounds() for part in self.parts])
        return (lower.T, upper.T) if len(self.parts) > 1 else (lower, upper)

    def retrain(self, tol: float = 1e-6, until: Until | None = None) -> Any:
        """Train on the changed data, starting from the best candidate.

        Parameters
        ----------
        tol : float, default=1e-6
            Target for the relative duality gap.
        until : callable, default=None
            As in :func:`glru.solve`; lets a decision stop the training early.

        Returns
        -------
        Solution or tuple of Solution
            The solution of the only problem, or one per class.
        """
        found = tuple(part.retrain(tol, until) for part in self.parts)
        return found[0] if len(found) == 1 else found

    def plot(self, X: Any, ax: Any = None) -> Any:
        """Draw the intervals of the retrained scores beside the present ones; with more than two classes, the labels before and after.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries, with the columns of the data, which a change must leave as they are.
        ax : matplotlib Axes, default=None
            Where to draw; a new figure if not given.

        Returns
        -------
        glru.display.AfterDisplay or glru.display.ConfusionDisplay
        """
        joint = self.parts[0].solution.problem.loss.several
        if self.classes is None or (len(self.parts) == 1 and not joint):
            return find_display("AfterDisplay").from_after(self, X).plot(ax)
        bounds, names = self.score_bounds(X), [str(label) for label in self.classes]
        old = self.present_scores(X)
        kind = find_display("ConfusionDisplay")
        return kind.from_bounds(bounds, old, names, range(bounds.n_rows), joint).plot(ax)

    def present_scores(self, X: Any) -> Array:
        """The scores of some queries under the model before the change.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries, with the columns of the data before the change.
        """
        queries = self._rows(X, read_layout(self.parts[0].solution.problem))
        found = [queries @ part.solution.coef.T + part.solution.intercept for part in self.parts]
        return found[0] if len(found) == 1 else np.column_stack(found)

    def _rows(self, X: Any, layout: Layout) -> Matrix:
        """Queries in the columns of a layout of the problems."""
        constant, names = self.origin.constant, layout.column_names
        known = names if names is None or constant is None else names[1:]
        return rows_of(X, "queries", layout.n_columns, known, constant)

    def _summary(self) -> tuple[str, list[tuple[str, str]]]:
        model = self.origin.estimator or repr(self.parts[0].solution.problem.loss)
        lines = [("change", repr(self.change)), ("gap", f"{self.gap:.3g}"), ("radius", f"{self.radius:.3g}")]
        lines += [] if self.remark is None else [("remark", self.remark)]
        return f"After({model})", [*lines, ("steps", str(self.n_steps))]


def _stack(parts: Sequence[ScoreBounds]) -> ScoreBounds:
    """Bounds of the scores of each problem side by side; of one problem as they are."""
    return parts[0] if len(parts) == 1 else ScoreBounds(*(np.column_stack(ends) for ends in zip(*parts, strict=True)))


def _stack_ends(parts: Sequence[Any]) -> tuple[Any, Any]:
    """Lower and upper ends of each problem, one line per problem; of one problem as they are."""
    lower, upper = parts[0] if len(parts) == 1 else (np.stack(ends) for ends in zip(*parts, strict=True))
    return lower, upper
