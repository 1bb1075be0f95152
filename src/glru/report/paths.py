"""The reports of a regularisation path and of a stepwise selection."""

from collections.abc import Sequence

from glru.display import RegularizationPathDisplay, StepwiseDisplay
from glru.display.paths import PATH_CRITERIA, STEP_CRITERIA, name_step
from glru.model_selection import LOOCVPath
from glru.report.page import (
    Axis,
    Cell,
    Mark,
    Provenance,
    Section,
    cards,
    draw_band,
    fit_axis,
    format_count,
    format_interval,
    page,
    table,
)
from glru.selection import StepwiseResult


def path_page(
    path: LOOCVPath, data_name: str, origin: Provenance, as_C: bool = False, remarks: Sequence[str] = ()
) -> str:
    """The HTML page of a report of leave-one-out over strengths of the penalty, shown as ``C = 1 / lam`` where ``as_C``; ``remarks``: more sentences."""
    shown = RegularizationPathDisplay.from_path(path, as_C)
    axis, best = shown.axis, float(shown.lams[shown.best])
    value = format_interval(path.lower[path.best_index], path.upper[path.best_index])
    proof = (
        "No other strength in the list can do better; this is proven."
        if path.certified
        else "The certified intervals overlap, so another strength may do as well or better."
    )
    criterion = PATH_CRITERIA[path.criterion]
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
        y = fit_axis([*lower.tolist(), *upper.tolist()], PATH_CRITERIA[name], zero=True)
        marks = [
            Mark(
                float(lam),
                low,
                high,
                "good",
                f"{axis} = {lam:.4g}\n{PATH_CRITERIA[name]}: {format_interval(low, high, 6)}",
            )
            for lam, low, high in zip(shown.lams, lower, upper, strict=True)
        ]
        legend = {"good": "certified interval", "best-key": f"best {axis}"}
        text = "The true value at each strength lies inside its interval. Hover over one for details."
        sections.append(
            Section(
                PATH_CRITERIA[name][0].upper() + PATH_CRITERIA[name][1:], text, draw_band(x, y, marks, best, legend)
            )
        )
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


def stepwise_page(
    result: StepwiseResult, names: Sequence[str], data_name: str, origin: Provenance, remarks: Sequence[str] = ()
) -> str:
    """The HTML page of a report of a stepwise selection of columns with these names; ``remarks``: more sentences for the summary."""
    shown = StepwiseDisplay.from_result(result, names)
    criterion, n_candidates = STEP_CRITERIA[result.criterion], sum(step.n_candidates for step in result.path)
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
    criterion, labels = STEP_CRITERIA[result.criterion], ["start", *shown.moves]
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
