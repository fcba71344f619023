"""From clusterings to networks: the same decisions, the paper's logits, any input, any deployment."""

import copy
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.cluster import (
    DBSCAN,
    AffinityPropagation,
    AgglomerativeClustering,
    Birch,
    BisectingKMeans,
    KMeans,
    MeanShift,
    MiniBatchKMeans,
)
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris, make_moons
from sklearn.decomposition import PCA, IncrementalPCA, TruncatedSVD
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from torch import nn
from turns import in_turns
from witnesses import (
    affine_map,
    blobs,
    hierarchy_logits,
    hierarchy_paths,
    near,
    nearest_preimage,
    pipeline_neon,
    subcluster_logits,
    two_layer_logits,
)

import neonxc

X = blobs()
NEW = near(X)
NAMES = list("abcd")
FRAME = pd.DataFrame(X, columns=NAMES)

CLUSTERERS = {
    "KMeans": KMeans(4, n_init=1, random_state=0),
    "MiniBatchKMeans": MiniBatchKMeans(4, n_init=1, random_state=0),
    "BisectingKMeans": BisectingKMeans(7, random_state=0),
    "BisectingKMeans largest": BisectingKMeans(6, random_state=1, bisecting_strategy="largest_cluster"),
    "MeanShift": MeanShift(bandwidth=25),
    "AffinityPropagation": AffinityPropagation(damping=0.9, random_state=0),
    "Birch": Birch(n_clusters=3, threshold=6),
    "Birch without global step": Birch(n_clusters=None, threshold=12),
}


def km(k=4):
    return KMeans(k, n_init=1, random_state=0)


def columns(*transformers, **options):
    return ColumnTransformer([(f"t{i}", *t) for i, t in enumerate(transformers)], **options)


# Pipelines that scale columns one by one: the map to the centers' space is a diagonal.
DIAGONAL = {
    "StandardScaler": [StandardScaler()],
    "StandardScaler without mean": [StandardScaler(with_mean=False)],
    "StandardScaler without std": [StandardScaler(with_std=False)],
    "StandardScaler without both": [StandardScaler(with_mean=False, with_std=False)],
    "MinMaxScaler": [MinMaxScaler((-1, 3))],
    "MaxAbsScaler": [MaxAbsScaler()],
    "RobustScaler": [RobustScaler()],
    "RobustScaler plain": [RobustScaler(with_centering=False, with_scaling=False)],
    "passthrough first": ["passthrough", StandardScaler()],
    "None first": [None, MinMaxScaler()],
    "identity function": [FunctionTransformer(), StandardScaler()],
    "two scalers": [RobustScaler(), MinMaxScaler()],
    "nested": [make_pipeline(StandardScaler(), MaxAbsScaler()), MinMaxScaler()],
}
MIXING = {
    "PCA": [PCA(2, random_state=0)],
    "PCA whiten": [PCA(3, whiten=True, random_state=0)],
    "PCA of all": [StandardScaler(), PCA(random_state=0)],
    "IncrementalPCA": [StandardScaler(), IncrementalPCA(2)],
    "IncrementalPCA whiten": [IncrementalPCA(2, whiten=True)],
    "TruncatedSVD": [TruncatedSVD(2, random_state=0)],
    "PCA then scaler": [StandardScaler(), PCA(3, random_state=0), RobustScaler()],
    "columns by number": [columns((StandardScaler(), [3, 0]), (MinMaxScaler(), [-2]))],
    "columns passthrough": [columns((StandardScaler(), [1]), remainder="passthrough")],
    "columns drop": [columns(("drop", [0]), ("passthrough", [2]), remainder=StandardScaler())],
    "columns twice": [columns((StandardScaler(), [0, 1, 2, 3]), (MaxAbsScaler(), slice(1, 3)))],
    "columns none": [columns((StandardScaler(), []), ("passthrough", slice(0, 4)))],
    "columns by mask": [columns((RobustScaler(), [True, False, True, True]))],
    "columns by function": [columns((PCA(2, random_state=0), lambda data: [0, 1, 3]))],
    "columns nested": [columns((make_pipeline(StandardScaler(), PCA(1)), [0, 1]), (MinMaxScaler(), [2, 3]))],
}
NORMED = {
    "l1": [StandardScaler(), Normalizer("l1")],
    "l2": [StandardScaler(), Normalizer("l2")],
    "max": [StandardScaler(), Normalizer("max")],
    "first": [Normalizer(), StandardScaler()],
    "middle": [StandardScaler(), Normalizer(), PCA(2, random_state=0)],
    "after PCA": [StandardScaler(), PCA(3, random_state=0), Normalizer("l1")],
    "nested": [make_pipeline(StandardScaler(), Normalizer()), MinMaxScaler()],
}
PIPELINES = {
    f"{kind}: {name}": steps
    for kind, group in (("diagonal", DIAGONAL), ("mixing", MIXING), ("normed", NORMED))
    for name, steps in group.items()
}


def fitted(steps, data=X, k=4):
    return make_pipeline(*copy.deepcopy(steps), km(k)).fit(data)


def tensor(data, dtype=torch.float64):
    return torch.tensor(np.asarray(data), dtype=dtype)


def assert_same_decisions(net, model, data):
    data = tensor(data)
    labels, logits = net.predict(data.numpy()), net(data)
    np.testing.assert_array_equal(labels, model.predict(data.numpy()))
    assert ((logits > 0).sum(dim=1) == 1).all()
    np.testing.assert_array_equal(net.classes_[logits.argmax(dim=1)], labels)


# --- clusterers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", CLUSTERERS)
def test_decides_as_the_clusterer(name, dtype):
    model = copy.deepcopy(CLUSTERERS[name]).fit(X.astype(dtype))
    net = neonxc.neuralize(model)
    for data in (X.astype(dtype), NEW.astype(dtype)):
        labels = net.predict(data)
        logits = net(torch.from_numpy(data))
        assert isinstance(labels, np.ndarray)
        assert logits.dtype == getattr(torch, np.dtype(dtype).name)
        np.testing.assert_array_equal(labels, model.predict(data))
        assert ((logits > 0).sum(dim=1) == 1).all()
        np.testing.assert_array_equal(net.classes_[logits.argmax(dim=1)], labels)


@pytest.mark.parametrize("name", CLUSTERERS)
def test_logits_are_those_of_the_literal_network(name):
    model = copy.deepcopy(CLUSTERERS[name]).fit(X)
    if isinstance(model, Birch):
        wanted = subcluster_logits(NEW, model.subcluster_centers_, model.subcluster_labels_)
    elif isinstance(model, BisectingKMeans):
        wanted = hierarchy_logits(NEW, hierarchy_paths(model._bisecting_tree, model._X_mean))
    else:
        wanted = two_layer_logits(NEW, model.cluster_centers_)
    np.testing.assert_allclose(neonxc.neuralize(model)(tensor(NEW)).numpy(), wanted, rtol=1e-10, atol=1e-8)


def test_a_hierarchy_is_not_its_nearest_center():
    model = BisectingKMeans(7, random_state=0).fit(X)
    data = near(X, 3000)
    nearest = ((data[:, None] - model.cluster_centers_) ** 2).sum(axis=2).argmin(axis=1)
    assert (neonxc.neuralize(model).predict(data) != nearest).any()


@pytest.mark.parametrize("make", [np.asarray, tensor, list, lambda c: [list(row) for row in c], np.float32])
def test_bare_centers(make):
    centers = X[:5]
    net = neonxc.neuralize(make(centers))
    wanted = two_layer_logits(NEW, np.asarray(make(centers), dtype=float))
    np.testing.assert_allclose(net(tensor(NEW)).numpy(), wanted, rtol=1e-10, atol=1e-8)
    np.testing.assert_array_equal(net.classes_, range(5))


def test_negative_and_many_clusters_keep_their_labels():
    model = Birch(n_clusters=2, threshold=6).fit(X)
    model.subcluster_labels_ = np.array([-3, 12])[model.subcluster_labels_]
    net = neonxc.neuralize(model)
    assert set(net.predict(X)) == {-3, 12}
    np.testing.assert_array_equal(net.predict(X), model.predict(X))


def test_affinity_propagation_on_sparse_data():
    from scipy.sparse import csr_matrix

    model = AffinityPropagation(damping=0.9, random_state=0).fit(csr_matrix(X))
    np.testing.assert_array_equal(neonxc.neuralize(model).predict(X), model.predict(csr_matrix(X)))


@pytest.mark.parametrize("offset", [1e4, 1e5])
@pytest.mark.parametrize(
    "steps", [[], [StandardScaler()], [PCA(2, random_state=0)]], ids=["plain", "scaled", "PCA"]
)
def test_float32_far_from_the_origin(steps, offset):
    data = (blobs(spread=1.0) / 10 + offset).astype(np.float32)
    exact = data.astype(np.float64)
    model = fitted(steps, exact)
    net = neonxc.neuralize(model, exact)
    np.testing.assert_array_equal(net.predict(data), model.predict(exact))
    single, double = neonxc.NEON(net).attribute(data), neonxc.NEON(net).attribute(exact)
    assert single.dtype == np.float32
    assert np.abs(single - double).max() <= 1e-5 * np.abs(double).max()


# --- pipelines ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PIPELINES)
def test_pipeline_decides_as_scikit_learn(name):
    model = fitted(PIPELINES[name])
    for net in (neonxc.neuralize(model, X), neonxc.neuralize(model)):
        assert_same_decisions(net, model, X)
        assert_same_decisions(net, model, NEW)
        assert net.head.detection.n_features == 4
    z = model[:-1].transform(NEW)
    wanted = two_layer_logits(z, model[-1].cluster_centers_)
    np.testing.assert_allclose(net(tensor(NEW)).numpy(), wanted, rtol=1e-9, atol=1e-10 * np.abs(wanted).max())


@pytest.mark.parametrize("name", PIPELINES)
def test_relevance_of_raw_columns(name):
    model = fitted(PIPELINES[name])
    net = neonxc.neuralize(model, X)
    relevance = neonxc.NEON(net).attribute(NEW)
    own = net(tensor(NEW)).amax(dim=1).numpy()
    assert relevance.shape == NEW.shape
    np.testing.assert_allclose(relevance.sum(axis=1), own, rtol=1e-9, atol=1e-9 * own.max())
    for i in range(0, len(NEW), 9):
        wanted = pipeline_neon(model, NEW[i], int(net.predict(NEW[i : i + 1])[0]), net.beta, X)
        np.testing.assert_allclose(relevance[i], wanted, rtol=1e-7, atol=1e-8 * np.abs(wanted).max())


@pytest.mark.parametrize("name", DIAGONAL)
def test_diagonal_pipeline_in_closed_form(name):
    model = fitted(DIAGONAL[name], k=2)
    net = neonxc.neuralize(model)
    z, centers = model[:-1].transform(NEW), model[-1].cluster_centers_
    own = net.predict(NEW)
    wanted = (z - centers[1 - own]) ** 2 - (z - centers[own]) ** 2
    np.testing.assert_allclose(neonxc.NEON(net).attribute(NEW), wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("whiten", [False, True])
@pytest.mark.parametrize("with_data", [False, True])
def test_reference_point_behind_a_pca(whiten, with_data):
    model = make_pipeline(StandardScaler(), PCA(2, whiten=whiten, random_state=0), km(2)).fit(X)
    net = neonxc.neuralize(model, X if with_data else None)
    A, b = affine_map(model[:-1].transform, 4)
    centers = model[-1].cluster_centers_
    middle, weight = centers.mean(axis=0), A.T @ (2 * (centers[0] - centers[1]))
    relevance = neonxc.NEON(net).attribute(NEW, target=0, competitor=1)
    references = NEW - relevance / weight  # R_i = (x_i - x~_i) w_i, one reference point for all
    np.testing.assert_allclose(references - references[0], 0, atol=1e-8)
    np.testing.assert_allclose(A @ references[0] + b, middle, atol=1e-9)
    # StandardScaler remembers the mean and standard deviation of the data
    wanted = nearest_preimage(A, b, middle, X.mean(axis=0), X.std(axis=0))
    np.testing.assert_allclose(references[0], wanted, rtol=1e-8)


@pytest.mark.parametrize(
    "columns_",
    [
        ["d", "a"],
        slice("b", "d"),
        slice("c", None),
        slice(None, "b"),
        [True, False, True, False],
        np.array([False, True, True, False]),
        FRAME.columns.isin(["a", "d"]),
        pd.Index(["c", "b"]),
        lambda frame: [c for c in frame.columns if c != "b"],
        slice(1, 3),
    ],
    ids=lambda columns: "function" if callable(columns) else str(columns),
)
def test_columns_of_a_frame(columns_):
    model = make_pipeline(columns((StandardScaler(), columns_), remainder=MinMaxScaler()), km()).fit(FRAME)
    net = neonxc.neuralize(model, FRAME)
    assert net.feature_names_ == NAMES
    new = pd.DataFrame(NEW, columns=NAMES, index=[f"p{i}" for i in range(len(NEW))])
    np.testing.assert_array_equal(net.predict(new), model.predict(new))
    relevance = neonxc.NEON(net).attribute(new)
    assert relevance.index.equals(new.index)
    assert list(relevance.columns) == NAMES
    np.testing.assert_allclose(
        relevance.to_numpy().sum(axis=1), net(tensor(NEW)).amax(dim=1), rtol=1e-9, atol=1e-9
    )


def test_a_whitened_pca_of_tiny_numbers():
    model = fitted([PCA(2, whiten=True)], X * 1e-10)
    np.testing.assert_array_equal(
        neonxc.neuralize(model, X * 1e-10).predict(NEW * 1e-10), model.predict(NEW * 1e-10)
    )


def test_zero_rows_pass_a_normalizer():
    model = fitted([Normalizer()])
    zero = np.zeros((1, 4))
    net = neonxc.neuralize(model)
    np.testing.assert_array_equal(net.predict(zero), model.predict(zero))
    assert np.isfinite(neonxc.NEON(net).attribute(zero)).all()


def test_nested_pipeline_as_the_last_step():
    model = Pipeline([("scale", StandardScaler()), ("rest", make_pipeline(PCA(2), km()))]).fit(X)
    assert_same_decisions(neonxc.neuralize(model), model, NEW)


# --- beta --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [[], [StandardScaler(), Normalizer()]], ids=["plain", "normed"])
def test_beta_is_one_over_the_mean_harmonic_mean_of_the_contrasts(steps):
    model = fitted(steps)
    net = neonxc.neuralize(model, X)
    assert net.beta == pytest.approx(harmonic_beta(net(tensor(X))), rel=1e-10)
    assert net.calibrate(NEW) is net
    assert net.beta == pytest.approx(harmonic_beta(net(tensor(NEW))), rel=1e-10)
    net.calibrate(X, contrast="least")
    assert net.beta == pytest.approx(1 / float(net(tensor(X)).amax(dim=1).mean()), rel=1e-12)


def harmonic_beta(logits):
    """One over the mean of ``(K - 1) / sum_k 1 / h_k``; a competitor's logit is minus its contrast."""
    means = []
    for row in logits.detach().numpy():
        contrasts = np.delete(-row, row.argmax())
        means.append(len(contrasts) / (1 / contrasts).sum())
    return 1 / np.mean(means)


@pytest.mark.parametrize("k", [2, 3, 4, 7])
def test_beta_by_the_median_contrast(k):
    centers = np.random.default_rng(k).normal(size=(k, X.shape[1])) * 3
    net = neonxc.neuralize(centers)
    medians = []
    for x in X:
        far = np.sort(((x - centers) ** 2).sum(1))
        medians.append(np.median(far[1:] - far[0]))
    assert net.calibrate(X, contrast="median").beta == pytest.approx(1 / np.mean(medians), rel=1e-9)
    least = net.calibrate(X, contrast="least").beta
    assert (least == pytest.approx(1 / np.mean(medians), rel=1e-9)) == (k == 2)
    harmonic = net.calibrate(X).beta
    assert least / (k - 1) * (1 - 1e-9) <= harmonic <= least * (1 + 1e-9)
    for other in ("mean", ["least"]):
        with pytest.raises(ValueError, match='contrast needs "harmonic", "least" or "median"'):
            net.calibrate(X, contrast=other)


@pytest.mark.parametrize("name", ["KMeans", "BisectingKMeans", "Birch"])
def test_beta_without_data_is_that_of_the_centers(name):
    model = copy.deepcopy(CLUSTERERS[name]).fit(X)
    net = neonxc.neuralize(model)
    points = model.subcluster_centers_ if name == "Birch" else model.cluster_centers_
    assert net.beta == pytest.approx(neonxc.neuralize(model, points).beta, rel=1e-12)


def test_beta_of_a_hierarchy_counts_every_split_of_a_path_once():
    model = BisectingKMeans(5, random_state=0).fit(X)
    net = neonxc.neuralize(model, X)
    paths, means = hierarchy_paths(model._bisecting_tree, getattr(model, "_X_mean", 0.0)), []
    for x, leaf in zip(X, model.predict(X), strict=True):
        evidence = [((x - s) ** 2).sum() - ((x - c) ** 2).sum() for c, s in paths[leaf]]
        means.append(len(evidence) / sum(1 / h for h in evidence))
    assert net.beta == pytest.approx(1 / np.mean(means), rel=1e-9)


# --- what goes in comes out --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "container"),
    in_turns(["float16", "float32", "float64", "int8", "int64", "uint8", "bool"], ["array", "frame", "tensor"]),
)
def test_inputs(container, kind):
    whole = np.abs(X).round() if kind != "bool" else X.mean(axis=0) < X
    whole = whole.clip(0, 100).astype(kind) if kind != "bool" else whole
    data = {"array": np.asarray, "frame": lambda a: pd.DataFrame(a, columns=NAMES), "tensor": torch.from_numpy}
    given = data[container](whole)
    exact = whole.astype(np.float64)
    net = neonxc.neuralize(km().fit(exact), given)
    labels, relevance = net.predict(given), neonxc.NEON(net).attribute(given)
    np.testing.assert_array_equal(np.asarray(labels), net.predict(exact))
    wide = {"float16": "float32", "float32": "float32"}.get(kind, "float64")
    assert isinstance(labels, torch.Tensor if container == "tensor" else np.ndarray)
    assert type(relevance) is type(given)
    values = relevance.to_numpy() if container == "frame" else np.asarray(relevance)
    assert values.dtype == wide
    np.testing.assert_allclose(values, neonxc.NEON(net).attribute(exact), rtol=1e-3, atol=0.1)


def test_lists_and_nullable_columns():
    net = neonxc.neuralize(km().fit(X))
    assert isinstance(net.predict(X.tolist()), np.ndarray)
    np.testing.assert_array_equal(net.predict(FRAME.convert_dtypes()), net.predict(X))


def test_inputs_are_not_changed():
    before = X.copy()
    X.setflags(write=False)
    try:
        net = neonxc.neuralize(km().fit(X), X)
        net.predict(X)
        neonxc.NEON(net).attribute(X)
    finally:
        X.setflags(write=True)
    np.testing.assert_array_equal(X, before)


def test_forward_is_differentiable():
    net = neonxc.neuralize(km().fit(X))
    assert torch.autograd.gradcheck(net, tensor(NEW[:5]).requires_grad_())


# --- types and deployment ----------------------------------------------------------------------------------

NETS = {
    "centroids": lambda: neonxc.neuralize(km().fit(X), X),
    "groups": lambda: neonxc.neuralize(copy.deepcopy(CLUSTERERS["Birch"]).fit(X), X),
    "hierarchy": lambda: neonxc.neuralize(copy.deepcopy(CLUSTERERS["BisectingKMeans"]).fit(X), X),
    "pipeline": lambda: neonxc.neuralize(fitted([StandardScaler(), Normalizer(), PCA(2)]), X),
}
nets = pytest.mark.parametrize("name", NETS)


@nets
@pytest.mark.parametrize("cast", [lambda n: n.half(), lambda n: n.to(torch.bfloat16), lambda n: n.float()])
def test_the_head_stays_in_float32_or_better(name, cast):
    net = NETS[name]()
    wanted, beta = net.predict(X), net.beta
    assert cast(net) is net
    floats = [b for b in net.buffers() if b.is_floating_point()]
    assert all(b.dtype in (torch.float32, torch.float64) for b in floats)
    np.testing.assert_array_equal(net.predict(X), wanted)
    assert net.beta == pytest.approx(beta, rel=1e-6)
    assert net(tensor(X, torch.float16)).dtype == torch.float32
    assert net(tensor(X)).dtype == torch.float64


@nets
def test_autocast_leaves_the_head_alone(name):
    net, x = NETS[name](), tensor(X, torch.float32)
    wanted, relevance = net(x), neonxc.NEON(net).attribute(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert net(x).dtype == torch.float32
        assert torch.equal(net(x), wanted)
        assert torch.equal(neonxc.NEON(net).attribute(x), relevance)


@nets
def test_deepcopy_and_state_dict(name):
    net, x = NETS[name](), tensor(NEW)
    twin = copy.deepcopy(net)
    net.beta = 0.0
    assert torch.equal(twin(x), net(x))
    assert twin.beta > 0
    blank = copy.deepcopy(net)
    for buffer in blank.buffers():
        buffer.zero_()
    blank.load_state_dict(twin.state_dict())
    assert torch.equal(blank(x), twin(x))
    assert blank.beta == twin.beta


@nets
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compile(name, dtype):
    net, x = NETS[name](), tensor(NEW, dtype)
    compiled = torch.compile(net, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), net(x))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
@nets
def test_inductor(name):
    net, x = NETS[name](), tensor(NEW, torch.float32)
    torch.testing.assert_close(torch.compile(net, fullgraph=True)(x), net(x), rtol=1e-4, atol=1e-3)


@nets
def test_export_with_a_dynamic_batch(name):
    net, x = NETS[name](), tensor(NEW)
    program = torch.export.export(net, (x[:5],), dynamic_shapes=({0: torch.export.Dim("n", min=2)},))
    for n in (2, 17, 100):
        torch.testing.assert_close(program.module()(x[:n]), net(x[:n]))


# --- feature networks --------------------------------------------------------------------------------------


def convnet(pooled):
    torch.manual_seed(3)
    layers = [nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 5, 3), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()] if pooled else []
    return nn.Sequential(*layers).double().eval()


def deep(pooled, n=7, steps=()):
    features, images = convnet(pooled), torch.randn(n, 3, 12, 10, dtype=torch.float64)
    with torch.no_grad():
        a = features(images)
    points = a if pooled else a.permute(0, 2, 3, 1).reshape(-1, 5)
    model = fitted(list(steps), points.numpy(), k=3)
    return neonxc.neuralize(model, images, features=features), model, images, points


@pytest.mark.parametrize("steps", [[], [StandardScaler()]], ids=["plain", "scaled"])
@pytest.mark.parametrize("pooled", [True, False], ids=["pooled", "map"])
def test_features(pooled, steps):
    net, model, images, points = deep(pooled, steps=steps)
    place = () if pooled else (4, 3)
    wanted = torch.from_numpy(model.predict(points.numpy())).long().reshape(7, *place)
    assert torch.equal(net.predict(images), wanted)
    assert torch.equal(net.assign(images), wanted)
    assert isinstance(net.predict(images.numpy()), np.ndarray)
    logits = net(images)
    assert logits.shape == (7, 3, *place)
    assert torch.equal(logits.argmax(dim=1), wanted)
    assert torch.equal((logits > 0).sum(dim=1), torch.ones(7, *place, dtype=torch.long))
    literal = two_layer_logits(
        model[:-1].transform(points.numpy()) if steps else points.numpy(), model[-1].cluster_centers_
    )
    literal = torch.from_numpy(literal).reshape(7, *place, 3).movedim(-1, 1)
    torch.testing.assert_close(logits, literal, rtol=1e-9, atol=1e-12)
    assert net.beta == pytest.approx(harmonic_beta(literal.movedim(1, -1).flatten(0, -2)))


def test_predict_in_batches_equals_one_pass():
    net, _, images, _ = deep(False, n=40)  # more than one batch of images
    assert torch.equal(net.predict(images), net.assign(images))


def test_half_precision_features():
    net, _, images, _ = deep(True)
    logits = net.to(torch.bfloat16)(images.bfloat16())
    assert next(net.features.parameters()).dtype == torch.bfloat16
    assert logits.dtype == torch.float32


def test_uint8_images_are_widened_to_the_type_of_the_network():
    net = deep(True)[0].float()
    images = np.random.default_rng(0).integers(0, 255, (4, 3, 12, 10), dtype=np.uint8)
    assert torch.equal(torch.from_numpy(net.predict(images)), net.predict(torch.from_numpy(images).float()))


# --- CUDA --------------------------------------------------------------------------------------------------


@pytest.mark.cuda
@nets
def test_cuda(name):
    net, x = NETS[name](), tensor(NEW)
    wanted = net(x)
    net.to("cuda")
    torch.testing.assert_close(net(x.cuda()).cpu(), wanted)
    assert net.predict(x.cuda()).is_cuda
    assert isinstance(net.predict(NEW), np.ndarray)
    assert net(x.half().cuda()).dtype == torch.float32


# --- clusterings known by their labels -----------------------------------------------------------------------


def moons(n_noise=80):
    rng = np.random.default_rng(0)
    points, _ = make_moons(400, noise=0.05, random_state=0)
    return np.concatenate([points, rng.uniform(-3, 4, size=(n_noise, 2))])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_noise_is_in_no_summary_and_of_no_account_to_beta():
    data = moons()
    labels = np.r_[make_moons(400, noise=0.05, random_state=0)[1], [-1] * 80]
    net = neonxc.neuralize(labels=labels, X=data)
    predicted = net.predict(data)
    assert (predicted == -1).any()
    assert net.beta == pytest.approx(harmonic_beta(net(tensor(data))[predicted != -1]))
    summary = neonxc.NEON(net).summary(data)
    assert summary.sizes.tolist() == [(predicted == 0).sum(), (predicted == 1).sum()]
    assert summary.n_noise == (predicted == -1).sum()
    assert f"\nnoise ({summary.n_noise} points)\n" in str(summary)
    relevance = neonxc.NEON(net).attribute(data)
    for k in (0, 1):
        assert (predicted[summary.prototypes[k]] == k).all()
        assert np.allclose(summary.relevance[k], relevance[predicted == k].mean(0))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_noise_is_in_no_summary_of_words():
    from neonxc.models import WordVectors

    words = WordVectors(["east", "west", "nowhere"], [[1.0, 0.0], [-1.0, 0.0], [0.0, 9.0]])
    texts = ["east", "east east", "west", "west west", "nowhere"] * 10
    net = neonxc.neuralize(labels=[0, 0, 1, 1, -1] * 10, X=words.encode(texts), features=words)
    assert (net.predict(words.encode(texts)) == torch.tensor([0, 0, 1, 1, -1] * 10)).all()
    summary = neonxc.NEON(net).summary(texts)
    assert summary.sizes.tolist() == [20, 20]
    assert summary.n_noise == 10
    assert (summary.relevance[:, 2] == 0).all()


@pytest.mark.parametrize("detector", [IsolationForest(n_estimators=10), LocalOutlierFactor(5)])
def test_outlier_detectors_are_no_clusterings(detector):
    with pytest.raises(TypeError, match=f"can't neuralize a {type(detector).__name__}; supported: "):
        neonxc.neuralize(detector.fit(X), X)


def test_labels_alone_need_the_points_they_belong_to():
    with pytest.raises(ValueError, match="X has 3 features, the clustering was fitted on 2"):
        neonxc.neuralize(DBSCAN(0.3).fit(moons()), np.c_[moons(), np.ones(480)])
    few = moons(0)[::8]
    far = np.linalg.norm(few[:, None] - few[None], axis=2)
    model = DBSCAN(0.5, metric="precomputed").fit(far)
    with pytest.raises(
        ValueError, match="X is the matrix of distances or affinities that the DBSCAN was fitted on"
    ):
        neonxc.neuralize(model, far)
    agglomerative = AgglomerativeClustering(metric="precomputed", linkage="single").fit(far)
    assert neonxc.neuralize(agglomerative, few).head.n_features == 2


def test_steps_that_are_not_affine_are_refused_before_a_surrogate_is_fitted(monkeypatch):
    import neonxc.clusterings.surrogate

    model = make_pipeline(QuantileTransformer(n_quantiles=50), DBSCAN(0.1)).fit(moons())
    monkeypatch.setattr(neonxc.clusterings.surrogate, "fit_surrogate", lambda *_: pytest.fail("fitted"))
    with pytest.raises(ValueError, match=r"not an affine map.*neuralize\(labels=model\[-1\]\.labels_, X=X\)"):
        neonxc.neuralize(model, moons())


# --- memory --------------------------------------------------------------------------------------------------


def test_locations_of_maps_are_chunked(monkeypatch):
    """The head never sees more points at once than there is room for, however many locations an image has."""
    from neonxc.models import KernelKMeans

    monkeypatch.setattr(neonxc.common.memory, "CPU", 50 * 4 * 8 * 12)
    model = KernelKMeans(3, 4, random_state=0).fit(X)
    images = torch.randn(3, 4, 7, 9, dtype=torch.float64)
    net = neonxc.neuralize(model, images, features=nn.Conv2d(4, 4, 1).double())
    expected = net(images)
    seen = []
    forward = net.head.detection.forward
    monkeypatch.setattr(net.head.detection, "forward", lambda x: seen.append(len(x)) or forward(x))
    neon = neonxc.NEON(net)
    assert torch.equal(net.predict(images), expected.argmax(1))
    net.calibrate(images)
    for kind in ("linear", "midpoint"):
        neonxc.NEON(net, head_rule=kind).heatmaps(images)
    neon.attribute(images, target=0, competitor=1)
    neon.summary(images)
    assert max(seen) == 50


def test_a_network_says_what_it_is_in_a_few_lines():
    X = load_iris(as_frame=True).data
    kmeans = KMeans(3, n_init=1, random_state=0).fit(X)
    text = repr(neonxc.neuralize(kmeans, X))
    assert "3 clusters of points with 4 columns (sepal length (cm), " in text
    assert "(head): LinearDetection, Rivals" in text
    features = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)).double()
    points = features(torch.as_tensor(X.to_numpy())).detach().numpy()
    deep = neonxc.neuralize(KMeans(3, n_init=1, random_state=0).fit(points), X.to_numpy(), features)
    assert "3 clusters of points with 2 features, " in repr(deep)
    assert repr(deep).count("Sequential") == 1
    assert len(repr(nn.ModuleList([deep]))) < 400
    assert "surrogate that gives 100% of the points their label" in repr(
        neonxc.neuralize(labels=kmeans.labels_ > 0, X=X)
    )


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m, X: neonxc.neuralize(m.labels_, X), ValueError, "model looks like labels, which go by name"),
        (lambda m, X: neonxc.neuralize(m.labels_.tolist(), X), ValueError, "model looks like labels"),
        (lambda m, X: neonxc.neuralize(X, m.labels_), ValueError, "X looks like labels, which go by name"),
        (lambda m, X: neonxc.neuralize(X, m), TypeError, "X needs the data, got a KMeans; the model comes first"),
        (
            lambda m, X: neonxc.neuralize(labels=m, X=X),
            TypeError,
            "labels needs a label for each row of X, got a KM",
        ),
    ],
)
def test_swapped_arguments(call, error, message):
    X = load_iris().data
    with pytest.raises(error, match=message):
        call(KMeans(3, n_init=1, random_state=0).fit(X), X)
