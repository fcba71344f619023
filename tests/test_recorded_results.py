"""Reports, rules and signatures are as recorded; `recorded_results.py` tells how to record others.

Answers of the entry points are compared in `test_far_device.py`.
"""

import gzip
import json
from pathlib import Path

import pytest
from recorded_results import DOCUMENTS, answer, difference, recorded, signatures

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def answers():
    return json.loads(gzip.decompress((DATA / "recorded_results.json.gz").read_bytes()))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "report of a pipeline")) for name in DOCUMENTS]
)
def test_documents_are_as_recorded(name, answers):
    assert difference(answers[name], recorded(answer(name))) == ""


def test_public_names_have_the_recorded_signatures():
    assert (DATA / "signatures.txt").read_text(encoding="utf-8").splitlines() == signatures()


@pytest.mark.parametrize(
    ("then", "now", "same"),
    [
        ([1.0, 1e-9], [1.0, 2e-9], True),
        ([1.0, 0.1], [1.0, 0.1001], False),
        (["93.21% of 12", "nan"], ["93.22% of 12", "nan"], True),
        (["93.21% of 12", "nan"], ["93.21% of 13", "nan"], False),
    ],
)
def test_rounding_is_no_difference(then, now, same):
    then, now = ({"array": "float64 [2]", "values": values} for values in (then, now))
    assert (difference(then, now) == "") == same
