"""
A table with gaps and categories
================================

Real tables have missing numbers and columns of words. The imputer, the encoder and the scaler learn from the data, so they belong inside the folds: with leave-one-out
they are refitted without each row.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import glru

plt.style.use("tableau-colorblind10")

# %%
# 300 patients; a tenth of the doses and of the pressures is missing.
random = np.random.default_rng(0)
table = pd.DataFrame(
    {
        "age": random.normal(55, 12, 300),
        "dose": np.exp(random.normal(0, 1, 300)),
        "pressure": random.normal(130, 15, 300),
        "clinic": random.choice(["north", "south", "east"], 300),
    }
)
risk = 0.08 * (table.age - 55) + 1.0 * np.log(table.dose) + 1.5 * (table.clinic == "north")
ill = np.asarray(random.random(300) < 1.0 / (1.0 + np.exp(-risk)))
for name in ("dose", "pressure"):
    table.loc[random.random(300) < 0.1, name] = np.nan

# %%
numbers = make_pipeline(SimpleImputer(), StandardScaler())
prepare = make_column_transformer((numbers, ["age", "dose", "pressure"]), (OneHotEncoder(), ["clinic"]))
result = glru.loocv(make_pipeline(prepare, LogisticRegression()), table, ill)
print(result)
for metric in ("accuracy", "log_loss", "roc_auc"):
    print(metric, result.metric_bounds(metric))

# %%
# The held-out probabilities by clinic.
probability = 1.0 / (1.0 + np.exp(-result.scores))
fig, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
for place, clinic in enumerate(("north", "south", "east")):
    for value, marker in ((True, "o"), (False, "x")):
        mine = np.asarray(table.clinic == clinic) & (ill == value)
        spread = place + random.uniform(-0.25, 0.25, mine.sum())
        ax.plot(spread, probability[mine], marker, color=f"C{int(value)}", markersize=4)
ax.plot([], [], "o", color="C1", label="ill")
ax.plot([], [], "x", color="C0", label="not ill")
ax.set_xticks(range(3), ["north", "south", "east"])
ax.set(ylabel="held-out probability", title="Every patient, predicted without that patient")
ax.legend()
plt.show()
