"""Counts and intervals as text."""

import math


def format_count(number: int, what: str) -> str:
    """``1 row``, ``2 rows``, ``1,234 rows``."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def format_move(before: float, lower: float, upper: float) -> str:
    """``before to after``, with as many digits, from four to ten, as it takes to see that they differ."""
    for digits in range(4, 11):
        first, last = f"{before:.{digits}g}", format_interval(lower, upper, digits)
        if first != last:
            break
    return f"{first} to {last}"


def format_interval(lower: float, upper: float, digits: int = 4) -> str:
    """An interval as text: a single number where both ends agree to the digits shown; whole numbers in full."""
    if all(float(end).is_integer() and abs(end) < 1e15 for end in (lower, upper)):
        return f"{lower:,.0f}" if lower == upper else f"{lower:,.0f} to {upper:,.0f}"
    if not math.isfinite(lower) and not math.isfinite(upper):
        return "unknown"
    low, high = f"{lower:.{digits}g}", f"{upper:.{digits}g}"
    return low if low == high else f"{low} to {high}"
