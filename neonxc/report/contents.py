"""What a report holds, as plain values: the page, the text, the table and the dictionary are all made of these."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Kind = Literal["table", "images", "locations", "texts"]


@dataclass
class Figure:
    """A number that the verdict stands on.

    Attributes
    ----------
    key : str
        ``fidelity``, ``price``, ``auc``, ``stability`` ...
    label : str
    value : float
    text : str
        The number as it is printed, with its unit: ``94.2%``.
    help : str
        What it measures, and what would be good, in a sentence.
    """

    key: str
    label: str
    value: float
    text: str
    help: str


@dataclass
class Caution:
    """Something to know before the report is believed, in a sentence, and the clusters it is about."""

    text: str
    clusters: list[int] = field(default_factory=list)


@dataclass
class Column:
    """A column, a channel or a term.

    Attributes
    ----------
    name : str
    kind : {"number", "category"}
    mean, spread : float or None
        Of a number, over all points; its standardised value is ``(x - mean) / spread``.
    unit : str
    """

    name: str
    kind: Literal["number", "category"] = "number"
    mean: float | None = None
    spread: float | None = None
    unit: str = ""


@dataclass
class Statement:
    """What one column says for (or against) a cluster, beside how it is distributed inside and outside.

    Attributes
    ----------
    column : int
    relevance : float
        Mean relevance over the cluster's points, as a share of their mean logit; negative speaks against.
    text : str
        In words: ``high proline``, ``workclass is Private``.
    bins : list of float or str
        Edges of a histogram (one more than shares), or categories (as many as shares).
    inside, outside : list of float
        Share of the points inside and outside the cluster in each bin; empty where there are no columns to show.
    inside_typical, outside_typical : float, str or None
        Median, or the most frequent category.
    """

    column: int
    relevance: float
    text: str
    bins: list[Any] = field(default_factory=list)
    inside: list[float] = field(default_factory=list)
    outside: list[float] = field(default_factory=list)
    inside_typical: Any = None
    outside_typical: Any = None


@dataclass
class RuleText:
    """A rule of a cluster: text, and the shares 0 to 1 that measure it."""

    text: str
    samples: int
    coverage: float
    precision: float
    node: int


@dataclass
class Item:
    """A prototype or a borderline case.

    Attributes
    ----------
    row : int
        Its number in the data, from 0.
    name : str
        File name, index of the frame, or the row number.
    logit : float
    rival : int
        Its nearest other cluster; -1 for a whole photo.
    values : list of (column, text, relevance)
        Of a table: the columns that matter, with the value as it is printed.
    picture, heatmap : str or None
        WebP data URIs of a photo, and of the photo under its heatmap.
    text, marks : str or None, list of (start, end, relevance)
        Of a text, and the characters to highlight; relevance relative to the greatest, -1 to 1.
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
    """A cluster.

    Attributes
    ----------
    label, name : str
        The clusterer's label, and a name from the two strongest statements (or the caller's).
    size : int
    share : float
        Of all points.
    color : str
        ``#rrggbb``
    rules : list of RuleText
        The tree's, best coverage first.
    statements : list of Statement
        The columns that matter, greatest relevance first.
    prototypes, borderline : list of Item
    fidelity : float or None
        Share of the cluster's points that the tree gives the same cluster.
    agreement : float or None
        Rank correlation of what the tree and the attribution use, -1 to 1.
    nearest : int or None
        The cluster that is most often the rival.
    heatmap : str or None
        Of spatial clusters of one photo: the cluster's heatmap as a WebP data URI.
    """

    label: str
    name: str
    size: int
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


@dataclass
class Pair:
    """Cluster `a` against cluster `b`.

    Attributes
    ----------
    a, b : int
        Positions of two cards, ``a < b``.
    relevance : list of (column, share, typical of a, typical of b)
        What tells the two apart, in shares of the total, strongest first; negative where it makes them alike,
        and what is typical of either: the median, the most frequent category, or how many texts have a term.
    rules : list of (cluster, text)
        The smallest tree that tells the two apart.
    accuracy : float
        Share of the points of the two clusters that it gives the right one of them.
    """

    a: int
    b: int
    relevance: list[tuple[int, float, str, str]]
    rules: list[tuple[int, str]]
    accuracy: float


@dataclass
class TreeNode:
    """A node of the tree, in preorder.

    Attributes
    ----------
    parent, left, right : int
        -1 where there is none.
    text : str
        Of an inner node: what the points on the left meet.
    cluster : int
        Position of a leaf's card; of an inner node, that of the cluster most of its points belong to.
    samples, mistakes : int
    """

    parent: int
    left: int
    right: int
    text: str
    cluster: int
    samples: int
    mistakes: int


@dataclass
class Change:
    """The least change that moves a point to its nearest other cluster.

    Attributes
    ----------
    cluster : int
    distance : float
        In spreads of the columns.
    values : list of (column, text)
        New values, as they are printed.
    """

    cluster: int
    distance: float
    values: list[tuple[int, str]]


@dataclass
class Points:
    """A sample of the points, for the map and to be looked at one by one.

    Attributes
    ----------
    rows : list of int
        Their numbers in the data.
    names : list of str or None
        None: the row numbers.
    x, y : list of int
        Places on the map, 0 to 1000, from the left and from the top.
    cluster, rival, leaf : list of int
        Position of the card (-1: noise), of the nearest other cluster, and the tree's leaf (-1: no tree).
    logit : list of float
    values : list of columns, each a list of values
        As they are printed; empty where inputs are not columns.
    relevance : list of columns, each a list of float
        Of every column, as a share of the logit.
    changes : list of Change or None
    axes : str
        How the map was made: ``PCA: 36% and 19% of the variance``.
    picture : str
        The map as an inline SVG or a WebP data URI, for readers without JavaScript.
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
    changes: list[Change | None]
    axes: str
    picture: str


@dataclass
class Curve:
    """A curve: pixel-flipping of one method, or the tree's cost against its leaves."""

    name: str
    x: list[float]
    y: list[float]
    text: str = ""


@dataclass
class Trust:
    """Why to believe the rest.

    Attributes
    ----------
    flipping : list of Curve
        Share of points in their cluster against the share of columns known; ours first.
    cost : list of Curve
        Cost of trees over that of the clustering, against their number of leaves.
    seeds : list of float
        Adjusted Rand index of refits with the clustering.
    disagreements : list of Item
        Points where tree and network give different clusters.
    notes : list of str
    """

    flipping: list[Curve] = field(default_factory=list)
    cost: list[Curve] = field(default_factory=list)
    seeds: list[float] = field(default_factory=list)
    disagreements: list[Item] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass
class Reproduce:
    """Versions and parameters as (name, value), and code to run again: (title, language, source)."""

    versions: list[tuple[str, str]]
    parameters: list[tuple[str, str]]
    code: list[tuple[str, str, str]]


@dataclass
class Contents:
    """All of a report.

    Attributes
    ----------
    title : str
    kind : {"table", "images", "locations", "texts"}
    what : str
        What was clustered and how, in a sentence.
    n, k, noise : int
    verdict : str
        The result in one or two sentences.
    figures, warnings, notes
        Notes tell what was done to the data: values that were missing, points that were sampled.
    columns : list of Column
    cards : list of Card
    pairs : list of Pair
    tree : list of TreeNode
        Empty where the columns can't be cut.
    points : Points
    trust : Trust
    reproduce : Reproduce
    photo : str or None
        Of spatial clusters: the photo, and
    regions : str or None
        its map of clusters, as WebP data URIs.
    created : str
        Date and time, ISO 8601.
    """

    title: str
    kind: Kind
    what: str
    n: int
    k: int
    noise: int
    verdict: str
    figures: list[Figure]
    warnings: list[Caution]
    notes: list[str]
    columns: list[Column]
    cards: list[Card]
    pairs: list[Pair]
    tree: list[TreeNode]
    points: Points
    trust: Trust
    reproduce: Reproduce
    created: str
    photo: str | None = None
    regions: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, with a version."""
        return {"format": "neonxc.report", "version": 1, **asdict(self)}
