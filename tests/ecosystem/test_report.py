"""Reports: what they say, that they are whole and safe, and that they work in a real browser."""

import html
import re
from html.parser import HTMLParser

import matplotlib
import numpy as np
import pytest

import glru
from glru.display.scores import GREY, ORANGE
from glru.report import (
    list_after_sections,
    list_loocv_sections,
    list_path_sections,
    list_stepwise_sections,
    page,
)
from glru.report.frame import format_interval, format_move, format_number
from glru.report.quality import calibration_section, roc_section
from tests.cases import make, with_open_rows
from tests.cli.running import glru_command
from tests.ecosystem.browser import chromium

matplotlib.use("Agg")

NASTY = '<script>alert("1")</script>&\'"<img src=x onerror=alert(2)>'
ORIGIN = f"glru loocv {NASTY}", [("data", NASTY)], {"glru": glru.__version__}


class Reader(HTMLParser):
    """Collects elements and text, and checks that every element is closed."""

    VOID = frozenset({"meta", "img", "br", "line", "circle", "path", "polygon", "input", "link"})

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.text = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.text.append(data)


def parsed(page):
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def result():
    """A classification with correct, wrong and undetermined rows."""
    problem = make(glru.Logistic(), glru.L2(0.02), 40, 4, seed=3)
    return with_open_rows(glru.loocv(problem), [5, 9])


@pytest.fixture(scope="module")
def pages(result):
    """A page of every kind, with names that would do harm if they were not escaped."""
    kinds = ["no" + NASTY, "yes" + NASTY]
    names = [f"{NASTY}{k}" for k in range(40)]
    problem = result.problem
    solution = glru.solve(problem)
    influence = glru.influence(solution).top(5)
    regression = make(glru.Squared(), glru.L2(0.1), 30, 3)
    path = glru.loocv_path(problem, [1.0, 0.1, 0.01])
    out = glru.after(solution, glru.RemoveRows([1, 2]))
    bounds = out.score_bounds(problem.X)
    trained = glru.solve(regression)
    gone = glru.after(trained, glru.RemoveRows([1]))
    classes = glru.Problem(
        problem.X, np.arange(40) % 3, loss=glru.Multinomial(), penalty=glru.L2(0.02), fit_intercept=True
    )
    several = glru.solve(classes)
    less = glru.after(several, glru.RemoveRows([1, 2]))
    selection = glru.stepwise(
        problem, X_val=problem.X, y_val=problem.y, criterion="log_loss", forced=True, min_features=2
    )
    numbers, moved = [str(k) for k in range(30)], gone.score_bounds(regression.X)
    labels, others = [f"{k}{NASTY}" for k in range(3)], less.score_bounds(classes.X)
    found = {
        "loocv": list_loocv_sections(result, kinds, names, influence),
        "regression": list_loocv_sections(glru.loocv(regression), influence=glru.influence(trained).top(3)),
        "path": list_path_sections(path),
        "path-C": list_path_sections(glru.loocv_path(regression, [1.0, 0.1]), as_C=True),
        "stepwise": list_stepwise_sections(selection, [f"{NASTY}{j}" for j in range(4)]),
        "after": list_after_sections(problem.loss, bounds, solution.scores, names),
        "after-regression": list_after_sections(regression.loss, moved, trained.scores, numbers),
        "after-classes": list_after_sections(classes.loss, others, several.scores, names, labels),
    }
    return {kind: page(NASTY, [("data", NASTY)], sections, *ORIGIN) for kind, sections in found.items()}


KINDS = ["loocv", "regression", "path", "path-C", "stepwise", "after", "after-regression", "after-classes"]


@pytest.mark.parametrize("kind", KINDS)
def test_pages_are_whole_safe_and_self_contained(pages, kind):
    reader = parsed(pages[kind])
    tags = [tag for tag, _ in reader.tags]
    assert tags.count("script") == 1 and "img" not in tags and "link" not in tags
    for _, attributes in reader.tags:
        assert not {"src", "href", "onerror", "onclick"} & set(attributes)
        for name, value in attributes.items():
            assert "http" not in (value or "") or value == "Content-Security-Policy" or name.startswith("xmlns")
            assert name != "xlink:href" or value.startswith("#")
    text = "".join(reader.text)
    assert NASTY in text and "What certified means" in text and f"glru {glru.__version__}" in text
    assert "glru loocv " + NASTY in text
    assert tags.count("svg") >= (kind != "after-classes") and tags.count("table") >= 1
    assert re.search(r"default-src 'none'", pages[kind])


MARK = r'<use [^>]*style="fill: (#[0-9a-f]*)[^>]* class="mark">'


def test_loocv_page_tells_every_row(result, pages):
    page = pages["loocv"]
    marks = re.findall(MARK + r"<title>(row[^<]*\nclass[^<]*)</title></use>", page)
    assert len(marks) == 40
    for color, word, count in ((ORANGE, "wrong", result.errors_lower), (GREY, "open", 2)):
        found = [tip for shown, tip in marks if shown == color.lower()]
        assert len(found) == count and all(f"\n{word}, decided by" in tip for tip in found)
    low, high = result.score_lower[7], result.score_upper[7]
    tip = next(html.unescape(tip) for _, tip in marks if html.unescape(tip).startswith(f"row {NASTY}7\n"))
    assert f"score {format_interval(low, high, 5)}\n" in tip and result.stages[7] in tip


def test_choices_of_a_selection_that_are_not_proven_are_marked(result, pages):
    problem = result.problem
    open_ones = problem.derive(loss=glru.Hinge(), penalty=glru.L1(0.01))
    selection = glru.stepwise(open_ones, X_val=problem.X, y_val=problem.y, forced=True, min_features=2)
    assert selection.n_unproven == 2
    text = "".join(section.body for section in list_stepwise_sections(selection, list("abcd")))
    assert text.count("<td>not proven: ") == 2
    assert len(re.findall(r"<title>step [12]: [^<]*not proven: ", text)) == 2
    assert "not proven" not in "".join(parsed(pages["stepwise"]).text)


def test_large_data_stays_small():
    """All rows are drawn, as an image, and counted in the legend; the page stays at a few megabytes."""
    random = np.random.default_rng(0)
    X = random.normal(size=(60_000, 3))
    y = np.where(X @ [1.0, -1.0, 0.5] + random.normal(size=60_000) > 0, 1, 0)
    result = glru.loocv(glru.Problem(X, y, penalty=glru.L2(0.01)))
    page = "".join(section.body for section in list_loocv_sections(result))
    assert len(page) < 2_000_000
    assert f"correct ({60_000 - result.n_errors:,})" in page and f"wrong ({result.n_errors:,})" in page
    assert page.count("data:image/png") == 1 and "<title>row " not in page


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    driver = chromium(tmp_path_factory.mktemp("profile"))
    yield driver
    driver.quit()


def opened(browser, tmp_path, page, width=1000, mobile=False, dark=False, scripts=True):
    """Open a page in a window of some kind."""
    path = tmp_path / "page.html"
    path.write_text(page, encoding="utf-8")
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": mobile}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})
    browser.get_log("browser")
    browser.get(path.as_uri())
    return browser


WRITTEN = """return [...document.querySelectorAll('svg')].map(svg => {
    const box = t => { const r = t.getBoundingClientRect(); return [r.left, r.right, r.top, r.bottom, t.textContent]; };
    return [box(svg), [...svg.querySelectorAll('text')].map(box)];
})"""


@pytest.mark.parametrize("kind", KINDS)
def test_no_label_is_cut_off_or_stands_on_another(browser, pages, tmp_path, kind):
    opened(browser, tmp_path, pages[kind])
    for frame, texts in browser.execute_script(WRITTEN):
        for k, (left, right, top, bottom, text) in enumerate(texts):
            assert frame[0] <= left and right <= frame[1] + 1.0 and frame[2] <= top and bottom <= frame[3] + 1.0, text
            for other in texts[:k]:
                apart = right <= other[0] or other[1] <= left or bottom <= other[2] + 2.0 or other[3] <= top + 2.0
                assert apart, (text, other[4])


def hover(browser, mark):
    """Move the pointer to the middle of a mark."""
    script = """const m = arguments[0]; m.scrollIntoView({block: 'center'});
        const s = m.ownerSVGElement, p = new DOMPoint(m.x.baseVal.value, m.y.baseVal.value);
        const q = p.matrixTransform(s.getScreenCTM()); return [q.x, q.y];"""
    x, y = browser.execute_script(script, mark)
    browser.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y})


@pytest.mark.parametrize("kind", KINDS)
def test_no_console_errors_and_no_sideways_scrolling(browser, pages, tmp_path, kind):
    for width, mobile in ((1000, False), (390, True)):
        opened(browser, tmp_path, pages[kind], width, mobile)
        assert browser.get_log("browser") == []
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        assert browser.execute_script("return document.querySelectorAll('script').length") == 1


def test_hover(browser, pages, result, tmp_path):
    opened(browser, tmp_path, pages["loocv"])
    tip = browser.find_element("id", "tip")
    assert not tip.is_displayed()
    mark = browser.find_element("css selector", f"svg .mark[style*='{ORANGE.lower()}']")
    hover(browser, mark)
    assert tip.is_displayed()
    shown = tip.text
    row = int(re.search(r"(\d+)\n", shown.split(NASTY)[1]).group(1))
    assert result.bounds.signs[row] == -result.problem.y[row] and "wrong, decided by" in shown
    assert f"score {format_interval(result.score_lower[row], result.score_upper[row], 5)}\n" in shown
    browser.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": 1, "y": 1})
    assert not tip.is_displayed()


INSPECTED = 2
"""The place of the table of rows to inspect: confusion matrix and calibration come before it."""


def column(browser, place):
    script = """return Array.from(document.querySelectorAll('table.sortable')[arguments[1]].tBodies[0].rows,
        row => row.cells[arguments[0]].dataset.value ?? row.cells[arguments[0]].textContent)"""
    return browser.execute_script(script, place, INSPECTED)


def test_tables_sort(browser, pages, tmp_path):
    opened(browser, tmp_path, pages["loocv"])
    table = browser.find_elements("css selector", "table.sortable")[INSPECTED]
    button = table.find_elements("css selector", "th button")[3]
    assert button.text == "score"
    before = [float(value) for value in column(browser, 3)]
    for sign in (1, -1):
        browser.execute_script("arguments[0].click()", button)
        after = [float(value) for value in column(browser, 3)]
        assert after == sorted(before, reverse=sign < 0) and after != before
    head = table.find_elements("css selector", "th")[3]
    assert head.get_attribute("aria-sort") == "descending"


def test_dark_mode(browser, pages, tmp_path):
    colours = []
    for dark in (False, True):
        opened(browser, tmp_path, pages["loocv"], dark=dark)
        script = "const s = getComputedStyle(document.body); return [s.backgroundColor, s.color]"
        colours.append([sum(map(int, re.findall(r"\d+", c)[:3])) for c in browser.execute_script(script)])
    (light_paper, light_ink), (dark_paper, dark_ink) = colours
    assert light_paper > 600 > 200 > light_ink and dark_paper < 200 < 600 < dark_ink


def test_without_javascript(browser, pages, tmp_path):
    """The summary, the tables and the pictures are there; hovering shows the marks' own titles."""
    opened(browser, tmp_path, pages["loocv"], scripts=False)
    try:
        source = browser.page_source
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert "<button" not in source and source.count("<title>row") == 45


def test_a_column_called_script(browser, tmp_path):
    """From a file with hostile names to a page in the browser."""
    rows = "".join(f"{k}<b>,{k % 5},{k * k % 7},c{(k % 5 > 2) ^ (k % 7 == 0)}\n" for k in range(40))
    data, page = tmp_path / "a&b.csv", tmp_path / "report.html"
    data.write_text("id,<script>alert(1)</script>,x,class\n" + rows.replace("True", "<i>").replace("False", "<u>"))
    glru_command("loocv", data, "--id", "id", "--html", page, "-q", "--lam", 0.1)
    opened(browser, tmp_path, page.read_text(encoding="utf-8"))
    assert browser.get_log("browser") == []
    assert browser.find_elements("css selector", "main i, main u, td b") == []
    assert "c<i>" in browser.find_element("css selector", "table").text
    assert browser.title == "Leave-one-out cross-validation of a&b.csv"


def test_numbers_are_written_for_people():
    shown = [format_number(31838.2), format_number(-16551.3, 5), format_number(47342.16, 7), format_number(9999.6)]
    assert shown == ["31,840", "-16,551", "47,342.16", "10,000"]
    assert [format_move(1.0, 0.5, 0.5), format_move(-0.2, -1e-9, 1e-9)] == ["1 -> 0.5", "-0.2 -> about 0"]
    assert [format_number(value) for value in (0.12345, 1.5916e9, np.inf)] == ["0.1235", "1.592e+09", "inf"]


def test_curves_of_few_rows():
    """A ROC curve has a point per number of false alarms that is possible, and no group of the calibration holds a handful of rows."""
    X = np.random.default_rng(2).normal(size=(13, 2))
    result = glru.loocv(glru.Problem(X, X[:, 0] + X[:, 1] ** 2 > 0.5, penalty=glru.L2(0.1)))
    n_negative = int(np.sum(result.y < 0))
    assert roc_section(result).body.count('class="mark"') == n_negative + 1
    groups = re.findall(r"observed \d+ of (\d+)", calibration_section(result, ("no", "yes")).body)
    assert [int(size) for size in groups] == [7, 6]
