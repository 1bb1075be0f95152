"""glru: held-out scores with proven intervals."""

from benchopt import BaseSolver

import glru


class Solver(BaseSolver):
    """``labels`` stops when every label is decided, a number when every interval is that narrow."""

    name = "glru"
    requirements = ["pip::glru"]
    sampling_strategy = "run_once"
    parameters = {"width": ["default", "labels", 1e-6]}

    def skip(self, X, y, lmbd, loss):
        if loss == "squared" and self.width == "labels":
            return True, "a regression has no labels"
        return False, None

    def set_objective(self, X, y, lmbd, loss):
        kind = glru.Logistic() if loss == "logistic" else glru.Squared()
        self.problem = glru.Problem(X, y, loss=kind, penalty=glru.L2(lmbd), scaling="sum")
        self.run(None)  # kernels are compiled before the clock starts

    def run(self, _):
        self.result = glru.loocv(self.problem, width=None if self.width == "default" else self.width)

    def get_result(self):
        return {
            "scores": self.result.scores,
            "lower": self.result.score_lower,
            "upper": self.result.score_upper,
        }
