"""What bounds of scores prove: every answer holds for all scores between the ends, and is as sharp as the rules allow."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn import metrics

import glru
from tests.core import ScoreBounds, concatenate, intersect, is_decided, predicted, unbounded, widen

TINY = 5e-324
Y = np.array([1.0, -1.0])


@pytest.mark.parametrize(
    ("lower", "upper", "sign", "decided", "tie", "verdicts"),
    [
        (1.0, 2.0, 1, True, False, (1, -1)),
        (TINY, 1.0, 1, True, False, (1, -1)),
        (-2.0, -TINY, -1, True, False, (-1, 1)),
        (-1.0, 1.0, 0, False, False, (0, 0)),
        (0.0, 0.0, 0, True, True, (-1, -1)),
        (-0.0, 0.0, 0, True, True, (-1, -1)),
        # One end is the threshold: a label is open, an error is proven for the target on the other side.
        (-1.0, 0.0, 0, False, False, (-1, 0)),
        (0.0, 1.0, 0, False, False, (0, -1)),
        (-TINY, TINY, 0, False, False, (0, 0)),
        (-np.inf, np.inf, 0, False, False, (0, 0)),
        (TINY, np.inf, 1, True, False, (1, -1)),
        (np.nan, np.nan, 0, False, False, (0, 0)),
    ],
)
def test_the_rules(lower, upper, sign, decided, tie, verdicts):
    bounds = ScoreBounds(np.full(2, lower), np.full(2, upper))
    assert bounds.signs.tolist() == [sign] * 2 and bounds.signs.dtype == np.int8
    assert bounds.decided.tolist() == [decided] * 2
    assert bounds.ties.tolist() == [tie] * 2
    assert tuple(bounds.verdicts(Y)) == verdicts
    assert bounds.errors(Y) == (verdicts.count(-1), 2 - verdicts.count(1))
    labels = bounds.labels(np.array(["no", "yes"]))
    assert np.ma.isMaskedArray(labels) != decided
    if decided:
        assert labels.tolist() == ["yes" if sign > 0 else "no"] * 2


def test_a_tie_goes_to_the_first_class():
    assert predicted(np.array([-1.0, -0.0, 0.0, TINY])).tolist() == [0, 0, 0, 1]
    assert predicted(np.array([[0.0, 0.0, 0.0], [0.0, 1.0, 1.0]])).tolist() == [0, 1]


def test_several_classes():
    lower = np.array([[1.0, -1.0, -1.0], [0.0, 0.5, -1.0], [0.0, 0.0, 0.0], [0.0, 0.0, -2.0]])
    upper = np.array([[2.0, 0.5, 0.9], [1.0, 2.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, -1.0]])
    bounds = ScoreBounds(lower, upper)
    assert bounds.decided.tolist() == [True, False, True, False]
    assert bounds.labels(np.array(["a", "b", "c"])).tolist() == ["a", None, "a", None]
    # The third row is a tie of all classes, an error for each; in the last one "b" is not above "a".
    assert bounds.verdicts(np.array([0, 1, 0, 1])).tolist() == [1, 0, -1, -1]
    assert bounds.errors(np.array([1, 2, 2, 0])) == (3, 4)


def ends(shape):
    values = hnp.arrays(float, (3, *shape), elements=st.sampled_from([-2.0, -1.0, -TINY, 0.0, TINY, 0.5, 1.0, np.pi]))
    return values.map(lambda array: np.sort(array, axis=0))


@given(ends((6,)), hnp.arrays(float, 6, elements=st.sampled_from([-1.0, 1.0])))
def test_every_score_between_the_ends_agrees(ends, y):
    lower, scores, upper = ends
    bounds, exact = ScoreBounds(lower, upper), ScoreBounds(scores, scores)
    assert exact.decided.all()
    assert np.all((bounds.signs == 0) | (bounds.signs == np.sign(scores)))
    assert np.array_equal(predicted(lower)[bounds.decided], predicted(scores)[bounds.decided])
    low, high = bounds.errors(y)
    assert low <= np.sum(np.sign(scores) != y) == exact.errors(y)[0] == exact.errors(y)[1] <= high
    changes, stays = bounds.changes(np.ones(6))
    assert not np.any(changes & (scores > 0.0)) and not np.any(stays & ~(scores > 0.0))
    changes, stays = bounds.changes(np.ones(6), within=0.5)
    assert not np.any(changes & (np.abs(scores - 1.0) <= 0.5)) and not np.any(stays & (np.abs(scores - 1.0) > 0.5))
    least, most = bounds.metric("accuracy", glru.Logistic(), y)
    assert least <= np.mean(np.sign(scores) == y) <= most
    truth = {
        "squared_error": metrics.mean_squared_error(y, scores),
        "absolute_error": metrics.mean_absolute_error(y, scores),
    }
    for name, value in truth.items():
        least, most = bounds.metric(name, glru.Squared(), y)
        assert least <= value * (1.0 + 1e-14) and value <= most * (1.0 + 1e-14)


@given(ends((5, 3)), hnp.arrays(np.intp, 5, elements=st.integers(0, 2)))
def test_every_score_of_several_classes_between_the_ends_agrees(ends, places):
    lower, scores, upper = ends
    bounds, exact = ScoreBounds(lower, upper), ScoreBounds(scores, scores)
    assert np.array_equal(predicted(lower)[bounds.decided], predicted(scores)[bounds.decided])
    others = np.where(np.arange(3) == places[:, None], -np.inf, scores).max(axis=1)
    wrong = ~(scores[np.arange(5), places] > others)
    assert exact.errors(places) == (wrong.sum(), wrong.sum())
    assert not np.any(wrong & (bounds.verdicts(places) == 1)) and not np.any(~wrong & (bounds.verdicts(places) == -1))


def test_macro_f1_of_rows_without_some_classes():
    """As in scikit-learn, a class that has neither rows nor labels does not count; where it may have a label, both answers are held."""
    y, loss = np.array([0, 0, 1]), glru.Multinomial()
    scores = np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 0.5], [0.0, 1.0, 0.5]])
    wide = scores + np.array([0.0, 0.0, 1.0])
    open_row = ScoreBounds(np.vstack([scores[:2], scores[2:]]), np.vstack([scores[:2], wide[2:]]))
    for bounds, labels in [
        (ScoreBounds(scores, scores), [0, 1, 1]),
        (ScoreBounds(wide, wide), [0, 2, 2]),
        (open_row, [0, 1, 1]),
        (open_row, [0, 1, 2]),
    ]:
        low, high = bounds.metric("macro_f1", loss, y)
        assert low <= metrics.f1_score(y, labels, average="macro") <= high
    low, high = ScoreBounds(scores, scores).metric("macro_f1", loss, y)
    assert high - low < 1e-14


@given(hnp.arrays(np.int8, 12, elements=st.integers(-1, 1)), hnp.arrays(np.int8, 12, elements=st.sampled_from([-1, 1])))
def test_metrics_of_labels_of_two_classes_hold_for_every_completion(known, targets):
    """Rows with the sign 0 are open: whatever their labels, counts and metrics lie between the ends."""
    y = targets.astype(float)
    bounds = ScoreBounds(np.where(known > 0, 0.5, -1.0), np.where(known < 0, -0.5, 1.0))
    least, most = bounds.confusion(y)
    for filled in (known, -known, targets, -targets):
        labels = np.where(known == 0, np.where(filled == 0, 1, filled), known)
        found = metrics.confusion_matrix(targets, labels, labels=[-1, 1])
        assert np.all(least <= found) and np.all(found <= most)
        recalls = [np.mean(labels[targets == k] == k) for k in np.unique(targets)]
        f1 = metrics.f1_score(targets, labels, average="macro", zero_division=0.0)
        for name, value in (
            ("accuracy", np.mean(labels == targets)),
            ("balanced_accuracy", np.mean(recalls)),
            ("macro_f1", f1),
        ):
            low, high = bounds.metric(name, glru.Logistic(), y)
            assert low - 1e-15 <= value <= high + 1e-15, name
    if np.all(known):
        assert np.array_equal(least, most)


def test_probabilities_that_underflow_are_still_bounded():
    lower, upper = ScoreBounds(np.array([-800.0, 0.0, 800.0]), np.array([-800.0, 0.0, np.inf])).probabilities()
    assert np.all(lower[:, 1] <= [0.0, 0.5, 1.0]) and np.all(upper[:, 1] >= [1e-300, 0.5, 1.0]) and upper.max() <= 1.0
    assert lower[1, 0] < 0.5 < upper[1, 0] < 0.5 + 1e-14


@np.errstate(over="raise")
def test_lower_ends_of_metrics_that_overflow_are_numbers():
    """A mean square above the largest number is not proven to be infinite, and R2 has an upper end then."""
    far, y = np.array([1e200, -1e200]), np.array([1.0, 2.0])
    bounds = ScoreBounds(far, far)
    assert bounds.metric("squared_error", glru.Squared(), y)[0] < np.inf
    low, high = bounds.metric("r2", glru.Squared(), y)
    assert low == -np.inf and -np.inf < high < -1e300
    # The sum overflows, the mean does not.
    most = np.array([1.6e308, 1.7e308])
    low, high = ScoreBounds(most, most).metric("absolute_error", glru.Squared(), np.zeros(2))
    assert 0.0 < low <= 1.65e308 <= high


def test_ends_widths_and_middles():
    bounds = ScoreBounds(np.array([-np.inf, 1.0, 2.0]), np.array([np.inf, 2.0, np.inf]))
    assert np.array_equal(bounds.middle, [np.nan, 1.5, np.nan], equal_nan=True)
    assert bounds.bounded.tolist() == [False, True, False] and bounds.n_rows == 3
    assert bounds.enough(1.0).tolist() == [False, True, False]
    assert bounds.enough(None).tolist() == [False, True, True]
    assert bounds.width.tolist() == [np.inf, 1.0, np.inf]
    assert bounds.take([1]).lower.tolist() == [1.0]
    lower, upper = bounds.intersect((np.zeros(3), np.full(3, 1.5)))
    assert lower.tolist() == [0.0, 1.0, 2.0] and upper.tolist() == [1.5, 1.5, 1.5]
    assert concatenate([bounds, unbounded(1)]).n_rows == 4


def test_widening_rounds_outward_and_proves_nothing_of_what_is_no_number():
    lower, upper = widen(np.array([1.0, 0.0, np.inf, 1.0]), np.array([0.0, 0.0, 1.0, np.nan]))
    assert np.all(lower[:2] < [1.0, 0.0]) and np.all(upper[:2] > [1.0, 0.0])
    assert upper[2] == np.inf and (lower[3], upper[3]) == (-np.inf, np.inf)
    assert not is_decided(*intersect((lower, upper), unbounded(4)))[3]


def test_a_move_is_within_a_distance_by_its_exact_size():
    """1 + 2**-60 away rounds to 1 away, and is more than 1 all the same."""
    far = ScoreBounds(np.array([2.0**-60, 0.0, -(2.0**-60)]), np.array([1.0, 1.0, 1.0]))
    changes, stays = far.changes(np.array([-(2.0**-60), 0.0, 2.0**-60]), 1.0)
    assert stays.tolist() == [False, True, True] and not changes.any()
    assert ScoreBounds(np.zeros(1), np.zeros(1)).changes(np.zeros(1), 0.0)[1].all()


def test_bounds_put_into_rows_bring_their_winners():
    open_rows = ScoreBounds(np.zeros((3, 2)), np.ones((3, 2)))
    known = open_rows.put([1], ScoreBounds(np.zeros((1, 2)), np.ones((1, 2)), np.array([1])))
    assert known.decided.tolist() == [False, True, False]
