"""Every result shows itself in the same ways, and an attribute of one name means one thing in all of them."""

import pickle
import sys

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine
from sklearn.linear_model import LogisticRegression, PoissonRegressor, Ridge
from sklearn.multiclass import OneVsRestClassifier

import glru
from glru import _results

mpl.use("Agg")
PLAIN = {"ReceiptCheck", "Verification"}
"""Checks of other results, which prove nothing themselves."""


def two_classes():
    X, y = load_wine(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X[:130], np.where(y[:130] == 0, "red", "white")


def three_classes():
    X, y = load_iris(return_X_y=True)
    return X, np.array(["setosa", "versicolor", "virginica"])[y]


def numbers():
    X, _ = two_classes()
    return X[:, :3], np.exp(X[:, 3])


X2, Y2 = two_classes()
X3, Y3 = three_classes()
XN, YN = numbers()
PROBLEM = glru.Problem(X2, Y2, penalty=glru.L2(0.05), fit_intercept=True)
SOLUTION = glru.solve(PROBLEM)
LEFT = glru.RemoveRows([0, 5])
MULTI, ONE, POISSON = (
    LogisticRegression(C=0.1),
    OneVsRestClassifier(LogisticRegression(C=0.1)),
    PoissonRegressor(alpha=0.1),
)


def check_receipt():
    live = glru.LiveModel(LogisticRegression()).fit(X2, Y2)
    receipt = live.receipt(live.remove_rows([4]))
    return glru.verify_receipt(receipt, np.delete(X2, 4, axis=0), np.delete(Y2, 4))


CASES = {
    "After": (lambda: glru.after(SOLUTION, LEFT), X2),
    "After-regression": (lambda: glru.after(POISSON, LEFT, X=XN, y=YN), XN),
    "After-multinomial": (lambda: glru.after(MULTI, LEFT, X=X3, y=Y3), X3),
    "After-one-vs-rest": (lambda: glru.after(ONE, LEFT, X=X3, y=Y3), X3),
    "CertifiedPrediction": (lambda: glru.LiveModel(LogisticRegression()).fit(X2, Y2).predict_certified(X2[:5]), None),
    "CrossValResult": (lambda: glru.cross_val_predict(PROBLEM, cv=3), None),
    "CrossValResult-classes": (lambda: glru.cross_val_predict(MULTI, X3, Y3, cv=3, return_result=True), None),
    "CrossValResult-regression": (lambda: glru.cross_val_predict(Ridge(), XN, YN, cv=3, return_result=True), None),
    "FeatureImportance": (lambda: glru.feature_importance(PROBLEM, X_val=X2[::3], y_val=Y2[::3]), None),
    "Influence": (lambda: glru.influence(PROBLEM), None),
    "Jackknife": (lambda: glru.jackknife(PROBLEM), None),
    "LOOCVPath": (lambda: glru.loocv_path(PROBLEM, [1.0, 0.1, 0.01]), None),
    "LOOCVPath-deviance": (
        lambda: glru.loocv_path(glru.Problem(XN, YN, glru.Poisson(), glru.L2(1.0)), [1.0, 0.1]),
        None,
    ),
    "LOOCVResult": (lambda: glru.loocv(PROBLEM), None),
    "LOOCVResult-classes": (lambda: glru.loocv(MULTI, X3, Y3), None),
    "LOOCVResult-regression": (lambda: glru.loocv(POISSON, XN, YN), None),
    "ModelCertificate": (lambda: glru.certify(LogisticRegression().fit(X2, Y2), X2, Y2), X2),
    "ModelCertificate-classes": (lambda: glru.certify(MULTI.fit(X3, Y3), X3, Y3), X3),
    "ModelCertificate-regression": (lambda: glru.certify(Ridge().fit(XN, YN), XN, YN), XN),
    "Ranking": (lambda: glru.influence(PROBLEM).top(3), None),
    "ReceiptCheck": (lambda: check_receipt(), None),
    "Retraining": (lambda: glru.after(SOLUTION, LEFT).needs_retraining(X2), None),
    "StepwiseResult": (lambda: glru.stepwise(PROBLEM, X_val=X2[::3], y_val=Y2[::3], max_steps=2), None),
    "Verification": (lambda: glru.verify(glru.loocv(PROBLEM), PROBLEM, sample=2, digits=30), None),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    make, queries = CASES[request.param]
    return request.param, make(), () if queries is None else (queries,)


def test_every_result_is_looked_at():
    assert {name.partition("-")[0] for name in CASES} == set(glru.results.__all__)


def test_text_is_short_and_starts_with_the_name(case):
    name, result, _ = case
    title, *lines = repr(result).splitlines()
    assert type(result).__name__ == name.partition("-")[0]
    assert title.startswith(f"{type(result).__name__}(")
    assert 1 <= len(lines) <= 20 and all(line.startswith("  ") for line in lines)
    assert "array(" not in repr(result)


def test_every_result_can_be_pickled(case):
    _, result, queries = case
    found = pickle.loads(pickle.dumps(result))
    assert repr(found).splitlines()[:2] == repr(result).splitlines()[:2]
    if queries:
        for mine, theirs in zip(found.score_bounds(*queries), result.score_bounds(*queries), strict=True):
            assert np.array_equal(mine, theirs)


def test_a_solution_can_be_pickled_once_its_gap_is_known():
    solution = glru.solve(PROBLEM)
    assert solution.gap == pickle.loads(pickle.dumps(solution)).gap
    found = pickle.loads(pickle.dumps(glru.after(solution, LEFT, candidate="carry", bound="primal")))
    expected = glru.after(solution, LEFT, candidate="carry", bound="primal").score_bounds(X2)
    assert all(np.array_equal(*ends) for ends in zip(found.score_bounds(X2), expected, strict=True))


def test_a_notebook_shows_the_same_lines(case):
    _, result, _ = case
    shown = result._repr_html_()
    assert shown.startswith("<table>") and shown.count("<tr>") == len(repr(result).splitlines()) - 1


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_every_result_is_a_frame(case, package, monkeypatch):
    name, result, queries = case
    found = pytest.importorskip(package)
    monkeypatch.setattr(_results, "find_spec", lambda asked: object() if asked == package else None)
    frame = result.to_frame(*queries)
    assert isinstance(frame, found.DataFrame) and frame.shape[1] >= 1
    if name.startswith(("After", "ModelCertificate")):
        assert frame.shape[0] == queries[0].shape[0]
        lower, upper = result.score_bounds(*queries)
        ends = [np.asarray(frame[column]) for column in frame.columns if column.startswith("score_lower")]
        assert np.array_equal(np.ravel(np.column_stack(ends)), np.ravel(lower)) and np.all(lower <= upper)


def test_no_frame_without_a_package_for_it(monkeypatch):
    monkeypatch.setattr(_results, "find_spec", lambda asked: None)
    with pytest.raises(ImportError, match="to_frame needs pandas or polars, and neither is installed"):
        glru.loocv(PROBLEM).to_frame()


def test_every_result_is_a_picture(case):
    _, result, queries = case
    display = result.plot(*queries)
    assert type(display).__module__.startswith("glru.display")
    assert any(axes.has_data() for axes in display.figure_.axes) and display.figure_ is np.ravel(display.ax_)[0].figure
    sys.modules["matplotlib.pyplot"].close(display.figure_)


def test_an_attribute_means_one_thing(case):
    """``labels``: the caller's classes, masked where open; ``decided``: where they are not; ``gap``: proven; counts are integers."""
    name, result, queries = case
    if getattr(result, "classes", None) is not None:
        labels = result.labels(*queries) if queries else result.labels
        decided = result.decided(*queries) if queries else result.decided
        assert decided.dtype == np.bool_ and set(np.ma.compressed(labels)) <= set(result.classes.tolist())
        if not name.startswith("ModelCertificate"):  # whose decided labels are those that the fitted model has as well
            assert np.array_equal(~np.ma.getmaskarray(labels), decided)
    for count in ("n_trainings", "n_errors", "n_undetermined", "n_steps"):
        try:
            value = getattr(result, count, 0)
        except ValueError:
            continue
        assert isinstance(value, int)
    if name not in PLAIN:
        assert isinstance(result.certified, bool)
    assert isinstance(getattr(result, "gap", 0.0), float) and getattr(result, "gap", 0.0) >= 0.0
    stages = getattr(result, "decided_by", {})
    stages = stages(*queries) if queries and callable(stages) and result.classes is not None else stages
    assert callable(stages) or all(isinstance(count, int) for count in stages.values())
