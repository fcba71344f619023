"""Separated clusters and slices of one cloud: both tests by brute force, and verdicts where they are known."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from refusals import refusals, refused
from scipy.sparse import csr_matrix
from scipy.stats import norm
from sklearn.cluster import DBSCAN, HDBSCAN, OPTICS, AgglomerativeClustering, KMeans, SpectralClustering
from sklearn.datasets import load_iris, make_blobs, make_circles, make_moons
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import neonxc
from neonxc.data.preparation import prepare
from neonxc.evaluation import separation
from neonxc.evaluation.separated import binned, border_of, deepest, unimodal, valley

PAIR, _ = make_blobs(400, centers=[[0, 0, 0], [6, 0, 0]], random_state=0)
CLOUD = np.random.default_rng(0).normal(size=(600, 3))
MOONS, MOON = make_moons(600, noise=0.08, random_state=0)
RINGS = make_circles(1000, noise=0.05, factor=0.5, random_state=1)


def k_means(X, k=2):
    return KMeans(k, n_init=5, random_state=0).fit(X)


def verdicts(X, labels, **options):
    return separation(X, labels, **options).to_frame()["verdict"].tolist()


# --- the definitions ---------------------------------------------------------------------------------------------


def test_depth_is_that_of_the_definition():
    generator = np.random.default_rng(1)
    for _ in range(20):
        density = generator.uniform(size=30)
        start, first, last, stop = np.sort(generator.choice(30, 4, replace=False))
        expected = max(
            1 - density[t] / min(density[start : t + 1].max(), density[t : stop + 1].max())
            for t in range(first, last + 1)
        )
        assert deepest(density, np.array([first, last, start, stop])) == pytest.approx(expected)


def test_a_filled_valley_is_the_lowest_curve_with_one_peak():
    density = np.array([1.0, 3, 2, 5, 1, 2, 0])
    assert unimodal(density).tolist() == [1, 3, 3, 5, 2, 2, 0]


def test_the_density_is_that_of_kernels_at_all_z():
    z = np.concatenate([np.random.default_rng(0).normal(0, 0.2, 80), np.random.default_rng(1).normal(1, 0.3, 60)])
    counts, grid, h = binned(z)
    assert counts.sum() == len(z)
    sides = np.concatenate([z[z <= 0.5] - np.median(z[z <= 0.5]), z[z > 0.5] - np.median(z[z > 0.5])])
    low, high = np.percentile(sides, [25, 75])
    assert h == pytest.approx(1.06 * min(sides.std(), (high - low) / 1.34) * 70**-0.2)
    kernel = norm(scale=h)
    density = counts @ kernel.pdf(grid[:, None] - grid)
    expected = np.array([kernel.pdf(t - z).sum() for t in grid])
    assert np.abs(density - expected).max() < 0.01 * expected.max()


def test_p_is_the_share_of_draws_that_are_as_deep():
    z = np.random.default_rng(0).permutation(np.r_[np.linspace(-0.3, 0.35, 60), np.linspace(0.6, 1.3, 60)])
    depth, p = valley(z, 199, np.random.default_rng(3))
    counts, grid, h = binned(z)
    kernel = np.exp(-0.5 * ((grid[:, None] - grid) / h) ** 2)
    density = counts @ kernel
    ends = np.searchsorted(grid, [0, 1, -0.25, 1.25])
    assert depth == pytest.approx(deepest(density, ends))
    filled = unimodal(density)
    draws = np.random.default_rng(3).multinomial(120, filled / filled.sum(), 199) @ kernel
    n_as_deep = int((deepest(draws, ends) >= depth).sum())
    assert n_as_deep < 10
    assert p == pytest.approx((1 + n_as_deep) / 200)


def test_drawing_ends_early_where_there_is_no_valley():
    z = np.random.default_rng(0).normal(0.5, 0.5, 300)
    _, p = valley(z, 9999, np.random.default_rng(0))
    assert 0.05 < p <= 1
    _, p = valley(np.r_[np.zeros(50), np.ones(50)] + 0.05 * z[:100], 999, np.random.default_rng(0))
    assert p == 0.001


def test_the_border_is_between_rows_that_are_the_nearest_to_each_other():
    generator = np.random.default_rng(2)
    of_a = generator.normal(size=(30, 2))
    of_b = generator.normal(size=(20, 2)) + 2
    distances = np.linalg.norm(of_a[:, None] - of_b, axis=2)
    expected = [
        (of_a[i] + of_b[j]) / 2
        for i in range(30)
        for j in range(20)
        if distances[i].argmin() == j and distances[:, j].argmin() == i
    ]
    np.testing.assert_allclose(border_of(of_a, of_b), expected)


# --- known answers -----------------------------------------------------------------------------------------------


SHAPES = {
    "Gaussian": lambda generator: generator.normal(size=(500, 3)),
    "long": lambda generator: generator.normal(size=(500, 3)) * [9, 1, 1],
    "uniform": lambda generator: generator.uniform(size=(500, 3)),
    "exponential": lambda generator: generator.exponential(size=(500, 3)),
    "skewed": lambda generator: np.exp(0.7 * generator.normal(size=(500, 3))),
}


@pytest.mark.parametrize("shapes", [["Gaussian", "exponential"], pytest.param([*SHAPES], marks=pytest.mark.slow)])
def test_slices_of_one_cloud(shapes):
    found = []
    for shape, k in product(shapes, (2, 5)):
        X = SHAPES[shape](np.random.default_rng(k))
        found += verdicts(X, k_means(X, k))
    judged = [verdict for verdict in found if verdict != "too few rows"]
    assert len(judged) > 6 * len(shapes)
    assert np.mean([verdict == "separated" for verdict in judged]) <= 0.05


@pytest.mark.parametrize("d", [1, 2, 10, 60])
def test_clusters_at_five_standard_deviations(d):
    X = np.random.default_rng(d).normal(size=(300, d))
    X[:150, 0] += 5
    assert verdicts(X, np.arange(300) < 150) == ["separated"]


@pytest.mark.parametrize(
    ("X", "labels"), [(MOONS, MOON), make_circles(1000, noise=0.05, factor=0.5, random_state=1)]
)
def test_moons_and_rings(X, labels):
    frame = separation(X, labels).to_frame()
    assert frame["verdict"].tolist() == ["separated"]
    assert frame["saddle"][0] > 1.25


def test_a_cloud_that_is_cut_beside_another_one():
    codes = k_means(PAIR, 3).labels_
    frame = separation(PAIR, codes).to_frame()
    is_far = PAIR[:, 0] > 3
    for row in frame.itertuples():
        same = is_far[codes == row.a].mean().round() == is_far[codes == row.b].mean().round()
        assert row.verdict == ("slices" if same else "separated")
    assert {"slices", "separated"} == {*frame["verdict"]}


def test_iris():
    data = load_iris(as_frame=True)
    frame = separation(data.data, data.target_names[data.target]).to_frame()
    pairs = {(row.a, row.b): row.verdict for row in frame.itertuples()}
    assert pairs["setosa", "versicolor"] == "separated"
    assert pairs["versicolor", "virginica"] == "slices"


# --- noise, and density clusterings ------------------------------------------------------------------------------


def test_noise_counts_to_the_nearest_cluster():
    labels = np.where(np.abs(CLOUD[:, 0]) < 0.4, -1, CLOUD[:, 0] > 0)  # a gap in the labels, and none in the rows
    assert verdicts(CLOUD, labels) == ["slices"]
    assert verdicts(PAIR, np.where(np.abs(PAIR[:, 0] - 3) < 1, -1, PAIR[:, 0] > 3)) == ["separated"]
    assert "pass the fitted model" in str(separation(CLOUD, labels))


@pytest.mark.parametrize(
    "model",
    [
        DBSCAN(eps=0.25),
        HDBSCAN(min_cluster_size=30, copy=True),
        pytest.param(
            OPTICS(min_samples=20, cluster_method="dbscan", eps=0.25, max_eps=0.3), marks=pytest.mark.slow
        ),
        AgglomerativeClustering(2, linkage="single"),
        SpectralClustering(2, affinity="nearest_neighbors", random_state=0),
    ],
)
def test_moons_by_clusterings_of_the_gaps(model):
    X, _ = make_moons(400, noise=0.04, random_state=0)
    assert verdicts(X, model.fit(X)) == ["separated"]


def test_a_gap_that_refits_do_not_have_is_not_judged():
    distances = np.linalg.norm(CLOUD[:, None] - CLOUD, axis=2)
    model = DBSCAN(eps=np.quantile(np.sort(distances)[:, 5], 0.25), min_samples=5).fit(CLOUD)
    assert model.labels_.max() > 0
    assert not {*verdicts(CLOUD, model)} & {"separated"}
    precomputed = DBSCAN(metric="precomputed", eps=0.2).fit(np.linalg.norm(MOONS[:, None] - MOONS, axis=2))
    found = separation(MOONS, precomputed)
    assert {*found.to_frame()["verdict"]} == {"not judged"}
    assert found.reason == "a density clustering has to be fitted again to columns"
    assert f"({found.reason})" in found.sentences()[0]


# --- inputs ------------------------------------------------------------------------------------------------------


SLOW_CONTAINERS = [pytest.param(make, marks=pytest.mark.slow) for make in (np.float32, np.ndarray.tolist)]


@pytest.mark.parametrize("make", [pd.DataFrame, torch.tensor, csr_matrix, *SLOW_CONTAINERS])
def test_any_container(make):
    assert verdicts(make(PAIR), k_means(PAIR).labels_) == ["separated"]
    assert verdicts(make(CLOUD), k_means(CLOUD).labels_) == ["slices"]


def test_models_and_their_labels_agree():
    frame = pd.DataFrame(PAIR, columns=["a", "b", "c"])
    expected = separation(frame, k_means(StandardScaler().fit_transform(PAIR)).labels_).to_frame()
    pipeline = make_pipeline(StandardScaler(), KMeans(2, n_init=5, random_state=0)).fit(frame)
    pd.testing.assert_frame_equal(separation(frame, pipeline).to_frame(), expected, check_exact=False)
    mixture = GaussianMixture(2, random_state=0).fit(PAIR)
    assert verdicts(PAIR, mixture) == ["separated"]


def mixed(X):
    """A table with categories, truth values and missing numbers."""
    generator = np.random.default_rng(5)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame.loc[generator.random(len(X)) < 0.1, "b"] = np.nan
    return frame.assign(color=generator.choice(["red", "blue"], len(X)), own=generator.random(len(X)) < 0.5)


def test_mixed_columns_and_missing_values():
    for X, expected in ((PAIR, "separated"), (CLOUD, "slices")):
        labels = k_means(X[:, :1]).labels_
        assert verdicts(mixed(X), labels) == [expected]
        pipeline = make_pipeline(prepare(mixed(X)).pipeline, KMeans(2, n_init=5, random_state=0)).fit(mixed(X))
        assert len(verdicts(mixed(X), pipeline)) == 1


def test_rounded_columns_have_no_gaps():
    X = np.random.default_rng(0).normal(size=(800, 3))
    for step in (0.5, 1.0):
        rounded = np.round(X / step) * step
        assert verdicts(rounded, k_means(X).labels_) == ["slices"]


def test_many_rows_and_columns():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(50_000, 4))
    X[:5_000, 0] += 7
    labels = np.where(X[:, 0] > 3.5, 2, X[:, 1] > 0).astype(int)
    found = separation(X, labels, max_rows=3000)
    assert found.rows == 3000
    pairs = {(row.a, row.b): row.verdict for row in found.to_frame().itertuples()}
    assert pairs == {(0, 1): "slices", (0, 2): "separated", (1, 2): "separated"}
    wide = generator.normal(size=(300, 400))
    wide[:150, :9] += 3
    assert verdicts(csr_matrix(wide), np.arange(300) < 150) == ["separated"]
    assert verdicts(wide[150:], np.arange(150) < 75) == ["slices"]


def test_order_and_scale_of_columns_and_names_of_clusters():
    X = np.concatenate([PAIR, PAIR[:200] + np.array([0, 9, 0])])
    labels = k_means(X, 4).labels_
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    expected = separation(frame, labels).to_frame()
    other = (frame * [1000, 1, 0.001] + 5)[["c", "a", "b"]].set_axis(np.arange(600) + 7)
    found = separation(other, labels).to_frame()
    assert found["verdict"].tolist() == expected["verdict"].tolist()
    np.testing.assert_allclose(found["depth"], expected["depth"], atol=0.02)
    found = separation(frame, [f"cluster {label}" for label in labels]).to_frame()
    assert found["a"].tolist() == [f"cluster {a}" for a in expected["a"]]
    assert found["depth"].tolist() == expected["depth"].tolist()


def test_seeds():
    labels = k_means(PAIR, 3)
    frames = [separation(PAIR, labels, random_state=seed).to_frame() for seed in (0, 0, 1, 2)]
    pd.testing.assert_frame_equal(frames[0], frames[1])
    assert frames[0]["saddle"].tolist() != frames[2]["saddle"].tolist()
    for frame in frames:
        assert frame["verdict"].tolist() == frames[0]["verdict"].tolist()


# --- results -----------------------------------------------------------------------------------------------------


def test_the_level_is_over_all_pairs():
    X, labels = make_blobs(600, centers=6, cluster_std=2, random_state=1)
    found = separation(X, labels)
    frame = found.to_frame()
    p = np.sort(frame["p"].to_numpy())
    expected = np.minimum(np.maximum.accumulate(p * np.arange(len(p), 0, -1)), 1)
    np.testing.assert_allclose(np.sort(frame["p_holm"]), expected)
    assert ((frame["p_holm"] <= 0.05) | (frame["saddle"] >= 1.25)).eq(frame["verdict"] == "separated").all()
    assert f"adjusted for all {len(frame)} pairs" in str(found)


def test_words():
    assert separation(CLOUD, k_means(CLOUD)).sentences() == ["0 and 1 are slices of one cloud"]
    assert separation(CLOUD, CLOUD[:, 0] > 0).sentences() == ["False and True are slices of one cloud"]
    assert separation(PAIR, k_means(PAIR)).sentences() == ["0 and 1 are separated"]
    long = np.random.default_rng(0).normal(size=(900, 1)) * 5
    cut = np.digitize(long[:, 0], [-3, 3])
    assert separation(long, cut).sentences() == ["0, 1 and 2 are slices of one cloud"]
    few = separation(PAIR[:20], PAIR[:20, 0] > 3)
    assert few.sentences() == ["there are too few rows to judge False and True"]


def test_one_cluster_has_no_pairs():
    found = separation(PAIR, np.zeros(400, dtype=int))
    assert len(found.to_frame()) == 0
    assert found.sentences() == []
    assert "one cluster, which has no neighbour" in str(found)


def test_equal_rows():
    assert verdicts(np.ones((60, 2)), np.arange(60) < 30) == ["too few rows"]


NET = neonxc.neuralize(k_means(PAIR), PAIR)
test_refused = refusals(
    {
        "all points are noise": lambda: separation(PAIR, np.full(400, -1)),
        "labels needs one label per point": lambda: separation(PAIR, [0, 1]),
        "X has a value that is not finite": lambda: separation(np.where(PAIR > 8, np.nan, PAIR), PAIR[:, 0] > 3),
        "has no labels for the 600 rows": lambda: separation(CLOUD, DBSCAN().fit(PAIR)),
        "max_rows": lambda: separation(PAIR, PAIR[:, 0] > 3, max_rows=3),
        "matrix of distances": lambda: separation(
            np.eye(30), DBSCAN(metric="precomputed").fit(np.ones((30, 30)) - np.eye(30))
        ),
    }
)


def test_arguments_in_the_wrong_order():
    refused("rows come first", separation, k_means(PAIR), PAIR, error=TypeError)
    refused("pass the clusterer that it was made from", separation, PAIR, NET, error=TypeError)
