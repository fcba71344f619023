"""Expression of genes in clusters of cells: an AnnData read block by block, and the candidates for markers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.model_selection import train_test_split

from neonxc.attribution.contrasts import some_of
from neonxc.attribution.effects import cohens_d
from neonxc.common.memory import blocks
from neonxc.data.expression import expression_of, groups_of

HELD_OUT = 1 / 3  # share of the cells on which rules are measured
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
    counts, means, squares, fractions : ndarray [K, genes]
        Of the training cells of every cluster: their number, the mean of the gene, the sum of squared deviations
        from it, and the share of the cells that express it (values above 0).
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
    counts: np.ndarray
    means: np.ndarray
    squares: np.ndarray
    fractions: np.ndarray

    @classmethod
    def of(
        cls,
        adata: Any,
        groupby: Any,
        layer: str | None,
        raw: bool | None,
        among: Sequence[str] | None,
        random_state: Any,
    ) -> Expression:
        """Read an AnnData, whose columns and genes are checked."""
        X, names, source = expression_of(adata, layer, raw)
        if not names.is_unique:
            twice = [*names[names.duplicated()].unique()]
            raise ValueError(f"genes have the same name: {twice[:5]}; call adata.var_names_make_unique()")
        unknown = [] if among is None else [gene for gene in among if gene not in names]
        if unknown:
            raise ValueError(f"among has genes that the expression lacks: {unknown[:5]}")
        groups, groupby = groups_of(adata, groupby)
        sizes = groups.value_counts()
        small = {
            label: n for label, n in zip(groups.categories.tolist(), sizes.tolist(), strict=True) if n < FEWEST
        }
        groups = groups.remove_categories([*small])
        codes, clusters = np.asarray(groups.codes, int), groups.categories.to_numpy()
        cells = np.flatnonzero(codes >= 0)
        if len(clusters) < 2:
            raise ValueError(
                f"groupby needs at least two clusters of at least {FEWEST} cells, got {len(clusters)} clusters, "
                f"and fewer cells in {small}; cells without a cluster (missing) are left out"
            )
        split = train_test_split(cells, test_size=HELD_OUT, random_state=random_state, stratify=codes[cells])
        train, test = map(np.sort, split)
        allowed = np.ones(len(names), bool) if among is None else names.isin(among)
        moments = _moments(X, np.where(np.isin(np.arange(len(codes)), train), codes, -1), len(clusters))
        return cls(X, names.to_numpy(str), groupby, source, small, allowed, clusters, codes, train, test, *moments)

    def effects(self, g: int, others: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Cohen's d of the genes between a cluster and others together, and the larger share that expresses them.

        Both are arrays [genes].
        """
        groups = np.array([g, *others])
        d = cohens_d(self.counts[groups], self.means[groups], self.squares[groups])[0]
        weight = self.counts[others] / self.counts[others].sum(0)
        return np.nan_to_num(d), np.maximum(self.fractions[g], (weight * self.fractions[others]).sum(0))

    def others(self, g: int) -> np.ndarray:
        """The other clusters, the nearest first: by squared differences of means in standard deviations."""
        scale = self.squares.sum(0) / self.counts.sum(0)
        apart = ((self.means - self.means[g]) ** 2 / np.where(scale > 0, scale, np.inf)).sum(1)
        order = np.argsort(apart, kind="stable")
        return order[order != g]

    def candidates(self, g: int, min_fraction: float) -> np.ndarray:
        """Genes of the largest effects between a cluster and all others, and between it and the nearest ones."""
        others, lists = self.others(g), []
        for some in (others, *others[:NEAREST, None]):
            d, fraction = self.effects(g, some)
            size = np.where(self.allowed & (fraction >= min_fraction), np.abs(d), 0)
            order = np.argsort(-size, kind="stable")[:CANDIDATES]
            lists.append(order[size[order] > 0].tolist())
        return np.array([*dict.fromkeys(chain(*lists))], dtype=int)

    def read(self, cells: np.ndarray, genes: np.ndarray) -> tuple[pd.DataFrame, np.ndarray]:
        """Dense expression of some genes in some cells, and the positions of the cells' clusters."""
        parts = [np.empty((0, len(genes)))]
        for block in blocks(len(cells), 8 * len(self.names)):
            part = self.X[cells[block]][:, genes]
            parts.append(part.toarray() if sparse.issparse(part) else np.asarray(part))
        return pd.DataFrame(np.concatenate(parts), columns=self.names[genes]), self.codes[cells]

    def sample(self, genes: np.ndarray) -> tuple[pd.DataFrame, np.ndarray]:
        """As :meth:`read`, for the training cells or a random sample of them."""
        return self.read(some_of(self.train, SEARCHED), genes)


def _moments(X: Any, codes: np.ndarray, K: int) -> tuple[np.ndarray, ...]:
    """The last four attributes of :class:`Expression`, of the cells whose codes are not negative."""
    sums, squares, expressed = (np.zeros((K, X.shape[1])) for _ in range(3))
    for block in blocks(len(codes), 8 * X.shape[1]):
        part, own = sparse.csr_matrix(X[block], dtype=np.float64), codes[block]
        known = np.flatnonzero(own >= 0)
        members = sparse.csr_matrix((np.ones(len(known)), (own[known], known)), shape=(K, len(own)))
        for total, values in ((sums, part), (squares, part.multiply(part)), (expressed, part > 0)):
            total += (members @ values).toarray()
    counts = np.bincount(codes[codes >= 0], minlength=K)[:, None] * np.ones(X.shape[1])
    means = sums / counts
    return counts, means, np.maximum(squares - counts * means**2, 0), expressed / counts
