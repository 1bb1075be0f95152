"""Whether new answers agree with recorded ones: no answer may change, and none that was decided may become open.

Intervals hold the true value, old and new, so they overlap; how wide they are, which stage decided and how long it
took is nobody's business here.
"""

from typing import Any


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What is wrong with the new answers of a case, one line for each; an empty list where they agree."""
    found = []
    for question in old:
        if question not in new:
            found.append(f"{question}: no longer answered")
            continue
        for kind in old[question]:
            answered = new[question].get(RETRAINED.get(kind, kind))
            lines = ["no longer answered"] if answered is None else RULES[kind](old[question][kind], answered)
            found += [f"{question}, {kind}: {line}" for line in lines]
    return found + [f"{question}: not recorded" for question in new if question not in old]


def _labels(old: str, new: str) -> list[str]:
    if len(old) != len(new):
        return [f"{len(new)} labels, {len(old)} recorded"]
    pairs = enumerate(zip(old, new, strict=True))
    # An open label may become decided.
    return [f"row {row} is {b}, recorded {a}" for row, (a, b) in pairs if a != b and a != "?"]


def _retrained(old: str, new: str) -> list[str]:
    pairs = enumerate(zip(old, new, strict=True))
    wrong = [(row, a, b) for row, (a, b) in pairs if a != b and "?" not in (a, b)]
    return [f"row {row} is {b}, but {a} after retraining" for row, a, b in wrong]


def _interval(old: list[float], new: list[float]) -> list[str]:
    if not new[0] <= new[1]:
        return [f"{new} is no interval"]
    return [] if old[0] <= new[1] and new[0] <= old[1] else [f"{new} does not overlap the recorded {old}"]


def _count(old: list[float], new: list[float]) -> list[str]:
    opened = old[0] == old[1] and new[0] != new[1]
    return [f"open {new}, recorded {old}"] if opened else _interval(old, new)


def _scores(old: list[list[float]], new: list[list[float]]) -> list[str]:
    if [score[0] for score in old] != [score[0] for score in new]:
        return ["intervals of other rows than those recorded"]
    return [f"row {a[0]}: {line}" for a, b in zip(old, new, strict=True) for line in _interval(a[1:], b[1:])]


def _each(rule: Any) -> Any:
    def compare(old: list[Any], new: list[Any]) -> list[str]:
        if len(old) != len(new):
            return [f"{len(new)} values, {len(old)} recorded"]
        pairs = enumerate(zip(old, new, strict=True))
        return [f"step {k}: {line}" for k, (a, b) in pairs for line in rule(a, b)]

    return compare


def _same(old: Any, new: Any) -> list[str]:
    return [] if old == new else [f"{new}, recorded {old}"]


def _certified(old: bool, new: bool) -> list[str]:
    return ["no longer certified"] if old and not new else []


RULES = {
    "labels": _labels,
    "retrained": _retrained,
    "retrained scores": _scores,
    "count": _count,
    "counts": _each(_count),
    "value": _interval,
    "values": _each(_interval),
    "scores": _scores,
    "moves": _same,
    "selected": _same,
    "removed": _same,
    "best": _same,
    "certified": _certified,
}
"""How each kind of answer is compared."""

RETRAINED = {"retrained": "labels", "retrained scores": "scores"}
"""What recording found by retraining, where the library left it open, and the answers it is held against."""
