"""Scores of splits by any scorer of scikit-learn, from predictions that are there already."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from glru._numerics import Array
from glru.model_selection.held_out import HeldOut


def fold_scores(found: HeldOut, X: Any, y: Any, scoring: Any) -> Array:
    """One score a split."""
    classification = found.adapted.classes is not None
    if classification and scoring in (None, "accuracy"):
        hits = (found.labels == found.adapted.targets.y[found.rows]).astype(np.float64)
        return np.bincount(found.folds, hits) / np.bincount(found.folds)
    from sklearn.metrics import get_scorer

    scorer = get_scorer("r2" if scoring is None else scoring) if not callable(scoring) else scoring
    targets, data = np.asarray(y), _Rows(X)
    ends = np.cumsum(np.bincount(found.folds))[:-1]
    scores = []
    for places in np.split(np.arange(found.rows.size), ends):
        rows = found.rows[places]
        scores.append(float(scorer(_answers(found, places), data[rows], targets[rows])))
    return np.array(scores)


class _Rows:
    """Rows of an array, a sparse matrix or a frame."""

    def __init__(self, X: Any) -> None:
        self.X = X

    def __getitem__(self, rows: NDArray[np.intp]) -> Any:
        from sklearn.utils import _safe_indexing

        return _safe_indexing(self.X, rows)


def _answers(found: HeldOut, places: NDArray[np.intp]) -> Any:
    """An estimator that has been fitted to a split's train rows, as far as predictions of its test rows can tell."""
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

    adapted, scores = found.adapted, found.scores[places]

    class Regressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
        def __sklearn_is_fitted__(self) -> bool:
            return True

        def predict(self, X: Any) -> Array:
            return scores

    class Classifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        classes_ = adapted.classes

        def __sklearn_is_fitted__(self) -> bool:
            return True

        def predict(self, X: Any) -> NDArray[Any]:
            return adapted.labels(scores)

        def decision_function(self, X: Any) -> Array:
            return scores

    class Probabilistic(Classifier):
        def predict_proba(self, X: Any) -> Array:
            return adapted.probabilities(scores)

    if adapted.classes is None:
        return Regressor()
    return Probabilistic() if adapted.objective.probabilities else Classifier()
