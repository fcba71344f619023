"""What users hand to tree explainers: weights of any scale, references of any kind, names, types, numbers."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from refusals import refused
from sklearn.base import clone
from sklearn.cluster import DBSCAN, AgglomerativeClustering, KMeans
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_wine, make_blobs
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from tree_witnesses import assert_same
from turns import in_turns

import neonxc
from neonxc.evaluation import kmeans_cost
from neonxc.trees import CART, CUBT, IMM, CLTree, ExKMC, ExShallow, KDTree, RandomThresholds


@pytest.fixture(scope="module")
def wine():
    return load_wine(as_frame=True).data


def test_the_scale_of_weights_does_not_matter_to_depths():
    X, y = make_blobs(60, 3, centers=8, cluster_std=4, random_state=0)

    def labels(X, y, **given):
        return ExShallow(8, depth_factor=0.1).fit(X, labels=y, **given).labels_

    for weight in (1 / 60, 1e-6):  # one point is the unit, however light
        assert np.array_equal(labels(X, y), labels(X, y, sample_weight=np.full(60, weight)))
    many = labels(X, y, sample_weight=np.full(60, 3.0))  # a point three times
    assert np.array_equal(many, labels(np.repeat(X, 3, 0), np.repeat(y, 3))[::3])


def test_weights_reach_the_reference():
    rng = np.random.default_rng(0)
    X = np.r_[rng.normal(0, 1, 50), rng.normal(4, 1, 50), rng.normal(20, 1, 3)][:, None]
    weight = np.r_[np.full(50, 40), np.ones(53)]
    for reference in (KMeans(2, n_init=10, random_state=0), make_pipeline(StandardScaler(), KMeans(2, n_init=10))):
        weighted = IMM(2, reference=reference).fit(X, sample_weight=weight)
        assert weighted.tree_.threshold[0] < 5  # as if most points were there 40 times
    with pytest.warns(UserWarning, match="takes no sample_weight"):
        IMM(2, reference=AgglomerativeClustering(2)).fit(X, sample_weight=weight)


@pytest.mark.parametrize(
    "steps",
    [
        lambda: [StandardScaler()],
        lambda: [make_pipeline(StandardScaler())],
        lambda: [ColumnTransformer([("both", StandardScaler(), ["age", "income"])])],
        lambda: [FeatureUnion([("one", StandardScaler()), ("two", MinMaxScaler())])],
        lambda: [
            SimpleImputer(),
            make_pipeline("passthrough", ColumnTransformer([("age", StandardScaler(), [0, 1])])),
        ],
    ],
)
def test_weights_reach_all_steps_of_a_pipeline(steps):
    """A scaler without the weights makes the column spread over few rows the narrow one."""
    rng = np.random.default_rng(0)
    age = np.r_[rng.normal(0, 1, 300), rng.normal(0, 40, 20)]
    income = np.r_[rng.normal(0, 1, 150), rng.normal(3, 1, 150), rng.normal(1.5, 1, 20)]
    X = pd.DataFrame({"age": age, "income": income})
    weight = np.r_[rng.integers(0, 9, 300) + 20, np.zeros(10, int), np.ones(10, int)]
    model = make_pipeline(*steps(), KMeans(2, n_init=10, random_state=0))
    weighted = IMM(2, reference=model).fit(X, sample_weight=weight)
    repeated = IMM(2, reference=model).fit(X.loc[X.index.repeat(weight)])
    assert weighted.tree_.feature.tolist() == repeated.tree_.feature.tolist()
    assert np.allclose(weighted.tree_.threshold, repeated.tree_.threshold, equal_nan=True)
    assert (weighted.predict(X) == repeated.predict(X)).mean() in (0, 1)


def test_steps_without_weights_are_named(recwarn):
    X = make_blobs(60, 3, centers=2, random_state=0)[0]
    weight = np.full(60, 2.0)
    model = make_pipeline(PCA(2), KMeans(2, n_init=1))
    with pytest.warns(UserWarning, match="PCA takes no sample_weight"):
        IMM(2, reference=model).fit(X, sample_weight=weight)
    recwarn.clear()
    IMM(2, reference=make_pipeline(SimpleImputer(), MinMaxScaler(), KMeans(2, n_init=1))).fit(
        X, sample_weight=weight
    )
    assert not recwarn.list  # what repeated rows do not change


def test_columns_count_by_their_spread_behind_a_scaler(wine):
    kmeans = KMeans(3, n_init=10, random_state=0)
    scaled = make_pipeline(StandardScaler(), kmeans)
    behind = RandomThresholds(3, reference=scaled, random_state=0).fit(wine)
    direct = RandomThresholds(3, reference=kmeans, random_state=0).fit(StandardScaler().fit_transform(wine))
    assert behind.inertia_ == pytest.approx(direct.inertia_, rel=0.02)
    tests = KDTree(3, reference=scaled).fit(wine).tree_.feature
    assert set(tests.tolist()) != {-1, wine.to_numpy().var(0).argmax()}


@pytest.mark.parametrize("kind", [torch.bfloat16, "gradient"])
def test_tensors_with_an_estimator_as_reference(kind, wine):
    X = torch.as_tensor(StandardScaler().fit_transform(wine))
    X = X.requires_grad_() if kind == "gradient" else X.to(kind)
    for reference in (KMeans(3, n_init=1, random_state=0), make_pipeline(StandardScaler(), KMeans(3, n_init=1))):
        model = IMM(reference=reference).fit(X)
        assert isinstance(model.labels_, torch.Tensor)
        assert model.score(X) == pytest.approx(-model.inertia_)


def test_saved_parameters_and_labels_keep_their_types(wine, tmp_path):
    labels = KMeans(3, n_init=1, random_state=0).fit_predict(wine).astype(np.int32)
    fitted = IMM(np.int64(3), random_state=np.int32(4)).fit(wine, labels=labels)
    neonxc.save(fitted, tmp_path / "imm.safetensors")
    loaded = neonxc.load(tmp_path / "imm.safetensors")
    assert (loaded.n_clusters, loaded.random_state) == (3, 4)
    assert loaded.predict(wine).dtype == np.int32


@pytest.mark.parametrize("seed", [0, 6, 10])
def test_refinement_lowers_the_cost_of_k_medians_too(seed):
    X = np.random.default_rng(seed).standard_t(1.5, (200, 3))
    costs = []
    for refine in (False, True):
        labels = IMM(6, metric="l1", refine=refine, random_state=0).fit(X).labels_
        costs.append(sum(np.abs(X[labels == c] - np.median(X[labels == c], 0)).sum() for c in range(6)))
    assert costs[1] <= costs[0] + 1e-9


def test_costs_of_clusters_far_apart():
    X = np.random.default_rng(0).normal(size=(210, 3))
    labels = np.repeat([0, 1, 2], 70)
    X += labels[:, None] * 1e8
    model = IMM(3).fit(X, labels=labels)
    assert [model.inertia_, -model.score(X)] == pytest.approx([kmeans_cost(X, labels)] * 2, rel=1e-6)


def test_bases_and_labels_of_objects(wine):
    base = IMM(3, random_state=0).fit(wine)
    copied = clone(ExKMC(3, base=base.tree_, random_state=0)).fit(wine)
    assert copied.inertia_ <= base.inertia_
    labels = pd.Series(KMeans(3, n_init=1, random_state=0).fit_predict(wine)).astype(object)
    labels[:4] = -1
    assert set(IMM().fit(wine, labels=labels).labels_) == {0, 1, 2}


def chained(*steps):
    """Pipelines in pipelines, all the way to the last step."""
    return make_pipeline(*steps) if len(steps) == 1 else make_pipeline(steps[0], chained(*steps[1:]))


@pytest.mark.parametrize("fitted", [True, False])
@pytest.mark.parametrize("build", [make_pipeline, chained])
@pytest.mark.parametrize("final", [AgglomerativeClustering(3), DBSCAN(eps=9)], ids=str)
def test_pipelines_that_end_in_a_clusterer_without_predict(final, build, fitted, wine):
    scaled = StandardScaler().fit_transform(wine)
    plain = CART().fit(wine, labels=clone(final).fit_predict(scaled))
    reference = clone(build(StandardScaler(), PCA(13), final))
    model = CART(reference=reference.fit(wine) if fitted else reference).fit(wine)
    assert torch.equal(model.tree_.feature, plain.tree_.feature)
    assert np.array_equal(model.labels_, plain.labels_)
    assert model.inertia_ == pytest.approx(kmeans_cost(scaled, plain.labels_))  # behind the scaler
    assert model.score(wine) == pytest.approx(-model.inertia_)
    if fitted:
        refused("can't predict; pass labels=", CART(reference=reference).fit, wine[:100])


def test_centers_of_pipelines_in_pipelines_are_in_the_space_of_the_last_step(wine):
    steps = StandardScaler(), PCA(13), StandardScaler(), KMeans(3, n_init=3, random_state=0)
    flat, deep = (ExShallow(reference=build(*steps)).fit(wine) for build in (make_pipeline, chained))
    assert_same(flat, deep)
    weighted = ExShallow(reference=chained(*steps)).fit(wine, sample_weight=np.ones(178))
    assert weighted.inertia_ == pytest.approx(flat.inertia_)


@pytest.mark.filterwarnings("error:.*n_clusters")
@pytest.mark.parametrize("model", [IMM, CART])
def test_n_clusters_of_an_estimator_are_its_own(model, wine):
    reference = KMeans(3, n_init=1, random_state=0)
    plain = model(reference=reference, random_state=0).fit(wine)  # nobody set 8
    model(3, reference=reference).fit(wine)
    model(5).fit(wine, labels=np.arange(178) % 3)  # in place of any reference
    with pytest.warns(UserWarning, match="n_clusters=5 is ignored: reference has 3 clusters"):
        other = model(5, reference=reference, random_state=0).fit(wine)
    assert np.array_equal(plain.labels_, other.labels_)


@pytest.mark.parametrize(
    ("model", "kind"),
    in_turns(
        [IMM, CART, RandomThresholds, CUBT, CLTree],
        [np.asarray, torch.as_tensor, sp.csr_matrix, pd.DataFrame],
    ),
)
def test_values_whose_squares_overflow(model, kind):
    X = np.random.default_rng(0).normal(size=(60, 3))
    wide = kind(X * [1, 1e200, 1])
    message = r"X has values as large as .*e\+200 in column '?1'?, .*scale"
    for labels in (None, np.arange(60) % 3):
        refused(message, model(3, random_state=0).fit, wide, labels=labels)
    for x, scale in ((X, 2.0**490), (X, 2.0**-100), (X.astype(np.float32), np.float32(2.0**66))):
        if kind is sp.csr_matrix and x is not X:  # k-means of scikit-learn overflows there
            continue
        plain, large = (model(3, random_state=0).fit(kind(x * unit)) for unit in (x.dtype.type(1), scale))
        if model is not CUBT:  # min_dist is in the units of the columns
            assert np.array_equal(plain.labels_, large.labels_)
        assert np.isfinite(large.inertia_)
