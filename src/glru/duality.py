r"""The duality gap in Fenchel-Young form, dual feasible points, and whether there is an optimum at all.

.. math:: P(w, b) - D(a) = \sum_i s_i F_\ell(y_i; x_i^\top w + b, -a_i) + \sum_j F_{\rho_j}(w_j, v_j), \quad v = X^\top (s \circ a)

Every term is non-negative, so nothing cancels between large sums. With an unpenalised intercept
the dual is feasible only if :math:`\sum_i s_i a_i = 0`; an unpenalised column ``j`` asks for
:math:`v_j = 0`. A sum that is zero up to its own rounding error counts as zero.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from glru.linalg import FEW, HOST, TINY, Array, gamma, powers_of_two, to_host, weighted_norm
from glru.losses import Loss, Multinomial
from glru.penalties import L2
from glru.problem import Problem, per_row


@final
@dataclass(frozen=True, eq=False)
class Gap:
    """A duality gap with everything it was summed from."""

    dual: Array  # shape (n_rows,): the dual point
    scores: Array  # shape (n_rows,): ``X w + b``
    correlations: Array  # shape (n_columns,): ``X^T (s o a)``
    row_terms: Array  # shape (n_rows,): ``s_i F_l(y_i; z_i, -a_i)``
    column_terms: Array  # shape (n_columns,): ``F_rho_j(w_j, v_j)``
    value: float  # the gap: the sum of all terms, ``inf`` where the dual point is infeasible


def gap(problem: Problem, coef: Array, intercept: float, dual: Array, scores: Array | None = None) -> Gap:
    """The duality gap of a primal and a dual point, from two products with X; ``scores``: the first one, where it is known."""
    scores = problem.scores(coef, intercept) if scores is None else scores
    correlations = constrain_correlations(problem, dual)
    rows = row_terms(problem, scores, dual)
    columns = problem.penalty.fenchel_young(coef, correlations)
    value = float(rows.sum() + columns.sum()) if is_balanced(problem, dual) else np.inf
    return Gap(dual, scores, correlations, rows, columns, value)


def row_terms(problem: Problem, scores: Array, dual: Array) -> Array:
    """``s_i F_l(y_i; z_i, -a_i)``; a row of weight zero contributes nothing whatever its dual variable."""
    return weigh_terms(problem, problem.loss.fenchel_young(problem.y, scores, -dual))


def weigh_terms(problem: Problem, terms: Array) -> Array:
    """``s_i`` times one term per row, which may be infinite where the weight is zero."""
    return problem.weights * np.where(problem.weights > 0.0, terms, 0.0)


def primal_value(problem: Problem, coef: Array, scores: Array) -> float:
    """``P``: the weighted losses plus the penalty."""
    return float(problem.weights @ problem.loss.value(problem.y, scores) + problem.penalty.value(coef).sum())


def dual_value(problem: Problem, dual: Array, correlations: Array) -> float:
    """``D``: ``-inf`` where the dual point is infeasible."""
    rows = weigh_terms(problem, problem.loss.conjugate(problem.y, -dual)).sum()
    columns = problem.penalty.conjugate(correlations).sum()
    return float(-rows - columns) if is_balanced(problem, dual) else -np.inf


def is_balanced(problem: Problem, dual: Array) -> bool:
    """Whether the dual satisfies the intercept's constraint ``sum_i s_i a_i = 0`` up to the rounding of that sum."""
    if not problem.fit_intercept:
        return True
    terms = per_row(problem.weights, dual)
    slack = gamma(len(terms) + 1) * np.abs(terms).sum(axis=0)
    if problem.loss.several:
        # Gradients of several classes are rounded beside 1, and the certificate pays for what the sums miss.
        slack = slack + gamma(4 * len(terms) + 64) * float(problem.weights.sum())
    return bool(np.all(np.abs(terms.sum(axis=0)) <= slack))


def constrain_correlations(problem: Problem, dual: Array) -> Array:
    """``X^T (s o a)``, with an exact zero where an unpenalised column's sum is zero up to its rounding."""
    correlations = problem.correlations(dual)
    free = problem.unpenalised
    if free.size and problem.loss.several:
        size = np.abs(problem.matrix.dense(free)).T @ problem.weights
        zero = np.abs(correlations[:, free]) <= gamma(4 * problem.n_rows + 64) * size
        correlations[:, free] = np.where(zero, 0.0, correlations[:, free])
    elif free.size:
        # By Cauchy-Schwarz the terms of a sum are together at most this in size.
        size = float(weighted_norm(problem.weights, dual)) * problem.column_norms[free]
        zero = np.abs(correlations[free]) <= gamma(problem.n_rows + 1) * size
        correlations[free[zero]] = 0.0
    return correlations


def make_feasible_dual(problem: Problem, dual: Array) -> Array:
    """A dual feasible point near ``dual``, which must lie in the domain of the conjugate loss.

    The constraints of the intercept and of unpenalised columns are met by a correction in proportion
    to each row's distance from the edge of the domain, where that stays inside; for an intercept
    alone, otherwise, by scaling the heavier sign down. Then everything is scaled into the box of L1
    columns: zero is in the domain of every loss, so scaling never leaves it. If no point is found the
    input is returned, and its gap is infinite.
    """
    if problem.loss.several:
        return _balance_classes(problem, dual)
    dual = _balance(problem, dual)
    _, box = problem.penalty.derivative_range()
    if np.all(np.isinf(box) | (box == 0.0)):
        return dual
    # The products are rounded, and again when the gap is taken: stay inside by more than that. By Cauchy-Schwarz
    # sum_i s_i |a_i x_ij| <= sqrt(sum_i s_i a_i^2) sqrt(sum_i s_i x_ij^2).
    margin = 2.0 * gamma(problem.n_rows + 8) * float(weighted_norm(problem.weights, dual))
    moves = find_feasible_moves(problem, dual)
    if np.all(np.isfinite(moves)):
        # A certificate moves the variables until the equality constraints hold exactly; a quarter more, since the sums of the scaled
        # variables are rounded again.
        margin += 1.25 * float(weighted_norm(problem.weights, moves))
    size = np.abs(problem.correlations(dual)) + margin * problem.column_norms
    box = np.broadcast_to(box, size.shape)
    tight = (box > 0.0) & (size > box)
    return dual * float((box[tight] / size[tight]).min()) if tight.any() else dual


def _balance(problem: Problem, dual: Array) -> Array:
    """The part of :func:`make_feasible_dual` that meets the equality constraints."""
    if not problem.fit_intercept and not problem.unpenalised.size:
        return dual
    free = problem.unpenalised
    if is_balanced(problem, dual) and not (free.size and constrain_correlations(problem, dual)[free].any()):
        # A linearised dual point: the correction would be rounding, and costs a Gram matrix where columns are unpenalised.
        return dual
    lower, upper = problem.loss.derivative_range(problem.y)
    slack = np.minimum(np.minimum(upper + dual, -dual - lower), 1.0)
    shift, corrected = _make_balancing_shift(problem, slack), dual
    for _ in range(2):  # the second pass removes the rounding of the first
        corrected = corrected - slack * shift(problem.weights * corrected)
        if not np.all((lower <= -corrected) & (-corrected <= upper)):
            corrected = dual
            break
    if free.size or is_balanced(problem, corrected):
        return corrected
    return _scale_to_balance(problem, dual)


def _make_balancing_shift(problem: Problem, slack: Array) -> Callable[[Array], Array]:
    """A function of ``s o a``: what ``slack`` is multiplied by in a correction that meets the constraints; NaN where that overflows."""
    weighted, free = problem.weights * slack, problem.unpenalised
    total = float(weighted.sum())
    if not free.size:
        return lambda terms: (
            terms.sum() / total if 0.0 < total < np.inf else np.full(slack.size, 0.0 if total == 0.0 else np.nan)
        )
    # Products with the matrix as it is stored: most often no column is penalised.
    columns = problem.matrix if free.size == problem.n_columns else problem.matrix[:, free]
    gram = to_host(columns.column_gram(weighted))
    if problem.fit_intercept:
        gram = HOST.add_border(gram, columns.T @ weighted, total)
    gram = np.triu(gram) + np.triu(gram, 1).T
    if not np.all(np.isfinite(gram)):
        return lambda terms: np.full(slack.size, np.nan)
    scales = powers_of_two(np.diagonal(gram))
    inverse = np.linalg.pinv(gram * scales * scales[:, None], hermitian=True)

    def shift(terms: Array) -> Array:
        residuals = columns.T @ terms
        if problem.fit_intercept:
            residuals = np.append(residuals, terms.sum())
        found = scales * (inverse @ (scales * residuals))
        return columns @ found[: free.size] + (found[-1] if problem.fit_intercept else 0.0)

    return shift


def stack_constraint_columns(problem: Problem) -> Array:
    """The unpenalised columns, and a column of ones for the intercept."""
    columns = problem.matrix.dense(problem.unpenalised)
    return np.column_stack([columns, np.ones(problem.n_rows)]) if problem.fit_intercept else columns


def find_feasible_moves(problem: Problem, dual: Array) -> Array:
    """How far each dual variable has to move at most so that the equality constraints hold exactly; inf if too far."""
    n_rows = problem.n_rows
    if not problem.fit_intercept and not problem.unpenalised.size:
        return np.zeros(n_rows)
    columns = stack_constraint_columns(problem)
    slack = measure_slack(problem.loss, problem.y, dual)
    sizes = move_sizes(*sum_constraints(columns, problem.weights, dual, slack), n_rows)
    if not np.all(np.isfinite(sizes)):
        return np.full(n_rows, np.inf)
    size = np.linalg.norm(columns * sizes, axis=1)
    # A move beyond the edge of the domain is none; the slack itself is rounded.
    return slack * size if size.max(initial=0.0) < 1.0 - FEW else np.full(n_rows, np.inf)


def measure_slack(loss: Loss, y: Array, dual: Array) -> Array:
    """How far each dual variable is from the edge of the domain, at most 1."""
    lower, upper = loss.derivative_range(y)
    return np.clip(np.minimum(upper + dual, -dual - lower), 0.0, 1.0)


def sum_constraints(columns: Array, weights: Array, dual: Array, slack: Array) -> tuple[Array, Array, Array]:
    """``C^T (s o a)``, ``|C|^T |s o a|`` and ``C^T diag(s o slack) C`` for the columns ``C`` of the equality constraints."""
    terms = weights * dual
    gram = columns.T @ ((weights * slack)[:, None] * columns)
    return columns.T @ terms, np.abs(columns).T @ np.abs(terms), gram


def move_sizes(residual: Array, sizes: Array, gram: Array, n_rows: int) -> Array:
    """A move of at most ``room_i |C_i o m|`` with these ``m`` makes the constraints hold exactly; inf where none are known.

    The arguments are the sums of :func:`sum_constraints` over ``n_rows`` rows, in any order.
    """
    residual = np.abs(residual) + gamma(n_rows + 3) * sizes
    if not np.all(np.isfinite(gram)):
        return np.full(residual.size, np.inf)
    # Multiplied by powers of two, which is exact: the units of the columns do not matter.
    scales = powers_of_two(np.diagonal(gram))
    residual, gram = scales * residual, gram * scales * scales[:, None]
    smallest = float(np.linalg.eigvalsh(gram)[0]) - gamma(n_rows + 10 * len(gram)) * float(np.trace(gram))
    if not smallest > 0.0:
        return np.full(residual.size, np.inf if residual.any() else 0.0)
    # Divided first: squares of residuals alone may underflow.
    return scales * (float(np.linalg.norm(residual / smallest)) * (1.0 + FEW) + TINY)


def list_class_constraints(problem: Problem, dual: Array, q: Array) -> tuple[Array, Array, Array]:
    """What the equality constraints of every class ask of dual variables ``a_i = e_y - q_i``, one line per row.

    The residual ``sum_i s_i a_i c_i^T`` over the columns ``c`` of the constraints, the sum of the absolute values of its
    terms, and the matrix that takes ``M`` to ``sum_i s_i h(q_i) M c_i c_i^T``, made regular where it has to be singular: moving
    ``q_i`` to ``q_i o (1 + m - q_i . m)``, ``m = M c_i``, changes the residual by that.
    """
    columns, n_scores = stack_constraint_columns(problem), problem.n_scores
    terms, n_free = problem.weights[:, None] * dual, columns.shape[1]
    matrix = np.empty((n_scores, n_free, n_scores, n_free))
    for j in range(n_free):
        for k in range(j, n_free):
            weights = problem.weights * columns[:, j] * columns[:, k]
            weighted = weights[:, None] * q
            # Moves of all classes alike are none: there the sum of s c c^T stands.
            block = np.diag(weighted.sum(axis=0)) - weighted.T @ q + weights.sum() / n_scores
            matrix[:, j, :, k] = matrix[:, k, :, j] = block
    size = n_scores * n_free
    return terms.T @ columns, np.abs(terms).T @ np.abs(columns), matrix.reshape(size, size)


def _balance_classes(problem: Problem, dual: Array) -> Array:
    """:func:`make_feasible_dual` with one score per class: probabilities are moved as a small move of scores would move them."""
    loss = problem.loss
    assert isinstance(loss, Multinomial)
    q = np.maximum(loss.probabilities_of(problem.y, -np.asfortranarray(dual)), 0.0)
    q /= q.sum(axis=1, keepdims=True)
    dual = -loss.slopes_of(problem.y, q)
    if problem.fit_intercept or problem.unpenalised.size:
        columns = stack_constraint_columns(problem)
        for _ in range(2):
            residual, _, matrix = list_class_constraints(problem, dual, q)
            if not np.all(np.isfinite(matrix)):
                break
            moves = (np.linalg.lstsq(matrix, residual.ravel(), rcond=None)[0].reshape(residual.shape) @ columns.T).T
            if not np.all(np.ptp(moves, axis=1) < 0.5):
                break
            q = q * (1.0 + moves - np.sum(q * moves, axis=1, keepdims=True))
            dual = -loss.slopes_of(problem.y, q)
    return dual


def _scale_to_balance(problem: Problem, dual: Array) -> Array:
    """The dual with its heavier sign scaled down until ``sum_i s_i a_i = 0``."""
    terms = problem.weights * dual
    up, down = terms[terms > 0.0].sum(), -terms[terms < 0.0].sum()
    if up == 0.0 or down == 0.0:
        return np.zeros_like(dual)
    return np.where(dual > 0.0, dual * min(1.0, down / up), dual * min(1.0, up / down))


MAX_ENTRIES = 2_000_000
"""Unpenalised columns with more entries are not searched for a direction that separates the classes."""


def has_spare_columns(problem: Problem) -> bool:
    """Whether unpenalised columns, the intercept among them, outnumber the rows: infinitely many models have the same scores, and none of them is proven."""
    if not problem.in_memory or problem.loss.several:
        return False
    n_free = problem.unpenalised.size + int(problem.fit_intercept)
    return n_free > int(np.count_nonzero(problem.weights))


DEPENDENT = 1e-10
"""Relative distance of a column from a combination of others below which it is checked whether it is that combination."""

MAX_ORTHOGONALISATION = 1e10
"""The most operations, rows times the square of the columns, in which combinations are looked for: a few seconds. More columns are dummies of sparse data."""


def penalise_dependent_columns(problem: Problem, moving: Sequence[int] | NDArray[np.intp] = ()) -> Problem:
    r"""A problem with one optimum and the same scores, where unpenalised columns are combinations of others; otherwise the problem itself.

    If :math:`x_{ij} = \sum_k c_k x_{ik}` in every row, those without weight and held out included, and none of these columns has a penalty, then
    every model has one of the same scores and losses with :math:`w_j = 0`. A penalty :math:`\lambda w_j^2 / 2` does not change the value
    of that one and makes all others worse: the optima of the new problem are those of the old one with :math:`w_j = 0`, whatever the weights of the
    rows are. ``moving``: columns that are not looked at.
    """
    if not (problem.in_memory and problem.unpenalised.size and isinstance(problem.penalty, L2)):
        return problem
    free, first = np.setdiff1d(problem.unpenalised, moving), int(problem.fit_intercept)
    if problem.n_rows * float(free.size) ** 2 > MAX_ORTHOGONALISATION:
        return problem
    n_rows, n_some = problem.n_rows, min(problem.n_rows, 4 * free.size + 20)
    # Columns that are independent in some rows are so in all. The intercept comes first: it is not penalised.
    some = np.linspace(0, n_rows - 1, n_some).astype(np.intp)
    ones = np.ones((n_rows, first))
    if has_spare_columns(problem) or _are_independent(np.hstack([ones[some], problem.matrix[some].dense(free)])):
        return problem
    columns = np.hstack([ones, problem.matrix.dense(free)])
    found = _list_dependent(columns)
    if not found.size:
        return problem
    strengths, squares = np.array(problem.quadratic), problem.weights @ np.square(columns[:, found])
    strengths[free[found - first]] = np.where(squares > 0.0, squares, 1.0)
    return problem.derive(penalty=L2(strengths))


def _are_independent(columns: Array) -> bool:
    """Whether columns of length 1 have a Gram matrix far from singular."""
    lengths = np.linalg.norm(columns, axis=0)
    if not lengths.all():
        return False
    unit = columns / lengths
    try:
        np.linalg.cholesky(unit.T @ unit - DEPENDENT * np.eye(columns.shape[1]))
    except np.linalg.LinAlgError:
        return False
    return True


def _list_dependent(columns: Array) -> NDArray[np.intp]:
    """The columns that are combinations of earlier ones."""
    basis, kept, found = np.empty(columns.shape, order="F"), list[int](), list[int]()
    for j, column in enumerate(columns.T):
        axes = basis[:, : len(kept)]
        left = column - axes @ (axes.T @ column)
        left -= axes @ (axes.T @ left)
        length = float(np.linalg.norm(left))
        if length > DEPENDENT * float(np.linalg.norm(column)):
            basis[:, len(kept)] = left / length
            kept.append(j)
        elif _is_combination(columns[:, kept], column):
            found.append(j)
    return np.array(found, dtype=np.intp)


def _is_combination(columns: Array, column: Array) -> bool:
    """Whether a column is a combination of others in exact arithmetic: products and their sums are taken without rounding."""
    if not column.any():
        return True
    shares = np.round(np.linalg.lstsq(columns, column, rcond=None)[0], 10)
    columns, shares = columns[:, shares != 0.0], shares[shares != 0.0]
    exact = (np.abs(np.frexp(shares)[0]) == 0.5) | np.all(np.isin(columns, [-1.0, 0.0, 1.0]), axis=0)
    terms = np.column_stack([columns * shares, -column])
    # Neither underflow, which powers of two may bring about, nor overflow.
    normal = np.all((terms == 0.0) | ((np.abs(terms) > 1e-290) & (np.abs(terms) < 1e290)))
    return bool(exact.all() and normal) and all(math.fsum(row) == 0.0 for row in terms.tolist())


def explain_missing_optimum(problem: Problem) -> str | None:
    r"""Why a problem has no optimum or more than one, with a remedy; None where no reason is known.

    A penalty on every column makes the optimum exist and be unique. Columns without one, and the intercept, may spoil both:

    * if a combination of them is zero in every row, any multiple of it can be added to a model at no cost;
    * the logistic loss falls for ever in a direction in which :math:`y_i x_i^\top w \ge 0` for every row and :math:`> 0` for
      some (the classes are separated, or nearly so). There is such a direction if and only if the linear program
      :math:`\max \sum_i y_i x_i^\top w` subject to :math:`0 \le y_i x_i^\top w \le 1` has a value above 0. With one score per class, the leads
      of every row's class over the others take the place of the margins;
    * a loss with a log link falls for ever in a direction that lowers the scores of rows with :math:`y_i = 0` and leaves those of all others as
      they are (a group of rows without a single count), which is the same program over the rows with :math:`y_i = 0`. For shares with a logit link, scores
      of rows with :math:`y_i = 1` may rise, too.
    """
    if not problem.fit_intercept and not problem.unpenalised.size:
        return None
    if lacks_class(problem) and (problem.loss.several or not problem.in_memory):
        return (
            "no optimum exists: a class has no rows, and its unpenalised intercept no best value. "
            "Keep rows of every class, or use fit_intercept=False."
        )
    if not problem.in_memory:
        return None
    used = problem.weights > 0.0
    free, y = stack_constraint_columns(problem)[used], problem.targets[used]
    if lacks_class(problem):
        return (
            f"no optimum exists: all rows are of the class {y[0]:+.0f}, and the unpenalised intercept has no best value. "
            "Keep rows of both classes, or use fit_intercept=False."
        )
    if has_spare_columns(problem) or np.linalg.matrix_rank(_scale_columns(free)) < free.shape[1]:
        return (
            "the optimum is not unique: unpenalised columns are linearly dependent, so that infinitely many models are best. "
            "Remove columns that are constant or depend on others (all indicators of a category together are the intercept: "
            "OneHotEncoder(drop='first') leaves one out), or penalise them."
        )
    if _separates_classes(problem, _scale_columns(free), y):
        return (
            "no optimum exists: unpenalised columns separate the classes, so that larger coefficients are always better. "
            "Penalise them."
        )
    if problem.loss.link == "identity" or free.size > MAX_ENTRIES:
        return None
    falling = y == 0.0
    rising = (y == 1.0) & (problem.loss.link == "logit")
    if _escapes(_scale_columns(free), rising.astype(np.float64) - falling):
        which, others = ("0", "above 0") if not rising.any() else ("0 or 1", "between them")
        return (
            f"no optimum exists: along unpenalised columns (the intercept counts as one) the scores of some rows with y = {which} can move on for ever, and "
            f"those of rows with y {others} stay. Penalise them, or remove the columns or the group of rows that have no y {others}."
        )
    return None


def _separates_classes(problem: Problem, columns: np.ndarray, y: np.ndarray) -> bool:
    """Whether a model of some columns separates the classes of a logistic or multinomial loss; False where that is too large to find out."""
    n_scores = problem.n_scores
    if not problem.loss.probabilities or columns.size * n_scores**2 > MAX_ENTRIES:
        return False
    if not problem.loss.several:
        return _separates(y[:, None] * columns)
    leads = np.eye(n_scores)[y.astype(np.intp), None] - np.eye(n_scores)
    return _separates(np.einsum("ikc,ij->ikcj", leads, columns).reshape(-1, n_scores * columns.shape[1]))


def _escapes(columns: np.ndarray, directions: np.ndarray) -> bool:
    """Whether some ``w`` moves the scores of some rows in their direction (-1 or +1), none against it, and leaves rows of direction 0."""
    moving = directions != 0.0
    if not moving.any():
        return False
    _, sizes, axes = np.linalg.svd(columns[~moving], full_matrices=True)
    rank = int(np.count_nonzero(sizes > 1e-12 * max(columns.shape) * sizes.max(initial=0.0)))
    return rank < columns.shape[1] and _separates(directions[moving, None] * columns[moving] @ axes[rank:].T)


def lacks_class(problem: Problem) -> bool:
    """Whether an unpenalised intercept is to be found for rows of one class only, or for a class without rows."""
    return problem.fit_intercept and misses_class(problem)


def misses_class(problem: Problem) -> bool:
    """Whether a classification has a class without a row of weight above 0."""
    if problem.loss.task != "classification":
        return False
    if not problem.in_memory:
        counts = problem.weight_summary.labels.counts
        return sum(number > 0 for number in counts.values()) < max(problem.n_scores, 2)
    used = problem.y[problem.weights > 0.0]
    if problem.loss.several:
        return np.unique(used).size < problem.n_scores
    return used.size == 0 or bool(np.all(used == used[0]))


def _scale_columns(columns: np.ndarray) -> np.ndarray:
    """Columns divided by their largest entry."""
    largest = np.abs(columns).max(axis=0, initial=0.0)
    return columns / np.where(largest > 0.0, largest, 1.0)


def _separates(margins: np.ndarray) -> bool:
    """Whether some ``w`` has no negative and some positive entries in ``margins @ w``."""
    from scipy.optimize import linprog

    found = linprog(
        -margins.sum(axis=0),
        A_ub=np.vstack([-margins, margins]),
        b_ub=np.concatenate([np.zeros(len(margins)), np.ones(len(margins))]),
        bounds=(None, None),
        method="highs",
    )
    return found.status == 0 and float(found.fun or 0.0) < -1e-6
