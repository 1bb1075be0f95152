"""scikit-learn's loop: one training per row."""

from benchopt import BaseSolver
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import LeaveOneOut, cross_val_predict


class Solver(BaseSolver):
    """The default solver and tolerance, and a tight one."""

    name = "sklearn-loop"
    requirements = ["scikit-learn"]
    sampling_strategy = "run_once"
    parameters = {"solver, tol": [("lbfgs", 1e-4), ("newton-cholesky", 1e-10)]}

    def skip(self, X, y, lmbd, loss):
        if loss == "squared" and self.solver != "lbfgs":
            return True, "Ridge has one solver here"
        return False, None

    def set_objective(self, X, y, lmbd, loss):
        self.X, self.y = X, y
        if loss == "squared":
            self.model, self.method = Ridge(alpha=lmbd, fit_intercept=False), "predict"
        else:
            self.method = "decision_function"
            self.model = LogisticRegression(
                C=1.0 / lmbd, fit_intercept=False, solver=self.solver, tol=self.tol, max_iter=10_000
            )

    def run(self, _):
        self.scores = cross_val_predict(self.model, self.X, self.y, cv=LeaveOneOut(), method=self.method)

    def get_result(self):
        return {"scores": self.scores}
