"""
What does a leaking scaler cost?
================================

A scaler that is fitted to all rows before cross-validation has seen the rows it is tested on. With few rows and heavy-tailed columns that makes the
held-out log-loss look better than it is. This is by how much.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import glru

plt.style.use("tableau-colorblind10")
random = np.random.default_rng(0)


def log_loss(model: object, X: np.ndarray, y: np.ndarray) -> float:
    """The middle of the certified interval, which is narrower than a line of the picture."""
    return float(np.mean(glru.loocv(model, X, y).metric_bounds("log_loss")))


# %%
# Concentrations in ten columns, of which three matter. At every size ten data sets are drawn.
sizes = [15, 25, 40, 70, 120]
shares = []
for size in sizes:
    found: list[float] = []
    while len(found) < 10:
        y = random.random(size) < 0.5
        if min(y.sum(), size - y.sum()) < 4:
            continue
        X = np.exp(1.5 * random.normal(size=(size, 10)) + 0.8 * y[:, None] * (np.arange(10) < 3))
        honest = log_loss(make_pipeline(StandardScaler(), LogisticRegression()), X, y)
        leaking = log_loss(LogisticRegression(), StandardScaler().fit_transform(X), y)
        found.append(100.0 * (honest - leaking) / honest)
    shares.append(np.quantile(found, [0.1, 0.5, 0.9]))

# %%
# The leak is largest where data is scarce, which is where leave-one-out is used.
low, middle, high = np.array(shares).T
fig, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
ax.semilogx(sizes, middle, "o-", label="median of ten data sets")
ax.fill_between(sizes, low, high, alpha=0.2, label="10 % to 90 %")
ax.axhline(0.0, color="black", linewidth=0.8)
ax.set_xticks(sizes, [str(size) for size in sizes])
ax.minorticks_off()
ax.set(xlabel="rows", ylabel="log-loss too good by, %", title="Leave-one-out behind a scaler fitted once")
ax.legend()
plt.show()
