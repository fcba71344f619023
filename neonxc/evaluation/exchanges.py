"""Rows that are in another cluster of a second model, explained by both models.

Clusters of a and b are matched one to one. An exchange consists of the rows that are in cluster i of a and in
cluster j of b, although another cluster j' of b is the match of i. Its reasons are

    in b     relevance for j and against j', which draws the rows to j in b
    in a     relevance for i and against i', the match of j in a, which holds the rows in i in a

averaged over the rows. Each is divided by its sum, so that those of networks of different units can be added;
where positive and negative relevance nearly cancel, it is divided by the sum of absolute values. An input that got
heavier in b shows in b, and one that got lighter in a: the reasons are the mean of both.

A theme is a cluster of b without a match: nothing in a corresponds to it. Its reasons are the relevance in b of
its rows for this cluster and against all others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from neonxc.attribution.contrasts import contrasts_of, some_of
from neonxc.attribution.held_out_rule import are_enough, held_out_in_words, held_out_rule, rule_as_dict
from neonxc.attribution.input_relevance import opposed_relevance, own_relevance
from neonxc.common.cluster_names import cluster_text, label_text
from neonxc.common.numbers import in_words, percent, plural
from neonxc.common.types import Label
from neonxc.data.kinds import plain
from neonxc.data.labels import NOISE
from neonxc.data.table import Table
from neonxc.evaluation.uses import use_of_inputs
from neonxc.inputs.backbone import Backbone
from neonxc.network import NeuralizedClustering

if TYPE_CHECKING:
    from neonxc.rules.rule import Rule

MAX_EXCHANGES = 10  # the largest ones
LEAST_SHARE = 0.01  # of all rows: smaller exchanges are not explained
MAX_ROWS = 600  # rows of an exchange whose relevance is computed
N_NAMED = 3  # reasons among which a changed input explains an exchange, and that are printed
N_COMPARED = 10  # reasons whose signs in both models are compared
N_TYPICAL = 5
CANCELLED = 0.2  # a sum that is a smaller fraction of the sum of absolute values is of values that cancel


class Explained(NamedTuple):
    """A model as a network, with the rows as it takes them."""

    net: NeuralizedClustering
    rows: Table

    def reasons(self, rows: np.ndarray, target: Label, competitor: Label) -> pd.Series:
        """Return the shares of the inputs in the contrast of some rows between two clusters."""
        sample = self.rows.take(some_of(rows, MAX_ROWS))
        return _as_shares(opposed_relevance(self.net, sample, target, competitor))

    def use(self, rows: np.ndarray) -> pd.Series:
        """Return the use of the inputs by some rows."""
        return use_of_inputs(self.net, self.rows.take(rows))

    def theme(self, rows: np.ndarray) -> pd.Series:
        """Return the shares of the inputs in the relevance of some rows for their own cluster."""
        return _as_shares(own_relevance(self.net, self.rows.take(some_of(rows, MAX_ROWS))))

    def depth(self, rows: np.ndarray, target: Label, competitor: Label) -> np.ndarray:
        """Return the contrasts of rows between two clusters, in units of their median."""
        positions = (self.net.positions(target), self.net.positions(competitor))
        contrasts = contrasts_of(self.net, self.rows.take(rows), *positions)
        return contrasts / max(np.median(contrasts), np.finfo(float).tiny)

    def rule(self, inside: np.ndarray, is_member: np.ndarray) -> Rule | None:
        """Find a rule for some of the rows `inside`; None if there is none, or if the inputs are no columns."""
        if isinstance(self.net.inputs, Backbone):
            return None
        return held_out_rule(self.net, self.rows.take(inside), is_member, ("goes", "stays"), MAX_EXCHANGES)


def _as_shares(relevance: pd.Series) -> pd.Series:
    """Divide relevance by its sum, or by the sum of absolute values if the values nearly cancel."""
    size = relevance.abs().sum()
    total = abs(relevance.sum())
    divisor = total if total > CANCELLED * size else size
    return relevance / divisor if divisor else relevance


@dataclass(frozen=True)
class Exchange:
    """The rows of a cluster of a that are in a cluster of b that is not its match.

    Attributes
    ----------
    old, new : label
        The cluster of a, and that of b.
    ids : ndarray [m]
        The rows: their labels in the index of X, or their numbers.
    in_a, in_b : Series [inputs] or None
        What holds the rows in the old cluster in a, and what draws them to the new one in b, as shares of the
        contrast. None if the other cluster has no match there.
    reasons : Series [inputs]
        The mean of both, the largest first.
    disagree : list of str
        The inputs among the ten largest reasons that speak for the exchange in one model and against it in the
        other.
    by_change : bool or None
        Whether one of the first three reasons is an input whose use has changed; None without refits of a.
    rule : Rule or None
        Condition that finds the rows among those of the old cluster, better than chance on held-out rows.
    has_few_rows : bool
        Whether there are too few rows to look for a rule.
    typical : ndarray
        The rows that are clearly in the old cluster in a and in the new one in b.
    """

    old: Label
    new: Label
    ids: np.ndarray
    in_a: pd.Series | None
    in_b: pd.Series | None
    reasons: pd.Series
    disagree: list[str]
    by_change: bool | None
    rule: Rule | None
    has_few_rows: bool
    typical: np.ndarray

    @property
    def rows(self) -> int:
        """Number of the rows."""
        return len(self.ids)

    @property
    def title(self) -> str:
        """The two clusters: ``"1 of a → 2 of b"``."""
        return f"{label_text(self.old)} of a → {label_text(self.new)} of b"

    @property
    def why(self) -> str:
        """The cause and the largest reasons, without a full stop."""
        first = self.reasons.iloc[:N_NAMED]
        named = [f"{name} {percent(share)}" for name, share in first[first >= LEAST_SHARE].items()]
        reasons = in_words(named) if named else "no input has a share of 1%"
        match self.by_change:
            case True:
                return f"by the change: {reasons}"
            case False:
                return f"as between refits: {reasons}"
            case _:
                return reasons

    @property
    def who(self) -> str:
        """A sentence on the rule that finds the rows, or on why there is none."""
        if self.has_few_rows:
            return "There are too few rows to find a rule."
        if self.rule is None:
            return "No rule finds them: what their columns have in common is no better than chance."
        measured = held_out_in_words(self.rule, f"{cluster_text(self.old)} of a", "changed")
        return f"Rows with {self.rule.text()}. {measured}"

    def lines(self) -> list[str]:
        """Return the lines that describe the exchange."""
        return [
            f"{self.title}: {plural(self.rows, 'row')}, {self.why}.",
            f"    who: {self.who}",
            f"    such as: {', '.join(map(str, self.typical))}",
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the exchange as lists, dictionaries, strings and numbers, which JSON can hold."""
        return {
            "old": plain(self.old),
            "new": plain(self.new),
            "rows": self.rows,
            "ids": [plain(name) for name in self.ids],
            "reasons": _numbers(self.reasons),
            "in_a": _numbers(self.in_a),
            "in_b": _numbers(self.in_b),
            "disagree": self.disagree,
            "by_change": self.by_change,
            "rule": rule_as_dict(self.rule),
            "typical": [plain(name) for name in self.typical],
            "why": self.why,
            "who": self.who,
        }


@dataclass(frozen=True)
class Theme:
    """A cluster of b without a match in a.

    Attributes
    ----------
    cluster : label
        The cluster of b.
    ids : ndarray [m]
        Its rows.
    sources : Series
        The share of the rows that is in each cluster of a, the largest first.
    reasons : Series [inputs]
        Shares of the relevance of the rows for this cluster and against all others of b, the largest first.
    """

    cluster: Label
    ids: np.ndarray
    sources: pd.Series
    reasons: pd.Series

    @property
    def rows(self) -> int:
        """Number of the rows."""
        return len(self.ids)

    def line(self) -> str:
        """Describe the cluster in a line."""
        source, share = next(iter(self.sources.items()))
        named = [f"{name} {percent(share)}" for name, share in self.reasons.iloc[:N_NAMED].items()]
        return (
            f"{label_text(self.cluster)} of b has no match in a: {plural(self.rows, 'row')}, {percent(share)} of "
            f"them in {label_text(source)} of a; by {in_words(named)}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the theme as lists, dictionaries, strings and numbers, which JSON can hold."""
        return {
            "cluster": plain(self.cluster),
            "rows": self.rows,
            "ids": [plain(name) for name in self.ids],
            "sources": {str(plain(label)): float(share) for label, share in self.sources.items()},
            "reasons": _numbers(self.reasons),
        }


def _numbers(values: pd.Series | None) -> dict[str, float] | None:
    """Return shares by name, without those below a thousandth."""
    if values is None:
        return None
    return {str(name): float(value) for name, value in values.items() if abs(value) >= 1e-3}


@dataclass(frozen=True)
class Correspondence:
    """Two clusterings of the same N rows.

    Attributes
    ----------
    a, b : Explained
        The models.
    labels_a, labels_b : ndarray [N]
    table : DataFrame [clusters of a, clusters of b]
        Numbers of rows.
    matches : mapping
        The match in b of clusters of a.
    ids : ndarray [N]
        What the rows are called.
    """

    a: Explained
    b: Explained
    labels_a: np.ndarray
    labels_b: np.ndarray
    table: pd.DataFrame
    matches: Mapping[Label, Label]
    ids: np.ndarray

    def exchanges(self, changed: Collection[str] | None) -> list[Exchange]:
        """Explain the largest exchanges; `changed` are the inputs whose use has, None if no refits tell it."""
        counts = self.table.stack().sort_values(ascending=False, kind="stable")
        large = counts[counts >= max(1, LEAST_SHARE * len(self.ids))]
        pairs = [
            (old, new) for old, new in large.index if NOISE not in (old, new) and self.matches.get(old) != new
        ]
        exchanges = [self._exchange(old, new, changed) for old, new in pairs[:MAX_EXCHANGES]]
        return [exchange for exchange in exchanges if exchange is not None]

    def themes(self) -> list[Theme]:
        """Describe the clusters of b without a match, the largest first."""
        sizes = self.table.drop(columns=[NOISE, *self.matches.values()], errors="ignore").sum()
        themes = []
        for cluster in sizes.sort_values(ascending=False, kind="stable").index:
            rows = np.flatnonzero(self.labels_b == cluster)
            sources = self.table[cluster].sort_values(ascending=False, kind="stable") / len(rows)
            reasons = self.b.theme(rows).sort_values(ascending=False, kind="stable")
            themes.append(Theme(cluster, self.ids[rows], sources[sources > 0], reasons))
        return themes

    def _exchange(self, old: Label, new: Label, changed: Collection[str] | None) -> Exchange | None:
        """Explain the rows of one exchange; return None if no model has a contrast for it."""
        rows = np.flatnonzero((self.labels_a == old) & (self.labels_b == new))
        sources = {match: cluster for cluster, match in self.matches.items()}
        of_old = self.matches.get(old, self._next_largest(old, new))
        of_new = sources.get(new)
        in_a = None
        in_b = None
        depth = np.full(len(rows), np.inf)
        if of_old is not None:
            in_b = self.b.reasons(rows, new, of_old)
            depth = np.minimum(depth, self.b.depth(rows, new, of_old))
        if of_new is not None:
            in_a = self.a.reasons(rows, old, of_new)
            depth = np.minimum(depth, self.a.depth(rows, old, of_new))
        if in_a is None and in_b is None:
            return None

        reasons = _mean(in_a, in_b)
        by_change = None
        if changed is not None:
            by_change = bool({*reasons.index[:N_NAMED]} & {*changed})
        inside = np.flatnonzero(self.labels_a == old)
        goes = self.labels_b[inside] == new
        rule = self.a.rule(inside, goes) if are_enough(goes) else None
        deepest = np.argsort(-depth, kind="stable")[:N_TYPICAL]
        return Exchange(
            old=old,
            new=new,
            ids=self.ids[rows],
            in_a=in_a,
            in_b=in_b,
            reasons=reasons,
            disagree=_disagreeing(in_a, in_b, reasons),
            by_change=by_change,
            rule=rule,
            has_few_rows=not are_enough(goes),
            typical=self.ids[rows[deepest]],
        )

    def _next_largest(self, old: Label, new: Label) -> Label | None:
        """Return the cluster of b, other than `new`, that has most rows of `old`; None if none has any."""
        others = self.table.loc[old].drop([new, NOISE], errors="ignore")
        if not others.any():
            return None
        largest: Label = others.idxmax()
        return largest


def _mean(in_a: pd.Series | None, in_b: pd.Series | None) -> pd.Series:
    """Return the mean of the shares in both models, or those in the only one, the largest first."""
    known = [shares for shares in (in_a, in_b) if shares is not None]
    mean = pd.concat(known, axis=1).fillna(0.0).mean(axis=1)
    return mean.sort_values(ascending=False, kind="stable")


def _disagreeing(in_a: pd.Series | None, in_b: pd.Series | None, reasons: pd.Series) -> list[str]:
    """Return the inputs among the largest reasons whose shares have different signs in both models."""
    if in_a is None or in_b is None:
        return []
    largest = reasons.index[:N_COMPARED]
    signs_a = np.sign(in_a.reindex(largest).fillna(0.0))
    signs_b = np.sign(in_b.reindex(largest).fillna(0.0))
    return [*largest[signs_a * signs_b < 0]]
