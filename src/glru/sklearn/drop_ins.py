"""Drop-ins for scikit-learn's model selection: the same answers for its linear models, proven, without the trainings."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from glru._options import warn_caller
from glru.cascade import Report
from glru.linalg import move_like
from glru.model_selection.cross_validation import CrossValResult
from glru.model_selection.loocv import AIM, Aim, Width, leave_one_out, widths_of
from glru.model_selection.result import LOOCVResult, merge_classes
from glru.model_selection.splits import Rows
from glru.problem import Problem
from glru.sklearn.adapt import adapt
from glru.sklearn.adapted import Adapted
from glru.sklearn.held_out import (
    FINE,
    HeldOut,
    Split,
    add_train_rows,
    bound_held_out,
    choose_default_aim,
    choose_default_width,
    choose_width,
    decide_held_out,
    decides_by_sign,
    list_splits,
    require_bounds,
)
from glru.sklearn.preprocessing import name_weight
from glru.sklearn.scoring import (
    ErrorScore,
    check_scorers,
    deviance_scorer,
    score_folds,
    score_refits,
    sees_labels_only,
    sees_predictions_only,
)
from glru.solution import Solution
from glru.solvers import solve

Method = Literal["predict", "decision_function", "predict_proba", "predict_log_proba"]


def loocv_adapted(
    adapted: Adapted,
    solutions: Sequence[Solution] | None = None,
    tol: float = 1e-6,
    width: Width = None,
    **options: Any,
) -> LOOCVResult:
    """Leave-one-out of an estimator's problems, or of their solutions."""
    require_bounds(adapted)
    refits = adapted.refits
    if adapted.shifts is not None:
        _check_options(adapted, adapted.shifts, options)
    if solutions is None:
        solutions = [solve(problem, tol=tol) for problem in adapted.problems]
    if adapted.classes is None or decides_by_sign(adapted):
        widths = widths_of(adapted.problems[0], width)
        widths["width"] = choose_width(widths["width"], AIM if widths["aim"] else None, refits[0])
        found = leave_one_out(solutions[0], tol=tol, refits=refits[0], **options, **widths)
        return _add_refits(replace(found, known_classes=adapted.classes), adapted)
    aim: Aim = "metrics" if width is None else None
    if width is None or isinstance(width, str):
        widths_in_turn = [choose_default_width(adapted), FINE * choose_default_width(adapted)]
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


@np.errstate(all="ignore")  # overflow ends in infinite bounds: nothing is proven then
def predict_splits(
    estimator: Any,
    X: Any,
    y: Any,
    cv: Any = None,
    groups: Any = None,
    method: Method = "predict",
    sample_weight: Any = None,
    width: Width = None,
    tol: float = 1e-6,
    progress: bool | Report = False,
    params: dict[str, Any] | None = None,
    return_result: bool = False,
) -> NDArray[Any] | CrossValResult:
    """Held-out predictions of an estimator; see :func:`glru.cross_val_predict`."""
    adapted = adapt(estimator, X, y, sample_weight, params=params)
    _check_method(adapted, method)
    tight = return_result and width is None
    found = _hold_out(adapted, method, cv, groups, None if isinstance(width, str) else width, tol, progress, tight)
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
    return move_like(values, X)


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
    estimator: Any,
    X: Any,
    y: Any,
    cv: Any = None,
    groups: Any = None,
    scoring: Any = None,
    sample_weight: Any = None,
    width: float | None = None,
    tol: float = 1e-6,
    progress: bool | Report = False,
    params: dict[str, Any] | None = None,
    error_score: ErrorScore = np.nan,
    return_indices: bool = False,
) -> dict[str, Any]:
    """Times and scores of every split; see :func:`glru.cross_validate`."""
    adapted = adapt(estimator, X, y, sample_weight, params=params)
    classification = adapted.classes is not None
    if scoring is None and adapted.problems[0].loss.link == "log":
        scoring = deviance_scorer(adapted.problems[0].loss)
    scorers = check_scorers(scoring, classification)
    proven = {name: scorer for name, scorer in scorers.items() if scorer is None or sees_predictions_only(scorer)}
    if isinstance(cv, Iterator):
        cv = list(cv)
    result: dict[str, Any] = {"fit_time": 0.0, "score_time": 0.0}
    splits: list[tuple[Rows, Rows]] = []
    if proven:
        begin = time.perf_counter()
        method: Method = "predict" if all(map(sees_labels_only, proven.values())) else "decision_function"
        found = _hold_out(adapted, method, cv, groups, width, tol, progress)
        _warn_of_refits(found)
        splits = add_train_rows(adapted, found.splits)
        result["fit_time"] = np.full(len(splits), (time.perf_counter() - begin) / len(splits))
        for name, scorer in proven.items():
            said = str(scoring or "r2") if isinstance(scoring, str | None) else f"the metric {name!r}"
            result[f"test_{name}"], seconds = score_folds(found, X, y, said, scorer, error_score)
            result["score_time"] = result["score_time"] + seconds
    if len(proven) < len(scorers):
        others = {name: scorer for name, scorer in scorers.items() if name not in proven}
        weights = {} if sample_weight is None else {name_weight(estimator): np.asarray(sample_weight)}
        splits = splits or list_splits(adapted, cv, groups)
        values, fit_time, score_time = score_refits(
            estimator, X, y, others, splits, {**(params or {}), **weights}, error_score, progress
        )
        result["fit_time"], result["score_time"] = result["fit_time"] + fit_time, result["score_time"] + score_time
        result |= {f"test_{name}": value for name, value in values.items()}
    if return_indices:
        result["indices"] = {"train": tuple(train for train, _ in splits), "test": tuple(test for _, test in splits)}
    return result


def predict_held_out(found: HeldOut, method: Method) -> NDArray[Any]:
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


def _hold_out(
    adapted: Adapted,
    method: Method,
    cv: Any,
    groups: Any,
    width: float | None,
    tol: float,
    progress: bool | Report,
    tight: bool = False,
) -> HeldOut:
    """Held-out scores as tight as a method needs them; ``tight``: also as metrics of scores need them."""
    aim = choose_default_aim(adapted) if width is None else None
    if method == "predict" and adapted.classes is not None:
        return decide_held_out(adapted, cv, groups, width, tol, progress, aim if tight else None)
    return bound_held_out(adapted, cv, groups, width or choose_default_width(adapted), tol, progress, aim=aim)


def _check_method(adapted: Adapted, method: str) -> None:
    methods = ("predict", "decision_function", "predict_proba", "predict_log_proba")
    known = methods if adapted.classes is not None else methods[:1]
    if method not in known:
        raise ValueError(f"method must be one of {', '.join(map(repr, known))} for this estimator; got {method!r}.")
    if method.endswith("proba"):
        adapted.require_probabilities()
