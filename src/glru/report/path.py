"""The report of a regularisation path."""

from collections.abc import Sequence

from glru.display import RegularizationPathDisplay
from glru.display.path import NAMES
from glru.model_selection import LOOCVPath
from glru.report.format import format_count, format_interval
from glru.report.page import Cell, Provenance, Section, cards, page, table
from glru.report.svg import Mark, draw_band, fit_axis


def path_page(
    path: LOOCVPath, data_name: str, origin: Provenance, as_C: bool = False, remarks: Sequence[str] = ()
) -> str:
    """The HTML page of a report of leave-one-out cross-validation over strengths of the penalty.

    Parameters
    ----------
    path : LOOCVPath
        From :func:`glru.loocv_path`.
    data_name : str
        What the data is called.
    origin : Provenance
        What is needed to repeat the run.
    as_C : bool, default=False
        Show ``C = 1 / lam``, for problems with scaling "sum".
    remarks : sequence of str, default=()
        More sentences for the summary.
    """
    shown = RegularizationPathDisplay.from_path(path, as_C)
    axis, best = shown.axis, float(shown.lams[shown.best])
    value = format_interval(path.lower[path.best_index], path.upper[path.best_index])
    proof = (
        "No other strength in the list can do better; this is proven."
        if path.certified
        else "The certified intervals overlap, so another strength may do as well or better."
    )
    criterion = NAMES[path.criterion]
    summary = [
        f"Of {format_count(path.lams.size, 'strength')} of the penalty tried on {data_name}, {axis} = {best:.4g} is best by {criterion}: "
        f"{value} under exact leave-one-out cross-validation.",
        proof,
        *remarks,
    ]
    trainings = sum(result.n_trainings for result in path.results)
    numbers = [(f"best {axis}", f"{best:.4g}"), (criterion, value), ("trainings beyond the first", f"{trainings:,}")]
    sections = []
    for name, (lower, upper) in shown.bands.items():
        x = fit_axis(shown.lams.tolist(), f"strength of the penalty, {axis}", log=True)
        y = fit_axis([*lower.tolist(), *upper.tolist()], NAMES[name], zero=True)
        marks = [
            Mark(float(lam), low, high, "good", f"{axis} = {lam:.4g}\n{NAMES[name]}: {format_interval(low, high, 6)}")
            for lam, low, high in zip(shown.lams, lower, upper, strict=True)
        ]
        legend = {"good": "certified interval", "best-key": f"best {axis}"}
        text = "The true value at each strength lies inside its interval. Hover over one for details."
        sections.append(Section(NAMES[name][0].upper() + NAMES[name][1:], text, draw_band(x, y, marks, best, legend)))
    short = [name.replace("_", "-") for name in shown.bands]
    header = [axis, *short, "trainings"]
    rows: list[list[Cell]] = [
        [
            float(lam),
            *((float(lower[k]), float(upper[k])) for lower, upper in shown.bands.values()),
            path.results[k].n_trainings,
        ]
        for k, lam in enumerate(shown.lams)
    ]
    sections.append(Section("All strengths", "Click a column name to sort.", table(header, rows)))
    return page(f"Choice of {axis} for {data_name}", summary, cards(numbers), sections, origin)
