r"""Leave-one-out scores of the models of many sets of columns at once, under the local certificate.

Each set has a base near the optimum of all rows, and the Hessian :math:`H` near it. With :math:`q_i = \|x_i\|_{H^{-1}}` a Newton step of the model without row ``i``
moves it by :math:`\delta = c_i H^{-1} x_i`, :math:`c_i = s_i g_i / (1 - \ell_i)`, :math:`\ell_i = s_i h_i q_i^2`, and leaves a gradient of at most

.. math:: \nu = \Big(\sum_{k \ne i} s_k h_k R(|x_k^\top \delta|)^2\Big)^{1/2}, \qquad R(t) = (e^{M t} - 1 - M t) / M,

in the metric of :math:`H`. Rows that are left out of the Hessian cost the share of it that they carry, at most :math:`s_k h_k q_k^2`: so do the row itself, rows of
large norm, and rows whose scores have moved far (:mod:`glru.updates.columns.one_step`). Pairs of a set and a row whose bounds are too wide are written down in full and stepped on, pairs of
all sets in the same products: first with the Hessian of the set, then with their own. What closed forms miss hardly depends on a single column: pairs begin
where it is taken from the same row under the model of other columns, if that was written down.
"""

from collections.abc import Iterator
from typing import final

import numpy as np
from numpy.typing import NDArray

from glru.bounds import Bounds, intersect, widen
from glru.linalg import FEW, TINY, Array, gamma, powers_of_two
from glru.updates.carried_rows import sum_error
from glru.updates.columns.one_step import FOLLOWED_MOVES, LOST_SHARES, exponential_remainders, least_radius
from glru.updates.columns.subsets import ENTRIES_TOGETHER, Metrics, Places, Step, SubsetModels, _frobenius, _lengths

MAX_DRIFT, BASE_METRICS = 0.01, 10
"""The Hessian of a set is taken from its base once a Newton step moves no score further than this (times the self-concordance constant); and the largest number of Hessians formed."""

PRESENT_STEPS, BASE_STEPS = 3, 3
"""Steps with the Hessian of another model to near the base, and with that of the base itself to the base."""

LARGEST_RATIO = 4.0
"""What closed forms missed under another model is taken over times at most this."""

SHARED_STEPS, OWN_STEPS = 24, 20
"""The largest number of steps of a pair with the Hessian of its set, and with its own."""

TOO_FAR = 0.3
"""A step goes too far if the slope of the objective along it has changed sign and is more than this share of its first value."""

SLOW_CONTRACTION = 0.9
"""If a step leaves more than this share of the gradient, the next ones use the pair's own Hessian."""

SCORES_TOGETHER = 1_000_000
"""Scores of pairs that are worked on together, about."""


@final
class SubsetRows:
    """Bounds of the scores of all rows, each under the model of a set of columns trained without it.

    ``family``: the rows, all of which have a weight; ``columns`` (shape (n_sets, n_columns)): the sets, all of one size, each sorted; ``starts`` (shape
    (n_sets, n_unknowns)): models to start from, the intercept last; ``factor``: what the weights of the other rows are multiplied by when a row leaves;
    ``present``: such scores of another set, which has all columns of these, and its place there, to
    start from instead.

    Attributes
    ----------
    lower, upper : array of shape (n_sets, n_rows)
        The bounds.
    centers : array of shape (n_sets, n_rows)
        The scores of the candidates that they were found at.
    """

    def __init__(
        self,
        family: SubsetModels,
        columns: Places,
        starts: Array,
        factor: float,
        present: "tuple[SubsetRows, int] | None" = None,
    ) -> None:
        self.family, self.constant = family, family.constant
        self.columns, places = np.unique(family.places(columns), return_inverse=True)
        self.places = places.reshape(len(columns), -1)
        X = family.X[self.columns]
        # In units of the columns in which no row's length is that of a few large columns.
        scales = powers_of_two(np.square(X).mean(axis=1))
        self.X = X * scales[:, None]
        # The objective over the factor: the weights of the other rows stay.
        self.strengths = family.strengths[self.columns] * np.square(scales) / factor
        self.scales = scales[self.places]
        n_sets, size, n_rows = *self.places.shape, family.y.size
        self.models, self.inverse = starts / self.scales, np.empty((n_sets, size, size))
        self._shared: Array | None = None
        self._missed: tuple[Places, Array, Array, Array] | None = None
        self._kept: list[tuple[Places, Places, Array]] = []
        self.origin, self.scores, self.norms, self.lower, self.upper, self.centers = np.empty((6, n_sets, n_rows))
        self.curvatures, self.multipliers, self.leverages, self.shares = np.empty((4, n_sets, n_rows))
        self.cuts, self.lost = np.empty((2, len(LOST_SHARES), n_sets))
        self.root, self.grown, self.drift, self.old_errors, self.spread, self.norm_sums = np.empty((6, n_sets))
        # Pairs are written down in all columns.
        self.lengths = np.asarray(_lengths(self.X, axis=0)) + TINY
        self.column_norms = np.asarray(_lengths(np.sqrt(family.weights) * self.X)) * (1.0 + FEW) + TINY
        width = max(1, ENTRIES_TOGETHER // max(size * n_rows, 1))
        with np.errstate(all="ignore"):
            if present is not None:
                self._follow(*present)
            for start in range(0, n_sets, width):
                self._settle(np.arange(start, min(start + width, n_sets)))

    def _follow(self, other: "SubsetRows", place: int) -> None:
        """Start from the model of a set with more columns: from a Newton step there, and with what its closed forms have missed."""
        here, n_sets, size = other.columns[other.places[place]], *self.places.shape
        inverse = other.inverse[place] @ other.inverse[place].T
        each = np.arange(n_sets)[:, None]
        stays = np.zeros((n_sets, here.size), dtype=bool)
        stays[each, np.searchsorted(here, self.columns[self.places])] = True
        stay, gone = (np.nonzero(part)[1].reshape(n_sets, -1) for part in (stays, ~stays))
        # ``models @ turn``: the nearest models of a set in the metric of the other one.
        turns = np.zeros((n_sets, here.size, size))
        turns[each, stay, np.arange(size)] = 1.0
        try:
            crossed = inverse[gone[:, :, None], stay[:, None, :]]
            moves = np.linalg.solve(inverse[gone[:, :, None], gone[:, None, :]], crossed)
        except np.linalg.LinAlgError:
            moves = np.zeros((n_sets, gone.shape[1], stay.shape[1]))
        moves = np.where(np.isfinite(moves), moves, 0.0)
        turns[each, gone] = -moves
        if self.constant > 0.0:
            crossed = inverse[stay[:, :, None], gone[:, None, :]]
            self._shared = inverse[stay[:, :, None], stay[:, None, :]] - np.matmul(crossed, moves)
        self.models = other.models[place] @ turns
        rows, missed = other._find_missed(place)
        if rows.size:
            self._missed = rows, missed, other.multipliers[place, rows], turns

    def _find_missed(self, place: int) -> tuple[Places, Array]:
        """The rows that were written down under the model of a set, and what their closed forms miss."""
        parts = [(rows[sets == place], models[sets == place]) for sets, rows, models in reversed(self._kept)]
        if not parts:
            return np.empty(0, dtype=np.intp), np.empty((0, self.places.shape[1]))
        rows, models = (np.concatenate(part) for part in zip(*parts, strict=True))
        # The last model of each row.
        rows, last = np.unique(rows, return_index=True)
        forms = self.X[self.places[place]][:, rows].T @ self.inverse[place]
        closed = self.models[place] + self.multipliers[place, rows][:, None] * (forms @ self.inverse[place].T)
        missed = models[last] - closed
        known = np.isfinite(missed).all(axis=1)
        return rows[known], missed[known]

    def begin(self, sets: Places, rows: Places) -> Array:
        """Models from which a step of the closed form leads near the models of some pairs; pairs of one set stand together."""
        found = self.models[sets]
        if self._missed is None:
            return found
        known, missed, multipliers, turns = self._missed
        places = np.minimum(np.searchsorted(known, rows), known.size - 1)
        # What is missed grows with the square of the step.
        ratio = np.square(self.multipliers[sets, rows] / multipliers[places])
        ratio = np.where((known[places] == rows) & (ratio < LARGEST_RATIO), ratio, 0.0)
        for here in _parts(sets):
            found[here] += (ratio[here, None] * missed[places[here]]) @ turns[sets[here.start]]
        return found

    def evaluate(self, sets: Places, models: Array, rows: Places | None = None) -> tuple[Array, Array, Array]:
        """Scores of models in the columns of some sets, weighted slopes, and gradients; of those without a row each if ``rows`` are given."""
        places, whole = self.places[sets], np.zeros((sets.size, len(self.X)))
        np.put_along_axis(whole, places, models, axis=1)
        scores = whole @ self.X
        slopes = self.family.weights * self.family.problem.loss.gradient(self.family.y, scores)
        if rows is not None:
            slopes[np.arange(sets.size), rows] = 0.0
        gradients = np.take_along_axis(slopes @ self.X.T, places, axis=1) + self.strengths[places] * models
        return scores, slopes, gradients

    def _settle(self, sets: Places) -> None:
        """Step some sets on to where a Hessian serves as that of their base, and bound all their rows in closed form."""
        self.family.budget.check()
        if self._shared is not None:
            self._approach(sets, self._shared[sets])
        A = self.X[self.places[sets]]
        for k in range(BASE_METRICS):
            here = Step(self.family, A, self.models[sets], self.strengths[self.places[sets]])
            self.models[sets] = here.moved
            moved = np.abs(np.matmul(self.models[sets][:, None, :], A)[:, 0, :] - here.scores).max(axis=1)
            done = (self.constant * moved <= MAX_DRIFT) | (k + 1 == BASE_METRICS)
            if done.any():
                metrics = Metrics(
                    *(part[done] for part in (here.metrics.inverse, here.metrics.eta, here.metrics.solve_error))
                )
                self._bound(sets[done], A[done], here.models[done], here.scores[done], metrics)
            sets, A = sets[~done], A[~done]
            if not sets.size:
                return

    def _approach(self, sets: Places, shared: Array) -> None:
        """Step some sets on with metrics of another model, while that makes their gradients less."""
        models = before = self.models[sets]
        least = np.full(sets.size, np.inf)
        for _ in range(PRESENT_STEPS):
            gradients = self.evaluate(sets, models)[2]
            moves = np.matmul(gradients[:, None, :], shared)[:, 0, :]
            norms = (gradients * moves).sum(axis=1)
            better = norms < 0.5 * least
            before, least = np.where(better[:, None], models, before), np.where(better, norms, 0.0)
            models = np.where(better[:, None], models - moves, before)
        self.models[sets] = models

    def _bound(self, sets: Places, A: Array, models: Array, origin: Array, metrics: Metrics) -> None:
        """Find the bases of some sets with the Hessians at models nearby, whose scores are ``origin``, and bound all rows in closed form."""
        family, strengths, constant = self.family, self.strengths[self.places[sets]], self.constant
        V, n_rows, unit = metrics.inverse, family.y.size, sum_error(family.y.size)
        for step in range(BASE_STEPS + 1):
            scores = np.matmul(self.models[sets][:, None, :], A)[:, 0, :]
            slopes = family.weights * family.problem.loss.gradient(family.y, scores)
            forms = np.matmul((np.matmul(A, slopes[:, :, None])[:, :, 0] + strengths * self.models[sets])[:, None], V)
            if step < BASE_STEPS:
                self.models[sets] -= np.matmul(V, np.swapaxes(forms, 1, 2))[:, :, 0]
        errors, old_errors = self.score_errors(self.models[sets]), self.score_errors(models)
        # Curvatures were taken at computed scores.
        eta = metrics.eta + 2.0 * constant * old_errors * self.lengths.max() + unit
        root = np.sqrt(np.where(eta < 0.5, 1.0 - eta, np.nan)) * (1.0 - FEW)
        grown, tiny = 1.0 + metrics.solve_error, TINY * (1.0 + _frobenius(V))
        squares = np.square(np.matmul(np.swapaxes(V, 1, 2), A)).sum(axis=1)
        norms = np.sqrt(squares) * (1.0 + gamma(A.shape[1] + 4)) * grown[:, None] + tiny[:, None]
        norms = norms / root[:, None] * (1.0 + FEW)
        _, curvatures = family.problem.loss.expand_slope(family.y, origin)
        curvatures = family.weights * curvatures
        shares = curvatures * np.square(norms) * (1.0 + eta[:, None]) * (1.0 + FEW)
        self._cut(sets, norms, shares)
        off = (errors + old_errors)[:, None] * self.lengths
        drift = constant * (np.abs(scores - origin) + off).max(axis=1) * (1.0 + FEW)
        sizes = np.matmul(self.column_norms[self.places[sets]][:, None, :], np.abs(V))[:, 0]
        self.spread[sets] = _lengths(sizes) * grown / root * (1.0 + FEW)
        self.norm_sums[sets] = norms @ (family.weights * self.lengths)
        rounding = self.rounding(sets, slopes, errors) + FEW * _lengths(np.sqrt(strengths) * self.models[sets])
        nu = ((_lengths(forms[:, 0]) * grown + TINY) / root + rounding) * (1.0 + FEW)
        # c_i and l_i of the closed form.
        leverages = curvatures * squares
        multipliers = slopes / (1.0 - leverages)
        self.origin[sets], self.scores[sets], self.norms[sets], self.shares[sets] = origin, scores, norms, shares
        self.curvatures[sets], self.multipliers[sets], self.leverages[sets] = curvatures, multipliers, leverages
        self.inverse[sets], self.root[sets], self.grown[sets], self.drift[sets] = V, root, grown, drift
        self.old_errors[sets] = old_errors * self.lengths.max() * (1.0 + FEW)
        wrong = np.abs(multipliers * (1.0 - leverages) - slopes) + FEW * (np.abs(multipliers) + np.abs(slopes))
        wrong += family.weights * family.problem.loss.smoothness * errors[:, None] * self.lengths
        lengths = np.abs(multipliers) * norms * (np.square(grown) * (1.0 + eta))[:, None] * (1.0 + FEW)
        # What the computed factor leaves of the Newton equation, two errors of the inverse and one of the Hessian; and the error of l_i < 1.
        left = wrong * norms + 2.0 * lengths * (eta + 4.0 * metrics.solve_error)[:, None] + nu[:, None]
        self.centers[sets] = scores + multipliers * squares
        half = norms * self._closed_radii(sets, lengths, left * (1.0 + FEW))
        half += off + (4.0 * metrics.solve_error[:, None] + gamma(n_rows + 8)) * np.abs(multipliers) * squares
        self.lower[sets], self.upper[sets] = _widen(self.centers[sets], half * (1.0 + FEW))

    def _cut(self, sets: Places, norms: Array, shares: Array) -> None:
        """The largest norm of the rows of each set, for every share in ``LOST_SHARES`` that longer rows may carry."""
        order = np.argsort(-norms, axis=1)
        sums = np.cumsum(np.take_along_axis(shares, order, axis=1), axis=1) * (1.0 + gamma(norms.shape[1] + 8))
        for k, most in enumerate(LOST_SHARES):
            n_lost = (
                np.minimum((sums <= most).sum(axis=1), norms.shape[1] - 1) if most > 0.0 else np.zeros(sets.size, int)
            )
            self.cuts[k, sets] = np.take_along_axis(norms, order[np.arange(sets.size), n_lost][:, None], axis=1)[:, 0]
            before = np.take_along_axis(sums, np.maximum(n_lost - 1, 0)[:, None], axis=1)[:, 0]
            self.lost[k, sets] = np.where(n_lost > 0, before, 0.0)

    def _closed_radii(self, sets: Places, lengths: Array, left: Array) -> Array:
        """The radii after one step of every row, whose norms are at most ``lengths``; ``left``: what it leaves of the Newton equation."""
        constant, drift = self.constant, self.drift[sets][:, None]
        steep, radius = constant * self.cuts[0, sets][:, None] * lengths * (1.0 + FEW), np.full(lengths.shape, np.inf)
        longest = np.square(steep * exponential_remainders(steep))
        own = self.shares[sets]
        for k, (cut, lost) in enumerate(zip(self.cuts[:, sets, None], self.lost[:, sets, None], strict=True)):
            if k and (constant == 0.0 or np.array_equal(cut, self.cuts[k - 1, sets, None])):
                continue
            moved = constant * cut * lengths * (1.0 + FEW)
            # With R(t) / t increasing, the rows beyond the cut count by the longest of them and by what they carry.
            remainder = np.sqrt(np.square(moved * exponential_remainders(moved)) + lost * longest)
            nu = (left + lengths * (remainder * np.exp(drift) + np.expm1(drift))) * (1.0 + FEW)
            cuts = [(cut, np.broadcast_to(lost, own.shape))]
            radius = np.fmin(radius, least_radius(cuts, constant, nu, [((moved + drift) * (1.0 + FEW), own)]))
        return radius

    def score_errors(self, models: Array) -> Array:
        """What the error of a row's score is at most, over the row's length."""
        return np.asarray(gamma(len(self.X) + 3) * _lengths(models) * (1.0 + FEW))

    def rounding(self, sets: Places, slopes: Array, errors: Array) -> Array:
        """Upper bounds of the norms of the errors of gradients: of the sums, of the slopes' own evaluation, and of slopes at scores that are off."""
        family, n_rows = self.family, self.family.y.size
        # Every entry of a sum rounds by itself: by Cauchy's inequality a share of its column's norm, which may have any direction.
        summed = (
            (sum_error(n_rows) + FEW) * (_lengths(slopes * (1.0 / np.sqrt(family.weights))) + TINY) * self.spread[sets]
        )
        off = errors * family.problem.loss.smoothness * self.norm_sums[sets]
        return (summed + off) * (1.0 + gamma(n_rows + 16))

    def narrow(self, sets: Places, rows: Places, width: Array, signs: bool) -> None:
        """Narrow the bounds of some pairs of a set and a row until those of each set have their widths together, or until their signs are known."""
        order = np.lexsort((rows, sets))
        sets, rows, width, best = sets[order], rows[order], width[order], np.full(order.size, np.inf)
        asked, most = (sets, rows), np.bincount(sets, width)
        slow: list[tuple[Places, Places, Array, Array]] = []
        steps: tuple[Array, ...] | None = None
        height = max(1, SCORES_TOGETHER // self.family.y.size)
        with np.errstate(all="ignore"):
            for step in range(SHARED_STEPS):
                going, stepped = np.zeros(sets.size, dtype=bool), []
                for start in range(0, sets.size, height):
                    self.family.budget.check()
                    part = slice(start, start + height)
                    here = None if steps is None else tuple(known[part] for known in steps)
                    pairs = Pairs(self, sets[part], rows[part], here)
                    too_far, nu = pairs.went_too_far, np.full(pairs.sets.size, np.inf)
                    left = useful = np.ones(pairs.sets.size, dtype=bool)
                    if step or self._missed is not None:
                        # Otherwise one step is what the closed form was too wide for.
                        nu = pairs.certify(width[part], signs)
                        self._kept.append((pairs.sets, pairs.rows, pairs.models))
                        left = self.is_open(pairs.sets, pairs.rows, width[part], signs)
                        useful = left & (too_far | (nu < SLOW_CONTRACTION * best[part])) & (step + 1 < SHARED_STEPS)
                        if not signs:
                            # What some rows are narrower than asked for, others may be wider.
                            widths = np.bincount(asked[0], self.upper[asked] - self.lower[asked])
                            left &= ~(widths <= most)[pairs.sets]
                            useful &= left
                    going[part], best[part] = useful, np.fmin(nu, best[part])
                    if useful.any():
                        stepped.append(tuple(known[useful] for known in pairs.step(too_far)))
                    alone = left & ~useful
                    slow.append((pairs.sets[alone], pairs.rows[alone], pairs.starts(nu)[alone], width[part][alone]))
                if not going.any():
                    break
                sets, rows, width, best = sets[going], rows[going], width[going], best[going]
                steps = tuple(np.concatenate(known) for known in zip(*stepped, strict=True))
            if slow:
                sets, rows, models, width = (np.concatenate(parts) for parts in zip(*slow, strict=True))
                self._narrow_alone(sets, rows, models, width, signs)

    def is_open(self, sets: Places, rows: Places, width: Array, signs: bool) -> NDArray[np.bool_]:
        """Which pairs are wider than is asked for, or have an unknown sign."""
        low, high = self.lower[sets, rows], self.upper[sets, rows]
        found: NDArray[np.bool_] = ~((low > 0.0) | (high < 0.0) if signs else high - low <= width)
        return found

    def take(self, sets: Places, rows: Places, centers: Array, ends: Bounds) -> None:
        known = self.lower[sets, rows], self.upper[sets, rows]
        closer = ends[1] - ends[0] < known[1] - known[0]
        self.centers[sets[closer], rows[closer]] = centers[closer]
        self.lower[sets, rows], self.upper[sets, rows] = intersect(known, ends)

    def _narrow_alone(self, sets: Places, rows: Places, models: Array, width: Array, signs: bool) -> None:
        """Step pairs on with Hessians of their own, from models in the columns of their sets."""
        family, height = self.family, max(1, ENTRIES_TOGETHER // max(models.shape[1] * self.family.y.size, 1))
        for start in range(0, sets.size, height):
            family.budget.check()
            here = np.arange(start, min(start + height, sets.size))
            places, best = self.places[sets[here]], np.full(here.size, np.inf)
            A, weights = self.X[places], np.tile(family.weights, (here.size, 1))
            weights[np.arange(here.size), rows[here]] = 0.0
            queries = self.X[places, rows[here][:, None]][:, :, None]
            for _ in range(OWN_STEPS):
                step = Step(family, A, models[here], self.strengths[places], weights)
                nu, (low, high) = step.bounds(queries)
                self.take(sets[here], rows[here], step.scores[np.arange(here.size), rows[here]], (low[0], high[0]))
                # A gradient that no longer shrinks is rounding, where steps have been small before.
                going = self.is_open(sets[here], rows[here], width[here], signs)
                going &= ~((nu >= 0.5 * best) & (best < 1e-4))
                if not going.any():
                    break
                models[here] = step.moved
                here, best, places = here[going], np.minimum(nu, best)[going], places[going]
                A, weights, queries = A[going], weights[going], queries[going]
        self._kept.append((sets, rows, models))


@final
class Pairs:
    """Models of pairs of a set and a row, written down in full in the columns of their sets; pairs of one set stand together.

    ``steps``: where each pair's last step began, the step in the coordinates of the metric, and the slope of the objective along it there; the closed form, if not given.
    """

    def __init__(self, family: SubsetRows, sets: Places, rows: Places, steps: tuple[Array, ...] | None) -> None:
        self.family, self.sets, self.rows = family, sets, rows
        self.images = self._multiply(family.X[family.places[sets], rows[:, None]], False)
        if steps is None:
            multipliers = np.where(np.isfinite(family.multipliers[sets, rows]), family.multipliers[sets, rows], 0.0)
            squares = np.square(self.images).sum(axis=1)
            slopes = -np.square(multipliers) * (1.0 - family.leverages[sets, rows]) * squares
            first = self.images * multipliers[:, None]
            steps = family.begin(sets, rows), first, slopes
        self.begin, self.moves, self.slopes = steps
        moves = self._multiply(self.moves, True)
        self.models = self.begin + np.where(np.isfinite(moves), moves, 0.0)
        # The gradient in the coordinates of the metric.
        self.scores, self.row_slopes, gradients = family.evaluate(sets, self.models, rows)
        self.forms = self._multiply(gradients, False)

    @property
    def went_too_far(self) -> NDArray[np.bool_]:
        """Whether the last steps went too far."""
        return np.asarray((self.forms * self.moves).sum(axis=1) > -TOO_FAR * self.slopes)

    def _multiply(self, vectors: Array, transposed: bool) -> Array:
        """Vectors times the inverse factors of their sets."""
        found = np.empty_like(vectors)
        for here in _parts(self.sets):
            inverse = self.family.inverse[self.sets[here.start]]
            found[here] = vectors[here] @ (inverse.T if transposed else inverse)
        return found

    def certify(self, width: Array, signs: bool) -> Array:
        """Take in bounds of the rows' scores; at least the norms of the gradients."""
        family, sets, rows, each = self.family, self.sets, self.rows, np.arange(self.sets.size)
        scores, slopes, strengths = self.scores, self.row_slopes, family.strengths[family.places[sets]]
        errors = family.score_errors(self.models)
        rounding = family.rounding(sets, slopes, errors) + FEW * _lengths(np.sqrt(strengths) * self.models)
        nu = (_lengths(self.forms) * family.grown[sets] + TINY) / family.root[sets] + rounding
        away = np.empty_like(scores)
        for here in _parts(sets):
            np.abs(np.subtract(scores[here], family.origin[sets[here.start]], out=away[here]), out=away[here])
        away[each, rows] = 0.0
        # What each score may be off by, here and where the curvatures of the metric were taken.
        off, moved = (errors * family.lengths.max() + family.old_errors[sets]) * (1.0 + FEW), away.max(axis=1)
        centers, own_norms, errors = scores[each, rows], family.norms[sets, rows], errors * family.lengths[rows]

        def take(members: Places, radius: Array) -> None:
            half = (own_norms[members] * radius + errors[members]) * (1.0 + FEW)
            family.take(sets[members], rows[members], centers[members], _widen(centers[members], half))

        take(each, self._radii(each, nu, [(moved + off, 0.0)]))
        far = each[(family.constant * moved > FOLLOWED_MOVES[0]) & family.is_open(sets, rows, width, signs)]
        if far.size:
            further, lost = away[far], np.empty((len(FOLLOWED_MOVES), far.size))
            for here in _parts(sets[far]):
                shares = family.shares[sets[far[here.start]]]
                for k, most in enumerate(FOLLOWED_MOVES):
                    # The row itself, which has not moved here, does not count twice.
                    lost[k, here] = (further[here] > most) @ shares
            ways = [(most + off[far], share) for most, share in zip(FOLLOWED_MOVES, lost, strict=True)]
            take(far, self._radii(far, nu[far], ways))
        return nu

    def starts(self, nu: Array) -> Array:
        """Models for steps of each pair alone: those whose gradients, of norms ``nu``, are less than those of the bases without the rows."""
        family, mine = self.family, (self.sets, self.rows)
        own = np.abs(family.multipliers[mine] * (1.0 - family.leverages[mine])) * family.norms[mine]
        return np.where((nu < own)[:, None], self.models, family.models[self.sets])

    def _radii(self, members: Places, nu: Array, ways: list[tuple[Array, Array | float]]) -> Array:
        """The least radii of some pairs, given scores that have moved by at most so much, but for rows that carry a share of the Hessian."""
        family, sets = self.family, self.sets[members]
        own, rounded = family.shares[sets, self.rows[members]], 1.0 + gamma(family.family.y.size + 8)
        moves = [(family.constant * moved * (1.0 + FEW), (own + lost) * rounded) for moved, lost in ways]
        cuts = list(zip(family.cuts[:, sets], family.lost[:, sets], strict=True))
        return least_radius(cuts, family.constant, nu * (1.0 + FEW), moves)

    def step(self, too_far: NDArray[np.bool_]) -> tuple[Array, ...]:
        """The next steps: to where the slope along the last one is about zero, if that went too far; else Newton's.

        These begin with the Hessian of the set without the row.
        """
        family, mine, forms = self.family, (self.sets, self.rows), self.forms
        along = family.curvatures[mine] * (forms * self.images).sum(axis=1) / (1.0 - family.leverages[mine])
        newton = -(forms + along[:, None] * self.images)
        share = self.slopes / (self.slopes - (forms * self.moves).sum(axis=1))
        back = share[:, None] * self.moves
        return (
            np.where(too_far[:, None], self.begin, self.models),
            np.where(too_far[:, None], back, newton),
            np.where(too_far, share * self.slopes, (forms * newton).sum(axis=1)),
        )


def _parts(sets: Places) -> Iterator[slice]:
    """The pairs of each set, which stand together."""
    ends = np.append(np.flatnonzero(np.diff(sets)) + 1, sets.size)
    for start, stop in zip(np.append(0, ends[:-1]), ends, strict=True):
        yield slice(int(start), int(stop))


def _widen(centers: Array, half: Array) -> Bounds:
    known = np.isfinite(centers) & np.isfinite(half)
    return widen(np.where(known, centers, 0.0), np.where(known, half, np.inf))
