"""What is refused: a call, the error that it raises, and what the message of that error names."""

import json

import pytest
from safetensors import safe_open
from safetensors.torch import save_file

from neonxc.lrp import LRP, UnsupportedOperation


def refused(message, call, *arguments, error=ValueError, **options):
    with pytest.raises(error, match=message):
        call(*arguments, **options)


def refusals(table, error=ValueError):
    """A test with a case for every message of a table, whose values are a call each, or lists of calls."""

    @pytest.mark.parametrize("message", table)
    def test(message):
        calls = table[message]
        for call in calls if isinstance(calls, list) else [calls]:
            refused(message, call, error=error)

    return test


def untraceable(message, net, x, target=0):
    refused(message, LRP(net).attribute, x, target, error=UnsupportedOperation)


def rewritten(path, change=None, tensors=None, whole=None):
    """Write a file again with its description and its tensors changed, or other parts of its header."""
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["neonxc"])
        held = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  # not a dict
    for edit, part in ((change, header["plain"]), (tensors, held), (whole, header)):
        if edit:
            edit(part)
    save_file(held, path, metadata={"neonxc": json.dumps(header)})
