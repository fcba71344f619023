"""What is compared where a network is made: its labels with the clusterer's, columns by name, and their scales."""

import re
import warnings
from collections import namedtuple
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from sklearn import preprocessing
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.cluster import (
    DBSCAN,
    HDBSCAN,
    OPTICS,
    AffinityPropagation,
    AgglomerativeClustering,
    Birch,
    BisectingKMeans,
    KMeans,
    MeanShift,
    MiniBatchKMeans,
)
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, RobustScaler, StandardScaler, scale
from torch import nn

import neonxc
from neonxc import NEON, neuralize
from neonxc.data.preparation import prepare
from neonxc.models import KernelKMeans
from neonxc.trees import IMM

pytestmark = pytest.mark.usefixtures("without_reality")

WINE = load_wine(as_frame=True).data
SCALED = scale(WINE)
IRIS = load_iris(as_frame=True).data
kmeans = partial(KMeans, 3, n_init=3, random_state=0)


@pytest.fixture
def rng():
    """The same random numbers for every test."""
    return np.random.default_rng(0)


def quietly(call):
    """The result of a call that must not warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return call()


def warned(message, call):
    """The result of a call that warns of exactly this."""
    with pytest.warns(UserWarning, match=message) as caught:
        result = call()
    assert len(caught) == 1, [str(one.message) for one in caught]
    return result


# --- a network and its clusterer --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [pytest.param(np.float32, marks=pytest.mark.slow), np.float64])
@pytest.mark.parametrize(
    "model",
    [
        kmeans(),
        MiniBatchKMeans(3, random_state=0),
        BisectingKMeans(4, random_state=0),
        MeanShift(bandwidth=3, bin_seeding=True),
        MeanShift(bandwidth=2.5, bin_seeding=True, cluster_all=False),
        AffinityPropagation(random_state=0),
        Birch(n_clusters=3),
        GaussianMixture(3, random_state=0),
        DBSCAN(2.3),
        HDBSCAN(copy=True),
        OPTICS(cluster_method="dbscan", eps=2.4),
        KernelKMeans(3, random_state=0),
        IMM(3, random_state=0),
        make_pipeline(StandardScaler(), kmeans()),
        make_pipeline(Normalizer(), kmeans()),
    ],
    ids=lambda model: type(model).__name__,
)
def test_clusterers_that_decide_as_their_class_does(model, dtype):
    X = SCALED.astype(dtype)
    model.fit(X)
    assert quietly(lambda: neuralize(model, X)).agreement_ >= 0.95


def test_the_fraction_is_that_of_every_second_row(rng):
    X = rng.normal(size=(5000, 3))
    model = KMeans(4, n_init=1, random_state=0).fit(X)
    right = model.labels_.copy()
    model.labels_ = np.where(rng.random(5000) < 0.2, (right + 1) % 4, right)  # as of another version of the rows
    checked = slice(None, None, 2)
    net = warned(
        r"gives 8\d% of \d+ points of X the label that the KMeans has in labels_", partial(neuralize, model, X)
    )
    assert net.agreement_ == pytest.approx((model.labels_ == right)[checked].mean(), abs=0.002)  # without ties
    assert neuralize(model, X[:999]).agreement_ == 1  # labels_ are those of other rows


@pytest.mark.parametrize("make", [StandardScaler, MinMaxScaler, RobustScaler, MaxAbsScaler])
def test_rows_on_another_scale(make):
    X = WINE.to_numpy()
    model = kmeans().fit(make().fit_transform(X))
    with pytest.warns(UserWarning, match=r"after \w+\(\) they have it") as caught:
        net = neuralize(model, X)
    assert net.agreement_ == pytest.approx((net.predict(X) == model.labels_).mean())
    named = re.search(r"after (\w+)\(\)", str(caught[0].message))[1]
    advised = make_pipeline(getattr(preprocessing, named)().fit(X), model)
    assert quietly(lambda: neuralize(advised, X)).agreement_ >= 0.95


def test_density_on_another_scale():
    model = DBSCAN(2.3).fit(SCALED)
    net = warned(r"StandardScaler\(\) they have it", lambda: neuralize(model, WINE.to_numpy()))
    assert net.agreement_ < 0.9


def test_a_tree_stays_exact_on_other_values():
    tree = IMM(3, random_state=0).fit(WINE.to_numpy())
    net = warned("in labels_; others have the rows", lambda: neuralize(tree, SCALED))
    assert net.fidelity_ is None
    assert (net.predict(SCALED) == tree.predict(SCALED)).all()


def test_columns_in_another_order(rng):
    order = rng.permutation(13)
    message = rf"in the order \[{', '.join(map(str, order.argsort()))}\] they have it"
    warned(message, lambda: neuralize(kmeans().fit(SCALED), SCALED[:, order]))


def test_other_rows_of_the_same_number(rng):
    model = kmeans().fit(SCALED)
    assert quietly(lambda: neuralize(model, rng.permutation(SCALED))).agreement_ == 1
    assert quietly(lambda: neuralize(DBSCAN(2.3).fit(SCALED), rng.permutation(SCALED))).agreement_ is None


def test_ties_and_rounding_do_not_count(rng):
    X = np.repeat(
        [[0.0, 0], [0, 1], [1, 0], [1, 1], [0.5, 0.5]], 20, axis=0
    )  # the last is as near to four centers
    assert (
        quietly(lambda: neuralize(KMeans(4, init=X[:80:20], n_init=1, max_iter=1).fit(X[:80]), X)).agreement_ == 1
    )
    far = rng.normal(size=(500, 4)).astype(np.float32) + np.float32(1e5)
    model = KMeans(3, n_init=1, random_state=0).fit(far)
    assert quietly(lambda: neuralize(model, far)).agreement_ is None  # float32 tells no rows apart


class Balanced(KMeans):
    """k-means whose clusters have equal sizes."""

    def fit(self, X, y=None):
        super().fit(X)
        distances = ((np.asarray(X)[:, None] - self.cluster_centers_) ** 2).sum(2)
        order = (distances - distances.min(1, keepdims=True)).sum(1).argsort()[::-1]
        room = [-(-len(X) // 3)] * 3
        for row in order:
            best = next(k for k in distances[row].argsort() if room[k])
            self.labels_[row] = best
            room[best] = room[best] - 1
        return self


class Manhattan(KMeans):
    """k-means that predicts by the sum of absolute differences."""

    def fit(self, X, y=None):
        super().fit(X)
        self.labels_ = self.predict(X)
        return self

    def predict(self, X):
        return np.abs(np.asarray(X)[:, None] - self.cluster_centers_).sum(2).argmin(1)


@pytest.mark.filterwarnings("ignore:the surrogate gives")
@pytest.mark.parametrize("make", [Balanced, Manhattan])
def test_a_class_that_decides_otherwise(make):
    X = SCALED[40:]  # few of one kind
    model = make(3, n_init=1, random_state=0).fit(X)
    with pytest.warns(UserWarning, match=f"the cluster_centers_ of the {make.__name__} do not give its labels"):
        net = neuralize(model, X)
    assert net.agreement_ is None
    assert net.fidelity_ == pytest.approx((net.predict(X) == model.labels_).mean())
    assert net.fidelity_ > 0.95


class Named(Pipeline):
    """A pipeline that calls its clusters by names, two by the same."""

    def predict(self, X):
        return np.array(["dry", "sweet", "dry"])[super().predict(X)]


class Median(ClusterMixin, BaseEstimator):
    """A clusterer of its own, with names."""

    def fit(self, X, y=None):
        self.centers_ = np.quantile(X, [0.2, 0.5, 0.8], axis=0)
        self.labels_ = self.predict(X)
        return self

    def predict(self, X):
        return np.array(["low", "middle", "high"])[((X[:, None] - self.centers_) ** 2).sum(2).argmin(1)]


def test_names_of_the_nearest_center():
    pipeline = Named([("scale", StandardScaler()), ("cluster", kmeans())]).fit(WINE)
    net = quietly(lambda: neuralize(pipeline, WINE))
    assert net.agreement_ == 1
    assert net.fidelity_ is None
    assert net.classes_.tolist() == ["dry", "sweet"]
    assert (net.predict(WINE) == pipeline.predict(WINE)).all()
    assert np.allclose(NEON(net).attribute(WINE).sum(axis=1), net(net.inputs.read(WINE).tensor).amax(1))

    model = Median().fit(SCALED)
    net = quietly(lambda: neuralize(model, SCALED))
    assert (net.agreement_, net.fidelity_) == (1, None)
    assert (net.predict(SCALED) == model.labels_).all()


class Centered(nn.Module):
    """A network whose features depend on a weight that may be trained further."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 6)

    def forward(self, x):
        return self.linear(x.movedim(1, -1)).movedim(-1, 1)


@pytest.mark.parametrize("shape", [(300, 3), (40, 3, 5, 4)])
def test_features_of_a_network(shape):
    torch.manual_seed(0)
    network = Centered().eval()
    x = torch.randn(shape)
    points = network(x).detach().movedim(1, -1).flatten(0, -2).numpy()
    model = kmeans().fit(points)
    assert quietly(lambda: neuralize(model, x, network)).agreement_ == 1
    with torch.no_grad():
        network.linear.weight += 0.5 * torch.randn_like(network.linear.weight)
    net = warned("training mode, of other weights", lambda: neuralize(model, x, network))
    assert net.agreement_ == pytest.approx((net.predict(x).numpy().ravel() == model.labels_).mean(), abs=0.02)


def test_what_is_compared_is_saved_and_reported(tmp_path):
    model = kmeans().fit(SCALED)
    right = neuralize(model, SCALED)
    other = SCALED[:, ::-1].copy()
    wrong = warned("in the order", lambda: neuralize(model, other))
    for net in (right, wrong):
        neonxc.save(net, tmp_path / "net.safetensors")
        assert neonxc.load(tmp_path / "net.safetensors").agreement_ == net.agreement_
    assert "100% of the points checked have the clusterer's label" in repr(right)
    assert "Agreement" in neonxc.explain(right, SCALED, fast=True).html()
    page = neonxc.explain(wrong, other, fast=True).html()
    assert f"The clusterer has another label than the network for {1 - wrong.agreement_:.0%}" in page


def test_without_labels_nothing_is_claimed():
    assert neuralize(SCALED[:3], SCALED).agreement_ is None
    assert neuralize(kmeans().fit(SCALED)).agreement_ is None
    assert neuralize(AgglomerativeClustering(3).fit(SCALED), SCALED).agreement_ is None


def test_a_fitted_reference_of_a_tree():
    model = kmeans().fit(SCALED)
    message = r"labels_ for 35% of 178 rows .* after StandardScaler\(\)"
    warned(message, lambda: IMM(reference=model).fit(WINE.to_numpy()))
    quietly(lambda: IMM(reference=model).fit(SCALED))
    quietly(lambda: IMM(reference=model).fit(SCALED[::-1].copy()))
    quietly(lambda: IMM(reference=make_pipeline(StandardScaler(), kmeans()).fit(WINE)).fit(WINE))
    with pytest.warns(UserWarning, match="the Balanced predicts its labels_ for"):
        IMM(reference=Balanced(3, n_init=1, random_state=0).fit(WINE.to_numpy())).fit(WINE.to_numpy())


# --- by name ----------------------------------------------------------------------------------------------------

ABCD = IRIS.set_axis(list("abcd"), axis=1)
CENTERS = ABCD.iloc[[3, 60, 120]].reset_index(drop=True)
NEAREST = ((ABCD.to_numpy()[:, None] - CENTERS.to_numpy()) ** 2).sum(2).argmin(1)
OTHER = CENTERS[list("dbca")]
Flower = namedtuple("Flower", "d b c a")


@pytest.mark.parametrize(
    "centers",
    [
        OTHER,
        [OTHER.iloc[row] for row in range(3)],
        OTHER.to_dict("records"),
        OTHER.to_dict("list"),
        OTHER.T.to_dict(),
        [Flower(*row) for row in OTHER.to_numpy()],
        OTHER.to_records(index=False),
    ],
    ids=["frame", "series", "records", "columns", "mapping of rows", "named tuples", "fields"],
)
def test_centers_go_by_name(centers):
    net = neuralize(centers, ABCD)
    assert (net.predict(ABCD) == NEAREST).all()
    assert list(NEON(net).attribute(ABCD)) == list("dbca")
    assert (IMM(3).fit(ABCD, centers=centers).labels_ == IMM(3).fit(ABCD, centers=CENTERS).labels_).all()


@pytest.mark.parametrize(
    "rows",
    [
        ABCD[list("dcba")],
        pytest.param(ABCD[list("dcba")].assign(more="text"), marks=pytest.mark.slow),
        [ABCD[list("dcba")].iloc[row] for row in range(150)],
        pytest.param(ABCD[list("dcba")].to_dict("records"), marks=pytest.mark.slow),
        pytest.param(ABCD[list("dcba")].to_dict("list"), marks=pytest.mark.slow),
        [Flower(*row) for row in ABCD[list("dbca")].to_numpy()],
    ],
    ids=["another order", "further columns", "series", "records", "columns", "named tuples"],
)
def test_rows_go_by_name(rows):
    model = kmeans().fit(ABCD)
    net = neuralize(model, ABCD)
    assert (neuralize(model, rows).predict(rows) == model.labels_).all()
    assert (net.predict(rows) == model.labels_).all()
    assert NEON(net).attribute(rows).equals(NEON(net).attribute(ABCD).set_axis(list("abcd"), axis=1))
    tree = IMM(3).fit(ABCD, centers=CENTERS)
    assert (tree.tree_.predict(rows) == tree.labels_).all()
    rules = tree.tree_.rules()
    assert (rules.predict(rows) == tree.labels_).all()
    assert rules.measure(rows, tree.labels_) == rules.measure(ABCD, tree.labels_)
    assert (rules.verify(rows)["fit"] == rules.verify(rows)["found"]).all()
    assert neonxc.compare_clusterings(model, model.labels_, rows, refits=0).ari == 1
    assert not len(neonxc.moves(net, rows, ABCD).to_frame())
    assert neonxc.contrast(net, rows, 0, 1).relevance.equals(neonxc.contrast(net, ABCD, 0, 1).relevance)
    moved = neonxc.counterfactual(net, rows).distance
    assert np.allclose(moved, neonxc.counterfactual(net, ABCD).distance)
    clusters = pa.table(neonxc.batch_function(net)(rows))["cluster"]
    assert clusters.to_pylist() == model.labels_.tolist()


@pytest.mark.parametrize(
    "rows",
    [
        ABCD.to_dict("records"),
        pytest.param(ABCD.to_dict("list"), marks=pytest.mark.slow),  # is read as in test_rows_go_by_name
        pytest.param(ABCD.T.to_dict(), marks=pytest.mark.slow),
        pytest.param([row for _, row in ABCD.iterrows()], marks=pytest.mark.slow),
    ],
    ids=["records", "columns", "mapping of rows", "series"],
)
def test_tables_with_names_in_reports(rows):
    model = kmeans().fit(ABCD)
    sizes = np.bincount(model.labels_).tolist()
    for report in (
        neonxc.explain(model, rows, fast=True),
        neonxc.explain(rows, labels=model.labels_, fast=True),
    ):
        assert report.to_frame()["size"].tolist() == sizes
        assert [column.name for column in report.description.columns] == list("abcd")
    assert len(neonxc.explain(rows, clusters=2, fast=True).to_frame()) == 2
    assert list(prepare(rows).frame) == list("abcd")


def test_batches_go_by_name():
    tree = IMM(3).fit(ABCD, centers=CENTERS)
    batches = [ABCD[:70][list("dcba")], ABCD[70:].assign(more=1.0)]
    assert (tree.predict(lambda: iter(batches)) == tree.labels_).all()
    assert (IMM(3).fit(lambda: iter([ABCD[:70], batches[1]]), centers=CENTERS).labels_ == tree.labels_).all()


def test_a_missing_column_is_named():
    with pytest.raises(ValueError, match=r"missing \['c'\]"):
        neuralize(CENTERS, ABCD.drop(columns="c"))


# --- by scale, and by type --------------------------------------------------------------------------------------


def two_columns(rng, factor):
    """Labels of two columns with equal parts in them, one of which may have another unit."""
    sides = rng.integers(0, 2, (400, 2))
    X = 2 * sides + rng.normal(0, 0.3, (400, 2))
    return sides @ [2, 1], pd.DataFrame(X * [1, factor], columns=["kilograms", "grams"])


def test_labels_of_a_frame_do_not_depend_on_units(rng):
    labels, frame = two_columns(rng, 1)
    results = []
    for factor in (1, 1000):
        X = frame * [1, factor]
        net = quietly(lambda X=X: neuralize(labels=labels, X=X))
        relevance = NEON(net).attribute(X)
        results.append(relevance.to_numpy())
        share = relevance.abs().mean() / relevance.abs().mean().sum()
        assert share["grams"] == pytest.approx(0.5, abs=0.06)
    assert np.allclose(*results, rtol=1e-9, atol=1e-12)

    y = AgglomerativeClustering(3).fit_predict(SCALED)
    net = neuralize(labels=y, X=WINE)
    assert (net.predict(WINE) == y).all()
    assert np.allclose(NEON(net).attribute(WINE), NEON(neuralize(labels=y, X=SCALED)).attribute(SCALED))


@pytest.mark.filterwarnings("ignore:the surrogate")
def test_an_array_with_several_units(rng):
    labels, frame = two_columns(rng, 1000)
    with pytest.warns(UserWarning, match=r"standard deviations from 1\.\d+ to 1,?\d+.*StandardScaler"):
        neuralize(labels=labels, X=frame.to_numpy())
    quietly(lambda: neuralize(labels=labels, X=scale(frame)))
    digits = load_digits(n_class=3)
    quietly(lambda: neuralize(labels=digits.target, X=digits.data))  # pixels at the border are nearly constant


@pytest.mark.parametrize("kind", [list, tuple])
def test_labels_of_a_list_keep_their_types(kind):
    labels = kind(["u", "v", -1] * 50)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # labels without structure
        net = neuralize(labels=labels, X=IRIS)
    assert net.classes_.tolist() == ["u", "v", -1]
    assert net.noise_position == 2
    assert net.positions(kind(["v", -1])).tolist() == [1, 2]
    assert set(IMM(2).fit(IRIS.iloc[:2], labels=kind(["u", "v"])).tree_.classes) == {"u", "v"}


IN_ANY_ORDER = {
    "summary by permutation": lambda net, X, Y: str(NEON(net).summary(Y, method="permute")),
    "typical rows of moves": lambda net, X, Y: _typical(neonxc.moves(net, Y, X[::-1].set_axis(X.index))),
    "typical rows of the later table": lambda net, X, Y: _typical(neonxc.moves(net, X, Y[::-1].set_axis(X.index))),
    "moves by a column": lambda net, X, Y: _typical(
        neonxc.moves(net, Y.assign(id=range(len(Y))), X[::-1].assign(id=range(len(X))), ids="id")
    ),
    "contrast": lambda net, X, Y: str(neonxc.contrast(net, Y, 0, 1)),
    "spread": lambda net, X, Y: str(neonxc.counterfactual(net, X.iloc[:3], spread=Y.std())),
    "report": lambda net, X, Y: str(neonxc.explain(net, Y, fast=True)),
    "refits": lambda net, X, Y: str(
        neonxc.compare_clusterings(KMeans(3, n_init=1, random_state=0).fit(X), net.predict(X), Y, random_state=0)
    ),
    "network": lambda net, X, Y: NEON(neuralize(KMeans(3, random_state=0).fit(X), Y)).attribute(X).to_dict(),
}


def _typical(moves):
    return [move.typical.sort_index(axis=1).to_dict() for move in moves.moves]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name, marks=[pytest.mark.slow] * (name in ("typical rows of the later table", "moves by a column"))
        )
        for name in IN_ANY_ORDER
    ],
)
def test_columns_in_another_order_are_sorted_by_their_names(name):
    X = WINE.iloc[:, :6]
    net = neuralize(make_pipeline(StandardScaler(), KMeans(3, random_state=0)).fit(X), X)
    other = X[X.columns[::-1]]
    assert IN_ANY_ORDER[name](net, X, other) == IN_ANY_ORDER[name](net, X, X)
