"""The program as such: version, completion, tables for papers, logs, limits of time, exit codes."""

import hashlib
import re

import numpy as np

import glru
from tests.cli.running import answer, complaint, glru_command, sample, write


def test_version_and_completion():
    assert glru_command("--version").stdout == f"glru {glru.__version__}\n"
    assert "--install-completion" in glru_command("--help").stdout


def test_tables_for_papers(tmp_path):
    X, y = sample()
    path = write(tmp_path / "data.csv", X, y)
    count = answer("loocv", path)["result"]["errors"]["lower"]
    markdown = glru_command("loocv", path, "--table", "md").stdout
    assert f"| held-out errors | {count} of 40 rows" in markdown
    latex = glru_command("loocv", path, "--table", "tex").stdout
    assert latex.startswith("\\begin{tabular}") and f"held-out errors & {count} of 40 rows" in latex
    assert re.search(r"(?<!\\)[%_#&]", latex.replace(" & ", "")) is None
    html = glru_command("loocv", path, "--table", "html").stdout
    assert f'<tr><th scope="row">held-out errors</th><td>{count} of 40 rows' in html
    complaint("loocv", path, "--table", "doc", code=2)


def test_log(tmp_path):
    """A log grows by a run's command and result, or its error."""
    log = tmp_path / "runs.log"
    glru_command("loocv", "iris:1v2", "-q", "--log", log)
    complaint("loocv", tmp_path / "absent.csv", "--log", log)
    lines = log.read_text(encoding="utf-8").splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC  ", line) for line in lines)
    assert any("held-out errors: " in line for line in lines) and lines[-1].endswith("there is no such file.")
    assert "no such" in complaint("loocv", "iris:1v2", "--log", tmp_path / "none" / "runs.log").lower()


def test_limits_of_time(tmp_path):
    """A run that is out of time says what is proven by then, and ends with a code of its own."""
    X, y = sample(n=400, d=20)
    path = write(tmp_path / "data.npz", X, y)
    result = glru_command("loocv", path, "--method", "naive", "--max-seconds", 1e-6, code=3)
    assert "held-out errors" in result.stdout and "open" in result.stdout
    assert "the time is up" in glru_command("tune", path, "--max-seconds", 1e-6, code=3).stderr
    assert glru_command("select", path, "--max-seconds", 1e-6, code=3).exit_code == 3
    assert "--max-seconds must be a number of seconds above 0" in complaint("loocv", path, "--max-seconds", "-1")


def test_reports_say_where_they_come_from(tmp_path):
    """What is printed, checksum, date, confusion matrix, ROC, calibration and coefficients are in the report."""
    X, y = sample(n=60)
    path, page = write(tmp_path / "data.csv", X, y), tmp_path / "page.html"
    said = answer("loocv", path, "--html", page)
    text = page.read_text(encoding="utf-8")
    assert hashlib.sha256(path.read_bytes()).hexdigest() in text and re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", text)
    for title in ("Confusion matrix", "ROC curve", "Calibration", "Coefficients"):
        assert f"<h2>{title}</h2>" in text
    for name in ("classes", "held-out errors", "sensitivity", "proof"):
        assert f"<dt>{name}</dt>" in text
    assert f"<dt>baseline</dt><dd>{said['result']['constant_answer']['errors']} errors" in text
    table = text.partition("<h2>Confusion matrix</h2>")[2].partition("</table>")[0]
    counts = np.array([int(value) for value in re.findall(r"<td class[^>]*>(\d+)</td>", table)]).reshape(2, 2)
    assert counts.sum() == 60 and counts[0, 1] + counts[1, 0] == said["result"]["errors"]["lower"]
    assert counts.sum(axis=1).tolist() == [np.sum(y == 0), np.sum(y == 1)]
    solution = glru.solve(
        glru.Problem((X - X.mean(0)) / X.std(0), y, penalty=glru.L2(0.01), fit_intercept=True), tol=1e-12
    )
    largest = int(np.argmax(np.abs(solution.coef)))
    table = text.partition("<h2>Coefficients</h2>")[2]
    assert f"<td>x{largest}</td>" in table.partition("</tr>")[2].partition("</tr>")[0]
    assert f"{np.exp(solution.coef[largest]):.5g}" in table
    glru_command("loocv", "diabetes", "--html", page, "-q")
    text = page.read_text(encoding="utf-8")
    assert "<dt>R²</dt>" in text and "<h2>Coefficients</h2>" in text and "baseline: " in text
