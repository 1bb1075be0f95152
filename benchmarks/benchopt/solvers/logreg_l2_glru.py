"""glru for benchopt's benchmark of logistic regression with an L2 penalty."""

import warnings

import numpy as np
from benchopt import BaseSolver

import glru


class Solver(BaseSolver):
    """Training to a relative duality gap; the tolerance is what benchopt varies."""

    name = "glru"
    requirements = ["pip::glru"]
    sampling_strategy = "tolerance"
    parameters = {"solver": ["auto", "newton", "newton-cg"]}

    def set_objective(self, X, y, lmbd, fit_intercept):
        self.problem = glru.Problem(
            X, y, loss=glru.Logistic(), penalty=glru.L2(lmbd), fit_intercept=fit_intercept, scaling="sum"
        )
        glru.solve(self.problem, tol=0.5, solver=self.solver)  # kernels are compiled before the clock starts

    def run(self, tol):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # float64 ends the training where tol is below what it can reach
            self.solution = glru.solve(self.problem, tol=max(tol, 1e-15), solver=self.solver)

    def get_result(self):
        beta = self.solution.coef
        return {"beta": np.append(beta, self.solution.intercept) if self.problem.fit_intercept else beta}
