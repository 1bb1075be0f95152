"""Data in blocks: the shape of SUSY, more data than memory, sparse data with many columns, and what is moved.

``GLRU_SCALE`` multiplies all numbers of rows (1 by default; 0.02 is a quick look).

SUSY's shape: 18 columns, standardised, of which eight are independent (three of them skewed, as momenta are) and ten are
noisy combinations of those, their squares and products; labels from a logistic model, 46 % of them positive, which a linear
model gets right for about 79 % of the rows. The sparse rows have 50 non-zeros each, in columns whose frequencies fall like
those of words.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import glru
from benchmarks.timing import peak_memory, print_table

SCALE = float(os.environ.get("GLRU_SCALE", "1"))


def run() -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory() as folder:
        _susy(Path(folder))
        _little_memory(Path(folder))
    try:
        import dask.array  # noqa: F401
    except ImportError:
        print("\nsparse rows, what is moved: skipped; install glru[dask].")
        return
    _sparse()
    _traffic()


def rows_of(n: int) -> int:
    """A number of rows, scaled."""
    return max(2000, int(n * SCALE))


def _susy(folder: Path) -> None:
    rows = []
    for n in map(rows_of, (100_000, 1_000_000, 5_000_000)):
        X, y = susy(folder, n)
        glru.loocv(glru.Problem(X, y, penalty=glru.L2(2.0**-10)))  # kernels compiled, pages in memory
        best = [np.inf] * 3
        for _ in range(3):
            ticks = [time.perf_counter()]
            problem = glru.Problem(X, y, penalty=glru.L2(2.0**-10))
            ticks.append(time.perf_counter())
            solution = glru.solve(problem)
            ticks.append(time.perf_counter())
            result = glru.loocv(solution)
            ticks.append(time.perf_counter())
            best = np.minimum(best, np.diff(ticks)).tolist()
        rows.append(
            [
                f"{n} x 18",
                *(f"{seconds:.3f}" for seconds in best),
                f"{best[2] / best[1]:.2f}",
                *(f"{seconds / n * 1e9:.0f}" for seconds in best[1:]),
                f"{solution.n_passes:.0f} + {result.n_passes:.0f}",
                f"{solution.relative_gap:.0e}",
                f"{result.errors_lower / n:.4f}",
                str(result.n_undetermined),
            ]
        )
    header = [
        "data",
        "check s",
        "fit s",
        "loocv s",
        "ratio",
        "fit ns a row",
        "loocv ns a row",
        "passes",
        "gap",
        "error",
    ]
    print_table("SUSY's shape, memory-mapped, lam = 2^-10; certified", [*header, "undetermined"], rows)


def susy(folder: Path, n: int):
    """Memory-mapped data of SUSY's shape, and labels; see the module's text."""
    X = np.memmap(folder / f"susy-{n}.bin", dtype=np.float64, mode="w+", shape=(n, 18))
    y = np.empty(n)
    fixed = np.random.default_rng(7)
    mixing, squares = fixed.normal(size=(8, 10)), fixed.normal(size=(8, 10)) / 4.0
    coef = fixed.normal(size=18) * 0.42
    for start in range(0, n, 250_000):
        random = np.random.default_rng([1, start])
        low = random.standard_normal((min(250_000, n - start), 8))
        low[:, :3] = np.exp(0.5 * low[:, :3]) - np.exp(0.125)
        high = low @ mixing + (low**2 - 1.0) @ squares + random.standard_normal((len(low), 10))
        block = np.hstack([low, high / np.sqrt(1.0 + (mixing**2 + 2.0 * squares**2).sum(axis=0))])
        chance = 1.0 / (1.0 + np.exp(-(block @ coef - 0.25)))
        X[start : start + len(low)] = block
        y[start : start + len(low)] = np.where(random.random(len(low)) < chance, 1.0, -1.0)
    X.flush()
    return np.memmap(folder / f"susy-{n}.bin", dtype=np.float64, mode="r", shape=(n, 18)), y


LITTLE = """
import resource, sys, time
import numpy as np, glru
from pathlib import Path
path, n, room = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
X = np.memmap(path, dtype=float, mode="r", shape=(n, 18))
y = np.memmap(path + ".y", dtype=float, mode="r", shape=(n,))
glru.loocv(glru.Problem(X[:4000], y[:4000], penalty=glru.L2(2.0**-10)), output=sys.argv[4] + "-first")
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
limit = int(status["VmData"].split()[0]) * 1024 + room
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
begin = time.perf_counter()
problem = glru.Problem(X, y, penalty=glru.L2(2.0**-10), block_bytes=16 << 20)
result = glru.loocv(problem, output=sys.argv[4])
seconds = time.perf_counter() - begin
print(f"{seconds:.1f}\\t{problem.traffic.passes:.0f}\\t{result.errors_lower / n:.4f}\\t{result.n_undetermined}")
"""


def _little_memory(folder: Path) -> None:
    """A process whose own memory is limited far below the data's size; results go to files."""
    n = rows_of(25_000_000)
    X, y = susy(folder, n)
    path = folder / f"susy-{n}.bin"
    np.asarray(y).tofile(f"{path}.y")
    room = max(256 << 20, X.nbytes // 12)
    command = [sys.executable, "-c", LITTLE, str(path), str(n), str(room), str(folder / "results")]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        sys.exit(f"the run with little memory failed:\n{process.stderr}")
    found = process.stdout.strip().split("\t")
    row = [f"{n} x 18", f"{X.nbytes / 1e9:.2f}", f"{room / 1e9:.2f}", *found]
    header = ["data", "GB", "room GB", "seconds, all", "passes", "error", "undetermined"]
    print_table("A limit on the process's data (RLIMIT_DATA), certified leave-one-out to files", header, [row])


def _sparse() -> None:
    """Training and carried bounds of rows with many columns, blocks of CSR data held by dask."""
    n, d = rows_of(2_000_000), max(4000, int(100_000 * min(1.0, 4.0 * SCALE)))
    X, y = sparse_rows(n, d)
    rows = []
    for exponent in (-6, -10):
        problem = glru.Problem(X, y, penalty=glru.L2(2.0**exponent))
        begin = time.perf_counter()
        solution = glru.solve(problem, tol=1e-6)
        middle = time.perf_counter()
        result = glru.loocv(solution)
        end = time.perf_counter()
        rows.append(
            [
                f"{n} x {d}",
                f"2^{exponent}",
                f"{middle - begin:.1f}",
                f"{solution.n_passes:.0f}",
                f"{solution.relative_gap:.0e}",
                f"{end - middle:.1f}",
                f"{result.n_passes:.0f}",
                f"{1.0 - result.n_undetermined / n:.4f}",
                f"{result.errors_lower / n:.4f} to {result.errors_upper / n:.4f}",
            ]
        )
    header = ["data", "lam", "fit s", "passes", "gap", "loocv s", "passes", "decided", "error"]
    print_table(f"Sparse rows, 50 non-zeros each, carried bounds; peak {peak_memory() / 1e9:.1f} GB", header, rows)


def sparse_rows(n: int, d: int):
    """A dask array of CSR blocks, kept in memory, and labels."""
    import dask
    import dask.array as da

    height = 100_000
    weight = np.random.default_rng(3).normal(size=d)
    lengths = [min(height, n - start) for start in range(0, n, height)]
    make = dask.delayed(_sparse_block, pure=False)
    parts = [make(k, length, d, weight) for k, length in enumerate(lengths)]
    parts = dask.persist(*parts)
    meta = _sparse_block(0, 1, d, weight)[0]
    X = [da.from_delayed(part[0], (size, d), meta=meta) for part, size in zip(parts, lengths, strict=True)]
    y = [da.from_delayed(part[1], (size,), dtype=float) for part, size in zip(parts, lengths, strict=True)]
    return da.concatenate(X), da.concatenate(y)


def _sparse_block(number: int, n: int, d: int, weight):
    import scipy.sparse as sp

    random = np.random.default_rng([5, number])
    columns = (d * random.random((n, 50)) ** 3).astype(np.int32)
    values = 1.0 + random.random((n, 50))
    X = sp.csr_array((values.ravel(), columns.ravel(), np.arange(0, 50 * n + 1, 50)), shape=(n, d))
    X.sum_duplicates()
    X = X / np.sqrt(X.multiply(X).sum(axis=1))[:, None]
    noise = random.standard_normal(n)
    return sp.csr_matrix(X), np.where(X @ weight + 0.5 * noise > 0.0, 1.0, -1.0)


def _traffic() -> None:
    """Passes and bytes against the model of docs/scale.md."""
    import dask.array as da

    rows, d = [], 40
    for n in map(rows_of, (50_000, 500_000, 2_000_000)):
        random = da.random.default_rng(0)
        X = random.standard_normal((n, d), chunks=(max(500, n // 16), d)).persist()
        noise = random.standard_normal(n, chunks=X.chunks[0]).persist()
        y = da.where(X[:, 0] - X[:, 1] + noise > 0.0, 1.0, -1.0)
        problem = glru.Problem(X, y, penalty=glru.L2(2.0**-10))
        check = problem.traffic.up
        solution = glru.solve(problem)
        fit, passes = problem.traffic.up - check, solution.n_passes
        result = glru.loocv(solution)
        held_out = problem.traffic.up - fit - check
        model_fit = passes * problem.n_blocks * 8 * (d * d + d + 2)
        rows.append(
            [
                f"{n} x {d}",
                str(problem.n_blocks),
                f"{passes:.0f} + {result.n_passes:.0f}",
                f"{fit / 1e6:.2f}",
                f"{model_fit / 1e6:.2f}",
                f"{held_out / n:.2f}",
                "17 + 24 a block",
            ]
        )
    header = ["data", "blocks", "passes", "fit MB up", "model", "loocv bytes a row up", "model"]
    print_table("What workers send home", header, rows)
