"""Record the library's answers, each held against retraining, and say what changed against those recorded before."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.golden import cases, files
from tests.golden.answers import answers_of
from tests.golden.cases import Case
from tests.golden.compare import differences
from tests.golden.retraining import check


def record(chosen: Sequence[str] = ()) -> int:
    """Record all data sets, or those chosen; the number of cases that could not be recorded."""
    unknown = sorted(set(chosen) - set(cases.SOURCES))
    if unknown:
        raise SystemExit(f"data sets must be among {', '.join(cases.SOURCES)}; got {', '.join(unknown)}.")
    tally: Counter[str] = Counter()
    started = time.perf_counter()
    for data in chosen or cases.SOURCES:
        reason = cases.missing(data)
        if reason:
            print(f"{data}: left as it is, {reason}")
            tally["data sets left as they are"] += 1
            continue
        _record_data(data, [case for case in cases.all_cases() if case.data == data], tally)
    if not chosen:
        _remove_others(tally)
    print(f"\nin {time.perf_counter() - started:.0f} s:")
    for what, count in sorted(tally.items()):
        print(f"  {count:6} {what}")
    return tally["cases not recorded"]


def _record_data(data: str, wanted: list[Case], tally: Counter[str]) -> None:
    old = files.read(data)
    before = old.get("cases", {})
    if old and old["data"] != cases.load(data).checksum:
        print(f"{data}: the data changed, all answers are new")
        before = {}
    content: dict[str, Any] = {}
    for case in wanted:
        try:
            answers = answers_of(case)
            wrong = check(case, answers)
        except Exception as error:  # one broken case must not hide what became of the others
            wrong = [f"{type(error).__name__}: {error}"]
        if wrong:
            # Better no answer than a wrong one: the test of this case fails until it is recorded.
            _tell(case, "NOT RECORDED", wrong)
            tally["cases not recorded"] += 1
            continue
        content[case.name] = answers
        _count(case, before.get(case.name), answers, tally)
    for name in before.keys() - {case.name for case in wanted}:
        print(f"{data} {name}: removed")
        tally["cases removed"] += 1
    print(f"{data}: {len(content)} of {len(wanted)} cases recorded", flush=True)
    files.write(data, {"data": cases.load(data).checksum, "cases": content})


def _count(case: Case, old: dict[str, Any] | None, new: dict[str, Any], tally: Counter[str]) -> None:
    """What became of the answers of a case."""
    if old is None:
        tally["cases new"] += 1
    else:
        changed = differences(old, new)
        if changed:
            _tell(case, "changed", changed)
        tally["cases changed" if changed else "cases unchanged"] += 1
        for question in old.keys() & new.keys():
            pairs = zip(old[question].get("labels", ""), new[question].get("labels", ""), strict=False)
            tally["labels decided that were open"] += sum(a == "?" != b for a, b in pairs)
    for answer in new.values():
        tally["labels"] += len(answer.get("labels", ""))
        tally["labels that are open"] += answer.get("labels", "").count("?")
        tally["intervals"] += len(answer.get("scores", ()))


def _tell(case: Case, what: str, lines: list[str]) -> None:
    print(f"{case.data} {case.name}: {what}")
    for line in lines[:5]:
        print(f"    {line}")
    if len(lines) > 5:
        print(f"    ... and {len(lines) - 5} more")


def _remove_others(tally: Counter[str]) -> None:
    """Remove the files of data sets that are no longer asked for."""
    for path in files.FOLDER.glob("*.json"):
        if path.stem not in cases.SOURCES:
            print(f"{path.stem}: removed")
            path.unlink()
            tally["data sets removed"] += 1
