"""The function :func:`neonxc.name_clusters`: names that passed a blind test.

1. A third of the rows of every cluster is held out (:func:`neonxc.naming.blind_test.divide`).
2. On the others, names are chosen by the judge among candidates (:mod:`neonxc.naming.choice`), or asked from a
   namer (:mod:`neonxc.naming.evidence`).
3. On those that are held out they are tested (:mod:`neonxc.naming.blind_test`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from neonxc.common.arguments import check_whole
from neonxc.common.cluster_names import is_noise
from neonxc.common.types import ArrayLike, Label, RandomState, TableLike
from neonxc.data.inputs import as_array, as_texts
from neonxc.data.table import Table, is_texts
from neonxc.data.weights import weights_of
from neonxc.naming.blind_test import blind_test, ceilings, divide
from neonxc.naming.candidates import Candidates, TableCandidates, TextCandidates, all_names
from neonxc.naming.choice import Search
from neonxc.naming.cluster_names import ClusterNames
from neonxc.naming.judges import Judge, OfTable, UserJudge, as_judge
from neonxc.naming.statement_judge import StatementJudge
from neonxc.network import NeuralizedClustering, check_network

if TYPE_CHECKING:
    from neonxc.naming.evidence import Namer

MAX_SEARCHED = 30
"""Largest number of clusters whose names are chosen together, in 3 s; the time grows with its square."""


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

    Names are chosen on two thirds of the rows and tested on the others, by a judge who knows the names and no
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
        ``evidence.prompt()``. A name that does not pass on the first part is asked for once more, with the
        contrast to the cluster with which it is confused, and the one that sorts better is kept. Default: names
        are chosen by the judge among the strongest statements.
    judge : callable, optional
        ``judge(names, rows)`` returns scores [rows, names], the larger the better a name fits; NaN if it says
        nothing about a row. It gets names as a list of texts, and rows as X has them. Default:
        :class:`neonxc.evaluation.StatementJudge` of tables, and :class:`neonxc.evaluation.TextJudge` of texts.
    words : int
        Largest number of statements (of words, for texts) of a name that is chosen.
    random_state : int, RandomState or None
        Seed of the held-out rows and of the search.
    sample_weight : array-like [N], optional
        Weights >= 0 of the rows; a series goes by its index. A weight of 2 is a row twice in shares, quantiles and
        effects, but no evidence: the number of rows that standard errors go by is (sum w)^2 / sum w^2. Parts are
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
    More than 30 clusters are called by the strongest statements, which no judge chose.

    Examples
    --------
    >>> import neonxc
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import load_iris
    >>> X = load_iris(as_frame=True).data
    >>> net = neonxc.neuralize(KMeans(3, n_init=10, random_state=0).fit(X), X)
    >>> named = neonxc.name_clusters(net, X)
    >>> named.names[1]
    'low petal length (cm), rather high sepal width (cm)'
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

    if not is_readable(table) and (namer is None or judge is None):
        raise ValueError(
            f"name_clusters needs a table or texts, got inputs of shape {list(table.shape)}: for others pass both "
            "namer=, a function of the evidence, and judge=, a function of names and rows"
        )
    clusters, groups = _with_rows(net, labels)
    columns = [*net.inputs.units]
    has_columns = len(table.shape) == 2 and len(columns) == table.width
    categories = net.inputs.categories if has_columns else []
    return name_groups(
        clusters,
        Rows(table, groups, weight),
        columns,
        categories,
        namer=namer,
        judge=judge,
        words=words,
        generator=check_random_state(random_state),
    )


class Rows(NamedTuple):
    """Rows with their clusters."""

    table: Table
    groups: np.ndarray  # [n], positions of the clusters; -1 for none
    weight: np.ndarray | None = None  # [n]

    def take(self, rows: np.ndarray) -> Rows:
        """Select rows."""
        weight = None if self.weight is None else self.weight[rows]
        return Rows(self.table.take(rows), self.groups[rows], weight)


def name_groups(
    clusters: Sequence[Label],
    rows: Rows,
    columns: Sequence[str] | None = None,
    categories: Sequence[int] = (),
    *,
    namer: Namer | None = None,
    judge: UserJudge | None = None,
    words: int = 2,
    excluded: Collection[str] = (),
    generator: np.random.RandomState,
) -> ClusterNames:
    """Name the clusters of rows; arguments that are not explained are those of :func:`name_clusters`.

    Parameters
    ----------
    clusters : sequence of K labels
    rows : Rows
        Tables, texts, or others if there are both a namer and a judge.
    columns : sequence of str, optional
        Names of the columns of a table that has none.
    categories : sequence of int
        Positions of columns that hold categories, whatever their type.
    excluded : collection of str
        Statements that no chosen name may have.
    generator : RandomState
        Source of the held-out rows and of the search.
    """
    labels = [*clusters]
    k = len(labels)
    chosen_on, tested_on = divide(rows.groups, k, generator)
    sorting = as_judge(judge, rows.table, k, columns, rows.weight)
    choosing = rows.take(chosen_on)
    candidates = None
    if is_readable(rows.table):
        candidates = _candidates(choosing, k, sorting, columns, categories)
    if namer is None:
        assert candidates is not None
        names = _chosen(candidates, choosing, sorting, words, generator, excluded)
    else:
        from neonxc.naming.evidence import asked_names, evidence_of  # for a namer of the user alone

        sizes = np.bincount(rows.groups[rows.groups >= 0], minlength=k)
        space = sorting.space(choosing.table) if sorting.has_space else None
        evidence = evidence_of(labels, sizes, choosing.table, choosing.groups, chosen_on, candidates, space)
        names = asked_names(
            namer, evidence, sorting, choosing.table, choosing.groups, candidates, choosing.weight, generator
        )
    return _tested(labels, names, sorting, choosing, rows.take(tested_on), rows.table)


def is_readable(table: Table) -> bool:
    """Whether names can be statements about columns, or words of texts."""
    return is_texts(table) or len(table.shape) == 2


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
    rows: Rows, k: int, judge: Judge, columns: Sequence[str] | None, categories: Sequence[int]
) -> Candidates:
    """Collect statements about the clusters of rows."""
    if is_texts(rows.table):
        return TextCandidates(rows.table, rows.groups, k, rows.weight)
    reader = judge.judge if isinstance(judge, OfTable) else StatementJudge(rows.table, columns)
    return TableCandidates(rows.table, rows.groups, k, reader, rows.weight, categories)


def _chosen(
    candidates: Candidates,
    rows: Rows,
    judge: Judge,
    words: int,
    generator: np.random.RandomState,
    excluded: Collection[str] = (),
) -> list[tuple[str, ...]]:
    """Choose a name for every cluster among candidates; clusters without any have an empty name.

    More than MAX_SEARCHED clusters have the statements that tell each from all others most.
    """
    if candidates.k > MAX_SEARCHED:
        names_of_clusters = []
        for k in range(candidates.k):
            strongest = candidates.against_others(k, words + len(excluded))
            allowed = [statement.words for statement in strongest if statement.words not in excluded]
            names_of_clusters.append(tuple(allowed[:words]) or ("",))
        return names_of_clusters
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
    choosing: Rows,
    testing: Rows,
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
    if not is_texts(rows):
        return None
    from neonxc.naming.text_judge import OfTexts, WordJudge  # loads the vectorizer of texts

    is_second = isinstance(judge, OfTexts) and isinstance(judge.judge, WordJudge)
    if is_second:
        return None
    words = OfTexts(WordJudge(as_texts(table.data)))
    return blind_test(words.scores(names, rows), groups, weight).accuracy
