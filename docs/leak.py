"""Draw ``docs/leak.png``: how far off leave-one-out is when the scaler is fitted once, to all rows.

Rows are drawn at random from data that scikit-learn has, 25 at each size. Each time the held-out scores of all rows are computed
twice: behind a ``StandardScaler`` that is fitted again without each row, and behind one that has seen the row it is tested on.

    python docs/leak.py
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import glru

SIZES, DRAWS = (12, 16, 24, 32, 48, 64, 96, 128), 25


def log_losses(X, y, C=1.0):
    """The held-out log-loss with the scaler fitted inside the folds, and with the one fitted once."""
    model = LogisticRegression(C=C)
    inside = glru.loocv(make_pipeline(StandardScaler(), model), X, y)
    once = glru.loocv(model, StandardScaler().fit_transform(X), y)
    return [np.mean(result.metric_bounds("log_loss")) for result in (inside, once)], np.abs(inside.scores - once.scores)


def heavy_tails(seed=0):
    """Two classes in ten columns of log-normal numbers, as concentrations are."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 2, 400)
    return np.exp(1.5 * random.normal(size=(400, 10)) + 0.8 * y[:, None] * (np.arange(10) < 3)), y


def draw(axes, name, X, y):
    """Both curves of one dataset: the bias of the log-loss, and the move of the scores."""
    random = np.random.default_rng(1)
    medians = []
    for size in SIZES:
        gaps, moves = [], []
        while len(gaps) < DRAWS:
            rows = random.choice(len(y), size, replace=False)
            if np.bincount(y[rows], minlength=2).min() < 3:
                continue
            (inside, once), moved = log_losses(X[rows], y[rows])
            gaps.append(100.0 * (inside - once) / inside)
            moves.append(moved.max())
        medians.append((*np.quantile(gaps, [0.5, 0.1, 0.9]), np.median(moves)))
    middle, low, high, moved = np.array(medians).T
    (line,) = axes[0].plot(SIZES, middle, marker="o", label=name)
    axes[0].fill_between(SIZES, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    axes[1].plot(SIZES, moved, marker="o", color=line.get_color(), label=name)


if __name__ == "__main__":
    wine = load_wine()
    rows = wine.target < 2
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    draw(axes, "breast_cancer, 30 columns", *load_breast_cancer(return_X_y=True))
    draw(axes, "wine, 13 columns", wine.data[rows], wine.target[rows])
    draw(axes, "log-normal, 10 columns", *heavy_tails())
    axes[0].axhline(0.0, color="black", linewidth=0.8)
    axes[0].set(title="Held-out log-loss: too good by", ylabel="% of the honest one (median, 10 to 90 %)")
    axes[1].set(title="Held-out scores: largest error", ylabel="log-odds (median over draws)", yscale="log")
    for place in axes:
        place.set_xscale("log", base=2)
        place.set_xticks(SIZES, [str(size) for size in SIZES])
        place.set_xlabel("rows")
        place.grid(alpha=0.3)
    axes[1].legend(loc="lower left")
    figure.suptitle("Leave-one-out behind a StandardScaler that was fitted once, to all rows")
    figure.savefig(Path(__file__).with_name("leak.png"), dpi=110)
