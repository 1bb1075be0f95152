"""``glru loocv`` on datasets and on files of every format gives what the library gives."""

import re
from functools import partial

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, log_loss, recall_score
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import glru
from glru.datasets import load
from tests.cli.running import answer, complaint, glru_command, sample, standardise, write

FORMATS = ["csv", "tsv", "parquet", "npz", "libsvm", "svm"]
PACKED = ["csv.gz", "tsv.bz2", "parquet.xz", "npz.gz", "libsvm.bz2", "csv.xz", "svm.gz", "libsvm.xz"]
RATES = {
    "balanced_accuracy": balanced_accuracy_score,
    "sensitivity": recall_score,
    "specificity": partial(recall_score, pos_label=-1),
}


def assert_result(said, result):
    """The JSON of a run says what a result says."""
    found = said["result"]
    if result.labels is not None:
        assert found["errors"] == {"lower": result.errors_lower, "upper": result.errors_upper}
    assert found["n_trainings"] == result.n_trainings
    assert found["decided_by"] == result.decided_by
    assert found["certified"] == result.certified
    labels, truth = result.bounds.signs, np.sign(result.y)
    for name, ends in found["metrics"].items():
        if name not in RATES:
            assert (ends["lower"], ends["upper"]) == result.metric_bounds(name)
        elif result.n_undetermined == 0:
            assert [ends["lower"], ends["upper"]] == pytest.approx([RATES[name](truth, labels)] * 2, abs=1e-14)


@pytest.mark.parametrize("suffix", FORMATS + PACKED)
def test_every_format(tmp_path, suffix):
    X, y = sample()
    path, out = write(tmp_path / f"data.{suffix}", X, y), tmp_path / "rows.parquet"
    sparse = suffix.startswith(("libsvm", "svm"))
    Z = standardise(sp.csr_array(X), with_mean=False) if sparse else standardise(X)
    result = glru.loocv(glru.Problem(Z, y, penalty=glru.L2(0.05), fit_intercept=True))
    said = answer("loocv", path, "--lam", "0.05", "--fit-once", "--out", out)
    assert_result(said, result)
    assert said["schema"] == "glru/1" and said["command"] == "loocv" and said["version"] == glru.__version__
    assert said["data"] == {
        "name": path.name,
        "source": str(path),
        "rows": 40,
        "columns": 4,
        "task": "classification",
        "target": "y" if suffix[:3] in ("csv", "tsv", "par") else None,
        "classes": {"-1": "0", "+1": "1"},
        "normalize": "sparse" if sparse else "dense",
        "left_out": {},
        "notes": {
            "classes": f"0 {np.sum(y == 0)} ({2.5 * np.sum(y == 0):.3g} %), 1 {np.sum(y)} ({2.5 * np.sum(y):.3g} %)"
        }
        if suffix[:3] in ("csv", "tsv", "par")
        else {},
    }
    rows = pl.read_parquet(out)
    assert np.array_equal(rows["score_lower"], result.score_lower)
    assert np.array_equal(rows["score_upper"], result.score_upper)
    assert np.array_equal(rows["label"], result.bounds.signs)
    assert rows["decided_by"].to_list() == result.stages.tolist()


def test_named_datasets():
    data = load("breast_cancer")
    result = glru.loocv(glru.Problem(standardise(data.X), data.y, penalty=glru.L2(0.01), fit_intercept=True))
    assert_result(answer("loocv", "breast_cancer", "--fit-once"), result)
    assert result.n_errors == 13
    data = load("wine:0vrest")
    problem = glru.Problem(
        standardise(data.X, with_mean=False),
        data.y,
        glru.SquaredHinge(),
        glru.ElasticNet(0.1, 0.01),
        fit_intercept=True,
    )
    options = ("--loss", "squared_hinge", "--lam", 0.1, "--kappa", 0.01, "--intercept", "--normalize", "sparse")
    said = answer("loocv", "wine:0vrest", *options, "--fit-once")
    assert_result(said, glru.loocv(problem))
    assert said["model"] == {
        "loss": "squared_hinge",
        "lam": 0.1,
        "C": None,
        "kappa": 0.01,
        "intercept": True,
        "tol": 1e-6,
    }
    data = load("diabetes")
    problem = glru.Problem(
        standardise(data.X), data.y, glru.Squared(), glru.L2(1.0 / 0.5), fit_intercept=True, scaling="sum"
    )
    said = answer("loocv", "diabetes", "--C", "0.5", "--fit-once")
    assert_result(said, glru.loocv(problem))
    assert said["model"]["C"] == 0.5 and said["model"]["lam"] is None and said["result"]["errors"] is None


@pytest.mark.parametrize("method", ["certified", "glru", "naive", "approx", "approx-glru"])
def test_methods(tmp_path, method):
    X, y = sample(n=25)
    path = write(tmp_path / "data.csv", X, y)
    result = glru.loocv(glru.Problem(standardise(X), y, penalty=glru.L2(2.0**-5), fit_intercept=True), method=method)
    assert_result(answer("loocv", path, "--method", method, "--lam", "2^-5", "--fit-once"), result)
    text = glru_command("loocv", path, "--method", method).stdout
    assert ("nothing is proven" in text) == (method in ("naive", "approx"))
    assert ("the others are" in text) == (method == "approx-glru")
    if method in ("glru", "approx"):
        assert answer("loocv", path, "--method", method)["settings"]["fit_once"]


def test_width_and_verify(tmp_path):
    X, y = sample(n=30)
    path = write(tmp_path / "data.csv", X, y)
    said = answer("loocv", path, "--width", "1e-8", "--verify", 100)
    check = said["result"]["verify"]
    assert check["rows"] == check["labels_compared"] == check["labels_that_agree"] == 30
    assert check["largest_distance_outside"] < 1e-3
    log_loss = said["result"]["metrics"]["log_loss"]
    assert 0.0 < log_loss["upper"] - log_loss["lower"] < 1e-7
    some = [answer("loocv", path, "--verify", 5, "--seed", seed)["result"]["verify"] for seed in (1, 1)]
    assert some[0]["rows"] == 5 and some[0]["labels_that_agree"] == some[1]["labels_that_agree"] == 5


def table_file(tmp_path, text, name="data.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


CITIES = """name,size,city,income,ill
ann,1.5,rome,10,yes
bob,2.5,oslo,,no
cat,0.5,rome,12,yes
dan,3.5,,14,no
eve,1.0,oslo,11,no
fay,2.0,rome,9,yes
"""


def test_columns_of_every_kind(tmp_path):
    """One-hot encoding, imputation, ids, dropped columns and a target of words."""
    path, out = table_file(tmp_path, CITIES), tmp_path / "rows.csv"
    options = ("--target", "ill", "--id", "name", "--one-hot", "--impute", "median", "--lam", 0.1, "--out", out)
    said = answer("loocv", path, *options, "--fit-once")
    assert said["data"]["classes"] == {"-1": "no", "+1": "yes"} and said["data"]["columns"] == 4
    oslo = np.array([0.0, 1.0, 0.0, 0.0, 1.0, 0.0])
    X = np.column_stack([[1.5, 2.5, 0.5, 3.5, 1.0, 2.0], oslo, 1.0 - oslo, [10, 11, 12, 14, 11, 9]])
    y = np.array([1, -1, 1, -1, -1, 1])
    assert_result(said, glru.loocv(glru.Problem(standardise(X), y, penalty=glru.L2(0.1), fit_intercept=True)))
    rows = pl.read_csv(out)
    assert rows["id"].to_list() == ["ann", "bob", "cat", "dan", "eve", "fay"]
    assert rows["verdict"].to_list() == ["correct" if c else "wrong" for c in rows["label"] == rows["y"]]
    said = answer("loocv", path, "--target", "ill", "--positive", "no", "--drop", "name,city, income")
    assert said["data"]["classes"] == {"-1": "yes", "+1": "no"} and said["data"]["columns"] == 1


def patients(tmp_path):
    """A table with missing values and text, and what scikit-learn needs to validate it."""
    random = np.random.default_rng(3)
    frame = pl.DataFrame(
        {
            "age": np.round(random.normal(50.0, 12.0, 60), 1),
            "pressure": np.round(np.exp(random.normal(5.0, 0.3, 60))),
            "town": random.choice(["Bern", "Oslo", "Rome"], 60),
        }
    )
    frame = frame.with_columns(ill=pl.Series(np.where(frame["age"] + random.normal(0.0, 9.0, 60) > 50.0, "yes", "no")))
    holes = pl.Series(random.random(60) < 0.15)
    frame = frame.with_columns(age=pl.when(holes).then(None).otherwise(pl.col("age")))
    path = tmp_path / "patients.csv"
    frame.write_csv(path)
    return path, frame


@pytest.mark.parametrize("options", [(), ("--no-intercept",), ("--normalize", "none")])
def test_columns_are_prepared_again_without_each_row(tmp_path, options):
    """Filled, encoded and scaled inside the folds by default: what scikit-learn gives for the whole pipeline, row by row."""
    path, frame = patients(tmp_path)
    said = answer("loocv", path, "--target", "ill", "--one-hot", "--C", 0.5, "--verify", 60, *options)
    assert said["settings"]["fit_once"] is False and said["result"]["n_refits"] == 0
    assert said["result"]["verify"]["labels_that_agree"] == 60
    numbers, intercept = make_pipeline(SimpleImputer(), StandardScaler()), "--no-intercept" not in options
    if "none" in options:
        numbers = SimpleImputer()
    text = make_pipeline(OneHotEncoder(sparse_output=False), "passthrough" if "none" in options else StandardScaler())
    pipeline = make_pipeline(
        make_column_transformer((numbers, ["age", "pressure"]), (text, ["town"])),
        LogisticRegression(C=0.5, fit_intercept=intercept, tol=1e-10, solver="newton-cholesky"),
    )
    y = frame["ill"].to_numpy()
    held = cross_val_predict(pipeline, frame.drop("ill"), y, cv=LeaveOneOut())
    likely = cross_val_predict(pipeline, frame.drop("ill"), y, cv=LeaveOneOut(), method="predict_proba")
    assert said["result"]["errors"] == {"lower": np.sum(held != y), "upper": np.sum(held != y)}
    ends = said["result"]["metrics"]["log_loss"]
    assert ends["lower"] - 1e-7 <= log_loss(y, likely) <= ends["upper"] + 1e-7


def test_errors_stand_beside_the_baseline():
    """Errors with Wilson's interval, the majority class, and a word on a pooled AUC that falls to 0 by the intercept alone."""
    said = answer("loocv", "breast_cancer")
    found, low_high = said["result"], wilson(13, 569)
    assert said["model"]["intercept"] is True
    constant, share = found["constant_answer"], np.r_[np.full(212, 211.0), np.full(357, 356.0)] / 568.0
    assert (constant["class"], constant["errors"]) == ("benign", 212) and found["roc_auc_caveat"] is None
    assert constant["log_loss"] == pytest.approx(-np.mean(np.log(share)))
    assert constant["brier"] == pytest.approx(np.mean((1.0 - share) ** 2))
    assert (found["errors_interval_95"]["lower"], found["errors_interval_95"]["upper"]) == pytest.approx(low_high)
    text = " ".join(glru_command("loocv", "breast_cancer").stdout.split())
    assert "held-out errors 13 of 569 rows (2.285 %; 95 % interval 1.34 to 3.87 %)" in text
    assert "baseline 212 errors (37.3 %) with benign for every row accuracy 0.9772 " in text
    assert "sensitivity 0.9944 (355 of 357 benign; 95 % interval 98 to 99.8 %)" in text
    text = " ".join(glru_command("loocv", "breast_cancer", "--lam", 1e5).stdout.split())
    assert "212 errors (37.3 %) with benign for every row: the model's labels are no better" in text
    assert "ROC AUC 0 (misleading here" in text
    data = load("diabetes")
    others = (data.y.sum() - data.y) / (data.y.size - 1)
    constant = answer("loocv", "diabetes")["result"]["constant_answer"]
    assert constant["squared_error"] == pytest.approx(np.mean((data.y - others) ** 2))


def wilson(count, n, z=1.959963984540054):
    """Wilson's interval by its formula."""
    p = count / n
    middle, half = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)


def test_one_line_tells_how_columns_are_prepared(tmp_path):
    path, _ = patients(tmp_path)
    options = ("loocv", path, "--target", "ill", "--drop", "town")
    text = " ".join(glru_command(*options).stdout.split())
    assert "preparation missing values filled, columns scaled: refitted without each row" in text
    text = " ".join(glru_command(*options, "--impute", "mean", "--fit-once").stdout.split())
    assert "preparation missing values filled, columns scaled: fitted once, to all rows" in text


def test_three_classes(tmp_path):
    path = table_file(tmp_path, "a,b,class\n" + "".join(f"{k},{k * k % 7},c{k % 3}\n" for k in range(30)))
    assert answer("loocv", path)["data"]["classes"] == ["c0", "c1", "c2"]
    names = table_file(tmp_path, "a,class\n" + "".join(f"{k % 4},c{k}\n" for k in range(20)))
    message = complaint("loocv", names)
    assert "the target 'class' must have classes of two rows or more; it has 20 values (c0, c1, c10" in message
    assert "--positive" in message and "--loss squared" in message
    path = table_file(tmp_path, "a,b,class\n" + "".join(f"{k},{k * k % 7},c{k % 3}\n" for k in range(30)))
    said = answer("loocv", path, "--positive", "c1")
    assert said["data"]["classes"] == {"-1": "others", "+1": "c1"}
    assert "must be a value of the target 'class' (c0, c1, c2); got 'c9'" in complaint(
        "loocv", path, "--positive", "c9"
    )


def test_numbers_with_blanks_no_header_and_other_delimiters(tmp_path):
    X, y = sample(n=20, d=2)
    lines = [f"{a}; {b} ;{label}" for (a, b), label in zip(X.tolist(), y.tolist(), strict=True)]
    path = table_file(tmp_path, "\n".join(lines) + "\n\n\n")
    said = answer("loocv", path, "--delimiter", ";", "--no-header", "--target", "x2", "--lam", 0.1, "--fit-once")
    assert_result(said, glru.loocv(glru.Problem(standardise(X), y, penalty=glru.L2(0.1), fit_intercept=True)))
    same = table_file(tmp_path, "\n".join(lines), "data.dat")
    options = ("--format", "csv", "--delimiter", ";", "--no-header", "--target", "x2", "--lam", 0.1, "--fit-once")
    assert answer("loocv", same, *options)["result"] == said["result"]


def test_table_for_people(tmp_path):
    X, y = sample()
    path = write(tmp_path / "data.csv", X, y)
    text = glru_command("loocv", path, "--verify", 3).stdout
    result = glru.loocv(glru.Problem(standardise(X), y, penalty=glru.L2(0.01), fit_intercept=True))
    assert re.search(rf"held-out errors +{result.n_errors} of 40 rows", text)
    assert re.search(r"brute force +3 models retrained in .*, 3 of 3 labels agree", text)
    for word in ("data.csv", "40 rows x 4 columns, standardised", "lam = 0.01", "trainings", "proof", "time"):
        assert word in text
    quiet = glru_command("loocv", path, "--quiet", "--out", tmp_path / "rows.csv")
    assert quiet.stdout == quiet.stderr == "" and (tmp_path / "rows.csv").exists()


def test_a_column_of_markup(tmp_path):
    """Names are shown as they are, not as markup of the terminal."""
    path = table_file(tmp_path, "[red]a[/red],y\n" + "".join(f"{k % 5},{k % 2}\n" for k in range(9)), "[bold].csv")
    assert "[bold].csv" in glru_command("loocv", path).stdout


def test_regression_of_a_file(tmp_path):
    X, _ = sample()
    y = X @ np.arange(1.0, 5.0) + 3.0
    path = write(tmp_path / "data.csv", X, y)
    said = answer("loocv", path, "--loss", "huber", "--lam", 0.1, "--fit-once")
    problem = glru.Problem(standardise(X), y, glru.Huber(), glru.L2(0.1), fit_intercept=True)
    assert_result(said, glru.loocv(problem))
    glru_command("loocv", path, "--loss", "squared", "--plot", tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_pictures(tmp_path, suffix):
    picture = tmp_path / f"picture.{suffix}"
    glru_command("loocv", "iris:1v2", "--plot", picture, "-q")
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix]
    assert picture.read_bytes().startswith(start)
    assert [path.name for path in tmp_path.iterdir()] == [picture.name]


def test_checkpoint(tmp_path):
    X, y = sample(n=25)
    path, stored = write(tmp_path / "data.csv", X, y), tmp_path / "run.npz"
    first = answer("loocv", path, "--method", "naive", "--checkpoint", stored)
    again = answer("loocv", path, "--method", "naive", "--checkpoint", stored)
    assert first["result"] == again["result"] == answer("loocv", path, "--method", "naive")["result"]
    path.write_text("nothing")
    assert "is not a checkpoint" in complaint("loocv", "iris:0v1", "--checkpoint", path)
