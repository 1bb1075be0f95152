"""``GLRUClassifierCV`` and ``GLRURegressorCV``: the strength of the penalty chosen by certified cross-validation."""

from collections.abc import Iterator
from functools import partial
from math import lcm
from typing import Any, Self

import numpy as np
from sklearn.model_selection import LeaveOneGroupOut, LeaveOneOut

from glru._options import Solver, check_options, suggest_options
from glru.linalg import Array, gamma, move_like, use_threads
from glru.losses import Loss
from glru.sklearn.adapt import Adapted, adapt_again
from glru.sklearn.estimators.linear import (
    Classifier,
    GLRUClassifier,
    GLRURegressor,
    LinearModel,
    Regressor,
    check_weight,
    keep_arguments,
)
from glru.sklearn.held_out import HeldOut, Request, bound_held_out, bound_held_out_grid, choose_default_width
from glru.solution import Solution


class Tuned(LinearModel):
    """What the tuned estimators share: a grid of strengths, and cross-validation at each of them."""

    _known = False

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Choose the strength and train.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_rows, n_columns)
            Data.
        y : array of shape (n_rows,)
            Labels or targets.
        sample_weight : array of shape (n_rows,), default=None
            Weights of the rows.
        groups : array of shape (n_rows,), default=None
            Groups that are left out together, instead of single rows.
        """
        check_options(type(self).__name__, self.get_params(deep=False))
        X, y = self._validate(X, y, ensure_min_samples=2)
        with use_threads(self.n_jobs):
            self._choose(X, y, check_weight(sample_weight, X), groups)
        return self

    def _choose(self, X: Any, y: Any, sample_weight: Any, groups: Any) -> None:
        """Validate every strength from the strongest penalty to the weakest, and keep the best."""
        name, grid = self._grid()
        criterion = str(self.criterion)
        if self.cv is None:
            cv = LeaveOneOut() if groups is None else LeaveOneGroupOut()
        else:
            cv = list(self.cv) if isinstance(self.cv, Iterator) else self.cv
        adapted = self._adapt(self._model(**{name: float(grid[0])}), X, y, sample_weight)
        if criterion == "log_loss":
            adapted.require_probabilities()
        if criterion != "error" and len(adapted.problems) > 1:
            raise ValueError(f"criterion {criterion!r} is for two classes; got {len(adapted.problems)}. Use 'error'.")
        every = [adapted, *(adapt_again(adapted, self._model(**{name: float(value)})) for value in grid[1:])]
        width = None if criterion == "error" and len(adapted.problems) == 1 else choose_default_width(adapted)
        request = Request(width, self.tol, self.verbose > 0)
        starts: list[tuple[Solution, ...] | None] = [None] * grid.size
        value_of = partial(bound_value, criterion=criterion, by_fold=self.cv is not None)
        if isinstance(cv, LeaveOneOut):
            found = []
            for k, one in enumerate(every):
                starts[k] = self._train(one, starts[k - 1] if k else None)
                found.append(bound_held_out(one, cv, groups, request, starts[k]))
            values = np.array([value_of(one) for one in found])
        else:
            found, values = bound_held_out_grid(every, cv, groups, request, value_of)
        lower, upper = values.T
        # The grid starts at the strongest penalty, which wins a tie.
        self.best_index_ = int(np.argmin(upper))
        self.certified_ = bool(np.all(np.delete(lower, self.best_index_) >= upper[self.best_index_]))
        self.criterion_lower_, self.criterion_upper_, self.grid_ = (move_like(a, X) for a in (lower, upper, grid))
        self.n_refits_ = found[-1].n_refits
        setattr(self, f"{name}_", float(grid[self.best_index_]))
        adapted, start = every[self.best_index_], starts[self.best_index_]
        self._keep(adapted, self._train(adapted) if start is None else start)

    def _model(self, **strength: Any) -> LinearModel:
        """The estimator of one strength."""
        kind = GLRUClassifier if isinstance(self, Classifier) else GLRURegressor
        shared = ("loss", "kappa", "fit_intercept", "class_weight")
        return kind(**{name: value for name, value in vars(self).items() if name in shared}, **strength)

    def _grid(self) -> tuple[str, Array]:
        """The parameter to choose, and its values from the strongest penalty to the weakest."""
        name, values = ("C", self.Cs) if self.lams is None else ("lam", self.lams)
        grid = np.unique(np.asarray(values, dtype=np.float64))
        if grid.size == 0 or not np.all(np.isfinite(grid) & (grid > 0.0)):
            raise ValueError(f"{name}s must hold at least one finite number, all above 0; got {values!r}.")
        return name, grid if name == "C" else grid[::-1]


def bound_value(found: HeldOut, criterion: str, by_fold: bool = False) -> tuple[float, float]:
    """The certified interval of a criterion of held-out scores; ``by_fold``: the mean of its values in the splits."""
    if by_fold:
        if criterion == "error":
            # Whole numbers over one denominator, so that equal shares of errors are equal.
            sizes = [test.size for _, test in found.splits]
            whole, starts = lcm(*sizes), np.cumsum([0, *sizes[:-1]])
            ends = found.bounds.find_errors(found.adapted.targets_of(found.adapted.targets.y[found.rows]))
            counts = [np.add.reduceat(end, starts, dtype=np.intp).tolist() for end in ends]
            low, high = (sum(n * (whole // size) for n, size in zip(end, sizes, strict=True)) for end in counts)
            return low / (whole * len(sizes)), high / (whole * len(sizes))
        splits = [np.flatnonzero(found.folds == k) for k in range(len(found.splits))]
        values = np.array([_value_of(found, criterion, places) for places in splits])
        lower, upper = values.mean(axis=0)
        # The sums are rounded as often as there are splits.
        slack = gamma(len(splits) + 2) * float(np.abs(values).max())
        return float(lower) - slack, float(upper) + slack
    return _value_of(found, criterion, np.arange(found.rows.size))


def _value_of(found: HeldOut, criterion: str, places: Any) -> tuple[float, float]:
    adapted: Adapted = found.adapted
    rows, bounds = found.rows[places], found.bounds.take(places)
    if criterion == "error":
        low, high = bounds.errors(adapted.targets_of(adapted.targets.y[rows]))
        return float(low), float(high)
    problem = adapted.problems[0]
    return bounds.metric(criterion, problem.loss, problem.y[rows])


class GLRUClassifierCV(Classifier, Tuned):
    """A linear classifier whose ``C`` (or ``lam``) is chosen by certified cross-validation, leave-one-out by default.

    The objective is that of :class:`glru.GLRUClassifier`. Every held-out error is proven, so the choice is the same as by
    brute force; if several strengths are equally good, the strongest penalty is chosen.

    Parameters
    ----------
    loss : str or Loss, default="logistic"
        As in :class:`glru.GLRUClassifier`.
    Cs : sequence of float, default=(1e-3, 1e-2, 1e-1, 1, 10, 100)
        The grid of ``C``.
    lams : sequence of float, default=None
        The grid of ``lam``; replaces ``Cs``.
    criterion : {"error", "log_loss"}, default="error"
        What to minimise; "log_loss" needs two classes and the logistic loss.
    cv : int, splitter or iterable of (train, test), default=None
        The splits; leave-one-out (or, with groups, leave-one-group-out) if not given. With splits, the criterion is averaged
        over them, as in ``LogisticRegressionCV``: the share of errors, not their number.
    preprocessing : transformer, default=None
        Preprocessing steps: a scaler, an imputer, a pipeline or a column transformer of these. They are refitted to the train rows of
        every split, at every strength, as :func:`glru.loocv` does for a pipeline, and to all rows for the final model. (Steps before
        this estimator in a pipeline are fitted to all rows before they are split.)
    kappa, fit_intercept, class_weight, tol, solver, max_iter, keep_data
        As in :class:`glru.GLRUClassifier`.
    n_jobs, verbose : int, default=None, 0
        Threads and progress of the cross-validation, as in :func:`glru.loocv`.

    Attributes
    ----------
    C_ or lam_ : float
        The strength chosen.
    grid_, criterion_lower_, criterion_upper_ : array
        The grid from the strongest penalty to the weakest, and the certified interval of the criterion at each; strengths that
        cannot be the best may have wider intervals.
    best_index_, certified_ : int, bool
        The index of the choice, and whether it is proven that no other strength is better.
    preprocessing_, n_refits_ : transformer, int
        The steps fitted to all rows, if there are any, and the number of splits in which they were refitted without a closed form.
    classes_, coef_, intercept_, n_iter_, dual_gap_, certificate_, solutions_
        As in :class:`glru.GLRUClassifier`.

    Examples
    --------
    >>> import glru
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> model = glru.GLRUClassifierCV().fit(X, y)
    >>> model.C_, model.criterion_upper_[model.best_index_], model.certified_
    (1.0, np.float64(12.0), True)
    >>> from sklearn.preprocessing import StandardScaler
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = glru.GLRUClassifierCV(preprocessing=StandardScaler()).fit(X, y)
    >>> model.C_, model.criterion_upper_[model.best_index_], model.certified_
    (1.0, np.float64(12.0), True)
    """

    @suggest_options
    def __init__(
        self,
        loss: str | Loss = "logistic",
        *,
        Cs: Any = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0),
        lams: Any = None,
        criterion: str = "error",
        cv: Any = None,
        preprocessing: Any = None,
        kappa: float = 0.0,
        fit_intercept: bool = True,
        class_weight: Any = None,
        tol: float = 1e-6,
        solver: Solver = "auto",
        max_iter: int | None = None,
        keep_data: bool = True,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        keep_arguments(self, locals())


class GLRURegressorCV(Regressor, Tuned):
    """A linear regression whose ``C`` (or ``lam``) is chosen by certified cross-validation, leave-one-out by default.

    Parameters
    ----------
    loss : str or Loss, default="squared"
        As in :class:`glru.GLRURegressor`.
    Cs, lams
        As in :class:`glru.GLRUClassifierCV`.
    criterion : {"squared_error", "absolute_error"}, default="squared_error"
        What to minimise.
    cv, preprocessing, n_jobs, verbose
        As in :class:`glru.GLRUClassifierCV`.
    kappa, fit_intercept, tol, solver, max_iter, keep_data
        As in :class:`glru.GLRURegressor`.

    Attributes
    ----------
    C_ or lam_, grid_, criterion_lower_, criterion_upper_, best_index_, certified_, preprocessing_, n_refits_
        As in :class:`glru.GLRUClassifierCV`.
    coef_, intercept_, n_iter_, dual_gap_, certificate_, solutions_
        As in :class:`glru.GLRURegressor`.

    Examples
    --------
    >>> import glru
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = glru.GLRURegressorCV(Cs=[1.0, 10.0, 100.0, 1000.0]).fit(X, y)
    >>> model.C_, model.certified_
    (100.0, True)
    """

    @suggest_options
    def __init__(
        self,
        loss: str | Loss = "squared",
        *,
        Cs: Any = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0),
        lams: Any = None,
        criterion: str = "squared_error",
        cv: Any = None,
        preprocessing: Any = None,
        kappa: float = 0.0,
        fit_intercept: bool = True,
        tol: float = 1e-6,
        solver: Solver = "auto",
        max_iter: int | None = None,
        keep_data: bool = True,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        keep_arguments(self, locals())
