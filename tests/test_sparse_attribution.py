"""Sparse rows: the same answers as of the rows laid out, without laying them out."""

import copy
import functools
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from refusals import refused
from sklearn.cluster import AffinityPropagation, Birch, BisectingKMeans, KMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, StandardScaler

import neonxc
from neonxc import NEON
from neonxc.evaluation import KDEImputer
from neonxc.models import KernelKMeans
from neonxc.trees import ExGreedy


def counts(n=120, d=40, density=0.3, seed=0):
    X = sp.random(n, d, density=density, random_state=seed, format="csr")
    X.data = np.ceil(4 * X.data)
    return X


X = counts()
LAID_OUT = X.toarray()


def kmeans(k=4):
    return KMeans(k, n_init=2, random_state=0)


def svd():
    return TruncatedSVD(6, random_state=0)


MODELS = {
    "k-means": kmeans,
    "affinity": lambda: make_pipeline(TfidfTransformer(), AffinityPropagation(damping=0.9, random_state=0)),
    "scaled": lambda: make_pipeline(MaxAbsScaler(), StandardScaler(with_mean=False), kmeans()),
    "tf-idf": lambda: make_pipeline(TfidfTransformer(), kmeans()),
    "l1": lambda: make_pipeline(Normalizer("l1"), kmeans()),
    "max": lambda: make_pipeline(Normalizer("max"), kmeans()),
    "normalized svd": lambda: make_pipeline(svd(), Normalizer(), kmeans()),
    "subcentroids": lambda: make_pipeline(svd(), Birch(n_clusters=4, threshold=1.0)),
    "hierarchy": lambda: make_pipeline(Normalizer(), BisectingKMeans(4, random_state=0)),
}


@functools.cache
def fitted(name):
    model = MODELS[name]().fit(X)
    return model, neonxc.neuralize(model, X), neonxc.neuralize(model, LAID_OUT)


def both(name):
    return copy.deepcopy(fitted(name))


def assert_same_summary(found, expected, atol=1e-10):
    np.testing.assert_allclose(found.relevance, expected.relevance, atol=atol)
    np.testing.assert_array_equal(found.sizes, expected.sizes)
    assert all(map(np.array_equal, found.prototypes, expected.prototypes))
    np.testing.assert_allclose(found.values.means, expected.values.means, atol=1e-12)
    np.testing.assert_allclose(found.values.overall, expected.values.overall, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("memory", [None, 20_000])  # a few rows at once
def test_same_as_laid_out(name, memory, monkeypatch):
    model, net, expected = both(name)
    summary = NEON(expected).summary(LAID_OUT)
    if memory:
        monkeypatch.setattr("neonxc.common.memory.CPU", memory)
    np.testing.assert_allclose(net.spread_, np.where(LAID_OUT.std(0) > 0, LAID_OUT.std(0), 1), atol=1e-14)
    assert net.beta == pytest.approx(expected.beta, rel=1e-10)
    np.testing.assert_array_equal(net.predict(X), model.predict(X))
    np.testing.assert_allclose(NEON(net).attribute(X), NEON(expected).attribute(LAID_OUT), atol=1e-10)
    assert_same_summary(NEON(net).summary(X), summary)


@pytest.mark.parametrize("name", MODELS)
def test_contrasts_as_laid_out(name):
    _, net, expected = both(name)
    a, b = net.classes_[:2].tolist()
    found = neonxc.contrast(net, X, a, b)
    rows = LAID_OUT[expected.predict(LAID_OUT) == a]
    mean = NEON(expected).attribute(rows, target=a, competitor=b).mean(axis=0)
    np.testing.assert_allclose(found.relevance.iloc[:, 0], mean, atol=1e-10)


ONCE = X.tocoo()
PLACES = np.r_[ONCE.row, ONCE.row, 3], np.r_[ONCE.col, ONCE.col, 5]
FORMS = {
    "csc": sp.csc_matrix(X),
    "coo": ONCE,
    "coo array": sp.coo_array(X),
    "whole numbers": X.astype(np.int32),
    "float32": X.astype(np.float32),
    "duplicates and zeros": sp.coo_matrix((np.r_[ONCE.data / 2, ONCE.data / 2, 0.0], PLACES), X.shape),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(form):
    _, net, expected = both("tf-idf")
    given = FORMS[form]
    tolerance = 1e-5 if form == "float32" else 1e-10
    before = given.nnz
    relevance = NEON(net).attribute(given)
    assert relevance.dtype == (np.float32 if form == "float32" else np.float64)
    np.testing.assert_array_equal(net.predict(given), expected.predict(LAID_OUT))
    np.testing.assert_allclose(relevance, NEON(expected).attribute(LAID_OUT), atol=tolerance)
    assert_same_summary(NEON(net).summary(given), NEON(expected).summary(LAID_OUT), tolerance)
    assert given.nnz == before  # as it was given


@pytest.mark.parametrize("dtype", [np.int8, np.float32])
def test_distinct_rows(dtype):
    values, columns = np.random.default_rng(0).integers([[-1], [0]], [[2], [4]], (2, 150))
    # columns in any order, and some twice
    rows = sp.csr_array((values.astype(dtype), columns, np.arange(51) * 3), shape=(50, 8))
    different = len(np.unique(rows.toarray(), axis=0))
    model = kmeans(60).fit(LAID_OUT[:, :8])
    model.cluster_centers_[:] = 1
    refused(f"X has only {different} different points", neonxc.neuralize, model, rows)


def test_other_ways_to_ask():
    _, net, expected = both("tf-idf")
    target = np.arange(len(LAID_OUT)) % 4
    for ask in (
        lambda net, X: NEON(net, baseline=0.0).attribute(X),
        lambda net, X: NEON(net, beta=3.0).attribute(X, 1),
        lambda net, X: NEON(net).attribute(X, target, (target + 1) % 4),
        lambda net, X: NEON(net).residual(X),
        lambda net, X: net.heuristic_beta(X, "least"),
        lambda net, X: net.heuristic_beta(X, "median"),
    ):
        np.testing.assert_allclose(ask(net, X), ask(expected, LAID_OUT), atol=1e-10)


# --- other heads -------------------------------------------------------------------------------------------


OTHER_HEADS = {
    "kernel": KernelKMeans(4, n_support=3, random_state=0).fit,
    "kernel behind svd": make_pipeline(svd(), KernelKMeans(3, 3, random_state=0)).fit,
    "mixture": GaussianMixture(3, covariance_type="diag", random_state=0, reg_covar=0.1).fit,
    "tree": ExGreedy(4, random_state=0).fit,
    "linear": lambda X: torch.nn.Linear(40, 4),
}
OTHER_HEADS |= {
    f"{kind} of shifted rows": make_pipeline(MinMaxScaler((1, 2)), Normalizer(kind), kmeans()).fit
    for kind in ("l1", "l2", "max")
}


@pytest.mark.parametrize("name", OTHER_HEADS)
def test_other_heads(name, monkeypatch):
    net = neonxc.neuralize(OTHER_HEADS[name](LAID_OUT), LAID_OUT).double()
    expected = net.predict(LAID_OUT), NEON(net).attribute(LAID_OUT), NEON(net).summary(LAID_OUT)
    monkeypatch.setattr("neonxc.common.memory.CPU", 20_000)
    np.testing.assert_array_equal(net.predict(X), expected[0])
    np.testing.assert_allclose(NEON(net).attribute(X), expected[1], atol=1e-9)
    assert_same_summary(NEON(net).summary(X), expected[2], 1e-9)
    if name == "tree":
        np.testing.assert_allclose(NEON(net).thresholds(X), NEON(net).thresholds(LAID_OUT), atol=1e-9)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of a surrogate that is not exact
def test_surrogates_lay_rows_out_if_they_can(monkeypatch):
    labels = kmeans(2).fit_predict(X)
    labels[:3] = -1
    net = neonxc.neuralize(labels=labels, X=X)
    radius = net.head.detection.radius
    radius.fill_(float(np.median(radius)) * 0.5)  # so that some of the points are noise
    np.testing.assert_array_equal(net.predict(X), net.predict(LAID_OUT))
    found = NEON(net).summary(X)
    expected = NEON(net).summary(LAID_OUT)
    assert 0 < found.n_noise == expected.n_noise < len(LAID_OUT)
    assert_same_summary(found, expected, 1e-9)
    monkeypatch.setattr("neonxc.data.sparse.MOST", 100 * 40 * 8)
    message = r"X is sparse, and a dense array is needed: .* at most 100 points"
    refused(message, neonxc.neuralize, labels=labels, X=X)
    message = r"relevance is dense, .* for 120 points with 40 columns it takes .*; pass at most 100"
    net = both("k-means")[1]
    refused(message, NEON(net).attribute, X)
    assert NEON(net).summary(X).sizes.sum() == 120


def test_nothing_is_laid_out(monkeypatch):
    wide = counts(1000, 4000, 0.002)
    clusterer = KMeans(3, init="random", n_init=1, max_iter=2, random_state=0)
    net = neonxc.neuralize(make_pipeline(TfidfTransformer(), clusterer).fit(wide), wide)
    monkeypatch.setattr("neonxc.data.sparse.SparseRows.dense", None)
    tracemalloc.start()  # of NumPy and SciPy
    net.predict(wide)
    NEON(net).summary(wide)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1000 * 4000 * 8 / 10


# --- errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry", ["predict", "attribute", "summary", "calibrate", "neuralize"])
def test_unusable_rows(entry):
    model, net, _ = both("k-means")
    call = functools.partial(neonxc.neuralize, model) if entry == "neuralize" else getattr(net, entry, None)
    call = call or getattr(NEON(net), entry)
    for value, message in (
        (np.nan, r"X has a value that is not finite: nan in row 5, column 2"),
        (1e307, r"X has a value whose square is too large for float64: 1e\+307 in row 5, column 2"),
    ):
        spoiled = X.copy()
        spoiled[5, 2] = value
        refused(message, call, spoiled)
    refused("X has 7 features, the clustering was fitted on 40", call, X[:, :7])
    refused(r"X is empty: shape \[0, 40\]", call, X[:0])
    refused("X needs real numbers, got sparse rows of complex128", call, X.astype(complex))


def test_what_needs_arrays_says_so():
    refused(r"X is sparse; pass X\.toarray\(\)", KDEImputer, X)
    np.testing.assert_array_equal(both("k-means")[1].batch(X).tensor, LAID_OUT)
    weights = make_pipeline(TfidfTransformer(sublinear_tf=True), kmeans()).fit(X)
    refused(r"sublinear_tf=True\) can only be folded directly after", neonxc.neuralize, weights, X)


@functools.cache
def of_csr():
    """A model, and its network, relevance, tree and rules of the rows in one format."""
    model = kmeans().fit(X)
    net = neonxc.neuralize(model, X)
    relevance = NEON(net).attribute(X)
    summary = NEON(net).summary(X).relevance
    tree = ExGreedy(4).fit(X, labels=model.labels_)
    return model, net.beta, relevance, summary, tree.predict(X), tree.tree_.rules().measure(X, model.labels_)


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        # by default, matrices and arrays in turns
        pytest.param(form, kind, marks=[pytest.mark.slow] * ((i + j) % 2))
        for i, form in enumerate(["csr", "csc", "coo", "lil", "dok", "dia", "bsr"])
        for j, kind in enumerate(["matrix", "array"])
    ],
)
@pytest.mark.filterwarnings("ignore:the surrogate")
def test_every_format_is_read(form, kind):
    rows = getattr(sp, f"{form}_{kind}")(X)
    model, beta, relevance, summary, clusters, measured = of_csr()
    net = neonxc.neuralize(model, rows)
    assert net.beta == beta
    assert (net.predict(rows) == model.labels_).all()
    np.testing.assert_array_equal(NEON(net).attribute(rows), relevance)
    np.testing.assert_array_equal(NEON(net).summary(rows).relevance, summary)
    assert (neonxc.neuralize(labels=model.labels_, X=rows).predict(rows) == model.labels_).mean() > 0.9
    tree = ExGreedy(4).fit(rows, labels=model.labels_)
    assert (tree.predict(rows) == clusters).all()
    rules = tree.tree_.rules()
    assert (rules.predict(rows) == clusters).all()
    assert rules.measure(rows, model.labels_) == measured
    assert (neonxc.compare_clusterings(model, model.labels_, rows, refits=0).ari) == 1
