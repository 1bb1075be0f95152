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
        gram = X @ X.T
        if self.loss == "squared":
            scores = gram @ np.linalg.solve(gram + lmbd * np.eye(len(y)), y)
            slope, curvature = scores - y, np.ones(len(y))
        else:
            model = LogisticRegression(C=1.0 / lmbd, fit_intercept=False, tol=1e-10, max_iter=10_000).fit(X, y)
            scores = X @ model.coef_[0]
            chance = 1.0 / (1.0 + np.exp(y * scores))
            slope, curvature = -y * chance, chance * (1.0 - chance)
        root = np.sqrt(curvature)
        inner = lmbd * np.eye(len(y)) + root[:, None] * gram * root
        leverages = (
            np.diag(gram) - np.einsum("ij,ij->j", root[:, None] * gram, np.linalg.solve(inner, root[:, None] * gram))
        ) / lmbd
        self.scores = scores + slope * leverages / (1.0 - curvature * leverages)

    def get_result(self):
        return {"scores": self.scores}
