"""The function :func:`neonxc.name_clusters`: names that passed a blind test.

1. The rows of every cluster are divided into two halves (:mod:`neonxc.naming.rows`).
2. On one half, names are chosen by the judge among candidates (:mod:`neonxc.naming.choice`), or asked from a namer
   (:mod:`neonxc.naming.evidence`).
3. On the other half they are tested (:mod:`neonxc.naming.blind_test`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from neonxc.common.arguments import check_whole
from neonxc.common.cluster_names import is_noise
from neonxc.common.types import ArrayLike, Label, RandomState, TableLike
from neonxc.data.inputs import as_array, as_texts
from neonxc.data.table import Table, is_texts
from neonxc.data.weights import weights_of
from neonxc.naming.blind_test import blind_test, ceilings
from neonxc.naming.candidates import Candidates, TableCandidates, TextCandidates, all_names
from neonxc.naming.choice import Search
from neonxc.naming.cluster_names import ClusterNames
from neonxc.naming.evidence import Namer, asked_names, evidence_of
from neonxc.naming.judges import Judge, OfTable, OfTexts, UserJudge, as_judge
from neonxc.naming.rows import halves
from neonxc.naming.statement_judge import StatementJudge
from neonxc.naming.text_judge import WordJudge
from neonxc.network import NeuralizedClustering, check_network


def name_clusters(
    net: NeuralizedClustering,
    X: TableLike,
    *,
    namer: Namer | None = None,
    judge: UserJudge | None = None,
    words: int = 2,
    random_state: RandomState = 0,
    sample_weight: ArrayLike | None = None,
) -> ClusterNames:
    """Name clusters such that rows which are sorted by the names alone come to their own clusters.

    Names are chosen on one half of the rows and tested on the other half, by a judge who knows the names and no
    cluster. A name passes if the rows of its cluster choose it more often than any other name, and if those who
    choose it are its own, both by more than a standard error; clusters weigh the same.

    Parameters
    ----------
    net : NeuralizedClustering
        Network from :func:`neonxc.neuralize`; one cluster per row.
    X : table, texts or tensor [N, ...], or path
        Inputs of the network. Names are about the columns of the table, or the words of the texts.
    namer : callable, optional
        Returns a name for the evidence of a cluster (:class:`neonxc.Evidence`), as a language model does for
        ``evidence.prompt()``. A name that does not pass on the first half is asked for once more, with the
        contrast to the cluster with which it is confused, and the one that sorts better is kept. Default: names
        are chosen by the judge among the strongest statements.
    judge : callable, optional
        ``judge(names, rows)`` returns scores [rows, names], the larger the better a name fits; NaN if it says
        nothing about a row. It gets names as a list of texts, and rows as X has them. Default:
        :class:`neonxc.evaluation.StatementJudge` of tables, and :class:`neonxc.evaluation.TextJudge` of texts.
    words : int
        Largest number of statements (of words, for texts) of a name that is chosen.
    random_state : int, RandomState or None
        Seed of the halves and of the search.
    sample_weight : array-like [N], optional
        Weights >= 0 of the rows; a series goes by its index. A weight of 2 is a row twice in shares, quantiles and
        effects, but no evidence: the number of rows that standard errors go by is (sum w)^2 / sum w^2. Halves are
        drawn from the rows, and the space of texts is without weights.

    Returns
    -------
    ClusterNames

    Raises
    ------
    TypeError
        `net` is no network from :func:`~neonxc.neuralize`, `namer` or `judge` can't be called, or a name is no
        str.
    ValueError
        There are less than two clusters with rows, the network clusters the locations of its inputs, X is neither
        a table nor texts and `namer` or `judge` is missing, the scores have a wrong shape, or weights are invalid.

    Notes
    -----
    On texts, the gain of choosing belongs in part to the judge that chose: see ``second_accuracy`` of the result.
    Rows of noise have no name and are not tested. Names are tested on at most 1,000 rows of each cluster.

    Examples
    --------
    >>> import neonxc
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris(as_frame=True).data
    >>> net = neonxc.neuralize(KMeans(3, n_init=10, random_state=0).fit(X), X)
    >>> named = neonxc.name_clusters(net, X)
    >>> named.names[1]
    'low petal length (cm)'
    >>> named.passed
    {0: True, 1: True, 2: True}
    """
    check_network(net, "name_clusters", "; pass neonxc.neuralize(model)")
    check_whole("words", words)
    if namer is not None and not callable(namer):
        raise TypeError(f"namer needs a callable namer(evidence), got {type(namer).__name__}")
    table = net.inputs.given(X)
    weight = weights_of(sample_weight, table)
    if weight is not None:
        table = table.take(np.flatnonzero(weight))
        weight = weight[weight > 0]
    labels = as_array(net.predict(table))
    if labels.ndim > 1:
        raise ValueError("name_clusters needs one cluster per row; this network clusters locations of its inputs")

    is_readable = is_texts(table) or len(table.shape) == 2
    if not is_readable and (namer is None or judge is None):
        raise ValueError(
            f"name_clusters needs a table or texts, got inputs of shape {list(table.shape)}: for others pass both "
            "namer=, a function of the evidence, and judge=, a function of names and rows"
        )
    clusters, groups = _with_rows(net, labels)
    generator = check_random_state(random_state)
    chosen_on, tested_on = halves(groups, len(clusters), generator)
    rows = _Rows(table, groups, weight)
    columns = [*net.inputs.units]
    sorting = as_judge(judge, table, len(clusters), columns, weight)

    choosing = rows.take(chosen_on)
    candidates = None
    if is_readable:
        candidates = _candidates(choosing, len(clusters), sorting, columns, net.inputs.categories)
    if namer is None:
        assert candidates is not None
        names = _chosen(candidates, choosing, sorting, words, generator)
    else:
        sizes = np.bincount(groups[groups >= 0], minlength=len(clusters))
        space = sorting.space(choosing.table) if sorting.has_space else None
        evidence = evidence_of(clusters, sizes, choosing.table, choosing.groups, chosen_on, candidates, space)
        names = asked_names(
            namer, evidence, sorting, choosing.table, choosing.groups, candidates, choosing.weight, generator
        )
    return _tested(clusters, names, sorting, choosing, rows.take(tested_on), table)


class _Rows(NamedTuple):
    """Rows with their clusters."""

    table: Table
    groups: np.ndarray  # [n], positions of the clusters; -1 for none
    weight: np.ndarray | None  # [n]

    def take(self, rows: np.ndarray) -> _Rows:
        """Select rows."""
        weight = None if self.weight is None else self.weight[rows]
        return _Rows(self.table.take(rows), self.groups[rows], weight)


def _with_rows(net: NeuralizedClustering, labels: np.ndarray) -> tuple[list[Label], np.ndarray]:
    """Return the labels of the clusters that have rows, and the positions [N] of the rows among them."""
    present = set(np.unique(labels).tolist())
    clusters = [label for label in net.classes_.tolist() if label in present and not is_noise(label)]
    if len(clusters) < 2:
        raise ValueError(f"name_clusters needs rows in at least 2 clusters, got {len(clusters)}")
    position = {label: k for k, label in enumerate(clusters)}
    groups = np.array([position.get(label, -1) for label in labels.tolist()])
    return clusters, groups


def _candidates(
    rows: _Rows, k: int, judge: Judge, columns: Sequence[str], categories: Sequence[int] = ()
) -> Candidates:
    """Collect statements about the clusters of rows; `categories` are positions of columns that hold some."""
    if is_texts(rows.table):
        return TextCandidates(rows.table, rows.groups, k, rows.weight)
    reader = judge.judge if isinstance(judge, OfTable) else StatementJudge(rows.table, columns)
    of_table = categories if len(columns) == rows.table.width else []
    return TableCandidates(rows.table, rows.groups, k, reader, rows.weight, of_table)


def named_groups(
    table: Table,
    groups: np.ndarray,
    clusters: list[Label],
    generator: np.random.RandomState,
    *,
    columns: Sequence[str],
    words: int = 2,
    excluded: Collection[str] = (),
) -> ClusterNames:
    """Name groups of rows as :func:`name_clusters` names clusters.

    Parameters
    ----------
    table : Table [N, ...]
        A table or texts.
    groups : ndarray [N] of int
        Positions of the groups of the rows; -1 for rows that are in none.
    clusters : list of K labels
        What the groups are called.
    generator : RandomState
    columns : sequence of str
        Names of the columns.
    words : int
        Largest number of statements of a name.
    excluded : collection of str
        Statements that no name may have.
    """
    judge = as_judge(None, table, len(clusters), columns)
    chosen_on, tested_on = halves(groups, len(clusters), generator)
    rows = _Rows(table, groups, None)
    choosing = rows.take(chosen_on)
    candidates = _candidates(choosing, len(clusters), judge, columns)
    names = _chosen(candidates, choosing, judge, words, generator, excluded)
    return _tested(clusters, names, judge, choosing, rows.take(tested_on), table)


def _chosen(
    candidates: Candidates,
    rows: _Rows,
    judge: Judge,
    words: int,
    generator: np.random.RandomState,
    excluded: Collection[str] = (),
) -> list[tuple[str, ...]]:
    """Choose a name for every cluster among candidates; clusters without any have an empty name."""
    names = [of_cluster or [("",)] for of_cluster in all_names(candidates, words, excluded)]
    # at once, as most statements are candidates of several clusters
    of_all = judge.scores([name for of_cluster in names for name in of_cluster], rows.table)
    ends = np.cumsum([len(of_cluster) for of_cluster in names])
    scores = np.split(of_all, ends[:-1], axis=1)
    chosen = Search(scores, rows.groups, rows.weight).best(generator)
    return [of_cluster[i] for of_cluster, i in zip(names, chosen, strict=True)]


def _tested(
    clusters: list[Label],
    names: list[tuple[str, ...]],
    judge: Judge,
    choosing: _Rows,
    testing: _Rows,
    table: Table,
) -> ClusterNames:
    """Test names on rows that they were not chosen on."""
    k = len(clusters)
    test = blind_test(judge.scores(names, testing.table), testing.groups, testing.weight)
    ceiling = np.full(k, np.nan)
    if judge.has_space:
        known = judge.space(choosing.table)
        ceiling = ceilings(known, choosing.groups, judge.space(testing.table), testing.groups, k)
    second = second_accuracy(names, judge, testing.table, testing.groups, testing.weight, table)
    return ClusterNames(clusters, [tuple(filter(None, name)) for name in names], test, ceiling, second)


def second_accuracy(
    names: list[tuple[str, ...]],
    judge: Judge,
    rows: Table,
    groups: np.ndarray,
    weight: np.ndarray | None,
    table: Table,
) -> np.ndarray | None:
    """Sort texts by the words of the names alone, and return the accuracies [K]; None for other rows.

    `table` are all texts, whose words are weighted by their rarity.
    """
    is_second = isinstance(judge, OfTexts) and isinstance(judge.judge, WordJudge)
    if not is_texts(rows) or is_second:
        return None
    words = OfTexts(WordJudge(as_texts(table.data)))
    return blind_test(words.scores(names, rows), groups, weight).accuracy
