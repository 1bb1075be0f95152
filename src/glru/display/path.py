"""The picture of a regularisation path: certified bands over the strength of the penalty."""

from typing import Any, final

import numpy as np

from glru._extras import require
from glru.display.intervals import BLUE, GREEN, ORANGE
from glru.linalg import Array
from glru.model_selection import LOOCVPath

Bands = dict[str, tuple[Array, Array]]

NAMES = {
    "error": "held-out errors (rows)",
    "log_loss": "held-out log-loss (nats)",
    "squared_error": "held-out squared error",
    "deviance": "mean deviance",
}


@final
class RegularizationPathDisplay:
    """Leave-one-out errors and losses over the strength of the penalty, with the best one marked.

    Parameters
    ----------
    lams : array of shape (n_lams,)
        The strengths.
    bands : dict of (array, array)
        Lower and upper ends of each quantity at every strength, by name.
    best : int
        The position of the best strength.
    criterion : str
        The name of the quantity that decided.
    certified : bool
        Whether no other strength can be better.
    axis : str, default="lam"
        What the strengths are called.

    Examples
    --------
    >>> import glru
    >>> data = glru.datasets.load("breast_cancer")
    >>> X = glru.datasets.prepare(data).X
    >>> path = glru.loocv_path(glru.Problem(X, data.y, penalty=glru.L2(1.0)), [1.0, 0.1, 0.01, 0.001])
    >>> display = glru.display.RegularizationPathDisplay.from_path(path)
    >>> display.title
    'best lam: 0.01, certified (10 errors)'
    """

    def __init__(
        self, lams: Array, bands: Bands, best: int, criterion: str, certified: bool, axis: str = "lam"
    ) -> None:
        self.lams, self.bands, self.best = lams, bands, best
        self.criterion, self.certified, self.axis = criterion, certified, axis

    @classmethod
    def from_path(cls, path: LOOCVPath, as_C: bool = False) -> "RegularizationPathDisplay":
        """Make the display of a leave-one-out path.

        Parameters
        ----------
        path : LOOCVPath
            From :func:`glru.loocv_path`.
        as_C : bool, default=False
            Show ``C = 1 / lam``, for problems with scaling "sum".
        """
        bands: Bands = {}
        if path.criterion in ("error", "log_loss"):
            counts = [(result.errors_lower, result.errors_upper) for result in path.results]
            bands["error"] = _split_ends(counts)
            if type(path.results[0].problem.loss).__name__ == "Logistic":
                bands["log_loss"] = _split_ends([result.metric_bounds("log_loss") for result in path.results])
        else:
            bands[path.criterion] = (path.lower, path.upper)
        strengths = 1.0 / path.lams if as_C else path.lams
        return cls(strengths, bands, path.best_index, path.criterion, path.certified, "C" if as_C else "lam")

    @property
    def title(self) -> str:
        """The best strength and whether it is proven to be."""
        low, high = (ends[self.best] for ends in self.bands[self.criterion])
        if self.criterion == "error":
            value = f"{low:.0f} errors" if low == high else f"{low:.0f} to {high:.0f} errors"
        else:
            value = f"{self.criterion.replace('_', ' ')} at most {high:.4g}"
        proof = "certified" if self.certified else "not certified"
        return f"best {self.axis}: {self.lams[self.best]:.4g}, {proof} ({value})"

    def plot(self, ax: Any = None) -> "RegularizationPathDisplay":
        """Draw the bands.

        Parameters
        ----------
        ax : sequence of matplotlib Axes, default=None
            One for each band; a new figure if not given.
        """
        if ax is None:
            plt = require("matplotlib.pyplot", "plot", "a picture")
            size = (8.0, 1.2 + 2.1 * len(self.bands))
            _, ax = plt.subplots(len(self.bands), 1, sharex=True, figsize=size, layout="constrained", squeeze=False)
        panels = np.ravel(ax)
        for panel, (name, (lower, upper)) in zip(panels, self.bands.items(), strict=True):
            finite = np.isfinite(upper)
            top = 1.1 * float(upper[finite].max()) if finite.any() else 1.0
            panel.fill_between(self.lams, lower, np.where(finite, upper, top), color=BLUE, alpha=0.25, linewidth=0)
            panel.plot(self.lams, lower, color=BLUE, marker="^", markersize=4, label="certified lower end")
            shown = np.where(finite, upper, np.nan)
            panel.plot(self.lams, shown, color=GREEN, marker="v", markersize=4, label="certified upper end")
            label = f"best {self.axis}" + ("" if self.certified else ", not certified")
            panel.axvline(self.lams[self.best], color=ORANGE, linestyle="--", linewidth=1.5, label=label)
            panel.set_ylabel(NAMES[name])
            panel.set_xscale("log")
            panel.ticklabel_format(axis="y", useOffset=False)
            panel.locator_params(axis="y", integer=name == "error", nbins=6)
        panels[0].legend(frameon=False)
        panels[0].set_title(self.title, loc="left", fontsize=11)
        panels[-1].set_xlabel("strength of the penalty, lam" if self.axis == "lam" else "C")
        self.ax_, self.figure_ = panels, panels[0].figure
        return self


def _split_ends(pairs: Any) -> tuple[Array, Array]:
    array = np.array(pairs, dtype=np.float64)
    return array[:, 0], array[:, 1]
