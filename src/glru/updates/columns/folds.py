r"""Columns removed or added, many at once and in several folds at once, under the local certificate in a diagonal metric.

A model of the columns ``S`` with strengths :math:`\Lambda > 0` and an intercept has a Hessian of at least
:math:`\Lambda + \sigma (m, 1)(m, 1)^\top`, where :math:`\sigma` is the sum of the weighted curvatures and ``m`` the mean row under them, so that

.. math:: \|(v, v_0)\|^2_{H^{-1}} \le \sum_j (v_j - m_j v_0)^2 / \lambda_j + v_0^2 / \sigma .

That metric is wide, but it costs sums over the rows alone: no candidate is factored. Steps make up for it, all candidates and folds in the same
products, with the Hessian of the present model, changed by one column as in :mod:`glru.updates.columns.local`, or with Hessians of their own.
"""

from collections.abc import Callable, Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, widen
from glru.linalg import FEW, TINY, Array, gamma
from glru.losses import Logistic, Loss, WithOffset
from glru.problem import Point, Problem
from glru.regions.local import local_radius
from glru.updates.carried_rows import sum_error

Places = NDArray[np.intp]

Settle = Callable[[Places, Array, Array], NDArray[np.bool_]]
"""Takes bounds of shape (n_folds, n_members, n_tests) of some candidates' scores in; which of the candidates are still open."""

SCORES_TOGETHER = 80_000
"""Scores of the candidates that are worked on together, about, so that these stay in the cache."""

MOST_STEPS = 12
"""Steps of a candidate at most."""

SLOW_CONTRACTION = 0.2
"""Where a step leaves more than this share of the gradient, the next ones are made with a Hessian at the candidate itself."""

LONGEST_MOVE = 4.0
"""A step moves the scores by no more than this on average."""

FEW_COLUMNS = 16
"""From more columns on, a step with a Hessian of its own costs more than several with a shared one."""

MOST_DATA = 20_000_000
"""Entries of the data of all folds, at most."""


def has_fold_columns(folds: Sequence[Problem]) -> bool:
    """Whether :class:`FoldColumns` applies to problems that have the same rows and columns."""
    first = folds[0]
    loss = first.loss
    return (
        all(fold.in_memory and fold.arrays.stable and not fold.matrix.is_thin for fold in folds)
        and loss.self_concordance is not None
        and np.isfinite(loss.smoothness)
        and loss.link == "identity"
        and not loss.several
        and not isinstance(loss, WithOffset)
        and all(fold.penalty.smooth and fold.penalty.strong_convexity > 0.0 for fold in folds)
        and len({id(fold.matrix) for fold in folds}) * first.n_rows * first.n_columns <= MOST_DATA
    )


def _expand(loss: Loss, y: Array, scores: Array) -> tuple[Array, Array]:
    """Slopes, and at most the curvatures."""
    slopes = loss.gradient(y, scores)
    if not isinstance(loss, Logistic):
        return slopes, np.array(np.broadcast_to(loss.curvature(y, scores), scores.shape))
    curvatures = np.abs(slopes)
    # p (1 - p), of which 1 - p is off by a few units.
    curvatures *= (1.0 - FEW) - curvatures
    return slopes, np.maximum(curvatures, 0.0, out=curvatures)


@final
class FoldData:
    """The data of several folds, one column per row of ``X``, the ones of the intercept last.

    Parameters
    ----------
    folds : sequence of Problem
        Problems with the same rows, columns, targets, loss and intercept.
    tests : sequence of array of int
        The rows of each whose scores are asked about.
    """

    def __init__(self, folds: Sequence[Problem], tests: Sequence[Places]) -> None:
        first = folds[0]
        self.loss, self.fit_intercept, self.n_rows = first.loss, first.fit_intercept, first.n_rows
        self.n_columns, self.constant = first.n_columns, float(first.loss.self_concordance or 0.0)
        shared = all(fold.matrix is first.matrix for fold in folds)
        dense = [fold.matrix.dense().T for fold in (folds[:1] if shared else folds)]
        ones = [np.ones((1, self.n_rows))] if first.fit_intercept else []
        self.X = np.array([np.vstack([part, *ones]) for part in dense])
        self.y = np.array([fold.y for fold in folds])[:, None, :]
        # In units in which the largest weight is about 1: the same models, whatever the unit of the objective is.
        exponents = [-int(np.frexp(fold.weights.max())[1]) for fold in folds]
        self.weights = np.array([np.ldexp(fold.weights, e) for fold, e in zip(folds, exponents, strict=True)])[:, None]
        strengths = [np.ldexp(fold.quadratic, e) for fold, e in zip(folds, exponents, strict=True)]
        self.strengths = np.array(strengths)
        self.weight_sums = self.weights.sum(axis=2) * (1.0 + gamma(self.n_rows))
        size = max(test.size for test in tests)
        self.tests = np.array([np.pad(test, (0, size - test.size), mode="edge") for test in tests])
        self.asked = np.arange(size) < np.array([[test.size] for test in tests])
        self.answers = np.take_along_axis(self.y[:, 0], self.tests, axis=1)
        self.usable = bool(np.all(np.isfinite(self.strengths)) and np.all(self.strengths > 1e-300))

    def pack(self, points: Sequence[Point]) -> Array:
        """Models, one per row."""
        return np.array([point.packed(self.fit_intercept) for point in points])


@final
class FoldColumns:
    """Single columns that leave or come, from the present models of all folds.

    Parameters
    ----------
    data : FoldData
        The folds.
    chosen : array of int
        The present columns.
    present : array of shape (n_folds, n_unknowns)
        Models of these, near their optimum.
    columns : array of int of shape (n_items,)
        The columns that leave, or those that come.
    add : bool
        Whether they come.
    """

    def __init__(self, data: FoldData, chosen: Places, present: Array, columns: Places, add: bool) -> None:
        self.data, self.chosen, self.columns, self.add = data, chosen, columns, add
        free = [data.n_columns] if data.fit_intercept else []
        self.A = np.ascontiguousarray(data.X[:, np.append(chosen, free).astype(np.intp)])
        self.lam = data.strengths[:, chosen]
        self.strengths = np.hstack([self.lam, np.zeros((len(self.lam), len(free)))])[:, None, :]
        slopes, curvatures = _expand(data.loss, data.y, np.matmul(present[:, None, :], self.A))
        weighted = self.A * (data.weights * curvatures)
        hessians = np.matmul(weighted, np.swapaxes(self.A, 1, 2))
        here = np.arange(hessians.shape[1])
        hessians[:, here, here] += self.strengths[:, 0]
        self.inverse = _inverses(hessians)
        gradients = np.matmul(data.weights * slopes, np.swapaxes(self.A, 1, 2)) + self.strengths * present[:, None, :]
        base = present[:, None, :] - np.matmul(gradients, self.inverse)
        total = (data.weights * curvatures).sum(axis=2)
        with np.errstate(all="ignore"):
            if add:
                X = data.X[:, columns]
                self.own_lam = data.strengths[:, columns]
                crossed = np.matmul(X, np.swapaxes(weighted, 1, 2))
                self.images = np.matmul(crossed, self.inverse)
                squares = np.matmul(np.square(X), np.swapaxes(data.weights * curvatures, 1, 2))[:, :, 0]
                self.system = self.own_lam + squares - (crossed * self.images).sum(axis=2)
                slope = np.matmul(X, np.swapaxes(data.weights * slopes, 1, 2))[:, :, 0]
                self.own = -(slope - np.matmul(self.images, np.swapaxes(gradients, 1, 2))[:, :, 0]) / self.system
                gains = np.square(self.own) * self.system
                self.own *= _damping(data.constant * np.abs(self.own) * np.sqrt(squares / total))
                self.coefs = base - self.images * self.own[:, :, None]
            else:
                self.places = np.searchsorted(chosen, columns)
                diagonal = self.inverse[:, self.places, self.places]
                self.images = self.inverse[:, self.places, :] / diagonal[:, :, None]
                left = base[:, 0, self.places]
                self.own, self.coefs = np.zeros_like(left), base - self.images * left[:, :, None]
                self.coefs[:, np.arange(columns.size), self.places] = 0.0
                gains = -np.square(left) / diagonal
            far = data.constant * np.sqrt(np.abs(gains) / total) > LONGEST_MOVE
        # A quadratic that is left so far behind says nothing of the optimum.
        self.slow = far | ~np.isfinite(gains)
        self.coefs[self.slow], self.own[self.slow] = 0.0, 0.0
        self.near = np.zeros(gains.shape, dtype=bool)
        self._lengths: Array | None = None
        # Those first that make the objective least, about.
        self.order = np.argsort(-np.where(np.isfinite(gains), gains, 0.0).sum(axis=0), kind="stable")

    def row_lengths(self, members: Places) -> Array:
        """At least the lengths of the rows of candidates in the inverse metric of the penalty, of shape (n_folds, n_members)."""
        with np.errstate(all="ignore"):
            if self._lengths is None:
                squares = np.matmul((1.0 / self.lam)[:, None, :], np.square(self.A[:, : self.chosen.size]))
                largest = squares.max(axis=2, initial=0.0)
                if self.add:
                    most = np.abs(self.data.X[:, self.columns]).max(axis=2)
                    largest = largest + np.square(most) / self.own_lam
                tiny = TINY / np.sqrt(self.data.strengths.min(axis=1, keepdims=True))
                self._lengths = np.sqrt(largest) * (1.0 + gamma(self.chosen.size + 8)) + tiny
                self._lengths = np.broadcast_to(self._lengths, (len(self.lam), self.columns.size))
        return self._lengths[:, members]

    def run(self, settle: Settle) -> None:
        """Step candidates on until they are decided, or no longer get better."""
        n_parts = round(self.order.size * len(self.lam) * self.data.n_rows / SCORES_TOGETHER)
        for part in np.array_split(self.order, max(1, min(n_parts, self.order.size // 8))):
            self._run(part, settle)

    def _run(self, members: Places, settle: Settle) -> None:
        slow = self.slow[:, members]
        here, going = Evaluated(self, members), np.ones(members.size, dtype=bool)
        # One step proves little in this metric.
        best, limit = here.rough, SLOW_CONTRACTION if self.A.shape[1] <= FEW_COLUMNS else 2.5 * SLOW_CONTRACTION
        for _ in range(MOST_STEPS):
            here.step(slow, going)
            members, best, slow = members[going], best[:, going], slow[:, going]
            here = Evaluated(self, members)
            here.measure()
            lower, upper = here.bounds()
            self.near[:, members] = np.isfinite(upper[:, :, 0])
            open_ones = settle(members, lower, upper)
            # A gradient that no longer shrinks is rounding, where steps have been small before.
            ended = slow & (here.nu >= 0.5 * best) & (here.largest * best < 1e-3)
            going = open_ones & ~ended.all(axis=0) & ~here.hopeless.any(axis=0)
            if not going.any():
                return
            slow |= here.nu > limit * best
            best = np.minimum(here.nu, best)

    def points(self, member: int) -> list[Point | None]:
        """The models of a candidate in all folds, where they are near an optimum."""
        coefs, size = self.coefs[:, member], self.chosen.size
        shifts = coefs[:, size] if self.data.fit_intercept else np.zeros(len(coefs))
        if self.add:
            place = int(np.searchsorted(self.chosen, self.columns[member]))
            found = np.insert(coefs[:, :size], place, self.own[:, member], axis=1)
        else:
            found = np.delete(coefs[:, :size], self.places[member], axis=1)
        parts = zip(found, shifts, self.near[:, member], strict=True)
        return [Point(coef, float(shift)) if near else None for coef, shift, near in parts]


@final
class Evaluated:
    """Some candidates in all folds where they stand: gradients, what these prove, and the next step."""

    def __init__(self, family: FoldColumns, members: Places) -> None:
        self.family, self.members, data = family, members, family.data
        self.coefs, self.own = family.coefs[:, members], family.own[:, members]
        self.scores = np.matmul(self.coefs, family.A)
        if family.add:
            self.columns = data.X[:, family.columns[members]]
            self.scores += self.columns * self.own[:, :, None]
        self.slopes, self.curvatures = _expand(data.loss, data.y, self.scores)
        self.slopes *= data.weights
        self.curvatures *= data.weights
        self.gradients = self._sums(self.slopes) + family.strengths * self.coefs
        self.own_gradients = np.zeros_like(self.own)
        if family.add:
            self.own_gradients = self._own_sums(self.slopes) + family.own_lam[:, members] * self.own
        else:
            self.gradients[:, np.arange(members.size), family.places[members]] = 0.0

    def _sums(self, terms: Array) -> Array:
        return np.matmul(terms, np.swapaxes(self.family.A, 1, 2))

    def _own_sums(self, terms: Array) -> Array:
        return np.einsum("kmn,kmn->km", terms, np.broadcast_to(self.columns, terms.shape))

    def _length(self, coefs: Array, own: Array, power: float) -> Array:
        """Lengths of models (``power`` 1) or of gradients (-1) in the metric of the penalty, up to a relative error of a few units for each entry."""
        family, size = self.family, self.family.chosen.size
        squares = np.matmul(np.square(coefs[..., :size]), (family.lam**power)[:, :, None])[:, :, 0]
        if family.add:
            squares = squares + np.square(own) * family.own_lam[:, self.members] ** power
        return np.sqrt(squares) * (1.0 + gamma(size + 8))

    @property
    def rough(self) -> Array:
        """Norms of the gradients, about."""
        return self._length(self.gradients, self.own_gradients, -1.0)

    def measure(self) -> None:
        """At least the norms of the gradients, ``nu``, and of the rows, ``largest``, and the errors of scores."""
        family, data, size, n_rows = self.family, self.family.data, self.family.chosen.size, self.family.data.n_rows
        sums, own_sums = self.gradients, self.own_gradients
        lengths, shift, along = family.row_lengths(self.members), np.zeros_like(self.own), 0.0
        with np.errstate(all="ignore"):
            if data.fit_intercept:
                sigma = self.curvatures.sum(axis=2)
                mean = self._sums(self.curvatures)[..., :size] / sigma[:, :, None]
                own_mean = self._own_sums(self.curvatures) / sigma if family.add else self.own
                if not family.add:
                    mean[:, np.arange(self.members.size), family.places[self.members]] = 0.0
                shift = self.gradients[..., size]
                sums, own_sums = sums[..., :size] - mean * shift[:, :, None], own_sums - own_mean * shift
                middle = self._length(mean, own_mean, -1.0)
                # Means are off by a share of those of the entries' sizes, which are no longer than the longest row.
                along = (3.0 * gamma(n_rows + 8) * lengths + FEW * middle) * np.abs(shift)
                least = 1.0 / np.sqrt(sigma * (1.0 - gamma(n_rows + 8)))
                lengths, shift = (
                    np.hypot(lengths * (1.0 + 3.0 * gamma(n_rows + 8)) + middle, least) * (1.0 + FEW),
                    np.abs(shift) * least,
                )
            norms = np.hypot(self._length(sums, own_sums, -1.0) * (1.0 + FEW) + along, shift)
            sizes = self._length(self.coefs, self.own, 1.0) + TINY
            shifts = np.abs(self.coefs[..., size]) if data.fit_intercept else 0.0
            unit = gamma(size + 5) * (1.0 + gamma(size + 8))
            self.errors = unit * (sizes * family.row_lengths(self.members) + shifts) * (1.0 + FEW)
            # Errors of the sums, of the slopes at scores that are off, and of the slopes' own evaluation, row by row; and of the penalty.
            steep = np.sqrt(n_rows * np.einsum("kmn,kmn->km", self.slopes, self.slopes)) * (1.0 + gamma(n_rows + 8))
            wrong = (sum_error(n_rows) + FEW) * (steep + TINY) + data.weight_sums * data.loss.smoothness * self.errors
            rounding = (lengths * wrong + FEW * sizes) * (1.0 + FEW) + TINY
            nu = norms * (1.0 + FEW) + rounding
            # Curvatures were taken at computed scores; they and their weights are off by a few units.
            eta = 2.0 * data.constant * self.errors + gamma(n_rows + 32)
            root = np.sqrt(np.where(eta < 0.5, 1.0 - eta, np.nan)) * (1.0 - FEW)
            self.nu, self.largest = nu / root * (1.0 + FEW), lengths / root * (1.0 + FEW)
            # No step makes these bounds finite.
            self.hopeless = ~(data.constant * self.largest * rounding < 0.5)

    def bounds(self) -> Bounds:
        """Bounds of the scores of the rows asked about, of shape (n_folds, n_members, n_tests)."""
        data = self.family.data
        radius = local_radius(data.constant, self.largest, self.nu, 0.0)
        half = (self.largest * radius * (1.0 + FEW) + self.errors)[:, :, None]
        scores = np.take_along_axis(self.scores, data.tests[:, None, :], axis=2)
        return widen(scores, np.where(np.isfinite(half), half, np.inf))

    def step(self, slow: NDArray[np.bool_], going: NDArray[np.bool_]) -> None:
        """Step those on that go on: with the Hessian of the present model, or with their own where that is slow."""
        family = self.family
        with np.errstate(all="ignore"):
            moves = -np.matmul(self.gradients, family.inverse)
            if family.add:
                images, system = family.images[:, self.members], family.system[:, self.members]
                own = ((images * self.gradients).sum(axis=2) - self.own_gradients) / system
                moves -= images * own[:, :, None]
            else:
                own, here = np.zeros_like(self.own), (np.arange(self.members.size), family.places[self.members])
                moves -= family.images[:, self.members] * moves[:, *here][:, :, None]
        folds, places = np.nonzero(slow & going)
        width = max(1, 4_000_000 // ((family.A.shape[1] + 1) * family.data.n_rows))
        for start in range(0, folds.size, width):
            k, c = folds[start : start + width], places[start : start + width]
            moves[k, c], own[k, c] = self._newton(k, c)
        moves, own = np.where(np.isfinite(moves), moves, 0.0), np.where(np.isfinite(own), own, 0.0)
        coefs, members = self.coefs + moves, self.members[going]
        if not family.add:
            coefs[:, *here] = 0.0
        family.coefs[:, members], family.own[:, members] = coefs[:, going], (self.own + own)[:, going]

    def _newton(self, k: Places, c: Places) -> tuple[Array, Array]:
        """Newton steps of some candidates, damped where scores would move far."""
        family, last = self.family, self.family.A.shape[1]
        A = family.A[k if len(family.A) > 1 else 0 * k]
        gradients, strengths = self.gradients[k, c], family.strengths[k, 0]
        if family.add:
            A = np.concatenate([A, self.columns[k if len(family.A) > 1 else 0 * k, c][:, None, :]], axis=1)
            gradients = np.column_stack([gradients, self.own_gradients[k, c]])
            strengths = np.column_stack([strengths, family.own_lam[k, self.members[c]]])
        hessians = np.matmul(A * self.curvatures[k, c][:, None, :], np.swapaxes(A, 1, 2))
        here, each = np.arange(hessians.shape[1]), np.arange(k.size)
        hessians[:, here, here] += strengths
        if not family.add:
            gone = family.places[self.members[c]]
            hessians[each, gone, :] = hessians[each, :, gone] = 0.0
            hessians[each, gone, gone] = 1.0
        moves = -np.matmul(_inverses(hessians), gradients[:, :, None])[:, :, 0]
        far = np.sqrt(np.square(np.matmul(moves[:, None, :], A)[:, 0, :]).mean(axis=1))
        moves *= _damping(family.data.constant * far)[:, None]
        return moves[:, :last], moves[:, last] if family.add else np.zeros(k.size)


def _damping(moved: Array) -> Array:
    """What steps are multiplied by that move scores by this much on average."""
    with np.errstate(all="ignore"):
        return np.where(moved > LONGEST_MOVE, LONGEST_MOVE / moved, 1.0)


def _inverses(matrices: Array) -> Array:
    """Inverses, without proof; not a number where there is none."""
    try:
        return np.asarray(np.linalg.inv(matrices))
    except np.linalg.LinAlgError:
        return np.full(matrices.shape, np.nan)
