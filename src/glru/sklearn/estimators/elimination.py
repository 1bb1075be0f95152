"""scikit-learn's recursive feature elimination with cross-validation, every choice and every score proven."""

from fractions import Fraction
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.feature_selection import RFECV
from sklearn.pipeline import Pipeline

from glru._budget import Budget, OutOfTime
from glru._options import check_options, suggest_options
from glru.cascade import reporter
from glru.linalg import Array, use_threads
from glru.selection.contest import Contest
from glru.selection.criteria import find_criterion
from glru.selection.elimination import Judged, Stage, eliminate, sizes_of
from glru.selection.search import Settings, folds_of
from glru.sklearn.estimators.linear import validate_input
from glru.sklearn.stepwise import prepare

Scoring = Literal["accuracy", "r2", "neg_log_loss", "neg_mean_squared_error"]

CRITERIA: dict[str, Literal["error", "log_loss", "squared_error"]] = {
    "accuracy": "error",
    "r2": "squared_error",
    "neg_log_loss": "log_loss",
    "neg_mean_squared_error": "squared_error",
}
"""The sums that each score is made of."""


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
        super().__init__(
            estimator,
            step=step,
            min_features_to_select=min_features_to_select,
            cv=cv,
            scoring=scoring,
            verbose=verbose,
            n_jobs=n_jobs,
            importance_getter=importance_getter,
        )
        self.training_tol = training_tol
        self.max_seconds = max_seconds

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
        scoring = self._scoring(is_classifier(self.estimator))
        try:
            with use_threads(self.n_jobs), np.errstate(all="ignore"):
                self._eliminate(matrix, targets, scoring)
        except OutOfTime:
            raise TimeoutError(f"the elimination takes more than max_seconds={self.max_seconds!r}.") from None
        self.estimator_ = clone(self.estimator).fit(matrix[:, self.support_], targets)
        return self

    def _scoring(self, classifier: bool) -> str:
        """The name of the score, after checking the options."""
        if isinstance(self.estimator, Pipeline):
            raise ValueError(
                "coefficients are those of the columns as they are; got a pipeline. Put its other steps before the selector."
            )
        return self.scoring or ("accuracy" if classifier else "r2")

    def _eliminate(self, X: Any, y: Any, scoring: str) -> None:
        settings = Settings(criterion=CRITERIA[scoring], cv=5 if self.cv is None else self.cv, tol=self.training_tol)
        problem, _, settings, offset = prepare(self.estimator, X, y, None, None, None, settings, keeps_columns=True)
        if problem.loss.several:
            raise ValueError(
                "features are ranked by one coefficient each; got more than two classes, with one coefficient for each class. "
                "Use glru.StepwiseSelector, or one class against the rest."
            )
        criterion, budget, n_features = (
            find_criterion(settings.criterion, problem),
            Budget(self.max_seconds),
            X.shape[1],
        )
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
