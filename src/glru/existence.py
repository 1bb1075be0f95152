r"""Whether a problem has an optimum at all, and only one.

A penalty on every column makes the optimum exist and be unique. Columns without one, and the intercept, may spoil both:

* if a combination of them is zero in every row, any multiple of it can be added to a model at no cost;
* the logistic loss falls for ever in a direction in which :math:`y_i x_i^\top w \ge 0` for every row and :math:`> 0` for
  some (the classes are separated, or nearly so). There is such a direction if and only if the linear program
  :math:`\max \sum_i y_i x_i^\top w` subject to :math:`0 \le y_i x_i^\top w \le 1` has a value above 0;
* a loss with a log link falls for ever in a direction that lowers the scores of rows with :math:`y_i = 0` and leaves those of all others as
  they are (a group of rows without a single count), which is the same program over the rows with :math:`y_i = 0`. Of shares with a logit link, scores
  of rows with :math:`y_i = 1` may rise, too.
"""

import numpy as np

from glru.duality import constraint_columns
from glru.losses import Logistic
from glru.problem import Problem

MOST_ENTRIES = 2_000_000
"""Unpenalised columns with more entries are not searched for a direction that separates the classes."""


def missing_optimum(problem: Problem) -> str | None:
    """Why a problem has no optimum or more than one, with a remedy; None where no reason is known."""
    if not problem.fit_intercept and not problem.unpenalised.size:
        return None
    used = problem.weights > 0.0
    free, y = constraint_columns(problem)[used], problem.targets[used]
    if lacks_class(problem):
        return (
            "no optimum exists: a class has no rows, and its unpenalised intercept no best value. "
            "Keep rows of every class, or use fit_intercept=False."
            if problem.loss.several
            else f"no optimum exists: all rows are of the class {y[0]:+.0f}, and the unpenalised intercept has no best value. "
            "Keep rows of both classes, or use fit_intercept=False."
        )
    if np.linalg.matrix_rank(_scaled(free)) < free.shape[1]:
        return (
            "the optimum is not unique: unpenalised columns are linearly dependent, so that infinitely many models are best. "
            "Remove columns that are constant or depend on others, or penalise them."
        )
    if isinstance(problem.loss, Logistic) and free.size <= MOST_ENTRIES and _separates(y[:, None] * _scaled(free)):
        return (
            "no optimum exists: unpenalised columns separate the classes, so that larger coefficients are always better. "
            "Penalise them."
        )
    if problem.loss.link == "identity" or free.size > MOST_ENTRIES:
        return None
    falling = y == 0.0
    rising = (y == 1.0) & (problem.loss.link == "logit")
    if _escapes(_scaled(free), rising.astype(np.float64) - falling):
        which, others = ("0", "above 0") if not rising.any() else ("0 or 1", "between them")
        return (
            f"no optimum exists: along unpenalised columns (the intercept counts as one) the scores of some rows with y = {which} can move on for ever, and "
            f"those of rows with y {others} stay. Penalise them, or remove the columns or the group of rows that have no y {others}."
        )
    return None


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
    if problem.loss.task != "classification" or not problem.fit_intercept:
        return False
    used = problem.y[problem.weights > 0.0]
    if problem.loss.several:
        return np.unique(used).size < problem.n_scores
    return used.size == 0 or bool(np.all(used == used[0]))


def _scaled(columns: np.ndarray) -> np.ndarray:
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
