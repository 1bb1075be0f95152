"""
Five million rows from disk
===========================

A memory map is never read into memory as a whole: training and leave-one-out are a few passes over blocks of its rows, with the same proofs.
"""

import os
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import glru

plt.style.use("tableau-colorblind10")
ROWS = int(os.environ.get("GLRU_EXAMPLE_ROWS", "5_000_000"))

# %%
# Write the rows, block by block: 400 MB.
random = np.random.default_rng(0)
folder = tempfile.TemporaryDirectory()
X = np.memmap(Path(folder.name) / "X.bin", dtype=np.float64, mode="w+", shape=(ROWS, 10))
y = np.empty(ROWS, dtype=bool)
truth = np.array([1.0, -0.8, 0.6, -0.4, 0.2, 0.0, 0.0, 0.0, 0.0, 0.0])
for first in range(0, ROWS, 500_000):
    rows = slice(first, min(ROWS, first + 500_000))
    block = random.standard_normal((rows.stop - first, 10))
    X[rows] = block
    y[rows] = block @ truth + random.logistic(size=rows.stop - first) > 0.0

# %%
# Train, and leave out every row.
start = time.perf_counter()
solution = glru.solve(glru.Problem(X, y, penalty=glru.L2(2.0**-10), fit_intercept=True))
fitted = time.perf_counter()
result = glru.loocv(solution, width="labels")
done = time.perf_counter()
print(f"{ROWS:,} rows: fit {fitted - start:.1f} s, leave-one-out {done - fitted:.1f} s, {result.n_passes:g} passes")
print(f"held-out errors: {result.errors_lower:,} to {result.errors_upper:,}, {result.n_undetermined} labels open")

# %%
# How far leaving a row out moves its own score, for a sample of rows: the larger the row, the more.
sample = random.choice(ROWS, 5000, replace=False)
old = X[sample] @ solution.coef + solution.intercept
moves = np.abs(result.scores[sample] - old)
fig, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
ax.loglog(np.linalg.norm(X[sample], axis=1), np.maximum(moves, 1e-12), ".", markersize=2)
ax.set(xlabel="length of the row", ylabel="move of its score", title="The effect of a row on its own prediction")
plt.show()
del X, solution
folder.cleanup()
