"""
Tuning C by exact leave-one-out
===============================

With folds, the best strength of a penalty depends on how the rows were shuffled. Leave-one-out has no shuffle, and with certified intervals one can tell
whether the best strength of the grid is really the best.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import glru

plt.style.use("tableau-colorblind10")
X, y = load_breast_cancer(return_X_y=True)
X, y = X[::4], y[::4]
Cs = np.logspace(-1, 2, 16)

# %%
# The scaler is refitted without each row, at every strength.
search = glru.GLRUClassifierCV(Cs=Cs, criterion="log_loss", preprocessing=StandardScaler()).fit(X, y)
print(f"best C {search.C_:.3g}, proven to be the best of the grid: {search.certified_}")
widest = np.max(np.subtract(search.criterion_upper_, search.criterion_lower_))
print(f"widest interval of a log-loss: {widest:.1e}")

# %%
# Five folds, shuffled ten times: ten curves, and more than one answer.
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for seed in range(10):
    curve = [
        -glru.cross_val_score(
            make_pipeline(StandardScaler(), LogisticRegression(C=C)),
            X,
            y,
            cv=StratifiedKFold(5, shuffle=True, random_state=seed),
            scoring="neg_log_loss",
        ).mean()
        for C in Cs[::3]
    ]
    ax.semilogx(Cs[::3], curve, color="C1", linewidth=0.8, label="5 folds, ten shuffles" if seed == 0 else None)
    ax.plot(Cs[::3][np.argmin(curve)], min(curve), "o", color="C1", markersize=4)
grid = search.grid_
ax.semilogx(grid, search.criterion_upper_, color="C0", linewidth=2.2, label="leave-one-out, exact")
ax.plot(search.C_, search.criterion_upper_[search.best_index_], "*", color="C0", markersize=14)
ax.set(xlabel="C", ylabel="held-out log-loss", title="142 rows of breast_cancer")
ax.legend()
plt.show()
