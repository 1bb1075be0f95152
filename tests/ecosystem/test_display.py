"""The picture of a leave-one-out result."""

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.colors import to_hex

import glru
from glru.display.intervals import BLUE as CORRECT
from glru.display.intervals import GREY as OPEN
from glru.display.intervals import ORANGE as WRONG
from tests.cases import make


@pytest.fixture(scope="module")
def result():
    """A classification with correct, wrong and undetermined rows."""
    problem = make(glru.Logistic(), glru.L2(0.02), 40, 4, seed=3)
    X = problem.X.copy()
    X[[5, 9]] = 0.0
    return glru.loocv(glru.Problem(X, problem.y, penalty=glru.L2(0.02)))


def test_from_result(result):
    display = glru.LOOCVDisplay.from_result(result)
    counts = {verdict: int(np.sum(display.verdicts == verdict)) for verdict in (1, -1, 0)}
    assert counts == {1: 40 - result.errors_upper, -1: result.errors_lower, 0: 2}
    order = np.argsort(result.scores, kind="stable")
    assert np.array_equal(display.lower, result.score_lower[order])
    assert np.array_equal(display.upper, result.score_upper[order])
    right = np.where(result.labels == 0, 0, np.where(result.labels == result.problem.y, 1, -1))
    assert np.array_equal(display.verdicts, right[order])
    assert display.title == f"40 held-out rows, {result.errors_lower} to {result.errors_upper} errors, 2 trainings"


def test_plot(result):
    display = glru.LOOCVDisplay.from_result(result).plot()
    try:
        names = {1: ("correct", CORRECT), -1: ("wrong", WRONG), 0: ("undetermined", OPEN)}
        assert len({color for _, color in names.values()}) == 3
        lines = {line.get_label(): line for line in display.ax_.lines if not line.get_label().startswith("_")}
        expected = {
            f"{name} ({int(np.sum(display.verdicts == verdict))})": (verdict, color)
            for verdict, (name, color) in names.items()
        }
        assert set(lines) == set(expected)
        assert len(display.ax_.collections) == 3
        edge = max(np.abs(bar[:, 1]).max() for bars in display.ax_.collections for bar in bars.get_segments())
        for (label, (verdict, color)), bars in zip(expected.items(), display.ax_.collections, strict=True):
            places = np.flatnonzero(display.verdicts == verdict)
            assert np.array_equal(lines[label].get_xdata(), places)
            assert to_hex(lines[label].get_color()) == color.lower()
            assert to_hex(bars.get_color()[0]) == color.lower()
            ends = np.array([segment[:, 1] for segment in bars.get_segments()])
            assert np.allclose(ends[:, 0], np.clip(display.lower, -edge, edge)[places])
            assert np.allclose(ends[:, 1], np.clip(display.upper, -edge, edge)[places])
        assert [text.get_text() for text in display.ax_.get_legend().get_texts()] == list(expected)
        assert display.ax_.get_title() == display.title
        display.figure_.canvas.draw()
    finally:
        plt.close(display.figure_)


def test_plot_into_axes(result):
    figure, ax = plt.subplots()
    try:
        display = glru.LOOCVDisplay.from_result(result).plot(ax=ax)
        assert display.ax_ is ax
        assert display.figure_ is figure
    finally:
        plt.close(figure)


def test_nothing_undetermined_and_nothing_known():
    clear = glru.loocv(make(glru.Logistic(), glru.L2(0.1), 20, 2, seed=3))
    open_ = glru.loocv(make(glru.Logistic(), glru.L1(0.02), 8, 3), bound="primal")
    assert open_.decided_by == {"undetermined": 8}
    for result, legend in ((clear, "undetermined"), (open_, "correct")):
        display = glru.LOOCVDisplay.from_result(result).plot()
        try:
            assert not any(text.get_text().startswith(legend) for text in display.ax_.get_legend().get_texts())
            display.figure_.canvas.draw()
            assert np.all(np.isfinite(display.ax_.get_ylim()))
        finally:
            plt.close(display.figure_)
    assert glru.LOOCVDisplay.from_result(clear).title.split(", ")[1] == f"{clear.n_errors} errors"


def test_a_regression_is_refused():
    with pytest.raises(ValueError, match="shows classifications; got a regression"):
        glru.LOOCVDisplay.from_result(glru.loocv(make(glru.Squared(), glru.L2(0.1), 8, 2)))
