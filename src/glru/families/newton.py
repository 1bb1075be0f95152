r"""Leave-one-out removals in batches: Newton candidates written down in full, each with its Fenchel-Young gap.

Over the columns (:class:`TallRows`) a batch is a matrix of coefficient vectors; scores and correlations are two
products with X. Over the rows (:class:`WideRows`, n < d) a candidate is :math:`w = \Lambda^{-1} X^\top b` with
:math:`b = s' \circ a` zero at the removed row: the penalty's Fenchel-Young terms vanish exactly, and the scores are
:math:`K b`, :math:`K = X \Lambda^{-1} X^\top`. Nothing but products of stored numbers enters a certificate.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, widen
from glru.certificate import ball_radius, loss_terms
from glru.families.carried import row_norms, scale, shared_norms, shared_part, weight_error
from glru.families.conjugate import conjugate_gradients
from glru.linalg import FEW, TINY, Array, Matrix, arrays_of, gamma, to_host
from glru.linalg.factor import cholesky_solve, core_factor, robust_cholesky
from glru.problem import Problem
from glru.solution import Solution

Rows = NDArray[np.intp]
Decided = Callable[[Array, Array], NDArray[np.bool_]]


class RemovedRows(ABC):
    """Newton candidates for the removal of single rows, with weights multiplied by one factor."""

    def __init__(self, solution: Solution, factor: float) -> None:
        self.solution, self.problem = solution, solution.problem
        self.weights = factor * solution.problem.weights
        lam = np.broadcast_to(self.problem.penalty.quadratic, (self.problem.n_columns,))
        self.inverse = 1.0 / lam
        squares = row_norms(self.problem)
        self.norms = np.sqrt(squares * (1.0 + gamma(self.problem.n_columns + 4))) * (1.0 + FEW)
        self.norms = self.norms + TINY * scale(self.problem)
        self.reach = self.norms
        _, self.slopes, self.bends = self.problem.loss.expand(self.problem.y, solution.scores)

    @abstractmethod
    def bounds(self, rows: Rows) -> Bounds:
        """Bounds of the removed rows' scores after one Newton step each."""

    @abstractmethod
    def guesses(self, rows: Rows) -> Array:
        """The removed rows' scores after one Newton step each, without proof."""

    def _ball(self, rows: Rows, scores: Any, errors: Any, dual: Any, penalty: Array, center_error: Array) -> Bounds:
        """Primal-SCB at each removed row, from the scores and dual variables of its candidate (a column each)."""
        problem, arrays = self.problem, arrays_of(scores)
        terms = loss_terms(problem.loss, arrays.put(problem.y)[:, None], scores, errors, dual)
        entries = rows, np.arange(rows.size)
        terms = arrays.zeroed(terms, entries)
        if not self.weights.all():
            terms = arrays.without_rows(terms, self.weights == 0.0)
        losses = to_host(arrays.put(self.weights) @ terms) * (1.0 + weight_error(problem))
        gaps = (losses + penalty) * (1.0 + FEW)
        gaps = np.where(np.isfinite(gaps), gaps, np.inf)
        center = arrays.entries(scores, entries)
        return widen(center, ball_radius(gaps) * self.reach[rows] * (1.0 + FEW) + center_error)

    def _linear(self, slopes: Any, bends: Any, moves: Any, rows: Rows) -> Any:
        """The linearised dual points, projected onto the domain, zero at the removed rows."""
        arrays = arrays_of(moves)
        slopes, bends = arrays.put(slopes), arrays.put(bends)
        dual = -self.problem.loss.project(self.problem.y[:, None], slopes + bends * moves)
        return arrays.zeroed(dual, (rows, np.arange(rows.size)))


def has_newton_rows(problem: Problem) -> bool:
    """Whether batches of Newton candidates apply: a smooth loss, an L2 penalty on every column, no intercept."""
    return (
        np.isfinite(problem.loss.smoothness)
        and problem.penalty.smooth
        and problem.penalty.strong_convexity > 0.0
        and not problem.fit_intercept
        and min(problem.n_rows, problem.n_columns) <= problem.largest
    )


def removed_rows(solution: Solution, factor: float) -> RemovedRows:
    """The family in the smaller of the two dimensions."""
    problem = solution.problem
    return WideRows(solution, factor) if problem.n_rows < problem.n_columns else TallRows(solution, factor)


@final
class TallRows(RemovedRows):
    """Candidates as coefficient vectors."""

    def __init__(self, solution: Solution, factor: float) -> None:
        super().__init__(solution, factor)
        problem = self.problem
        self.factor = robust_cholesky(problem.hessian(self.weights * self.bends))
        lam_w = np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,)) * solution.coef
        gradient = problem.matrix.T @ (self.weights * self.slopes) + lam_w
        self.step = cholesky_solve(self.factor, -gradient)

    def _candidates(self, rows: Rows) -> tuple[Any, Any, NDArray[np.bool_]]:
        """The rows as columns, the coefficients after one Newton step without each, and whether there is such a step."""
        arrays, part = self.problem.arrays, self.problem.matrix[rows]
        block = part.block().T
        images = cholesky_solve(self.factor, block)
        leverage = self.weights[rows] * self.bends[rows] * arrays.inner(block, images)
        moves = part @ self.step
        with np.errstate(all="ignore"):
            change = self.weights[rows] * (self.slopes[rows] + self.bends[rows] * moves) / (1.0 - leverage)
        usable = np.isfinite(change) & (leverage < 1.0)
        start = arrays.put(self.solution.coef + self.step)[:, None]
        return block, start + images * arrays.put(np.where(usable, change, 0.0)), usable

    def guesses(self, rows: Rows) -> Array:
        block, coefs, usable = self._candidates(rows)
        return np.where(usable, self.problem.arrays.inner(block, coefs), np.nan)

    def bounds(self, rows: Rows) -> Bounds:
        problem, arrays, X = self.problem, self.problem.arrays, self.problem.matrix
        _, coefs, usable = self._candidates(rows)
        scores = X @ coefs
        moves = scores - arrays.put(self.solution.scores)[:, None]
        dual = self._linear(self.slopes[:, None], self.bends[:, None], moves, rows)
        sizes = np.sqrt(arrays.inner(coefs, coefs)) * (1.0 + gamma(problem.n_columns + 8))
        plain = np.sqrt(problem.squared_row_norms) * (1.0 + gamma(problem.n_columns + 4))
        unit = gamma(problem.n_columns + 2)
        errors = arrays.put(unit * plain)[:, None] * arrays.put(sizes)
        weights = arrays.put(self.weights)
        mass = np.sqrt(to_host(weights @ (dual * dual))) * (1.0 + gamma(problem.n_rows + 4))
        penalty = self._penalty_sums(coefs, X.T @ (weights[:, None] * dual), mass)
        own = unit * plain[rows] * sizes * (1.0 + FEW)
        lower, upper = self._ball(rows, scores, errors, dual, penalty, own)
        return np.where(usable, lower, -np.inf), np.where(usable, upper, np.inf)

    def _penalty_sums(self, coefs: Any, correlations: Any, mass: Array) -> Array:
        """At least the penalty's Fenchel-Young sums, ``(lam w - v)^2 / (2 lam)`` with the largest ``v`` within its error."""
        problem, arrays = self.problem, self.problem.arrays
        spread = np.sqrt(self.weights.sum() / problem.weights.sum()) * (1.0 + gamma(problem.n_rows + 8))
        slack = weight_error(problem) * spread * problem.column_norms * (1.0 + FEW)
        lam = arrays.put(np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,)))[:, None]
        pull = lam * coefs
        off = arrays.xp.abs(pull - correlations) + arrays.put(slack)[:, None] * arrays.put(mass)
        off += FEW * (arrays.xp.abs(pull) + arrays.xp.abs(correlations))
        off *= off
        return 0.5 * to_host(arrays.put(self.inverse) @ off) * (1.0 + gamma(problem.n_columns + 8) + FEW)


@final
class WideRows(RemovedRows):
    """Candidates as weighted dual points."""

    def __init__(self, solution: Solution, factor: float, gram: Matrix | None = None) -> None:
        super().__init__(solution, factor)
        # A column with a value in one row only gets the coefficient exactly 0 when that row leaves, in the candidate
        # (b is zero there) as at the optimum: it does not widen the row's bounds.
        self.reach = shared_norms(self.problem, shared_part(self.problem))
        self.gram = self.problem.matrix.row_gram(self.inverse) if gram is None else gram
        self.root = np.sqrt(self.weights * self.bends)
        self.factor = core_factor(self.gram, self.root)

    def bounds(self, rows: Rows) -> Bounds:
        """One Newton step from the old optimum: the scores move by ``p + c_i Q_i``, ``Q = K (I + D K)^-1``."""
        dual, _ = self._first(rows)
        return self._certified(rows, dual, self._scores(dual))

    def guesses(self, rows: Rows) -> Array:
        moves, _ = self._moves(rows)
        return self.solution.scores[rows] + self.problem.arrays.entries(moves, (rows, np.arange(rows.size)))

    def _scores(self, dual: Any) -> Any:
        """The scores of candidates given by their dual points."""
        return self.gram @ (arrays_of(dual).put(self.weights)[:, None] * dual)

    def _first(self, rows: Rows) -> tuple[Any, Any]:
        """The dual points after one Newton step, and ``(I + D K)^-1 e_i`` for every row."""
        moves, through = self._moves(rows)
        return self._linear(self.slopes[:, None], self.bends[:, None], moves, rows), through

    @cached_property
    def _base_moves(self) -> Array:
        """What the part of a Newton step that all removals share does to the scores."""
        base = self.weights * self.slopes - self.weights * self.bends * self.solution.scores
        return -(self.solution.scores + self.gram @ self._through(base))

    def _moves(self, rows: Rows) -> tuple[Any, Any]:
        """What one Newton step without each row does to the scores, and ``(I + D K)^-1 e_i``."""
        arrays, moves = self.problem.arrays, self._base_moves
        through = self._through(arrays.units(self.problem.n_rows, rows))
        images = self.gram @ through
        pulls, bends = self.weights[rows] * self.slopes[rows], self.weights[rows] * self.bends[rows]
        with np.errstate(all="ignore"):
            own = arrays.entries(images, (rows, np.arange(rows.size)))
            change = (pulls + bends * moves[rows]) / (1.0 - bends * own)
        change = np.where(np.isfinite(change), change, 0.0)
        return arrays.put(moves)[:, None] + images * arrays.put(change), through

    def stepped(self, rows: Rows, decided: Decided, n_steps: int, exact: bool = False) -> Bounds:
        """Bounds after Newton steps, each with its certificate; rows leave as they are decided.

        The steps are those of the old Hessian, or ``exact``: each with the Hessian of its own candidate.
        """
        arrays, problem = self.problem.arrays, self.problem
        lower, upper = np.full(rows.size, -np.inf), np.full(rows.size, np.inf)
        y, weights = arrays.put(problem.y)[:, None], arrays.put(self.weights)[:, None]
        dual, through = self._first(rows)
        active, before = np.arange(rows.size), np.full(rows.size, np.inf)
        for _ in range(n_steps):
            scores = self._scores(dual)
            low, high = self._certified(rows[active], dual, scores)
            lower[active], upper[active] = np.maximum(lower[active], low), np.minimum(upper[active], high)
            width = high - low
            going = ~decided(lower[active], upper[active]) & (width < 0.9 * before[active])
            before[active] = width
            active = active[going]
            if not active.size:
                break
            dual, scores, through = (arrays.take(matrix, going) for matrix in (dual, scores, through))
            here, places = rows[active], np.arange(active.size)
            _, slopes, bends = problem.loss.expand(y, scores)
            residual = arrays.zeroed(weights * (slopes + dual), (here, places))
            if exact:
                solved = self._exact(arrays.zeroed(weights * bends, (here, places)), residual)
                dual = self._linear(slopes, bends, -(self.gram @ solved), here)
                continue
            # (I + D' K)^-1 without the row, D' = D - d_i e_i e_i^T, by the Sherman-Morrison formula.
            solved = self._through(residual)
            bend = self.weights[here] * self.bends[here]
            columns = self.gram.block(here)
            seen, own = arrays.inner(columns, solved), arrays.inner(columns, through)
            with np.errstate(all="ignore"):
                fed = bend * seen / (1.0 - bend * own)
            solved += through * arrays.put(np.where(np.isfinite(fed), fed, 0.0))
            dual = self._linear(slopes, bends, -(self.gram @ solved), here)
        return lower, upper

    def _through(self, v: Any) -> Any:
        """``(I + D K)^-1 v``."""
        root = arrays_of(v).put(self.root if v.ndim == 1 else self.root[:, None])
        return v - root * cholesky_solve(self.factor, root * (self.gram @ v))

    def _exact(self, bends: Any, v: Any) -> Any:
        """``(I + D K)^-1 v`` with other weighted curvatures for every column, the old factor in front."""
        arrays = self.problem.arrays
        root = arrays.xp.sqrt(bends)
        inner = conjugate_gradients(
            arrays,
            lambda u: u + root * (self.gram @ (root * u)),
            lambda u: cholesky_solve(self.factor, u),
            root * (self.gram @ v),
        )
        return v - root * inner

    def refined(self, row: int, decided: Decided, n_steps: int) -> Bounds:
        """Bounds after exact Newton steps for one removal, each with a factor of its own."""
        rows = np.array([row])
        weights = self.weights.copy()
        weights[row] = 0.0
        scores, pulls = self.solution.scores, self.weights * self.solution.dual
        best = np.array([-np.inf]), np.array([np.inf])
        for _ in range(n_steps):
            _, slopes, bends = self.problem.loss.expand(self.problem.y, scores)
            root = np.sqrt(weights * bends)
            factor = core_factor(self.gram, root)
            residual = weights * slopes + pulls
            change = -(residual - root * cholesky_solve(factor, root * (self.gram @ residual)))
            dual = self._linear(slopes[:, None], bends[:, None], (self.gram @ change)[:, None], rows)
            pulls = weights * dual[:, 0]
            scores = self.gram @ pulls
            lower, upper = self._certified(rows, dual, scores[:, None])
            best = np.maximum(best[0], lower), np.minimum(best[1], upper)
            if decided(*best)[0]:
                return best
        return best

    def _certified(self, rows: Rows, dual: Any, scores: Any) -> Bounds:
        arrays = arrays_of(dual)
        pulls = arrays.xp.abs(arrays.put(self.weights)[:, None] * dual)
        # |K_kj| and its rounding error are at most |x_k| |x_j| and gamma(d) of that; the sum over j adds gamma(n), the
        # rounding of the weights' product a unit.
        mass = to_host(arrays.put(self.norms) @ pulls)
        unit = gamma(self.problem.n_columns + self.problem.n_rows + 8) * (1.0 + FEW)
        errors = arrays.put(unit * self.norms)[:, None] * arrays.put(mass)
        own = unit * self.norms[rows] * mass * (1.0 + FEW)
        # The exact weights differ from those used here, so the exact correlations from the candidate's coefficients.
        penalty = 0.5 * np.square(weight_error(self.problem) * mass) * (1.0 + FEW)
        return self._ball(rows, scores, errors, dual, penalty, own)
