"""Drawings of a tree: what they say, that the DOT source is one, and that no text covers another."""

import re
import shutil
import subprocess
from math import inf

import numpy as np
import pandas as pd
import pytest
from hand_trees import counted
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PatchCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from refusals import refused
from sklearn.tree import DecisionTreeClassifier
from tree_witnesses import inner_nodes, rows_of

from neonxc.trees import CART, export_graphviz, export_text, plot_tree
from neonxc.trees.drawing.canvas import histograms

DRAWINGS = pytest.mark.parametrize("draw", [export_text, export_graphviz, plot_tree])


def iris(names=("petal width", "petal length")):
    counts = {1: {0: 50}, 3: {1: 49, 2: 5}, 4: {2: 45, 1: 1}}
    classes = ["setosa", "versicolor", "virginica"]
    return counted([(0, 0, 0.8), (2, 0, 1.75)], [0, 0, 0, 1, 2], counts, 2, names, classes)[0]


def shaped(seed, leaves, lean=0.5, names=None, clusters=None):
    """A tree of random shape; the more it leans, the deeper: 0 takes the shallowest leaf, 1 the deepest."""
    rng = np.random.default_rng(seed)
    splits = []
    ends = {0: 0}
    for i in range(leaves - 1):
        node = (max if rng.random() < lean else min)(ends, key=lambda end: (ends[end], rng.random()))
        depth = ends.pop(node) + 1
        splits.append((node, int(rng.integers(3)), float(rng.normal() * 10.0 ** rng.integers(-3, 5))))
        ends |= {2 * i + 1: depth, 2 * i + 2: depth}
    clusters = clusters or leaves
    label = rng.integers(0, clusters, 2 * leaves - 1).tolist()
    counts = {node: {c: int(rng.integers(0, 100)) for c in range(clusters)} for node in ends}
    return counted(splits, label, counts, names=names, classes=np.arange(clusters))[0]


def test_text():
    assert export_text(iris()) == (
        "|--- petal width ≤ 0.8: setosa (50 samples, 0 mistakes)\n"
        "|--- petal width > 0.8 (100 samples)\n"
        "|   |--- petal width ≤ 1.75: versicolor (54 samples, 5 mistakes)\n"
        "|   |--- petal width > 1.75: virginica (46 samples, 1 mistake)"
    )
    assert export_text(iris(None), class_names=["A", "B", "C"], precision=2, show_samples=False) == (
        "|--- x[0] ≤ 0.8: A\n|--- x[0] > 0.8\n|   |--- x[0] ≤ 1.8: B\n|   |--- x[0] > 1.8: C"
    )
    assert export_text(counted([], [0], {0: {0: 1}})[0]) == "cluster 0 (1 sample, 0 mistakes)"


def test_what_drawings_say():
    tree = iris()
    said_of = [
        ["petal width ≤ 0.8", "150 samples"],
        ["setosa", "50 samples", "0 mistakes"],
        ["petal width ≤ 1.75", "100 samples", "6 mistakes"],
        ["versicolor", "54 samples", "5 mistakes"],
        ["virginica", "46 samples", "1 mistake"],
    ]
    nodes, edges = parsed(export_graphviz(tree))
    assert [nodes[node][0] for node in range(5)] == said_of
    assert [nodes[node][1] for node in tree.leaves.tolist()] == ["#0072b2", "#e69f00", "#009e73"]
    assert edges == {(0, 1): ("yes", 2), (0, 2): ("no", 4), (2, 3): ("yes", 2.16), (2, 4): ("no", 1.84)}
    ax = plot_tree(tree)
    assert [text.replace("\N{NO-BREAK SPACE}", " ").splitlines() for text in said(ax)] == said_of
    assert [text.get_text() for text in texts_of(ax)[1][:-1]] == ["yes", "no"] * 2
    note = " ".join(ax.texts[-1].get_text().split())
    assert note.startswith("mistakes: at a leaf, samples of other clusters; at a")
    assert ax.collections[0].get_linewidths() == pytest.approx([2, 4, 2.16, 1.84])
    assert "penwidth=0.80" in export_graphviz(counted([(0, 0, 0.0)], [0, 0, 1], {})[0])


@DRAWINGS
def test_a_fitted_explainer_is_as_good_as_its_tree(draw):
    explainer = CART(2).fit(np.array([[0.0, 0], [0, 1], [4, 0], [4, 1]]), labels=[0, 0, 1, 1])
    one = draw(explainer)
    other = draw(explainer.tree_)
    assert one == other if isinstance(one, str) else said(one) == said(other)
    foreign = DecisionTreeClassifier().fit([[0], [1]], [0, 1])  # has a tree_, too
    for wrong, got in ((CART(2), "CART that is not fitted"), (None, "NoneType"), (foreign, "DecisionTree")):
        refused(f"tree needs a ThresholdTree or a fitted tree explainer, got {got}", draw, wrong, error=TypeError)


@DRAWINGS
def test_names(draw):
    drawn = draw(iris(), feature_names={"petal width": "w"}, class_names={"setosa": "small"})
    text = drawn if isinstance(drawn, str) else "\n".join(said(drawn))
    assert [part in text for part in ("w ≤", "petal width", "small", "virginica")] == [True, False, True, True]
    for message, names in (
        ("feature_names needs one name for each of the 2 features of the tree, got 1", {"feature_names": ["a"]}),
        ("class_names needs one name for each of the 3 .* of the tree, got 4", {"class_names": list("abcd")}),
        (r"feature_names names 'z', and the features are \['petal width', 'pet", {"feature_names": {"z": "a"}}),
        ("class_names names 7, and the labels are", {"class_names": {7: "a"}}),
    ):
        refused(message, draw, iris(), **names)


NODE = re.compile(r'    (\d+) \[label="((?:[^"\\]|\\.)*)"(?:, color="(#\w{6})", fillcolor="(#\w{6})")?\];')
EDGE = re.compile(r'    (\d+) -> (\d+) \[label=" (yes|no) ", penwidth=([\d.]+)\];')


def parsed(source):
    """Nodes {number: (lines, line colour, area colour)} and edges {(from, to): (answer, width)} of DOT source."""
    first, *lines, last = source.splitlines()
    assert (first, last) == ("digraph tree {", "}")
    nodes = {}
    edges = {}
    for line in lines[3:]:
        if match := NODE.fullmatch(line):
            parts = re.findall(r"((?:[^\\]|\\[^n])+)(?:\\n|$)", match[2])
            text = [re.sub(r"\\(.)", r"\1", part).replace("&amp;", "&") for part in parts]
            nodes[int(match[1])] = (text, match[3], match[4])
        else:
            match = EDGE.fullmatch(line)
            assert match, line
            edges[int(match[1]), int(match[2])] = (match[3], float(match[4]))
    return nodes, edges


NASTY = ['say "hi"', "back\\slash\\n", "<b>&lt;</b>"]


@given(seed=st.integers(0, 10**6), leaves=st.integers(1, 26), lean=st.floats(0, 1))
def test_graphviz_has_every_node_and_edge(seed, leaves, lean):
    tree = shaped(seed, leaves, lean, clusters=3)
    nodes, edges = parsed(export_graphviz(tree, NASTY, NASTY))
    assert sorted(nodes) == list(range(tree.n_nodes))
    for node, (lines, *_) in nodes.items():
        name = NASTY[tree.feature[node] if tree.feature[node] >= 0 else tree.label[node]]
        assert lines[0] == name or lines[0].startswith(name + " ≤ ")
    inner = inner_nodes(tree)
    expected = {(node, int(tree.left[node])): "yes" for node in inner}
    expected |= {(node, int(tree.right[node])): "no" for node in inner}
    assert {ends: answer for ends, (answer, _) in edges.items()} == expected


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_itself_reads_the_source():
    for tree in (shaped(0, 8, clusters=3), shaped(0, 1, clusters=3)):
        source = export_graphviz(tree, NASTY, NASTY)
        done = subprocess.run(["dot", "-Tplain"], input=source, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        assert sum(line.startswith("node ") for line in done.stdout.splitlines()) == tree.n_nodes


def drawn_boxes(ax):
    """The boxes of a drawing with a box for every node, with their colours, in data units; none for a list."""
    if any(text.get_text() == "rule" for text in ax.texts):
        return [], [], []
    found = ax.collections[-1]
    return [path.get_extents() for path in found.get_paths()], found.get_edgecolors(), found.get_facecolors()


def texts_of(ax):
    """The texts inside of every box, and all others."""
    boxes = drawn_boxes(ax)[0]
    others = []
    inside = [[] for _ in boxes]
    for text in ax.texts:
        place = [own for own, box in zip(inside, boxes, strict=True) if box.contains(*text.get_position())]
        (place[0] if place else others).append(text)
    return inside, others


def said(ax):
    return ["\n".join(text.get_text() for text in own) for own in texts_of(ax)[0]]


def assert_apart(ax):
    """Boxes and answers lie apart in the figure, the boxes in the axes as well, and texts inside of boxes."""
    canvas = FigureCanvasAgg(ax.figure)
    canvas.draw()
    inside, others = texts_of(ax)

    def sides(texts):
        return [text.get_window_extent(canvas.get_renderer()).get_points() for text in texts if text.get_text()]

    boxes = [np.sort(ax.transData.transform_bbox(box).get_points(), 0) for box in drawn_boxes(ax)[0]]
    for box, own in zip(boxes, inside, strict=True):
        assert all(((box - text) * [[-1], [1]] > 0).all() for text in sides(own))
        assert ((box - ax.bbox.get_points()) * [[1], [-1]] >= 0).all()
    low, high = np.array([*boxes, *sides(others)]).transpose(1, 0, 2)
    overlap = (low[:, None] < high[None]).all(-1) & (low[None] < high[:, None]).all(-1)
    np.testing.assert_array_equal(overlap, np.eye(len(low), dtype=bool))
    assert (low >= 0).all()
    assert (high <= ax.figure.get_size_inches() * ax.figure.dpi).all()


LONG = [
    "a",
    "mean_concave_points_of_the_worst_three",
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerk, m³ per day",
]


SHAPES = [(1, 0.0), (2, 0.0), (3, 1.0), (7, 0.0), (7, 0.7), (6, 0.6), (14, 0.6)]
TESTS = [((0.25, 1985.5),), ((-inf, 1.0), (123456.789, inf)), ((1e-7, 2e-7), (0.123456, 0.123457))]


@pytest.mark.parametrize(
    ("shape", "names"),
    [
        # by default, long names and none in turns
        pytest.param(shape, names, marks=[pytest.mark.slow] * ((i + j) % 2))
        for i, shape in enumerate([*SHAPES, "of intervals", "of intervals, deep", "without points"])
        for j, names in enumerate([None, LONG])
    ],
)
def test_no_box_covers_another_or_leaves_the_figure(shape, names):
    if shape in SHAPES:
        tree = shaped(shape[0], *shape, names)
    elif shape == "without points":
        tree = counted([(0, 0, 0.0)], [0, 0, 1], {})[0]
    else:
        splits = [((1 + ("deep" in shape)) * i, i % 3, TESTS[i % 3]) for i in range(6)]
        tree = counted(splits, [0] * 13, {}, names=names)[0]
    ax = plot_tree(tree)
    ax.figure.set_dpi(60 + 10 * tree.n_leaves)
    assert_apart(ax)


def test_where_a_tree_is_drawn(tmp_path):
    ax = plot_tree(iris(), feature_names=["$\\frac$", "y"], class_names=["$x", "_$", "^$$"])
    assert pyplot.gcf() is ax.figure
    assert said(ax)[0].startswith("$\\frac$")  # names are no formulas
    pyplot.savefig(tmp_path / "tree.png")
    assert np.ptp(pyplot.imread(tmp_path / "tree.png")[..., :3]) > 0.5  # is not blank
    before = pyplot.get_fignums()
    left, right = Figure(figsize=(9, 6)).subplots(1, 2)
    assert plot_tree(iris(), ax=left) is left
    assert_apart(left)
    assert_apart(plot_tree(shaped(5, 7, 0.5), ax=right))
    assert pyplot.get_fignums() == before


def test_parents_stand_midway_over_children_and_leaves_evenly():
    tree = shaped(4, 9, 0.3)
    x, y = np.mean([box.get_points() for box in drawn_boxes(plot_tree(tree))[0]], 1).T
    for node in inner_nodes(tree):
        left = int(tree.left[node])
        right = int(tree.right[node])
        assert x[node] == pytest.approx((x[left] + x[right]) / 2)
        assert y[left] == y[right] > y[node]  # the axis points downwards
    steps = np.diff(x[tree.leaves.numpy()])
    np.testing.assert_allclose(steps, steps[0])


def test_leaves_have_their_clusters_colours_paler_with_mistakes():
    counts = {1: {0: 10}, 3: {1: 10}, 4: {1: 5, 0: 5}}
    tree = counted([(0, 0, 0.0), (2, 0, 1.0)], [0, 0, 0, 1, 1], counts)[0]
    _, lines, faces = drawn_boxes(plot_tree(tree))
    nodes, _ = parsed(export_graphviz(tree))
    expected = [to_rgba(nodes[node][1]) for node in (1, 3, 4)]
    np.testing.assert_allclose(lines[[1, 3, 4]], expected, atol=0.01)
    assert expected[0] != expected[1] == expected[2]
    assert tuple(faces[0]) == (1, 1, 1, 1)
    assert (faces[4] >= faces[3]).all()
    assert faces[4].sum() > faces[3].sum() + 0.1


# --- histograms ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [False, True])
def test_histograms_count_the_points_at_a_test_by_cluster(whole):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 9, (200, 3)).astype(float) if whole else rng.normal(size=(200, 3))
    tree = CART(3, max_leaves=6).fit(X, labels=rng.integers(0, 3, 200)).tree_
    found = histograms(tree, X)
    own = tree.predict(X)
    rows = rows_of(tree, X)
    assert sorted(found) == inner_nodes(tree)
    for node, one in found.items():
        bound = tree.threshold[node].item()
        assert one.bounds == [bound]
        assert any(np.isclose(one.edges, bound, atol=1e-12))
        assert one.counts.sum(0).tolist() == np.bincount(own[rows[node]], minlength=3).tolist()
        assert one.counts[one.edges[1:] <= bound + 1e-9].sum() == len(rows[int(tree.left[node])])


@pytest.mark.parametrize(
    ("points", "bound"),
    [
        ([1.0, 2.0, 2.0, 2.5, 7.25], 2.0),  # at the bound, on its left
        ([2.0, 3.0, 3.0, 4.0], 3.0),
        ([0.5, 0.5], 0.5),
        ([-3.0, 1.5], -7.0),  # all on the right
        ([1e17, 1e17 + 16], 1e17),  # neighbors in float64
        ([1e20, 1e20], 1e20),
        ([0.0, 5e-324], 0.0),
    ],
)
def test_the_bins_left_of_a_bound_hold_the_points_that_go_left(points, bound):
    tree = counted([(0, 0, bound)], [0, 0, 1], {}, features=1)[0]
    chart = histograms(tree, np.array(points)[:, None])[0]
    assert (np.diff(chart.edges) > 0).all()
    assert chart.edges[0] <= min(points)
    assert chart.edges[-1] >= max(points)
    n_left = sum(point <= bound for point in points)
    assert chart.counts[chart.edges[1:] <= bound].sum(0).tolist() == [n_left, 0]
    assert chart.counts[chart.edges[:-1] >= bound].sum(0).tolist() == [0, len(points) - n_left]


def test_histograms_are_drawn_in_boxes():
    frame = pd.DataFrame({"age": [20, 30, None, 50, 60, 70], "work": ["a", "b", "a", "c", None, "c"]})
    explainer = CART(3).fit(frame, labels=[0, 0, 0, 1, 2, 1])
    ax = plot_tree(explainer, X=frame)
    assert_apart(ax)
    charts = [own.get_datalim(ax.transData) for own in ax.collections if isinstance(own, PatchCollection)][:-1]
    boxes, _, _ = drawn_boxes(ax)
    within = [[box.contains(*chart.min) and box.contains(*chart.max) for chart in charts] for box in boxes]
    assert [sum(own) for own in within] == (explainer.tree_.feature >= 0).tolist()
    X = np.random.default_rng(0).normal(size=(90, 2))
    tree = CART(30).fit(X, labels=np.arange(90) % 30).tree_
    ax = plot_tree(tree, X=X)
    assert_apart(ax)
    assert len(ax.collections) == 29 + 2
    refused("1 feature, the clustering was fitted on 2", plot_tree, tree, X=X[:, :1])
