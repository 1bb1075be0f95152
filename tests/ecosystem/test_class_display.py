"""The picture and the report of more than two classes."""

import matplotlib
import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier

import glru
from glru.display.scores import MAX_LISTED, rank_least_certain
from glru.report import list_loocv_sections

matplotlib.use("Agg")


def wine():
    X, y = load_wine(return_X_y=True)
    return (X - X.mean(axis=0)) / X.std(axis=0), np.array(["barbera", "<barolo>", "grignolino"])[y]


@pytest.mark.parametrize("estimator", [LogisticRegression(), OneVsRestClassifier(LogisticRegression())])
def test_the_picture_shows_certified_counts_and_the_least_certain_rows(estimator):
    X, y = wine()
    result = glru.loocv(estimator, X, y)
    display = result.plot()
    least, most = result.confusion_matrix()
    assert np.array_equal(display.least, least) and np.array_equal(display.most, most)
    assert int(least.diagonal().sum()) == 178 - result.n_errors
    texts = [int(text.get_text()) for text in display.ax_.texts]
    assert sum(texts) == 178
    assert display.rows.size == MAX_LISTED
    assert [tick.get_text() for tick in display.ax_.get_yticklabels()] == ["<barolo>", "barbera", "grignolino"]
    if display.quantity.startswith("probability"):
        lower, upper = result.probability_bounds()
        own = display.rows, result.y[display.rows]
        assert np.array_equal(display.lower, lower[own]) and np.array_equal(display.upper, upper[own])


def test_rows_are_listed_by_how_little_their_label_leads():
    X, y = wine()
    result = glru.loocv(LogisticRegression(), X, y)
    ordered = np.sort(result.bounds.middle, axis=1)
    margins = ordered[:, -1] - ordered[:, -2]
    assert rank_least_certain(result.bounds, 5).tolist() == np.argsort(margins, kind="stable")[:5].tolist()
    limited = glru.loocv(glru.solve(glru.Problem(X, y, glru.Multinomial(), glru.L2(1e-6))), max_seconds=1e-9)
    assert limited.n_undetermined == 178
    counts, _ = list_loocv_sections(limited)
    assert ">0 to " in counts.body


def test_folds_have_a_picture_and_one_score_is_refused():
    X, y = wine()
    problem = glru.Problem(X, y, glru.Multinomial(), glru.L2(1.0), True, "sum")
    folds = glru.cross_val_predict(problem, cv=4)
    assert int(folds.plot().least.sum()) == 178
    two = glru.loocv(glru.Problem(X, y == "barbera", penalty=glru.L2(0.1)))
    with pytest.raises(ValueError, match="one score per class"):
        glru.display.ConfusionDisplay.from_result(two)


def test_the_report_shows_the_confusion_matrix_and_escapes_names():
    X, y = wine()
    result = glru.loocv(glru.Problem(X, y, glru.Multinomial(), glru.L2(1.0), True, "sum"))
    sections = list_loocv_sections(result)
    assert [section.title for section in sections] == ["Confusion matrix", "Rows to inspect"]
    text = "".join(section.body for section in sections)
    assert "&lt;barolo&gt;" in text and "<barolo>" not in text
    least, _ = result.confusion_matrix()
    for count in least.ravel():
        assert f">{count}</td>" in text
