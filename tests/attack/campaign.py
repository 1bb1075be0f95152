"""The attack itself: one seed a case, every answer held against retraining in 40 digits, everything that gives counted."""

import signal
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.attack.answers import ANSWERS
from tests.attack.cases import KINDS
from tests.attack.deletions import DELETIONS
from tests.attack.generalised import GENERALISED
from tests.attack.multinomial import MULTINOMIAL
from tests.attack.pipelines import PIPELINES
from tests.attack.refits import REFITS

GROUPS: dict[str, tuple[Any, ...]] = {
    "bounds": KINDS,
    "answers": ANSWERS,
    "refits": REFITS,
    "pipelines": PIPELINES,
    "multinomial": MULTINOMIAL,
    "deletions": DELETIONS,
    "generalised": GENERALISED,
}
"""Kinds of cases by the name of their group; a seed is a case of each group."""

PATIENCE = 60
"""Seconds of the processor after which a case counts as hanging."""


@dataclass
class Report:
    """What an attack found."""

    cases: int = 0
    decisions: Counter = field(default_factory=Counter)
    open: Counter = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)
    tightest: float = 1.0
    tightest_at: str = ""

    def __str__(self) -> str:
        total, unknown = sum(self.decisions.values()), sum(self.open.values())
        lines = [
            f"{self.cases} cases, {total} certified numbers checked, {len(self.wrong)} wrong, {len(self.crashes)} crashes",
            f"no finite bound: {unknown} more ({unknown / max(total + unknown, 1):.1%})",
            f"tightest: {self.tightest:.2g} of the half-width from an end ({self.tightest_at})",
        ]
        lines += [f"{count:>9}  {name} (and {self.open[name]} open)" for name, count in sorted(self.decisions.items())]
        return "\n".join([*lines, *self.wrong, *self.crashes])


class Hanging(Exception):
    """A case that does not end."""


def _alarm(*_: Any) -> None:
    raise Hanging


def campaign(first: int, seconds: float = np.inf, count: float = np.inf, group: str = "bounds") -> Report:
    """Cases of a group from a seed on, for some time or a number of them."""
    report, begin, seed = Report(), time.monotonic(), first
    before = signal.signal(signal.SIGPROF, _alarm)
    try:
        while time.monotonic() - begin < seconds and seed - first < count:
            _case(report, seed, GROUPS[group])
            seed += 1
    finally:
        signal.signal(signal.SIGPROF, before)
    return report


def _case(report: Report, seed: int, kinds: tuple[Any, ...]) -> None:
    random = np.random.default_rng(seed)
    kind = kinds[seed % len(kinds)]
    report.cases += 1
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for name, exact, lower, upper in kind(random):
                _judge(report, f"seed {seed}, {name}", name.split(":")[0], exact, lower, upper)
    except ValueError as error:
        # A change that leaves nothing to train on is refused, rightly.
        if "a change must leave" not in str(error):
            report.crashes.append(f"seed {seed}: {_where(error)}")
    except Exception as error:
        report.crashes.append(f"seed {seed}: {_where(error)}")
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def _where(error: Exception) -> str:
    frames = [
        f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)
    ]
    return f"{type(error).__name__} {error} at {' '.join(frames[-4:])}"


def _judge(report: Report, place: str, name: str, exact: list[Any], lower: Any, upper: Any) -> None:
    for k, ((value, off), low, high) in enumerate(zip(exact, np.atleast_1d(lower), np.atleast_1d(upper), strict=True)):
        if np.isneginf(low) and np.isposinf(high):
            report.open[name] += 1
            continue
        report.decisions[name] += 1
        if np.isnan(low) or np.isnan(high) or low > high:
            report.wrong.append(f"{place} [{k}]: no interval, {low!r} to {high!r}")
            continue
        margin = min(value - float(low), float(high) - value)
        if margin < -off:
            report.wrong.append(f"{place} [{k}]: {float(value)!r} not in {low!r} to {high!r}, by {float(-margin):.3g}")
        half = 0.5 * (float(high) - float(low))
        if np.isfinite(half) and half > 0.0 and float(margin / half) < report.tightest:
            report.tightest, report.tightest_at = float(margin / half), place
