"""
Deleting a customer, and proving it
===================================

A customer asks to be forgotten. The row is deleted; but the model was trained on it. A live model records the removal, keeps answering as the retrained
model would, and issues a receipt that others can check.
"""

import json

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import scale

import glru

plt.style.use("tableau-colorblind10")
X, y = load_breast_cancer(return_X_y=True)
X, fresh, y = scale(X)[:450], scale(X)[450:], y[:450]
keys = [f"customer-{number:03}" for number in range(450)]
live = glru.LiveModel(LogisticRegression()).fit(X, y, keys=keys)

# %%
# Do the answers to today's queries depend on that customer?
removal = live.remove_rows(keys=["customer-007"])
print(live.needs_retraining(fresh))

# %%
# The receipt: how far the model in use can be from one that never saw the row.
live.refresh()
receipt = live.receipt(removal, fresh)
print(json.dumps({name: receipt[name] for name in ("statement", "certificate")}, indent=2))

# %%
# An auditor has the remaining data and the receipt, and nothing else.
rest = np.arange(450) != 7
found = glru.verify_receipt(receipt, X[rest], y[rest], queries=fresh)
print("valid:", found.valid)
found = glru.verify_receipt(receipt, X, y, queries=fresh)  # the row is still there
print("valid with the row still in the data:", found.valid)

# %%
# How much the scores of all queries can move, for each of sixty customers: most rows hardly matter.
solution = glru.solve(glru.Problem(X, y, penalty=glru.L2(1.0 / 450), fit_intercept=True))
old = fresh @ solution.coef + solution.intercept
largest = []
for row in range(0, 450, 8):
    low, high = glru.after(solution, glru.RemoveRows([row])).score_bounds(fresh)
    largest.append(float(np.max(np.maximum(np.abs(low - old), np.abs(high - old)))))
fig, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
ax.semilogy(np.sort(largest), "o", markersize=4)
ax.set(
    xlabel="customers, sorted",
    ylabel="largest move of a score",
    title="Deleting one customer: proven effect on 119 queries",
)
plt.show()
