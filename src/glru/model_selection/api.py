"""``loocv`` and ``cross_val_predict``: of a problem, of a solution, or of an estimator with its data."""

from pathlib import Path
from typing import Any, overload

from numpy.typing import NDArray

from glru.adapters import is_estimator
from glru.model_selection.checkpoint import Checkpoint
from glru.model_selection.classes import ClassesLOOCVResult
from glru.model_selection.cross_validation import CrossValResult, held_out_folds
from glru.model_selection.drop_ins import Method, estimator_cross_val_predict, estimator_loocv
from glru.model_selection.loocv import Bound, leave_one_out
from glru.model_selection.loocv import Method as LOOCVMethod
from glru.model_selection.progress import Report
from glru.model_selection.result import LOOCVResult
from glru.problem import Problem
from glru.solution import Solution


@overload
def loocv(
    model: Problem | Solution,
    method: LOOCVMethod = ...,
    bound: Bound = ...,
    width: float | None = ...,
    progress: bool | Report = ...,
    max_memory: int | None = ...,
    tol: float = ...,
    checkpoint: str | Path | Checkpoint | None = ...,
    max_seconds: float | None = ...,
    output: str | Path | None = ...,
    max_trainings: int | None = ...,
) -> LOOCVResult: ...


@overload
def loocv(
    model: Any,
    X: Any,
    y: Any,
    sample_weight: Any = ...,
    *,
    method: LOOCVMethod = ...,
    bound: Bound = ...,
    width: float | None = ...,
    progress: bool | Report = ...,
    max_memory: int | None = ...,
    tol: float = ...,
    checkpoint: str | Path | Checkpoint | None = ...,
    max_seconds: float | None = ...,
) -> LOOCVResult | ClassesLOOCVResult: ...


def loocv(model: Any, *args: Any, **options: Any) -> Any:
    """Every row's score under the model trained without it, proven, for about the price of one training.

    Two forms: ``loocv(problem, method="certified", bound="auto", width=None, progress=False, max_memory=None,
    tol=1e-6, checkpoint=None, max_seconds=None, output=None, max_trainings=None)`` for a problem or a solution, and ``loocv(estimator, X, y, sample_weight=None, ...)`` for one of
    scikit-learn's linear models (or one of this library's), fitted or not.

    Parameters
    ----------
    model : Problem, Solution or estimator
        What to validate. A problem is trained first; a solution is used as it is, converged or not. Of rows in blocks see
        the notes.
    X, y, sample_weight : array
        The data of an estimator.
    method : {"certified", "glru", "naive", "approx", "approx-glru"}, default="certified"
        ``"certified"``: the cascade of the old optimum's bound, Newton candidates under a certificate, and training
        only for what that leaves open. ``"glru"``: the paper's Algorithm 2, with early stopping. ``"naive"``: one
        warm-started training a row. ``"approx"``: one Newton step a row, unproven. ``"approx-glru"``: the paper's
        bound, then one Newton step for the rest.
    bound : {"auto", "primal", "dual", "local"}, default="auto"
        Which bounds may decide; "auto" uses all that apply.
    width : float, default=None
        Refine until every interval is at most this wide. If not given, a classification is refined until every label is
        decided, a regression to a width of 1e-6 times the spread of the targets.
    progress : bool or callable, default=False
        Show progress on the terminal, or call ``progress(stage, n_decided, n_rows)``.
    max_memory : int, default=None
        Limit in bytes for the work arrays of a batch of rows, beside what the problem itself needs (its data, and for wide
        data a matrix of one entry a pair of rows); at least 192 bytes a row. If not given, 2 GiB or that.
    tol : float, default=1e-6
        Relative gap of the trainings of "naive", and of the first training where a problem is given.
    checkpoint : str or Path, default=None
        A file that keeps finished work. A run that was killed goes on from it and gives the same result.
    max_seconds : float, default=None
        Start nothing new after so many seconds: rows that are not decided by then stay undetermined, and every bound
        holds all the same. What is under way ends at its next step: a Newton step of a batch, an iteration of a training.
    output : str or Path, default=None
        Of rows in blocks: a directory for one Parquet file of results per block, instead of arrays in memory.
    max_trainings : int, default=None
        Of rows in blocks: at most this many of the rows that the bounds leave open are trained (none if not given), a few
        passes over the data each; others stay "undetermined".

    Returns
    -------
    LOOCVResult
        Bounds of every held-out score, labels, error counts, who decided what; a ``ClassesLOOCVResult`` for an estimator
        with one model a class, and for a ``RidgeClassifier``.

    Notes
    -----
    Rows in blocks are validated in passes over the data, with the method "certified"; ``max_seconds`` ends what comes after the
    pass of bounds. They take no ``max_memory`` and no ``checkpoint``.

    Examples
    --------
    >>> import glru
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> result = glru.loocv(glru.Problem(X, y, penalty=glru.L2(0.01)))
    >>> result.n_errors, result.n_trainings
    (10, 0)
    >>> from sklearn.linear_model import LogisticRegression
    >>> glru.loocv(LogisticRegression(C=0.1), X, y).n_errors
    13
    """
    return estimator_loocv(model, *args, **options) if is_estimator(model) else leave_one_out(model, *args, **options)


@overload
def cross_val_predict(
    model: Problem | Solution,
    cv: Any = ...,
    groups: Any = ...,
    width: float | None = ...,
    tol: float = ...,
    progress: bool | Report = ...,
    max_seconds: float | None = ...,
) -> CrossValResult: ...


@overload
def cross_val_predict(
    model: Any,
    X: Any,
    y: Any,
    cv: Any = ...,
    groups: Any = ...,
    method: Method = ...,
    sample_weight: Any = ...,
    width: float | None = ...,
    tol: float = ...,
    progress: bool | Report = ...,
) -> NDArray[Any]: ...


def cross_val_predict(model: Any, *args: Any, **options: Any) -> Any:
    """Certified held-out predictions for any way of splitting the rows.

    Two forms: ``cross_val_predict(problem, cv=5, groups=None, width=None, tol=1e-6, progress=False)`` gives the bounds of
    a problem or a solution; ``cross_val_predict(estimator, X, y, cv=5, groups=None, method="predict",
    sample_weight=None, ...)`` gives the array that scikit-learn's function of that name would give for its linear models.

    Leave-one-out splits go through the cascade of :func:`glru.loocv`. Any other fold starts from the model of all rows;
    Newton steps under a certificate follow until every held-out label (or, with ``width``, every score) is proven, and a
    training only where they do not suffice.

    Parameters
    ----------
    model : Problem, Solution or estimator
        What to validate; a problem is trained on all rows first. Estimators: ``LogisticRegression``, ``LinearSVC``,
        ``Ridge``, ``RidgeClassifier``, ``ElasticNet``, ``GLRUClassifier``, ``GLRURegressor``, fitted or not; one of them in
        a ``OneVsRestClassifier``; one of them with an unpenalised intercept behind a ``StandardScaler`` in a ``Pipeline``.
    X, y, sample_weight : array
        The data of an estimator.
    cv : int, splitter or iterable of (train, test), default=5
        As in scikit-learn: k-fold, grouped, repeated, ...
    groups : array of shape (n_rows,), default=None
        Groups for splitters that need them.
    method : {"predict", "decision_function", "predict_proba", "predict_log_proba"}, default="predict"
        What to ask an estimator for.
    width : float, default=None
        Largest interval of a score to accept. If not given, labels are decided. Scores that are asked for have a width of
        1e-4 by default (in a regression, times the spread of y; for a problem's, 1e-6 times that).
    tol : float, default=1e-6
        Relative gap of the first training.
    progress : bool or callable, default=False
        As in :func:`glru.loocv`.
    max_seconds : float, default=None
        Of a problem or a solution: start no fold after so many seconds, and end the one under way; what is not decided by
        then stays "undetermined", with bounds that hold all the same.

    Returns
    -------
    CrossValResult or array
        Bounds for a problem or a solution; predictions for an estimator, in the order of the rows. A score is the middle of
        its proven interval. Labels that float64 cannot prove, and scores without bounds, are masked: the result is then a
        ``numpy.ma.MaskedArray``.

    Notes
    -----
    Of rows in blocks a number of folds means folds of consecutive rows, and a splitter must test every row once; it sees no
    targets. Nothing is trained beyond Newton steps: a fold that they do not decide stays undetermined.

    Examples
    --------
    >>> import glru
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.model_selection import LeaveOneOut
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> result = glru.cross_val_predict(glru.Problem(X, y, penalty=glru.L2(0.1)), cv=5)
    >>> bool((result.labels != 0).all())
    True
    >>> glru.cross_val_predict(LogisticRegression(C=0.5), X, y, cv=LeaveOneOut(), method="predict_proba")[0].round(4)
    array([1., 0.])
    """
    if is_estimator(model):
        return estimator_cross_val_predict(model, *args, **options)
    return held_out_folds(model, *args, **options)
