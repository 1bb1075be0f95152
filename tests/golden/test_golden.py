"""The library gives the answers that are recorded; ``python -m tests.golden`` records them."""

import pytest

from tests.golden import cases, files
from tests.golden.answers import answers_of
from tests.golden.compare import differences

CASES = cases.all_cases()


@pytest.mark.parametrize("case", CASES, ids=[f"{case.data}-{case.name}" for case in CASES])
def test_answers_are_those_recorded(case):
    reason = cases.missing(case.data)
    if reason:
        pytest.skip(reason)
    recorded = files.read(case.data)
    assert case.name in recorded.get("cases", {}), "nothing is recorded of this case; run python -m tests.golden"
    assert cases.load(case.data).checksum == recorded["data"], "the data is not that of the recording"
    found = differences(recorded["cases"][case.name], answers_of(case))
    assert not found, "\n".join(found)
