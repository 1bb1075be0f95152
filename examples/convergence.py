"""
What does a convergence warning cost?
=====================================

A solver that stops at ``max_iter`` warns. Does it matter? The certificate of a fitted scikit-learn model bounds how far it is from
the optimum of its own objective.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import scale

import glru

plt.style.use("tableau-colorblind10")
X, y = load_breast_cancer(return_X_y=True)
X = scale(X)
best = LogisticRegression(solver="newton-cholesky", tol=1e-12, C=10.0).fit(X, y)

# %%
# Stop lbfgs after 5 to 320 iterations and certify what it has by then.
iterations = [5, 10, 20, 40, 80, 160, 320]
radii, distances = [], []
for count in iterations:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LogisticRegression(max_iter=count, tol=1e-8, C=10.0).fit(X, y)
    found = glru.certify(model, X, y)
    radii.append(found.radius)
    distances.append(np.linalg.norm(model.coef_ - best.coef_))
    print(f"{count:>3} iterations: {found}")

# %%
# The bound is a few times the true distance, and is known without knowing the optimum.
fig, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
ax.loglog(iterations, radii, "o-", label="proven distance from the optimum")
ax.loglog(iterations, distances, "s--", label="true distance")
ax.set_xticks(iterations, [str(count) for count in iterations])
ax.minorticks_off()
ax.set(xlabel="max_iter", ylabel="distance of the coefficients", title="LogisticRegression(C=10) on breast_cancer")
ax.legend()
plt.show()
