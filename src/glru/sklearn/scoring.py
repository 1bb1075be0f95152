"""Scores of splits by any scorer of scikit-learn.

A scorer of scikit-learn looks at predictions of the test rows alone, which are there already, proven. A callable of the
user's may do anything with the estimator it is given, so it gets one that was fitted to the split.
"""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glru.cascade import Report, reporter
from glru.linalg import Array
from glru.model_selection.splits import Rows, split_rows
from glru.sklearn.held_out import HeldOut
from glru.sklearn.preprocessing import rows_of


def checked_scorer(scoring: Any, classification: bool) -> Any:
    """The scorer that ``scoring`` stands for: None for accuracy, which needs none."""
    if scoring is None or isinstance(scoring, str):
        from sklearn.metrics import get_scorer

        if classification and scoring in (None, "accuracy"):
            return None
        return get_scorer("r2" if scoring is None else scoring)
    if not callable(scoring):
        raise ValueError(
            "scoring must be the name of one scorer or a callable scorer(estimator, X, y); "
            f"got {type(scoring).__name__}. For several scores, call cross_val_score once for each."
        )
    module = str(getattr(scoring, "__module__", ""))
    if module.startswith("sklearn.metrics.") and not module.startswith("sklearn.metrics._scorer"):
        raise ValueError(
            f"scoring must be a callable scorer(estimator, X, y); got {scoring!r}, a metric of predictions. "
            "Wrap it in sklearn.metrics.make_scorer."
        )
    return scoring


def sees_predictions_only(scorer: Any) -> bool:
    """Whether a scorer is scikit-learn's own (``make_scorer``, a name): all it asks for is predictions of the test rows."""
    from sklearn.metrics import make_scorer

    return type(scorer) is type(make_scorer(max))


def fold_scores(found: HeldOut, X: Any, y: Any, scorer: Any) -> Array:
    """One score a split, from held-out predictions."""
    if scorer is None:
        hits = np.ma.filled((found.labels == found.adapted.targets.y[found.rows]).astype(np.float64), np.nan)
        return _reported(np.bincount(found.folds, hits) / np.bincount(found.folds), found)
    targets = np.asarray(y)
    ends = np.cumsum(np.bincount(found.folds))[:-1]
    scores = []
    for places in np.split(np.arange(found.rows.size), ends):
        rows = found.rows[places]
        try:
            scores.append(_number(scorer(_answers(found, places), rows_of(X, rows), targets[rows]), scorer))
        except UnprovenPrediction:
            scores.append(np.nan)
    return _reported(np.array(scores), found)


class UnprovenPrediction(Exception):
    """A scorer asked for a prediction that is not proven."""


def _reported(scores: Array, found: HeldOut) -> Array:
    """Scores as they are, with a warning where a split has none."""
    unknown = np.flatnonzero(np.isnan(scores))
    if unknown.size:
        warnings.warn(
            f"the score of {unknown.size} split(s) is NaN, the first that of split {unknown[0]}, because predictions it "
            f"depends on are not proven: {found.reason} glru.cross_val_predict masks them.",
            stacklevel=5,
        )
    return scores


def refitted_scores(
    estimator: Any,
    X: Any,
    y: Any,
    scorer: Any,
    cv: Any,
    groups: Any,
    sample_weight: Any,
    classification: bool,
    progress: bool | Report = False,
) -> Array:
    """One score a split by a callable of the user's, which gets the estimator fitted to the split's train rows."""
    from sklearn.base import clone

    splits = list(split_rows(cv, np.asarray(y), groups, classification))
    if not splits:
        raise ValueError("cv must give at least one split; got none.")
    scores = []
    with reporter(progress) as report:
        for done, (train, test) in enumerate(splits):
            options = _fit_options(estimator, sample_weight, train)
            fitted = clone(estimator).fit(rows_of(X, train), rows_of(y, train), **options)
            scores.append(_number(scorer(fitted, rows_of(X, test), rows_of(y, test)), scorer))
            report("training", done + 1, len(splits))
    return np.array(scores)


def _fit_options(estimator: Any, sample_weight: Any, train: Rows) -> dict[str, Any]:
    """What ``fit`` is given beside the data: the weights, by the name of a pipeline's last step where there is one."""
    if sample_weight is None:
        return {}
    steps = getattr(estimator, "steps", None)
    name, model = steps[-1] if steps else ("", estimator)
    if type(model).__name__ == "OneVsRestClassifier":
        raise ValueError(
            "a callable scoring gets the estimator fitted by scikit-learn, whose OneVsRestClassifier takes no sample_weight; "
            "got weights. Use a scorer of sklearn.metrics.make_scorer, which needs predictions only."
        )
    weights = np.asarray(sample_weight)[train]
    return {f"{name}__sample_weight" if steps else "sample_weight": weights}


def _number(score: Any, scorer: Any) -> float:
    try:
        return float(score)
    except (TypeError, ValueError):
        raise ValueError(f"scoring must return one number; got {score!r} from {scorer!r}.") from None


def _answers(found: HeldOut, places: NDArray[np.intp]) -> Any:
    """An estimator that has been fitted to a split's train rows, as far as predictions of its test rows can tell."""
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

    adapted, bounds = found.adapted, found.bounds.take(places)
    classes: Any = adapted.classes

    def proven(values: NDArray[Any]) -> NDArray[Any]:
        if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
            raise UnprovenPrediction
        return np.ma.getdata(values)

    def proven_scores() -> Array:
        return proven(found.scores[places])

    class Regressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
        def __sklearn_is_fitted__(self) -> bool:
            return True

        def predict(self, X: Any) -> Array:
            return proven_scores()

    class Classifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        classes_ = classes

        def __sklearn_is_fitted__(self) -> bool:
            return True

        def predict(self, X: Any) -> NDArray[Any]:
            return proven(bounds.labels(classes))

        def decision_function(self, X: Any) -> Array:
            return proven_scores()

    class Probabilistic(Classifier):
        def predict_proba(self, X: Any) -> Array:
            return adapted.probabilities(proven_scores())

    if classes is None:
        return Regressor()
    return Probabilistic() if adapted.objective.probabilities else Classifier()
