"""Data that is not what it seems: masks, dates and missing values are refused by name, everywhere alike."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

import glru

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(30, 3))
Y = np.where(X[:, 0] + 0.5 * RANDOM.normal(size=30) > 0.0, 1, 0)
TARGETS = X @ [1.0, -1.0, 0.5]
MASK = np.zeros(X.shape, dtype=bool)
MASK[[4, 9], 1] = True
SQUARED = {"loss": glru.Squared()}

DAYS = np.datetime64("2021-01-01") + np.arange(30)
SPANS = np.arange(30).astype("timedelta64[s]")
CLOCK = [datetime.time(k % 24) for k in range(30)]


# Masked arrays --------------------------------------------------------------------------------------------------------

MASKED = np.ma.array(X, mask=MASK)
USES = {
    "problem": lambda data: glru.Problem(data, Y),
    "estimator": lambda data: glru.loocv(LogisticRegression(), data, Y),
    "drop-in": lambda data: glru.cross_val_predict(Ridge(), data, TARGETS),
    "fit": lambda data: glru.GLRUClassifier().fit(data, Y),
    "queries": lambda data: glru.after(glru.solve(glru.Problem(X, Y)), glru.RemoveRows([1])).score_bounds(data),
    "rows": lambda data: glru.AddRows(data, Y).apply(glru.Problem(X, Y)),
    "columns": lambda data: glru.AddColumns(data).apply(glru.Problem(X, Y)),
    "live": lambda data: glru.LiveModel(LogisticRegression()).fit(data, Y),
    "validation": lambda data: glru.stepwise(glru.Problem(X, Y), X_val=data, y_val=Y),
}


@pytest.mark.parametrize("name", USES)
def test_masked_data(name):
    with pytest.raises(ValueError, match=r"no masked entries; 2 are masked, the first column with some is 1\."):
        USES[name](MASKED)


def test_masked_rows_in_a_list():
    with pytest.raises(ValueError, match="no masked entries; 2 are masked"):
        glru.Problem(list(MASKED), Y)
    assert np.array_equal(glru.Problem(list(np.ma.array(X)), Y).X, X)


def test_masked_targets_and_weights():
    for problem in (
        lambda y: glru.Problem(X, y),
        lambda y: glru.Problem(X, y, **SQUARED),
        lambda y: glru.loocv(LogisticRegression(), X, y),
        lambda y: glru.GLRURegressor().fit(X, y),
        lambda y: glru.Problem(X, Y, sample_weight=y),
        lambda y: glru.GLRUClassifier().fit(X, Y, sample_weight=y),
        lambda y: glru.Relabel(range(30), y).apply(glru.Problem(X, Y)),
        lambda y: glru.stepwise(glru.Problem(X, Y), X_val=X, y_val=y),
    ):
        with pytest.raises(ValueError, match="must have no masked entries; 2 are masked"):
            problem(np.ma.array(Y, mask=MASK[:, 1]))


def test_a_mask_that_hides_nothing():
    """Arrays that are masked by type alone are their numbers."""
    plain = glru.solve(glru.Problem(X, Y))
    same = glru.solve(glru.Problem(np.ma.array(X), np.ma.array(Y, mask=np.zeros(30, dtype=bool))))
    assert np.array_equal(plain.coef, same.coef)


# Dates, times and durations -------------------------------------------------------------------------------------------

FRAMES = {
    "polars-date": pl.DataFrame({"a": X[:, 0], "when": DAYS}).with_columns(pl.col("when").cast(pl.Date)),
    "polars-datetime": pl.DataFrame({"a": X[:, 0], "when": DAYS.astype("datetime64[us]")}),
    "polars-alone": pl.DataFrame({"when": DAYS.astype("datetime64[us]")}),
    "polars-duration": pl.DataFrame({"a": X[:, 0], "when": SPANS.astype("timedelta64[us]")}),
    "polars-time": pl.DataFrame({"a": X[:, 0], "when": CLOCK}),
    "pandas": pd.DataFrame({"a": X[:, 0], "when": DAYS.astype("datetime64[ns]")}),
    "pandas-alone": pd.DataFrame({"when": DAYS.astype("datetime64[ns]")}),
    "pandas-zone": pd.DataFrame({"a": X[:, 0], "when": pd.date_range("2021", periods=30, tz="Asia/Tokyo")}),
    "pandas-duration": pd.DataFrame({"when": SPANS.astype("timedelta64[ns]")}),
    "pandas-dates": pd.DataFrame({"a": X[:, 0], "when": [day.item() for day in DAYS]}),
    "pandas-times": pd.DataFrame({"a": X[:, 0], "when": CLOCK}),
    "pandas-arrow": pd.DataFrame(
        {"a": X[:, 0], "when": pd.array([day.item() for day in DAYS], dtype="date32[pyarrow]")}
    ),
}


@pytest.mark.parametrize("name", FRAMES)
def test_dates_in_frames(name):
    for use in (lambda frame: glru.Problem(frame, Y), lambda frame: glru.loocv(LogisticRegression(), frame, Y)):
        with pytest.raises(ValueError, match=r"dates or times are in 'when' \(.*Turn dates, times and durations into"):
            use(FRAMES[name])


@pytest.mark.parametrize("name", ["polars-datetime", "polars-alone", "pandas-alone", "pandas-duration", "pandas-zone"])
def test_dates_in_estimators(name):
    with pytest.raises(ValueError, match=r"dates or times are in 'when'"):
        glru.GLRUClassifier().fit(FRAMES[name], Y)


def test_dates_in_arrays():
    for values in (DAYS, SPANS, DAYS.astype("datetime64[ns]"), DAYS.astype("datetime64[s]")):
        with pytest.raises(ValueError, match=r"got (datetime|timedelta)64\[.*\] in all columns\. Turn dates"):
            glru.Problem(values[:, None], Y)
        with pytest.raises(ValueError, match=r"y must be numeric; got (datetime|timedelta)64.*Turn dates"):
            glru.Problem(X, values, **SQUARED)
        for use in (glru.Problem, glru.GLRUClassifier().fit):
            with pytest.raises(ValueError, match=r"sample_weight must be numeric; got (datetime|timedelta)64"):
                use(X, Y, sample_weight=values)
        with pytest.raises(ValueError, match=r"numeric|datetime|timedelta"):
            glru.GLRURegressor().fit(X, values)
    for kind in ("datetime64[ns]", "datetime64[D]"):
        objects = np.array([X[:, 0].tolist(), list(DAYS.astype(kind))], dtype=object).T
        with pytest.raises(ValueError, match=r"dates or times are in column 1 \(datetime64\)"):
            glru.Problem(objects, Y)
        with pytest.raises(ValueError, match="y must be numeric; got datetime64"):
            glru.Problem(X, objects[:, 1], **SQUARED)


def test_dates_as_labels_are_labels():
    """Two dates are two classes; a missing one is none."""
    labels = np.where(Y == 1, np.datetime64("2021-01-02"), np.datetime64("2021-01-01"))
    assert glru.Problem(X, labels).classes.size == 2
    labels[7] = np.datetime64("NaT", "D")
    with pytest.raises(ValueError, match="y must be finite; entry 7 is NaT"):
        glru.Problem(X, labels)


# Missing values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Int64", "Float64", "boolean", "int64[pyarrow]", "object"])
def test_missing_values_of_pandas(kind):
    column = pd.array([True, False] * 15, dtype=kind)
    column[5] = pd.NA
    for frame in (pd.DataFrame({"a": X[:, 0], "b": column}), pd.DataFrame({"a": Y == 1, "b": column})):
        with pytest.raises(ValueError, match=r"row 5, column 'b' is nan \(1 such entries in all\)"):
            glru.Problem(frame, Y)
    targets = pd.Series(column)
    with pytest.raises(ValueError, match="y must be finite; entry 5 is"):
        glru.Problem(X, targets)
    with pytest.raises(ValueError, match="y must be finite; entry 5 is nan"):
        glru.Problem(X, targets, **SQUARED)
    with pytest.raises(ValueError, match=r"y must be finite; entry 5 is|NaN|missing"):
        glru.loocv(LogisticRegression(), X, targets)


def test_nullable_columns_without_missing_values():
    frame = pd.DataFrame({"a": pd.array(X[:, 0], dtype="Float64"), "b": pd.array(Y, dtype="Int64"), "c": Y == 1})
    assert np.array_equal(glru.Problem(frame, Y).X, np.column_stack([X[:, 0], Y, Y == 1]))


def test_text_is_named():
    frame = pd.DataFrame({"a": X[:, 0], "b": ["x"] * 30, "c": [{}] * 30})
    with pytest.raises(ValueError, match=r"Not numeric: 'b', 'c'\. Encode such columns first"):
        glru.Problem(frame, Y)
    with pytest.raises(ValueError, match=r"Not numeric: column 1\. Encode such columns first"):
        glru.Problem(frame[["a", "b"]].to_numpy(), Y)
