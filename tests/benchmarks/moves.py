"""Planted drifts: does `neonxc.moves` name the column that moves the rows of a segment to another cluster?

python -m tests.benchmarks.moves [--data DIR] [--trials 10] [--json FILE]

The values of one column of half a cluster are shifted until nine tenths of these rows are in another cluster. A
decoy, a column of noise, is shifted by 1.2 times as many standard deviations, which has no effect on clusters, and
all columns get noise of 5% of their standard deviations. "rows" is the share of the moved rows that belong to the
segment, in brackets without those that changed no more than is usual; "false moves" is the share of the other rows
that moved. "mean shift" takes the column whose mean changed most in standard deviations among the moved rows;
"forest" the most important column of a random forest that separates them before and after; "refit" the column
whose relevance in a second clustering of the new data, matched with the first, differs most.

"rules" is the share of the trials whose first move has a rule, and "rules at random" the share of trials in which
some move has one although chance alone moved the rows: a tenth of them are replaced by other rows of the table.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_wine, make_blobs
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import confusion_matrix
from sklearn.pipeline import make_pipeline

import neonxc
from neonxc.common.progress import hide
from neonxc.data.preparation import prepare
from tests.benchmarks.timing import Report

NOISE = 0.05
DECOY = 1.2
LEAVE = 0.9
STEP = 0.25
FARTHEST = 12.0
REPLACED = 0.1


def tables(folder: str | None) -> Iterator[tuple[str, pd.DataFrame, int]]:
    """Yield names, tables and numbers of clusters."""
    points, _ = make_blobs(1000, 6, centers=5, cluster_std=2.0, random_state=0)
    yield "blobs", pd.DataFrame(points).add_prefix("x"), 5
    yield "wine", load_wine(as_frame=True).data, 3
    yield "cancer", load_breast_cancer(as_frame=True).data, 3
    if folder is not None:
        yield "segment", pd.read_csv(Path(folder) / "segment.csv.gz").iloc[:, :-1], 7
        yield "adult", pd.read_csv(Path(folder) / "adult.csv.gz").iloc[:8000, :-1], 6


def planted(
    net: Any, before: pd.DataFrame, draw: np.random.Generator
) -> tuple[pd.DataFrame, np.ndarray, str] | None:
    """Shift a random column of a random segment; return the new table, the segment, and the column."""
    own = net.predict(before)
    numbers = before.select_dtypes("number").drop(columns="decoy")
    spread = numbers.std().where(lambda value: value > 0).dropna()
    cluster = draw.choice(np.unique(own))
    column, other = draw.choice(spread.index, 2, replace=False)
    members = own == cluster
    segment = members & (before[other] > before[other][members].median()).to_numpy()
    if segment.sum() < 20:
        return None
    sign = draw.choice([-1, 1])
    for size in np.arange(STEP, FARTHEST, STEP):
        after = before.copy()
        after[spread.index] = after[spread.index].astype(float)
        after.loc[segment, column] += sign * size * spread[column]
        if (net.predict(after.loc[segment]) != cluster).mean() >= LEAVE:
            after.loc[segment, "decoy"] += DECOY * size * before["decoy"].std()
            noise = draw.normal(size=(len(after), len(spread))) * NOISE * spread.to_numpy()
            after[spread.index] += noise
            after["decoy"] += draw.normal(size=len(after)) * NOISE * before["decoy"].std()
            return after, segment, column
    return None


def has_rule_at_random(net: Any, before: pd.DataFrame, draw: np.random.Generator) -> bool:
    """Replace a tenth of the rows by others; return whether a rule is found for those that moved."""
    after = before.copy()
    replaced = np.flatnonzero(draw.random(len(before)) < REPLACED)
    after.iloc[replaced] = before.iloc[draw.integers(len(before), size=len(replaced))].to_numpy()
    return any(move.rule is not None for move in neonxc.moves(net, before, after).moves)


def refit(model: Any, net: Any, before: pd.DataFrame, after: pd.DataFrame, moved: np.ndarray) -> str:
    """The column whose relevance for the own cluster differs most between the network and one fitted again."""
    other = neonxc.neuralize(clone(model).set_params(kmeans__random_state=1).fit(after), after)
    first = net.predict(after)
    second = other.predict(after)
    match = linear_sum_assignment(-confusion_matrix(first, second))[1]
    target = match[net.predict(after.loc[moved])]
    relevance = [
        neonxc.NEON(net).attribute(before.loc[moved]),
        neonxc.NEON(other).attribute(after.loc[moved], target=target),
    ]
    change = (relevance[1] - relevance[0]).abs().mean()
    return str(change.idxmax())


def baselines(before: pd.DataFrame, after: pd.DataFrame, moved: np.ndarray) -> tuple[str, str]:
    """The columns that the mean shift and a classifier name."""
    numbers = before.select_dtypes("number").columns
    old = before.loc[moved, numbers]
    new = after.loc[moved, numbers]
    shift = ((new.mean() - old.mean()) / before[numbers].std()).abs()
    forest = RandomForestClassifier(100, random_state=0).fit(pd.concat([old, new]), np.repeat([0, 1], len(old)))
    return str(shift.idxmax()), str(numbers[forest.feature_importances_.argmax()])


def measured(table: pd.DataFrame, k: int, trials: int) -> dict[str, Any]:
    """Figures of one data set."""
    draw = np.random.default_rng(0)
    before = table.assign(decoy=draw.normal(size=len(table)))
    prepared = prepare(before)
    model = make_pipeline(prepared.pipeline, KMeans(k, n_init=5, random_state=0))
    model.fit(prepared.frame)
    net = neonxc.neuralize(model, prepared.frame)
    before = prepared.frame
    hits = []
    shares = []
    rules = []
    at_random = []
    while len(hits) < trials:
        found = planted(net, before, draw)
        if found is None:
            continue
        after, segment, column = found
        result = neonxc.moves(net, before, after)
        moved = net.predict(before) != net.predict(after)
        named = (
            result.moves[0].top(1).index[0],
            *baselines(before, after, moved),
            refit(model, net, before, after, moved),
        )
        hits.append([name == column for name in named])
        rule = result.moves[0].rule
        rules.append(rule is not None)
        at_random.append(has_rule_at_random(net, before, draw))
        held_out = [np.nan] * 2 if rule is None else [rule.held_out.precision, rule.held_out.coverage]
        clear = np.concatenate([move.ids[~move.usual] for move in result.moves])
        shares.append(
            [
                segment[moved].mean(),
                segment[before.index.get_indexer(clear)].mean(),
                moved[~segment].mean(),
                *held_out,
            ]
        )
    recall = np.mean(hits, 0)
    (rows, clear_rows, wrong, precision, coverage) = np.nanmean(shares, 0)
    names = ("recall@1", "mean shift", "forest", "refit")
    return {
        **dict(zip(names, recall.tolist(), strict=True)),
        "rows": f"{rows:.3f} ({clear_rows:.3f})",
        "false moves": wrong,
        "rule's precision": precision,
        "rule's coverage": coverage,
        "rules": float(np.mean(rules)),
        "rules at random": float(np.mean(at_random)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--json")
    options = parser.parse_args()
    hide()
    report = Report("Moves")
    rows = [{"data": name} | measured(table, k, options.trials) for name, table, k in tables(options.data)]
    report.table(f"{options.trials} planted drifts each", rows)
    report.close(options.json)


if __name__ == "__main__":
    main()
