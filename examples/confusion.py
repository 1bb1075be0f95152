"""
A confusion matrix of ten classes, row by row
=============================================

Handwritten digits, one multinomial model: which digits are mistaken for which, if each image is predicted by a model that was trained without it?
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import glru

plt.style.use("tableau-colorblind10")
X, y = load_digits(return_X_y=True)
X, y = X[:900] / 16.0, y[:900]

# %%
result = glru.loocv(LogisticRegression(C=0.5), X, y, width="labels")
print(result)

# %%
# Both ends of the certified counts agree: every label is proven.
least, most = result.confusion_matrix()
print("exact:", np.array_equal(least, most))
errors = np.where(np.eye(10, dtype=bool), 0, least)
fig, ax = plt.subplots(figsize=(5.4, 4.6), layout="constrained")
image = ax.imshow(errors, cmap="cividis")
for row in range(10):
    for column in range(10):
        if errors[row, column]:
            ink = "black" if errors[row, column] > 0.6 * errors.max() else "white"
            ax.text(column, row, str(errors[row, column]), ha="center", va="center", color=ink)
ax.set_xticks(range(10))
ax.set_yticks(range(10))
ax.set(xlabel="held-out label", ylabel="digit", title=f"{errors.sum()} errors of {y.size}, none by chance of a split")
fig.colorbar(image, label="rows")
plt.show()
