r"""Leave-one-out removals in batches: Newton candidates written down in full, each with its Fenchel-Young gap.

Over the columns (:class:`TallRows`) a batch is a matrix of coefficient vectors; scores and correlations are two
products with X. Over the rows (:class:`WideRows`, n < d) a candidate is :math:`w = \Lambda^{-1} X^\top b` with
:math:`b = s' \circ a` zero at the removed row: the penalty's Fenchel-Young terms vanish exactly, and the scores are
:math:`K b`, :math:`K = X \Lambda^{-1} X^\top`. Nothing but products of stored numbers enters a certificate.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve

from glru._numerics import TINY, Array, gamma
from glru._products import column_gram, robust_cholesky, row_gram
from glru.certificate import FEW, ball_radius, loss_terms, penalty_terms
from glru.families.carried import row_norms, scale, shared_norms, shared_part, weight_error
from glru.problem import Problem
from glru.regions.base import Bounds, widened
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

    def _ball(
        self, rows: Rows, scores: Array, errors: Array, dual: Array, penalty: Array, center_error: Array
    ) -> Bounds:
        """Primal-SCB at each removed row, from the scores and dual variables of its candidate (a column each)."""
        problem = self.problem
        terms = loss_terms(problem.loss, problem.y[:, None], scores, errors, dual)
        columns = np.arange(rows.size)
        terms[rows, columns] = 0.0
        terms[self.weights == 0.0] = 0.0
        losses = (self.weights @ terms) * (1.0 + weight_error(problem))
        gaps = (losses + penalty) * (1.0 + FEW)
        gaps = np.where(np.isfinite(gaps), gaps, np.inf)
        center = scores[rows, columns]
        return widened(center, ball_radius(gaps) * self.reach[rows] * (1.0 + FEW) + center_error)

    def _linear(self, slopes: Array, bends: Array, moves: Array, rows: Rows) -> Array:
        """The linearised dual points, projected onto the domain, zero at the removed rows."""
        y = self.problem.y[:, None]
        dual = -self.problem.loss.project(y, slopes + bends * moves)
        dual[rows, np.arange(rows.size)] = 0.0
        return dual


def has_newton_rows(problem: Problem) -> bool:
    """Whether batches of Newton candidates apply: a smooth loss, an L2 penalty on every column, no intercept."""
    return (
        np.isfinite(problem.loss.smoothness)
        and problem.penalty.smooth
        and problem.penalty.strong_convexity > 0.0
        and not problem.fit_intercept
        and min(problem.n_rows, problem.n_columns) <= 6000
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
        hessian = column_gram(problem.X, self.weights * self.bends)
        hessian[np.diag_indices(problem.n_columns)] += problem.penalty.quadratic
        self.factor = (robust_cholesky(hessian), False)
        lam_w = np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,)) * solution.coef
        gradient = problem.X.T @ (self.weights * self.slopes) + lam_w
        self.step = cho_solve(self.factor, -gradient, check_finite=False)

    def _candidates(self, rows: Rows) -> tuple[Array, Array, NDArray[np.bool_]]:
        """The rows, the coefficients after one Newton step without each, and whether there is such a step."""
        block = self.problem.X[rows]
        block = block if isinstance(block, np.ndarray) else block.toarray()
        images = cho_solve(self.factor, block.T, check_finite=False)
        leverage = self.weights[rows] * self.bends[rows] * np.einsum("ij,ji->i", block, images)
        moves = block @ self.step
        with np.errstate(all="ignore"):
            change = self.weights[rows] * (self.slopes[rows] + self.bends[rows] * moves) / (1.0 - leverage)
        usable = np.isfinite(change) & (leverage < 1.0)
        coefs = self.solution.coef[:, None] + self.step[:, None] + images * np.where(usable, change, 0.0)
        return block, coefs, usable

    def guesses(self, rows: Rows) -> Array:
        block, coefs, usable = self._candidates(rows)
        return np.where(usable, np.einsum("ij,ji->i", block, coefs), np.nan)

    def bounds(self, rows: Rows) -> Bounds:
        problem, weights = self.problem, self.weights
        _, coefs, usable = self._candidates(rows)
        scores = problem.X @ coefs
        dual = self._linear(self.slopes[:, None], self.bends[:, None], scores - self.solution.scores[:, None], rows)
        sizes = np.linalg.norm(coefs, axis=0) * (1.0 + gamma(problem.n_columns + 4))
        plain = np.sqrt(problem.squared_row_norms) * (1.0 + gamma(problem.n_columns + 4))
        errors = gamma(problem.n_columns + 2) * np.outer(plain, sizes)
        correlations = problem.X.T @ (weights[:, None] * dual)
        mass = np.sqrt(weights @ dual**2) * (1.0 + gamma(problem.n_rows + 4))
        spread = (
            np.sqrt(weights.sum() / problem.weights.sum()) * problem.column_norms * (1.0 + gamma(problem.n_rows + 8))
        )
        slack = weight_error(problem) * np.outer(mass, spread) * (1.0 + FEW)
        penalty = penalty_terms(problem.penalty, coefs.T, correlations.T, slack).sum(axis=1)
        penalty = penalty * (1.0 + gamma(problem.n_columns + 2))
        lower, upper = self._ball(rows, scores, errors, dual, penalty, errors[rows, np.arange(rows.size)])
        return np.where(usable, lower, -np.inf), np.where(usable, upper, np.inf)


@final
class WideRows(RemovedRows):
    """Candidates as weighted dual points."""

    def __init__(self, solution: Solution, factor: float, gram: Array | None = None) -> None:
        super().__init__(solution, factor)
        # A column with a value in one row only gets the coefficient exactly 0 when that row leaves, in the candidate
        # (b is zero there) as at the optimum: it does not widen the row's bounds.
        self.reach = shared_norms(self.problem, shared_part(self.problem))
        self.gram = row_gram(self.problem, self.inverse) if gram is None else gram
        bend = self.weights * self.bends
        self.root = np.sqrt(bend)
        core = self.root[:, None] * self.gram * self.root
        core[np.diag_indices(self.problem.n_rows)] += 1.0
        self.factor = (robust_cholesky(core), False)

    def bounds(self, rows: Rows) -> Bounds:
        """One Newton step from the old optimum: the scores move by ``p + c_i Q_i``, ``Q = K (I + D K)^-1``."""
        dual, _ = self._first(rows)
        return self._certified(rows, dual, self.gram @ (self.weights[:, None] * dual))

    def guesses(self, rows: Rows) -> Array:
        moves, _ = self._moves(rows)
        return self.solution.scores[rows] + moves[rows, np.arange(rows.size)]

    def _first(self, rows: Rows) -> tuple[Array, Array]:
        """The dual points after one Newton step, and ``(I + D K)^-1 e_i`` for every row."""
        moves, through = self._moves(rows)
        return self._linear(self.slopes[:, None], self.bends[:, None], moves, rows), through

    def _moves(self, rows: Rows) -> tuple[Array, Array]:
        """What one Newton step without each row does to the scores, and ``(I + D K)^-1 e_i``."""
        columns = np.arange(rows.size)
        base = self.weights * self.slopes - self.weights * self.bends * self.solution.scores
        own = np.zeros((self.problem.n_rows, rows.size + 1))
        own[rows, columns] = 1.0
        own[:, -1] = base
        through = self._through(own)
        images = self.gram @ through
        moves, images = -(self.solution.scores + images[:, -1]), images[:, :-1]
        pulls, bends = self.weights[rows] * self.slopes[rows], self.weights[rows] * self.bends[rows]
        with np.errstate(all="ignore"):
            change = (pulls + bends * moves[rows]) / (1.0 - bends * images[rows, columns])
        change = np.where(np.isfinite(change), change, 0.0)
        return moves[:, None] + images * change, through[:, :-1]

    def stepped(self, rows: Rows, decided: Decided, n_steps: int) -> Bounds:
        """Bounds after Newton steps with the old Hessian, each with its certificate; rows leave as they are decided."""
        lower, upper = np.full(rows.size, -np.inf), np.full(rows.size, np.inf)
        dual, through = self._first(rows)
        active, before = np.arange(rows.size), np.full(rows.size, np.inf)
        for _ in range(n_steps):
            here, places = rows[active], np.arange(active.size)
            scores = self.gram @ (self.weights[:, None] * dual)
            low, high = self._certified(here, dual, scores)
            lower[active], upper[active] = np.maximum(lower[active], low), np.minimum(upper[active], high)
            width = high - low
            going = ~decided(lower[active], upper[active]) & (width < 0.9 * before[active])
            before[active] = width
            active, dual, scores = active[going], dual[:, going], scores[:, going]
            if not active.size:
                break
            here, places = rows[active], np.arange(active.size)
            _, slopes, bends = self.problem.loss.expand(self.problem.y[:, None], scores)
            residual = self.weights[:, None] * (slopes + dual)
            residual[here, places] = 0.0
            # (I + D' K)^-1 without the row, D' = D - d_i e_i e_i^T, by the Sherman-Morrison formula.
            solved = self._through(residual)
            bend = self.weights[here] * self.bends[here]
            seen = np.einsum("ij,ij->j", self.gram[:, here], solved)
            own = np.einsum("ij,ij->j", self.gram[:, here], through[:, active])
            with np.errstate(all="ignore"):
                fed = bend * seen / (1.0 - bend * own)
            solved += through[:, active] * np.where(np.isfinite(fed), fed, 0.0)
            dual = self._linear(slopes, bends, -(self.gram @ solved), here)
        return lower, upper

    def _through(self, v: Array) -> Array:
        """``(I + D K)^-1 v``."""
        inner = cho_solve(self.factor, self.root[:, None] * (self.gram @ v), check_finite=False)
        return v - self.root[:, None] * inner

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
            core = self.gram * root
            core *= root[:, None]
            core[np.diag_indices(root.size)] += 1.0
            factor = (robust_cholesky(core), False)
            residual = weights * slopes + pulls
            change = -(residual - root * cho_solve(factor, root * (self.gram @ residual), check_finite=False))
            dual = self._linear(slopes[:, None], bends[:, None], (self.gram @ change)[:, None], rows)
            pulls = weights * dual[:, 0]
            scores = self.gram @ pulls
            lower, upper = self._certified(rows, dual, scores[:, None])
            best = np.maximum(best[0], lower), np.minimum(best[1], upper)
            if decided(*best)[0]:
                return best
        return best

    def _certified(self, rows: Rows, dual: Array, scores: Array) -> Bounds:
        pulls = self.weights[:, None] * dual
        # |K_kj| and its rounding error are at most |x_k| |x_j| and gamma(d) of that; the sum over j adds gamma(n), the
        # rounding of the weights' product a unit.
        mass = self.norms @ np.abs(pulls)
        errors = gamma(self.problem.n_columns + self.problem.n_rows + 8) * np.outer(self.norms, mass) * (1.0 + FEW)
        own = errors[rows, np.arange(rows.size)]
        # The exact weights differ from those used here, so the exact correlations from the candidate's coefficients.
        penalty = 0.5 * np.square(weight_error(self.problem) * mass) * (1.0 + FEW)
        return self._ball(rows, scores, errors, dual, penalty, own)
