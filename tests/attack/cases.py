"""What is asked of a hostile problem: every kind of bound the library proves, each as a name, exact values and two ends."""

import tempfile
import warnings
from collections.abc import Iterator
from itertools import islice, product
from typing import Any
from unittest.mock import patch

import array_api_strict
import numpy as np
from sklearn.exceptions import ConvergenceWarning

import glru
from glru.updates.columns import Steps
from glru.verify.report import _criterion
from glru.verify.retraining import retrain
from tests.attack.generators import (
    hostile_change,
    hostile_problem,
    hostile_wide_problem,
    problem_with_far_rows,
    problem_with_similar_columns,
    sparse_wide_problem,
    unscaled_problem,
)
from tests.core import (
    AscentRows,
    ChordFolds,
    FoldRows,
    Folds,
    KinkRows,
    LocalColumns,
    LocalEllipsoid,
    LocalRows,
    Point,
    ProductRows,
    SmoothColumns,
    SubsetModels,
    SubsetRows,
    SupportEllipsoid,
    SupportRows,
    WideColumns,
    WideRows,
    as_matrix,
    bound_carried,
    bound_centred,
    bound_to_second_order,
    carried_columns,
    certify,
    follows_rows,
    has_ascent,
    has_carried,
    has_centred,
    has_chords,
    has_folds,
    has_kinks,
    has_local,
    has_local_columns,
    has_local_rows,
    has_piece_rows,
    has_product_rows,
    has_row_models,
    has_smooth_columns,
    has_steps,
    has_subsets,
    has_support,
    has_wide_columns,
    list_regions,
    local_rows,
    make_feasible_dual,
    newton_ellipsoids,
    product_rows,
    removal_factors,
    uses_rows,
    wide_rows,
)

DIGITS = 40

N_QUERIES = 80

METHODS, BOUNDS = ("certified", "glru"), ("auto", "primal", "dual", "local")

Answer = tuple[str, list[Any], Any, Any]
"""A name, exact values and how far each may be off, lower ends, upper ends."""


def quiet(problem: glru.Problem, random: np.random.Generator) -> glru.Solution:
    """A solution, converged or not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return glru.solve(problem, tol=float(random.choice([1e-1, 1e-3, 1e-6, 1e-12])))


def never(lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Nothing is good enough: every stage goes as far as it can."""
    return np.zeros(lower.shape[-1], dtype=bool)


def changes(random: np.random.Generator) -> Iterator[Answer]:
    """``after``: every candidate with every bound, on the answers to one change."""
    problem = hostile_problem(random)
    change = hostile_change(random, problem)
    changed = change.apply(problem)
    truth = retrain(changed, DIGITS)
    if truth is None:
        return
    solution = quiet(problem, random)
    queries = some_queries(random, changed)
    exact = truth.scores(queries)
    loss, penalty = problem.loss, problem.penalty
    for candidate in ("carry", "newton", "auto"):
        for bound in ("primal", "dual", "local", "auto"):
            if isinstance(loss, glru.Hinge) and (candidate == "newton" or bound == "dual"):
                continue
            if bound == "dual" and not np.isfinite(loss.smoothness):
                continue
            if bound == "local" and (loss.self_concordance is None or not penalty.smooth):
                continue
            out, name = glru.after(solution, change, candidate, bound), f"after {candidate} {bound}"
            yield f"{name}: scores", exact, *out.score_bounds(queries)
            yield f"{name}: coefficients", list(zip(truth.coef, truth.doubts[:-1], strict=True)), *out.coef_bounds()
            yield f"{name}: intercept", [(truth.intercept, truth.doubts[-1])], *out.intercept_bounds()
            used = changed.weights > 0.0
            lower, upper = out.dual_bounds()
            yield f"{name}, dual variables", truth.dual, lower[used], upper[used]


def points(random: np.random.Generator) -> Iterator[Answer]:
    """Every region by itself, at points that no training or step has led to."""
    problem = hostile_problem(random)
    truth = retrain(problem, DIGITS)
    if truth is None:
        return
    solution = quiet(problem, random)
    away = float(random.choice([0.0, 1e-9, 1e-3, 1.0]))

    def moved(values: np.ndarray) -> np.ndarray:
        return values * (1.0 + away * random.normal(0.0, 1.0, values.shape))

    with np.errstate(all="ignore"):
        intercept = float(moved(np.array([solution.intercept]))[0])
        dual = -problem.loss.project(problem.y, -moved(solution.dual))
        point = Point(moved(solution.coef), intercept, make_feasible_dual(problem, dual))
        regions = list_regions(certify(problem, point), problem.fit_intercept)
        queries = some_queries(random, problem)
        exact = truth.scores(queries)
        for name, region in [
            *((type(region).__name__, region) for region in regions),
            *_stepped(problem, solution, point),
        ]:
            yield f"{name}: scores", exact, *region.score_bounds(as_matrix(queries))
            yield f"{name}: coefficients", list(zip(truth.coef, truth.doubts[:-1], strict=True)), *region.coef_bounds()
            yield f"{name}: intercept", [(truth.intercept, truth.doubts[-1])], *region.intercept_bounds()


def _stepped(problem: glru.Problem, solution: glru.Solution, point: Point) -> Iterator[tuple[str, Any]]:
    """Ellipsoids of wide data on the way from a point, or that of another point in the metric of the first."""
    if follows_rows(problem):
        yield from (("RowEllipsoid", region) for region in islice(newton_ellipsoids(problem, point), 8))
    elif has_local(problem) and not uses_rows(problem):
        yield "LocalEllipsoid, carried", LocalEllipsoid.at(problem, point).carry_to(solution.point)


def some_queries(random: np.random.Generator, problem: glru.Problem) -> np.ndarray:
    """The rows of a problem and others of their size."""
    rows = problem.matrix.dense()
    return np.vstack([rows, random.normal(0.0, 1.0, (N_QUERIES, problem.n_columns)) * np.abs(rows).max(axis=0)])


def left_out(problem: glru.Problem) -> tuple[np.ndarray, list[Any]]:
    """Rows, and their exact scores under models trained without them; rows whose model has no optimum are left out."""
    rows, exact = [], []
    for row in range(problem.n_rows):
        weight = np.where(np.arange(problem.n_rows) == row, 0.0, problem.sample_weight)
        if not weight.any():
            continue
        truth = retrain(problem.derive(sample_weight=weight), DIGITS)
        if truth is None and row == 2 and not rows:
            break  # where the first three have no optimum that is found, the others are not worth their time
        if truth is not None:
            rows.append(row)
            exact.append(truth.scores(problem.X[row : row + 1])[0])
    return np.array(rows, dtype=np.intp), exact


def validation(random: np.random.Generator) -> Iterator[Answer]:
    """``loocv`` with every method and bound, and ``cross_val_predict``."""
    problem = hostile_problem(random)
    rows, exact = left_out(problem)
    solution = quiet(problem, random)
    width = random.choice([None, 1e-6, 1e-15])
    for method, bound in (("certified", "auto"), (str(random.choice(METHODS)), str(random.choice(BOUNDS)))):
        try:
            result = glru.loocv(solution, method=method, bound=bound, width=width, max_seconds=1.0)
        except ValueError as error:
            if "leave-one-out needs" in str(error) or "each class needs" in str(error):
                return
            raise
        yield f"loocv {method} {bound}", exact, result.score_lower[rows], result.score_upper[rows]
    try:
        folds = glru.cross_val_predict(solution, cv=_folds(random, problem.n_rows), width=width, max_seconds=1.0)
    except ValueError as error:
        if "every split needs" in str(error):
            return
        raise
    for fold, train in enumerate(folds.train_rows):
        truth, mine = retrain(_trained_on(problem, train), DIGITS), folds.folds == fold
        if truth is not None:
            scores = truth.scores(problem.X[folds.rows[mine]])
            yield "cross_val_predict", scores, folds.score_lower[mine], folds.score_upper[mine]


def _folds(random: np.random.Generator, n_rows: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Two or three folds; now and then rows are drawn more than once for training."""
    parts = np.array_split(random.permutation(n_rows), int(random.choice([2, 2, 3])))
    folds = [(np.concatenate([*parts[:k], *parts[k + 1 :]]), part) for k, part in enumerate(parts)]
    if random.random() < 0.3:
        folds = [(random.choice(train, train.size) if train.size else train, test) for train, test in folds]
    return folds


def _row_families(random: np.random.Generator) -> Iterator[Answer]:
    """Every family of row removals by itself, stage by stage."""
    problem = hostile_problem(random)
    if np.count_nonzero(problem.sample_weight) < 2:
        return
    rows, exact = left_out(problem)
    if not rows.size:
        return
    solution = quiet(problem, random)
    if has_carried(problem):
        for bound in ("primal", "dual", "midpoint"):
            lower, upper = bound_carried(solution, bound)
            yield f"carried rows {bound}", exact, lower[rows], upper[rows]
    if has_centred(problem):
        lower, upper = bound_centred(solution)
        yield "centred rows", exact, lower[rows], upper[rows]
    if has_ascent(problem):
        yield "AscentRows", exact, *AscentRows(solution).bounds(rows, never)
    if has_product_rows(problem):
        yield "ProductRows", exact, *ProductRows(solution).bounds(rows, never)
    factors = removal_factors(problem)[rows]
    for factor in np.unique(factors[np.isfinite(factors)]):
        mine = np.flatnonzero(factors == factor)
        here, values = rows[mine], [exact[k] for k in mine]
        if has_local_rows(problem, 4.0) or has_piece_rows(problem):
            local = LocalRows(solution, float(factor))
            yield "local rows", values, *local.bounds(here)
            yield "local rows, sharp", values, *local.bound_by_moves(here)
            yield "local rows, refined", values, *local.refined(here, never, 4)
            if problem.loss.fourth_constant is not None:
                for family in (local, LocalRows(local, float(factor))):
                    yield "local rows, second order", values, *bound_to_second_order(family, here)
        if has_subsets(problem) and np.all(problem.weights > 0.0):
            sets, start = np.arange(problem.n_columns)[None], solution.point.pack(problem.fit_intercept)
            together = SubsetRows(SubsetModels(problem, problem.matrix[here[:0]]), sets, start[None], float(factor))
            yield "SubsetRows", values, together.lower[0, here], together.upper[0, here]
            together.narrow(0 * here, here, np.zeros(here.size), False)
            yield "SubsetRows, narrowed", values, together.lower[0, here], together.upper[0, here]
            known = SubsetRows(together.family, sets, start[None], float(factor), (together, 0))
            yield "SubsetRows, known", values, known.lower[0, here], known.upper[0, here]
            known.narrow(0 * here, here, np.zeros(here.size), False)
            yield "SubsetRows, known, narrowed", values, known.lower[0, here], known.upper[0, here]
        if has_kinks(problem):
            yield "KinkRows", values, *KinkRows(solution, float(factor)).bounds(here, never)
    if has_row_models(problem):
        wide = WideRows(solution)
        for n_steps in (1, 4):
            yield f"WideRows, {n_steps} steps", exact, *wide.bounds(rows, never, n_steps)
        with patch.object(wide_rows, "MANY_SOLVES", 1), patch.object(wide_rows, "FEWEST_ROWS", 0):
            few = WideRows(solution)
            yield "WideRows, few", exact, *few.bound_quickly(rows)
            yield "WideRows, few, 4 steps", exact, *few.bounds(rows, never, 4)
        yield from _balls(solution, rows, exact)
        for place in range(0, rows.size, 3):
            if np.isfinite(wide.factors[rows[place]]):
                found = wide.refine_one(int(rows[place]), lambda *ends: False)
                yield "WideRows, alone", exact[place : place + 1], found.lower, found.upper


def _balls(solution: glru.Solution, rows: np.ndarray, exact: list[Any]) -> Iterator[Answer]:
    """Balls of the duality gap around candidates."""
    wide = WideRows(solution)
    for n_steps in (1, 3) if wide.has_balls else ():
        yield f"WideRows, {n_steps} balls", exact, *wide.bound_by_balls(rows, never, n_steps)


def _column_families(random: np.random.Generator) -> Iterator[Answer]:
    """Every family of columns that leave or come, on a few queries."""
    whole = hostile_problem(random) if random.random() < 0.6 else problem_with_similar_columns(random)
    if whole.n_columns < 2 or whole.n_columns > 5:
        return
    last = whole.n_columns - 1
    add = bool(random.random() < 0.4)
    problem = glru.RemoveColumns([last]).apply(whole) if add else whole
    solution = quiet(problem, random)
    dense = whole.matrix.dense()
    queries = np.vstack([dense[:3], random.normal(0.0, 1.0, (N_QUERIES, last + 1)) * np.abs(dense).max(axis=0)])
    lam = np.broadcast_to(whole.penalty.quadratic, (last + 1,))
    wide = has_wide_columns(problem)
    if add:
        if not (wide or has_smooth_columns(problem)) or not lam[last] > 0.0 or not whole.penalty.smooth:
            return
        truth = retrain(whole, DIGITS)
        if truth is not None:
            exact, blocks = truth.scores(queries), (as_matrix(dense[:, last:]), as_matrix(queries[:, last:]))
            for name, (lower, upper) in _wide_columns(solution, queries[:, :last], blocks, lam[last:], 1.0).items():
                yield f"{name}, added", exact, lower[:, 0], upper[:, 0]
        return
    columns = np.arange(last + 1)
    found: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    if (wide or has_smooth_columns(problem)) and np.all(lam > 0.0):
        found = _wide_columns(solution, queries, (as_matrix(dense), as_matrix(queries)), lam, -1.0)
    one_step = None
    if has_local_columns(problem):
        local = LocalColumns(problem, solution.point, as_matrix(queries))
        found["LocalColumns"] = local.bounds(columns, never, 4)
        one_step = local.closed_form(columns) if local.usable else None
    if one_step is not None:
        found["LocalColumns, one step"] = one_step.bounds()
        signs = np.where(random.random(one_step.centers.shape) < 0.5, -1.0, 1.0)
        # Their sum is taken in float64 here.
        rounding = 1e-14 * np.abs(one_step.centers).sum(axis=0)
        middles, off = (signs * one_step.centers).sum(axis=0), one_step.bound_sums(signs) + rounding
    if has_carried(problem) and problem.penalty.smooth:
        found["carried columns"] = carried_columns(solution, as_matrix(queries), columns)
    for j in columns if found else ():
        truth = retrain(glru.RemoveColumns([j]).apply(problem), DIGITS)
        if truth is not None:
            scores = truth.scores(np.delete(queries, j, axis=1))
            for name, (lower, upper) in found.items():
                yield name, scores, lower[:, j], upper[:, j]
            if one_step is not None:
                total = sum(int(sign) * value for sign, (value, _) in zip(signs[:, j], scores, strict=True))
                doubt, here = sum(doubt for _, doubt in scores), slice(j, j + 1)
                yield "LocalColumns, sums", [(total, doubt)], (middles - off)[here], (middles + off)[here]


def _wide_columns(
    solution: glru.Solution, queries: np.ndarray, blocks: tuple[Any, Any], lam: np.ndarray, sign: float
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """What the families in the dimension of the rows prove of columns that leave or come, stepped on in all ways."""

    def make(start: int, stop: int) -> tuple[Any, Any]:
        return blocks[0][:, np.arange(start, stop)], blocks[1][:, np.arange(start, stop)]

    if not has_wide_columns(solution.problem):
        smooth = SmoothColumns(solution, as_matrix(queries))
        return {"SmoothColumns": smooth.bounds(make, lam, sign)}
    family = WideColumns(solution, as_matrix(queries))
    centers = family.side.center
    if centers is not None and sign > 0.0:
        centers = blocks[0].dense().mean(axis=0)
    block = family.block(blocks, lam, sign, centers)
    found = {
        "WideColumns": family.bounds(make, lam, sign, centers),
        "WideColumns, refined": family.refined(block, never, 4),
    }
    if family.usable:
        found["WideColumns, second order"] = Steps(family, block).bounds_to_second_order()
    alone = [family.refine_one(block.take(np.array([k])), lambda *ends: False) for k in range(lam.size)]
    found["WideColumns, alone"] = (
        np.column_stack([one.lower for one in alone]),
        np.column_stack([one.upper for one in alone]),
    )
    return found


def row_families(random: np.random.Generator) -> Iterator[Answer]:
    """The families of rows, under the settings their callers give them."""
    with np.errstate(all="ignore"):
        yield from list(_row_families(random))
        yield from list(_lonely_rows(random))


def _lonely_rows(random: np.random.Generator) -> Iterator[Answer]:
    """Few wide rows of very different weights, where the removal of one moves everything: one by one, and many at once."""
    problem = hostile_wide_problem(random)
    solution = quiet(problem, random)
    wide = WideRows(solution)
    rows, exact = left_out(problem)
    if not rows.size:
        return
    yield "WideRows, lonely", exact, *wide.bounds(rows, never, 30)
    yield "WideRows, lonely and quick", exact, *wide.bound_quickly(rows)
    with patch.object(wide_rows, "MANY_SOLVES", 1), patch.object(wide_rows, "FEWEST_ROWS", 0):
        few = WideRows(solution)
        yield "WideRows, few and lonely", exact, *few.bound_quickly(rows)
        yield "WideRows, few and lonely, 4 steps", exact, *few.bounds(rows, never, 4)
    yield from _balls(solution, rows, exact)
    if has_centred(problem):
        lower, upper = bound_centred(solution)
        yield "centred rows, lonely", exact, lower[rows], upper[rows]
    if has_product_rows(problem):
        yield "ProductRows, lonely", exact, *ProductRows(solution).bounds(rows, never)
    for n_steps in (1, 30):
        for place, row in enumerate(rows):
            if np.isfinite(wide.factors[row]):
                found = wide.refine_one(int(row), lambda *ends: False, n_steps)
                yield f"WideRows, lonely, {n_steps} steps", exact[place : place + 1], found.lower, found.upper


def sparse_rows(random: np.random.Generator) -> Iterator[Answer]:
    """Single rows of sparse wide data leave, by steps that take products: after few and many of them, with and without known directions."""
    problem = sparse_wide_problem(random)
    if not has_product_rows(problem):
        return
    rows, exact = left_out(problem)
    if not rows.size:
        return
    # Retraining is what takes time: each exact value is held against many candidates.
    for _ in range(3):
        solution = quiet(problem, random)
        for n_steps, rows_per_direction in product((1, 2, 5, 30), (1, 1 << 30)):
            settings = {"N_STEPS": n_steps, "ROWS_PER_DIRECTION": rows_per_direction, "BASE_STEPS": n_steps}
            with np.errstate(all="ignore"), patch.multiple(product_rows, **settings):
                yield f"ProductRows, {n_steps} steps", exact, *ProductRows(solution).bounds(rows, never)


def far_rows(random: np.random.Generator) -> Iterator[Answer]:
    """Rows far out leave, whose moves are followed one by one, and models to second order wherever there is a second order."""
    problem = problem_with_far_rows(random)
    rows, exact = left_out(problem)
    if not rows.size:
        return
    solution = quiet(problem, random)
    # To second order wherever that exists: it always pays for that many rows.
    plain = LocalRows.has_second_order
    everywhere = patch.object(LocalRows, "has_second_order", lambda family, _: plain(family, 10**9))
    with np.errstate(all="ignore"), everywhere, patch.object(local_rows, "OTHER_NORM_RATIO", 1.01):
        if has_carried(problem):
            for bound in ("midpoint", "auto"):
                lower, upper = bound_carried(solution, bound)
                yield f"far rows, carried {bound}", exact, lower[rows], upper[rows]
        factors = removal_factors(problem)[rows]
        families = [(None, np.arange(rows.size))] if has_local_rows(problem) else []
        families += [(float(f), np.flatnonzero(factors == f)) for f in np.unique(factors[np.isfinite(factors)])[:4]]
        for factor, mine in families if has_local_rows(problem) else ():
            here, values = rows[mine], [exact[k] for k in mine]
            local = LocalRows(solution, factor)
            yield "far rows, local", values, *local.bounds(here)
            yield "far rows, sharp", values, *local.bound_by_moves(here)
            # The last two of nine steps are made with Hessians of the models' own.
            for n_steps in (1, 3, 9):
                yield f"far rows, {n_steps} steps", values, *local.refined(here, never, n_steps)
        if has_row_models(problem):
            wide = WideRows(solution)
            yield "far rows, wide and quick", exact, *wide.bound_quickly(rows)
            yield "far rows, wide", exact, *wide.bounds(rows, never, 3)
            yield from _balls(solution, rows, exact)


def folds(random: np.random.Generator) -> Iterator[Answer]:
    """The models of several folds under one or more penalties stepped together, and their certificates at points around the optima."""
    problem = (hostile_problem, problem_with_far_rows)[random.integers(2)](random)
    if not has_folds(problem):
        return
    # An objective of any size: weights and strengths times the same power of two.
    size = 2.0 ** int(random.choice([0, 0, -900, -300, 300, 800]))
    if problem.scaling == "sum" and np.all(problem.sample_weight[problem.sample_weight > 0.0] > 1e-20):
        problem = problem.derive(sample_weight=size * problem.sample_weight)
    else:
        size = 1.0
    widest = random.choice([8.0, 8.0, 0.01])  # penalties next to each other go on from each other's models
    strengths = np.append(1.0, 10.0 ** random.uniform(-widest, widest, int(random.choice([0, 0, 1, 2]))))
    penalties = [glru.L2(factor * size * problem.penalty.quadratic) for factor in strengths]
    splits = [pair for pair in _folds(random, problem.n_rows) if problem.sample_weight[pair[0]].any()]
    parts = [_trained_on(problem, train).derive(penalty=penalty) for penalty in penalties for train, _ in splits]
    truths = [retrain(part, DIGITS) for part in parts]
    if not parts or any(truth is None for truth in truths):
        return
    tests = [np.sort(test) for _, test in splits] * strengths.size
    with np.errstate(all="ignore"):
        if has_steps(problem):
            yield from _stepped_folds(random, problem, parts, tests, truths, strengths.size)
        if has_chords(problem):
            grid = [parts[k : k + len(splits)] for k in range(0, len(parts), len(splits))]
            yield from _chord_folds(random, problem, grid, tests[: len(splits)], truths)


def _stepped_folds(random, problem, parts, tests, truths, n_penalties) -> Iterator[Answer]:
    """Steps of all folds and penalties together, and certificates at points around the optima."""
    family, columns = Folds(problem, parts), np.arange(len(parts))
    start = np.zeros(family.used.size) if random.random() < 0.5 else random.normal(size=family.used.size)
    kind, dense = "folds" if n_penalties == 1 else "grid", problem.matrix.dense()
    found, _ = family.bounds(start, tests, lambda lower, upper: np.zeros(lower.shape, dtype=bool))
    for truth, test, bounds in zip(truths, tests, found, strict=True):
        yield f"{kind} stepped together", truth.scores(dense[test]), *bounds
    models, places = family.pack(_stack_models(truths, family.used.size)), np.arange(problem.n_rows)
    for away in (0.0, 1e-13, 1e-9, 1e-5, 1e-2, 1.0):
        place = family.at(models * (1.0 + away * random.normal(size=models.shape)), columns)
        # Curvatures of other models nearby, as steps leave them behind.
        others = family.matrix @ (models * (1.0 + away * random.normal(size=models.shape)))
        reference = family.reference(others, family.weigh_curvatures(others, columns))
        exponents, radii = (f(place, columns, reference) for f in (family.exponents, family.radii))
        for column, truth in enumerate(truths):
            owners, values = np.full(places.size, column), truth.scores(dense)
            bounds = family.bound_by_penalty(place, radii, exponents, places, owners)
            yield f"{kind}, {away:g} from the optimum", values, *bounds


def _stack_models(truths, size) -> Any:
    """Exact models rounded to float64, the intercept last, one per column."""
    return np.array([[float(v) for v in (*truth.coef, truth.intercept)][:size] for truth in truths]).T


def _chord_folds(random, problem, grid, tests, truths) -> Iterator[Answer]:
    """Chord steps of all folds and penalties from one model, near the optimum of one fold or far away, then those of each penalty."""
    rows, dense = FoldRows.of(problem, grid[0], tests), problem.matrix.dense()
    exact = _stack_models(truths, problem.n_columns + int(problem.fit_intercept))
    for away in (None, 0.0, 1e-12, 1e-6, 1e-2, 1.0) if rows is not None else ():
        with patch("glru.updates.chord_folds.TOGETHER", random.choice([0, 10**9])):
            work = ChordFolds(rows, grid, tests, never)
        spared = float(random.choice([0.5, 1.0]))
        if away is None:
            work.start(np.zeros(len(exact)), spared=spared)
        else:
            near = exact[:, random.integers(exact.shape[1])]
            work.start(near * (1.0 + away * random.normal(size=near.size)), True, spared)
        for kind in ("started", "finished"):
            for k, truth in enumerate(truths):
                lower, upper = (end.copy() for end in work.bounds(k))
                pieces = " between kinks" if problem.loss.piecewise else ""
                yield f"chord folds{pieces}, {kind}", truth.scores(dense[tests[k % len(tests)]]), lower, upper
            for penalty in range(len(grid)):
                work.finish([penalty])


def column_families(random: np.random.Generator) -> Iterator[Answer]:
    """The families of columns, likewise."""
    with np.errstate(all="ignore"):
        yield from list(_column_families(random))


def selection(random: np.random.Generator) -> Iterator[Answer]:
    """Steps of ``stepwise``, on validation rows or over folds: what every candidate is worth, screened and decided."""
    problem = hostile_problem(random)
    if not 2 <= problem.n_columns <= 4:
        return
    regression = problem.loss.task == "regression"
    criterion = "squared_error" if regression else str(random.choice(["error", "log_loss"]))
    criterion = "error" if criterion == "log_loss" and not problem.loss.probabilities else criterion
    folds = bool(random.random() < 0.4)
    dense = problem.matrix.dense()
    if folds:
        cv, arguments, options = _folds(random, problem.n_rows), (), {"max_steps": 1}
        options["cv"] = cv
    else:
        queries = random.normal(0.0, 1.0, (6, problem.n_columns)) * np.abs(dense).max(axis=0)
        targets = random.normal(0.0, 1.0, 6) if regression else random.choice([-1.0, 1.0], 6)
        arguments, options = (queries, targets), {"max_steps": 2}
    options["method"] = str(random.choice(METHODS))
    options["direction"] = str(random.choice(["backward", "forward"]))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            result = glru.stepwise(problem, None, None, *arguments, criterion=criterion, max_seconds=1.0, **options)
    except ValueError as error:
        if "every split needs" in str(error):
            return
        raise
    name, parts = f"stepwise {options['method']}", [(problem, *arguments)]
    if folds:
        name += " over folds"
        parts = [(_trained_on(problem, train), dense[test], problem.y[test]) for train, test in cv]
    chosen = set(result.selected.tolist())
    for step in result.path:
        chosen ^= set(step.columns)
    for step in result.path:
        for k, (action, columns) in enumerate(step.candidates):
            after = sorted(chosen | set(columns) if action == "add" else chosen - set(columns))
            value = _worth(parts, after, criterion)
            if value is None:
                continue
            yield f"{name}, screened", [value], step.first_lower[k : k + 1], step.first_upper[k : k + 1]
            yield f"{name}, decided", [value], step.lower[k : k + 1], step.upper[k : k + 1]
        chosen ^= set(step.columns)


def _worth(parts: list[Any], columns: list[int], criterion: str) -> tuple[Any, Any] | None:
    """What a model of some columns is worth over all folds, and how far that may be off; None without an optimum."""
    total, off, count = 0, 0, 0
    for problem, rows, targets in parts:
        gone = [j for j in range(problem.n_columns) if j not in columns]
        truth = retrain(glru.RemoveColumns(gone).apply(problem) if gone else problem, DIGITS)
        if truth is None:
            return None
        value, doubt = _criterion(criterion, rows[:, columns], targets)(truth)
        share = 1 if criterion == "error" else len(targets)
        total, off, count = total + share * value, off + share * doubt, count + len(targets)
    return (total, off) if criterion == "error" else (total / count, off / count)


def _trained_on(problem: glru.Problem, train: np.ndarray) -> glru.Problem:
    weight = np.zeros(problem.n_rows)
    np.add.at(weight, train, problem.sample_weight[train])
    return problem.derive(sample_weight=weight)


def blocks(random: np.random.Generator) -> Iterator[Answer]:
    """Leave-one-out, folds and changes of rows in blocks."""
    problem = hostile_problem(random)
    smooth = problem.penalty.smooth and not isinstance(problem.loss, glru.Hinge)
    if not smooth or np.count_nonzero(problem.sample_weight) < 2:
        return
    rows, exact = left_out(problem)
    dense = problem.matrix.dense()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        X = np.memmap(f"{folder}/X", dtype=np.float64, mode="w+", shape=dense.shape)
        X[:] = dense
        settings = (problem.loss, problem.penalty, problem.fit_intercept, problem.scaling, problem.sample_weight)
        height = int(random.integers(1, problem.n_rows + 1))
        cut = glru.Problem(X, problem.y, *settings, block_bytes=height * dense[:1].nbytes)
        solution = glru.solve(cut, tol=float(random.choice([1e-1, 1e-3, 1e-6, 1e-12])))
        width = random.choice([None, 1e-6, 1e-15])
        try:
            result = glru.loocv(solution, width=width, max_trainings=2, max_seconds=1.0)
        except ValueError as error:
            if "leave-one-out" in str(error) or "each class needs" in str(error):
                return
            raise
        yield "loocv in blocks", exact, result.score_lower[rows], result.score_upper[rows]
        if problem.loss.self_concordance is None:
            return
        gone = np.sort(random.choice(problem.n_rows, int(random.integers(1, problem.n_rows)), replace=False))
        weight = problem.sample_weight.copy()
        weight[gone] = 0.0
        truth = retrain(problem.derive(sample_weight=weight), DIGITS) if weight.any() else None
        if truth is not None:
            out = glru.after(solution, glru.RemoveRows(gone))
            yield "after in blocks: scores", truth.scores(dense), *out.score_bounds(dense)
            coefs = list(zip(truth.coef, truth.doubts[:-1], strict=True))
            yield "after in blocks: coefficients", coefs, *out.coef_bounds()
        kept = np.sort(random.choice(dense.shape[1], int(random.integers(1, dense.shape[1] + 1)), replace=False))
        out_of = [j for j in range(dense.shape[1]) if j not in kept]
        truth = retrain(glru.RemoveColumns(out_of).apply(problem) if out_of else problem, DIGITS)
        if truth is not None:
            part = cut.select_columns(kept)
            start = glru.Point(solution.coef[kept], solution.intercept)
            for region in islice(newton_ellipsoids(part, start), 3):
                yield (
                    "some columns in blocks",
                    truth.scores(dense[:, kept]),
                    *region.score_bounds(as_matrix(dense[:, kept])),
                )


def devices(random: np.random.Generator) -> Iterator[Answer]:
    """Leave-one-out, the local certificate and changes of data that lives in another array namespace."""
    problem = hostile_problem(random)
    smooth = problem.penalty.smooth and not isinstance(problem.loss, glru.Hinge)
    if not smooth or not problem.matrix.stores_zeros or np.count_nonzero(problem.sample_weight) < 2:
        return
    rows, exact = left_out(problem)
    there = array_api_strict.asarray(np.array(problem.X), device=array_api_strict.Device("device1"))
    moved = problem.derive(X=there)
    solution = quiet(moved, random)
    if has_local_rows(moved) and np.unique(removal_factors(moved)).size == 1:
        factor = float(removal_factors(moved)[0])
        if np.isfinite(factor):
            family = LocalRows(solution, factor)
            yield "local rows on a device", exact, *family.bounds(rows)
            yield "local rows on a device, steps", exact, *LocalRows(family, factor).refined(rows, never, 9)
    try:
        result = glru.loocv(solution, width=random.choice([None, 1e-6]), max_seconds=1.0)
    except ValueError as error:
        if "leave-one-out" in str(error) or "each class needs" in str(error):
            return
        raise
    yield "loocv on a device", exact, result.score_lower[rows], result.score_upper[rows]


def supports(random: np.random.Generator) -> Iterator[Answer]:
    """Rows leave models that have coefficients on few columns: elastic nets and the lasso."""
    problem = (hostile_problem, problem_with_far_rows, unscaled_problem)[random.integers(3)](random)
    known = glru.Logistic | glru.Squared | glru.Huber | glru.SquaredHinge | glru.SmoothedHinge
    loss = problem.loss if isinstance(problem.loss, known) else glru.Squared()
    slopes = loss.gradient(problem.y, np.zeros(problem.n_rows))
    seen = np.abs(problem.matrix.T @ (problem.weights * slopes))
    if not (seen.max() > 0.0 and np.isfinite(seen.max())):
        return
    # Strengths at which some columns of any size are in use, and others are not.
    kappa = 10.0 ** random.uniform(-4.0, 0.0) * (seen if random.random() < 0.5 else np.full(seen.size, seen.max()))
    kappa = np.where(random.random(kappa.size) < 0.1, 0.0, kappa)
    if random.random() < 0.5:
        penalty: glru.penalties.Penalty = glru.L1(kappa)
    else:
        with np.errstate(over="ignore"):
            strengths = 10.0 ** random.uniform(-6.0, 1.0) * np.square(problem.column_norms)
        if not np.isfinite(strengths).all():
            return
        penalty = glru.ElasticNet(strengths, kappa)
    problem = problem.derive(loss=loss, penalty=penalty)
    if problem.scaling == "sum" and np.all(problem.sample_weight[problem.sample_weight > 0.0] > 1e-20):
        size = 2.0 ** int(random.choice([0, 0, -300, 300]))
        # Strengths beyond the range of float64 are refused.
        if size > 1.0 and max(np.max(penalty.quadratic), np.max(penalty.absolute)) > 1e200:
            return
        problem = problem.derive(sample_weight=size * problem.sample_weight, penalty=penalty.scale(size))
    if not has_support(problem):
        return
    rows, exact = left_out(problem)
    solution = quiet(problem, random)
    factors = removal_factors(problem)[rows] if rows.size else np.empty(0)
    with np.errstate(all="ignore"):
        for factor in np.unique(factors[np.isfinite(factors)])[:4]:
            mine = np.flatnonzero(factors == factor)
            family = SupportRows(solution, float(factor))
            for n_steps in (1, 4):
                yield f"supports, {n_steps} steps", [exact[k] for k in mine], *family.bounds(rows[mine], never, n_steps)
        truth = retrain(problem, DIGITS)
        region = SupportEllipsoid(problem, solution.point)
        if truth is not None and region.proven:
            yield "support, scores", list(truth.scores(problem.X)), *region.score_bounds(problem.matrix)
            yield "support, coefficients", list(zip(truth.coef, truth.doubts[:-1], strict=True)), *region.coef_bounds()
        share = 10.0 ** random.uniform(-12.0, -1.0)
        region = SupportEllipsoid(problem, solution.point, share)
        if region.proven:
            # Rounded towards the strengths themselves.
            factors = 1.0 + (1.0 - 1e-9) * share * random.choice([-1.0, 1.0], problem.n_columns)
            quadratic, absolute = factors * problem.quadratic, factors * problem.penalty.absolute
            other = glru.ElasticNet(quadratic, absolute) if quadratic.any() else glru.L1(absolute)
            truth = retrain(problem.derive(penalty=other), DIGITS)
            if truth is not None:
                yield "support, strengths that err", list(truth.scores(problem.X)), *region.score_bounds(problem.matrix)


KINDS = (
    *(changes, changes, changes, points, validation, row_families, row_families),
    *(column_families, column_families, selection, blocks, devices, far_rows, folds, supports, sparse_rows),
)
