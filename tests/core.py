"""The core of the library as the tests reach it: a name or a module that moves is followed here, and nowhere else in the tests."""

from glru import _files, cascade, duality, linalg, refine, regions
from glru import _options as _budget
from glru._files import check_target, write_atomically
from glru.bounds import ScoreBounds, concatenate, intersect, is_decided, predicted, unbounded, widen
from glru.cascade import STAGES, Removals
from glru.certificate import (
    certify,
    correlation_range,
    loss_terms,
    penalty_terms,
    score_errors,
    weighted_sum,
)
from glru.changes import read_layout
from glru.deletion.deletions import Deletions
from glru.deletion.result import find_contested_rows, rank
from glru.duality import find_feasible_moves, make_feasible_dual
from glru.linalg import (
    HOST,
    UNIT,
    add_work,
    as_matrix,
    counted,
    gamma,
    is_foreign,
    kernels,
    outward,
    to_host,
    weighted_norm,
)
from glru.linalg import arrays as threads
from glru.linalg.arrays import HostArrays
from glru.linalg.class_tables import table_loops
from glru.linalg.factor import solve_shifted
from glru.losses import Loss, ProximalHinge
from glru.losses.logistic import entropy_excess
from glru.metric import columns as metrics
from glru.metric.classes import ClassMetric
from glru.metric.columns import DiagonalMetric, OrthogonalMetric, make_column_metric
from glru.metric.rows import RowMetric, RowSide, uses_rows
from glru.model_selection import checkpoint
from glru.model_selection.cross_validation import split_rows
from glru.model_selection.loocv import leave_one_out, start_run
from glru.penalties import Penalty
from glru.problem import Point, Problem
from glru.refine import (
    bound_by_certificate,
    bound_grid,
    follows_rows,
    newton_ellipsoids,
    quadratic_hessians,
    row_ellipsoids,
)
from glru.regions import DualBox, LocalEllipsoid, PrimalBall, has_local, list_regions, score_bounds
from glru.regions.classes import ClassBall, ClassEllipsoid, widen_queries
from glru.regions.gap import centers, linear_range
from glru.regions.local import has_support
from glru.regions.support import Support, SupportEllipsoid, guess_support
from glru.removals import blocks as removal_blocks
from glru.removals import single
from glru.removals.refitted import summed
from glru.removals.single import SingleRemovals
from glru.rows import block as summary
from glru.selection import left_out as judges
from glru.selection import moves
from glru.selection.contest import Contest, Goal, decide
from glru.selection.criteria import CRITERIA, find_criterion
from glru.selection.dof import Freedom, bounds_nearby, count_freedom
from glru.selection.judge import FoldsJudge, Judge, Pending, Screened, ValidationJudge, ValidationRows, Value
from glru.selection.moves import Model, Move, MoveList
from glru.sklearn import adapt, translate_change
from glru.sklearn.columns import Columns
from glru.sklearn.estimators.tuned import bound_value
from glru.solution import Solution
from glru.solvers import api as solvers
from glru.solvers import train
from glru.solvers.newton import Stop, newton, sample_of, step_length
from glru.sums import (
    Floor,
    assemble_gradient,
    dual_gap,
    expand,
    loss_hessian,
    score_errors_of_rows,
    slope_error_norm,
    sum_closely,
)
from glru.updates import (
    carry_point,
    find_newton_candidate,
    kink_rows,
    local_rows,
    product_rows,
    row_models,
    wide_rows,
)
from glru.updates.ascent_rows import AscentRows, has_ascent
from glru.updates.carried_rows import (
    bound_carried,
    carried_of,
    factor_range,
    has_carried,
    removal_factors,
    sum_error,
)
from glru.updates.carry import carry
from glru.updates.centred_rows import Balls, bound_centred, has_centred
from glru.updates.chord_folds import ChordFolds, FoldRows, has_chords, step_radii
from glru.updates.class_blocks import ClassBlocks
from glru.updates.class_folds import ClassFolds, has_class_folds
from glru.updates.class_rows import ClassCandidates, ClassRows
from glru.updates.class_space import class_space, has_cheap_space, has_class_space
from glru.updates.columns import (
    FoldColumns,
    FoldData,
    LocalColumns,
    SmoothColumns,
    SubsetModels,
    SubsetRows,
    WideColumns,
    carried_columns,
    has_fold_columns,
    has_local_columns,
    has_smooth_columns,
    has_subsets,
    has_wide_columns,
)
from glru.updates.columns.folds import Evaluated
from glru.updates.columns.one_step import least_radius, row_norm_cuts
from glru.updates.columns.wide import Steps
from glru.updates.folds import Folds, Products, has_folds, has_steps
from glru.updates.gradients import conjugate_gradients
from glru.updates.group_rows import GroupRows
from glru.updates.kink_rows import KinkRows, has_kinks
from glru.updates.local_rows import LocalRows, RowCandidates, RowRemovals, has_local_rows, has_piece_rows
from glru.updates.moments import SecondMoments, ThirdDerivatives, coordinates
from glru.updates.product_rows import ProductRows, has_product_rows
from glru.updates.refits import Refits
from glru.updates.refitted_rows import TallRefits, WideRefits, has_refitted_rows
from glru.updates.row_models import RowModels, has_row_models, has_wide_rows
from glru.updates.second_order import bound_to_second_order
from glru.updates.support_rows import SupportRows
from glru.updates.wide_classes import WideClasses
from glru.updates.wide_rows import WideRows

__all__ = [
    "CRITERIA",
    "HOST",
    "STAGES",
    "UNIT",
    "AscentRows",
    "Balls",
    "ChordFolds",
    "ClassBall",
    "ClassBlocks",
    "ClassCandidates",
    "ClassEllipsoid",
    "ClassFolds",
    "ClassMetric",
    "ClassRows",
    "Columns",
    "Contest",
    "Deletions",
    "DiagonalMetric",
    "DualBox",
    "Evaluated",
    "Floor",
    "FoldColumns",
    "FoldData",
    "FoldRows",
    "Folds",
    "FoldsJudge",
    "Freedom",
    "Goal",
    "GroupRows",
    "HostArrays",
    "Judge",
    "KinkRows",
    "LocalColumns",
    "LocalEllipsoid",
    "LocalRows",
    "Loss",
    "Model",
    "Move",
    "MoveList",
    "OrthogonalMetric",
    "Penalty",
    "Pending",
    "Point",
    "PrimalBall",
    "Problem",
    "ProductRows",
    "Products",
    "ProximalHinge",
    "Refits",
    "Removals",
    "RowCandidates",
    "RowMetric",
    "RowModels",
    "RowRemovals",
    "RowSide",
    "ScoreBounds",
    "Screened",
    "SecondMoments",
    "SingleRemovals",
    "SmoothColumns",
    "Solution",
    "Steps",
    "Stop",
    "SubsetModels",
    "SubsetRows",
    "Support",
    "SupportEllipsoid",
    "SupportRows",
    "TallRefits",
    "ThirdDerivatives",
    "ValidationJudge",
    "ValidationRows",
    "Value",
    "WideClasses",
    "WideColumns",
    "WideRefits",
    "WideRows",
    "_budget",
    "_files",
    "adapt",
    "add_work",
    "as_matrix",
    "assemble_gradient",
    "bound_by_certificate",
    "bound_carried",
    "bound_centred",
    "bound_grid",
    "bound_to_second_order",
    "bound_value",
    "bounds_nearby",
    "carried_columns",
    "carried_of",
    "carry",
    "carry_point",
    "cascade",
    "centers",
    "certify",
    "check_target",
    "checkpoint",
    "class_space",
    "concatenate",
    "conjugate_gradients",
    "coordinates",
    "correlation_range",
    "count_freedom",
    "counted",
    "decide",
    "dual_gap",
    "duality",
    "entropy_excess",
    "expand",
    "factor_range",
    "find_contested_rows",
    "find_criterion",
    "find_feasible_moves",
    "find_newton_candidate",
    "follows_rows",
    "gamma",
    "guess_support",
    "has_ascent",
    "has_carried",
    "has_centred",
    "has_cheap_space",
    "has_chords",
    "has_class_folds",
    "has_class_space",
    "has_fold_columns",
    "has_folds",
    "has_kinks",
    "has_local",
    "has_local_columns",
    "has_local_rows",
    "has_piece_rows",
    "has_product_rows",
    "has_refitted_rows",
    "has_row_models",
    "has_smooth_columns",
    "has_steps",
    "has_subsets",
    "has_support",
    "has_wide_columns",
    "has_wide_rows",
    "intersect",
    "is_decided",
    "is_foreign",
    "judges",
    "kernels",
    "kink_rows",
    "least_radius",
    "leave_one_out",
    "linalg",
    "linear_range",
    "list_regions",
    "local_rows",
    "loss_hessian",
    "loss_terms",
    "make_column_metric",
    "make_feasible_dual",
    "metrics",
    "moves",
    "newton",
    "newton_ellipsoids",
    "outward",
    "penalty_terms",
    "predicted",
    "product_rows",
    "quadratic_hessians",
    "rank",
    "read_layout",
    "refine",
    "regions",
    "removal_blocks",
    "removal_factors",
    "row_ellipsoids",
    "row_models",
    "row_norm_cuts",
    "sample_of",
    "score_bounds",
    "score_errors",
    "score_errors_of_rows",
    "single",
    "slope_error_norm",
    "solve_shifted",
    "solvers",
    "split_rows",
    "start_run",
    "step_length",
    "step_radii",
    "sum_closely",
    "sum_error",
    "summary",
    "summed",
    "table_loops",
    "threads",
    "to_host",
    "train",
    "translate_change",
    "unbounded",
    "uses_rows",
    "weighted_norm",
    "weighted_sum",
    "wide_rows",
    "widen",
    "widen_queries",
    "write_atomically",
]
