"""A scikit-learn selector that chooses features with proof."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.feature_selection import SelectorMixin
from sklearn.model_selection import train_test_split
from sklearn.utils.validation import check_is_fitted

from glru._options import check_options, suggest_options
from glru.linalg import use_threads
from glru.selection import Settings
from glru.sklearn.estimators.linear import validate_input
from glru.sklearn.preprocessing import name_weight
from glru.sklearn.stepwise import select_features

SCORING: dict[str, Literal["error", "log_loss", "squared_error"]] = {
    "accuracy": "error",
    "neg_log_loss": "log_loss",
    "neg_mean_squared_error": "squared_error",
}
"""The criterion that each scikit-learn score corresponds to."""


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
        A linear model for classes (one model of all of them, if there are more than two) or a regression, of scikit-learn or of this library; or a pipeline that ends in one, whose steps
        (scalers) are fitted to the training rows, again in every fold, and keep the number of columns.
    direction : {"backward", "forward", "both"}, default="backward"
        Whether to remove features, to add them, or to do either.
    validation : float, (X_val, y_val), "loo", int, splitter or iterable, default=0.1
        The validation rows: a share of the data drawn at random (stratified for a classifier), separate rows,
        leave-one-out, or folds as in scikit-learn.
    criterion : {"auto", "error", "log_loss", "squared_error", "aic", "bic"}, default="auto"
        What to minimise; "auto" is "error" for a classifier and "squared_error" for a regressor. "aic" and "bic" judge by the training
        rows, without ``validation``.
    method : {"certified", "glru", "naive"}, default="certified"
        As in :func:`glru.stepwise`.
    max_steps, min_features, max_features, forced, groups, keep, max_seconds, checkpoint, progress
        As in :func:`glru.stepwise`.
    n_features_to_select : "auto", int or float, default=None
        As in scikit-learn's ``SequentialFeatureSelector``: stop at this number or share of the features, whatever the criterion says.
        "auto" is half of them (of an odd number, one more is left than removed), or, with ``tol``, as many as that requires. If not given, the search ends when no step is better.
    tol : float, default=None
        With ``n_features_to_select="auto"``: stop before a step (other than the first) that improves the score by less than this.
    scoring : {"accuracy", "neg_log_loss", "neg_mean_squared_error"}, default=None
        The criterion by its name in scikit-learn; the score is then the mean over the folds of their means, as in scikit-learn. Of features with the same mean accuracy, compared
        in float64 with its rounding as scikit-learn does, the first one is taken.
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
        direction: Literal["backward", "forward", "both"] = "backward",
        validation: Any = 0.1,
        criterion: Literal["auto", "error", "log_loss", "squared_error", "aic", "bic"] = "auto",
        method: Literal["certified", "glru", "naive"] = "certified",
        max_steps: int | None = None,
        min_features: int = 1,
        max_features: int | None = None,
        forced: bool = False,
        groups: Any = None,
        keep: Any = (),
        *,
        n_features_to_select: Any = None,
        tol: float | None = None,
        scoring: Literal["accuracy", "neg_log_loss", "neg_mean_squared_error"] | None = None,
        cv: Any = None,
        training_tol: float = 1e-6,
        max_seconds: float | None = None,
        checkpoint: str | Path | None = None,
        n_jobs: int | None = None,
        progress: Any = False,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.direction = direction
        self.validation = validation
        self.criterion = criterion
        self.method = method
        self.max_steps = max_steps
        self.min_features = min_features
        self.max_features = max_features
        self.forced = forced
        self.groups = groups
        self.keep = keep
        self.n_features_to_select = n_features_to_select
        self.tol = tol
        self.scoring = scoring
        self.cv = cv
        self.training_tol = training_tol
        self.max_seconds = max_seconds
        self.checkpoint = checkpoint
        self.n_jobs = n_jobs
        self.progress = progress
        self.random_state = random_state

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
        data = validate_input(self, X, y=y, accept_sparse="csr", dtype=np.float64, ensure_min_samples=2)
        matrix, targets = data
        classifier = is_classifier(self.estimator)
        train, X_val, y_val, cv = self._rows(matrix, targets, classifier)
        weight = None if sample_weight is None else np.asarray(sample_weight)[train]
        settings = self._settings(classifier, matrix.shape[1], cv)
        with use_threads(self.n_jobs):
            self.result_ = select_features(
                self.estimator, matrix[train], targets[train], X_val, y_val, weight, settings, keeps_columns=True
            )
        self.support_ = np.zeros(matrix.shape[1], dtype=bool)
        self.support_[self.result_.selected] = True
        fit_options = {} if sample_weight is None else {name_weight(self.estimator): sample_weight}
        self.estimator_ = clone(self.estimator).fit(matrix[:, self.support_], targets, **fit_options)
        return self

    def _settings(self, classifier: bool, n_features: int, cv: Any) -> Settings:
        """The options of the search, translated from scikit-learn's."""
        criterion = ("error" if classifier else "squared_error") if self.criterion == "auto" else self.criterion
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
            criterion=criterion if self.scoring is None else SCORING[self.scoring],
            max_steps=self.max_steps,
            min_features=least,
            max_features=most,
            forced=self.forced or self.n_features_to_select is not None,
            gain=self.tol,
            fold_means=self.scoring is not None and cv is not None,
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
        """Column names as positions; anything else unchanged."""
        names = getattr(self, "feature_names_in_", None)
        if columns is None or names is None:
            return columns
        place = {name: j for j, name in enumerate(names.tolist())}

        def locate(value: Any) -> Any:
            if isinstance(value, list | np.ndarray):
                return [locate(one) for one in value]
            return place.get(value, value) if isinstance(value, str) else value

        return [locate(value) for value in columns]

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self)
        return self.support_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        return tags
