"""
Which patients carry the result?
================================

A study reports a coefficient. Would it still be there without one patient, and without which one? One model per patient answers that; their coefficients are
bounded here without training them.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import scale

import glru

plt.style.use("tableau-colorblind10")
data = load_diabetes(as_frame=True)
severe = np.asarray(data.target > 200)
X, names = scale(data.data), list(data.data.columns)
solution = glru.solve(glru.Problem(X, severe, penalty=glru.L2(0.001), fit_intercept=True), tol=1e-10)
column = names.index("bmi")
print(f"coefficient of the body mass index: {solution.coef[column]:.4f}")

# %%
# Leave every patient out in turn. The bounds are so narrow that they are one number each.
lower, upper = (
    np.array(ends)[:, column]
    for ends in zip(
        *(glru.after(solution, glru.RemoveRows([row])).coef_bounds() for row in range(len(severe))), strict=True
    )
)
print(f"widest interval: {np.max(upper - lower):.1e}")
moves = 0.5 * (lower + upper) - solution.coef[column]

# %%
# A handful of patients move it by several per cent each.
order = np.argsort(np.abs(moves))[::-1]
fig, ax = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
ax.vlines(np.arange(len(moves)), 0.0, moves, color="C0", linewidth=1.0)
for row in order[:5]:
    ax.annotate(f"patient {row}", (row, moves[row]), fontsize=8, ha="center", va="bottom" if moves[row] > 0 else "top")
ax.axhline(0.0, color="black", linewidth=0.8)
ax.set(
    xlabel="patient left out",
    ylabel="change of the coefficient",
    title="Coefficient of the body mass index without each patient",
)
ax.margins(y=0.15)
plt.show()

# %%
# How many patients, chosen to hurt most, until it is 20 % smaller? All removed at once, proven:
direction = np.sign(solution.coef[column])
helpful = np.argsort(direction * moves)
for count in (5, 10, 20, 30):
    low, high = glru.after(solution, glru.RemoveRows(helpful[:count])).coef_bounds()
    print(f"without {count:>2}: between {low[column]:.5f} and {high[column]:.5f}")
