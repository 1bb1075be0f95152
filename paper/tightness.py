r"""Figures 5 and 6: the share of test labels that each bound proves after some rows or columns change.

Beside the shares, the widths of the paper's two bounds against its Section 7.3.3, which for data with columns of norm
:math:`\sqrt n` says :math:`\sqrt{8 G/\lambda}\,\|x\|_2` (Primal-SCB) and
:math:`\sqrt{8 \mu G/\lambda^2}\,\|x\|_1` (Dual-SCB).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.after import After
from glru.api import after
from glru.bounds import is_decided
from glru.changes import AddColumns, AddRows, Change, RemoveColumns, RemoveRows
from glru.linalg import Array, RawMatrix, as_matrix
from glru.regions import DualBox, LocalEllipsoid, PrimalBall
from glru.solution import Solution
from glru.solvers import solve
from paper.configuration import Method
from paper.sources import Data

REGIONS: dict[str, type] = {"primal": PrimalBall, "dual": DualBox, "local": LocalEllipsoid}
TRAINING_SHARE = 0.99
"""Of the rows, where rows change (Section 7.3.1)."""


@final
@dataclass(frozen=True)
class Settings:
    """The numbers of a run.

    Attributes
    ----------
    axis : {"rows", "columns"}
        What is removed and added.
    log2_lam : tuple of int
        Strengths of the penalty, as powers of two.
    tol : float
        Relative gap of the old training.
    seed : int
        Shuffles rows and columns: it chooses test rows and what changes.
    counts : tuple of int
        How many rows or columns change, ascending.
    training_rows, test_rows : int
        Training rows, and test rows at most, where columns change.
    """

    axis: str
    log2_lam: tuple[int, ...]
    tol: float
    seed: int
    counts: tuple[int, ...]
    training_rows: int = 1000
    test_rows: int = 2000


@final
@dataclass(frozen=True, eq=False)
class Case:
    """Training data of an old model, and the changes it is asked about with the test rows that fit each."""

    train: Data
    changes: dict[str, list[tuple[Change, RawMatrix]]]


def case_of(data: Data, settings: Settings) -> Case:
    """The old model lacks some rows or columns: additions bring them back, removals take others out of it."""
    if settings.axis not in ("rows", "columns"):
        raise ValueError(f"axis must be 'rows' or 'columns'; got {settings.axis!r}.")
    return _row_case(data, settings) if settings.axis == "rows" else _column_case(data, settings)


def _row_case(data: Data, settings: Settings) -> Case:
    counts, most = settings.counts, settings.counts[-1]
    order = np.random.default_rng(settings.seed).permutation(data.y.size)
    size = int(TRAINING_SHARE * data.y.size)
    old, new, test = np.split(order, [size - most, size])
    asked = data.X[test]
    removed: list[tuple[Change, RawMatrix]] = [(RemoveRows(np.arange(k)), asked) for k in counts]
    added: list[tuple[Change, RawMatrix]] = [(AddRows(data.X[new[:k]], data.y[new[:k]]), asked) for k in counts]
    return Case(Data(data.X[old], data.y[old]), {"rows removed": removed, "rows added": added})


def _column_case(data: Data, settings: Settings) -> Case:
    counts, most = settings.counts, settings.counts[-1]
    random = np.random.default_rng(settings.seed)
    order, columns = random.permutation(data.y.size), random.permutation(data.X.shape[1])
    new, old = columns[:most], columns[most:]
    rows, others = np.split(order, [settings.training_rows])
    train, test = data.X[rows], data.X[others[: settings.test_rows]]
    removed: list[tuple[Change, RawMatrix]] = [(RemoveColumns(np.arange(k)), test[:, old[k:]]) for k in counts]
    added: list[tuple[Change, RawMatrix]] = [
        (AddColumns(train[:, new[:k]]), test[:, np.append(old, new[:k])]) for k in counts
    ]
    return Case(Data(train[:, old], data.y[rows]), {"columns removed": removed, "columns added": added})


def measure(data: Data, methods: Sequence[Method], settings: Settings) -> Iterator[dict[str, Any]]:
    """One strength of the penalty after the other, each with all changes."""
    case = case_of(data, settings)
    for log2_lam in settings.log2_lam:
        solution = solve(case.train.problem(log2_lam), tol=settings.tol)
        found: dict[str, Any] = {"log2_lam": log2_lam, "training_gap": solution.relative_gap}
        for kind, changes in case.changes.items():
            table = [_rates(solution, change, test, methods) for change, test in changes]
            found[kind] = {
                "test_rows": int(changes[0][1].shape[0]),
                "rates": {method.key: [rates[method.key] for rates, _ in table] for method in methods},
                "theory": [theory for _, theory in table],
            }
        yield found


def _rates(
    solution: Solution, change: Change, test: RawMatrix, methods: Sequence[Method]
) -> tuple[dict[str, float], dict[str, Any]]:
    """The share of labels that each method proves, and how the paper's widths compare with its theory."""
    answers = {method.candidate: after(solution, change, candidate=method.candidate) for method in methods}  # type: ignore[arg-type]
    wanted = {(method.candidate, REGIONS[name]) for method in methods for name in method.regions}
    widths: dict[tuple[str, type], Array] = {}
    proven: dict[tuple[str, type], NDArray[np.bool_]] = {}
    for candidate, answer in answers.items():
        for region in answer.part.regions:
            if (candidate, type(region)) not in wanted:
                continue
            lower, upper = region.score_bounds(as_matrix(test))
            widths[candidate, type(region)] = upper - lower
            proven[candidate, type(region)] = is_decided(lower, upper)
    rates = {}
    for method in methods:
        labels = [proven[method.candidate, REGIONS[name]] for name in method.regions]
        rates[method.key] = float(np.logical_or.reduce(labels).mean())
    theory = compared(answers["carry"], test, widths["carry", PrimalBall], widths["carry", DualBox])
    return rates, theory


def compared(answer: After, test: RawMatrix, primal: Array, dual: Array) -> dict[str, Any]:
    """Measured widths of the two bounds as multiples of Section 7.3.3's, and how often it names the narrower one."""
    problem = answer.solution.problem
    lam, smoothness = problem.penalty.strong_convexity, problem.loss.smoothness
    l2, l1 = _norm(test, 2), _norm(test, 1)
    told = answer.gap > 0.0 and bool(np.any(l2 > 0.0))
    if not told:
        return {"gap": answer.gap, "primal": None, "dual": None, "narrower_as_told": None}
    rows = l2 > 0.0
    expected_primal = np.sqrt(8.0 / lam * answer.gap) * l2[rows]
    expected_dual = np.sqrt(8.0 * smoothness * answer.gap) / lam * l1[rows]
    agree = (primal[rows] < dual[rows]) == (expected_primal < expected_dual)
    return {
        "gap": answer.gap,
        "primal": _quartiles(primal[rows] / expected_primal),
        "dual": _quartiles(dual[rows] / expected_dual),
        "narrower_as_told": float(agree.mean()),
    }


def _norm(X: RawMatrix, order: int) -> Array:
    matrix = as_matrix(X)
    return matrix.absolute_product(np.ones(X.shape[1])) if order == 1 else np.sqrt(matrix.squared_row_norms())


def _quartiles(values: Array) -> list[float]:
    """The least, the middle and the largest."""
    return [float(value) for value in np.quantile(values, [0.0, 0.5, 1.0])]
