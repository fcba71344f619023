"""Expression of genes in clusters of cells: an AnnData read block by block, and the candidates for markers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from sklearn.model_selection import train_test_split

from neonxc.attribution.contrasts import some_of
from neonxc.attribution.moments import Moments
from neonxc.common.memory import blocks
from neonxc.common.numbers import plural
from neonxc.common.types import ArrayLike, RandomState
from neonxc.data.expression import expression_of, groups_of
from neonxc.data.sparse import SparseRows, canonical

HELD_OUT = 1 / 3  # fraction of the cells on which rules are measured
SEARCHED = 20_000  # maximum number of cells among which rules are searched
FEWEST = 3  # cells of a cluster, of which one is held out
CANDIDATES = 10  # genes per comparison; rules of more genes are no better on held-out cells
NEAREST = 2  # clusters with which a cluster is compared, beside all other cells together


@dataclass(frozen=True)
class Expression:
    """Expression in clusters of cells.

    Attributes
    ----------
    X : matrix [cells, genes]
        Expression, as stored.
    names : ndarray [genes] of str
        Names of the genes.
    groupby, source : str
        Names of the clusters and of the matrix.
    small : dict
        Sizes of the clusters of too few cells, which are left out.
    allowed : ndarray [genes] of bool
        Genes that rules may use.
    clusters : ndarray [K]
        Labels of the clusters.
    codes : ndarray [cells] of int
        Cluster of every cell; -1: none.
    train, test : ndarray of int
        Cells on which rules are found, and on which they are measured.
    moments : Moments
        Of the genes in the training cells of every cluster.
    fractions : ndarray [K, genes]
        The fraction of these cells that express the gene (values above 0).
    """

    X: Any
    names: np.ndarray
    groupby: str
    source: str
    small: dict[Any, int]
    allowed: np.ndarray
    clusters: np.ndarray
    codes: np.ndarray
    train: np.ndarray
    test: np.ndarray
    moments: Moments
    fractions: np.ndarray

    @classmethod
    def of(
        cls,
        adata: Any,
        groupby: str | ArrayLike,
        layer: str | None,
        raw: bool | None,
        among: Sequence[str] | None,
        random_state: RandomState,
    ) -> Expression:
        """Read an AnnData, whose columns and genes are checked."""
        X, names, source = expression_of(adata, layer, raw)
        if not names.is_unique:
            is_repeated = names.duplicated()
            twice = [*names[is_repeated].unique()]
            raise ValueError(f"genes have the same name: {twice[:5]}; call adata.var_names_make_unique()")
        unknown = [] if among is None else [gene for gene in among if gene not in names]
        if unknown:
            raise ValueError(f"among has genes that the expression lacks: {unknown[:5]}")
        groups, groupby = groups_of(adata, groupby)
        sizes = groups.value_counts()
        size_of = dict(zip(groups.categories.tolist(), sizes.tolist(), strict=True))
        small = {label: n for label, n in size_of.items() if n < FEWEST}
        groups = groups.remove_categories([*small])
        codes = np.asarray(groups.codes, int)
        clusters = groups.categories.to_numpy()
        cells = np.flatnonzero(codes >= 0)
        if len(clusters) < 2:
            got = plural(len(clusters), "cluster")
            raise ValueError(
                f"groupby needs at least two clusters of at least {FEWEST} cells, got {got}, "
                f"and fewer cells in {small}; cells without a cluster (missing) are left out"
            )
        split = train_test_split(cells, test_size=HELD_OUT, random_state=random_state, stratify=codes[cells])
        train, test = map(np.sort, split)
        allowed = np.ones(len(names), bool)
        if among is not None:
            allowed = names.isin(among)
        is_train = np.isin(np.arange(len(codes)), train)
        moments, fractions = _moments(X, np.where(is_train, codes, -1), len(clusters))
        return cls(
            X=X,
            names=names.to_numpy(str),
            groupby=groupby,
            source=source,
            small=small,
            allowed=allowed,
            clusters=clusters,
            codes=codes,
            train=train,
            test=test,
            moments=moments,
            fractions=fractions,
        )

    @cached_property
    def counts(self) -> np.ndarray:
        """Number of the training cells of every cluster, [K, genes]."""
        return self.moments.counts.numpy()

    @cached_property
    def means(self) -> np.ndarray:
        """Mean expression in the training cells of every cluster, [K, genes]."""
        return self.moments.means.numpy()

    def effects(self, g: int, competitors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Compare a cluster with others together: effects of the genes, and the larger fraction expressing them.

        Effects are Cohen's d. Both are arrays [genes].
        """
        groups = np.array([g, *competitors])
        d = self.moments.cohens_d(groups)[0]
        counts = self.counts[competitors]
        weight = counts / counts.sum(0)
        fraction = (weight * self.fractions[competitors]).sum(0)
        return np.nan_to_num(d), np.maximum(self.fractions[g], fraction)

    def competitors(self, g: int) -> np.ndarray:
        """Return the other clusters, the nearest first: by squared differences of means in standard deviations."""
        variance = self.moments.squares.numpy().sum(0) / self.counts.sum(0)
        scale = np.where(variance > 0, variance, np.inf)  # genes without variance tell no clusters apart
        squared_distances = ((self.means - self.means[g]) ** 2 / scale).sum(1)
        order = np.argsort(squared_distances, kind="stable")
        return order[order != g]

    def candidates(self, g: int, min_fraction: float) -> np.ndarray:
        """Find genes of large effects between a cluster and all others, and between it and the nearest ones."""
        competitors = self.competitors(g)
        lists = []
        for compared in (competitors, *competitors[:NEAREST, None]):
            d, fraction = self.effects(g, compared)
            is_candidate = self.allowed & (fraction >= min_fraction)
            size = np.where(is_candidate, np.abs(d), 0)
            order = np.argsort(-size, kind="stable")[:CANDIDATES]
            has_effect = size[order] > 0
            lists.append(order[has_effect].tolist())
        return np.array([*dict.fromkeys(chain(*lists))], dtype=int)

    def read(self, cells: np.ndarray, genes: np.ndarray) -> tuple[pd.DataFrame, np.ndarray]:
        """Read the dense expression of some genes in some cells, and the positions of the cells' clusters."""
        chunks = [np.empty((0, len(genes)))]
        for block in blocks(len(cells), 8 * len(self.names)):
            values = self.X[cells[block]][:, genes]
            dense = values.toarray() if sparse.issparse(values) else np.asarray(values)
            chunks.append(dense)
        table = pd.DataFrame(np.concatenate(chunks), columns=self.names[genes])
        return table, self.codes[cells]

    def sample(self, genes: np.ndarray) -> tuple[pd.DataFrame, np.ndarray]:
        """As :meth:`read`, for the training cells or a random sample of them."""
        return self.read(some_of(self.train, SEARCHED), genes)


def _moments(X: Any, codes: np.ndarray, K: int) -> tuple[Moments, np.ndarray]:
    """Compute the moments of the genes, and fractions of the cells that express them, in every cluster.

    Cells of negative code are left out.
    """
    moments = Moments(K, X.shape[1])
    expressed = np.zeros((K, X.shape[1]))
    for block in blocks(len(codes), 8 * X.shape[1]):
        known = np.flatnonzero(codes[block] >= 0)
        group = codes[block][known]
        rows = sparse.csr_matrix(X[block], dtype=np.float64)
        values = canonical(rows[known])
        moments.add(SparseRows(values, torch.device("cpu")), torch.from_numpy(group))
        # [K, cells], 1 where a cell belongs to a cluster: its product counts the cells that express a gene
        positions = (group, np.arange(len(known)))
        is_member = sparse.csr_matrix((np.ones(len(known)), positions), shape=(K, len(known)))
        expressed += (is_member @ (values > 0)).toarray()
    return moments, expressed / moments.counts.numpy()
