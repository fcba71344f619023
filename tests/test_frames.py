"""Tables of other libraries are read as those of pandas: their names, their order, their text and their gaps."""

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import neonxc
from neonxc import evaluation as ev
from neonxc.models import BetaInterpretable, KCenter, KernelKMeans, StronglyInterpretable, patterns
from neonxc.preparation import prepare
from neonxc.trees import CART, IMM, SpExKNN, trade_off
from neonxc.trees.graph import knn_graph

rng = np.random.default_rng(0)
Y = np.repeat([0, 1, 2], 15)
NUMBERS = pd.DataFrame(rng.normal(size=(45, 3)) + 4 * np.eye(3)[Y], columns=["x", "y", "z"])
MIXED = NUMBERS.assign(
    work=np.where(Y == 1, "State", "Private"), size=pd.Categorical(np.array(["S", "M", "L"])[Y]), member=Y > 1
)
MIXED.loc[::7, ["x", "work"]] = None
WEIGHT = pd.Series(np.linspace(1, 2, 45))


def of_arrow(table, column):
    """Read tables by one function and columns by another."""
    return lambda data: table(pa.table(data)) if isinstance(data, pd.DataFrame) else column(data)


CONTAINERS = {
    "pandas with Arrow": lambda data: data.convert_dtypes(dtype_backend="pyarrow"),
    "pandas with NA": lambda data: data.convert_dtypes(),
    "polars": pl.from_pandas,
    "polars, lazy": of_arrow(lambda table: pl.from_arrow(table).lazy(), pl.Series),
    "pyarrow": of_arrow(lambda table: table, pa.array),
    "stream": of_arrow(pa.Table.to_reader, lambda data: pa.chunked_array([data])),
    "duckdb": of_arrow(duckdb.from_arrow, pl.Series),
}
GAPS = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
COLUMNS = make_column_transformer(
    (GAPS, ["x", "y", "z"]), (OneHotEncoder(handle_unknown="ignore"), ["work", "size", "member"])
)
CENTERS = NUMBERS.groupby(Y).mean().reset_index(drop=True)


def of(X, *steps):
    """A network and a tree of a table."""
    model = make_pipeline(*steps, KMeans(3, n_init=1, random_state=0)).fit(X)
    net = neonxc.neuralize(model, X)
    net.model = model
    return net, CART(3).fit(X, labels=Y), X


FITTED = {"numbers": of(NUMBERS, "passthrough"), "mixed": of(MIXED, COLUMNS)}
LABELS = pd.Series(Y)
ANY = {
    "neuralize": lambda net, tree, X, read: neonxc.neuralize(net.model, read(X)).beta,
    "labels": lambda net, tree, X, read: neonxc.neuralize(labels=read(LABELS), X=read(X)).predict(read(X)),
    "predict": lambda net, tree, X, read: net.predict(read(X)),
    "beta": lambda net, tree, X, read: net.heuristic_beta(read(X)),
    "attribute": lambda net, tree, X, read: neonxc.NEON(net).attribute(read(X), target=read(LABELS)),
    "residual": lambda net, tree, X, read: neonxc.NEON(net).residual(read(X)),
    "summary": lambda net, tree, X, read: neonxc.NEON(net).summary(read(X)).to_frame(),
    "contrast": lambda net, tree, X, read: neonxc.contrast(net, read(X), 0, 1).relevance,
    "counterfactual": lambda net, tree, X, read: neonxc.counterfactual(net, read(X), spread=read(X)).distance,
    "CART": lambda net, tree, X, read: (
        CART(3).fit(read(X), labels=read(LABELS), sample_weight=read(WEIGHT)).labels_
    ),
    "tree.predict": lambda net, tree, X, read: tree.predict(read(X)),
    "tree.score": lambda net, tree, X, read: tree.score(read(X)),
    "tree.apply": lambda net, tree, X, read: tree.tree_.apply(read(X)),
    "tree.decision_path": lambda net, tree, X, read: tree.tree_.decision_path(read(X)),
    "rules.measure": lambda net, tree, X, read: (
        tree.tree_.rules().measure(read(X), read(LABELS), read(WEIGHT)).to_frame()
    ),
    "rules.predict": lambda net, tree, X, read: tree.tree_.rules().predict(read(X)),
    "rule.matches": lambda net, tree, X, read: tree.tree_.rules()[0].matches(read(X)),
    "trade_off": lambda net, tree, X, read: trade_off(
        read(X), labels=read(LABELS), candidates={"IMM": IMM(3)}
    ).to_markdown(),
    "patterns": lambda net, tree, X, read: patterns(read(X), read(LABELS)).to_frame(),
    "KCenter": lambda net, tree, X, read: KCenter(3, "gower").fit(read(X)).predict(read(X)),
    "BetaInterpretable": lambda net, tree, X, read: (
        BetaInterpretable(3, 0.6, metric="gower").fit(read(X), foi=read(LABELS)).labels_
    ),
    "StronglyInterpretable": lambda net, tree, X, read: (
        StronglyInterpretable(3, "gower").fit(read(X), foi=read(LABELS)).predict(read(X))
    ),
    "kcenter_cost": lambda net, tree, X, read: ev.kcenter_cost(read(X), read(LABELS), "gower"),
    "pixel_flipping": lambda net, tree, X, read: (
        ev.pixel_flipping(net, read(X), read(neonxc.NEON(net).attribute(X)), ev.ZeroImputer()).curve
    ),
    "compare": lambda net, tree, X, read: (
        ev.compare(net, read(X), ["NEON"], ev.ZeroImputer(), points=9, progress=False).results["NEON"].auc
    ),
    "agreement": lambda net, tree, X, read: ev.agreement(net, tree, read(X)).same,
    "prepare": lambda net, tree, X, read: prepare(read(X)).notes,
}
NUMERIC = {
    "KernelKMeans": lambda net, tree, X, read: (
        KernelKMeans(3, 2, random_state=0).fit(read(X), sample_weight=read(WEIGHT)).transform(read(X))
    ),
    "choose_k": lambda net, tree, X, read: ev.choose_k(read(X), (2, 3)).frame,
    "cost_ratio": lambda net, tree, X, read: ev.cost_ratio(read(X), read(LABELS), read(CENTERS), read(WEIGHT)),
    "centers": lambda net, tree, X, read: IMM(3).fit(read(X), centers=read(CENTERS)).cluster_centers_,
    "neuralize centers": lambda net, tree, X, read: neonxc.neuralize(read(CENTERS)).predict(X.to_numpy()),
    "SpExKNN": lambda net, tree, X, read: SpExKNN(3).fit(read(X), labels=read(LABELS)).labels_,
    "knn_graph": lambda net, tree, X, read: knn_graph(read(X), 3).weight.numpy(),
    "KDEImputer": lambda net, tree, X, read: ev.KDEImputer(read(X)).points.numpy(),
    "calibrate": lambda net, tree, X, read: (
        ev.calibrate_by_flipping(net, read(X), ev.ZeroImputer(), factors=[1]).betas
    ),
}


def compared(found):
    return found.to_numpy() if hasattr(found, "to_numpy") else found


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("entry", [*ANY, *NUMERIC])
def test_every_library_gives_the_result_of_pandas(entry, container):
    ask = {**ANY, **NUMERIC}[entry]
    for net, tree, X in list(FITTED.values())[: 1 if entry in NUMERIC else 2]:
        expected, found = ask(net, tree, X, lambda data: data), ask(net, tree, X, CONTAINERS[container])
        np.testing.assert_equal(compared(found), compared(expected))


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("entry", ["predict", "attribute", "summary", "tree.predict", "tree.apply", "tree.score"])
def test_columns_in_another_order_are_refused(entry, container):
    for net, tree, X in FITTED.values():
        with pytest.raises(ValueError, match=r"order"):
            ANY[entry](net, tree, X[X.columns[::-1]], CONTAINERS[container])


def test_whole_data_sets_and_reports(tmp_path):
    net, tree, X = FITTED["numbers"]
    neonxc.attribute_dataset(net, pl.from_pandas(X), tmp_path)
    expected = neonxc.NEON(net).attribute(X).to_numpy()
    np.testing.assert_equal(neonxc.read_attributions(tmp_path)["relevance"], expected)
    report = neonxc.explain(pl.from_pandas(X.assign(kind=MIXED["size"])), labels=pl.Series(Y))
    assert "x" in report.to_frame()["rule"].iloc[0]


def test_batches_of_other_libraries():
    net, tree, X = FITTED["numbers"]
    table = pa.table(X)
    found = CART(3).fit(lambda: table.to_reader(10), labels=Y)
    assert found.feature_names_in_.tolist() == list(X)
    assert found.predict(lambda: pl.from_arrow(table).iter_slices(10)).tolist() == tree.labels_.tolist()
    with pytest.raises(ValueError, match="order"):
        found.predict(lambda: table.select(["z", "y", "x"]).to_reader(10))


def test_a_stream_is_read_once():
    stream = pa.table(NUMBERS).to_reader()
    assert len(KernelKMeans(3, 2, random_state=0).fit_predict(stream)) == len(Y)
    for ask in (FITTED["numbers"][0].predict, CART(2).fit):
        with pytest.raises(ValueError, match="X has no rows .* can be read once"):
            ask(stream)


def test_decimal_numbers_are_numbers():
    found = duckdb.sql("SELECT range / 1.0::DECIMAL(9, 2) AS a, range::HUGEINT AS b FROM range(20)")
    assert "a ≤" in CART(2).fit(found, labels=np.arange(20) > 9).tree_.rules().to_text()
    assert ev.kmeans_cost(found, [0] * 20) == pytest.approx(2 * 665)


ONCE = {
    "neuralize": lambda X: neonxc.neuralize(CENTERS, X),
    "predict": lambda X: FITTED["numbers"][0].predict(X),
    "explain": lambda X: neonxc.explain(X, labels=Y),
    "CART": lambda X: CART(3).fit(X, labels=Y),
    "rules": lambda X: FITTED["numbers"][1].tree_.rules().predict(X),
    "KernelKMeans": lambda X: KernelKMeans(3).fit(X),
    "KCenter": lambda X: KCenter(3).fit(X),
    "patterns": lambda X: patterns(X, Y),
    "choose_k": lambda X: ev.choose_k(X),
    "prepare": lambda X: prepare(X),
}


@pytest.mark.parametrize("entry", ONCE)
def test_columns_of_the_same_name_are_refused(entry):
    twice = NUMBERS.set_axis(["x", "y", "x"], axis=1)
    for table in (twice, pa.Table.from_arrays([pa.array(twice.iloc[:, i]) for i in range(3)], list(twice))):
        with pytest.raises(ValueError, match=r"several columns of the same name: \['x'\]"):
            ONCE[entry](table)


def test_levels_of_column_names_are_joined():
    X = NUMBERS.set_axis(pd.MultiIndex.from_tuples([("a", "mean"), ("a", "std"), ("b", "")]), axis=1)
    net, names = neonxc.neuralize(CENTERS.to_numpy(), X), ["a_mean", "a_std", "b"]
    assert net.feature_names_ == names == list(neonxc.NEON(net).attribute(X))
    assert {column.key for column in CART(3).fit(X, labels=Y).tree_.rules().columns} <= set(names)
    assert "a_mean" in neonxc.explain(X, labels=Y).to_frame().to_string()


class Cells:
    """An AnnData: a matrix of cells and genes."""

    def __init__(self, X):
        self.X, self.shape = X, X.shape
        self.var_names, self.obs_names = (
            pd.Index(["CD3", "CD8", "CD19"]),
            pd.Index([f"cell {i}" for i in range(45)]),
        )

    def __len__(self):
        return len(self.obs_names)


def test_matrix_of_an_anndata():
    cells = Cells(NUMBERS.to_numpy())
    net = neonxc.neuralize(CENTERS.to_numpy(), cells)
    relevance = neonxc.NEON(net).attribute(cells)
    assert list(relevance) == list(cells.var_names)
    assert list(relevance.index) == list(cells.obs_names)
    np.testing.assert_equal(relevance.to_numpy(), neonxc.NEON(net).attribute(cells.X))
    assert "CD" in CART(3).fit(cells, labels=Y).tree_.rules()[0].text()
    counts = Cells(sparse.csr_matrix(np.maximum(cells.X, 0)))
    tree = CART(3).fit(counts, labels=Y)
    assert tree.predict(counts).tolist() == tree.tree_.predict(counts.X).tolist()
    net = neonxc.neuralize(tree)
    np.testing.assert_equal(neonxc.NEON(net).attribute(counts), neonxc.NEON(net).attribute(counts.X))
    assert (
        "CD"
        in neonxc.explain(KMeans(3, n_init=1, random_state=0).fit(counts.X), counts).to_frame()["rule"].iloc[0]
    )
