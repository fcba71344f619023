"""Marker rules of single cells: conditions on at most a few genes that describe every cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from neonxc.common.arguments import check_number, check_whole
from neonxc.common.numbers import plural
from neonxc.common.progress import progress_bar
from neonxc.common.result import Result
from neonxc.common.types import ArrayLike, RandomState
from neonxc.common.warnings import deprecated
from neonxc.data.frames import with_cells
from neonxc.rules.collection import Rules, counted
from neonxc.rules.condition import Condition, in_column
from neonxc.trees.genes import FEWEST, Expression
from neonxc.trees.one_rule import best_rule

Tests = tuple[Condition, ...]
ScoredRule = tuple[Tests, float]  # conditions of a rule, and its F-beta score

STORED = 10  # genes per cluster in ``adata.uns``, as many as scanpy draws
REDUNDANT = 0.02  # F-beta that a rule may lose for a smaller panel


@dataclass(frozen=True, repr=False)
class Markers(Result):
    """Result of :func:`markers`.

    Attributes
    ----------
    rules : Rules
        One rule per cluster. The ``counts`` are of the cells on which they were found, ``held_out`` of the others.
    panel : list of str
        The genes of all rules.
    notes : list of str
        The matrix that was read, and clusters that have too few cells for a rule.
    """

    rules: Rules
    panel: list[str]
    _table: pd.DataFrame
    notes: list[str] = field(default_factory=list)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per cluster.

        Returns
        -------
        DataFrame
            Index: the cluster. Columns: ``genes`` and ``rule`` as texts, empty if no rule was found;
            ``precision``, ``recall`` and ``f_beta`` on the held-out cells, 0 to 1, and the number of these
            ``cells``.
        """
        return self._table.copy()

    @property
    def table(self) -> pd.DataFrame:
        """The table; deprecated since 0.4.0, use :meth:`to_frame`."""
        deprecated("Markers.table", "to_frame()")
        return self._table

    def _shown(self) -> pd.DataFrame:
        return self._table.drop(columns="genes")  # the rules name them, too

    def _remarks(self) -> list[str]:
        return [f"panel of {plural(len(self.panel), 'gene')}: {', '.join(self.panel)}", *self.notes]


def markers(
    adata: Any,
    groupby: str | ArrayLike,
    *,
    max_genes: int = 3,
    beta: float = 0.5,
    min_fraction: float = 0.25,
    layer: str | None = None,
    use_raw: bool | None = None,
    among: Sequence[str] | None = None,
    random_state: RandomState = 0,
    key_added: str = "markers",
) -> Markers:
    """Find a rule of at most a few genes for every cluster of cells, and a joint panel of genes.

    Candidates are the genes of the largest effect sizes (Cohen's d) between a cluster and all other cells, and
    between it and each of the two nearest clusters. The rule is the best leaf of small trees of these genes, by
    the F-beta score. Then genes are removed from the panel as long as no rule becomes worse by more than 0.02.
    Rules are found on two thirds of the cells, of which at most 20,000 are searched, and measured on the others.
    Matrices are read block by block and stay sparse.

    Parameters
    ----------
    adata : AnnData [cells, genes], or path of a .h5ad file
        Expression, usually logarithms of normalised counts.
    groupby : str, Series or array-like [cells]
        Column of ``adata.obs`` with the clusters, or the clusters themselves; a series goes by the names of the
        cells. Cells without a cluster (noise, -1, or missing) are left out, and so are those of clusters of one or
        two cells, which get no rule.
    max_genes : int
        Maximum number of genes of a rule.
    beta : float
        Weight of the recall against the precision in the F-beta score; 0.5 prefers precise rules.
    min_fraction : float
        Fraction of the cells, 0 to 1, on at least one side of a comparison that must express a gene (values above
        0).
    layer : str, optional
        Layer of `adata` that is read in place of ``adata.X``.
    use_raw : bool, optional
        Whether ``adata.raw`` is read. Default, as in scanpy: if it is there and no `layer` is given.
    among : sequence of str, optional
        Genes that rules may use; default: all.
    random_state : int, RandomState or None
        Seed of the choice of held-out cells.
    key_added : str
        Entry of ``adata.uns`` in which the result is stored in the layout of ``scanpy.tl.rank_genes_groups``, so
        that ``scanpy.pl.rank_genes_groups_dotplot(adata, key="markers")`` draws it: the genes of each cluster's
        rule first, then further candidates, with Cohen's d as scores. P-values are NaN, because tests on the
        cells in which the clusters were found mean nothing. ``table`` and ``panel`` are stored as well. A file is
        not written to.

    Returns
    -------
    Markers

    Raises
    ------
    ValueError
        Unknown columns, layers or genes, repeated names of genes, values that are not finite, parameters out of
        range, or fewer than two clusters of at least three cells.

    References
    ----------
    .. [1] B. Aevermann et al., "A machine learning method for the discovery of minimum marker gene combinations
       for cell type identification from single-cell RNA sequencing", Genome Research, 2021 (F-beta of markers).

    Examples
    --------
    >>> import neonxc, scanpy  # doctest: +SKIP
    >>> cells = scanpy.datasets.pbmc68k_reduced()  # doctest: +SKIP
    >>> print(neonxc.markers(cells, "louvain"))  # doctest: +SKIP
    """
    adata = with_cells(adata)
    check_whole("max_genes", max_genes)
    check_number("min_fraction", min_fraction, 1)
    check_number("beta", beta)
    data = Expression.of(adata, groupby, layer, use_raw, among, random_state)
    candidates = [data.candidates(g, min_fraction) for g in range(len(data.clusters))]
    sample, codes = data.sample(np.unique(np.concatenate(candidates)))

    def rule_of(g: int, genes: Sequence[str]) -> ScoredRule:
        if not len(genes):
            return (), 0.0
        return best_rule(sample[[*genes]], codes == g, length=max_genes, beta=beta)

    best = []
    for g, genes in enumerate(progress_bar(candidates, desc="markers")):
        best.append(rule_of(g, data.names[genes]))
    chosen = _without_redundancy(best, rule_of)
    panel = _genes(chosen)

    # counts of the rules on the cells where they were found, and on the others
    position = {name: i for i, name in enumerate(data.names.tolist())}
    rules = []
    for label, tests in zip(data.clusters.tolist(), chosen, strict=True):
        if tests:
            rules.append((label, tuple(in_column(test, position[test.name]) for test in tests)))
    columns = np.array([position[name] for name in panel], dtype=int)
    train, train_codes = data.read(data.train, columns)
    test, test_codes = data.read(data.test, columns)
    counted_rules = counted(rules, train, data.clusters[train_codes], len(position))
    measured = counted_rules.measure(test, data.clusters[test_codes])

    labels = pd.Index([*data.clusters.tolist(), *data.small], name=data.groupby)
    sizes = pd.Series(np.bincount(test_codes, minlength=len(labels)), labels, name="cells")
    result = Markers(measured, panel, _table(measured, sizes, beta), _notes(data))
    raw = data.source == "adata.raw"
    parameters = {"groupby": data.groupby, "use_raw": raw, "layer": layer, "max_genes": max_genes, "beta": beta}
    adata.uns[key_added] = _stored(result, data, candidates, parameters)
    return result


def _notes(data: Expression) -> list[str]:
    """Say what was read, and what was left out."""
    notes = [f"expression: {data.source}"]
    if data.small:
        few = ", ".join(f"{label} ({plural(n, 'cell')})" for label, n in data.small.items())
        notes.append(f"left out, as a rule needs at least {FEWEST} cells: {few}")
    return notes


def _genes(rules: Iterable[Tests]) -> list[str]:
    """Return the genes of rules, each once."""
    return [*dict.fromkeys(test.name for tests in rules for test in tests)]


def _expressed(tests: Tests) -> bool:
    """Whether a gene has to be above a threshold."""
    return any(test.low > -np.inf for test in tests)


def _without_redundancy(best: list[ScoredRule], rule_of: Callable[[int, list[str]], ScoredRule]) -> list[Tests]:
    """Remove genes from the panel, those of the fewest rules first, as long as no rule becomes worse.

    A rule must not be left with genes that are absent alone.
    """
    rules = [tests for tests, _ in best]
    uses = Counter(gene for tests in rules for gene in _genes([tests]))
    for gene in sorted(uses, key=uses.__getitem__):
        remaining = [name for name in _genes(rules) if name != gene]
        with_gene = [g for g, tests in enumerate(rules) if gene in _genes([tests])]
        without = {g: rule_of(g, remaining) for g in with_gene}
        is_redundant = True
        for g, (tests, score) in without.items():
            _, best_score = best[g]
            is_as_good = score >= best_score - REDUNDANT
            is_redundant = is_redundant and is_as_good and _expressed(tests)
        if is_redundant:
            for g, (tests, _) in without.items():
                rules[g] = tests
    return rules


def _table(rules: Rules, sizes: pd.Series, beta: float) -> pd.DataFrame:
    """Make the table of rules and held-out measures, one row per cluster."""
    none = {"genes": "", "rule": "", "precision": np.nan, "recall": 0.0, "f_beta": 0.0}
    rows = dict.fromkeys(sizes.index, none)
    for rule in rules:
        counts = rule.held_out or rule.counts
        rows[rule.label] = {
            "genes": ", ".join(test.name for test in rule.conditions),
            "rule": rule.text(),
            "precision": counts.precision,
            "recall": counts.coverage,
            "f_beta": counts.f_score(beta),
        }
    frame = pd.DataFrame([*rows.values()], sizes.index)
    frame = frame.assign(cells=sizes)
    frame.loc[sizes == 0, ["recall", "f_beta"]] = np.nan
    return frame


def _stored(
    result: Markers, data: Expression, candidates: list[np.ndarray], parameters: dict[str, Any]
) -> dict[str, Any]:
    """Return the entry of ``adata.uns``: a field per cluster in arrays of records, as scanpy stores them."""
    # arrays [STORED] by field and cluster
    columns: dict[str, dict[str, np.ndarray]] = {"names": {}, "scores": {}, "logfoldchanges": {}, "pvals": {}}
    genes_of_rule = {}
    for rule in result.rules:
        genes_of_rule[rule.label] = [test.column.position for test in rule.conditions]
    for g, label in enumerate(data.clusters.tolist()):
        competitors = data.competitors(g)
        d, _ = data.effects(g, competitors)
        by_effect = np.argsort(-np.abs(d), kind="stable").tolist()
        ordered = [*genes_of_rule.get(label, []), *candidates[g].tolist(), *by_effect]
        genes = [*dict.fromkeys(ordered)][:STORED]
        mean = data.means[g, genes]
        mean_of_rest = np.average(data.means[competitors], axis=0, weights=data.counts[competitors])[genes]
        # as scanpy computes it, of means of log(1 + expression); 1e-9 keeps genes that are not expressed finite
        with np.errstate(over="ignore", invalid="ignore"):  # of values that are not logarithms
            change = np.log2((np.expm1(mean) + 1e-9) / (np.expm1(mean_of_rest) + 1e-9))
        key = str(label)
        columns["names"][key] = data.names[genes].astype(object)
        columns["scores"][key] = d[genes].astype(np.float32)
        columns["logfoldchanges"][key] = change.astype(np.float32)
        columns["pvals"][key] = np.full(len(genes), np.nan)
    records = {}
    for key, arrays in columns.items():
        records[key] = pd.DataFrame(arrays).to_records(index=False)
    described = {"reference": "rest", "method": "neonxc.markers", "corr_method": "none", **parameters}
    table = result.to_frame()
    table.index = table.index.astype(str)
    return {"params": described, **records, "pvals_adj": records["pvals"], "table": table, "panel": result.panel}
