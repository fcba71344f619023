"""What is refused: a call, the error that it raises, and what the message of that error names."""

import pytest

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
