"""Steps of pipelines are what `transform` says about rows of X, whatever their class, or are refused."""

import copy
import re

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.cluster import DBSCAN, AgglomerativeClustering, FeatureAgglomeration, KMeans
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_wine
from sklearn.decomposition import NMF, PCA, FactorAnalysis, FastICA, KernelPCA, SparsePCA, TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.feature_selection import SelectKBest, VarianceThreshold, chi2
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.mixture import GaussianMixture
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    SplineTransformer,
    StandardScaler,
)
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection
from witnesses import two_layer_logits

import neonxc
from neonxc import NEON, neuralize

WINE, KINDS = load_wine(return_X_y=True, as_frame=True)
NUMBERS = WINE.to_numpy(copy=True)

surrogate = pytest.mark.filterwarnings("ignore:the surrogate")


class Weighted(StandardScaler):
    """Standardized columns with weights."""

    def transform(self, X, copy=None):
        return super().transform(X) * np.linspace(0.2, 3, self.n_features_in_)


class FittedOtherwise(StandardScaler):
    """Fits other attributes."""

    def fit(self, X, y=None, sample_weight=None):
        super().fit(X)
        self.scale_ = self.scale_ * np.linspace(1, 2, self.n_features_in_)
        return self


class Step(TransformerMixin, BaseEstimator):
    """Does what a function says, and stores nothing."""

    def __init__(self, function=None):
        self.function = function

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return self.function(X)


class NamedColumns(Step):
    """Selects columns of a frame by name."""

    def transform(self, X):
        return X[self.function]


class OwnColumns(ColumnTransformer):
    """A class of its own that does nothing of its own."""


def array(function):
    return Step(lambda X: function(np.asarray(X, dtype=float)))


def without_second(X):
    X = X.copy()
    X[:, 1] = 0
    return X


def single(X):
    return (np.asarray(X, dtype=np.float32) - np.float32(3)) / np.float32(7)


def union(*steps, **options):
    return FeatureUnion([(f"t{i}", step) for i, step in enumerate(steps)], **options)


AFFINE = {
    # of a class of its own
    "weights": [Weighted()],
    "weights behind a scaler": [StandardScaler(), Weighted()],
    "fitted otherwise": [FittedOtherwise()],
    "without attributes": [array(lambda X: X / 2 + 1), StandardScaler()],
    "mixes columns": [StandardScaler(), array(lambda X: np.c_[X, X[:, :1] - X[:, 1:2]])],
    "ignores columns": [array(lambda X: X[:, [3, 0, 5]]), StandardScaler()],
    "zeroes a column": [StandardScaler(), array(without_second)],
    "adds a constant": [StandardScaler(), array(lambda X: np.c_[X, np.ones(len(X))])],
    "float32": [Step(single), StandardScaler()],
    "tensors": [StandardScaler(), Step(lambda X: torch.as_tensor(np.asarray(X, dtype=np.float32)) * 2)],
    "function": [FunctionTransformer(lambda X: X * 2 + 1), StandardScaler()],
    "in a Normalizer": [Weighted(), Normalizer(), array(lambda X: X * 2 + 1)],
    # of scikit-learn
    "FastICA": [FastICA(3, random_state=0)],
    "FactorAnalysis": [StandardScaler(), FactorAnalysis(3, random_state=0)],
    "SparsePCA": [StandardScaler(), SparsePCA(3, random_state=0)],
    "KernelPCA of products": [StandardScaler(), KernelPCA(3)],
    "LinearDiscriminantAnalysis": [LinearDiscriminantAnalysis()],
    "GaussianRandomProjection": [StandardScaler(), GaussianRandomProjection(4, random_state=0)],
    "SparseRandomProjection": [StandardScaler(), SparseRandomProjection(4, random_state=0)],
    "FeatureAgglomeration": [StandardScaler(), FeatureAgglomeration(4)],
    "PolynomialFeatures of degree 1": [StandardScaler(), PolynomialFeatures(1)],
    "KNNImputer where nothing is missing": [KNNImputer(), StandardScaler()],
    # side by side
    "PCA within": [
        ColumnTransformer([("w", make_pipeline(Weighted(), PCA(2)), [0, 3, 5]), ("m", MinMaxScaler(), [1])])
    ],
    "own ColumnTransformer": [OwnColumns([("a", StandardScaler(), [2, 0])], remainder=MinMaxScaler())],
    "pandas": [StandardScaler().set_output(transform="pandas"), NamedColumns(["x0", "x3"]), StandardScaler()],
    "polars": [StandardScaler().set_output(transform="polars"), Weighted()],
}
KNOWN = {
    "VarianceThreshold": [VarianceThreshold(0.5), StandardScaler()],
    "nothing left out": [StandardScaler(), VarianceThreshold()],
    "SelectKBest": [StandardScaler(), SelectKBest(k=5)],
    "SelectKBest behind a Normalizer": [StandardScaler(), Normalizer(), SelectKBest(k=5)],
    "FeatureUnion": [union(StandardScaler(), PCA(2))],
    "FeatureUnion with weights": [StandardScaler(), union(PCA(3), MinMaxScaler(), transformer_weights={"t0": 3})],
    "FeatureUnion passes": [StandardScaler(), union("passthrough", PCA(2), "drop")],
    "passthrough first": [union("passthrough", StandardScaler()), StandardScaler()],
    "FeatureUnion nested": [
        make_pipeline(StandardScaler(), union(make_pipeline(StandardScaler(), PCA(2)), SelectKBest(k=3)))
    ],
    "FeatureUnion of some": [
        ColumnTransformer([("u", union(PCA(1), MinMaxScaler()), [0, 1, 2]), ("s", StandardScaler(), [5, 6])])
    ],
    "ColumnTransformer with weights": [
        ColumnTransformer(
            [("a", StandardScaler(), [0, 1]), ("b", MaxAbsScaler(), [5])],
            remainder=StandardScaler(),
            transformer_weights={"a": 2, "remainder": 0.5},
        )
    ],
}


def fitted(steps, X=NUMBERS, clusterer=None):
    clusterer = clusterer or KMeans(3, n_init=2, random_state=0)
    return make_pipeline(*copy.deepcopy(steps), clusterer).fit(X, KINDS[: len(X)])


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        # by default, numbers of either type in turns
        pytest.param(name, dtype, marks=[pytest.mark.slow] * ((i + j) % 2))
        for i, name in enumerate([*AFFINE, *KNOWN])
        for j, dtype in enumerate([np.float64, np.float32])
    ],
)
def test_the_network_is_the_pipeline(name, dtype):
    X = pd.DataFrame(NUMBERS, columns=[f"x{i}" for i in range(13)]) if name == "pandas" else NUMBERS
    X = X.astype(dtype)
    model = fitted({**AFFINE, **KNOWN}[name], X)
    net = neuralize(model, X)
    before = X
    for _, step in model.steps[:-1]:
        before = step.transform(before)
    assert_array_equal(net.predict(X), model.predict(X))
    logits = net(torch.as_tensor(NUMBERS)).numpy()
    wanted = two_layer_logits(np.asarray(before, dtype=float), model[-1].cluster_centers_.astype(float))
    precision = 1e-8 if dtype is np.float64 and name not in ("float32", "tensors") else 1e-3
    assert_allclose(logits, wanted, rtol=precision, atol=precision * np.abs(wanted).max())
    relevance = NEON(net).attribute(NUMBERS)
    assert_allclose(relevance.sum(axis=1), logits.max(axis=1), rtol=1e-8, atol=1e-8 * logits.max())
    if name in KNOWN:
        assert_array_equal(neuralize(model).predict(X), model.predict(X))
    else:
        refused(r"pipeline step .*: neonxc\.neuralize\(model, X\)", neuralize, model)


@pytest.mark.parametrize(
    "kind",
    [lambda X: pd.DataFrame(X).add_prefix("c"), csr_matrix, torch.as_tensor, lambda X: X.astype(np.float32)],
)
@pytest.mark.parametrize(
    "steps", [[MaxAbsScaler(), array(lambda X: X * 2)], [VarianceThreshold(0.1), MaxAbsScaler()]]
)
def test_types_of_tables(kind, steps):
    steps = (
        steps if kind is not csr_matrix else [Step(lambda X: X * 2) if isinstance(s, Step) else s for s in steps]
    )
    model = fitted(steps)
    X = kind(NUMBERS)
    net = neuralize(model, X)
    assert_array_equal(np.asarray(net.predict(X)), model.predict(NUMBERS))
    assert net.head.n_features == 13


@surrogate
@pytest.mark.parametrize("final", [DBSCAN(2.5, min_samples=3), AgglomerativeClustering(3)])
def test_other_clusterings_behind_steps(final):
    for steps in (
        [Weighted()],
        [NamedColumns(list(WINE.columns[:5])), StandardScaler(), array(lambda X: X * 1.0)],
    ):
        model = make_pipeline(*steps, final).fit(WINE)
        net = neuralize(model, WINE)
        clustered = final.labels_ >= 0
        assert (net.predict(WINE) == final.labels_)[clustered].mean() > 0.95
        assert NEON(net).attribute(WINE).shape == WINE.shape


@surrogate
def test_features_of_images():
    images = torch.randn(80, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    features = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 6)).eval()
    points = features(images).numpy(force=True)
    for step in (Weighted(), union(PCA(2), StandardScaler())):
        model = make_pipeline(step, KMeans(3, n_init=1, random_state=0)).fit(points)
        assert_array_equal(neuralize(model, images, features).predict(images), model.predict(points))
    model = make_pipeline(array(np.tanh), KMeans(3, n_init=1, random_state=0)).fit(points)
    call = calls_of(model, images, features)[0]
    net = eval(call, {"neonxc": neonxc, "model": model, "X": images, "features": features})
    assert net.fidelity_ > 0.8


def test_a_frame_for_steps_that_were_fitted_on_an_array():
    model = fitted([Step(lambda X: X[:, [0, 2, 5]]), StandardScaler()])
    net = neuralize(model, WINE)
    assert net.feature_names_ == list(WINE.columns)
    assert_array_equal(net.predict(WINE), model.predict(NUMBERS))


# --- texts -------------------------------------------------------------------------------------------------

TEXTS = [
    *("the cat sat on the mat", "a dog barked at the cat", "dogs and cats are pets", "the pets sat"),
    *(
        "stocks fell on monday",
        "the market and stocks rallied",
        "bond market yields rose",
        "yields and bonds fell",
    ),
] * 3


class Squared(TfidfVectorizer):
    def transform(self, texts):
        return super().transform(texts).power(2)


@pytest.mark.parametrize(
    "steps",
    [
        [TfidfVectorizer(), SelectKBest(chi2, k=8)],
        [CountVectorizer(), VarianceThreshold(0.1), TfidfTransformer()],
        [TfidfVectorizer(sublinear_tf=True, dtype=np.float32), TruncatedSVD(3), Step(lambda X: X * 2)],
        [make_pipeline(CountVectorizer(), TfidfTransformer(sublinear_tf=True)), Step(lambda X: X * 2)],
    ],
)
def test_terms(steps):
    model = make_pipeline(*steps, KMeans(2, n_init=2, random_state=0)).fit(TEXTS, np.arange(24) % 2)
    assert_array_equal(neuralize(model, TEXTS).predict(TEXTS), model.predict(TEXTS))


def test_vectorizers_that_weight_terms_otherwise():
    model = make_pipeline(Squared(), KMeans(2, n_init=2, random_state=0)).fit(TEXTS)
    refused("pipeline step 'squared': Squared has a transform of its own, which does", neuralize, model, TEXTS)
    refused(r"'squared': Squared .* read from texts: neonxc\.neuralize\(model, texts\)", neuralize, model)
    call = calls_of(model, TEXTS)[0]
    net = eval(call, {"neonxc": neonxc, "model": model, "X": TEXTS})
    assert_array_equal(net.predict(model[:-1].transform(TEXTS)), model.predict(TEXTS))


# --- tables with texts -------------------------------------------------------------------------------------


def people():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(40, 10, 90), "work": rng.choice(["State", "Private", "Self"], 90)})
    return frame.assign(gain=rng.exponential(size=90), pay=frame["age"].where(rng.random(90) < 0.7))


def prepared(*others):
    return ColumnTransformer([("age", StandardScaler(), ["age"]), ("work", OneHotEncoder(), ["work"]), *others])


class Encoder(OneHotEncoder):
    pass


class Tripled(OneHotEncoder):
    def transform(self, X):
        return super().transform(X) * 3


class Zeros(SimpleImputer):
    def transform(self, X):
        return np.where(np.isnan(np.asarray(X, dtype=float)), 0, super().transform(X))


MIXED = {
    "selected by name": [NamedColumns(["gain", "work", "age"]), prepared()],
    "a number changed": [Step(lambda X: X.assign(age=X["age"] * 12 + 1)), prepared()],
    "own encoder": [ColumnTransformer([("work", Encoder(), ["work"]), ("age", Weighted(), ["age"])])],
    "selected codes": [prepared(), VarianceThreshold(0.2), StandardScaler()],
    "side by side": [union(prepared(), ColumnTransformer([("pay", SimpleImputer(), ["pay"])]))],
}


@pytest.mark.parametrize("name", MIXED)
def test_tables_with_texts(name):
    X = people()
    model = make_pipeline(*MIXED[name], KMeans(3, n_init=2, random_state=0)).fit(X)
    net = neuralize(model, X)
    assert_array_equal(net.predict(X), model.predict(X))
    relevance = NEON(net).attribute(X)
    assert list(relevance.columns) == list(X.columns)
    assert_allclose(relevance.sum(axis=1), net(net.batch(X).tensor).amax(dim=1), rtol=1e-9, atol=1e-9)


CHANGED = {
    "'step': Step .* It makes texts of its own": Step(lambda X: X.assign(work=X["work"].str.lower())),
    "'encoder': .*'work': Tripled .* own OneHotEncoder": ColumnTransformer([("work", Tripled(), ["work"])]),
    "'encoder': .*'pay': Zeros .* 0 in place of nan": ColumnTransformer([("pay", Zeros(), ["pay"])]),
    "'encoder': .*'pay': KNNImputer .* a SimpleImputer can be": ColumnTransformer(
        [("pay", KNNImputer(), ["pay"])]
    ),
}


@pytest.mark.parametrize("message", CHANGED)
def test_texts_and_missing_values_that_are_changed(message):
    step = CHANGED[message]
    X = people()
    named = [("step", step), ("prepared", prepared())] if isinstance(step, Step) else [("encoder", step)]
    model = Pipeline([*named, ("km", KMeans(3, n_init=2, random_state=0))]).fit(X)
    refused(f"^pipeline step {message}", neuralize, model, X)


# --- what is refused ---------------------------------------------------------------------------------------


class Logarithms(StandardScaler):
    def transform(self, X, copy=None):
        return super().transform(np.log1p(X))


class Doubled(StandardScaler):
    """Doubles rows with much of the first column."""

    def transform(self, X, copy=None):
        Z = super().transform(X)
        return Z * np.where(Z[:, :1] > 1, 2, 1)


class Learning(StandardScaler):
    """Learns from what it transforms."""

    def transform(self, X, copy=None):
        return self.partial_fit(X) and super().transform(X)


class Clipped(StandardScaler):
    """Differs from a StandardScaler in none of the rows."""

    def transform(self, X, copy=None):
        return np.clip(super().transform(X), -50, 50)


class SquaredPipeline(Pipeline):
    def transform(self, X):
        return super().transform(X) ** 2


CURVED = {
    "it returns": {
        "Logarithms": Logarithms(),
        "Doubled": Doubled(),
        "Learning": Learning(),
        "Clipped": Clipped(),
        "SquaredPipeline": SquaredPipeline([("scale", StandardScaler())]),
        "standardized by batch": array(lambda X: (X - X.mean(0)) / (X.std(0) + 1e-9)),
        "ranks": array(lambda X: X.argsort(0).argsort(0).astype(float)),
        "by the row before": array(lambda X: X - np.roll(X, 1, axis=0)),
        "single rows otherwise": array(lambda X: X - X.mean(0) if len(X) > 9 else X),
        "noise": array(lambda X: X + np.random.default_rng().normal(size=X.shape)),
        "absolute": array(lambda X: np.abs(X - 1)),
        "rounded": array(lambda X: X.round(1)),
        "RBFSampler": RBFSampler(gamma=0.01, n_components=10, random_state=0),
        "Nystroem": Nystroem(gamma=0.01, n_components=10, random_state=0),
        "Nystroem far away": Nystroem(gamma=1, n_components=10, random_state=0),
        "FeatureAgglomeration": FeatureAgglomeration(4, pooling_func=np.max),
    },
    "It bends the columns": {
        "PowerTransformer": PowerTransformer(),
        "QuantileTransformer": QuantileTransformer(n_quantiles=20),
    },
    "It cuts the columns": {"KBinsDiscretizer": KBinsDiscretizer(3), "Binarizer": Binarizer(threshold=1)},
    "It multiplies columns": {"PolynomialFeatures": PolynomialFeatures(2)},
    "It makes piecewise polynomials": {"SplineTransformer": SplineTransformer()},
    "not weighted sums": {"NMF": NMF(3, max_iter=600), "KernelPCA": KernelPCA(3, kernel="rbf", gamma=0.001)},
    "Its transform overflows": {"ratio": array(lambda X: np.c_[X, X[:, :1] / X[:, 1:2]])},
    "Its transform fails with ZeroDivisionError": {"fails": Step(lambda X: X / 2 if len(X) > 99 else 1 // 0)},
}


@pytest.mark.parametrize(
    ("message", "name"), [(message, name) for message, steps in CURVED.items() for name in steps]
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore:Bins whose width")
def test_what_is_not_affine(message, name):
    step = copy.deepcopy(CURVED[message][name])
    alone = Pipeline([("my step", step), ("km", KMeans(3, n_init=1, random_state=0))]).fit(NUMBERS)
    refused(f"^pipeline step 'my step': .*{message}", neuralize, alone, NUMBERS)
    within = make_pipeline(union(MinMaxScaler(), step), KMeans(3, n_init=1, random_state=0)).fit(NUMBERS)
    refused(f"^pipeline step 'featureunion': transformer 't1': .*{message}", neuralize, within, NUMBERS)


def test_a_step_that_learns_stays_as_it_is():
    model = fitted([Learning()])
    mean = model[0].mean_.copy()
    refused("'learning': Learning is not an affine map", neuralize, model, NUMBERS)
    assert_array_equal(model[0].mean_, mean)


def test_a_pipeline_with_a_transform_of_its_own():
    model = SquaredPipeline([("scale", StandardScaler()), ("km", KMeans(3, n_init=1, random_state=0))]).fit(
        NUMBERS
    )
    refused("^SquaredPipeline has a transform of its own, .* not that of its steps", neuralize, model, NUMBERS)
    refused(r"^SquaredPipeline has a transform .*: neonxc\.neuralize\(model, X\)", neuralize, model)


def test_a_class_that_does_other_than_its_attributes_say(monkeypatch):
    scaled = StandardScaler.transform
    monkeypatch.setattr(StandardScaler, "transform", lambda self, X, copy=None: 2 * scaled(self, X))
    model = make_pipeline(MinMaxScaler(), StandardScaler(), KMeans(3, n_init=1, random_state=0)).fit(NUMBERS)
    refused("'standardscaler': StandardScaler is not the map that was read from it", neuralize, model, NUMBERS)


def test_an_instance_with_a_transform_of_its_own():
    scaler = StandardScaler().fit(NUMBERS)
    scaler.transform = lambda X: np.asarray(X) * 3 + 1
    model = Pipeline([("s", scaler), ("km", KMeans(3, n_init=1, random_state=0).fit(NUMBERS * 3 + 1))])
    assert_array_equal(neuralize(model, NUMBERS).predict(NUMBERS), model.predict(NUMBERS))
    refused("'s': StandardScaler is not an affine map", neuralize, model)


# --- no false alarm ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fitted_in", [np.float32, np.float64])
@pytest.mark.parametrize(
    "steps",
    [
        [StandardScaler(), PCA(3, whiten=True)],
        [MinMaxScaler((1000, 1001)), StandardScaler()],
        [PCA(3), Normalizer()],
        [SimpleImputer(), StandardScaler(), Normalizer()],
        [FunctionTransformer(np.log1p), SimpleImputer(add_indicator=True), StandardScaler()],
        [StandardScaler(copy=False), MaxAbsScaler(copy=False), PCA(2, copy=False)],
    ],
)
def test_rounding_is_no_difference(steps, fitted_in, dtype):
    X = np.random.default_rng(0).normal(size=(300, 5)) * [1, 2, 3, 4, 50] + 1e4
    if any(isinstance(step, SimpleImputer) for step in steps):
        X[::9, 1] = np.nan
    X[7] = np.nanmean(X, axis=0)  # is rounding alone behind a scaler
    model = fitted(steps, X.astype(fitted_in)[:170])
    X = X.astype(dtype)
    before = X.copy()
    assert neuralize(model, X).head.n_features > 4
    assert_array_equal(X, before)


def test_rows_of_other_values_are_named_by_their_place_in_x():
    X = NUMBERS.copy()
    model = fitted([Weighted()])
    X[150, 2] = np.nan
    refused("not finite: nan in row 150, column 2", neuralize, fitted([StandardScaler()]), X)
    refused("row 150, column 2|Weighted", neuralize, model, X)


# --- what works instead ------------------------------------------------------------------------------------


def calls_of(model, X, features=None):
    """The calls that the error about a pipeline shows."""
    with pytest.raises(ValueError, match=r"neonxc\.neuralize") as error:
        neuralize(model, X, features)
    return re.findall(r"(neonxc\.neuralize\(.*?\)) explains", str(error.value))


@surrogate
@pytest.mark.parametrize(
    ("steps", "clusterer", "names"),
    [
        ([StandardScaler(), PowerTransformer()], None, [f"x{i}" for i in range(13)]),
        ([StandardScaler(), array(np.tanh), StandardScaler()], None, None),
        ([PowerTransformer().set_output(transform="pandas")], None, [f"x{i}" for i in range(13)]),
        ([OneHotEncoder(handle_unknown="ignore"), QuantileTransformer(n_quantiles=9)], None, None),
        ([PowerTransformer()], GaussianMixture(3, random_state=0), [f"x{i}" for i in range(13)]),
        ([PowerTransformer()], make_pipeline(StandardScaler(), KMeans(3, n_init=1, random_state=0)), None),
        ([array(np.cbrt)], None, None),
    ],
)
def test_the_calls_that_the_error_shows_work(steps, clusterer, names):
    X = StandardScaler().fit_transform(NUMBERS)  # a surrogate finds labels in columns of one scale
    model = fitted(steps, X, copy.deepcopy(clusterer))
    space = {"neonxc": neonxc, "pandas": pd, "model": model, "X": X}
    *by_columns, by_labels = calls_of(model, X)
    net = eval(by_labels, space)
    assert net.fidelity_ == pytest.approx((net.predict(X) == model.predict(X)).mean())
    try:
        model[:-1].transform(X)
        n_by_columns = 1
    except NotFittedError:  # as new releases of scikit-learn say of a Pipeline that ends in a function
        n_by_columns = 0
    assert len(by_columns) == n_by_columns
    for call in by_columns:
        net = eval(call, space)
        assert_array_equal(net.predict(model[:-1].transform(X)), model.predict(X))
        assert net.feature_names_ == names or names is None
