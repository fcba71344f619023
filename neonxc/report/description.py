"""What is true of a clustering, as plain values: the result of :func:`neonxc.describe`.

The page, the text, the table and the JSON file of a report are made from it, and compute nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd
from torch import Tensor

from neonxc.common.locales import POINT, Marks, printed_like
from neonxc.common.numbers import percent, text
from neonxc.common.result import Result

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from PIL.Image import Image

    from neonxc.attribution.moved_rows import Moves
    from neonxc.evaluation.clusterings_compared import ClusteringComparison
    from neonxc.hierarchy.result import Layers
    from neonxc.network import NeuralizedClustering
    from neonxc.trees.estimator import TreeExplainer


@dataclass
class KeyFigure:
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
    is_main : bool
        Whether it belongs on the first screen.
    """

    key: str
    label: str
    value: float
    text: str
    help: str
    is_main: bool = False


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
    n_digits : int
        Number of digits before the decimal mark, from which on numbers have marks between thousands.
    is_sparse : bool
        Whether its values are counts, or the weights of terms, most of which are 0.
    """

    name: str
    kind: str = "number"
    mean: float | None = None
    spread: float | None = None
    unit: str = ""
    n_digits: int = POINT.n_digits
    is_sparse: bool = False


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
    bins: list[float] | list[str] = field(default_factory=list)
    inside: list[float] = field(default_factory=list)
    outside: list[float] = field(default_factory=list)
    inside_typical: str | float | None = None
    outside_typical: str | float | None = None
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
class Example:
    """A typical or a borderline input of a cluster, or one that the tree assigns to another cluster.

    Attributes
    ----------
    row : int
        Row number in the data, from 0.
    name : str
        File name, index in the data frame, or row number.
    logit : float
        Logit of its cluster.
    competitor : int
        Position of the cluster with the next largest logit; -1 for a whole photo.
    values : list of (column, text, relevance)
        Most relevant columns of a table row, with the printed value and the relevance as a share of that of all
        columns.
    photo : Tensor [3, H, W] or None
        A photo, with values from 0 to 1.
    heatmap : Tensor [H, W] or None
        Relevance of its pixels.
    text : str or None
        Beginning of a text.
    marks : list of (start, end, relevance)
        Characters of the text to highlight, and their relevance relative to the largest, -1 to 1.
    """

    row: int
    name: str
    logit: float
    competitor: int
    values: list[tuple[int, str, float]] = field(default_factory=list)
    photo: Tensor | None = None
    heatmap: Tensor | None = None
    text: str | None = None
    marks: list[tuple[int, int, float]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name; the photo, alone and under its heatmap, are WebP data URIs."""
        values = _fields(self, ("photo", "heatmap"))
        values |= {"photo": None, "heatmap": None}
        if self.photo is not None and self.heatmap is not None:
            from neonxc.report.pictures import overlaid, webp  # loads Matplotlib

            values["photo"] = webp(self.photo)
            values["heatmap"] = webp(overlaid(self.photo, self.heatmap))
        return values


@dataclass
class ClusterDescription:
    """A cluster, or noise, which has no rules.

    Attributes
    ----------
    label, name : str
        Label of the cluster (-1: noise), and its name: as given by the user, or chosen among statements such that
        rows that are sorted by the names alone come to their own clusters; see :func:`neonxc.name_clusters`.
    title : str
        The name and, if it did not pass the blind test, with which cluster it is confused: ``"high hue (confused
        with 2)"``.
    size : int or float
        Number of points, or the sum of their weights.
    share : float
        Share of all points, 0 to 1.
    rules : list of RuleText
        Rules of the tree that lead to the cluster, by decreasing coverage.
    statements : list of Statement
        Most relevant columns, by decreasing relevance.
    prototypes, borderline : list of Example
        Typical points, and those with the smallest logit.
    fidelity : float or None
        Share of the points of the cluster that the tree assigns to the same cluster, 0 to 1.
    agreement : float or None
        Rank correlation of the relevance of the columns in the tree and in the network, -1 to 1.
    nearest : int or None
        Position of the cluster that most often has the next largest logit at its points.
    near : list of (cluster, number)
        Of noise, the number of points by the position of the nearest cluster, in decreasing order. It is estimated
        if relevance is that of a sample. Empty for clusters.
    """

    label: str
    name: str
    title: str
    size: int | float
    share: float
    rules: list[RuleText] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    prototypes: list[Example] = field(default_factory=list)
    borderline: list[Example] = field(default_factory=list)
    fidelity: float | None = None
    agreement: float | None = None
    nearest: int | None = None
    near: list[tuple[int, int | float]] = field(default_factory=list)

    @property
    def is_noise(self) -> bool:
        """Whether these are the points of noise."""
        return bool(self.near)


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
    """

    a: int
    b: int
    relevance: list[tuple[int, float, str, str]]


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
    cluster, competitor, leaf : list of int
        Positions of the cluster (-1: noise), of the cluster with the next largest logit, and of the leaf (-1:
        none).
    logit : list of float
        Logit of the cluster, or of noise.
    values : list of columns, each a list of values
        Values as printed; empty if the inputs have no columns.
    relevance : list of columns, each a list of float
        Relevance of each column as a share of the point's ``total``.
    total : list of float
        Sum of the absolute relevance of all columns.
    residual : list of float or None
        What the relevance of all columns lacks to the logit for mixtures, kernels and surrogates
        (:meth:`neonxc.NEON.residual`); None if it lacks nothing.
    changes : list of Change or None
        Counterfactual of each point, if one was searched and found.
    axes : str
        Description of the projection: ``PCA: 36% and 19% of the variance``.
    """

    rows: list[int]
    names: list[str] | None
    x: list[int]
    y: list[int]
    cluster: list[int]
    competitor: list[int]
    leaf: list[int]
    logit: list[float]
    values: list[list[float | str | None]]
    relevance: list[list[float]]
    total: list[float]
    residual: list[float] | None
    changes: list[Change | None]
    axes: str

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name, without a residual if there is none."""
        values = _fields(self)
        if self.residual is None:
            del values["residual"]
        return values


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
    disagreements : list of Example
        Points that the tree assigns to another cluster.
    reality : list of str
        Whether the clusters are more than one cloud would have, and which of them are slices of one, in sentences.
    names : list of str
        Whether the names of clusters hold on held-out points that are sorted by them alone, in sentences; empty if
        the user gave names, and for images.
    comparisons : list of str
        Whether a method is better than NEON by pixel-flipping, in one sentence for each measure.
    """

    flipping: list[Curve] = field(default_factory=list)
    cost: list[Curve] = field(default_factory=list)
    seeds: list[float] = field(default_factory=list)
    disagreements: list[Example] = field(default_factory=list)
    reality: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    comparisons: list[str] = field(default_factory=list)


@dataclass
class Reproduce:
    """Versions and parameters as (name, value), and code as (title, language, source)."""

    versions: list[tuple[str, str]]
    parameters: list[tuple[str, str]]
    code: list[tuple[str, str, str]]


@dataclass(frozen=True, repr=False)
class Description(Result):
    """What is true of a clustering, as returned by :func:`neonxc.describe`; ``print`` gives a summary.

    Attributes
    ----------
    title : str
        What is described: ``3 clusters``.
    kind : {"table", "images", "locations", "texts"}
    source : str
        Description of the data and of the clusterer.
    n, k, noise : int
        Number of points, of clusters, and of points that are noise; with weights, the sums of the weights.
    verdict : str
        The result in one or two sentences.
    figures : list of KeyFigure
        Key figures.
    warnings : list of Caution
        Warnings about the results.
    notes : list of str
        Remarks on how the data were treated, such as missing values that were filled, or sampling.
    columns : list of ColumnEntry
        The columns that are shown.
    n_columns : int
        Number of all columns.
    clusters : list of ClusterDescription
        One per cluster and, last, one of noise if it has an output of its own.
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
    created : str
        Date and time, ISO 8601.
    photo : Tensor [3, H, W] or None
        First photo, for clusters of locations.
    regions : Tensor [h, w] or None
        Position of the cluster of each of its locations; -1 for noise.
    pair_notes : list of str
        Remarks on what the comparisons of clusters leave out.
    moves : Moves or None
        Moves between clusters since an earlier version of the data.
    compared : ClusteringComparison or None
        What differs from another model of the same rows.
    layers : Layers or None
        Why clusters of several resolutions split.
    concepts : list of (str, Image)
        Names of clusters, and pictures of their concepts.
    rows : int or None
        Number of rows whose weights the numbers of points are sums of; None without weights.
    net : NeuralizedClustering or None
        Neural network equivalent to the clustering, or to the surrogate model of given labels.
    explainer : tree explainer or None
        The fitted tree.
    marks : Marks
        The marks with which numbers are printed.
    """

    OBJECTS: ClassVar = (
        "net",
        "explainer",
        "marks",
        "moves",
        "layers",
        "compared",
        "photo",
        "regions",
        "concepts",
    )
    """Attributes that JSON can't hold as they are."""

    title: str
    kind: str
    source: str
    n: int | float
    k: int
    noise: int | float
    verdict: str
    figures: list[KeyFigure]
    warnings: list[Caution]
    notes: list[str]
    columns: list[ColumnEntry]
    n_columns: int
    clusters: list[ClusterDescription]
    pairs: list[Pair]
    tree: list[TreeNode]
    points: PointMap
    trust: Trust
    reproduce: Reproduce
    created: str
    photo: Tensor | None = None
    regions: Tensor | None = None
    pair_notes: list[str] = field(default_factory=list)
    moves: Moves | None = None
    concepts: list[tuple[str, Image]] = field(default_factory=list)
    rows: int | None = None
    net: NeuralizedClustering | None = None
    explainer: TreeExplainer | None = None
    marks: Marks = POINT
    layers: Layers | None = None
    compared: ClusteringComparison | None = None

    def examples(self) -> list[Example]:
        """Return all points that are shown in tables, as photos or as texts."""
        shown = list(self.trust.disagreements)
        for cluster in self.clusters:
            shown += cluster.prototypes
            shown += cluster.borderline
        return shown

    def to_dict(self) -> dict[str, Any]:
        """Return the description as plain values for JSON, with the version of the format.

        The page of a report contains its ``columns``, ``pairs`` and ``points`` in the same form. Photos and other
        pictures are WebP data URIs.
        """
        values = _fields(self, self.OBJECTS)
        values |= {"photo": None, "regions": None, "concepts": []}
        values["moves"] = None if self.moves is None else self.moves.to_dict()
        if self.rows is None:
            del values["rows"]
        if self.layers is not None:
            values["layers"] = self.layers.to_dict()
        if self.compared is not None:
            values["compared"] = self.compared.to_dict()
        if self.photo is not None and self.regions is not None:
            from neonxc.report.pictures import painted, webp  # loads Matplotlib

            values["photo"] = webp(self.photo)
            values["regions"] = webp(painted(self.photo, self.regions, self.k))
        if self.concepts:
            from neonxc.report.pictures import as_uri  # as above

            values["concepts"] = [[name, as_uri(picture)] for name, picture in self.concepts]
        return {"format": "neonxc.report", "version": 2, **values}

    def to_frame(self) -> pd.DataFrame:
        """Return one row per cluster, and one of noise (-1): name, size, best rule, statements, prototypes."""
        rows = []
        for cluster in self.clusters:
            rule = cluster.rules[0] if cluster.rules else None
            reasons = [statement.text for statement in cluster.statements if statement.relevance > 0]
            rows.append(
                {
                    "cluster": cluster.label,
                    "name": cluster.name,
                    "size": cluster.size,
                    "share": cluster.share,
                    "rule": None if rule is None else rule.text,
                    "coverage": None if rule is None else rule.coverage,
                    "precision": None if rule is None else rule.precision,
                    "fidelity": cluster.fidelity,
                    "agreement": cluster.agreement,
                    "speaks for it": ", ".join(reasons),
                    "prototypes": [example.row for example in cluster.prototypes],
                }
            )
        return pd.DataFrame(rows).set_index("cluster")

    def __str__(self) -> str:
        with printed_like(self.marks):
            return self._text()

    def _text(self) -> str:
        """Write the title, the verdict, and every cluster with its rules and statements."""
        lines = [self.title, self.verdict, ""]
        lines += [f"{figure.label}: {figure.text}" for figure in self.figures]
        lines += [*self.trust.reality, *self.trust.names]
        for warning in self.warnings:
            labels = ", ".join(self.clusters[cluster].label for cluster in warning.clusters)
            where = f" [{labels}]" if labels else ""
            lines.append(f"! {warning.text}{where}")
        for cluster in self.clusters:
            lines += ["", *self._lines(cluster)]
        return "\n".join(lines)

    def _lines(self, cluster: ClusterDescription) -> list[str]:
        """Describe a cluster: its size, then its examples, or its first rules and statements."""
        size = f"({text(cluster.size)}, {percent(cluster.share)})"
        if cluster.is_noise:
            near = [f"{self.clusters[k].label} ({text(number)})" for k, number in cluster.near]
            lines = [f"noise {size}", f"    points by nearest cluster: {', '.join(near)}"]
        else:
            lines = [f"cluster {cluster.label}: {cluster.title} {size}"]
        if self.kind in ("images", "locations"):  # whose channels have no meaning to readers
            return [*lines, "    " + ", ".join(example.name for example in cluster.prototypes)]
        for rule in cluster.rules[:2]:
            measures = f"coverage {percent(rule.coverage)}, precision {percent(rule.precision)}"
            if rule.with_noise is not None:
                measures += f", with noise {percent(rule.with_noise)}"
            lines.append(f"    {rule.text} ({measures})")
        statements = [f"{part.text} {percent(part.relevance, signed=True)}" for part in cluster.statements[:5]]
        return [*lines, "    " + ", ".join(statements)]


def _fields(value: DataclassInstance, without: Collection[str] = ()) -> dict[str, Any]:
    """Return the fields of a dataclass by name, as plain values."""
    names = [part.name for part in fields(value) if part.name not in without]
    return {name: plain(getattr(value, name)) for name in names}


def plain(value: object) -> Any:
    """Return lists and dictionaries in place of dataclasses and tuples, at any depth."""
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Example | PointMap):
        return value.to_dict()
    if is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    return value
