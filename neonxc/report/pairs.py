"""Comparisons of every two clusters: the columns and the tree that separate them."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from neonxc.contrasts import contrasted, some_of
from neonxc.numerals import rounded
from neonxc.progress_bars import progress_bar
from neonxc.report.contents import Pair
from neonxc.report.relevance import Relevance
from neonxc.report.statements import typical
from neonxc.report.subject import Subject

COLUMNS = 8  # maximum number of columns per pair
ENOUGH = 0.95  # accuracy at which a tree stops growing
MOST = 40_000  # approximate number of points of all pairs together
FEWEST = 60  # points per cluster that are used in any case


def pairs(subject: Subject, relevance: Relevance) -> list[Pair]:
    """Compare all pairs of clusters that have points."""
    found = list(combinations(np.flatnonzero(subject.sizes).tolist(), 2))
    most = max(FEWEST, MOST // max(1, 2 * len(found)))
    place = {int(unit): i for i, unit in enumerate(relevance.shown)}
    bar = progress_bar(found, desc="pairs of clusters")
    return [_pair(subject, a, b, most, place) for a, b in bar]


def _pair(subject: Subject, a: int, b: int, most: int, place: dict[int, int]) -> Pair:
    members = [some_of(np.flatnonzero(subject.own == cluster), most) for cluster in (a, b)]
    rows = np.concatenate(members)
    split = np.split(np.arange(len(rows)), [len(members[0])])
    found = contrasted(subject.net, subject.inputs(rows), split, (a, b), ENOUGH)
    values = found.relevance.sum(axis=1).to_numpy()
    shares = values / max(np.abs(values).sum(), 1e-300)
    order = [unit for unit in np.argsort(-np.abs(shares), kind="stable").tolist() if unit in place][
        : subject.shortened(COLUMNS)
    ]
    sides = [subject.values(own, np.array(order, dtype=np.int64)) for own in members]
    signed = []
    for i, unit in enumerate(order):
        of_a, of_b = (typical(side.iloc[:, i], subject.kind) for side in sides)
        signed.append((place[unit], rounded([shares[unit]])[0], of_a, of_b))
    rules = [(a if rule.label == found.a else b, rule.text()) for rule in found.rules]
    return Pair(a, b, signed, rules, rounded([found.accuracy])[0])
