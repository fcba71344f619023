"""Input that can't be used: the error says what was wrong, where, and what is needed instead."""

import warnings
from functools import cache, partial

import numpy as np
import pandas as pd
import pytest
import torch
from refusals import refusals, refused
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.cluster import DBSCAN, AffinityPropagation, AgglomerativeClustering, Birch, BisectingKMeans, KMeans
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris, load_wine, make_blobs, make_moons
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    PolynomialFeatures,
    StandardScaler,
    scale,
)
from torch import nn
from witnesses import blobs

import neonxc
from neonxc import NEON, counterfactual, neuralize, plot
from neonxc.evaluation import (
    BlurImputer,
    KDEImputer,
    WordImputer,
    ZeroImputer,
    calibrate_by_flipping,
    compare,
    methods,
    pixel_flipping,
)
from neonxc.lrp import LRP, AlphaBeta, Epsilon, Gamma, ZBox
from neonxc.models import KernelKMeans, WordVectors

X = blobs(n=40)
NAMES = ["age", "height", "weight", "income"]
FRAME = pd.DataFrame(X, columns=NAMES)
MOONS, MOON = make_moons(400, noise=0.05, random_state=0)


def km(k=3):
    return KMeans(k, n_init=1, random_state=0)


@cache
def model(named=False):
    return km().fit(FRAME if named else X)


@cache
def network(named=False):
    return neuralize(model(named))


@cache
def deep():
    return neuralize(np.eye(4)[:3], features=nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()))


@cache
def images(spoiled=False):
    pixels = torch.randn(4, 3, 6, 6)
    if spoiled:
        pixels[2, 1, 3, 3] = np.nan
    return pixels


def named(data):
    return hasattr(data, "iloc")


def spoiled(value):
    data = X.copy()
    data[5, 2] = value
    return data


# --- tables ------------------------------------------------------------------------------------------------

ENTRIES = [
    lambda data: network(named(data)).predict(data),
    lambda data: neuralize(model(named(data)), data),
    lambda data: neuralize(make_pipeline(StandardScaler(), km()).fit(FRAME), data),
    lambda data: network(named(data)).calibrate(data),
    lambda data: NEON(network(named(data))).attribute(data),
    lambda data: NEON(network(named(data))).summary(data),
]


def everywhere(table):
    """Refusals of the data of a table where a network predicts, and of its first row also by the other entries."""
    rows = {}
    for message, data in table.items():
        entries = ENTRIES[: 1 if rows else None]
        rows[message] = [partial(entry, each) for entry in entries for each in data]
    return refusals(rows)


test_values_that_are_not_finite = everywhere(
    {
        "X has a value that is not finite: nan in row 5, column 'weight'": [
            pd.DataFrame(spoiled(np.nan), columns=NAMES)
        ],
        "X has a value that is not finite: inf in row 5, column 2": [torch.tensor(spoiled(np.inf))],
        "not finite: nan in row 1, column 'height'": [FRAME.convert_dtypes().mask(X[1, 1] == FRAME)],
    }
)
test_data_of_the_wrong_form = everywhere(
    {
        r"X is empty: shape \[0, 4\]": [X[:0]],
        r"X is empty: shape \[40, 0\]": [X[:, :0]],
        r"X needs shape \[points, features\], got \[4\]; a single point is X\.reshape\(1, -1\)": [X[0]],
        r"X needs shape \[points, features\], got \[\]": [3.0],
        r"X needs shape \[points, features\], got \[1, 40, 4\]|X has 40 features": [X[None]],
        "X has 3 features, the clustering was fitted on 4": [X[:, :3]],
        "X can't be read as an array of numbers: .*inhomogeneous": [[[1, 2, 3, 4], [1, 2]]],
        "X can't be read as an array of numbers: its type is object": [[["a", "b", "c", "d"]], None],
        r"X is sparse; pass X\.to_dense\(\)": [torch.tensor(X).to_sparse()],
        "X holds complex numbers; neonxc needs real ones": [X + 1j, torch.tensor(X + 1j)],
    }
)
test_frames_with_other_columns = everywhere(
    {
        r"columns of X differ from the fitted ones: missing \['income'\], unexpected \[\]": [FRAME[NAMES[:3]]],
        r"missing \['age'\], unexpected \['Age'\]": [FRAME.rename(columns={"age": "Age"})],
        r"X has columns that are not numeric: \['height'\]; drop or encode them": [FRAME.assign(height="tall")],
        r"columns that are not numeric: \['age'\]": [FRAME.assign(age=pd.Timestamp("2020")), FRAME.assign(age=1j)],
        r"columns that are not numeric: \['weight'\]": [FRAME.astype({"weight": "category"})],
    }
)

# --- networks ----------------------------------------------------------------------------------------------


class Squared(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X):
        return X**2


test_unfitted_models = refusals(
    {
        "This KMeans instance is not fitted yet": lambda: neuralize(KMeans()),
        "This Pipeline instance is not fitted yet": lambda: neuralize(make_pipeline(StandardScaler(), KMeans())),
        "pipeline step 'scale': This StandardScaler": lambda: neuralize(
            Pipeline([("scale", StandardScaler()), ("km", model())])
        ),
        "DBSCAN": lambda: neuralize(DBSCAN(), MOONS),
    },
    NotFittedError,
)
SUPPORTED = r"supported: KMeans, MiniBatchKMeans, .*, centers \[K, d\] .*; with X any fitted clusterer"
test_other_models = refusals(
    {
        f"can't neuralize a PCA; {SUPPORTED}": [
            lambda: neuralize(PCA(2)),
            lambda: neuralize(make_pipeline(StandardScaler(), PCA(2)).fit(X)),
        ],
        f"can't neuralize a str; {SUPPORTED}": lambda: neuralize("kmeans"),
        "can't neuralize the class KMeans; pass a fitted instance of it": lambda: neuralize(KMeans),
        r"net\(x\) takes a tensor, got ndarray: net\(torch": lambda: network()(X),
        r"features needs an nn\.Module, got function": lambda: neuralize(model(), features=lambda x: x),
        r"features needs an nn\.Module, got Tensor": lambda: neuralize(model(), features=torch.tensor(X)),
    },
    TypeError,
)


def twins(model):
    """A fitted model with the centers 1 and 2 made the same."""
    model = model.fit(X)
    if isinstance(model, Birch):
        u = model.subcluster_centers_
        labels = model.subcluster_labels_
        u[np.flatnonzero(labels == 2)[0]] = u[np.flatnonzero(labels == 1)[0]]
    else:
        model.cluster_centers_[2] = model.cluster_centers_[1]
    return model


test_centers_that_explain_nothing = refusals(
    {
        "at least 2 clusters: with one there is no competitor": [
            lambda: neuralize(km(1).fit(X)),
            lambda: neuralize(BisectingKMeans(1).fit(X)),
            lambda: neuralize(Birch(n_clusters=1, threshold=6).fit(X)),
            lambda: neuralize(X[:1]),
        ],
        "clusters 1 and 4 have identical centers": lambda: neuralize(X[[0, 1, 2, 3, 1]]),
        r"centers need shape \[K, d\], got \[2, 3, 4\]": lambda: neuralize(np.zeros((2, 3, 4))),
        r"centers need shape \[K, d\], got \[4\]": lambda: neuralize(X[0]),
        "centers has a value that is not finite: nan in row 1, column 1": lambda: neuralize(
            [[0.0, 1], [2, np.nan]]
        ),
        r"centers is empty: shape \[0, 3\]": lambda: neuralize(np.zeros((0, 3))),
        "centers can't be read as an array of numbers: .*inhomogeneous": lambda: neuralize([[1, 2], [3]]),
        "clusters 1 and 2 have identical centers": [
            lambda: neuralize(twins(km())),
            lambda: neuralize(twins(Birch(n_clusters=3, threshold=6))),
        ],
        "squared distances between the clusters are at most 0, too small": lambda: neuralize(
            [[0.0, 0], [0, 1e-300]]
        ),
        "beta needs a number from 0 to inf, got": [
            lambda bad=bad: setattr(network(), "beta", bad) for bad in (-1, np.nan)
        ],
        "x has 3 features, the clustering was fitted on 4": lambda: network()(torch.zeros(2, 3)),
        "has 5 features, the clustering was fitted on 4": lambda: neuralize(
            model(), images(), features=nn.Conv2d(3, 5, 3)
        ),
    }
)


def test_identical_centers_of_data_that_repeat():
    ones = np.ones((30, 2))
    twice = np.repeat([[1.0, 2.0], [3.0, 4.0]], 15, axis=0)
    frame = pd.DataFrame(ones, columns=["a", "b"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        constant = km().fit(ones)
        two = km().fit(twice)
    same = r"clusters 0 and 1 have identical centers: all 30 points of X are the same \(every column is constant\)"
    few = "have identical centers: X has only 2 different points; fit at most 2 clusters"
    for explained in (neuralize, neonxc.explain):
        refused(same, explained, constant, ones)
        refused(few, explained, two, torch.as_tensor(twice))
    column = "no column left to cluster by; a, b have only one value"
    refused(column, neuralize, labels=np.arange(30) % 3, X=frame)
    refused("identical centers; fit fewer clusters", neuralize, constant)


@pytest.mark.parametrize("name", ["means_", "precisions_cholesky_", "weights_"])
def test_mixtures_that_were_not_fitted_properly(name):
    mixture = GaussianMixture(3, random_state=0).fit(X)
    getattr(mixture, name).flat[1] = np.nan
    message = f"the GaussianMixture was not fitted properly: {name} has a value that is not finite: nan"
    for given in (X, None):
        refused(message, neuralize, mixture, given)


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_mixtures_with_identical_components(kind):
    mixture = GaussianMixture(3, covariance_type=kind, random_state=0).fit(X)
    mixture.means_[2] = mixture.means_[0]
    if kind != "tied":
        mixture.precisions_cholesky_[2] = mixture.precisions_cholesky_[0]
    refused("components 0 and 2 have identical means and covariances; fit fewer", neuralize, mixture, X)


def test_spare_components_of_a_bayesian_mixture():
    mixture = BayesianGaussianMixture(
        n_components=10, weight_concentration_prior_type="dirichlet_distribution", max_iter=500, random_state=0
    ).fit(X)
    assert len(np.unique(mixture.means_, axis=0)) < 10
    assert (neuralize(mixture, X).predict(X) == mixture.predict(X)).all()


def test_split_with_identical_centers():
    hierarchy = BisectingKMeans(4, random_state=0).fit(X)
    hierarchy._bisecting_tree.left.center = hierarchy._bisecting_tree.right.center
    refused("a split of the hierarchy has identical centers on both sides", neuralize, hierarchy)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_affinity_propagation_without_centers():
    unfinished = AffinityPropagation(max_iter=1, random_state=0).fit(X)
    refused("AffinityPropagation has no centers: it did not converge", neuralize, unfinished)
    precomputed = AffinityPropagation(affinity="precomputed", random_state=0).fit(X @ X.T)
    refused("knows a matrix of distances or affinities alone: pass the rows", neuralize, precomputed)


def stepping(step):
    steps = Pipeline([("center", StandardScaler(with_std=False)), ("my step", step), ("km", km())])
    return lambda: neuralize(steps.fit(abs(X)), X)


def fitted_again():
    pipeline = make_pipeline(StandardScaler(), PCA(2), km()).fit(X)
    pipeline[1].fit(X[:, :3])
    neuralize(pipeline)


test_steps_that_can_not_be_folded = refusals(
    {
        f"pipeline step 'my step': {message}": stepping(step)
        for message, step in {
            "PolynomialFeatures is not an affine map neonxc can fold; it folds Stand": PolynomialFeatures(2),
            r"FunctionTransformer of tanh can't be folded; supported are func=None and .* np\.log, ": (
                FunctionTransformer(np.tanh)
            ),
            "Squared is not an affine map neonxc can fold; it folds StandardScaler, .*'passthrough'": Squared(),
            r"MinMaxScaler\(clip=True\) is not affine; set clip=False": MinMaxScaler(clip=True),
            "step 'squared': Squared is not an affine map": make_pipeline(StandardScaler(), Squared()),
            "transformer 'poly': PolynomialFeatures is not an affine map": ColumnTransformer(
                [("poly", PolynomialFeatures(), [0])]
            ),
            r"a Normalizer inside a ColumnTransformer \('unit'\) can't be folded": ColumnTransformer(
                [("unit", Normalizer(), [0, 1])]
            ),
            r"a Normalizer inside a FeatureUnion \('unit'\) can't be folded": FeatureUnion(
                [("scaled", MaxAbsScaler()), ("unit", Normalizer())]
            ),
            "transformer 'squared': Squared is not an affine map": FeatureUnion([("squared", Squared())]),
        }.items()
    }
    | {
        "'normalizer-2': a pipeline that shifts points between two Normalizer": lambda: neuralize(
            make_pipeline(Normalizer(), StandardScaler(), Normalizer("l1"), km()).fit(X)
        ),
        "maps no raw point to the midpoints .* repeats columns before a Normalizer": lambda: neuralize(
            make_pipeline(
                ColumnTransformer([("a", StandardScaler(), [0, 1, 2, 3]), ("b", MinMaxScaler(), [0, 1, 2, 3])]),
                Normalizer(),
                km(),
            ).fit(X)
        ),
        "pipeline step 'pca' does not fit the steps before it .*; fit the Pipeline again": fitted_again,
    }
)


def test_networks_that_look_inputs_up():
    net = neuralize(np.eye(4)[:3], features=nn.Sequential(nn.Embedding(9, 4), nn.Flatten()))
    for ask in (net.predict, net.calibrate, NEON(net).attribute):
        refused(r"Embedding .* pass X as embedding\(X\)", ask, torch.tensor([[1], [2]]))


# --- attribution -------------------------------------------------------------------------------------------


def attributed(*arguments, **options):
    return lambda: NEON(network()).attribute(X, *arguments, **options)


def mapped(target):
    NEON(deep()).attribute(images(), target=target)


def asked(make):
    return [lambda name=name: getattr(NEON(deep()), name)(make()) for name in ("attribute", "heatmaps", "summary")]


test_targets = refusals(
    {
        f"{argument} {message}": attributed(**{argument: value})
        for argument in ("target", "competitor")
        for message, value in {
            r"needs labels among \[0, 1, 2\], got 3": 3,
            r"needs labels among \[0, 1, 2\], got -1": -1,
            r"needs labels among \[0, 1, 2\], got 7": [0] * 39 + [7],
            r"needs labels among \[0, 1, 2\], got 1\.5": 1.5,
            r"needs labels among \[0, 1, 2\], got True": np.ones(40, dtype=bool),
            r"needs labels among \[0, 1, 2\], got 'cat'": "cat",
            "has 2 entries for 40 inputs": [0, 1],
            r"needs one column or one per input \(40\), got shape \[40, 2": np.zeros((40, 2), dtype=int),
        }.items()
    }
    | {
        "competitor has 39 entries for 40 inputs": attributed(np.full(40, 0), np.full(39, 1)),
        "target and competitor are both 1; a cluster does not compete with itself": [
            attributed(one, 1) for one in (1, torch.tensor(1), np.full(40, 1))
        ],
        r"inputs needs one tensor, got a tuple of 2": lambda: NEON(network()).attribute((torch.tensor(X),) * 2),
        "heatmaps need a network with a feature network": lambda: NEON(network()).heatmaps(X),
        "head_rule needs 'midpoint' for this network, got 'linear'": lambda: NEON(network(), head_rule="linear"),
        "head_rule needs 'linear' or 'midpoint', got 'mid'": lambda: NEON(deep(), head_rule="mid"),
        "n_prototypes needs a whole number >= 0, got": [
            lambda n=n: NEON(network()).summary(X, n_prototypes=n) for n in (-1, 1.5)
        ],
        r"target has the place \(9, 1\), outside the feature map of shape \[4, 4\]": lambda: mapped((0, 9, 1)),
        r"target needs labels among \[0, 1, 2\], got 5": lambda: mapped((5, 1, 1)),
        r"target has the place \(1,\), outside the feature map of shape \[4, 4\]": lambda: mapped((0, 1)),
        "target has 3 entries for 4 inputs": lambda: mapped([0, 1, 2]),
        r"clusters needs (a sequence of )?labels among \[0, 1, 2\], got": [
            partial(lambda some: NEON(deep()).heatmaps(images(), clusters=some), some)
            for some in ([], 1, [0.5], [[0, 1]], "all")
        ],
        r"clusters needs labels among \[0, 1, 2\], got 3": lambda: NEON(deep()).heatmaps(
            images(), clusters=[0, 3]
        ),
        r"X has a value that is not finite: nan at index \[2, 1, 3, 3\]": asked(lambda: images(True)),
        r"X is empty: shape \[0, 3, 6, 6\]": asked(lambda: images()[:0]),
    }
)


LINEAR = LRP(nn.Linear(4, 2))
test_other_types = refusals(
    {
        r"NEON needs a network from neonxc\.neuralize, got KMeans": lambda: NEON(model()),
        r"needs a neonxc\.lrp\.Composite, got Gamma": [
            lambda: NEON(deep(), Gamma(0.25)),
            lambda: LRP(nn.ReLU(), Gamma(0.25)),
        ],
        r"LRP needs an nn\.Module, got function": lambda: LRP(lambda x: x),
        r"inputs needs a floating-point (torch\.T|t)ensor, got ndarray; conv": lambda: LINEAR.attribute(X, 0),
        r"inputs needs a floating-point (torch\.T|t)ensor, got torch\.int64": lambda: LINEAR.attribute(
            torch.ones(2, 4, dtype=torch.long), 0
        ),
    },
    TypeError,
)


# --- rules -------------------------------------------------------------------------------------------------

test_strengths_of_rules = refusals(
    {
        f"{name} needs a finite number >= 0, got": [
            partial(rule, bad) for bad in (-1e-6, np.inf, np.nan, "a", None, True)
        ]
        for name, rule in (("epsilon", Epsilon), ("gamma", Gamma))
    }
    | {
        "alpha|beta": [partial(AlphaBeta, *given) for given in ((1.0, 1.0), (0.5, -0.5), (np.inf, np.inf))],
        "low.* high": [
            partial(ZBox, *bounds)
            for bounds in ((np.nan, 1.0), (0.0, np.inf), ([0.0, 2.0], 1.0), ([0.0] * 2, [1.0] * 3), ([0.0], [0.0]))
        ],
    }
)


# --- models ------------------------------------------------------------------------------------------------


def kernel(data=None, weight=None, **options):
    return lambda: KernelKMeans(**options).fit(MOONS, labels=data, sample_weight=weight)


test_kernel_kmeans = refusals(
    {
        r"'n_clusters' .* an int in the range \[1, inf\). Got 0 instead": kernel(n_clusters=0),
        "'n_support' .* Got 1.5 instead": kernel(n_support=1.5),
        r"'gamma' .* in the range \(0.0, inf\) or a str among \{'median'\}": kernel(gamma="auto"),
        "'gamma' .* Got inf instead": kernel(gamma=np.inf),
        "'objective' .* among .*'spherical'.* Got 'rbf' instead": kernel(objective="rbf"),
        "'init' .* or an array-like. Got 'k-means.*' instead": kernel(init="k-means++"),
        "'batch_size' .* or None. Got 0 instead": kernel(batch_size=0),
        "n_samples=400 points that count, fewer than n_clusters=401": kernel(n_clusters=401),
        "init has 1 different label, n_clusters is 8": kernel(init=np.zeros(400)),
        r"init needs one label per point, shape \(400,\), got \(3,\)": kernel(init=np.zeros(3)),
        'batch_size applies to objective="lme" alone': kernel(batch_size=50, objective="feature"),
        'weighted applies to objective="lme" alone': kernel(weighted=True, objective="spherical"),
        r"labels needs one label per point, shape \(400,\), got \(5,\)": kernel([0, 1, 0, 1, 0], n_clusters=2),
        "noise": kernel(np.full(400, -1), n_clusters=2),
        "labels needs whole numbers or names, got": kernel(MOONS[:, 0], n_clusters=2),
        "labels needs whole numbers or names, got both": kernel(
            np.array(["a", 1] * 200, dtype=object), n_clusters=2
        ),
        "sample_weight": kernel(MOON, np.full(400, -1.0), n_clusters=2),
        "[sS]ample.weight": kernel(MOON, np.zeros(400), n_clusters=2),
        "batch_size does not apply where labels are given": kernel(MOON, n_clusters=2, batch_size=50),
    }
)
test_kernel_kmeans_that_is_not_fitted = refusals(
    {
        "not fitted": [
            lambda: KernelKMeans(2, batch_size=50).predict(MOONS),
            lambda: neuralize(KernelKMeans(2, batch_size=50)),
        ]
    },
    NotFittedError,
)


def vocabulary(ids):
    return WordVectors(["aaaa", "bbbb"], np.random.default_rng(0).normal(size=(2, 2)), [0.5, 1.0])(ids)


def learned(*texts, n_dimensions=1, **options):
    return lambda: WordVectors.from_texts(texts, n_dimensions, **{"min_count": 1} | options)


def ranked(n_dimensions, **options):
    return learned("aaa bbb ccc ddd eee", n_dimensions=n_dimensions, **options)


EYE = np.eye(2)
test_words = refusals(
    {
        "integers from -1 to 1": [
            lambda: vocabulary(torch.tensor([[0, 5]])),
            lambda: vocabulary(torch.tensor([[0, -2]])),
            lambda: vocabulary(torch.tensor([[0.5]])),
        ],
        r"\[documents, words\]": [lambda: vocabulary(torch.tensor([0, 1])), lambda: vocabulary([[0, 1]])],
        "no word of the vocabulary": lambda: vocabulary(torch.tensor([[0], [-1]])),
        r"at least three letters, got \[\]": lambda: WordVectors([], np.empty((0, 2))),
        "words needs distinct.*'cat'": lambda: WordVectors(["cat", "cat"], EYE),
        "words needs distinct lower-case words.*'Cat'": lambda: WordVectors(["Cat", "dog"], EYE),
        "words needs distinct lower-case words.*'of'": lambda: WordVectors(["cat", "of"], EYE),
        r"vectors \[1, d\]": lambda: WordVectors(["cat"], EYE),
        r"weights \[2\]": lambda: WordVectors(["cat", "dog"], EYE, [1.0]),
        "'dog' needs a finite vector": lambda: WordVectors(["cat", "dog"], [[1.0], [np.nan]]),
        "positive": lambda: WordVectors(["cat", "dog"], EYE, [1.0, 0.0]),
        "or more, 0; got 1": learned("a b", "the"),
        "no two words of the vocabulary occur": learned("aaa", "bbb"),
        "n_dimensions needs .* or more, 5; got 5": ranked(5),
        "n_dimensions needs a whole number >= 1": ranked(0),
        "window needs a whole number": ranked(2, window=2.5),
        "max_words needs a whole number": ranked(2, max_words=-1),
        "'english'": ranked(2, stop_words="german"),
    }
)


@cache
def iris():
    return load_iris().data


def soft(model, **options):
    return lambda: neuralize(model.fit(iris()) if hasattr(model, "fit") else model, **options)


test_soft_heads = refusals(
    {
        "give k-means a stiffness=": soft(km(), threshold=0.9),
        "between 0 and 1": soft(km(), stiffness=1, threshold=1.0),
        "stiffness needs a number between 0 and inf": [soft(km(), stiffness=-1.0), soft(km(), stiffness="much")],
        "threshold needs a number between 0 and 1": soft(nn.Linear(6, 4), threshold="high"),
        "stiffness= is for k-means": soft(nn.Linear(6, 4), stiffness=2.0),
        "this model has none": soft(BisectingKMeans(3), threshold=0.5),
        "at least 2 clusters": soft(GaussianMixture(1)),
        "a Normalizer before a Gaussian mixture": soft(make_pipeline(Normalizer(), GaussianMixture(3))),
        "not finite": soft(nn.Linear(6, 4).requires_grad_(False).apply(lambda one: one.weight.fill_(torch.nan))),
    }
)


def of_labels(labels, **options):
    return lambda: neuralize(labels=labels, X=MOONS, **options)


test_labels_alone = refusals(
    {
        "a clustering by its labels alone needs the X": lambda: neuralize(AgglomerativeClustering().fit(MOONS)),
        "needs the X it was fitted on": lambda: neuralize(labels=[0, 1]),
        r"one label per point, shape \(400,\)": of_labels([0, 1]),
        "at least 2 clusters": of_labels(np.zeros(400)),
        "noise": of_labels(np.full(400, -1)),
        "model looks like labels, which go by name": lambda: neuralize(model().labels_, X),
        "model looks like labels": lambda: neuralize(model().labels_.tolist(), X),
        "X looks like labels, which go by name": lambda: neuralize(X, model().labels_),
        "X has 3 features, the clustering was fitted on 2": lambda: neuralize(
            DBSCAN(0.3).fit(MOONS), np.c_[MOONS, MOON]
        ),
        "no core points, so that all rows are noise": lambda: neuralize(DBSCAN(eps=1e-9).fit(X), X),
    }
)
test_labels_of_other_types = refusals(
    {
        "takes a model, or labels= and X=": lambda: neuralize(),
        "takes a model, or": lambda: neuralize(DBSCAN().fit(MOONS), MOONS, labels=np.zeros(400)),
        "X needs the data, got a KMeans; the model comes first": lambda: neuralize(X, model()),
        "labels needs a label for each row of X, got a KM": lambda: neuralize(labels=model(), X=X),
    },
    TypeError,
)

# --- evaluation --------------------------------------------------------------------------------------------


@cache
def wine():
    points = scale(load_wine().data)
    net = neuralize(KMeans(6, n_init=1, random_state=0).fit(points), points)
    return net, points, NEON(net).attribute(points)


def flipping(*imputer, **options):
    return lambda: pixel_flipping(*wine(), *imputer, **options)


def spoiled_flipping(change):
    net, points, relevance = wine()
    pixel_flipping(net, points, change(relevance))


def compared(methods, *others, **options):
    return lambda: compare(*wine()[:2], methods, *others or [ZeroImputer()], **options)


test_flipping = refusals(
    {
        "relevance needs the shape of X": lambda: spoiled_flipping(lambda relevance: relevance[:, :5]),
        "relevance has a value that is not finite": lambda: spoiled_flipping(lambda relevance: relevance * np.nan),
        "target": flipping(target=9),
        'mode needs "insert" or "remove"': flipping(mode="add"),
        'order needs "most" or "least"': flipping(order="best"),
        "repeats needs a whole number >= 1": flipping(repeats=0),
        'groups needs "pixels" or "channels"': flipping(groups="channels"),
        "groups needs whole numbers": flipping(groups=np.zeros(4, int)),
        "X has 3 features, the clustering was fitted on 13": lambda: flipping(KDEImputer(wine()[1][:, :3]))(),
        "BlurImputer needs images": flipping(BlurImputer()),
        "groups=2 needs images": flipping(groups=2),
        r"net needs logits \[N, K\], one decision per input, got shape \[1, 4, 4, 4\]": lambda: pixel_flipping(
            nn.Conv2d(3, 4, 3), *[torch.rand(2, 3, 6, 6)] * 2, target=0
        ),
        "baseline is for the default methods": compared({"NEON": methods.neon}, baseline="zero"),
        "baseline has 2 features, the clustering was fitted on 13": compared(None, baseline=[0.0, 1.0]),
        'baseline needs "mean", "zero" or an array': compared(None, baseline="median"),
        "points needs a whole number >= 1 or None": compared(["NEON"], points=0),
        "X needs points that are not all on a border": lambda: calibrate_by_flipping(
            neuralize(np.array([[-1.0, 0.0], [1.0, 0.0]])), np.array([[0.0, 1.0], [0.0, 2.0]])
        ),
        "bandwidth needs a number > 0": lambda: KDEImputer(X, bandwidth=0),
        "at least 2 points": lambda: KDEImputer(X[:1]),
        "no known word to draw": lambda: WordImputer([[-1, -1]]),
        "sigma needs a number > 0": lambda: BlurImputer(0),
        'measure needs "logit" or "indicator"': lambda: methods.pda(measure="odds"),
        r"no method 'NEO' \(did you mean 'NEON'": compared(["NEO"]),
        "no method 'dream'. Known: 'random', ": compared(["dream"]),
        "needs a list of names and functions, or a dict, got 'NEON'": compared("NEON"),
        "at least one method": compared([]),
        "needs names and functions, got ndarray; relevance needs a name": compared([np.zeros((3, 2))]),
        "'neon' twice": compared([methods.neon, methods.neon]),
        r"methods\['a'\] needs a function or relevance": compared({"a": "NEON"}),
        r"methods\['a'\] needs one entry per row of X": compared({"a": np.zeros((3, 2))}),
        r"methods\['a'\] returned None": compared({"a": lambda net, x, target: None}),
        "factors needs numbers > 0": [
            partial(lambda some: calibrate_by_flipping(*wine()[:2], factors=some), some)
            for some in ((), (0.0, 1.0), (1.0, np.inf), (-1.0,))
        ],
    }
)
test_flipping_of_other_types = refusals(
    {
        r"methods\['a'\] needs three arguments, \(net, x, target\)": compared({"a": lambda x: x}),
        r"needs a network from neonxc\.neuralize, got Linear; neuralize it, or": lambda: compare(
            nn.Linear(4, 3).double(), X
        ),
        r"net needs a network, got a KMeans; neonxc.neuralize\(model, X\) makes": lambda: compare(KMeans(2), X),
        "imputer needs an": [compared(["NEON"], KDEImputer), flipping(lambda x: x)],
        r"needs a network from neonxc\.neuralize": lambda: calibrate_by_flipping(nn.Linear(4, 3), X),
    },
    TypeError,
)

# --- figures -----------------------------------------------------------------------------------------------

PHOTO = np.random.default_rng(0).random((12, 16, 3))
GREY = PHOTO[..., 0]
test_figures = refusals(
    {
        "photo of": lambda: plot.overlay(PHOTO, np.zeros((3, 4))),
        r"\[3, H, W\] .* or grey .* got \[12, 16, 2\]": lambda: plot.overlay(PHOTO[..., :2], GREY),
        "values in 0..1": lambda: plot.overlay(PHOTO * 300, GREY),
        "not finite": [lambda: plot.overlay(PHOTO, np.full((12, 16), np.nan)), lambda: plot.bars([1.0, np.inf])],
        "heatmap has values that are not finite": lambda: plot.overlay(PHOTO, np.ma.masked_greater(GREY, 0.5)),
        "a heatmap needs shape": lambda: plot.overlay(PHOTO, np.zeros(5)),
        "at least one photo": lambda: plot.contact_sheet([], []),
        "one entry per photo, 1; got 0": lambda: plot.contact_sheet([PHOTO], []),
        r"shape \[K, H, W\]": lambda: plot.contact_sheet([PHOTO], [np.zeros(16)]),
        "smooth must be a share of the shorter side": lambda: plot.overlay(PHOTO, GREY, smooth=4),
        "one point": lambda: plot.bars([[1.0]]),
        "1 name for 2 features": lambda: plot.bars([1.0, 2.0], ["a"]),
    }
)

# --- counterfactuals ---------------------------------------------------------------------------------------


@cache
def plane():
    points = pd.DataFrame(make_blobs(200, 2, centers=4, random_state=0, cluster_std=2.0)[0], columns=["a", "b"])
    return neuralize(km(4).fit(points), points), points[:3]


def moved(**options):
    return lambda: counterfactual(*plane(), **options)


test_counterfactuals = refusals(
    {
        "target needs labels among .*, got 9": moved(target=9),
        "target needs labels among .*, got -1": moved(target=-1),
        r"one per point \(3\)": moved(target=[0, 1]),
        "fixed has an unknown column 'age'": moved(fixed="age"),
        r"bounds has an unknown column 'aa' \(did you mean 'a'\?\); columns are 'a'": moved(bounds={"aa": (0, 1)}),
        "low <= high": moved(bounds={"b": (3, 1)}),
        "bounds of column 'b'": moved(bounds={"b": 3}),
        "dict": moved(bounds=[(0, 1)]),
        r"""a dict of columns to \(low, high\), or "data", got 'range'""": moved(bounds="range"),
        "columns needs a whole number >= 1": moved(columns=0),
        "spread needs a number > 0 for each of 2 columns": moved(spread=[1, 2, 3]),
        "spread needs a number > 0": moved(spread=[1, 0]),
        "feature network": lambda: counterfactual(deep(), images()),
        "needs a network on tables": lambda: counterfactual(
            neuralize(make_pipeline(TfidfVectorizer(), km(2)).fit(NAMES), NAMES), NAMES
        ),
    }
)
test_counterfactuals_of_other_models = refusals(
    {"neuralize": lambda: counterfactual(nn.Linear(4, 3), X)}, TypeError
)


# --- several inputs, documents and tokens ------------------------------------------------------------------


class Doc:
    """A document as spaCy has them: a sequence of tokens, with its text as an attribute."""

    def __init__(self, text):
        self.text = text

    def __len__(self):
        return len(self.text.split())

    def __getitem__(self, i):
        return self.text.split()[i]


SENTENCES = ["a cat sat", "dogs run far", "a cat and a dog", "the sun is up", "moon at night"]


@cache
def of_texts():
    return make_pipeline(TfidfVectorizer(), KMeans(2, n_init=1, random_state=0)).fit(SENTENCES)


def each_way(X):
    """Calls that read texts."""
    return [
        lambda: neuralize(of_texts(), X),
        lambda: neuralize(of_texts(), SENTENCES).predict(X),
        lambda: NEON(neuralize(of_texts(), SENTENCES)).attribute(X),
    ]


DOCS = [*map(Doc, SENTENCES)]
TOKENS = [sentence.split() for sentence in SENTENCES]
LAYER = nn.Linear(3, 4).eval()
PAIR = torch.rand(8, 3), torch.rand(8, 3)

test_documents_and_tokens = refusals(
    {
        r"needs a sequence of strings; text 0 is a Doc: pass \[doc\.text for doc in": [
            *each_way(DOCS),
            *each_way(np.array([*DOCS, None], dtype=object)[:-1]),
            *each_way(pd.Series(DOCS)),
            lambda: neuralize(labels=[0, 1, 0, 1, 0], X=DOCS),
        ],
        r"needs a sequence of strings, got a Doc: pass \[\w+\.text\]": each_way(DOCS[0]),
        r"needs a sequence of strings; text 0 is a list of tokens: pass \[' '\.join\(tokens\) for tokens in": [
            *each_way(TOKENS),
            *each_way([tokens[:3] for tokens in TOKENS]),
            *each_way(pd.Series(TOKENS)),
            lambda: neuralize(labels=[0, 1, 0, 1, 0], X=TOKENS),
        ],
    }
)

test_several_inputs = refusals(
    {
        r"needs one tensor, got a tuple of 2: .* torch\.cat\(\(a, b\), 1\)": [
            lambda: neuralize(np.eye(4), PAIR, features=LAYER),
            lambda: neuralize(np.eye(4), features=LAYER).predict(PAIR),
            lambda: NEON(neuralize(np.eye(4), features=LAYER)).attribute(PAIR),
            lambda: NEON(neuralize(np.eye(4), features=LAYER)).heatmaps(PAIR),
            lambda: neuralize(np.eye(4), (PAIR[0], PAIR[1][:, :2]), features=LAYER),
            lambda: LRP(LAYER).attribute(PAIR, 0),
        ],
        r"needs one tensor, got a list of 2: ": lambda: neuralize(
            np.eye(4), [PAIR[0], PAIR[1][:, :2]], features=LAYER
        ),
        r"needs one tensor, got a dict of 2: ": lambda: neuralize(
            np.eye(4), dict(zip("ab", PAIR, strict=True)), features=LAYER
        ),
    }
)
