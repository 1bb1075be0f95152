"""``solve``: choose a solver, run it, and return a solution whose gap was computed afresh."""

from glru.problem import Problem
from glru.solution import Point, Solution, solution_at
from glru.solvers.common import Stop, zero_point
from glru.solvers.newton import newton

def solve(problem, tol=1e-6, solver="auto", start=None, until=None, max_iter=None):
    stop = Stop(tol, until, max_iter or 100)
    run = newton(problem, start or zero_point(problem), stop)
    return solution_at(problem, run.point, run.n_iter, run.status, "newton")
