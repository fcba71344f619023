"""Clusterings behind a map, as UMAP makes one: the vote of the nearest rows of every cluster before it."""

from copy import copy

import numpy as np
import pandas as pd
import pytest
import torch
from refusals import refused
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.manifold import TSNE, Isomap
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, OneHotEncoder, StandardScaler
from torch import nn

import neonxc

pytestmark = pytest.mark.filterwarnings(
    "ignore:the vote of the nearest rows", "ignore:The number of connected", "ignore:Changing the sparsity"
)
WINE = load_wine(as_frame=True).data
OD = "od280/od315_of_diluted_wines"


class Given(ClusterMixin, BaseEstimator):
    """A clusterer with given labels."""

    def __init__(self, labels=None):
        self.labels = labels

    def fit(self, X, y=None):
        self.labels_ = np.asarray(self.labels)
        return self


def behind(*steps, final=None, X=WINE):
    final = KMeans(3, n_init=3, random_state=0) if final is None else final
    return make_pipeline(*steps, Isomap(n_components=3), final).fit(X)


def clusters():
    return KMeans(3, n_init=3, random_state=0).fit_predict(StandardScaler().fit_transform(WINE))


def brute_force(model, X, references):
    """Values [N, K] of the vote, and relevance [N, K, d] of each, from the definition; noise is the last."""
    labels = model[-1].labels_
    at = next(n for n, step in enumerate(model) if hasattr(step, "embedding_"))
    before = model[:at] if at else FunctionTransformer()
    z = np.asarray(before.transform(X))
    w = np.eye(X.shape[1])
    for step in model[:at] if at else ():
        w = (step.components_ if hasattr(step, "components_") else np.diag(1 / step.scale_)) @ w
    values = []
    shares = []
    every = np.linalg.norm(z[:, None] - z, axis=2)
    nearest = np.sort(every, axis=1)[:, :15]
    rho = nearest[:, :1]
    sigma = (nearest - nearest[:, :1]).mean(1, keepdims=True)
    for label in [*range(labels.max() + 1), *set(labels) & {-1}]:
        members = np.flatnonzero(labels == label)
        near = members[every[:, members].argsort(axis=1)[:, :15]]
        d = np.take_along_axis(every, near, 1)
        votes = np.exp(-(d - rho) / sigma)
        values.append(-np.log(votes.sum(1)))
        # (x - u)^2 where every column is scaled by itself
        of_columns = ((z[:, None] - z[near]) @ w) * (X.to_numpy()[:, None] - references[near])
        weights = votes / votes.sum(1, keepdims=True) / np.where(d > 0, d, np.inf) / sigma
        shares.append((weights[:, :, None] * of_columns).sum(1))
    return np.stack(values, 1), np.stack(shares, 1)


@pytest.mark.parametrize(
    ("steps", "final"),
    [
        ([], KMeans(3, n_init=3, random_state=0)),
        ([StandardScaler()], HDBSCAN(min_cluster_size=8, copy=True)),
        ([StandardScaler(), PCA(5)], HDBSCAN(min_cluster_size=8, copy=True)),
    ],
)
def test_values_and_relevance_are_those_of_the_definition(steps, final):
    model = behind(*steps, final=final)
    net = neonxc.neuralize(model, WINE)
    labels = model[-1].labels_
    references = np.empty(WINE.shape)  # the rows that votes compare with: themselves, or where PCA loses nothing
    references[np.argsort(labels % (labels.max() + 2), kind="stable")] = net.head.detection.references
    if len(steps) < 2:
        np.testing.assert_allclose(references, WINE, rtol=1e-9)
    else:
        np.testing.assert_allclose(*map(model[:2].transform, (WINE * 0 + references, WINE)), atol=1e-9)
    values, shares = brute_force(model, WINE, references)
    for times in (1, 70):  # by all distances, and by search
        found = net.head.values(torch.tensor(np.tile(WINE, (times, 1))))
        np.testing.assert_allclose(found, np.tile(values, (times, 1)), rtol=1e-6, atol=1e-8)
    least = values.argmin(1)
    assert (net.predict(WINE) == net.classes_[least]).all()
    rows = np.arange(len(WINE))
    neon = neonxc.NEON(net)
    for label in net.classes_:
        own = net.classes_.tolist().index(label)
        other = np.where(least == own, np.argsort(values, axis=1)[:, 1], least)
        relevance = neon.attribute(WINE, target=label, competitor=net.classes_[other])
        expected = shares[rows, other] - shares[rows, own]
        np.testing.assert_allclose(relevance, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("steps", [[StandardScaler()], [StandardScaler(), PCA(5)], [Normalizer()]])
def test_multipliers_are_gradients_and_relevance_is_along_the_rows(steps):
    net = neonxc.neuralize(behind(*steps), WINE)
    x = torch.tensor(WINE.to_numpy()[::4] + 0.01, requires_grad=True)
    detection = net.head.detection
    weights = torch.randn(len(x), 3, dtype=torch.float64)
    weights -= weights.mean(dim=1, keepdim=True)  # of contrasts, in which rho has no part
    at = detection.located(x)
    (slope,) = torch.autograd.grad((weights * detection.neurons(at)).sum(), x)
    found = detection.multiplier(detection.located(x.detach()), weights)
    if isinstance(steps[0], Normalizer):  # whose norm is held constant
        slope, found = (one - (one * x).sum(1, True) * x / (x * x).sum(1, True) for one in (slope, found))
    torch.testing.assert_close(found, slope.detach(), rtol=1e-6, atol=1e-9)
    relevance = detection.relevance(at, weights).sum(dim=1)
    shares = (-at.distances / at.scale).softmax(dim=2)
    expected = (weights * (shares * at.distances / at.scale).sum(dim=2)).sum(dim=1)
    torch.testing.assert_close(relevance, expected)


def test_copies_of_rows_and_few_rows():
    X = np.repeat(WINE.to_numpy()[::6], 20, axis=0)
    labels = np.arange(len(X)) // 20 % 3
    labels[:2] = 3  # two of twenty copies: the other 18 have more votes
    net = neonxc.neuralize(behind(StandardScaler(), final=Given(labels), X=X), X)
    assert net.predict(X).tolist() == np.where(labels == 3, 0, labels).tolist()
    relevance = neonxc.NEON(net).attribute(np.vstack([X, X[:2] + 1e3]))
    assert np.isfinite(relevance).all()
    assert (relevance[20:] != 0).any(axis=1).all()


@pytest.mark.parametrize(
    "steps", [[StandardScaler()], [Normalizer()], [FunctionTransformer(np.log1p)], ["passthrough"]]
)
@pytest.mark.parametrize("final", [GaussianMixture(3, random_state=0), KMeans(3, n_init=3, random_state=0)])
def test_labels_are_those_of_the_pipeline(steps, final):
    model = behind(*steps, final=final)
    net = neonxc.neuralize(model, WINE)
    assert np.mean(net.predict(WINE) == model.predict(WINE)) == net.fidelity_ > 0.95
    assert net.fidelity_held_out_ > 0.85
    assert net.noise_held_out_ is None
    assert neonxc.NEON(net).attribute(WINE).columns.tolist() == WINE.columns.tolist()


def test_steps_behind_the_map_and_pipelines_inside():
    plain = behind(StandardScaler(), final=GaussianMixture(3, random_state=0))
    scaler, isomap, mixture = plain
    own = neonxc.neuralize(plain, WINE).predict(WINE)
    for steps in (
        (make_pipeline(scaler, isomap), mixture),
        (scaler, make_pipeline(isomap, mixture)),
        (scaler, isomap, "passthrough", mixture),
    ):
        assert (neonxc.neuralize(make_pipeline(*steps), WINE).predict(WINE) == own).all()
    last = make_pipeline(Isomap(n_components=2), StandardScaler(), GaussianMixture(3, random_state=0))
    labels = last.fit_predict(isomap.embedding_)
    found = neonxc.neuralize(make_pipeline(scaler, isomap, *last), WINE)
    assert np.mean(found.predict(WINE) == labels) == found.fidelity_
    tsne = TSNE(max_iter=250, random_state=0).fit(scaler.transform(WINE))  # which maps no other rows
    given = make_pipeline(scaler, tsne, KMeans(3, n_init=3, random_state=0).fit(tsne.embedding_))
    assert neonxc.neuralize(given, WINE).fidelity_ > 0.95
    assert "3 clusters" in str(neonxc.explain(given, WINE, fast=True))  # which cannot refit it


def test_noise_is_the_last_output(tmp_path):
    model = behind(StandardScaler(), final=HDBSCAN(min_cluster_size=8, copy=True))
    with pytest.warns(UserWarning, match="the vote of the nearest rows before the map gives"):
        net = neonxc.neuralize(model, WINE)
    labels = model[-1].labels_
    own = net.predict(WINE)
    assert net.classes_.tolist() == [*range(labels.max() + 1), -1]
    assert ((own < 0) == (labels < 0)).mean() > 0.9
    assert 0.5 < net.noise_held_out_ <= 1
    assert "3 clusters and noise" in repr(net)
    assert "vote that gives 91% of the points their label" in repr(net)
    neon = neonxc.NEON(net)
    noise = WINE[own < 0]
    why = neon.attribute(noise, target=-1)
    pd.testing.assert_frame_equal(neon.attribute(noise), why)
    # a row is noise by what tells it from the cluster that it is nearest to
    assert (why.sum(axis=1) > neon.attribute(noise, target=0).sum(axis=1)).all()
    neonxc.save(net, tmp_path / "net")
    loaded = neonxc.load(tmp_path / "net")
    pd.testing.assert_frame_equal(neonxc.NEON(loaded).attribute(WINE), neon.attribute(WINE))
    assert loaded.noise_held_out_ == net.noise_held_out_
    found = neonxc.counterfactual(net, WINE[own != 0][:2], target=0)
    assert (net.predict(found.points) == 0).all()
    assert neonxc.contrast(net, WINE, 1, -1).accuracy > 0.7
    np.testing.assert_array_equal(net.predict(WINE.to_numpy(np.float32)), own)
    # reports are of the columns before the map
    mapped = copy(model[-2])
    mapped.transform = None  # which is not needed for it
    report = neonxc.explain(make_pipeline(model[0], mapped, model[-1]), WINE, fast=True)
    told = ("vote fidelity: 89%", "The vote takes 11% of the held-out points for noise", "surrogate")
    assert [text in str(report) for text in told] == [True, True, False]
    rules = report.to_frame()["rule"].str.replace("≤", "<=")
    table = WINE.rename(columns={OD: "od"})
    for label in range(3):
        told = table.query(rules[str(label)].split("\n")[0].replace(OD, "od"))
        assert np.mean(labels[told.index] == label) > 0.3


@pytest.mark.parametrize("missing", ["old", None])
def test_labels_of_other_types(missing):
    labels = np.array(["mild", missing, "red"], dtype=object)[clusters()]
    net = neonxc.neuralize(behind(StandardScaler(), final=Given(labels)), WINE)
    assert net.classes_.tolist() == (["mild", "old", "red"] if missing else ["mild", "red", -1])
    expected = [-1 if label is None else label for label in labels]
    assert np.mean([a == b for a, b in zip(net.predict(WINE), expected, strict=True)]) > 0.95


def test_what_is_refused():
    # what no neighbourhood tells
    labels = behind(StandardScaler())
    mixed = np.arange(178) % 3
    for message, model, *X in (
        ("Isomap was fitted on 178 rows, and X has 100", labels, WINE[:100]),
        ("behind a map needs the X", labels),
        ("X has 5 features, the clustering was fitted on 13", behind(), WINE.to_numpy()[:, :5]),
        ("one cluster alone", behind(final=Given(mixed * 0)), WINE),
        ("has no labels of the rows", behind(final=Given([0, 0, 0])), WINE),
    ):
        refused(message, neonxc.neuralize, model, *X)
    with pytest.warns(UserWarning, match="of the points held out from it their label"):
        neonxc.neuralize(behind(StandardScaler(), final=Given(mixed)), WINE)


def test_features_texts_and_mixed_tables():
    layer = nn.Sequential(nn.Linear(13, 4), nn.Tanh()).double().eval()
    X = StandardScaler().fit_transform(WINE)
    net = neonxc.neuralize(behind(X=layer(torch.tensor(X)).detach().numpy()), X, features=layer)
    assert neonxc.NEON(net, head_rule="midpoint").attribute(X).shape == X.shape
    assert net.fidelity_ > 0.95

    texts = [f"fruit{n % 3} leaf{n % 3} tree{n % 6} seed{n}" for n in range(60)]
    model = behind(TfidfVectorizer(), TruncatedSVD(5, random_state=0), X=texts)
    net = neonxc.neuralize(model, texts)
    assert np.mean(net.predict(texts) == model[-1].labels_) > 0.95
    best = neonxc.NEON(net).attribute(texts).idxmax(axis=1)
    assert {name[:-1] for name in best} <= {"fruit", "leaf", "tree"}

    table = WINE.iloc[:, :4].assign(kind=np.array(["mild", "old", "red"])[clusters()])
    columns = make_column_transformer((OneHotEncoder(), ["kind"]), remainder=StandardScaler())
    net = neonxc.neuralize(behind(columns, X=table), table)
    assert "kind" in neonxc.NEON(net).attribute(table).columns
    assert net.fidelity_ > 0.9


@pytest.mark.slow  # numba compiles; maps of scikit-learn are tested above
def test_umap():
    umap = pytest.importorskip("umap")
    hdbscan = pytest.importorskip("hdbscan")
    reducer = umap.UMAP(n_components=3, min_dist=0.0, random_state=0, n_jobs=1)
    model = make_pipeline(StandardScaler(), reducer, hdbscan.HDBSCAN(min_cluster_size=10)).fit(WINE)
    torch.set_num_threads(1)  # numba has set another number
    net = neonxc.neuralize(model, WINE)
    labels = model[-1].labels_
    assert net.n_clusters == labels.max() + 1
    assert np.mean(net.predict(WINE) == labels) == net.fidelity_ > 0.85
    assert net.fidelity_held_out_ > 0.75
    assert "clusters" in str(neonxc.explain(model, WINE, fast=True))
