"""Tables as they come: other delimiters, encodings and number formats, ids, dates, stray text, missing values."""

import io
import subprocess
import sys
import zipfile

import numpy as np
import polars as pl
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from glru.datasets import read
from tests.cli.running import answer, complaint, glru_command, sample, write


def plain(n=30):
    X, y = sample(n=n, d=3)
    return pl.DataFrame({"size": X[:, 0], "weight": 1000.0 * X[:, 1].round(2), "größe": X[:, 2], "ill": y})


def as_text(frame, delimiter=",", decimal=".", thousands=""):
    """A table as text, with any number format."""

    def number(value):
        text = f"{value:,.3f}" if isinstance(value, float) else str(value)
        return text.replace(",", "T").replace(".", decimal).replace("T", thousands)

    lines = [list(frame.columns), *([number(value) for value in row] for row in frame.rows())]
    return (
        "\n".join(delimiter.join(f'"{field}"' if delimiter in field else field for field in line) for line in lines)
        + "\n"
    )


WRITTEN = {
    "semicolon": lambda frame: as_text(frame, ";").encode(),
    "tab": lambda frame: as_text(frame, "\t").encode(),
    "bar": lambda frame: as_text(frame, "|").encode(),
    "decimal-comma": lambda frame: as_text(frame, ";", ",").encode(),
    "german": lambda frame: as_text(frame, ";", ",", ".").encode(),
    "english": lambda frame: as_text(frame, ",", ".", ",").encode(),
    "swiss": lambda frame: as_text(frame, ";", ".", "'").encode(),
    "french": lambda frame: as_text(frame, ";", ",", "\u202f").encode(),
    "mark": lambda frame: as_text(frame).encode("utf-8-sig"),
    "utf-16": lambda frame: as_text(frame).encode("utf-16"),
    "windows": lambda frame: as_text(frame).encode("cp1252"),
    "comments": lambda frame: ("# from the clinic\n# 2024\n" + as_text(frame)).encode(),
    "windows-lines": lambda frame: as_text(frame, ";").replace("\n", "\r\n").encode(),
}


def test_notes_name_options_of_the_command_line(tmp_path):
    (tmp_path / "t.csv").write_bytes(
        b"a,ort,y\n" + b"".join(f"{k % 4},Köln,{k % 2}\n".encode("cp1252") for k in range(9))
    )
    assert "(or give --encoding ...)" in answer("loocv", tmp_path / "t.csv")["data"]["notes"]["read as"]


@pytest.mark.parametrize("way", WRITTEN)
def test_a_table_written_in_many_ways(tmp_path, way):
    frame = plain()
    path = tmp_path / "data.csv"
    path.write_bytes(WRITTEN[way](frame))
    found = read(path)
    assert found.names == tuple(frame.columns)
    assert np.allclose(found.table.cast(pl.Float64).to_numpy(), frame.to_numpy(), atol=6e-4)


def test_options_say_what_is_not_recognised(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("a;b;y\n1,234;1;0\n2,345;2;1\n3,456;2;0\n")
    assert read(path).table["a"].to_list() == [1.234, 2.345, 3.456]
    assert read(path, decimal=".").table["a"].to_list() == [1234.0, 2345.0, 3456.0]
    path.write_bytes("a;b;y\n1;ü;0\n2;ö;1\n".encode("cp850"))
    assert read(path, encoding="cp850").table["b"].to_list() == ["ü", "ö"]
    assert "must be known to Python; got 'nonsense'" in complaint("loocv", path, "--encoding", "nonsense")
    path.write_text("a,y\n1,0\nhidden,1\n3,0\n4,1\n9,1\n1,0\n")
    message = complaint("loocv", path)
    assert str(path) in message and "'a' ('hidden' among numbers in row 1)" in message and "--missing" in message
    assert answer("loocv", path, "--missing", "hidden")["data"]["notes"]["missing values"] == "'a' 16.7 %"


def test_archives_folders_patterns_and_standard_input(tmp_path):
    X, y = sample()
    expected = answer("loocv", write(tmp_path / "data.csv", X, y))["result"]
    with zipfile.ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.write(tmp_path / "data.csv", "inside/data.csv")
    assert answer("loocv", tmp_path / "data.zip")["result"] == expected
    (tmp_path / "parts").mkdir()
    for k in range(2):
        write(tmp_path / "parts" / f"part-{k}.parquet", X[20 * k : 20 * k + 20], y[20 * k : 20 * k + 20])
        write(tmp_path / f"part-{k}.csv", X[20 * k : 20 * k + 20], y[20 * k : 20 * k + 20])
    assert answer("loocv", tmp_path / "parts")["result"] == expected
    assert answer("loocv", tmp_path / "part-*.csv")["result"] == expected
    assert "--out must leave the input alone" in complaint(
        "loocv", tmp_path / "part-*.csv", "--out", tmp_path / "part-1.csv"
    )
    assert "does not" in complaint("loocv", tmp_path / "nothing-*.csv")
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("a.csv", "x"), archive.writestr("b.csv", "x")
    assert "must hold one file; it holds 2" in complaint("loocv", tmp_path / "two.zip")
    command = [sys.executable, "-m", "glru", "loocv", "-", "--json"]
    piped = subprocess.run(command, input=(tmp_path / "data.csv").read_bytes(), capture_output=True, check=True)
    assert b'"name": "-"' in piped.stdout and f'"lower": {expected["errors"]["lower"]}'.encode() in piped.stdout


@pytest.fixture(scope="module")
def patients(tmp_path_factory):
    """A table as a clinic exports it, 3 % of it ill, and the plain table behind it."""
    random, n = np.random.default_rng(3), 300
    age, crp = random.normal(60.0, 12.0, n).round(1), np.exp(random.normal(1.0, 1.0, n)).round(1)
    smoker = random.choice(["never", "past", "now"], n)
    ill = random.random(n) < 1.0 / (1.0 + np.exp(5.2 - 0.08 * (age - 60.0) - np.log(crp) - (smoker == "now")))
    ages = np.where(random.random(n) < 0.05, np.nan, age)
    smokers = [None if random.random() < 0.1 else value for value in smoker]
    numbers = [f"P{k:05d}" for k in random.permutation(n)]
    frame = pl.DataFrame(
        {
            "": np.arange(n),
            "patient": numbers,
            "admitted": [f"{1 + k % 28:02d}.{1 + k % 12:02d}.2023" for k in range(n)],
            "discharged": [f"2024-{1 + k % 12:02d}-{1 + k % 28:02d}" for k in range(n)],
            "age": [None if np.isnan(value) else value for value in ages],
            "crp": ["<0.5" if value < 0.5 else "n/a" if value > 40 else str(value) for value in crp],
            "crp again": ["<0.5" if value < 0.5 else "n/a" if value > 40 else str(value) for value in crp],
            "ward": ["A"] * n,
            "smoker": smokers,
            "ill": np.where(ill, "yes", "no"),
        }
    )
    path = tmp_path_factory.mktemp("clinic") / "patients.csv"
    frame.write_csv(path)
    limit = np.where(crp < 0.5, 0.5, np.where(crp > 40, np.nan, crp))
    clean = pl.DataFrame({"age": ages, "crp": limit, "again": limit, "smoker": smokers}, nan_to_null=True)
    return path, clean, ill, numbers


def test_the_plain_call(patients, tmp_path):
    """Ids, dates and constants leave, gaps are filled, text is encoded inside the folds: what scikit-learn gives for the clean table."""
    path, clean, ill, numbers = patients
    out = tmp_path / "rows.csv"
    said = answer("loocv", path, "--target", "ill", "--out", out)
    found = said["result"]
    assert set(said["data"]["left_out"]) == {"unnamed_0", "patient", "admitted", "discharged"}
    numeric = make_pipeline(SimpleImputer(), StandardScaler())
    text = make_pipeline(
        SimpleImputer(missing_values=None, strategy="most_frequent"),
        OneHotEncoder(sparse_output=False),
        StandardScaler(),
    )
    model = LogisticRegression(C=1.0 / (0.01 * (ill.size - 1)), tol=1e-10, solver="newton-cholesky")
    steps = make_column_transformer((numeric, ["age", "crp", "again"]), (text, ["smoker"]))
    held = cross_val_predict(
        make_pipeline(steps, model), clean, ill, cv=LeaveOneOut(), method="predict_proba", n_jobs=1
    )[:, 1]
    errors = int(np.sum((held > 0.5) != ill))
    assert found["errors"] == {"lower": errors, "upper": errors}
    assert (found["constant_answer"]["class"], found["constant_answer"]["errors"]) == ("no", int(ill.sum()))
    for name, value in (("log_loss", log_loss(ill, held)), ("brier", brier_score_loss(ill, held))):
        ends = found["metrics"][name]
        assert ends["lower"] - 1e-7 <= value <= ends["upper"] + 1e-7
    rows = pl.read_csv(out)
    assert rows["id"].to_list() == numbers and rows["class"].to_list() == np.where(ill, "yes", "no").tolist()
    assert np.all(rows["probability_lower"].to_numpy() <= held + 1e-6)
    assert np.all(rows["probability_upper"].to_numpy() >= held - 1e-6)
    assert set(rows["held_out_class"]) <= {"yes", "no"}


def test_the_data_check_for_people(patients):
    path, _, ill, _ = patients
    text = " ".join(glru_command("loocv", path, "--target", "ill").stdout.split())
    assert (
        "left out 'unnamed_0' (counts the rows), 'patient' (300 different texts in 300 rows), 'admitted' (dates)"
        in text
    )
    assert "such as '<0.5' read as the limit" in text
    assert f"classes no {300 - ill.sum()}" in text and "missing values 'age'" in text
    assert "constant: 'ward'; copies of other columns: 'crp again'" in text
    kept = answer("loocv", path, "--target", "ill", "--keep", "discharged", "--drop", "crp again")
    assert "discharged" not in kept["data"]["left_out"] and kept["data"]["columns"] == 6
    odd = path.with_name("odd.csv")
    odd.write_text("when,a,y\n" + "".join(f"{1 + k}/12-23,{k % 7},{k % 2}\n" for k in range(20)))
    assert answer("loocv", odd)["data"]["left_out"] == {"when": "dates"}
    assert "dates must be written as 2024-12-31" in complaint("loocv", odd, "--keep", "when")


def test_leaks_and_copies_are_named(tmp_path):
    X, y = sample()
    frame = pl.DataFrame({"x": X[:, 0], "score": X[:, 1] + 100.0 * y, "ward": np.where(y > 0, "ill", "well"), "y": y})
    path = tmp_path / "data.csv"
    pl.concat([frame, frame[:3]]).write_csv(path)
    notes = answer("loocv", path)["data"]["notes"]
    assert (
        "separates the classes by itself" in notes["columns to look at"]
        and "'score', 'ward'" in notes["columns to look at"]
    )
    assert notes["rows to look at"].startswith("3 of 43 are copies of other rows")


def test_a_column_of_many_texts_does_not_explode(tmp_path):
    X, y = sample(n=200)
    names = [f"street {k % 90}" for k in range(200)]
    pl.DataFrame({"x": X[:, 0], "address": names, "y": y}).write_csv(tmp_path / "data.csv")
    assert answer("loocv", tmp_path / "data.csv")["data"]["columns"] == 1
    assert answer("loocv", tmp_path / "data.csv", "--keep", "address")["data"]["columns"] == 91


def test_an_id_that_is_kept_is_a_feature(tmp_path):
    X, y = sample(n=20)
    pl.DataFrame({"x": X[:, 0], "id": [f"P{k}" for k in range(20)], "y": y}).write_csv(tmp_path / "data.csv")
    assert answer("loocv", tmp_path / "data.csv")["data"]["columns"] == 1
    assert answer("loocv", tmp_path / "data.csv", "--keep", "id")["data"]["columns"] == 21


def test_a_stray_text_among_different_numbers_is_no_id(tmp_path):
    """A column of measurements with one typing error is not left out in silence, whatever the decimal sign."""
    X, y = sample(n=30)
    for point in ".,":
        values = [f"{value:.4f}".replace(".", point) for value in X[:, 0]]
        values[7] = "12 mg"
        lines = [f"{value};{k % 7};{label}" for k, (value, label) in enumerate(zip(values, y, strict=True))]
        (tmp_path / "stray.csv").write_text("\n".join(["dose;visits;y", *lines]))
        assert "'dose' ('12 mg' among numbers in row 7)" in complaint("loocv", tmp_path / "stray.csv", "--target", "y")


def test_separated_thousands_are_said(tmp_path):
    """A dot is no decimal point where fractions have commas, and a reader can check that."""
    rows = "".join(f"{k % 5},5;{200 + k}.514\n" for k in range(40))
    (tmp_path / "houses.csv").write_text(f"size;price\n{rows}")
    said = answer("loocv", tmp_path / "houses.csv", "--target", "price")["data"]["notes"]
    assert said["read as"] == "decimal commas; separated thousands in 'price' such as '200.514'"


def test_tuning_by_errors_of_a_rare_class_suggests_another_criterion(tmp_path):
    random = np.random.default_rng(0)
    rare = pl.DataFrame({"x": random.normal(size=60), "ill": ["yes"] * 3 + ["no"] * 57})
    rare.write_csv(tmp_path / "rare.csv")
    text = " ".join(glru_command("tune", tmp_path / "rare.csv", "--target", "ill", "--lam", "1,0.1").stdout.split())
    assert "try --criterion log_loss" in text and "beyond it" not in text


def test_queries_with_gaps_and_new_categories(patients, tmp_path):
    """The fitted pipeline answers: gaps are filled as in training, a new category is none of the known ones."""
    path, clean, ill, numbers = patients
    query = tmp_path / "new.csv"
    query.write_text("patient,age,crp,crp again,ward,smoker\nQ1,,2.5,2.5,A,pipe\nQ2,70,<0.5,<0.5,B,\n")
    out = tmp_path / "answers.csv"
    options = ("--target", "ill", "--remove-ids", f"{numbers[0]},{numbers[7]}", "--query", query)
    said = answer("whatif", path, *options, "--out", out)
    assert said["settings"]["remove_rows"] == [0, 7]
    assert said["settings"]["unknown_categories"] == {"ward": ["B"], "smoker": ["pipe"]}
    rows = pl.read_csv(out)
    assert rows["query"].to_list() == ["Q1", "Q2"] and rows["score_lower"].is_finite().all()
    listed = tmp_path / "ids.txt"
    listed.write_text(f"{numbers[7]}\n{numbers[0]}\n")
    again = answer("whatif", path, "--target", "ill", "--remove-ids", listed, "--query", query)
    assert again["result"]["gap"] == said["result"]["gap"]
    assert "got 'nobody'" in complaint("whatif", path, "--target", "ill", "--remove-ids", "nobody")
    model = make_pipeline(
        make_column_transformer(
            (make_pipeline(SimpleImputer(), StandardScaler()), ["age", "crp", "again"]),
            (
                make_pipeline(
                    SimpleImputer(missing_values=None, strategy="most_frequent"),
                    OneHotEncoder(sparse_output=False, handle_unknown="ignore"),
                    StandardScaler(),
                ),
                ["smoker"],
            ),
        ),
        LogisticRegression(C=1.0 / (0.01 * ill.size), tol=1e-10, solver="newton-cholesky"),
    ).fit(clean, ill)
    new = pl.DataFrame({"age": [None, 70.0], "crp": [2.5, 0.5], "again": [2.5, 0.5], "smoker": ["pipe", None]})
    assert rows["old_score"].to_numpy() == pytest.approx(model.decision_function(new), abs=1e-4)


def test_ids_of_whole_numbers(tmp_path):
    """A permutation of numbers is an id; different incomes are not."""
    X, y = sample(n=60)
    random = np.random.default_rng(0)
    frame = pl.DataFrame({"case": random.permutation(60) + 100, "income": random.choice(10**6, 60, replace=False)})
    frame = frame.with_columns(x=X[:, 0], y=y)
    data = io.BytesIO()
    frame.write_csv(data)
    (tmp_path / "data.csv").write_bytes(data.getvalue())
    assert set(answer("loocv", tmp_path / "data.csv")["data"]["left_out"]) == {"case"}


def test_names_with_commas_and_ids_with_blanks(tmp_path):
    """Quotes keep a name whole, an id is a line of its file, and a misspelt target is met with the nearest name."""
    data, gone = tmp_path / "t.csv", tmp_path / "gone.txt"
    frame = plain(40).rename({"weight": "weight, kg"}).insert_column(0, pl.Series("id", [f"P {k}" for k in range(40)]))
    frame.write_csv(data)
    found = answer("loocv", data, "--target", "ill", "--drop", 'size,"weight, kg"')
    assert found["data"]["columns"] == 1
    gone.write_text("P 3\n\nP 17 \n")
    command = ("whatif", data, "--target", "ill", "--id", "id", "--remove-ids", gone)
    found = answer(*command, "--remove-columns", '"weight, kg"')
    assert found["settings"]["remove_rows"] == [3, 17] and found["settings"]["remove_columns"] == ["weight, kg"]
    assert complaint("loocv", data, "--target", "il").endswith("got 'il'. Did you mean 'ill'?\n")
