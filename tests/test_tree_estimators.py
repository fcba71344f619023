"""Tree explainers as scikit-learn estimators: inputs, outputs, thresholds in the data's own type, errors."""

import pickle
from itertools import product

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.cluster import AgglomerativeClustering, KMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tree_witnesses import (
    CENTER_TREES,
    GUIDED,
    KERNEL_TREES,
    UNGUIDED,
    WEIGHTLESS,
    data,
    inner_nodes,
    kmeans_cost,
    nested,
    passed,
    rows_of,
)

from neonxc.trees import (
    CART,
    IMM,
    ExGreedy,
    ExKMC,
    ExShallow,
    KDTree,
    KernelIMM,
)

ALL = [*GUIDED, *KERNEL_TREES, *WEIGHTLESS]
every = pytest.mark.parametrize("model", GUIDED, ids=lambda model: model.__name__)
all_of_them = pytest.mark.parametrize("model", ALL, ids=lambda model: model.__name__)
seeds = st.integers(0, 2**32 - 1)


def blobs(n=60, d=3, k=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(k, d))[np.arange(n) % k] * 4 + rng.normal(size=(n, d))


@every
def test_parameters_and_clones(model):
    estimator = model(3, random_state=1)
    copy = clone(estimator)
    assert copy.get_params() == estimator.get_params()
    X = blobs()
    assert nested(copy.fit(X).tree_) == nested(estimator.fit(X).tree_)
    assert nested(pickle.loads(pickle.dumps(estimator)).tree_) == nested(estimator.tree_)
    assert np.array_equal(clone(estimator).fit_predict(X, np.arange(60)), estimator.labels_)
    with pytest.raises(NotFittedError):
        model().predict(X)


# --- what goes in comes out --------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [*GUIDED, *UNGUIDED])
def test_tensors_for_tensors_and_arrays_for_arrays(model):
    X, labels = blobs(), np.arange(60) % 4
    frame = pd.DataFrame(X, columns=list("abc"))
    for table, kind in ((X, np.ndarray), (frame, np.ndarray), (torch.from_numpy(X), torch.Tensor)):
        fitted = model(4).fit(table, labels=labels)
        assert isinstance(fitted.labels_, kind)
        assert isinstance(fitted.cluster_centers_, kind)
        for other in (X, X.tolist(), torch.from_numpy(X), frame):
            if kind is np.ndarray or other is not frame:
                found = fitted.predict(other)
                assert isinstance(found, torch.Tensor if isinstance(other, torch.Tensor) else np.ndarray)
                assert np.array_equal(found, fitted.labels_)
        if table is frame:
            assert fitted.tree_.feature_names == tuple(fitted.feature_names_in_) == ("a", "b", "c")
    assert isinstance(model(3).fit(torch.from_numpy(X), labels=["cat", "dog", "eel"] * 20).labels_, np.ndarray)


@every
def test_noise_gets_a_cluster(model):
    X, labels = blobs(k=3), np.arange(60) % 3
    labels[::7] = -1
    with pytest.warns(UserWarning, match=r"labels has 9 points of noise \(-1\)") as caught:
        fitted = model(3).fit(X, labels=labels)
    assert caught[0].filename == __file__
    assert fitted.tree_.n_noise == 9
    assert float(fitted.tree_.noise[fitted.tree_.leaves].sum()) == 9
    assert "not counted: 9 points of noise (label -1), which" in str(fitted.tree_.rules())
    assert float(fitted.tree_.samples[0]) == 51


@pytest.mark.parametrize("model", [*CENTER_TREES, ExKMC])
def test_centers_in_place_of_a_reference(model):
    X = blobs()
    centers = KMeans(4, n_init=1, random_state=0).fit(X).cluster_centers_
    plain = model(99).fit(X, centers=centers)
    by_labels = model(4).fit(X, labels=((X[:, None] - centers) ** 2).sum(2).argmin(1))
    assert torch.equal(by_labels.tree_.feature, plain.tree_.feature)
    assert np.array_equal(by_labels.labels_, plain.labels_)


@pytest.mark.parametrize(("model", "refine"), [*product(GUIDED, [False]), (IMM, True)])
def test_what_is_fitted_can_take_part_in_training(model, refine):
    X = torch.from_numpy(data(0, 40, 3, 3).X)
    fitted = model(3, random_state=0, **({"refine": True} if refine else {})).fit(X)
    factor = torch.ones(3, dtype=X.dtype, requires_grad=True)
    (fitted.cluster_centers_ * factor).sum().backward()  # which saves the centers
    assert torch.equal(factor.grad, fitted.cluster_centers_.sum(0).to(X.dtype))
    tensors = [value for value in vars(fitted.tree_).values() if isinstance(value, torch.Tensor)]
    assert not any(tensor.is_inference() for tensor in [*tensors, fitted.labels_])


@pytest.mark.parametrize("model", [IMM, CART])
def test_sparse_reference_and_weights(model):
    X = np.abs(blobs(60, 5)) * (np.random.default_rng(0).random((60, 5)) < 0.5)
    weight = np.r_[np.zeros(3), np.full(30, 2), np.ones(27)]
    dense = model(3, random_state=0).fit(X, sample_weight=weight)
    for sparse in (sp.csr_matrix(X), sp.csc_matrix(X)):
        fitted = model(3, random_state=0).fit(sparse, sample_weight=weight)
        assert adjusted_rand_score(fitted.labels_, dense.labels_) == 1  # clusters may be numbered otherwise
    reference = KMeans(3, n_init=1, random_state=0)
    fitted = model(3, reference=reference).fit(sp.csr_matrix(X), sample_weight=weight)
    assert fitted.tree_.n_leaves == 3


@every
def test_weights_are_repeated_rows_for_the_default_reference(model):
    X = blobs(40, 2, 3)
    weight = np.random.default_rng(0).integers(0, 4, 40)
    weighted = model(3, random_state=0).fit(X, sample_weight=weight)
    repeated = model(3, random_state=0).fit(np.repeat(X, weight, axis=0))
    assert torch.equal(weighted.tree_.feature, repeated.tree_.feature)
    np.testing.assert_allclose(weighted.tree_.threshold, repeated.tree_.threshold, rtol=1e-9)
    assert np.array_equal(weighted.labels_[weight > 0].repeat(weight[weight > 0]), repeated.labels_)
    assert weighted.inertia_ == pytest.approx(repeated.inertia_)


@every
@given(seed=seeds, sparse=st.booleans(), unit=st.sampled_from([1, 0.25]))
def test_weights_are_repeated_rows_for_bins(model, seed, sparse, unit):
    rng = np.random.default_rng(seed)
    X, labels, weight = rng.normal(size=(60, 3)), np.arange(60) % 2, rng.integers(0, 30, 60)
    if sparse:  # so few entries that they alone are searched
        X = sp.csr_matrix((X[:, 0], (np.arange(60), rng.integers(0, 2, 60))), shape=(60, 16))
    rows = np.arange(60).repeat(weight)
    weighted = model(2, max_bins=7).fit(X, labels=labels, sample_weight=unit * weight)
    repeated = model(2, max_bins=7).fit(X[rows], labels=labels[rows], sample_weight=np.full(len(rows), unit))
    assert torch.equal(weighted.tree_.feature, repeated.tree_.feature)
    np.testing.assert_allclose(weighted.tree_.threshold, repeated.tree_.threshold, rtol=1e-9)


# --- references --------------------------------------------------------------------------------------------


@every
def test_a_pipeline_as_reference(model):
    """Rules in raw units, cost behind the scaler."""
    X = blobs(n=90) * [1, 100, 0.01] + [5, -300, 2]
    reference = make_pipeline(StandardScaler(), KMeans(4, n_init=2, random_state=0))
    fitted = model(4, reference=reference).fit(X)
    scaler = StandardScaler().fit(X)
    Z = scaler.transform(X)
    behind = model(4, reference=KMeans(4, n_init=2, random_state=0)).fit(Z)
    assert torch.equal(fitted.tree_.feature, behind.tree_.feature) or model is KDTree
    for node, rows, _ in inner_nodes(fitted.tree_, X):
        feature, threshold = int(fitted.tree_.feature[node]), float(fitted.tree_.threshold[node])
        assert X[rows, feature].min() <= threshold < X[rows, feature].max()
        if model is not KDTree:
            assert threshold == pytest.approx(
                float(behind.tree_.threshold[node]) * scaler.scale_[feature] + scaler.mean_[feature], rel=1e-6
            )
    assert fitted.inertia_ == pytest.approx(kmeans_cost(Z, fitted.labels_, np.ones(90)))
    assert fitted.score(X) == pytest.approx(-fitted.inertia_)
    means = [X[fitted.labels_ == c].mean(0) for c in np.unique(fitted.labels_)]
    np.testing.assert_allclose(fitted.cluster_centers_[np.unique(fitted.labels_)], means)
    assert np.array_equal(fitted.predict(X), fitted.labels_)


def test_a_fitted_reference_is_not_fitted_again():
    X = blobs()
    fitted = KMeans(4, n_init=1, random_state=0).fit(X)
    centers = fitted.cluster_centers_.copy()
    tree = IMM(reference=fitted).fit(X[:30])
    assert np.array_equal(fitted.cluster_centers_, centers)
    assert tree.tree_.n_leaves == 4
    unfitted = KMeans(4, n_init=1, random_state=0)
    IMM(reference=unfitted).fit(X)
    assert not hasattr(unfitted, "cluster_centers_")
    fitted = AgglomerativeClustering(3).fit(X)
    assert IMM(reference=fitted).fit(X).tree_.n_leaves == 3
    with pytest.raises(ValueError, match="reference is a fitted AgglomerativeClustering that can't predict"):
        IMM(reference=fitted).fit(X[:10])


def test_other_references():
    X = blobs(80)
    assert ExShallow(4, reference="spectral", random_state=0).fit(X).tree_.n_leaves == 4
    assert ExGreedy(reference=AgglomerativeClustering(3)).fit(X).tree_.n_leaves == 3
    pipeline = make_pipeline(StandardScaler(), PCA(2), AgglomerativeClustering(3))
    fitted = IMM(reference=pipeline).fit(pd.DataFrame(X, columns=list("abc")))
    assert fitted.tree_.feature_names == ("a", "b", "c")
    assert fitted.score(pd.DataFrame(X, columns=list("abc"))) == pytest.approx(-fitted.inertia_)


@every
@given(seed=seeds, n=st.integers(8, 60), d=st.integers(1, 4), k=st.integers(2, 4), weighted=st.booleans())
def test_what_fitting_leaves_behind(model, seed, n, d, k, weighted):
    case = data(seed, n, d, k, kind="fine", weighted=weighted)
    fitted = model(k).fit(case.X, labels=case.labels, sample_weight=case.weight)
    tree, rows = fitted.tree_, rows_of(fitted.tree_, case.values)
    size = kmeans_cost(case.values, np.zeros(len(case.X)), case.mass)
    assert fitted.inertia_ == pytest.approx(
        kmeans_cost(case.values, fitted.labels_, case.mass), rel=1e-9, abs=1e-9 * size
    )
    if not weighted:
        assert fitted.score(case.X) == pytest.approx(-fitted.inertia_, rel=1e-9, abs=1e-9 * size)
    for cluster in np.unique(fitted.labels_):
        own = fitted.labels_ == cluster
        mean = np.average(case.values[own], axis=0, weights=case.mass[own])
        np.testing.assert_allclose(fitted.cluster_centers_[cluster], mean, atol=1e-9)
    for node in range(tree.n_nodes):
        assert float(tree.samples[node]) == case.mass[rows[node]].sum()
    assert fitted.n_features_in_ == d
    assert np.array_equal(fitted.labels_, fitted.predict(case.X))


# --- one cluster -------------------------------------------------------------------------------------------


@all_of_them
@pytest.mark.parametrize("extra", [{}, {"labels": np.full(20, 7)}, {"centers": np.zeros((1, 3))}])
def test_one_cluster_is_one_leaf(model, extra):
    X = blobs(20)
    most = {} if model in (*WEIGHTLESS, KernelIMM) else {"max_leaves": 1}
    fitted = model(n_clusters=1, **most).fit(X, **extra)
    tree = fitted.tree_
    assert (tree.n_leaves, tree.depth, tree.n_nodes) == (1, 0, 1)
    assert (fitted.labels_ == (7 if "labels" in extra else 0)).all()
    assert fitted.inertia_ == pytest.approx(((X - X.mean(0)) ** 2).sum())
    assert (tree.apply(X) == 0).all()
    assert model(1).fit(np.ones((1, 2))).predict([[3.0, 4]]).tolist() == [0]


@pytest.mark.parametrize("model", CENTER_TREES)
def test_one_cluster_refined(model):
    assert model(1, refine=True).fit(blobs(20)).tree_.n_leaves == 1


# --- thresholds in the data's own type ---------------------------------------------------------------------


@given(
    model=st.sampled_from(GUIDED),
    seed=seeds,
    n=st.integers(6, 40),
    k=st.integers(2, 4),
    kind=st.sampled_from([np.float16, np.float32, np.float64]),
    start=st.sampled_from([1.0, -1.0, 0.0, 1e-3, 3e4, -2.0]),
)
def test_neighbouring_floats_are_told_apart(model, seed, n, k, kind, start):
    """Columns of a few floats next to each other: means lie between neighbours."""
    rng = np.random.default_rng(seed)
    values = [kind(start)]
    for _ in range(5):
        values.append(np.nextafter(values[-1], kind(np.inf)))
    X = np.array(values)[rng.integers(0, 6, (n, 2))]
    labels = rng.integers(0, k, n)
    labels[:k] = range(k)
    try:
        fitted = model(k).fit(X, labels=labels)
    except ValueError as error:
        assert "the same in every column" in str(error)  # noqa: PT017 - means may well coincide
        return
    tree = fitted.tree_
    rows = rows_of(tree, X)
    for node in range(tree.n_nodes):
        feature = int(tree.feature[node])
        if feature < 0:
            continue
        left = X[rows[node], feature] <= kind(float(tree.threshold[node]))
        assert np.array_equal(rows[node][left], rows[int(tree.left[node])])
        assert left.any() or not len(rows[int(tree.left[node])])
    assert np.array_equal(fitted.predict(X), fitted.labels_)
    assert [float(tree.samples[node]) for node in range(tree.n_nodes)] == [len(own) for own in rows]


@every
@pytest.mark.parametrize(("dtype", "scale"), [(np.float32, 1e-20), (np.float64, 2.0**-66), (np.float64, 1e30)])
def test_huge_and_tiny_numbers(model, dtype, scale):
    X = blobs(60).astype(np.float32).astype(np.float64)
    labels = np.arange(60) % 4
    plain = model(4).fit(X, labels=labels)
    scaled = model(4).fit((X * scale).astype(dtype), labels=labels)
    assert torch.equal(plain.tree_.feature, scaled.tree_.feature)
    np.testing.assert_allclose(scaled.tree_.threshold, plain.tree_.threshold.numpy() * scale, rtol=1e-5)
    assert np.array_equal(plain.labels_, scaled.labels_)
    assert np.array_equal(scaled.predict((X * scale).astype(dtype)), plain.labels_)


@pytest.mark.parametrize(("dtype", "scale"), [(np.float32, 2.0**66), (np.float64, 2.0**-100)])
def test_huge_and_tiny_numbers_of_the_default_reference(dtype, scale):
    X = blobs(60).astype(np.float32)
    plain = IMM(4, random_state=0).fit(X.astype(dtype))
    scaled = IMM(4, random_state=0).fit((X.astype(np.float64) * scale).astype(dtype))
    assert np.array_equal(plain.labels_, scaled.labels_)


@every
def test_an_offset_far_from_0(model):
    X, labels = np.round(blobs(60) * 2**8) / 2**8, np.arange(60) % 4
    plain, moved = model(4).fit(X, labels=labels), model(4).fit(X + 2.0**30, labels=labels)
    assert torch.equal(plain.tree_.feature, moved.tree_.feature)
    np.testing.assert_allclose(moved.tree_.threshold - 2.0**30, plain.tree_.threshold, atol=1e-5)
    assert moved.inertia_ == pytest.approx(plain.inertia_, rel=1e-6)


@every
@given(seed=seeds, kind=st.sampled_from(["grid", "fine"]))
def test_leaves_and_paths_say_the_same(model, seed, kind):
    case = data(seed, 40, 3, 3, kind=kind)
    leaves = {"max_leaves": 7} if model is not KDTree else {"max_leaves": 4}
    if len(np.unique(case.centers, axis=0)) < 3:
        return
    tree = model(3, **leaves).fit(case.X, labels=case.labels).tree_
    leaf, path, rows = tree.apply(case.X), passed(tree, case.X), rows_of(tree, case.values)
    for node in range(tree.n_nodes):
        assert np.array_equal(np.flatnonzero(path[:, node]), rows[node])
    assert path[np.arange(len(leaf)), leaf].all()
    assert (path.sum(1) == tree.depths[leaf].numpy() + 1).all()
    assert np.array_equal(tree.predict(case.X), tree.classes[tree.label[leaf].numpy()])
    at = tree.apply(torch.from_numpy(case.X))
    assert isinstance(at, torch.Tensor)
    assert np.array_equal(at, leaf)


# --- errors ------------------------------------------------------------------------------------------------


@every
def test_more_clusters_than_distinct_points(model):
    X = np.repeat(np.arange(3.0), 5)[:, None]
    with pytest.warns(ConvergenceWarning, match=r"3 distinct points.*n_clusters=4"):
        fitted = model(4).fit(X)
    assert len(np.unique(fitted.labels_)) == 3
    assert fitted.tree_.n_leaves == 3


@pytest.mark.parametrize(("extra", "lost"), [({}, r"\[2\]"), ({"max_leaves": 5}, r"\[2\]")])
def test_clusters_without_points_are_named(extra, lost):
    X = np.array([[0.0], [1], [10], [11]])
    with pytest.warns(UserWarning, match=f"no points in clusters {lost}"):
        fitted = IMM(3, **extra).fit(X, centers=[[0.5], [10.5], [100]])
    assert np.array_equal(fitted.labels_, [0, 0, 1, 1])


# --- on a GPU ----------------------------------------------------------------------------------------------


@pytest.mark.cuda
@every
def test_tensors_on_a_gpu_stay_there(model):
    X = torch.from_numpy(blobs())
    here = model(4, random_state=0).fit(X)
    there = model(4, random_state=0).fit(X.cuda())
    assert there.labels_.device == X.cuda().device == there.cluster_centers_.device
    assert torch.equal(there.labels_.cpu(), here.labels_)
    assert there.predict(X.cuda()).device.type == "cuda"
    assert there.predict(X).device.type == "cpu"
    assert there.tree_.apply(X.cuda()).device.type == "cuda"
    assert there.score(X.cuda()) == pytest.approx(here.score(X))
    weight = torch.arange(60) % 3
    weighted = [model(4).fit(x, labels=torch.arange(60) % 4, sample_weight=weight) for x in (X, X.cuda())]
    assert nested(weighted[0].tree_) == nested(weighted[1].tree_)
