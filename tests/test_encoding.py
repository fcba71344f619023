"""Tables become numbers as scikit-learn's encoders make them, whatever their options and the order of steps."""

import contextlib
import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, OneHotEncoder, OrdinalEncoder, StandardScaler

import neonxc
from neonxc.data.kinds import plain
from neonxc.data.table import Table
from neonxc.pipelines.encoding import Encoding
from neonxc.pipelines.folding import encoding_and_map, fold
from neonxc.pipelines.parts import FUNCTIONS, INVERSES, Code, Indicator, Number

ENCODING = Encoding(
    ("age", "work"),
    (
        Number(0, 40.0, ("log1p",)),
        Indicator(1, ("State",)),
        Indicator(1, ("Self", None)),
        Code(1, ("Private", "State")),
        Code(1, ("Private", None), 7.0, (0.5, -1.0)),
    ),
    {1: ("Private", "State", "Self", None)},
)


def parsed(known):
    """The known values of the second column, or any if there are none."""
    return Encoding(ENCODING.columns, ENCODING.parts[:3] + ENCODING.parts[4:], known)


def test_what_the_parts_are():
    X = pd.DataFrame({"age": [1.0, np.nan, 3.0], "work": ["Private", None, "Self"]})
    found = parsed({}).encode(X)
    logs = np.log1p([1.0, 40.0, 3.0])
    expected = np.stack([logs, [0, 0, 0], [0, 1, 1], [0.5, -1, 7]], 1)
    np.testing.assert_array_equal(found.numpy(), expected)
    assert found.dtype == torch.float64
    assert ENCODING.names == ["age", "work_State", "work_Self|missing", "work", "work"]
    assert ENCODING.owner.tolist() == [0, 1, 1, 1, 1]


def test_relevance_goes_back_to_the_columns():
    relevance = torch.arange(10.0).reshape(2, 5)
    assert ENCODING.collected(relevance).tolist() == [[0, 10], [5, 30]]


def test_values_that_are_not_known():
    X = pd.DataFrame({"age": [1.0, 2.0], "work": ["Private", "Church"]})
    with pytest.raises(ValueError, match=r"'Church' in row 1, column 'work'; the known values are \['Private', "):
        ENCODING.encode(X)
    assert parsed({}).encode(X)[1].tolist() == [np.log1p(2.0), 0, 0, 7]
    with pytest.raises(ValueError, match="an unknown value in row 1, column 'work'"):
        Encoding(("work",), (Code(0, ("Private",)),)).encode(X[["work"]])


def test_copies_and_files(tmp_path):
    for copied in (copy.deepcopy(ENCODING), pickle.loads(pickle.dumps(ENCODING))):
        assert copied == ENCODING
    neonxc.save(ENCODING, tmp_path / "encoding.safetensors")
    again = neonxc.load(tmp_path / "encoding.safetensors")
    assert again == ENCODING
    assert [type(value) for part in again.parts for value in vars(part).values()] == [
        type(value) for part in ENCODING.parts for value in vars(part).values()
    ]


@pytest.mark.parametrize(
    "damaged",
    [
        Encoding(("a",), (Number(1),)),
        Encoding(("a",), (Number(-1),)),
        Encoding(("a",), (Number(0, None, ("system",)),)),
        Encoding((3,), (Number(0),)),
        Encoding(("a",), (Number(0),), {4: ("x",)}),
    ],
)
def test_damaged_files_are_refused(damaged, tmp_path):
    neonxc.save(damaged, tmp_path / "encoding.safetensors")
    with pytest.raises(ValueError, match="is damaged"):
        neonxc.load(tmp_path / "encoding.safetensors")


def test_categories_are_plain_values():
    values = [np.float32(0.5), np.int64(3), np.bool_(True), np.str_("a"), np.nan, None, pd.NA]
    found = [plain(value) for value in values]
    assert found == [0.5, 3, True, "a", None, None, None]
    assert [type(value) for value in found[:4]] == [float, int, bool, str]
    assert plain(pd.Timestamp("2024-01-01")) == "2024-01-01"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_increasing_and_known_both_ways(name):
    x = np.linspace(0.5, 3, 20)
    y = FUNCTIONS[name](x)
    assert (np.diff(y) > 0).all()
    assert FUNCTIONS[name] is getattr(np, name)
    np.testing.assert_allclose(INVERSES[name](y), x, rtol=1e-12)


def dense(Z):
    return np.asarray(Z.toarray() if hasattr(Z, "toarray") else Z, dtype=float)


def folded(model, X, other):
    """What the folded steps make of another table: `model` was fitted to X."""
    steps = [("step", model)]
    encoding, preprocessing = encoding_and_map(fold(steps, X.shape[1]), steps, Table(X), list(X.columns))
    x = torch.as_tensor(other.to_numpy(dtype=float)) if encoding is None else encoding.encode(other)
    z = x * preprocessing.weight if preprocessing.diagonal else x @ preprocessing.weight.T
    return (z + preprocessing.bias).numpy()


def check_as_transformed(model, X, other):
    """The folded steps make what the steps themselves make of both tables, or both refuse a value."""
    model.fit(X)
    for table in (X, other):
        expected = None
        with warnings.catch_warnings(), contextlib.suppress(ValueError):  # of unknown categories
            warnings.simplefilter("ignore", UserWarning)
            expected = dense(model.transform(table))
        if expected is None or np.isnan(expected).any():
            with pytest.raises(ValueError, match=r"row \d+, column '\w'"):
                folded(model, X, table)
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
        a[:2], b[:2] = ["u", "v"], [1.0, 3.5]
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


@given(tables(), one_hot)
def test_one_hot(both, encoder):
    check_as_transformed(encoder, *both)


@given(tables(), ordinal, st.booleans())
def test_ordinal(both, encoder, filled):
    steps = (encoder, SimpleImputer(strategy="median"), StandardScaler()) if filled else (encoder,)
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
    X, other = (table[["b"]] for table in both)
    if order.index("log1p") < order.index("scale"):
        check_as_transformed(model, X, other)
        return
    model.fit(X)
    with pytest.raises(ValueError, match="a step before it scales them"):
        folded(model, X, other)


def test_columns_without_any_value_are_left_out():
    X = pd.DataFrame({"a": [np.nan, np.nan], "b": [1.0, np.nan]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        check_as_transformed(SimpleImputer(add_indicator=True), X, X)
    check_as_transformed(SimpleImputer(keep_empty_features=True), X, X)


def test_a_column_of_two_encoders_has_the_values_that_both_know():
    X = pd.DataFrame({"a": ["u", "v", "w"] * 4})
    narrow = OneHotEncoder(categories=[["u", "v"]]).fit(X[:2])
    wide = OneHotEncoder().fit(X)
    both = ColumnTransformer([("narrow", narrow, ["a"]), ("wide", wide, ["a"])]).fit(X[:2])
    both.transformers_ = [("narrow", narrow, ["a"]), ("wide", wide, ["a"])]
    steps = [("both", both)]
    encoding, _ = encoding_and_map(fold(steps, 1), steps, Table(X[:2]), ["a"])
    assert encoding.known == {0: ("u", "v")}


@pytest.mark.parametrize("strategy", ["most_frequent", "constant"])
def test_none_where_the_imputer_fills_nan_alone(strategy):
    frame = pd.DataFrame({"work": pd.Series(["a", "b", np.nan], dtype=object)})
    one_hot = OneHotEncoder(handle_unknown="ignore")
    steps = make_pipeline(SimpleImputer(strategy=strategy, fill_value="b"), one_hot).fit(frame).steps
    encoding, _ = encoding_and_map(fold(steps, 1), steps, Table(frame), ["work"])
    with pytest.raises(ValueError, match=r"X has None in row 2, column 'work', .* takes NaN alone"):
        encoding.encode(frame.where(frame.notna(), None))


@pytest.mark.parametrize("dtype", ["string", "category", object])
@pytest.mark.parametrize("missing", [pd.NA, None, np.nan])
@pytest.mark.parametrize("strategy", ["most_frequent", "constant"])
def test_na_of_an_imputer_is_every_missing_value(strategy, missing, dtype):
    work = pd.Series(["a", "b", missing, "a", missing], dtype=dtype)
    X, other = pd.DataFrame({"work": work}), pd.DataFrame({"work": [None, "b", pd.NA, np.nan]}, dtype=object)
    imputer = SimpleImputer(missing_values=pd.NA, strategy=strategy, fill_value="b", add_indicator=True)
    check_as_transformed(make_pipeline(imputer, OneHotEncoder(handle_unknown="ignore")), X, other)


def test_clusters_of_rows_with_na():
    X = pd.DataFrame({"work": pd.Series(["a", "b", pd.NA, "a"] * 5, dtype=object), "age": np.arange(20.0)})
    fill = make_pipeline(SimpleImputer(missing_values=pd.NA, strategy="most_frequent"), OneHotEncoder())
    model = make_pipeline(
        ColumnTransformer([("fill", fill, ["work"])], remainder="passthrough"), KMeans(2, n_init=1)
    )
    np.testing.assert_array_equal(neonxc.neuralize(model.fit(X), X).predict(X), model.predict(X))
    assert Table.read(X).frame()["work"][2] is None  # NA can't be compared
