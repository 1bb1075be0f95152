"""Whole tasks with files as people have them: three classes, limits, dates, large tables, and commands that are bounded in time."""

import re
import time

import joblib
import numpy as np
import polars as pl
import pytest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import glru
from glru.cli import inputs
from glru.cli.output import TIME_IS_UP
from glru.datasets import read
from tests.cli.running import answer, complaint, glru_command

STAGES = ("I", "II", "III")


@pytest.fixture
def tumours(tmp_path):
    """A table with an id, gaps and three classes."""
    random = np.random.default_rng(5)
    X = random.normal(size=(60, 3)).round(3)
    places = (X @ random.normal(size=(3, 3)) + random.gumbel(size=(60, 3))).argmax(axis=1)
    columns = {f"x{j}": [None if random.random() < 0.05 else value for value in X[:, j]] for j in range(3)}
    path = tmp_path / "tumours.csv"
    pl.DataFrame(
        {"sample_id": [f"S{k:03d}" for k in range(60)]} | columns | {"stage": [STAGES[k] for k in places]}
    ).write_csv(path)
    return path


def test_three_classes_without_a_word(tumours, tmp_path):
    out, page, picture = tmp_path / "out.csv", tmp_path / "page.html", tmp_path / "picture.png"
    found = answer("loocv", tumours, "--target", "stage", "--C", 1, "--out", out, "--html", page, "--plot", picture)
    table = pl.read_csv(tumours)
    X, y = table.select("x0", "x1", "x2").to_numpy(), table["stage"].to_numpy()
    model = make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression(tol=1e-10, max_iter=10_000))
    expected = cross_val_predict(model, X, y, cv=LeaveOneOut(), method="predict_proba")
    assert found["data"]["classes"] == list(STAGES)
    assert found["model"]["loss"] == "multinomial"
    written = pl.read_csv(out)
    assert written["class"].to_list() == y.tolist()
    assert written["held_out_class"].to_list() == [STAGES[k] for k in expected.argmax(axis=1)]
    for k, name in enumerate(STAGES):
        assert np.all(expected[:, k] >= written[f"probability_lower_{name}"].to_numpy() - 1e-7)
        assert np.all(expected[:, k] <= written[f"probability_upper_{name}"].to_numpy() + 1e-7)
    result = found["result"]
    assert (
        result["errors"]["lower"] == result["errors"]["upper"] == int(np.sum(np.array(STAGES)[expected.argmax(1)] != y))
    )
    assert (
        result["metrics"]["log_loss"]["lower"] - 1e-7
        <= log_loss(y, expected)
        <= result["metrics"]["log_loss"]["upper"] + 1e-7
    )
    assert result["constant_answer"]["errors"] == 60 - max(np.unique(y, return_counts=True)[1])
    text = page.read_text()
    assert all(heading in text for heading in ("Confusion matrix", "macro F1", "Coefficients", "Rows to inspect"))
    assert picture.stat().st_size > 1000


def test_three_classes_in_other_commands(tumours):
    strengths = answer("tune", tumours, "--target", "stage", "--lam", "0.1,0.01", "--criterion", "log_loss")
    assert len(strengths["result"]["path"]) == 2
    chosen = answer("select", tumours, "--target", "stage", "--criterion", "log_loss", "--nested", "2")
    assert chosen["result"]["nested"]["errors"] <= 60
    assert "--loss logistic is for two classes" in complaint(
        "loocv", tumours, "--target", "stage", "--loss", "logistic"
    )
    one = answer("loocv", tumours, "--target", "stage", "--positive", "II")
    assert one["data"]["classes"] == {"-1": "others", "+1": "II"}


def test_a_change_of_a_model_of_three_classes(tumours, tmp_path):
    out, page, picture = tmp_path / "out.csv", tmp_path / "page.html", tmp_path / "picture.png"
    command = ("whatif", tumours, "--target", "stage", "--remove-rows", "0:8", "--C", 1)
    found = answer(*command, "--out", out, "--html", page, "--plot", picture)
    job = inputs.make_job(
        inputs.DataOptions(str(tumours), target="stage"), inputs.LossOptions(), inputs.StrengthOptions(C=1.0), fill=True
    )
    X, y = job.problem.X, job.problem.y
    names = np.array(STAGES)
    models = [
        LogisticRegression(tol=1e-10, max_iter=10_000).fit(X[rows], names[y[rows].astype(int)])
        for rows in (slice(0, None), slice(8, None))
    ]
    before, after = (model.predict(X[8:]) for model in models)
    written, result = pl.read_csv(out), found["result"]
    assert written["query"].to_list() == [f"S{k:03d}" for k in range(8, 60)]
    assert written["old_class"].to_list() == before.tolist() and written["class"].to_list() == after.tolist()
    changed = before != after
    assert result["labels"] == {"unchanged": int(np.sum(~changed)), "changed": int(changed.sum()), "undetermined": 0}
    assert changed.any() and result["changed"] == [f"S{k + 8:03d}" for k in np.flatnonzero(changed)]
    expected = models[1].predict_proba(X[8:])
    for k, name in enumerate(STAGES):
        assert np.all(expected[:, k] >= written[f"probability_lower_{name}"].to_numpy() - 1e-7)
        assert np.all(expected[:, k] <= written[f"probability_upper_{name}"].to_numpy() + 1e-7)
    truth = names[y[8:].astype(int)]
    assert result["before"]["errors"] == int(np.sum(before != truth))
    assert result["after"]["errors"] == dict.fromkeys(("lower", "upper"), int(np.sum(after != truth)))
    for entry in result["coefficients"]:
        column, _, label = entry["column"].partition(" for ")
        place = STAGES.index(label), job.prepared.names.index(column)
        assert abs(models[0].coef_[place] - entry["before"]) < 1e-3
        assert entry["lower"] - 1e-5 <= models[1].coef_[place] <= entry["upper"] + 1e-5
    text = page.read_text()
    assert all(part in text for part in ("Labels before and after", "label changed", "8 rows removed"))
    assert picture.stat().st_size > 1000


def test_whatif_keeps_its_work(tumours, tmp_path, monkeypatch):
    kept = tmp_path / "work.npz"
    command = ("whatif", tumours, "--target", "stage", "--remove-columns", "x1", "--checkpoint", kept)
    first = answer(*command)
    free = answer(*command[:-2])
    assert first["result"]["labels"] == free["result"]["labels"]

    def refuse(*arguments, **options):
        raise AssertionError("trained although the model is kept")

    monkeypatch.setattr("glru.cli.whatif.train", refuse)
    again = answer(*command)
    assert again["result"] == first["result"]


def test_a_class_of_a_single_row_is_called_by_its_name(tmp_path):
    path = tmp_path / "rare.csv"
    rows = [f"S{k},{k % 7},{'III' if k == 5 else STAGES[k % 2]}" for k in range(12)]
    path.write_text("\n".join(["sample_id,x,stage", *rows]) + "\n")
    for command in (("loocv",), ("tune",), ("verify",), ("select", "--loo")):
        said = complaint(*command, path, "--target", "stage")
        assert (
            "the class 'III' of the target 'stage'" in said and "a single row, S5" in said and "--no-intercept" in said
        )


@pytest.mark.parametrize(("name", "n_errors"), [("iris", 7), ("wine", 3)])
def test_bundled_data_of_three_classes(name, n_errors):
    found = answer("loocv", name)
    assert found["model"]["loss"] == "multinomial" and len(found["data"]["classes"]) == 3
    assert found["result"]["errors"] == {"lower": n_errors, "upper": n_errors}
    assert len(answer("data", name)["dataset"]["classes"]) == 3


def test_every_choice_is_compared_with_the_baseline(tumours):
    counts = np.unique(pl.read_csv(tumours)["stage"].to_numpy(), return_counts=True)[1]
    said = answer("tune", tumours, "--target", "stage", "--lam", "0.1,0.01")
    assert said["result"]["constant_answer"] == 60 - counts.max()
    shares = (counts - 1) / 59  # among the other rows
    said = answer("tune", tumours, "--target", "stage", "--lam", "0.1,0.01", "--criterion", "log_loss")
    assert said["result"]["constant_answer"] == pytest.approx(-np.sum(counts * np.log(shares)) / 60)
    text = " ".join(glru_command("tune", tumours, "--target", "stage", "--lam", "100,10,1").stdout.split())
    assert "with the same answer for every row" in text and "of the list: try a --lam beyond it" in text
    said = answer("select", tumours, "--target", "stage", "--loo", "--max-steps", "1")
    assert said["result"]["constant_answer"] == 60 - counts.max()


def test_a_measured_target_is_a_regression(tmp_path):
    random = np.random.default_rng(0)
    frame = pl.DataFrame({"a": random.normal(size=50), "days": random.gamma(2.0, 3.0, 50).round(1)})
    frame.write_csv(tmp_path / "stay.csv")
    found = answer("loocv", tmp_path / "stay.csv", "--target", "days")
    assert found["data"]["task"] == "regression" and "r2" in found["result"]["metrics"]
    shown = glru_command("loocv", tmp_path / "stay.csv", "--target", "days").stdout
    assert "regression of days" in shown
    counts = pl.DataFrame({"a": random.normal(size=50), "grade": random.integers(0, 4, 50)})
    counts.write_csv(tmp_path / "grades.csv")
    assert answer("loocv", tmp_path / "grades.csv", "--target", "grade")["data"]["classes"] == ["0", "1", "2", "3"]


def test_limits_may_be_most_of_a_column(tmp_path):
    values = ["<5"] * 30 + [f"{5 + k / 10}" for k in range(20)]
    pl.DataFrame({"crp": values, "group": ["<18", "18", ">18", "18", "<18"] * 10}).write_csv(tmp_path / "t.csv")
    table = read(tmp_path / "t.csv").table
    assert table["crp"].to_list() == [5.0] * 30 + [float(value) for value in values[30:]]
    assert table.schema["group"] == pl.String


def test_dates_begin_with_the_year_and_others_are_not_guessed(tmp_path):
    (tmp_path / "t.csv").write_text("a,seen,noted\n1,2023-04-03,2023-04-03 12:00\n2,,2023-12-25 06:30\n")
    table = read(tmp_path / "t.csv").table
    assert str(table["seen"][0])[:10] == "2023-04-03" and table["seen"].null_count() == 1
    assert str(table["noted"][1]) == "2023-12-25 06:30:00"
    lines = "".join(f"{k % 7},0{1 + k % 9}/0{1 + k % 5}/2023,{'yes' if k % 3 else 'no'}\n" for k in range(20))
    (tmp_path / "t.csv").write_text("a,seen,ill\n" + lines)
    assert read(tmp_path / "t.csv").table.schema["seen"] == pl.String
    said = complaint("loocv", tmp_path / "t.csv", "--target", "ill", "--keep", "seen")
    assert "'seen'" in said and "day or the month" in said
    assert "seen" in answer("loocv", tmp_path / "t.csv", "--target", "ill")["data"]["left_out"]


def test_large_tables_are_filled_once_and_say_so(tmp_path, monkeypatch):
    random = np.random.default_rng(1)
    X = random.normal(size=(200, 2))
    y = np.where(X[:, 0] + random.normal(size=200) > 0.0, "yes", "no")
    gaps = [None if random.random() < 0.1 else float(value) for value in X[:, 1]]
    town = random.choice(["Bern", "Basel"], 200)
    pl.DataFrame({"a": X[:, 0], "b": gaps, "town": town, "ill": y}).write_csv(tmp_path / "t.csv")
    every = answer("loocv", tmp_path / "t.csv", "--target", "ill")
    monkeypatch.setattr(inputs, "MAX_REFILL_WORK", 1.0)
    once = answer("loocv", tmp_path / "t.csv", "--target", "ill")
    assert once["result"]["errors"] == every["result"]["errors"]
    low, high = (once["result"]["metrics"]["log_loss"][end] for end in ("lower", "upper"))
    assert low < every["result"]["metrics"]["log_loss"]["lower"] * 1.01 and high > low
    shown = glru_command("loocv", tmp_path / "t.csv", "--target", "ill", "--html", tmp_path / "r.html").stdout
    assert "filled once, by all rows" in re.sub(r"\s+", " ", shown)
    assert "Cook" in (tmp_path / "r.html").read_text()


def test_a_report_of_a_large_table(tmp_path):
    random = np.random.default_rng(2)
    n_rows = 20_000
    X = random.normal(size=(n_rows, 3))
    y = np.where(X[:, 0] + random.logistic(size=n_rows) > 3.0, "yes", "no")
    columns = {f"x{k}": X[:, k].round(3) for k in range(3)}
    pl.DataFrame(columns | {"ill": y}).write_csv(tmp_path / "t.csv")
    begin = time.process_time()
    glru_command("loocv", tmp_path / "t.csv", "--target", "ill", "--html", tmp_path / "r.html")
    # Work that grows with the square of the rows takes minutes here.
    assert time.process_time() - begin < 30.0
    text = (tmp_path / "r.html").read_text()
    wrong = int(re.search(r"wrong \(([\d,]+)\)", text)[1].replace(",", ""))
    right = int(re.search(r"correct \(([\d,]+)\)", text)[1].replace(",", ""))
    assert wrong + right == n_rows
    assert "e+0" not in re.sub(r"<script.*|<style.*?</style>|data:image[^\"]*", "", text, flags=re.S)


def test_verify_is_bounded(tmp_path):
    random = np.random.default_rng(3)
    X = random.normal(size=(30, 2))
    pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": (X[:, 0] + random.normal(size=30) > 0.0) * 1}).write_csv(
        tmp_path / "t.csv"
    )
    found = answer("verify", tmp_path / "t.csv", "--sample", 3, "--digits", 30)
    assert found["result"]["checked"] == 3 and found["result"]["wrong"] == []
    steps = []
    problem = glru.Problem(X, X[:, 0] > 0.3, penalty=glru.L2(0.1))
    cut = glru.verify(
        glru.loocv(problem), problem, sample=4, max_seconds=1e-9, progress=lambda *step: steps.append(step)
    )
    assert (cut.checked, cut.unchecked, steps) == (0, 4, [])


@pytest.mark.parametrize("command", ["loocv", "select", "tune", "whatif", "verify", "certify"])
def test_every_long_command_is_ended(tmp_path, monkeypatch, command):
    (tmp_path / "t.csv").write_text("a,y\n" + "".join(f"{k % 5},{k % 2}\n" for k in range(20)))

    def sleep(*_, **__):
        time.sleep(30.0)

    monkeypatch.setattr(inputs, "prepare_data", sleep)
    monkeypatch.setattr("glru.cli.app.GRACE", (1.0, 0.1))
    joblib.dump(LogisticRegression(), tmp_path / "model.joblib")
    needed = {"whatif": ["--remove-rows", "1"], "certify": ["--model", tmp_path / "model.joblib"]}
    change = needed.get(command, [])
    begin = time.monotonic()
    said = complaint(command, tmp_path / "t.csv", *change, "--max-seconds", 0.1, code=TIME_IS_UP)
    assert "the time is up" in said and time.monotonic() - begin < 20.0


def test_a_selection_by_aic_goes_on_from_its_checkpoint(tmp_path):
    random = np.random.default_rng(4)
    X = random.normal(size=(80, 4))
    y = np.where(X[:, 0] + random.normal(size=80) > 0.0, "yes", "no")
    pl.DataFrame({f"x{k}": X[:, k] for k in range(4)} | {"ill": y}).write_csv(tmp_path / "t.csv")
    command = ["select", tmp_path / "t.csv", "--target", "ill", "--criterion", "aic", "--lam", "1e-4"]
    first = answer(*command, "--checkpoint", tmp_path / "kept.npz")
    again = answer(*command, "--checkpoint", tmp_path / "kept.npz")
    assert first["result"]["selected"] == again["result"]["selected"] and "x0" in first["result"]["selected"]
    assert first["settings"]["validation_rows"] is None
    assert "judges by the training rows" in complaint(*command, "--loo", code=2)


def test_queries_say_what_they_do_not_know(tmp_path):
    lines = "".join(f"{k % 5},{'red' if k % 3 else 'blue'},{'yes' if k % 2 else 'no'}\n" for k in range(30))
    (tmp_path / "t.csv").write_text("a,colour,ill\n" + lines)
    (tmp_path / "new.csv").write_text("a,colour\n1,green\n,red\n")
    shown = glru_command(
        "whatif", tmp_path / "t.csv", "--target", "ill", "--remove-rows", "0", "--query", tmp_path / "new.csv"
    ).stdout
    assert "'colour': 'green'" in shown and "none of the known" in re.sub(r"\s+", " ", shown)


@pytest.mark.parametrize("order", ["{day}/3/2020", "{day}.3.2020", "3/{day}/2020", "2020-03-{day}"])
def test_dates_beside_empty_lines(order, tmp_path):
    """Lines without a value are no rows."""
    path = tmp_path / "dates.csv"
    lines = [f"{order.format(day=f'{k + 1:02d}')},{k % 7},{'yes' if k % 3 else 'no'}" for k in range(20)]
    path.write_text("\n".join(["day,a,y", *lines[:5], "", *lines[5:9], " ", ",,", *lines[9:]]) + "\n")
    table = read(path).table
    assert table.height == 20 and table["day"].null_count() == 0 and "10" in str(table["day"][9])
    assert answer("loocv", path)["data"]["left_out"] == {"day": "dates"}


def test_limits_in_new_rows_are_said(tmp_path):
    path, query = tmp_path / "data.csv", tmp_path / "query.csv"
    path.write_text("a,b,y\n" + "".join(f"{k % 7},{k % 11},{'yes' if k % 3 else 'no'}\n" for k in range(30)))
    query.write_text("a,b\n1,<5\n2,3\n4,>7\n")
    found = answer("whatif", path, "--remove-rows", "1", "--query", query)
    assert found["data"]["notes"]["read in query.csv as"] == "2 values of 'b' such as '<5' read as the limit"
    assert "read in query.csv as" in glru_command("whatif", path, "--remove-rows", "1", "--query", query).stdout
    query.write_text("a,b,y\n1,<5,yes\n2,3,no\n4,unknown,no\n5,1,no\n")
    notes = answer("select", path, "--validation", query)["data"]["notes"]
    assert notes["read in query.csv as"].startswith(
        "1 value of 'b' such as '<5' read as the limit; 1 value of 'b' such as 'unknown'"
    )


def test_new_rows_have_the_decimal_comma_of_the_data(tmp_path):
    """Alone, 1.234 would be a little more than one."""
    path, query, out = tmp_path / "data.csv", tmp_path / "query.csv", tmp_path / "out.csv"
    path.write_text("a;y\n" + "".join(f"{k % 5}.{100 + k},5;{'yes' if k % 3 else 'no'}\n" for k in range(30)))
    scores = []
    for number in ("1.234", "1234,0"):
        query.write_text(f"a\n{number}\n".replace("\n", ";z\n"))
        answer("whatif", path, "--remove-rows", "1", "--query", query, "--out", out)
        scores.append(pl.read_csv(out)["old_score"][0])
    assert scores[0] == scores[1]


def test_no_time_for_what_was_asked(tumours):
    """What is proven is shown, and the exit code says that the run was cut short."""
    shown = glru_command("loocv", tumours, "--target", "stage", "--verify", 3, "--max-seconds", 1e-4, code=TIME_IS_UP)
    assert "no model was retrained" in shown.stdout
    shown = glru_command("verify", tumours, "--target", "stage", "--max-seconds", 1e-4, code=TIME_IS_UP)
    assert "checked" in shown.stdout


def test_the_check_of_the_data_of_every_command(tmp_path):
    path = tmp_path / "limits.csv"
    path.write_text("a,b,y\n" + "".join(f"{k % 7},{k % 11 if k > 2 else '<5'},{k % 2}\n" for k in range(30)))
    for arguments in (
        ["loocv"],
        ["tune", "--lam", "1,0.1"],
        ["select"],
        ["verify", "--sample", 2],
        ["whatif", "--remove-rows", "1"],
    ):
        shown = glru_command(arguments[0], path, *arguments[1:]).stdout
        assert "3 values of 'b' such as '<5' read as the limit" in re.sub(r"\s+", " ", shown), arguments


def test_no_rows_to_judge_every_class(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b,y\n" + "".join(f"{k % 7},{k * k % 11},{'ABCDEFGHIJ'[k % 10]}\n" for k in range(30)))
    assert "every class needs rows to train on and rows to validate on" in complaint("select", path)


@pytest.mark.filterwarnings("ignore")
def test_targets_whose_squares_overflow(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b,y\n" + "".join(f"{k % 7},{k * k % 11},{(k % 5 - 1.7) * 1e200:.6e}\n" for k in range(30)))
    assert glru_command("loocv", path).stdout
