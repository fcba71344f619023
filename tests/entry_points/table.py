"""The table of entries."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """What is called, which public names it covers, and whether it draws random numbers on the device."""

    work: object
    covers: list
    draws: bool
    slow: bool


ENTRIES = {}


def entry(covers, name=None, draws=False, slow=False):
    """Put a function of `at` into the table, with the public names that it covers in one text."""

    def add(work):
        key = name or work.__name__.strip("_")
        assert key not in ENTRIES, key
        ENTRIES[key] = Entry(work, covers.split(), draws, slow)
        return work

    return add
