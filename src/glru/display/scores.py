"""Pictures of scores: of held-out rows, of queries after a change, and of the rows of each class by their labels."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from glru._extras import require
from glru._results import show_count
from glru.after import After
from glru.bounds import ScoreBounds, predicted
from glru.linalg import Array
from glru.model_selection import CrossValResult, LOOCVResult

BLUE, ORANGE, GREY, GREEN = "#0072B2", "#D55E00", "#999999", "#009E73"
"""Colours of the Okabe-Ito palette, which colour-blind readers can tell apart."""

Groups = dict[int, tuple[str, str]]
"""Name and colour of the rows that share a verdict."""

MAX_DOTS = 3000
"""Most rows that are drawn as dots; more are drawn by density, or as an image within a vector graphic."""

MIN_LINE = 1e-3
"""Intervals of at least this share of the axis are drawn as lines."""

MARKS = "marks"
"""The id of the marks of a picture, one per row or step, over which a report shows text."""


def new_axes(height: float, width: float = 8.0, **options: Any) -> Any:
    """The axes of a new figure; ``options``: those of ``subplots`` for several."""
    plt = require("matplotlib.pyplot", "plot", "a picture")
    return plt.subplots(figsize=(width, height), layout="constrained", **options)[1]


def middle(bounds: ScoreBounds) -> Array:
    """The middle of every interval; 0 where it has no end."""
    return np.nan_to_num(bounds.middle)


def find_usual_range(scores: Array) -> tuple[float, float]:
    """An axis that holds 0 and all scores, or, where a few of them are far out, all but these."""
    if scores.size == 0:
        return -1.0, 1.0
    low, high = np.quantile(scores, [0.005, 0.995])
    far = high - low
    low, high = max(low - far, scores.min()), min(high + far, scores.max())
    low, high = min(float(low), 0.0), max(float(high), 0.0)
    margin = 0.06 * (high - low) or 1.0
    return low - margin, high + margin


def sort_sides(scores: Array, sides: NDArray[Any]) -> NDArray[np.intp]:
    """The rows of the side -1 by score, then those of the side +1."""
    return np.lexsort((scores, sides > 0))


def draw_sides(
    ax: Any, bounds: ScoreBounds, verdicts: NDArray[np.int8], groups: Groups, n_first: int, names: tuple[str, str]
) -> None:
    """Intervals side by side around the threshold 0, coloured by their verdicts; the first ``n_first`` of them are of the first name.

    Every row takes the same space, so that the width of a colour is its share of the rows. Rows beyond the axis are marked at its edge.
    """
    n_rows = bounds.n_rows
    gap = 0.02 * n_rows
    places = np.arange(n_rows) + np.where(np.arange(n_rows) < n_first, 0.0, gap)
    scores = middle(bounds)
    low, high = find_usual_range(scores)
    bottom, top = np.clip(bounds.lower, low, high), np.clip(bounds.upper, low, high)
    size = float(np.clip(400.0 / max(n_rows, 1), 2.0, 4.0))
    colors = np.array([groups[verdict][1] for verdict in (-1, 0, 1)])[verdicts.astype(np.intp) + 1]
    # Shorter lines lie behind their dots.
    seen, many = top - bottom > MIN_LINE * (high - low), n_rows > MAX_DOTS
    ax.vlines(places[seen], bottom[seen], top[seen], linewidth=1.2, color=colors[seen], zorder=2, rasterized=many)
    ax.scatter(
        places, np.clip(scores, low, high), size**2, linewidth=0, color=colors, zorder=3, gid=MARKS, rasterized=many
    )
    for verdict, (name, color) in groups.items():
        if count := int(np.sum(verdicts == verdict)):
            ax.plot([], [], "o", color=color, markersize=size, label=f"{name} ({count:,})")
    for marker, edge, beyond in (("v", low, scores < low), ("^", high, scores > high)):
        if beyond.any():
            shown: dict[str, Any] = {"label": f"beyond the axis ({beyond.sum():,})", "zorder": 4, "clip_on": False}
            ax.plot(places[beyond], np.full(beyond.sum(), edge), marker, color="black", markersize=1.5 * size, **shown)
    ax.axhline(0.0, color="black", linewidth=0.8, zorder=1)
    ax.set_ylim(low, high)
    counts = (n_first, n_rows - n_first)
    ticks = [(n_first / 2.0, 0), (n_first + gap + counts[1] / 2.0, 1)]
    named = [(place, f"{shorten(names[k])}: {counts[k]:,} rows") for place, k in ticks if counts[k]]
    ax.set_xticks([place for place, _ in named], [text for _, text in named])
    if 0 < n_first < n_rows:
        ax.axvline(n_first + 0.5 * gap - 0.5, color=GREY, linewidth=0.8, linestyle=":", zorder=1)
    ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), markerscale=4.0 / size)


def draw_agreement(ax: Any, known: Array, bounds: ScoreBounds, diagonal: bool = True) -> None:
    """Predictions over what they are compared with, and where both agree; intervals as lines, and a density where there are many.

    ``diagonal``: whether they agree on the diagonal, or, of differences, at zero.
    """
    scores = middle(bounds)
    if known.size > MAX_DOTS:
        shades = ax.hexbin(known, scores, gridsize=70, bins="log", mincnt=1, cmap="Blues")
        ax.figure.colorbar(shades, ax=ax, label="rows")
    else:
        ends = np.clip(bounds.lower, scores.min(), None), np.clip(bounds.upper, None, scores.max())
        ax.vlines(known, *ends, color=BLUE, linewidth=1.2)
        size = float(np.clip(400.0 / max(known.size, 1), 2.0, 4.0))
        ax.plot(known, scores, "o", color=BLUE, markersize=size, markeredgewidth=0, gid=MARKS)
    for axis in (ax.xaxis, ax.yaxis):
        # In full, as 250,000, where that is not too long.
        if 1e4 <= np.abs(axis.get_view_interval()).max() < 1e9:
            axis.set_major_formatter("{x:,.0f}")
    if diagonal:
        both = np.array([max(known.min(), scores.min()), min(known.max(), scores.max())])
        ax.plot(both, both, color="black", linewidth=0.8)
    else:
        ax.axhline(0.0, color="black", linewidth=0.8)


def shorten(name: str, most: int = 24) -> str:
    """A name, cut to a length that fits beside its axis."""
    return name if len(name) <= most else name[: most - 1] + "…"


HELD_OUT_GROUPS: Groups = {1: ("correct", BLUE), -1: ("wrong", ORANGE), 0: ("open", GREY)}


class Display(ABC):
    """A picture: the constructor stores what it shows."""

    @abstractmethod
    def _draw(self, ax: Any) -> None: ...

    def _height(self) -> float:
        return 3.6

    def _new_axes(self) -> Any:
        return new_axes(self._height())

    def plot(self, ax: Any = None) -> Self:
        """Draw it.

        Parameters
        ----------
        ax : matplotlib Axes, or a sequence of them for several pictures, default=None
            Where to draw; a new figure if not given.
        """
        self.ax_ = self._new_axes() if ax is None else ax
        self.figure_ = np.ravel(self.ax_)[0].figure
        self._draw(self.ax_)
        return self


@final
@dataclass(eq=False, repr=False)
class LOOCVDisplay(Display):
    """Held-out intervals: of classes sorted by class and score and coloured by correct, wrong or open; of a regression over the targets.

    Parameters
    ----------
    lower, upper : array of shape (n_rows,)
        Bounds of the held-out scores, in the order they are drawn.
    y : array of shape (n_rows,)
        Targets in the same order; -1 and +1 for classes.
    title : str
        What is shown.
    classes : tuple of str or None, default=None
        What -1 and +1 stand for; None for a regression.
    score_name : str, default="held-out score"
        What the vertical axis of classes shows.

    Examples
    --------
    >>> import glru
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> result = glru.loocv(glru.Problem(X, y, penalty=glru.L2(0.01)))
    >>> display = glru.display.LOOCVDisplay.from_result(result)
    >>> int((display.verdicts == -1).sum())
    10
    """

    lower: Array
    upper: Array
    y: Array
    title: str
    classes: tuple[str, str] | None = None
    score_name: str = "held-out score"

    @property
    def verdicts(self) -> NDArray[np.int8]:
        """1 correct, -1 wrong, 0 open, for classes."""
        return ScoreBounds(self.lower, self.upper).verdicts(self.y)

    @classmethod
    def from_result(
        cls, result: LOOCVResult | CrossValResult, classes: tuple[str, str] | None = None
    ) -> "LOOCVDisplay":
        """Make the display of held-out scores.

        Parameters
        ----------
        result : LOOCVResult or CrossValResult
            From :func:`glru.loocv` or :func:`glru.cross_validate`.
        classes : tuple of str, default=None
            What -1 and +1 stand for; the result's own classes if not given.
        """
        if result.bounds.lower.ndim == 2:
            raise ValueError("LOOCVDisplay shows one score per row; got one per class. Use ConfusionDisplay.")
        rows = f"{result.y.size:,} held-out rows"
        if isinstance(result, CrossValResult):
            rows += f" in {result.folds.max() + 1} folds"
        if result.labels is None:
            found = f"R² {result.metric_bounds('r2')[0]:.4g}" if np.ptp(result.y) else "constant targets"
            return cls(result.score_lower, result.score_upper, result.y, f"{rows}, {found}")
        if classes is None:
            first, second = map(str, np.unique(np.asarray(result.classes)))
            classes = (first, second)
        errors = f"{show_count(result.errors_lower, result.errors_upper)} errors"
        more = f", {result.n_trainings} trainings beyond the first" if isinstance(result, LOOCVResult) else ""
        order = sort_sides(middle(result.bounds), result.y)
        name = f"held-out {'log-odds' if result.problem.loss.probabilities else 'score'}"
        return cls(*result.bounds.take(order), result.y[order], f"{rows}, {errors}{more}", classes, name)

    def _draw(self, ax: Any) -> None:
        bounds = ScoreBounds(self.lower, self.upper)
        ax.set_title(self.title, loc="left", fontsize=11)
        if self.classes is None:
            draw_agreement(ax, self.y, bounds)
            ax.set_xlabel("target")
            ax.set_ylabel("held-out prediction")
        else:
            draw_sides(ax, bounds, self.verdicts, HELD_OUT_GROUPS, int(np.sum(self.y < 0)), self.classes)
            ax.set_xlabel("rows of each class, sorted by held-out score")
            ax.set_ylabel(self.score_name)


CHANGE_GROUPS: Groups = {1: ("label unchanged", BLUE), -1: ("label changed", ORANGE), 0: ("open", GREY)}


@final
@dataclass(eq=False, repr=False)
class AfterDisplay(Display):
    """Intervals of the retrained scores: of classes by the label before, coloured by whether it is proven to stay; of a regression by how much predictions change.

    Parameters
    ----------
    lower, upper : array of shape (n_queries,)
        Bounds of the retrained scores, in the order they are drawn.
    old_scores : array of shape (n_queries,)
        The scores before the change, in the same order.
    title : str
        What is shown.
    classes : tuple of str or None, default=None
        What -1 and +1 stand for; None for a regression.

    Examples
    --------
    >>> import glru
    >>> data = glru.datasets.load("breast_cancer")
    >>> X = glru.datasets.prepare(data).X
    >>> solution = glru.solve(glru.Problem(X[:500], data.y[:500], penalty=glru.L2(0.1)))
    >>> out = glru.after(solution, glru.RemoveRows([3, 17]))
    >>> display = glru.display.AfterDisplay.from_after(out, X[500:])
    >>> display.title
    '69 queries after the change: 69 labels unchanged, 0 changed, 0 open'
    """

    lower: Array
    upper: Array
    old_scores: Array
    title: str
    classes: tuple[str, str] | None = None

    @property
    def verdicts(self) -> NDArray[np.int8]:
        """1 unchanged, -1 changed, 0 open, for classes."""
        return find_verdicts(ScoreBounds(self.lower, self.upper), self.old_scores)

    @classmethod
    def from_after(cls, out: After, X: Any, old_scores: Array | None = None) -> "AfterDisplay":
        """Make the display of what is proven about some queries.

        Parameters
        ----------
        out : After
            From :func:`glru.after`.
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries, with the columns of the changed problem.
        old_scores : array of shape (n_queries,), default=None
            Their scores before the change; if not given, ``out.present_scores(X)``, where the change leaves the columns as they are.
        """
        bounds = out.score_bounds(X)
        if bounds.lower.ndim == 2:
            raise ValueError(
                "AfterDisplay shows one score per query; got one per class. Use ConfusionDisplay.from_bounds."
            )
        classes = None if out.classes is None else (str(out.classes[0]), str(out.classes[1]))
        return cls.from_bounds(bounds, out.present_scores(X) if old_scores is None else old_scores, classes)

    @classmethod
    def from_bounds(
        cls, bounds: ScoreBounds, old_scores: Array, classes: tuple[str, str] | None = ("-1", "+1")
    ) -> "AfterDisplay":
        """Make the display from bounds of the retrained scores."""
        if classes is None:
            title = f"{bounds.n_rows:,} queries after the change, median width {np.median(bounds.width):.2g}"
            return cls(bounds.lower, bounds.upper, old_scores, title)
        verdicts = find_verdicts(bounds, old_scores)
        order = sort_sides(middle(bounds), old_scores)
        counts = [int(np.sum(verdicts == verdict)) for verdict in CHANGE_GROUPS]
        title = (
            f"{bounds.n_rows:,} queries after the change: {counts[0]:,} labels unchanged, {counts[1]:,} changed, "
            f"{counts[2]:,} open"
        )
        return cls(*bounds.take(order), old_scores[order], title, classes)

    def _draw(self, ax: Any) -> None:
        ax.set_title(self.title, loc="left", fontsize=11)
        if self.classes is None:
            moves = ScoreBounds(self.lower - self.old_scores, self.upper - self.old_scores)
            draw_agreement(ax, self.old_scores, moves, diagonal=False)
            ax.set_xlabel("prediction before the change")
            ax.set_ylabel("retrained prediction minus that before")
        else:
            bounds = ScoreBounds(self.lower, self.upper)
            draw_sides(ax, bounds, self.verdicts, CHANGE_GROUPS, int(np.sum(self.old_scores <= 0)), self.classes)
            ax.set_xlabel("queries by their label before the change, sorted by retrained score")
            ax.set_ylabel("retrained score")


def find_verdicts(bounds: ScoreBounds, old_scores: Array) -> NDArray[np.int8]:
    """1 where the label is proven to stay, -1 where it is proven to change, 0 where nothing is proven."""
    changes, stays = bounds.changes(old_scores)
    return stays.astype(np.int8) - changes


MAX_LISTED = 15
"""Rows in the panel of those that are least certain."""

COLORS = {1: BLUE, -1: ORANGE, 0: GREY}
HELD_OUT, CHANGED = ("class", "held-out label"), ("label before the change", "label after the change")
"""What the lines and columns of the matrix are."""


def measure_leads(bounds: ScoreBounds) -> Array:
    """About how far the label of each row is from another one; -1 where it is open."""
    scores = middle(bounds)
    if scores.ndim == 1:
        return np.where(bounds.decided, np.abs(scores), -1.0)
    ordered = np.sort(scores, axis=1)
    return np.where(bounds.decided, ordered[:, -1] - ordered[:, -2], -1.0)


def rank_least_certain(bounds: ScoreBounds, most: int) -> NDArray[np.intp]:
    """The rows whose labels are least certain: open ones, then those whose class leads the next one least."""
    return np.argsort(measure_leads(bounds), kind="stable")[:most]


@final
@dataclass(eq=False, repr=False)
class ConfusionDisplay(Display):
    """A certified matrix of the rows of each class by their labels, and, in a new figure, the rows whose labels are least certain.

    Parameters
    ----------
    least, most : array of shape (n_classes, n_classes)
        The smallest and the largest number of rows of each class (lines) that get each label (columns).
    classes : sequence of str
        What the classes are called.
    rows : sequence
        What the rows that are least certain are called, the least certain one first.
    lower, upper : array of shape (n_listed,)
        Bounds of the probability (or, where there are none, the score) of each of these rows' own class.
    verdicts : array of shape (n_listed,)
        1 where the label is proven to be that class, -1 where it is proven to be another one, 0 open.
    quantity : str
        What the bounds are of.
    title : str
        What is shown.
    sides : tuple of str, default=("class", "held-out label")
        What lines and columns are.

    Examples
    --------
    >>> import glru
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_iris(return_X_y=True)
    >>> display = glru.display.ConfusionDisplay.from_result(glru.loocv(LogisticRegression(), X, y))
    >>> display.least.diagonal()
    array([50, 47, 48])
    """

    least: NDArray[np.int64]
    most: NDArray[np.int64]
    classes: Sequence[str]
    rows: Sequence[Any] | NDArray[np.intp]
    lower: Array
    upper: Array
    verdicts: NDArray[np.int8]
    quantity: str
    title: str
    sides: tuple[str, str] = HELD_OUT

    @classmethod
    def from_result(
        cls, result: LOOCVResult | CrossValResult, row_names: Sequence[str] | None = None
    ) -> "ConfusionDisplay":
        """Make the display of the held-out scores of a classification with one score per class.

        Parameters
        ----------
        result : LOOCVResult or CrossValResult
            From :func:`glru.loocv` or :func:`glru.cross_validate`.
        row_names : sequence of str, default=None
            What the rows are called; their positions if not given.
        """
        bounds, classes = result.bounds, result.classes
        if bounds.lower.ndim == 1 or classes is None:
            raise ValueError("ConfusionDisplay shows one score per class; got one score per row. Use LOOCVDisplay.")
        errors = f"{show_count(result.errors_lower, result.errors_upper)} errors"
        rows = np.asarray(result.rows) if isinstance(result, CrossValResult) else np.arange(bounds.n_rows)
        names = rows if row_names is None else [row_names[row] for row in rows]
        joint, title = result.problem.loss.several, f"{bounds.n_rows:,} held-out rows, {errors}"
        return cls._make(bounds, np.asarray(result.y), [str(label) for label in classes], names, joint, title, HELD_OUT)

    @classmethod
    def from_bounds(
        cls, bounds: ScoreBounds, old_scores: Array, classes: Sequence[str], names: Sequence[Any], joint: bool = True
    ) -> "ConfusionDisplay":
        """Make the display of a change: the labels of queries before it by those of the retrained model.

        Parameters
        ----------
        bounds : ScoreBounds
            Bounds of the retrained scores of the queries.
        old_scores : array of shape (n_queries, n_classes)
            Their scores before the change.
        classes : sequence of str
            What the classes are called.
        names : sequence of str
            What the queries are called.
        joint : bool, default=True
            Whether the model is multinomial, so that scores stand for probabilities.
        """
        changes, stays = bounds.changes(old_scores)
        n_open = bounds.n_rows - int(changes.sum() + stays.sum())
        title = f"{bounds.n_rows:,} queries after the change:\n{stays.sum():,} labels unchanged, {changes.sum():,} changed, {n_open:,} open"
        return cls._make(bounds, predicted(old_scores), list(classes), names, joint, title, CHANGED)

    @classmethod
    def _make(
        cls,
        bounds: ScoreBounds,
        places: NDArray[np.intp],
        classes: list[str],
        names: Any,
        joint: bool,
        title: str,
        sides: tuple[str, str],
    ) -> "ConfusionDisplay":
        listed = rank_least_certain(bounds, MAX_LISTED)
        shown = bounds.take(listed)
        lower, upper = shown.probabilities() if joint else shown
        own = np.arange(listed.size), places[listed]
        what = f"{'held-out' if sides is HELD_OUT else 'retrained'} {'probability' if joint else 'score'}"
        return cls(
            *bounds.confusion(places),
            classes,
            names[listed] if isinstance(names, np.ndarray) else [names[row] for row in listed],
            lower[own],
            upper[own],
            shown.verdicts(places[listed]),
            f"{what} of the row's {'own class' if sides is HELD_OUT else 'label before'}",
            title,
            sides,
        )

    def _new_axes(self) -> Any:
        size = max(3.6, 0.34 * len(self.classes) + 1.2)
        ax, beside = new_axes(max(size, 3.8), size + 5.4, ncols=2)
        self._draw_rows(beside)
        return ax

    def _draw(self, ax: Any) -> None:
        n_classes = len(self.classes)
        totals = np.maximum(self.most.sum(axis=1, keepdims=True), 1)
        ax.imshow(self.most / totals, cmap="Blues", vmin=0.0, vmax=1.0)
        for (a, b), most in np.ndenumerate(self.most):
            if most > 0:
                color = "white" if most > 0.5 * totals[a, 0] else (BLUE if a == b else ORANGE)
                text = f"{most}" if self.least[a, b] == most else f"{self.least[a, b]}-{most}"
                ax.text(b, a, text, ha="center", va="center", color=color, fontsize=9 if n_classes <= 12 else 7)
        names = [shorten(name) for name in self.classes]
        slanted = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if max(map(len, names)) > 3 else {}
        ax.set_xticks(range(n_classes), names, **slanted)
        ax.set_yticks(range(n_classes), names)
        ax.set_xlabel(self.sides[1])
        ax.set_ylabel(self.sides[0])
        ax.set_title(self.title)

    def _draw_rows(self, ax: Any) -> None:
        places = np.arange(len(self.rows))
        names = ("correct", "wrong") if self.sides == HELD_OUT else ("label unchanged", "label changed")
        for name, (verdict, color) in zip((*names, "open"), COLORS.items(), strict=True):
            mine = self.verdicts == verdict
            if mine.any():
                low, high = self.lower[mine], self.upper[mine]
                ax.hlines(places[mine], low, high, color=color, linewidth=2.0)
                ax.plot(0.5 * (low + high), places[mine], "o", color=color, markersize=5.0, label=name)
        ax.set_yticks(places, [shorten(str(row), 16) for row in self.rows])
        ax.invert_yaxis()
        ax.set_xlabel(self.quantity)
        ax.set_ylabel("row")
        ax.set_title("least certain rows")
        ax.legend(frameon=False)
