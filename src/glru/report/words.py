"""Numbers and counts in plain words."""

import math


def count(number: int, what: str) -> str:
    """``1 row``, ``2 rows``, ``1,234 rows``."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def between(lower: float, upper: float, digits: int = 4) -> str:
    """An interval: one number where its ends agree to as many digits as are shown."""
    if not math.isfinite(lower) and not math.isfinite(upper):
        return "unknown"
    low, high = f"{lower:.{digits}g}", f"{upper:.{digits}g}"
    return low if low == high else f"{low} to {high}"
