"""Every change of the data does what the obvious NumPy line does, composes left to right, or says why it cannot."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

import glru
from tests.cases import dense, each
from tests.core import read_layout

X = dense(6, 3) * (np.arange(18).reshape(6, 3) % 4 > 0)
Y = np.array([0, 1, 0, 1, 1, 0])
SIGNS = np.where(Y == 1, 1.0, -1.0)
WEIGHT = np.array([1.0, 2.0, 0.5, 1.0, 3.0, 0.0])
ROWS, COLUMNS = dense(2, 3, seed=5), dense(6, 2, seed=6)
FRAME = pd.DataFrame(X, columns=["a", "b", "c"])


def edited(matrix, rows, columns, values):
    """A copy with other values at the crossings."""
    out = matrix.copy()
    out[np.ix_(rows, columns)] = values
    return out


def put(vector, rows, values):
    """A copy with other entries."""
    out = vector.copy()
    out[rows] = values
    return out


EXPECTED = {
    "remove-row": (glru.RemoveRows(4), np.delete(X, 4, 0), np.delete(SIGNS, 4), np.delete(WEIGHT, 4)),
    "remove-rows": (glru.RemoveRows([4, 1]), X[[0, 2, 3, 5]], SIGNS[[0, 2, 3, 5]], WEIGHT[[0, 2, 3, 5]]),
    "remove-nothing": (glru.RemoveRows([]), X, SIGNS, WEIGHT),
    "add-rows": (
        glru.AddRows(ROWS, [1, 0]),
        np.vstack([X, ROWS]),
        np.append(SIGNS, [1, -1]),
        np.append(WEIGHT, [1, 1]),
    ),
    "add-weighted": (
        glru.AddRows(ROWS, [1, 0], [0.5, 0.0]),
        np.vstack([X, ROWS]),
        np.append(SIGNS, [1, -1]),
        np.append(WEIGHT, [0.5, 0.0]),
    ),
    "add-sparse-rows": (
        glru.AddRows(sp.coo_array(ROWS), [1, 0]),
        np.vstack([X, ROWS]),
        np.append(SIGNS, [1, -1]),
        np.append(WEIGHT, [1, 1]),
    ),
    "remove-columns": (glru.RemoveColumns([2, 0]), X[:, [1]], SIGNS, WEIGHT),
    "add-columns": (glru.AddColumns(COLUMNS), np.hstack([X, COLUMNS]), SIGNS, WEIGHT),
    "add-sparse-columns": (glru.AddColumns(sp.csc_matrix(COLUMNS)), np.hstack([X, COLUMNS]), SIGNS, WEIGHT),
    "edit": (
        glru.EditValues([5, 0], [2, 1], [[1.0, 2.0], [0.0, 4.0]]),
        edited(X, [5, 0], [2, 1], [[1.0, 2.0], [0.0, 4.0]]),
        SIGNS,
        WEIGHT,
    ),
    "edit-scalar": (glru.EditValues([1, 2], [0, 2], 7), edited(X, [1, 2], [0, 2], 7.0), SIGNS, WEIGHT),
    "edit-line": (glru.EditValues([1], [0, 2], [7, 8]), edited(X, [1], [0, 2], [[7.0, 8.0]]), SIGNS, WEIGHT),
    "relabel": (glru.Relabel([0, 3], [1, 0]), X, put(SIGNS, [0, 3], [1, -1]), WEIGHT),
    "reweight": (glru.Reweight([5, 1], [2.0, 0.0]), X, SIGNS, put(WEIGHT, [5, 1], [2.0, 0.0])),
    "repenalise": (glru.Repenalise(glru.L2(0.5)), X, SIGNS, WEIGHT),
    "reweight-scalar": (glru.Reweight([2, 0], 4), X, SIGNS, put(WEIGHT, [2, 0], 4.0)),
}

DATA = {"dense": X, "column-major": np.asfortranarray(X), "sparse": sp.csr_array(X), "frame": FRAME}


@each(DATA, "data")
@each(EXPECTED, "case")
@pytest.mark.parametrize("scaling", ["mean", "sum"])
def test_changes_do_the_obvious(data, case, scaling):
    """Data, targets and weights; the storage, the classes and everything else stay."""
    change, X_new, y_new, weight = case
    problem = glru.Problem(data, Y, penalty=glru.L2(0.5), scaling=scaling, sample_weight=WEIGHT, fit_intercept=True)
    changed = change.apply(problem)
    assert sp.issparse(changed.X) == sp.issparse(problem.X) and changed.X.dtype == np.float64
    np.testing.assert_array_equal(changed.X.toarray() if sp.issparse(changed.X) else changed.X, X_new)
    np.testing.assert_array_equal(changed.y, y_new)
    np.testing.assert_array_equal(changed.sample_weight, weight)
    np.testing.assert_array_equal(changed.weights, weight / weight.sum() if scaling == "mean" else weight)
    assert changed.classes is problem.classes and changed.scaling == scaling and changed.fit_intercept
    assert changed.loss is problem.loss and changed.penalty.lam == 0.5
    if sp.issparse(changed.X):
        assert changed.X.has_canonical_format
    layout = change.check(read_layout(problem))
    assert (layout.n_rows, layout.n_columns) == changed.X.shape
    assert layout.column_names == changed.column_names


@each(EXPECTED, "case")
def test_the_old_problem_stays(case):
    """Applying a change reads the problem and nothing more."""
    problem = glru.Problem(X.copy(), Y, sample_weight=WEIGHT)
    case[0].apply(problem)
    np.testing.assert_array_equal(problem.X, X)
    np.testing.assert_array_equal(problem.y, SIGNS)
    np.testing.assert_array_equal(problem.sample_weight, WEIGHT)


def test_regression_targets():
    """Real numbers go in as they are."""
    problem = glru.Problem(X, np.arange(6.0), loss=glru.Squared())
    assert glru.Relabel([2], [9.5]).apply(problem).y.tolist() == [0, 1, 9.5, 3, 4, 5]
    assert glru.AddRows(ROWS, [-1, 7]).apply(problem).y.tolist() == [0, 1, 2, 3, 4, 5, -1, 7]


CLASSES = {
    "text": (["ham", "spam"] * 3, ["spam", "ham"]),
    "bool": ([False, True] * 3, [True, False]),
    "floats": ([1.5, 2.5] * 3, [2.5, 1.5]),
    "one-two": ([1, 2] * 3, [2, 1]),
    "signs": ([-1, 1] * 3, [1, -1]),
}


@each(CLASSES, "case")
def test_labels_are_the_users(case):
    """New labels are given as the old ones were; a list, an array or a series."""
    old, new = case
    problem = glru.Problem(X, old)
    for labels in (new, np.array(new), pd.Series(new)):
        assert glru.Relabel([0, 1], labels).apply(problem).y[:2].tolist() == [1.0, -1.0]
        assert glru.AddRows(ROWS, labels).apply(problem).y[6:].tolist() == [1.0, -1.0]
    assert glru.Relabel([0], new[:1]).apply(problem).y[0] == 1.0
    assert glru.Relabel([0], new[1:]).apply(problem).y[0] == -1.0


def test_signs_stand_for_the_classes():
    """-1 and +1 are understood whatever the classes are called."""
    for old in (["no", "yes"] * 3, [0, 1] * 3, [3, 7] * 3):
        problem = glru.Problem(X, old)
        assert glru.AddRows(ROWS, [1, -1]).apply(problem).y[6:].tolist() == [1.0, -1.0]


def test_changes_compose_left_to_right():
    """Each change names rows and columns as the ones before it left them."""
    problem = glru.Problem(FRAME, Y, sample_weight=WEIGHT)
    both = glru.RemoveRows([0]) + glru.RemoveRows([0])
    np.testing.assert_array_equal(both.apply(problem).X, X[2:])
    mixed = glru.RemoveColumns(["a"]) + glru.AddColumns(COLUMNS) + glru.EditValues([1], ["b", "column 3"], 5.0)
    changed = mixed.apply(problem)
    expected = np.hstack([X[:, 1:], COLUMNS])
    expected[1, [0, 3]] = 5.0  # "b" and the second new column: the first is "column 2", two columns stood before it
    np.testing.assert_array_equal(changed.X, expected)
    swapped = glru.AddRows(ROWS, [1, 0]) + glru.RemoveRows([0, 7]) + glru.Relabel([5], [0])
    changed = swapped.apply(problem)
    np.testing.assert_array_equal(changed.X, np.vstack([X[1:], ROWS[:1]]))
    assert changed.y.tolist() == [*SIGNS[1:], -1.0]


def test_composition_is_associative():
    """And shows its parts in order."""
    a, b, c = glru.RemoveRows([0]), glru.AddColumns(COLUMNS[1:]), glru.Reweight([1], 3.0)
    assert repr((a + b) + c) == repr(a + (b + c)) == f"{a!r} + {b!r} + {c!r}"
    problem = glru.Problem(X, Y)
    for change in ((a + b) + c, a + (b + c)):
        np.testing.assert_array_equal(change.apply(problem).X, np.hstack([X[1:], COLUMNS[1:]]))
    with pytest.raises(TypeError, match="unsupported operand"):
        a + 3


@each(DATA, "data")
@pytest.mark.parametrize("scaling", ["mean", "sum"])
def test_adding_and_removing_is_the_identity(data, scaling):
    """Rows and columns that come and go leave the problem as it was, bit by bit."""
    problem = glru.Problem(data, Y, scaling=scaling, sample_weight=WEIGHT)
    rows = glru.AddRows(ROWS, [1, 0], [3.0, 0.7]) + glru.RemoveRows([6, 7])
    columns = glru.AddColumns(COLUMNS) + glru.RemoveColumns([4, 3])
    weights = glru.Reweight([1, 5], [9.0, 9.0]) + glru.Reweight([5, 1], WEIGHT[[5, 1]])
    for change in (rows, columns, weights, rows + columns):
        changed = change.apply(problem)
        same = changed.X != problem.X
        assert not (same.nnz if sp.issparse(same) else same.any())
        for name in ("y", "sample_weight", "weights"):
            np.testing.assert_array_equal(getattr(changed, name), getattr(problem, name))
        assert changed.column_names == problem.column_names
        assert changed.penalty.lam == problem.penalty.lam


def test_strengths_follow_their_columns():
    """A penalty with one strength a column loses and gains entries with them."""
    problem = glru.Problem(X, Y, penalty=glru.ElasticNet([1.0, 2.0, 3.0], 0.5))
    assert glru.RemoveColumns([1]).apply(problem).penalty.lam.tolist() == [1.0, 3.0]
    added = glru.AddColumns(COLUMNS, penalty=glru.ElasticNet(7.0, [0.0, 9.0])).apply(problem).penalty
    assert added.lam.tolist() == [1.0, 2.0, 3.0, 7.0, 7.0] and added.kappa.tolist() == [0.5, 0.5, 0.5, 0.0, 9.0]
    plain = glru.Problem(X, Y, penalty=glru.L1(0.5))
    assert glru.AddColumns(COLUMNS).apply(plain).penalty.kappa == 0.5
    assert glru.AddColumns(COLUMNS, glru.L1(2.0)).apply(plain).penalty.kappa.tolist() == [0.5, 0.5, 0.5, 2.0, 2.0]


@pytest.mark.parametrize("library", [pd, pl], ids=["pandas", "polars"])
def test_frames_are_matched_by_name(library):
    """Rows of a frame in another order of columns, columns by name, new columns under their own names."""
    problem = glru.Problem(library.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]}), Y)
    shuffled = library.DataFrame({"c": ROWS[:, 2], "a": ROWS[:, 0], "b": ROWS[:, 1]})
    np.testing.assert_array_equal(glru.AddRows(shuffled, [0, 1]).apply(problem).X[6:], ROWS)
    fewer = glru.RemoveColumns(["c", "a"]).apply(problem)
    assert fewer.column_names == ("b",) and fewer.X[:, 0].tolist() == X[:, 1].tolist()
    more = glru.AddColumns(library.DataFrame({"d": COLUMNS[:, 0], "e": COLUMNS[:, 1]})).apply(problem)
    assert more.column_names == ("a", "b", "c", "d", "e")
    assert glru.AddColumns(COLUMNS).apply(problem).column_names == ("a", "b", "c", "column 3", "column 4")
    assert glru.EditValues([1], ["c"], 9.0).apply(problem).X[1].tolist() == [*X[1, :2], 9.0]
    assert glru.RemoveColumns("b").apply(problem).column_names == ("a", "c")


def test_a_single_class_may_be_left():
    """The labels that remain keep their meaning."""
    problem = glru.Problem(X, Y)
    assert glru.RemoveRows([0, 2, 5]).apply(problem).y.tolist() == [1.0, 1.0, 1.0]


REFUSED = {
    "row-above": (glru.RemoveRows([2, 6]), "rows must be positions from 0 to 5; got 6"),
    "row-below": (glru.RemoveRows([-1]), "rows must be positions from 0 to 5; got -1"),
    "row-twice": (glru.RemoveRows([2, 2]), r"rows must be named once each; got \[2, 2\]"),
    "row-float": (glru.RemoveRows([1.0]), "rows must be given as integer positions"),
    "row-mask": (glru.RemoveRows([True] * 6), "rows must be given as integer positions"),
    "row-name": (glru.RemoveRows(["a"]), "rows must be given as integer positions"),
    "rows-2d": (glru.RemoveRows([[1]]), "rows must be given as integer positions"),
    "all-rows": (glru.RemoveRows(range(6)), "must leave at least one row; got the removal of all 6"),
    "column-above": (glru.RemoveColumns([3]), "columns must be positions from 0 to 2; got 3"),
    "column-twice": (glru.RemoveColumns([0, 0]), "columns must be named once each"),
    "column-name": (glru.RemoveColumns(["z"]), r"columns must be among those of the problem \(a, b, c\); got 'z'"),
    "all-columns": (glru.RemoveColumns(["a", "b", "c"]), "must leave at least one column; got the removal of all 3"),
    "narrow-rows": (glru.AddRows(ROWS[:, :2], [1, 0]), "new rows must have 3 columns, as the problem has; got 2"),
    "few-targets": (glru.AddRows(ROWS, [1]), r"y must have one entry per row, shape \(2,\); got shape \(1,\)"),
    "new-label": (glru.AddRows(ROWS, [1, 5]), "labels must be 0 or 1, as in the problem; got 5"),
    "nan-label": (glru.AddRows(ROWS, [1, np.nan]), "labels must be 0 or 1, as in the problem; got nan"),
    "row-weight": (glru.AddRows(ROWS, [1, 0], [1.0, -2.0]), "weights must be at least 0; entry 1 is -2.0"),
    "row-weight-nan": (glru.AddRows(ROWS, [1, 0], [1.0, np.nan]), "weights must be finite; entry 1 is nan"),
    "row-weight-count": (glru.AddRows(ROWS, [1, 0], [1.0]), r"weights must have one entry"),
    "row-names": (
        glru.AddRows(pd.DataFrame(ROWS, columns=["a", "b", "z"]), [1, 0]),
        "must have the problem's columns; missing: c",
    ),
    "short-columns": (glru.AddColumns(COLUMNS[:5]), "new columns must have 6 rows, as the problem has; got 5"),
    "column-names": (
        glru.AddColumns(pd.DataFrame(COLUMNS, columns=["b", "d"])),
        "new columns must have new names; got b again",
    ),
    "penalty-kind": (glru.AddColumns(COLUMNS, glru.L1(1.0)), r"penalty must be of the problem's kind, L2\(lam=1.0\)"),
    "penalty-count": (
        glru.AddColumns(COLUMNS, glru.L2([1.0] * 3)),
        "penalty must have one strength per new column; got 3",
    ),
    "edit-row": (glru.EditValues([6], [0], 1.0), "rows must be positions from 0 to 5; got 6"),
    "edit-column": (glru.EditValues([0], [3], 1.0), "columns must be positions from 0 to 2; got 3"),
    "edit-shape": (glru.EditValues([0, 1], [0], [[1.0, 2.0]]), r"shape \(2, 1\); got shape \(1, 2\)"),
    "edit-pairs": (glru.EditValues([0, 1], [0, 1], [1.0, 2.0]), r"shape \(2, 2\); got shape \(2,\)"),
    "edit-nan": (glru.EditValues([0], [0], np.nan), "values must be finite; got NaN or infinity"),
    "edit-inf": (glru.EditValues([0], [0, 1], [[1.0, np.inf]]), "values must be finite; got NaN or infinity"),
    "relabel-row": (glru.Relabel([9], [1]), "rows must be positions from 0 to 5; got 9"),
    "relabel-count": (
        glru.Relabel([0, 1], [1]),
        r"y must have one entry per row, shape \(2,\); got shape \(1,\)",
    ),
    "relabel-new": (glru.Relabel([0], ["yes"]), "labels must be 0 or 1, as in the problem; got yes"),
    "reweight-row": (glru.Reweight([6], 1.0), "rows must be positions from 0 to 5; got 6"),
    "reweight-negative": (glru.Reweight([0], -1.0), "weights must be at least 0; entry 0 is -1.0"),
    "reweight-nan": (glru.Reweight([0], np.nan), "weights must be finite; entry 0 is nan"),
    "second": (glru.RemoveRows([0]) + glru.RemoveRows([5]), "rows must be positions from 0 to 4; got 5"),
    "name-gone": (glru.RemoveColumns(["a"]) + glru.EditValues([0], ["a"], 1.0), r"\(b, c\); got 'a'"),
    "rows-and-all": (glru.RemoveRows([0, 1, 2]) + glru.RemoveRows([0, 1, 2]), "must leave at least one row"),
}


@each(REFUSED, "case")
def test_what_does_not_fit_is_refused(case):
    """By ``check``, before any work, and by ``apply``; the problem stays as it was."""
    change, message = case
    problem = glru.Problem(FRAME, Y, sample_weight=WEIGHT)
    with pytest.raises(ValueError, match=message):
        change.check(read_layout(problem))
    with pytest.raises(ValueError, match="must"):
        change.apply(problem)
    np.testing.assert_array_equal(problem.X, X)
    np.testing.assert_array_equal(problem.y, SIGNS)
    np.testing.assert_array_equal(problem.sample_weight, WEIGHT)
    assert problem.column_names == ("a", "b", "c")


GIVEN = {
    "remove-rows": (glru.RemoveRows, [np.array([1, 2])]),
    "list": (glru.RemoveRows, [[1, 2]]),
    "add-rows": (glru.AddRows, [ROWS, np.array([1, 0]), np.array([1.0, 2.0])]),
    "add-sparse-rows": (glru.AddRows, [sp.csr_array(ROWS), np.array([1, 0])]),
    "add-columns": (glru.AddColumns, [COLUMNS]),
    "relabel": (glru.Relabel, [np.array([1, 2]), np.array([1, 0])]),
    "reweight": (glru.Reweight, [np.array([1, 2]), np.array([0.0, 2.0])]),
    "edit": (glru.EditValues, [np.array([1, 2]), np.array([0, 1]), np.array([[1.0, 2.0], [3.0, 4.0]])]),
    "remove-columns": (glru.RemoveColumns, [np.array([0])]),
}


@each(GIVEN, "case")
def test_a_change_does_not_follow_what_it_was_made_of(case):
    """Answers are lazy: an array that is filled again for the next change must not change the question."""
    kind, parts = case
    given = [part.copy() for part in parts]
    change = kind(*given)
    for part in given:
        if isinstance(part, list):
            part.reverse()
            part[0] = 0
        else:
            part[:1] = 3.0 * part[:1] + 1.0 if isinstance(part, np.ndarray) else 3.0 * part[:1]
    found, expected = (one.apply(glru.Problem(X, Y, sample_weight=WEIGHT)) for one in (change, kind(*parts)))
    np.testing.assert_array_equal(found.X, expected.X)
    np.testing.assert_array_equal(found.y, expected.y)
    np.testing.assert_array_equal(found.sample_weight, expected.sample_weight)


def test_names_need_a_frame():
    """Positions always work."""
    with pytest.raises(ValueError, match=r"columns can be named only where X came as a frame; got \['a'\]"):
        glru.RemoveColumns(["a"]).apply(glru.Problem(X, Y))


def test_names_of_several_columns_are_refused():
    """They do not say which column is meant; frames in the order of the problem, and positions, do."""
    problem = glru.Problem(pd.DataFrame(X, columns=["a", "a", "c"]), Y)
    with pytest.raises(ValueError, match=r"several are called a. Give positions"):
        glru.RemoveColumns(["a"]).apply(problem)
    rows = pd.DataFrame(ROWS, columns=["a", "a", "c"])
    with pytest.raises(ValueError, match=r"several are called a. Give positions"):
        glru.AddRows(rows.iloc[:, [2, 0, 1]], [1, 0]).apply(problem)
    np.testing.assert_array_equal(glru.AddRows(rows, [1, 0]).apply(problem).X[-2:], ROWS)
    assert glru.RemoveColumns([0]).apply(problem).column_names == ("a", "c")
    assert glru.RemoveColumns(["c"]).apply(problem).column_names == ("a", "a")


def test_new_data_must_be_finite():
    """Refused when the change is made."""
    bad = ROWS.copy()
    bad[1, 2] = np.nan
    with pytest.raises(ValueError, match="X must be finite; row 1, column 2 is nan"):
        glru.AddRows(bad, [0, 1])
    with pytest.raises(ValueError, match="X must be finite; row 1, column 2 is nan"):
        glru.AddColumns(bad)
    with pytest.raises(ValueError, match="at least one row and one column"):
        glru.AddRows(np.empty((0, 3)), [])


def test_strengths_of_new_columns_must_be_known():
    """Where the old ones differ there is no obvious one."""
    problem = glru.Problem(X, Y, penalty=glru.L2([1.0, 2.0, 3.0]))
    with pytest.raises(ValueError, match="new columns need strengths of their own"):
        glru.AddColumns(COLUMNS).check(read_layout(problem))


@pytest.mark.parametrize("change", [glru.RemoveRows([0, 1, 2, 3, 4]), glru.Reweight([0, 1, 2, 3, 4], 0.0)])
def test_some_weight_must_be_left(change):
    """The last row has weight zero."""
    problem = glru.Problem(X, Y, sample_weight=WEIGHT)
    with pytest.raises(ValueError, match="a change must leave a row of weight above 0"):
        change.apply(problem)
    with pytest.raises(ValueError, match="a change must leave a row of weight above 0"):
        glru.after(glru.solve(problem), change).gap  # noqa: B018


def test_a_label_means_the_same_in_any_company():
    """Where a class is called 1, signs are no other name of the classes."""
    problem = glru.Problem(X, [1, 2] * 3)
    assert glru.Relabel([1], [1]).apply(problem).y[1] == -1.0
    with pytest.raises(ValueError, match="labels must be 1 or 2"):
        glru.Relabel([0, 1], [1, -1]).apply(problem)


UNCLEAR = {
    "weights": (
        glru.Reweight([0], [1.0, 2.0]),
        r"weights must have one entry per row, shape \(1,\); got shape \(2,\)",
    ),
    "values": (glru.EditValues([0], [0], "high"), "values must be numeric"),
    "names": (glru.RemoveColumns(["a", "a"]), r"columns must be named once each; got \['a', 'a'\]"),
}


@each(UNCLEAR, "case")
def test_errors_show_what_was_given(case):
    """Rule, value, remedy."""
    with pytest.raises(ValueError, match=case[1]):
        case[0].check(read_layout(glru.Problem(FRAME, Y)))


REGRESSION = {
    "target-nan": (glru.Relabel([0], [np.nan]), "y must be finite; entry 0 is nan"),
    "target-text": (glru.AddRows(ROWS, ["a", "b"]), "y must be numeric"),
    "target-count": (glru.AddRows(ROWS, [1.0]), "y must have one entry per row"),
}


@each(REGRESSION, "case")
def test_regression_targets_are_checked(case):
    """Finite numbers, one a row."""
    with pytest.raises(ValueError, match=case[1]):
        case[0].check(read_layout(glru.Problem(X, np.arange(6.0), loss=glru.Squared())))
