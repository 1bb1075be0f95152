"""Approximate leave-one-out: one Newton step per row from the model of all rows."""

import numpy as np
from benchopt import BaseSolver
from sklearn.linear_model import LogisticRegression


class Solver(BaseSolver):
    """A row's score moves by ``g Q / (1 - d Q)``: slope g, curvature d, Q its norm in the inverse Hessian. Exact for the squared loss."""

    name = "newton-step"
    requirements = ["scikit-learn"]
    sampling_strategy = "run_once"

    def set_objective(self, X, y, lmbd, loss):
        self.X, self.y, self.lmbd, self.loss = X, y, lmbd, loss

    def run(self, _):
        X, y, lmbd = self.X, self.y, self.lmbd
        if self.loss == "squared":
            scores = X @ inverse_product(X, np.ones(len(y)), lmbd, X.T @ y)
            slope, curvature = scores - y, np.ones(len(y))
        else:
            model = LogisticRegression(C=1.0 / lmbd, fit_intercept=False, tol=1e-10, max_iter=10_000).fit(X, y)
            scores = X @ model.coef_[0]
            chance = 1.0 / (1.0 + np.exp(y * scores))
            slope, curvature = -y * chance, chance * (1.0 - chance)
        leverages = np.einsum("ij,ji->i", X, inverse_product(X, curvature, lmbd, X.T))
        self.scores = scores + slope * leverages / (1.0 - curvature * leverages)

    def get_result(self):
        return {"scores": self.scores}


def inverse_product(X, curvature, lmbd, right):
    """``(X^T D X + lmbd I)^-1 right`` by a system of the smaller side of X."""
    if X.shape[1] <= X.shape[0]:
        return np.linalg.solve(X.T @ (curvature[:, None] * X) + lmbd * np.eye(X.shape[1]), right)
    root = np.sqrt(curvature)[:, None] * X
    inner = lmbd * np.eye(X.shape[0]) + root @ root.T
    return (right - root.T @ np.linalg.solve(inner, root @ right)) / lmbd
