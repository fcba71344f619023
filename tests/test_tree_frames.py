"""Trees of data frames with categories and missing values."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pandas.api.types import is_numeric_dtype
from refusals import refused
from rule_witnesses import assert_said, sqlite
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from tree_witnesses import CLASSES, assert_same
from turns import every, in_turns

import neonxc
from neonxc.evaluation import wad, waes
from neonxc.rules import Column, Condition
from neonxc.trees import (
    CART,
    EMN,
    IMM,
    ExKMC,
    ExShallow,
    KDTree,
    KernelExKMC,
    SpExClique,
    export_text,
)

MESSY = ["age", "work", "member", "size", "income", "children"]


def messy(n=120, seed=0):
    """People, with gaps in numbers and in categories; and clusters that depend on both."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": np.where(rng.random(n) < 0.2, np.nan, rng.integers(17, 70, n)),
            "work": rng.choice(np.array(["Private", "State", "it's", None], dtype=object), n),
            "member": rng.random(n) < 0.5,
            "size": pd.Categorical(rng.choice(["S", "M", "L"], n), ordered=True, categories=["S", "M", "L", "XL"]),
            "income": rng.normal(size=n).round(2),
            "children": pd.array(rng.integers(0, 4, n), dtype="Int64"),
        }
    )
    frame.loc[rng.random(n) < 0.1, "children"] = pd.NA
    return frame, np.where(frame.work == "Private", 0, np.where((frame.age <= 35) | frame.age.isna(), 1, 2))


def parted(frame, left, right):
    """Every way in which one test parts the rows, and two centers: (rows on the left, both centers' sides)."""
    for name in frame:
        column = frame[name]
        (mine, other) = (left, right)
        gone = column.isna().to_numpy()
        if gone.any():
            yield from shares(gone, mine, other)
        if not is_numeric_dtype(column):
            for value in column.dropna().unique():
                yield from shares((column == value).to_numpy(), mine, other)
            continue
        values = column.fillna(column.median()).to_numpy(float)
        centers = values[mine].mean(), values[other].mean()
        ordered = np.unique([*column.dropna(), *centers])
        for bound in (ordered[1:] + ordered[:-1]) / 2:
            for with_missing in (False, True):
                goes = np.where(gone, with_missing, values <= bound)
                yield goes, (centers[0] <= bound, centers[1] <= bound)


def shares(is_it, mine, other):
    """Indicators: centers are shares of their points, and any bound between 0 and 1 may part them."""
    one = is_it[mine].mean()
    two = is_it[other].mean()
    marks = np.unique([0, 1, one, two])
    for bound in (marks[1:] + marks[:-1]) / 2:
        yield ~is_it, (one <= bound, two <= bound)


def gini(y):
    return len(y) - (np.unique(y, return_counts=True)[1] ** 2).sum() / max(len(y), 1)


@st.composite
def frames(draw, least=6):
    """Small tables of numbers, strings and gaps, and labels of two clusters."""
    n = draw(st.integers(least, 20))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    columns = {}
    for i in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            column = rng.integers(0, 5, n).astype(float)
            column[rng.random(n) < draw(st.sampled_from([0, 0.3, 0.7]))] = np.nan
        else:
            column = rng.choice(np.array(["a", "b", "c", None], dtype=object)[: draw(st.integers(2, 4))], n)
        columns[f"c{i}"] = column
    y = rng.integers(0, 2, n)
    y[:2] = 0, 1
    return pd.DataFrame(columns), y


@given(frames())
def test_imm_makes_the_fewest_mistakes_of_all_tests(case):
    frame, y = case
    found = [
        np.where(y == 0, goes != sides[0], goes != sides[1]).sum()
        for goes, sides in parted(frame, y == 0, y == 1)
        if sides[0] != sides[1]
    ]
    if not found:
        return refused("same in every column", IMM(2).fit, frame, labels=y)
    tree = IMM(2).fit(frame, labels=y)
    assert (tree.labels_ != y).sum() == min(found) == tree.tree_.mistakes[0]


@given(frames())
def test_cart_gains_most_of_all_tests(case):
    frame, y = case
    least = min((gini(y[goes]) + gini(y[~goes]) for goes, _ in parted(frame, y == 0, y == 1)), default=gini(y))
    leaf = CART(2, max_leaves=2).fit(frame, labels=y).tree_.apply(frame)
    own = sum(gini(y[leaf == one]) for one in np.unique(leaf))
    assert own == pytest.approx(min(least, gini(y)))


@pytest.mark.parametrize("leaves", [2, 5, 12])
def test_numbers_with_gaps_are_cut_as_scikit_learn_cuts_them(leaves):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    y = (X[:, 0] > 0) + 2 * (X[:, 1] > 0.5)
    X[rng.random(X.shape) < 0.2] = np.nan
    X[y == 1, 2] = np.nan
    frame = pd.DataFrame(X, columns=list("abcd"))
    ours = CART(max_leaves=leaves).fit(frame, labels=y)
    theirs = DecisionTreeClassifier(max_leaf_nodes=leaves, random_state=0).fit(X, y)
    own, other = (
        sum(gini(y[at == leaf]) for leaf in np.unique(at)) for at in (ours.tree_.apply(frame), theirs.apply(X))
    )
    assert own == pytest.approx(other)
    assert (ours.predict(frame) == theirs.predict(X)).mean() > 0.99


@pytest.mark.parametrize(("model", "labelled"), every(2, in_turns(CLASSES, [True, False, True])))
def test_every_explainer_reads_a_messy_frame(model, labelled, tmp_path):
    frame, y = messy()
    fitted = model(3).fit(frame, labels=y if labelled else None)
    tree = fitted.tree_
    labels = fitted.labels_.tolist()
    rules = fitted.tree_.rules()
    for reader in (fitted, tree, tree.rules(merge=True)):
        assert reader.predict(frame).tolist() == labels
    assert_said(rules, frame, labels, databases=[sqlite])
    assert [sum(rule.matches(frame)) for rule in rules] == [rule.samples for rule in rules]
    assert 0 < waes(tree) <= wad(tree)
    assert fitted.score(frame) == pytest.approx(-fitted.inertia_)
    neonxc.save(fitted, tmp_path / "tree.safetensors")
    again = neonxc.load(tmp_path / "tree.safetensors")
    assert (type(again), again.get_params()) == (model, fitted.get_params())
    assert_same(again, fitted, costs=0)
    assert again.predict(frame).tolist() == labels
    assert again.score(frame) == fitted.score(frame)
    assert again.tree_.rules() == rules
    assert len(export_text(tree).splitlines()) == tree.n_nodes - 1
    assert tree.to_sklearn().predict(tree.encoding.encode(frame)).tolist() == labels


@given(frames(least=10), st.sampled_from([CART, SpExClique, KDTree]), st.booleans())
def test_rules_in_all_forms_say_what_the_tree_predicts(case, model, merge):
    """Also of rows that the tree has not seen: other numbers, other categories, gaps where there were some."""
    frame, y = case
    fitted = model(2, max_leaves=6).fit(frame, labels=y)
    rules = fitted.tree_.rules(merge=merge)
    rng = np.random.default_rng(len(y))
    assert all(len({one.column for one in rule.conditions}) == len(rule.conditions) for rule in rules)
    other = frame.apply(lambda column: rng.permutation(column.to_numpy()))
    for name in other:
        if is_numeric_dtype(other[name]):
            other[name] += rng.choice([0, 0.5, -9, 9], len(y))
        else:
            other.loc[rng.random(len(y)) < 0.3, name] = rng.choice(["a", "new"])
    for rows in (frame, other):
        assert_said(rules, rows, fitted.predict(rows).tolist(), databases=[sqlite])


def test_how_rules_are_worded():
    age = [20.0, 30, 35, 40, 50, 60, np.nan, np.nan]
    frame = pd.DataFrame({"age": age, "work": ["a", "b"] * 4})

    def said(labels):
        return [rule.text() for rule in CART(max_leaves=8).fit(frame, labels=labels).tree_.rules()]

    condition = Condition(Column(0, "age"), ((-np.inf, 35), (60, np.inf)), missing=True)
    assert str(condition) == "age ≤ 35 or age > 60 or missing"
    assert Condition(Column(0, "age"), missing=True).is_always_met
    assert str(Condition(Column(0, "age"), (), missing=True)) == "age is missing"
    assert said([0, 0, 0, 1, 1, 1, 1, 1]) == ["age ≤ 37", "age > 37 or missing"]
    assert said([0, 0, 0, 0, 0, 0, 1, 1]) == ["age is not missing", "age is missing"]
    assert said([0, 1] * 4) == ["work is not b", "work is b"]
    assert sorted(said([0, 0, 0, 1, 1, 1, 2, 2])) == ["age > 37", "age is missing", "age ≤ 37"]
    tree = CART().fit(frame, labels=[0, 0, 0, 1, 1, 1, 0, 0]).tree_
    assert tree.rules(units={"age": "years"})[0].text() == "age ≤ 37 years or missing"
    assert export_text(tree, class_names=["young", "old"]).splitlines() == [
        "|--- age ≤ 37 or missing: young (5 samples, 0 mistakes)",
        "|--- age > 37: old (3 samples, 0 mistakes)",
    ]


def test_values_that_were_not_there_when_the_tree_was_fitted():
    frame = pd.DataFrame({"a": [0.0, 1, 2, 3], "b": [1.0, np.nan, 1, 2], "c": ["x", "x", "y", "y"]})
    tree = CART().fit(frame, labels=[0, 0, 1, 1]).tree_
    refused("missing value in row 1, column 'a', which had none", tree.predict, frame.assign(a=[0.0, None, 2, 3]))
    assert tree.predict(frame.assign(b=np.nan, c="z")).tolist() == [0, 0, 1, 1]  # b and c are not tested
    tree = CART().fit(frame[["c"]], labels=[0, 0, 1, 1]).tree_
    assert tree.predict(pd.DataFrame({"c": ["x", "y", "z", None]})).tolist() == [0, 1, 0, 0]
    numbers = frame[["a"]].assign(member=[True, False] * 2)  # are read as ever
    tree = CART().fit(numbers, labels=[0, 0, 1, 1]).tree_
    assert (tree.encoding, tree.n_columns) == (None, 2)
    refused("not numeric", tree.predict, numbers.assign(a="x"))
    refused("not finite", tree.predict, numbers.assign(a=np.nan))


def test_costs_are_those_of_standardized_numbers_and_categories():
    frame, _ = messy()
    plain = frame.assign(children=frame.children.astype(float))
    to_numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    steps = make_column_transformer(
        (to_numbers, ["age", "income", "children"]),
        (OneHotEncoder(sparse_output=False), ["work", "member", "size"]),
    )
    space = steps.fit_transform(plain)
    ours = CART(3, random_state=0).fit(frame)
    means = np.stack([space[ours.labels_ == label].mean(0) for label in range(3)])
    assert ours.inertia_ == pytest.approx(((space - means[ours.labels_]) ** 2).sum())
    theirs = CART(reference=make_pipeline(steps, KMeans(3, n_init=10, random_state=0))).fit(plain)
    assert theirs.inertia_ == pytest.approx(ours.inertia_, rel=0.02)
    assert theirs.score(plain) == pytest.approx(-theirs.inertia_)
    small = pd.DataFrame({"a": [0.0, 2, 10, np.nan], "b": ["x", "y", "y", "y"]})
    tree = IMM(2).fit(small, labels=[0, 0, 1, 1])
    assert tree.tree_.encoding.names == ["a_missing", "a", "a", "b_y"]
    np.testing.assert_allclose(tree.cluster_centers_, [[0, 1, 1, 0.5], [0.5, 6, 6, 1]])


@pytest.mark.parametrize("model", [CART, ExShallow, EMN, SpExClique])
def test_weights_are_points_repeated_also_beside_gaps(model):
    frame, y = messy(60)
    weight = np.random.default_rng(0).integers(0, 4, 60)
    weighted = model(3).fit(frame, labels=y, sample_weight=weight)
    repeated = model(3).fit(frame.loc[frame.index.repeat(weight)], labels=y.repeat(weight))
    assert weighted.tree_.rules() == repeated.tree_.rules()


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_tensors_where_only_numbers_are_missing():
    X = np.array([[0.0, 1], [np.nan, 1], [5, 1], [6, 2]])
    tree = CART().fit(pd.DataFrame(X, columns=["a", "b"], dtype=object), labels=[0, 0, 1, 1]).tree_
    assert isinstance(tree.predict(torch.from_numpy(X)), torch.Tensor)
    assert tree.predict(torch.from_numpy(X)).tolist() == [0, 0, 1, 1]
    assert [rule.text() for rule in tree.rules()] == ["a ≤ 2 or missing", "a > 2"]


def test_a_tree_can_be_expanded_on_its_own_table():
    frame, y = messy()
    base = IMM(3).fit(frame, labels=y)
    assert ExKMC(3, base=base.tree_, max_leaves=6).fit(frame, labels=y).tree_.n_leaves >= base.tree_.n_leaves
    refused("another table", ExKMC(3, base=base.tree_).fit, frame.fillna({"age": 0}), labels=y)


@pytest.mark.parametrize("model", [CART, IMM, KernelExKMC])
def test_trees_of_frames_are_networks(model):
    frame, y = messy()
    fitted = model(3).fit(frame, labels=y)
    net = neonxc.neuralize(fitted)
    np.testing.assert_array_equal(net.predict(frame), fitted.predict(frame))
    relevance = neonxc.NEON(net).attribute(frame)
    assert list(relevance.columns) == MESSY
    tested = {condition.column.key for rule in fitted.tree_.rules() for condition in rule.conditions}
    assert (relevance.drop(columns=list(tested)) == 0).all(axis=None)
    assert (relevance.sum(axis=1) > 0).all()


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_other_columns_are_refused():
    frame, y = messy()
    fitted = CART().fit(frame, labels=y)
    turned = frame[MESSY[::-1]]
    refused("feature names", fitted.predict, turned)  # as scikit-learn demands of estimators
    assert (fitted.tree_.predict(turned) == fitted.labels_).all()  # a tree goes by name
    for wrong in (frame.drop(columns="age"), frame.to_numpy()[:, 1:]):
        for model in (fitted, fitted.tree_):
            refused(r"columns|features|feature names", model.predict, wrong)
    refused("categories are known", fitted.tree_.rules, categories={"work": ["Private"]})
