r"""Columns removed or added, many at once and in several folds at once, under the local certificate.

A model of the columns ``S`` with strengths :math:`\Lambda > 0` and an intercept has a Hessian of at least
:math:`\Lambda + \sigma (m, 1)(m, 1)^\top`, where :math:`\sigma` is the sum of the weighted curvatures and ``m`` the mean row under them, so that

.. math:: \|(v, v_0)\|^2_{H^{-1}} \le \sum_j (v_j - m_j v_0)^2 / \lambda_j + v_0^2 / \sigma .

That metric is wide, but it costs sums over the rows alone and holds wherever a candidate stands. Near the present model its Hessian with one column less or
more is a far better metric (:class:`PresentMetric`), and no candidate is factored for it either. Steps make up for the rest, all candidates and folds in the same
products, with the Hessian of the present model, changed by one column as in :mod:`glru.updates.columns.local`, or with Hessians of their own.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru._options import UNLIMITED, Budget
from glru.bounds import Bounds
from glru.linalg import FEW, TINY, Array, Matrix, gamma
from glru.losses import Logistic, Loss, WithOffset
from glru.problem import Point, Problem
from glru.regions.local import local_radius
from glru.updates.carried_rows import sum_error
from glru.updates.columns.subsets import Metrics, _frobenius, _lengths, factor_all

Places = NDArray[np.intp]

Settle = Callable[..., NDArray[np.bool_]]
"""Which of some candidates are still open: ``settle(members)``. Where their evaluation is given (:class:`Evaluated`), it is taken in first."""

SCORES_TOGETHER = 100_000
"""Approximate number of scores of the candidates handled together, so that they stay in the cache."""

MAX_STEPS = 12
"""The largest number of steps of a candidate."""

SLOW_CONTRACTION = 0.2
"""If a step leaves more than this share of the gradient, the next ones use a Hessian at the candidate itself."""

LONGEST_MOVE, FAR_MOVE, FIRST_MOVE = 4.0, 0.4, 0.15
"""A step moves the scores by no more than the first on average; after one that moves them by more than the second, or the third if it is the first step, another follows before
anything is proven."""

LARGEST_RATIO = 4.0
"""What the first steps of other present columns missed is reused if it grows by no more than this factor."""

FEW_COLUMNS = 16
"""With more columns than this, one step with its own Hessian costs more than several with a shared one."""

FEW_ENTRIES = 4000
"""If the Hessians of all candidates have at most this many entries, they are formed at once."""

MANY_HESSIANS, MAX_PAIRS = 16, 2_000_000
"""From this many Hessians, they are computed from products of pairs of columns, which have at most the second number of entries."""

ROWS_PER_COLUMN = 200
"""From this many rows per column, the change of a Hessian from that of the present model is about the same in all folds."""

MAX_EXPONENT = 2.0
"""If curvatures may differ from those of the present model by more than this exponent, the metric of the penalty is tried as well."""

MAX_THIN = 200
"""Sparse data with at most this many present columns is handled as dense data; with more, products with its entries cost less."""

MAX_DATA = 20_000_000
"""Entries of the data of all folds, at most."""


def has_fold_columns(folds: Sequence[Problem], n_present: int = 0) -> bool:
    """Whether :class:`FoldColumns` applies to problems that have the same rows and columns, of which so many are present."""
    first = folds[0]
    if n_present > MAX_THIN and any(fold.in_memory and fold.matrix.is_thin for fold in folds):
        return False
    loss = first.loss
    return (
        all(fold.in_memory and fold.arrays.stable for fold in folds)
        and loss.self_concordance is not None
        and np.isfinite(loss.smoothness)
        and loss.link == "identity"
        and not loss.several
        and not isinstance(loss, WithOffset)
        and all(fold.penalty.smooth and fold.penalty.strong_convexity > 0.0 for fold in folds)
        and len({id(fold.matrix) for fold in folds}) * first.n_rows * first.n_columns <= MAX_DATA
    )


def _curvatures(loss: Loss, y: Array, scores: Array, slopes: Array) -> Array:
    """Lower bounds of the curvatures at some scores, from the slopes there."""
    if not isinstance(loss, Logistic):
        return np.array(np.broadcast_to(loss.curvature(y, scores), scores.shape))
    curvatures = np.abs(slopes)
    # p (1 - p), of which 1 - p is off by a few units.
    curvatures *= (1.0 - FEW) - curvatures
    return np.maximum(curvatures, 0.0, out=curvatures)


@final
class FoldData:
    """The data of several folds, one column per row of ``X``: behind those of the problems one of zeros (``zero``), which changes no model, and the ones of the intercept.

    ``folds``: problems with the same rows, columns, targets, loss and intercept; ``tests``: the rows of each whose scores are asked about; ``budget``:
    asked before each Hessian, and before some of them where these are small; ``more``: rows behind those of the problems, and their targets, which have no weight.
    """

    def __init__(
        self,
        folds: Sequence[Problem],
        tests: Sequence[Places],
        budget: Budget = UNLIMITED,
        more: tuple[Matrix, Array] | None = None,
    ) -> None:
        first, self.budget = folds[0], budget
        targets = np.empty(0) if more is None else more[1]
        self.loss, self.fit_intercept, self.n_rows = first.loss, first.fit_intercept, first.n_rows + targets.size
        self.constant = float(first.loss.self_concordance or 0.0)
        self.max_columns = MAX_THIN if any(fold.matrix.is_thin for fold in folds) else first.n_columns
        shared = all(fold.matrix is first.matrix for fold in folds)
        dense = [fold.matrix.dense().T for fold in (folds[:1] if shared else folds)]
        if more is not None:
            dense = [np.hstack([part, more[0].dense().T]) for part in dense]
        self.zero, ones = first.n_columns, [np.ones((1, self.n_rows))] if first.fit_intercept else []
        self.X = np.array([np.vstack([part, np.zeros((1, self.n_rows)), *ones]) for part in dense])
        self.y = np.array([np.append(fold.y, targets) for fold in folds])[:, None, :]
        # In units in which the largest weight is about 1: the same models, whatever the unit of the objective is.
        exponents = [-int(np.frexp(fold.weights.max())[1]) for fold in folds]
        weights = [
            np.append(np.ldexp(fold.weights, e), 0.0 * targets) for fold, e in zip(folds, exponents, strict=True)
        ]
        self.weights = np.array(weights)[:, None]
        strengths = [np.append(np.ldexp(fold.quadratic, e), 1.0) for fold, e in zip(folds, exponents, strict=True)]
        self.strengths = np.array(strengths)
        self.weight_sums = self.weights.sum(axis=2) * (1.0 + gamma(self.n_rows))
        size = max(test.size for test in tests)
        self.tests = np.array([np.pad(test, (0, size - test.size), mode="edge") for test in tests])
        self.asked = np.arange(size) < np.array([[test.size] for test in tests])
        self.n_asked = np.count_nonzero(self.asked, axis=1)[:, None]
        self.answers = np.take_along_axis(self.y[:, 0], self.tests, axis=1)
        self.usable = bool(np.all(np.isfinite(self.strengths)) and np.all(self.strengths > 1e-300))

    @cached_property
    def pairs(self) -> Array | None:
        """The products of every two columns, each pair once; None where these are too many."""
        (X,) = self.X
        size, n_rows = X.shape
        if size * (size + 1) // 2 * n_rows > MAX_PAIRS:
            return None
        return np.concatenate([X[j] * X[: j + 1] for j in range(size)])

    def pack(self, points: Sequence[Point]) -> Array:
        """Models, one per row."""
        return np.array([point.pack(self.fit_intercept) for point in points])


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
    before : FoldColumns, optional
        Those of other present columns: what first steps missed there, they are taken to miss here.
    """

    def __init__(
        self,
        data: FoldData,
        chosen: Places,
        present: Array,
        columns: Places,
        add: bool,
        before: "FoldColumns | None" = None,
    ) -> None:
        self.data, self.chosen, self.columns, self.add = data, chosen, columns, add
        free = [data.zero + 1] if data.fit_intercept else []
        self.unknowns = np.append(chosen, free).astype(np.intp)
        self.A = np.ascontiguousarray(data.X[:, self.unknowns])
        self.lam = data.strengths[:, chosen]
        self.strengths = np.hstack([self.lam, np.zeros((len(self.lam), len(free)))])[:, None, :]
        self.scores = np.matmul(present[:, None, :], self.A)
        slopes = data.loss.gradient(data.y, self.scores)
        curvatures = _curvatures(data.loss, data.y, self.scores, slopes)
        self.curvatures, self.first_curvatures = data.weights * curvatures, curvatures[0]
        weighted = self.A * self.curvatures
        self.present_hessians = hessians = np.empty((len(weighted), *2 * weighted.shape[1:2]))
        for k, hessian in enumerate(hessians):
            data.budget.check()
            np.matmul(weighted[k], self.A[k if len(self.A) > 1 else 0].T, out=hessian)
        here = np.arange(hessians.shape[1])
        hessians[:, here, here] += self.strengths[:, 0]
        factors = factor_all(hessians, data.n_rows)
        self.inverse = np.matmul(factors.inverse, np.swapaxes(factors.inverse, 1, 2))
        gradients = np.matmul(data.weights * slopes, np.swapaxes(self.A, 1, 2)) + self.strengths * present[:, None, :]
        base = present[:, None, :] - np.matmul(gradients, self.inverse)
        total = self.curvatures.sum(axis=2)
        with np.errstate(all="ignore"):
            if add:
                X = data.X[:, columns]
                self.own_lam = data.strengths[:, columns]
                self.crossed = crossed = np.matmul(X, np.swapaxes(weighted, 1, 2))
                self.images = np.matmul(crossed, self.inverse)
                self.squares = squares = np.matmul(np.square(X), np.swapaxes(self.curvatures, 1, 2))[:, :, 0]
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
            moved = data.constant * np.sqrt(np.abs(gains) / total)
        # A quadratic that is left so far behind says nothing of the optimum.
        lost = ~(moved <= LONGEST_MOVE)
        self.coefs[lost], self.own[lost] = 0.0, 0.0
        self.near, self.far = np.zeros(gains.shape, dtype=bool), moved > FIRST_MOVE
        self.slow = lost | (self.far if self.A.shape[1] <= FEW_COLUMNS else False)
        # Folds of a candidate share what its Hessians differ by from those of the present models, unless that is not enough.
        self.alone = lost | (len(self.A) > 1 or data.n_rows < ROWS_PER_COLUMN * self.A.shape[1])
        self.first, self.moved = (self.coefs.copy(), self.own.copy()), moved
        if before is not None:
            with np.errstate(all="ignore"):
                self._correct(before, lost)
        self.metric = PresentMetric(self, present, curvatures, factors)
        if add:
            self.metric.border(hessians, crossed, squares)
        # Where first certificates left most candidates open, moves were too long for them; so are later ones of this length.
        self.typical_move = float(np.median(moved))
        self.longest_move: float = np.inf if before is None else before.longest_move
        # Those first that make the objective least, about.
        self.order = np.argsort(-np.where(np.isfinite(gains), gains, 0.0).sum(axis=0), kind="stable")

    def _correct(self, before: "FoldColumns", lost: NDArray[np.bool_]) -> None:
        """Move the first candidates by what those from other present columns missed."""
        _, mine, its = np.intersect1d(self.columns, before.columns, return_indices=True)
        free = np.ones(int(self.data.fit_intercept), dtype=bool)
        here = np.append(np.isin(self.chosen, before.chosen), free)
        there = np.append(np.isin(before.chosen, self.chosen), free)
        known = before.near[:, its] & ~lost[:, mine]
        # What a quadratic misses grows about with the square of what it promises.
        ratio = np.square(self.moved[:, mine] / before.moved[:, its])
        known &= ratio < LARGEST_RATIO
        coefs, own = before.coefs - before.first[0], before.own - before.first[1]
        coefs, own = coefs[:, its][..., there] * ratio[:, :, None], own[:, its] * ratio
        known &= np.isfinite(own) & np.isfinite(coefs).all(axis=2)
        self.coefs[:, mine[:, None], here] += np.where(known[:, :, None], coefs, 0.0)
        self.own[:, mine] += np.where(known, own, 0.0)
        self.far[:, mine] &= ~known

    @cached_property
    def present_lengths(self) -> Array:
        """Upper bounds of the lengths of the rows of the present columns in the inverse metric of the penalty, of shape (n_folds, 1)."""
        with np.errstate(all="ignore"):
            squares = np.matmul((1.0 / self.lam)[:, None, :], np.square(self.A[:, : self.chosen.size]))
            tiny = TINY / np.sqrt(self.data.strengths.min(axis=1, keepdims=True))
            return np.sqrt(squares.max(axis=2, initial=0.0)) * (1.0 + gamma(self.chosen.size + 8)) + tiny

    @cached_property
    def lengths(self) -> Array:
        """Upper bounds of the lengths of the rows of candidates in the inverse metric of the penalty, of shape (n_folds, n_items)."""
        shape = len(self.lam), self.columns.size
        if not self.add:
            return np.broadcast_to(self.present_lengths, shape)
        with np.errstate(all="ignore"):
            most = np.abs(self.data.X[:, self.columns]).max(axis=2)
            tiny = TINY / np.sqrt(self.data.strengths.min(axis=1, keepdims=True))
            return np.hypot(self.present_lengths, most / np.sqrt(self.own_lam)) * (1.0 + FEW) + tiny

    @cached_property
    def asked_columns(self) -> Array:
        """The present columns of the rows asked about, of shape (n_folds, n_unknowns, n_tests); zero behind those of a fold."""
        parts = [self.A[k if len(self.A) > 1 else 0][:, test] for k, test in enumerate(self.data.tests)]
        return np.where(self.data.asked[:, None, :], np.array(parts), 0.0)

    def hessians(self, curvatures: Array, folds: Places) -> Array:
        """Hessians over the present columns, one per row of curvatures and its fold."""
        size, here = self.A.shape[1], np.arange(self.A.shape[1])
        if size and len(self.A) == 1 and len(curvatures) >= MANY_HESSIANS and self.data.pairs is not None:
            first, second = np.tril_indices(size)
            order = np.empty((size, size), dtype=np.intp)
            order[first, second] = order[second, first] = np.arange(first.size)
            pairs = self.data.pairs[self.unknowns[first] * (self.unknowns[first] + 1) // 2 + self.unknowns[second]]
            found = (curvatures @ pairs.T).take(order.ravel(), axis=1).reshape(-1, size, size)
        else:
            A = self.A if len(self.A) == 1 else self.A[folds]
            found = np.matmul(A * curvatures[:, None, :], np.swapaxes(A, 1, 2))
        found[:, here, here] += self.strengths[folds, 0]
        return np.asarray(found)

    def sums(self, terms: Array, folds: Places) -> Array:
        """The products of terms, one row per member and its fold, with the present columns."""
        if len(self.A) == 1:
            return np.asarray(terms @ self.A[0].T)
        return np.matmul(self.A[folds], terms[:, :, None])[:, :, 0]

    def run(self, settle: Settle) -> None:
        """Step candidates on until they are decided, or no longer get better: all once before any is stepped on again."""
        self.best = np.full(self.slow.shape, np.inf)
        going, share = self.order, len(self.lam) * self.data.n_rows / SCORES_TOGETHER
        for step in range(MAX_STEPS + 1):
            n_parts = max(1, min(round(going.size * share), going.size // 8))
            n_far = int(np.count_nonzero(self.far[:, going].any(axis=0)))
            is_near = 2 * n_far < going.size and (step > 0 or self.typical_move < self.longest_move)
            certify = is_near or step == MAX_STEPS
            parts = [self._advance(part, settle, step, certify) for part in np.array_split(going, n_parts)]
            going = np.concatenate(parts)
            # What was found of later parts rules out members of earlier ones.
            going = going[settle(going)] if n_parts > 1 and going.size else going
            if step == 0 and certify and 2 * going.size > self.columns.size:
                self.longest_move = self.typical_move
            if not going.size:
                return

    def _advance(self, members: Places, settle: Settle, step: int, certify: bool) -> Places:
        """Bound some candidates where they stand, if they are to be certified; those that are open are stepped on and returned."""
        slow, best = self.slow[:, members], self.best[:, members]
        if step == 0:
            self.metric.place(members)
        here = Evaluated(self, members)
        if not certify:
            here.step(slow, np.ones(members.size, dtype=bool))
            return members
        # One step proves little in the metric of the penalty.
        here.measure(thorough=step > 0)
        self.near[:, members] = np.isfinite(np.fmin(here.radius, here.half))
        open_ones = settle(members, here)
        # A gradient that no longer shrinks is rounding, where steps have been small before.
        ended = slow & (here.nu >= 0.5 * best) & (here.largest * best < 1e-3)
        going = open_ones & ~ended.all(axis=0) & ~here.hopeless.any(axis=0)
        if not going.any() or step == MAX_STEPS:
            return members[:0]
        size = self.A.shape[1]
        limit = SLOW_CONTRACTION if size <= FEW_COLUMNS else 2.5 * SLOW_CONTRACTION
        # Few that are left are decided by a step that contracts quadratically.
        self.alone[:, members] |= slow & (here.nu > limit * best)
        slow = slow | (here.nu > limit * best) | (np.count_nonzero(going) * size**2 <= FEW_ENTRIES)
        self.slow[:, members], self.best[:, members] = slow, np.minimum(here.nu, best)
        here.step(slow, going)
        return members[going]

    def points(self, member: int) -> list[Point | None]:
        """The models of a candidate in all folds, where they are near an optimum."""
        coefs, size, column = self.coefs[:, member], self.chosen.size, self.columns[member]
        shifts = coefs[:, size] if self.data.fit_intercept else np.zeros(len(coefs))
        if column == self.data.zero:
            found = coefs[:, :size]
        elif self.add:
            found = np.insert(coefs[:, :size], np.searchsorted(self.chosen, column), self.own[:, member], axis=1)
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
        self.scores = _multiply(self.coefs, family.A)
        if family.add:
            self.columns = data.X[:, family.columns[members]]
            self.scores += self.columns * self.own[:, :, None]
        self.raw_slopes = data.loss.gradient(np.broadcast_to(data.y, self.scores.shape), self.scores)
        self.slopes = self.raw_slopes * data.weights
        self.gradients = _multiply(self.slopes, np.swapaxes(family.A, 1, 2)) + family.strengths * self.coefs
        self.own_gradients = np.zeros_like(self.own)
        if family.add:
            self.own_gradients = np.vecdot(self.slopes, self.columns) + family.own_lam[:, members] * self.own
        else:
            self.gradients[:, np.arange(members.size), family.places[members]] = 0.0

    def _length(self, coefs: Array, own: Array, power: float, here: Any = slice(None)) -> Array:
        """Lengths of models (``power`` 1) or of gradients (-1) in the metric of the penalty, up to a relative error of a few units for each entry."""
        family, size = self.family, self.family.chosen.size
        squares = np.matmul(np.square(coefs[..., :size]), (family.lam**power)[:, :, None])[:, :, 0]
        if family.add:
            squares = squares + np.square(own) * family.own_lam[:, self.members[here]] ** power
        return np.sqrt(squares) * (1.0 + gamma(size + 8))

    def measure(self, thorough: bool) -> None:
        """What the gradients prove: in the metric of the present model, and where that proves nothing, if ``thorough``, in that of the penalty."""
        family, data, size, n_rows = self.family, self.family.data, self.family.chosen.size, self.family.data.n_rows
        with np.errstate(all="ignore"):
            sizes = self._length(self.coefs, self.own, 1.0) + TINY
            shifts = np.abs(self.coefs[..., size]) if data.fit_intercept else 0.0
            unit = gamma(size + 5) * (1.0 + gamma(size + 8))
            self.errors = unit * (sizes * family.lengths[:, self.members] + shifts) * (1.0 + FEW)
            # Errors of the sums, of the slopes at scores that are off, and of the slopes' own evaluation, row by row; and of the penalty.
            steep = np.sqrt(n_rows * np.vecdot(self.slopes, self.slopes)) * (1.0 + gamma(n_rows + 8))
            wrong = (sum_error(n_rows) + FEW) * (steep + TINY) + data.weight_sums * data.loss.smoothness * self.errors
            self.nu, self.largest, self.radius, rounding, exponents = family.metric.certify(self, wrong, sizes)
            # No step makes these bounds finite.
            self.hopeless = ~(data.constant * self.largest * rounding < 0.5)
            self.half = np.full(self.nu.shape, np.inf)
            far = np.flatnonzero((~np.isfinite(self.radius) | (exponents > MAX_EXPONENT)).any(axis=0))
            if far.size and (thorough or not family.metric.usable):
                self._measure_widely(far, wrong[:, far], sizes[:, far])
            elif far.size:
                self.hopeless[:, far] = False

    def _measure_widely(self, here: Places, wrong: Array, sizes: Array) -> None:
        """What the gradients of some members prove in the metric of the penalty at the candidates themselves."""
        family, data, size, n_rows = self.family, self.family.data, self.family.chosen.size, self.family.data.n_rows
        sums, own_sums = self.gradients[:, here], self.own_gradients[:, here]
        lengths, shift, along = family.lengths[:, self.members[here]], np.zeros_like(own_sums), 0.0
        if data.fit_intercept:
            curvatures = _curvatures(data.loss, data.y, self.scores[:, here], self.raw_slopes[:, here]) * data.weights
            sigma = curvatures.sum(axis=2)
            mean = _multiply(curvatures, np.swapaxes(family.A, 1, 2))[..., :size] / sigma[:, :, None]
            own_mean = own_sums
            if family.add:
                own_mean = np.vecdot(curvatures, self.columns[:, here]) / sigma
            else:
                mean[:, np.arange(here.size), family.places[self.members[here]]] = 0.0
            shift = sums[..., size]
            sums, own_sums = sums[..., :size] - mean * shift[:, :, None], own_sums - own_mean * shift
            middle = self._length(mean, own_mean, -1.0, here)
            # Means are off by a share of those of the entries' sizes, which are no longer than the longest row.
            along = (3.0 * gamma(n_rows + 8) * lengths + FEW * middle) * np.abs(shift)
            least = 1.0 / np.sqrt(sigma * (1.0 - gamma(n_rows + 8)))
            lengths, shift = (
                np.hypot(lengths * (1.0 + 3.0 * gamma(n_rows + 8)) + middle, least) * (1.0 + FEW),
                np.abs(shift) * least,
            )
        norms = np.hypot(self._length(sums, own_sums, -1.0, here) * (1.0 + FEW) + along, shift)
        rounding = (lengths * wrong + FEW * sizes) * (1.0 + FEW) + TINY
        nu = norms * (1.0 + FEW) + rounding
        # Curvatures were taken at computed scores; they and their weights are off by a few units.
        eta = 2.0 * data.constant * self.errors[:, here] + gamma(n_rows + 32)
        root = np.sqrt(np.where(eta < 0.5, 1.0 - eta, np.nan)) * (1.0 - FEW)
        nu, largest = nu / root * (1.0 + FEW), lengths / root * (1.0 + FEW)
        self.half[:, here] = largest * local_radius(data.constant, largest, nu, 0.0) * (1.0 + FEW)
        self.hopeless[:, here] = ~(data.constant * largest * rounding < 0.5)
        if not family.metric.usable:
            self.nu[:, here], self.largest[:, here] = nu, largest

    @cached_property
    def asked_scores(self) -> Array:
        """The scores of the rows asked about, of shape (n_folds, n_members, n_tests)."""
        return self.take_asked(self.scores)

    @cached_property
    def half_widths(self) -> Array:
        """How far the scores of the rows asked about are from those of the optimum, rounding not counted; infinite where nothing is known."""
        asked = self.family.metric.asked[:, self.members if self.family.add else slice(None)]
        with np.errstate(all="ignore"):
            half = asked * (self.radius * (1.0 + 2.0 * FEW))[:, :, None]
        if np.isfinite(self.radius).all() and not np.isfinite(self.half).any():
            return half
        half = np.fmin(half, self.half[:, :, None])
        return np.where(np.isnan(half), np.inf, half)

    def take_asked(self, parts: Array) -> Array:
        """The entries of the rows asked about."""
        tests = self.family.data.tests
        return np.array([parts[k if len(parts) > 1 else 0][:, test] for k, test in enumerate(tests)])

    def bound_sums(self, slopes: Array, smoothness: float) -> Bounds:
        r"""How far sums of convex terms over the rows asked about fall and rise at most from their scores here to those of the optimum, of shape (n_folds, n_members).

        With the slopes :math:`f'` of the terms and a move :math:`\delta`, :math:`0 \le \sum_t f_t(z_t + x_t^\top \delta) - f_t(z_t) - g^\top \delta \le \tfrac12 s
        \sum_t (x_t^\top \delta)^2` where :math:`g = \sum_t f'_t x_t`: its norm times the radius is far less than what rows may contribute one by one.
        """
        family, data, n_tests = self.family, self.family.data, slopes.shape[2]
        sums, own = np.matmul(slopes, np.swapaxes(family.asked_columns, 1, 2)), np.zeros_like(self.own)
        if family.add:
            own = np.vecdot(slopes, self.take_asked(self.columns))
        else:
            sums[:, np.arange(self.members.size), family.places[self.members]] = 0.0
        with np.errstate(all="ignore"):
            total = np.abs(slopes).sum(axis=2) * (1.0 + gamma(n_tests + 8) + FEW)
            norms = family.metric.gradient_norms(sums, own, self.members)
            norms += family.metric.bound_rounding(self.members, (sum_error(n_tests) + FEW) * total)
            linear = np.fmin(norms * self.radius * (1.0 + FEW), total * self.half)
            squares = np.square(np.where(data.asked[:, None, :], self.half_widths, 0.0)).sum(axis=2)
            rise = np.square(np.sqrt(squares) + np.sqrt(n_tests) * self.errors) * (0.5 * smoothness * (1.0 + FEW))
            linear = np.where(np.isnan(linear), np.inf, linear) + self.errors * total
        return linear * (1.0 + FEW), (linear + rise) * (1.0 + gamma(n_tests + 8))

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
        family.far[:, self.members] = False
        width = max(1, 4_000_000 // ((family.A.shape[1] + 1) * family.data.n_rows))
        alone = family.alone[:, self.members]
        together = np.flatnonzero((slow & ~alone & going).any(axis=0))
        for start in range(0, together.size, width):
            family.data.budget.check()
            c = together[start : start + width]
            moves[:, c], own[:, c] = self._step_together(c)
        folds, places = np.nonzero(slow & alone & going)
        for start in range(0, folds.size, width):
            family.data.budget.check()
            k, c = folds[start : start + width], places[start : start + width]
            moves[k, c], own[k, c] = self._newton(k, c)
        moves, own = np.where(np.isfinite(moves), moves, 0.0), np.where(np.isfinite(own), own, 0.0)
        # A step with the shared Hessian costs nothing more: others begin closer after the next move.
        going = going | ~slow.any(axis=0)
        coefs, members = self.coefs + moves, self.members[going]
        if not family.add:
            coefs[:, *here] = 0.0
        family.coefs[:, members], family.own[:, members] = coefs[:, going], (self.own + own)[:, going]

    def _step_together(self, c: Places) -> tuple[Array, Array]:
        """Newton steps of some candidates in all folds, with the Hessians of the present models changed by what the first fold says."""
        family, data, members = self.family, self.family.data, self.members[c]
        A, curvatures = family.A[0], _curvatures(data.loss, data.y[0], self.scores[0, c], self.raw_slopes[0, c])
        changes = (curvatures - family.first_curvatures) * data.weights[:, 0].mean(axis=0)
        hessians = family.present_hessians[:, None] + np.matmul(A * changes[:, None, :], A.T)
        border, corner = np.empty(0), np.empty(0)
        if family.add:
            columns = data.X[0, family.columns[members]]
            weighted = changes * columns
            border = family.crossed[:, members] + weighted @ A.T
            corner = family.own_lam[:, members] + family.squares[:, members] + (weighted * columns).sum(axis=1)
        gradients, own_gradients = self.gradients[:, c], self.own_gradients[:, c]
        with np.errstate(all="ignore"):
            moves, own = self._solve(hessians, gradients, border, corner, own_gradients, members)
            gains = np.vecdot(moves, gradients) + own * own_gradients
            moved = data.constant * np.sqrt(np.abs(gains) / family.curvatures.sum(axis=2))
            damping = _damping(moved)
        family.far[:, members] = moved > FAR_MOVE
        return moves * damping[:, :, None], own * damping

    def _newton(self, k: Places, c: Places) -> tuple[Array, Array]:
        """Newton steps of some candidates with Hessians of their own, damped where scores would move far."""
        family, data, members = self.family, self.family.data, self.members[c]
        curvatures = _curvatures(data.loss, data.y[k, 0], self.scores[k, c], self.raw_slopes[k, c])
        curvatures *= data.weights[k, 0]
        border, corner = np.empty(0), np.empty(0)
        if family.add:
            columns = self.columns[k if len(self.columns) > 1 else 0 * k, c]
            weighted = curvatures * columns
            border, corner = family.sums(weighted, k), np.vecdot(weighted, columns) + family.own_lam[k, members]
        gradients, own_gradients = self.gradients[k, c], self.own_gradients[k, c]
        moves, own = self._solve(family.hessians(curvatures, k), gradients, border, corner, own_gradients, members)
        # Rows whose curvature is gone move, too: gains do not tell how far.
        far = moves @ family.A[0] if len(family.A) == 1 else np.matmul(moves[:, None], family.A[k])[:, 0]
        if family.add:
            far += columns * own[:, None]
        moved = data.constant * np.sqrt(np.square(far).mean(axis=1))
        family.far[k, members], damping = moved > FAR_MOVE, _damping(moved)
        return moves * damping[:, None], own * damping

    def _solve(
        self, hessians: Array, gradients: Array, border: Array, corner: Array, own: Array, members: Places
    ) -> tuple[Array, Array]:
        """Newton steps of some members from Hessians over the present columns, in these and in the column that comes."""
        last = hessians.shape[-1]
        if not self.family.add:
            each, gone = np.arange(members.size), self.family.places[members]
            hessians[..., each, gone, :] = hessians[..., each, :, gone] = 0.0
            hessians[..., each, gone, gone] = 1.0
            return -_solve_systems(hessians, gradients), np.zeros_like(own)
        bordered = np.empty((*hessians.shape[:-2], last + 1, last + 1))
        bordered[..., :last, :last] = hessians
        bordered[..., last, :last] = bordered[..., :last, last] = border
        bordered[..., last, last] = corner
        moves = -_solve_systems(bordered, np.concatenate([gradients, own[..., None]], axis=-1))
        return moves[..., :last], moves[..., last]


@final
class PresentMetric:
    r"""The metric of the present models' Hessians with one column less or more, in which candidates near these models are bounded.

    Where a column leaves, the norm of a gradient is at most that with any number in its place. Where one comes, with cross products ``c`` and square ``q``, any ``m``,
    :math:`r = c - H m` and :math:`s = q - (c + r) \cdot m \ge \lambda_j`, the Hessian in the variables :math:`(w + m w_j, w_j)` is

    .. math:: \begin{pmatrix} H & r \\ r^\top & s \end{pmatrix} \succeq (1 - \|r\|_{H^{-1}} / \sqrt s) \begin{pmatrix} H & 0 \\ 0 & s \end{pmatrix} .

    Curvatures at a candidate are within :math:`e^\rho` of those at the present model, :math:`\rho` being the constant times the largest move of a score.
    """

    def __init__(self, family: FoldColumns, present: Array, curvatures: Array, factors: Metrics) -> None:
        self.family, self.inverse, data = family, factors.inverse, family.data
        size, n_rows = family.chosen.size, data.n_rows
        with np.errstate(all="ignore"):
            sizes = np.sqrt((family.lam * np.square(present[:, :size])).sum(axis=1)) * (1.0 + gamma(size + 8)) + TINY
            shifts = np.abs(present[:, size]) if data.fit_intercept else 0.0
            unit = gamma(size + 5) * (1.0 + gamma(size + 8))
            self.errors = (unit * (sizes * family.present_lengths[:, 0] + shifts) * (1.0 + FEW))[:, None]
            # Curvatures were taken at computed scores; they and their weights are off by a few units.
            eta = factors.eta[:, None] + 2.0 * data.constant * self.errors + gamma(n_rows + 32)
            self.grown = 1.0 + factors.solve_error[:, None]
            self.root = np.sqrt(np.where(eta < 0.5, 1.0 - eta, np.nan)) * (1.0 - FEW)
            forms, tiny = _multiply(np.swapaxes(self.inverse, 1, 2), family.A), TINY * (1.0 + _frobenius(self.inverse))
            self.norms = (_lengths(forms, axis=1) * self.grown + tiny[:, None]) / self.root * (1.0 + FEW)
            # A mean of rows is no longer than the longest one, and the sum of the curvatures holds the intercept.
            sigma = (data.weights * curvatures).sum(axis=2) * (1.0 - gamma(n_rows + 8))
            self.least = 1.0 / np.sqrt(sigma) if data.fit_intercept else np.zeros_like(sigma)
        self.usable = bool(np.all(np.isfinite(self.root)) and family.A.shape[1] > 0)
        n_folds, n_items = len(family.lam), family.columns.size
        self.largest = np.zeros((n_folds, n_items))
        self.asked = self.asked_norms = np.take_along_axis(self.norms, data.tests, axis=1)[:, None, :]
        if family.add:
            self.asked = np.empty((n_folds, n_items, data.tests.shape[1]))

    def border(self, hessians: Array, crossed: Array, squares: Array) -> None:
        """Take in the columns that come: ``system``, at most ``s`` of each, and what the metric loses by ``r``."""
        family, size = self.family, hessians.shape[1]
        images, unit = family.images, gamma(family.data.n_rows + 4 * size + 32)
        with np.errstate(all="ignore"):
            square, rest = family.own_lam + squares, crossed - np.matmul(images, hessians)
            diagonal = np.sqrt(np.diagonal(hessians, axis1=1, axis2=2))
            # Entries of sums over the rows err by a share of the roots of their diagonals.
            total = np.sqrt(square) + np.matmul(np.abs(images), diagonal[:, :, None])[:, :, 0]
            system = square - (images * (crossed + rest)).sum(axis=2) - 4.0 * unit * np.square(total)
            self.system = np.fmax(system, family.own_lam * (1.0 - FEW))
            outer = _lengths(np.matmul(diagonal[:, None, :], np.abs(self.inverse))[:, 0])[:, None]
            norms = (_lengths(np.matmul(rest, self.inverse)) + 2.0 * unit * total * outer) * self.grown / self.root
            lost = norms / np.sqrt(self.system) * (1.0 + FEW)
            self.bordered = np.sqrt(np.where(lost < 0.5, 1.0 - lost, np.nan)) * (1.0 - FEW)
            shifts = np.abs(images[..., family.chosen.size]) if family.data.fit_intercept else 0.0
            weights = np.matmul(np.square(images[..., : family.chosen.size]), family.lam[:, :, None])[:, :, 0]
            # Rounding of x - a . m, with |a . m| at most the product of their lengths.
            off = gamma(size + 5) * (family.lengths * (np.sqrt(weights) + np.sqrt(family.own_lam)) + shifts)
            self.off = off * (1.0 + gamma(size + 8)) / np.sqrt(self.system) / self.root * (1.0 + FEW)

    def place(self, members: Places) -> None:
        """Bound the norms of the rows, the largest of those with a weight and those that are asked about, for some candidates."""
        family, data, used = self.family, self.family.data, self.family.data.weights > 0.0
        with np.errstate(all="ignore"):
            if not family.add:
                self.largest[:, members] = np.where(used, self.norms[:, None, :], 0.0).max(axis=2)
                return
            residuals = data.X[:, family.columns[members]] - _multiply(family.images[:, members], family.A)
            np.square(residuals, out=residuals)
            residuals *= 1.0 / (self.system[:, members] * np.square(self.root))[:, :, None]
            lost, off = self.bordered[:, members], self.off[:, members]
            asked = np.array([part[:, test] for part, test in zip(residuals, data.tests, strict=True)])
            asked = np.sqrt(asked + np.square(self.asked_norms)) * (1.0 + FEW) + off[:, :, None]
            residuals += np.where(used, np.square(self.norms)[:, None, :], -np.inf)
            largest = np.sqrt(residuals.max(axis=2)) * (1.0 + FEW) + off
            self.largest[:, members], self.asked[:, members] = largest / lost, asked / lost[:, :, None]

    def certify(self, here: "Evaluated", wrong: Array, sizes: Array) -> tuple[Array, Array, Array, Array, Array]:
        """Upper bounds of the norms of gradients and of rows, the radius that these prove, what of the gradients is rounding, and the exponents of the curvatures."""
        family, members, constant = self.family, here.members, self.family.data.constant
        rounding = self.bound_rounding(members, wrong, sizes)
        nu = (self.gradient_norms(here.gradients, here.own_gradients, members) + rounding) * (1.0 + FEW)
        largest = self.largest[:, members]
        moves = here.scores - family.scores
        moved = np.maximum(moves.max(axis=2), -moves.min(axis=2)) + here.errors + self.errors
        exponents = constant * moved * (1.0 + FEW)
        return nu, largest, local_radius(constant, largest, nu, exponents), rounding, exponents

    def gradient_norms(self, gradients: Array, own: Array, members: Places) -> Array:
        """Upper bounds of the norms of gradients of some candidates, as they were computed."""
        family, forms, size = self.family, np.matmul(gradients, self.inverse), self.family.A.shape[1]
        if family.add:
            images, root = family.images[:, members], self.root * self.bordered[:, members]
            products = images * gradients
            rest = np.abs(own - products.sum(axis=2))
            rest += gamma(size + 4) * (np.abs(own) + np.abs(products).sum(axis=2))
            norms = np.hypot(_lengths(forms) * self.grown, rest / np.sqrt(self.system[:, members]))
        else:
            axes, root = self.inverse[:, family.places[members]], self.root
            best = -(forms * axes).sum(axis=2) / np.square(axes).sum(axis=2)
            # What both products are off is a share of what there was before they cancel.
            off = 3.0 * (self.grown - 1.0) * _lengths(forms)
            forms += np.where(np.isfinite(best), best, 0.0)[:, :, None] * axes
            norms = _lengths(forms) + off
        return norms / root * (1.0 + FEW)

    def bound_rounding(self, members: Places, wrong: Array, sizes: Array | float = 0.0) -> Array:
        """Upper bounds of the norms of what gradients are off: slopes by ``wrong`` in all rows together, the penalty's part by that of models of these sizes."""
        family = self.family
        # The Hessian is at least the penalty and, along the intercept, the sum of the curvatures.
        lengths = np.hypot(2.0 * family.lengths[:, members], self.least) * (1.0 + FEW)
        root = self.root * self.bordered[:, members] if family.add else self.root
        return ((lengths * wrong + FEW * sizes) * (1.0 + FEW) + TINY) / root


def _multiply(parts: Array, matrices: Array) -> Array:
    """The product of every fold's part with its matrix; one product, where all folds share the matrix."""
    if len(matrices) > 1:
        return np.matmul(parts, matrices)
    n_folds, n_members, depth = parts.shape
    return (parts.reshape(n_folds * n_members, depth) @ matrices[0]).reshape(n_folds, n_members, matrices.shape[2])


def _damping(moved: Array) -> Array:
    """What steps are multiplied by that move scores by this much on average."""
    with np.errstate(all="ignore"):
        return np.where(moved > LONGEST_MOVE, LONGEST_MOVE / moved, 1.0)


def _solve_systems(matrices: Array, right: Array) -> Array:
    """Solutions of systems, without proof; not a number where there is none."""
    try:
        return np.asarray(np.linalg.solve(matrices, right[..., None]))[..., 0]
    except np.linalg.LinAlgError:
        return np.full(right.shape, np.nan)
