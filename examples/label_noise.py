"""Search a data set for wrong labels: out-of-sample probabilities of every row, each from the model without it.

Tools that look for label errors (confident learning, for example) take an array of held-out probabilities, one line per row. With
scikit-learn that is one training per row or a few folds; here it is leave-one-out, with an interval for every probability.
"""

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import LeaveOneOut

import glru


def main() -> None:
    X, truth = load_digits(return_X_y=True)
    X, truth = X[:600] / 16.0, truth[:600]
    random = np.random.default_rng(0)
    y, wrong = truth.copy(), random.choice(truth.size, 30, replace=False)
    y[wrong] = (y[wrong] + random.integers(1, 10, wrong.size)) % 10

    model = LogisticRegression(C=0.1)
    likely = glru.cross_val_predict(model, X, y, cv=LeaveOneOut(), method="predict_proba")
    suspects = find_suspects(likely, y)
    found = np.intersect1d(suspects, wrong).size
    print(f"{wrong.size} of {y.size} labels were changed; {suspects.size} are suspected, {found} of them rightly.")

    result = glru.loocv(model, X, y)
    lower, upper = result.probability_bounds()
    own = np.arange(y.size), y
    print(f"held-out probabilities of the given labels are known to {float(np.max(upper[own] - lower[own])):.1g}.")
    labels = result.labels
    assert labels is not None
    for row in suspects[np.argsort(likely[own][suspects])][:5]:
        print(f"  row {row:>3}: given {y[row]}, held-out {labels[row]}, was {truth[row]}")


def find_suspects(likely: NDArray[np.float64], y: NDArray[np.int64]) -> NDArray[np.intp]:
    """Rows that another class claims: its probability is at least the mean one that the class has in its own rows."""
    classes = np.arange(likely.shape[1])
    usual = np.array([likely[y == k, k].mean() for k in classes])
    claims = np.where(likely >= usual, likely, 0.0)
    claims[np.arange(y.size), y] *= likely[np.arange(y.size), y] >= usual[y]
    return np.flatnonzero((claims.max(axis=1) > 0.0) & (claims.argmax(axis=1) != y))


if __name__ == "__main__":
    main()
