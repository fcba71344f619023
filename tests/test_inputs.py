"""The border between what users pass and what a network computes on: one way in, one way out, labels."""

import copy
import pickle
import warnings
from collections import deque
from decimal import Decimal
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from pandas.testing import assert_frame_equal
from refusals import refused
from sklearn.cluster import DBSCAN, HDBSCAN, KMeans, MeanShift
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_wine
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from torch.testing import assert_close
from witnesses import harmonic_beta

import neonxc
from neonxc import NEON, compare_clusterings, counterfactual, neuralize
from neonxc.data.labels import repeating_columns
from neonxc.data.preparation import prepare
from neonxc.evaluation import (
    KDEImputer,
    MeanImputer,
    clustering_accuracy,
    compare,
    cost_ratio,
    interpretability,
    kmeans_cost,
    label_agreement,
    pixel_flipping,
)
from neonxc.models import FeatureExtractor, KernelKMeans, WordVectors, patterns, vgg_small
from neonxc.trees import CART

WINE = load_wine(as_frame=True).data
SCALED = pd.DataFrame(StandardScaler().fit_transform(WINE), columns=WINE.columns)
MIXED = WINE.assign(kind=np.where(WINE["alcohol"] > 13, "a", "b"))
PART = WINE[::6]


@pytest.fixture(scope="module")
def logs():
    """A network that computes on the logarithms of the columns."""
    return neuralize(make_pipeline(FunctionTransformer(np.log1p), KMeans(3, random_state=0)).fit(WINE), WINE)


@pytest.fixture(scope="module")
def mixed():
    columns = make_column_transformer((OneHotEncoder(), ["kind"]), remainder=StandardScaler())
    return neuralize(make_pipeline(columns, KMeans(3, n_init=2, random_state=0)).fit(MIXED), MIXED)


@pytest.fixture(scope="module")
def noisy():
    """DBSCAN, which has noise of its own, and a surrogate, whose noise is beyond a radius."""
    models = {"DBSCAN": DBSCAN(2.3), "surrogate": HDBSCAN(min_cluster_size=10, metric="manhattan", copy=True)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return {name: neuralize(model.fit(SCALED), SCALED) for name, model in models.items()}


# --- what imputers and baselines know is read as X is ----------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "X", "imputer"),
    [("logs", WINE, KDEImputer), ("logs", WINE, MeanImputer), ("mixed", MIXED, KDEImputer)],
)
def test_imputers_draw_and_baselines_are_what_the_network_computes_on(name, X, imputer, request):
    net = request.getfixturevalue(name)
    some = X[::6]
    relevance = NEON(net).attribute(some)
    encoded = net.inputs.read(X).tensor
    known = [X, encoded] + [X.to_numpy()] * (name == "logs")
    found = [pixel_flipping(net, some, relevance, imputer(one), repeats=3).auc for one in known]
    assert found == pytest.approx([found[0]] * len(known), abs=1e-9)
    assert found[0] > 90
    if name == "logs":
        raw, encoded = (
            compare(net, some, ["IG-10"], baseline=one, steps=5, progress=False).results["IG-10"].auc
            for one in (X.mean(), net.inputs.read(X.mean().to_frame().T).tensor[0])
        )
        assert raw == pytest.approx(encoded)


def test_a_baseline_is_a_row_of_the_table(logs, mixed):
    mean = WINE.mean()
    row = MIXED.iloc[3]
    for baseline in (row, MIXED.iloc[[3]], row.to_numpy()):
        assert_allclose(
            NEON(mixed, baseline=baseline, head_rule="linear").attribute(MIXED.iloc[[3]]), 0, atol=1e-9
        )
        assert NEON(mixed, baseline=baseline, head_rule="midpoint").attribute(MIXED[:2]).shape == (2, 14)
    assert_allclose(NEON(logs, baseline=mean).attribute(mean.to_frame().T), 0, atol=1e-9)
    refused("baseline needs a row of the table, as a number is not a category", NEON, mixed, baseline=0)
    zeros = NEON(logs, baseline=0).attribute(PART)
    assert_allclose(zeros, NEON(logs, baseline=np.zeros(13)).attribute(PART))
    assert_allclose(NEON(logs, baseline=mean[::-1]).attribute(mean.to_frame().T), 0, atol=1e-9)  # by name
    refused("baseline", NEON, logs, baseline=mean[1:])


# --- relevance goes by names ----------------------------------------------------------------------------------


@pytest.mark.parametrize("X", [PART, PART.to_numpy()], ids=["frame", "array"])
def test_relevance_goes_by_the_names_of_columns_and_rows(logs, X):
    pytest.importorskip("shap")
    relevance = NEON(logs).attribute(PART)
    imputer = MeanImputer(WINE)
    turned = relevance[relevance.columns[::-1]]
    given = [relevance, turned] + [turned.sample(frac=1, random_state=0)] * isinstance(X, pd.DataFrame)
    assert len({pixel_flipping(logs, X, one, imputer).auc for one in given}) == 1
    found = compare(logs, X, {"as it is": relevance, "turned": turned}, imputer, progress=False)
    assert found.results["as it is"].auc == found.results["turned"].auc
    assert_array_equal(*(neonxc.to_shap(one, logs, PART).values for one in (relevance, turned)))
    other = relevance.rename(columns={"alcohol": "wine"})
    refused("relevance has no column", pixel_flipping, logs, X, other, imputer)


def test_estimates_are_tables_of_the_callers_library(logs):
    polars = pytest.importorskip("polars")
    found = NEON(logs, baseline=0, steps=2).estimate(polars.from_pandas(PART))
    assert isinstance(found.relevance, polars.DataFrame)
    assert found.stderr.isfinite().all()
    assert NEON(logs, baseline=0, steps=1).estimate(PART).stderr.isnan().all()


# --- labels everywhere -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["numbers", "names"])
def renamed(request):
    """A surrogate of clusters that are not called 0, 1, 2, and the same with such labels."""
    names = np.array([1, 2, 3] if request.param == "numbers" else ["cat", "dog", "emu"])
    labels = KMeans(3, n_init=2, random_state=0).fit_predict(SCALED)
    plain, other = (neuralize(labels=own, X=SCALED) for own in (labels, names[labels]))
    return plain, other, names


def test_targets_and_competitors_are_labels(renamed):
    plain, net, names = renamed
    assert net.classes_.tolist() == names.tolist()
    ours = NEON(plain)
    theirs = NEON(net)
    X = SCALED[:40]
    columns = np.arange(40) % 3
    expected = ours.attribute(X, target=2)
    assert_frame_equal(theirs.attribute(X, target=names[2]), expected)
    others = (columns + 1) % 3
    assert_frame_equal(theirs.attribute(X, names[columns], names[others]), ours.attribute(X, columns, others))
    assert_array_equal(theirs.residual(X, names[1]), ours.residual(X, 1))
    found, expected = (
        compare(one, X, ["NEON", "IG-10"], MeanImputer(SCALED), target=target, progress=False).results
        for one, target in ((net, names[1]), (plain, 1))
    )
    assert [one.auc for one in found.values()] == [one.auc for one in expected.values()]
    flipped = pixel_flipping(net, X, theirs.attribute(X, names[1]), MeanImputer(SCALED), target=names[1])
    assert flipped.auc == found["NEON"].auc
    for name in ("target", "competitor"):
        refused(f"{name} needs labels among .*{names[2]}.*, got 7", theirs.attribute, X, **{name: 7})
    refused(f"a needs labels among .*{names[2]}.*, got 7", neonxc.contrast, net, SCALED, 7, names[0])
    refused(f"target and competitor are both {names[1]}", theirs.attribute, X, names[1], names[1])
    contrast = neonxc.contrast(net, SCALED, names[0], names[1])
    assert (contrast.a, contrast.b) == (names[0], names[1])
    assert theirs.summary(SCALED).top(names[2], 1) == ours.summary(SCALED).top(2, 1)


@pytest.fixture(scope="module")
def images():
    x = torch.rand(5, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    nets = []
    network = vgg_small(3, width=4).eval()
    for pool in (None, "avg"):
        features = FeatureExtractor(network, "features.block2", pool=pool)
        points = features.points(x)
        labels = KMeans(3, n_init=2, random_state=0).fit_predict(points)
        nets.append(neuralize(torch.stack([points[labels == k].mean(0) for k in range(3)]), x, features))
        nets[-1].classes_ = np.array([5, 6, 7])
    return x, *nets


def test_labels_of_heatmaps_and_locations(images, monkeypatch):
    x, on_map, pooled = images
    neon = NEON(on_map)
    every = neon.heatmaps(x)
    assert_close(neon.heatmaps(x, clusters=[7, 5]), every[:, [2, 0]])
    assert_close(neon.attribute(x, target=6).sum(1), every[:, 1])
    assert neon.attribute(x, target=(6, 1, 2)).shape == x.shape
    targets = tuple(on_map.classes_[[0, 1, 2, 0, 1]].tolist())  # of inputs, as these features have no locations
    monkeypatch.setattr(neonxc.common.memory, "CPU", 1 << 16)
    assert len(pooled.inputs.blocks(x)) > 1
    neon = NEON(pooled)
    assert_close(neon.attribute(x, targets), neon.attribute(x, [*targets]))


# --- one noise -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["DBSCAN", "surrogate"])
def test_noise_is_a_cluster_of_label_minus_one(noisy, name):
    net = noisy[name]
    neon = NEON(noisy[name])
    labels = net.predict(SCALED)
    logits = net(torch.tensor(SCALED.to_numpy()))
    noise = labels == -1
    assert net.classes_.tolist() == [0, 1, -1]
    assert "2 clusters and noise of points with 13 columns" in repr(net)
    assert net.beta == pytest.approx(harmonic_beta(logits[~noise]))
    summary = neon.summary(SCALED)
    relevance = neon.attribute(SCALED)
    assert summary.sizes.tolist() == [(labels == k).sum() for k in summary.classes]
    assert f"\nnoise ({noise.sum()} points)\n" in str(summary)
    assert_allclose(summary.relevance[-1], relevance[noise].mean(), atol=1e-12)
    assert_allclose(summary.values.means[-1], SCALED[noise].mean())
    assert noise[summary.prototypes[-1]].all()
    assert_array_equal(neonxc.batch_function(net)(SCALED)["cluster"], labels)
    assert_array_equal(logits.argmax(1) == 2, noise)
    why = neon.attribute(SCALED[noise], target=-1)
    why_not = neon.attribute(SCALED[~noise], competitor=-1)
    assert_allclose(why.sum(axis=1) + neon.residual(SCALED[noise]), logits[noise, 2], atol=1e-9)
    assert (why_not.sum(axis=1) > -1).all()
    for start, target in ((~noise, -1), (noise, 0)):
        moved = counterfactual(net, SCALED[start][:3], target=target)
        assert (net.predict(moved.points)[moved.found] == target).all()
        assert moved.found.all() or target == -1
    found = neonxc.contrast(net, SCALED, 0, -1)
    assert {rule.name for rule in found.rules} == {"0", "noise"}


def test_relevance_of_noise_is_that_of_distances_and_radii():
    """A surrogate whose clusters have one support each, behind steps that mix columns: by the definition."""
    centers, radius, shares = map(torch.DoubleTensor, ([[0, 0, 1], [4, 1, 0]], [1, 2.5], [0.5, 0.25, 0.25]))
    space = torch.randn(2, 3).double()
    x = 1.5 * torch.randn(50, 3).double()
    preprocessing = neonxc.head.preprocessing.Preprocessing.identity(3).then(space, torch.zeros(2).double())
    z = centers @ space.T
    head = neonxc.head.with_noise(neonxc.head.centroid_head(z, preprocessing=preprocessing), radius, space, shares)
    net = neonxc.NeuralizedClustering(head)
    x = x.requires_grad_()
    far = torch.cdist(x @ space.T, z).square()
    nearest = far.argmin(1)
    outside = far.amin(1) > radius[nearest]
    assert 5 < int(outside.sum()) < 45
    (slope,) = torch.autograd.grad(head(x)[:, 2].sum(), x)
    x = x.detach()
    far = far.detach()
    assert (net.assign(x) == torch.where(outside, 2, nearest)).all()
    difference = x[:, None] - head.detection.clusters.references  # raw centers, up to what the steps drop
    terms = difference * ((difference @ space.T) @ space)
    assert_close(terms.sum(2), far)
    for k in (0, 1):
        why = NEON(net).attribute(x, 2, k)
        assert_close(why, terms[:, k] - radius[nearest][:, None] * shares)
        assert_close(NEON(net).attribute(x, k, 2).sum(1), -why.sum(1))
    hard = neonxc.head.Answer(head, x, torch.full((50,), 2), beta=torch.inf).multiplier()
    assert_close(hard[outside], slope[outside])


def test_files_of_version_4_hold_noise_beside_the_head():
    """As version 0.2 wrote them: noise is a module of its own."""
    net = neonxc.load(Path(__file__).parent / "data" / "noise_of_version_4.safetensors")
    new = np.array([[0.0, 4.0], [2.0, 1.0], [9.0, 9.0]])
    assert net.classes_.tolist() == [0, 1, -1]
    assert net.predict(new).tolist() == [0, 1, -1]
    relevance = [[0.69037247, 4.60028005], [1.436101, 3.1924911], [28.31440276, -3.34934831]]
    assert_allclose(NEON(net).attribute(new), relevance, atol=1e-7)


def test_competitors_by_their_former_name():
    """The file above has it, too."""
    with pytest.warns(DeprecationWarning, match="Competitors"):
        former = neonxc.head.competition.Rivals
    assert former is neonxc.head.competition.Competitors


# --- the way out, and what else was lost on the way ------------------------------------------------------------


def test_what_is_written_is_what_was_read(logs, mixed):
    for net, X in ((logs, PART), (mixed, MIXED[::6])):
        for given in (X, X.to_numpy(), net.inputs.read(X).tensor):
            read = net.inputs.read(given)
            assert net.inputs.read(read) is read
            back = net.inputs.write(read.tensor, like=given)
            assert type(back) is type(given)
            assert_frame_equal(pd.DataFrame(back), pd.DataFrame(given))
    moved = logs.inputs.read(PART).tensor
    moved[:, 0] += 1
    changed = logs.inputs.write(moved, like=PART)
    assert_allclose(np.log1p(changed["alcohol"]), np.log1p(PART["alcohol"]) + 1)
    assert changed.drop(columns="alcohol").equals(PART.drop(columns="alcohol"))
    net = neuralize(torch.eye(2), features=WordVectors(["aaaa", "cccc"], torch.eye(2)))
    assert net.inputs.write(net.inputs.read(["aaaa  cccc"]).tensor, like=["a"]) == ["aaaa cccc"]


def test_inputs_are_made_once_and_follow_their_network(logs):
    for net in (copy.deepcopy(logs), pickle.loads(pickle.dumps(logs))):
        assert net.inputs.head is net.head
        assert net.inputs is not logs.inputs
    assert "inputs.head" not in dict(logs.named_modules())
    assert "inputs=" not in repr(logs)


def test_answers_do_not_depend_on_blocks(monkeypatch):
    X = np.random.default_rng(0).normal(size=(60, 5))
    x = torch.tensor(X)
    targets = np.arange(60) % 3
    for model in (KMeans(4, n_init=1, random_state=0), GaussianMixture(3, random_state=0), KernelKMeans(3, 4)):
        net = neuralize(model.fit(X), X)
        neon = NEON(net)

        def everything(net=net, neon=neon):
            given = (neon.attribute(x), neon.attribute(x, 1), neon.attribute(x, targets, (targets + 1) % 3))
            return [*given, net(x), net.predict(x), torch.tensor(neon.summary(X).relevance)]

        expected = everything()
        for place, size in (("head.head.CACHE", 1), ("head.head.CACHE", 1 << 12), ("common.memory.CPU", 1 << 16)):
            with monkeypatch.context() as context:
                context.setattr(f"neonxc.{place}", size)
                for found, one in zip(everything(), expected, strict=True):
                    assert_close(found, one, rtol=1e-12, atol=1e-12)


def test_arrays_and_narrow_buffers_of_feature_networks():
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3)).eval()
    extractor = FeatureExtractor(network, "0", mean=np.array([0.5] * 3), std=np.array([0.2] * 3))
    assert extractor.mean == (0.5, 0.5, 0.5)
    made = neuralize(torch.eye(2, 4), features=extractor)
    made.head.register_buffer("codes", torch.tensor([1, 2], dtype=torch.int8))
    made.double().half()
    assert made.head.codes.dtype == torch.int8
    assert made.head.detection.directions.dtype == torch.float32
    assert next(made.features.parameters()).dtype == torch.float16


def test_the_head_is_asked_once_per_question_and_block(logs, images):
    x, on_map, _ = images
    neon = NEON(logs)
    of_images = NEON(on_map)
    of_rows = [logs.predict, logs.calibrate, neon.attribute, neon.residual, neon.summary]
    of_rows += [partial(neon.attribute, target=1), partial(neon.attribute, competitor=1)]
    cases = [(call, PART, logs, 1) for call in [*of_rows, neonxc.batch_function(logs, "predict")]]
    cases += [(of_images.heatmaps, x, on_map, 3), (of_images.attribute, x, on_map, 1)]
    for call, given, net, times in cases:
        with patch.object(net.head.detection, "located", wraps=net.head.detection.located) as located:
            call(given)
        assert located.call_count == times


# --- labels: their types, and the order of their rows ---------------------------------------------------------

NAMES = np.array(["a", "b", "c"])
LABELS = load_wine().target
HIDDEN = np.arange(178) % 9 == 0
TYPES = {
    "dates": pd.to_datetime(["2020-01-01", "2021-05-05", "2022-01-01"])[LABELS],
    "intervals": pd.cut(pd.Series(LABELS), 3),
    "bytes": NAMES.astype("S1")[LABELS],
    "periods": pd.PeriodIndex(["2020-01", "2020-02", "2020-03"], freq="M")[LABELS],
    "decimals": [*map(Decimal, LABELS.tolist())],
    "truth values": LABELS == 1,
}
MISSING = {
    "HDBSCAN's": np.where(HIDDEN, np.where(np.arange(178) % 2, -2, -3), LABELS),
    "NaN": np.where(HIDDEN, np.nan, LABELS),
    "None": np.where(HIDDEN, None, NAMES[LABELS].astype(object)),
    "NA": pd.Series(LABELS, dtype="Int64").mask(HIDDEN),
    "NaT": TYPES["dates"].where(~HIDDEN),
    "truth values": np.where(HIDDEN, None, (LABELS == 1).astype(object)),
    "categories": pd.Categorical(NAMES[LABELS]).set_categories(["a", "b"]),
}


@pytest.mark.filterwarnings("ignore:the surrogate", "ignore:labels has .* points of noise")
@pytest.mark.parametrize(
    "kind",
    [
        # by default, one type of each way of reading labels, with and without gaps
        pytest.param(kind, marks=[pytest.mark.slow] * (kind in ("periods", "truth values", "NaT", "NA", "None")))
        for kind in [*TYPES, *MISSING]
    ],
)
def test_labels_of_any_type_are_read_compared_and_saved(kind, tmp_path):
    labels = (TYPES | MISSING)[kind]
    noise = np.asarray(pd.isna(pd.Series(labels))) | (HIDDEN if kind == "HDBSCAN's" else False)
    net = neuralize(labels=labels, X=SCALED)
    tree = CART().fit(SCALED, labels=labels)
    assert (net.noise_position >= 0) == noise.any()
    rules = tree.tree_.rules().measure(SCALED, labels)
    kernel = KernelKMeans().fit(SCALED, labels=labels)
    for fitted in (net, tree, rules, kernel):
        neonxc.save(fitted, tmp_path / "model.safetensors")
        found = fitted.predict(SCALED)
        assert_array_equal(neonxc.load(tmp_path / "model.safetensors").predict(SCALED), found)
        codes = pd.factorize(pd.Series(labels))[0]
        same = pd.crosstab(codes[~noise], np.asarray(found, dtype=str)[~noise]).max(axis=1).sum()
        assert same > 0.85 * (~noise).sum()
    assert NEON(net).attribute(SCALED, target=net.classes_[0]).shape == SCALED.shape
    compared = compare_clusterings(labels, labels, SCALED)
    assert compared.ari == label_agreement(labels, labels)["ari"] == 1
    assert (compared.to_frame()["kind"] == "kept").all()


@pytest.mark.parametrize(
    ("bandwidth", "steps"), [pytest.param(None, [StandardScaler()], marks=pytest.mark.slow), (2.5, [])]
)
def test_orphans_of_mean_shift_are_noise(bandwidth, steps):
    model = make_pipeline(*steps, MeanShift(bandwidth=bandwidth, cluster_all=False)).fit(SCALED)
    net = neuralize(model, SCALED)
    assert 0.1 < (model[-1].labels_ == -1).mean() < 0.9
    assert_array_equal(net.predict(SCALED), model[-1].labels_)
    assert net.fidelity_ is None


def test_labels_and_weights_go_by_index():
    rows = [f"r{i}" for i in range(178)]
    X = SCALED.set_axis(rows)
    y = pd.Series(LABELS, rows)
    weight = pd.Series(np.arange(178.0) + 1, rows)
    part = X.iloc[::2]
    own = LABELS[::2]
    fitted = CART(3).fit(part, labels=own).tree_.rules()
    for answer in (
        lambda each: CART(3).fit(part, labels=each).tree_.rules().to_text(),
        lambda each: neuralize(labels=each, X=part)(torch.tensor(SCALED.to_numpy())).tolist(),
        lambda each: fitted.measure(part, each).to_text(),
        lambda each: patterns(part, each).to_text(),
        lambda each: kmeans_cost(part, each),
        lambda each: compare_clusterings(own, each, part).ari,
        lambda each: KernelKMeans(random_state=0).fit(part, labels=each).objective_,
    ):
        expected = answer(own)
        for labels in (y.sample(frac=1, random_state=0), y[::-1].astype("category"), pd.Series(own)):
            assert answer(labels) == expected
    weighted = [CART(3).fit(X, labels=y, sample_weight=each).tree_.rules() for each in (weight, weight[::-1])]
    assert weighted[0].to_text() == weighted[1].to_text()
    for labels in (y.rename(str.upper), y.iloc[1:]):
        for use in (neuralize, CART().fit):
            why = "labels and X are matched by index, and that of labels lacks 'r0'"
            refused(why, use, X=X, labels=labels)


def test_a_text_of_noise_names_a_cluster_and_warns():
    X = np.arange(40.0)[:, None]
    texts = np.where(X[:, 0] < 20, "-1", "a")
    with pytest.warns(
        UserWarning, match="labels has the text '-1', which is a cluster of this name: for noise, pass"
    ):
        net = neuralize(labels=texts, X=X)
    assert list(net.classes_) == ["-1", "a"]


NOISE_BESIDE_NAMES = {
    "-1": -1,
    "-2": -2,
    "-3": np.int64(-3),
    "-1.0": -1.0,
    "a tensor": torch.tensor(-1),
    "None": None,
    "NaN": np.nan,
    "NA": pd.NA,
    "NaT": pd.NaT,
}


KINDS = [list, tuple, deque, partial(pd.Series, dtype=object)]


@pytest.mark.parametrize(
    ("kind", "noise"),
    [
        # by default, every noise in one kind of labels, in turns
        pytest.param(kind, noise, marks=[pytest.mark.slow] * (j % 4 != i))
        for i, kind in enumerate(KINDS)
        for j, noise in enumerate(NOISE_BESIDE_NAMES)
    ],
)
def test_noise_beside_names(noise, kind):
    """Labels of any kind are what an array of objects with -1 is, everywhere."""
    names = np.array(["u", "v", "w"] * 20, dtype=object)
    X = pd.DataFrame({"x": np.arange(60) % 3 + np.arange(60) / 1000, "y": np.arange(60) % 7})
    names[::6] = -1
    labels = kind([NOISE_BESIDE_NAMES[noise] if label == -1 else label for label in names])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = neuralize(labels=labels, X=X)
    assert net.classes_.tolist() == ["u", "v", "w", -1]
    tree = CART(3).fit(X, labels=labels).tree_
    assert (tree.classes.tolist(), tree.rules().n_noise) == (["u", "v", "w"], 10)
    measured = tree.rules().measure(X, labels)
    assert sum(counts.noise for counts in measured.held_out_totals.values()) == 10
    assert {rule.label for rule in patterns(X, labels)} == {"u", "v", "w"}
    assert compare_clusterings(labels, names, X).table.to_numpy().trace() == 60
    assert clustering_accuracy(labels, names) == 1
    assert cost_ratio(X, labels, names) == 1
    assert interpretability(labels, ["a"] * 60) == 1
    predicted = net.predict(X)
    expected = NEON(net).attribute(X, target=predicted)
    assert_frame_equal(NEON(net).attribute(X, target=kind(predicted)), expected)
    others = [NOISE_BESIDE_NAMES[noise] if label != -1 else "u" for label in predicted]
    of_contrast = NEON(net).attribute(X, competitor=np.array(others, dtype=object))
    assert_frame_equal(NEON(net).attribute(X, competitor=kind(others)), of_contrast)


def test_numbers_and_names_of_clusters_are_no_labels():
    X = np.arange(4.0)[:, None]
    labels = [0, "u", 0, "u"]
    for call in (
        lambda: neuralize(labels=labels, X=X),
        lambda: CART(2).fit(X, labels=labels),
        lambda: patterns(X, labels),
    ):
        refused("needs whole numbers or names, got both", call)


COPIES = {
    "the labels": lambda y: y,
    "other numbers": lambda y: 3 - y,
    "names": lambda y: np.array(["w", "u", "v"])[y],
    "categories": lambda y: pd.Categorical(np.array(["w", "u", None], dtype=object)[y]),
    "truth values": lambda y: y == 1,
    "two numbers for a cluster": lambda y: np.where(np.arange(len(y)) < 9, 5, y),
    "one number for two clusters": lambda y: np.minimum(y, 1),
}


@pytest.mark.parametrize(
    "copy",
    [
        pytest.param(
            copy, marks=[pytest.mark.slow] * (copy in ("truth values", "one number for two clusters", "names"))
        )
        for copy in COPIES
    ],
)
@pytest.mark.filterwarnings("ignore:the surrogate")
def test_a_column_that_repeats_the_labels(copy):
    """It is left out where a table is prepared, and there is a warning elsewhere."""
    y = KMeans(3, n_init=2, random_state=0).fit_predict(SCALED)
    X = SCALED.assign(copy=COPIES[copy](y))
    repeats = copy in ("the labels", "other numbers", "names", "categories")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        net = neuralize(labels=y, X=X)
    left_out = "copy has one value for each cluster, as the labels have: left out"
    assert any(left_out in str(warning.message) for warning in caught) == repeats
    assert np.abs(NEON(net).attribute(X)["copy"]).sum().astype(bool) != repeats
    prepared = prepare(X, labels=y)
    assert ("copy" in prepared.frame) != repeats
    assert any(note.startswith(left_out) for note in prepared.notes) == repeats
    assert "copy" in prepare(X, labels=y, keep=["copy"]).frame
    assert list(prepare(X[["copy"]], labels=y).frame) == ["copy"]  # there is no other column
    calls = [lambda: CART(3).fit(X, labels=y), lambda: patterns(X, y)]
    if X["copy"].dtype.kind in "if":
        calls.append(lambda: CART(3).fit(X.to_numpy(), labels=y))
        calls.append(lambda: neuralize(labels=y, X=X.to_numpy()))
    for call in calls:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        message = "X has columns with one value for each cluster, as the labels have: ['"
        assert any(message in str(warning.message) for warning in caught) == repeats


def test_a_column_that_repeats_labels_in_the_order_of_the_clusters():
    """There are more rows of one cluster than are compared first."""
    y = np.repeat([0, 1], 2000)
    columns = {
        "numbers": (2.0 * y, True),
        "names": (np.where(y, "b", "a"), True),
        "one value": (np.zeros(len(y)), False),
        "another last value": (np.r_[y[:-1], 2], False),
        "lists": (np.fromiter([[1]] * len(y), dtype=object), False),
    }
    repeating = [name for name, (_, repeats) in columns.items() if repeats]
    assert repeating_columns({name: values for name, (values, _) in columns.items()}, y) == repeating


@pytest.mark.parametrize(("noise", "repeats"), [(-1, True), (None, True), (0, False)])
def test_a_column_that_repeats_labels_and_noise(noise, repeats):
    """The values of noise are those of no cluster."""
    y = np.array([0, 1, 0, 1, -1] * 10)
    X = pd.DataFrame({"x": np.arange(50) % 9, "copy": [noise if label < 0 else label for label in y]})
    assert ("copy" in prepare(X, labels=y).frame) != repeats
