"""Layers of clusters: trees, `kept` and decision lists against brute force, and what is said of splits."""

import json
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator
from sklearn.cluster import DBSCAN, HDBSCAN, AgglomerativeClustering, BisectingKMeans, KMeans
from sklearn.datasets import load_wine, make_blobs
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from neonxc import NEON, explain, layers, neuralize

WINE = load_wine(as_frame=True).data.iloc[:, [0, 6, 9, 11, 12]]


@cache
def planted(n=480, seed=0):
    """Three far clusters of three near ones each, and slices of these: the rows, and labels [n, 3]."""
    rng = np.random.default_rng(seed)
    coarse = np.arange(n) % 3
    fine = coarse * 3 + np.arange(n) // 3 % 3
    middle = 30 * np.eye(3)[coarse] + 8 * np.eye(3)[fine % 3]
    X = middle + rng.normal(size=(n, 3))
    slices = fine * 2 + (X[:, 0] + X[:, 1] > (middle[:, 0] + middle[:, 1]))
    return X, np.column_stack([coarse, fine, slices])


@pytest.fixture
def without_verdicts(monkeypatch):
    """Judge no split, which takes up to a second for each of them."""
    verdict = SimpleNamespace(text="not judged", separation=None)
    monkeypatch.setattr("neonxc.hierarchy.layered.verdict_of", lambda *_: verdict)


@pytest.fixture
def without_reasons(monkeypatch):
    """Look for no reasons and no rules."""
    monkeypatch.setattr("neonxc.hierarchy.layered.reason_of", lambda *_: None)
    monkeypatch.setattr("neonxc.hierarchy.layered.HELD_OUT", np.inf)


@pytest.fixture
def splits_alone(without_verdicts, without_reasons):
    """Read splits, and leave out verdicts, reasons and rules."""


def parts_of(split):
    """The rows of the parts, and of the parent, as sets."""
    rows = [frozenset(split.rows[split.codes == part]) for part in range(len(split.children))]
    return frozenset(split.rows), frozenset(rows)


# --- labels ------------------------------------------------------------------------------------------------------


def witness_of_labels(L):
    """The rows of every parent and of its parts, from sets."""
    layers_ = sorted(np.asarray(L).T, key=lambda labels: len({*labels} - {-1}))
    nodes = {"all": (frozenset(range(len(L))), -1)}
    parts = {"all": []}
    for number, labels in enumerate(layers_):
        for label in sorted({*labels} - {-1}):
            members = rows = frozenset(np.flatnonzero(labels == label).tolist())
            home = "all"
            for above in reversed(range(number)):
                counts = {k: sum(layers_[above][row] == k for row in rows) for k in sorted({*layers_[above]})}
                noise = counts.pop(-1, 0)
                if counts and max(counts.values()) >= noise:
                    home = (above, max(counts, key=counts.get))
                    break
                rows = frozenset(row for row in rows if layers_[above][row] == -1)
            nodes[number, label] = (members, number)
            parts[number, label] = []
            parts[home].append((number, label))
    found = set()
    for node, children in parts.items():
        if len(children) > 1:
            rows = nodes[node][0]
            free = set(rows)
            of_parts = []
            for child in children:
                of_parts.append(frozenset(free & nodes[child][0]))
                free -= nodes[child][0]
            found.add((rows, frozenset(of_parts), round(1 - len(free) / len(rows), 12)))
    return found


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.usefixtures("splits_alone")
def test_crossing_layers_are_read_as_by_sets(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, 2))
    base = rng.integers(0, 6, 60)
    L = np.column_stack([base // 2, base, base * 2 + rng.integers(0, 2, 60)])
    moved = rng.random(L.shape) < 0.2
    L = np.where(moved, rng.integers(-1, [3, 6, 12], L.shape), L)  # crossing, with noise
    found = layers(L[:, rng.permutation(3)], X)
    told = {(*parts_of(split), round(split.kept, 12)) for split in found.splits}
    assert told == witness_of_labels(L)
    for split in found.splits:
        assert sum(split.elsewhere.values()) == (split.codes < 0).sum()
        assert sum(split.sizes.values()) + sum(split.elsewhere.values()) == len(split.rows)


@pytest.mark.parametrize(
    ("coarse", "fine", "expected"),
    [
        ("aabbbb", "xxyyzz", {"b": "b/y b/z"}),  # a has one part, and is no split
        ("aaaabb", "xxyyyb", {"a": "a/x a/y"}),  # y crosses, and belongs to a
        ("aaaa--", "xxyyzz", {"all": "a z", "a": "a/x a/y"}),  # noise at the coarse layer hangs on the root
        ("aaaaaa", "xxxyyy", {"all": "x y"}),  # a layer with one child is no split
        ("aabb", "xxyy", {}),
    ],
)
@pytest.mark.usefixtures("splits_alone")
def test_homes(coarse, fine, expected):
    rng = np.random.default_rng(0)
    given = [[-1 if label == "-" else label for label in layer for _ in range(5)] for layer in (coarse, fine)]
    found = layers(given, rng.normal(size=(len(given[0]), 2)))
    told = {split.parent: " ".join(split.children) for split in found.splits}
    root = {} if "all" in expected or len({*coarse}) == 1 else {"all": " ".join(sorted({*coarse}))}
    assert told == {**root, **expected}


@pytest.mark.usefixtures("splits_alone")
def test_rows_that_are_elsewhere_are_counted_and_named():
    coarse = np.repeat([0, 1], [40, 20])
    fine = np.repeat([5, 6, -1, 7, 8, 9], [14, 16, 3, 7, 8, 12])
    fine[40:43] = 7  # most of 7 is in 0
    X = np.random.default_rng(0).normal(size=(60, 2))
    split = layers([coarse, fine], X)["1"]
    assert split.elsewhere == {"0/7": 3}
    assert layers([coarse, fine], X)["0"].elsewhere == {"noise": 3}
    assert split.kept == pytest.approx(17 / 20)
    assert "Its other rows are elsewhere: 0/7 (3)." in str(split)


@pytest.mark.usefixtures("splits_alone")
def test_labels_are_read_in_any_form():
    X, L = planted(63)
    L = L[:, :2]
    text = L.astype(str)
    expected = [parts_of(split) for split in layers(L, X).splits]
    frame = pd.DataFrame(X, columns=[*"xyz"], index=np.arange(len(X)) + 100)
    shuffled = pd.DataFrame(L, index=frame.index).sample(frac=1, random_state=0)
    cells = SimpleNamespace(
        X=X,
        obs=pd.DataFrame(text, columns=["r0.2", "r1"]),
        obs_names=pd.RangeIndex(len(X)).astype(str),
        var_names=pd.Index([*"xyz"]),
        layers={},
        raw=None,
    )
    cells.obs.index = cells.obs_names
    with_labels = frame.assign(r1=text[:, 0], r2=text[:, 1])
    toponymy = SimpleNamespace(cluster_layers_=[SimpleNamespace(cluster_labels=labels) for labels in L.T[::-1]])
    for given, rows in (
        (L, X),
        (L.T, X),
        ([*L.T], X),
        (L.tolist(), X),
        ([L[:, 1].tolist(), pd.Series(L[:, 0])], X),
        (shuffled, frame),
        (toponymy, X),
        (["r0.2", "r1"], cells),
        (["r1", "r2"], with_labels),
        (pd.DataFrame(L), csr_matrix(X)),
        (torch.from_numpy(L), torch.from_numpy(X)),
    ):
        found = layers(given, rows)
        assert [parts_of(split) for split in found.splits] == expected
    assert "r1" not in str(layers(["r1", "r2"], with_labels).splits[0])


@pytest.mark.parametrize("among_columns", [False, True])
@pytest.mark.usefixtures("splits_alone")
def test_noise_beside_names(among_columns):
    X, L = planted(90)
    coarse = pd.Series(L[:, 0]).map({0: "a", 1: "b", 2: -1})
    frame = pd.DataFrame(X, columns=[*"xyz"])
    layers_ = pd.DataFrame({"coarse": coarse, "fine": L[:, 1]})
    if among_columns:
        found = layers(["coarse", "fine"], pd.concat([frame, layers_], axis=1))
    else:
        found = layers(layers_, frame)
    assert found.splits[0].children == ["a", "b", "6", "7", "8"]


@pytest.mark.usefixtures("without_verdicts")
def test_columns_that_repeat_a_layer_are_left_out():
    X, L = planted(90)
    frame = pd.DataFrame(X, columns=[*"xyz"]).assign(cluster=L[:, 0].astype(str))
    found = layers(L[:, :2], frame)
    assert "columns that repeat the labels are left out: cluster" in str(found)
    assert all("cluster" not in split.rule(child) for split in found.splits for child in split.children)


# --- trees -------------------------------------------------------------------------------------------------------


def witness_of_tree(Z, least):
    """The forks of a linkage with different heights: cut it below every merge, and count the large components."""
    rows = np.arange(len(Z) + 1)
    found = []
    alive = [frozenset(rows.tolist())]
    for height in sorted(Z[:, 2], reverse=True):
        cut = fcluster(Z, np.nextafter(height, 0), "distance")
        components = [frozenset(rows[cut == k].tolist()) for k in np.unique(cut)]
        large = [component for component in components if len(component) >= least]
        for cluster in [*alive]:
            inside = [component for component in large if component <= cluster]
            if len(inside) > 1:
                found.append((cluster, frozenset(inside)))
                alive = [one for one in alive if one != cluster] + inside
    return found


@pytest.mark.parametrize("method", ["ward", "average", "complete", "single"])
@pytest.mark.parametrize("least", [2, 7])
@pytest.mark.usefixtures("splits_alone")
def test_linkages_are_read_as_by_cuts(method, least):
    X = np.random.default_rng(1).normal(size=(50, 3))
    Z = linkage(X, method)
    expected = witness_of_tree(Z, least)
    found = layers(None, X, linkage=Z, splits=4, least=least)
    assert [parts_of(split) for split in found.splits] == expected[:4]
    assert found.n_further == max(0, len(expected) - 4)


@pytest.mark.usefixtures("splits_alone")
def test_models_with_a_tree_are_read_as_their_linkage():
    X, _ = make_blobs(90, centers=[[0, 0], [9, 0], [9, 4]], random_state=0)
    found = layers(AgglomerativeClustering(4, linkage="average", compute_distances=True).fit(X), X, splits=3)
    by_order = layers(AgglomerativeClustering(2, linkage="average").fit(X), X, splits=3)
    expected = layers(None, X, linkage=linkage(X, "average"), splits=3)
    for other in (expected, by_order):
        assert [parts_of(split) for split in found.splits] == [parts_of(split) for split in other.splits]


@pytest.mark.usefixtures("without_verdicts")
@pytest.mark.parametrize(("size", "samples"), [(5, None), pytest.param(8, 3, marks=pytest.mark.slow), (15, 4)])
def test_hdbscan_is_read_as_its_tree_without_small_sides(size, samples):
    X, _ = make_blobs(150, centers=[[0, 0], [9, 0], [9, 4]], random_state=1)
    model = HDBSCAN(min_cluster_size=size, min_samples=samples, copy=True).fit(X)
    # single linkage of the mutual reachability distances
    distances = np.sqrt(((X[:, None] - X) ** 2).sum(axis=2))
    core = np.sort(distances, axis=1)[:, (samples or size) - 1]
    reach = np.maximum(distances, np.maximum(core[:, None], core))
    Z = linkage(reach[np.triu_indices(len(X), 1)], "single")
    expected = layers(None, X, linkage=Z, least=size, splits=2)
    found = layers(model, X, splits=3)
    assert [parts_of(split)[0] for split in found.splits[:2]] == [
        parts_of(split)[0] for split in expected.splits[:2]
    ]
    assert all(split.is_exact for split in found.splits)
    assert min(min(split.sizes.values()) for split in found.splits) >= size


class OfPackage(BaseEstimator):
    """An HDBSCAN as the package hdbscan has it, whose tree is that of single linkage."""

    def __init__(self, min_cluster_size=5, min_samples=1, metric="euclidean"):
        self.min_cluster_size = min_cluster_size
        self.min_samples = min_samples
        self.metric = metric

    def fit(self, X, y=None):
        Z = linkage(X, "single")
        self.single_linkage_tree_ = SimpleNamespace(to_numpy=lambda: Z)
        self.labels_ = np.zeros(len(X), int)
        return self


OfPackage.__name__ = "HDBSCAN"


@pytest.mark.usefixtures("splits_alone")
def test_a_tree_of_the_package_hdbscan_is_read_like_that_of_scikit_learn():
    X, _ = make_blobs(80, centers=[[0, 0], [9, 0], [9, 4]], random_state=1)
    found = layers(OfPackage(9).fit(X), X)
    assert [parts_of(split) for split in found.splits] == witness_of_tree(linkage(X, "single"), 9)


@pytest.mark.usefixtures("splits_alone")
def test_bisecting_k_means_is_read_as_it_was_split():
    model = make_pipeline(StandardScaler(), BisectingKMeans(4, random_state=0)).fit(WINE)
    found = layers(model, WINE)
    labels = model[-1].labels_
    tree = model[-1]._bisecting_tree
    assert len(found.splits) == 3
    assert len(layers(model, WINE, splits=2).splits) == 2
    assert layers(model, WINE, splits=2).n_further == 1
    scaled = model[0].transform(WINE)
    nearer = [((scaled - side.center - model[-1]._X_mean) ** 2).sum(axis=1) for side in (tree.left, tree.right)]
    assert_array_equal(found.splits[0].codes, np.argmin(nearer, axis=0))
    assert {frozenset(np.flatnonzero(labels == k)) for k in range(4)} <= {
        part for split in found.splits for part in parts_of(split)[1]
    }


# --- reasons -----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("without_verdicts")
def test_contrasts_of_k_means_layers_are_those_of_its_network():
    models = [make_pipeline(StandardScaler(), KMeans(k, n_init=2, random_state=0)).fit(WINE) for k in (3, 7)]
    split = layers(models, WINE).splits[-1]
    assert split.is_exact
    a, b = (int(name.rpartition("/")[2]) for name in (split.contrast.a, split.contrast.b))
    net = neuralize(models[1], WINE)
    for name, target, competitor in ((split.contrast.a, a, b), (split.contrast.b, b, a)):
        part = WINE.iloc[split.rows[split.codes == split.children.index(name)]]
        relevance = NEON(net).attribute(part, target=target, competitor=competitor).mean()
        assert_allclose(split.contrast.relevance[name], relevance, rtol=1e-5)


@pytest.mark.usefixtures("without_verdicts")
def test_contrasts_of_bisecting_k_means_are_those_of_the_two_centers():
    X = WINE.to_numpy()
    model = BisectingKMeans(3, random_state=0).fit(X)
    split = layers(model, X).splits[0]
    centers = np.array([model._bisecting_tree.left.center, model._bisecting_tree.right.center]) + model._X_mean
    net = neuralize(centers, X)
    relevance = NEON(net).attribute(X[split.codes == 0], target=0, competitor=1).mean(axis=0)
    assert_allclose(split.contrast.relevance["0"], relevance, rtol=1e-5)


@pytest.mark.usefixtures("without_verdicts")
def test_a_surrogate_of_one_split_has_its_fidelity():
    X, L = planted(180)
    for split in layers(L[:, :2], X).splits:
        assert split.fidelity == 1
        assert not split.is_exact
        assert "by a surrogate that decides as the clustering for 100% of held-out rows" in str(split)


# --- rules -------------------------------------------------------------------------------------------------------


def first_met(split, values, names):
    """The part of each row, by going through the rules one by one."""
    parts = []
    for row in values:
        for rule in split.rules:
            is_met = all(
                any(low < row[names.index(condition.column.name)] <= high for low, high in condition.intervals)
                for condition in rule.conditions
            )
            if is_met:
                parts.append(rule.label)
                break
    return parts


@pytest.mark.usefixtures("without_verdicts")
@pytest.mark.parametrize("k", [2, 5])
def test_decision_lists_are_followed_and_measured(k):
    labels = KMeans(k, n_init=1, random_state=1).fit_predict(StandardScaler().fit_transform(WINE))
    split = layers(labels, WINE).splits[0]
    assert split.rules[-1].conditions == () or split.rules.divide
    predicted = first_met(split, WINE.to_numpy(), [*WINE.columns])
    assert predicted == split.rules.predict(WINE).tolist()
    assert all(len(rule.conditions) <= 3 for rule in split.rules) or split.rules.divide
    # one row in four of each part is held out
    n_held_out = np.bincount(labels) // 4
    assert split.base == pytest.approx(n_held_out[np.bincount(labels).argmax()] / n_held_out.sum())
    by_rules = sum(counts.samples - counts.mistakes for counts in split.rules.held_out_totals.values())
    if not split.rules.divide:
        assert split.rules[-1].held_out.total == n_held_out.sum()
    else:
        assert split.accuracy == pytest.approx(by_rules / n_held_out.sum())


@pytest.mark.usefixtures("without_verdicts")
def test_two_parts_are_told_by_one_rule_and_the_rest():
    X, L = planted()
    split = layers((L[:, 0] == 0).astype(int), X).splits[0]
    assert [len(rule.conditions) for rule in split.rules] == [1, 0]
    assert split.to_frame()["rule"].str.contains("otherwise").sum() == 1
    assert (split.accuracy, split.base) == (1, pytest.approx(2 / 3, abs=0.01))


@pytest.mark.usefixtures("without_verdicts")
def test_a_tree_replaces_a_list_that_is_worse():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(600, 2))
    labels = np.floor(2 * X[:, 0]).astype(int) % 2  # four stripes
    split = layers(labels, X).splits[0]
    assert split.rules.divide
    assert len(split.rules) == 4
    assert split.accuracy > 0.95
    assert split.rule("0").count(" or ") == 1


@pytest.mark.usefixtures("without_verdicts")
def test_rules_of_wide_rows_find_their_columns_in_all():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 400))
    labels = np.arange(90) % 2
    X[:, 390] += 9 * labels
    for rows in (X, csr_matrix(X), pd.DataFrame(X).add_prefix("g")):
        split = layers(labels, rows).splits[0]
        assert split.accuracy == 1
        assert_array_equal(split.rules.predict(rows), labels.astype(str))
        assert split.reasons(1) == ["x390" if not isinstance(rows, pd.DataFrame) else "g390"]


def test_small_parts_have_no_rules():
    X, _ = planted()
    labels = np.zeros(len(X), int)
    labels[:3] = 1
    split = layers(labels, X).splits[0]
    assert split.rules is None
    assert np.isnan(split.accuracy)
    assert split.contrast is None
    assert split.verdict == "too few rows"
    assert split.to_dict()["rules"] is None


# --- verdicts and names ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("without_reasons")
def test_planted_splits_are_separated_and_their_halves_slices():
    X, L = planted()
    found = layers(L, X)
    verdicts = {split.parent.count("/") + (split.parent != "all"): set() for split in found.splits}
    for split in found.splits:
        verdicts[split.parent.count("/") + (split.parent != "all")].add(split.verdict)
    assert verdicts == {0: {"separated"}, 1: {"separated"}, 2: {"slices"}}
    assert "Splits into separated parts: 4 of 13; into slices of one cloud: 9." in str(found)


@pytest.mark.usefixtures("without_reasons")
@pytest.mark.parametrize(
    "model",
    [
        HDBSCAN(min_cluster_size=8, copy=True),
        pytest.param(AgglomerativeClustering(2, linkage="single"), marks=pytest.mark.slow),
        "linkage",
    ],
    ids=["hdbscan", "single", "linkage"],
)
def test_gaps_by_chance_are_no_separation(model):
    X = np.random.default_rng(5).normal(size=(300, 2))  # rows without a separated split for any of 20 seeds
    if model == "linkage":
        found = layers(None, X, linkage=linkage(X, "single"), least=8, splits=4)
    else:
        found = layers(model.fit(X), X, least=8, splits=4)
    assert {split.verdict for split in found.splits} <= {"slices", "not judged", "too few rows"}


def test_models_in_a_list_are_judged_by_refits_if_they_find_gaps():
    X, _ = make_blobs(300, centers=[[0, 0], [12, 0], [12, 5]], cluster_std=0.6, random_state=0)
    found = layers([DBSCAN(3).fit(X), DBSCAN(0.9).fit(X)], X)
    assert [split.verdict for split in found.splits] == ["separated", "separated"]
    assert found.splits[0].is_exact


@pytest.mark.usefixtures("without_verdicts")
@pytest.mark.parametrize("in_texts", [False, True])
def test_names_repeat_no_statement_of_their_ancestors(in_texts):
    if in_texts:
        words = [["violin", "cello", "opera"], ["goal", "match", "referee"]]
        own = [[["string", "bow"], ["choir", "soprano"]], [["net", "header"], ["whistle", "foul"]]]
        rng = np.random.default_rng(0)
        L = np.array([[a, 2 * a + b] for a in range(2) for b in range(2) for _ in range(40)])
        rows = [" ".join(rng.choice(words[a], 4).tolist() + rng.choice(own[a][k % 2], 4).tolist()) for a, k in L]
    else:
        rows, L = planted(180)
        L = L[:, :2]
    found = layers(L, rows)
    said = {"all": set()}
    for split in found.splits:
        for child, statements in split.statements().items():
            assert not said[split.parent] & {*statements}
            said[child] = said[split.parent] | {*statements}
    assert sum(bool(name) for split in found.splits for name in split.names.values()) > 4
    if in_texts:
        assert found.splits[0].accuracy > 0.8
        assert "with" in found.splits[1].rule(found.splits[1].children[0]) + str(found.splits[1])


@pytest.mark.usefixtures("without_verdicts")
def test_texts_are_explained_by_their_terms():
    texts = ["the violin plays", "the violin sings", "a goal in the match", "the match was lost"] * 12
    labels = [0, 0, 1, 1] * 12
    model = make_pipeline(TfidfVectorizer(), KMeans(2, n_init=3, random_state=0)).fit(texts)
    for given in (labels, [model]):
        split = layers(given, texts).splits[0]
        assert {*split.reasons(2)} <= {"violin", "match"}
        assert split.accuracy == 1
        assert split.rule(split.children[0]) in (
            "with violin",
            "with match",
            "without violin",
            "without match",
            "otherwise",
        )


@pytest.mark.parametrize("given", ["layers", "models", pytest.param("labels", marks=pytest.mark.slow)])
def test_features_that_were_clustered_are_judged_and_not_explained(given):
    X, L = planted(240)
    described = pd.DataFrame(
        {
            "group": np.array([*"abc"])[np.where(np.arange(len(L)) % 20, L[:, 0], 0)],
            "noise": np.random.default_rng(0).normal(size=len(X)),
        }
    )
    model = KMeans(3, n_init=3, random_state=0).fit(X)
    clusterings = {"layers": L[:, :1], "models": [model], "labels": model.labels_}
    found = layers(clusterings[given], described, features=X)
    assert found.splits[0].verdict == "separated"
    assert found.splits[0].reasons(1) == ["group"]


# --- results -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("judged", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_results(judged, request):
    if not judged:
        request.getfixturevalue("without_verdicts")
    X, L = planted(120)
    found = layers(L[:, :2], pd.DataFrame(X, columns=[*"xyz"]))
    frame = found.to_frame()
    assert frame.index.tolist() == ["all", "0", "1", "2"]
    assert frame.loc["1", "parts"] == ["1/3", "1/4", "1/5"]
    assert frame["kept"].eq(1).all()
    written = json.loads(json.dumps(found.to_dict()))
    assert [split["parent"] for split in written["splits"]] == frame.index.tolist()
    assert found["1"].to_dict()["parts"][0]["rows"] == found["1"].sizes["1/3"]
    with pytest.raises(KeyError, match="no split of '9'; these are explained"):
        found["9"]
    assert [split.accuracy for split in layers(L[:, :2], X, random_state=3).splits] == [1] * 4


def test_refusals():
    X, L = planted()
    square = np.arange(16).reshape(4, 4) % 2
    refused("layers needs one of two", layers, None, X, error=TypeError)
    refused("layers needs one of two", layers, L, X, linkage=linkage(X), error=TypeError)
    refused("layers needs the rows", layers, L, error=TypeError)
    refused("may be \\[rows, layers\\] or \\[layers, rows\\]", layers, square, X[:4])
    refused("may be \\[rows, layers\\] or \\[layers, rows\\]", layers, square.tolist(), X[:4])
    refused("needs labels of shape \\[480, layers\\] or \\[layers, 480\\]", layers, L[:90], X)
    refused("got layers of \\[90, 480\\] labels", layers, [L[:90, 0], L[:, 1]], X)
    for method in ("centroid", "median"):
        cloud = np.random.default_rng(0).normal(size=(200, 2))
        refused("the linkage is not monotone", layers, None, cloud, linkage=linkage(cloud, method))
    refused("linkage is of 90 rows, and X has 480", layers, None, X, linkage=linkage(X[:90]))
    refused("linkage needs a matrix \\[rows - 1, 4\\]", layers, None, X, linkage=L)
    refused("linkage needs a linkage matrix", layers, None, X, linkage=np.zeros((479, 4)))
    refused("linkage needs a matrix of SciPy, got", layers, None, X, linkage=KMeans(2), error=TypeError)
    refused(
        "KMeans has one layer of clusters, and no hierarchy",
        layers,
        KMeans(2, n_init=1).fit(X),
        X,
        error=TypeError,
    )
    refused("AgglomerativeClustering is of 90 rows", layers, AgglomerativeClustering().fit(X[:90]), X)
    refused("given is empty", layers, [], X)
    refused("no cluster splits", layers, np.zeros(480, int), X)
    refused(
        "no merge of the linkage has two sides of at least 400 rows",
        layers,
        None,
        X,
        linkage=linkage(X),
        least=400,
    )
    refused(
        "X has no columns \\['cluter'\\] with layers .did you mean 'cluster'",
        layers,
        ["cluter"],
        pd.DataFrame(L).set_axis(["cluster", "b", "c"], axis=1),
    )
    refused("layers needs a table or texts", layers, L, np.zeros((480, 3, 4, 4)))
    refused("features needs the 480 rows of X, got 90", layers, L, X, features=X[:90])
    refused("X needs the rows, got a KMeans; the rows come second", layers, X, KMeans(2), error=TypeError)
    refused("splits needs", layers, L, X, splits=0)


@pytest.mark.usefixtures("without_verdicts", "without_reality")
def test_a_report_has_a_card_for_each_split():
    X, L = planted(180)
    frame = pd.DataFrame(X, columns=["x", "<b>", "z"])
    found = layers(L[:, :2], frame)
    report = explain(KMeans(3, n_init=2, random_state=0).fit(frame), frame, layers=found, fast=True)
    page = report.html()
    assert page.count("<h3><bdi class=cut>") - page.count("Cluster </span>") >= 4
    assert "all (180 rows) falls into 0 (60 rows)" in page
    assert "<b>" not in page.partition("<section id=layers")[2]
    assert report.to_dict()["layers"]["splits"][1]["parent"] == "0"
    refused("layers needs the result of neonxc.layers", explain, L[:, 0], frame, layers=L, error=TypeError)
    n = len(frame)
    refused(f"{n - 1} rows of X, got one of {n} rows", explain, L[1:, 0], frame.iloc[1:], layers=found)


@pytest.mark.usefixtures("splits_alone", "without_reality")
def test_commands(neonxc_command, tmp_path):
    X, L = planted(90)
    frame = pd.DataFrame(X, columns=[*"xyz"]).assign(coarse=np.where(L[:, 0] == 2, -1, L[:, 0]), fine=L[:, 1])
    frame["coarse"] = frame["coarse"].map({0: "a", 1: "b", -1: -1})
    frame.to_csv(tmp_path / "table.csv", index=False)
    file = str(tmp_path / "table.csv")
    code, out, err = neonxc_command("layers", file, "--labels", "coarse,fine", "--out", "found.json")
    assert code == 0, err
    assert "all (90 rows) falls into a (30 rows), b (30 rows), 6 (" in out
    splits = json.loads(Path("found.json").read_text())["splits"]
    assert [split["parent"] for split in splits] == ["all", "a", "b"]
    for suffix in ("csv", "md", "txt", "png"):
        arguments = ("--labels", "coarse", "--labels", "fine", "--out", f"out/found.{suffix}")
        assert neonxc_command("layers", file, *arguments)[0] == 0
        assert Path(f"out/found.{suffix}").stat().st_size
    assert "has no column ['other']" in neonxc_command("layers", file, "--labels", "coarse,other")[2]
    assert "must end in" in neonxc_command("layers", file, "--labels", "fine", "--out", "found.xlsx")[2]
    assert "no columns but the labels" in neonxc_command("layers", file, "--labels", "coarse,fine,x,y,z")[2]
    arguments = ("-k", "3", "--layers", "coarse,fine", "--fast", "--out", "report.html")
    assert neonxc_command("explain", file, *arguments)[0] == 0
    assert "<section id=layers" in Path("report.html").read_text()
    assert "--layers needs a file" in neonxc_command("explain", "-", "-k", "3", "--layers", "coarse")[2]
