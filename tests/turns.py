"""Fewer cases than all combinations."""

from itertools import cycle, islice

import pytest


def in_turns(*arguments):
    """Every value of every argument at least once: the values of the shorter ones come again in turns."""
    most = max(map(len, arguments))
    return [*zip(*(islice(cycle(values), most) for values in arguments), strict=True)]


def slow(*values):
    """Parameters for slow runs, which repeat what another one checks by default."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]


def every(step, values, first=0):
    """All values, or tuples of them, as parameters: every so many, from a first one on, is in the default run."""
    cases = [value if isinstance(value, tuple) else (value,) for value in values]
    return [pytest.param(*case, marks=[pytest.mark.slow] * (i % step != first)) for i, case in enumerate(cases)]
