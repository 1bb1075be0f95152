"""
What would the model say without one hospital?
==============================================

Data of several sites is pooled, and one site turns out to have measured something else. Which predictions depend on it? Removing its rows is one change, and
its effect is known before anything is retrained.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import scale

import glru

plt.style.use("tableau-colorblind10")
X, y = load_breast_cancer(return_X_y=True)
X, fresh, y = scale(X)[:400], scale(X)[400:], y[:400]
hospital = np.random.default_rng(0).integers(0, 8, 400)
solution = glru.solve(glru.Problem(X, y, penalty=glru.L2(0.003), fit_intercept=True))
old = np.where(fresh @ solution.coef + solution.intercept > 0.0, 1, 0)

# %%
# Each hospital in turn: labels of fresh patients that would be others, and how many are proven.
fig, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
for site in range(8):
    out = glru.after(solution, glru.RemoveRows(np.flatnonzero(hospital == site)))
    labels = out.labels(fresh)
    flipped = np.flatnonzero(np.ma.filled(labels != old, False))
    low, high = out.score_bounds(fresh)
    moves = 0.5 * (low + high) - (fresh @ solution.coef + solution.intercept)
    print(
        f"hospital {site}, {np.sum(hospital == site)} rows: {flipped.size} labels change, "
        f"{100 * out.determination_rate(fresh):.0f} % are proven"
    )
    ax.plot(np.full(moves.size, site), moves, "o", color="C0", markersize=3, alpha=0.35)
    ax.plot(np.full(flipped.size, site), moves[flipped], "D", color="C1", markersize=6)
ax.axhline(0.0, color="black", linewidth=0.8)
ax.plot([], [], "D", color="C1", label="label changes")
ax.set(xlabel="hospital left out", ylabel="move of the score", title="Fresh patients' scores without each hospital")
ax.legend()
plt.show()
