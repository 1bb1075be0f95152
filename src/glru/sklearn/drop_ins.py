"""Drop-ins for scikit-learn's model selection: the same answers for its linear models, proven, without the trainings.

A scorer of scikit-learn looks at predictions of the test rows alone, which are there already, proven. A callable of the
user's may do anything with the estimator it is given, so it gets one that was fitted to the split.
"""

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from glru._options import PredictMethod, warn_caller
from glru.cascade import Report, Rows
from glru.linalg import Array, move_like
from glru.losses import Gamma, Tweedie
from glru.model_selection.cross_validation import CrossValResult
from glru.model_selection.loocv import AIM, Aim, Width, leave_one_out, widths_of
from glru.model_selection.result import LOOCVResult, merge_classes
from glru.problem import Problem
from glru.sklearn.adapt import Adapted, adapt
from glru.sklearn.held_out import (
    TIGHTER_FACTOR,
    HeldOut,
    Request,
    Split,
    add_train_rows,
    bound_held_out,
    check_left_out,
    choose_default_aim,
    choose_default_width,
    choose_width,
    decide_held_out,
    decides_by_sign,
    list_splits,
    require_bounds,
    train_all,
)
from glru.sklearn.preprocessing import is_a, name_weight, rows_of
from glru.solution import Solution

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
    from sklearn.metrics import check_scoring, get_scorer

    if callable(scoring):
        return check_scoring(scoring=scoring)
    if classification and scoring in (None, "accuracy"):
        return None
    return get_scorer("r2" if scoring is None else scoring)


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
            # As in scikit-learn.
            if self.error_score == "raise":
                raise
            warn_caller(f"scoring failed, and the score of the split is {self.error_score}: {error!r}")
            return float(self.error_score)

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
    asked: "Validation", scorers: dict[str, Any], splits: list[tuple[Rows, Rows]], error_score: ErrorScore
) -> dict[str, Any]:
    """Times and scores of user-defined scorers, by scikit-learn: each gets the estimator fitted to a split's train rows."""
    from sklearn.model_selection import cross_validate

    params = dict(asked.params or {})
    if asked.sample_weight is not None:
        params[name_weight(asked.estimator)] = np.asarray(asked.sample_weight)
    last = asked.estimator
    while is_a(last, "Pipeline"):
        last = last.steps[-1][1]
    if params and is_a(last, "OneVsRestClassifier"):
        raise ValueError(
            "a callable scoring gets the estimator fitted by scikit-learn, whose OneVsRestClassifier takes no sample_weight; "
            "got weights. Use a scorer of sklearn.metrics.make_scorer, which needs predictions only."
        )
    # A single callable may return a dict of scores, whose names are then those of the result.
    scoring = scorers["score"] if list(scorers) == ["score"] else scorers
    found: dict[str, Any] = cross_validate(
        asked.estimator, asked.X, asked.y, scoring=scoring, cv=splits, params=params, error_score=error_score
    )
    return found


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


def loocv_adapted(
    adapted: Adapted,
    solutions: Sequence[Solution] | None = None,
    tol: float = 1e-6,
    width: Width = None,
    **options: Any,
) -> LOOCVResult:
    """Leave-one-out of an estimator's problems, or of their solutions."""
    require_bounds(adapted)
    check_left_out(adapted)
    refits = adapted.refits
    if adapted.shifts is not None:
        _check_options(adapted, adapted.shifts, options)
    solutions = train_all(adapted, tol) if solutions is None else solutions
    if adapted.classes is None or decides_by_sign(adapted):
        widths = widths_of(adapted.problems[0], width)
        widths["width"] = choose_width(widths["width"], AIM if widths["aim"] else None, refits[0])
        found = leave_one_out(solutions[0], tol=tol, refits=refits[0], **options, **widths)
        return _add_refits(replace(found, known_classes=adapted.classes), adapted)
    aim: Aim = "metrics" if width is None else None
    if width is None or isinstance(width, str):
        widths_in_turn = [choose_default_width(adapted), TIGHTER_FACTOR * choose_default_width(adapted)]
    else:
        widths_in_turn = [width]
    for least in widths_in_turn:
        results = [
            leave_one_out(
                solution, tol=tol, width=choose_width(least, AIM if aim else None, own), aim=aim, refits=own, **options
            )
            for solution, own in zip(solutions, refits, strict=True)
        ]
        bounds = adapted.bounds([result.bounds for result in results])
        found = merge_classes(results, bounds, adapted.targets_of(adapted.targets.y), adapted.classes)
        if found.decided.all():
            break
    return _add_refits(found, adapted)


def _check_options(adapted: Adapted, shifts: str, options: dict[str, Any]) -> None:
    """Refuse options of leave-one-out that do not exist where leaving out a row changes the other rows."""
    method = options.get("method", "certified")
    if method not in ("certified", "naive"):
        raise ValueError(
            f"method must be 'certified' or 'naive' here, because when a row is left out, {shifts}; got {method!r}. Leave it out."
        )
    if options.get("checkpoint") is not None and adapted.n_refits:
        raise ValueError(
            f"a checkpoint does not hold rows that are left out one at a time, and there are {adapted.n_refits} "
            f"({adapted.refit_reason}). Leave checkpoint out."
        )


def _add_refits(found: LOOCVResult, adapted: Adapted) -> LOOCVResult:
    """The result with the number of rows for which the steps were refitted one at a time, and the reason."""
    n_refits = adapted.n_refits
    return replace(
        found,
        n_refits=n_refits,
        refit_reason=adapted.refit_reason if n_refits else None,
        refitted=partial(_make_problem_without, adapted) if _is_refitted(adapted) else None,
    )


def _is_refitted(adapted: Adapted) -> bool:
    """Whether leaving out a row changes more than that row, for an estimator of one problem."""
    return len(adapted.problems) == 1 and adapted.shifts is not None


def _make_problem_without(adapted: Adapted, row: int) -> tuple[Problem, Rows]:
    """The problem of an estimator fitted without a row, and the row's place in it."""
    (refits,) = adapted.refits
    assert refits is not None
    return refits.problem(adapted.problems[0], row), np.array([row])


def _make_problem_of_split(adapted: Adapted, splits: list[Split], k: int) -> tuple[Problem, Rows]:
    """The problem of an estimator fitted to the train rows of a split, and the places of its test rows."""
    train, test = splits[k]
    if train is None:
        return _make_problem_without(adapted, int(test[0]))
    fold = next(islice(adapted.folds(add_train_rows(adapted, splits)), k, None))
    return fold.problems[0], fold.test


@final
@dataclass(frozen=True)
class Validation:
    """An estimator, its data, how the rows are split, and how closely scores have to be known."""

    estimator: Any
    X: Any
    y: Any
    cv: Any
    groups: Any
    sample_weight: Any
    params: dict[str, Any] | None  # parameters of ``fit`` of the steps in front of the model
    width: Width
    tol: float
    progress: bool | Report

    def adapt(self) -> Adapted:
        """The problems of the estimator."""
        return adapt(self.estimator, self.X, self.y, self.sample_weight, params=self.params)

    def hold_out(self, adapted: Adapted, method: PredictMethod, tight: bool = False) -> HeldOut:
        """Held-out scores as tight as a method needs them; ``tight``: also as metrics of scores need them."""
        width = None if isinstance(self.width, str) else self.width
        aim = choose_default_aim(adapted) if width is None else None
        if method == "predict" and adapted.classes is not None:
            request = Request(width, self.tol, self.progress, aim if tight else None)
            return decide_held_out(adapted, self.cv, self.groups, request)
        request = Request(width or choose_default_width(adapted), self.tol, self.progress, aim)
        return bound_held_out(adapted, self.cv, self.groups, request)


@np.errstate(all="ignore")  # overflow ends in infinite bounds: nothing is proven then
def predict_splits(
    asked: Validation, method: PredictMethod, return_result: bool = False
) -> NDArray[Any] | CrossValResult:
    """Held-out predictions of an estimator; see :func:`glru.cross_val_predict`."""
    adapted = asked.adapt()
    if adapted.classes is None and method != "predict":
        raise ValueError(f"method must be 'predict' for a regression; got {method!r}.")
    if method.endswith("proba"):
        adapted.require_probabilities()
    found = asked.hold_out(adapted, method, return_result and asked.width is None)
    if return_result:
        return _make_result(found)
    n_rows = adapted.targets.y.size
    if found.rows.size != n_rows or np.any(np.bincount(found.rows, minlength=n_rows) != 1):
        raise ValueError(
            "cross_val_predict needs every row in exactly one test: a partition. Use cross_val_score for other splitters, or "
            "return_result=True."
        )
    _warn_of_refits(found)
    order = np.empty(n_rows, dtype=np.intp)
    order[found.rows] = np.arange(n_rows)
    values = predict_held_out(found, method)[order]
    if isinstance(values, np.ma.MaskedArray):
        rows = np.flatnonzero(np.ma.getmaskarray(values).reshape(n_rows, -1).any(axis=1))
        warn_caller(
            f"{rows.size} of {n_rows} held-out predictions are not proven, the first that of row {rows[0]}, and masked in "
            f"the array that is returned: {found.reason}"
        )
    return move_like(values, asked.X)


def _make_result(found: HeldOut) -> CrossValResult:
    """Held-out scores as a result."""
    adapted = found.adapted
    y, classes = adapted.targets.y[found.rows], adapted.classes
    return CrossValResult(
        problem=adapted.problems[0],
        rows=found.rows,
        folds=found.folds,
        y=y.astype(np.float64) if classes is None else adapted.targets_of(y),
        bounds=found.bounds,
        decided_by=found.decided_by,
        n_trainings=found.n_trainings,
        train_rows=tuple(train for train, _ in add_train_rows(adapted, found.splits)),
        known_classes=classes,
        n_refits=found.n_refits,
        refit_reason=found.refit_reason,
        refitted=partial(_make_problem_of_split, adapted, found.splits) if _is_refitted(adapted) else None,
    )


def _warn_of_refits(found: HeldOut) -> None:
    """Warn that leave-one-out refitted some steps row by row; with folds, refitting is expected."""
    if found.n_refits and found.leaves_one_out:
        warn_caller(
            f"{found.n_refits} of {len(found.splits)} rows were left out one at a time, not all at once: {found.refit_reason}."
        )


@np.errstate(all="ignore")
def validate_splits(
    asked: Validation, scoring: Any, error_score: ErrorScore, return_indices: bool = False
) -> dict[str, Any]:
    """Times and scores of every split; see :func:`glru.cross_validate`."""
    from sklearn.metrics import d2_tweedie_score, make_scorer

    adapted = asked.adapt()
    loss = adapted.problems[0].loss
    if scoring is None and loss.link == "log":
        # The score of a generalised linear model: the share of the deviance explained.
        power = loss.power if isinstance(loss, Tweedie) else 2.0 if isinstance(loss, Gamma) else 1.0
        scoring = make_scorer(d2_tweedie_score, power=power)
    scorers = check_scorers(scoring, adapted.classes is not None)
    # Scorers of make_scorer (a name is one) use nothing but predictions of the test rows.
    known = type(make_scorer(max))
    proven = {name: scorer for name, scorer in scorers.items() if scorer is None or type(scorer) is known}
    if isinstance(asked.cv, Iterator):
        asked = replace(asked, cv=list(asked.cv))
    result: dict[str, Any] = {"fit_time": 0.0, "score_time": 0.0}
    splits: list[tuple[Rows, Rows]] = []
    if proven:
        begin = time.perf_counter()
        # Scorers that use labels need scores only as tight as these require.
        asks = (getattr(scorer, "_response_method", None) for scorer in proven.values() if scorer is not None)
        method: PredictMethod = "predict" if all(name == "predict" for name in asks) else "decision_function"
        found = asked.hold_out(adapted, method)
        _warn_of_refits(found)
        splits = add_train_rows(adapted, found.splits)
        result["fit_time"] = np.full(len(splits), (time.perf_counter() - begin) / len(splits))
        for name, scorer in proven.items():
            title = str(scoring or "r2") if isinstance(scoring, str | None) else f"the metric {name!r}"
            result[f"test_{name}"], seconds = score_folds(found, asked.X, asked.y, title, scorer, error_score)
            result["score_time"] = result["score_time"] + seconds
    if len(proven) < len(scorers):
        others = {name: scorer for name, scorer in scorers.items() if name not in proven}
        splits = splits or list_splits(adapted, asked.cv, asked.groups)
        refits = score_refits(asked, others, splits, error_score)
        result = refits | result | {name: result[name] + refits[name] for name in ("fit_time", "score_time")}
    if return_indices:
        result["indices"] = {"train": tuple(train for train, _ in splits), "test": tuple(test for _, test in splits)}
    return result


def predict_held_out(found: HeldOut, method: PredictMethod) -> NDArray[Any]:
    """The output of an estimator's method for held-out scores, in the order of the splits."""
    adapted = found.adapted
    if adapted.classes is None:
        return adapted.means(found.scores)
    if method == "decision_function":
        return found.scores
    if method == "predict":
        return found.labels
    scores = found.scores
    likely = adapted.probabilities(np.ma.getdata(scores))
    likely = likely if method == "predict_proba" else np.log(likely)
    if not isinstance(scores, np.ma.MaskedArray):
        return likely
    unknown = np.asarray(np.ma.getmaskarray(scores).reshape(scores.shape[0], -1).any(axis=1))
    return np.ma.masked_array(likely, mask=np.broadcast_to(unknown[:, None], likely.shape))
