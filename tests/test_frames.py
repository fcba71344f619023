"""Tables of any library are read as those of pandas: their names, their order, their text and their gaps.

``python -m tests.test_frames`` writes the table of ``docs/containers.md``, which is compared with what happens.
"""

import re
import sys
from collections import namedtuple
from datetime import date, time
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal, assert_equal
from pandas.testing import assert_frame_equal
from refusals import refused
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import neonxc
from neonxc import NEON, explain, moves, neuralize
from neonxc import evaluation as ev
from neonxc.data.preparation import prepare
from neonxc.models import BetaInterpretable, KernelKMeans, patterns
from neonxc.trees import CART

pytestmark = pytest.mark.usefixtures("without_reality")


Y = pd.Series(np.repeat([0, 1, 2], 15))
NUMBERS = pd.DataFrame(np.random.default_rng(0).normal(size=(45, 3)) + 4 * np.eye(3)[Y], columns=["x", "y", "z"])
MIXED = NUMBERS.assign(
    work=np.where(Y == 1, "State", "Private"), size=pd.Categorical(np.array(["S", "M", "L"])[Y]), member=Y > 1
)
MIXED.loc[::7, ["x", "work"]] = None
CENTERS = NUMBERS.groupby(Y).mean()
ZERO = ev.ZeroImputer()
PAGE = Path(__file__).parent.parent / "docs" / "containers.md"


def arrow(table, column):
    """Read tables by one function and columns by another."""
    return lambda data: table(pa.table(data)) if isinstance(data, pd.DataFrame) else column(data)


def plain(make):
    """Read a table without names by a function; columns are arrays."""
    return lambda data: make(data.to_numpy()) if isinstance(data, pd.DataFrame) else data.to_numpy()


FRAMES = {
    "pandas, nullable": lambda data: data.convert_dtypes(),
    "pandas on Arrow": lambda data: data.convert_dtypes(dtype_backend="pyarrow"),
    "polars": pl.from_pandas,
    "polars, lazy": arrow(lambda table: pl.from_arrow(table).lazy(), pl.Series),
    "PyArrow Table": arrow(lambda table: table, pa.array),
    "PyArrow RecordBatchReader": arrow(pa.Table.to_reader, lambda data: pa.chunked_array([data])),
    "DuckDB relation": arrow(duckdb.from_arrow, pl.Series),
}
FOLDER = TemporaryDirectory()


def file(write, name):
    """Write tables to files, to whose paths they become; columns stay as they are."""

    def path(data):
        if not isinstance(data, pd.DataFrame):
            return data
        write(data, Path(FOLDER.name, name))
        return Path(FOLDER.name, name)

    return path


FILES = {
    "path of a CSV file": file(lambda data, path: data.to_csv(path, index=False), "table.csv.gz"),
    "path of a Parquet file": file(pd.DataFrame.to_parquet, "table.parquet"),
}
CONTAINERS = {
    **FRAMES,
    **FILES,
    "NumPy array": plain(np.asarray),
    "list of rows": plain(np.ndarray.tolist),
    "tensor": plain(torch.tensor),
    "SciPy sparse": plain(sparse.csr_array),
}


TABLES = {"numbers": NUMBERS, "mixed": MIXED}
Fitted = namedtuple("Fitted", "X net tree model")


@cache
def fitted(kind):
    """A network, a tree, and a pipeline of a table."""
    X = TABLES[kind]
    steps = StandardScaler() if kind == "numbers" else prepare(X).pipeline
    model = make_pipeline(steps, KMeans(3, n_init=1, random_state=0)).fit(X)
    return Fitted(X, neuralize(model, X), CART(3).fit(X, labels=Y), model)


def moved(own, X):
    return moves(own.net, own.X.iloc[::-1].reset_index(drop=True), X).moves[0].relevance


def kernel(X, y):
    return KernelKMeans(random_state=0).fit(X, labels=y, sample_weight=y).score(NUMBERS)


ANY = {  # what a user may do with any table
    "neuralize(model, X)": lambda own, X, y: neuralize(own.model, X).beta,
    "neuralize(labels=y, X=X)": lambda own, X, y: neuralize(labels=y, X=X).fidelity_,
    "net.predict(X)": lambda own, X, y: own.net.predict(X),
    "NEON.attribute(X, y)": lambda own, X, y: NEON(own.net).attribute(X, y),
    "NEON.summary(X)": lambda own, X, y: NEON(own.net).summary(X).relevance,
    "contrast(net, X)": lambda own, X, y: neonxc.contrast(own.net, X, 0, 1).relevance,
    "moves(net, before, X)": lambda own, X, y: moved(own, X),
    "compare_clusterings(net, tree, X)": lambda own, X, y: neonxc.compare_clusterings(own.net, own.tree, X).table,
    "counterfactual(net, X)": lambda own, X, y: neonxc.counterfactual(own.net, X).distance,
    "tree.fit(X, labels=y)": lambda own, X, y: CART(3).fit(X, labels=y, sample_weight=y).labels_,
    "tree.predict(X)": lambda own, X, y: own.tree.predict(X),
    "tree.score(X)": lambda own, X, y: own.tree.score(X),
    "rules.verify(X)": lambda own, X, y: own.tree.tree_.rules().verify(X)["found"],
    "rules.measure(X, y)": lambda own, X, y: own.tree.tree_.rules().measure(X, y, y).to_text(),
    "patterns(X, y)": lambda own, X, y: patterns(X, y).to_frame().select_dtypes("number"),
    "BetaInterpretable.fit(X, foi=y)": lambda own, X, y: (
        BetaInterpretable(3, 0.6, metric="gower").fit(X, foi=y).labels_
    ),
    "compare(net, X)": lambda own, X, y: ev.compare(own.net, X, ["NEON"], ZERO, steps=2).results["NEON"].auc,
    "agreement(net, tree, X)": lambda own, X, y: ev.agreement(own.net, own.tree, X).same,
}
NUMERIC = {  # what with numbers alone
    "pixel_flipping(net, X, relevance)": lambda own, X, y: ev.pixel_flipping(own.net, NUMBERS, X, ZERO).curve,
    "KernelKMeans.fit(X, labels=y)": lambda own, X, y: kernel(X, y),
    "choose_k(X)": lambda own, X, y: ev.choose_k(X, (2, 3)).to_frame(),
    "cost_ratio(X, y, reference)": lambda own, X, y: ev.cost_ratio(X, y, y),
}
ENTRIES = ANY | NUMERIC
ORDERED = ("neuralize(model, X)", "net.predict(X)", "NEON.attribute(X, y)", "NEON.summary(X)", "tree.predict(X)")
EVERY_ENTRY = pytest.mark.parametrize("entry", ENTRIES)


def ask(entry, X, y=Y, kind="numbers"):
    return ENTRIES[entry](fitted(kind), X, y)


@cache
def expected(entry, kind):
    """What is said of tables of pandas."""
    return ask(entry, TABLES[kind], kind=kind)


def assert_same(found, expected, exact=False):
    if exact or isinstance(found, str):
        assert_equal(*(getattr(one, "to_numpy", lambda one=one: one)() for one in (found, expected)))
    else:  # sums may be in another order
        assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def outcome(entry, container):
    """What a container may hold: "any" columns, or "numbers"; otherwise an error ("") tells what to pass."""
    held = ""
    make = CONTAINERS[container]
    without_text = entry in NUMERIC or container in ("tensor", "SciPy sparse")
    for kind, result in (("numbers", "numbers"), ("mixed", "any"))[: 1 if without_text else 2]:
        try:
            found = ask(entry, make(TABLES[kind]), make(Y), kind)
        except (ValueError, TypeError) as error:
            if re.match("X |Sparse data was passed for X|relevance is sparse", str(error)):
                return held
            raise
        assert_same(found, expected(entry, kind), exact=container in FRAMES)
        held = result
    return held


def first_table():
    """The text of the page's first table."""
    return next(part for part in PAGE.read_text(encoding="utf-8").split("\n\n") if part.startswith("|"))


@cache
def documented():
    """The cells of the page's table, by entry point and container."""
    names, _, *cells = [
        [cell.strip(" `") for cell in line.split("|")[1:-1]] for line in first_table().splitlines()
    ]
    return {(entry, name): cell for entry, *own in cells for name, cell in zip(names[1:], own, strict=True)}


def cells():
    """The cells of the page's table: by default, each entry point takes every fifth container, in turns."""
    for i, entry in enumerate(ENTRIES):
        for j, container in enumerate(CONTAINERS):
            is_slow = (i + j) % 5 > 0
            yield pytest.param(entry, container, marks=[pytest.mark.slow] * is_slow)


@pytest.mark.parametrize(("entry", "container"), [*cells()])
def test_containers_are_read_as_documented(entry, container):
    assert outcome(entry, container) == documented()[entry, container]
    if container in FRAMES and entry in ORDERED:
        for kind, X in TABLES.items():
            turned = CONTAINERS[container](X[X.columns[::-1]])
            if entry == "tree.predict(X)":  # scikit-learn demands it of estimators
                refused("order", ask, entry, turned, kind=kind)
            else:
                assert_same(ask(entry, turned, kind=kind), expected(entry, kind))


GIVEN_BACK = {
    "polars": pl.DataFrame,
    "polars, lazy": pl.DataFrame,
    "PyArrow Table": pa.Table,
    "PyArrow RecordBatchReader": pa.Table,
}


@pytest.mark.parametrize("container", FRAMES)
@pytest.mark.parametrize("kind", TABLES)
def test_relevance_is_a_table_of_the_same_library(kind, container):
    X, net, *_ = fitted(kind)
    expected = NEON(net).attribute(X)
    found = NEON(net).attribute(CONTAINERS[container](X))
    assert type(found) is GIVEN_BACK.get(container, pd.DataFrame)
    assert_frame_equal(found if isinstance(found, pd.DataFrame) else found.to_pandas(), expected)


@pytest.mark.parametrize("method", ["to_pandas", "_to_pandas"])  # of cuDF, of modin
def test_frames_with_the_interface_of_pandas(method):
    frame = type("Frame", (), {"iloc": None, method: lambda self: NUMBERS})()
    assert_array_equal(fitted("numbers").net.predict(frame), fitted("numbers").net.predict(NUMBERS))


def test_targets_are_matched_by_index():
    net = fitted("numbers").net
    X = NUMBERS.set_axis([f"r{i}" for i in range(45)])
    labels = net.classes_[np.arange(45) % 3]
    mixed = pd.Series(labels, X.index).sample(frac=1, random_state=0)
    assert_frame_equal(NEON(net).attribute(X, mixed), NEON(net).attribute(X, labels))
    refused(r"needs labels among .* got 'z'", NEON(net).attribute, X, mixed.map(lambda label: "z"))


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"a": pl.Series([*map(Decimal, range(19)), 19.0], dtype=pl.Object)}),
        duckdb.sql("SELECT range / 1.0::DECIMAL(9, 2) AS a FROM range(20)"),
    ],
    ids=["objects of Python in polars", "decimal numbers of DuckDB"],
)
def test_numbers_of_other_libraries(frame):
    assert ev.kmeans_cost(frame, [0] * 20) == pytest.approx(665)


TENTHS = NUMBERS.round(1)
DECIMALS = [Decimal(str(value)) for value in TENTHS["x"]]
HELD = {
    "decimal and float": pd.Series([*DECIMALS[:9], *TENTHS["x"][9:]], dtype=object),
    "decimal of Arrow": pd.Series(DECIMALS, dtype=pd.ArrowDtype(pa.decimal128(9, 1))),
    "fractions": TENTHS["x"].map(Fraction).astype(object),
    "tensors": pd.Series([*map(torch.tensor, TENTHS["x"])], dtype=object),
    "sparse": TENTHS["x"].astype(pd.SparseDtype(float)),
    "big-endian": pd.Series(TENTHS["x"].to_numpy(">f8")),
}


@pytest.mark.parametrize(
    ("held", "hidden"),
    [
        # by default, gaps and whole columns in turns
        pytest.param(held, hidden, marks=[pytest.mark.slow] * ((i + (hidden is None)) % 2))
        for i, held in enumerate(HELD)
        for hidden in (None, 7)
    ],
)
def test_numbers_are_numbers_whatever_holds_them(held, hidden):
    X, other = (
        table.assign(x=table["x"].mask(table.index == hidden)) for table in (TENTHS, TENTHS.assign(x=HELD[held]))
    )
    for read in (
        lambda table: prepare(table).frame,
        lambda table: NEON(neuralize(labels=Y, X=table)).attribute(other),
        lambda table: CART(3).fit(table, labels=Y).tree_.rules().to_frame(),
    ):
        assert_frame_equal(read(other), read(X))
    if hidden is None:
        model = KMeans(3, n_init=1, random_state=0).fit(X)
        assert_array_equal(neuralize(model, other).predict(other), model.labels_)
        assert ev.cost_ratio(other, Y, Y) == 1


ARRAYS = {
    "big-endian": NUMBERS.to_numpy(">f8"),
    "decimals": [[Decimal(value) for value in row] for row in NUMBERS.to_numpy()],
    "masked": np.ma.array(NUMBERS, mask=False),
    "big-endian fields": NUMBERS.astype(">f8").to_records(index=False),
}


@pytest.mark.parametrize("held", ARRAYS)
def test_arrays_of_numbers(held):
    _, net, tree, _ = fitted("numbers")
    assert_array_equal(neuralize(labels=Y, X=ARRAYS[held]).predict(NUMBERS), Y)
    assert_array_equal(net.predict(ARRAYS[held]), net.predict(NUMBERS))
    assert_array_equal(CART(3).fit(ARRAYS[held], labels=Y).labels_, tree.labels_)


def test_masked_and_missing_values_of_arrays_are_gaps():
    hidden = np.arange(135).reshape(45, 3) == 21
    for X in (np.ma.array(NUMBERS, mask=hidden), np.where(hidden, pd.NA, NUMBERS.to_numpy(object))):
        refused("nan in row 7, column 0", neuralize, labels=Y, X=X)


class Shape(Enum):
    ROUND, LONG, FLAT = range(3)


def by_cluster(*values):
    return pd.Series([values[y] for y in Y], dtype=object)


CATEGORIES = {
    "intervals": pd.cut(Y, [-1, 0, 1, 2]),
    "intervals, not categorical": by_cluster(*pd.cut(Y, [-1, 0, 1, 2]).cat.categories),
    "truth values and text": by_cluster(True, False, "unknown"),
    "numbers and text": by_cluster(1, 2.5, "more"),
    "bytes": by_cluster(b"u", b"v", b"w"),
    "members of an enumeration": by_cluster(*Shape),
    "tuples": by_cluster((0, "a"), (1, "a"), (2, "a")),
    "dummies": pd.get_dummies(Y, sparse=True)[0],
}


@pytest.mark.parametrize(
    "held",
    [
        pytest.param(held, marks=[pytest.mark.slow] * (held in ("intervals", "numbers and text", "tuples")))
        for held in CATEGORIES
    ],
)
def test_categories_of_any_type(held, tmp_path):
    X = NUMBERS.assign(x=CATEGORIES[held])
    tree = CART(3).fit(X, labels=Y)
    for made in (neuralize(labels=Y, X=X), tree, tree.tree_.rules()):
        neonxc.save(made, tmp_path / "model.safetensors")
        loaded = neonxc.load(tmp_path / "model.safetensors")
        for rows in (X, X.iloc[:1], X.iloc[::-1].astype({"x": object})):
            assert_array_equal(loaded.predict(rows), made.predict(X)[rows.index])
        assert (np.asarray(made.predict(X)) == Y).mean() > 0.9
    assert (made.verify(X)["found"] == made.verify(X)["fit"]).all()


@pytest.mark.parametrize(
    "value", [[1], {"a": 1}, {1}, np.ones(2), 1j, time(8, 30), pd.Timestamp("2020"), date(2020, 1, 1)]
)
def test_what_is_neither_number_nor_category_is_named(value):
    X = NUMBERS.assign(x=pd.Series([value] * 45, dtype=object), at=pd.Series([value] * 44 + [None], dtype=object))
    with pytest.warns(UserWarning, match="x, at hold .*: left out"):
        assert not NEON(neuralize(labels=Y, X=X)).attribute(X)[["x", "at"]].any(axis=None)
    for refusing in (lambda: CART(3).fit(X, labels=Y), lambda: ev.choose_k(X, (2, 3))):
        refused(r"\['x', 'at'\]", refusing)


APPLIED = [entry for entry in ANY if not re.search(r"labels=|foi=|patterns", entry)]


@pytest.mark.parametrize("container", FILES)
@pytest.mark.parametrize("entry", APPLIED)
@pytest.mark.parametrize("kind", TABLES)
def test_columns_of_files_are_selected_by_name(kind, entry, container):
    path = FILES[container](TABLES[kind].iloc[:, ::-1].assign(code=["7"] * 44 + ["x"]))
    found = ask(entry, str(path) if kind == "mixed" else path, kind=kind)
    assert type(found) is type(expected(entry, kind))
    assert_same(found, expected(entry, kind))


@EVERY_ENTRY
def test_files_that_are_missing_and_texts_are_named(entry):
    for missing in ("nowhere.csv", Path("nowhere"), Path("nowhere.txt")):
        refused(r"^nowhere.* can't be read: No such file", ask, entry, missing)
    refused(r"^(X|after|relevance) can't be read: 'hello' is not the path of .*\[text\]", ask, entry, "hello")


def test_moves_between_files():
    net = fitted("numbers").net
    tables = [X.assign(id=range(45)) for X in (NUMBERS.iloc[::-1], NUMBERS)]
    paths = [write(X.assign(other="?")) for write, X in zip(FILES.values(), tables, strict=True)]
    assert str(moves(net, *paths, ids="id")) == str(moves(net, *tables, ids="id"))
    refused(r"ids needs a column that is not an input of the network, .* 'x'", moves, net, *paths, ids="x")


@pytest.mark.parametrize("every_form", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_reports_of_files(every_form):
    _, net, _, model = fitted("mixed")
    path = FILES["path of a Parquet file"](MIXED.assign(other="?"))
    expected = explain(model, MIXED, fast=True).to_frame()
    reports = [explain(net, path, before=path, fast=True)]
    if every_form:
        reports.append(explain(model, path, fast=True))
    for report in reports:
        assert_frame_equal(report.to_frame()[["size", "rule"]], expected[["size", "rule"]])
    few = MIXED[["x", "work"]]  # with gaps in text
    tables = [FILES["path of a CSV file"](few), few.astype({"work": "string"})]
    if every_form:
        tables.append(pl.from_pandas(few))
    for table in tables:
        assert (
            "work is State" in explain(table, labels=few["work"] == "State", fast=True).to_frame()["rule"].iloc[1]
        )


def test_columns_of_a_file_that_number_its_rows_are_named():
    path = FILES["path of a CSV file"](NUMBERS.assign(customer_id=np.arange(45) * 7 + 100))
    for model in (CART(3), KernelKMeans(3)):
        with pytest.warns(UserWarning, match=r"X, the table in .*csv.gz: customer_id looks like an identifier"):
            model.fit(path, labels=Y)


def test_batches_of_other_libraries():
    found = CART(3).fit(lambda: pa.table(NUMBERS).to_reader(10), labels=Y)
    labels = found.predict(lambda: pl.from_pandas(NUMBERS).iter_slices(10))
    assert_array_equal(labels, fitted("numbers").tree.labels_)


def test_a_stream_is_read_once():
    stream = pa.table(NUMBERS).to_reader()
    KernelKMeans(3).fit_predict(stream)
    refused(r"X has no rows .* can be read once", CART(2).fit, stream)


READING = ["neuralize(labels=y, X=X)", "net.predict(X)", "tree.fit(X, labels=y)", "rules.measure(X, y)"]


@pytest.mark.parametrize("entry", [*READING, "KernelKMeans.fit(X, labels=y)", "patterns(X, y)"])
def test_columns_of_the_same_name_are_refused(entry):
    twice = pa.table(NUMBERS).rename_columns(["x", "y", "x"])
    for table in (twice, twice.to_pandas()):
        refused(r"X has several columns of the same name: \['x'\]", ask, entry, table)


def test_levels_of_column_names_are_joined():
    X = NUMBERS.set_axis(pd.MultiIndex.from_product([["a"], ["mean", "std", ""]]), axis=1)
    net = neuralize(CENTERS.to_numpy(), X)
    assert net.feature_names_ == list(NEON(net).attribute(X)) == ["a_mean", "a_std", "a"]
    assert "a_" in explain(X, labels=Y, fast=True).to_frame()["rule"].iloc[0]


def cells_of(X):
    """An AnnData: a matrix of cells and genes."""
    obs = pd.DataFrame({"leiden": pd.Categorical(by_cluster("T", "B", "NK"))}, Y.index + 100)
    names = {"obs_names": obs.index, "var_names": pd.Index(["CD3", "CD8", "CD19"])}
    return SimpleNamespace(X=X, shape=X.shape, obs=obs, **names)


@pytest.mark.parametrize("X", [NUMBERS.to_numpy(), sparse.csr_matrix(NUMBERS.clip(0))], ids=["array", "sparse"])
def test_matrix_of_an_anndata(X):
    cells = cells_of(X)
    dense = cells_of(NUMBERS.to_numpy())
    relevance = NEON(neuralize(CENTERS.to_numpy(), dense)).attribute(dense)
    assert [list(axis) for axis in relevance.axes] == [list(cells.obs_names), list(cells.var_names)]
    tree = CART(3).fit(cells, labels=Y)
    found = explain(cells, "leiden", fast=True)
    assert tree.predict(cells).tolist() == tree.tree_.predict(X).tolist()
    frame = found.to_frame()
    assert {*frame.index} == {"T", "B", "NK"}
    assert frame["rule"].str.contains("CD").all()
    assert found.description.title == "45 cells by leiden"
    refused(r"adata.obs has no column \['leidn'\] \(did you mean 'leiden'\?\)", explain, cells, "leidn")


def calls_by_name(cells):
    """What says which genes a result is about, or goes by their names, by functions of other cells."""
    net = neuralize(CENTERS.to_numpy(), cells)
    tree = CART(3).fit(cells, labels=Y.to_numpy())
    rules = tree.tree_.rules()
    return {
        "predict": net.predict,
        "attribute": lambda X: NEON(net).attribute(X)[["CD3", "CD8", "CD19"]],
        "contrast": lambda X: str(neonxc.contrast(net, X, 0, 1)),
        "moves": lambda X: str(moves(net, cells, X)),
        "report of moves": lambda X: str(explain(net, cells, before=X, fast=True).description.moves),
        "tree": tree.tree_.predict,
        "rules": rules.predict,
        "measure": lambda X: str(rules.measure(X, Y.to_numpy())),
        "columns of a tree": lambda X: sorted(CART(3).fit(X, labels=Y.to_numpy()).tree_.feature_names),
        "centers with names": lambda X: neuralize(CENTERS.set_axis(["CD3", "CD8", "CD19"], axis=1), X).predict(X),
        "names": lambda X: sorted(neuralize(labels=Y.to_numpy(), X=X).feature_names_),
        "report": lambda X: explain(net, X, fast=True).to_frame()["rule"].tolist(),
        "two models": lambda X: neonxc.compare_clusterings(net, net, X).uses["a"].sort_index().round(9).tolist(),
    }


def test_sparse_cells_go_by_their_names():
    values = NUMBERS.clip(0)
    dense = cells_of(values.to_numpy())
    expected = {name: call(dense) for name, call in calls_by_name(dense).items()}
    sparse_cells = cells_of(sparse.csr_matrix(values))
    calls = calls_by_name(sparse_cells)
    for order in ([0, 1, 2], [2, 0, 1]):
        cells = cells_of(sparse.csc_matrix(values.to_numpy()[:, order]))
        cells.var_names = cells.var_names[order]
        for name, call in calls.items():
            outcome = call(cells)
            if isinstance(outcome, pd.DataFrame):
                assert_frame_equal(outcome, expected[name])
            else:
                assert np.array_equal(outcome, expected[name]), (name, order)
    tree = CART(3).fit(sparse_cells, labels=Y.to_numpy())
    assert tree.feature_names_in_.tolist() == ["CD3", "CD8", "CD19"]
    refused("Feature names must be in the same order", tree.predict, cells)  # as of a data frame
    cells.var_names = pd.Index(["CD19", "CD4", "CD8"])
    refused(r"missing \['CD3'\], unexpected \['CD4'\]", neuralize(CENTERS.to_numpy(), sparse_cells).predict, cells)


@pytest.mark.parametrize(
    "call", [neuralize(CENTERS.to_numpy()).predict, lambda X: CART(2).fit(X, labels=Y.to_numpy())]
)
def test_genes_of_one_name_are_refused(call):
    cells = cells_of(sparse.csr_matrix(NUMBERS.clip(0)))
    cells.var_names = pd.Index(["CD3", "CD8", "CD3"])
    refused(r"several columns of the same name: \['CD3'\]", call, cells)


BY_CELL = {
    "tree": lambda X, y, w: CART(3).fit(X, labels=y, sample_weight=w).labels_,
    "network": lambda X, y, w: neuralize(labels=y, X=X, sample_weight=w).predict(X),
    "target": lambda X, y, w: np.asarray(NEON(neuralize(CENTERS.to_numpy(), X)).attribute(X, target=y)),
    "summary": lambda X, y, w: NEON(neuralize(CENTERS.to_numpy(), X)).summary(X, sample_weight=w).sizes,
    "report": lambda X, y, w: explain(X, labels=y, sample_weight=w, fast=True).to_frame()["rule"].tolist(),
    "report of labels": lambda X, y, w: explain(y, X, sample_weight=w, fast=True).to_frame()["rule"].tolist(),
    "rules": lambda X, y, w: str(CART(3).fit(X, labels=Y.to_numpy()).tree_.rules().measure(X, y, sample_weight=w)),
    "patterns": lambda X, y, w: str(patterns(X, y)),
    "costs": lambda X, y, w: ev.cost_ratio(X, y, Y.to_numpy(), sample_weight=w),
    "separation": lambda X, y, w: str(ev.separation(X, y)),
}


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("name", BY_CELL)
def test_series_of_cells_go_by_the_names_of_cells(name, convert, recwarn):
    cells = cells_of(convert(NUMBERS.clip(0).to_numpy()))
    labels = pd.Series(Y.to_numpy(), cells.obs_names)
    weight = pd.Series(np.arange(1.0, 1.0 + len(Y)), cells.obs_names)
    expected = BY_CELL[name](cells, labels.to_numpy(), weight.to_numpy())
    shuffled = BY_CELL[name](cells, labels.sample(frac=1, random_state=0), weight.sample(frac=1, random_state=1))
    assert_equal(shuffled, expected)


def test_features_of_interest_go_by_their_index():
    foi = pd.Series(Y.to_numpy(), NUMBERS.index)
    expected = BetaInterpretable(3).fit(NUMBERS, foi=foi)
    model = BetaInterpretable(3).fit(NUMBERS, foi=foi.sample(frac=1, random_state=0))
    assert model.labels_.tolist() == expected.labels_.tolist()
    assert model.foi_codes_.tolist() == expected.foi_codes_.tolist()


def test_a_reference_of_a_tree_finds_the_genes_that_it_was_fitted_on():
    named = NUMBERS.clip(0).set_axis(["CD3", "CD8", "CD19"], axis=1)
    kmeans = KMeans(3, n_init=3, random_state=0).fit(named)
    cells = cells_of(sparse.csr_matrix(named))
    assert CART(3, reference=kmeans).fit(cells).labels_.shape == (len(Y),)
    cells.var_names = cells.var_names[[1, 0, 2]]
    refused("columns of X are in another order than at fit time", CART(3, reference=kmeans).fit, cells)
    refused(r"needs a data frame, got a SimpleNamespace; .* adata.to_df\(\)", prepare, cells, error=TypeError)


class Stored:
    """A sparse matrix in a file, as that of an AnnData that is read with ``backed="r"``."""

    def __init__(self, matrix):
        self.matrix = matrix
        self.shape = matrix.shape

    def __getitem__(self, rows):
        return self.matrix[rows]

    def to_memory(self):
        return self.matrix


def test_cells_that_are_still_in_their_file():
    cells = cells_of(sparse.csr_matrix(NUMBERS.clip(0)))
    stored = cells_of(Stored(cells.X))
    net = neuralize(CENTERS.to_numpy(), stored)
    assert net.predict(stored).tolist() == net.predict(cells).tolist()
    assert CART(3).fit(stored, labels=Y.to_numpy()).tree_.feature_names == ("CD3", "CD8", "CD19")
    reports = [explain(X, "leiden", fast=True).to_frame()["rule"].tolist() for X in (stored, cells)]
    assert reports[0] == reports[1]


@pytest.fixture
def cells_file(monkeypatch, tmp_path):
    """Paths of cells in files, which a stand-in for anndata reads."""
    files = {
        "cells.h5ad": cells_of(NUMBERS.to_numpy()),
        "SPARSE.H5AD": cells_of(sparse.csr_matrix(NUMBERS.clip(0))),
    }
    files["later.h5ad"] = cells_of(NUMBERS.to_numpy()[::-1])
    monkeypatch.chdir(tmp_path)

    def read_h5ad(path):
        if str(path) not in files:
            raise FileNotFoundError(2, "No such file or directory")
        return files[str(path)]

    for name, cells in files.items():
        cells.uns = {}
        Path(name).touch()
    monkeypatch.setitem(sys.modules, "anndata", SimpleNamespace(read_h5ad=read_h5ad))
    return files


@pytest.mark.parametrize("path", ["cells.h5ad", pytest.param(Path("SPARSE.H5AD"), marks=pytest.mark.slow)])
def test_a_file_of_cells_is_an_anndata(cells_file, path):
    cells = cells_file[str(path)]
    net = neuralize(CENTERS.to_numpy(), path)
    assert net.feature_names_ == neuralize(CENTERS.to_numpy(), cells).feature_names_
    calls = {
        "predict": net.predict,
        "attribute": NEON(net).attribute,
        "summary": lambda X: str(NEON(net).summary(X)),
        "contrast": lambda X: str(neonxc.contrast(net, X, 0, 1)),
        "moves": lambda X: str(moves(net, X, X)),
        "labels": lambda X: neuralize(labels=Y.to_numpy(), X=X).predict(X),
        "tree": lambda X: CART(3).fit(X, labels=Y.to_numpy()).predict(X),
        "compare": lambda X: str(neonxc.compare_clusterings(net, Y.to_numpy(), X)),
        "by column": lambda X: str(explain(X, "leiden", fast=True)),
        "of a network": lambda X: str(explain(net, X, fast=True)),
        "alone": lambda X: str(explain(X, clusters=3, fast=True)),
        "before": lambda X: str(explain(net, X, before=X, fast=True).description.moves),
        "markers": lambda X: str(neonxc.markers(X, "leiden")),
    }
    if path == "cells.h5ad":  # the other file is read in slow runs
        del calls["of a network"], calls["alone"]
    for name, call in calls.items():
        results = []
        for X in (path, cells):
            try:
                results.append(call(X))
            except (TypeError, ValueError) as error:  # what is refused is refused of both
                results.append(str(error))
        assert np.array_equal(*map(np.asarray, results)), name


def test_cells_go_by_their_names(cells_file):
    net = neuralize(CENTERS.to_numpy(), "cells.h5ad")
    found = moves(net, "cells.h5ad", "later.h5ad")
    assert set(np.concatenate([move.ids for move in found.moves])) <= {*cells_file["cells.h5ad"].obs_names}


def test_what_files_of_cells_are_refused(cells_file, monkeypatch):
    net = neuralize(CENTERS.to_numpy())
    refused("nothing.h5ad can't be read as an AnnData: No such file", net.predict, "nothing.h5ad")
    refused(
        "adata needs an AnnData, or the path of a .h5ad file; got a str",
        neonxc.markers,
        "x",
        "leiden",
        error=TypeError,
    )
    refused(r"adata.obs has no column \['leidn'\]", explain, "cells.h5ad", "leidn")
    monkeypatch.setitem(sys.modules, "anndata", None)
    for call in (net.predict, explain, lambda X: neonxc.markers(X, "leiden"), CART(3).fit):
        message = "the package anndata, which is not installed: in a checkout, pip install"
        refused(message, call, "cells.h5ad", error=ImportError)


COMMANDS_ON_CELLS = {
    "explain cells.h5ad --labels leiden --fast --out r.html": "45 cells by leiden",
    "explain cells.h5ad -k 3 --fast --out r.html": "3 clusters of 45 rows of cells.h5ad",
    "table cells.h5ad -k 3 --out t": "CD",
    "rules cells.h5ad --labels leiden": "CD",
    "apply t/model.safetensors later.h5ad": "cell,leiden,cluster,logit\n100,",
    "moves t/model.safetensors cells.h5ad later.h5ad": "of 45 rows",
    "explain cells.h5ad --labels leidn": "neonxc: adata.obs has no column ['leidn'] (did you mean 'leiden'?)",
    "rules cells.h5ad --labels leidn": "neonxc: adata.obs of cells.h5ad has no column ['leidn']",
    "table cells.h5ad --na x": "neonxc: --na is for cells of text",
    "explain cells.h5ad -k 3 --labels leiden": "neonxc: pass --clusters or --labels, not both",
}


def test_commands_read_cells(cells_file, neonxc_command):
    for command, printed in COMMANDS_ON_CELLS.items():
        code, out, err = neonxc_command(*command.split())
        assert printed in (err if printed.startswith("neonxc") else out), command
        assert (code != 0) == printed.startswith("neonxc"), command


def table():
    """The table of the page."""
    lines = [["", *CONTAINERS], ["---"] * (1 + len(CONTAINERS))]
    lines += [[f"`{entry}`", *(outcome(entry, one) for one in CONTAINERS)] for entry in ENTRIES]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(PAGE.read_text(encoding="utf-8").replace(first_table(), table(), 1), encoding="utf-8")


def test_a_single_row_with_names_is_passed_in_a_list():
    frame = pd.DataFrame({"a": [0.0, 1, 9, 10], "b": [2.0, 3, 5, 4]})
    net = neuralize(KMeans(2, n_init=1, random_state=0).fit(frame), frame)
    row = frame.iloc[2]
    refused(r"X needs shape \[points, features\], got \[2\]; a single row is \[X\]", net.predict, row)
    refused(r"X needs rows, got the values of a single one: pass \[X\]", net.predict, dict(row))
    for rows in ([row], [dict(row)]):
        assert net.predict(rows).tolist() == net.predict(frame.iloc[[2]]).tolist()
