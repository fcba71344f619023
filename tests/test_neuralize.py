"""From clusterings to networks: the same decisions, the paper's logits, any input, any deployment."""

import copy
import pickle
import shutil
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.spatial.distance import pdist, squareform
from sklearn.base import clone
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
from sklearn.decomposition import PCA, IncrementalPCA, TruncatedSVD
from sklearn.ensemble import IsolationForest
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.neighbors import LocalOutlierFactor, NearestCentroid
from sklearn.pipeline import make_pipeline
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
from torch.testing import assert_close
from turns import slow
from witnesses import (
    blobs,
    evidence,
    harmonic_beta,
    hierarchy_logits,
    hierarchy_paths,
    near,
    pipeline_neon,
    subcluster_logits,
    two_layer_logits,
)

import neonxc
from neonxc import NEON, neuralize
from neonxc.evaluation import pixel_flipping
from neonxc.models import KernelKMeans, WordVectors
from neonxc.trees import CART, IMM

X = blobs()
X.flags.writeable = False  # no input is changed
NEW = np.append(near(X), np.zeros((1, 4)), axis=0)  # a normalizer leaves zero as it is
NAMES = list("abcd")
FRAME = pd.DataFrame(X, columns=NAMES)

CLUSTERERS = {
    "KMeans": KMeans(4, n_init=1, random_state=0),
    "MiniBatchKMeans": MiniBatchKMeans(4, n_init=1, random_state=0),
    "BisectingKMeans": BisectingKMeans(7, random_state=0),
    "MeanShift": MeanShift(bandwidth=25),
    "AffinityPropagation": AffinityPropagation(damping=0.9, random_state=0),
    "Birch": Birch(n_clusters=3, threshold=6),
    "Birch without global step": Birch(n_clusters=None, threshold=12),
}


def km(k=4):
    return KMeans(k, n_init=1, random_state=0)


def columns(*transformers, **options):
    return ColumnTransformer([(f"t{i}", *t) for i, t in enumerate(transformers)], **options)


PIPELINES = {
    # columns one by one: the map to the centers' space is a diagonal
    "StandardScaler": [StandardScaler()],
    "StandardScaler without mean": [StandardScaler(with_mean=False)],
    "MinMaxScaler": [MinMaxScaler((-1, 3))],
    "MaxAbsScaler": [MaxAbsScaler()],
    "RobustScaler": [RobustScaler()],
    "passthrough first": ["passthrough", StandardScaler()],
    "nested": [make_pipeline(None, FunctionTransformer(), StandardScaler(with_std=False)), MinMaxScaler()],
    # mixtures of columns
    "PCA": [PCA(2, random_state=0)],
    "PCA whiten": [PCA(3, whiten=True, random_state=0)],
    "IncrementalPCA": [StandardScaler(), IncrementalPCA(2), RobustScaler()],
    "TruncatedSVD": [TruncatedSVD(2, random_state=0)],
    "columns by number": [columns((StandardScaler(), [3, 0]), (MinMaxScaler(), [-2]))],
    "columns drop": [columns(("drop", [0]), ("passthrough", [2]), remainder=StandardScaler())],
    "columns twice": [columns((StandardScaler(), [0, 1, 2, 3]), (MaxAbsScaler(), slice(1, 3)))],
    "columns nested": [columns((make_pipeline(StandardScaler(), PCA(1)), [0, 1]), (MinMaxScaler(), [2, 3]))],
    # rows of one length
    "l1": [StandardScaler(), Normalizer("l1")],
    "l2": [StandardScaler(), Normalizer("l2")],
    "max": [StandardScaler(), Normalizer("max")],
    "length first": [Normalizer(), StandardScaler()],
    "length in the middle": [StandardScaler(), Normalizer(), PCA(2, random_state=0)],
    "length after PCA": [StandardScaler(), PCA(3, random_state=0), Normalizer("l1")],
}


def fitted(steps, data=X, k=4):
    return make_pipeline(*copy.deepcopy(steps), km(k)).fit(data)


def tensor(data, dtype=torch.float64):
    return torch.tensor(np.asarray(data), dtype=dtype)


def assert_same_decisions(net, model, data):
    labels = net.predict(data)
    logits = net(torch.tensor(data)).numpy()
    assert_array_equal(labels, model.predict(data))
    assert logits.dtype == data.dtype
    assert_array_equal(net.classes_[logits.argmax(axis=1)], labels)


# --- clusterers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, *slow(np.float32)])
@pytest.mark.parametrize("name", CLUSTERERS)
def test_decides_as_the_clusterer_by_the_literal_logits(name, dtype):
    model = copy.deepcopy(CLUSTERERS[name]).fit(X.astype(dtype))
    if name == "Birch":  # labels are kept, negative ones, too
        model.subcluster_labels_ = np.array([-3, 12, 5])[model.subcluster_labels_]
    net = neuralize(model)
    if isinstance(model, Birch):
        centers = model.subcluster_centers_
        wanted = subcluster_logits(NEW, centers, model.subcluster_labels_)
    else:
        centers = model.cluster_centers_
        wanted = two_layer_logits(NEW, model.cluster_centers_)
    if isinstance(model, BisectingKMeans):
        wanted = hierarchy_logits(NEW, hierarchy_paths(model._bisecting_tree, model._X_mean))
    assert net.beta == pytest.approx(neuralize(model, centers).beta)  # of the centers, where no data are given
    assert_allclose(net(tensor(NEW)).numpy(), wanted, rtol=1e-10, atol=1e-8 if dtype is np.float64 else 1e-2)
    for data in (X, NEW):
        assert_same_decisions(net, model, data.astype(dtype))


@pytest.mark.parametrize("steps", [[], [StandardScaler()], [PCA(2)]], ids=["plain", "scaled", "PCA"])
def test_float32_far_from_the_origin(steps):
    data = (blobs(spread=1.0) / 10 + 1e5).astype(np.float32)
    exact = data.astype(np.float64)
    model = fitted(steps, exact)
    net = neuralize(model, exact)
    assert_array_equal(net.predict(data), model.predict(exact))
    single, double = (NEON(net).attribute(one) for one in (data, exact))
    assert single.dtype == np.float32
    assert np.abs(single - double).max() <= 1e-5 * np.abs(double).max()


# --- pipelines ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PIPELINES)
def test_pipeline_decides_as_scikit_learn_and_is_explained_in_raw_columns(name):
    model = fitted(PIPELINES[name])
    for net in (neuralize(model), neuralize(model, X)):
        assert_same_decisions(net, model, np.concatenate([X, NEW]))
        assert net.head.n_features == 4
    logits = net(tensor(NEW)).numpy()
    wanted = two_layer_logits(model[:-1].transform(NEW), model[-1].cluster_centers_)
    assert_allclose(logits, wanted, rtol=1e-9, atol=1e-10 * np.abs(wanted).max())
    relevance = NEON(net).attribute(NEW)
    assert_allclose(relevance.sum(axis=1), logits.max(axis=1), rtol=1e-9, atol=1e-9 * logits.max())
    for i in range(0, len(NEW), 9):
        wanted = pipeline_neon(model, NEW[i], logits[i].argmax(), net.beta, X)
        assert_allclose(relevance[i], wanted, rtol=1e-7, atol=1e-8 * np.abs(wanted).max())


COLUMNS = {
    "names": ["d", "a"],
    "slice": slice("b", "d"),
    "from": slice("c", None),
    "to": slice(None, "b"),
    "array": np.array([False, True, True, False]),
    "index": pd.Index(["c", "b"]),
    "function": lambda frame: [c for c in frame.columns if c != "b"],
    "numbers": slice(1, 3),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_a_frame(name):
    scaled = columns((StandardScaler(), COLUMNS[name]), remainder=MinMaxScaler())
    model = make_pipeline(scaled, km()).fit(FRAME)
    net = neuralize(model, FRAME)
    new = pd.DataFrame(NEW, columns=NAMES, index=np.arange(len(NEW)) + 7)
    assert net.feature_names_ == NAMES
    assert_array_equal(net.predict(new), model.predict(new))
    relevance = NEON(net).attribute(new)
    assert relevance.index.equals(new.index)
    assert list(relevance.columns) == NAMES
    assert_allclose(relevance.sum(axis=1), net(tensor(NEW)).amax(dim=1), rtol=1e-9, atol=1e-9)


# --- beta --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [[], [StandardScaler(), Normalizer()]], ids=["plain", "normed"])
def test_beta_is_one_over_the_mean_of_the_contrasts(steps):
    net = neuralize(fitted(steps), X)
    assert net.beta == pytest.approx(harmonic_beta(net(tensor(X))), rel=1e-9)
    logits = net(tensor(NEW))
    assert net.calibrate(NEW).beta == pytest.approx(harmonic_beta(logits), rel=1e-9)
    for contrast, function in (("least", np.min), ("median", np.median)):
        wanted = 1 / np.mean([function(h) for h in evidence(logits)])
        assert net.calibrate(NEW, contrast=contrast).beta == pytest.approx(wanted, rel=1e-9)
    for other in ("mean", ["least"]):
        refused('contrast needs "harmonic", "least" or "median"', net.calibrate, X, contrast=other)


# --- types and deployment ----------------------------------------------------------------------------------

NETS = {
    "centroids": lambda: neuralize(km().fit(X), X),
    "groups": lambda: neuralize(copy.deepcopy(CLUSTERERS["Birch"]).fit(X), X),
    "hierarchy": lambda: neuralize(copy.deepcopy(CLUSTERERS["BisectingKMeans"]).fit(X), X),
    "pipeline": lambda: neuralize(fitted([StandardScaler(), Normalizer(), PCA(2)]), X),
    "supports": lambda: neuralize(KernelKMeans(3, 4, random_state=0).fit(X), X),
}
nets = pytest.mark.parametrize("name", NETS)


@nets
def test_the_head_stays_in_float32_or_better(name):
    net = NETS[name]()
    x = tensor(X, torch.float32)
    wanted = net(x)
    relevance = NEON(net).attribute(x)
    labels = net.predict(X)
    beta = net.beta
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(net(x), wanted)
        assert torch.equal(NEON(net).attribute(x), relevance)
    for cast in (net.float, net.half, partial(net.to, torch.bfloat16)):
        assert cast() is net
        assert {b.dtype for b in net.buffers() if b.is_floating_point()} <= {torch.float32, torch.float64}
        assert_array_equal(net.predict(X), labels)
        assert net.beta == pytest.approx(beta, rel=1e-6)
        assert net(x.half()).dtype == torch.float32
        assert net(x.double()).dtype == torch.float64


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
@nets
def test_inductor(name):
    net = NETS[name]()
    x = tensor(NEW, torch.float32)
    assert_close(torch.compile(net, fullgraph=True)(x), net(x), rtol=1e-4, atol=1e-3)


@pytest.mark.skipif(torch.__version__ < "2.7", reason="torch 2.6 asks for an upper bound of the batch")
@nets
def test_export_with_a_dynamic_batch(name):
    net = NETS[name]()
    x = tensor(NEW)
    program = torch.export.export(net, (x[:5],), dynamic_shapes=({0: torch.export.Dim("n", min=2)},))
    for n in (2, 17, 100):
        assert_close(program.module()(x[:n]), net(x[:n]))


# --- feature networks --------------------------------------------------------------------------------------


def deep(pooled, n=7, steps=()):
    torch.manual_seed(3)
    layers = [nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 5, 3), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()] if pooled else []
    features = nn.Sequential(*layers).double().eval()
    images = torch.randn(n, 3, 12, 10, dtype=torch.float64)
    a = features(images).detach()
    points = (a if pooled else a.permute(0, 2, 3, 1).reshape(-1, 5)).numpy()
    model = fitted(list(steps), points, k=3)
    return neuralize(model, images, features=features), model, images, points


@pytest.mark.parametrize("steps", [["passthrough"], [StandardScaler()]], ids=["plain", "scaled"])
@pytest.mark.parametrize("pooled", [True, False], ids=["pooled", "map"])
def test_features(pooled, steps):
    net, model, images, points = deep(pooled, steps=steps)
    place = () if pooled else (4, 3)
    wanted = model.predict(points).reshape(7, *place)
    for labels in (net.predict(images), net.assign(images), net.predict(images.numpy())):
        assert_array_equal(labels, wanted)
    literal = tensor(two_layer_logits(model[:-1].transform(points), model[-1].cluster_centers_))
    assert_close(net(images), literal.reshape(7, *place, 3).movedim(-1, 1), rtol=1e-9, atol=1e-12)
    assert net.beta == pytest.approx(harmonic_beta(literal))


BYTES = torch.randint(256, (4, 3, 12, 10), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
PIXELS = {
    "bytes": BYTES,
    "array": BYTES.numpy(),
    "integers": BYTES.long(),
    "16 bits": BYTES.numpy().astype(np.uint16),
    "mask": BYTES > 127,
    "masked array": np.ma.array(BYTES.numpy()),
}


@pytest.mark.parametrize("kind", PIXELS)
def test_pixels_that_are_no_floats_are_refused(kind):
    net = deep(True)[0]
    x = PIXELS[kind]
    for call, *arguments in (
        (net.predict, x),
        (net.calibrate, x),
        (neuralize, torch.rand(3, 5), x, net.features),
        (partial(neuralize, labels=[0, 1, 0, 1], X=x, features=net.features),),
        (NEON(net).attribute, x),
        (NEON(net).summary, x),
        (partial(NEON, baseline=x[0]), net),
        (neonxc.similarity, net, x, x),
        (pixel_flipping, net, x, np.ones((4, 3, 12, 10))),
    ):
        message = f"holds pixels of {np.asarray(x).dtype}.*divide bytes by 255.*preprocess"
        refused(message, call, *arguments)


def test_tensors_of_pixels_and_tables_of_numbers():
    net = deep(True)[0]
    refused(r"x holds pixels of uint8", net, BYTES)
    refused(r"x has dtype torch.float16, and the network torch.float64", net.assign, BYTES.half())
    table = np.arange(20).reshape(5, 4)
    net = neuralize(np.eye(3), table, nn.Linear(4, 3))
    for whole in (table, pd.DataFrame(table.astype(np.uint8))):
        assert np.array_equal(net.predict(whole), net.predict(table.astype(float)))
    refused("holds pixels of uint8", net.predict, table.astype(np.uint8))


class Reading(nn.Module):
    """A network [N, ...] to [N, 3] that reads its inputs by a function."""

    def __init__(self, read, *layers):
        super().__init__()
        self.read = read
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(self.read(x)).flatten(2).mean(2)


def test_dimensions_of_inputs():
    for read, layer, shape in (
        (lambda x: (x - 0.5) / 2, nn.Conv2d(3, 3, 3), (3, 8, 8)),
        (nn.ReLU(), nn.Conv1d(2, 3, 3), (2, 9)),
        (nn.Identity(), nn.Conv3d(1, 3, 3), (1, 4, 4, 4)),
        (nn.Identity(), nn.Conv2d(1, 3, 3), (1, 8, 8)),
    ):
        x = torch.rand(4, *shape)
        net = neuralize(torch.eye(3), x, Reading(read, layer).eval())
        for ask in (net.predict, NEON(net).attribute):
            refused(r"X of shape .* is a single input.*add a batch dimension, X\[None\]", ask, x[0])
        assert net.predict(x[:1]).shape == (1,)
    refused(r"grey images .* are X\[:, None\]", net.predict, torch.rand(5, 8, 8))
    refused(r"as \[N, C, ...\]", net.predict, torch.rand(5, 64))
    net = deep(True)[0]
    refused(r"\[5, 1\] for inputs of shape \[3, 12, 10\].* is x\[None\]", net, torch.rand(3, 12, 10).double())
    last = torch.rand(4, 12, 10, 3)
    refused(r"taken as \[N, C, ...\], channels first: .* to have 3 channels", net.predict, last)


OF_STEPS, OF_CHANNELS = (nn.GRU(width, 3, batch_first=True) for width in (4, 6))
TOKENS = {
    "linear": (nn.Identity(), nn.Linear(4, 3)),
    "of a mean": (lambda x: x.mean(1, keepdim=True), nn.Linear(4, 3)),
    "product": (lambda x: torch.tensordot(x, torch.ones(4, 3), dims=1),),
    "behind a first token": (lambda x: F.pad(x, (0, 0, 1, 0)) / 2, nn.Linear(4, 3)),
    "attention": (nn.Identity(), nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)),
    "recurrent": (lambda x: OF_STEPS(x)[0],),
    "convolution of steps": (lambda x: x.mT, nn.Conv1d(4, 3, 3)),
}
CHANNELS = {
    "convolution": (nn.Identity(), nn.Conv1d(6, 3, 3)),
    "function": (lambda x: F.conv1d(x, torch.ones(3, 6, 3)),),
    "recurrent, transposed": (lambda x: OF_CHANNELS(x.mT)[0],),
    "flat": (lambda x: x.flatten(1)[..., None], nn.Flatten(), nn.Linear(24, 3), nn.Unflatten(1, (3, 1))),
}


PLACES = {
    "spectrogram": (lambda x: x[:, None], nn.Conv2d(1, 3, 3)),
    "of three channels": (lambda x: torch.stack([x, x, 2 * x], 1), nn.Conv2d(3, 3, 3)),
}


@pytest.mark.parametrize("kind", [*TOKENS, *CHANNELS, *PLACES])
def test_tokens_are_what_the_first_layer_takes(kind):
    x = torch.rand(5, 6, 4)
    module = nn.Sequential(Reading(*(TOKENS | CHANNELS | PLACES)[kind]), nn.LazyLinear(2)).eval()
    module(x)
    net = neuralize(torch.eye(2), features=module)
    neon = NEON(net)
    if kind in TOKENS:
        refused("holds tokens: pass groups", pixel_flipping, net, x, x)
        refused("takes tokens", neon.heatmaps, x)
        assert pixel_flipping(net, x, x, groups=torch.arange(6)[:, None].expand(6, 4)).known.shape == (6,)
    else:
        assert pixel_flipping(module, x, x).known.shape == (24 if kind in PLACES else 4,)
    if kind in PLACES:
        assert_close(neon.heatmaps(x)[:, 1], neon.attribute(x, target=1))


# --- clusterings known by their labels -----------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_noise_of_words():
    words = WordVectors(["east", "west", "nowhere"], [[1.0, 0.0], [-1.0, 0.0], [0.0, 9.0]])
    texts = ["east", "east east", "west", "west west", "nowhere"] * 10
    net = neuralize(labels=[0, 0, 1, 1, -1] * 10, X=texts, features=words)
    assert net.predict(texts).tolist() == [0, 0, 1, 1, -1] * 10
    summary = NEON(net).summary(texts)
    assert summary.sizes.tolist() == [20, 20, 10]
    assert summary.n_noise == 10
    assert (summary.relevance[:2, 2] == 0).all()
    assert summary.top(-1, 1)[0][0] == "nowhere"
    relevance = NEON(net).attribute(texts)  # words share what is not a bias: all of a distance and a radius
    far = net(words.encode(texts).double()).amax(1).numpy()
    assert_allclose(relevance.sum(1)[far > 1], far[far > 1], rtol=0.1)


@pytest.mark.parametrize("detector", [IsolationForest(n_estimators=10), LocalOutlierFactor(5)])
def test_outlier_detectors_are_no_clusterings(detector):
    message = f"can't neuralize an? {type(detector).__name__}; supp.*labels=numpy.where"
    refused(message, neuralize, detector.fit(X), X, error=TypeError)


def test_labels_alone_need_the_points_they_belong_to():
    far = np.linalg.norm(X[:, None] - X, axis=2)
    model = DBSCAN(9, metric="precomputed").fit(far)
    refused("X is the matrix of distances or affinities that the DBSCAN was fitted on", neuralize, model, far)
    agglomerative = AgglomerativeClustering(metric="precomputed", linkage="single").fit(far)
    assert neuralize(agglomerative, X).head.n_features == 4


def test_exemplars_of_a_precomputed_matrix_are_rows_of_X():
    similar = -squareform(pdist(X, "sqeuclidean"))
    given = {"affinity": "precomputed", "preference": similar.min(), "random_state": 0}
    model = AffinityPropagation(**given).fit(similar)
    net = neuralize(model, X)
    centers = X[model.cluster_centers_indices_]
    assert net.fidelity_ is None
    assert_array_equal(net.predict(X), model.labels_)
    assert_close(net(torch.as_tensor(X)), neuralize(centers, X)(torch.as_tensor(X)))
    assert_array_equal(neuralize(make_pipeline(model), pd.DataFrame(X)).predict(X), model.labels_)
    of_one_column = -squareform(pdist(X[:, :1]))
    other = AffinityPropagation(affinity="precomputed", max_iter=2000, damping=0.9).fit(of_one_column)
    with pytest.warns(UserWarning, match="cluster_centers_indices_ of the AffinityPropagation do not give"):
        assert neuralize(other, X).fidelity_ is not None
    refused("AffinityPropagation knows a matrix.*pass the rows", neuralize, model)
    refused("X is the matrix of distances or affinities", neuralize, model, similar)
    assert [*IMM(reference=model).fit(X).tree_.rules().clusters] == np.unique(model.labels_).tolist()
    compared = neonxc.compare_clusterings(model, model.labels_, X)
    assert compared.ari == 1
    assert "precomputed matrix" in str(compared)
    assert len(neonxc.explain(model, X, fast=True).to_frame()) == len(centers)


def test_a_search_is_its_best_estimator():
    pipeline = make_pipeline(StandardScaler(), KMeans(n_init=1, random_state=0))
    search = GridSearchCV(pipeline, {"kmeans__n_clusters": [2, 3]}).fit(FRAME)
    best = search.best_estimator_
    drawn = RandomizedSearchCV(KMeans(n_init=1, random_state=0), {"n_clusters": [3]}, n_iter=1).fit(X)
    scaler = GridSearchCV(StandardScaler(), {"with_mean": [True]}, scoring=lambda *_: 0.0).fit(X)
    table = ColumnTransformer([("all", scaler, [0, 1, 2, 3])]).fit(X)
    for model, rows, expected in (
        (search, FRAME, best),
        (drawn, X, drawn.best_estimator_),
        (make_pipeline("passthrough", search), FRAME, best),
        (make_pipeline(scaler, KMeans(3, n_init=1, random_state=0)).fit(X), X, None),
        (make_pipeline(table, KMeans(3, n_init=1, random_state=0)).fit(X), X, None),
        (FrozenEstimator(best), FRAME, best),
    ):
        net = neuralize(model, rows)
        assert net.fidelity_ is None
        assert_array_equal(net.predict(rows), model.predict(rows))
        if expected is not None:
            assert_array_equal(
                IMM(reference=model).fit(rows).tree_.threshold, IMM(reference=expected).fit(rows).tree_.threshold
            )
        if isinstance(model, GridSearchCV | FrozenEstimator):
            assert neonxc.compare_clusterings(model, expected, rows, refits=1, random_state=0).refits is not None
            assert neonxc.explain(model, rows, fast=True).net.agreement_ == 1
    assert make_pipeline(search)[-1] is search  # it is not changed
    refused("GridSearchCV is not fitted", neuralize, clone(search), FRAME, error=NotFittedError)
    without = GridSearchCV(pipeline, {"kmeans__n_clusters": [2]}, refit=False).fit(FRAME)
    refused("no best_estimator_, as its refit is False", neuralize, without, FRAME)
    bent = make_pipeline(QuantileTransformer(n_quantiles=9), KMeans(n_init=1, random_state=0))
    bent = GridSearchCV(bent, {"kmeans__n_clusters": [2]}).fit(X)
    refused(
        r"neuralize\(model.best_estimator_\[-1\], .*model.best_estimator_\[:-1\].transform\(X\)",
        neuralize,
        bent,
        X,
    )


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        ([nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 3, 1)], (4, 3, 6, 6)),
        ([nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1, groups=2, bias=False), nn.Softmax(1)], (4, 3, 6, 6)),
        ([nn.Conv1d(3, 8, 3), nn.ReLU(), nn.Conv1d(8, 3, 1, padding="same")], (4, 3, 9)),
        ([nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 3, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()], (4, 3, 6, 6)),
        ([nn.Conv2d(3, 8, 3), nn.Conv2d(8, 3, 1), nn.AvgPool2d(4), nn.Flatten(), nn.LogSoftmax(1)], (4, 3, 6, 6)),
        ([nn.Conv2d(3, 8, 6), nn.ReLU(), nn.Conv2d(8, 3, 1), nn.Flatten()], (4, 3, 6, 6)),
    ],
)
def test_a_convolution_with_one_location_is_a_linear_head(layers, shape):
    torch.manual_seed(0)
    whole = nn.Sequential(*layers).eval()
    for layer in whole:
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
    x = torch.randn(shape)
    net = neuralize(whole, x)
    scores = whole(x)
    assert_array_equal(net.predict(x), scores.argmax(1))
    head = next(layer for layer in layers[::-1] if hasattr(layer, "weight"))
    linear = nn.Linear(8, head.out_channels)
    linear.weight.data = torch.block_diag(*head.weight.flatten(1).chunk(head.groups))
    linear.bias.data = torch.zeros(head.out_channels) if head.bias is None else head.bias
    before = nn.Sequential(*layers[: layers.index(head)], *(layer for layer in layers if "Pool" in repr(layer)))
    assert_close(net(x).flatten(1), neuralize(linear, x, before)(x).flatten(1))


def test_convolutions_that_see_other_locations_are_no_heads():
    for head in (nn.Conv2d(3, 2, 3), nn.Conv2d(3, 2, 1, stride=2), nn.Conv2d(3, 2, 1, padding=1)):
        refused("needs kernel_size=1, stride=1 and padding=0", neuralize, head, error=TypeError)
    layers = [nn.Conv2d(3, 2, 1), nn.AvgPool2d(3, padding=1)]  # whose zeros get no bias
    refused("can't neuralize an AvgPool2d", neuralize, nn.Sequential(*layers), error=TypeError)


def test_labels_may_be_pairs():
    y = np.arange(len(X)) % 2
    pairs = [("a", int(label)) for label in y]
    names = ["('a', 0)", "('a', 1)"]
    shifted = X + 9 * y[:, None]
    for labels in (pairs, tuple(pairs), pd.Series(pairs)):
        assert neuralize(labels=labels, X=shifted).classes_.tolist() == names
        assert [*CART(2).fit(shifted, labels=labels).tree_.rules().clusters] == names
        assert neonxc.compare_clusterings(labels, y, shifted, refits=0).ari == 1
    assert neonxc.explain(pairs, shifted, fast=True).to_frame().index.tolist() == names
    with_noise = neuralize(labels=[*pairs[:-1], None], X=shifted)
    assert with_noise.classes_.tolist() == [*names, -1]


def test_steps_that_are_not_affine_point_to_the_labels(monkeypatch):
    monkeypatch.setattr("neonxc.clusterings.surrogate.fit_surrogate", lambda *_: pytest.fail("fitted"))
    for final, labels in (
        (DBSCAN(0.1), r"model\[-1\].labels_"),
        (KMeans(2), r"model\[-1\].labels_"),
        (GaussianMixture(2), r"model.predict\(X\)"),
    ):
        model = make_pipeline(QuantileTransformer(n_quantiles=9), final).fit(X)
        refused(rf"not an affine map.*neuralize\(labels={labels}, X=X\)", neuralize, model, X)


# --- memory --------------------------------------------------------------------------------------------------


def test_locations_of_maps_are_chunked(monkeypatch):
    """The head never sees more points at once than there is room for, however many locations an image has."""
    monkeypatch.setattr(neonxc.head.head, "CACHE", 50 * 4 * 8 * 12)
    images = torch.randn(3, 4, 7, 9, dtype=torch.float64)
    model = KernelKMeans(3, 4, random_state=0).fit(X)
    net = neuralize(model, images, features=nn.Conv2d(4, 4, 1).double())
    expected = net(images)
    seen = []
    located = net.head.detection.located
    monkeypatch.setattr(net.head.detection, "located", lambda x: seen.append(len(x)) or located(x))
    assert torch.equal(net.predict(images), expected.argmax(1))
    net.calibrate(images)
    net.head(torch.randn(200, 4).double())
    for kind in ("linear", "midpoint"):
        NEON(net, head_rule=kind).heatmaps(images)
    NEON(net).attribute(images, target=0, competitor=1)
    NEON(net).summary(images)
    assert max(seen) == 50


def test_a_network_says_what_it_is_in_a_few_lines():
    text = repr(neuralize(X[:3], FRAME))
    assert "3 clusters of points with 4 columns (a, b, c, d)" in text
    assert "(head): LinearDetection, Competitors" in text
    text = repr(nn.ModuleList([neuralize(torch.eye(3, 2), X, nn.Sequential(nn.Linear(4, 2)).double())]))
    assert "3 clusters of points with 2 features, " in text
    assert text.count("Sequential") == 1
    assert len(text) < 400
    two = neuralize(labels=np.arange(180) // 90, X=np.concatenate([X, X + 1e4]))
    assert "surrogate that gives 100% of the points their label" in repr(two)


class Clusters:
    """A clusterer in the manner of pyclustering, which knows the rows of its clusters."""

    def __init__(self, members):
        self.get_clusters = lambda: members


def test_advised_labels_are_those_of_the_clustering():
    y = np.arange(60) % 3
    X = blobs(n=60)
    members = [np.flatnonzero(y == k).tolist() for k in range(3)]
    for model in (members, [*map(set, members)], Clusters(members), (X[:3], np.eye(3)[:, y], 7)):
        with pytest.raises(ValueError, match="pass X=X and labels=") as error:
            neuralize(model, X)
        advised = str(error.value).split("labels=")[1].split(", where")[0]
        assert [*eval(advised, {"model": model, "X": X, "numpy": np})] == y.tolist()
    X = np.zeros((10**5, 1))  # in linear time
    advised = advised_for([range(0, 10**5, 2), range(1, 99_999, 2)], X)
    assert advised[:3] == [0, 1, 0]
    assert advised[-1] is None


def advised_for(members, X):
    members = [*map(set, members)]
    with pytest.raises(ValueError, match="where rows in no cluster are noise") as error:
        neuralize(members, X)
    return eval(str(error.value).split("labels=")[1].split(", where")[0], {"model": members, "X": X})


@pytest.mark.parametrize("columns", [4, 2])
@pytest.mark.parametrize("function", [neuralize, neonxc.explain])
def test_other_forms_of_a_clustering_than_centers_are_refused(columns, function):
    y = np.arange(60) % 3
    X = blobs(n=60)[:, :columns] + np.arange(60)[:, None]
    members = [np.flatnonzero(y == k).tolist() for k in range(3)]
    one_hot = np.eye(4)[y]
    fuzzy = one_hot[:, :3].T * 0.9 + 0.1 / 3  # [K, N], as of skfuzzy
    for message, model in {
        "linkage matrix.*labels=scipy.cluster.hierarchy.fcluster": linkage(X, "ward"),
        "linkage matrix": torch.tensor(linkage(X)).float(),
        "a linkage matrix": linkage(X[:5]),
        "condensed matrix of the distances of all rows": pdist(X),
        "matrix of the distances or similarities of all rows": squareform(pdist(X)),
        "matrix with a row for each of the 60 rows of X": cut_tree(linkage(X), 3),
        r"matrix of memberships.*labels=numpy.asarray\(model\).argmax\(axis=1\)": one_hot,
        "matrix of memberships.*axis=0": one_hot[:, :3].T * 0.9 + 0.1 / 3,
        "collection of sets.*labels=": [*map(set, members)],
        "collection of row numbers": members,
        r"mapping.*labels=\[model\[row\] for row in range\(len\(X\)\)\]": dict(enumerate(y)),
        "an iterator": map(set, members),
        r"tuple of several results.*labels=model\[1\]": (X[:3], y),
        r"skfuzzy.cmeans.*model\[1\]\).argmax\(axis=0\)": (X[:3], fuzzy, fuzzy, fuzzy, [9.0, 8.0], 2, 0.9),
        r"memberships.*model\[1\]\).argmax\(axis=1\)": (X[:3], fuzzy.T),
        "a Clusters with clusters of row numbers": Clusters(members),
    }.items():
        refused(message, function, model, X)
    refused("linkage matrix", neonxc.explain, linkage(X))


@pytest.mark.parametrize(
    "centers",
    [
        [[0, 1, 0.5, 2], [2, 3, 1, 3]],
        np.random.default_rng(0).random((9, 4)),  # all of it could be distances
        np.eye(4),
        1 - np.eye(4),
        np.arange(12).reshape(3, 4),
        X[:9, :4],
    ],
)
def test_centers_that_look_like_something_else_remain_centers(centers):
    net = neuralize(centers, NEW)
    assert_array_equal(net.predict(NEW), nearest(NEW, np.array(centers)))


# --- clusterers of other libraries ---------------------------------------------------------------------------


def other(**attributes):
    """An object with some attributes, of a class of its own."""
    return type("Kmeans", (), attributes)()


def nearest(x, centers=X[[0, 20, 40]], power=2):
    return (abs(np.asarray(x)[:, None] - centers) ** power).sum(2).argmin(1)


ROWS = np.array([0, 20, 40])
FOREIGN = {
    "labels": other(cluster_centers_=X[ROWS], labels_=nearest(X)),
    "a list": other(centers=X[ROWS].tolist(), labels=nearest(X).tolist()),
    "predict": other(centroids=X[ROWS], predict=staticmethod(nearest)),
    "tensors": other(centroids=torch.tensor(X[ROWS]), predict=lambda self, x: torch.tensor(nearest(x.numpy()))),
    "faiss": other(centroids=X[ROWS].astype(np.float32), assign=lambda self, x: (x[:, 0], nearest(x))),
    "medoids": other(medoid_indices_=ROWS, labels_=nearest(X)),
    "pyclustering": other(get_medoids=lambda self: ROWS.tolist(), predict=staticmethod(nearest)),
    "NearestCentroid": NearestCentroid().fit(FRAME, np.array(list("bca"))[nearest(X)]),
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("data", [X, FRAME], ids=["array", "frame"])
def test_clusterers_whose_nearest_center_gives_their_labels_are_exact(name, data):
    model = FOREIGN[name]
    net = neuralize(model, data)
    assert net.fidelity_ is None
    assert net.feature_names_ == (NAMES if data is FRAME or name == "NearestCentroid" else None)
    centers = getattr(model, "centroids_", X[ROWS])
    assert (net.predict(NEW) == net.classes_[nearest(NEW, centers)]).all()
    assert type(NEON(net).attribute(data)) is type(data)
    refused(r"checking the centers of a [KN]\w+ needs the X it was fitted on", neuralize, model)


class NearestOfThree(NearestCentroid):
    """A classifier that is fitted to labels of its own, and stores none."""

    def fit(self, X, y=None):
        return super().fit(X, nearest(X, np.asarray(X)[ROWS]))


def test_labels_behind_steps_are_predicted_from_what_the_steps_return():
    model = make_pipeline(StandardScaler(), NearestOfThree()).fit(100 + 9 * X)
    net = neuralize(model, 100 + 9 * X)
    assert net.fidelity_ is None
    assert_array_equal(net.predict(100 + 9 * X), model.predict(100 + 9 * X))


def test_a_precomputed_matrix_is_recognized_in_nested_pipelines():
    clusterer = AffinityPropagation(affinity="precomputed", random_state=0)
    model = make_pipeline("passthrough", make_pipeline("passthrough", clusterer)).fit(-squareform(pdist(X)))
    comparison = neonxc.compare_clusterings(model, clusterer.labels_, X)
    assert comparison.ari == 1
    assert comparison.reason == "a is of a precomputed matrix, and can't be fitted to X"


@pytest.mark.filterwarnings("ignore:the surrogate gives")
@pytest.mark.parametrize("seen", [True, False])
def test_centers_of_another_metric_get_a_surrogate_and_a_warning(seen):
    def manhattan(x):
        return nearest(x, power=1)

    # the labels of X may be those of the nearest center, but not those of other points
    model = other(cluster_centers_=X[ROWS], labels_=manhattan(X) if seen else nearest(X))
    if not seen:
        model.predict = manhattan
    with pytest.warns(UserWarning, match="cluster_centers_ of the Kmeans do not give its labels as the nearest"):
        assert neuralize(model, X).fidelity_ > 0.9
    table = pd.DataFrame({"town": list("ab") * 10, "age": range(20)})
    model = other(cluster_centroids_=np.array([["a", "1"], ["b", "2"]]), labels_=np.arange(20) % 2)
    for mixed, frame in ((table, "X"), (table.to_numpy(object), r"pandas.DataFrame\(X\)")):
        refused(rf"neuralize\(labels=model.labels_, X={frame}\).*of the Kmeans", neuralize, model, mixed)


def added(head):
    for buffer in head.buffers():
        buffer.add_(0.5)


def loaded(head):
    doubled = {name: 2 * value for name, value in head.named_buffers()}
    head.load_state_dict(head.state_dict() | doubled)


def replaced(head):
    head.detection.bias = head.detection.bias + torch.tensor([1.0, 0.0, -1.0])


@pytest.mark.parametrize("change", [added, loaded, replaced, lambda head: head.float(), lambda head: head.half()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_network_whose_buffers_change_answers_by_the_new_ones(change, dtype):
    X = torch.tensor([[0.3, 1.7], [2.2, 0.1], [5.0, 4.0]], dtype=dtype)
    net = neonxc.neuralize(np.array([[0.0, 1.0], [2.0, 0.0], [5.0, 3.0]]))
    neonxc.NEON(net).attribute(X)
    change(net.head)
    detection = net.head.detection
    fresh = copy.deepcopy(net)
    fresh.head.detection = type(detection)(**{name: value.clone() for name, value in detection.named_buffers()})
    assert torch.equal(net(X), fresh(X))
    assert torch.equal(neonxc.NEON(net).attribute(X), neonxc.NEON(fresh).attribute(X))


def test_what_inference_mode_has_computed_serves_gradients():
    net = neonxc.neuralize(np.array([[0.0, 1.0], [2.0, 0.0]]))
    x = torch.tensor([[0.3, 1.7]])
    with torch.inference_mode():
        net(x)
    leaf = x.clone().requires_grad_()
    net(leaf)[0, 0].backward()
    # f_0 = |x - c_1|^2 - |x - c_0|^2 has the gradient 2 (c_0 - c_1)
    assert leaf.grad.tolist() == [[-4.0, 2.0]]


def test_files_and_copies_have_buffers_alone():
    net = neonxc.neuralize(np.array([[0.0, 1.0], [2.0, 0.0]]))
    net(torch.ones(1, 2))
    size = len(pickle.dumps(net))
    net(torch.ones(1, 2, dtype=torch.float64))
    assert len(pickle.dumps(net)) == size
    assert torch.equal(copy.deepcopy(net)(torch.ones(1, 2)), net(torch.ones(1, 2)))
