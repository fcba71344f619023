"""Trees with tests of intervals: whom they send left, what their rules and drawings say, files."""

import pickle
import re
from itertools import pairwise
from math import inf

import numpy as np
import pytest
import torch
from hand_trees import GRID, goes_left, grown, random_splits, route, shop
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from scipy.sparse import csr_matrix
from tree_witnesses import passed

from neonxc.rules import Column, Condition, render_rules
from neonxc.trees import export_graphviz, export_text, plot_tree
from neonxc.trees.tree import children_of

HALVES = st.sampled_from([-inf, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, inf])
PAIRS = st.lists(st.tuples(HALVES, HALVES), max_size=4)  # which overlap, touch or are empty
TREES = {"seed": st.integers(0, 10**6), "leaves": st.integers(2, 20)}


@given(one=PAIRS, other=PAIRS)
def test_conditions_are_those_of_their_numbers_and_equal_where_these_are(one, other):
    a, b = (Condition(Column(0, "x"), tuple(pairs)) for pairs in (one, other))
    inside = [np.array([goes_left(tuple(pairs), value) for value in GRID]) for pairs in (one, other)]
    for found, expected in ((a, inside[0]), (a.intersect(b), inside[0] & inside[1])):
        assert found.matches(GRID).tolist() == expected.tolist()
        assert all(low < high for low, high in pairwise([bound for pair in found.intervals for bound in pair]))
    assert (a == b) == bool((inside[0] == inside[1]).all())
    assert a.is_always_met == bool(inside[0].all())


@given(**TREES)
def test_every_point_goes_where_a_slow_router_sends_it(seed, leaves):
    splits, label, X = random_splits(seed, leaves)
    tree, number = grown(splits, label, X)
    ends = [route(splits, point) for point in X]
    expected = [number[end] for end in ends]
    assert tree.leaf_of(X).tolist() == expected
    assert tree.predict(X).tolist() == [label[end] for end in ends]
    for same in (X, X.astype(np.float32), torch.from_numpy(X), torch.from_numpy(X).half(), csr_matrix(X)):
        assert tree.apply(same).tolist() == expected
    names = np.array(["a", "b", "c"])
    for other in (pickle.loads(pickle.dumps(tree)), tree.relabel(tree.label, names)):
        assert other.predict(X).tolist() == other.classes[tree.predict(X)].tolist()
        assert other.tests == tree.tests


@pytest.mark.parametrize(
    ("feature", "left", "right"),
    [
        ([-1], [-1], [-1]),
        ([3, -1, -1], [1, -1, -1], [2, -1, -1]),
        ([0, 1, -1, -1, -1], [1, 2, -1, -1, -1], [4, 3, -1, -1, -1]),
        ([0, -1, 1, -1, -1], [1, -1, 3, -1, -1], [2, -1, 4, -1, -1]),
        ([0, 0, -1, -1, 0, -1, -1], [1, 2, -1, -1, 5, -1, -1], [4, 3, -1, -1, 6, -1, -1]),
    ],
)
def test_children_follow_from_which_nodes_are_leaves(feature, left, right):
    found = children_of(torch.tensor(feature))
    assert [side.tolist() for side in found] == [left, right]


@pytest.mark.parametrize("feature", [[], [0], [0, -1], [-1, -1], [-1, 0, -1], [0, -1, -1, -1], [0, -1, 0, -1]])
def test_nodes_that_are_no_tree(feature):
    refused("the tree (ends at node|has tests without children)", children_of, torch.tensor(feature))


def test_bounds_are_compared_in_double_precision():
    points = torch.tensor([[0.1], [0.3], [0.7]], dtype=torch.float32)  # none of which is its decimal
    for test in (((0.1, 0.3),), ((0.3, 0.7),), ((0.1, 0.7),), 0.1, 0.3, 0.7):
        tree, _ = grown([(0, 0, test)], [0, 0, 1], points)
        expected = [not goes_left(test, float(x)) for x in points[:, 0]]
        assert tree.predict(points).tolist() == expected
        assert tree.rules()[1].matches(points).tolist() == expected


def test_tests_that_count_once_in_explanations():
    ins = ((0.0, 1.0),)
    two = ((0.0, 1.0), (2.0, 3.0))
    splits = [(0, 0, ins), (1, 0, two), (3, 0, 0.5), (5, 0, 0.25), (2, 0, two), (10, 1, ins)]
    tree, number = grown(splits, [0] * 13, [[0.0, 0.0]])
    wanted = {0: 0, 1: 1, 3: 1, 4: 2, 5: 2, 6: 2, 7: 2, 8: 3, 2: 1, 9: 2, 10: 1, 11: 2, 12: 2}
    assert {node: int(tree.explanation_sizes[number[node]]) for node in wanted} == wanted


# --- rules and drawings ------------------------------------------------------------------------------------------


def meet(text, X):
    """Whether what is said of points is true, as a program of Python that means the same."""
    text = re.sub(r"no value of x\[\d\]", "False", re.sub(r"any value of x\[\d\]", "True", text))
    text = re.sub(r"(x\[\d\]) in \(([^ ]+), ([^ ]+)\]", r"\2 < \1 <= \3", text).replace("≤", "<=")
    code = compile(text, "text", "eval")
    return np.array([eval(code, {"x": point, "always": True}) for point in X.tolist()])


@given(**TREES, merge=st.booleans())
def test_every_point_meets_one_rule_and_its_label_is_the_prediction(seed, leaves, merge):
    splits, label, X = random_splits(seed, leaves)
    reference = np.random.default_rng(seed).integers(0, 3, len(X))
    tree, _ = grown(splits, label, X, classes=range(3), reference=reference)
    found = tree.rules(merge=merge)
    matches = np.array([rule.matches(X) for rule in found])
    np.testing.assert_array_equal(matches.sum(0), 1)
    which = [found[i] for i in matches.argmax(0)]
    assert [rule.label for rule in which] == tree.predict(X).tolist()
    assert all(leaf in rule.leaves for rule, leaf in zip(which, tree.apply(X), strict=True))
    every = [leaf for rule in found for leaf in rule.leaves]
    assert (sorted(every) if merge else every) == tree.leaves.tolist()
    for rule, matched in zip(found, matches, strict=True):
        assert (rule.samples, rule.mistakes) == (matched.sum(), (reference[matched] != rule.label).sum())
        assert len({condition.feature for condition in rule.conditions}) == len(rule.conditions)
        assert not any(condition.is_always_met for condition in rule.conditions)
        np.testing.assert_array_equal(meet(rule.text(), X), matched)


@given(**TREES)
def test_texts_of_two_branches_part_all_points(seed, leaves):
    splits, label, X = random_splits(seed, leaves)
    tree, _ = grown(splits, label, X)
    lines = re.findall(r"^(?:\|   )*\|--- (.*?)(?:: cluster \d)?$", export_text(tree, show_samples=False), re.M)
    said = [meet(line, X) for line in lines]  # in preorder, without the root
    path = passed(tree, X)
    for node, parent in enumerate(tree.parents.tolist()):
        if node:
            np.testing.assert_array_equal(path[:, node], path[:, parent] & said[node - 1])


def test_conditions():
    around, three, never = (
        Condition(Column(0, "x"), pairs)
        for pairs in (((-inf, 1), (3, inf)), ((1, 2), (3, 4), (5, inf)), ((2, 1),))
    )
    assert (str(around), around.low, around.high) == ("x ≤ 1 or x > 3", -inf, inf)
    assert (three.text(), three.low, three.high) == ("x in (1, 2] or x in (3, 4] or x > 5", 1, inf)
    assert (str(never), never.intervals, never.low, never.high) == ("no value of x", (), inf, -inf)
    assert str(Condition(Column(0, "x"))) == "any value of x"
    near = Condition(Column(0, "x"), ((0.123456, 0.123459), (0.2, 0.3)))
    assert near.text(2) == "x in (0.123456, 0.123459] or x in (0.2, 0.3]"


def test_rules_in_all_formats():
    tree = shop(names=["a_b", "<p>"])
    assert [rule.text() for rule in tree.rules()] == [
        "<p> in (2.1, 3.4]",
        "(<p> ≤ 2.1 or <p> > 3.4) and (a_b in (18, 25] or a_b in (60, 67.5])",
        "(<p> ≤ 1 or <p> > 5) and (a_b ≤ 18 or a_b in (25, 60] or a_b > 67.5)",
        "(<p> in (1, 2.1] or <p> in (3.4, 5]) and (a_b ≤ 18 or a_b in (25, 40])",
        "(<p> in (1, 2.1] or <p> in (3.4, 5]) and (a_b in (40, 60] or a_b > 67.5)",
    ]
    assert "    (<p> ≤ 2.1 or <p> > 3.4) and (a_b in (18, 25] or a_b in (60, 67.5])\n" in render_rules(tree)
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


def test_drawings_say_both_branches():
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
    source = export_graphviz(shop())
    assert '    0 [label="price in (2.1, 3.4]\\n7 samples"];' in source
    assert '    2 [label="age in (18, 25]\\nor age in (60, 67.5]\\n6 samples"];' in source


def test_plots_break_tests_between_intervals_and_not_at_bounds():
    texts = plot_tree(shop(names=["age of the customer in years", "price"])).texts
    titles = [text.get_text().replace("\N{NO-BREAK SPACE}", "~") for text in texts if text.get_weight() == "bold"]
    assert titles[0] == "price in~(2.1, 3.4]"
    assert titles[2].splitlines() == [
        "age of the customer",
        "in years in~(18, 25]",
        "or~age of the",
        "customer in years",
        "in~(60, 67.5]",
    ]


def test_tests_that_send_all_or_none_left():
    tree, _ = grown([(0, 0, ((-inf, inf),)), (1, 0, ((3.0, 2.0),))], [0, 0, 0, 0, 1], [[1.0]])
    assert tree.predict([[1.0], [2.5]]).tolist() == [1, 1]
    for draw in (export_text, export_graphviz, plot_tree):
        draw(tree)
    assert [rule.text() for rule in tree.rules()] == ["no value of x[0]", "always", "no value of x[0]"]
