"""Sparse rows: the same answers as of the rows laid out, without laying them out."""

import copy
import functools
import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import Birch, BisectingKMeans, KMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, StandardScaler
from witnesses import neon

import neonxc
from neonxc import NEON
from neonxc.common import memory as blocks
from neonxc.data.inputs import moments
from neonxc.data.sparse import MOST, SparseRows
from neonxc.data.table import Table
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
    "scaled": lambda: make_pipeline(MaxAbsScaler(), StandardScaler(with_mean=False), kmeans()),
    "tf-idf": lambda: make_pipeline(TfidfTransformer(), kmeans()),
    "l1": lambda: make_pipeline(Normalizer("l1"), kmeans()),
    "max": lambda: make_pipeline(Normalizer("max"), kmeans()),
    "svd": lambda: make_pipeline(svd(), kmeans()),
    "normalized svd": lambda: make_pipeline(svd(), Normalizer(), kmeans()),
    "lsa": lambda: make_pipeline(TfidfTransformer(), svd(), Normalizer(), kmeans()),
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
    assert all(np.array_equal(a, b) for a, b in zip(found.prototypes, expected.prototypes, strict=True))
    np.testing.assert_allclose(found.values.means, expected.values.means, atol=1e-12)
    np.testing.assert_allclose(found.values.overall, expected.values.overall, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("memory", [blocks.CPU, 5000])  # a few rows at once
def test_same_as_laid_out(name, memory, monkeypatch):
    model, net, expected = both(name)
    summary = NEON(expected).summary(LAID_OUT)
    monkeypatch.setattr(blocks, "CPU", memory)
    assert net.beta == pytest.approx(expected.beta, rel=1e-10)
    np.testing.assert_array_equal(net.predict(X), model.predict(X))
    np.testing.assert_allclose(NEON(net).attribute(X), NEON(expected).attribute(LAID_OUT), atol=1e-10)
    assert_same_summary(NEON(net).summary(X), summary)


ONCE = X.tocoo()
PLACES = np.r_[ONCE.row, ONCE.row, 3], np.r_[ONCE.col, ONCE.col, 5]
FORMS = {
    "csc": sp.csc_matrix(X),
    "coo": ONCE,
    "lil": sp.lil_matrix(X),
    "array": sp.csr_array(X),
    "coo array": sp.coo_array(X),
    "whole numbers": X.astype(np.int32),
    "float32": X.astype(np.float32),
    "duplicates and zeros": sp.coo_matrix((np.r_[ONCE.data / 2, ONCE.data / 2, 0.0], PLACES), X.shape),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms(form):
    _, net, expected = both("tf-idf")
    given, tolerance = FORMS[form], 1e-5 if form == "float32" else 1e-10
    before, relevance = given.nnz, NEON(net).attribute(given)
    assert isinstance(relevance, np.ndarray)
    assert relevance.dtype == (np.float32 if form == "float32" else np.float64)
    np.testing.assert_array_equal(net.predict(given), expected.predict(LAID_OUT))
    np.testing.assert_allclose(relevance, NEON(expected).attribute(LAID_OUT), atol=tolerance)
    assert_same_summary(NEON(net).summary(given), NEON(expected).summary(LAID_OUT), tolerance)
    assert given.nnz == before  # as it was given


@given(st.integers(0, 2**16), st.sampled_from([bool, np.int8, np.float32]))
def test_distinct_rows(seed, dtype):
    rng = np.random.default_rng(seed)
    columns = rng.integers(0, 4, 150)  # in any order, and some twice
    given_ = sp.csr_array((rng.integers(-1, 2, 150).astype(dtype), columns, np.arange(51) * 3), shape=(50, 4))
    assert Table(given_).distinct() == len(np.unique(given_.toarray(), axis=0))
    assert Table(sp.csr_array([[1e17, 1], [1e17, 2]])).distinct() == 2


def test_other_ways_to_ask():
    _, net, expected = both("tf-idf")
    net.beta = expected.beta = 3.0
    neon, dense = NEON(net), NEON(expected)
    target = np.arange(len(LAID_OUT)) % 4
    np.testing.assert_allclose(neon.attribute(X, 1), dense.attribute(LAID_OUT, 1), atol=1e-10)
    np.testing.assert_allclose(
        neon.attribute(X, target, (target + 1) % 4),
        dense.attribute(LAID_OUT, target, (target + 1) % 4),
        atol=1e-10,
    )
    np.testing.assert_allclose(neon.residual(X), dense.residual(LAID_OUT), atol=1e-10)
    along = NEON(net, along=0.0).attribute(X)
    np.testing.assert_allclose(along, NEON(expected, along=0.0).attribute(LAID_OUT), atol=1e-10)
    for contrast in ("least", "median"):
        assert net.heuristic_beta(X, contrast) == pytest.approx(expected.heuristic_beta(LAID_OUT, contrast))


@given(seed=st.integers(0, 2**16), density=st.floats(0.02, 0.6), k=st.integers(2, 6))
def test_sums_are_the_sums_of_the_points(seed, density, k):
    X = counts(40, 12, density, seed)
    centers = np.random.default_rng(seed).normal(size=(k, 12))
    net = neonxc.neuralize(centers, X)
    found, sums = NEON(net).summary(X), np.zeros((k, 12))
    for x in X.toarray():
        c = ((x - centers) ** 2).sum(1).argmin()
        sums[c] += neon(x, centers, c, net.beta)
    np.testing.assert_allclose(found.relevance * found.sizes[:, None], sums, atol=1e-9)


# --- other heads -------------------------------------------------------------------------------------------


OTHER_HEADS = {
    "kernel": lambda: KernelKMeans(4, n_support=3, random_state=0).fit(LAID_OUT),
    "kernel behind svd": lambda: make_pipeline(svd(), KernelKMeans(3, 3, random_state=0)).fit(LAID_OUT),
    "mixture": lambda: GaussianMixture(3, covariance_type="diag", random_state=0, reg_covar=0.1).fit(LAID_OUT),
    "tree": lambda: ExGreedy(4, random_state=0).fit(LAID_OUT),
    "linear": lambda: torch.nn.Linear(40, 4),
    "norm of shifted rows": lambda: make_pipeline(MinMaxScaler((1, 2)), Normalizer(), kmeans()).fit(LAID_OUT),
}


@pytest.mark.parametrize("name", OTHER_HEADS)
def test_other_heads(name, monkeypatch):
    net = neonxc.neuralize(OTHER_HEADS[name](), LAID_OUT).double()
    expected = net.predict(LAID_OUT), NEON(net).attribute(LAID_OUT), NEON(net).summary(LAID_OUT)
    monkeypatch.setattr(blocks, "CPU", 20_000)
    np.testing.assert_array_equal(net.predict(X), expected[0])
    np.testing.assert_allclose(NEON(net).attribute(X), expected[1], atol=1e-9)
    assert_same_summary(NEON(net).summary(X), expected[2], 1e-9)
    if name == "tree":
        np.testing.assert_allclose(NEON(net).thresholds(X), NEON(net).thresholds(LAID_OUT), atol=1e-9)


def test_surrogates_lay_rows_out_if_they_can():
    labels = kmeans(2).fit_predict(X)
    labels[:3] = -1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a surrogate that is not exact
        net = neonxc.neuralize(labels=labels, X=X)
    radius = net.head.detection.radius
    radius.fill_(float(np.median(radius)) * 0.5)  # so that some of the points are noise
    np.testing.assert_array_equal(net.predict(X), net.predict(LAID_OUT))
    found, expected = NEON(net).summary(X), NEON(net).summary(LAID_OUT)
    assert 0 < found.n_noise == expected.n_noise < len(LAID_OUT)
    assert_same_summary(found, expected, 1e-9)
    wide = sp.csr_matrix((2000, MOST // 8000))
    with pytest.raises(ValueError, match=r"X is sparse, and a dense array is needed: .* at most 1000 points"):
        neonxc.neuralize(labels=np.arange(2000) % 2, X=wide)


# --- parts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["l1", "l2", "max"])
@pytest.mark.parametrize("shape", ["diagonal", "shifted", "matrix"])
def test_norms(kind, shape):
    rng = np.random.default_rng(0)
    weight = torch.from_numpy(rng.normal(size=(7, 40) if shape == "matrix" else 40))
    bias = torch.from_numpy(rng.normal(size=weight.shape[0])) * (shape == "shifted")
    rows = SparseRows(X, torch.device("cpu"))
    z = LAID_OUT @ weight.numpy().T if shape == "matrix" else LAID_OUT * weight.numpy()
    expected = np.linalg.norm(z + bias.numpy(), {"l1": 1, "l2": 2, "max": np.inf}[kind], axis=1)
    np.testing.assert_allclose(rows.norms(weight, bias, kind), expected, atol=1e-12)


def test_moments():
    mean, spread = moments(Table(X).rows(torch.device("cpu")))
    np.testing.assert_allclose(mean, LAID_OUT.mean(0), atol=1e-14)
    np.testing.assert_allclose(spread, np.where(LAID_OUT.std(0) > 0, LAID_OUT.std(0), 1), atol=1e-14)


def test_nothing_is_laid_out():
    wide = counts(1000, 4000, 0.002)
    model = make_pipeline(TfidfTransformer(), KMeans(3, init="random", n_init=1, max_iter=2, random_state=0)).fit(
        wide
    )
    net = neonxc.neuralize(model, wide)
    laid_out = []
    original = SparseRows.dense
    SparseRows.dense = lambda rows: laid_out.append(rows.shape) or original(rows)
    try:
        tracemalloc.start()  # of NumPy and SciPy
        net.predict(wide)
        NEON(net).summary(wide)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        SparseRows.dense = original
    assert not laid_out
    assert peak < 1000 * 4000 * 8 / 10


# --- errors ------------------------------------------------------------------------------------------------


def spoiled(value):
    bad = X.copy()
    bad[5, 2] = value
    return bad


@pytest.mark.parametrize("entry", ["predict", "attribute", "summary", "calibrate", "neuralize"])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (spoiled(np.nan), r"X has a value that is not finite: nan in row 5, column 2"),
        (spoiled(1e307), r"X has a value whose square is too large for float64: 1e\+307 in row 5, column 2"),
        (X[:, :7], r"X has 7 features, the clustering was fitted on 40"),
        (X[:0], r"X is empty: shape \[0, 40\]"),
        (X.astype(complex), r"X needs real numbers, got sparse rows of complex128"),
    ],
)
def test_unusable_rows(entry, data, message):
    net = both("k-means")[1]
    entries = {
        "predict": net.predict,
        "attribute": NEON(net).attribute,
        "summary": NEON(net).summary,
        "calibrate": net.calibrate,
        "neuralize": lambda data: neonxc.neuralize(kmeans().fit(X), data),
    }
    with pytest.raises(ValueError, match=message):
        entries[entry](data)


def test_too_much_relevance():
    wide = sp.csr_matrix(([1.0], ([0], [0])), shape=(3000, MOST // 16_000))
    net = neonxc.neuralize(np.eye(2, wide.shape[1]), wide[:5])
    message = r"relevance is dense, .* for 3000 points with \d+ columns it takes 1\.5 GiB; pass at most 2000"
    with pytest.raises(ValueError, match=message):
        NEON(net).attribute(wide)
    assert NEON(net).summary(wide).sizes.sum() == 3000


def test_what_needs_arrays_says_so():
    net = both("k-means")[1]
    with pytest.raises(ValueError, match=r"X is sparse; pass X\.toarray\(\)"):
        KDEImputer(X)
    np.testing.assert_array_equal(net.batch(X).tensor, LAID_OUT)
    with pytest.raises(ValueError, match=r"X is sparse; pass X\.to_dense\(\)"):
        net.predict(torch.tensor(LAID_OUT).to_sparse())
    weights = TfidfTransformer(sublinear_tf=True)
    with pytest.raises(ValueError, match=r"sublinear_tf=True\) can only be folded directly after"):
        neonxc.neuralize(make_pipeline(weights, kmeans()).fit(X), X)
