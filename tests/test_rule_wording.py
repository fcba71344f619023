"""How rules are worded: as many digits as tell training values apart, whole numbers, units, categories."""

import re
from decimal import Decimal
from itertools import product
from math import inf, nan, nextafter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from refusals import refused
from rule_witnesses import assert_meets, assert_said
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.preprocessing import OneHotEncoder
from tree_witnesses import data

from neonxc.rules import Column, Condition
from neonxc.trees import CART, KernelExKMC


def shortest(bound, low, high, whole=False):
    """How a bound is printed between two training values."""
    return Column(0, whole=whole, gaps=((bound, low, high),)).numbers([bound])[bound]


SEED = st.integers(0, 10**6)
TEXT = "str" if pd.__version__ >= "3" else "string"  # before, a "str" has no missing values


def decimals(digits, low, high):
    """All numbers of so many significant digits in [low, high), of exponents that tests need."""
    mantissas = range(-(10**digits) + 1, 10**digits)
    exponents = range(-8, 8)
    numbers = (Decimal(mantissa).scaleb(exponent) for mantissa, exponent in product(mantissas, exponents))
    return [number for number in numbers if low <= float(number) < high]


def significant(text):
    return len(Decimal(text).normalize().as_tuple().digits)


# --- numbers -----------------------------------------------------------------------------------------------


@given(
    near=st.floats(-1e6, 1e6).filter(lambda x: x == 0 or abs(x) > 1e-6),
    apart=st.sampled_from([1e-3, 0.01, 0.1, 0.5, 1.0, 10.0]),
    open_above=st.booleans(),
)
def test_no_number_with_fewer_digits_would_do(near, apart, open_above):
    size = max(abs(near), 1e-6) * apart
    below = near - size
    above = inf if open_above else nextafter(near + size, inf)
    text = shortest(near, below, above)
    assert below <= float(text) < above
    assert text != "-0"
    if 1 < significant(text) <= 4:
        assert decimals(significant(text) - 1, below, above) == []
    if significant(text) <= 2:
        closest = min(abs(number - Decimal(near)) for number in decimals(significant(text), below, above))
        assert abs(Decimal(text) - Decimal(near)) == closest


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_neighbouring_numbers_are_told_apart(number):
    below = nextafter(number, -inf)
    above = nextafter(number, inf)
    assert float(shortest(number, number, above)) == number
    assert below < float(shortest(number, number, above)) < above
    assert len(shortest(number, number, above)) <= 25


@given(low=st.integers(-(10**9), 10**9), gap=st.integers(1, 10**6), share=st.floats(0, 0.999))
def test_whole_numbers(low, gap, share):
    text = shortest(low + gap * share, low, low + gap, whole=True)
    assert "." not in text
    assert low <= int(text) < low + gap
    assert shortest(0.5, 0.4, 0.6, whole=True) == "0.5"  # there are none


@given(
    seed=SEED,
    kind=st.sampled_from(["grid", "fine", "whole"]),
    dtype=st.sampled_from([np.float64, np.float32]),
)
def test_printed_bounds_send_the_training_points_where_the_tree_does(seed, kind, dtype):
    X = data(seed, 50, 3, 4, kind="grid" if kind == "whole" else kind).X.astype(dtype)
    X *= 40 if kind == "whole" else 1
    labels = X.sum(axis=1).argsort().argsort() * 4 // 50  # whose centers differ
    rules = CART(4, max_leaves=8).fit(X, labels=labels).tree_.rules()
    for column in rules.columns:
        own = [c for rule in rules for c in rule.conditions if c.column == column]
        bounds = sorted({bound for c in own for pair in c.intervals for bound in pair} - {inf, -inf})
        texts = column.numbers(bounds)
        assert [*texts] == bounds
        in_order = [float(text) for text in texts.values()]
        assert in_order == sorted(set(in_order))
        values = X[:, [column.position]].astype(float)
        assert_array_equal(values <= in_order, values <= bounds)
        assert kind != "whole" or "." not in "".join(texts.values())


def test_bounds_in_one_gap_keep_their_order():
    gap = (0.2, 0.4)
    column = Column(0, "x", gaps=tuple((bound, *gap) for bound in (0.2996, 0.2998, 0.3)))
    assert column.numbers([0.2996, 0.2998, 0.3]) == {0.2996: "0.2", 0.2998: "0.2998", 0.3: "0.3"}
    assert column.numbers([0.2996]) == {0.2996: "0.3"}
    assert str(Condition(column, ((0.2996, 0.2998),))) == "x in (0.2, 0.3]"
    assert column.numbers([0.2996, 0.5]) == {0.2996: "0.2996", 0.5: "0.5"}  # nothing is known of 0.5


@given(low=st.integers(-20, 20), width=st.integers(1, 20), name=st.sampled_from(["age", "in (0, 1]"]))
def test_intervals_of_whole_numbers_are_closed(low, width, name):
    bounds = low + 0.5, low + width + 0.5
    column = Column(0, name, whole=True, gaps=tuple((bound, bound - 0.5, bound + 0.5) for bound in bounds))
    text = str(Condition(column, (bounds,)))
    assert text == f"{name} " + (f"is {low + 1}" if width == 1 else f"in [{low + 1}, {low + width}]")
    assert str(Condition(Column(0, "x", whole=True), ((0.2, 0.4),))) == "x in (0.2, 0.4]"  # there is none


def test_large_numbers_have_thousands_separators_and_years_do_not():
    X = pd.DataFrame({"weight": [132900, 186061, 186063, 250000.5], "year": [1985, 1985, 1985, 1986]})
    texts = [rule.text() for rule in CART(3).fit(X, labels=[0, 1, 1, 2]).tree_.rules()]
    assert texts == ["weight ≤ 160,000", "weight in (160,000, 200,000]", "weight > 200,000"]
    assert str(Condition(Column(0, "x", whole=True), ((12345.0, 20000.0),))) == "x in [12,346, 20,000]"
    assert str(Condition(Column(0, "year", whole=True), ((-inf, 1985.5),))) == "year ≤ 1985.5"


def test_units():
    X = pd.DataFrame({"age": [17, 35, 36, 45, 46, 70], "size": 1.0})
    rules = CART(3).fit(X, labels=[0, 0, 1, 1, 2, 2]).tree_.rules
    texts = [rule.text() for rule in rules(units={"age": "full\nyears"})]
    assert texts == ["age ≤ 35 full years", "age in [36, 45] full years", "age > 45 full years"]
    assert rules(feature_names=["a", "b"], units={"a": "y"})[0].text() == "a ≤ 35 y"
    assert "36, 45] &lt;b&gt;" in rules(units={"age": "<b>"}).to_html()
    assert "36, 45] \\_" in rules(units={"age": "_"}).to_markdown()
    refused(r"units names columns that the tree does not have: \['weight'\]", rules, units={"weight": "kg"})
    plain = CART(2).fit([[0.0], [1]], labels=[0, 1]).tree_
    assert {plain.rules(units={key: "cm"})[0].text() for key in (0, "0", "x[0]")} == {"x[0] ≤ 0 cm"}


# --- categories --------------------------------------------------------------------------------------------

WORK = ["it's", "Private", "State gov", ""]


def mixed(seed, missing=True, n=80):
    """A table with a column of numbers and two of categories, with values missing among them."""
    rng = np.random.default_rng(seed)
    work = rng.choice(np.array([*WORK, None][: 5 if missing else 4], dtype=object), n)
    frame = pd.DataFrame(
        {"age": rng.integers(17, 80, n), "work": work, "size": rng.choice([*"sml"], n).astype(object)}
    )
    labels = (frame["age"] > 40) + 2 * (frame["work"].isin(WORK[:2])) * (frame["size"] != "s")
    return frame, (labels + (rng.random(n) < 0.1)).to_numpy()


def dummies(frame, dummy_na, drop, **_):
    names = {"work": [*WORK, None], "size": [*"sml", nan]}
    return pd.get_dummies(frame, columns=[*names], dummy_na=dummy_na, drop_first=drop), names


def one_hot(frame, drop, **_):
    words = frame[["work", "size"]]
    encoder = OneHotEncoder(sparse_output=False, drop="first" if drop else None).set_output(transform="pandas")
    encoded = encoder.fit_transform(words).assign(age=frame["age"])
    return encoded, dict(zip(words, encoder.categories_, strict=True))


def codes_of_pandas(frame, **_):
    kinds = frame[["work", "size"]].astype("category")
    names = {name: [*kinds[name].cat.categories, None] for name in kinds}
    return frame.assign(**kinds.apply(lambda column: column.cat.codes)), names


ENCODED = given(
    seed=SEED,
    encode=st.sampled_from([dummies, one_hot, codes_of_pandas]),
    model=st.sampled_from([CART, KernelExKMC]),
    options=st.fixed_dictionaries(dict.fromkeys(["missing", "dummy_na", "drop", "merge"], st.booleans())),
)


def said_of_the_table(seed, encode, model, options):
    """All forms say of the table as it was what the tree says of it encoded."""
    frame, labels = mixed(seed, options["missing"])
    encoded, names = encode(frame, **options)
    tree = model(4, max_leaves=10).fit(encoded, labels=labels).tree_
    rules = tree.rules(categories=names, merge=options["merge"])
    expected = tree.predict(encoded).tolist()
    assert {column.key for column in rules.columns} <= set(frame)
    assert_said(rules, frame, expected)
    plain = frame.astype(object).where(frame.notna(), None)
    for kept in (plain.astype({"age": int, "work": "category"}), frame.astype({"work": TEXT})):
        assert_meets(rules, kept, expected)


test_encoded_categories = settings(max_examples=6)(ENCODED(said_of_the_table))
test_many_encoded_categories = pytest.mark.slow(settings(max_examples=15)(ENCODED(said_of_the_table)))


def test_what_categories_are_called():
    column = Column(-1, "w")

    def said(*values, negated=False):
        return str(Condition(column, values=values, negated=negated))

    assert said("a") == "w is a"
    assert said("a", "b") == "w is a or b"
    assert said("a", 2, 3.0, 0.1, True, None) == "w is a, 2, 3, 0.1, true or missing"
    assert said("a", negated=True) == "w is not a"
    assert said("a", nan, negated=True) == "w is none of a, missing"
    assert said("") == "w is ''"
    assert said(np.str_("line\nbreak"), np.int64(3)) == "w is line break or 3"
    assert (said(), said(negated=True)) == ("no value of w", "any value of w")
    assert Condition(column, values=(nan, np.int64(2))).values == (None, 2)


def test_conditions_of_one_column_at_once():
    conditions = [
        Condition(Column(-1, "w"), values=listed, negated=negated)
        for listed in (("a", "b"), ("b", "c"), (None, "a"), (None,), ())
        for negated in (False, True)
    ]
    values = ["a", "b", "c", None]
    for one, two in product(conditions, repeat=2):
        assert_array_equal(one.intersect(two).matches(values), one.matches(values) & two.matches(values))


def test_brackets_and_long_lists():
    X = pd.DataFrame({"age": [20, 20, 50, 50] * 3, "c": range(12)})
    tree = CART(3, max_leaves=5).fit(X, labels=[0] * 6 + [1, 1, 2, 2, 1, 1]).tree_
    lines = tree.rules(categories={"c": [f"country number {i}" for i in range(12)]}).to_text().splitlines()
    assert all(len(line) <= 76 for line in lines if not line.startswith("cluster") and "sample" not in line)
    assert [rule.text() for rule in tree.rules(categories={"c": list("abcdefghijkl")})] == [
        "c is a, b, c, d, e or f",
        "(c is none of a, b, c, d, e, f) and age ≤ 30",
        "(c is none of a, b, c, d, e, f) and age > 30",
    ]
    assert "\\<i\\>" in tree.rules(categories={"c": [f"<i>{i}" for i in range(12)]}).to_markdown()


def test_categories_that_are_refused():
    frame, labels = mixed(0)
    rules = CART(4).fit(pd.get_dummies(frame), labels=labels).tree_.rules
    refused("no column 'shape' of codes, and no column 'shape_round'", rules, categories={"shape": ["round"]})
    of_frames = rules(categories={"work": WORK})
    refused("column 'work', which only a data frame can have", of_frames.predict, frame.to_numpy())
    for listed in ("red", ["red", "red"]):
        refused("needs a sequence of distinct categories", rules, categories={"age": listed})
    refused(r"categories needs a mapping .*, got list", rules, categories=["age"], error=TypeError)


def test_codes_that_are_not_listed_go_where_the_tree_sends_them():
    frame = pd.DataFrame({"c": [0.0, 0, 1, 1, 2, 2], "x": 0.0})
    tree = CART(2).fit(frame, labels=[0, 0, 1, 1, 1, 1]).tree_
    rules = tree.rules(categories={"c": ["red", "green"]}, feature_names=["colour", "x"])
    assert [rule.text() for rule in rules] == ["colour is red", "colour is not red"]
    assert rules.predict(pd.DataFrame({"c": ["red", "green", "blue"]})).tolist() == [0, 1, 1]


def test_terms_that_are_there_come_first():
    texts = ["red cat", "red dog", "blue cat", "blue dog", "red cat red", "blue dog old"] * 4
    counts = CountVectorizer()
    X = counts.fit_transform(texts).toarray()
    labels = [2 * ("red" in text) + ("cat" in text) for text in texts]
    tree = CART(4).fit(X, labels=labels).tree_
    rules = tree.rules(feature_names=counts.get_feature_names_out(), terms=True)
    assert all(len(rule.conditions) == 2 for rule in rules)
    parts = [rule.text().split(" and ") for rule in rules]
    assert sum(part.startswith("without") for both in parts for part in both) == 4
    assert all(not both[0].startswith("without") or both[1].startswith("without") for both in parts)
    printed = rules.to_text()
    assert all(rule.text() in printed for rule in rules)


def test_terms_are_there_or_not():
    texts = ["python code in docker", "docker runs code", "a cat and a dog", "dogs and a cat"] * 5
    words = TfidfVectorizer()
    weights = words.fit_transform(texts).toarray()
    tree = CART(2).fit(weights, labels=[0, 0, 1, 1] * 5).tree_
    found = {rule.text() for rule in tree.rules(feature_names=words.get_feature_names_out(), terms=True)}
    assert found in ({f"with {word}", f"without {word}"} for word in ("and", "cat", "code"))
    half = weights * (1 + np.arange(20)[:, None] % 2)
    for rule in CART(4).fit(half, labels=np.arange(20) % 4).tree_.rules(terms=True):
        assert not re.search("[≤>] 0(?![.])", rule.text())
