"""Contents of a report as plain values, from which the page, the text, the table and the JSON file are made."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Kind = Literal["table", "images", "locations", "texts"]


@dataclass
class Figure:
    """A key figure in the verdict.

    Attributes
    ----------
    key : str
        Identifier: ``fidelity``, ``price``, ``auc``, ``stability`` ...
    label : str
        Label on the page.
    value : float
        The number itself.
    text : str
        The number as printed, with its unit: ``94.2%``.
    help : str
        Sentence that explains what the figure measures.
    """

    key: str
    label: str
    value: float
    text: str
    help: str


@dataclass
class Caution:
    """A warning about the results, in one sentence, and the clusters that it concerns."""

    text: str
    clusters: list[int] = field(default_factory=list)


@dataclass
class ColumnEntry:
    """A column, a channel or a term.

    Attributes
    ----------
    name : str
        Name of the column.
    kind : {"number", "category"}
        Type of its values.
    mean, spread : float or None
        Mean and standard deviation of a numeric column. A standardised value is ``(x - mean) / spread``.
    unit : str
        Unit of a numeric column.
    """

    name: str
    kind: Literal["number", "category"] = "number"
    mean: float | None = None
    spread: float | None = None
    unit: str = ""


@dataclass
class Statement:
    """A column that speaks for or against a cluster, and its distribution inside and outside the cluster.

    Attributes
    ----------
    column : int
        Position of the column.
    relevance : float
        Mean relevance over the points of the cluster, as a share of that of all columns (the sum of its absolute
        values), -1 to 1. A negative value speaks against
        the cluster.
    text : str
        The statement in words: ``high proline``, ``workclass is Private``.
    bins : list of float or str
        Edges of the histogram, one more than there are bins, or one category per bin.
    inside, outside : list of float
        Share of the points inside and outside the cluster in each bin; empty if there is no distribution to show.
    inside_typical, outside_typical : float, str or None
        Mean, or fraction of the category or of the texts with the term, inside and outside the cluster.
    effect : str
        Effect size of the cluster against all other points: ``d = 1.8`` (Cohen) or ``V = 0.41`` (Cramér).
    """

    column: int
    relevance: float
    text: str
    bins: list[Any] = field(default_factory=list)
    inside: list[float] = field(default_factory=list)
    outside: list[float] = field(default_factory=list)
    inside_typical: Any = None
    outside_typical: Any = None
    effect: str = ""


@dataclass
class RuleText:
    """A rule of a cluster: text, number of matching points, coverage, precision, and leaf of the tree.

    `with_noise` is the precision if points of noise are counted, too; None if none of them match.
    """

    text: str
    samples: int | float
    coverage: float
    precision: float
    node: int
    with_noise: float | None = None


@dataclass
class Item:
    """A prototype or a borderline case.

    Attributes
    ----------
    row : int
        Row number in the data, from 0.
    name : str
        File name, index in the data frame, or row number.
    logit : float
        Logit of its cluster.
    rival : int
        Position of the nearest other cluster; -1 for a whole photo.
    values : list of (column, text, relevance)
        Most relevant columns of a table row, with the printed value and the relevance as a share of that of all
        columns.
    picture, heatmap : str or None
        WebP data URIs of a photo, and of the photo overlaid with its heatmap.
    text : str or None
        Beginning of a text.
    marks : list of (start, end, relevance)
        Characters of the text to highlight, and their relevance relative to the largest, -1 to 1.
    """

    row: int
    name: str
    logit: float
    rival: int
    values: list[tuple[int, str, float]] = field(default_factory=list)
    picture: str | None = None
    heatmap: str | None = None
    text: str | None = None
    marks: list[tuple[int, int, float]] = field(default_factory=list)


@dataclass
class Card:
    """A cluster, or noise, which has no rules.

    Attributes
    ----------
    label, name : str
        Label of the cluster (-1: noise), and its name: as given by the user, or made from the two strongest
        statements.
    size : int or float
        Number of points, or the sum of their weights.
    share : float
        Share of all points, 0 to 1.
    color : str
        Colour as ``#rrggbb``.
    rules : list of RuleText
        Rules of the tree that lead to the cluster, by decreasing coverage.
    statements : list of Statement
        Most relevant columns, by decreasing relevance.
    prototypes, borderline : list of Item
        Points with the largest and with the smallest logit.
    fidelity : float or None
        Share of the points of the cluster that the tree assigns to the same cluster, 0 to 1.
    agreement : float or None
        Rank correlation of the relevance of the columns in the tree and in the network, -1 to 1.
    nearest : int or None
        Position of the cluster that is most often the nearest other cluster of its points.
    heatmap : str or None
        Heatmap of the cluster as a WebP data URI, for clusters of locations in one photo.
    rivals : list of (cluster, number)
        Of noise, the number of points by the position of the nearest cluster, in decreasing order. It is estimated
        if relevance is that of a sample. Empty for clusters.
    """

    label: str
    name: str
    size: int | float
    share: float
    color: str
    rules: list[RuleText] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    prototypes: list[Item] = field(default_factory=list)
    borderline: list[Item] = field(default_factory=list)
    fidelity: float | None = None
    agreement: float | None = None
    nearest: int | None = None
    heatmap: str | None = None
    rivals: list[tuple[int, int | float]] = field(default_factory=list)


@dataclass
class Pair:
    """Comparison of two clusters, `a` and `b`.

    Attributes
    ----------
    a, b : int
        Positions of the two clusters, ``a < b``.
    relevance : list of (column, share, typical of a, typical of b)
        Columns that separate the two clusters, by decreasing size of their share of the total relevance, which is
        negative for columns in which the clusters are similar. The typical value in each cluster is the mean, or
        the share of the category or of the texts with the term that tells a from b.
    rules : list of (cluster, text)
        Rules of a small tree that separates the two clusters; none if it was left out.
    accuracy : float or None
        Share of the points of the two clusters that the tree assigns to the right one, 0 to 1.
    """

    a: int
    b: int
    relevance: list[tuple[int, float, str, str]]
    rules: list[tuple[int, str]] = field(default_factory=list)
    accuracy: float | None = None


@dataclass
class Moved:
    """The rows that moved from one cluster to another since an earlier version of the data.

    Attributes
    ----------
    old, new : int
        Positions of the two clusters; -1: noise.
    rows, usual : int
        Number of rows, and number of those whose contrast changed no more than that of rows that stayed.
    share : float
        Share of the old cluster's rows, 0 to 1.
    columns : list of (name, share, text)
        Most relevant columns, their shares of the changes of all columns, and typical values before and after.
    rule : str or None
        Rule that finds these rows before they move, among those of the old cluster.
    precision, coverage : float or None
        Measures of the rule on held-out rows, 0 to 1.
    typical : list of str
        The rows that moved farthest.
    """

    old: int
    new: int
    rows: int | float
    usual: int | float
    share: float
    columns: list[tuple[str, float, str]]
    rule: str | None = None
    precision: float | None = None
    coverage: float | None = None
    typical: list[str] = field(default_factory=list)


@dataclass
class TreeNode:
    """A node of the tree, in preorder.

    Attributes
    ----------
    parent, left, right : int
        Positions of the parent and of the two children; -1 if there is none.
    text : str
        Condition of the points that go to `left`; empty for a leaf.
    cluster : int
        Position of the cluster of a leaf, or of the most frequent cluster in an inner node.
    samples, mistakes : int
        Number of points in the node, and number of those that belong to other clusters.
    """

    parent: int
    left: int
    right: int
    text: str
    cluster: int
    samples: int | float
    mistakes: int | float


@dataclass
class Change:
    """Counterfactual: the smallest change that moves a point to another cluster.

    Attributes
    ----------
    cluster : int
        Position of the other cluster; -1: noise.
    distance : float
        Size of the change, in standard deviations of the columns.
    values : list of (column, text)
        Changed columns and their new values as printed.
    """

    cluster: int
    distance: float
    values: list[tuple[int, str]]


@dataclass
class PointMap:
    """A sample of the points, for the map and for the details of single points.

    Attributes
    ----------
    rows : list of int
        Row numbers in the data.
    names : list of str or None
        Names of the points; None if they have only row numbers.
    x, y : list of int
        Coordinates on the map, 0 to 1000, from the left and from the top.
    cluster, rival, leaf : list of int
        Positions of the cluster (-1: noise), of the nearest other cluster, and of the leaf (-1: none).
    logit : list of float
        Logit of the cluster, or of noise.
    values : list of columns, each a list of values
        Values as printed; empty if the inputs have no columns.
    relevance : list of columns, each a list of float
        Relevance of each column as a share of the point's ``total``.
    total : list of float
        Sum of the absolute relevance of all columns.
    changes : list of Change or None
        Counterfactual of each point, if one was found.
    axes : str
        Description of the projection: ``PCA: 36% and 19% of the variance``.
    picture : str
        Map as an inline SVG or a WebP data URI, for readers without JavaScript.
    """

    rows: list[int]
    names: list[str] | None
    x: list[int]
    y: list[int]
    cluster: list[int]
    rival: list[int]
    leaf: list[int]
    logit: list[float]
    values: list[list[Any]]
    relevance: list[list[float]]
    total: list[float]
    changes: list[Change | None]
    axes: str
    picture: str


@dataclass
class Curve:
    """A curve: pixel-flipping of one method, or the cost of trees against their number of leaves."""

    name: str
    x: list[float]
    y: list[float]
    text: str = ""


@dataclass
class Trust:
    """Evidence for the quality of the explanations and of the clustering.

    Attributes
    ----------
    flipping : list of Curve
        Share of points in their own cluster against the share of revealed columns; the curve of NEON comes first.
    cost : list of Curve
        Cost of trees divided by that of the clustering, against their number of leaves.
    seeds : list of float
        Adjusted Rand index between the clustering and each refit.
    disagreements : list of Item
        Points that the tree assigns to another cluster.
    notes : list of str
        Further remarks.
    """

    flipping: list[Curve] = field(default_factory=list)
    cost: list[Curve] = field(default_factory=list)
    seeds: list[float] = field(default_factory=list)
    disagreements: list[Item] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass
class Reproduce:
    """Versions and parameters as (name, value), and code as (title, language, source)."""

    versions: list[tuple[str, str]]
    parameters: list[tuple[str, str]]
    code: list[tuple[str, str, str]]


def rows_shown(cards: list[Card], disagreements: list[Item]) -> set[int]:
    """Row numbers of the points that the page shows in tables, as photos or as texts."""
    groups = [disagreements, *(card.prototypes + card.borderline for card in cards)]
    return {item.row for items in groups for item in items}


@dataclass
class Contents:
    """Contents of a report.

    Attributes
    ----------
    title : str
        Title of the report.
    kind : {"table", "images", "locations", "texts"}
    what : str
        Description of the data and of the clusterer.
    n, k, noise : int
        Number of points, of clusters, and of points that are noise; with weights, the sums of the weights.
    verdict : str
        The result in one or two sentences.
    figures : list of Figure
        Key figures.
    warnings : list of Caution
        Warnings about the results.
    notes : list of str
        Remarks on how the data were treated, such as missing values that were filled, or sampling.
    columns : list of Column
        The columns that are shown.
    cards : list of Card
        One card per cluster and, last, one of noise if it has an output of its own.
    pairs : list of Pair
        Comparisons of two clusters.
    tree : list of TreeNode
        Nodes of the tree in preorder.
    points : PointMap
        Sample of the points.
    trust : Trust
        Evidence for the quality of the results.
    reproduce : Reproduce
        Versions, parameters and code.
    photo : str or None
        First photo as a WebP data URI, for clusters of locations.
    regions : str or None
        That photo overlaid with the colours of its clusters, as a WebP data URI.
    pair_notes : list of str
        Remarks on what the comparisons of clusters leave out.
    moves : list of Moved
        Moves between clusters since an earlier version of the data.
    moved : str
        Number of rows that moved, and rows unlike those of their cluster, in words; "" without an earlier version.
    concepts : list of (str, str)
        Names of clusters, and pictures of their concepts as WebP data URIs.
    created : str
        Date and time, ISO 8601.
    rows : int or None
        Number of rows whose weights the numbers of points are sums of; None without weights.
    """

    title: str
    kind: Kind
    what: str
    n: int | float
    k: int
    noise: int | float
    verdict: str
    figures: list[Figure]
    warnings: list[Caution]
    notes: list[str]
    columns: list[ColumnEntry]
    cards: list[Card]
    pairs: list[Pair]
    tree: list[TreeNode]
    points: PointMap
    trust: Trust
    reproduce: Reproduce
    created: str
    photo: str | None = None
    regions: str | None = None
    pair_notes: list[str] = field(default_factory=list)
    moves: list[Moved] = field(default_factory=list)
    moved: str = ""
    concepts: list[tuple[str, str]] = field(default_factory=list)
    rows: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the contents as plain values for JSON, with the version of the format."""
        values = asdict(self)
        if self.rows is None:
            del values["rows"]
        return {"format": "neonxc.report", "version": 1, **values}
