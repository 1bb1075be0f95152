"""The figures of the site, drawn from models that are trained here: each once for light pages and once for dark ones."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, scale

import glru

BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#8a8a8a"
LIGHT_BLUE, AMBER = "#56B4E9", "#E69F00"

THEMES = {
    "light": {"ink": "#222222", "cycle": [BLUE, ORANGE, GREEN, PURPLE, GREY]},
    "dark": {"ink": "#e6e6e6", "cycle": [LIGHT_BLUE, AMBER, "#2fc99a", "#e3a6c9", "#b0b0b0"]},
}

FIGURES: dict[str, Callable[[], Figure]] = {}


def figure(draw: Callable[[], Figure]) -> Callable[[], Figure]:
    """Register a function that draws a figure under its own name."""
    FIGURES[draw.__name__] = draw
    return draw


def draw_missing(folder: Path, layers: list[str]) -> None:
    """Draw what is missing, or older than this file."""
    folder.mkdir(exist_ok=True)
    written = Path(__file__).stat().st_mtime
    jobs = {**FIGURES, "layers": lambda: draw_layers(layers)}
    for name, draw in jobs.items():
        for theme in THEMES:
            path = folder / f"{name}-{theme}.svg"
            if not path.exists() or path.stat().st_mtime < written or name == "layers":
                with mpl.rc_context(style(theme)):
                    drawn = draw()
                    drawn.savefig(path, transparent=True, metadata={"Date": None})
                    plt.close(drawn)


def style(theme: str) -> dict[str, object]:
    """Settings of matplotlib for a theme."""
    ink = THEMES[theme]["ink"]
    names = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    return {
        **dict.fromkeys(names, ink),
        "axes.prop_cycle": mpl.cycler(color=THEMES[theme]["cycle"]),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "figure.constrained_layout.use": True,
        "font.size": 13.5,
        "legend.frameon": False,
        "legend.fontsize": "small",
        "axes.titlesize": "medium",
        "svg.hashsalt": "glru",
        "backend": "svg",
    }


def colour(place: int) -> str:
    """The colour of a place in the cycle of the theme."""
    return mpl.rcParams["axes.prop_cycle"].by_key()["color"][place]


def ink() -> str:
    """The colour of text in the theme."""
    return mpl.rcParams["text.color"]


def cancer() -> tuple[np.ndarray, np.ndarray]:
    """The rows of breast_cancer, standardised."""
    X, y = load_breast_cancer(return_X_y=True)
    return scale(X), y


@figure
def hero() -> Figure:
    """Held-out scores around the threshold, with what is proven of each."""
    X, y = load_breast_cancer(return_X_y=True)
    result = glru.loocv(make_pipeline(StandardScaler(), LogisticRegression()), X, y, width="labels")
    order = np.argsort(result.scores)
    low, high, scores = result.score_lower[order], result.score_upper[order], result.scores[order]
    wrong = np.sign(scores) != np.where(y[order] == 1, 1, -1)
    near = np.flatnonzero(np.abs(scores) < 4.2)
    places = np.arange(near.size)
    drawn, ax = plt.subplots(figsize=(8.4, 3.6))
    for mine, name, place, size in ((~wrong[near], "right", 0, 3.0), (wrong[near], "wrong", 1, 6.0)):
        ax.vlines(places[mine], low[near][mine], high[near][mine], color=colour(place), linewidth=1.6)
        ax.plot(
            places[mine], scores[near][mine], "o", markersize=size, color=colour(place), label=f"{name}: {mine.sum()}"
        )
    ax.axhline(0.0, color=ink(), linewidth=0.9)
    ax.set(
        xlabel=f"rows, sorted by held-out score (the {near.size} of 569 that are closest to the threshold)",
        ylabel="held-out score",
        title=f"{result.n_errors} errors of 569, each label proven, {result.n_trainings} trainings beyond the first",
        ylim=(-5, 5),
    )
    ax.legend(loc="upper left")
    return drawn


@figure
def gap() -> Figure:
    """An objective in one variable, the dual value below it, and the interval that the gap proves."""
    random = np.random.default_rng(2)
    x = random.normal(size=12)
    y = np.where(x + random.normal(size=12) > 0, 1.0, -1.0)
    lam, place = 0.3, 0.15
    best = glru.solve(glru.Problem(x[:, None], y, penalty=glru.L2(lam)), tol=1e-12)

    def objective(w: np.ndarray) -> np.ndarray:
        return np.logaddexp(0.0, -y * x * np.reshape(w, (-1, 1))).mean(axis=1) + lam / 2 * np.square(w)

    correlation = np.mean(x * y / (1.0 + np.exp(y * x * place)))
    proven = lam / 2 * (place - correlation / lam) ** 2  # the dual point of these scores leaves only the penalty's term
    radius = np.sqrt(2.0 * proven / lam)
    grid = np.linspace(-0.6, 1.3, 400)
    value, at = objective(grid), float(objective(np.array([place]))[0])
    drawn, ax = plt.subplots(figsize=(8.0, 4.4))
    ax.plot(grid, value, color=colour(0), linewidth=2, label="objective $P(w)$")
    ax.axhline(at - proven, color=colour(1), linestyle="--", label="dual value $D(a)$: no model is below")
    ax.axvspan(place - radius, place + radius, color=colour(2), alpha=0.18, label="proven place of the optimum")
    ax.annotate("", (place, at - proven), (place, at), arrowprops={"arrowstyle": "<->", "color": ink()})
    ax.text(place - 0.03, at - 0.5 * proven, "gap $G$", ha="right", va="center")
    ax.plot(place, at, "o", color=ink(), label="candidate $\\hat w$")
    ax.plot(best.coef[0], best.primal_value, "*", markersize=13, color=colour(1), label="optimum $w^*$")
    ax.annotate(
        "",
        (place - radius, at - 1.25 * proven),
        (place + radius, at - 1.25 * proven),
        arrowprops={"arrowstyle": "<->", "color": ink()},
    )
    ax.text(place + 0.5 * radius, at - 1.22 * proven, "$\\hat w \\pm \\sqrt{2G/\\lambda}$", ha="center", va="bottom")
    ax.set(
        xlabel="coefficient $w$",
        ylabel="objective",
        ylim=(at - 1.5 * proven, at + 1.6 * proven),
        xlim=(grid[0], grid[-1]),
    )
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return drawn


@figure
def regions() -> Figure:
    """Where the retrained model can be: the paper's ball around the old model, and what Newton steps prove."""
    random = np.random.default_rng(5)
    X = random.normal(size=(60, 2)) @ np.array([[1.0, 0.6], [0.0, 0.5]])
    y = X @ [1.2, -0.7] + 0.7 * random.normal(size=60) > 0
    X[7], y[7] = [2.4, 0.4], False
    problem = glru.Problem(X, y, penalty=glru.L2(0.05))
    solution = glru.solve(problem, tol=1e-12)
    change = glru.RemoveRows([7])
    smaller = change.apply(problem)
    new = glru.solve(smaller, tol=1e-12).coef
    drawn, axes = plt.subplots(1, 2, figsize=(9.2, 4.2))
    outs = {
        "around the old model, by the gap": glru.after(solution, change, candidate="carry", bound="primal"),
        "one Newton step, local metric": glru.after(solution, change, candidate="newton", bound="local", max_steps=1),
    }
    others, signs = np.delete(X, 7, axis=0), np.where(np.delete(y, 7), 1.0, -1.0)
    for place, (ax, (name, out)) in enumerate(zip(axes, outs.items(), strict=True)):
        centre = out.point.coef
        outline = region(out)
        size = 1.25 * np.abs(outline).max()
        ax.fill(*outline.T, color=colour(2 * place), alpha=0.22)
        ax.plot(*np.vstack([outline, outline[:1]]).T, color=colour(2 * place), linewidth=1.6)
        moves = np.stack(np.meshgrid(*2 * [np.linspace(-size, size, 60)]), axis=-1)
        losses = np.logaddexp(0.0, -signs * ((centre + moves) @ others.T)).mean(axis=-1)
        values = losses + 0.025 * np.square(centre + moves).sum(axis=-1)
        ax.contour(moves[0, :, 0], moves[:, 0, 1], values, levels=9, colors=[colour(4)], linewidths=0.6)
        ax.plot(0.0, 0.0, "o", color=ink(), label="candidate")
        ax.plot(*(new - centre), "*", markersize=13, color=colour(1), label="retrained model")
        ax.set(title=name, xlabel="$w_1 - \\hat w_1$", ylabel="$w_2 - \\hat w_2$", aspect="equal")
        ax.ticklabel_format(scilimits=(-2, 3))
    drawn.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return drawn


def region(out: glru.results.After) -> np.ndarray:
    """The outline of the set that holds the retrained model, around the candidate, from its bounds in all directions."""
    angles = np.linspace(0.0, 2.0 * np.pi, 241)[:-1]
    directions = np.column_stack([np.cos(angles), np.sin(angles)])
    support = np.asarray(out.score_bounds(directions)[1]) - directions @ out.point.coef
    slope = (np.roll(support, -1) - np.roll(support, 1)) / (2.0 * (angles[1] - angles[0]))
    return support[:, None] * directions + slope[:, None] * np.column_stack([-np.sin(angles), np.cos(angles)])


@cache
def widths() -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Held-out scores of every fourth row, and the widths of their intervals around both candidates."""
    X, y = cancer()
    solution = glru.solve(glru.Problem(X, y, penalty=glru.L2(0.01)), tol=1e-10)
    rows = range(0, len(y), 4)
    found: dict[str, list[float]] = {"carry": [], "newton": []}
    for row in rows:
        for candidate, column in found.items():
            low, high = glru.after(solution, glru.RemoveRows([row]), candidate=candidate).score_bounds(X[[row]])
            column.append(float(high[0] - low[0]))
    return np.abs(glru.loocv(solution).scores)[::4], {name: np.array(column) for name, column in found.items()}


@figure
def candidates() -> Figure:
    """Widths of the intervals of held-out scores around each candidate."""
    scores, found = widths()
    order = np.argsort(scores)
    drawn, ax = plt.subplots(figsize=(8.0, 3.8))
    ax.semilogy(2.0 * scores[order], color=ink(), label="twice the score: narrower intervals decide the label")
    ax.semilogy(found["carry"][order], ".", color=colour(1), label="around the old model")
    ax.semilogy(found["newton"][order], ".", color=colour(0), label="after Newton steps")
    ax.set(xlabel="rows of breast_cancer, sorted by the size of the held-out score", ylabel="width of the interval")
    ax.legend(loc="center right")
    return drawn


@figure
def metric() -> Figure:
    """Contours of the norm in the inverse Hessian over the rows of two correlated columns."""
    random = np.random.default_rng(3)
    X = random.normal(size=(150, 2)) @ np.array([[1.5, 1.0], [0.0, 0.35]])
    y = X @ [1.0, -0.5] + random.logistic(size=150) > 0
    solution = glru.solve(glru.Problem(X, y, penalty=glru.L2(0.01)), tol=1e-12)
    shares = 1.0 / (1.0 + np.exp(-solution.scores))
    hessian = 0.01 * np.eye(2) + (X * (shares * (1.0 - shares))[:, None]).T @ X / 150
    grid = np.stack(np.meshgrid(np.linspace(-5.0, 5.0, 200), np.linspace(-3.6, 3.6, 150)), axis=-1)
    norms = np.sqrt(np.einsum("...i,ij,...j", grid, np.linalg.inv(hessian), grid))
    drawn, ax = plt.subplots(figsize=(8.0, 4.2))
    ax.plot(*X.T, "o", markersize=3.5, color=colour(0), label="rows")
    lines = ax.contour(grid[0, :, 0], grid[:, 0, 1], norms, levels=[2, 4, 8, 16], colors=[ink()], linewidths=1.0)
    ax.clabel(lines, fmt="%g")
    for place, name, at in ((1, "along the data", [3.0, 2.0]), (2, "across it", [-1.5, 2.25])):
        far = np.sqrt(at @ np.linalg.inv(hessian) @ at)
        ax.plot(*at, "*", markersize=13, color=colour(place), label=f"{name}: norm {far:.2g}")
    ax.set(xlabel="column 1", ylabel="column 2", aspect="equal", xlim=(-5, 5), ylim=(-3.6, 3.6))
    ax.legend(loc="lower right")
    return drawn


@figure
def cascade() -> Figure:
    """Which step decided the held-out labels of a few data sets."""
    X, y = cancer()
    wine = load_wine()
    two = wine.target < 2
    diabetes = load_diabetes()
    random = np.random.default_rng(0)
    genes = np.exp(random.normal(size=(100, 3000)))
    ill = genes[:, :10].sum(axis=1) + random.normal(size=100) > np.median(genes[:, :10].sum(axis=1))
    problems = {
        "breast_cancer 569 x 30": glru.Problem(X, y, penalty=glru.L2(0.01)),
        "the same, weak penalty": glru.Problem(X, y, penalty=glru.L2(1e-4)),
        "wine, 2 classes 130 x 13": glru.Problem(scale(wine.data[two]), wine.target[two], penalty=glru.L2(0.01)),
        "diabetes, halves 442 x 10": glru.Problem(
            scale(diabetes.data),
            diabetes.target > np.median(diabetes.target),
            penalty=glru.L2(0.01),
            fit_intercept=True,
        ),
        "generated genes 100 x 3000": glru.Problem(scale(genes), ill, penalty=glru.L2(0.1), fit_intercept=True),
    }
    counts = {name: glru.loocv(problem, width="labels").decided_by for name, problem in problems.items()}
    stages = [
        s
        for s in ("carry", "local", "newton", "refine", "training", "undetermined")
        if any(c.get(s) for c in counts.values())
    ]
    drawn, ax = plt.subplots(figsize=(8.4, 3.2))
    for line, count in enumerate(counts.values()):
        total, start = sum(count.values()), 0.0
        for place, stage in enumerate(stages):
            share = count.get(stage, 0) / total
            ax.barh(line, share, left=start, color=colour(place), label=stage if line == 0 else None, height=0.62)
            if share > 0.04:
                ax.text(
                    start + share / 2,
                    line,
                    str(count[stage]),
                    ha="center",
                    va="center",
                    color="#000000" if ink() != "#222222" else "#ffffff",
                )
            start += share
    ax.set_yticks(range(len(counts)), list(counts))
    ax.invert_yaxis()
    ax.set(xlabel="share of the rows whose label each step decided", xlim=(0, 1))
    ax.legend(ncols=len(stages), loc="lower center", bbox_to_anchor=(0.4, 1.0))
    return drawn


@figure
def rounding() -> Figure:
    """Proven and true distance of models that are trained more and more precisely."""
    X, y = cancer()
    problem = glru.Problem(X, y, penalty=glru.L2(0.01))
    best = glru.solve(problem, tol=1e-15).coef
    proven, plain, true = [], [], []
    for tol in 10.0 ** -np.arange(1, 15):
        solution = glru.solve(problem, tol=tol, solver="newton-cg")
        proven.append(np.sqrt(2.0 * solution.gap / 0.01))
        plain.append(np.sqrt(2.0 * max(solution.solver_gap, 1e-20) / 0.01))
        true.append(max(np.linalg.norm(solution.coef - best), 1e-12))
    drawn, ax = plt.subplots(figsize=(8.0, 3.6))
    iterations = 10.0 ** -np.arange(1, 15)
    ax.loglog(
        iterations, proven, "o-", color=colour(0), label="proven distance: $\\sqrt{2G/\\lambda}$, rounding included"
    )
    ax.loglog(iterations, true, "s--", color=colour(1), label="true distance from the optimum")
    ax.invert_xaxis()
    ax.set(xlabel="tolerance of the training", ylabel="distance of the coefficients")
    ax.legend()
    return drawn


SIZES = (20, 30, 50, 80, 130)


@cache
def biases() -> dict[str, list[float]]:
    """How far the mean estimate of the squared error is from the true one, in per cent, for every number of rows."""
    random = np.random.default_rng(0)
    truth = np.r_[1.2, -1.0, 0.8, 0.6, np.zeros(11)]
    found: dict[str, list[float]] = {"leave-one-out": [], "5 folds": [], "2 folds": []}
    for size in SIZES:
        estimates: dict[str, list[float]] = {name: [] for name in found}
        true = []
        for _ in range(60):
            X = random.normal(size=(size, truth.size))
            y = X @ truth + random.normal(size=size)
            model = glru.solve(glru.Problem(X, y, loss=glru.Squared(), penalty=glru.L2(0.05)))
            true.append(
                1.0 + np.sum(np.square(model.coef - truth))
            )  # of fresh rows: their noise, and the model's error
            estimates["leave-one-out"].append(np.mean(glru.loocv(model).metric_bounds("squared_error")))
            for count in (5, 2):
                result = glru.cross_val_predict(model, cv=count, width=1e-3)
                estimates[f"{count} folds"].append(np.mean(result.metric_bounds("squared_error")))
        for name in found:
            found[name].append(100.0 * (np.mean(estimates[name]) / np.mean(true) - 1.0))
    return found


@figure
def folds() -> Figure:
    """Estimates of the squared error by leave-one-out and by folds, beside the true one."""
    drawn, ax = plt.subplots(figsize=(8.0, 3.6))
    for (name, bias), marker in zip(biases().items(), "osD", strict=True):
        ax.semilogx(SIZES, bias, marker + "-", label=name)
    ax.axhline(0.0, color=ink(), linewidth=0.9)
    ax.set_xticks(SIZES, [str(size) for size in SIZES])
    ax.minorticks_off()
    ax.set(xlabel="rows", ylabel="bias, %", title="Estimated squared error of a ridge regression (mean of 60 draws)")
    ax.legend()
    return drawn


def draw_layers(layers: list[str]) -> Figure:
    """The layers of the package as a stack of boxes, top first."""
    drawn, ax = plt.subplots(figsize=(6.4, 0.34 * len(layers) + 0.4))
    bands = {"cli": 0, "selection": 1, "cascade": 2, "certificate": 3, "rows": 4}
    place = 0
    for line, layer in enumerate(layers):
        place = bands.get(layer.split(" | ")[0], place)
        ax.add_patch(
            FancyBboxPatch(
                (0, -line),
                1,
                0.72,
                boxstyle="round,pad=0,rounding_size=0.08",
                facecolor=colour(place),
                alpha=0.28,
                edgecolor=colour(place),
            )
        )
        ax.text(
            0.5,
            -line + 0.34,
            layer.replace(" | ", "   |   "),
            ha="center",
            va="center",
            family="monospace",
            fontsize=9.5,
        )
    ax.set(xlim=(-0.02, 1.02), ylim=(-len(layers) + 0.8, 1.0))
    ax.axis("off")
    return drawn
