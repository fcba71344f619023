"""Input that can't be used: the error says what was wrong, where, and what is needed instead."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.cluster import AffinityPropagation, Birch, BisectingKMeans, KMeans
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    PolynomialFeatures,
    StandardScaler,
)
from torch import nn
from witnesses import blobs

import neonxc
from neonxc import NEON
from neonxc.lrp import LRP, Composite, Epsilon, Gamma

X = blobs(n=40)
NAMES = ["age", "height", "weight", "income"]
FRAME = pd.DataFrame(X, columns=NAMES)
IMAGES = torch.randn(4, 3, 6, 6)


def km(k=3):
    return KMeans(k, n_init=1, random_state=0)


MODEL, NAMED = km().fit(X), km().fit(FRAME)
ENTRIES = {
    "neuralize": lambda data: neonxc.neuralize(NAMED if hasattr(data, "iloc") else MODEL, data),
    "neuralize pipeline": lambda data: neonxc.neuralize(make_pipeline(StandardScaler(), km()).fit(FRAME), data),
    "predict": lambda data: network(data).predict(data),
    "calibrate": lambda data: network(data).calibrate(data),
    "attribute": lambda data: NEON(network(data)).attribute(data),
    "summary": lambda data: NEON(network(data)).summary(data),
}


def network(data=None):
    return neonxc.neuralize(NAMED if hasattr(data, "iloc") else MODEL)


def deep(features=None):
    features = features or nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
    return neonxc.neuralize(np.eye(4)[:3], features=features)


def spoiled(value, kind="array"):
    data = X.copy()
    data[5, 2] = value
    return {"array": data, "tensor": torch.tensor(data), "frame": pd.DataFrame(data, columns=NAMES)}[kind]


# --- data --------------------------------------------------------------------------------------------------


def everywhere(cases):
    """Every case where a network predicts, and the first one where anything else is done."""
    return pytest.mark.parametrize(
        ("entry", "name"),
        [*(("predict", name) for name in cases), *((entry, next(iter(cases))) for entry in ENTRIES)],
    )


NOT_FINITE = {
    "nan": ("frame", np.nan, "nan in row 5, column 'weight'"),
    "inf": ("tensor", np.inf, "inf in row 5, column 2"),
    "-inf": ("array", -np.inf, "-inf in row 5, column 2"),
}


@everywhere(NOT_FINITE)
def test_values_that_are_not_finite(entry, name):
    kind, value, place = NOT_FINITE[name]
    with pytest.raises(ValueError, match=f"X has a value that is not finite: {place}"):
        ENTRIES[entry](spoiled(value, kind))


def test_missing_values_of_nullable_columns():
    frame = FRAME.convert_dtypes()
    frame.loc[1, "height"] = pd.NA
    with pytest.raises(ValueError, match=r"not finite: nan in row 1, column 'height'"):
        network(frame).predict(frame)


SHAPES = {
    "empty": (X[:0], r"X is empty: shape \[0, 4\]"),
    "no columns": (X[:, :0], r"X is empty: shape \[40, 0\]"),
    "one point": (X[0], r"X needs shape \[points, features\], got \[4\]; a single point is X\.reshape\(1, -1\)"),
    "one number": (3.0, r"X needs shape \[points, features\], got \[\]"),
    "three dimensions": (X[None], r"X needs shape \[points, features\], got \[1, 40, 4\]|X has 40 features"),
    "too narrow": (X[:, :3], r"X has 3 features, the clustering was fitted on 4"),
    "too wide": (np.c_[X, X], r"X has 8 features, the clustering was fitted on 4"),
    "ragged": ([[1, 2, 3, 4], [1, 2]], r"X can't be read as an array of numbers: .*inhomogeneous"),
    "text": ([["a", "b", "c", "d"]], r"X can't be read as an array of numbers: its type is object"),
    "nothing": (None, r"X can't be read as an array of numbers: its type is object"),
    "sparse tensor": (torch.tensor(X).to_sparse(), r"X is sparse; pass X\.to_dense\(\)"),
    "complex": (X + 1j, r"X holds complex numbers; neonxc needs real ones"),
    "complex tensor": (torch.tensor(X + 1j), r"X holds complex numbers; neonxc needs real ones"),
}


@everywhere(SHAPES)
def test_data_of_the_wrong_form(entry, name):
    data, message = SHAPES[name]
    with pytest.raises(ValueError, match=message):
        ENTRIES[entry](data)


COLUMNS = {
    "missing": (
        FRAME[NAMES[:3]],
        r"columns of X differ from the fitted ones: missing \['income'\], unexpected \[\]",
    ),
    "renamed": (FRAME.rename(columns={"age": "Age"}), r"missing \['age'\], unexpected \['Age'\]"),
    "in another order": (
        FRAME[NAMES[::-1]],
        r"X are in another order than at fit time; needed: \['age', 'height'",
    ),
    "text": (
        FRAME.assign(height="tall"),
        r"X has columns that are not numeric: \['height'\]; drop or encode them",
    ),
    "dates": (FRAME.assign(age=pd.Timestamp("2020")), r"columns that are not numeric: \['age'\]"),
    "categories": (FRAME.astype({"weight": "category"}), r"columns that are not numeric: \['weight'\]"),
    "complex": (FRAME.assign(age=1j), r"columns that are not numeric: \['age'\]"),
}


@everywhere(COLUMNS)
def test_frames_with_other_columns(entry, name):
    data, message = COLUMNS[name]
    with pytest.raises(ValueError, match=message):
        ENTRIES[entry](data)


def test_forward_takes_tensors_of_the_right_width():
    with pytest.raises(TypeError, match=r"net\(x\) takes a tensor, got ndarray: net\(torch"):
        network()(X)
    with pytest.raises(ValueError, match=r"x has 3 features, the clustering was fitted on 4"):
        network()(torch.zeros(2, 3))


# --- models ------------------------------------------------------------------------------------------------


class Halve(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X):
        return X / 2


UNFITTED = {
    "KMeans": (KMeans(), r"This KMeans instance is not fitted yet"),
    "Pipeline": (make_pipeline(StandardScaler(), KMeans()), r"This Pipeline instance is not fitted yet"),
    "step": (
        Pipeline([("scale", StandardScaler()), ("km", MODEL)]),
        r"pipeline step 'scale': This StandardScaler",
    ),
}


@pytest.mark.parametrize("name", UNFITTED)
def test_unfitted_models(name):
    model, message = UNFITTED[name]
    with pytest.raises(NotFittedError, match=message):
        neonxc.neuralize(model)


SUPPORTED = r"supported: KMeans, MiniBatchKMeans, .*, centers \[K, d\] .*; with X any fitted clusterer"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (PCA(2), rf"can't neuralize a PCA; {SUPPORTED}"),
        (make_pipeline(StandardScaler(), PCA(2)), rf"can't neuralize a PCA; {SUPPORTED}"),
        ("kmeans", rf"can't neuralize a str; {SUPPORTED}"),
        (KMeans, r"can't neuralize the class KMeans; pass a fitted instance of it"),
    ],
    ids=str,
)
def test_unsupported_models(model, message):
    model = model.fit(X) if isinstance(model, Pipeline) else model
    with pytest.raises(TypeError, match=message):
        neonxc.neuralize(model)


ONE = r"at least 2 clusters: with one there is no competitor"


@pytest.mark.parametrize(
    "model",
    [km(1), BisectingKMeans(1), Birch(n_clusters=1, threshold=6), make_pipeline(StandardScaler(), km(1))],
    ids=lambda model: type(model).__name__,
)
def test_one_cluster(model):
    with pytest.raises(ValueError, match=ONE):
        neonxc.neuralize(model.fit(X))


def twins(model):
    """A fitted model with the centers 1 and 2 made the same."""
    model = model.fit(X)
    if isinstance(model, Birch):
        u, labels = model.subcluster_centers_, model.subcluster_labels_
        u[np.flatnonzero(labels == 2)[0]] = u[np.flatnonzero(labels == 1)[0]]
    else:
        model.cluster_centers_[2] = model.cluster_centers_[1]
    return model


CENTERS = {
    "one": (X[:1], ONE),
    "identical": (X[[0, 1, 2, 3, 1]], r"clusters 1 and 4 have identical centers"),
    "one dimension": (X[0], r"centers need shape \[K, d\], got \[4\]"),
    "three dimensions": (np.zeros((2, 3, 4)), r"centers need shape \[K, d\], got \[2, 3, 4\]"),
    "nan": ([[0.0, 1.0], [2.0, np.nan]], r"centers has a value that is not finite: nan in row 1, column 1"),
    "inf": (torch.tensor([[0.0, 1.0], [-torch.inf, 2.0]]), r"not finite: -inf in row 1, column 0"),
    "empty": (np.zeros((0, 3)), r"centers is empty: shape \[0, 3\]"),
    "text": ([["a"], ["b"]], r"centers can't be read as an array of numbers"),
    "ragged": ([[1, 2], [3]], r"centers can't be read as an array of numbers: .*inhomogeneous"),
    "identical in KMeans": (twins(km()), r"clusters 1 and 2 have identical centers"),
    "identical in Birch": (twins(Birch(n_clusters=3, threshold=6)), r"clusters 1 and 2 have identical centers"),
}


@pytest.mark.parametrize("name", CENTERS)
def test_centers_that_explain_nothing(name):
    model, message = CENTERS[name]
    with pytest.raises(ValueError, match=message):
        neonxc.neuralize(model)


def test_centers_that_only_underflow_tells_apart():
    with pytest.raises(ValueError, match="squared distances between the clusters are at most 0, too small"):
        neonxc.neuralize([[0.0, 0.0], [0.0, 1e-300]])


def test_identical_centers_of_data_that_repeat():
    ones, twice = np.ones((30, 2)), np.repeat([[1.0, 2.0], [3.0, 4.0]], 15, axis=0)
    frame = pd.DataFrame(ones, columns=["a", "b"])
    model = KMeans(3, n_init=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        constant, two = model.fit(ones), KMeans(3, n_init=1, random_state=0).fit(twice)
    same = r"clusters 0 and 1 have identical centers: all 30 points of X are the same \(every column is constant\)"
    few = "have identical centers: X has only 2 different points; fit at most 2 clusters"
    for explained in (neonxc.neuralize, neonxc.explain):
        with pytest.raises(ValueError, match=same):
            explained(constant, ones)
        with pytest.raises(ValueError, match=few):
            explained(two, torch.as_tensor(twice))
    with pytest.raises(ValueError, match=r"all 30 points of X are the same \(constant columns: a, b\)"):
        neonxc.neuralize(labels=np.arange(30) % 3, X=frame)
    with pytest.raises(ValueError, match="identical centers; fit fewer clusters"):
        neonxc.neuralize(constant)


@pytest.mark.parametrize("given", [X, None], ids=["X", "no X"])
@pytest.mark.parametrize("name", ["means_", "precisions_cholesky_", "weights_"])
def test_mixtures_that_were_not_fitted_properly(name, given):
    model = GaussianMixture(3, random_state=0).fit(X)
    getattr(model, name).flat[1] = np.nan
    message = f"the GaussianMixture was not fitted properly: {name} has a value that is not finite: nan"
    with pytest.raises(ValueError, match=message):
        neonxc.neuralize(model, given)


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_mixtures_with_identical_components(kind):
    model = GaussianMixture(3, covariance_type=kind, random_state=0).fit(X)
    model.means_[2] = model.means_[0]
    if kind != "tied":
        model.precisions_cholesky_[2] = model.precisions_cholesky_[0]
    with pytest.raises(ValueError, match="components 0 and 2 have identical means and covariances; fit fewer"):
        neonxc.neuralize(model, X)


def test_spare_components_of_a_bayesian_mixture():
    model = BayesianGaussianMixture(
        n_components=10, weight_concentration_prior_type="dirichlet_distribution", max_iter=500, random_state=0
    ).fit(X)
    assert len(np.unique(model.means_, axis=0)) < 10
    assert (neonxc.neuralize(model, X).predict(X) == model.predict(X)).all()


def test_split_with_identical_centers():
    model = BisectingKMeans(4, random_state=0).fit(X)
    model._bisecting_tree.left.center = model._bisecting_tree.right.center
    with pytest.raises(ValueError, match=r"a split of the hierarchy has identical centers on both sides"):
        neonxc.neuralize(model)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_affinity_propagation_without_centers():
    with pytest.raises(ValueError, match="AffinityPropagation has no centers: it did not converge"):
        neonxc.neuralize(AffinityPropagation(max_iter=1, random_state=0).fit(X))
    with pytest.raises(ValueError, match=r"has no centers: .* a precomputed affinity"):
        neonxc.neuralize(AffinityPropagation(affinity="precomputed", random_state=0).fit(X @ X.T))


STEPS = {
    "polynomial": (
        PolynomialFeatures(2),
        r"PolynomialFeatures is not an affine map neonxc can fold; it folds Stand",
    ),
    "function": (
        FunctionTransformer(np.tanh),
        r"FunctionTransformer of tanh can't be folded; supported are func=None and .* np\.log, ",
    ),
    "own": (Halve(), r"Halve is not an affine map neonxc can fold; it folds StandardScaler, .*'passthrough'"),
    "clipped": (MinMaxScaler(clip=True), r"MinMaxScaler\(clip=True\) is not affine; set clip=False"),
    "inside": (make_pipeline(StandardScaler(), Halve()), r"step 'halve': Halve is not an affine map"),
    "column": (
        ColumnTransformer([("poly", PolynomialFeatures(), [0])]),
        r"transformer 'poly': PolynomialFeatures is not an affine map",
    ),
    "norm of columns": (
        ColumnTransformer([("unit", Normalizer(), [0, 1])]),
        r"a Normalizer inside a ColumnTransformer \('unit'\) can't be folded",
    ),
    "weighted": (
        ColumnTransformer(
            [("a", StandardScaler(), [0]), ("b", MaxAbsScaler(), [1])], transformer_weights={"a": 2}
        ),
        r"transformer_weights of a ColumnTransformer are not supported",
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_that_can_not_be_folded_are_named(name):
    step, message = STEPS[name]
    model = Pipeline([("center", StandardScaler(with_std=False)), ("my step", step), ("km", km())]).fit(abs(X))
    with pytest.raises(ValueError, match=f"pipeline step 'my step': {message}"):
        neonxc.neuralize(model, X)


def test_two_normalizers():
    model = make_pipeline(Normalizer(), StandardScaler(), Normalizer("l1"), km()).fit(X)
    with pytest.raises(ValueError, match=r"'normalizer-2': a pipeline that shifts points between two Normalizer"):
        neonxc.neuralize(model)


def test_pipeline_without_reference_points():
    twice = ColumnTransformer([("a", StandardScaler(), [0, 1, 2, 3]), ("b", MinMaxScaler(), [0, 1, 2, 3])])
    model = make_pipeline(twice, Normalizer(), km()).fit(X)
    with pytest.raises(
        ValueError, match=r"maps no raw point to the midpoints .* repeats columns before a Normalizer"
    ):
        neonxc.neuralize(model)


@pytest.mark.parametrize("features", [lambda x: x, "vgg16", IMAGES], ids=["function", "name", "tensor"])
def test_features_that_are_no_module(features):
    with pytest.raises(TypeError, match=rf"features needs an nn\.Module, got {type(features).__name__}"):
        neonxc.neuralize(MODEL, features=features)


def test_features_of_another_width():
    net = nn.Conv2d(3, 5, 3)
    with pytest.raises(ValueError, match=r"has 5 features, the clustering was fitted on 4"):
        neonxc.neuralize(MODEL, IMAGES, features=net)


def test_networks_that_look_inputs_up():
    net = neonxc.neuralize(np.eye(4)[:3], features=nn.Sequential(nn.Embedding(9, 4), nn.Flatten()))
    for ask in (net.predict, net.calibrate, NEON(net).attribute):
        with pytest.raises(ValueError, match=r"Embedding .* pass X as embedding\(X\)"):
            ask(torch.tensor([[1], [2]]))


@pytest.mark.parametrize("value", [-1, float("nan")])
def test_beta_out_of_range(value):
    with pytest.raises(ValueError, match=r"beta needs a number from 0 to inf, got"):
        network().beta = value


# --- targets -----------------------------------------------------------------------------------------------

TARGETS = {
    "too great": (3, r"{} needs labels among \[0, 1, 2\], got 3"),
    "negative": (-1, r"{} needs labels among \[0, 1, 2\], got -1"),
    "one of many": ([0] * 39 + [7], r"{} needs labels among \[0, 1, 2\], got 7"),
    "fraction": (1.5, r"{} needs labels among \[0, 1, 2\], got 1\.5"),
    "fractions": (np.full(40, 0.5), r"{} needs labels among \[0, 1, 2\], got 0\.5"),
    "mask": (np.ones(40, dtype=bool), r"{} needs labels among \[0, 1, 2\], got True"),
    "name": ("cat", r"{} needs labels among \[0, 1, 2\], got 'cat'"),
    "too few": ([0, 1], r"{} has 2 entries for 40 inputs"),
    "too many": (np.zeros(41, dtype=int), r"{} has 41 entries for 40 inputs"),
    "two dimensions": (
        np.zeros((40, 2), dtype=int),
        r"{} needs one column or one per input \(40\), got shape \[40, 2",
    ),
}


@pytest.mark.parametrize(
    ("name", "argument"), [*((name, "target") for name in TARGETS), ("fraction", "competitor")]
)
def test_unusable_targets(name, argument):
    value, message = TARGETS[name]
    for argument in ("target", "competitor"):
        with pytest.raises(ValueError, match=message.format(argument)):
            NEON(network()).attribute(X, **{argument: value})


def test_targets_and_competitors_of_different_lengths():
    cases = {(40, 39): "competitor has 39", (39, 40): "target has 39", (2, 3): "target has 2"}
    for lengths, message in cases.items():
        target, competitor = (np.full(n, label) for label, n in enumerate(lengths))
        with pytest.raises(ValueError, match=f"{message} entries for 40 inputs"):
            NEON(network()).attribute(X, target, competitor)


@pytest.mark.parametrize("make", [int, torch.tensor, lambda c: np.full(40, c)])
def test_a_cluster_does_not_compete_with_itself(make):
    with pytest.raises(
        ValueError, match=r"target and competitor are both 1; a cluster does not compete with itself"
    ):
        NEON(network()).attribute(X, target=make(1), competitor=1)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ((0, 9, 1), r"target has the place \(9, 1\), outside the feature map of shape \[4, 4\]"),
        ((5, 1, 1), r"target needs labels among \[0, 1, 2\], got 5"),
        ((0, 1), r"target has the place \(1,\), outside the feature map of shape \[4, 4\]"),
        ([0, 1, 2], r"target has 3 entries for 4 inputs"),
    ],
)
def test_unusable_targets_on_a_map(target, message):
    with pytest.raises(ValueError, match=message):
        NEON(deep()).attribute(IMAGES, target=target)


@pytest.mark.parametrize("clusters", [[], 1, [0.5], [[0, 1]], "all"], ids=str)
def test_unusable_clusters(clusters):
    with pytest.raises(ValueError, match=r"clusters needs (a sequence of )?labels among \[0, 1, 2\], got"):
        NEON(deep()).heatmaps(IMAGES, clusters=clusters)
    with pytest.raises(ValueError, match=r"clusters needs labels among \[0, 1, 2\], got 3"):
        NEON(deep()).heatmaps(IMAGES, clusters=[0, 3])


@pytest.mark.parametrize("call", ["attribute", "heatmaps", "summary"])
def test_images_with_values_that_are_not_finite(call):
    images = IMAGES.clone()
    images[2, 1, 3, 3] = np.nan
    with pytest.raises(ValueError, match=r"X has a value that is not finite: nan at index \[2, 1, 3, 3\]"):
        getattr(NEON(deep()), call)(images)
    with pytest.raises(ValueError, match=r"X is empty: shape \[0, 3, 6, 6\]"):
        getattr(NEON(deep()), call)(images[:0])


@pytest.mark.parametrize("n", [-1, 1.5], ids=str)
def test_number_of_prototypes(n):
    with pytest.raises(ValueError, match=r"n_prototypes needs a whole number >= 0, got"):
        NEON(network()).summary(X, n_prototypes=n)


# --- NEON and LRP ------------------------------------------------------------------------------------------


def test_neon_of_something_else():
    with pytest.raises(TypeError, match=r"NEON needs a network from neonxc\.neuralize, got KMeans"):
        NEON(MODEL)
    with pytest.raises(ValueError, match=r"head_rule needs 'linear' or 'midpoint', got 'mid'"):
        NEON(deep(), head_rule="mid")
    with pytest.raises(ValueError, match="head_rule needs 'midpoint' for this network, got 'linear'"):
        NEON(network(), head_rule="linear")
    with pytest.raises(ValueError, match="heatmaps need a network with a feature network"):
        NEON(network()).heatmaps(X)
    with pytest.raises(ValueError, match=r"inputs needs one tensor, got a tuple of 2"):
        NEON(network()).attribute((torch.tensor(X), torch.tensor(X)))


@pytest.mark.parametrize(
    "make", [lambda c: NEON(deep(), c), lambda c: LRP(nn.Linear(2, 2), c)], ids=["NEON", "LRP"]
)
@pytest.mark.parametrize("composite", ["gamma", Gamma(0.25)], ids=["name", "rule"])
def test_composites_that_are_none(make, composite):
    with pytest.raises(TypeError, match=rf"needs a neonxc\.lrp\.Composite, got {type(composite).__name__}"):
        make(composite)


def test_lrp_of_something_else():
    with pytest.raises(TypeError, match=r"LRP needs an nn\.Module, got function"):
        LRP(lambda x: x)
    for inputs, got in (
        (X, "ndarray; conv"),
        (torch.ones(2, 4, dtype=torch.long), r"torch\.int64"),
        ([[1.0]], "list"),
    ):
        with pytest.raises(TypeError, match=rf"inputs needs a floating-point (torch\.T|t)ensor, got {got}"):
            LRP(nn.Linear(4, 2), Composite()).attribute(inputs, 0)


@pytest.mark.parametrize("epsilon", [-1e-6, float("inf"), float("nan"), "a", None, True])
def test_epsilon_is_a_number_from_0(epsilon):
    with pytest.raises(ValueError, match=r"epsilon needs a finite number >= 0, got"):
        Epsilon(epsilon)
    with pytest.raises(ValueError, match=r"gamma needs a finite number >= 0, got"):
        Gamma(epsilon)


def test_a_pca_that_was_fitted_again():
    model = make_pipeline(StandardScaler(), PCA(2), km()).fit(X)
    model[1].fit(X[:, :3])
    with pytest.raises(
        ValueError, match=r"pipeline step 'pca' does not fit the steps before it .*; fit the Pipeline again"
    ):
        neonxc.neuralize(model)
