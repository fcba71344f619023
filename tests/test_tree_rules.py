"""Rules of a tree: they say what the tree predicts, once for every point, and can be read."""

import re
from html.parser import HTMLParser
from math import inf, isnan
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from neonxc.common.numbers import text
from neonxc.rules import Column, Condition, Counts, Rule, render_rules
from neonxc.rules.wording import counts, readable
from neonxc.trees import CART
from neonxc.trees.cuts.growth import Grown
from neonxc.trees.fit.finished import in_preorder
from neonxc.trees.rules import rules


def grown(splits, label, X, reference=None, *, classes=None, names=None, weight=None):
    """A tree from `splits`, (node, feature, threshold) in the builder's numbers, and labels of its nodes."""
    X = torch.as_tensor(X, dtype=torch.float64)
    builder, leaf = Grown(), torch.zeros(len(X), dtype=torch.int64)
    for node, feature, threshold in splits:
        cut = SimpleNamespace(feature=feature, code=0, threshold=threshold, intervals=())
        left, right = builder.split(node, cut)
        here = leaf == node
        leaf[here & (X[:, feature] <= threshold)] = left
        leaf[here & (X[:, feature] > threshold)] = right
    reference = torch.tensor([label[node] for node in leaf.tolist()]) if reference is None else reference
    classes = np.arange(max(label) + 1) if classes is None else np.asarray(classes)
    names = None if names is None else tuple(names)
    described = {"n_features": X.shape[1], "classes": classes, "feature_names": names}
    return in_preorder(builder, leaf, label, reference, weight, **described)[0]


def random_tree(seed, leaves, clusters=3, features=3, n=60):
    """A tree of tests at few distinct values, some of which no point can reach."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-3, 4, (n, features)) / 2
    splits, open_nodes = [], [0]
    for i in range(leaves - 1):
        node = open_nodes.pop(int(rng.integers(len(open_nodes))))
        splits.append((node, int(rng.integers(features)), float(rng.integers(-3, 4)) / 2))
        open_nodes += [2 * i + 1, 2 * i + 2]
    label = rng.integers(0, clusters, 2 * leaves - 1).tolist()
    reference = torch.from_numpy(rng.integers(0, clusters, n))
    return grown(splits, label, X, reference, classes=np.array(list("abcdefgh"))[:clusters]), X


def iris():
    """Petal widths and lengths; leaves from left to right: setosa, versicolor, virginica, virginica."""
    X = [[0.2, 1.4], [0.3, 1.5], [1.3, 4.5], [1.5, 4.6], [1.4, 5.5], [2.1, 5.0], [1.9, 5.1]]
    splits = [(0, 0, 0.8), (2, 0, 1.65), (3, 1, 4.95)]
    reference = torch.tensor([0, 0, 1, 1, 2, 2, 1])
    classes, names = ["setosa", "versicolor", "virginica"], ["petal width", "petal length"]
    return grown(splits, [-1, 0, -1, -1, 2, 1, 2], X, reference, classes=classes, names=names), np.array(X)


def test_tests_of_one_column_become_one_interval_in_the_order_of_the_path():
    found = rules(iris()[0])
    assert [rule.text() for rule in found] == [
        "petal width ≤ 0.8",
        "petal width in (0.8, 1.65] and petal length ≤ 4.95",
        "petal width in (0.8, 1.65] and petal length > 4.95",
        "petal width > 1.65",
    ]
    assert found[1].conditions[0] == Condition(Column(0, "petal width"), ((0.8, 1.65),))
    assert found[3].conditions == (Condition(Column(0, "petal width"), ((1.65, inf),)),)
    assert [rule.label for rule in found] == ["setosa", "versicolor", "virginica", "virginica"]
    assert [rule.leaves for rule in found] == [(leaf,) for leaf in iris()[0].leaves.tolist()]
    assert str(found[3]) == "virginica: petal width > 1.65 (2 samples, 1 mistake)"


def test_tests_that_the_path_has_answered_are_left_out():
    tree = grown([(0, 0, 1.0), (1, 0, 2.0), (2, 0, 0.5)], [-1, -1, -1, 0, 1, 1, 0], [[0.0], [3.0]])
    expected = ["x[0] ≤ 1", "no value of x[0]", "no value of x[0]", "x[0] > 1"]
    assert [rule.text() for rule in rules(tree)] == expected


def test_counts_and_measures():
    tree, X = iris()
    found = rules(tree)
    assert [(rule.samples, rule.mistakes) for rule in found] == [(2, 0), (2, 0), (1, 0), (2, 1)]
    assert [rule.precision for rule in found] == [1, 1, 1, 0.5]
    weight = torch.tensor([0.5] * 7, dtype=torch.float64)
    weighted = grown([(0, 0, 0.8)], [-1, 0, 1], X, torch.tensor([0, 0, 1, 1, 0, 1, 1]), weight=weight)
    assert [(rule.samples, rule.mistakes) for rule in rules(weighted)] == [(1, 0), (2.5, 0.5)]
    assert rules(weighted)[1].precision == 0.8
    assert [rule.support for rule in rules(weighted)] == [1 / 3.5, 2.5 / 3.5]
    assert [rule.coverage for rule in rules(weighted)] == [1 / 1.5, 1]
    assert isnan(Rule("a", "a", (), Counts(0.0, 0.0)).precision)


def test_one_leaf():
    tree = grown([], [0], [[1.0, 2.0]])
    (rule,) = rules(tree)
    assert (rule.text(), rule.conditions, rule.label) == ("always", (), 0)
    assert str(rule) == "cluster 0: always (1 sample, 0 mistakes)"
    assert rule.matches(np.ones((3, 2))).tolist() == [True] * 3
    for format in ("text", "markdown", "html"):
        assert "always" in render_rules([rule], format)


@given(seed=st.integers(0, 10**6), leaves=st.integers(1, 30), merge=st.booleans())
def test_every_point_matches_one_rule_and_its_label_is_the_prediction(seed, leaves, merge):
    tree, X = random_tree(seed, leaves)
    points = np.vstack([X, np.random.default_rng(seed).normal(size=(100, 3)) * 2])
    found = rules(tree, merge=merge)
    matches = np.array([rule.matches(points) for rule in found])
    np.testing.assert_array_equal(matches.sum(0), 1)
    which = matches.argmax(0)
    np.testing.assert_array_equal(np.array([rule.label for rule in found])[which], tree.predict(points))
    assert all(leaf in found[i].leaves for i, leaf in zip(which, tree.apply(points), strict=True))
    assert [leaf for rule in found for leaf in rule.leaves if not merge] == ([] if merge else tree.leaves.tolist())
    assert sorted(leaf for rule in found for leaf in rule.leaves) == tree.leaves.tolist()
    assert sum(rule.samples for rule in found) == len(X)
    for rule in found:
        assert rule.samples == rule.matches(X).sum()
        assert len({condition.feature for condition in rule.conditions}) == len(rule.conditions)
    assert sum(rule.mistakes for rule in found) == tree.mistakes[tree.leaves].sum()


def test_matches_takes_what_predict_takes():
    tree, X = iris()
    rule = rules(tree)[3]
    expected = [False] * 5 + [True] * 2
    assert isinstance(rule.matches(X), np.ndarray)
    assert rule.matches(X.tolist()).tolist() == expected
    assert isinstance(rule.matches(torch.as_tensor(X)), torch.Tensor)
    assert rule.matches(torch.as_tensor(X)).dtype == torch.bool
    assert rule.matches(torch.as_tensor(X)).tolist() == expected
    frame = pd.DataFrame(X, columns=["petal width", "petal length"])
    assert rule.matches(frame).tolist() == expected
    assert rule.matches(frame[["petal length", "petal width"]].assign(more="text")).tolist() == expected
    assert rule.matches(csr_matrix(X)).tolist() == expected
    assert rule.matches(np.full((2, 2), np.nan)).tolist() == [False] * 2  # what is missing meets no condition
    assert rule.matches(np.array([[inf, -inf]])).tolist() == [True]
    with pytest.raises(ValueError, match="3 features"):
        rule.matches(np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"X needs shape \[points, features\], got \[2\]"):
        rule.matches([1.0, 2.0])
    with pytest.raises(ValueError, match=r"X has no column 'petal width', which the rules use; it has \['a'\]"):
        rule.matches(pd.DataFrame({"a": [1.0]}))
    with pytest.raises(ValueError, match="column 'petal width' of X needs numbers, got str"):
        rule.matches(pd.DataFrame({"petal width": ["wide"]}))


def test_single_precision_points_on_a_threshold_go_where_the_tree_sends_them():
    points = torch.tensor([[0.1], [0.3], [0.7]], dtype=torch.float32)  # none of which is its decimal
    for threshold in (0.1, 0.3, 0.7):
        tree = grown([(0, 0, threshold)], [-1, 0, 1], points)
        assert rules(tree)[1].matches(points).tolist() == (tree.predict(points) == 1).tolist()


def test_merge_joins_siblings_and_rules_with_touching_intervals():
    X = np.random.default_rng(0).random((40, 2))
    siblings = grown([(0, 0, 0.5), (1, 1, 0.5)], [-1, -1, 1, 0, 0], X)
    assert [rule.text() for rule in rules(siblings)] == [
        "x[0] ≤ 0.5 and x[1] ≤ 0.5",
        "x[0] ≤ 0.5 and x[1] > 0.5",
        "x[0] > 0.5",
    ]
    assert [rule.text() for rule in rules(siblings, merge=True)] == ["x[0] ≤ 0.5", "x[0] > 0.5"]
    both = grown([(0, 0, 0.5), (1, 1, 0.5), (2, 1, 0.5)], [-1, -1, -1, 0, 1, 0, 2], X)
    merged = rules(both, merge=True)
    assert merged[0].text() == "x[1] ≤ 0.5"
    assert merged[0].leaves == (2, 5)
    assert len(merged) == 3
    same = grown([(0, 0, 0.5), (1, 1, 0.5)], [-1, -1, 0, 0, 0], X)
    assert [rule.text() for rule in rules(same, merge=True)] == ["always"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.8, "0.8"),
        (-0.0, "0"),
        (2.0, "2"),
        (1985.5, "1985.5"),
        (1234567.891, "1,234,567.9"),
        (1.65000001, "1.65"),
        (0.99999, "1"),
        (-0.00123456, "-0.001235"),
        (1.5e-7, "1.5e-07"),
        (1e300, "1e+300"),
        (float(np.float32(0.8)), "0.8"),
    ],
)
def test_numbers_have_few_digits(value, expected):
    assert text(value, decimals=1) == expected


def test_numbers_of_one_column_never_print_alike():
    assert readable([0.8, 0.80001, 5.123456, inf, -inf]) == {0.8: "0.8", 0.80001: "0.80001", 5.123456: "5.123"}
    near = [1.0, np.nextafter(1.0, 2.0), np.nextafter(1.0, 0.0)]
    assert len(set(readable(near).values())) == 3
    assert Condition(Column(0, "x"), ((0.123456, 0.123459),)).text(2) == "x in (0.123456, 0.123459]"
    assert Condition(Column(0, "x"), ((0.123456, 0.2),)).text(2) == "x in (0.12, 0.2]"
    with pytest.raises(ValueError, match="precision must be at least 1, got 0"):
        readable([1.0], 0)


@given(st.lists(st.floats(-1e300, 1e300), max_size=8), st.integers(1, 6))
def test_printed_numbers_tell_values_apart_and_stay_close(values, precision):
    texts = readable(values, precision)
    assert len(set(texts.values())) == len(set(values))
    for value, printed in texts.items():
        assert float(printed) == pytest.approx(value, rel=0.5 * 10.0 ** (1 - precision) * 1.001, abs=1e-300)


def test_names():
    tree, X = iris()
    bare = grown([(0, 0, 0.8)], [-1, 0, 1], X)
    assert [str(rule)[:19] for rule in rules(bare)] == ["cluster 0: x[0] ≤ 0", "cluster 1: x[0] > 0"]
    own = rules(tree, feature_names=["w", "two\nlines"], class_names=np.array(["A", "B", "C"]))
    assert own[1].text() == "w in (0.8, 1.65] and two lines ≤ 4.95"
    assert [(rule.name, rule.label) for rule in own[:2]] == [("A", "setosa"), ("B", "versicolor")]
    with pytest.raises(
        ValueError, match="feature_names has 3 names, the tree needs one for each of its 2 features"
    ):
        rules(tree, feature_names=["a", "b", "c"])
    with pytest.raises(ValueError, match="class_names has 1 names, the tree needs one for each of its 3 clusters"):
        rules(tree, class_names=["a"])
    with pytest.raises(
        ValueError, match="feature_names must be a sequence of names or a mapping, got the string 'ab'"
    ):
        rules(tree, feature_names="ab")


def test_text_is_aligned_and_sums_up_clusters():
    assert render_rules(rules(iris()[0])) == (
        "setosa: 2 samples (29%), 0 mistakes, coverage 100%, precision 100%\n"
        "    petal width ≤ 0.8\n"
        "\n"
        "versicolor: 2 samples (29%), 0 mistakes, coverage 67%, precision 100%\n"
        "    petal width in (0.8, 1.65] and petal length ≤ 4.95\n"
        "\n"
        "virginica: 3 samples (43%), 1 mistake, coverage 100%, precision 67%\n"
        "    petal width in (0.8, 1.65] and petal length > 4.95   "
        "1 sample, 0 mistakes, coverage 50%\n"
        "or  petal width > 1.65                                   "
        "2 samples, 1 mistake, coverage 50%\n"
        "\n"
        "total: 7 samples, 1 mistake, agreement 86%"
    )


@given(seed=st.integers(0, 10**6), leaves=st.integers(1, 30))
def test_text_has_no_long_lines_and_every_condition_once(seed, leaves):
    tree, _ = random_tree(seed, leaves)
    found = rules(tree)
    lines = render_rules(found).splitlines()
    assert all(len(line) < 140 for line in lines)
    assert sum(line.count(" and ") for line in lines) == sum(max(len(rule.conditions) - 1, 0) for rule in found)
    assert sum(line.startswith("or  ") for line in lines) == len(found) - len({rule.label for rule in found})


def test_thresholds_of_all_rules_are_told_apart():
    tree = grown([(0, 0, 0.5), (1, 1, 0.1), (2, 1, 0.100001)], [-1, -1, -1, 0, 1, 2, 3], [[0.0, 0.0], [1.0, 1.0]])
    for format in ("text", "markdown", "html"):
        page = render_rules(rules(tree), format)
        assert "0.100001" in page
        assert re.search(r"0\.1\b", page)


def test_markdown_escapes_names():
    text = render_rules(
        rules(iris()[0], feature_names=["a_b|*c*", "<i>"], class_names=["1. x", "- y", "z"]), "markdown"
    )
    assert text.startswith(
        "### 1\\. x\n\n2 samples (29%), 0 mistakes, coverage 100%, precision 100%\n\n"
        "- a\\_b\\|\\*c\\* ≤ 0.8\n\n### \\- y\n\n"
    )
    assert (
        "### z\n\n3 samples (43%), 1 mistake, coverage 100%, precision 67%\n\n"
        "- a\\_b\\|\\*c\\* in (0.8, 1.65] **and** \\<i\\> > 4.95 "
        "(1 sample, 0 mistakes, coverage 50%)\n"
        "- **or** a\\_b\\|\\*c\\* > 1.65 (2 samples, 1 mistake, coverage 50%)\n\n"
        "**total**: 7 samples, 1 mistake, agreement 86%\n\n*Mistakes*: matching samples of other clusters. "
    ) in text


class Page(HTMLParser):
    """Tags that must be closed in order, and the text of the table's rows."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.rows, self.attributes = [], set(), [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.open.append(tag)
        self.tags.add(tag)
        self.attributes.append((tag, dict(attributes)))
        if tag == "tr":
            self.rows.append("")
        elif self.rows:
            self.rows[-1] += " "

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.rows:
            self.rows[-1] += data


def test_html_is_a_fragment_with_escaped_names():
    names = {"feature_names": ["<script>alert('a')</script>", 'b & "c"'], "class_names": ["<b>A</b>", "B", "C"]}
    page = Page(render_rules(rules(iris()[0], **names), "html"))
    assert page.open == []
    assert page.tags == {"style", "table", "thead", "tbody", "tfoot", "i", "tr", "th", "td", "span", "div"}
    assert ("table", {"class": "neonxc-rules"}) in page.attributes
    assert ("th", {"rowspan": "2", "scope": "rowgroup"}) in page.attributes
    rows = [" ".join(row.split()) for row in page.rows]
    assert rows[1] == "<b>A</b> <script>alert('a')</script> ≤ 0.8 2 0 100% 100%"
    assert rows[3] == (
        "C 3 samples (43%) 1 mistake coverage 100% precision 67% "
        "<script>alert('a')</script> in (0.8, 1.65] and b & \"c\" > 4.95 1 0 50% 100%"
    )
    assert rows[4] == "or <script>alert('a')</script> > 1.65 2 1 50% 50%"
    assert rows[5] == "total 7 samples, 1 mistake, agreement 86%"
    assert rows[6].startswith("mistakes: matching samples of other clusters.")
    assert len(rows) == 7


def test_clusters_stand_in_the_order_of_their_labels_whatever_the_leaves_order():
    tree = grown([(0, 0, 0.5), (2, 0, 1.5)], [-1, 10, -1, 2, 10], [[0.0], [1.0], [2.0]], torch.tensor([10, 2, 10]))
    text = render_rules(rules(tree))
    assert text.index("cluster 2:") < text.index("cluster 10:")


def test_rules_of_a_tree_and_of_a_fitted_explainer():
    explainer = CART(2).fit(np.array([[0.0, 0], [0, 1], [4, 0], [4, 1]]), labels=[0, 0, 1, 1])
    wanted = render_rules(explainer.tree_.rules())
    assert render_rules(explainer.tree_) == render_rules(explainer) == wanted
    assert render_rules(iter(explainer.tree_.rules()), format="text") == wanted.replace(", cost ratio 1", "")
    assert rules(explainer) == rules(explainer.tree_)


@pytest.mark.parametrize("wrong", [CART(2), None, 3, "rules", ["x ≤ 3"], np.zeros(2)])
def test_what_has_no_rules(wrong):
    with pytest.raises(TypeError, match="rules must be rules, a ThresholdTree or a fitted tree explainer, got"):
        render_rules(wrong)
    with pytest.raises(TypeError, match="tree needs a ThresholdTree or a fitted tree explainer, got"):
        rules(wrong)


def test_no_rules_and_unknown_formats():
    assert render_rules([]) == render_rules([], "markdown") == ""
    with pytest.raises(ValueError, match=r"format must be one of \['text', 'markdown', 'html'\], got 'latex'"):
        render_rules([], "latex")


def test_counts():
    assert counts(1, 2) == "1 sample, 2 mistakes"
    assert counts(12345678.0) == "12,345,678 samples"
    assert counts(0.25, 1) == "0.25 samples, 1 mistake"
