"""
On a GPU, if there is one
=========================

Data on a device stays there: training and leave-one-out run on it. Without PyTorch or without a GPU the same lines run on the CPU and give the same labels.
"""

import time
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import glru

plt.style.use("tableau-colorblind10")

try:
    import torch
except ImportError:
    device = "cpu"
else:
    device = "cuda" if torch.cuda.is_available() else "cpu"
print("device:", device)


def placed(array: np.ndarray) -> Any:
    """The array, on the GPU where there is one."""
    return torch.asarray(array, device=device) if device == "cuda" else array


# %%
# A second call is timed, since the first one loads libraries.
random = np.random.default_rng(0)
sizes = [100, 200, 400, 800] if device == "cpu" else [250, 500, 1000, 2000, 4000]
fits, validations = [], []
for columns in sizes:
    data = random.normal(size=(2 * columns, columns))
    y = data[:, :5].sum(axis=1) + 2.0 * random.normal(size=2 * columns) > 0.0
    X = placed(data)
    for _ in range(2):
        start = time.perf_counter()
        solution = glru.solve(glru.Problem(X, y, penalty=glru.L2(2.0**-5)))
        fitted = time.perf_counter()
        result = glru.loocv(solution, width="labels")
        done = time.perf_counter()
    fits.append(fitted - start)
    validations.append(done - fitted)
    print(f"{2 * columns} x {columns}: {result.n_errors} errors, {result.n_trainings} trainings")

# %%
fig, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
ax.loglog(sizes, fits, "o-", label="one fit")
ax.loglog(sizes, validations, "s-", label="all held-out labels, certified")
ax.set_xticks(sizes, [str(size) for size in sizes])
ax.minorticks_off()
ax.set(xlabel="columns (twice as many rows)", ylabel="seconds", title=f"Logistic regression on the {device.upper()}")
ax.legend()
plt.show()
