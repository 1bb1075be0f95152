"""Pieces of Markdown pages: tables and numbers."""

from collections.abc import Sequence

from paper.record import Record

GUESSED = "~"
"""Stands before a number that is scaled up from a random sample."""


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table; the first column is text, the others are numbers."""
    marks = ["---", *["--:"] * (len(header) - 1)]
    return [f"| {' | '.join(row)} |" for row in (header, marks, *rows)]


def strength(log2_lam: int) -> str:
    """A strength of the penalty as a power of two."""
    return f"2^{log2_lam}"


def duration(seconds: float | None, extrapolated: bool = False) -> str:
    """A time with three digits, in the unit that suits it."""
    if seconds is None:
        return "-"
    text = (
        f"{1000.0 * seconds:.3g} ms"
        if seconds < 1.0
        else f"{seconds:.3g} s"
        if seconds < 1000.0
        else f"{seconds:,.0f} s"
    )
    return GUESSED * extrapolated + text


def percent(share: float | None, extrapolated: bool = False) -> str:
    """A share in per cent."""
    if share is None:
        return "-"
    value = 100.0 * share
    return GUESSED * extrapolated + (f"{value:.1f} %" if value >= 1.0 else f"{value:.2g} %")


def floored(share: float) -> str:
    """A share in per cent, rounded down so that only all is 100."""
    return f"{int(1000.0 * share + 1e-9) / 10.0:.1f}"


def factor(ratio: float, extrapolated: bool = False) -> str:
    """A ratio with two or three digits."""
    return GUESSED * extrapolated + (f"{ratio:,.0f}" if ratio >= 10.0 else f"{ratio:.2g}")


def span(values: Sequence[int]) -> str:
    """The least and the largest of some whole numbers; one where they agree."""
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"


def heading(record: Record) -> list[str]:
    """The heading of a dataset, and what must be known of it."""
    data, source = record.data, record.source
    lines = [f"## {source['title']}: {data['rows']} rows x {data['columns']} columns", ""]
    if source["stands_in_for"]:
        lines += [f"Not the paper's data, but in place of {source['stands_in_for']}: {source['note']}.", ""]
    elif source["note"]:
        lines += [f"{source['note'].capitalize()}.", ""]
    return lines


def origin(record: Record) -> str:
    """Where and when a run was made, in a line."""
    machine, versions = record.environment["machine"], record.environment["versions"]
    load = record.environment["load_average_at_begin"]
    busy = f", load average {load[0]:g} when it began" if load else ""
    names = ", ".join(f"{name} {versions[name]}" for name in ("glru", "numpy", "scipy", "scikit-learn"))
    return (
        f"{record.environment['begun'][:10]}, {machine['processor']}, {machine['cores']} cores, {machine['threads']} "
        f"thread(s) used{busy}; Python {versions['python']}, {names}."
    )
