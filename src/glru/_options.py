"""The rules of all options in one table: what a value must be, and the advice if it is not; warnings; and limits of computing time.

Public functions, estimators and commands are checked against it before any work. What depends on the data or on the model is checked where that is known.
"""

import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from numbers import Integral, Real
from typing import Any, Literal, TypeGuard, TypeVar, final, get_args


class OutOfTime(Exception):
    """The time is up; the caller that set the limit returns what has been found."""


@final
class Budget:
    """A limit in seconds, counted from now; None for no limit."""

    def __init__(self, seconds: float | None) -> None:
        self.end = None if seconds is None else time.monotonic() + seconds

    @property
    def seconds_left(self) -> float | None:
        """The seconds that are left, above 0; None: no limit. Raises :class:`OutOfTime` when the time is up."""
        if self.end is None:
            return None
        left = self.end - time.monotonic()
        if not left > 0.0:
            raise OutOfTime
        return left

    @property
    def spent(self) -> bool:
        """Whether the time is up."""
        return self.end is not None and time.monotonic() >= self.end

    def check(self) -> None:
        """Raise :class:`OutOfTime` when the time is up."""
        if self.spent:
            raise OutOfTime


UNLIMITED = Budget(None)
"""No limit."""


# The words of options, for signatures, for the command line and for the rules below.
LOOCVMethod = Literal["certified", "glru", "naive", "approx", "approx-glru"]
SearchMethod = Literal["certified", "glru", "naive"]
PredictMethod = Literal["predict", "decision_function", "predict_proba", "predict_log_proba"]
BoundName = Literal["auto", "primal", "dual", "local"]
CandidateName = Literal["auto", "carry", "newton"]
Direction = Literal["backward", "forward", "both"]
CriterionName = Literal["error", "log_loss", "squared_error", "deviance", "aic", "bic"]
HeldOutCriterion = Literal["error", "log_loss", "squared_error", "deviance"]
Scoring = Literal["accuracy", "neg_log_loss", "neg_mean_squared_error", "r2"]
Center = Literal["estimate", "mean"]
Solver = Literal["auto", "newton", "newton-cg", "prox-newton", "dual-cd", "interior-point", "proximal-point"]

Function = TypeVar("Function", bound=Callable[..., Any])

MAX_VALUE_LENGTH = 80
"""Characters of a value in an error message."""


class OptionError(ValueError, TypeError):
    """An option has a value that is never valid."""


@final
@dataclass(frozen=True)
class Rule:
    """What an option must be."""

    holds: Callable[[Any], bool]  # whether a value is allowed
    wanted: str  # What is allowed, in words: "... must be <wanted>".
    remedy: str  # what to do, as a sentence
    names: tuple[str | None, ...] = ()  # the words that are allowed, for the suggestion of the nearest one

    def advise(self, value: Any) -> str:
        """What to do about a value that is not allowed."""
        near = _find_nearest(value, [name for name in self.names if name is not None])
        return self.remedy if near is None else f"Did you mean {near!r}?"

    def allow(self, value: Any, wanted: str) -> "Rule":
        """The rule with one more value that is allowed."""
        return Rule(
            lambda given: given is value or (isinstance(given, str) and given == value) or self.holds(given),
            f"{self.wanted}{wanted}",
            self.remedy,
            (*self.names, value) if isinstance(value, str) else self.names,
        )


def _find_nearest(word: Any, known: Iterable[str]) -> str | None:
    """The known word that is spelt most like a given one, if any is."""
    spelt = {name.lower(): name for name in known}
    near = get_close_matches(word.lower(), spelt, 1) if isinstance(word, str) else []
    return spelt[near[0]] if near else None


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and not math.isnan(value)


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether a value is a whole number; True and False are not."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _above(remedy: str, unit: str = "") -> Rule:
    return Rule(lambda value: _is_number(value) and value > 0, f"a number{unit} above 0", remedy)


def _count(least: int, remedy: str, unit: str = "") -> Rule:
    return Rule(lambda value: is_whole(value) and value >= least, f"a whole number{unit} of at least {least}", remedy)


def _one_of(words: Any, *more: str | None) -> Rule:
    """The rule of an option that is one of the words of a ``Literal`` or one of ``more``."""
    names = (*get_args(words), *more)
    listed = [repr(name) for name in names]
    return Rule(
        lambda value: value in names if value is None or isinstance(value, str) else False,
        f"{', '.join(listed[:-1])} or {listed[-1]}",
        "Leave it out for the default.",
        names,
    )


def _is_splits(value: Any) -> bool:
    if is_whole(value):
        return bool(value >= 2)
    return not isinstance(value, str | bytes | type) and (
        hasattr(value, "split") or (isinstance(value, Iterable) and not isinstance(value, Mapping))
    )


TOL = Rule(
    lambda value: _is_number(value) and 0 <= value < math.inf,
    "a finite number of at least 0",
    "Use 1e-6, or less for a more accurate model.",
)
WIDTH = _above("Use 1e-6 for scores to six digits.")
SECONDS = _above("Leave it out for no limit.", " of seconds").allow(None, ", or None for no limit")
BYTES = _count(1, "Leave it out for the default.", " of bytes").allow(None, ", or None for the default")
SWITCH = Rule(
    lambda value: type(value).__name__ == "bool",  # Python's or NumPy's
    "True or False",
    "Leave it out for the default.",
)
PATH = Rule(lambda value: isinstance(value, str | os.PathLike), "a path", "Leave it out to write no file.").allow(
    None, ", or None"
)
LIMIT = _count(0, "Leave it out for no limit.").allow(None, ", or None for no limit")
COLUMNS = Rule(lambda value: hasattr(value, "__len__"), "a list of columns", "Use [0, 3] for the first and the fourth.")
SPLITS = Rule(
    _is_splits,
    "a whole number of folds of at least 2, a splitter of scikit-learn or an iterable of (train, test)",
    "Use cv=5, or cv=LeaveOneOut().",
)

RULES: dict[str, Rule] = {
    "after.change": Rule(lambda value: hasattr(value, "apply"), "a glru change such as glru.RemoveRows([3])", "Call glru.after(estimator, change, X=X, y=y)."),
    "tol": TOL,
    "training_tol": TOL,
    "StepwiseSelector.tol": Rule(lambda value: _is_number(value) and math.isfinite(value), "a finite number", "Leave it out.").allow(
        None, ", or None"
    ),
    "width": WIDTH.allow(None, ", or None"),
    **dict.fromkeys(("loocv.width", "cross_val_predict.width"), WIDTH.allow("labels", ", 'labels'").allow(None, " or None")),
    **dict.fromkeys(("influence.width", "jackknife.width"), _above("Use 1e-3, the default.")),
    "max_seconds": SECONDS,
    "max_memory": BYTES,
    "max_trainings": LIMIT,
    "max_steps": LIMIT,
    "max_iter": _count(1, "Leave it out for the solver's own limit.").allow(None, ", or None"),
    "min_features": _count(1, "Use 1, the default."),
    "max_features": _count(1, "Leave it out for no limit.").allow(None, ", or None for no limit"),
    "min_features_to_select": _count(1, "Use 1, the default."),
    "CertifiedRFECV.step": Rule(
        lambda value: (is_whole(value) and value >= 1) or (isinstance(value, float) and 0.0 < value < 1.0),
        "a whole number of at least 1, or a share between 0 and 1",
        "Use 1, the default.",
    ),
    "method": _one_of(SearchMethod),
    "loocv.method": _one_of(LOOCVMethod),
    "cross_val_predict.method": _one_of(PredictMethod),
    "bound": _one_of(BoundName),
    "candidate": _one_of(CandidateName),
    "direction": _one_of(Direction),
    "criterion": _one_of(CriterionName, None),
    "loocv_path.criterion": _one_of(HeldOutCriterion, None),
    "StepwiseSelector.criterion": _one_of(CriterionName, "auto"),
    "GLRUClassifierCV.criterion": _one_of(Literal["error", "log_loss"]),
    "GLRURegressorCV.criterion": _one_of(Literal["squared_error", "absolute_error"]),
    **dict.fromkeys(("StepwiseSelector.scoring", "CertifiedRFECV.scoring"), _one_of(Scoring, None)),
    "importance_getter": _one_of(Literal["auto", "coef_"]),
    "center": _one_of(Center, None),
    "solver": _one_of(Solver),
    "cv": SPLITS.allow(None, ", or None"),
    "n_jobs": Rule(lambda value: is_whole(value) and value != 0, "a whole number other than 0", "Use -1 for all cores.").allow(
        None, ", or None"
    ),
    "verbose": Rule(lambda value: isinstance(value, bool) or (is_whole(value) and value >= 0), "a whole number of at least 0", "Use 1 to see progress."),
    "progress": Rule(lambda value: isinstance(value, bool) or callable(value), "True, False or a callable", "Use progress=True."),
    "verify.progress": Rule(callable, "a callable", "Leave it out for no reports.").allow(None, ", or None"),
    "params": Rule(lambda value: isinstance(value, Mapping), "a dict of names and values", "Use params={'sample_weight': weights}.").allow(None, ", or None"),
    "error_score": Rule(lambda value: isinstance(value, Real), "a number", "Use 'raise' to see the error.").allow("raise", " or 'raise'"),
    **dict.fromkeys(("stepwise.keep", "feature_importance.keep", "StepwiseSelector.keep"), COLUMNS),
    "checkpoint": PATH,
    "output": PATH,
    "level": Rule(lambda value: _is_number(value) and 0 < value < 1, "a number between 0 and 1", "Use 0.95 for 95 %."),
    "sample": _count(1, "Leave it out to check 20 bounds.").allow(None, ", or None for all"),
    "digits": _count(30, "Use 50, the default."),
    "seed": _count(0, "Use 0, the default."),
    **dict.fromkeys(
        ("forced", "keep_data", "fit_intercept", "return_result", "return_train_score", "return_estimator", "return_indices"), SWITCH
    ),
}  # fmt: skip
"""The rule of an option, by its name, or by "function.name" where functions differ."""


def check_options(owner: str, options: Mapping[str, Any], spell: Callable[[str], str] = str) -> None:
    """Refuse the options of a function, a class or a command whose rule does not hold; ``spell``: how an error spells the name of one."""
    for name, value in options.items():
        rule = RULES.get(f"{owner}.{name}") or RULES.get(name)
        if rule is not None and not rule.holds(value):
            raise OptionError(f"{spell(name)} must be {rule.wanted}; got {_show(value)}. {rule.advise(value)}")


def _show(value: Any) -> str:
    """A value on one line, cut off where it is long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[: MAX_VALUE_LENGTH - 3]}..."


def suggest_options(function: Function) -> Function:
    """Suggest the closest option for a misspelt one; for a class, wrap its constructor."""
    if isinstance(function, type):
        function.__init__ = suggest_options(function.__init__)  # type: ignore[misc]
        return function
    known, name = signature(function).parameters, function.__qualname__.removesuffix(".__init__").rpartition(".")[2]

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        for option in options:
            if option not in known:
                near = _find_nearest(option, known)
                hint = "" if near is None else f". Did you mean {near!r}?"
                raise TypeError(f"{name}() got an unexpected keyword argument {option!r}{hint}")
        return function(*args, **options)

    return call  # type: ignore[return-value]


def check_call(function: Function) -> Function:
    """Check the options of a function before it is called, after :func:`suggest_options`."""
    shape, name = signature(function), function.__qualname__.removesuffix(".__init__").rpartition(".")[2]

    @suggest_options
    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            given = shape.bind_partial(*args, **options).arguments
        except TypeError:
            # Too many arguments: Python's own error names the function.
            return function(*args, **options)
        check_options(name, given)
        return function(*args, **options)

    return call  # type: ignore[return-value]


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside this library that made the outermost call into it."""
    folder = os.path.dirname(__file__) + os.sep
    frame, depth, level = sys._getframe(), 1, 1
    while frame is not None:
        if frame.f_code.co_filename.startswith(folder):
            level = depth + 1
        frame, depth = frame.f_back, depth + 1  # type: ignore[assignment]
    warnings.warn(message, category, stacklevel=level)
