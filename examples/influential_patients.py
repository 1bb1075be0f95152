"""
Which patients carry the result?
================================

A study reports a coefficient. Would it still be there without one patient, and without which one? Textbook influence measures take one Newton step
per patient; these are about models that are really retrained without each of them, with bounds.
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
problem = glru.Problem(X, severe, penalty=glru.L2(0.0), fit_intercept=True)
result = glru.influence(problem)
print(result)

# %%
# The patients with the largest Cook's distance; the ranking is proven.
top = result.top(5)
print(top.rows, "certified:", top.certified)

# %%
# Cook's distance joins residual and leverage.
result.plot()
plt.show()

# %%
# What the body mass index owes to each patient, in standard errors of its coefficient.
column = names.index("bmi")
lower, upper = (ends[:, column] for ends in result.dfbetas())
print(f"widest interval: {np.max(upper - lower):.1e} standard errors")
moves = 0.5 * (lower + upper)
fig, ax = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
ax.vlines(np.arange(len(moves)), 0.0, moves, color="C0", linewidth=1.0)
for row in np.argsort(np.abs(moves))[-5:]:
    ax.annotate(f"patient {row}", (row, moves[row]), fontsize=8, ha="center", va="bottom" if moves[row] > 0 else "top")
ax.axhline(0.0, color="black", linewidth=0.8)
ax.set(xlabel="patient left out", ylabel="DFBETAS", title="Coefficient of the body mass index without each patient")
ax.margins(y=0.15)
plt.show()

# %%
# The ten, twenty, thirty patients who support it most, removed at once; coefficients of the retrained models lie in these intervals:
solution = glru.solve(problem, tol=1e-10)
support = np.argsort(moves)[::-1] if solution.coef[column] > 0 else np.argsort(moves)
print(f"with all patients: {solution.coef[column]:.4f}")
for count in (10, 20, 30):
    low, high = glru.after(solution, glru.RemoveRows(support[:count])).coef_bounds()
    print(f"without {count}: between {low[column]:.5f} and {high[column]:.5f}")
