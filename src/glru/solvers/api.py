"""``solve``: choose a solver, run it, and return a solution whose gap was computed afresh."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from glru import duality
from glru._options import UNLIMITED, Budget, Solver, check_call, warn_caller
from glru.duality import explain_missing_optimum
from glru.linalg import calm_blas, counted
from glru.losses import Hinge, Logistic, SmoothedHinge, SquaredHinge
from glru.metric.columns import make_column_metric
from glru.problem import Point, Problem, make_memory_error, require_problem
from glru.regions import LocalEllipsoid, has_local
from glru.regions.class_sums import ClassSums
from glru.regions.classes import ClassEllipsoid, require_classes
from glru.regions.local import bound_row_norm, local_radius
from glru.rows import MAX_COLUMNS
from glru.solution import Solution, make_solution, relative
from glru.solvers.dual_cd import dual_cd
from glru.solvers.hinges import find_box, interior_point, proximal_point
from glru.solvers.multinomial import class_newton, class_newton_cg, class_newton_in_passes, direct_is_cheaper
from glru.solvers.newton import Run, Stop, Until, has_sample, local_gap, newton, sample_of, uses_row_space, zero_point
from glru.solvers.newton_cg import LARGE, newton_cg, newton_cg_in_passes
from glru.solvers.prox_newton import prox_newton
from glru.sums import assemble_gradient, dual_gap, objective_value

Plan = list[tuple[str, float]]
"""Solvers to run one after the other, each with its patience: iterations of "newton", products with the Hessian of
"newton-cg", rounds that "dual-cd" has still to make."""

SOLVERS: dict[str, tuple[Callable[[Problem, Point, Stop], Run], int]] = {
    "newton": (newton, 200),
    "newton-cg": (newton_cg, 500),
    "prox-newton": (prox_newton, 500),
    "dual-cd": (dual_cd, 5000),
    "interior-point": (interior_point, 200),
    "proximal-point": (proximal_point, 200),
}
"""Every solver with its default for ``max_iter``."""

CLASS_SOLVERS: dict[str, Callable[[Problem, Point, Stop], Run]] = {"newton": class_newton, "newton-cg": class_newton_cg}
"""The solvers of problems with one score per class."""

FAR = 1e-9
"""With ``tol=0``, a run that ended with a relative gap above this can still improve."""

NEWTON_SHARE = 15
"""Iterations after which semismooth Newton gives way to the interior point, which takes 15 to 25 iterations of the same cost."""

NEWTON_STEPS = 7
"""Direct Newton steps in a typical training."""

SPARSE_PRODUCTS, DENSE_PRODUCTS = 60, 1000
"""Products that conjugate gradients take instead, to any gap: few where rows overlap little, many where all columns are correlated."""

TRIED_PRODUCTS, TRIED_SHARE, ROUNDED_PRODUCT = 80, 1.0 / 3.0, 0.25
"""Where a direct training of dense data costs more products in single precision than the first, conjugate gradients are tried first, for that share of them; what
such a product costs of one in double precision."""

TRIED_QUADRATIC, PRODUCT_CALL = 12.0, 5e4
"""Under a quadratic loss they are tried first where a Gram matrix costs more products than this, and given up once they are foreseen to cost as much;
nanoseconds of calls in each."""

SAMPLED_STEPS, SAMPLED_PRODUCTS = 3, 14
"""Expected Newton steps and products of a training that starts from the model of a sample of the rows, whose Hessian is the preconditioner."""

INTERIOR_STEPS, PROXIMAL_PRODUCTS = 20, 1000
"""Expected steps of the interior point, and products of proximal points, in a training of the hinge."""

CLASS_ROUNDS = (3.0, 1.0)
"""Rounds of products that a training of several classes takes for each factor of the whole system, from a start and from zero, where the first steps need
not be exact."""

FEW_ROWS = 4
"""The number of rows per column below which hinge losses with a curvature are trained from zero: with four and more a warm start takes two thirds of the steps, below up to ten times as many."""

DUAL_ROUNDS = 20
"""Rounds of dual coordinate ascent that cost no more than the products that conjugate gradients would take."""


@check_call
def solve(
    problem: Problem,
    tol: float = 1e-6,
    solver: Solver = "auto",
    start: Solution | Point | None = None,
    until: Until | None = None,
    max_iter: int | None = None,
) -> Solution:
    """Train a problem until its relative duality gap is at most ``tol``.

    Parameters
    ----------
    problem : Problem
        What to train.
    tol : float, default=1e-6
        Target for ``(P - D) / P``.
    solver : str, default="auto"
        One of the solvers in the table of :mod:`glru.solvers`.
    start : Solution or Point, default=None
        Where to start; zero coefficients if not given, or if the objective is higher at ``start`` than there. A run that
        does not reach ``tol`` from a start is repeated from zero, and the better of the two is returned.
    until : callable, default=None
        Called with a :class:`~glru.solvers.State` once an outer iteration, under a hinge loss once the gap is small; the training stops when it returns true.
    max_iter : int, default=None
        Most outer iterations; the default depends on the solver.

    Returns
    -------
    Solution
        The best point found, with its duality gap. A run that could not reach ``tol`` warns with
        scikit-learn's ``ConvergenceWarning`` and says so in ``status``; the gap is valid all the same.

    Notes
    -----
    Rows in blocks are trained in passes over the data: smooth losses with an L2 penalty, by "newton" up to 3000 columns and
    by "newton-cg" beyond, without ``until``.

    Examples
    --------
    >>> import numpy as np, glru
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 3.0]])
    >>> solution = glru.solve(glru.Problem(X, [0, 0, 1, 1], penalty=glru.L2(0.1)), tol=1e-9)
    >>> solution.status, solution.relative_gap <= 1e-9
    ('converged', True)
    """
    require_problem(problem, "To know how far a fitted estimator is from its optimum, use glru.certify.")
    return warn_if_short(train(problem, tol, solver, start, until, max_iter), tol)


def warn_if_short(solution: Solution, tol: float) -> Solution:
    """The solution, with a warning where its training ended short of its target.

    With unpenalised columns that is proven here and now: columns that depend on each other have many optima, and a run that
    ends at one of them has found nothing that could be certified, by a gap or by the Hessian.
    """
    problem = solution.problem
    bare = problem.in_memory and problem.unpenalised.size > 0 and not problem.loss.several
    if bare and solution.status == "converged" and not (_has_one_optimum(solution) or np.isfinite(solution.gap)):
        solution = replace(solution, status="stalled")
    if _is_short(solution):
        _warn(solution, tol)
    return solution


def _has_one_optimum(solution: Solution) -> bool:
    """Whether the local certificate holds around a model: there is one optimum, and it is near."""
    problem = solution.problem
    if not has_local(problem):
        return False
    here, constant = solution.expansion, problem.loss.self_concordance
    if solution.before is not None and here is not None and here.rows is not None and constant is not None:
        # The Hessian before the last step is at hand. A gradient of twice the length, at scores twice as far away, has room for every rounding error.
        base, hessian = solution.before
        metric = make_column_metric(problem.totals, hessian)
        moved = float(np.abs(here.rows.scores - base).max())
        gradient = assemble_gradient(problem.totals, solution.point, here.gradient)
        nu = metric.gradient_norm(gradient, np.zeros_like(gradient)) if metric.eta < 0.5 else np.inf
        largest = bound_row_norm(metric, problem.totals.largest_norm)
        if np.isfinite(local_radius(constant, 2.0 * largest, np.asarray(2.0 * nu), 2.0 * constant * moved)):
            return True
    return bool(np.isfinite(LocalEllipsoid.at(problem, solution.point).radius))


@np.errstate(all="ignore")  # a step that overflows is rejected, and a gap that does is infinite
def train(
    problem: Problem,
    tol: float = 1e-6,
    solver: Solver = "auto",
    start: Solution | Point | None = None,
    until: Until | None = None,
    max_iter: int | None = None,
    budget: Budget = UNLIMITED,
) -> Solution:
    """:func:`solve` without its warning, for callers that look at the gap themselves, and within a budget."""
    if not problem.in_memory:
        if until is not None:
            raise make_memory_error(problem, "until, which is shown scores and dual variables of all rows,")
        return _train_in_passes(problem, tol, solver, start, max_iter, budget)
    if problem.matrix.only_products:
        _require_smooth(problem, solver)
    until, before = _limit_until(until, budget), counted()
    with calm_blas(problem.work):
        plan: Plan = choose(problem, start) if solver == "auto" else [(check_solver(problem, solver), np.inf)]
        point = choose_start(problem, start)
        cold = not point.coef.any() and point.dual is None
        if start is None and (
            plan[0][0] == "newton-cg" or (plan[0][0] == "newton" and problem.loss.self_concordance != 0.0)
        ):
            # One direct step solves a quadratic problem from anywhere.
            point = start_from_sample(problem)
        solution = _follow(problem, plan, point, tol, until, max_iter)
        if _needs_more(solution, tol) and not cold and (max_iter is None or solution.n_iter < max_iter):
            # The start may be to blame, so that "stalled" is said only where a training from zero stalls too.
            left = None if max_iter is None else max_iter - solution.n_iter
            solution = _choose_better(
                solution,
                _follow(problem, plan, zero_point(problem), tol, _continue_until(until, solution.n_iter), left),
            )
    return replace(solution, work=counted() - before)


def _follow(
    problem: Problem, plan: Plan, point: Point, tol: float, until: Until | None, max_iter: int | None
) -> Solution:
    """The best solution of the solvers of a plan, each of which goes on where the one before it ended."""
    best: Solution | None = None
    n_iter = 0
    for name, patience in plan:
        run_solver, default = SOLVERS[name]
        if problem.loss.several:
            run_solver = CLASS_SOLVERS[name]
        limit = default if max_iter is None else max_iter - n_iter
        stop = Stop(tol, _continue_until(until, n_iter), limit, patience)
        run = run_solver(problem, point, stop)
        point, n_iter = run.point, n_iter + run.n_iter
        found = _finish(problem, run, tol, name)
        best = found if best is None else _choose_better(best, found)
        # A solver's own gap is an estimate, or comes from scores that it updates. Where it was too small, go on to a smaller one.
        while run.status == "converged" and not found.reached(tol) and n_iter != max_iter:
            limit = default if max_iter is None else max_iter - n_iter
            smaller = tol * min(1.0, 0.5 * tol / found.relative_gap) if tol > 0.0 else tol
            run = run_solver(problem, found.point, Stop(smaller, _continue_until(until, n_iter), limit))
            again, before = _finish(problem, run, tol, name), found.solver_gap
            point, n_iter = run.point, n_iter + run.n_iter
            best, found = _choose_better(best, again), again
            if not found.solver_gap < 0.5 * before:
                break
        if not _needs_more(found, tol) or n_iter == max_iter:
            break
    assert best is not None
    return best


def _is_short(solution: Solution) -> bool:
    """Whether a run ended short of its target."""
    return solution.status in ("max_iter", "stalled")


def _needs_more(solution: Solution, tol: float) -> bool:
    """Whether another solver or another start may bring a run to its target; ``tol=0`` asks for what float64 has."""
    return _is_short(solution) and not solution.reached(tol if tol > 0.0 else FAR)


def _choose_better(first: Solution, second: Solution) -> Solution:
    """The one of two runs that was stopped or has the smaller gap, with the iterations of both."""
    chosen = second if second.status == "stopped" or second.solver_gap <= first.solver_gap else first
    return replace(chosen, n_iter=first.n_iter + second.n_iter)


def choose(problem: Problem, start: Solution | Point | None = None, whole: bool = False) -> Plan:
    """What ``"auto"`` stands for; the table is in :mod:`glru.solvers`. ``whole``: as if the first solver had to reach any gap by itself."""
    smooth, matrix = problem.penalty.smooth, problem.matrix
    if problem.loss.several:
        return [("newton" if direct_is_cheaper(problem, CLASS_ROUNDS[start is None]) else "newton-cg", np.inf)]
    if isinstance(problem.loss, Hinge):
        if smooth and _direct_cost(problem, INTERIOR_STEPS) <= PROXIMAL_PRODUCTS * matrix.product_cost:
            return [("interior-point", np.inf), ("proximal-point", np.inf)]
        return [("proximal-point", np.inf)]
    if not smooth:
        return [("prox-newton", np.inf)]
    sampled = start is None and has_sample(problem)
    quadratic = problem.loss.self_concordance == 0.0
    n_steps = SAMPLED_STEPS if sampled else NEWTON_STEPS
    products = _direct_cost(problem, n_steps) / max(matrix.product_cost, 1.0)
    usual = SAMPLED_PRODUCTS if sampled else DENSE_PRODUCTS if matrix.stores_zeros else SPARSE_PRODUCTS
    # With unpenalised columns a dual point, which "newton-cg" asks for at every step, costs as much as a Hessian.
    if products <= usual or matrix.only_products or (problem.unpenalised.size and np.isfinite(products)):
        if isinstance(problem.loss, SquaredHinge | SmoothedHinge) and not matrix.only_products:
            return [("newton", NEWTON_SHARE), ("interior-point", np.inf), ("newton", np.inf)]
        steps = not (whole or sampled or problem.unpenalised.size or matrix.only_products)
        tried = products / ROUNDED_PRODUCT if matrix.n_stored >= LARGE else products
        if steps and matrix.stores_zeros and quadratic and problem.n_rows >= problem.n_columns:
            # Products without a Hessian between them are cheaper than predicted, and so is a single Gram matrix.
            affordable = 0.5 * _direct_cost(problem, 1) / (0.3 * matrix.n_stored + PRODUCT_CALL)
            return [("newton-cg", affordable)] * (affordable > TRIED_QUADRATIC) + [("newton", np.inf)]
        if steps and matrix.stores_zeros and not quadratic and tried > TRIED_PRODUCTS:
            return [("newton-cg", TRIED_SHARE * tried), ("newton", np.inf)]
        return [("newton", np.inf)]
    patience = products / n_steps if quadratic else products
    plan: Plan = [("newton-cg", patience), ("newton", np.inf)] if np.isfinite(products) else [("newton-cg", np.inf)]
    if start is not None or sampled or matrix.stores_zeros or problem.unpenalised.size:
        return plan
    return [("dual-cd", DUAL_ROUNDS), *plan] if isinstance(problem.loss, Logistic) else plan


def prefers_products(problem: Problem) -> bool:
    """Whether a smooth problem is trained by products with the data from a start, because factors would cost more."""
    if not (problem.in_memory and problem.penalty.smooth) or isinstance(problem.loss, Hinge):
        return False
    return choose(problem, zero_point(problem), whole=True)[0][0] == "newton-cg"


def starts_anywhere(problem: Problem) -> bool:
    """Whether a training from the model of more rows takes no fewer steps than one from zero.

    An interior point begins at the centre of its box; with few rows per column most rows end near the kink, and Newton steps change their sides one by one.
    """
    if isinstance(problem.loss, Hinge):
        return choose(problem)[0][0] == "interior-point"
    few = isinstance(problem.loss, SquaredHinge | SmoothedHinge) and problem.n_rows < FEW_ROWS * problem.n_columns
    return few and problem.penalty.smooth and choose(problem, zero_point(problem))[0][0] == "newton"


def _direct_cost(problem: Problem, n_steps: int) -> float:
    """Nanoseconds, roughly, of Newton steps that factor the smaller system; infinite where that is too large to be formed."""
    size = min(problem.n_rows, problem.n_columns)
    if size > problem.largest:
        return np.inf
    # In the dimension of the rows the Gram matrix does not change.
    n_grams = 1 if uses_row_space(problem) else n_steps
    return n_grams * problem.matrix.gram_cost + n_steps * (0.02 * float(size) ** 3 + problem.matrix.product_cost)


def check_solver(problem: Problem, solver: str) -> str:
    """The solver's name if it can train the problem, otherwise an error that says what it lacks."""
    loss = problem.loss
    if loss.several and solver not in CLASS_SOLVERS:
        raise ValueError(f"{loss!r} is trained by 'newton' or 'newton-cg'; got solver {solver!r}. Use 'auto'.")
    if solver == "interior-point" and find_box(loss) is None:
        raise ValueError(f"solver 'interior-point' needs one of the hinge losses; got {loss!r}. Use 'auto'.")
    if solver == "dual-cd" and not isinstance(loss, Hinge | Logistic):
        raise ValueError(f"solver 'dual-cd' needs the hinge or the logistic loss; got {loss!r}. Use 'auto'.")
    if solver == "proximal-point" and not isinstance(loss, Hinge):
        raise ValueError(f"solver 'proximal-point' needs the hinge loss; got {loss!r}. Use 'auto'.")
    if solver in ("newton", "newton-cg", "prox-newton") and isinstance(loss, Hinge):
        raise ValueError(f"solver {solver!r} needs a smooth loss; got {loss!r}. Use 'auto'.")
    if solver in ("newton", "newton-cg", "dual-cd", "interior-point") and not problem.penalty.smooth:
        raise ValueError(f"solver {solver!r} needs an L2 penalty; got {problem.penalty!r}. Use 'auto'.")
    if solver == "dual-cd" and (problem.unpenalised.size or (problem.fit_intercept and isinstance(loss, Hinge))):
        raise ValueError(
            "solver 'dual-cd' needs a penalty on every column, and for the hinge no intercept. Use 'auto'."
        )
    return solver


def _require_smooth(problem: Problem, solver: str) -> None:
    """Refuse what is not trained on a device."""
    smooth = np.isfinite(problem.loss.smoothness) and problem.penalty.smooth
    if solver not in ("auto", "newton") or not smooth:
        asked = f"solver {solver!r}" if smooth else f"{problem.loss!r} with {problem.penalty!r}"
        raise ValueError(
            f"data on a device is trained by 'newton', which needs a smooth loss and an L2 penalty; got {asked} for "
            f"X{problem.matrix.layout}. Give X as a NumPy array to train it on the host."
        )


def choose_start(problem: Problem, start: Solution | Point | None) -> Point:
    """A valid start for the problem: the given one, or zero where the objective is lower."""
    if start is None:
        return zero_point(problem)
    coef = np.array(start.coef, dtype=np.float64)
    dual = None if start.dual is None else np.array(start.dual, dtype=np.float64)
    classes = (problem.n_scores,) if problem.loss.several else ()
    if coef.shape != (*classes, problem.n_columns) or (dual is not None and dual.shape != (problem.n_rows, *classes)):
        each = f" for each of {problem.n_scores} classes" if classes else ""
        raise ValueError(
            f"start must have {problem.n_columns} coefficients and {problem.n_rows} dual variables{each}, as the problem has "
            f"columns and rows; got {coef.shape} and {None if dual is None else dual.shape}."
        )
    if not all(np.all(np.isfinite(part)) for part in (coef, start.intercept, 0.0 if dual is None else dual)):
        raise ValueError("start must be finite; got NaN or infinity in its coefficients, intercept or dual variables.")
    intercept: Any = 0.0
    if problem.fit_intercept:
        intercept = np.broadcast_to(np.asarray(start.intercept, dtype=np.float64), classes)
        intercept = intercept.copy() if classes else float(intercept)
    elif classes:
        intercept = np.zeros(classes)
    at_zero = float(problem.weights @ problem.loss.value(problem.y, np.zeros((problem.n_rows, *classes))))
    # Far from all data the curvatures vanish, and with them what a Newton step can be told by.
    if not duality.primal_value(problem, coef, problem.scores(coef, intercept)) <= at_zero:
        return zero_point(problem)
    return Point(coef, intercept, dual)


def _train_in_passes(
    problem: Problem, tol: float, solver: str, start: Solution | Point | None, max_iter: int | None, budget: Budget
) -> Solution:
    """Train rows in blocks: a solution with the sums at its point instead of a dual point."""
    name, before = _choose_in_passes(problem, solver), problem.traffic.passes
    stop = Stop(tol, lambda state: budget.spent, max_iter or SOLVERS[name][1])
    run_solver = newton if name == "newton" else newton_cg_in_passes
    run_solver = class_newton_in_passes if problem.loss.several else run_solver
    run = run_solver(problem, _start_in_passes(problem, start), stop)
    n_iter = run.n_iter
    if run.status == "stalled" and start is not None:
        # The start may be to blame: "stalled" is said only where a training from zero stalls too.
        run = run_solver(problem, zero_point(problem), stop)
        n_iter += run.n_iter
    if run.class_sums is not None:
        return _class_solution(problem, run, run.class_sums, tol, n_iter, before)
    point, here = run.point, run.expansion
    assert here is not None
    value, gap, dual = objective_value(problem.totals, point, here), local_gap(problem, point, here), None
    if not relative(gap, value) <= tol:
        dual = dual_gap(problem, point)
        gap = min(gap, dual.value)
    reached = relative(gap, value) <= tol
    solution = Solution(
        problem=problem,
        coef=point.coef,
        intercept=point.intercept,
        primal_value=value,
        solver_gap=gap,
        n_iter=n_iter,
        status="converged" if reached else "stalled" if run.status == "converged" else run.status,
        solver=name,
        expansion=here,
        n_passes=problem.traffic.passes - before,
    )
    if dual is not None:
        solution.__dict__["dual_gap"] = dual
    return solution


def _class_solution(problem: Problem, run: Run, here: ClassSums, tol: float, n_iter: int, before: float) -> Solution:
    """The solution of rows in blocks with one score per class, with the gap that the local certificate proves."""
    point = run.point
    value = here.value + 0.5 * float(np.sum(problem.quadratic * np.square(point.coef)))
    gap = ClassEllipsoid.of_sums(problem, point, here).gap
    reached = relative(gap, value) <= tol
    return Solution(
        problem=problem,
        coef=point.coef,
        intercept=point.intercept,
        primal_value=value,
        solver_gap=gap,
        n_iter=n_iter,
        status="converged" if reached else "stalled" if run.status == "converged" else run.status,
        solver="newton",
        class_sums=here,
        n_passes=problem.traffic.passes - before,
    )


def _choose_in_passes(problem: Problem, solver: str) -> str:
    """The solver's name, or an error that says what training in passes does not have."""
    if solver not in ("auto", "newton", "newton-cg"):
        raise ValueError(f"solver must be 'auto', 'newton' or 'newton-cg' for rows in blocks; got {solver!r}.")
    if isinstance(problem.loss, Hinge) or not problem.penalty.smooth:
        raise ValueError(
            f"rows in blocks are trained with a smooth loss and an L2 penalty; got {problem.loss!r} and "
            f"{problem.penalty!r}. Use glru.SmoothedHinge() for the hinge, or a glru.Problem of data in memory."
        )
    if problem.loss.several:
        require_classes(problem)
        if solver == "newton-cg":
            raise ValueError(f"{problem.loss!r} of rows in blocks is trained by 'newton'; got 'newton-cg'. Use 'auto'.")
        return "newton"
    if solver == "newton" and problem.n_columns > MAX_COLUMNS:
        raise ValueError(
            f"solver 'newton' sums a Hessian of at most {MAX_COLUMNS} columns; got {problem.n_columns}. Use 'newton-cg'."
        )
    if solver == "auto":
        return "newton" if problem.n_columns <= MAX_COLUMNS else "newton-cg"
    return solver


def _start_in_passes(problem: Problem, start: Solution | Point | None) -> Point:
    """Where to start: a model that was given, that of a sample of the rows, or zero."""
    if isinstance(start, Solution | Point):
        coef, classes = np.array(start.coef, dtype=np.float64), (problem.n_scores,) if problem.loss.several else ()
        intercept = np.array(start.intercept, dtype=np.float64)
        if coef.shape != (*classes, problem.n_columns) or not (
            np.isfinite(coef).all() and np.isfinite(intercept).all()
        ):
            raise ValueError(
                f"start must have {problem.n_columns} finite coefficients, as the problem has columns; got {coef.shape}."
            )
        intercept = intercept if problem.fit_intercept else np.zeros(classes)
        return Point(coef, np.broadcast_to(intercept, classes).copy() if classes else float(intercept))
    if start is not None:
        raise TypeError(f"start must be a solution or a glru.Point; got {type(start).__name__}.")
    return start_from_sample(problem) if problem.n_columns <= MAX_COLUMNS else zero_point(problem)


def _limit_until(until: Until | None, budget: Budget) -> Until | None:
    """``until``, which is also true once the budget is spent."""
    if budget.end is None:
        return until
    return lambda state: budget.spent or (until is not None and until(state))


def _continue_until(until: Until | None, n_before: int) -> Until | None:
    """``until`` for a solver that goes on after ``n_before`` iterations of another, from where that one was judged."""
    if until is None or n_before == 0:
        return until
    return lambda state: state.n_iter > 0 and until(replace(state, n_iter=n_before + state.n_iter))


def start_from_sample(problem: Problem) -> Point:
    """The model of a sample of the rows, where the data is tall enough for one; otherwise zero."""
    sample = sample_of(problem)
    if sample is None:
        return zero_point(problem)
    fit = (class_newton if direct_is_cheaper(sample) else class_newton_cg) if problem.loss.several else newton
    point = fit(sample, zero_point(sample), Stop(1e-3, None, 50)).point
    return Point(point.coef, point.intercept)


def _finish(problem: Problem, run: Run, tol: float, name: str) -> Solution:
    """The solution at a run's end; its status is judged by the gap computed afresh."""
    point, scores = run.point, run.scores
    if not (np.all(np.isfinite(point.coef)) and np.all(np.isfinite(point.intercept))):
        # Steps that overflowed have left no model; zero is one, with a gap.
        point, scores = zero_point(problem), None
    if point.dual is not None:
        # A row of weight zero takes no part in the dual problem; give it what its score implies.
        dual = point.dual
        if not problem.weights.all():
            slopes = problem.loss.gradient(problem.y, problem.scores(point.coef, point.intercept))
            dual = np.where((problem.weights > 0.0).reshape((-1,) + (1,) * (dual.ndim - 1)), dual, -slopes)
        point = replace(point, dual=dual)
    # With unpenalised columns the expansion is kept beside the Hessian, to tell whether there is one optimum.
    make = partial(make_solution, n_iter=run.n_iter, status=run.status, solver=name, before=run.before, scores=scores)
    solution = None
    if problem.unpenalised.size and point.dual is not None:
        # A linearised dual point is feasible as it is: its gap tells, for the same price.
        solution = make(problem, point)
    if solution is None or not np.isfinite(solution.solver_gap):
        if point.dual is not None:
            point = replace(point, dual=duality.make_feasible_dual(problem, point.dual))
        solution = make(problem, point)
    reached = solution.reached(tol)
    if reached == (run.status == "converged") or run.status == "stopped":
        return solution
    return replace(solution, status="converged" if reached else run.status if run.status != "converged" else "stalled")


def _warn(solution: Solution, tol: float) -> None:
    from sklearn.exceptions import ConvergenceWarning

    remedy = (
        "Raise max_iter or tol, or scale the columns."
        if solution.status == "max_iter"
        else "float64 allowed no more progress: raise tol, scale the columns, or penalise or remove columns that nearly depend on others."
    )
    reason = explain_missing_optimum(solution.problem) if solution.problem.in_memory else None
    if reason is not None:
        remedy = reason[0].upper() + reason[1:]
    warn_caller(
        f"{solution.solver} ended with a relative gap of {solution.relative_gap:.2g} above tol={tol:g} after "
        f"{solution.n_iter} iterations ({solution.status}). {remedy}",
        ConvergenceWarning,
    )
