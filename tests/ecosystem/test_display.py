"""The picture of a leave-one-out result."""

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.colors import to_hex

import glru
from glru.display.scores import BLUE as CORRECT
from glru.display.scores import GREY as OPEN
from glru.display.scores import ORANGE as WRONG
from tests.cases import make, with_open_rows


@pytest.fixture(scope="module")
def result():
    """A classification with correct, wrong and undetermined rows."""
    problem = make(glru.Logistic(), glru.L2(0.02), 40, 4, seed=3)
    return with_open_rows(glru.loocv(problem), [5, 9])


def test_from_result(result):
    display = glru.display.LOOCVDisplay.from_result(result)
    counts = {verdict: int(np.sum(display.verdicts == verdict)) for verdict in (1, -1, 0)}
    assert counts == {1: 40 - result.errors_upper, -1: result.errors_lower, 0: 2}
    order = np.lexsort((result.scores, result.y))
    assert np.array_equal(display.lower, result.score_lower[order])
    assert np.array_equal(display.upper, result.score_upper[order])
    right = np.where(result.bounds.signs == 0, 0, np.where(result.bounds.signs == result.problem.y, 1, -1))
    assert np.array_equal(display.verdicts, right[order])
    assert (
        display.title
        == f"40 held-out rows, {result.errors_lower} to {result.errors_upper} errors, 0 trainings beyond the first"
    )


def test_plot(result):
    """Dots lie at the middles of their intervals and have one size; the legend counts all rows; classes stand beside each other."""
    display = glru.display.LOOCVDisplay.from_result(result, ("well", "ill")).plot()
    try:
        names = {1: ("correct", CORRECT), -1: ("wrong", WRONG), 0: ("open", OPEN)}
        lines = {line.get_label(): line for line in display.ax_.lines if not line.get_label().startswith("_")}
        low, high = display.ax_.get_ylim()
        bars, dots = display.ax_.collections
        middles = 0.5 * (display.lower + display.upper)
        assert np.array_equal(dots.get_offsets()[:, 1], np.clip(middles, low, high))
        for verdict, (name, color) in names.items():
            mine = np.flatnonzero(display.verdicts == verdict)
            shown = [lines[f"{name} ({mine.size})"].get_color(), *dots.get_facecolors()[mine]]
            assert {to_hex(one) for one in shown} == {color.lower()}
        beyond = sum(len(line.get_xdata()) for label, line in lines.items() if label.startswith("beyond"))
        assert beyond == np.sum((middles < low) | (middles > high)) and len(dots.get_sizes()) == 1
        ends = np.array([segment[:, 1] for segment in bars.get_segments()])
        assert np.all((ends >= low) & (ends <= high))
        negative = int(np.sum(result.y < 0))
        shown = [label.get_text() for label in display.ax_.get_xticklabels()]
        assert shown == [f"well: {negative} rows", f"ill: {40 - negative} rows"]
        assert display.ax_.get_title(loc="left") == display.title
        display.figure_.canvas.draw()
    finally:
        plt.close(display.figure_)


def test_rows_beyond_the_axis_are_marked():
    """A score far out is marked at the edge and counted; the axis fits the others."""
    scores = np.r_[np.linspace(-1.0, 1.0, 999), 1e6]
    display = glru.display.LOOCVDisplay(scores, scores, np.sign(scores + 1e-9), "far", ("a", "b")).plot()
    try:
        assert display.ax_.get_ylim()[1] < 10.0
        assert "beyond the axis (1)" in [text.get_text() for text in display.ax_.get_legend().get_texts()]
    finally:
        plt.close(display.figure_)


def test_plot_into_axes(result):
    figure, ax = plt.subplots()
    try:
        display = glru.display.LOOCVDisplay.from_result(result).plot(ax=ax)
        assert display.ax_ is ax
        assert display.figure_ is figure
    finally:
        plt.close(figure)


def test_nothing_undetermined_and_nothing_known():
    clear = glru.loocv(make(glru.Logistic(), glru.L2(0.1), 20, 2, seed=3))
    open_ = glru.loocv(make(glru.Logistic(), glru.L1(0.02), 8, 3), bound="primal")
    assert open_.decided_by == {"undetermined": 8}
    for result, legend in ((clear, "open"), (open_, "correct")):
        display = glru.display.LOOCVDisplay.from_result(result).plot()
        try:
            assert not any(text.get_text().startswith(legend) for text in display.ax_.get_legend().get_texts())
            display.figure_.canvas.draw()
            assert np.all(np.isfinite(display.ax_.get_ylim()))
        finally:
            plt.close(display.figure_)
    assert glru.display.LOOCVDisplay.from_result(clear).title.split(", ")[1] == f"{clear.n_errors} errors"


@pytest.mark.parametrize("n_rows", [30, 4000])
def test_a_regression(n_rows):
    """Predictions over targets: as intervals, or by density where there are many."""
    random = np.random.default_rng(0)
    y = random.normal(size=n_rows)
    display = glru.display.LOOCVDisplay(y - 0.1, y + 0.1, y, "a regression").plot()
    try:
        assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("target", "held-out prediction")
        counts = display.ax_.collections[0].get_array()
        assert (counts is None) == (n_rows == 30) and (counts is None or counts.sum() == n_rows)
    finally:
        plt.close(display.figure_)
    result = glru.loocv(make(glru.Squared(), glru.L2(0.1), 8, 2))
    assert glru.display.LOOCVDisplay.from_result(result).title.startswith("8 held-out rows, R² ")


@pytest.fixture
def closing():
    """Close all figures of a test."""
    yield
    plt.close("all")


def test_path_display(closing):
    problem = make(glru.Logistic(), glru.L2(1.0), 40, 4, seed=3)
    path = glru.loocv_path(problem, [1.0, 0.1, 0.01])
    display = glru.display.RegularizationPathDisplay.from_path(path)
    assert list(display.bands) == ["error", "log_loss"]
    assert np.array_equal(display.bands["error"][0], path.lower)
    lower, upper = display.bands["log_loss"]
    assert [(low, high) for low, high in zip(lower, upper, strict=True)] == [
        result.metric_bounds("log_loss") for result in path.results
    ]
    assert f"best lam: {path.best_lam:.4g}" in display.title
    assert ("not certified" in display.title) == (not path.certified)
    display.plot()
    assert len(display.ax_) == 2 and display.ax_[1].get_xscale() == "log"
    assert display.ax_[0].get_ylabel() == "held-out errors (rows)"
    assert display.ax_[1].get_ylabel() == "held-out log-loss (nats)"
    dashed = next(line for line in display.ax_[0].lines if line.get_linestyle() == "--")
    assert set(dashed.get_xdata()) == {path.best_lam}
    display.figure_.canvas.draw()


def test_path_display_of_a_regression_and_of_infinite_ends(closing):
    path = glru.loocv_path(make(glru.Squared(), glru.L2(1.0), 20, 3), [1.0, 0.1])
    display = glru.display.RegularizationPathDisplay.from_path(path, as_C=True)
    assert list(display.bands) == ["squared_error"] and np.array_equal(display.lams, 1.0 / path.lams)
    assert display.plot().ax_[0].get_ylabel() == "held-out squared error"
    bands = {"error": (np.array([1.0, 2.0]), np.array([np.inf, 3.0]))}
    open_ = glru.display.RegularizationPathDisplay(np.array([1.0, 0.1]), bands, 1, "error", False).plot()
    assert open_.title == "best lam: 0.1, not certified (2 to 3 errors)"
    open_.figure_.canvas.draw()
    assert np.all(np.isfinite(open_.ax_[0].get_ylim()))


def test_after_display(closing):
    problem = make(glru.Logistic(), glru.L2(0.05), 40, 4)
    solution = glru.solve(problem)
    out = glru.after(solution, glru.RemoveRows(range(10)), candidate="carry")
    display = glru.display.AfterDisplay.from_after(out, problem.X, solution.scores)
    labels = out.score_bounds(problem.X).signs
    old = np.where(solution.scores > 0, 1, -1)
    counts = [int(np.sum(labels == old)), int(np.sum(labels == -old)), int(np.sum(labels == 0))]
    assert [int(np.sum(display.verdicts == verdict)) for verdict in (1, -1, 0)] == counts
    assert f"{counts[0]} labels unchanged, {counts[1]} changed, {counts[2]} open" in display.title
    display.plot().figure_.canvas.draw()
    regression = glru.solve(make(glru.Squared(), glru.L2(0.05)))
    out = glru.after(regression, glru.RemoveRows([0]))
    display = glru.display.AfterDisplay.from_after(out, regression.problem.X, regression.scores).plot()
    assert display.ax_.get_xlabel() == "prediction before the change"


def test_stepwise_display(closing):
    problem = make(glru.Logistic(), glru.L2(0.05), 60, 5)
    train = problem.derive(X=problem.X[:40], y=problem.y[:40], sample_weight=np.ones(40))
    result = glru.stepwise(
        train, X_val=problem.X[40:], y_val=problem.y[40:], criterion="log_loss", forced=True, min_features=2
    )
    names = ["a", "b", "c", "d", "e"]
    display = glru.display.StepwiseDisplay.from_result(result, names)
    assert display.n_features.tolist() == [5, 4, 3, 2]
    assert (display.lower[0], display.upper[0]) == result.start_value
    moves = [step for step in result.path if step.action != "stop"]
    assert display.moves == [f"- {names[step.columns[0]]}" for step in moves]
    assert display.upper[1:].tolist() == [step.value_upper for step in moves]
    assert display.title.startswith("5 to 2 features in 3 steps, every choice proven")
    display.plot()
    assert [text.get_text() for text in display.ax_.get_xticklabels()] == ["start", *display.moves]
    assert display.ax_.get_ylabel() == "log-loss (nats)"
    display.figure_.canvas.draw()
    forward = glru.stepwise(
        train, X_val=problem.X[40:], y_val=problem.y[40:], direction="forward", forced=True, max_features=2
    )
    shown = glru.display.StepwiseDisplay.from_result(forward)
    assert shown.n_features.tolist() == [0, 1, 2] and all(move.startswith("+ ") for move in shown.moves)


def test_stepwise_display_by_deviance(closing):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    problem = glru.Problem(X, rng.poisson(np.exp(X[:, 0])), glru.Poisson(), glru.L2(0.1), fit_intercept=True)
    display = glru.stepwise(problem, cv=3).plot()
    assert display.criterion == "deviance" and display.ax_.get_ylabel() == "mean deviance"


def test_stepwise_display_marks_what_is_not_proven(closing):
    problem = make(glru.Hinge(), glru.L1(0.03), 40, 4)
    result = glru.stepwise(problem, X_val=problem.X, y_val=problem.y, forced=True, min_features=2)
    display = glru.display.StepwiseDisplay.from_result(result)
    assert "2 of 2 choices not proven" in display.title
    display.plot()
    assert "not proven" in [text.get_text() for text in display.ax_.get_legend().get_texts()]


@pytest.fixture(scope="module")
def selection():
    """A backward selection to its end."""
    problem = make(glru.Logistic(), glru.L2(0.02), 60, 6, seed=3)
    problem, X_val, y_val = glru.Problem(problem.X[:40], problem.y[:40]), problem.X[40:], problem.y[40:]
    return glru.stepwise(problem, X_val=X_val, y_val=y_val, forced=True)


def test_stepwise_step(selection):
    _, ax = plt.subplots()
    display = glru.display.StepwiseDisplay.from_result(selection).plot(ax, step=1)
    lines = {line.get_label(): line for line in ax.get_lines()}
    bound = lines["lower bound after the first stage"].get_ydata()
    assert np.all(np.diff(bound) >= 0.0)
    assert lines["to beat"].get_ydata()[0] == selection.path[0].value
    assert np.all(bound <= lines["certified upper end"].get_ydata())
    with pytest.raises(ValueError, match="step must be from 0 to 4"):
        display.plot(ax, step=7)
    plt.close("all")


def test_folds():
    X = np.random.default_rng(0).normal(size=(40, 3))
    result = glru.cross_val_predict(glru.Problem(X, X[:, 0] > 0.3, penalty=glru.L2(0.1)), cv=4)
    assert result.plot().ax_.get_title(loc="left") == f"40 held-out rows in 4 folds, {result.n_errors} errors"


@pytest.mark.parametrize("n_rows", [30, 2500])
@pytest.mark.parametrize("kind", ["leverage", "cooks_distance", "dfbetas"])
def test_deletions(kind, n_rows):
    """Pictures of influence: every known row is drawn, the rows above the usual threshold in their own colour, the largest by name."""
    random = np.random.default_rng(0)
    X = np.column_stack([random.normal(size=(n_rows, 2)), np.eye(n_rows)[3]])
    y = X[:, 0] + random.normal(size=n_rows)
    y[7] += 40.0
    result = glru.influence(glru.Problem(X, y, glru.Squared(), glru.L2(np.zeros(3)), scaling="sum"))
    display = result.plot(kind=kind)
    assert "7" in [text.get_text() for text in display.ax_.texts]
    assert display.ax_.get_title().endswith("without a known optimum, and not drawn: 1")
    if kind == "leverage":
        drawn = sum(len(points.get_offsets()) for points in display.ax_.collections if hasattr(points, "get_offsets"))
        assert drawn >= n_rows - 1
        assert display.ax_.get_xlabel() == "leverage" and display.ax_.get_xlim()[1] <= 1.02
    if kind == "dfbetas":
        assert [label.get_text() for label in display.ax_.get_xticklabels()] == ["x0", "x1", "x2"]
        single = result.plot(kind="dfbetas", column="x1")
        assert single.lower.shape == (n_rows, 1) and "x1" in single.ax_.get_ylabel()
    plt.close("all")


def test_residuals_of_weighted_rows_are_drawn_as_contours_count_them():
    """To first order Cook's distance is the squared residual of the picture times the leverage, whatever the weights."""
    random = np.random.default_rng(0)
    X, weights = random.normal(size=(200, 2)), random.choice([1.0, 100.0], 200)
    y = X[:, 0] + random.normal(size=200) / np.sqrt(weights)
    result = glru.influence(
        glru.Problem(X, y, glru.Squared(), glru.L2(np.zeros(2)), scaling="sum", sample_weight=weights)
    )
    display = result.plot()
    plt.close("all")
    squares = np.square(0.5 * (display.lower + display.upper))
    np.testing.assert_allclose(squares * display.leverage / display.unit, result.cooks_distance, rtol=1e-6)


def test_deletions_are_checked():
    result = glru.influence(make(glru.Logistic(), glru.L2(0.02), 40, 4, seed=3))
    for options in ({"kind": "size"}, {"column": 0}, {"kind": "dfbetas", "column": "age"}):
        with pytest.raises(ValueError, match=r"must be|column is for|needs a column"):
            result.plot(**options)


@pytest.mark.parametrize("kind", ["intervals", "dfbetas"])
def test_long_names_leave_room_for_the_picture(kind):
    X = np.random.default_rng(1).normal(size=(30, 6))
    names = [
        f"column {k}, exported from a questionnaire with the whole of its question, (in mg/dl) {'?' * 40}"
        for k in range(6)
    ]
    problem = glru.Problem(X, X[:, 0] > 0.2, penalty=glru.L2(0.1)).derive(column_names=tuple(names))
    result = glru.influence(problem)
    plain = glru.display.IntervalsDisplay(X[0], X[0] + 1.0, names, "value")
    display = plain.plot() if kind == "intervals" else result.plot(kind="dfbetas")
    try:
        display.figure_.canvas.draw()
        box = display.ax_.get_position()
        assert box.width > 0.4 and box.height > 0.4
        assert display.figure_.get_figheight() < 7.0
    finally:
        plt.close(display.figure_)
