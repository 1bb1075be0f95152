"""Held-out scores of every row: how far are they from those of exact retraining?"""

import numpy as np
from benchopt import BaseObjective


class Objective(BaseObjective):
    """Minimise, without each row, the sum of the losses and ``lmbd / 2`` times the squared coefficients; no intercept."""

    name = "Leave-one-out"
    min_benchopt_version = "1.7"
    parameters = {"lmbd": [1.0, 0.01]}

    def set_data(self, X, y, loss):
        self.X, self.y, self.loss = X, y, loss
        self.exact = held_out_scores(X, y, self.lmbd, loss)
        self.own_error = 1e-9 * (1.0 + np.abs(self.exact))

    def get_objective(self):
        return {"X": self.X, "y": self.y, "lmbd": self.lmbd, "loss": self.loss}

    def get_one_result(self):
        return {"scores": np.zeros(len(self.y))}

    def evaluate_result(self, scores, lower=None, upper=None):
        found = {"value": float(np.max(np.abs(scores - self.exact)))}
        if self.loss == "logistic":
            found["wrong_labels"] = int(np.sum(np.sign(scores) != np.sign(self.exact)))
        if lower is not None:
            below, above = self.exact < lower - self.own_error, self.exact > upper + self.own_error
            found["outside"] = int(np.sum(below | above))
            found["width"] = float(np.max(upper - lower))
        return found


def held_out_scores(X, y, lmbd, loss):
    """The scores of all rows under models that are trained without them, by Newton's method to the last digits."""
    scores = np.empty(len(y))
    start = np.zeros(X.shape[1])
    for row in range(len(y)):
        others = np.arange(len(y)) != row
        model = train(X[others], y[others], lmbd, loss, start)
        scores[row] = X[row] @ model
        start = model
    return scores


def train(X, y, lmbd, loss, start):
    """Damped Newton steps, in as many unknowns as the smaller side of X has, until they no longer help."""
    wide = X.shape[0] < X.shape[1]
    w = start
    for _ in range(200):
        z = X @ w
        if loss == "squared":
            slope, curvature = z - y, np.ones_like(z)
        else:
            chance = 0.5 * (1.0 - np.tanh(0.5 * y * z))
            slope, curvature = -y * chance, chance * (1.0 - chance)
        gradient = X.T @ slope + lmbd * w
        if wide:
            root = np.sqrt(curvature)
            inner = lmbd * np.eye(len(y)) + root[:, None] * (X @ X.T) * root
            step = -(gradient - X.T @ (root * np.linalg.solve(inner, root * (X @ gradient)))) / lmbd
        else:
            step = -np.linalg.solve(X.T @ (curvature[:, None] * X) + lmbd * np.eye(X.shape[1]), gradient)
        decrement = -float(gradient @ step)
        if decrement <= 1e-24 * (1.0 + float(w @ w)):
            return w + step
        w = w + step / (1.0 + np.sqrt(decrement) if loss == "logistic" and decrement > 1.0 else 1.0)
    return w
