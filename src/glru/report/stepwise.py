"""The report of a stepwise selection."""

from collections.abc import Sequence

from glru.display import StepwiseDisplay
from glru.display.stepwise import NAMES, name_step
from glru.report.format import format_count, format_interval
from glru.report.page import Cell, Provenance, Section, cards, page, table
from glru.report.svg import Axis, Mark, draw_band, fit_axis
from glru.selection import StepwiseResult


def stepwise_page(
    result: StepwiseResult, names: Sequence[str], data_name: str, origin: Provenance, remarks: Sequence[str] = ()
) -> str:
    """The HTML page of a report of a stepwise selection.

    Parameters
    ----------
    result : StepwiseResult
        From :func:`glru.stepwise`.
    names : sequence of str
        The names of the problem's columns.
    data_name : str
        The name of the data.
    origin : Provenance
        What is needed to repeat the run.
    remarks : sequence of str, default=()
        More sentences for the summary.
    """
    shown = StepwiseDisplay.from_result(result, names)
    criterion, n_candidates = NAMES[result.criterion], sum(step.n_candidates for step in result.path)
    first, last = format_interval(shown.lower[0], shown.upper[0]), format_interval(shown.lower[-1], shown.upper[-1])
    proof = (
        f"Every choice is proven to be the one that training all {n_candidates:,} candidates would make; "
        f"{result.n_trainings:,} of them were trained."
        if result.certified
        else f"{result.n_unproven:,} of {format_count(len(result.path), 'choice')} are not proven; the table marks them."
    )
    summary = [
        f"The {result.direction} search went from {format_count(int(shown.n_features[0]), 'column')} of {data_name} to "
        f"{int(shown.n_features[-1]):,} in {format_count(len(shown.moves), 'step')}; {criterion}: {first} before, {last} after.",
        proof + (" The search was interrupted." if result.interrupted else ""),
        *remarks,
    ]
    numbers = [
        ("columns selected", f"{result.selected.size:,}"),
        (f"{criterion}, before", first),
        (f"{criterion}, after", last),
        ("candidates trained", f"{result.n_trainings:,} of {n_candidates:,}"),
    ]
    chosen: list[list[Cell]] = [[int(column), names[column]] for column in result.selected]
    sections = [
        Section("The criterion along the path", "Hover over a step to see what it did.", _draw_path(result, shown)),
        Section(
            "The path", f"Value: {criterion} after the step, proven to the digits shown.", _list_steps(result, names)
        ),
        Section("Selected features", "Click a column name to sort.", table(["column", "feature"], chosen)),
    ]
    return page(f"Stepwise selection of features of {data_name}", summary, cards(numbers), sections, origin)


def _draw_path(result: StepwiseResult, shown: StepwiseDisplay) -> str:
    """The criterion after every step."""
    criterion, labels = NAMES[result.criterion], ["start", *shown.moves]
    doubts = ["", *(result.doubt(place) for place in range(len(result.path)))]
    marks = [
        Mark(
            k,
            low,
            high,
            "open" if doubts[k] else "good",
            f"step {k}: {labels[k]}\n{shown.n_features[k]} columns\n{criterion}: {format_interval(low, high, 6)}"
            + (f"\n{doubts[k]}" if doubts[k] else ""),
        )
        for k, (low, high) in enumerate(zip(shown.lower, shown.upper, strict=True))
    ]
    x = Axis(-0.5, len(labels) - 0.5, "step", whole=True)
    y = fit_axis([*shown.lower.tolist(), *shown.upper.tolist()], criterion, zero=result.criterion == "error")
    legend = {"good": "certified interval"} | ({"open": "choice not proven"} if any(doubts) else {})
    return draw_band(x, y, marks, None, legend)


def _list_steps(result: StepwiseResult, names: Sequence[str]) -> str:
    """A table with one line per step."""
    rows: list[list[Cell]] = [
        [
            k + 1,
            step.action,
            name_step(step, names) if step.columns else "",
            (float(step.value_lower), float(step.value_upper)),
            step.n_candidates,
            step.n_trainings,
            ", ".join(f"{stage} {number}" for stage, number in step.decided_by.items()),
            result.doubt(k) or "proven",
        ]
        for k, step in enumerate(result.path)
    ]
    return table(["step", "action", "feature", "value", "candidates", "trainings", "decided by", "choice"], rows)
