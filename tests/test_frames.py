"""Tables of other libraries are read as those of pandas: their names, their order, their text and their gaps."""

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import neonxc
from neonxc import NEON
from neonxc import evaluation as ev
from neonxc.models import BetaInterpretable, KCenter, KernelKMeans, patterns
from neonxc.preparation import prepare
from neonxc.trees import CART, IMM, trade_off
from neonxc.trees.graph import knn_graph

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
        "tree.apply": lambda X, y: tree.tree_.apply(X),
        "rules.measure": lambda X, y: rules.measure(X, y, y).to_text(),
        "trade_off": lambda X, y: trade_off(X, labels=y, candidates={"IMM": IMM(3)}).to_markdown(),
        "patterns": lambda X, y: patterns(X, y).to_frame(),
        "KCenter": lambda X, y: KCenter(3, "gower").fit(X).labels_,
        "BetaInterpretable": lambda X, y: BetaInterpretable(3, 0.6, metric="gower").fit(X, foi=y).labels_,
        "compare": lambda X, y: ev.compare(net, X, ["NEON"], ZERO, steps=2).results["NEON"].auc,
        "agreement": lambda X, y: ev.agreement(net, tree, X).same,
        "prepare": lambda X, y: prepare(X).notes,
    }, {
        "pixel_flipping": lambda X, y: ev.pixel_flipping(net, NUMBERS, X, ZERO).curve,
        "IMM": lambda X, y: IMM(3).fit(NUMBERS, centers=X).inertia_,
        "KernelKMeans": lambda X, y: KernelKMeans(random_state=0).fit(X, labels=y, sample_weight=y).score(NUMBERS),
        "choose_k": lambda X, y: ev.choose_k(X, (2, 3)).frame,
        "cost_ratio": lambda X, y: ev.cost_ratio(NUMBERS, y, X),
        "knn_graph": lambda X, y: knn_graph(X, 3).weight.numpy(),
    }


ANY, NUMERIC = entries(*FITTED["numbers"])
TABLES = [("numbers", NUMBERS, ANY | NUMERIC), ("mixed", MIXED, entries(*FITTED["mixed"])[0])]


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("entry", [*ANY, *NUMERIC])
def test_every_library_gives_the_result_of_pandas(entry, container):
    for _, X, asked in TABLES[: 1 if entry in NUMERIC else 2]:
        found = [asked[entry](read(X), read(Y)) for read in (CONTAINERS[container], lambda data: data)]
        np.testing.assert_equal(*[one.to_numpy() if hasattr(one, "to_numpy") else one for one in found])


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("entry", ["neuralize", "predict", "attribute", "summary", "tree.predict", "tree.score"])
def test_columns_in_another_order_are_refused(entry, container):
    for _, X, asked in TABLES:
        with pytest.raises(ValueError, match="order"):
            asked[entry](CONTAINERS[container](X[X.columns[::-1]]), Y)


def test_whole_data_sets_and_batches(tmp_path):
    (net, tree, _), table = FITTED["numbers"], pa.table(NUMBERS)
    neonxc.attribute_dataset(net, pl.from_arrow(table), tmp_path)
    np.testing.assert_equal(neonxc.read_attributions(tmp_path)["relevance"], NEON(net).attribute(NUMBERS))
    found = CART(3).fit(lambda: table.to_reader(10), labels=Y)
    assert found.predict(lambda: pl.from_arrow(table).iter_slices(10)).tolist() == tree.labels_.tolist()
    with pytest.raises(ValueError, match="order"):
        found.predict(lambda: table.select(["z", "y", "x"]).to_reader(10))


def test_a_stream_is_read_once():
    stream = pa.table(NUMBERS).to_reader()
    assert len(KernelKMeans(3).fit_predict(stream)) == len(Y)
    for ask in (FITTED["numbers"][0].predict, CART(2).fit):
        with pytest.raises(ValueError, match=r"X has no rows .* can be read once"):
            ask(stream)


def test_decimal_numbers_are_numbers():
    found = duckdb.sql("SELECT range / 1.0::DECIMAL(9, 2) AS a FROM range(20)")
    assert ev.kmeans_cost(found, [0] * 20) == pytest.approx(665)


@pytest.mark.parametrize("entry", ["labels", "predict", "fit", "KernelKMeans", "KCenter"])
def test_columns_of_the_same_name_are_refused(entry):
    twice = pa.Table.from_arrays([pa.array(NUMBERS[name]) for name in NUMBERS], ["x", "y", "x"])
    for table in (twice, twice.to_pandas()):
        with pytest.raises(ValueError, match=r"X has several columns of the same name: \['x'\]"):
            TABLES[0][2][entry](table, Y)


def test_levels_of_column_names_are_joined():
    X = NUMBERS.set_axis(pd.MultiIndex.from_tuples([("a", "mean"), ("a", "std"), ("b", "")]), axis=1)
    net = neonxc.neuralize(CENTERS.to_numpy(), X)
    assert net.feature_names_ == list(NEON(net).attribute(X)) == ["a_mean", "a_std", "b"]
    assert "a_" in CART(3).fit(X, labels=Y).tree_.rules().to_text()
    assert "a_" in neonxc.explain(X, labels=Y).to_frame()["rule"].iloc[0]


class Cells:
    """An AnnData: a matrix of cells and genes."""

    def __init__(self, X):
        self.X, self.shape, self.obs_names = X, X.shape, Y.index + 100
        self.var_names = pd.Index(["CD3", "CD8", "CD19"])


def test_matrix_of_an_anndata():
    cells, counts = Cells(NUMBERS.to_numpy()), Cells(sparse.csr_matrix(NUMBERS.clip(0)))
    net = neonxc.neuralize(CENTERS.to_numpy(), cells)
    relevance = NEON(net).attribute(cells)
    assert list(relevance) == list(cells.var_names)
    assert list(relevance.index) == list(cells.obs_names)
    for given in (cells, counts):
        tree = CART(3).fit(given, labels=Y)
        assert tree.predict(given).tolist() == tree.tree_.predict(given.X).tolist()
    assert "CD" in neonxc.explain(KMeans(3, n_init=1).fit(counts.X), counts).to_frame()["rule"].iloc[0]


@pytest.mark.parametrize("read", [pl.from_pandas, lambda frame: frame.astype({"work": "string"})])  # of pandas.NA
def test_reports_of_text_with_gaps(read):
    frame = MIXED[["x", "work"]]
    assert (
        "work is State" in neonxc.explain(read(frame), labels=frame["work"] == "State").to_frame()["rule"].iloc[1]
    )
