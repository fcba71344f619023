"""Tables become numbers as scikit-learn's encoders make them, whatever their options and the order of steps."""

import contextlib
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from scipy.sparse import csr_array
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, OneHotEncoder, OrdinalEncoder, StandardScaler

import neonxc
from neonxc.data.table import Table
from neonxc.pipelines.folding import encoding_and_map, fold

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of unknown categories


def test_damaged_files_are_refused(tmp_path):
    X = pd.DataFrame({"age": [1.0, np.nan, 3.0, 2.0]})
    whole = neonxc.neuralize(make_pipeline(SimpleImputer(), KMeans(2, n_init=1)).fit(X), X).inputs.encoding
    parts = [
        replace(whole.parts[0], **change) for change in ({"column": 1}, {"column": -1}, {"functions": ("system",)})
    ]
    for change in (*({"parts": (part,)} for part in parts), {"columns": (3,)}, {"known": {4: ("x",)}}):
        neonxc.save(replace(whole, **change), tmp_path / "encoding")
        refused("is damaged", neonxc.load, tmp_path / "encoding")


@pytest.mark.parametrize("name", ["log", "log1p", "log2", "log10", "sqrt", "cbrt", "exp", "expm1", "arcsinh"])
def test_functions_are_known_both_ways(name):
    """The way to another cluster ends in the middle between the centers of the function's values."""
    function = getattr(np, name)
    x = np.linspace(0.5, 3, 20)[:, None]
    model = make_pipeline(FunctionTransformer(function), KMeans(2, n_init=1, random_state=0)).fit(x)
    net = neonxc.neuralize(model, x)
    np.testing.assert_array_equal(net.predict(x), model.predict(x))
    (other,) = 1 - net.predict(x[:1])
    found = neonxc.counterfactual(net, x[:1], target=other).points
    assert function(found).item() == pytest.approx(model[-1].cluster_centers_.mean(), rel=1e-4)


def folded(model, X, other):
    """What the folded steps make of another table: `model` was fitted to X."""
    steps = [("step", model)]
    encoding, preprocessing = encoding_and_map(fold(steps, X.shape[1]), steps, Table.read(X), list(X.columns))
    x = torch.as_tensor(other.to_numpy(dtype=float)) if encoding is None else encoding.encode(other)
    z = x * preprocessing.weight if preprocessing.diagonal else x @ preprocessing.weight.T
    return (z + preprocessing.bias).numpy()


def check_as_transformed(model, X, other):
    """The folded steps make what the steps themselves make of both tables, or both refuse a value."""
    model.fit(X)
    for table in (X, other):
        expected = np.nan
        with contextlib.suppress(ValueError):
            expected = csr_array(model.transform(table), dtype=float).toarray()
        if np.isnan(expected).any():
            refused(r"row \d+, column '\w+'", folded, model, X, table)
        else:
            np.testing.assert_allclose(folded(model, X, table), expected, rtol=1e-12, atol=1e-12)


WORDS = st.sampled_from(["u", "v", "w", "x", None])
NUMBERS = st.sampled_from([0.0, 1.0, 2.0, 3.5, np.nan])


@st.composite
def tables(draw):
    """Two tables of one column of words and one of numbers; the second has words that the first has not."""
    n = draw(st.integers(8, 20))
    result = []
    for words in (WORDS, st.one_of(WORDS, st.just("new"))):
        a = draw(st.lists(words, min_size=n, max_size=n))
        b = draw(st.lists(NUMBERS, min_size=n, max_size=n))
        a[:2] = ["u", "v"]
        b[:2] = [1.0, 3.5]
        result.append(pd.DataFrame({"a": a, "b": b}).astype({"a": draw(st.sampled_from(["str", "category"]))}))
    return result


rarity = {
    "min_frequency": st.sampled_from([None, 2, 0.2]),
    "max_categories": st.sampled_from([None, 2, 3]),
}
one_hot = st.builds(
    OneHotEncoder,
    drop=st.sampled_from([None, "first", "if_binary"]),
    handle_unknown=st.sampled_from(["error", "ignore", "infrequent_if_exist", "warn"]),
    sparse_output=st.booleans(),
    **rarity,
)
ordinal = st.builds(
    lambda unknown, **options: OrdinalEncoder(
        handle_unknown="error" if unknown is None else "use_encoded_value", unknown_value=unknown, **options
    ),
    unknown=st.sampled_from([None, -1, 20, np.nan]),
    encoded_missing_value=st.sampled_from([np.nan, -2, 30]),
    **rarity,
)
imputers = st.builds(
    SimpleImputer,
    strategy=st.sampled_from(["mean", "median", "most_frequent"]),
    add_indicator=st.booleans(),
)
word_imputers = st.builds(SimpleImputer, strategy=st.sampled_from(["most_frequent", "constant"]))


@pytest.mark.parametrize("encoders", [one_hot, ordinal])
@given(st.data(), tables())
def test_encoders(encoders, data, both):
    """Codes may be filled and scaled."""
    steps = [data.draw(encoders)]
    if encoders is ordinal and data.draw(st.booleans()):
        steps += [SimpleImputer(strategy="median"), StandardScaler()]
    check_as_transformed(make_pipeline(*steps), *both)


@given(tables(), word_imputers, st.one_of(one_hot, ordinal), imputers)
def test_categories_behind_an_imputer(both, filler, encoder, imputer):
    words = make_pipeline(filler, encoder)
    numbers = make_pipeline(imputer, StandardScaler())
    check_as_transformed(ColumnTransformer([("n", numbers, ["b"]), ("w", words, ["a"])]), *both)


@given(tables(), st.permutations(["log1p", "fill", "scale"]), imputers)
def test_fills_among_functions_and_scalers(both, order, imputer):
    """In any order, but a function does not come after a scaler."""
    made = {"log1p": FunctionTransformer(np.log1p), "fill": imputer, "scale": MinMaxScaler()}
    model = make_pipeline(*(made[name] for name in order))
    (X, other) = (table[["b"]] for table in both)
    if order.index("log1p") < order.index("scale"):
        check_as_transformed(model, X, other)
    else:
        refused("a step before it scales them", folded, model.fit(X), X, other)


def test_columns_without_any_value_are_left_out():
    X = pd.DataFrame({"a": [np.nan, np.nan], "b": [1.0, np.nan]})
    for options in ({"add_indicator": True}, {"keep_empty_features": True}):
        check_as_transformed(SimpleImputer(**options), X, X)


def test_a_column_of_two_encoders_has_the_values_that_both_know():
    X = pd.DataFrame({"a": ["u", "v", "w"] * 4})
    both = ColumnTransformer([(name, OneHotEncoder(), ["a"]) for name in ("narrow", "wide")]).fit(X)
    both.named_transformers_["narrow"].fit(X[:2])
    refused(r"'w' in row 2, column 'a'; the known values are \['u', 'v'\]", folded, both, X[:2], X)


@pytest.mark.parametrize("strategy", ["most_frequent", "constant"])
def test_none_where_the_imputer_fills_nan_alone(strategy):
    frame = pd.DataFrame({"work": pd.Series(["a", "b", np.nan], dtype=object)})
    model = make_pipeline(
        SimpleImputer(strategy=strategy, fill_value="b"), OneHotEncoder(handle_unknown="ignore")
    ).fit(frame)
    message = r"X has None in row 2, column 'work', .* takes NaN alone"
    refused(message, folded, model, frame, frame.where(frame.notna(), None))


@pytest.mark.parametrize("dtype", ["string", "category", object])
@pytest.mark.parametrize("missing", [pd.NA, None, np.nan])
@pytest.mark.parametrize("strategy", ["most_frequent", "constant"])
def test_na_of_an_imputer_is_every_missing_value(strategy, missing, dtype):
    work = pd.Series(["a", "b", missing, "a", missing], dtype=dtype)
    X = pd.DataFrame({"work": work})
    other = pd.DataFrame({"work": [None, "b", pd.NA, np.nan]}, dtype=object)
    imputer = SimpleImputer(missing_values=pd.NA, strategy=strategy, fill_value="b", add_indicator=True)
    check_as_transformed(make_pipeline(imputer, OneHotEncoder(handle_unknown="ignore")), X, other)
