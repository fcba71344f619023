"""The result of :func:`neonxc.compare_clusterings`: what became of the clusters, and which inputs changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from neonxc.common.numbers import percent, plural, text
from neonxc.common.result import Result, preformatted
from neonxc.common.types import Label
from neonxc.common.warnings import deprecated
from neonxc.data.kinds import plain
from neonxc.data.labels import NOISE
from neonxc.evaluation.exchanges import Exchange, Theme
from neonxc.evaluation.restarts import KEPT
from neonxc.evaluation.uses import changed_uses

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEVIATIONS = 2
"""Standard deviations below the mean of the refits, from which on a difference is larger than theirs."""
UNSTABLE = 0.8
"""Mean adjusted Rand index of a and its refits, below which these differ much.

Of planted columns of seven tables, refits alone named 54% to 96% where it is below, and 91% to 100% where it is
above. Restarts named as many in both.
"""
N_NAMED = 5  # changed inputs that are printed
N_DRAWN = 2  # exchanges whose reasons are drawn
NO_SEEDS = "Reasons may be those of another seed of a, which is not known."
LABELS_ALONE = "Labels alone do not tell why: pass a fitted model or a network as a or b to learn the reasons."
PRECOMPUTED = "Why is not known: a precomputed matrix has no columns that explain clusters."
EXCHANGE_COLUMNS = ["rows", "ids", "reasons", "in_a", "in_b", "disagree", "by_change", "rule", "typical"]
THEME_COLUMNS = ["rows", "ids", "sources", "reasons"]


@dataclass(frozen=True, repr=False)
class ClusteringComparison(Result):
    """Result of :func:`compare_clusterings`.

    Attributes
    ----------
    table : DataFrame [clusters of a, clusters of b]
        Number of rows in each pair of clusters; -1 is noise.
    ari, ami : float
        Adjusted Rand index and adjusted mutual information; 1 for equal clusterings, about 0 for independent ones.
    refits : DataFrame [refits, 2] or None
        ARI and AMI of a and each refit of it; None if a can't be fitted again.
    reason : str
        Why there are no refits; "" if there are.
    restart : float or None
        Adjusted Rand index of b and a k-means that is a, but was started from the clusters of b. From 0.95 on, b
        is another solution of a: what differs is the seed, or the number of clusters. None if a can't be started
        so.
    uses : DataFrame [inputs, 6] or None
        The use of each input (column, word, channel): its share of the relevance of all rows for their own
        clusters, -1 to 1. Columns: ``a`` and ``b``; ``low`` and ``high``, the range in the refits of a;
        ``restart``, the use in a after a start from the clusters of b; and ``z``, how many standard deviations b
        is away from models that differ from a by their seeds alone, which are the restarts or else a and its
        refits. What is not known is missing. None if a model can't be explained.
    remark : str
        What limits the reasons: that there are none, and why, or that a is known by labels alone; "" else.
    """

    table: pd.DataFrame
    _clusters: pd.DataFrame
    ari: float
    ami: float
    refits: pd.DataFrame | None
    reason: str = ""
    restart: float | None = None
    uses: pd.DataFrame | None = None
    remark: str = ""
    _exchanges: Sequence[Exchange] = ()
    _themes: Sequence[Theme] = ()
    _matches: Mapping[Label, Label] = field(default_factory=dict)

    @property
    def changed(self) -> pd.DataFrame | None:
        """The rows of `uses` of the inputs whose use has changed by more than with the seed; None if unknown.

        Their z is more than 6, which is a difference of at least 0.01. Without restarts, there are none unless the
        clusterings differ by more than refits of a do.
        """
        if self.uses is None or self.uses["z"].isna().all():
            return None
        if self.restart is None and not self._is_larger():
            return self.uses.iloc[:0]
        return changed_uses(self.uses)

    @property
    def exchanges(self) -> pd.DataFrame:
        """The rows in a cluster of b that is not the match of theirs in a, and why; the largest exchanges first.

        Index levels: ``old`` and ``new``, the clusters of a and b. Columns: ``rows``, their number, and ``ids``;
        ``reasons``, a series of shares by input, which is the mean of ``in_a``, what holds the rows in the old
        cluster in a, and ``in_b``, what draws them to the new one in b; ``disagree``, the inputs whose signs
        differ between these; ``by_change``, whether one of the first three reasons is an input whose use has
        changed (None without refits); ``rule``, a :class:`~neonxc.rules.Rule` or None; and ``typical``, rows that
        are clearly in the old cluster in a and in the new one in b.
        """
        pairs = [(exchange.old, exchange.new) for exchange in self._exchanges]
        index = pd.MultiIndex.from_tuples(pairs, names=["old", "new"]) if pairs else None
        return _frame_of(self._exchanges, EXCHANGE_COLUMNS, index)

    @property
    def themes(self) -> pd.DataFrame:
        """The clusters of b without a match in a, the largest ones first.

        Index: ``cluster``. Columns: ``rows``, their number, and ``ids``; ``sources``, the share of them in each
        cluster of a; and ``reasons``, shares of their relevance in b by input.
        """
        index = pd.Index([theme.cluster for theme in self._themes], name="cluster")
        return _frame_of(self._themes, THEME_COLUMNS, index)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per cluster of a, and per cluster of b without a match.

        Returns
        -------
        DataFrame
            Index levels: ``model`` and ``cluster``. Columns: ``rows``; ``kind``, "kept", "split", "merged", "died"
            or "born"; ``partners``, the clusters of the other model that it goes into or comes from (for died and
            born ones, that with most rows); ``jaccard`` with the matched cluster, 0 to 1; and ``refits``, the mean
            of the same over the refits.
        """
        return self._clusters.copy()

    @property
    def clusters(self) -> pd.DataFrame:
        """The table; deprecated since 0.4.0, use :meth:`to_frame`."""
        deprecated("ClusteringComparison.clusters", "to_frame()")
        return self._clusters

    def to_dict(self) -> dict[str, Any]:
        """Return the result as lists, dictionaries, strings and numbers, which JSON can hold.

        Returns
        -------
        dict
            ``summary``, the printed lines; ``ari`` and ``ami``; ``refits``, the ARI of each, or None;
            ``clusters``, the rows of :meth:`to_frame`; ``changed``, None or the inputs whose use has, with ``a``,
            ``b``, ``low`` and ``high``; and ``exchanges`` and ``themes``, as the properties have them.
        """
        clusters = []
        for (model, cluster), row in self._clusters.iterrows():
            clusters.append(
                {
                    "model": model,
                    "cluster": plain(cluster),
                    "rows": int(row["rows"]),
                    "kind": row["kind"],
                    "partners": [plain(label) for label in row["partners"]],
                    "jaccard": None if np.isnan(row["jaccard"]) else float(row["jaccard"]),
                }
            )
        changed = None
        if self.changed is not None:
            changed = {str(name): row.to_dict() for name, row in self.changed.iterrows()}
        return {
            "summary": self._lines(),
            "ari": self.ari,
            "ami": self.ami,
            "refits": None if self.refits is None else self.refits["ARI"].tolist(),
            "clusters": clusters,
            "changed": changed,
            "exchanges": [exchange.to_dict() for exchange in self._exchanges],
            "themes": [theme.to_dict() for theme in self._themes],
        }

    def plot(self) -> Figure:
        """Draw the rows of each pair of clusters, and beside it the reasons of the largest exchanges."""
        from neonxc.plot.flow import exchange_figure  # loads matplotlib

        uses = None
        if self.changed is not None and len(self.changed):
            uses = self.changed
        drawn = [(f"{one.title}: {plural(one.rows, 'row')}", one.reasons) for one in self._exchanges[:N_DRAWN]]
        return exchange_figure(self.table, self._matches, uses, drawn)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> list[str]:
        """Write all that is known, line by line."""
        lines = self.remarks()
        for exchange in self._exchanges:
            lines += exchange.lines()
        return lines

    def remarks(self) -> list[str]:
        """Return sentences on the clusters, the inputs that changed and new themes, without the exchanges."""
        lines = [*self._remarks(), *self._changes(), *self._changed_inputs()]
        lines += [theme.line() for theme in self._themes]
        if self.remark:
            lines.append(self.remark)
        return lines

    @property
    def reasons(self) -> Sequence[Exchange]:
        """The exchanges, as objects that describe themselves."""
        return self._exchanges

    def _remarks(self) -> list[str]:
        lines = [f"ARI {text(self.ari, 2)}, AMI {text(self.ami, 2)}"]
        if self.refits is None:
            lines[0] += f"; no refits of a for comparison: {self.reason}"
        else:
            ari = self.refits["ARI"]
            low = text(ari.min(), 2)
            mean = text(ari.mean(), 2)
            high = text(ari.max(), 2)
            lines[0] += f"; {plural(len(ari), 'refit')} of a with other seeds: ARI {mean} ({low} to {high})"
            lines.append(self._relation(ari))
            if ari.mean() < UNSTABLE:
                hidden = ", which can hide changes; more initialisations help" if self.restart is None else ""
                lines.append(f"The refits of a differ much{hidden}.")
        counts = self._clusters["kind"].value_counts()
        kinds = ", ".join(f"{number} {kind}" for kind, number in counts.items())
        lines.append(f"Clusters: {kinds}.")
        return lines

    def _changed_inputs(self) -> list[str]:
        """Describe the inputs whose use has changed."""
        if self.changed is None:
            return []
        if self.changed.empty:
            return ["No input is used more or less than another seed of a would."]
        lines = [_use_in_words(str(name), use) for name, use in self.changed.iloc[:N_NAMED].iterrows()]
        n_others = len(self.changed) - N_NAMED
        if n_others > 0:
            lines.append(f"{plural(n_others, 'further input')} changed, too.")
        return lines

    def _changes(self) -> list[str]:
        """Describe what became of every cluster that was not kept."""
        changed = self._clusters[self._clusters["kind"] != "kept"]
        lines = []
        for (model, cluster), row in changed.iterrows():
            mostly = ""
            if row["kind"] in ("born", "died"):
                mostly = "mostly "
            direction = "into" if model == "a" else "from"
            partners = ", ".join(map(str, row["partners"]))
            if row["kind"] == "split":
                partners = f"{len(row['partners'])}: {partners}"
            refits = ""
            if not np.isnan(row["refits"]):
                refits = f"; in refits Jaccard {text(row['refits'], 2)}"
            n_rows = plural(row["rows"], "row")
            lines.append(
                f"    {cluster} of {model} ({n_rows}): {row['kind']} {mostly}{direction} {partners}{refits}"
            )
        return lines

    def _relation(self, ari: pd.Series) -> str:
        """Say in words whether the difference is larger than that between refits."""
        if self.ari >= ari.min():
            return "The difference is within that between refits of a."
        is_solution = self.restart is not None and self.restart >= KEPT
        if is_solution and self._has_as_many_clusters():
            return (
                "The difference is beyond that between refits of a, but b is another solution of it: started from "
                f"the clusters of b, it keeps them (ARI {text(self.restart, 2)})."
            )
        if is_solution:
            return (
                "The difference is beyond that between refits of a, and that of the number of clusters: started "
                f"from those of b, a keeps them (ARI {text(self.restart, 2)})."
            )
        if self._is_larger():
            return "The difference is larger than that between refits of a."
        return (
            "The difference may be that between refits of a: it is beyond that of each of them, as it is for one "
            f"in {plural(len(ari) + 1, 'refit')} by chance, but it is not an outlier."
        )

    def _is_larger(self) -> bool:
        """Whether the clusterings differ by more than refits of a do."""
        if self.refits is None:
            return False
        ari = self.refits["ARI"]
        return self.ari < min(ari.min(), ari.mean() - DEVIATIONS * ari.std())

    def _has_as_many_clusters(self) -> bool:
        """Whether a and b have as many clusters."""
        n_a, n_b = (len(labels.drop(NOISE, errors="ignore")) for labels in (self.table.index, self.table.columns))
        return n_a == n_b

    def _repr_html_(self) -> str:
        return f"{preformatted(str(self))}{self.table.to_html()}"


def _use_in_words(name: str, use: pd.Series) -> str:
    """Describe how the use of an input changed."""
    in_a = f"{percent(use['a'])} in a"
    if not np.isnan(use["low"]):
        ends = [percent(use["low"]), percent(use["high"])]
        if {*ends} == {percent(use["a"])}:
            in_a += " and its refits"
        else:
            in_a += f" ({' to '.join(ends)} in its refits)"
    restart = percent(use["restart"])
    if not np.isnan(use["restart"]) and restart != percent(use["a"]):
        in_a += f", or {restart} if a starts from the clusters of b"
    return f"{name} has {percent(use['b'])} of the relevance in b, and {in_a}."


def _frame_of(items: Sequence[Exchange | Theme], columns: list[str], index: pd.Index | None) -> pd.DataFrame:
    """Return attributes of items as columns, whose values are kept as they are."""
    values = {name: pd.Series([getattr(item, name) for item in items], dtype=object) for name in columns}
    frame = pd.DataFrame(values, columns=columns)
    if index is not None:
        frame.index = index
    return frame
