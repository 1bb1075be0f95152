"""
Finding wrong labels
====================

Tools that look for label errors (confident learning, for example) take an array of held-out probabilities, one line per row, each from a model that has not seen that
row. With scikit-learn that is one training per row or a few folds; here it is leave-one-out, with an interval for every probability.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import LeaveOneOut

import glru

plt.style.use("tableau-colorblind10")

# %%
# 600 handwritten digits, 30 of which get a wrong label.
X, truth = load_digits(return_X_y=True)
X, truth = X[:600] / 16.0, truth[:600]
random = np.random.default_rng(0)
y, wrong = truth.copy(), random.choice(truth.size, 30, replace=False)
y[wrong] = (y[wrong] + random.integers(1, 10, wrong.size)) % 10
given = np.arange(y.size), y

# %%
# A row is suspected if another class claims it: that class's probability is at least what it has on average in its own rows.
model = LogisticRegression(C=0.1)
likely = glru.cross_val_predict(model, X, y, cv=LeaveOneOut(), method="predict_proba")
usual = np.array([likely[y == label, label].mean() for label in range(10)])
claims = np.where(likely >= usual, likely, 0.0)
claims[given] *= likely[given] >= usual[y]
suspects = np.flatnonzero((claims.max(axis=1) > 0.0) & (claims.argmax(axis=1) != y))
found = np.intersect1d(suspects, wrong).size
print(f"{wrong.size} of {y.size} labels were changed; {suspects.size} are suspected, {found} of them rightly.")

# %%
# The probabilities are exact: these are the intervals of the labels as they were given.
lower, upper = glru.loocv(model, X, y).probability_bounds()
print(f"widest interval: {np.max(upper[given] - lower[given]):.1g}")

# %%
# The ten most suspicious ones.
worst = suspects[np.argsort(likely[given][suspects])][:10]
fig, axes = plt.subplots(2, 5, figsize=(8, 4), layout="constrained")
for ax, row in zip(axes.flat, worst, strict=True):
    ax.imshow(X[row].reshape(8, 8), cmap="gray_r")
    ax.set_title(
        f"given {y[row]}, held-out {likely[row].argmax()}\n{'wrong' if row in wrong else 'right'} label", fontsize=9
    )
    ax.axis("off")
plt.show()
