r"""What leaving out a row changes besides the row itself: preprocessing and class weights that are fitted to the other rows.

A pipeline's steps are fitted again without row ``i``. In the columns of the problem (the data as the steps fitted to *all* rows
transform it) that is a change of the penalty, of the filled values and of the weights: the model without row ``i`` minimises

.. math:: \sum_{k \ne i} u_{ik} s_k \ell(y_k, (x_k + m_k \circ f_i)^\top w + b) + \tfrac12 \sum_j \rho_{ij} \lambda_j w_j^2 .

With an unpenalised intercept a column-wise scaler is no more than that: its shift goes into the intercept, and a column that is
divided by ``t`` times what it was divided by has its coefficient multiplied by ``t``, so that the strength of the penalty is
:math:`\rho = t^2` times what it was.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru.duality import penalise_dependent_columns
from glru.linalg import FEW, Array, gamma
from glru.penalties import L1, L2, ElasticNet, Penalty
from glru.problem import Problem

Mask = NDArray[np.bool_]

LARGEST_SHARE = 1e-6
"""Relative error of refitted strengths up to which a support may be proven for all of them."""


@final
@dataclass(frozen=True, eq=False)
class Refits:
    """What leaving out each row changes besides the row; one row of every array per row of the problem."""

    strengths: Array | None = None  # shape (n_rows, n_columns): ``rho``: factors of the strengths of the penalty
    fills: Array | None = None  # shape (n_rows, n_columns): ``f``: what is added to some values of a column
    # Shape (n_rows, n_columns): ``m``: which values these are: those filled in because they were missing, or, without an intercept, all values that are
    # shifted.
    filled: Mask | None = None
    # Shape (n_rows, n_groups): ``u``: factors of the weights of the rows of each group.
    class_factors: Array | None = None
    # Shape (n_rows,): the group of each row; None: 0 for ``y < 0``, 1 for ``y > 0``.
    groups: NDArray[np.intp] | None = None
    # An upper bound of the relative error of a class factor, and the error of a strength's factor in units of ``max(1, rho)`` and of a fill in units of the largest
    # absolute value in its column. Bounds made in batches hold for all of these within that error. Those of rows that are worked on one by one hold for all
    # strengths' factors within it, by :meth:`slack`, and for fills and class factors as they are stored.
    error: float = 0.0
    # Shape (n_rows,): rows whose removal changes more than that: :attr:`refit` makes their problem.
    alone: Mask | None = None
    # ``refit(row)``: the problem without a row, in which it has weight zero, with the columns as its own preprocessing makes them.
    refit: Callable[[int], Problem] | None = None
    # Kinds of rows among those alone whose removals are small changes of another problem.
    variants: "tuple[Variant, ...]" = ()

    @property
    def n_rows(self) -> int:
        """How many rows it is about."""
        known = (self.strengths, self.fills, self.class_factors, self.alone)
        return next(part.shape[0] for part in known if part is not None)

    @cached_property
    def together(self) -> Mask:
        """The rows whose removals the arrays describe."""
        return np.ones(self.n_rows, dtype=bool) if self.alone is None else ~self.alone

    @property
    def one_by_one(self) -> Mask:
        """The rows that are neither described nor of a kind with others."""
        found = ~self.together
        for variant in self.variants:
            found[variant.rows] = False
        return found

    @cached_property
    def filled_columns(self) -> NDArray[np.intp]:
        """The columns with filled values that move."""
        if self.fills is None or self.filled is None:
            return np.empty(0, dtype=np.intp)
        return np.flatnonzero(self.filled.any(axis=0) & self.fills.any(axis=0))

    @cached_property
    def mask(self) -> Array:
        """Which values of :attr:`filled_columns` are filled, as numbers."""
        columns = self.filled_columns
        return np.zeros((self.n_rows, 0)) if self.filled is None else self.filled[:, columns].astype(np.float64)

    @cached_property
    def smallest(self) -> Array:
        """A lower bound of the least factor of a strength or of a weight without each row, and 1."""
        least = np.ones(self.n_rows)
        for part in (self.strengths, self.class_factors):
            if part is not None and part.shape[1]:
                least = np.minimum(least, part.min(axis=1) - self.error * np.maximum(1.0, part.max(axis=1)))
        return least

    @cached_property
    def largest_factor(self) -> float:
        """An upper bound of the largest factor of a weight, and 1."""
        factors = self.class_factors
        return 1.0 if factors is None else max(1.0, float(factors.max()) * (1.0 + FEW + self.error))

    def list_groups(self, problem: Problem) -> NDArray[np.intp]:
        """The group of each row of a problem in :attr:`class_factors`."""
        return (problem.y > 0.0).astype(np.intp) if self.groups is None else self.groups

    def weight_factors(self, problem: Problem, rows: NDArray[np.intp]) -> Array:
        """The factors of all rows' weights without each of some rows, a column per removal."""
        assert self.class_factors is not None
        return self.class_factors[rows].T[self.list_groups(problem)]

    def slack(self, problem: Problem) -> Array:
        """How far the score of each row is at most from that of :meth:`problem`, for all strengths' factors within their error."""
        known = self.together & has_squares(problem.penalty)
        found = np.where(known, self._described_slack(problem), 0.0)
        for variant in self.variants:
            found[variant.rows] = variant.refits.slack(variant.problem)[variant.rows]
        return found

    def _described_slack(self, problem: Problem) -> Array:
        if self.strengths is None or not self.error:
            return np.zeros(self.n_rows)
        kept = np.ones(self.n_rows)
        if self.class_factors is not None:
            kept *= np.maximum(self.class_factors.max(axis=1), 1.0)
        if problem.scaling == "mean":
            least = 1.0 if self.class_factors is None else np.minimum(self.class_factors.min(axis=1), 1.0)
            others = problem.total_weight - problem.sample_weight
            kept = np.divide(
                kept * problem.total_weight, others * least, out=np.full(kept.size, np.inf), where=others > 0
            )
        radii, norms = factor_radii(problem, self.strengths, self.error, kept * constant_loss(problem), self.fills)
        return radii * norms

    def parts(self) -> tuple[Any, ...]:
        """What tells refits apart."""
        names = ("strengths", "fills", "filled", "class_factors", "groups", "alone")
        return *((name, getattr(self, name)) for name in names if getattr(self, name) is not None), self.error

    def problem(self, problem: Problem, row: int) -> Problem:
        """The problem without a row, in which it has weight zero."""
        if self.alone is not None and self.alone[row]:
            for variant in self.variants:
                if row in variant.rows:
                    return variant.refits.problem(variant.problem, row)
            assert self.refit is not None
            return penalise_dependent_columns(self.refit(row))
        if self.strengths is not None and not has_squares(problem.penalty):
            assert self.refit is not None
            return penalise_dependent_columns(self.refit(row))
        return self.described(problem, row)

    def strength_error(self, row: int) -> float:
        """An upper bound of the relative error of the strengths of :meth:`described`, without a row that is described."""
        return 0.0 if self.strengths is None else float(strength_errors(self.strengths[row], self.error))

    def described(self, problem: Problem, row: int) -> Problem:
        """The problem without a row that the arrays describe, with its strengths as they are stored."""
        weight = problem.sample_weight.copy()
        weight[row] = 0.0
        changes: dict[str, Any] = {}
        if self.class_factors is not None:
            weight *= self.class_factors[row, self.list_groups(problem)]
        if self.strengths is not None:
            changes["penalty"] = rescale(problem.penalty, self.strengths[row])
        if self.filled_columns.size:
            assert self.fills is not None and self.filled is not None
            places = self.filled_columns
            values = problem.matrix.dense(places) + self.filled[:, places] * self.fills[row, places]
            changes["X"] = problem.matrix.replace_columns(places, values)
        return problem.derive(sample_weight=weight, **changes)

    def summed(self, problem: Problem) -> "Refits":
        """The same for a problem under the mean of the losses, multiplied by its total weight; its penalty is smooth.

        Without a row the total weight is another one, and so are the strengths.
        """
        weight = problem.sample_weight
        if self.class_factors is None:
            kept = problem.total_weight - weight
        else:
            groups = self.list_groups(problem)
            totals = np.bincount(groups, weight, self.class_factors.shape[1])
            kept = self.class_factors @ totals - self.class_factors[np.arange(weight.size), groups] * weight
        kept = np.maximum(kept / problem.total_weight, 0.0)[:, None]
        strengths = np.ones((problem.n_rows, problem.n_columns)) if self.strengths is None else self.strengths
        largest = max(1.0, float(kept.max())) * max(1.0, float(strengths.max(initial=1.0)))
        if self.class_factors is not None:
            largest *= max(1.0, float(self.class_factors.max()))
        error = (self.error * (2.0 + self.error) + 16.0 * gamma(problem.n_rows + 8)) * largest
        return replace(self, strengths=strengths * kept, error=error)


@final
@dataclass(frozen=True, eq=False)
class Variant:
    """Rows without which the columns are those of another problem, but for small changes."""

    rows: NDArray[np.intp]  # the rows
    problem: Problem  # all rows in the other columns
    refits: Refits  # what leaving out each of the rows changes there


def constant_loss(problem: Problem) -> float:
    """The sum of the losses of a model without coefficients, at least that of the best one and half its squared norm."""
    place = float(problem.weights @ problem.y / problem.weights.sum()) if problem.fit_intercept else 0.0
    values = [
        float(problem.weights @ problem.loss.value(problem.y, np.full(problem.n_rows, b)))
        for b in ({0.0, place} if problem.loss.task == "regression" else {0.0})
    ]
    return min(values)


def factor_radii(
    problem: Problem, strengths: Array, error: float, losses: Array, fills: Array | None
) -> tuple[Array, Array]:
    r"""By how much scores of optima differ at most under penalties whose strengths err, as a product of two arrays.

    With ``Lam`` the strengths as they are stored, the optimum ``w`` there and ``w'`` under :math:`\Lambda' = \Lambda (1 + O(\epsilon))`
    differ by :math:`\|w' - w\|_{\Lambda'} \le \|(\Lambda' - \Lambda) w + (\kappa' - \kappa) \operatorname{sign} w\|_{\Lambda'^{-1}}`, since the gradient at ``w``
    is no more than that and the losses are convex; and half the squared norm of ``w`` is at most the losses without it. An
    unpenalised intercept moves by at most the largest move of another row's score, since the slopes of the losses grow with it.

    Parameters
    ----------
    problem : Problem
        What the factors belong to.
    strengths : array of shape (n_changes, n_columns)
        The factors of its strengths.
    error : float
        Each errs by at most this times ``max(1, factor)``.
    losses : array of shape (n_changes,)
        At least the losses of a model without coefficients.
    fills : array of shape (n_changes, n_columns) or None
        What is added to filled values.

    Returns
    -------
    radii : array of shape (n_changes,)
        At least the norms of ``w' - w``, infinite where some columns are penalised and others not.
    norms : array of shape (n_rows,)
        At least the norms of what the rows' scores are made of, so that the product bounds how far a score moves.
    """
    lam = np.broadcast_to(problem.penalty.quadratic, (problem.n_columns,))
    kappa = np.broadcast_to(problem.penalty.absolute, (problem.n_columns,))
    n_changes = strengths.shape[0]
    if not lam.any() and not kappa.any():
        return np.zeros(n_changes), np.zeros(problem.n_rows)
    if not lam.all():
        return np.full(n_changes, np.inf), np.ones(problem.n_rows)
    with np.errstate(all="ignore"):
        least = strengths.min(axis=1, initial=1.0)
        # Besides, the products of factors and strengths are rounded.
        epsilon = error / least + FEW
        size = np.sqrt(2.0 * losses) + float(np.sqrt(np.square(kappa) @ (1.0 / lam)))
        radii = epsilon * size / (1.0 - epsilon) / np.sqrt(least)
        radii = np.where((epsilon < 0.5) & (least > 0.0), radii, np.inf)
        if problem.fit_intercept and problem.matrix.stores_zeros:
            mean = np.asarray(problem.matrix.dense().mean(axis=0))
            parts = problem.matrix.centre_chunks(mean)
            norms = np.sqrt(np.sum([np.square(part) @ (1.0 / lam[places]) for places, part in parts], axis=0))
        else:
            norms = np.sqrt(problem.matrix.squared_row_norms(1.0 / lam))
        norms = norms + (norms.max(initial=0.0) if problem.fit_intercept else 0.0)
        if fills is not None:
            norms = norms + 2.0 * float(np.sqrt((np.square(fills) @ (1.0 / lam)).max(initial=0.0)))
    # Every number above is rounded far less than by a thousandth.
    return 1.001 * radii, 1.001 * norms


def strength_errors(strengths: Array, error: float) -> Any:
    """An upper bound of the relative error of strengths with some factors in the last axis; ``error`` as in :class:`Refits`."""
    # A factor errs by the share of the larger of 1 and itself, its root by less, their products with the strengths are rounded.
    return error / strengths.min(axis=-1, initial=1.0) * (1.0 + FEW) + FEW


def has_squares(penalty: Penalty) -> bool:
    """Whether rounding of the strengths moves the optimum by an amount that squares in the penalty bound."""
    return not penalty.absolute.any() or bool(penalty.quadratic.any())


def rescale(penalty: Penalty, factors: Array) -> Penalty:
    """A penalty whose columns were divided by the roots of some factors: squares have these, absolute values their roots."""
    quadratic, absolute = penalty.quadratic * factors, penalty.absolute * np.sqrt(factors)
    if not absolute.any():
        return L2(quadratic)
    return ElasticNet(quadratic, absolute) if quadratic.any() else L1(absolute)
