"""Tables of other libraries are read as those of pandas: their names, their order, their text and their gaps."""

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import neonxc
from neonxc import NEON
from neonxc import evaluation as ev
from neonxc.data.frames import as_pandas
from neonxc.data.inputs import as_array
from neonxc.data.preparation import prepare
from neonxc.data.table import Table
from neonxc.models import BetaInterpretable, KernelKMeans, patterns
from neonxc.trees import CART

Y = pd.Series(np.repeat([0, 1, 2], 15))
NUMBERS = pd.DataFrame(np.random.default_rng(0).normal(size=(45, 3)) + 4 * np.eye(3)[Y], columns=["x", "y", "z"])
MIXED = NUMBERS.assign(
    work=np.where(Y == 1, "State", "Private"), size=pd.Categorical(np.array(["S", "M", "L"])[Y]), member=Y > 1
)
MIXED.loc[::7, ["x", "work"]] = None
CENTERS = NUMBERS.groupby(Y).mean()
ZERO = ev.ZeroImputer()


def arrow(table, column):
    """Read tables by one function and columns by another."""
    return lambda data: table(pa.table(data)) if isinstance(data, pd.DataFrame) else column(data)


CONTAINERS = {
    "pandas with Arrow": lambda data: data.convert_dtypes(dtype_backend="pyarrow"),
    "pandas with NA": lambda data: data.convert_dtypes(),
    "polars": pl.from_pandas,
    "polars, lazy": arrow(lambda table: pl.from_arrow(table).lazy(), pl.Series),
    "pyarrow": arrow(lambda table: table, pa.array),
    "stream": arrow(pa.Table.to_reader, lambda data: pa.chunked_array([data])),
    "duckdb": arrow(duckdb.from_arrow, pl.Series),
}


def fitted(X, *steps):
    """A network, a tree, and a pipeline of a table."""
    model = make_pipeline(*steps, KMeans(3, n_init=1, random_state=0)).fit(X)
    return neonxc.neuralize(model, X), CART(3).fit(X, labels=Y), model


FITTED = {"numbers": fitted(NUMBERS, StandardScaler()), "mixed": fitted(MIXED, prepare(MIXED).pipeline)}


def entries(net, tree, model):
    """What a user may do with any table, and what with numbers alone."""
    neon, rules = NEON(net), tree.tree_.rules()
    return {
        "neuralize": lambda X, y: neonxc.neuralize(model, X).beta,
        "labels": lambda X, y: neonxc.neuralize(labels=y, X=X).beta,
        "predict": lambda X, y: net.predict(X),
        "attribute": lambda X, y: neon.attribute(X, y),
        "summary": lambda X, y: neon.summary(X).relevance,
        "contrast": lambda X, y: neonxc.contrast(net, X, 0, 1).relevance,
        "counterfactual": lambda X, y: neonxc.counterfactual(net, X).distance,
        "fit": lambda X, y: CART(3).fit(X, labels=y, sample_weight=y).labels_,
        "tree.predict": lambda X, y: tree.predict(X),
        "tree.score": lambda X, y: tree.score(X),
        "rules.measure": lambda X, y: rules.measure(X, y, y).to_text(),
        "patterns": lambda X, y: patterns(X, y).to_frame(),
        "BetaInterpretable": lambda X, y: BetaInterpretable(3, 0.6, metric="gower").fit(X, foi=y).labels_,
        "compare": lambda X, y: ev.compare(net, X, ["NEON"], ZERO, steps=2).results["NEON"].auc,
        "agreement": lambda X, y: ev.agreement(net, tree, X).same,
    }, {
        "pixel_flipping": lambda X, y: ev.pixel_flipping(net, NUMBERS, X, ZERO).curve,
        "KernelKMeans": lambda X, y: KernelKMeans(random_state=0).fit(X, labels=y, sample_weight=y).score(NUMBERS),
        "choose_k": lambda X, y: ev.choose_k(X, (2, 3)).frame,
        "cost_ratio": lambda X, y: ev.cost_ratio(NUMBERS, y, X),
    }


ANY, NUMERIC = entries(*FITTED["numbers"])
TABLES = [(NUMBERS, ANY | NUMERIC), (MIXED, entries(*FITTED["mixed"])[0])]


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("entry", [*ANY, *NUMERIC])
def test_every_library_gives_the_result_of_pandas(entry, container):
    for X, asked in TABLES[: 1 if entry in NUMERIC else 2]:
        found = [asked[entry](read(X), read(Y)) for read in (CONTAINERS[container], lambda data: data)]
        np.testing.assert_equal(*[one.to_numpy() if hasattr(one, "to_numpy") else one for one in found])
        if entry in ("neuralize", "predict", "attribute", "summary", "tree.predict", "tree.score"):
            with pytest.raises(ValueError, match="order"):
                asked[entry](CONTAINERS[container](X[X.columns[::-1]]), Y)


GIVEN_BACK = {"polars": pl.DataFrame, "polars, lazy": pl.DataFrame, "pyarrow": pa.Table, "stream": pa.Table}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name", FITTED)
def test_relevance_is_a_table_of_the_same_library(name, container):
    X, (net, *_) = {"numbers": NUMBERS, "mixed": MIXED}[name], FITTED[name]
    expected, found = NEON(net).attribute(X), NEON(net).attribute(CONTAINERS[container](X))
    assert type(found) is GIVEN_BACK.get(container, pd.DataFrame)
    pd.testing.assert_frame_equal(as_pandas(found), expected)


POINTS = np.repeat(NUMBERS.to_numpy(np.float32), 2, axis=0)
KINDS = {
    "array": np.asarray,
    "list": np.ndarray.tolist,
    "tensor": torch.tensor,
    "sparse": sparse.csr_matrix,
    "frame": lambda points: pd.DataFrame(points, columns=NUMBERS.columns),
    "polars": lambda points: pl.DataFrame(points, list(NUMBERS.columns)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_one_table_for_all_kinds(kind):
    table = Table.read(KINDS[kind](POINTS), 3)
    assert table.shape == (90, 3)
    assert table.distinct() == 45
    values = torch.tensor(POINTS)
    if kind == "sparse":
        np.testing.assert_array_equal(table.dense(), POINTS)
    else:
        np.testing.assert_array_equal(table.tensor, values)
        assert type(table.restore(values)) is type(table.data)
    for rows in ([3, 1], slice(1, 4)):
        np.testing.assert_array_equal(as_array(table.take(rows).dense()), POINTS[rows])
    np.testing.assert_array_equal(as_array(table.select([2, 0]).dense()), POINTS[:, [2, 0]])
    np.testing.assert_array_equal(as_array(table.column(1)), POINTS[:, 1])
    np.testing.assert_array_equal(table.frame(), POINTS)
    assert sum(map(len, table.blocks(1 << 25))) == 90
    with pytest.raises(ValueError, match="X has 3 features, the clustering was fitted on 4"):
        Table.read(table, 4)


def test_whole_data_sets_and_batches(tmp_path):
    net, tree, _ = FITTED["numbers"]
    neonxc.attribute_dataset(net, pl.from_pandas(NUMBERS), tmp_path)
    np.testing.assert_equal(neonxc.read_attributions(tmp_path)["relevance"], NEON(net).attribute(NUMBERS))
    found = CART(3).fit(lambda: pa.table(NUMBERS).to_reader(10), labels=Y)
    assert found.predict(lambda: pl.from_pandas(NUMBERS).iter_slices(10)).tolist() == tree.labels_.tolist()


def test_a_stream_is_read_once():
    stream = pa.table(NUMBERS).to_reader()
    KernelKMeans(3).fit_predict(stream)
    with pytest.raises(ValueError, match=r"X has no rows .* can be read once"):
        CART(2).fit(stream)


def test_decimal_numbers_are_numbers():
    found = duckdb.sql("SELECT range / 1.0::DECIMAL(9, 2) AS a FROM range(20)")
    assert ev.kmeans_cost(found, [0] * 20) == pytest.approx(665)


@pytest.mark.parametrize("entry", ["labels", "predict", "fit", "rules.measure", "KernelKMeans", "patterns"])
def test_columns_of_the_same_name_are_refused(entry):
    twice = pa.table(NUMBERS).rename_columns(["x", "y", "x"])
    for table in (twice, twice.to_pandas()):
        with pytest.raises(ValueError, match=r"X has several columns of the same name: \['x'\]"):
            TABLES[0][1][entry](table, Y)


def test_levels_of_column_names_are_joined():
    X = NUMBERS.set_axis(pd.MultiIndex.from_product([["a"], ["mean", "std", ""]]), axis=1)
    net = neonxc.neuralize(CENTERS.to_numpy(), X)
    assert net.feature_names_ == list(NEON(net).attribute(X)) == ["a_mean", "a_std", "a"]
    assert "a_" in neonxc.explain(X, labels=Y).to_frame()["rule"].iloc[0]


class Cells:
    """An AnnData: a matrix of cells and genes."""

    def __init__(self, X):
        self.X, self.shape, self.obs_names = X, X.shape, Y.index + 100
        self.var_names = pd.Index(["CD3", "CD8", "CD19"])


def test_matrix_of_an_anndata():
    cells, counts = Cells(NUMBERS.to_numpy()), Cells(sparse.csr_matrix(NUMBERS.clip(0)))
    relevance = NEON(neonxc.neuralize(CENTERS.to_numpy(), cells)).attribute(cells)
    assert [list(axis) for axis in relevance.axes] == [list(cells.obs_names), list(cells.var_names)]
    tree = CART(3).fit(counts, labels=Y)
    assert tree.predict(counts).tolist() == tree.tree_.predict(counts.X).tolist()
    assert "CD" in neonxc.explain(KMeans(3, n_init=1).fit(counts.X), counts).to_frame()["rule"].iloc[0]


@pytest.mark.parametrize("read", [pl.from_pandas, lambda frame: frame.astype({"work": "string"})])  # of pandas.NA
def test_reports_of_text_with_gaps(read):
    frame = MIXED[["x", "work"]]
    assert (
        "work is State" in neonxc.explain(read(frame), labels=frame["work"] == "State").to_frame()["rule"].iloc[1]
    )
