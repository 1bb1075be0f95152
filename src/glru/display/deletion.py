"""The pictures of case deletion: residuals against leverages, Cook's distance row by row, and DFBETAS."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from glru._results import format_count
from glru.deletion import Influence
from glru.deletion.intervals import middle
from glru.display.scores import BLUE, GREY, ORANGE, Display, shorten
from glru.linalg import Array

KINDS = ("leverage", "cooks_distance", "dfbetas")

CONTOURS = (0.5, 1.0)
"""Cook's distances whose contours are drawn where they lie within the picture, besides 4 / n."""

NAMED_ROWS, MAX_COEFS = 5, 30
"""Rows that are named, and coefficients that are drawn side by side: those that move most."""

NAME_MARGIN = 0.12
"""The share of the height that is kept for the names above the highest mark."""

SMALL_MARKS_FROM = 2000
"""From this number of rows on the marks are small and the intervals, which would be invisible, are not drawn."""


@final
@dataclass(eq=False, repr=False)
class DeletionDisplay(Display):
    r"""What leaving out each row does to a model.

    Parameters
    ----------
    kind : {"leverage", "cooks_distance", "dfbetas"}
        Deviance residuals against leverages, marks as large as Cook's distance; Cook's distance of every row; or DFBETAS.
    lower, upper : array of shape (n_rows,) or (n_rows, n_coefs)
        Certified ends of what is drawn: deviance residuals, times the roots of the weights; Cook's distances; or DFBETAS.
    cooks_distance, leverage : array of shape (n_rows,)
        Middles of their intervals; not a number where nothing is known.
    unit : float
        The dispersion times the sum of the leverages: Cook's distances of the squared loss are squared residuals times leverages, divided by it.
    names : list of str
        The coefficients that are drawn.

    Examples
    --------
    >>> import numpy as np, glru
    >>> X = np.random.default_rng(0).normal(size=(50, 2))
    >>> result = glru.influence(glru.Problem(X, X[:, 0] > 0.3, penalty=glru.L2(0.1)))
    >>> display = glru.display.DeletionDisplay.from_result(result, "dfbetas")
    >>> display.lower.shape, display.names
    ((50, 2), ['x0', 'x1'])
    """

    kind: str
    lower: Array
    upper: Array
    cooks_distance: Array
    leverage: Array
    unit: float
    names: list[str]

    @classmethod
    def from_result(
        cls, result: Influence, kind: str = "leverage", column: str | int | None = None
    ) -> "DeletionDisplay":
        """Make the display of a result of :func:`glru.influence`.

        Parameters
        ----------
        result : Influence
            The result.
        kind : {"leverage", "cooks_distance", "dfbetas"}, default="leverage"
            What to draw.
        column : str or int, default=None
            The coefficient for "dfbetas"; all if not given, or the 30 that move most.
        """
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(map(repr, KINDS))}; got {kind!r}.")
        if column is not None and kind != "dfbetas":
            raise ValueError(f"column is for kind='dfbetas'; got kind={kind!r}.")
        names: list[str] = []
        if kind == "dfbetas":
            lower, upper = result.dfbetas()
            moves = np.abs(middle((lower, upper)))
            largest = np.max(moves, axis=0, where=np.isfinite(moves), initial=0.0)
            most = np.sort(np.argsort(-largest, kind="stable")[:MAX_COEFS])
            places = most if column is None else np.array([result.place_of(kind, column)])
            lower, upper, names = lower[:, places], upper[:, places], [result.coef_names[j] for j in places]
        else:
            lower, upper = result.measure_bounds("deviance_residual" if kind == "leverage" else kind)
            if kind == "leverage":
                # A row of twice the weight counts as two: so do contours of Cook's distance.
                roots = np.sqrt(result.relative_weights)
                lower, upper = lower * roots, upper * roots
        unit = result.freedom * 0.5 * sum(result.dispersion)
        return cls(kind, lower, upper, result.cooks_distance, result.leverage, unit, names)

    def _height(self) -> float:
        # Names of more than five coefficients are turned.
        return 4.4 + (0.06 * max(len(shorten(name)) for name in self.names) if len(self.names) > 5 else 0.0)

    def _draw(self, ax: Any) -> None:
        {"leverage": self._leverage, "cooks_distance": self._index, "dfbetas": self._dfbetas}[self.kind](ax)
        unknown = int(np.count_nonzero(~np.isfinite(self.cooks_distance)))
        if unknown:
            ax.set_title(f"{ax.get_title()}\nwithout a known optimum, and not drawn: {unknown}")

    @property
    def _threshold(self) -> float:
        return 4.0 / self.cooks_distance.size

    def _mark(self, ax: Any, x: Array, y: Array) -> None:
        """Name the rows of largest Cook's distance, which are above the usual threshold."""
        sizes = np.where(np.isfinite(self.cooks_distance), self.cooks_distance, -1.0)
        for row in np.argsort(-sizes, kind="stable")[:NAMED_ROWS]:
            if sizes[row] > self._threshold and np.isfinite(y[row]):
                ax.annotate(str(row), (x[row], y[row]), xytext=(4, 4), textcoords="offset points", fontsize=9)

    def _leverage(self, ax: Any) -> None:
        residuals, known = middle((self.lower, self.upper)), np.isfinite(self.cooks_distance)
        high = known & (self.cooks_distance > self._threshold)
        largest = max(float(np.max(self.cooks_distance, where=known, initial=0.0)), 1e-300)
        least = 3.0 if residuals.size >= SMALL_MARKS_FROM else 10.0
        sizes = least + 120.0 * self.cooks_distance / largest
        name = f"Cook's distance above 4 / n ({high.sum()})"
        for mine, color, label in ((known & ~high, BLUE, None), (high, ORANGE, name)):
            style = {"color": color, "alpha": 0.6, "linewidth": 0, "label": label}
            ax.scatter(self.leverage[mine], residuals[mine], s=sizes[mine], **style)
        if residuals.size < SMALL_MARKS_FROM:
            ax.vlines(self.leverage[known], self.lower[known], self.upper[known], color="black", linewidth=0.7)
        self._contours(ax, residuals[known])
        self._mark(ax, self.leverage, residuals)
        ax.axhline(0.0, color="black", linewidth=0.8, zorder=1)
        ax.set_xlim(0.0, min(ax.get_xlim()[1], 1.02))
        ax.set_xlabel("leverage")
        ax.set_ylabel("deviance residual without the row")
        ax.set_title(f"{residuals.size} rows left out, one at a time")
        ax.legend(loc="best", frameon=False)

    def _contours(self, ax: Any, residuals: Array) -> None:
        """Where rows of given Cook's distances lie under the squared loss: ``r^2 h / (p phi)``, ``r`` the residual without the row."""
        right = min(ax.get_xlim()[1], 1.02)
        grid = np.linspace(1e-3 * right, right, 400)
        most = 1.15 * float(np.abs(residuals).max(initial=0.0)) or 1.0
        for k, level in enumerate((self._threshold, *CONTOURS)):
            curve = np.sqrt(level * self.unit / grid)
            inside = curve <= most
            if inside.any():
                for sign in (1.0, -1.0):
                    ax.plot(grid[inside], sign * curve[inside], "--", color=GREY, linewidth=0.8)
                # Side by side: curves lie close together where leverages are near 1.
                place = np.flatnonzero(inside)[max(-1 - 24 * k, -int(inside.sum()))]
                end = grid[place], curve[place]
                ax.annotate(f"{level:.2g}", end, color=GREY, fontsize=8, va="bottom", ha="right")
        ax.plot([], [], "--", color=GREY, linewidth=0.8, label="Cook's distance, to first order")
        ax.set_ylim(-most, most)

    def _index(self, ax: Any) -> None:
        rows, known = np.arange(self.lower.size), np.isfinite(self.upper)
        high = known & (self.cooks_distance > self._threshold)
        many = rows.size >= SMALL_MARKS_FROM
        for mine, color in ((known & ~high, BLUE), (high, ORANGE)):
            ax.vlines(rows[mine], 0.0, self.upper[mine], color=color, alpha=0.5, linewidth=0.4 if many else 1.0)
            if not many:
                ax.vlines(rows[mine], self.lower[mine], self.upper[mine], color="black", linewidth=2.0)
        ax.plot(rows[high], self.cooks_distance[high], "o", color=ORANGE, markersize=3 if many else 4)
        label = f"4 / n, exceeded by {format_count(high.sum(), 'row')}"
        ax.axhline(self._threshold, color=GREY, linestyle="--", linewidth=0.8, label=label)
        self._mark(ax, rows.astype(float), self.cooks_distance)
        ax.margins(y=NAME_MARGIN)
        ax.set_ylim(bottom=0.0)
        ax.set_xlabel("row")
        ax.set_ylabel("Cook's distance")
        ax.set_title(f"{rows.size} rows left out, one at a time")
        ax.legend(loc="best", frameon=False)

    def _dfbetas(self, ax: Any) -> None:
        n_rows, n_shown = self.lower.shape
        values, cut, many = middle((self.lower, self.upper)), 2.0 / np.sqrt(n_rows), n_rows >= SMALL_MARKS_FROM
        if n_shown == 1:
            places = np.arange(n_rows, dtype=np.float64)[:, None]
            ax.vlines(
                places[:, 0], 0.0, np.nan_to_num(values[:, 0]), color=BLUE, alpha=0.5, linewidth=0.4 if many else 1.0
            )
            ax.set_xlabel("row")
            ax.set_ylabel(f"DFBETAS of {shorten(self.names[0])} (standard errors)")
        else:
            # Rows side by side above the name of their coefficient.
            places = np.arange(n_shown) + np.linspace(-0.3, 0.3, n_rows)[:, None]
            rotation, side = (90, "center") if n_shown > 12 else (45, "right") if n_shown > 5 else (0, "center")
            ax.set_xticks(np.arange(n_shown), list(map(shorten, self.names)), rotation=rotation, ha=side)
            ax.set_ylabel("DFBETAS (standard errors)")
        high = np.abs(values) > cut
        size = 2.0 if many else 4.0
        if n_shown > 1:
            ax.plot(places[~high], values[~high], "o", color=BLUE, markersize=0.6 * size, alpha=0.5, markeredgewidth=0)
        ax.plot(places[high], values[high], "o", color=ORANGE, markersize=size, alpha=0.7, markeredgewidth=0)
        for place in np.argsort(-np.where(high, np.abs(values), 0.0), axis=None, kind="stable")[
            : min(NAMED_ROWS, int(high.sum()))
        ]:
            row, j = np.unravel_index(place, values.shape)
            where = places[row, j], values[row, j]
            ax.annotate(str(row), where, xytext=(4, 4), textcoords="offset points", fontsize=9)
        ax.margins(y=NAME_MARGIN)
        for end in (-cut, cut):
            ax.axhline(end, color=GREY, linestyle="--", linewidth=0.8)
        ax.axhline(0.0, color="black", linewidth=0.8)
        ax.plot([], [], "--", color=GREY, linewidth=0.8, label="2 / sqrt(n)")
        which = f"\nthe {MAX_COEFS} coefficients that move most" if n_shown == MAX_COEFS else ""
        ax.set_title(f"{n_rows} rows left out, one at a time{which}")
        ax.legend(loc="best", frameon=False)
