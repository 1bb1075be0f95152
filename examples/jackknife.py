"""
Prediction intervals by the jackknife
=====================================

The residuals of held-out rows say how wrong predictions of fresh rows will be; those of the training rows are too small. With exact
leave-one-out the jackknife costs a few fits.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import Ridge
from sklearn.model_selection import LeaveOneOut, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

import glru

plt.style.use("tableau-colorblind10")
X, y = load_diabetes(return_X_y=True)
model = make_pipeline(PolynomialFeatures(2), StandardScaler(), Ridge(alpha=1.0))

# %%
# Fifty splits; in each the 90 % quantile of the residuals, of training rows and of held-out ones, is held against fresh rows.
naive: list[float] = []
jackknife: list[float] = []
for seed in range(50):
    train, test, y_train, y_test = train_test_split(X, y, train_size=120, random_state=seed)
    fitted = model.fit(train, y_train)
    errors = np.abs(y_test - fitted.predict(test))
    held_out = glru.cross_val_predict(model, train, y_train, cv=LeaveOneOut())
    for residuals, coverages in ((y_train - fitted.predict(train), naive), (y_train - held_out, jackknife)):
        coverages.append(float(np.mean(errors <= np.quantile(np.abs(residuals), 0.9, method="higher"))))

# %%
# Intervals that promise 90 %:
print(f"from training residuals {np.mean(naive):.3f}, from held-out residuals {np.mean(jackknife):.3f}")
fig, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
bins = np.linspace(0.4, 1.0, 31).tolist()
ax.hist(naive, bins, label="from training residuals", alpha=0.8)
ax.hist(jackknife, bins, label="from held-out residuals", alpha=0.8)
ax.axvline(0.9, color="black", linestyle="--", label="promised")
ax.set(xlabel="share of fresh rows inside the interval", ylabel="splits", title="120 training rows, 66 columns")
ax.legend(loc="upper left")
plt.show()
