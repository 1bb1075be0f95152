"""
Are the probabilities calibrated?
=================================

A reliability diagram of held-out probabilities uses every row once, each predicted by a model that has not seen it. The probabilities of rows that the model was trained
on hide that it is overconfident.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import calibration_curve
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import LeaveOneOut
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import glru

plt.style.use("tableau-colorblind10")

# %%
# 400 rows with 60 columns; the penalty of the first model is too weak.
random = np.random.default_rng(0)
X = random.normal(size=(400, 60))
y = random.random(400) < 1.0 / (1.0 + np.exp(-X[:, :6].sum(axis=1)))
models = {C: make_pipeline(StandardScaler(), LogisticRegression(C=C)) for C in (100.0, 0.05)}

# %%
fig, ax = plt.subplots(figsize=(5.6, 4.6), layout="constrained")
for place, (C, model) in enumerate(models.items()):
    held_out = glru.cross_val_predict(model, X, y, cv=LeaveOneOut(), method="predict_proba")[:, 1]
    seen = model.fit(X, y).predict_proba(X)[:, 1]
    for probabilities, name, line in ((held_out, "held-out", "o-"), (seen, "training", "s:")):
        share, predicted = calibration_curve(y, probabilities, n_bins=8)
        ax.plot(predicted, share, line, color=f"C{place}", label=f"C={C:g}, {name}")
        print(f"C={C:g}, {name}: Brier score {np.mean((probabilities - y) ** 2):.4f}")
ax.plot([0, 1], [0, 1], color="black", linewidth=0.8)
ax.set(
    xlabel="predicted probability", ylabel="share of ones", title="Reliability of held-out and training probabilities"
)
ax.legend()
plt.show()
