"""Rules of a tree: their order, their numbers, their names, and how they are written in every format.

That every point meets one rule, and that its label is the prediction, is tested in `test_tree_intervals.py`.
"""

import re
from math import inf, isnan
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import torch
from hand_trees import grown, random_splits
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from scipy.sparse import csr_matrix

from neonxc.rules import Column, Condition, Counts, Rule, render_rules
from neonxc.trees import CART, export_graphviz, export_text

FORMATS = ("text", "markdown", "html")
IRIS = np.array([[0.2, 1.4], [0.3, 1.5], [1.3, 4.5], [1.5, 4.6], [1.4, 5.5], [2.1, 5.0], [1.9, 5.1]])


def iris(**options):
    """Petal widths and lengths; leaves from left to right: setosa, versicolor, virginica, virginica."""
    splits = [(0, 0, 0.8), (2, 0, 1.65), (3, 1, 4.95)]
    label = [0, 0, 0, 0, 2, 1, 2]
    names = ["petal width", "petal length"]
    classes = ["setosa", "versicolor", "virginica"]
    return grown(splits, label, IRIS, names, classes, reference=[0, 0, 1, 1, 2, 2, 1])[0].rules(**options)


def test_tests_of_one_column_become_one_interval_in_the_order_of_the_path():
    found = iris()
    assert [rule.text() for rule in found] == [
        "petal width ≤ 0.8",
        "petal width in (0.8, 1.65] and petal length ≤ 4.95",
        "petal width in (0.8, 1.65] and petal length > 4.95",
        "petal width > 1.65",
    ]
    assert found[1].conditions[0] == Condition(Column(0, "petal width"), ((0.8, 1.65),))
    assert [rule.label for rule in found] == ["setosa", "versicolor", "virginica", "virginica"]
    assert str(found[3]) == "virginica: petal width > 1.65 (2 samples, 1 mistake)"
    (rule,) = grown([], [0], [[1.0, 2.0]])[0].rules()
    assert str(rule) == "cluster 0: always (1 sample, 0 mistakes)"
    assert rule.matches(np.ones((3, 2))).tolist() == [True] * 3
    assert all("always" in render_rules([rule], format) for format in FORMATS)
    split = [(0, 0, 0.5), (2, 0, 1.5)], [0, 10, 0, 2, 10], [[0.0], [1], [2]]
    text = render_rules(grown(*split, reference=[10, 2, 10])[0].rules())
    assert text.index("cluster 2:") < text.index("cluster 10:")  # in the order of labels, not of leaves


def test_counts_and_measures():
    own = [0, 0, 1, 1, 0, 1, 1]
    weight = [0.5] * 7
    weighted = grown([(0, 0, 0.8)], [0, 0, 1], IRIS, reference=own, weight=weight)[0].rules()
    found = [(rule.samples, rule.mistakes, rule.support, rule.coverage) for rule in weighted]
    assert found == [(1, 0, 1 / 3.5, 1 / 1.5), (2.5, 0.5, 2.5 / 3.5, 1)]
    assert weighted[1].precision == 0.8
    assert "2.5 samples (71%), 0.5 mistakes" in render_rules(weighted)
    assert isnan(Rule("a", "a", (), Counts(0.0, 0.0)).precision)
    assert str(Rule("a", "a", (), Counts(12345678.0, 0.0))) == "a: always (12,345,678 samples, 0 mistakes)"


def test_matches_takes_what_predict_takes():
    rule = iris()[3]
    expected = [False] * 5 + [True] * 2
    frame = pd.DataFrame(IRIS, columns=["petal width", "petal length"])
    wider = frame[["petal length", "petal width"]].assign(more="text")
    for X in (IRIS, IRIS.tolist(), torch.as_tensor(IRIS), frame, wider, csr_matrix(IRIS)):
        found = rule.matches(X)
        assert isinstance(found, torch.Tensor if isinstance(X, torch.Tensor) else np.ndarray)
        assert found.tolist() == expected
    # what is missing meets no condition
    assert rule.matches(np.array([[np.nan, 0], [inf, -inf]])).tolist() == [False, True]
    for message, X in (
        ("3 features", np.ones((2, 3))),
        (r"X needs shape \[points, features\], got \[2\]", [1.0, 2.0]),
        (r"X has no column 'petal width', which the rules use; it has \['a'\]", pd.DataFrame({"a": [1.0]})),
        ("column 'petal width' of X needs numbers, got (str|object)", pd.DataFrame({"petal width": ["wide"]})),
    ):
        refused(message, rule.matches, X)


def test_merge_joins_siblings_and_rules_with_touching_intervals():
    def merged(splits, label):
        tree, _ = grown(splits, label, np.random.default_rng(0).random((40, 2)))
        return [(rule.text(), rule.leaves) for rule in tree.rules(merge=True)]

    assert merged([(0, 0, ((0.25, 0.5),)), (1, 1, 0.5), (2, 1, 0.5)], [0, 0, 0, 0, 1, 0, 2]) == [
        ("x[1] ≤ 0.5", (2, 5)),
        ("x[0] in (0.25, 0.5] and x[1] > 0.5", (3,)),
        ("(x[0] ≤ 0.25 or x[0] > 0.5) and x[1] > 0.5", (6,)),
    ]
    # Not at the price of a longer condition
    assert len(merged([(0, 0, 0.25), (2, 0, 0.5)], [0, 0, 0, 1, 0])) == 3
    siblings = [(0, 0, 0.5), (1, 1, 0.5)]
    assert merged(siblings, [0, 0, 1, 0, 0]) == [("x[0] ≤ 0.5", (2, 3)), ("x[0] > 0.5", (4,))]
    assert merged(siblings, [0, 0, 0, 0, 0]) == [("always", (2, 3, 4))]


# --- numbers and names -------------------------------------------------------------------------------------------


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
    assert Condition(Column(0, "x"), ((-inf, value),)).text() == f"x ≤ {expected}"


def test_numbers_of_one_column_never_print_alike():
    assert Condition(Column(0, "x"), ((0.123456, 0.2),)).text(2) == "x in (0.12, 0.2]"
    refused("precision must be at least 1, got 0", Condition(Column(0, "x"), ((0, 1),)).text, 0)
    splits = [(0, 0, 0.5), (1, 1, 0.1), (2, 1, 0.100001)]
    tree, _ = grown(splits, [0, 0, 0, 0, 1, 2, 3], [[0.0, 0.0], [1.0, 1.0]])
    drawn = export_text(tree), export_graphviz(tree)
    for page in (*drawn, *(render_rules(tree, format) for format in FORMATS)):
        assert "0.100001" in page
        assert re.search(r"0\.1\b", page)


@given(st.lists(st.floats(-1e300, 1e300), max_size=8, unique=True), st.integers(1, 6))
def test_printed_numbers_tell_values_apart_and_stay_close(values, precision):
    pairs = list(zip(*[iter(sorted(values))] * 2, strict=False))
    said = Condition(Column(0, "x"), tuple(pairs)).text(precision).replace("x in ", "")
    texts = [number for pair in re.findall(r"\((\S+), (\S+)\]", said) for number in pair]
    assert len(set(texts)) == len(texts) == 2 * len(pairs)
    for value, printed in zip([value for pair in pairs for value in pair], texts, strict=True):
        close = pytest.approx(value, rel=0.5 * 10.0 ** (1 - precision) * 1.001, abs=1e-300)
        assert float(printed.replace(",", "")) == close


def test_names():
    bare, _ = grown([(0, 0, 0.8)], [0, 0, 1], IRIS)
    assert [str(rule)[:19] for rule in bare.rules()] == ["cluster 0: x[0] ≤ 0", "cluster 1: x[0] > 0"]
    own = iris(feature_names=["w", "two\nlines"], class_names=np.array(["A", "B", "C"]))
    assert own[1].text() == "w in (0.8, 1.65] and two lines ≤ 4.95"
    assert [(rule.name, rule.label) for rule in own[:2]] == [("A", "setosa"), ("B", "versicolor")]
    refused("feature_names must be a sequence of names or a mapping, got the string", iris, feature_names="ab")


# --- formats -----------------------------------------------------------------------------------------------------


def test_text_is_aligned_and_sums_up_clusters():
    assert render_rules(iris()) == (
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


def test_markdown_escapes_names():
    text = render_rules(iris(feature_names=["a_b|*c*", "<i>"], class_names=["1. x", "- y", "z"]), "markdown")
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


def test_html_is_a_fragment_with_escaped_names():
    names = {"feature_names": ["<script>alert('a')</script>", 'b & "c"'], "class_names": ["<b>A</b>", "B", "C"]}
    page = ElementTree.fromstring(f"<body>{render_rules(iris(**names), 'html')}</body>")  # every tag is closed
    tags = ["style", "table", "thead", "tbody", "tfoot", "i", "tr", "th", "td", "span", "div"]
    assert {element.tag for element in page.iter()} == {"body", *tags}
    assert page.find("table").attrib == {"class": "neonxc-rules"}
    assert page.find(".//th[@rowspan='2'][@scope='rowgroup']") is not None
    rows = [" ".join(" ".join(row.itertext()).split()) for row in page.iter("tr")]
    assert rows[1] == "<b>A</b> <script>alert('a')</script> ≤ 0.8 2 0 100% 100%"
    assert rows[3:6] == [
        "C 3 samples (43%) 1 mistake coverage 100% precision 67% "
        "<script>alert('a')</script> in (0.8, 1.65] and b & \"c\" > 4.95 1 0 50% 100%",
        "or <script>alert('a')</script> > 1.65 2 1 50% 50%",
        "total 7 samples, 1 mistake, agreement 86%",
    ]
    assert rows[6].startswith("mistakes : matching samples of other clusters.")
    assert len(rows) == 7


@given(seed=st.integers(0, 10**6), leaves=st.integers(1, 30))
def test_text_has_no_long_lines_and_every_condition_once(seed, leaves):
    splits, label, X = random_splits(seed, leaves)
    splits = [(node, feature, 0.5 if isinstance(test, tuple) else test) for node, feature, test in splits]
    found = grown(splits, label, X)[0].rules()
    lines = render_rules(found).splitlines()
    assert max(map(len, lines)) < 140
    assert sum(line.count(" and ") for line in lines) == sum(max(len(rule.conditions) - 1, 0) for rule in found)
    assert sum(line.startswith("or  ") for line in lines) == len(found) - len({rule.label for rule in found})


def test_what_is_rendered():
    explainer = CART(2).fit(np.array([[0.0, 0], [0, 1], [4, 0], [4, 1]]), labels=[0, 0, 1, 1])
    wanted = render_rules(explainer.tree_.rules())
    assert render_rules(explainer.tree_) == render_rules(explainer) == wanted
    assert render_rules(iter(explainer.tree_.rules()), format="text") == wanted.replace(", cost ratio 1", "")
    assert render_rules([]) == render_rules([], "markdown") == ""
    refused(r"format must be one of \['text', 'markdown', 'html'\], got 'latex'", render_rules, [], "latex")
    for wrong in (CART(2), None, 3, "rules", ["x ≤ 3"], np.zeros(2)):
        message = "rules must be rules, a ThresholdTree or a fitted tree explainer"
        refused(message, render_rules, wrong, error=TypeError)
