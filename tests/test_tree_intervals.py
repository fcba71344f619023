"""Trees with tests of intervals: whom they send left, what their rules and drawings say, files."""

import pickle
import re
from itertools import pairwise
from math import inf, nan
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from scipy.sparse import csr_matrix
from tree_witnesses import passed

import neonxc
from neonxc.rules import Column, Condition, render_rules
from neonxc.rules.intervals import EVERYTHING, complement, contains, intersection, union
from neonxc.trees import export_graphviz, export_text, plot_tree
from neonxc.trees.cuts.growth import Grown
from neonxc.trees.fit.finished import in_preorder
from neonxc.trees.rules import rules

GRID = np.arange(-10, 11) / 4  # the bounds of all random tests, -2 ... 2 in halves, and numbers between and beyond
HALVES = st.sampled_from([-inf, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, inf])
PAIRS = st.lists(st.tuples(HALVES, HALVES), max_size=4)  # which overlap, touch or are empty


def goes_left(test, value):
    """Whether a number passes a test, which is a threshold or a tuple of intervals."""
    if isinstance(test, tuple):
        return any(low < value <= high for low, high in test)
    return value <= test


def route(splits, point):
    """The leaf of a point, in the builder's numbers; splits are (node, feature, test)."""
    tests = {node: (feature, test, 2 * i + 1) for i, (node, feature, test) in enumerate(splits)}
    node = 0
    while node in tests:
        feature, test, left = tests[node]
        node = left if goes_left(test, float(point[feature])) else left + 1
    return node


def grown(splits, label, X, names=None, classes=None):
    """A tree, and its numbers for the nodes of the builder."""
    builder = Grown()
    for node, feature, test in splits:
        threshold, intervals = (nan, test) if isinstance(test, tuple) else (test, ())
        builder.split(node, SimpleNamespace(feature=feature, code=0, threshold=threshold, intervals=intervals))
    leaf = torch.tensor([route(splits, point) for point in X])
    reference = torch.tensor([label[node] for node in leaf.tolist()])
    classes = np.arange(max(label) + 1) if classes is None else np.array(classes)
    names = None if names is None else tuple(names)
    described = {"n_features": np.shape(X)[1], "classes": classes, "feature_names": names}
    tree, _ = in_preorder(builder, leaf, label, reference, **described)
    return tree, {node: number for number, node in enumerate(builder.preorder())}


def random_splits(seed, leaves, features=3):
    """Tests of thresholds, and of one or two intervals that may be open, overlap or touch."""
    rng = np.random.default_rng(seed)
    splits, ends = [], [0]
    for i in range(leaves - 1):
        node = ends.pop(int(rng.integers(len(ends))))
        bounds = np.concatenate([[-inf], np.arange(-4, 5) / 2, [inf]])
        pairs = tuple(tuple(np.sort(rng.choice(bounds, 2, replace=False)).tolist()) for _ in range(2))
        test = [float(rng.integers(-4, 5)) / 2, pairs[:1], pairs][int(rng.integers(3))]
        splits.append((node, int(rng.integers(features)), test))
        ends += [2 * i + 1, 2 * i + 2]
    return splits, rng.integers(0, 3, 2 * leaves - 1).tolist(), rng.choice(GRID, (100, features))


def shop(names=("age", "price")):
    """Every kind of test: one interval, two, an open one, a threshold."""
    splits = [
        (0, 1, ((2.1, 3.4),)),  # leaf 1 inside
        (2, 0, ((18, 25), (60, 67.5))),
        (4, 1, ((-inf, 1.0), (5.0, inf))),
        (6, 0, 40.0),
    ]
    X = [[30, 3], [20, 0], [63, 4], [30, 0.5], [30, 6], [30, 4], [50, 4]]
    return grown(splits, [0, 0, 0, 1, 0, 2, 0, 3, 0], X, names, list("ABCD"))[0]


# --- sets ----------------------------------------------------------------------------------------------------


@given(one=PAIRS, other=PAIRS)
def test_sets_are_those_of_their_numbers_and_equal_where_these_are(one, other):
    a, b = union(one), union(other)
    numbers = torch.from_numpy(GRID)
    inside = [np.array([goes_left(tuple(pairs), value) for value in GRID]) for pairs in (one, other)]
    for found, expected in (
        (a, inside[0]),
        (intersection(a, b), inside[0] & inside[1]),
        (union(a + b), inside[0] | inside[1]),
        (complement(a), ~inside[0]),
    ):
        assert contains(found, numbers).tolist() == expected.tolist()
        bounds = [bound for pair in found for bound in pair]
        assert all(low < high for low, high in pairwise(bounds))  # disjoint, none touch
    assert complement(complement(a)) == a
    assert (a == b) == bool((inside[0] == inside[1]).all())


def test_sets_without_bounds():
    assert complement(()) == EVERYTHING == complement(complement(EVERYTHING))
    assert union([(-inf, 1.0), (1.0, inf)]) == EVERYTHING
    assert union([(nan, nan), (-inf, nan), (1.0, 1.0)]) == ()


# --- predictions ---------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 10**6), leaves=st.integers(1, 20))
def test_every_point_goes_where_a_slow_router_sends_it(seed, leaves):
    splits, label, X = random_splits(seed, leaves)
    tree, number = grown(splits, label, X)
    ends = [route(splits, point) for point in X]
    expected = [number[end] for end in ends]
    assert tree.apply(X).tolist() == expected
    assert tree.leaf_of(X).tolist() == expected
    assert tree.predict(X).tolist() == [label[end] for end in ends]
    for same in (X.astype(np.float32), torch.from_numpy(X), torch.from_numpy(X).half(), csr_matrix(X)):
        assert tree.apply(same).tolist() == expected
    assert tree.samples[0] == len(X)
    for node in tree.leaves.tolist():
        assert tree.samples[node] == expected.count(node)


def test_bounds_are_compared_in_double_precision():
    points = torch.tensor([[0.1], [0.3], [0.7]], dtype=torch.float32)  # none of which is its decimal
    for low, high in ((0.1, 0.3), (0.3, 0.7), (0.1, 0.7)):
        tree, _ = grown([(0, 0, ((low, high),))], [0, 0, 1], points)
        expected = [int(not low < float(x) <= high) for x in points[:, 0]]
        assert tree.predict(points).tolist() == expected
        assert rules(tree)[1].matches(points).tolist() == [label == 1 for label in expected]


def test_integers_and_columns_that_no_test_uses():
    tree, _ = grown([(0, 2, ((0, 2), (5, 6)))], [0, 0, 1], [[0, 0, 1], [0, 0, 3]])
    X = np.zeros((8, 4), dtype=np.int64)[:, :3]
    X[:, 2] = range(8)
    assert tree.predict(X).tolist() == [1, 0, 0, 1, 1, 1, 0, 1]


def test_trees_of_thresholds_hold_no_intervals():
    tree, _ = grown([(0, 0, 1.0)], [0, 0, 1], [[0.0], [2.0]])
    assert tree.intervals is None
    assert tree.tests == [((-inf, 1.0),), (), ()]


def test_nodes():
    tree = shop()
    assert tree.intervals.shape == (9, 2, 2)
    assert tree.intervals.dtype == torch.float64
    assert tree.feature.tolist() == [1, -1, 0, -1, 1, -1, 0, -1, -1]
    assert tree.threshold[6] == 40
    assert tree.threshold.isnan().sum() == 8
    assert tree.intervals[[1, 6]].isnan().all()
    assert tree.intervals[0, 0].tolist() == [2.1, 3.4]
    assert tree.intervals[0, 1].isnan().all()
    assert tree.tests[2] == ((18, 25), (60, 67.5))
    assert tree.tests[4] == ((-inf, 1), (5, inf))


def test_tests_that_count_once_in_explanations():
    ins, two = ((0.0, 1.0),), ((0.0, 1.0), (2.0, 3.0))
    splits = [(0, 0, ins), (1, 0, two), (3, 0, 0.5), (5, 0, 0.25), (2, 0, two), (10, 1, ins)]
    tree, number = grown(splits, [0] * 13, [[0.0, 0.0]])
    wanted = {0: 0, 1: 1, 3: 1, 4: 2, 5: 2, 6: 2, 7: 2, 8: 3, 2: 1, 9: 2, 10: 1, 11: 2, 12: 2}
    assert {node: int(tree.explanation_sizes[number[node]]) for node in wanted} == wanted


def test_relabelled_and_pickled_trees_decide_alike():
    splits, label, X = random_splits(3, 12)
    tree, _ = grown(splits, label, X)
    assert tree.intervals is not None
    assert len(tree.tests) == tree.n_nodes  # kept, and not to be pickled
    again = pickle.loads(pickle.dumps(tree))
    assert "tests" not in again.__dict__
    np.testing.assert_array_equal(again.predict(X), tree.predict(X))
    other = tree.relabel(tree.label, np.array(["a", "b", "c"]))
    np.testing.assert_array_equal(other.predict(X), np.array(["a", "b", "c"])[tree.predict(X)])


# --- files ---------------------------------------------------------------------------------------------------


def test_files(tmp_path):
    splits, label, X = random_splits(5, 15)
    tree, _ = grown(splits, label, X, names=["a", "b", "c"])
    neonxc.save(tree, tmp_path / "tree.safetensors")
    again = neonxc.load(tmp_path / "tree.safetensors")
    assert torch.equal(again.intervals.nan_to_num(7.0), tree.intervals.nan_to_num(7.0))
    np.testing.assert_array_equal(again.predict(X), tree.predict(X))
    assert again.rules() == tree.rules()

    neonxc.save(grown([(0, 0, 1.0)], [0, 0, 1], [[0.0]])[0], tmp_path / "plain.safetensors")
    with safe_open(tmp_path / "plain.safetensors", framework="pt") as file:
        assert "intervals" not in file.keys()  # noqa: SIM118  # not a dict
    assert neonxc.load(tmp_path / "plain.safetensors").intervals is None


# --- rules ---------------------------------------------------------------------------------------------------


def meet(text, X):
    """Whether what is said of points is true, as a program of Python that means the same."""
    text = re.sub(r"no value of x\[\d\]", "False", re.sub(r"any value of x\[\d\]", "True", text))
    text = re.sub(r"(x\[\d\]) in \(([^ ]+), ([^ ]+)\]", r"\2 < \1 <= \3", text).replace("≤", "<=")
    code = compile(text, "text", "eval")
    return np.array([eval(code, {"x": point, "always": True}) for point in X.tolist()])


@given(seed=st.integers(0, 10**6), leaves=st.integers(1, 20), merge=st.booleans())
def test_every_point_meets_one_rule_and_its_label_is_the_prediction(seed, leaves, merge):
    splits, label, X = random_splits(seed, leaves)
    tree, _ = grown(splits, label, X)
    found = rules(tree, merge=merge)
    matches = np.array([rule.matches(X) for rule in found])
    np.testing.assert_array_equal(matches.sum(0), 1)
    which = matches.argmax(0)
    np.testing.assert_array_equal(np.array([rule.label for rule in found])[which], tree.predict(X))
    assert all(leaf in found[i].leaves for i, leaf in zip(which, tree.apply(X), strict=True))
    assert sorted(leaf for rule in found for leaf in rule.leaves) == tree.leaves.tolist()
    for rule, matched in zip(found, matches, strict=True):
        assert rule.samples == matched.sum()
        assert len({condition.feature for condition in rule.conditions}) == len(rule.conditions)
        assert all(condition.intervals != EVERYTHING for condition in rule.conditions)
        np.testing.assert_array_equal(meet(rule.text(), X), matched)


def test_merge_joins_what_lies_around_and_between():
    X = np.random.default_rng(0).random((40, 2))
    inside = ((0.25, 0.5),)
    same, _ = grown([(0, 0, inside), (1, 1, 0.5), (2, 1, 0.5)], [0, 0, 0, 0, 1, 0, 2], X)
    merged = rules(same, merge=True)
    assert [(rule.label, rule.text()) for rule in merged] == [
        (0, "x[1] ≤ 0.5"),
        (1, "x[0] in (0.25, 0.5] and x[1] > 0.5"),
        (2, "(x[0] ≤ 0.25 or x[0] > 0.5) and x[1] > 0.5"),
    ]
    one, _ = grown([(0, 0, inside), (2, 1, 0.5)], [0] * 5, X)
    assert [rule.text() for rule in rules(one, merge=True)] == ["always"]
    # Not at the price of a longer condition
    apart, _ = grown([(0, 0, 0.25), (2, 0, 0.5)], [0, 0, 0, 1, 0], X)
    assert len(rules(apart, merge=True)) == 3


def test_conditions():
    assert Condition(Column(0, "x"), ((5, 7), (1, 2), (2, 3))) == Condition(Column(0, "x"), ((1, 3), (5, 7)))
    around = Condition(Column(0, "x"), ((-inf, 1), (3, inf)))
    assert (str(around), around.low, around.high) == ("x ≤ 1 or x > 3", -inf, inf)
    three = Condition(Column(0, "x"), ((1, 2), (3, 4), (5, inf)))
    assert (three.text(), three.low, three.high) == ("x in (1, 2] or x in (3, 4] or x > 5", 1, inf)
    never = Condition(Column(0, "x"), ((2, 1),))
    assert (str(never), never.intervals, never.low, never.high) == ("no value of x", (), inf, -inf)
    assert str(Condition(Column(0, "x"))) == "any value of x"
    near = Condition(Column(0, "x"), ((0.123456, 0.123459), (0.2, 0.3)))
    assert near.text(2) == "x in (0.123456, 0.123459] or x in (0.2, 0.3]"


def test_rules_of_every_kind_of_test():
    assert [rule.text() for rule in rules(shop())] == [
        "price in (2.1, 3.4]",
        "(price ≤ 2.1 or price > 3.4) and (age in (18, 25] or age in (60, 67.5])",
        "(price ≤ 1 or price > 5) and (age ≤ 18 or age in (25, 60] or age > 67.5)",
        "(price in (1, 2.1] or price in (3.4, 5]) and (age ≤ 18 or age in (25, 40])",
        "(price in (1, 2.1] or price in (3.4, 5]) and (age in (40, 60] or age > 67.5)",
    ]


def test_reports():
    tree = shop(names=["a_b", "<p>"])
    assert render_rules(tree) == (
        "A: 2 samples (29%), 0 mistakes, coverage 100%, precision 100%\n"
        "    <p> in (2.1, 3.4]                                                          "
        "1 sample, 0 mistakes, coverage 50%\n"
        "or  (<p> in (1, 2.1] or <p> in (3.4, 5]) and (a_b in (40, 60] or a_b > 67.5)   "
        "1 sample, 0 mistakes, coverage 50%\n"
        "\n"
        "B: 2 samples (29%), 0 mistakes, coverage 100%, precision 100%\n"
        "    (<p> ≤ 2.1 or <p> > 3.4) and (a_b in (18, 25] or a_b in (60, 67.5])\n"
        "\n"
        "C: 2 samples (29%), 0 mistakes, coverage 100%, precision 100%\n"
        "    (<p> ≤ 1 or <p> > 5) and (a_b ≤ 18 or a_b in (25, 60] or a_b > 67.5)\n"
        "\n"
        "D: 1 sample (14%), 0 mistakes, coverage 100%, precision 100%\n"
        "    (<p> in (1, 2.1] or <p> in (3.4, 5]) and (a_b ≤ 18 or a_b in (25, 40])\n"
        "\n"
        "total: 7 samples, 0 mistakes, agreement 100%"
    )
    markdown = render_rules(tree, "markdown")
    assert "- (\\<p\\> ≤ 2.1 or \\<p\\> > 3.4) **and** (a\\_b in (18, 25] or a\\_b in (60, 67.5])\n" in markdown
    html = render_rules(tree, "html")
    assert '<span class="test">(&lt;p&gt; ≤ 2.1 or &lt;p&gt; &gt; 3.4)</span>' in html
    assert '<span class="word">and</span> (a_b in (18, 25] or a_b in (60, 67.5])</span>' in html


def test_long_conditions_have_a_line_for_every_interval():
    name = "concavity of the worst three points"
    splits = [(0, 1, ((1, 2),)), (2, 0, ((1, 2),)), (4, 0, ((3, 4),))]
    tree, _ = grown(splits, [0, 0, 0, 1, 0, 2, 3], [[0.0, 0.0]], [name, "y"])
    assert render_rules(tree).splitlines()[-6:-2] == [
        "    (y ≤ 1 or y > 2)",
        f"    and ({name} ≤ 1",
        f"        or {name} in (2, 3]",
        f"        or {name} > 4)",
    ]


def test_bounds_of_a_column_are_told_apart_in_all_its_tests():
    tree, _ = grown([(0, 0, ((0.1, 0.2),)), (2, 0, ((0.100001, 0.3),))], [0, 0, 0, 1, 2], [[0.15], [0.25], [1.0]])
    for text in (render_rules(tree), export_text(tree), export_graphviz(tree)):
        assert "0.100001" in text or "(0.2, 0.3]" in text
        assert re.search(r"0\.1\b", text)
    assert "x[0] in (0.100001, 0.3]" in export_text(tree)


# --- drawings ------------------------------------------------------------------------------------------------


def test_text_says_both_branches():
    assert export_text(shop(), show_samples=False) == (
        "|--- price in (2.1, 3.4]: A\n"
        "|--- price ≤ 2.1 or price > 3.4\n"
        "|   |--- age in (18, 25] or age in (60, 67.5]: B\n"
        "|   |--- age ≤ 18 or age in (25, 60] or age > 67.5\n"
        "|   |   |--- price ≤ 1 or price > 5: C\n"
        "|   |   |--- price in (1, 5]\n"
        "|   |   |   |--- age ≤ 40: D\n"
        "|   |   |   |--- age > 40: A"
    )


@given(seed=st.integers(0, 10**6), leaves=st.integers(2, 20))
def test_texts_of_two_branches_part_all_points(seed, leaves):
    splits, label, X = random_splits(seed, leaves)
    tree, _ = grown(splits, label, X)
    lines = re.findall(r"^(?:\|   )*\|--- (.*?)(?:: cluster \d)?$", export_text(tree, show_samples=False), re.M)
    said = [meet(line, X) for line in lines]  # in preorder, without the root
    path = passed(tree, X)
    for node, parent in enumerate(tree.parents.tolist()):
        if node:
            np.testing.assert_array_equal(path[:, node], path[:, parent] & said[node - 1])


def test_graphviz_has_a_line_for_every_interval():
    source = export_graphviz(shop())
    assert '    0 [label="price in (2.1, 3.4]\\n7 samples"];' in source
    assert '    2 [label="age in (18, 25]\\nor age in (60, 67.5]\\n6 samples"];' in source
    assert '    4 [label="price ≤ 1\\nor price > 5\\n4 samples"];' in source


def test_plots_break_tests_between_intervals_and_not_at_bounds():
    texts = plot_tree(shop(names=["age of the customer in years", "price"])).texts
    titles = [text.get_text() for text in texts if text.get_weight() == "bold"]
    assert titles[0].replace("\N{NO-BREAK SPACE}", "~") == "price in~(2.1, 3.4]"
    assert titles[2].replace("\N{NO-BREAK SPACE}", "~").splitlines() == [
        "age of the customer",
        "in years in~(18, 25]",
        "or~age of the",
        "customer in years",
        "in~(60, 67.5]",
    ]


def test_cuts_hold_no_intervals_unless_given():
    from neonxc.trees.cuts.nodes import Cut

    left = torch.tensor([True, False])
    builder = Grown()
    builder.split(0, Cut(0, 3, 1.5, left, left))
    assert builder.intervals == [(), (), ()]
    builder.split(1, Cut(0, 3, nan, left, left, ((0.0, 1.0),)))
    assert builder.intervals == [(), ((0.0, 1.0),), (), (), ()]


@pytest.mark.parametrize("draw", [export_text, export_graphviz, plot_tree])
def test_tests_that_send_all_or_none_left(draw):
    tree, _ = grown([(0, 0, ((-inf, inf),)), (1, 0, ((3.0, 2.0),))], [0, 0, 0, 0, 1], [[1.0]])
    assert tree.predict([[1.0], [2.5]]).tolist() == [1, 1]
    draw(tree)
    assert [rule.text() for rule in rules(tree)] == ["no value of x[0]", "always", "no value of x[0]"]
