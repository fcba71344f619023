"""Whether the parts of a split are separated, or slices of one cloud, by :func:`neonxc.evaluation.separation`.

Rows of the parent that are in no part count to the nearest one: left out, they would leave a gap. Of the pairs of
neighbouring parts that can be judged,

    separated             all are
    partly separated      some are
    slices                none is

and "too few rows" or "not judged" if none can be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from neonxc.evaluation.separated import Separation
    from neonxc.hierarchy.forks import Fork
    from neonxc.hierarchy.rows import SplitRows

SEPARATED = "separated"
PARTLY = "partly separated"
SLICES = "slices"
TOO_FEW = "too few rows"
NOT_JUDGED = "not judged"


class Verdict(NamedTuple):
    """The verdict about a split, and that about all pairs of its parts."""

    text: str
    separation: Separation


def verdict_of(fork: Fork, rows: SplitRows, generator: np.random.RandomState) -> Verdict:
    """Tell whether the parts of a fork are separated."""
    from neonxc.evaluation.separated import separation  # loads pandas, and the words of pictures do without it

    space = rows.space if rows.features is not None else fork.origin.space()
    if space is None:
        space = rows.space
    clustered = fork.origin.refitted(fork)
    if clustered is None:
        labels = np.array([*fork.children, -1], dtype=object)  # the last one, of code -1, is noise
        clustered = labels[fork.codes]
    seed = int(generator.randint(2**31 - 1))
    pairs = separation(space[fork.rows], clustered, random_state=seed)
    return Verdict(combined(pairs.to_frame()["verdict"].tolist()), pairs)


def combined(verdicts: list[str]) -> str:
    """Return the verdict about a split from those about pairs of its parts."""
    judged = [verdict for verdict in verdicts if verdict in (SEPARATED, SLICES)]
    if not judged:
        return TOO_FEW if TOO_FEW in verdicts else NOT_JUDGED
    if SLICES not in judged:
        return SEPARATED
    return PARTLY if SEPARATED in judged else SLICES
