"""The public interface answers what was recorded; `recorded_results.py` tells how to record other answers."""

import gzip
import json
from pathlib import Path

import pytest
from recorded_results import CASES, DOCUMENTS, ENTRIES, difference, recorded, signatures

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def answers():
    return json.loads(gzip.decompress((DATA / "recorded_results.json.gz").read_bytes()))


def cases():
    slow = {name for name in CASES if name not in DOCUMENTS and ENTRIES[name].slow}
    return [pytest.param(name, marks=[pytest.mark.slow] * (name in slow)) for name in CASES]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", cases())
def test_answers_are_as_recorded(name, answers):
    assert difference(answers[name], recorded(name)) == ""


def test_public_names_have_the_recorded_signatures():
    assert (DATA / "signatures.txt").read_text(encoding="utf-8").splitlines() == signatures()


@pytest.mark.parametrize(
    ("then", "now", "same"),
    [
        ({"array": "float64 [2]", "values": [1.0, 1e-9]}, {"array": "float64 [2]", "values": [1.0, 2e-9]}, True),
        (
            {"array": "float64 [2]", "values": [1.0, 0.1]},
            {"array": "float64 [2]", "values": [1.0, 0.10001]},
            False,
        ),
        ({"array": "float64 [1]", "values": [1.0]}, {"array": "float32 [1]", "values": [1.0]}, False),
        (["93.21% of 12", 1], ["93.22% of 12", 1], True),
        (["93.21% of 12", 1], ["93.21% of 13", 1], False),
        ([1.0, "nan"], [1.0, 2.0], False),
        ({"a": 1}, {"b": 1}, False),
        ([1, 2], [1], False),
    ],
)
def test_rounding_is_no_difference(then, now, same):
    assert (difference(then, now) == "") == same
