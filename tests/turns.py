"""Fewer cases than all combinations."""

from itertools import cycle, islice


def in_turns(*arguments):
    """Every value of every argument at least once: the values of the shorter ones come again in turns."""
    most = max(map(len, arguments))
    return [*zip(*(islice(cycle(values), most) for values in arguments), strict=True)]
