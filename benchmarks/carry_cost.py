"""Time to bound the removal of one row or column with the carried candidate, as the rest of the data grows.

Each time is that of ``after(solution, change, candidate="carry", bound="primal").score_bounds(query)`` for one query,
given the solution's own certificate, which is computed once for all changes. The time should depend on the size of
the change alone: one row has d entries whatever n, one column n entries whatever d.
"""

import time

import numpy as np
import scipy.sparse as sp

import glru
from benchmarks.timing import print_table
from glru.solution import make_solution

CASES = [
    ("row, dense", [(10_000, 50), (100_000, 50), (1_000_000, 50)]),
    ("column, dense", [(1_000, 1_000), (1_000, 10_000), (1_000, 100_000)]),
    ("column, sparse", [(10_000, 1_000), (10_000, 10_000), (10_000, 100_000)]),
]
ENTRIES = 50
"""Non-zero entries of a sparse row, at most."""
TARGET = 1.5
ROUNDS = 200
SEED = 0


def matrix(n: int, d: int, sparse: bool):
    """Random rows."""
    random = np.random.default_rng(SEED)
    if not sparse:
        return random.standard_normal((n, d))
    places = np.repeat(np.arange(n), ENTRIES), random.integers(d, size=n * ENTRIES)
    return sp.csr_array((random.standard_normal(n * ENTRIES), places), shape=(n, d))


def first_solution(n: int, d: int, sparse: bool) -> glru.Solution:
    """A model after one gradient step: how well it is trained changes nothing in the cost of carrying it."""
    X = matrix(n, d, sparse)
    y = np.where(np.random.default_rng(SEED).random(n) < 0.5, -1.0, 1.0)
    problem = glru.Problem(X, y, penalty=glru.L2(0.1))
    return make_solution(problem, glru.Point(X.T @ (y / n)), 0, "stopped", "")


def times(solutions: list[glru.Solution], by_row: bool) -> list[float]:
    """Median seconds for each solution. The solutions take turns, so that a disturbance of the machine hits them all."""
    random = np.random.default_rng(SEED)
    seconds = np.empty((ROUNDS, len(solutions)))
    for turn in range(-1, ROUNDS):  # the first turn makes the certificates and does not count
        for place, solution in enumerate(solutions):
            problem = solution.problem
            which = [int(random.integers(problem.n_rows if by_row else problem.n_columns))]
            change = glru.RemoveRows(which) if by_row else glru.RemoveColumns(which)
            query = problem.X[:1] if by_row else problem.X[:1, 1:]
            begin = time.perf_counter()
            glru.after(solution, change, candidate="carry", bound="primal").score_bounds(query)
            seconds[turn, place] = time.perf_counter() - begin
    return [float(median) for median in np.median(seconds, axis=0)]


def run() -> None:
    """Print the table."""
    rows = []
    for what, sizes in CASES:
        solutions = [first_solution(n, d, "sparse" in what) for n, d in sizes]
        measured = times(solutions, by_row="row" in what)
        for (n, d), seconds in zip(sizes, measured, strict=True):
            ratio = seconds / measured[0]
            verdict = "yes" if ratio <= TARGET else "no"
            rows.append([f"one {what}", f"{n} x {d}", f"{1e6 * seconds:.0f}", f"{ratio:.2f}", verdict])
    header = ["removed", "data", "microseconds", "ratio", f"within {TARGET}"]
    print_table("Bounding one removal with the carried candidate", header, rows)
