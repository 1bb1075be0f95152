"""Scores of splits by any scikit-learn scorer.

A scorer of scikit-learn looks at predictions of the test rows alone, which are there already, proven. A callable of the
user's may do anything with the estimator it is given, so it gets one that was fitted to the split.
"""

import time
import warnings
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from glru._options import warn_caller
from glru.cascade import Report, reporter
from glru.linalg import Array
from glru.losses import Gamma, Loss, Tweedie
from glru.model_selection.splits import Rows
from glru.sklearn.held_out import HeldOut
from glru.sklearn.preprocessing import count_rows, is_a, restrict_params, rows_of

ErrorScore = float | Literal["raise"]
"""The score of a split whose scorer failed; "raise" to raise the error."""


def check_scorers(scoring: Any, classification: bool) -> dict[str, Any]:
    """The scorers given by ``scoring``, by name; a single scorer is called ``"score"``."""
    if isinstance(scoring, dict):
        named = dict(scoring)
    elif isinstance(scoring, list | tuple | set):
        if not all(isinstance(name, str) for name in scoring):
            raise ValueError(f"a list of scorers must hold names; got {scoring!r}. Give callables in a dict, by name.")
        named = {name: name for name in scoring}
    else:
        return {"score": _check_scorer(scoring, classification)}
    if not named:
        raise ValueError("scoring must name at least one scorer; got none.")
    return {name: _check_scorer(scorer, classification) for name, scorer in named.items()}


def _check_scorer(scoring: Any, classification: bool) -> Any:
    """The scorer given by a name or a callable; None for accuracy, which needs none."""
    if scoring is None or isinstance(scoring, str):
        from sklearn.metrics import get_scorer

        if classification and scoring in (None, "accuracy"):
            return None
        return get_scorer("r2" if scoring is None else scoring)
    if not callable(scoring):
        raise ValueError(
            f"scoring must be the name of a scorer or a callable scorer(estimator, X, y); got {type(scoring).__name__}."
        )
    module = str(getattr(scoring, "__module__", ""))
    if module.startswith("sklearn.metrics.") and not module.startswith("sklearn.metrics._scorer"):
        raise ValueError(
            f"scoring must be a callable scorer(estimator, X, y); got {scoring!r}, a metric of predictions. "
            "Wrap it in sklearn.metrics.make_scorer."
        )
    return scoring


def deviance_scorer(loss: Loss) -> Any:
    """The ``score`` of a generalised linear model: the share of the deviance explained."""
    from sklearn.metrics import d2_tweedie_score, make_scorer

    power = loss.power if isinstance(loss, Tweedie) else 2.0 if isinstance(loss, Gamma) else 1.0
    return make_scorer(d2_tweedie_score, power=power)


def sees_predictions_only(scorer: Any) -> bool:
    """Whether a scorer is scikit-learn's own (``make_scorer``, a name): it only uses predictions of the test rows."""
    from sklearn.metrics import make_scorer

    return type(scorer) is type(make_scorer(max))


def sees_labels_only(scorer: Any) -> bool:
    """Whether a scikit-learn scorer uses ``predict`` only, so that scores need to be only as tight as labels require."""
    return scorer is None or getattr(scorer, "_response_method", None) == "predict"


def score_folds(found: HeldOut, X: Any, y: Any, name: str, scorer: Any, error_score: ErrorScore) -> tuple[Array, Array]:
    """One score per split from held-out predictions, and the seconds that each took.

    On single rows some metrics are not defined, or say nothing: an area under a curve, R2. Such a metric is computed once, of
    all held-out predictions together, and stands in every entry.
    """
    if scorer is None:
        begin = time.perf_counter()
        hits = np.ma.filled((found.labels == found.adapted.targets.y[found.rows]).astype(np.float64), np.nan)
        scores = _warn_of_failures(np.bincount(found.folds, hits) / np.bincount(found.folds), found)
        return scores, np.full(scores.size, (time.perf_counter() - begin) / scores.size)
    score = _Scores(found, X, np.asarray(y), scorer, error_score)
    begin = time.perf_counter()
    parts = np.split(np.arange(found.rows.size), np.cumsum(np.bincount(found.folds))[:-1])
    if found.leaves_one_out and len(parts) > 1:
        scores = score.of_rows()
        if np.isnan(scores).any() or np.all(scores == scores[0]):
            pooled = score.of(np.arange(found.rows.size))
            if not np.all(scores == pooled):
                warn_caller(
                    f"{name} is not defined on a single row. Each of the {scores.size} values returned is that of all held-out "
                    "predictions together."
                )
            scores = np.full(scores.size, pooled)
        seconds = np.full(scores.size, (time.perf_counter() - begin) / scores.size)
        return _warn_of_failures(scores, found) if score.unproven else scores, seconds
    scores, seconds = np.empty(len(parts)), np.empty(len(parts))
    for k, places in enumerate(parts):
        begin = time.perf_counter()
        scores[k] = score.of(places)
        seconds[k] = time.perf_counter() - begin
    return _warn_of_failures(scores, found) if score.unproven else scores, seconds


class _Scores:
    """A scikit-learn scorer applied to held-out predictions; ``unproven``: whether it used predictions that are not proven."""

    def __init__(self, found: HeldOut, X: Any, y: NDArray[Any], scorer: Any, error_score: ErrorScore) -> None:
        self.found, self.X, self.y, self.scorer, self.error_score = found, X, y, scorer, error_score
        self.unproven = False

    def of(self, places: Rows) -> float:
        """The score of some held-out rows; NaN where predictions are not proven, ``error_score`` where the scorer fails."""
        try:
            return _to_number(self._call(places), self.scorer)
        except UnprovenPrediction:
            self.unproven = True
            return np.nan
        except UnusableScore:
            raise
        except Exception as error:
            return score_failure(error, self.error_score)

    def of_rows(self) -> Array:
        """The score of each single held-out row, up to the first row for which the scorer is undefined; NaN from there on."""
        scores = np.full(self.found.rows.size, np.nan)
        for place in range(scores.size):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    scores[place] = _to_number(self._call(np.array([place])), self.scorer)
            except UnusableScore:
                raise
            except Exception:
                # An error, a warning, a prediction that is not proven: reported by the score of all rows together.
                break
            if np.isnan(scores[place]):
                break
        return scores

    def _call(self, places: Rows) -> Any:
        rows = self.found.rows[places]
        return self.scorer(_make_stand_in(self.found, places), rows_of(self.X, rows), self.y[rows])


def score_failure(error: Exception, error_score: ErrorScore) -> float:
    """The score of a split whose scorer failed, as in scikit-learn."""
    if error_score == "raise":
        raise error
    warn_caller(f"scoring failed, and the score of the split is {error_score}: {error!r}")
    return float(error_score)


class UnprovenPrediction(Exception):
    """A scorer asked for a prediction that is not proven."""


class UnusableScore(ValueError):
    """A scorer that does not return a number."""


def _warn_of_failures(scores: Array, found: HeldOut) -> Array:
    """Scores as they are, with a warning where a split has none."""
    unknown = np.flatnonzero(np.isnan(scores))
    if unknown.size:
        warn_caller(
            f"the score of {unknown.size} split(s) is NaN, the first that of split {unknown[0]}, because predictions it "
            f"depends on are not proven: {found.reason} glru.cross_val_predict masks them."
        )
    return scores


def score_refits(
    estimator: Any,
    X: Any,
    y: Any,
    scorers: dict[str, Any],
    splits: list[tuple[Rows, Rows]],
    params: dict[str, Any],
    error_score: ErrorScore,
    progress: bool | Report = False,
) -> tuple[dict[str, Array], Array, Array]:
    """One score per split by user-defined scorers, which get the estimator fitted to the split's train rows.

    Also the seconds of every fit and of every scoring. A callable may return a dict of scores, whose names are then those of the result.
    """
    from sklearn.base import clone

    _refuse_weights_of_one_vs_rest(estimator, params)
    found: list[dict[str, float]] = []
    seconds = np.empty((2, len(splits)))
    with reporter(progress) as report:
        for done, (train, test) in enumerate(splits):
            begin = time.perf_counter()
            options = restrict_params(params, count_rows(X), train)
            fitted = clone(estimator).fit(rows_of(X, train), rows_of(y, train), **options)
            middle = time.perf_counter()
            scores: dict[str, float] = {}
            for name, scorer in scorers.items():
                try:
                    value = scorer(fitted, rows_of(X, test), rows_of(y, test))
                except Exception as error:
                    value = score_failure(error, error_score)
                named = value if isinstance(value, dict) else {name: value}
                scores |= {key: _to_number(number, scorer) for key, number in named.items()}
            found.append(scores)
            seconds[:, done] = middle - begin, time.perf_counter() - middle
            report("training", done + 1, len(splits))
    values = {
        name: np.array([scores.get(name, np.nan) for scores in found]) for name in {k: 0 for s in found for k in s}
    }
    return values, seconds[0], seconds[1]


def _refuse_weights_of_one_vs_rest(estimator: Any, params: dict[str, Any]) -> None:
    while is_a(estimator, "Pipeline"):
        estimator = estimator.steps[-1][1]
    if params and is_a(estimator, "OneVsRestClassifier"):
        raise ValueError(
            "a callable scoring gets the estimator fitted by scikit-learn, whose OneVsRestClassifier takes no sample_weight; "
            "got weights. Use a scorer of sklearn.metrics.make_scorer, which needs predictions only."
        )


def _to_number(score: Any, scorer: Any) -> float:
    try:
        return float(score)
    except (TypeError, ValueError):
        raise UnusableScore(f"scoring must return one number; got {score!r} from {scorer!r}.") from None


def _make_stand_in(found: HeldOut, places: NDArray[np.intp]) -> Any:
    """A stand-in for an estimator fitted to a split's train rows, which returns stored predictions of its test rows."""
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

    adapted, bounds = found.adapted, found.bounds.take(places)
    classes: Any = adapted.classes

    def require_proven(values: NDArray[Any]) -> NDArray[Any]:
        if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
            raise UnprovenPrediction
        return np.ma.getdata(values)

    def require_scores() -> Array:
        return require_proven(found.scores[places])

    class Regressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
        def __sklearn_is_fitted__(self) -> bool:
            return True

        def predict(self, X: Any) -> Array:
            return adapted.means(require_scores())

    class Classifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
        classes_ = classes

        def __sklearn_is_fitted__(self) -> bool:
            return True

        def predict(self, X: Any) -> NDArray[Any]:
            return require_proven(bounds.labels(classes))

        def decision_function(self, X: Any) -> Array:
            return require_scores()

    class Probabilistic(Classifier):
        def predict_proba(self, X: Any) -> Array:
            return adapted.probabilities(require_scores())

    if classes is None:
        return Regressor()
    return Probabilistic() if adapted.objective.probabilities else Classifier()
