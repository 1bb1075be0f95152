"""Selectors of features for scikit-learn: stepwise selection, and recursive elimination with cross-validation, every choice proven."""

from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.feature_selection import RFECV, SelectorMixin
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from glru._options import (
    Budget,
    CriterionName,
    Direction,
    OutOfTime,
    Scoring,
    SearchMethod,
    check_options,
    suggest_options,
    warn_caller,
)
from glru.cascade import reporter
from glru.linalg import Array, use_threads
from glru.selection.contest import Contest
from glru.selection.criteria import find_criterion
from glru.selection.elimination import Judged, Stage, eliminate, sizes_of
from glru.selection.search import Settings, folds_of
from glru.sklearn.adapt import Adapted, adapt
from glru.sklearn.estimators.linear import keep_arguments, validate_input
from glru.sklearn.preprocessing import name_weight
from glru.sklearn.questions import prepare_search, select_features

CRITERIA: dict[Scoring, CriterionName] = {
    "accuracy": "error",
    "r2": "squared_error",
    "neg_log_loss": "log_loss",
    "neg_mean_squared_error": "squared_error",
}
"""The criterion from which each of scikit-learn's scores is computed."""


def _adapt_columns(estimator: Any, X: Any, y: Any, sample_weight: Any = None) -> Adapted:
    """The problems of an estimator, whose steps must keep the number of columns."""
    adapted = adapt(estimator, X, y, sample_weight)
    n_columns = adapted.problems[0].n_columns - adapted.offset
    if n_columns != X.shape[1]:
        raise ValueError(
            f"the steps in front of the model must keep the {X.shape[1]} columns, so that some of them can be chosen; they make "
            f"{n_columns}. Put such steps before the selector."
        )
    return adapted


def _count_features(wanted: Any, n_features: int, forward: bool, until_tol: bool) -> int | None:
    """The number of features to select, the last one that is tried where ``until_tol``; None if it is not fixed."""
    if wanted is None:
        return None
    if wanted == "auto":
        # Half of the features, or all but one, come or leave.
        n_moves = n_features - 1 if until_tol else n_features // 2
        return max(n_moves if forward else n_features - n_moves, 1)
    share = isinstance(wanted, float)
    number = int(n_features * wanted) if share else wanted
    if (
        isinstance(number, bool)
        or not isinstance(number, int | np.integer)
        or not 0 < number < n_features
        or (share and wanted > 1)
    ):
        raise ValueError(
            f"n_features_to_select must be 'auto', a number between 1 and {n_features - 1}, or a share of the {n_features} features; "
            f"got {wanted!r}."
        )
    return int(number)


class StepwiseSelector(SelectorMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Stepwise selection of features by certified validation, for pipelines.

    Selects the same features as training every candidate in every step (:func:`glru.stepwise`).

    Parameters
    ----------
    estimator : estimator
        A linear classifier (with more than two classes, one model of all of them) or regression, of scikit-learn or of this library; or a
        pipeline that ends in one. The steps of a pipeline (scalers) must keep the number of columns; they are fitted to the training rows, in every
        fold anew.
    direction : {"backward", "forward", "both"}, default="backward"
        Whether to remove features, to add them, or to do either.
    validation : float, (X_val, y_val), "loo", int, splitter or iterable, default=0.1
        The validation rows: a share of the data drawn at random (stratified for a classifier), separate rows,
        leave-one-out, or folds as in scikit-learn.
    criterion : {"auto", "error", "log_loss", "squared_error", "deviance", "aic", "bic"}, default="auto"
        What to minimise; "auto" is "error" for a classifier, "squared_error" for a regressor, and "deviance" for one with a log link. "aic" and
        "bic" are computed from the training rows, without ``validation``.
    method : {"certified", "glru", "naive"}, default="certified"
        As in :func:`glru.stepwise`.
    max_steps, min_features, max_features, forced, groups, keep, max_seconds, checkpoint, progress
        As in :func:`glru.stepwise`.
    n_features_to_select : "auto", int or float, default=None
        As in scikit-learn's ``SequentialFeatureSelector``: stop at this number or share of the features, whatever the criterion says.
        "auto" is half of them (rounded down when adding, up when removing), or, with ``tol``, as many as that requires. If not given, the search ends when no step improves the criterion.
    tol : float, default=None
        With ``n_features_to_select="auto"``: stop before a step (other than the first) that improves the score by less than this.
    scoring : {"accuracy", "r2", "neg_log_loss", "neg_mean_squared_error"}, default=None
        The criterion by its name in scikit-learn; the score is then the mean over the folds, as in scikit-learn. If several features have the same mean accuracy
        in float64, the first one is taken, as in scikit-learn. Scores that are not sums over rows ("roc_auc", "f1", "balanced_accuracy") are not supported.
    cv : int, splitter or iterable, default=None
        Folds, instead of ``validation``.
    training_tol : float, default=1e-6
        Relative gap of the model of each step.
    n_jobs : int, default=None
        Threads, as in :func:`glru.loocv`.
    random_state : int, default=None
        Seed of the random share of rows.

    Attributes
    ----------
    support_ : array of bool of shape (n_features,)
        The features chosen.
    result_ : StepwiseResult
        The path, with what each step proved.
    estimator_ : estimator
        The model fitted to all rows with these features.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import glru
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> selector = glru.StepwiseSelector(LogisticRegression(), validation=0.2, random_state=0)
    >>> model = make_pipeline(StandardScaler(), selector, LogisticRegression()).fit(X, y)
    >>> selector.result_.n_trainings, selector.result_.certified
    (0, True)
    """

    @suggest_options
    def __init__(
        self,
        estimator: Any,
        direction: Direction = "backward",
        validation: Any = 0.1,
        criterion: CriterionName | Literal["auto"] = "auto",
        method: SearchMethod = "certified",
        max_steps: int | None = None,
        min_features: int = 1,
        max_features: int | None = None,
        forced: bool = False,
        groups: Any = None,
        keep: Any = (),
        *,
        n_features_to_select: Any = None,
        tol: float | None = None,
        scoring: Scoring | None = None,
        cv: Any = None,
        training_tol: float = 1e-6,
        max_seconds: float | None = None,
        checkpoint: str | Path | None = None,
        n_jobs: int | None = None,
        progress: Any = False,
        random_state: Any = None,
    ) -> None:
        keep_arguments(self, locals())

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "StepwiseSelector":
        """Choose features.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_rows, n_features)
            Data.
        y : array of shape (n_rows,)
            Labels, or targets.
        sample_weight : array of shape (n_rows,), default=None
            Weights of the rows in the trainings; every validation row counts once.
        """
        check_options(type(self).__name__, self.get_params(deep=False))
        matrix, targets = validate_input(self, X, y=y, accept_sparse="csr", dtype=np.float64, ensure_min_samples=2)
        classifier = is_classifier(self.estimator)
        train, X_val, y_val, cv = self._rows(matrix, targets, classifier)
        weight = None if sample_weight is None else np.asarray(sample_weight)[train]
        settings = self._settings(matrix.shape[1], cv)
        with use_threads(self.n_jobs):
            adapted = _adapt_columns(self.estimator, matrix[train], targets[train], weight)
            self.result_ = select_features(adapted, X_val, y_val, settings)
        if hasattr(self, "feature_names_in_"):
            self.result_ = self.result_.with_names(self.feature_names_in_)
        if self.result_.interrupted:
            again = "Raise max_seconds" if self.checkpoint is None else "Fit again to go on from the checkpoint"
            n_left = self.result_.selected.size
            warn_caller(f"the selection ended after {len(self.result_.path)} steps, with {n_left} features. {again}.")
        self.support_ = np.zeros(matrix.shape[1], dtype=bool)
        self.support_[self.result_.selected] = True
        fit_options = {} if sample_weight is None else {name_weight(self.estimator): sample_weight}
        self.estimator_ = clone(self.estimator).fit(matrix[:, self.support_], targets, **fit_options)
        return self

    def _settings(self, n_features: int, cv: Any) -> Settings:
        """The options of the search, translated from scikit-learn's."""
        criterion = None if self.criterion == "auto" else self.criterion
        forward = self.direction == "forward"
        target = _count_features(self.n_features_to_select, n_features, forward, self.tol is not None)
        if self.tol is not None and self.n_features_to_select != "auto":
            raise ValueError(f"tol goes with n_features_to_select='auto'; got {self.n_features_to_select!r}.")
        least, most = self.min_features, self.max_features
        if target is not None:
            least, most = (least, target) if forward else (target, most)
        return Settings(
            direction=self.direction,
            method=self.method,
            criterion=criterion if self.scoring is None else CRITERIA[self.scoring],
            max_steps=self.max_steps,
            min_features=least,
            max_features=most,
            forced=self.forced or self.n_features_to_select is not None,
            gain=self.tol,
            fold_means=cv is not None and ("r2" if self.scoring == "r2" else self.scoring is not None),
            groups=self._places(self.groups),
            keep=self._places(self.keep),
            cv=cv,
            tol=self.training_tol,
            max_seconds=self.max_seconds,
            checkpoint=self.checkpoint,
            progress=self.progress,
        )

    def _rows(self, X: Any, y: Any, classifier: bool) -> tuple[NDArray[np.intp], Any, Any, Any]:
        """The rows to train on, and the validation rows with their targets, or the folds."""
        every, judge = np.arange(X.shape[0]), self.validation if self.cv is None else self.cv
        if self.criterion in ("aic", "bic") and self.scoring is None:
            return every, None, None, None
        if isinstance(judge, tuple) and len(judge) == 2:
            return every, validate_input(self, judge[0], reset=False, accept_sparse="csr"), judge[1], None
        if judge is None or (isinstance(judge, str) and judge == "loo"):
            return every, None, None, None
        if isinstance(judge, float):
            train, val = train_test_split(
                every, test_size=judge, random_state=self.random_state, stratify=y if classifier else None
            )
            train, val = np.sort(train), np.sort(val)
            return train, X[val], y[val], None
        return every, None, None, judge

    def _places(self, columns: Any) -> Any:
        """Column names, one or several or lists of them, as positions; labels, which are no names, unchanged."""
        names = getattr(self, "feature_names_in_", None)
        columns = [columns] if isinstance(columns, str) else columns
        if columns is None or names is None:
            return columns
        place = {name: j for j, name in enumerate(names.tolist())}
        # One label per column is no list of names.
        labels = columns is self.groups and not all(isinstance(value, list | np.ndarray) for value in columns)

        def locate(value: Any) -> Any:
            if isinstance(value, list | np.ndarray):
                return [locate(one) for one in value]
            if isinstance(value, str) and value not in place and not labels:
                raise ValueError(f"columns must be among those of X, {names.tolist()}; got {value!r}.")
            return place.get(value, value) if isinstance(value, str) else value

        return columns if labels else [locate(value) for value in columns]

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self)
        return self.support_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        return tags


class CertifiedRFECV(RFECV):  # type: ignore[misc]
    """Recursive feature elimination with cross-validation, as in scikit-learn's ``RFECV``, with proof.

    In every fold, and then on all rows, the features with the smallest coefficients are eliminated step by step. Coefficients and held-out scores are
    intervals that contain those of the exact optimum, so neither the eliminated features nor the best number of features depends on how far a model
    was trained.

    Parameters
    ----------
    estimator : estimator
        A linear model for two classes or a regression, of scikit-learn or of this library.
    step : int or float, default=1
        The number of features eliminated at a time, or their share of all features.
    min_features_to_select : int, default=1
        The number of features at which the elimination ends.
    cv : int, splitter or iterable, default=None
        Folds as in scikit-learn.
    scoring : {"accuracy", "r2", "neg_log_loss", "neg_mean_squared_error"}, default=None
        The score; None is "accuracy" for a classifier and "r2" for a regressor, as in scikit-learn.
    verbose : int, default=0
        Above 0: show progress on the terminal.
    n_jobs : int, default=None
        Threads, as in :func:`glru.loocv`.
    importance_getter : str, default="auto"
        Features are eliminated by their coefficients; ``"auto"`` and ``"coef_"`` mean the same.
    training_tol : float, default=1e-8
        Relative gap of the trainings from which bounds are narrowed.
    max_seconds : float, default=None
        Time limit in seconds; ``fit`` raises a TimeoutError if it is exceeded.

    Attributes
    ----------
    support_, ranking_ : array of shape (n_features,)
        Which features were chosen, and the ranks of all, 1 for the chosen ones.
    n_features_ : int
        The number of chosen features.
    estimator_ : estimator
        Trained on all rows and the chosen features.
    n_features_in_ : int
        The number of features in the data.
    feature_names_in_ : array of str
        Their names, if X had any.
    cv_results_ : dict
        As in scikit-learn, with proven ends of the scores as ``"mean_test_score_lower"`` and ``"mean_test_score_upper"``, and
        ``"split0_test_score_lower"`` and so on for each fold.
    certified_ : bool
        Whether every choice is proven: the eliminated features and the number of features. Equal coefficients, such as those of
        duplicates, cannot be distinguished; then the first one is eliminated.

    Examples
    --------
    >>> import glru
    >>> from sklearn.datasets import make_classification
    >>> from sklearn.linear_model import LogisticRegression
    >>> X, y = make_classification(300, 12, n_informative=3, n_redundant=0, random_state=2)
    >>> selector = glru.CertifiedRFECV(LogisticRegression(), cv=5).fit(X, y)
    >>> selector.n_features_, selector.certified_
    (3, True)
    """

    @suggest_options
    def __init__(
        self,
        estimator: Any,
        *,
        step: float = 1,
        min_features_to_select: int = 1,
        cv: Any = None,
        scoring: Scoring | None = None,
        verbose: int = 0,
        n_jobs: int | None = None,
        importance_getter: Literal["auto", "coef_"] = "auto",
        training_tol: float = 1e-8,
        max_seconds: float | None = None,
    ) -> None:
        keep_arguments(self, locals())

    def fit(self, X: Any, y: Any) -> "CertifiedRFECV":
        """Choose features.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_rows, n_features)
            Data.
        y : array of shape (n_rows,)
            Labels, or targets.
        """
        check_options(type(self).__name__, self.get_params(deep=False))
        matrix, targets = validate_input(self, X, y=y, accept_sparse="csr", dtype=np.float64, ensure_min_samples=2)
        if isinstance(self.estimator, Pipeline):
            raise ValueError(
                "coefficients are those of the columns as they are; got a pipeline. Put its other steps before the selector."
            )
        scoring: Scoring = self.scoring or ("accuracy" if is_classifier(self.estimator) else "r2")
        try:
            with use_threads(self.n_jobs), np.errstate(all="ignore"):
                self._eliminate(matrix, targets, scoring)
        except OutOfTime:
            raise TimeoutError(f"the elimination takes more than max_seconds={self.max_seconds!r}.") from None
        self.estimator_ = clone(self.estimator).fit(matrix[:, self.support_], targets)
        return self

    def _eliminate(self, X: Any, y: Any, scoring: Scoring) -> None:
        settings = Settings(criterion=CRITERIA[scoring], cv=5 if self.cv is None else self.cv, tol=self.training_tol)
        adapted = _adapt_columns(self.estimator, X, y)
        problem, _, settings = prepare_search(adapted, None, None, settings)
        if problem.loss.several:
            raise ValueError(
                "features are ranked by one coefficient each; got more than two classes, with one coefficient for each class. "
                "Use glru.StepwiseSelector, or one class against the rest."
            )
        criterion, budget = find_criterion(settings.criterion, problem), Budget(self.max_seconds)
        n_features, offset = X.shape[1], adapted.offset
        sizes = sizes_of(n_features, self.step, min(self.min_features_to_select, n_features))
        folds = folds_of(problem, settings)
        divisors = _compute_divisors(folds, scoring)
        paths = []
        with reporter(self.verbose > 0) as report:
            for fold, test in folds:
                judged = Judged(fold.matrix[test], fold.y[test], criterion)
                paths.append(list(eliminate(fold, sizes, offset, self.training_tol, budget, judged)))
                report("folds", len(paths), len(folds))
        best, chosen_proven = _find_best(paths, divisors)
        last = list(eliminate(problem, sizes[: best + 1], offset, self.training_tol, budget))
        self.support_, self.ranking_ = _rank_features(last, offset, n_features)
        self.n_features_ = int(self.support_.sum())
        self.certified_ = chosen_proven and all(stage.proven for path in [*paths, last] for stage in path)
        self.cv_results_ = _make_results(paths, divisors, scoring, sizes, offset, n_features)


def _compute_divisors(folds: Any, scoring: str) -> list[Fraction]:
    """What the sums of every fold are divided by, exactly: its rows, or for "r2" the sum of squares around their mean."""
    if scoring != "r2":
        return [Fraction(test.size) for _, test in folds]
    if any(test.size < 2 for _, test in folds):
        raise ValueError("scoring='r2' needs two rows in every fold. Use scoring='neg_mean_squared_error'.")
    return [_sum_squares(fold.y[test]) for fold, test in folds]


def _sum_squares(y: Array) -> Fraction:
    """The exact sum of squares around the mean."""
    ratios = [value.as_integer_ratio() for value in y.tolist()]
    unit = max(denominator for _, denominator in ratios)
    values = [numerator * (unit // denominator) for numerator, denominator in ratios]
    return Fraction(len(values) * sum(v * v for v in values) - sum(values) ** 2, len(values) * unit**2)


def _sum_folds(paths: list[list[Stage]], divisors: list[Fraction], name: str) -> list[Any]:
    """The exact sums over the folds of sums divided, or infinity, for all numbers of features, the fewest first.

    Where the targets of a fold are all equal, scikit-learn's "r2" is 0 unless all of them are met: a sum above 0 counts as 1.
    """
    found = []
    for stages in zip(*(path[::-1] for path in paths), strict=True):
        sums = [getattr(stage, name) for stage in stages]
        parts = [
            Fraction(s > 0.0) if by == 0 else Fraction(s) / by if np.isfinite(s) else np.inf
            for s, by in zip(sums, divisors, strict=True)
        ]
        found.append(np.inf if np.inf in parts else sum(parts))
    return found


def _find_best(paths: list[list[Stage]], divisors: list[Fraction]) -> tuple[int, bool]:
    """The place of the number of features whose mean score is best, the smallest number among equal ones, and whether that is proven."""
    lower, upper, guess = (
        np.array(_sum_folds(paths, divisors, name), dtype=object) for name in ("lower", "upper", "guess")
    )
    for ends in ((lower, upper), (guess, guess)):
        # The fewest features come first.
        winner = Contest(*ends, 0).winner
        if winner is not None:
            return len(paths[0]) - 1 - winner, ends[0] is lower
    raise AssertionError("a contest of numbers has a winner.")


def _rank_features(stages: list[Stage], offset: int, n_features: int) -> tuple[Any, Any]:
    """The features of the last stage, and the ranks: those eliminated last have rank 2."""
    support, ranking = np.zeros(n_features, dtype=bool), np.ones(n_features, dtype=int)
    for stage in stages:
        support[:] = False
        support[stage.columns[offset:] - offset] = True
        ranking[~support] += 1
    return support, ranking


def _make_results(
    paths: list[list[Stage]], divisors: list[Fraction], scoring: str, sizes: list[int], offset: int, n_features: int
) -> dict[str, Any]:
    """The table of all numbers of features, the fewest first."""
    found: dict[str, Any] = {}
    one = 1 if scoring in ("accuracy", "r2") else 0
    # A score is high where its sum is low.
    for suffix, name, way in (("", "guess", 0.0), ("_lower", "upper", -np.inf), ("_upper", "lower", np.inf)):

        def scores(
            some: list[list[Stage]], by: list[Fraction], name: str = name, way: float = way
        ) -> NDArray[np.float64]:
            return np.array([_round_score(total, len(some), one, way) for total in _sum_folds(some, by, name)])

        found[f"mean_test_score{suffix}"] = scores(paths, divisors)
        for k, (path, divisor) in enumerate(zip(paths, divisors, strict=True)):
            found[f"split{k}_test_score{suffix}"] = scores([path], [divisor])
    found["std_test_score"] = np.std([found[f"split{k}_test_score"] for k in range(len(paths))], axis=0)
    for k, path in enumerate(paths):
        tables = [_rank_features(path[: place + 1], offset, n_features) for place in range(len(path))][::-1]
        found[f"split{k}_support"] = np.array([support for support, _ in tables])
        found[f"split{k}_ranking"] = np.array([ranking for _, ranking in tables])
    return found | {"n_features": np.array(sizes[::-1])}


def _round_score(total: Any, n_folds: int, one: int, way: float) -> float:
    """``one - total / n_folds`` as a float64, rounded to nearest or in one direction."""
    if total == np.inf:
        return -np.inf
    exact = one - total / n_folds
    try:
        score = float(exact)
    except OverflowError:
        return -np.inf if way <= 0.0 else -float(np.finfo(np.float64).max)
    return score if way == 0.0 or Fraction(score) == exact else float(np.nextafter(score, way))
