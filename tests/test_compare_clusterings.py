"""Comparison of two clusterings, beside refits of the first."""

import json
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused
from scipy.sparse import csr_matrix
from sklearn.cluster import DBSCAN, AgglomerativeClustering, KMeans
from sklearn.datasets import load_wine, make_blobs
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from torch import nn
from turns import slow

import neonxc
from neonxc import NEON, compare_clusterings, neuralize
from neonxc.data.table import Table
from neonxc.evaluation.restarts import restarted
from neonxc.trees import IMM

X, Y = make_blobs(300, 3, centers=5, cluster_std=0.5, random_state=0)


@pytest.fixture
def without_reasons(monkeypatch):
    """Compare clusters, and leave out which inputs the models use, which takes most of the time."""
    monkeypatch.setattr("neonxc.evaluation.transitions._with_reasons", lambda found, *_: found)


def test_equal_clusterings_are_kept():
    found = compare_clusterings(Y, (Y + 2) % 5, X)
    assert (found.ari, found.ami) == (pytest.approx(1), pytest.approx(1))
    assert found.to_frame()["kind"].eq("kept").all()
    assert (found.to_frame()["jaccard"] == 1).all()
    assert "no refits of a for comparison: pass a clusterer" in str(found)


def labelled(text):
    """Labels, each as often as the number behind it says."""
    return np.array([*"".join(part[0] * int(part[1:]) for part in text.split())])


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("x80 y20", "x40 z40 y20", "a x split: x z, a y kept: y"),
        ("x40 z40 y20", "x80 y20", "a x merged: x, a z merged: x"),
        ("x40 t2", "x42", "a t merged: x, a x kept: x"),  # absorbed
        ("x200", "x160 z40", "b z born: x"),
        ("s30 x120", "x10 y10 z10 x40 y40 z40", "a s died"),
        ("x50 y20", "p10 q10 r10 s10 t10 y20", "a x split: p q r s t, a y kept: y"),  # none has a quarter
        ("p10 q10 r10 s10 t10 y20", "x50 y20", "a p merged: x, a t merged: x, a y kept: y"),
        ("x50", "p20 q10 r10 s10", "a x split: p q r s"),
        ("x50 y30", "p12 y38 y30", "b p born: x"),  # most of x is in y, and p no part of many
    ],
)
def test_kinds(a, b, expected):
    found = compare_clusterings(labelled(a), labelled(b), np.zeros((len(labelled(a)), 1))).to_frame()
    told = ", ".join(f"{' '.join(row.Index)} {row.kind}: {' '.join(row.partners)}" for row in found.itertuples())
    assert all(one in told for one in expected.split(", ")), told


def test_noise_is_matched_with_nothing():
    a = np.where(Y == 0, -1, Y)
    b = np.where(Y == 1, -1, Y)
    found = compare_clusterings(a, b, X)
    assert found.table.loc[-1, 0] == 60
    assert [*found.to_frame().index] == [("a", 1), ("a", 2), ("a", 3), ("a", 4), ("b", 0)]
    assert found.to_frame()["kind"].tolist() == ["died", "kept", "kept", "kept", "born"]


def test_matching_is_the_best_of_all():
    table = np.random.default_rng(0).integers(1, 30, (5, 5))
    a, b = (np.repeat(index.ravel(), table.ravel()) for index in np.indices((5, 5)))
    jaccard = table / (table.sum(1)[:, None] + table.sum(0) - table)
    best = max(sum(jaccard[i, j] for i, j in enumerate(order)) for order in permutations(range(5)))
    found = compare_clusterings(a, b, np.zeros((len(a), 1)))
    assert found.to_frame().loc["a", "jaccard"].sum() == pytest.approx(best)


def test_refits_tell_a_change_from_another_seed():
    clear = KMeans(5, n_init=3, random_state=0).fit(X)
    found = compare_clusterings(clear, KMeans(3, n_init=3, random_state=0).fit(X), X, random_state=0)
    assert_allclose(found.refits, 1)
    assert "and that of the number of clusters" in str(found)
    assert_allclose(found.to_frame().loc["a", "refits"], 1)
    noise = np.random.default_rng(0).random((300, 3))
    one, other = (KMeans(6, n_init=1, random_state=seed).fit(noise) for seed in range(2))
    again = [compare_clusterings(one, other, noise, refits=4, random_state=0) for _ in range(2)]
    pd.testing.assert_frame_equal(again[0].refits, again[1].refits)
    assert again[0].refits.shape == (4, 2)
    assert again[0].refits["ARI"].max() < 0.95
    assert "within that between refits" in str(again[0])
    assert "<pre>" in again[0]._repr_html_()


@pytest.mark.usefixtures("without_reasons")
@pytest.mark.parametrize("seeds", [9, *slow(17)])
def test_few_mere_refits_are_called_larger(seeds):
    wine = StandardScaler().fit_transform(load_wine().data)
    first, *others = (KMeans(6, n_init=1, random_state=seed).fit(wine) for seed in range(seeds))
    texts = [str(compare_clusterings(first, other, wine, random_state=n)) for n, other in enumerate(others)]
    assert not any("larger than that between refits" in one for one in texts)
    assert any("b is another solution of it" in one for one in texts)


def test_all_kinds_of_models():
    wine = load_wine(as_frame=True).data
    pipeline = make_pipeline(StandardScaler(), KMeans(3, n_init=2, random_state=0)).fit(wine)
    tree = IMM(3, reference=pipeline, random_state=0).fit(wine)
    net = neuralize(pipeline, wine)
    for model in (pipeline, tree):
        assert compare_clusterings(model, net, wine, refits=1).refits.shape == (1, 2)
    for X in (torch.tensor(wine.to_numpy()), csr_matrix(wine)):
        model = KMeans(2, random_state=0).fit(X)
        assert (compare_clusterings(model, model, X, refits=1).refits.iloc[0] > 0.9).all()
    assert compare_clusterings(net, pipeline, wine).ari == 1
    for model in (net, IMM(3).fit(wine, labels=net.predict(wine))):
        assert "pass a clusterer" in compare_clusterings(model, pipeline, wine).reason
    for model in (DBSCAN(2.2), AgglomerativeClustering(3)):
        found = compare_clusterings(make_pipeline(StandardScaler(), model).fit(wine), pipeline, wine)
        assert found.reason.endswith("has no seed")
    assert compare_clusterings(pipeline, net, wine, refits=0).reason == "no refits were asked for"


def test_refused():
    refused("b needs one label per row of X, 300, got shape", compare_clusterings, Y, Y[:5], X)
    refused("a needs one label per row of X", compare_clusterings, DBSCAN().fit(X[:9]), Y, X)
    refused("refits needs a whole number >= 0", compare_clusterings, Y, Y, X, refits=-1)
    assert compare_clusterings(Y, Y, X, refits=[]).reason == "no refits were asked for"
    model = KMeans(3, n_init=2, random_state=0).fit(X)
    assert len(compare_clusterings(model, model, X, refits=np.int64(2)).refits) == 2
    refused("not fitted yet", compare_clusterings, KMeans(2), Y, X)
    refused("not fitted yet", compare_clusterings, DBSCAN(), Y, X)
    refused("b has no clusters: all rows are noise", compare_clusterings, Y, Y * 0 - 1, X)


@pytest.mark.usefixtures("without_reasons")
@pytest.mark.parametrize(
    "final",
    [
        KMeans(3, n_init=2, random_state=0),
        DBSCAN(0.3),
        pytest.param(AgglomerativeClustering(3), marks=pytest.mark.slow),
    ],
)
def test_a_pipeline_inside_a_pipeline(final):
    flat = make_pipeline(StandardScaler(), MinMaxScaler(), final).fit(X)
    nested = make_pipeline(StandardScaler(), make_pipeline(MinMaxScaler(), make_pipeline(final))).fit(X)
    for pair in ((nested, Y), (Y, nested)):
        expected = compare_clusterings(*(flat if model is nested else model for model in pair), X, random_state=0)
        found = compare_clusterings(*pair, X, random_state=0)
        pd.testing.assert_frame_equal(found.table, expected.table)
        assert (found.refits is None) == (expected.refits is None)
        assert found.refits is None or found.refits.equals(expected.refits)


# --- which inputs two models use, and why rows changed cluster ---

WINE = load_wine(as_frame=True).data


def scaled(seed, column=None, factor=3.0, k=3, X=WINE):
    """k-means of standardized columns, one of which may be scaled."""
    scaler = StandardScaler().fit(X)
    if column is not None:
        scaler.scale_[list(X).index(column)] /= factor
    return make_pipeline(scaler, KMeans(k, n_init=4, random_state=seed).fit(scaler.transform(X)))


def test_use_of_inputs_by_definition():
    model = scaled(0)
    found = compare_clusterings(model, scaled(1), WINE, refits=1, random_state=0)
    relevance = NEON(neuralize(model, WINE)).attribute(WINE).sum()
    expected = relevance / relevance.abs().sum()
    assert_allclose(found.uses["a"], expected[found.uses.index], rtol=1e-6)
    assert found.changed.empty
    assert "No input is used more or less than another seed of a would." in str(found)


@pytest.mark.parametrize(
    ("as_networks", "column"),
    [
        (False, "magnesium"),
        (True, "ash"),
        pytest.param(False, "ash", marks=pytest.mark.slow),
        pytest.param(True, "magnesium", marks=pytest.mark.slow),
    ],
)
def test_a_scaled_column_is_named_first(column, as_networks):
    a = scaled(0)
    b = scaled(1, column)
    if as_networks:  # which have no refits, but are started from other clusters
        a = neuralize(a, WINE)
        b = neuralize(b, WINE)
    found = compare_clusterings(a, b, WINE, random_state=0)
    assert found.changed.index[0] == column
    assert (found.refits is None) == as_networks
    assert found.restart < 0.95
    largest = found.exchanges.iloc[0]
    assert largest["by_change"]
    assert column in largest["reasons"].index[:3]
    assert f"{column} has" in str(found)


def test_reasons_of_an_exchange_by_definition():
    a = scaled(0)
    b = scaled(1, "magnesium")
    found = compare_clusterings(a, b, WINE, random_state=0)
    (old, new), exchange = next(found.exchanges.iterrows())
    is_exchanged = (a.predict(WINE) == old) & (b.predict(WINE) == new)
    assert_array_equal(exchange["ids"], np.flatnonzero(is_exchanged))
    assert exchange["rows"] == found.table.loc[old, new] == is_exchanged.sum()
    frame = found.to_frame()
    jaccard = found.table / (found.table.rsub(found.table.sum(axis=1), axis=0) + found.table.sum())
    assert (
        jaccard.loc[old].drop(new).max() == frame.loc[("a", old), "jaccard"]
    )  # the match of old is another cluster
    match_of_old = jaccard.loc[old].idxmax()
    match_of_new = jaccard[new].idxmax()
    expected = []
    for model, target, competitor in ((a, old, match_of_new), (b, new, match_of_old)):
        neon = NEON(neuralize(model, WINE))
        mean = neon.attribute(WINE[is_exchanged], target=target, competitor=competitor).mean()
        expected.append(mean / abs(mean.sum() if abs(mean.sum()) > 0.2 * mean.abs().sum() else mean.abs().sum()))
    assert_allclose(exchange["in_a"], expected[0][exchange["in_a"].index], atol=1e-6)
    assert_allclose(exchange["in_b"], expected[1][exchange["in_b"].index], atol=1e-6)
    assert_allclose(exchange["reasons"], ((expected[0] + expected[1]) / 2)[exchange["reasons"].index], atol=1e-6)
    assert exchange["reasons"].is_monotonic_decreasing
    assert {*exchange["typical"]} <= {*exchange["ids"]}


@pytest.mark.parametrize("seeds", [4, *slow(6)])
def test_another_solution_is_told_from_another_model(seeds):
    noise = pd.DataFrame(np.random.default_rng(0).random((200, 3)), columns=["x", "y", "z"])
    models = [KMeans(5, n_init=1, random_state=seed).fit(noise) for seed in range(seeds)]
    for other in models[1:]:
        found = compare_clusterings(models[0], other, noise, random_state=0)
        assert found.changed.empty
        assert found.restart > 0.9
        assert "larger than that between refits" not in str(found)


def test_a_restart_begins_at_the_means_and_keeps_a_solution():
    points = WINE.to_numpy()
    model = make_pipeline(StandardScaler(), KMeans(4, n_init=3, random_state=0)).fit(points)
    labels = np.append(model.predict(points)[1:], -1)
    again = restarted(model, Table.read(points), labels)
    scores = model[0].transform(points)
    means = np.stack([scores[labels == k].mean(axis=0) for k in range(4)])
    assert_allclose(again[-1].init, means)
    net = neuralize(model, points)
    kept = restarted(net, Table.read(points), model.predict(points))
    assert (kept.predict(points) == model.predict(points)).all()
    assert_allclose(kept(torch.tensor(points)), net(torch.tensor(points)), rtol=1e-6)


@pytest.mark.parametrize(
    ("a", "remark"),
    [
        (DBSCAN(2.2), "Reasons may be those of another seed of a, which is not known."),
        (AgglomerativeClustering(3), "Reasons may be those of another seed of a, which is not known."),
    ],
)
def test_without_seeds_nothing_is_called_changed(a, remark):
    found = compare_clusterings(make_pipeline(StandardScaler(), a).fit(WINE), scaled(0), WINE)
    assert found.changed is None
    assert found.remark == remark
    assert remark in str(found)
    assert found.exchanges["by_change"].isna().all()
    assert found.exchanges["reasons"].map(len).eq(WINE.shape[1]).all()


def test_labels_alone_have_no_reasons():
    found = compare_clusterings(Y, np.minimum(Y, 3), X)
    assert found.uses is None
    assert found.exchanges.empty
    assert found.themes.empty
    assert "Labels alone do not tell why" in str(found)


def test_inputs_that_one_model_lacks_count_as_zero():
    wide = scaled(0)
    narrow = scaled(0, X=WINE.drop(columns="proline"))
    for a, b in ((wide, narrow), (narrow, wide)):
        found = compare_clusterings(a, b, WINE, random_state=0)
        lacking = "a" if a is narrow else "b"
        assert found.uses.loc["proline", lacking] == 0
        assert "proline" in found.changed.index


def themed(rng, n, new):
    """Texts of three themes, and of a fourth one."""
    theme = np.where(rng.random(n) < new, 3, rng.integers(3, size=n))
    words = [[f"t{k}w{i}" for i in range(12)] for k in range(4)]
    common = [f"c{i}" for i in range(20)]
    return [" ".join([*rng.choice(words[k], 5), *rng.choice(common, 3)]) for k in theme], theme


def test_a_new_theme_of_texts():
    texts, theme = themed(np.random.default_rng(0), 240, 0.1)
    known = [text for text, k in zip(texts, theme, strict=True) if k < 3]

    def model(rows, k):
        return make_pipeline(TfidfVectorizer(), KMeans(k, n_init=10, random_state=0)).fit(rows)

    found = compare_clusterings(model(known, 3), model(texts, 4), texts, refits=0)
    assert len(found.themes) == 1
    only = found.themes.iloc[0]
    assert_array_equal(only["ids"], np.flatnonzero(theme == 3))
    assert all(word.startswith("t3w") for word in only["reasons"].index[:5])
    assert only["sources"].sum() == pytest.approx(1)
    assert "has no match in a" in str(found)


def test_encoders_share_their_inputs():
    points = torch.tensor(X - X.mean(axis=0), dtype=torch.float32)
    torch.manual_seed(0)
    pool = []
    for stretch in (1, 1, 1, 1, 1, 1, 1, 6):
        encoder = nn.Linear(3, 5).requires_grad_(False)
        nn.init.orthogonal_(encoder.weight)
        encoder.weight[:, 1] *= stretch
        features = encoder(points).double().numpy()
        pool.append(neuralize(KMeans(5, n_init=4, random_state=0).fit(features), points, encoder))
    *seeds, stretched = pool
    found = compare_clusterings(seeds[0], stretched, points, refits=seeds[1:6])
    assert found.refits.shape == (5, 2)
    assert found.changed.index[0] == "x1"
    assert compare_clusterings(seeds[0], seeds[6], points, refits=seeds[1:6]).changed.empty
    alone = compare_clusterings(seeds[0], stretched, points)  # another encoder may have another seed, too
    assert alone.changed is None
    images = points[:, :, None, None].repeat(1, 1, 2, 2)
    pooled = [
        neuralize(net, images, nn.Sequential(nn.AvgPool2d(2), nn.Flatten())) for net in (np.eye(3), -np.eye(3))
    ]
    assert {*compare_clusterings(*pooled, images).uses.index} == {"channel 0", "channel 1", "channel 2"}


def test_a_comparison_in_json_and_as_a_picture():
    found = compare_clusterings(scaled(0), scaled(1, "magnesium"), WINE, random_state=0)
    told = json.loads(json.dumps(found.to_dict()))
    assert told["summary"] == str(found).split("\n")
    assert next(iter(told["changed"])) == "magnesium"
    assert [one["rows"] for one in told["exchanges"]] == found.exchanges["rows"].tolist()
    figure = found.plot()
    assert len(figure.axes) == 4
    assert len(compare_clusterings(Y, Y, X).plot().axes) == 1


def test_command(neonxc_command, tmp_path):
    models = [scaled(0), scaled(1, "magnesium", X=WINE.drop(columns="ash"))]
    for name, model in zip(("old", "new"), models, strict=True):
        neonxc.save(neuralize(model, WINE), name)
    neonxc.save(IMM(3, random_state=0).fit(WINE).tree_.rules(), "rules")
    WINE.assign(id=1).to_csv("wine.csv")
    code, out, _ = neonxc_command("compare", "old", "new", "wine.csv", "--out", "out/found.json")
    assert code == 0
    assert "magnesium has" in out
    assert json.loads(Path("out/found.json").read_text())["changed"].keys() >= {"magnesium", "ash"}
    for suffix in ("csv", "md", "txt"):
        assert neonxc_command("compare", "old", "new", "wine.csv", "--out", f"out/found.{suffix}")[0] == 0
    assert "compare needs networks or trees" in neonxc_command("compare", "old", "rules", "wine.csv")[2]
    assert "must end in .json" in neonxc_command("compare", "old", "new", "wine.csv", "--out", "found.html")[2]


@pytest.mark.usefixtures("without_reality")
def test_a_report_compares_with_another_model():
    few = WINE.iloc[:, :5]
    model = scaled(1, "magnesium", X=few)
    other = scaled(0, X=few)
    report = neonxc.explain(model, few, compared=other, fast=True)
    expected = compare_clusterings(other, neuralize(model, few), few, random_state=0)
    assert report.to_dict()["compared"] == expected.to_dict()
    page = report.html()
    assert "Compared with another model" in page
    assert expected.remarks()[3] in page
    assert "compared" not in neonxc.describe(model, few, fast=True).to_dict()
