"""Peak memory of the direct solver on tall dense data, as a multiple of the data's size."""

import subprocess
import sys

from benchmarks.timing import print_table

SCRIPT = """
import sys, numpy as np, glru
from benchmarks.timing import peak_memory
n, d = int(sys.argv[1]), int(sys.argv[2])
small = np.random.default_rng(0).normal(size=(100, d))
glru.solve(glru.Problem(small, small[:, 0] > 0, penalty=glru.L2(0.1)), solver="newton")
before = peak_memory()
random = np.random.default_rng(0)
X = random.standard_normal((n, d))
y = np.where(X @ random.standard_normal(d) + random.standard_normal(n) > 0, 1.0, -1.0)
glru.solve(glru.Problem(X, y, penalty=glru.L2(0.001)), solver="newton")
print((peak_memory() - before) / X.nbytes)
"""


def run() -> None:
    """Print the table; each size runs in a process of its own."""
    rows = []
    for n, d in [(1_000_000, 50), (400_000, 200)]:
        result = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(n), str(d)], capture_output=True, text=True, check=True
        )
        rows.append([f"{n} x {d}", f"{float(result.stdout):.2f}"])
    print_table("Peak memory of the direct solver, data included", ["data", "times the data"], rows)
