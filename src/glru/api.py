"""The public functions: each takes a problem, its solution, results of statsmodels, or an estimator of scikit-learn with its data.

Only this module decides which of these it was given. What an option does is written in the modules that do it.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, overload

from numpy.typing import NDArray

from glru._options import (
    BoundName,
    CandidateName,
    Center,
    CriterionName,
    Direction,
    LOOCVMethod,
    PredictMethod,
    SearchMethod,
    check_call,
)
from glru.after import After, Origin
from glru.cascade import Report
from glru.changed import change_model
from glru.changes import Change
from glru.deletion import Influence, Jackknife, compute_influence, compute_jackknife
from glru.linalg import Array, use_threads
from glru.model_selection.checkpoint import Checkpoint
from glru.model_selection.cross_validation import CrossValResult, held_out_folds
from glru.model_selection.loocv import AIM, Width, leave_one_out, widths_of
from glru.model_selection.result import LOOCVResult
from glru.problem import Problem
from glru.selection import FeatureImportance, Settings, StepwiseResult, measure_importance, search
from glru.sklearn.adapt import adapt
from glru.sklearn.drop_ins import ErrorScore, Validation, loocv_adapted, predict_splits, validate_splits
from glru.sklearn.preprocessing import name_weight, split_params
from glru.sklearn.questions import ModelCertificate, certify_estimator, change_models, measure_features, select_features
from glru.solution import Solution
from glru.solvers import solve, train
from glru.statsmodels import adapt_results, is_statsmodels

Progress = bool | Report


def is_estimator(value: object) -> bool:
    """Whether a value is a scikit-learn estimator rather than something of this library's core."""
    return callable(getattr(value, "fit", None)) and callable(getattr(value, "get_params", None))


@check_call
def loocv(
    model: Any,
    X: Any = None,
    y: Any = None,
    sample_weight: Any = None,
    *,
    method: LOOCVMethod = "certified",
    bound: BoundName = "auto",
    width: Width = None,
    tol: float = 1e-6,
    max_seconds: float | None = None,
    max_memory: int | None = None,
    max_trainings: int | None = None,
    checkpoint: str | Path | Checkpoint | None = None,
    output: str | Path | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
    progress: Progress = False,
) -> LOOCVResult:
    """Leave-one-out cross-validation: the proven score of every row under the model trained without it, at about the cost of one fit.

    Parameters
    ----------
    model : Problem, Solution, estimator or results of statsmodels
        What to validate. A problem is trained first; a solution is used as it is, converged or not. An estimator is one of
        scikit-learn's linear models or of this library's, fitted or not. Results of statsmodels hold their data
        (:func:`glru.statsmodels.to_problem` lists the supported models). For rows in blocks see the notes.
    X, y, sample_weight : array, default=None
        The data of an estimator; a problem and a solution hold theirs.
    method : {"certified", "glru", "naive", "approx", "approx-glru"}, default="certified"
        ``"certified"``: first the bound of the old optimum, then Newton candidates with a certificate, and a training
        only for rows that are still open. ``"glru"``: the paper's Algorithm 2, with early stopping. ``"naive"``: one
        warm-started training per row. ``"approx"``: one Newton step per row, unproven. ``"approx-glru"``: the paper's
        bound, then one unproven Newton step for the other rows.
    bound : {"auto", "primal", "dual", "local"}, default="auto"
        Which bounds may decide; "auto" uses all that apply.
    width : float or "labels", default=None
        Refine until every interval is at most this wide, with trainings if necessary. ``"labels"``: only until every
        label is decided. By default all labels are decided; then intervals are narrowed until metrics are known to four digits
        (on average to 1e-4 times the mean training loss, or to 2e-6 if that is more), as long as this takes no training, less than half
        the work of retraining every row, and no more than about ten seconds or 32 times the time of the first bounds. The result
        reports intervals that stay wider. Intervals of a regression are narrowed to 1e-6 times the spread of the targets.
    tol : float, default=1e-6
        Relative gap of the trainings of "naive", and of the first training if a problem or an estimator is given.
    max_seconds : float, default=None
        Start nothing new after this many seconds: rows that are not decided by then stay undetermined, and every bound
        still holds. Work in progress ends at its next step: a Newton step of a batch, or an iteration of a training.
    max_memory : int, default=None
        Limit in bytes for the work arrays of a batch of rows, in addition to what the problem itself needs (its data, and for wide
        data a matrix of one entry per pair of rows); at least 192 bytes per row. If not given, 2 GiB or that minimum.
    max_trainings : int, default=None
        For rows in blocks: train at most this many of the rows that the bounds leave open (none if not given), at a few
        passes over the data each; the others stay "undetermined".
    checkpoint : str or Path, default=None
        A file that keeps finished work. A run that was killed continues from it and gives the same result.
    output : str or Path, default=None
        For rows in blocks: a directory for one Parquet file of results per block, instead of arrays in memory.
    n_jobs : int, default=None
        Number of threads; -1 for one per core. If not given, ``OMP_NUM_THREADS`` if that is set, otherwise all cores.
    verbose : int, default=0
        Above 0: show progress on the terminal.
    progress : bool or callable, default=False
        Show progress on the terminal, or call ``progress(stage, n_decided, n_rows)``.

    Returns
    -------
    LOOCVResult
        Bounds of every held-out score, labels, error counts, and the stage that decided each row; for an estimator with one model per
        class, one score per class.

    Notes
    -----
    The steps of a pipeline are refitted without each row, and so are weights with ``class_weight="balanced"``. For scalers (``StandardScaler``,
    ``MinMaxScaler``, ``MaxAbsScaler``, ``RobustScaler``), ``SimpleImputer``, ``OneHotEncoder``, ``OrdinalEncoder``, ``VarianceThreshold``, steps that
    look at one row at a time (``FunctionTransformer``, ``PolynomialFeatures``, ``Normalizer``, ``Binarizer``) and column transformers of these,
    the effect of refitting is known in closed form. Other steps, such as ``PCA``, are refitted for each row: ``result.n_refits`` says for
    how many rows, ``result.refit_reason`` why.

    Rows in blocks are validated in passes over the data, with the method "certified"; ``max_seconds`` limits the work after the
    first pass of bounds. They take no ``max_memory`` and no ``checkpoint``.

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
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> result = glru.loocv(make_pipeline(StandardScaler(), LogisticRegression(C=0.1)), X, y)
    >>> result.n_errors, result.n_trainings, result.n_refits
    (13, 0, 0)
    """
    options: dict[str, Any] = {
        "method": method,
        "bound": bound,
        "tol": tol,
        "max_seconds": max_seconds,
        "max_memory": max_memory,
        "checkpoint": checkpoint,
        "progress": progress or verbose > 0,
    }
    with use_threads(n_jobs):
        model = _check_model("loocv", model, tol, X, y, sample_weight)
        if is_estimator(model):
            _refuse(f"{type(model).__name__}, whose rows are in memory", max_trainings=max_trainings, output=output)
            return loocv_adapted(adapt(model, X, y, sample_weight), width=width, **options)
        return leave_one_out(model, **options, **widths_of(model, width), max_trainings=max_trainings, output=output)


class _PredictOptions(TypedDict, total=False):
    """The options of :func:`cross_val_predict` that do not decide what it returns, for type checkers."""

    groups: Any
    cv: Any
    n_jobs: int | None
    verbose: int
    params: dict[str, Any] | None
    method: PredictMethod
    sample_weight: Any
    width: Width
    tol: float
    max_seconds: float | None
    progress: Progress


@overload
def cross_val_predict(model: Problem | Solution, **options: Unpack[_PredictOptions]) -> CrossValResult: ...


@overload
def cross_val_predict(
    model: Any, X: Any, y: Any, *, return_result: Literal[True], **options: Unpack[_PredictOptions]
) -> CrossValResult: ...


@overload
def cross_val_predict(model: Any, X: Any, y: Any, **options: Unpack[_PredictOptions]) -> NDArray[Any]: ...


@check_call
def cross_val_predict(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    groups: Any = None,
    cv: Any = None,
    n_jobs: int | None = None,
    verbose: int = 0,
    params: dict[str, Any] | None = None,
    method: PredictMethod = "predict",
    sample_weight: Any = None,
    width: Width = None,
    tol: float = 1e-6,
    max_seconds: float | None = None,
    progress: Progress = False,
    return_result: bool = False,
) -> CrossValResult | NDArray[Any]:
    """Certified drop-in for scikit-learn's ``cross_val_predict``: held-out predictions for any splitter.

    For an estimator this returns the array that scikit-learn's function would return for its linear models; for a problem
    or a solution it returns an object with the bounds.

    Leave-one-out splits are handled as in :func:`glru.loocv`. For other splits, the models of all folds take their Newton steps
    together: one product with the data gives all their scores, a second one all their gradients, and their Hessians cost about as much as a
    third. Each step is followed by a certificate, until every held-out label (or, with ``width``, every score) is proven. On dense wide
    data, and where the loss or the penalty does not allow this, each fold starts from the model of all rows.

    Parameters
    ----------
    model : Problem, Solution, estimator or results of statsmodels
        What to validate; a problem is trained on all rows first. Estimators: ``LogisticRegression``, ``LinearSVC``,
        ``LinearRegression``, ``Ridge``, ``RidgeClassifier``, ``Lasso``, ``ElasticNet``, ``PoissonRegressor``, ``GammaRegressor``,
        ``TweedieRegressor``, ``GLRUClassifier``, ``GLRURegressor``, fitted or not; one of them in
        a ``OneVsRestClassifier``; any of these at the end of a ``Pipeline``, whose steps are fitted to the train rows of each split.
    X, y : array, default=None
        The data of an estimator; a problem and a solution hold theirs.
    groups : array of shape (n_rows,), default=None
        Groups for splitters that need them.
    cv : int, splitter or iterable of (train, test), default=None
        As in scikit-learn, any splitter; 5 folds if not given.
    n_jobs, verbose
        As in :func:`glru.loocv`.
    params : dict, default=None
        As in scikit-learn, parameters of the estimator's ``fit``: ``{"sample_weight": weights}``, for a pipeline by the name of the step,
        such as ``{"logisticregression__sample_weight": weights}``. Parameters of other steps are passed to these in every split.
    method : {"predict", "decision_function", "predict_proba", "predict_log_proba"}, default="predict"
        The estimator's method whose output is returned.
    sample_weight : array of shape (n_rows,), default=None
        Training weights of an estimator's rows, as an alternative to ``params``.
    width : float or "labels", default=None
        Largest width of a score's interval. If not given, labels are decided. Scores that the method returns are proven to 1e-4 (in a
        regression, times the spread of y); these and those of a result are narrowed to the smaller of 1e-6 and the estimator's ``tol`` if
        that takes no training. ``"labels"``: only decide the labels of a result. A problem's scores are narrowed as in :func:`glru.loocv`.
    tol : float, default=1e-6
        Relative gap of the first training.
    max_seconds : float, default=None
        For a problem or a solution: start no fold after this many seconds, and stop the one in progress; rows that are not decided by
        then stay "undetermined", with bounds that still hold.
    progress : bool or callable, default=False
        As in :func:`glru.loocv`.
    return_result : bool, default=False
        Whether to return an estimator's bounds as well, in an object: one entry per held-out row in the order of the splits, which need
        not be a partition. Its ``n_refits`` and ``refit_reason`` say for how many splits the steps of a pipeline had to be refitted, and why. (If an
        array is returned, a warning says so for leave-one-out.)

    Returns
    -------
    CrossValResult or array
        Bounds for a problem or a solution; predictions for an estimator, in the order of the rows. A score is the middle of
        its proven interval. Labels that float64 cannot prove, and scores without bounds, are masked: the result is then a
        ``numpy.ma.MaskedArray``.

    Notes
    -----
    For rows in blocks a number of folds means folds of consecutive rows, and a splitter must test every row once; it sees no
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
    >>> bool(result.decided.all())
    True
    >>> glru.cross_val_predict(LogisticRegression(C=0.5), X, y, cv=LeaveOneOut(), method="predict_proba")[0].round(4)
    array([1., 0.])
    """
    shown = progress or verbose > 0
    with use_threads(n_jobs):
        model = _check_model("cross_val_predict", model, tol, X, y, sample_weight, params)
        if is_estimator(model):
            _refuse("an estimator's predictions, which are always complete", max_seconds=max_seconds)
            asked = _make_validation(model, X, y, cv, groups, sample_weight, params, width, tol, shown)
            if isinstance(width, str) and (not return_result or method != "predict"):
                raise ValueError(
                    f"width={width!r} is for a result of labels; an array has what its method needs. Leave it out, or use return_result=True."
                )
            return predict_splits(asked, method, return_result)
        _refuse(f"a {type(model).__name__}, whose result has the bounds", return_result=return_result or None)
        if method != "predict":
            raise ValueError(
                f"method is for an estimator; a {type(model).__name__} gives bounds of its scores. Leave it out; got {method!r}."
            )
        return held_out_folds(
            model,
            5 if cv is None else cv,
            groups,
            tol=tol,
            progress=shown,
            max_seconds=max_seconds,
            **widths_of(model, width, AIM),
        )


@check_call
def cross_val_score(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    groups: Any = None,
    scoring: Any = None,
    cv: Any = None,
    n_jobs: int | None = None,
    verbose: int = 0,
    params: dict[str, Any] | None = None,
    error_score: ErrorScore = math.nan,
    sample_weight: Any = None,
    width: float | None = None,
    tol: float = 1e-6,
    progress: Progress = False,
) -> Array:
    """Certified drop-in for scikit-learn's ``cross_val_score``: the score of every split.

    Parameters
    ----------
    estimator : estimator
        As in :func:`glru.cross_val_predict`. The folds of a problem are those of ``cross_val_predict``, whose result has
        ``metric_bounds``.
    X, y, groups, n_jobs, verbose, width, tol, progress
        As in :func:`glru.cross_val_predict`.
    scoring : str or callable, default=None
        As in scikit-learn; accuracy or R2 if not given. Names and scorers of ``make_scorer`` are computed from certified
        predictions. Any other callable ``scoring(estimator, X, y)`` may ask for more than predictions of the test rows: it
        gets a clone of the estimator that was fitted to the split's train rows, as in scikit-learn, which costs a training
        per split and proves nothing.
    cv : int, splitter or iterable of (train, test), default=None
        As in scikit-learn; 5 stratified folds (plain ones for a regression) if not given.
    params, sample_weight
        As in :func:`glru.cross_val_predict`; the scores themselves are not weighted.
    error_score : float or "raise", default=nan
        The score of a split whose scorer fails, with a warning; or raise its error.

    Returns
    -------
    array of shape (n_splits,)
        With leave-one-out, a metric that is not defined on a single row (``"roc_auc"``, ``"r2"``, ``"f1"``, ``"neg_log_loss"``, ...; the scorer fails,
        warns, or gives NaN or one and the same value for every row) is computed from all held-out predictions together. That one value then
        stands in every entry, so that its mean is the metric, and a warning says so.

    Examples
    --------
    >>> import glru
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import Ridge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> glru.cross_val_score(Ridge(alpha=0.1), X, y, cv=3).round(4)
    array([0.4586, 0.4952, 0.5121])
    """
    _require_estimator("cross_val_score", estimator)
    if isinstance(scoring, dict | list | tuple | set):
        raise ValueError(
            f"scoring must be one scorer; got {type(scoring).__name__}. For several scores, use glru.cross_validate."
        )
    shown = progress or verbose > 0
    with use_threads(n_jobs):
        asked = _make_validation(estimator, X, y, cv, groups, sample_weight, params, width, tol, shown)
        found = validate_splits(asked, scoring, error_score)
    if "test_score" not in found:
        raise ValueError(
            f"scoring must return one number; got a dict from {scoring!r}. For several scores, use glru.cross_validate."
        )
    scores: Array = found["test_score"]
    return scores


@check_call
def cross_validate(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    groups: Any = None,
    scoring: Any = None,
    cv: Any = None,
    n_jobs: int | None = None,
    verbose: int = 0,
    params: dict[str, Any] | None = None,
    return_train_score: bool = False,
    return_estimator: bool = False,
    return_indices: bool = False,
    error_score: ErrorScore = math.nan,
    sample_weight: Any = None,
    width: float | None = None,
    tol: float = 1e-6,
    progress: Progress = False,
) -> dict[str, Any]:
    """Certified drop-in for scikit-learn's ``cross_validate``: times and scores of every split.

    Parameters
    ----------
    estimator, X, y, groups, cv, n_jobs, verbose, params, sample_weight, error_score, width, tol, progress
        As in :func:`glru.cross_val_score`.
    scoring : str, callable, list of str or dict of scorers, default=None
        One scorer as in :func:`glru.cross_val_score`, or several: a list of names, or a dict of scorers by name.
    return_train_score, return_estimator : bool, default=False
        Not supported: the models of the splits are not fitted; only their predictions of the test rows are known.
    return_indices : bool, default=False
        Whether the result has the rows of the splits.

    Returns
    -------
    dict of arrays of shape (n_splits,)
        ``"test_score"``, or ``"test_..."`` with the name of each scorer: see :func:`glru.cross_val_score` for its meaning with
        leave-one-out. ``"fit_time"``: seconds; the predictions of all splits are computed together, so every entry is an equal share of
        the total time. ``"score_time"``: seconds of the scorers. ``"indices"`` with ``"train"`` and ``"test"``, if asked for.

    Examples
    --------
    >>> import glru
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    >>> found = glru.cross_validate(pipeline, X, y, cv=3, scoring=["accuracy", "roc_auc"])
    >>> found["test_roc_auc"].round(4)
    array([0.9936, 0.9975, 0.9906])
    """
    _require_estimator("cross_validate", estimator)
    if return_train_score or return_estimator:
        name = "return_train_score" if return_train_score else "return_estimator"
        raise ValueError(
            f"{name}=True needs the fitted models of the splits, but glru.cross_validate knows their predictions of the test rows "
            "only. Use sklearn.model_selection.cross_validate for these, and glru.cross_validate for the test scores."
        )
    shown = progress or verbose > 0
    with use_threads(n_jobs):
        asked = _make_validation(estimator, X, y, cv, groups, sample_weight, params, width, tol, shown)
        return validate_splits(asked, scoring, error_score, return_indices)


@check_call
def stepwise(
    model: Any,
    X: Any = None,
    y: Any = None,
    X_val: Any = None,
    y_val: Any = None,
    *,
    direction: Direction = "backward",
    method: SearchMethod = "certified",
    criterion: CriterionName | None = None,
    max_steps: int | None = None,
    min_features: int = 1,
    max_features: int | None = None,
    forced: bool = False,
    groups: Sequence[Any] | None = None,
    keep: Sequence[Any] = (),
    cv: Any = None,
    sample_weight: Any = None,
    tol: float = 1e-6,
    max_seconds: float | None = None,
    checkpoint: str | Path | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
    progress: Progress = False,
) -> StepwiseResult:
    r"""Stepwise feature selection: the path of training every candidate, each choice proven.

    All methods give the same path as training every candidate: a step takes the move with the smallest criterion;
    in a tie, stopping comes first, then the lowest column. Values of "log_loss" and "squared_error" that differ by less than 1e-9 of the present
    value count as equal, and those of "aic" and "bic" that differ by less than 1e-9 of the rows' total weight. A validation score that is exactly zero is an error whatever its label.

    Where no bound decides (a tie of different models, an optimum that is not unique, an L1 penalty alone with a hinge), trained models
    are compared. Such a step is marked in the printed result, in ``proven`` and in reports.

    Parameters
    ----------
    model : Problem, Solution, estimator or results of statsmodels
        The training problem with all columns, or its solution; or a linear model for two classes or a regression, fitted or not. The steps
        of a pipeline are fitted to the training rows, with ``cv`` again in every fold; a pipeline needs ``cv``
        or validation rows, and the columns are those that its steps produce.
    X, y : array, default=None
        The data of an estimator; a problem and a solution hold theirs.
    X_val, y_val : array of shape (n_validation, n_columns), array of shape (n_validation,), default=None
        The validation rows. Without them (and without ``cv``) the criterion is that of leave-one-out: for smooth losses on tall data the
        held-out scores of every candidate are bounded as tightly as the step needs, otherwise :func:`glru.loocv` validates trained candidates.
    direction : {"backward", "forward", "both"}, default="backward"
        Whether to start from all columns and remove, to start from ``keep`` and add, or to start from all columns and do either.
    method : {"certified", "glru", "naive"}, default="certified"
        ``"certified"``: bounds all candidates of a step at once by Newton steps with certificates, then takes more steps for, or
        trains, the candidates that may still win. ``"glru"``: the paper's Algorithms 4 and 5: the old optimum's bounds,
        then trainings in the order of the lower bounds, with early stopping. ``"naive"``: Algorithm 3, one
        warm-started training per candidate.
    criterion : {"error", "log_loss", "squared_error", "deviance", "aic", "bic"}, default=None
        Number of wrong labels (classification, the default there), mean log-loss (the logistic and the multinomial loss), or mean squared
        error (regression) on the validation rows. A regression on -1 and +1 may also be judged by its wrong labels. Losses with a log or logit
        link are judged by the mean deviance. Or, judged on the training rows, Akaike's or the Bayesian information criterion; see the notes.
    max_steps : int, default=None
        Largest number of steps.
    min_features, max_features : int, default=1, None
        The smallest number of columns when removing, and the largest when adding.
    forced : bool, default=False
        Continue to ``min_features`` or ``max_features`` (or ``max_steps``) even if every move makes the criterion worse.
    groups : sequence, default=None
        One label per column: columns with the same label are removed and added together. Or a list of lists of columns.
    keep : sequence of int or str, default=()
        Columns that always stay.
    cv : int, splitter or iterable of (train, test), default=None
        Instead of validation rows: the criterion over all folds of the problem's own rows.
    sample_weight : array of shape (n_rows,), default=None
        Weights of an estimator's rows in the trainings; every validation row counts once.
    tol : float, default=1e-6
        Relative gap of the model of each step, and of the trainings of "naive".
    n_jobs, verbose
        As in :func:`glru.loocv`.
    progress : bool or callable, default=False
        Show progress, or call ``progress(stage, n_steps, n_features_left)``.
    max_seconds : float, default=None
        Stop the search after this many seconds, if necessary in the middle of a step, and return the path so far.
    checkpoint : str or Path, default=None
        A file that keeps finished steps. A search that was killed, or ended by a limit, continues from it.

    Returns
    -------
    StepwiseResult
        The columns chosen and the path. Ctrl-C ends the search and returns the path so far, as ``max_seconds`` does.

    Notes
    -----
    Rows in blocks are judged on validation rows in memory, by the method "certified": a step takes about five passes over the data for all
    candidates together, and one to three more for each candidate that is still open.

    "aic" is :math:`-2 \log L + 2 k` and "bic" :math:`-2 \log L + k \log n`, with ``L`` the likelihood of the model as it is trained
    (binomial, Poisson, negative binomial, or normal at its best variance), sample weights counted as repeated rows, and ``n`` their sum. ``k`` is the number of
    coefficients, the intercept included, as in statsmodels; R counts the variance of the normal distribution as one more, which
    changes no choice. With a penalty of squares ``k`` is the effective number, the trace of the hat matrix
    :math:`(X^\top D X + \Lambda)^{-1} X^\top D X` with the curvatures ``D`` at the optimum; intervals of it are proven from
    singular values and from bounds of the scores. Losses with a log or logit link have these criteria without a penalty, and ``Gamma`` and ``Tweedie``,
    whose dispersion is not known, not at all.

    Examples
    --------
    >>> import glru
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> problem = glru.Problem(X[:400], y[:400], penalty=glru.L2(0.01))
    >>> result = glru.stepwise(problem, X_val=X[400:], y_val=y[400:])
    >>> result.n_trainings, result.start_value, result.path[0].action
    (0, (4.0, 4.0), 'remove')
    >>> from sklearn.linear_model import LogisticRegression
    >>> model = LogisticRegression(C=0.25, fit_intercept=False)
    >>> same = glru.stepwise(model, X[:400], y[:400], X[400:], y[400:])
    >>> same.selected.tolist() == result.selected.tolist()
    True
    >>> result = glru.stepwise(problem, criterion="aic", max_steps=3)
    >>> [step.feature for step in result.path], result.certified
    ([8, 18, 14], True)
    """
    settings = Settings(
        direction=direction,
        method=method,
        criterion=criterion,
        max_steps=max_steps,
        min_features=min_features,
        max_features=max_features,
        forced=forced,
        groups=groups,
        keep=keep,
        cv=cv,
        tol=tol,
        max_seconds=max_seconds,
        checkpoint=checkpoint,
        progress=progress or verbose > 0,
    )
    with use_threads(n_jobs):
        if X is not None and X_val is None and isinstance(model, Problem | Solution):
            raise TypeError(
                f"a {type(model).__name__} holds its data; glru.stepwise also got X. "
                "Give the validation rows by name: glru.stepwise(problem, X_val=X_val, y_val=y_val)."
            )
        model = _check_model("stepwise", model, tol, X, y, sample_weight, criterion=criterion)
        if is_estimator(model):
            return select_features(adapt(model, X, y, sample_weight), X_val, y_val, settings)
        return search(model, X_val, y_val, settings)


@check_call
def feature_importance(
    model: Any,
    X: Any = None,
    y: Any = None,
    X_val: Any = None,
    y_val: Any = None,
    *,
    criterion: CriterionName | None = None,
    groups: Sequence[Any] | None = None,
    keep: Sequence[Any] = (),
    cv: Any = None,
    sample_weight: Any = None,
    tol: float = 1e-6,
    max_seconds: float | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
    progress: Progress = False,
) -> FeatureImportance:
    """Bound how much worse a model gets when a feature is dropped and the model retrained.

    This is leave-one-covariate-out importance (LOCO): unlike permutation importance, it asks what the model would be without the
    feature; unlike a loop of trainings, it costs a few matrix products for all features together.

    Parameters
    ----------
    model : Problem, Solution, estimator or results of statsmodels
        The training problem with all columns, its solution, or a linear model of scikit-learn, as in :func:`glru.stepwise`.
    X, y : array, default=None
        The data of an estimator; a problem and a solution hold theirs.
    X_val, y_val, cv, sample_weight, tol, n_jobs, verbose
        As in :func:`glru.stepwise`.
    criterion : {"error", "log_loss", "squared_error", "deviance", "aic", "bic"}, default=None
        The criterion whose increase is measured, as in :func:`glru.stepwise`; if not given, the log-loss of a logistic model, the wrong labels of another
        classifier, the mean deviance with a log or logit link, or the squared error of another regression.
    groups : sequence, default=None
        One label per column: columns with the same label, such as the dummies of a category, are left out together. Or a list of
        lists of columns.
    keep : sequence of int or str, default=()
        Columns that are not left out.
    max_seconds : float, default=None
        Return what is known after this many seconds.
    progress : bool or callable, default=False
        Show progress, or call ``progress(stage, n_features_done, n_features)``.

    Returns
    -------
    FeatureImportance
        The increases with their intervals, ranks, a frame and a picture.

    Examples
    --------
    >>> import glru
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    >>> X = (X - X.mean()) / X.std()
    >>> result = glru.feature_importance(LogisticRegression(), X, y, cv=5)
    >>> result.features[result.order[0]], result.n_trainings
    ('worst texture', 0)
    """
    settings = Settings(
        criterion=criterion,
        groups=groups,
        keep=keep,
        cv=cv,
        tol=tol,
        max_seconds=max_seconds,
        progress=progress or verbose > 0,
    )
    with use_threads(n_jobs):
        model = _check_model("feature_importance", model, tol, X, y, sample_weight, criterion=criterion)
        if is_estimator(model):
            return measure_features(adapt(model, X, y, sample_weight), X_val, y_val, settings)
        return measure_importance(model, X_val, y_val, settings)


@check_call
def after(
    model: Any,
    change: Change,
    candidate: CandidateName = "auto",
    bound: BoundName = "auto",
    *,
    X: Any = None,
    y: Any = None,
    sample_weight: Any = None,
    tol: float = 1e-6,
    max_steps: int | None = None,
    max_seconds: float | None = None,
) -> After:
    """Prove bounds on the model that retraining on changed data would give.

    Questions about the result are answered by the old model and by Newton steps of the changed problem. If a label
    that was asked for is still open, a training continues from there and stops as soon as every such label is decided or float64
    cannot decide more; ``max_steps`` and ``max_seconds`` limit that.

    Parameters
    ----------
    model : Solution, Problem, estimator or results of statsmodels
        The trained model. It need not have converged; the bounds are then wider, but still hold. Or a problem, which is trained first, or
        one of scikit-learn's linear models (or this library's), which is trained on ``X`` and ``y``.
    change : Change
        What happens to the data, for example ``glru.RemoveRows([3]) + glru.AddColumns(Z)``.
    candidate : {"auto", "carry", "newton"}, default="auto"
        Where the bounds are centred. ``"carry"``: the old optimum, at a cost proportional to the size of the change.
        ``"newton"``: a few exact Newton steps of the changed problem, far tighter. ``"auto"``: both, where a
        Newton step applies and its system is small enough to solve directly, and a training where steps end early or labels are still open.
    bound : {"auto", "primal", "dual", "local"}, default="auto"
        ``"primal"`` and ``"dual"``: the paper's Primal-SCB and Dual-SCB. ``"local"``: the self-concordance
        certificate (logistic, multinomial or squared loss, or one with a log link, and an L2 penalty; covers an intercept and ``lam = 0``).
        ``"auto"``: the intersection of all that apply.
    X, y, sample_weight : array
        The data of an estimator, before the change.
    tol : float, default=1e-6
        Relative gap of the training of a problem or an estimator.
    max_steps : int, default=None
        Largest number of Newton steps and training iterations for each problem of an estimator; None: no limit, 0: the old model only.
    max_seconds : float, default=None
        Seconds after which a question is answered with what has been proven so far; the clock is read between steps.

    Returns
    -------
    After
        Bounds of scores, labels, coefficients and dual variables. ``decided_by(X)`` counts the
        labels that each stage decides and those that stay open, and ``n_steps`` the steps taken.

    Notes
    -----
    Rows in blocks can be removed, added, or removed and then added. The bounds are those of the local certificate after Newton
    steps, each of which takes one pass over the data, when the function is called.
    A regression has no labels: its intervals are those after the Newton steps.

    Examples
    --------
    >>> import numpy as np, glru
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> solution = glru.solve(glru.Problem(X[:500], y[:500], penalty=glru.L2(0.1)))
    >>> out = glru.after(solution, glru.RemoveRows([3, 17]))
    >>> out.determination_rate(X[500:]), out.decided_by(X[500:])
    (1.0, {'newton': 69})
    >>> from sklearn.linear_model import LogisticRegression
    >>> out = glru.after(LogisticRegression(C=0.1), glru.RemoveRows([3, 17]), X=X[:500], y=y[:500])
    >>> out.needs_retraining(X[500:]).verdict
    'no'
    """
    model = _check_model("after", model, tol, X, y, sample_weight)
    if not is_estimator(model):
        model = solve(model, tol=tol) if isinstance(model, Problem) else model
        part = change_model(model, change, candidate, bound, max_steps, max_seconds)
        return After(Origin(change, part.solution.problem.classes), (part,))
    adapted = adapt(model, X, y, sample_weight)
    solutions = tuple(solve(problem, tol=tol) for problem in adapted.problems)
    return change_models(adapted, solutions, change, candidate, bound, max_steps, max_seconds)


@check_call
def influence(
    model: Any,
    X: Any = None,
    y: Any = None,
    sample_weight: Any = None,
    *,
    width: float = 1e-3,
    tol: float = 1e-8,
    max_seconds: float | None = None,
    max_memory: int | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
    progress: Progress = False,
) -> Influence:
    """How leaving out each row changes a model: exact, proven Cook's distances, DFBETAS, DFFITS and deletion residuals.

    Every quantity refers to models retrained without each row, not to one Newton step, and comes with a proven interval.

    Parameters
    ----------
    model : Problem, Solution, estimator or results of statsmodels
        The model. A problem is trained first; a solution is used as it is. An estimator is one of scikit-learn's linear models or of this
        library's with one score per row, fitted or not, without preprocessing steps.
    X, y, sample_weight : array, default=None
        The data of an estimator; a problem and a solution hold theirs.
    width : float, default=1e-3
        How accurately the change of the model without a row is to be known, in the norm of the Hessian: relative to the length of that
        change or to the root mean square of all lengths, whichever is larger. Rows known less accurately are refined, cheapest methods first.
    tol : float, default=1e-8
        Relative gap of the first training; Newton steps remove the remaining error.
    max_seconds : float, default=None
        Start nothing new after this many seconds; the intervals are then wider, but still hold.
    max_memory : int, default=None
        Limit in bytes for the work arrays of a batch of rows; 2 GiB if not given.
    n_jobs, verbose, progress
        As in :func:`glru.loocv`.

    Returns
    -------
    Influence
        Intervals of all quantities, ``top(k)`` for a proven ranking, ``dfbetas(rows)``, ``fitted_changes(rows)``, ``to_frame()``, ``plot()``.

    Examples
    --------
    >>> import glru
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> result = glru.influence(glru.Problem(X, y, penalty=glru.L2(0.01)))
    >>> top = result.top(3)
    >>> top.rows, top.certified
    (array([213, 297,  38]), True)
    >>> lower, upper = result.measure_bounds("cooks_distance")
    >>> bool((lower <= upper).all()), result.n_trainings
    (True, 0)
    """
    limits = max_seconds, max_memory, progress or verbose > 0
    with use_threads(n_jobs):
        fit = adapt_results(model) if is_statsmodels(model) else None
        counted, power = (None, None) if fit is None else (fit.n_observations, fit.variance_power)
        problem = _make_deletion_problem("influence", model, tol, X, y, sample_weight)
        return compute_influence(problem, counted, power, width, tol, *limits)


@check_call
def jackknife(
    model: Any,
    X: Any = None,
    y: Any = None,
    sample_weight: Any = None,
    *,
    groups: Any = None,
    center: Center | None = None,
    width: float = 1e-3,
    tol: float = 1e-8,
    max_seconds: float | None = None,
    max_memory: int | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
    progress: Progress = False,
) -> Jackknife:
    """Jackknife covariance, standard errors and bias of the coefficients, proven, from exact models without each row or group.

    Parameters
    ----------
    model, X, y, sample_weight
        As in :func:`glru.influence`.
    groups : array of shape (n_rows,), default=None
        Leave out the rows of one group at a time (the cluster jackknife, CRV3); single rows if not given.
    center : {"estimate", "mean"}, default=None
        The centre of the covariance: the model of all rows, or the mean of the models. If not given, the mean for single rows (the
        jackknife of Tukey), the model of all rows for groups (CRV3).
    width, tol, max_seconds, max_memory, n_jobs, verbose, progress
        As in :func:`glru.influence`.

    Returns
    -------
    Jackknife
        ``covariance``, ``standard_errors`` and ``bias`` with their certified ends, ``confidence_interval()``, ``to_frame()``.

    Examples
    --------
    >>> import numpy as np, glru
    >>> from sklearn.linear_model import LinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.normal(size=(300, 2)), np.repeat(np.arange(30), 10)
    >>> y = X[:, 0] + rng.normal(size=300) + np.repeat(rng.normal(size=30), 10)
    >>> result = glru.jackknife(LinearRegression(), X, y, groups=groups)
    >>> result.standard_errors.shape, result.n_trainings
    ((3,), 0)
    >>> lower, upper = result.standard_error_bounds
    >>> bool((upper - lower < 1e-9).all())
    True
    """
    limits = max_seconds, max_memory, progress or verbose > 0
    with use_threads(n_jobs):
        problem = _make_deletion_problem("jackknife", model, tol, X, y, sample_weight)
        return compute_jackknife(problem, groups, center, width, tol, *limits)


def _check_model(
    function: str,
    model: Any,
    tol: float,
    X: Any,
    y: Any,
    sample_weight: Any,
    params: Any = None,
    criterion: str | None = None,
) -> Any:
    """The model, checked to come with its data or to hold it: an estimator, a problem, or a solution, also of a fit of statsmodels."""
    holds = f"a {type(model).__name__} holds its data"
    if not isinstance(model, Problem | Solution) and is_statsmodels(model):
        fit, holds = adapt_results(model), "a fit of statsmodels holds its data"
        fit.refuse_information(criterion)
        model = train(fit.problem, tol=tol, start=fit.point)
    if is_estimator(model) and (X is None or y is None):
        call = "after(estimator, change, X=X, y=y)" if function == "after" else f"{function}(estimator, X, y)"
        raise ValueError(
            f"an estimator does not keep its data; got no X or no y for {type(model).__name__}. Call glru.{call}."
        )
    given = {"X": X, "y": y, "sample_weight": sample_weight, "params": params}
    names = [name for name, value in given.items() if value is not None]
    if names and isinstance(model, Problem | Solution):
        raise TypeError(
            f"{holds}; glru.{function} also got {', '.join(names)}. "
            f"Leave {'it' if len(names) == 1 else 'them'} out, and give options by name."
        )
    return model


def _make_deletion_problem(function: str, model: Any, tol: float, X: Any, y: Any, sample_weight: Any) -> Any:
    """The one problem of a model whose rows are left out."""
    model = _check_model(function, model, tol, X, y, sample_weight)
    if not is_estimator(model):
        return model
    adapted = adapt(model, X, y, sample_weight)
    if adapted.shifts is not None:
        raise ValueError(
            f"glru.{function} leaves out rows and changes nothing else, but without a row {adapted.shifts}. "
            "Give the model alone, with X as transformed by the steps, and numeric weights."
        )
    if len(adapted.problems) > 1:
        raise ValueError(
            f"glru.{function} is for models with one score per row; got {len(adapted.problems)} classes. Ask about one class against the rest."
        )
    return adapted.problems[0]


@check_call
def certify(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> ModelCertificate:
    """Bound how far a fitted linear model is from the optimum of its objective, and say which of its labels are proven.

    The objective at the fitted coefficients is compared with that of a dual point, from Newton steps that start at the
    coefficients (a training only where the loss has no curvature or the data is large). The estimator is not changed.

    Parameters
    ----------
    estimator : estimator
        A fitted linear model, as in :func:`glru.cross_val_predict`; also ``LogisticRegressionCV``, ``RidgeCV``,
        ``RidgeClassifierCV``, ``LassoCV`` and ``ElasticNetCV`` at the strength that they chose.
    X, y, sample_weight : array
        What it was fitted to.

    Returns
    -------
    ModelCertificate
        Gap and radius, bounds of the optimum's scores, labels that are proven.

    Examples
    --------
    >>> import glru
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> proof = glru.certify(LogisticRegression().fit(X, y), X, y)
    >>> proof.relative_gap < 1e-4, bool(proof.decided(X).all())
    (True, True)
    """
    if isinstance(estimator, Problem | Solution):
        raise TypeError(
            f"certify is for a fitted estimator; got a {type(estimator).__name__}. The solution of glru.solve has a certificate of its own."
        )
    return certify_estimator(estimator, X, y, sample_weight)


def _refuse(where: str, **options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{name} has no meaning for {where}. Leave it out; got {value!r}.")


def _require_estimator(function: str, model: Any) -> None:
    if isinstance(model, Problem | Solution):
        raise TypeError(
            f"{function} is for an estimator; got a {type(model).__name__}. "
            'Use glru.cross_val_predict(problem, cv=5).metric_bounds("accuracy").'
        )


def _make_validation(
    estimator: Any, X: Any, y: Any, cv: Any, groups: Any, sample_weight: Any, params: dict[str, Any] | None, *how: Any
) -> Validation:
    """What is asked of an estimator's splits; ``params`` may hold the weights of its rows, and parameters of the steps before it."""
    weight, others = split_params(estimator, params) if params else (None, None)
    if sample_weight is not None and weight is not None:
        raise ValueError(f"give sample_weight or params={{{name_weight(estimator)!r}: ...}}, not both.")
    return Validation(estimator, X, y, cv, groups, sample_weight if weight is None else weight, others, *how)
