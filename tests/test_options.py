"""Every option of every public function is checked by one rule before any work: the error has the rule, the value and a remedy."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from sklearn.model_selection import LeaveOneOut
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import glru
from glru._options import RULES, OptionError, check_options
from glru.removals.single import STEPS
from glru.selection.criteria import CRITERIA, INFORMATION
from glru.solvers.api import SOLVERS

NUMBERS = ["many", [1], np.nan, -1.0, object()]
NAMES = ["guess", 3, ["auto"], b"auto"]
COUNTS = [*NUMBERS, 1.5, True]
SWITCHES = (
    *("forced", "keep_data", "fit_intercept", "return_result", "return_train_score", "return_estimator", "return_indices"),
)  # fmt: skip
BAD = {
    "tol": [*NUMBERS, np.inf, None, True],
    "training_tol": [*NUMBERS, np.inf, None],
    "width": [*NUMBERS, 0.0, False],
    "max_seconds": [*NUMBERS, 0.0],
    "max_memory": [*COUNTS, 0],
    "max_trainings": COUNTS,
    "max_steps": COUNTS,
    "max_iter": [*COUNTS, 0],
    "min_features": [*COUNTS, 0, None],
    "max_features": [*COUNTS, 0],
    "min_features_to_select": [*COUNTS, 0, None],
    "step": [*NUMBERS, 0, 1.0, None],
    "method": [*NAMES, None],
    "bound": [*NAMES, None],
    "candidate": [*NAMES, None],
    "direction": [*NAMES, None],
    "criterion": NAMES,
    "importance_getter": [*NAMES, None],
    "center": NAMES,
    "solver": [*NAMES, None],
    "cv": [1, 0, -3, "five", 2.5, object(), {3: 4}, True, LeaveOneOut],
    "keep": [3, None],
    "n_jobs": [0, 1.5, "all", True, [2]],
    "verbose": [-1, "loud", None, [1]],
    "progress": ["yes", 3, [True]],
    "params": [[1], "sample_weight", 3],
    "error_score": ["warn", None, [1]],
    "checkpoint": [3, ["file"], b"x", True],
    "output": [3, ["file"], True],
    "change": [3, "rows", [1], None],
    "sample": [*COUNTS, 0],
    "digits": [*COUNTS, 29, None],
    "seed": [*COUNTS, None],
    **{name: ["yes", 2, None] for name in SWITCHES},
}  # fmt: skip

FREE = {  # data, models and what their meaning depends on
    *("model", "estimator", "problem", "result", "X", "y", "sample_weight", "X_val", "y_val", "groups", "queries"),
    *("targets", "lams", "Cs", "start", "until", "scoring", "loss", "C", "lam", "kappa", "class_weight", "preprocessing"),
    *("validation", "n_features_to_select", "random_state", "receipt", "key", "public_key", "solution", "self"),
}  # fmt: skip


class Untouchable:
    """Stands for a model: whoever looks at it has begun to work."""

    def __getattribute__(self, name):
        raise AssertionError(f"the work began: {name!r} was asked for")


FUNCTIONS = [
    "after", "certify", "cross_val_predict", "cross_val_score", "cross_validate", "feature_importance", "influence", "jackknife",
    "loocv", "loocv_path", "solve", "stepwise", "verify", "LiveModel",
]  # fmt: skip
ESTIMATORS = [
    "CertifiedRFECV", "GLRUClassifier", "GLRUClassifierCV", "GLRURegressor", "GLRURegressorCV", "StepwiseSelector",
]  # fmt: skip


def cases(names):
    found = []
    for name in names:
        for option in inspect.signature(getattr(glru, name)).parameters:
            for value in BAD.get(option, []):
                if option == "tol" and name == "StepwiseSelector" and value in (None, -1.0):
                    continue  # the gain that a step must have; may be anything finite
                found.append(pytest.param(name, option, value, id=f"{name}-{option}-{value!r:.20}".replace(" ", "")))
    return found


def refused(option, value):
    rule = rf"{option} must be .+; got {re.escape(repr(value))}\. [A-Z].*[.?]$"
    return pytest.raises(OptionError, match=rule)


@pytest.mark.parametrize(("name", "option", "value"), cases(FUNCTIONS))
def test_functions_refuse_bad_options_before_any_work(name, option, value):
    function = getattr(glru, name)
    needed = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    given = {p.name: glru.RemoveRows([0]) if p.name == "change" else Untouchable() for p in needed}
    with refused(option, value):
        function(**given | {option: value})


@pytest.mark.parametrize(("name", "option", "value"), cases(ESTIMATORS))
def test_estimators_refuse_bad_options_before_any_work(name, option, value):
    kind = getattr(glru, name)
    needed = [p for p in inspect.signature(kind).parameters.values() if p.default is p.empty]
    model = kind(**{p.name: glru.GLRUClassifier() for p in needed} | {option: value})
    with refused(option, value):
        model.fit(Untouchable(), Untouchable())


@pytest.mark.parametrize("name", FUNCTIONS + ESTIMATORS)
def test_every_option_has_a_rule(name):
    for option, parameter in inspect.signature(getattr(glru, name)).parameters.items():
        rule = RULES.get(f"{name}.{option}") or RULES.get(option)
        assert rule is not None or option in FREE, option
        assert rule is None or option in BAD or "." in option or name in ("StepwiseSelector", "CertifiedRFECV")
        if rule is not None and parameter.default is not parameter.empty:
            assert rule.holds(parameter.default), option


def test_a_misspelt_value_or_name_is_answered_by_the_right_one():
    for given, meant in (
        ({"direction": "forwards"}, "forward"),
        ({"criterion": "logloss"}, "log_loss"),
        ({"CV": 3}, "cv"),
    ):
        with pytest.raises(TypeError, match=f"Did you mean '{meant}'"):
            glru.stepwise(Untouchable(), **given)


def test_data_in_the_place_of_a_change_is_named_in_one_line():
    X, y = np.zeros((50, 3)), np.arange(50) % 2
    with pytest.raises(
        TypeError, match=r"^change must be a glru change such as glru.RemoveRows.*X=X, y=y\).$"
    ) as found:
        glru.after(glru.GLRUClassifier(), X, y)
    assert len(str(found.value)) < 250


def test_names_are_those_of_the_tables_behind_them():
    """A name that the table allows is there, and the other way round."""
    for key, known in {
        "solver": ("auto", *SOLVERS),
        "loocv.method": tuple(STEPS),
        "criterion": (*CRITERIA, "deviance", *INFORMATION),
    }.items():
        assert all(RULES[key].holds(name) and repr(name) in RULES[key].wanted for name in known)
        assert RULES[key].wanted.count("'") == 2 * len(known)


def test_what_is_allowed():
    allowed = {
        "width": [1e-6, np.float32(1), np.inf, None],
        "n_jobs": [-1, np.int64(2)],
        "cv": [2, np.int64(3), [([0], [1])], None],
    }
    for option, values in allowed.items():
        for value in values:
            check_options("anything", {option: value})
    check_options("loocv", {"width": "labels"})
    with pytest.raises(
        OptionError, match=r"--max-seconds must be a number of seconds above 0, or None for no limit; got -1"
    ):
        check_options("loocv", {"max_seconds": -1}, lambda name: f"--{name.replace('_', '-')}")


@pytest.mark.parametrize("name", [*FUNCTIONS, *ESTIMATORS, "Problem"])
def test_a_misspelt_option_is_told_the_right_one(name):
    function = getattr(glru, name)
    option = list(inspect.signature(function).parameters)[-1]
    with pytest.raises(
        TypeError, match=rf"^{name}\(\) got an unexpected keyword argument '{option}_'\. Did you mean '{option}'\?"
    ):
        function(**{f"{option}_": None})


def warn_by_solving():
    X = np.random.default_rng(0).normal(size=(30, 3))
    glru.solve(glru.Problem(X, X[:, 0] > 0.3, penalty=glru.L2(1e-3)), tol=1e-13, max_iter=1)


def warn_by_validating():
    X = np.arange(12.0).reshape(6, 2)
    glru.cross_val_score(Ridge(), X, X[:, 0], cv=LeaveOneOut(), scoring="r2")


def warn_by_fitting():
    X = np.random.default_rng(0).normal(size=(30, 3))
    make_pipeline(StandardScaler(), glru.GLRUClassifier(lam=1e-3, tol=1e-13, max_iter=1)).fit(X, X[:, 0] > 0.3)


@pytest.mark.parametrize(
    ("call", "category"),
    [(warn_by_solving, ConvergenceWarning), (warn_by_validating, UserWarning), (warn_by_fitting, ConvergenceWarning)],
)
def test_warnings_point_outside_the_library(call, category):
    with pytest.warns(category) as caught:
        call()
    places = {Path(one.filename) for one in caught}
    assert not any(Path(glru.__file__).parent in place.parents for place in places)
    # The call of a step comes from scikit-learn's pipeline.
    assert call is warn_by_fitting or places == {Path(__file__)}
