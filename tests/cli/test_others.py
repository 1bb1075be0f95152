"""``glru whatif``, ``tune``, ``data`` and ``version``."""

import json
import re

import numpy as np
import polars as pl
import pytest
from rich.console import Console
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import glru
from glru.cli import output
from glru.datasets import load
from tests.cli.running import answer, complaint, glru_command, sample, standardise, write


@pytest.fixture(scope="module")
def cancer():
    data = load("breast_cancer")
    X = standardise(data.X)
    return data, X, glru.solve(glru.Problem(X, data.y, penalty=glru.L2(0.1), fit_intercept=True))


def test_whatif_removes(cancer, tmp_path):
    data, X, solution = cancer
    out = tmp_path / "queries.csv"
    said = answer(
        "whatif",
        "breast_cancer",
        "--lam",
        0.1,
        "--remove-rows",
        "3,17,20:25",
        "--remove-columns",
        "mean radius,mean area",
        "--retrain",
        "--out",
        out,
    )
    gone = [3, 17, 20, 21, 22, 23, 24]
    after = glru.after(solution, glru.RemoveRows(gone) + glru.RemoveColumns([0, 3]))
    kept = np.delete(X, gone, axis=0)
    lower, upper = after.score_bounds(np.delete(kept, [0, 3], axis=1))
    assert said["result"]["gap"] == after.gap and said["result"]["radius"] == after.radius
    rows = pl.read_csv(out)
    assert np.array_equal(rows["score_lower"], lower) and np.array_equal(rows["score_upper"], upper)
    assert rows["query"].to_list() == np.delete(np.arange(569), gone).tolist()
    old = kept @ solution.coef + solution.intercept
    labels = np.where(lower > 0, 1, np.where(upper < 0, -1, 0))
    assert said["result"]["labels"] == {
        "unchanged": int(np.sum(labels == np.sign(old))),
        "changed": int(np.sum(labels == -np.sign(old))),
        "undetermined": int(np.sum(labels == 0)),
    }
    assert said["result"]["retrained_outside"] < 1e-3
    assert said["settings"]["remove_rows"] == gone
    y = np.delete(data.y, gone)
    assert said["result"]["before"]["errors"] == int(np.sum(old * y <= 0))
    assert said["result"]["after"]["errors"]["lower"] == int(np.sum(labels == -y))
    assert said["result"]["before"]["roc_auc"] == pytest.approx(roc_auc_score(y, old))
    retrained = after.retrain(tol=1e-12)
    names = np.delete(data.feature_names, [0, 3]).tolist()
    for entry in said["result"]["coefficients"]:
        place = names.index(entry["column"])
        assert entry["lower"] - 1e-6 <= retrained.coef[place] <= entry["upper"] + 1e-6
        assert entry["before"] == np.delete(solution.coef, [0, 3])[place]
    assert {"class", "probability_lower", "probability_upper"} <= set(rows.columns)


def test_whatif_adds_and_queries(tmp_path):
    """New rows and queries go the way of the training data: categories, means and scales are those of the old rows."""
    random = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "id": [f"p{k}" for k in range(60)],
            "age": random.normal(50.0, 10.0, 60).round(1),
            "city": random.choice(["oslo", "rome", "york"], 60),
            "y": random.choice(["no", "yes"], 60),
        }
    )
    frame[:40].write_csv(tmp_path / "old.csv")
    frame[40:45].write_csv(tmp_path / "new.csv")
    frame[45:].drop("y").write_parquet(tmp_path / "queries.parquet")
    out = tmp_path / "answers.parquet"
    said = answer(
        "whatif",
        tmp_path / "old.csv",
        "--id",
        "id",
        "--one-hot",
        "--lam",
        0.1,
        "--out",
        out,
        "--add-rows",
        tmp_path / "new.csv",
        "--query",
        tmp_path / "queries.parquet",
    )

    def numbers(part):
        cities = np.array(part["city"])[:, None] == np.array(["oslo", "rome", "york"])
        return np.column_stack([part["age"], cities.astype(float)])

    fitted = StandardScaler().fit(numbers(frame[:40]))
    y = np.where(np.array(frame["y"]) == "yes", 1.0, -1.0)
    problem = glru.Problem(fitted.transform(numbers(frame[:40])), y[:40], penalty=glru.L2(0.1), fit_intercept=True)
    after = glru.after(glru.solve(problem), glru.AddRows(fitted.transform(numbers(frame[40:45])), y[40:45]))
    lower, upper = after.score_bounds(fitted.transform(numbers(frame[45:])))
    rows = pl.read_parquet(out)
    assert np.array_equal(rows["score_lower"], lower) and np.array_equal(rows["score_upper"], upper)
    assert said["result"]["queries"] == 15
    gone = answer("whatif", tmp_path / "old.csv", "--id", "id", "--one-hot", "--remove-columns", "city")
    assert gone["result"]["queries"] == 40
    strange = frame[40:45].with_columns(city=pl.lit("paris"))
    strange.write_csv(tmp_path / "strange.csv")
    options = ("whatif", tmp_path / "old.csv", "--id", "id", "--one-hot", "--add-rows")
    strange = complaint(*options, tmp_path / "strange.csv")
    assert "strange.csv must have values of the training data; got 'paris'" in strange and "column 'city' of" in strange
    frame[40:45].drop("age").write_csv(tmp_path / "strange.csv")
    assert "columns of the training data; missing: 'age'" in complaint(*options, tmp_path / "strange.csv")
    frame[40:45].with_columns(y=pl.lit("perhaps")).write_csv(tmp_path / "strange.csv")
    assert "must be one of no, yes" in complaint(*options, tmp_path / "strange.csv")


@pytest.mark.parametrize("suffix", ["npz", "libsvm"])
def test_whatif_of_matrices(tmp_path, suffix):
    X, y = sample(n=60)
    write(tmp_path / f"old.{suffix}", X[:50], y[:50])
    write(tmp_path / f"new.{suffix}", X[50:], y[50:])
    said = answer(
        "whatif",
        tmp_path / f"old.{suffix}",
        "--add-rows",
        tmp_path / f"new.{suffix}",
        "--normalize",
        "none",
        "--lam",
        0.1,
    )
    solution = glru.solve(glru.Problem(X[:50], y[:50], penalty=glru.L2(0.1), fit_intercept=True))
    assert said["result"]["gap"] == pytest.approx(glru.after(solution, glru.AddRows(X[50:], y[50:])).gap, rel=0.1)


def test_whatif_refuses(tmp_path):
    assert "from 0 to 99; got 100" in complaint("whatif", "iris:0v1", "--remove-rows", "100")
    message = complaint("whatif", "iris:0v1", "--remove-columns", "size")
    assert "columns must be among those of the model (sepal length (cm)" in message
    assert "at least one row" in complaint("whatif", "iris:0v1", "--remove-rows", "0:100")
    X, y = sample()
    path = write(tmp_path / "q.csv", X, y)
    assert "must be a matrix" in complaint("whatif", "iris:0v1", "--remove-rows", "1", "--query", path)


def test_whatif_for_people():
    text = glru_command("whatif", "breast_cancer", "--remove-rows", "3", "--lam", 0.1).stdout
    text = " ".join(text.split())
    assert "568 rows x 30 columns" in text and "568 of 568 rows keep their label, 0 change it certificate" in text
    assert re.search(r"errors \d+ before, \d+ after, on the 568 training rows that remain", text)
    assert (
        "those that change most: " in text and "at most" not in text.partition("those that")[2].partition(" labels ")[0]
    )
    text = glru_command("whatif", "diabetes", "--remove-rows", "3", "--lam", 0.1).stdout
    assert "median width" in text and "labels" not in text


def test_tune(cancer, tmp_path):
    data, X, _ = cancer
    out = tmp_path / "path.csv"
    said = answer("tune", "breast_cancer", "--lam", "1,0.1,0.01,0.001", "--out", out, "--fit-once")
    path = glru.loocv_path(glru.Problem(X, data.y, penalty=glru.L2(1.0), fit_intercept=True), [1.0, 0.1, 0.01, 0.001])
    assert said["result"]["best"] == path.best_lam == 0.001 and said["result"]["certified"] is path.certified is True
    assert [step["lower"] for step in said["result"]["path"]] == path.lower.tolist()
    assert [step["lam"] for step in said["result"]["path"]] == pl.read_csv(out)["lam"].to_list() == path.lams.tolist()


def test_tune_by_C_and_log_loss():
    data = load("wine:0v1")
    said = answer("tune", "wine:0v1", "--C", "0.01:1:3", "--criterion", "log_loss", "--fit-once")
    problem = glru.Problem(standardise(data.X), data.y, penalty=glru.L2(1.0), fit_intercept=True, scaling="sum")
    path = glru.loocv_path(problem, [100.0, 10.0, 1.0], criterion="log_loss")
    assert [step["C"] for step in said["result"]["path"]] == pytest.approx([0.01, 0.1, 1.0])
    assert [step["upper"] for step in said["result"]["path"]] == pytest.approx(path.upper.tolist(), rel=1e-9)
    assert said["result"]["strength"] == "C"
    assert "criterion 'squared_error' does not fit" in complaint("tune", "wine:0v1", "--criterion", "squared_error")


@pytest.mark.parametrize("strength", ["C", "lam"])
def test_tune_prepares_columns_again_without_each_row(strength):
    """By default the scaler is fitted without each row: what scikit-learn gives for the whole pipeline."""
    data = load("wine:0v1")
    said = answer("tune", "wine:0v1", f"--{strength}", "0.02,0.2", "--criterion", "log_loss")
    assert said["settings"]["fit_once"] is False
    for step in said["result"]["path"]:
        C = step["C"] if strength == "C" else 1.0 / (step["lam"] * (data.y.size - 1))
        model = make_pipeline(StandardScaler(), LogisticRegression(C=C, solver="newton-cholesky", tol=1e-11))
        chances = cross_val_predict(model, data.X, data.y, cv=LeaveOneOut(), method="predict_proba")
        assert step["lower"] - 1e-9 <= log_loss(data.y, chances) <= step["upper"] + 1e-9 < step["lower"] + 1e-5


def test_tune_for_people_and_in_pictures(tmp_path):
    text = glru_command("tune", "diabetes", "--lam", "0.1,1", "--plot", tmp_path / "p.png").stdout
    # A long path is folded at the width of the table.
    assert "<- best" in text and "p.png" in "".join(text.split()) and (tmp_path / "p.png").stat().st_size > 5000


def test_data(tmp_path, monkeypatch):
    monkeypatch.delenv("GLRU_DATA", raising=False)
    text = glru_command("data").stdout
    assert "breast_cancer" in text and "1,797" in text
    listed = json.loads(glru_command("data", "--json").stdout)
    assert [entry["name"] for entry in listed["datasets"]] == [entry.name for entry in glru.datasets.list()]
    told = json.loads(glru_command("data", "digits:3v8", "--json").stdout)["dataset"]
    assert (told["rows"], told["columns"], told["positive"]) == (357, 64, 183)
    assert told["varying_columns"] == np.count_nonzero(np.ptp(load("digits:3v8").X, axis=0))
    assert "bundled with scikit-learn" in glru_command("data", "diabetes").stdout
    assert "known by name" in complaint("data", "nothing")


def test_version():
    assert glru_command("version").stdout.startswith(f"glru          {glru.__version__}")
    told = json.loads(glru_command("version", "--json").stdout)
    assert told["versions"]["glru"] == glru.__version__ and told["versions"]["numpy"] == np.__version__


def test_progress_bar(tmp_path, monkeypatch):
    """A bar with counts, rate and time left appears on a terminal after a while, and not before."""
    monkeypatch.setattr(output, "DELAY", 0.05)
    with (tmp_path / "screen").open("w+") as file:
        with output.show_progress(False, Console(file=file, force_terminal=True, width=100)) as report:
            for done in range(1, 60):
                report("training", done, 100)
                output.threading.Event().wait(0.01)
        file.seek(0)
        text = file.read()
    assert "training" in text and "/100" in text and "/s" in text and "0:00" in text
    monkeypatch.setattr(output, "DELAY", 30.0)
    with (tmp_path / "screen").open("w+") as file:
        with output.show_progress(False, Console(file=file, force_terminal=True)) as report:
            report("training", 1, 2)
        assert file.tell() == 0
