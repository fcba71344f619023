"""Pipelines over tables with strings, missing values and skewed columns, and relevance of their own columns."""

import functools

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused
from sklearn.cluster import DBSCAN, KMeans
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)
from turns import every

from neonxc import NEON, neuralize
from neonxc.evaluation import compare, methods, pixel_flipping


def people(n, seed, unseen=False):
    """A table with all kinds of columns; with values that are in no other, if wanted."""
    rng = np.random.default_rng(seed)
    shares = [0.5, 0.3, 0.1, 0.05, 0.03, 0.02]
    table = pd.DataFrame(
        {
            "age": rng.normal(40, 10, n).round(),
            "gain": rng.exponential(1000, n),
            "hours": rng.integers(1, 80, n),
            "work": rng.choice(["State", "Private", "Self"], n),
            "sex": rng.choice(np.array(["m", "f", None], dtype=object), n, p=[0.45, 0.45, 0.1]),
            "city": rng.choice(["Rom", "Köln", "Oslo", "Graz", "Bari", "Cork"], n, p=shares),
            "flag": rng.random(n) < 0.3,
            "grade": rng.integers(1, 4, n),
        },
        index=np.arange(n) * 3 + 5,
    ).astype({"city": "category"})
    for name in ("age", "city"):
        table.loc[rng.random(n) < 0.1, name] = np.nan
    if unseen:
        table["city"] = table["city"].astype(object)
        table.loc[table.index[:20:2], "city"] = "Turin"
    return table


NUMBERS = ["age", "hours"]
TEXTS = ["work", "sex"]
MISSING = pd.Series(np.array(["m", None], dtype=object)).iloc[1]  # NaN from pandas 3 on
log = make_pipeline(FunctionTransformer(np.log1p), StandardScaler())
filled = make_pipeline(SimpleImputer(), StandardScaler())


def columns(*transformers, **options):
    return ColumnTransformer([(f"t{i}", *one) for i, one in enumerate(transformers)], **options)


ANY = {"handle_unknown": "use_encoded_value", "unknown_value": np.nan}
RARE = {"min_frequency": 0.06, "handle_unknown": "infrequent_if_exist"}
# Each column of numbers is made of one column of the table
APART = {
    "usual": columns(
        (filled, NUMBERS), (log, ["gain"]), (OneHotEncoder(handle_unknown="ignore"), ["work", "sex", "city"])
    ),
    "dropped by name": columns((OneHotEncoder(drop=["Self", MISSING]), TEXTS), (filled, NUMBERS)),
    "rare and unknown": columns((OneHotEncoder(**RARE), ["city", "work"]), (filled, NUMBERS)),
    "codes, filled": columns(
        (make_pipeline(OrdinalEncoder(max_categories=3), SimpleImputer(), StandardScaler()), ["city", "work"]),
        (make_pipeline(OrdinalEncoder(**ANY), SimpleImputer(), StandardScaler()), ["age"]),
    ),
    "codes, then one-hot": columns(
        (make_pipeline(OrdinalEncoder(), OneHotEncoder(handle_unknown="ignore")), ["work"]), (filled, NUMBERS)
    ),
    "function of codes": columns(
        (make_pipeline(OrdinalEncoder(), FunctionTransformer(np.sqrt)), ["work"]), (filled, NUMBERS)
    ),
    "indicators": columns(
        (make_pipeline(SimpleImputer(strategy="median", add_indicator=True), RobustScaler()), NUMBERS),
        (SimpleImputer(strategy="constant", fill_value=-1.0, add_indicator=True), ["age"]),
    ),
    "categories filled": columns(
        (
            make_pipeline(
                SimpleImputer(strategy="most_frequent"), OneHotEncoder(sparse_output=False), MinMaxScaler()
            ),
            ["work", "city"],
        ),
        (make_pipeline(SimpleImputer(strategy="constant", fill_value="?"), OrdinalEncoder()), ["city"]),
        (filled, NUMBERS),
    ),
    "others pass": columns(
        ("drop", [*TEXTS, "gain"]), (OneHotEncoder(), ["city"]), (filled, ["age"]), remainder="passthrough"
    ),
    "the rest is scaled": columns((OneHotEncoder(), [*TEXTS, "city", "flag"]), remainder=filled),
    "by selectors": columns(
        (make_pipeline(SimpleImputer(), RobustScaler()), make_column_selector(dtype_include="number")),
        (OneHotEncoder(), make_column_selector(dtype_include=["object", "category", "string"])),
    ),
    "stages": make_pipeline(
        columns((filled, NUMBERS), remainder="passthrough"),
        columns((OneHotEncoder(), [3, 4, 5]), (StandardScaler(), [2]), remainder="passthrough"),
    ),
}
# Columns of numbers are mixed after that
MIXED = {
    "principal components": (APART["usual"], PCA(4, random_state=0)),
    "of sparse columns": (
        columns((OneHotEncoder(handle_unknown="ignore"), ["age", "hours", "city"])),
        PCA(3, random_state=0),
    ),
    "whitened": (APART["rare and unknown"], PCA(3, whiten=True, random_state=0)),
    "singular vectors": (APART["usual"], TruncatedSVD(4, random_state=0)),
    "components of texts": (
        columns((make_pipeline(OneHotEncoder(sparse_output=False), PCA(3)), TEXTS), (filled, NUMBERS)),
    ),
    "components, then encoded": (
        columns(
            (make_pipeline(SimpleImputer(), StandardScaler(), PCA(1)), NUMBERS), ("passthrough", ["work", "sex"])
        ),
        columns(("passthrough", [0]), (OneHotEncoder(), [1, 2])),
    ),
    "imputed components": (make_pipeline(columns((filled, ["age", "hours"])), PCA(2), SimpleImputer()),),
    "norms": (APART["usual"], Normalizer()),
    "norms of components": (APART["rare and unknown"], PCA(4, random_state=0), Normalizer("l1")),
}


def kmeans():
    return KMeans(4, n_init=2, random_state=0)


@functools.cache
def fitted(name):
    """The pipeline, the table and its network."""
    steps = (APART[name],) if name in APART else MIXED[name]
    X = people(240, 0)
    model = make_pipeline(*steps, kmeans()).fit(X)
    return model, X, neuralize(model, X)


def owners(transform, X):
    """Which column of the table each transformed column is made of: the one that changes it."""
    before = dense(transform(X))
    rng = np.random.default_rng(0)
    owner = np.full(before.shape[1], -1)
    for i, name in enumerate(X.columns):
        drawn = X[name].iloc[rng.permutation(len(X))].set_axis(X.index)
        changed = (dense(transform(X.assign(**{name: drawn}))) != before).any(0)
        assert (owner[changed] == -1).all()
        owner[changed] = i
    return owner


def dense(Z):
    return np.asarray(Z.toarray() if hasattr(Z, "toarray") else Z, dtype=float)


@pytest.mark.parametrize("name", [*APART, *MIXED])
def test_the_network_is_the_pipeline(name):
    model, X, net = fitted(name)
    other = people(300, 1, unseen=name in ("usual", "rare and unknown"))
    for table in (X, other):
        assert_array_equal(net.predict(table), model.predict(table))
    relevance = NEON(net).attribute(other)
    assert [*map(list, relevance.axes)] == [*map(list, other.axes)]
    logits = net(net.batch(other).tensor)
    assert_allclose(relevance.to_numpy().sum(1), logits.amax(1).numpy(), rtol=1e-9, atol=1e-9)
    assert_array_equal(net.classes_[logits.argmax(1).numpy()], model.predict(other))
    assert_array_equal(neuralize(model).predict(X), model.predict(X))  # without data


@pytest.mark.parametrize(
    "name", every(2, [*APART, "principal components", "whitened", "singular vectors", "norms"])
)
def test_relevance_is_that_of_the_encoded_columns_collected(name):
    model, X, net = fitted(name)
    encoder, rest = (model[0], make_pipeline(*model[1:])) if name in MIXED else (model[:-1], model[-1])
    Z = dense(encoder.transform(X))
    witness = neuralize(rest, Z)
    owner = owners(encoder.transform, X)
    assert net.beta == pytest.approx(witness.beta, rel=1e-9)
    for options in ({}, {"target": 2}, {"competitor": 1}):
        own = NEON(witness).attribute(Z, **options) @ (owner[:, None] == np.arange(X.shape[1]))
        assert_allclose(NEON(net).attribute(X, **options), own, rtol=1e-6, atol=1e-6 * np.abs(own).max())


def test_summaries_compare_means_and_categories():
    _, X, net = fitted("usual")
    neon = NEON(net)
    own = net.predict(X)
    found = neon.summary(X)
    encoded = neon.summary(net.batch(X).tensor)
    values = found.values
    assert found.feature_names == list(X.columns)
    for one in (found, encoded):
        assert_allclose(one.relevance, neon.attribute(X).groupby(own).mean(), atol=1e-9)
    assert [X.columns[i] for i in values.shares] == ["work", "sex", "city"]
    for i, shares in values.shares.items():
        assert np.isnan(values.means[:, i]).all()
        wanted = pd.crosstab(own, X.iloc[:, i].astype(object).fillna("missing"), normalize="index")
        named = shares.rename(columns=lambda value: "missing" if value is None else value)
        assert_allclose(named.iloc[:4], wanted[named.columns])
        for k in range(4):
            lift = named.iloc[k] - named.loc["all"]
            direction, mean, overall = values.direction(k, i)
            assert direction == f"is {lift.idxmax()}"
            assert mean - overall == pytest.approx(lift.max())
    numbers = X.iloc[:, :3]
    assert_allclose(values.means[:, :3], numbers.groupby(own).mean(), rtol=1e-12)
    assert_allclose(values.overall[:3], numbers.mean(), rtol=1e-12)
    assert values.comparison(0, 6) == values.comparison(0, 7) == ""  # dropped by the pipeline
    assert not encoded.values.shares  # the values of the table are not known
    assert encoded.reasons(0, 1)[0].count("(") == 0


def test_a_tensor_holds_encoded_columns():
    _, X, net = fitted("usual")
    x = net.batch(X).tensor
    for neon in (NEON(net), NEON(net, along=torch.zeros(16))):
        relevance = neon.attribute(x)
        assert relevance.shape == x.shape == (len(X), net.inputs.encoding.width)
        assert_allclose(net.inputs.encoding.collected(relevance), neon.attribute(X), atol=1e-12)
    assert_allclose(NEON(net).residual(X), np.zeros(len(X)), atol=1e-9)
    assert_array_equal(net.predict(x), net.predict(X))
    refused(r"needs the 16 encoded columns of .*, got shape \[240, 8\]", net.predict, torch.zeros(240, 8))
    refused(r"net\(net.batch\(x\).tensor\)", net, X, error=TypeError)


def test_object_arrays():
    X = people(150, 0)[["age", "work", "sex"]].to_numpy(dtype=object)
    model = make_pipeline(columns((filled, [0]), (OneHotEncoder(), [1, 2])), kmeans()).fit(X)
    # the pipeline knows no names
    net = neuralize(model, X)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    relevance = NEON(net).attribute(X)
    pd.testing.assert_frame_equal(NEON(net).attribute(frame), pd.DataFrame(relevance, columns=frame.columns))
    for given in (X, frame):
        assert_array_equal(net.predict(given), model.predict(X))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "steps",
    [
        (StandardScaler(), SimpleImputer(add_indicator=True), PCA(2, random_state=0)),
        (FunctionTransformer(np.log1p), SimpleImputer(), StandardScaler()),
    ],
)
def test_steps_without_a_column_transformer(steps, dtype):
    rng = np.random.default_rng(0)
    X = (rng.exponential(size=(100, 3)) * [1, 10, 100]).astype(dtype)
    X[rng.random(X.shape) < 0.1] = np.nan
    model = make_pipeline(*steps, kmeans()).fit(X)
    net = neuralize(model, X)
    assert_array_equal(net.predict(X), model.predict(X))
    relevance = NEON(net).attribute(X)
    x = net.batch(X).tensor
    assert relevance.dtype == dtype
    assert_allclose(relevance.sum(1), net(x).amax(1), rtol=1e-4)
    assert net(x.float()).dtype == NEON(net).attribute(x.float()).dtype == torch.float32


def test_flipping_adds_columns_of_the_table():
    _, X, net = fitted("usual")
    frame = NEON(net).attribute(X)
    refused("relevance has 3 features", pixel_flipping, net, X, frame.iloc[:, :3])
    found, least = (pixel_flipping(net, X, frame, repeats=2, order=order) for order in ("most", "least"))
    assert len(found.curve) == 6  # flag and grade are dropped
    assert found.auc > least.auc + 5
    some = people(200, 0)[["age", "gain", "hours"]]  # as many encoded columns as columns, in another order
    model = make_pipeline(columns((log, ["gain"]), (filled, ["hours", "age"])), kmeans()).fit(some)
    for one, table in ((net, X), (neuralize(model, some), some)):
        given = [NEON(one).attribute(x) for x in (table, one.batch(table).tensor)]
        assert_array_equal(*(pixel_flipping(one, table, R, repeats=2).curve for R in given))
    compared = compare(net, X[:60], {"NEON": methods.neon, "given": frame[:60]}, repeats=2).results
    assert_array_equal(compared["given"].curve, compared["NEON"].curve)


def test_labels_alone_behind_an_encoder():
    X = people(200, 0)
    steps = columns((filled, NUMBERS), (OneHotEncoder(), ["work"]))
    model = make_pipeline(steps, DBSCAN(1.2, metric="cityblock")).fit(X)
    net = neuralize(model, X)
    labels = model[-1].labels_
    assert 0.95 < net.fidelity_ == pytest.approx((net.predict(X) == labels)[labels >= 0].mean())
    assert list(NEON(net).attribute(X).columns) == list(X.columns)
    refused("X needs to be the table", neuralize, model, net.batch(X).tensor)


UNKNOWN = {
    "category": (
        *("components of texts", "work", "Church"),
        r"'Church' in row 7, column 'work'; the known values are \['Private', 'Self', 'State'\]",
    ),
    "missing category": ("components of texts", "work", None, r"value None in row 7, column 'work'; the known"),
    "missing number": ("usual", "gain", np.nan, r"a missing value in row 7, column 'gain'"),
    "out of range": ("usual", "gain", -2.0, r"value -2 in column 'gain', whose log1p is not a finite number"),
    "infinite": ("usual", "age", np.inf, r"not finite in column 'age'"),
    "text": ("usual", "age", "old", r"X needs numbers in column 'age', got 'old'"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_values_that_were_not_known_are_named(name):
    pipeline, column, value, message = UNKNOWN[name]
    _, X, net = fitted(pipeline)
    X = X.astype({column: object})
    X.loc[X.index[7], column] = value
    refused(message, net.predict, X)


REFUSED = {
    "unknown function": (
        make_pipeline(SimpleImputer(), FunctionTransformer(np.tanh)),
        NUMBERS,
        r"transformer 't0': step 'functiontransformer': FunctionTransformer of tanh can't be folded; .*np.log1p",
    ),
    "arguments": (
        FunctionTransformer(np.log1p, kw_args={"dtype": np.float64}),
        ["gain"],
        r"FunctionTransformer of log1p with kw_args \{'dtype'",
    ),
    "function of scaled": (
        make_pipeline(MinMaxScaler(), FunctionTransformer(np.sqrt)),
        ["gain"],
        r"step 'functiontransformer': it needs unscaled columns, but a step before it scales them",
    ),
    "categories of logarithms": (
        make_pipeline(FunctionTransformer(np.log1p), OneHotEncoder()),
        ["grade"],
        r"step 'onehotencoder': it needs untransformed columns, but a step before it takes their log1p",
    ),
    "categories of components": (
        make_pipeline(StandardScaler(), PCA(2), OneHotEncoder(handle_unknown="ignore")),
        ["gain", "hours"],
        r"step 'onehotencoder': it needs single columns, but a step before it mixes them",
    ),
    "other missing values": (
        make_pipeline(SimpleImputer(missing_values="Self", strategy="most_frequent"), OneHotEncoder()),
        ["work"],
        r"SimpleImputer\(missing_values='Self'\) can't be folded",
    ),
    "fill out of range": (
        make_pipeline(FunctionTransformer(np.sqrt), SimpleImputer(strategy="constant", fill_value=-1)),
        ["age"],
        r"it fills with -1, which is not a value of sqrt before it",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_not_be_expressed_is_named(name):
    step, names, message = REFUSED[name]
    X = people(100, 0)
    model = make_pipeline(columns((step, names)), kmeans()).fit(X)
    refused(f"^pipeline step 'columntransformer': .*{message}", neuralize, model, X)


def tables_with(*texts):
    return pd.DataFrame({"a": pd.Series([*texts] * 10, dtype=object), "b": np.arange(40.0)})


@pytest.mark.parametrize(
    ("X", "steps", "features", "message"),
    [
        (
            tables_with("u", None, np.nan, "v"),
            columns((OneHotEncoder(), ["a"]), ("passthrough", ["b"])),
            None,
            "its column 0 has both None and NaN as categories",
        ),
        (
            tables_with("1", "2", None, "9"),
            make_pipeline(SimpleImputer(strategy="most_frequent", missing_values=None), StandardScaler()),
            None,
            r"missing values of column 'a' are filled with '1'",
        ),
        (
            people(100, 0)[["gain", "hours"]],
            make_pipeline(Normalizer(), SimpleImputer()),
            None,
            r"simpleimputer': it comes after a Normalizer",
        ),
        (torch.randn(60, 3), SimpleImputer(), torch.nn.Identity(), "behind features="),
    ],
)
def test_tables_that_are_refused(X, steps, features, message):
    refused(message, neuralize, make_pipeline(steps, kmeans()).fit(X), X, features)
