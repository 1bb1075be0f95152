"""``glru select`` and ``glru certify`` give what the library gives."""

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import glru
from glru.datasets import load
from tests.cli.running import answer, complaint, glru_command, sample, standardise, write


def assert_path(said, result, names):
    found = said["result"]
    assert found["selected"] == [names[column] for column in result.selected]
    assert (found["start"]["lower"], found["start"]["upper"]) == result.start_value
    assert found["certified"] == result.certified and found["n_trainings"] == result.n_trainings
    for step, expected in zip(found["path"], result.path, strict=True):
        assert step["action"] == expected.action and step["decided_by"] == expected.decided_by
        assert (step["lower"], step["upper"]) == (expected.value_lower, expected.value_upper)
        assert step["features"] == [names[column] for column in expected.columns]


def test_select_on_a_share_of_the_rows(tmp_path):
    data, out = load("breast_cancer"), tmp_path / "path.csv"
    X = standardise(data.X)
    options = ("--lam", 0.1, "--share", 0.3, "--seed", 2, "--max-steps", 4, "--criterion", "log_loss", "--out", out)
    said = answer("select", "breast_cancer", *options)
    train, test = train_test_split(np.arange(569), test_size=0.3, random_state=2, stratify=data.y)
    train, test = np.sort(train), np.sort(test)
    problem = glru.Problem(X[train], data.y[train], penalty=glru.L2(0.1), fit_intercept=True)
    result = glru.stepwise(problem, X_val=X[test], y_val=data.y[test], criterion="log_loss", max_steps=4)
    assert_path(said, result, data.feature_names)
    assert said["settings"]["validation_rows"] == 171
    assert pl.read_csv(out)["action"].to_list() == [step.action for step in result.path]


def test_select_marks_choices_that_are_not_proven(tmp_path):
    """Brute force proves nothing, and every step says so: in the table, in JSON and in the file."""
    out = tmp_path / "path.csv"
    options = ("select", "iris:1v2", "--method", "naive", "--max-steps", 1)
    said = answer(*options, "--out", out)
    n_steps = len(said["result"]["path"])
    assert [step["proven"] for step in said["result"]["path"]] == [False] * n_steps
    assert pl.read_csv(out)["proven"].to_list() == [False] * n_steps
    text = glru_command(*options).stdout
    assert text.count("(not proven: trained, without bounds)") == n_steps
    assert f"{n_steps} of {n_steps} choices are not proven" in text
    proven = glru_command("select", "iris:1v2", "--max-steps", 1).stdout
    assert "not proven" not in proven and "every choice is the same as if all candidates were trained" in proven
    assert "'squared_error' is for regression" in complaint("select", "iris:1v2", "--criterion", "squared_error")
    assert "needs probabilities" in complaint(
        "select", "iris:1v2", "--loss", "squared_hinge", "--criterion", "log_loss"
    )


def test_select_suggests_names_and_is_honest():
    """The chosen columns by name, a hint where errors cannot tell features apart, and the error of rows that no selection saw."""
    text = " ".join(glru_command("select", "iris:1v2").stdout.split())
    said = answer("select", "iris:1v2", "--nested", 5, "--seed", 1, "--loo", "--criterion", "log_loss")
    assert f"features: {', '.join(answer('select', 'iris:1v2')['result']['selected'])}" in text
    assert "too few to distinguish the features; try --criterion log_loss or --direction forward" in text
    assert "are optimistic; --nested 5 repeats the selection" in text
    data = load("iris:1v2")
    X, errors, sizes = standardise(data.X), 0, []
    for train, test in StratifiedKFold(5, shuffle=True, random_state=1).split(X, data.y):
        problem = glru.Problem(X[train], data.y[train], penalty=glru.L2(0.01), fit_intercept=True)
        chosen = glru.stepwise(problem, criterion="log_loss").selected
        model = LogisticRegression(C=1.0 / (0.01 * train.size), tol=1e-10, solver="newton-cholesky")
        errors += int(np.sum(model.fit(X[train][:, chosen], data.y[train]).predict(X[test][:, chosen]) != data.y[test]))
        sizes.append(chosen.size)
    assert said["result"]["nested"] == {"folds": 5, "n_features": sizes, "errors": errors}
    assert said["result"]["suggestion"] is None
    assert "squared_error" in answer("select", "diabetes", "--nested", 2, "--max-steps", 1)["result"]["nested"]
    complaint("select", "iris:1v2", "--nested", "1", code=2)


def test_select_on_a_validation_file(tmp_path):
    X, y = sample(n=120, d=5)
    write(tmp_path / "train.csv", X[:80], y[:80])
    write(tmp_path / "valid.csv", X[80:], y[80:])
    said = answer("select", tmp_path / "train.csv", "--validation", tmp_path / "valid.csv", "--lam", 0.1)
    fitted = StandardScaler().fit(X[:80])
    problem = glru.Problem(
        fitted.transform(X[:80]), np.where(y[:80] > 0, 1, -1), penalty=glru.L2(0.1), fit_intercept=True
    )
    result = glru.stepwise(problem, X_val=fitted.transform(X[80:]), y_val=np.where(y[80:] > 0, 1, -1))
    assert_path(said, result, [f"x{j}" for j in range(5)])


def test_select_by_leave_one_out_and_in_pictures(tmp_path):
    data, page, picture = load("iris:1v2"), tmp_path / "page.html", tmp_path / "path.png"
    options = ("--loo", "--criterion", "log_loss", "--max-steps", 1, "--html", page, "--plot", picture)
    text = glru_command("select", "iris:1v2", *options).stdout
    problem = glru.Problem(standardise(data.X), data.y, penalty=glru.L2(0.01), fit_intercept=True)
    step = glru.stepwise(problem, criterion="log_loss", max_steps=1).path[0]
    expected = f"remove {data.feature_names[step.columns[0]]}" if step.columns else "stop"
    assert expected in text and "leave-one-out" in text
    assert "Stepwise selection of features of iris:1v2" in page.read_text(encoding="utf-8")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_select_moves_categories_together(tmp_path):
    random = np.random.default_rng(0)
    city = random.choice(["oslo", "rome", "york"], 80)
    frame = pl.DataFrame({"noise": random.normal(size=80), "x": random.normal(size=80), "city": city})
    frame = frame.with_columns(
        y=pl.Series(np.where(frame["x"].to_numpy() + 0.3 * random.normal(size=80) > 0, "a", "b"))
    )
    frame.write_csv(tmp_path / "data.csv")
    said = answer("select", tmp_path / "data.csv", "--one-hot", "--criterion", "log_loss", "--lam", 0.1)
    moved = [step["features"] for step in said["result"]["path"]]
    assert ["city=oslo", "city=rome", "city=york"] in moved
    assert "criterion" in complaint("select", "diabetes", "--criterion", "log_loss")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A classifier, a regression and other things, saved by joblib."""
    folder = tmp_path_factory.mktemp("models")
    X, y = sample(n=60)
    write(folder / "data.csv", X, y)
    frame = pd.DataFrame({f"x{j}": X[:, j] for j in range(4)})
    joblib.dump(LogisticRegression(C=0.5).fit(X, y), folder / "logistic.joblib")
    joblib.dump(LogisticRegression(C=0.5).fit(frame[["x3", "x1", "x0", "x2"]], y), folder / "named.joblib")
    joblib.dump(Ridge(alpha=2.0).fit(X[:, :3], X[:, 3]), folder / "ridge.joblib")
    joblib.dump(KNeighborsClassifier().fit(X, y), folder / "neighbours.joblib")
    joblib.dump({"a": 1}, folder / "dict.joblib")
    joblib.dump(LogisticRegression().fit(X, np.where(y > 0, "up", "down")), folder / "words.joblib")
    (folder / "text.joblib").write_text("text")
    return folder, X, y


def test_certify(models, tmp_path):
    folder, X, y = models
    out = tmp_path / "rows.parquet"
    said = answer("certify", folder / "data.csv", "--model", folder / "logistic.joblib", "--out", out)
    proof = glru.certify(joblib.load(folder / "logistic.joblib"), X, y)
    found = said["result"]
    assert (found["objective"], found["gap"], found["radius"]) == (proof.objective, proof.gap, proof.radius)
    assert found["decided"] == int(proof.decided(X).sum())
    rows = pl.read_parquet(out)
    lower, upper = proof.score_bounds(X)
    assert np.array_equal(rows["score_lower"], lower) and np.array_equal(rows["score_upper"], upper)
    assert said["model"] == {"file": str(folder / "logistic.joblib"), "estimator": "LogisticRegression"}
    named = answer("certify", folder / "data.csv", "--model", folder / "named.joblib")
    assert named["result"]["relative_gap"] < 1e-3
    text = glru_command("certify", folder / "data.csv", "--model", folder / "logistic.joblib").stdout
    assert f"{found['decided']} of 60 are proven to be the optimum's" in text


def test_certify_a_regression(models):
    folder, X, _ = models
    options = ("--target", "x3", "--drop", "y", "--model", folder / "ridge.joblib")
    said = answer("certify", folder / "data.csv", *options)
    proof = glru.certify(joblib.load(folder / "ridge.joblib"), X[:, :3], X[:, 3])
    assert said["result"]["gap"] == proof.gap and said["result"]["decided"] is None


def test_certify_a_bundled_dataset(tmp_path):
    data = load("breast_cancer")
    for labels in ((data.y > 0).astype(int), data.y):
        model = LogisticRegression(max_iter=10000).fit(data.X, labels)
        joblib.dump(model, tmp_path / "model.joblib")
        said = answer("certify", "breast_cancer", "--model", tmp_path / "model.joblib")
        assert said["result"]["relative_gap"] < 0.1


def test_certify_more_than_two_classes(tmp_path):
    random = np.random.default_rng(3)
    X = random.normal(size=(60, 3))
    y = np.array(["low", "mid", "high"])[(X @ random.normal(size=(3, 3))).argmax(axis=1)]
    path, saved, out = tmp_path / "levels.csv", tmp_path / "model.joblib", tmp_path / "out.csv"
    pl.DataFrame({f"x{j}": X[:, j] for j in range(3)} | {"level": y}).write_csv(path)
    frame = pl.read_csv(path).select("x0", "x1", "x2").to_pandas()
    for kind in (LogisticRegression(tol=1e-3), LinearSVC(tol=1e-3)):
        model = kind.fit(frame, y)
        joblib.dump(model, saved)
        found = answer("certify", path, "--target", "level", "--model", saved, "--out", out, "--max-seconds", 100)
        proof = glru.certify(model, frame, y)
        assert found["result"]["gap"] == pytest.approx(proof.gap)
        assert found["result"]["decided"] == int(proof.decided(frame).sum()) > 0
        written, bounds = pl.read_csv(out), proof.score_bounds(frame)
        for k, name in enumerate(model.classes_):
            assert np.allclose(written[f"score_{name}"], model.decision_function(frame)[:, k])
            assert np.allclose(written[f"score_lower_{name}"], bounds.lower[:, k])
            assert np.allclose(written[f"score_upper_{name}"], bounds.upper[:, k])
        assert written["decided"].to_list() == proof.decided(frame).tolist()
    joblib.dump(LogisticRegression(max_iter=1000).fit(*load_iris(return_X_y=True)), saved)
    assert answer("certify", "iris", "--model", saved)["result"]["decided"] == 150


def test_certify_refuses(models):
    folder, *_ = models
    data = folder / "data.csv"
    assert "there is no such file" in complaint("certify", data, "--model", folder / "none.joblib")
    assert "cannot be loaded as a model" in complaint("certify", data, "--model", folder / "text.joblib")
    assert "must hold a scikit-learn estimator; it holds dict" in complaint(
        "certify", data, "--model", folder / "dict.joblib"
    )
    assert "KNeighborsClassifier" in complaint("certify", data, "--model", folder / "neighbours.joblib")
    assert "the model's classes must be those of the data, 0 and 1; got down, up" in complaint(
        "certify", data, "--model", folder / "words.joblib"
    )
    assert "missing: x2" in complaint("certify", data, "--model", folder / "named.joblib", "--drop", "x2")
    complaint("certify", data, code=2)


def test_a_label_wider_than_the_terminal(tmp_path, monkeypatch):
    """A group of many columns has a long name; the values beside it are shown all the same."""
    monkeypatch.setenv("COLUMNS", "60")
    X, y = sample(n=120)
    levels = np.array([f"level-{k:02d}" for k in range(30)])
    frame = pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "group": levels[np.arange(120) % 30], "y": y})
    path = tmp_path / "data.csv"
    frame.write_csv(path)
    arguments = ("select", path, "--one-hot", "--criterion", "log_loss", "--max-steps", 1)
    said = glru_command(*arguments).stdout
    assert "remove group (30 levels)" in said.replace("\n", " ")
    assert "120 rows x 32 columns" in said.replace("\n", " ")
    for name in ("data", "start", "selected", "trainings", "time"):
        line = next(line for line in said.splitlines() if line.startswith(name))
        assert line.removeprefix(name).strip()
    assert max(map(len, said.splitlines())) <= 60
