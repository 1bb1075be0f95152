"""``python -m tests.attack.mutants [NAME ...]``: break the proofs on purpose, one way at a time, and see that the tests notice.

Every mutant weakens one named slack, radius or inequality of the library (:mod:`tests.attack.mutation`), in the process of the tests
and nowhere else: this module is also the pytest plugin that installs the mutant named by ``GLRU_MUTANT``. A mutant that survives
is a hole in the tests; one whose target is gone fails at once and says which.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import Phase, settings

from glru.updates.class_folds import FoldMetric
from tests.attack.mutation import Mutant, Unbound, always, become, inside, result, scaled, scaled_argument

ROOT = Path(__file__).parent.parent.parent

VARIABLE = "GLRU_MUTANT"

ROUNDING, CARRY, ANSWERS = (f"certificates/test_{name}.py" for name in ("rounding", "carry", "answers"))
MATRIX = "contracts/test_matrix.py"
RULES, CONSTRAINTS = "contracts/test_bounds.py", "contracts/test_duality.py"
SLACK, PRECISION, AFTER = (f"certificates/test_{name}.py" for name in ("slack", "precision", "after"))
FAMILIES, LOOCV = "decisions/test_families.py", "decisions/test_loocv.py"
FOLDS, REFITS = "decisions/test_cross_validation.py", "decisions/test_refits.py"
COLUMNS, STEPWISE = "decisions/test_column_families.py", "decisions/test_stepwise.py"
INFORMATION, SUBSETS = "decisions/test_information.py", "decisions/test_subsets.py"
SUBSET_ROWS, PATHS = "decisions/test_subset_rows.py", "decisions/test_paths.py"
FOLD_COLUMNS, CARRIED_COLUMNS = "decisions/test_fold_columns.py", "decisions/test_carried_columns.py"
DEVICES, ATTACK = "ecosystem/test_arrays.py", "attack/test_attack.py"
CLASS_STEPWISE = "decisions/test_class_stepwise.py"
GENERALISED_STEPWISE = "decisions/test_generalised_stepwise.py"
CLASS_BLOCKS = "rows/test_classes.py"
CLASSES, CLASS_CHANGES = "certificates/test_multinomial.py", "certificates/test_class_changes.py"
DELETION = "certificates/test_deletion.py"
SUPPORT = "certificates/test_support.py"
PIECES = "certificates/test_pieces.py"
KINKS = "certificates/test_kink_rows.py"
GENERALISED, CONTRACTS = "certificates/test_log_link.py", "contracts/test_losses.py"
BALLS = "certificates/test_penalty_balls.py"
BLOCKS, BLOCK_TRAINING, BLOCK_CHANGES = (f"rows/test_{name}.py" for name in ("loocv", "training", "changes"))

LIKELIHOODS = [("log_link", name) for name in ("Poisson", "Gamma", "Tweedie", "NegativeBinomial")]
LIKELIHOODS.append(("logistic", "Binomial"))


class _Unseen(dict):
    """A dictionary that passes for an empty one until it is read."""

    def __bool__(self):
        return False


def _unknown_shares(solve):
    """As if nothing were known of any metric without a row."""

    def weaker(candidates, vectors):
        known = candidates.removals
        candidates.removals = replace(known, metric_shares=0.0 * known.metric_shares)
        try:
            return solve(candidates, vectors)
        finally:
            candidates.removals = known

    return weaker


nothing = always(0.0)
zero = become(0.0)


def _every_column(_):
    """As if no subtraction were ever rounded."""
    return lambda columns, numbers: np.ones(numbers.size, dtype=bool)


def _exact_free_columns(length):
    """As if normalised columns had no errors."""
    return lambda array, axis=None: (
        0.0 if axis is None and np.allclose(length(array, axis=0), 1.0) else length(array, axis)
    )


def _constant_curvature(_):
    """As if the curvature did not grow on the way to the exact score."""
    return lambda self, y, z, errors: self.curvature(y, z) * errors


def _gradients_without_the_rest(extend):
    """As if a step without the columns left nothing of the gradient but what the columns themselves see."""
    return lambda self, gradient: 0.01 * extend(self, gradient)


def _no_radii(holds):
    """As if every model were the optimum."""
    return lambda self, models, radii, *rest, **named: holds(self, models, 0.0 * radii, *rest, **named)


def _no_missed(half_widths):
    """As if the slopes of every model summed to zero."""
    return lambda self, rows, scores, errors, norms, missed: half_widths(
        self, rows, scores, errors, norms, 0.0 * missed
    )


def _no_kinks(piece_radius):
    """As if no row ever crossed a kink."""
    return lambda nu, shares, lost: piece_radius(nu, shares, lambda radii: 0.0 * lost(radii))


def _no_repairs(repairs):
    """As if dual variables met the constraint of an intercept as they are."""

    def mutant(self, *arguments):
        moves, moved = repairs(self, *arguments)
        return None if moves is None else 0.0 * moves, 0.0 * moved

    return mutant


def _any_sign(holds):
    """As if the signs of coefficients did not matter."""

    def mutant(self, models, radii, axis_norms, *rest, **named):
        changed = copy(self)
        changed.signs = 0.0 * self.signs
        return holds(changed, models, radii, axis_norms, *rest, **named)

    return mutant


def _no_limits(holds):
    """As if columns off the support always stayed off."""

    def mutant(self, *rest, **named):
        changed = copy(self)
        changed.limits = self.limits + np.inf
        return holds(changed, *rest, **named)

    return mutant


def _no_share(function):
    """As if strengths were known exactly."""
    return lambda *args, **named: function(*args, **(named | {"share": 0.0}))


def _no_share_of_norms(make):
    """As if strengths that err changed nothing but the limits of columns off the support."""
    return lambda totals, point, here, metric, errors, share=0.0, moved=0.0: make(
        totals, point, here, metric, errors, 0.0, moved
    )


def _no_slack_for_scores(loss_terms):
    exact = inside(UNIT=zero)(loss_terms)
    return lambda loss, y, scores, errors, dual, moves=None: exact(loss, y, scores, 0.0 * errors, dual, moves)


def _no_slack_for_correlations(penalty_terms):
    exact = inside(FEW=zero)(penalty_terms)
    return lambda penalty, coef, correlations, errors: exact(penalty, coef, correlations, 0.0 * errors)


def _no_slack_for_carried(dual_bounds):
    exact = inside(FEW=zero, gamma=nothing, sum_error=nothing)(dual_bounds)
    # The mass of the dual variables is what the errors of the correlations are a share of.
    return lambda self, rows, gaps: exact(replace(self, dual_norm=0.0), rows, gaps)


def _queries_without_errors(widen_queries):
    exact = inside(FEW=zero, gamma=nothing)(widen_queries)
    return lambda scores, half, errors, reference: exact(scores, half, 0.0 * errors, reference)


def _base_without(**parts):
    def change(base_norms):
        def mutant(self):
            steps = copy(self)
            steps.family = copy(self.family)
            steps.family.base = replace(self.family.base, **parts)
            return base_norms(steps)

        return mutant

    return change


def _exact_factors(factor_all):
    def mutant(hessians, depth):
        found = factor_all(hessians, depth)
        return replace(found, eta=0.0 * np.ones_like(found.eta), solve_error=0.0 * found.solve_error)

    return mutant


def _at_the_middle(half_deviances):
    """As if scores were known exactly."""

    def mutant(loss, y, lower, upper):
        middle = 0.5 * (lower + upper)
        return half_deviances(loss, y, middle, middle)

    return mutant


def _same_curvatures(bounds_nearby):
    def mutant(problem, known, counts, n_changed, lower, upper):
        middle = 0.5 * (lower + upper)
        return bounds_nearby(problem, replace(known, scores=middle), counts, n_changed, middle, middle)

    return mutant


def _same_columns(bounds_nearby):
    return lambda problem, known, counts, changed, *scores: bounds_nearby(problem, known, counts, (0, 0), *scores)


def _rows_before(_):
    """As if a column that comes made no row longer."""

    def mutant(self, members):
        norms, tests = self.norms[:, None, :], self.family.data.tests[:, None, :]
        self.largest[:, members] = norms.max(axis=2)
        self.asked[:, members if self.family.add else slice(None)] = np.take_along_axis(norms, tests, axis=2)

    return mutant


def _falling_half(bound_sums):
    """As if the gradient of held-out losses were half as long."""

    def mutant(self, slopes, smoothness):
        fall, rise = bound_sums(self, slopes, smoothness)
        return 0.5 * fall, rise

    return mutant


def _rising_as_falling(bound_sums):
    """As if held-out losses had no curvature."""
    return lambda self, slopes, smoothness: bound_sums(self, slopes, smoothness)[:1] * 2


def _without_exponent(local_radius):
    """As if curvatures were the same everywhere."""
    return lambda constant, largest_norm, nu, exponent: local_radius(constant, largest_norm, nu, 0.0)


def _inward(score_bounds):
    def mutant(self, X):
        lower, upper = score_bounds(self, X)
        below, above = (3e-15 * abs(end) for end in self.intercept_bounds())
        return lower + below, upper - above

    return mutant


def _uneven(widen):
    return lambda center, half: (widen(center, 0.1 * half)[0], widen(center, half)[1])


def _same_ends(linear_range):
    def mutant(X, lower, upper):
        if np.all(np.isfinite(lower)) and np.all(np.isfinite(upper)):
            return X @ lower, X @ upper
        return linear_range(X, lower, upper)

    return mutant


def _rows_without_intercept(norms):
    def mutant(self, X):
        return np.linalg.norm(X.dense() @ self.inverse[: X.shape[1]], axis=1)

    return mutant


def _zero_eta(factor):
    def mutant(self, *args):
        factor(self, *args)
        self.eta = 0.0 if np.isfinite(self.eta) else self.eta

    return mutant


def _every_power(powers_of_two):
    def mutant(diagonal):
        known = (diagonal > 0.0) & np.isfinite(diagonal)
        return np.ldexp(1.0, -np.round(0.5 * np.log2(np.where(known, diagonal, 1.0))).astype(np.intc))

    return mutant


def _one_factor(place):
    def mutant(self, *args):
        factors = self.factors
        self.factors = (0.5 * sum(factors),) * 2
        place(self, *args)
        self.factors, self.base = factors, replace(self.base, factors=factors)

    return mutant


def _last_places(screen):
    """Bounds of groups are taken for those of the last moves."""

    def mutant(self, judges, moves, budget, contest, ranks=None):
        return screen(self, judges, moves, budget, contest)

    return mutant


def _lowest_ends(winner):
    return lambda self: winner(SimpleNamespace(lower=self.lower, upper=self.lower, resolution=self.resolution))


def _any_penalty(has_squares):
    def mutant(self, columns):
        return self.model.whole.penalty.select(columns).strong_convexity > 0.0

    return mutant


MUTANTS: dict[str, Mutant] = {
    # The duality gap and its slacks.
    "scores-taken-as-exact": Mutant("glru.certificate:loss_terms", _no_slack_for_scores, ROUNDING),
    "correlations-taken-as-exact": Mutant("glru.certificate:penalty_terms", _no_slack_for_correlations, ROUNDING),
    "gap-rounded-down": Mutant("glru.certificate:weighted_sum", scaled(0.999), ROUNDING),
    "dual-point-not-repaired": Mutant(
        "glru.certificate:find_feasible_moves",
        result(lambda moves: np.where(np.isfinite(moves), 0.0, np.inf)),
        ROUNDING,
    ),
    "dual-move-forgotten": Mutant("glru.certificate:lengthen_moves", scaled(0.0), ROUNDING),
    "dual-move-not-lengthened": Mutant(
        "glru.certificate:lengthen_moves", lambda lengthen: lambda moves, dual: moves, f"{ROUNDING} {PRECISION}"
    ),
    # Regions.
    "quarter-of-the-gap-in-the-ball": Mutant(
        "glru.regions.gap:PrimalBall.__init__", inside(ball_radius=scaled_argument(0.25)), ANSWERS
    ),
    "half-the-radius-of-the-dual-ball": Mutant("glru.regions.gap:DualBox.radius", scaled(0.5), ANSWERS),
    "intercept-forgotten-in-the-ball": Mutant(
        "glru.regions.gap:PrimalBall._centred_intercept", always((0.0, 0.0)), PRECISION
    ),
    "intercept-ends-swapped-in-the-ball": Mutant(
        "glru.regions.gap:PrimalBall._centred_intercept", result(lambda ends: ends[::-1]), PRECISION
    ),
    "wrong-ends-of-the-box": Mutant("glru.regions.gap:linear_range", _same_ends, ROUNDING),
    "box-correlations-taken-as-exact": Mutant("glru.certificate:Certificate.correlation_errors", scaled(0.0), SLACK),
    "box-and-intercept-rounded-inward": Mutant("glru.regions.gap:DualBox.score_bounds", _inward, SLACK),
    "tenth-of-the-width-below-the-centre": Mutant("glru.bounds:widen", _uneven, ROUNDING),
    "half-the-gradient-in-the-local-ellipsoid": Mutant(
        "glru.regions.local:_make", result(lambda made: (*made[:2], 0.5 * made[2])), AFTER
    ),
    "growth-of-the-local-radius-dropped": Mutant(
        "glru.regions.local:LocalEllipsoid.radius",
        lambda radius: lambda self: 0.9 * self.nu if np.isfinite(radius(self)) else np.inf,
        AFTER,
    ),
    "half-of-what-a-newton-step-misses": Mutant(
        "glru.regions.local:LocalEllipsoid._after_step",
        result(lambda ends: [(point, 0.5 * radius, times) for point, radius, times in ends]),
        SLACK,
    ),
    # The metric of the Hessian.
    "intercept-forgotten-in-the-metric": Mutant(
        "glru.metric.columns:ColumnMetric.norms", _rows_without_intercept, ROUNDING
    ),
    "curvature-that-is-not-there": Mutant(
        "glru.rows.passes:Totals.least_curvature", always(1e6), f"{FAMILIES} {ATTACK}"
    ),
    "underflow-forgotten-in-a-gradient": Mutant(
        "glru.metric.columns:ColumnMetric.error_norm", inside(TINY=zero), ATTACK
    ),
    "shifts-taken-that-round": Mutant("glru.linalg.matrix:subtracts_exactly", _every_column, MATRIX),
    "squares-of-tiny-slopes-taken-as-zero": Mutant("glru.linalg.arrays:UNDERFLOWS", zero, GENERALISED),
    "factor-of-the-scaled-hessian-taken-as-exact": Mutant("glru.metric.columns:ColumnMetric._factor", _zero_eta, SLACK),
    "degrees-of-freedom-without-the-penalty": Mutant(
        "glru.deletion.result:Influence._freedom",
        lambda _: lambda self: 2 * (float(self._deletions.reference.size),),
        DELETION,
    ),
    "degrees-of-freedom-taken-from-the-middle": Mutant(
        "glru.deletion.result:Influence._freedom", result(lambda ends: 2 * (0.5 * sum(ends),)), DELETION
    ),
    "decompositions-taken-as-exact": Mutant(
        "glru.metric.columns:OrthogonalMetric._factor", inside(gamma=nothing), DELETION
    ),
    "gradients-of-dependent-columns-taken-as-exact": Mutant(
        "glru.sums:sum_closely", result(lambda found: (found[0], 1e-6 * found[1])), DELETION
    ),
    "solves-taken-as-exact": Mutant("glru.metric.columns:ColumnMetric.solve_error", scaled(0.0), SLACK),
    "underflowed-diagonals-scaled": Mutant("glru.metric.columns:powers_of_two", _every_power, SLACK),
    "inverse-of-a-device-taken-as-exact": Mutant("glru.metric.columns:inverse_residual", scaled(0.0), DEVICES),
    "factor-of-a-device-taken-as-exact": Mutant("glru.metric.columns:factor_residual", scaled(0.0), DEVICES),
    # Carried certificates.
    "old-weights-in-carried-rows": Mutant("glru.updates.carry:compute_weight_factor", always(1.0), CARRY),
    "rounded-combinations-of-columns": Mutant("glru.duality:_is_combination", always(True), FOLDS),
    "rows-that-come-forgotten": Mutant(
        "glru.updates.carry:_carry_rows",
        lambda carry: (
            lambda solution, change, swap: carry(
                solution, change, replace(swap, X=swap.X.scale_columns(np.zeros(swap.X.shape[1])))
            )
        ),
        CARRY,
    ),
    # Families of removed rows.
    "old-weights-in-leave-one-out": Mutant(
        "glru.updates.carried_rows:removal_factors", result(lambda factors: np.ones_like(factors)), FAMILIES
    ),
    "carried-dual-bound-taken-as-exact": Mutant(
        "glru.updates.carried_rows:Carried._bound_dual", _no_slack_for_carried, SLACK
    ),
    "half-of-the-midpoint-ball": Mutant(
        "glru.updates.carried_rows:Carried._bound_midpoint", inside(ball_radius=scaled(0.5)), FAMILIES
    ),
    "held-rows-nearer-than-they-are": Mutant(
        "glru.updates.centred_rows:Balls.held", result(lambda found: (0.3 * found[0], found[1])), FAMILIES
    ),
    "tenth-of-the-balls-of-candidates": Mutant(
        "glru.updates.centred_rows:Balls.half_widths", inside(ball_radius=scaled(0.1)), FAMILIES
    ),
    "rows-of-leverages-near-one-taken-out-in-part": Mutant(
        "glru.updates.local_rows:RowCandidates.solve", _unknown_shares, FAMILIES
    ),
    "tenth-of-the-balls-of-gradients": Mutant(
        "glru.updates.centred_rows:Balls.half_widths_by_gradients", scaled(0.1), FAMILIES
    ),
    "intercepts-of-product-steps-forgotten-in-gradients": Mutant(
        "glru.updates.centred_rows:Balls.half_widths_by_gradients", _no_missed, FAMILIES
    ),
    "scores-of-product-steps-taken-as-exact": Mutant(
        "glru.updates.product_rows:ProductSteps._move",
        result(lambda steps: replace(steps, errors=(0.0 * steps.errors[0], 0.0 * steps.errors[1]))),
        FAMILIES,
    ),
    "duals-that-miss-the-intercept-forgotten": Mutant("glru.updates.centred_rows:Balls._missed", scaled(0.0), FAMILIES),
    "rows-that-hold-an-intercept-nearer-than-they-are": Mutant(
        "glru.updates.centred_rows:Hold.of",
        result(lambda hold: replace(hold, distances=0.1 * hold.distances)),
        FAMILIES,
    ),
    "intercepts-held-too-firmly": Mutant(
        "glru.updates.centred_rows:Hold.of", result(lambda hold: replace(hold, total=1e3 * hold.total)), FAMILIES
    ),
    "hundredth-of-the-radius-of-a-deletion": Mutant(
        "glru.updates.local_rows:removal_radii", result(lambda radii: (0.01 * radii[0], 0.01 * radii[1])), DELETION
    ),
    "groups-left-in-their-gradients": Mutant(
        "glru.updates.group_rows:GroupCandidates.left_out",
        always((np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp))),
        DELETION,
    ),
    "moves-of-deletions-taken-as-exact": Mutant("glru.deletion.result:DeletionResult._slack", scaled(0.0), DELETION),
    "hundredth-of-the-radius-of-a-group-to-second-order": Mutant(
        "glru.updates.group_rows:GroupRows.second_order",
        inside(removal_radii=result(lambda radii: (0.01 * radii[0], radii[1]))),
        DELETION,
    ),
    "largest-factor-taken-as-one": Mutant(
        "glru.updates.local_rows:LocalRows._place", inside(max=always(1.0)), DELETION
    ),
    "moves-of-jackknife-models-taken-as-exact": Mutant(
        "glru.deletion.jackknife:Jackknife._slacks", scaled(0.0), DELETION
    ),
    "own-moves-of-closed-forms-too-large": Mutant(
        "glru.deletion.deletions:Deletions.own_moves", scaled(1.01), DELETION
    ),
    "coefficients-of-deletions-without-a-radius": Mutant(
        "glru.deletion.result:DeletionResult._slack", scaled(0.0), DELETION
    ),
    "lengths-of-closed-forms-too-large": Mutant(
        "glru.deletion.deletions:Deletions._measure_closed_moves",
        result(lambda found: (1.01 * found[0], found[1])),
        DELETION,
    ),
    "refined-models-taken-as-exact": Mutant(
        "glru.deletion.deletions:Deletions._take_model",
        lambda take: lambda self, member, model, radius, stage: take(self, member, model, 0.0 * radius, stage),
        GENERALISED,
    ),
    "units-of-constraints-forgotten": Mutant(
        "glru.duality:move_sizes", result(lambda sizes: np.full(sizes.size, sizes.min())), CONSTRAINTS
    ),
    "rankings-taken-as-proven": Mutant(
        "glru.deletion.result:rank", result(lambda ranking: replace(ranking, certified=True)), DELETION
    ),
    "mean-hessian-taken-as-the-old-one": Mutant("glru.updates.local_rows:_mean_hessian_error", scaled(0.01), FAMILIES),
    "hundredth-of-the-balls-of-the-penalty": Mutant(
        "glru.updates.gradients:PenaltyBalls.half_widths", scaled(0.01), BALLS
    ),
    "mean-rows-of-balls-at-the-origin": Mutant("glru.updates.gradients:PenaltyBalls.longest", scaled(0.01), BALLS),
    "half-the-gradient-of-slopes-of-balls": Mutant(
        "glru.updates.gradients:PenaltyBalls._spectral_norm", scaled(0.5), BALLS
    ),
    "long-rows-of-removals-carry-nothing": Mutant(
        "glru.updates.local_rows:LocalRows.norm_cuts", result(lambda cuts: [(norm, 0.0) for norm, _ in cuts]), SLACK
    ),
    "hundredth-of-the-radius-without-rows-that-move-far": Mutant(
        "glru.updates.local_rows:RowCandidates._bound_followed_radii", scaled(0.01), FAMILIES
    ),
    "moves-of-long-rows-dropped": Mutant(
        "glru.updates.local_rows:RowRemovals._bound_long_moves",
        result(lambda found: (0.0 * found[0], 0.0 * found[1])),
        FAMILIES,
    ),
    "remainder-of-the-newton-step-dropped": Mutant("glru.updates.local_rows:newton_remainders", scaled(0.0), FAMILIES),
    "tenth-of-the-quotient-of-the-remainder": Mutant(
        "glru.updates.local_rows:RowRemovals.remainders", inside(exponential_remainders=scaled(0.1)), FAMILIES
    ),
    "thousandth-of-the-moments": Mutant("glru.updates.moments:SecondMoments.sizes", scaled(1e-3), FAMILIES),
    "hundredth-of-the-fourth-powers-of-norms": Mutant(
        "glru.updates.local_rows:LocalRows.moments",
        lambda moments: lambda self, norms, unit=None: moments(self, norms, unit and 100.0 * unit),
        FAMILIES,
    ),
    "third-derivatives-of-the-row-left-out": Mutant(
        "glru.updates.local_rows:LocalRows.second_order",
        lambda half: (
            lambda self, steps, rows, places, own, n_steps: half(self, steps, rows, places, 0.0 * own, n_steps)
        ),
        FAMILIES,
    ),
    "leverage-ignored-in-the-step": Mutant(
        "glru.updates.local_rows:RowRemovals.prepare",
        result(lambda rows: replace(rows, multipliers=rows.multipliers * (1.0 - rows.leverages))),
        FAMILIES,
    ),
    "leverage-ignored-in-the-metric": Mutant(
        "glru.updates.local_rows:RowRemovals.prepare",
        result(lambda rows: replace(rows, metric_shares=np.where(rows.metric_shares > 0.0, 1.0, rows.metric_shares))),
        FAMILIES,
    ),
    "gradient-of-a-local-row-taken-as-exact": Mutant(
        "glru.updates.local_rows:RowRemovals._residuals", scaled(0.0), SLACK
    ),
    # The dimension of the rows.
    "row-side-scores-taken-as-exact": Mutant(
        "glru.metric.rows:RowSide.score_errors", result(lambda errors: (0.0 * errors[0], 0.0 * errors[1])), SLACK
    ),
    "half-the-norm-of-forces": Mutant(
        "glru.metric.rows:RowMetric.force_norms", result(lambda found: (0.5 * found[0], *found[1:])), SLACK
    ),
    "border-of-forces-forgotten": Mutant(
        "glru.metric.rows:RowMetric.force_norms", result(lambda found: (found[0], 0.0 * found[1], *found[2:])), SLACK
    ),
    "thousandth-of-the-norm-of-free-coordinates": Mutant("glru.metric.rows:RowMetric.free_norm", scaled(1e-3), SLACK),
    "forces-of-removed-rows-taken-as-exact": Mutant("glru.updates.row_models:RowModels.rounding", scaled(0.0), SLACK),
    "queries-of-row-ellipsoids-taken-as-exact": Mutant(
        "glru.updates.row_models:RowEllipsoid._norm_sum", scaled(0.0), SLACK
    ),
    "row-ellipsoids-of-models-that-are-stored-exactly": Mutant(
        "glru.updates.row_models:RowEllipsoid.gap", lambda _: lambda self: self.nu * self.radius, SLACK
    ),
    "thousandth-of-the-radius-of-row-ellipsoids": Mutant(
        "glru.updates.row_models:RowEllipsoid.radius", scaled(1e-3), SLACK
    ),
    "metric-from-far-away-taken-as-the-hessian": Mutant(
        "glru.regions.local:LocalEllipsoid.carry_to", result(lambda region: replace(region, exponent=0.0)), SLACK
    ),
    "hundredth-of-the-row-norms-of-folds": Mutant("glru.updates.folds:Folds.row_norms", scaled(0.01), FOLDS),
    "slopes-of-folds-taken-as-exact": Mutant("glru.updates.folds:Folds._slope_errors", scaled(0.0), FOLDS),
    "thousandth-of-the-radius-of-folds": Mutant("glru.updates.folds:Folds._length", scaled(1e-3), FOLDS),
    "thousandth-of-the-radius-of-folds-with-an-intercept": Mutant(
        "glru.updates.folds:Folds.prove", inside(local_radius=scaled(1e-3)), FOLDS
    ),
    "squares-that-underflow-forgotten-in-norms": Mutant("glru.problem:Problem.column_norms", inside(TINY=zero), FOLDS),
    "squares-that-underflow-forgotten-in-norms-of-folds": Mutant(
        "glru.updates.folds:Folds._measure", inside(TINY=zero), FOLDS
    ),
    "squares-that-underflow-forgotten-in-norms-of-chord-steps": Mutant(
        "glru.updates.chord_folds:FoldRows.__init__", inside(SMALLEST=zero), FOLDS
    ),
    "moves-of-chord-steps-from-scores-of-the-common-model": Mutant(
        "glru.updates.chord_folds:PenaltyFolds.begin",
        lambda begin: lambda *args: begin(*args[:2], _Unseen(args[2]), *args[3:]),
        FOLDS,
    ),
    "moves-of-chord-steps-that-the-next-penalty-forgets": Mutant(
        "glru.updates.chord_folds:PenaltyFolds.read_state", result(lambda found: (*found[:3], 0.0 * found[3])), FOLDS
    ),
    "curvatures-of-folds-that-do-not-move": Mutant("glru.updates.folds:Folds.exponents", scaled(0.0), FOLDS),
    "hundred-times-the-hessians-of-folds": Mutant(
        "glru.refine:quadratic_hessians", result(lambda found: [100.0 * hessian for hessian in found]), FOLDS
    ),
    "tenth-of-the-radius-of-chord-steps": Mutant(
        "glru.updates.chord_folds:PenaltyFolds._bound_smoothly", inside(step_radii=scaled(0.1)), FOLDS
    ),
    "rows-of-folds-far-from-kinks": Mutant(
        "glru.updates.chord_folds:FoldRows.find_margins", result(lambda found: (found[0] + 1.0, found[1])), FOLDS
    ),
    "tenth-of-the-radius-between-the-kinks-of-folds": Mutant(
        "glru.updates.chord_folds:PenaltyFolds._bound_between_kinks", scaled(0.1), FOLDS
    ),
    "curvatures-of-chord-steps-that-do-not-move": Mutant(
        "glru.updates.chord_folds:FoldRows.at", result(lambda found: (*found[:2], 0.0 * found[2])), FOLDS
    ),
    "tenth-of-the-norms-of-chord-steps": Mutant("glru.updates.chord_folds:compute_growth", scaled(0.1), FOLDS),
    "gradients-of-chord-steps-taken-as-exact": Mutant("glru.updates.chord_folds:FoldRows.errors", scaled(0.0), FOLDS),
    "curvatures-that-do-not-move": Mutant("glru.updates.row_models:RowModels.exponent", scaled(0.0), FAMILIES),
    "tenth-of-the-gradient-of-wide-rows": Mutant(
        "glru.updates.wide_rows:WideRows.gradient_norms", scaled(0.1), FAMILIES
    ),
    "gradients-of-refitted-tall-rows-forgotten": Mutant(
        "glru.updates.refitted_rows:TallCandidates._norms", scaled(1e-3), REFITS
    ),
    "radius-of-refitted-wide-rows-forgotten": Mutant(
        "glru.updates.refitted_rows:WideCandidates._certificate", inside(local_radius=scaled(1e-3)), REFITS
    ),
    "gradients-of-refitted-classes-forgotten": Mutant(
        "glru.updates.class_rows:ClassCandidates.certify", inside(removal_radius=scaled(1e-3)), REFITS
    ),
    "errors-of-refitted-classes-forgotten": Mutant(
        "glru.updates.class_rows:ClassCandidates._rounding", scaled(0.0), REFITS
    ),
    "refitted-rows-that-cross-kinks-carry-nothing": Mutant(
        "glru.updates.refitted_rows:TallCandidates._piece_depths", result(lambda depths: depths + np.inf), REFITS
    ),
    "thousandth-of-the-ball-of-refitted-rows": Mutant(
        "glru.updates.refitted_rows:TallCandidates._ball_distances", scaled(1e-3), REFITS
    ),
    "moments-without-a-row-taken-as-exact": Mutant(
        "glru.sklearn.columns:_compute_moments", inside(gamma=nothing), REFITS
    ),
    "moments-with-holes-taken-as-exact": Mutant(
        "glru.sklearn.columns:Columns._moments_of", inside(gamma=nothing), REFITS
    ),
    "strengths-that-shrink-carry-nothing": Mutant(
        "glru.updates.refitted_rows:RefittedSide.growth", scaled(1e-6), REFITS
    ),
    "errors-of-strengths-forgotten": Mutant(
        "glru.updates.refitted_rows:RefittedSide.strength_errors", scaled(0.0), REFITS
    ),
    "wide-classes-thousandth-of-the-radius": Mutant(
        "glru.updates.wide_classes:WideClassCandidates.certify", inside(local_radius=scaled(1e-3)), REFITS
    ),
    "error-of-class-factors-forgotten": Mutant("glru.updates.refitted_rows:TallRefits.base_size", scaled(0.0), REFITS),
    "rows-alone-longer-than-they-are": Mutant(
        "glru.metric.rows:Leverages.least_norms_without", scaled(1.0 + 1e-6), FAMILIES
    ),
    "moves-of-scores-taken-as-exact": Mutant(
        "glru.updates.row_models:RowModels.corrected", result(lambda moved: (moved[0], 0.0 * moved[1])), SLACK
    ),
    "small-share-of-the-gap-of-wide-rows": Mutant(
        "glru.updates.row_models:RowModels.gaps", result(lambda found: (*found[:2], 1e-4 * found[2])), FAMILIES
    ),
    # Families of columns, and searches over them.
    "hundredth-of-the-gap-of-columns": Mutant(
        "glru.updates.columns.smooth:SmoothColumns._certified", inside(ball_radius=scaled_argument(0.01)), COLUMNS
    ),
    "hundredth-of-the-radius-of-wide-columns": Mutant(
        "glru.updates.columns.wide:WideColumns.radius", scaled(0.01), COLUMNS
    ),
    "rows-that-carry-nothing": Mutant(
        "glru.updates.columns.one_step:row_norm_cuts",
        result(lambda cuts: [(norm, 0.0) for norm, _ in cuts[-1:]]),
        SLACK,
    ),
    "images-of-columns-taken-as-exact": Mutant(
        "glru.metric.rows:RowMetric.answers",
        result(lambda found: replace(found, residual_norms=0.0 * found.residual_norms)),
        SLACK,
    ),
    "free-coordinates-no-longer-beside-a-new-column": Mutant(
        "glru.updates.columns.wide:Steps._base_norms", _base_without(free_size=0.0), SLACK
    ),
    "forces-taken-as-exact-beside-a-new-column": Mutant(
        "glru.updates.columns.wide:Steps._base_norms", _base_without(size=0.0), SLACK
    ),
    "third-order-of-columns-dropped": Mutant("glru.updates.columns.wide:Steps._third_order", scaled(0.01), COLUMNS),
    "gradient-after-a-step-of-columns-off-by-a-tenth": Mutant(
        "glru.updates.columns.wide:Steps._forces", result(lambda found: (0.9 * found[0], found[1])), COLUMNS
    ),
    "column-that-has-left-not-followed": Mutant(
        "glru.updates.columns.screen:RemovalScreen._follow_column", always(None), CARRIED_COLUMNS
    ),
    "curvatures-that-moved-not-followed": Mutant(
        "glru.updates.columns.screen:RemovalScreen._follow_curvatures", always(None), CARRIED_COLUMNS
    ),
    "hundredth-of-the-radius-of-carried-columns": Mutant(
        "glru.updates.columns.screen:RemovalScreen._radius", scaled(0.01), CARRIED_COLUMNS
    ),
    "half-of-the-norm-of-a-sum-of-queries": Mutant(
        "glru.metric.rows:RowMetric.bound_combined_norm", scaled(0.5), CARRIED_COLUMNS
    ),
    "removed-columns-taken-out-exactly": Mutant("glru.metric.rows:RowSide.unit", scaled(0.1), CARRIED_COLUMNS),
    "tenth-of-the-gradient-of-one-step": Mutant(
        "glru.updates.columns.one_step:Moves.gradient_norms", scaled(0.1), COLUMNS
    ),
    "hundredth-of-the-radius-of-local-columns": Mutant(
        "glru.updates.columns.local:LocalColumns.certified", inside(least_radius=scaled(0.01)), COLUMNS
    ),
    "hundredth-of-what-sums-may-be-off": Mutant(
        "glru.updates.columns.local:CandidateScores.bound_sums", scaled(0.01), COLUMNS
    ),
    "half-the-norms-of-the-penalty": Mutant("glru.metric.columns:DiagonalMetric.norms", scaled(0.5), SLACK),
    "half-the-gradient-beside-the-penalty": Mutant(
        "glru.metric.columns:DiagonalMetric.gradient_norm", scaled(0.5), SLACK
    ),
    "rows-moved-far-carry-nothing-of-local-columns": Mutant(
        "glru.updates.columns.local:LocalColumns.certified", inside(lost_shares=scaled(0.0)), COLUMNS
    ),
    "rows-moved-far-carry-nothing-of-removals": Mutant(
        "glru.updates.local_rows:RowCandidates._bound_followed_radii", inside(lost_shares=scaled(0.0)), FAMILIES
    ),
    "supports-without-a-radius": Mutant("glru.regions.support:Support.holds", _no_radii, SUPPORT),
    "supports-with-limits-that-do-not-err": Mutant("glru.regions.support:Support.holds", _no_share, SUPPORT),
    "supports-with-strengths-that-do-not-err": Mutant("glru.regions.local:_make", _no_share_of_norms, SUPPORT),
    "supports-with-factors-that-do-not-err": Mutant(
        "glru.updates.refits:Refits.strength_error", nothing, "decisions/test_refits.py"
    ),
    "supports-of-any-sign": Mutant("glru.regions.support:Support.holds", _any_sign, SUPPORT),
    "supports-without-limits-of-the-others": Mutant("glru.regions.support:Support.holds", _no_limits, SUPPORT),
    "rows-that-cross-kinks-carry-nothing": Mutant("glru.regions.local:Kinks.lost", scaled(0.0), PIECES),
    "rows-that-cross-kinks-leave-nothing-of-the-gradient": Mutant(
        "glru.regions.local:Kinks.remainders", scaled(0.0), PIECES
    ),
    "rows-near-kinks-carry-nothing-of-candidates": Mutant(
        "glru.updates.local_rows:RowCandidates._piece_radii", inside(lost_shares=scaled(0.0)), PIECES
    ),
    "kinks-are-no-part-of-single-models": Mutant(
        "glru.regions.local:LocalEllipsoid._piece_radius", inside(piece_radius=_no_kinks), PIECES
    ),
    "dual-variables-of-candidates-need-no-repair": Mutant(
        "glru.updates.kink_rows:KinkRows._repairs", _no_repairs, KINKS
    ),
    "hundredth-of-the-gaps-of-paths": Mutant(
        "glru.updates.kink_rows:KinkRows._certified", inside(ball_radius=scaled_argument(0.01)), KINKS
    ),
    "strengths-of-paths-taken-as-those-of-all-rows": Mutant(
        "glru.updates.refits:Refits.smallest", result(np.ones_like), KINKS
    ),
    "intercepts-of-paths-taken-as-exact": Mutant("glru.updates.kink_rows:KinkRows._intercepts", scaled(0.0), KINKS),
    "rows-moved-far-carry-nothing-of-wide-columns": Mutant(
        "glru.updates.columns.wide:Candidates._certificate", inside(lost_shares=scaled(0.0)), COLUMNS
    ),
    "groups-in-the-places-of-others": Mutant("glru.selection.judge:FoldsJudge._screen_together", _last_places, PATHS),
    "open-candidates-taken-as-decided": Mutant("glru.selection.contest:Contest.winner", _lowest_ends, STEPWISE),
    "column-that-comes-judged-by-squares": Mutant(
        "glru.selection.moves:ColumnFamilies._has_squares", _any_penalty, STEPWISE
    ),
    "sums-over-folds-taken-as-exact": Mutant(
        "glru.selection.criteria:Criterion.combine_folds", inside(gamma=nothing), SLACK
    ),
    "sums-over-rows-taken-as-exact": Mutant(
        "glru.selection.criteria:Criterion.add_terms", inside(gamma=nothing), SLACK
    ),
    # Sets of columns.
    "gradients-of-sets-taken-as-exact": Mutant(
        "glru.updates.columns.subsets:Step.bounds", inside(sum_error=nothing, gamma=nothing, FEW=zero), SUBSETS
    ),
    "half-the-gradients-of-sets": Mutant(
        "glru.updates.columns.subsets:Step.bounds", inside(_lengths=scaled(0.5)), SUBSETS
    ),
    "factors-of-sets-taken-as-exact": Mutant("glru.updates.columns.subsets:factor_all", _exact_factors, SUBSETS),
    # Rows of sets of columns.
    "hundredth-of-the-radius-of-rows-of-sets": Mutant(
        "glru.updates.columns.subset_rows:SubsetRows._closed_radii", scaled(0.01), SUBSET_ROWS
    ),
    "tenth-of-the-radius-of-pairs": Mutant("glru.updates.columns.subset_rows:Pairs._radii", scaled(0.1), SUBSET_ROWS),
    "sums-of-pairs-taken-as-exact": Mutant(
        "glru.updates.columns.subset_rows:SubsetRows.rounding", inside(sum_error=nothing, FEW=zero), SUBSET_ROWS
    ),
    # Columns in all folds at once.
    "gradients-of-columns-in-folds-taken-as-exact": Mutant(
        "glru.updates.columns.folds:Evaluated.measure", inside(sum_error=nothing, gamma=nothing, FEW=zero), FOLD_COLUMNS
    ),
    "half-the-radius-of-columns-in-folds": Mutant(
        "glru.updates.columns.folds:Evaluated._measure_widely", inside(local_radius=scaled(0.5)), FOLD_COLUMNS
    ),
    "columns-that-come-held-apart-exactly": Mutant(
        "glru.updates.columns.folds:PresentMetric.border", inside(gamma=nothing), FOLD_COLUMNS
    ),
    "tenth-of-the-rest-of-columns-that-come": Mutant(
        "glru.updates.columns.folds:PresentMetric.border", inside(_lengths=scaled(0.1)), FOLD_COLUMNS
    ),
    "half-the-radius-of-columns-near-present-models": Mutant(
        "glru.updates.columns.folds:PresentMetric.certify", inside(local_radius=scaled(0.5)), FOLD_COLUMNS
    ),
    "half-the-gradients-of-columns-near-present-models": Mutant(
        "glru.updates.columns.folds:PresentMetric.gradient_norms", inside(_lengths=scaled(0.5)), FOLD_COLUMNS
    ),
    "half-of-what-held-out-losses-fall": Mutant(
        "glru.updates.columns.folds:Evaluated.bound_sums", _falling_half, FOLD_COLUMNS
    ),
    "held-out-losses-that-rise-as-they-fall": Mutant(
        "glru.updates.columns.folds:Evaluated.bound_sums", _rising_as_falling, FOLD_COLUMNS
    ),
    "rows-of-columns-that-come-taken-as-those-before": Mutant(
        "glru.updates.columns.folds:PresentMetric.place", _rows_before, FOLD_COLUMNS
    ),
    "curvatures-of-columns-in-folds-that-do-not-move": Mutant(
        "glru.updates.columns.folds:PresentMetric.certify", inside(local_radius=_without_exponent), FOLD_COLUMNS
    ),
    # Information criteria.
    "free-columns-projected-out-exactly": Mutant(
        "glru.selection.dof:count_freedom", inside(length=_exact_free_columns), INFORMATION
    ),
    "singular-values-taken-as-exact": Mutant(
        "glru.selection.dof:count_freedom", inside(UNIT=zero, FEW=zero), INFORMATION
    ),
    "degrees-of-freedom-of-curvatures-that-do-not-move": Mutant(
        "glru.selection.dof:bounds_nearby", _same_curvatures, INFORMATION
    ),
    "columns-without-degrees-of-freedom": Mutant("glru.selection.dof:bounds_nearby", _same_columns, INFORMATION),
    "likelihood-taken-as-exact": Mutant("glru.selection.criteria:Criterion.complete", inside(FEW=zero), INFORMATION),
    "deviances-at-the-middle-of-scores": Mutant(
        "glru.selection.criteria:_half_deviances", _at_the_middle, GENERALISED_STEPWISE
    ),
    "saturated-likelihood-taken-as-exact": Mutant(
        "glru.selection.criteria:_bound_saturated", inside(FEW=zero, gamma=nothing), GENERALISED_STEPWISE
    ),
    # Intervals of metrics.
    "means-of-a-metric-taken-as-exact": Mutant("glru.bounds:_means", inside(gamma=nothing, TINY=zero), SLACK),
    "targets-of-r2-taken-as-exact": Mutant("glru.bounds:_r2", inside(gamma=nothing, UNIT=zero), SLACK),
    # Labels.
    "threshold-taken-as-positive": Mutant(
        "glru.bounds:ScoreBounds.signs",
        lambda _: lambda bounds: (bounds.lower >= 0.0).astype(np.int8) - (bounds.upper < 0.0),
        RULES,
    ),
    "open-labels-taken-as-right": Mutant("glru.bounds:errors", result(lambda ends: (ends[0], ends[0])), RULES),
    "two-classes-level-taken-as-decided": Mutant(
        "glru.bounds:class_margins", result(lambda ends: (np.nextafter(ends[0], np.inf), ends[1])), RULES
    ),
    # Losses without smoothness.
    "errors-of-scores-taken-as-harmless-in-the-metric": Mutant("glru.sums:slope_error_norm", scaled(0.1), SLACK),
    "curvatures-of-errors-taken-as-those-of-the-metric": Mutant(
        "glru.sums:slope_error_norm", lambda bound: lambda loss, spread, moved: bound(loss, spread, 0.0), SLACK
    ),
    "slopes-bounded-by-nothing": Mutant("glru.sums:slope_spread", scaled(0.0), GENERALISED),
    "slopes-of-rows-bounded-by-nothing": Mutant("glru.losses.base:Loss.slope_errors", scaled(0.0), CONTRACTS),
    "curvature-taken-as-constant-on-the-way": Mutant(
        "glru.losses.base:Loss.slope_errors", _constant_curvature, CONTRACTS
    ),
    "exponentials-taken-as-exact": Mutant("glru.losses.log_link:LogLink.score_noise", nothing, CONTRACTS),
    **{
        f"{name.lower()}-third-derivatives-too-small": Mutant(
            f"glru.losses.{module}:{name}.self_concordance",
            scaled(0.8) if name == "Tweedie" else become(0.8),
            CONTRACTS,
        )
        for module, name in LIKELIHOODS
    },
    **{
        f"{name.lower()}-fourth-derivatives-too-small": Mutant(
            f"glru.losses.{module}:{name}.fourth_constant", scaled(0.5) if name == "Tweedie" else become(0.5), CONTRACTS
        )
        for module, name in LIKELIHOODS
    },
    "tweedie-evaluations-taken-as-exact": Mutant("glru.losses.log_link:Tweedie.score_noise", nothing, CONTRACTS),
    "negative-binomial-evaluations-taken-as-exact": Mutant(
        "glru.losses.log_link:NegativeBinomial.score_noise", nothing, CONTRACTS
    ),
    "divergences-of-means-too-small": Mutant("glru.losses.log_link:mean_divergence", scaled(0.9), CONTRACTS),
    "entropies-of-three-terms": Mutant(
        "glru.losses.logistic:_entropy_series",
        lambda _: lambda xp, e: e * e * (1.0 / 2.0 - e / 6.0 + e * e / 12.0),
        CONTRACTS,
    ),
    "divergences-of-shares-too-small": Mutant("glru.losses.logistic:divergence", scaled(0.9), CONTRACTS),
    "tweedie-conjugates-at-another-score": Mutant("glru.losses.log_link:Tweedie._score_of", scaled(1.01), CONTRACTS),
    "tweedie-near-scores-too-near": Mutant(
        "glru.losses.log_link:Tweedie._find_near_score",
        result(lambda found: (0.99 * found[0], *found[1:])),
        CONTRACTS,
    ),
    "tweedie-near-scores-taken-as-exact": Mutant(
        "glru.losses.log_link:Tweedie._lengthen", lambda _: lambda self, there, z, t: t, CONTRACTS
    ),
    "offsets-taken-as-exact": Mutant(
        "glru.losses.base:WithOffset.noise_of", lambda _: lambda self, y: self.loss.score_noise, GENERALISED
    ),
    # Rows in blocks.
    "blocks-one-factor-for-all-rows": Mutant(
        "glru.updates.local_rows:LocalRows._place",
        _one_factor,
        BLOCKS,
    ),
    "blocks-sums-taken-as-exact": Mutant(
        "glru.updates.local_rows:LocalRows._place", inside(gradient_errors=scaled(0.0)), BLOCKS
    ),
    "blocks-own-factor-forgotten": Mutant(
        "glru.updates.local_rows:RowRemovals.find_own_factors",
        lambda own: lambda self, rows: (np.full(rows.n_rows, self.middle_factor), own(self, rows)[1]),
        BLOCKS,
    ),
    "blocks-left-out-row-kept": Mutant(
        "glru.updates.gradients:slope_sums",
        lambda sums: lambda part, left_out, models, origin: sums(part, None, models, origin),
        BLOCKS,
    ),
    "blocks-moves-of-scores-forgotten": Mutant(
        "glru.updates.gradients:slope_sums", result(lambda sums: replace(sums, moved=0.0 * sums.moved)), BLOCKS
    ),
    "blocks-factor-forgotten-in-steps": Mutant(
        "glru.updates.gradients:Gradients.at",
        lambda at: (
            lambda self, models, left_out=None, factors=None, fixed=None: at(self, models, left_out, None, fixed)
        ),
        BLOCKS,
    ),
    # One score per class.
    "classes-tenth-of-the-pair-norms": Mutant("glru.metric.classes:pair_norms", scaled(0.1), CLASSES),
    "classes-tenth-of-the-score-norms": Mutant("glru.metric.classes:score_norms", scaled(0.1), CLASSES),
    "classes-remainder-of-the-closed-form-forgotten": Mutant(
        "glru.updates.class_removals:ClosedForm.bounds", inside(newton_remainders=nothing), CLASSES
    ),
    "classes-moved-fills-carry-nothing": Mutant("glru.updates.class_rows:ClassRows.fill_norms", scaled(0.0), CLASSES),
    "classes-refits-leave-the-whole-metric": Mutant(
        "glru.updates.class_removals:ClassRemovals.own_shares", scaled(1e3), REFITS
    ),
    "classes-rows-of-large-norms-carry-nothing": Mutant(
        "glru.updates.class_rows:ClassRows.near", result(lambda near: (*near[:2], 0.1 * near[2])), CLASSES
    ),
    "classes-hundredth-of-the-radius": Mutant("glru.updates.class_removals:removal_radius", scaled(0.01), CLASSES),
    "classes-hundredth-of-the-radius-of-one-model": Mutant(
        "glru.regions.classes:ClassEllipsoid.radius", scaled(0.01), CLASSES
    ),
    "classes-drift-from-the-metric-forgotten": Mutant("glru.regions.classes:bound_range", scaled(0.0), CLASS_CHANGES),
    "classes-fifth-of-the-ball": Mutant("glru.regions.classes:ClassBall.radius", scaled(0.2), CLASS_CHANGES),
    "classes-intercepts-of-a-ball-taken-as-exact": Mutant(
        "glru.regions.classes:ClassBall._intercept_widths",
        result(lambda widths: (0.0 * widths[0], 0.0 * widths[1])),
        CLASSES,
    ),
    "classes-tenth-of-the-widths-of-coefficients": Mutant(
        "glru.regions.classes:ClassEllipsoid._axis_widths", scaled(0.1), CLASS_CHANGES
    ),
    "classes-columns-that-leave-cost-nothing": Mutant(
        "glru.regions.classes:Absent.extend", _gradients_without_the_rest, CLASS_STEPWISE
    ),
    "classes-leads-of-zero-count-as-right": Mutant(
        "glru.selection.classes:ClassRows.zeros", result(lambda zeros: zeros & False), CLASS_STEPWISE
    ),
    "classes-gradients-taken-as-exact": Mutant(
        "glru.updates.class_rows:ClassCandidates._rounding", result(lambda sizes: 0.0 * sizes), CLASSES
    ),
    "classes-tenth-of-the-divergence": Mutant("glru.certificate:class_terms", scaled(0.1), CLASSES),
    "classes-moves-of-constraints-forgotten": Mutant("glru.certificate:_find_class_moves", scaled(0.0), CLASSES),
    "classes-scores-taken-as-exact": Mutant("glru.regions.classes:widen_queries", _queries_without_errors, CLASSES),
    "classes-slopes-taken-as-exact": Mutant("glru.regions.class_sums:ClassSums.slope_error", nothing, CLASSES),
    "classes-errors-of-scores-cost-no-gradient": Mutant(
        "glru.regions.class_sums:ClassSums.score_error", scaled(0.0), CLASSES
    ),
    "classes-rows-of-a-space-taken-as-exact": Mutant(
        "glru.updates.class_space:class_space",
        result(lambda space: setattr(space.problem.matrix, "noise", 0.0 * space.problem.matrix.noise) or space),
        CLASSES,
    ),
    "class-folds-hundredth-of-the-radius": Mutant(
        "glru.updates.class_folds:ClassFolds.measure", result(lambda found: (0.01 * found[0], *found[1:])), CLASSES
    ),
    "class-folds-least-probabilities-taken-as-those-of-the-metric": Mutant(
        "glru.updates.class_folds:FoldMetric.ratio", always(50.0), CLASSES
    ),
    "class-folds-one-metric-of-the-mean-weights": Mutant(
        "glru.updates.class_folds:ClassFolds.share_metric",
        lambda _: (
            lambda family, place, active: FoldMetric.of(
                family.problem, family.weights[-1], place.least.mean(axis=0), family.is_factored
            )
        ),
        CLASSES,
    ),
    "class-folds-scores-taken-as-exact": Mutant(
        "glru.updates.class_folds:ClassFolds.errors", result(lambda parts: (0.0 * parts[0], 0.0 * parts[1])), CLASSES
    ),
    "class-blocks-left-out-rows-counted": Mutant(
        "glru.updates.class_rows:Home.places", result(lambda places: {}), CLASS_BLOCKS
    ),
    "class-blocks-hundredth-of-the-largest-norm": Mutant(
        "glru.updates.class_blocks:_block_forms",
        result(lambda found: replace(found, largest_norm=0.01 * found.largest_norm)),
        CLASS_BLOCKS,
    ),
    "class-blocks-moves-of-scores-forgotten": Mutant(
        "glru.updates.class_rows:_measure_block",
        result(lambda found: replace(found, moved=0.0 * found.moved)),
        CLASS_BLOCKS,
    ),
    "blocks-quarter-of-the-gap": Mutant("glru.regions.local:LocalEllipsoid.gap", scaled(0.25), BLOCK_TRAINING),
    "blocks-removed-rows-counted": Mutant("glru.rows.passes:Absent.places", always(None), BLOCK_CHANGES),
    "blocks-dual-point-not-repaired": Mutant(
        "glru.sums:dual_terms",
        lambda terms: lambda part, point, size: terms(part, point, None),
        BLOCK_TRAINING,
    ),
}


def pytest_configure() -> None:
    """Install the mutant that the environment names; of every test process, the workers of pytest-xdist included."""
    name = os.environ.get(VARIABLE, "")
    if not name:
        return
    try:
        MUTANTS[_known(name)].install()
    except Unbound as problem:
        raise pytest.UsageError(f"mutant {name}: {problem}") from None
    # The first counterexample is enough, it must be found again next time, and it is none of the library's to remember.
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("mutant", derandomize=True, database=None, phases=phases)
    settings.load_profile("mutant")


def _known(name: str) -> str:
    if name not in MUTANTS:
        raise Unbound(f"there is no mutant {name!r}. There are: {', '.join(MUTANTS)}.")
    return name


def run(name: str) -> tuple[str, str]:
    """Whether a mutant is "killed", "SURVIVED" or "BROKEN" (it fails for another reason than its weakness), and by what."""
    done = _pytest(name, [f"tests/{test}" for test in MUTANTS[name].tests.split()])
    if done.returncode == pytest.ExitCode.OK:
        return "SURVIVED", ""
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    if done.returncode != pytest.ExitCode.TESTS_FAILED or not failed:
        return "BROKEN", (done.stderr or done.stdout).strip()[-500:]
    test, _, why = failed[0].removeprefix("FAILED ").partition(" - ")
    # A mutant that does not fit its place any more raises one of these, whatever the bounds are.
    unfit = why.startswith(("TypeError", "AttributeError", "NameError", "UnboundLocalError", "ImportError", "KeyError"))
    if unfit:
        return "BROKEN", f"{test}: {why}"
    if _pytest("", [test]).returncode != pytest.ExitCode.OK:
        return "BROKEN", f"{test} fails without a mutant, too"
    return "killed", test.removeprefix("tests/")


def _pytest(name: str, tests: list[str]) -> subprocess.CompletedProcess[str]:
    """Run tests against a mutant, or against the library as it is if the name is empty."""
    environment = dict(os.environ, OMP_NUM_THREADS="1", COLUMNS="1000", **{VARIABLE: name})
    options = ("-x", "-q", "-n", "0", "--no-header", "-p", __spec__.name, "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", *options, *tests]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def main(names: Iterable[str]) -> int:
    """Run some mutants, or all; the number of those that are not killed."""
    try:
        chosen = [_known(name) for name in names] or list(MUTANTS)
        for name in chosen:
            MUTANTS[name].make()
    except Unbound as problem:
        raise SystemExit(str(problem)) from None
    width = max(map(len, chosen))
    print(f"{'mutant':<{width}}  seconds  verdict   by")
    alive = []
    for name in chosen:
        begin = time.perf_counter()
        verdict, by = run(name)
        print(f"{name:<{width}}  {time.perf_counter() - begin:7.1f}  {verdict:<8}  {by}", flush=True)
        if verdict != "killed":
            alive.append(name)
    print(f"{len(chosen) - len(alive)} of {len(chosen)} killed" + "".join(f"\n  not {name}" for name in alive))
    return len(alive)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
