"""The border between what users pass and what a network computes on: one way in, one way out, labels."""

import json
import warnings
from decimal import Decimal
from unittest.mock import Mock

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

import neonxc
from neonxc import NEON, compare_clusterings, counterfactual, neuralize
from neonxc.evaluation import (
    KDEImputer,
    MeanImputer,
    WordImputer,
    compare,
    kmeans_cost,
    label_agreement,
    pixel_flipping,
)
from neonxc.head.answer import Answer, Question
from neonxc.models import FeatureExtractor, KernelKMeans, WordVectors, patterns, vgg_small
from neonxc.trees import CART, ExShallow

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


@pytest.mark.parametrize("imputer", [KDEImputer, MeanImputer])
def test_imputers_of_raw_rows_draw_what_the_network_computes_on(logs, imputer):
    relevance, encoded = NEON(logs).attribute(PART), logs.inputs.read(WINE).tensor
    found = pixel_flipping(logs, PART, relevance, imputer(WINE), repeats=3)
    expected = pixel_flipping(
        logs, logs.inputs.read(PART).tensor, relevance.to_numpy(), imputer(encoded), repeats=3
    )
    assert found.auc == pytest.approx(expected.auc, abs=1e-9)
    assert found.auc > 95
    given = imputer(WINE.to_numpy())
    assert pixel_flipping(logs, PART, relevance, given, repeats=3).auc == pytest.approx(found.auc, abs=1e-9)


def test_imputers_of_mixed_tables(mixed):
    relevance = NEON(mixed).attribute(MIXED[::6])
    encoded = KDEImputer(mixed.inputs.read(MIXED).tensor)
    found, expected = (
        pixel_flipping(mixed, MIXED[::6], relevance, imputer, repeats=2)
        for imputer in (KDEImputer(MIXED), encoded)
    )
    assert found.auc == pytest.approx(expected.auc, abs=1e-9)


def test_imputers_of_texts():
    words = WordVectors(["east", "west", "far"], [[1.0, 0.0], [-1.0, 0.0], [0.0, 0.2]])
    texts = ["east far", "east east", "west", "west far"] * 5
    net = neuralize(KMeans(2, n_init=1, random_state=0).fit(words.points(texts)), texts, words)
    relevance = NEON(net).attribute(texts)
    found = [
        pixel_flipping(net, texts, relevance, WordImputer(known)).auc for known in (texts, words.encode(texts))
    ]
    assert found[0] == found[1]


def test_comparisons_read_imputers_and_baselines(logs):
    methods = ["NEON", "IG-10", "random"]
    found = compare(logs, WINE, methods, KDEImputer(WINE), points=80, steps=None, progress=False)
    auc = {name: one.auc for name, one in found.results.items()}
    assert auc["NEON"] > 95
    assert auc["NEON"] > auc["random"] + 5
    raw, encoded = (
        compare(logs, WINE, ["IG-10"], baseline=baseline, points=60, steps=13, progress=False).results["IG-10"].auc
        for baseline in (WINE.mean(), logs.inputs.read(WINE.mean().to_frame().T).tensor[0])
    )
    assert raw == pytest.approx(encoded)


@pytest.mark.parametrize("head_rule", ["linear", "midpoint"])
def test_a_baseline_is_a_row_of_the_table(logs, mixed, head_rule):
    mean = WINE.mean()
    linear = NEON(logs, along=mean, head_rule="linear").attribute(mean.to_frame().T)
    assert_allclose(linear, 0, atol=1e-9)
    row = MIXED.iloc[3]
    for along in (row, MIXED.iloc[[3]], row.to_numpy()):
        neon = NEON(mixed, along=along, head_rule=head_rule)
        relevance = neon.attribute(MIXED[::20])
        assert relevance.shape == (9, 14)
        if head_rule == "linear":
            assert_allclose(neon.attribute(MIXED.iloc[[3]]), 0, atol=1e-9)
    refused("along needs a row of the table, as a number is no category", NEON, mixed, along=0)
    zeros = NEON(logs, along=0).attribute(PART)
    assert_allclose(zeros, NEON(logs, along=np.zeros(13)).attribute(PART))
    refused("along", NEON, logs, along=mean[::-1])


# --- relevance goes by names ----------------------------------------------------------------------------------


@pytest.mark.parametrize("X", [PART, PART.to_numpy()], ids=["frame", "array"])
def test_relevance_goes_by_the_names_of_columns_and_rows(logs, X):
    relevance = NEON(logs).attribute(PART)
    turned = relevance[relevance.columns[::-1]]
    imputer = MeanImputer(WINE)
    expected = pixel_flipping(logs, X, relevance, imputer).auc
    assert pixel_flipping(logs, X, turned, imputer).auc == expected
    found = compare(logs, X, {"as it is": relevance, "turned": turned}, imputer, progress=False)
    assert found.results["as it is"].auc == found.results["turned"].auc
    if isinstance(X, pd.DataFrame):
        mixed_up = turned.sample(frac=1, random_state=0)
        assert pixel_flipping(logs, X, mixed_up, imputer).auc == expected
    refused(
        "relevance has no column", pixel_flipping, logs, X, relevance.rename(columns={"alcohol": "wine"}), imputer
    )


def test_shap_explanations_go_by_names(logs):
    pytest.importorskip("shap")
    relevance = NEON(logs).attribute(PART)
    turned = neonxc.to_shap(relevance[relevance.columns[::-1]], logs, PART)
    assert_array_equal(turned.values, neonxc.to_shap(relevance, logs, PART).values)


def test_estimates_are_tables_of_the_callers_library(logs):
    polars = pytest.importorskip("polars")
    found = NEON(logs, along=0, steps=2).estimate(polars.from_pandas(PART))
    assert isinstance(found.relevance, polars.DataFrame)
    single = NEON(logs, along=0, steps=1).estimate(PART)
    assert single.stderr.isnan().all()
    assert found.stderr.isfinite().all()


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
    ours, theirs = NEON(plain), NEON(net)
    X, columns = SCALED[:40], np.arange(40) % 3
    for target in (0, 2):
        expected = ours.attribute(X, target=target)
        assert_frame_equal(theirs.attribute(X, target=names[target]), expected)
        assert_frame_equal(theirs.attribute(X, target=[names[target]] * 40), expected)
    assert_frame_equal(
        theirs.attribute(X, names[columns], names[(columns + 1) % 3]),
        ours.attribute(X, columns, (columns + 1) % 3),
    )
    assert_array_equal(theirs.residual(X, names[1]), ours.residual(X, 1))
    relevance = theirs.attribute(X, names[1])
    found, expected = (
        pixel_flipping(one, X, relevance, MeanImputer(SCALED), target=target)
        for one, target in ((net, names[1]), (plain, 1))
    )
    assert found.auc == expected.auc
    for name, call in {
        "target": lambda bad: theirs.attribute(X, target=bad),
        "competitor": lambda bad: theirs.attribute(X, competitor=bad),
        "a": lambda bad: neonxc.contrast(net, SCALED, bad, names[0]),
    }.items():
        refused(f"{name} needs labels among .*{names[2]}.*, got 7", call, 7)
    refused(f"target and competitor are both {names[1]}", theirs.attribute, X, names[1], names[1])
    top = theirs.summary(SCALED).top(names[2], 1)
    assert top == ours.summary(SCALED).top(2, 1)
    compared = compare(net, X, ["NEON", "IG-10"], MeanImputer(SCALED), target=names[1], progress=False)
    assert compared.results["NEON"].auc == found.auc


def test_all_functions_mean_the_same_cluster(renamed):
    _, net, names = renamed
    label = names.tolist()[0]
    own = net.predict(SCALED) == label
    relevance = NEON(net).attribute(SCALED[~own], target=label)
    assert (relevance.sum(axis=1) < 0).all()  # they are in other clusters
    assert (net.predict(counterfactual(net, SCALED[~own][:3], target=label).points) == label).all()
    contrast = neonxc.contrast(net, SCALED, label, names.tolist()[1])
    assert (contrast.a, contrast.b) == (label, names.tolist()[1])


@pytest.fixture(scope="module")
def images():
    extractor = FeatureExtractor(vgg_small(3, width=4).eval(), "features.block2", normalize=True)
    x = torch.rand(5, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    pooled = FeatureExtractor(extractor.net, "features.block2", pool="avg")
    nets = []
    for features in (extractor, pooled):
        labels = KMeans(3, n_init=2, random_state=0).fit_predict(features.points(x)) + 5
        centers = torch.stack([features.points(x)[labels == k].mean(0) for k in (5, 6, 7)])
        net = neuralize(centers, x, features)
        net.classes_ = np.array([5, 6, 7])
        nets.append(net)
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
    net, neon = noisy[name], NEON(noisy[name])
    labels = net.predict(SCALED)
    noise = labels == -1
    assert net.classes_.tolist() == [0, 1, -1]
    assert "2 clusters and noise of points with 13 columns" in repr(net)
    assert noise.sum() > 20
    summary = neon.summary(SCALED)
    assert summary.n_noise == summary.sizes[-1] == noise.sum()
    assert str(summary).count("noise (") == 1
    found = neonxc.batch_function(net)(SCALED)
    assert_array_equal(found["cluster"], labels)
    logits = net(torch.tensor(SCALED.to_numpy()))
    assert_array_equal(logits.argmax(1) == 2, noise)
    why, why_not = neon.attribute(SCALED[noise], target=-1), neon.attribute(SCALED[~noise], competitor=-1)
    assert_allclose(why.sum(axis=1) + neon.residual(SCALED[noise]), logits[noise, 2], atol=1e-9)
    assert (why_not.sum(axis=1) > -1).all()
    moved = counterfactual(net, SCALED[~noise][:3], target=-1)
    assert (net.predict(moved.points)[moved.found] == -1).all()
    back = counterfactual(net, SCALED[noise][:3], target=0)
    assert back.found.all()
    assert (net.predict(back.points) == 0).all()


@pytest.mark.parametrize("name", ["DBSCAN", "surrogate"])
def test_a_tree_tells_noise_from_a_cluster(noisy, name):
    found = neonxc.contrast(noisy[name], SCALED, 0, -1)
    assert found.accuracy > 0.6
    assert {rule.name for rule in found.rules} == {"0", "noise"}
    assert (found.a, found.b) == (0, -1)


def test_relevance_of_noise_is_that_of_distances_and_radii():
    """A surrogate whose clusters have one support each, behind steps that mix columns: by the definition."""
    draw = np.random.default_rng(0)
    centers = torch.tensor([[0.0, 0.0, 1.0], [4.0, 1.0, 0.0]]).double()
    radius, shares = torch.tensor([1.0, 2.5]).double(), torch.tensor([0.5, 0.25, 0.25]).double()
    space = torch.tensor(draw.normal(size=(2, 3)))
    preprocessing = neonxc.head.detection.Preprocessing.identity(3).then(space, torch.zeros(2).double())
    z = centers @ space.T
    head = neonxc.head.with_noise(neonxc.head.centroid_head(z, preprocessing=preprocessing), radius, space, shares)
    x = torch.tensor(draw.normal(size=(50, 3)) * 3)
    far = torch.cdist(x @ space.T, z).square()
    nearest = far.argmin(1)
    outside = far.amin(1) > radius[nearest]
    assert 5 < int(outside.sum()) < 45
    assert (head.assign(x) == torch.where(outside, 2, nearest)).all()
    raw = head.detection.clusters.references  # the centers in raw columns, up to what the steps drop
    difference = x[:, None] - raw
    terms = difference * ((difference @ space.T) @ space)
    assert_close(terms.sum(2), far)
    for k in (0, 1):
        ends = torch.full((50,), 2), torch.full((50,), k)
        why = Answer(head, x, *ends).relevance()
        assert_close(why, terms[:, k] - radius[nearest][:, None] * shares)
        assert_close(Answer(head, x, *ends[::-1]).relevance().sum(1), -why.sum(1))
    slope = torch.autograd.grad(head(leaf := x.clone().requires_grad_())[:, 2].sum(), leaf)[0]
    hard = Answer(head, x, torch.full((50,), 2), beta=torch.inf).multiplier()
    far_enough = outside & (far.diff(dim=1).abs()[:, 0] > 1e-6)
    assert_close(hard[far_enough], slope[far_enough])


def test_clusterings_with_names_and_noise():
    labels = np.array(["left", "right", -1], dtype=object)[np.arange(178) % 3]
    other = np.array(["a", "b", -1], dtype=object)[np.arange(178) % 3]
    found = compare_clusterings(labels, other, WINE)
    assert found.table.to_numpy().sum() == 178


def test_files_of_version_4_hold_noise_beside_the_head(noisy, tmp_path):
    """A file as version 0.2 wrote it: the parts of the network, and noise as a module of its own."""
    from neonxc.common import storage
    from neonxc.common.registry import pack
    from neonxc.head.noise import Noise

    net = noisy["surrogate"]
    described, tensors = pack(net)
    inner = neonxc.head.Head(net.head.detection.clusters, net.head.grouping.clusters)
    for name in [name for name in tensors if name.startswith("head.")]:
        del tensors[name]
    detection = net.head.detection
    for name, part in {"head": inner, "noise": Noise(radius=detection.radius, space=detection.space)}.items():
        described["parts"][name], values = pack(part)
        tensors |= {f"{name}.{key}": value for key, value in values.items()}
    described["parts"]["classes"], classes = pack(net.classes_[:-1])
    tensors |= {f"classes.{key}": value for key, value in classes.items()}
    described["values"] |= {"encoding": None}
    path = tmp_path / "net.safetensors"
    header = json.dumps({"version": 4, "kind": storage.KIND, "plain": described})
    storage.write_tensors(tensors, path, {storage.KEY: header})
    back = neonxc.load(path)
    assert back.classes_.tolist() == [0, 1, -1]
    assert_array_equal(back.predict(SCALED), net.predict(SCALED))
    assert_allclose(NEON(back).attribute(SCALED), NEON(net).attribute(SCALED))


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
    words = WordVectors(["east", "west"], [[1.0, 0.0], [-1.0, 0.0]])
    net = neuralize(torch.eye(2), features=words)
    assert net.inputs.write(net.inputs.read(["East  west"]).tensor, like=["a"]) == ["east west"]


def test_inputs_are_made_once_and_follow_their_network(logs):
    import copy
    import pickle

    for net in (copy.deepcopy(logs), pickle.loads(pickle.dumps(logs))):
        assert net.inputs.head is net.head
        assert net.inputs is not logs.inputs
    assert "inputs.head" not in dict(logs.named_modules())
    assert "inputs=" not in repr(logs)


def test_answers_do_not_depend_on_blocks(monkeypatch):
    X = np.random.default_rng(0).normal(size=(700, 5))
    for model in (KMeans(4, n_init=1, random_state=0), GaussianMixture(3, random_state=0), KernelKMeans(3, 4)):
        net = neuralize(model.fit(X), X)
        neon = NEON(net)

        def everything(net=net, neon=neon):
            x = torch.tensor(X)
            return [neon.attribute(x), neon.attribute(x, 1), net(x), torch.tensor(neon.summary(X).relevance)]

        expected, labels = everything(), net.predict(X)
        for size in (1, 1 << 12):
            with monkeypatch.context() as context:
                context.setattr(neonxc.head.head, "CACHE", size)
                for found, one in zip(everything(), expected, strict=True):
                    assert_close(found, one, rtol=1e-12, atol=1e-12)
                assert_array_equal(net.predict(X), labels)


def test_questions_per_input_follow_the_blocks(logs, monkeypatch):
    own = torch.from_numpy(logs.predict(WINE).astype(int))
    question = Question(own, (own + 1) % 3)
    whole = torch.cat([answer.relevance() for answer in logs.inputs.answers(WINE, question)])
    monkeypatch.setattr(
        type(logs.inputs), "blocks", lambda self, x: [slice(i, i + 50) for i in range(0, len(x), 50)]
    )
    parts = torch.cat([answer.relevance() for answer in logs.inputs.answers(WINE, question)])
    assert_close(parts, whole, rtol=0, atol=0)
    expected = NEON(logs).attribute(WINE, question.target, question.competitor)
    assert_allclose(logs.inputs.collect(parts), expected, rtol=1e-9, atol=1e-12)


def test_the_short_way_to_own_weights_is_the_general_one():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(200, 4, generator=generator).double()
    x[:20] = x[20:40].round()  # some ties
    head = neonxc.head.centroid_head(torch.randn(6, 4, generator=generator).double().round())
    own = head.assign(x)
    for beta in (1e-6, 0.3, 40.0):
        short, long = Answer(head, x, beta=beta), Answer(head, x, own, beta=beta)
        assert_close(short.weights, long.weights, rtol=1e-9, atol=1e-12)
        assert_close(short.relevance(), long.relevance(), rtol=1e-9, atol=1e-12)


def test_arrays_and_narrow_buffers_of_feature_networks():
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU())
    net.register_buffer("codes", torch.tensor([1, 2], dtype=torch.int8))
    extractor = FeatureExtractor(net.eval(), "1", mean=np.array([0.5] * 3), std=np.array([0.2] * 3))
    assert extractor.mean == (0.5, 0.5, 0.5)
    made = neuralize(torch.eye(2, 4), features=extractor)
    made.head.register_buffer("codes", torch.tensor([1], dtype=torch.int8))
    made.double().half()
    assert made.head.codes.dtype == torch.int8
    assert made.head.detection.directions.dtype == torch.float32
    assert next(made.features.parameters()).dtype == torch.float16


def test_a_network_of_words_tells_its_number_of_features():
    words = WordVectors(["a" * 4, "b" * 4, "c" * 4, "d" * 4], torch.eye(4)[:, :3])
    net = neuralize(torch.eye(2, 3), features=words)
    assert "points with 3 features" in repr(net)


def test_trees_on_images_have_inputs_of_images(images):
    x, on_map, _ = images
    tree = ExShallow(3, random_state=0).fit(on_map.features.points(x))
    net = neuralize(tree, x, on_map.features)
    maps = NEON(net).threshold_heatmaps(x)
    assert_close(maps.sum(1), NEON(net).attribute(x).sum(1), rtol=1e-4, atol=1e-6)


def test_the_head_is_asked_once_per_question_and_block(logs, images, monkeypatch):
    x, on_map, _ = images

    def times(net, call):
        located = Mock(wraps=net.head.detection.located)
        with monkeypatch.context() as context:
            context.setattr(net.head.detection, "located", located)
            call()
        return located.call_count

    neon = NEON(logs)
    for call in (
        lambda: logs.predict(PART),
        lambda: logs.calibrate(PART),
        lambda: neon.attribute(PART),
        lambda: neon.attribute(PART, 1),
        lambda: neon.attribute(PART, competitor=1),
        lambda: neon.residual(PART),
        lambda: neon.summary(PART),
        lambda: neonxc.batch_function(logs, "predict")(PART),
    ):
        assert times(logs, call) == 1
    assert times(on_map, lambda: NEON(on_map).heatmaps(x)) == 3
    assert times(on_map, lambda: NEON(on_map).attribute(x)) == 1


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
    "floats": LABELS.astype(float),
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
@pytest.mark.parametrize("kind", [*TYPES, *MISSING])
def test_labels_of_any_type_are_read_compared_and_saved(kind, tmp_path):
    labels = (TYPES | MISSING)[kind]
    noise = np.asarray(pd.isna(pd.Series(labels))) | (HIDDEN if kind == "HDBSCAN's" else False)
    net, tree = neuralize(labels=labels, X=SCALED), CART().fit(SCALED, labels=labels)
    assert (net.noise_position >= 0) == noise.any()
    for fitted in (
        net,
        tree,
        tree.tree_.rules().measure(SCALED, labels),
        KernelKMeans().fit(SCALED, labels=labels),
    ):
        neonxc.save(fitted, tmp_path / "model.safetensors")
        found = fitted.predict(SCALED)
        assert_array_equal(neonxc.load(tmp_path / "model.safetensors").predict(SCALED), found)
        codes = pd.factorize(pd.Series(labels))[0]
        same = pd.crosstab(codes[~noise], np.asarray(found, dtype=str)[~noise]).max(axis=1).sum()
        assert same > 0.85 * (~noise).sum()
    assert NEON(net).attribute(SCALED, target=net.classes_[0]).shape == SCALED.shape
    compared = compare_clusterings(labels, labels, SCALED)
    assert compared.ari == 1
    assert (compared.to_frame()["kind"] == "kept").all()
    assert label_agreement(labels, labels)["ari"] == 1


@pytest.mark.parametrize("bandwidth", [None, 2.5])
@pytest.mark.parametrize("steps", [[], [StandardScaler()]])
def test_orphans_of_mean_shift_are_noise(bandwidth, steps):
    model = make_pipeline(*steps, MeanShift(bandwidth=bandwidth, cluster_all=False)).fit(SCALED)
    net = neuralize(model, SCALED)
    assert 0.1 < (model[-1].labels_ == -1).mean() < 0.9
    assert_array_equal(net.predict(SCALED), model[-1].labels_)
    assert net.fidelity_ is None


def test_labels_and_weights_go_by_index():
    X, y = SCALED.set_axis([f"r{i}" for i in range(178)]), pd.Series(LABELS, [f"r{i}" for i in range(178)])
    weight = pd.Series(np.arange(178.0) + 1, X.index)
    for labels in (
        y[::-1],
        y.sample(frac=1, random_state=0),
        y[::-1].astype("category"),
        pd.Series(LABELS),
        LABELS,
    ):
        part = X.iloc[::2] if isinstance(labels, pd.Series) and not isinstance(labels.index, pd.RangeIndex) else X
        own = y[part.index].to_numpy()
        tree = CART(3).fit(part, labels=own)
        assert CART(3).fit(part, labels=labels).tree_.rules().to_text() == tree.tree_.rules().to_text()
        net, other = (neuralize(labels=each, X=part) for each in (own, labels))
        assert_array_equal(other(other.inputs.read(part).tensor), net(net.inputs.read(part).tensor))
        rules = tree.tree_.rules()
        assert rules.measure(part, labels).to_text() == rules.measure(part, own).to_text()
        assert patterns(part, labels).to_text() == patterns(part, own).to_text()
        assert kmeans_cost(part, labels) == kmeans_cost(part, own)
        assert compare_clusterings(own, labels, part).ari == 1
        kernel = (KernelKMeans(random_state=0).fit(part, labels=each).objective_ for each in (own, labels))
        assert next(kernel) == next(kernel)
    of_weights = (
        CART(3).fit(X, labels=y, sample_weight=each).tree_.rules().to_text() for each in (weight, weight[::-1])
    )
    assert next(of_weights) == next(of_weights)
    for labels, why in ((y.rename(lambda row: row.upper()), "lacks 'r0'"), (y.iloc[1:], "lacks 'r0'")):
        for use in (lambda: neuralize(labels=labels, X=X), lambda: CART().fit(X, labels=labels)):  # noqa: B023
            refused(f"labels and X are matched by index, and that of labels {why}", use)
