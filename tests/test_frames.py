"""Tables of any library are read as those of pandas: their names, their order, their text and their gaps.

``python -m tests.test_frames`` writes the table of ``docs/containers.md``, which is compared with what happens.
"""

import re
from datetime import date, time
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from pandas.testing import assert_frame_equal
from refusals import refused
from scipy import sparse
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import neonxc
from neonxc import NEON, explain, moves, neuralize
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
CONTAINERS = (
    FRAMES
    | FILES
    | {
        "NumPy array": plain(np.asarray),
        "list of rows": plain(np.ndarray.tolist),
        "tensor": plain(torch.tensor),
        "SciPy sparse": plain(sparse.csr_array),
    }
)


def fitted(X, *steps):
    """A network, a tree, and a pipeline of a table."""
    model = make_pipeline(*steps, KMeans(3, n_init=1, random_state=0)).fit(X)
    return neuralize(model, X), CART(3).fit(X, labels=Y), model


FITTED = {"numbers": fitted(NUMBERS, StandardScaler()), "mixed": fitted(MIXED, prepare(MIXED).pipeline)}


def entries(net, tree, model, table):
    """What a user may do with any table, and what with numbers alone."""
    earlier = table.iloc[::-1].reset_index(drop=True)
    neon, rules = NEON(net), tree.tree_.rules()
    clusters, kernel = BetaInterpretable(3, 0.6, metric="gower"), KernelKMeans(random_state=0)
    return {
        "neuralize(model, X)": lambda X, y: neuralize(model, X).beta,
        "neuralize(labels=y, X=X)": lambda X, y: neuralize(labels=y, X=X).beta,
        "net.predict(X)": lambda X, y: net.predict(X),
        "NEON.attribute(X, y)": lambda X, y: neon.attribute(X, y),
        "NEON.summary(X)": lambda X, y: neon.summary(X).relevance,
        "contrast(net, X)": lambda X, y: neonxc.contrast(net, X, 0, 1).relevance,
        "moves(net, before, X)": lambda X, y: moves(net, earlier, X).moves[0].relevance,
        "compare_clusterings(net, tree, X)": lambda X, y: neonxc.compare_clusterings(net, tree, X).table,
        "counterfactual(net, X)": lambda X, y: neonxc.counterfactual(net, X).distance,
        "tree.fit(X, labels=y)": lambda X, y: CART(3).fit(X, labels=y, sample_weight=y).labels_,
        "tree.predict(X)": lambda X, y: tree.predict(X),
        "tree.score(X)": lambda X, y: tree.score(X),
        "rules.verify(X)": lambda X, y: rules.verify(X)["found"],
        "rules.measure(X, y)": lambda X, y: rules.measure(X, y, y).to_text(),
        "patterns(X, y)": lambda X, y: patterns(X, y).to_frame().select_dtypes("number"),
        "BetaInterpretable.fit(X, foi=y)": lambda X, y: clusters.fit(X, foi=y).labels_,
        "compare(net, X)": lambda X, y: ev.compare(net, X, ["NEON"], ZERO, steps=2).results["NEON"].auc,
        "agreement(net, tree, X)": lambda X, y: ev.agreement(net, tree, X).same,
    }, {
        "pixel_flipping(net, X, relevance)": lambda X, y: ev.pixel_flipping(net, NUMBERS, X, ZERO).curve,
        "KernelKMeans.fit(X, labels=y)": lambda X, y: kernel.fit(X, labels=y, sample_weight=y).score(NUMBERS),
        "choose_k(X)": lambda X, y: ev.choose_k(X, (2, 3)).frame,
        "cost_ratio(X, y, reference)": lambda X, y: ev.cost_ratio(X, y, y),
    }


ORDERED = ("neuralize(model, X)", "net.predict(X)", "NEON.attribute(X, y)", "NEON.summary(X)", "tree.predict(X)")
ANY, NUMERIC = entries(*FITTED["numbers"], NUMBERS)
TABLES = [(NUMBERS, ANY | NUMERIC), (MIXED, entries(*FITTED["mixed"], MIXED)[0])]


def outcome(entry, container):
    """What a container may hold: "any" columns, or "numbers"; otherwise an error ("") tells what to pass."""
    held = ""
    for kind, (X, asked) in zip(("numbers", "any"), TABLES[: 1 if entry in NUMERIC else 2], strict=False):
        if kind == "any" and container in ("tensor", "SciPy sparse"):
            return held
        try:
            found = asked[entry](CONTAINERS[container](X), CONTAINERS[container](Y))
        except (ValueError, TypeError) as error:
            if re.match("X |Sparse data was passed for X|relevance is sparse", str(error)):
                return held
            raise
        expected, found = (
            one.to_numpy() if hasattr(one, "to_numpy") else one for one in (asked[entry](X, Y), found)
        )
        if container in FRAMES or isinstance(found, str):
            np.testing.assert_equal(found, expected)
        else:  # sums may be in another order
            assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
        held = kind
    return held


def first_table():
    """The text of the page's first table."""
    return next(part for part in PAGE.read_text(encoding="utf-8").split("\n\n") if part.startswith("|"))


def documented():
    """The cells of the page's table, by entry point and container."""
    lines = first_table().splitlines()
    names, _, *cells = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in lines]
    return {(entry, name): cell for entry, *own in cells for name, cell in zip(names[1:], own, strict=True)}


@pytest.fixture(scope="module")
def held():
    return documented()


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("entry", [*ANY, *NUMERIC])
def test_containers_are_read_as_documented(entry, container, held):
    assert outcome(entry, container) == held[entry, container]
    for X, asked in TABLES:
        if container in FRAMES and entry in ORDERED:
            refused("order", asked[entry], CONTAINERS[container](X[X.columns[::-1]]), Y)


GIVEN_BACK = {
    "polars": pl.DataFrame,
    "polars, lazy": pl.DataFrame,
    "PyArrow Table": pa.Table,
    "PyArrow RecordBatchReader": pa.Table,
}


@pytest.mark.parametrize("container", FRAMES)
@pytest.mark.parametrize("name", FITTED)
def test_relevance_is_a_table_of_the_same_library(name, container):
    X, (net, *_) = {"numbers": NUMBERS, "mixed": MIXED}[name], FITTED[name]
    expected, found = NEON(net).attribute(X), NEON(net).attribute(CONTAINERS[container](X))
    assert type(found) is GIVEN_BACK.get(container, pd.DataFrame)
    assert_frame_equal(as_pandas(found), expected)


@pytest.mark.parametrize("method", ["to_pandas", "_to_pandas"])  # of cuDF, of modin
def test_frames_with_the_interface_of_pandas(method):
    frame = type("Frame", (), {"iloc": None, method: lambda self: NUMBERS})()
    assert as_pandas(frame) is NUMBERS


def test_targets_are_matched_by_index():
    net = FITTED["numbers"][0]
    X, labels = NUMBERS.set_axis([f"r{i}" for i in range(45)]), net.classes_[np.arange(45) % 3]
    mixed = pd.Series(labels, X.index).sample(frac=1, random_state=0)
    assert_frame_equal(NEON(net).attribute(X, mixed), NEON(net).attribute(X, labels))
    refused(r"needs labels among .* got 'z'", NEON(net).attribute, X, mixed.map(lambda label: "z"))


def test_objects_of_python_in_polars():
    frame = as_pandas(pl.DataFrame({"a": pl.Series([Decimal("1.5"), 2.5, 3], dtype=pl.Object)}))
    assert frame["a"].tolist() == [1.5, 2.5, 3]


TENTHS = NUMBERS.round(1)
DECIMALS = [Decimal(str(value)) for value in TENTHS["x"]]
HELD = {
    "decimal": pd.Series(DECIMALS, dtype=object),
    "decimal and float": pd.Series([*DECIMALS[:9], *TENTHS["x"][9:]], dtype=object),
    "decimal of Arrow": pd.Series(DECIMALS, dtype=pd.ArrowDtype(pa.decimal128(9, 1))),
    "objects": TENTHS["x"].astype(object),
    "fractions": TENTHS["x"].map(Fraction).astype(object),
    "tensors": pd.Series([*map(torch.tensor, TENTHS["x"])], dtype=object),
    "sparse": TENTHS["x"].astype(pd.SparseDtype(float)),
    "big-endian": pd.Series(TENTHS["x"].to_numpy(">f8")),
    "nullable": TENTHS["x"].astype("Float64"),
}


@pytest.mark.parametrize("held", HELD)
def test_numbers_are_numbers_whatever_holds_them(held):
    given = TENTHS.assign(x=HELD[held])
    for hidden in (None, 7):
        X, other = (table.assign(x=table["x"].mask(table.index == hidden)) for table in (TENTHS, given))
        assert_frame_equal(prepare(other).frame, prepare(X).frame)
        nets = [neuralize(labels=Y, X=table) for table in (X, other)]
        assert_frame_equal(*(NEON(net).attribute(other) for net in nets))
        rules = [CART(3).fit(table, labels=Y).tree_.rules().to_text() for table in (X, other)]
        assert rules[0] == rules[1]
    model = KMeans(3, n_init=1, random_state=0).fit(TENTHS)
    assert_array_equal(neuralize(model, given).predict(given), model.labels_)
    assert ev.choose_k(given, (2, 3)).k == ev.choose_k(TENTHS, (2, 3)).k


ARRAYS = {
    "big-endian": NUMBERS.to_numpy(">f8"),
    "objects": NUMBERS.to_numpy(object),
    "decimals": [[Decimal(value) for value in row] for row in NUMBERS.to_numpy()],
    "masked": np.ma.array(NUMBERS, mask=False),
    "fields": NUMBERS.to_records(index=False),
    "big-endian fields": NUMBERS.astype(">f8").to_records(index=False),
}


@pytest.mark.parametrize("held", ARRAYS)
def test_arrays_of_numbers(held):
    net, tree, _ = FITTED["numbers"]
    assert_array_equal(neuralize(labels=Y, X=ARRAYS[held]).predict(NUMBERS), Y)
    assert_array_equal(net.predict(ARRAYS[held]), net.predict(NUMBERS))
    assert_array_equal(CART(3).fit(ARRAYS[held], labels=Y).labels_, tree.labels_)


def test_masked_and_missing_values_of_arrays_are_gaps():
    hidden = np.arange(135).reshape(45, 3) == 21
    for X in (np.ma.array(NUMBERS, mask=hidden), np.where(hidden, pd.NA, NUMBERS.to_numpy(object))):
        refused("nan in row 7, column 0", neuralize, labels=Y, X=X)


class Shape(Enum):
    ROUND, LONG, FLAT = range(3)


WORDS = np.array(["u", "v", "w"], dtype=object)
CATEGORIES = {
    "intervals": pd.cut(Y, [-1, 0, 1, 2]),
    "intervals, not categorical": pd.Series(pd.cut(Y, [-1, 0, 1, 2]).astype(object)),
    "truth values and text": pd.Series(np.array([True, False, "unknown"], dtype=object)[Y]),
    "numbers and text": pd.Series(np.array([1, 2.5, "more"], dtype=object)[Y]),
    "bytes": pd.Series([word.encode() for word in WORDS[Y]], dtype=object),
    "members of an enumeration": pd.Series([[*Shape][y] for y in Y], dtype=object),
    "tuples": pd.Series([(y, "a") for y in Y], dtype=object),
    "dummies": pd.get_dummies(Y, sparse=True)[0],
}


@pytest.mark.parametrize("held", CATEGORIES)
def test_categories_of_any_type(held, tmp_path):
    X = NUMBERS.assign(x=CATEGORIES[held])
    for fitted in (
        neuralize(labels=Y, X=X),
        CART(3).fit(X, labels=Y),
        CART(3).fit(X, labels=Y).tree_.rules(),
    ):
        neonxc.save(fitted, tmp_path / "model.safetensors")
        loaded = neonxc.load(tmp_path / "model.safetensors")
        for rows in (X, X.iloc[:1], X.iloc[::-1].astype({"x": object})):
            assert_array_equal(loaded.predict(rows), fitted.predict(X)[rows.index])
    assert (np.asarray(fitted.predict(X)) == Y).mean() > 0.9
    assert (fitted.verify(X)["found"] == fitted.verify(X)["fit"]).all()


@pytest.mark.parametrize(
    "value", [[1], {"a": 1}, {1}, np.ones(2), 1j, time(8, 30), pd.Timestamp("2020"), date(2020, 1, 1)]
)
def test_what_is_neither_number_nor_category_is_named(value):
    X = NUMBERS.assign(x=pd.Series([value] * 45, dtype=object), at=pd.Series([value] * 44 + [None], dtype=object))
    assert any(note.startswith("x, at hold") and "left out" in note for note in prepare(X).notes)
    with pytest.warns(UserWarning, match="x, at hold .*: left out"):
        assert not NEON(neuralize(labels=Y, X=X)).attribute(X)[["x", "at"]].any(axis=None)
    for refusing in (lambda: CART(3).fit(X, labels=Y), lambda: ev.choose_k(X, (2, 3))):
        refused(r"\['x', 'at'\]", refusing)


APPLIED = [entry for entry in ANY if not re.search(r"labels=|foi=|patterns", entry)]


@pytest.mark.parametrize("container", FILES)
@pytest.mark.parametrize("entry", APPLIED)
@pytest.mark.parametrize("name", FITTED)
def test_columns_of_files_are_selected_by_name(name, entry, container):
    X = {"numbers": NUMBERS, "mixed": MIXED}[name]
    asked, wider = entries(*FITTED[name], X)[0][entry], X.iloc[:, ::-1].assign(code=["7"] * 44 + ["x"])
    expected = asked(X, Y)
    for path in (FILES[container](wider), str(FILES[container](wider))):
        found = asked(path, Y)
        assert type(found) is type(expected)
        if isinstance(found, str):
            assert found == expected
        else:
            assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("missing", ["nowhere.csv", Path("nowhere"), Path("nowhere.txt")])
@pytest.mark.parametrize("entry", [*ANY, *NUMERIC])
def test_files_that_are_missing_are_named(entry, missing):
    refused(r"^nowhere.* can't be read: No such file", (ANY | NUMERIC)[entry], missing, Y)


@pytest.mark.parametrize("entry", [*ANY, *NUMERIC])
def test_a_text_is_no_table(entry):
    refused(
        r"^(X|after|relevance) can't be read: 'hello' is not the path of .*\[text\]",
        (ANY | NUMERIC)[entry],
        "hello",
        Y,
    )


def test_columns_of_a_file_that_are_missing_or_no_numbers_are_named():
    net = FITTED["numbers"][0]
    refused(
        r"table.csv.gz has no column \['z'\]; its columns are \['x', 'y'\]",
        net.predict,
        FILES["path of a CSV file"](NUMBERS[["x", "y"]]),
    )
    refused(
        r"table.csv.gz, line 47, column 'z': 'q' is not a number",
        net.predict,
        FILES["path of a CSV file"](pd.concat([NUMBERS, NUMBERS[:1].assign(z="q")])),
    )


def test_imputers_of_files_read_the_columns_of_the_network():
    net, wider = FITTED["numbers"][0], FILES["path of a CSV file"](NUMBERS.assign(code=["7"] * 44 + ["x"]))
    for kind in (ev.KDEImputer, ev.MeanImputer):
        found, expected = (ev.pixel_flipping(net, NUMBERS, NUMBERS, kind(X)).curve for X in (wider, NUMBERS))
        assert np.array_equal(found, expected)


def test_moves_between_files():
    net, earlier = FITTED["numbers"][0], NUMBERS.iloc[::-1].assign(id=range(45))
    expected = moves(net, earlier, NUMBERS.assign(id=range(45)), ids="id")
    before, after = earlier.assign(other="?"), NUMBERS.assign(id=range(45), another=1)
    paths = [write(X) for write, X in zip(FILES.values(), (before, after), strict=True)]
    assert str(moves(net, *paths, ids="id")) == str(expected)
    refused(r"ids needs a column that is no input of the network, .* 'x'", moves, net, *paths, ids="x")


def test_reports_of_files():
    net, _, model = FITTED["mixed"]
    path = FILES["path of a Parquet file"](MIXED.assign(other="?"))
    expected = explain(model, MIXED, fast=True).to_frame()
    for report in (explain(model, path, fast=True), explain(net, path, before=path, fast=True)):
        assert_frame_equal(report.to_frame()[["size", "rule"]], expected[["size", "rule"]])
    assert "x" in explain(FILES["path of a CSV file"](NUMBERS), labels=Y, fast=True).to_frame()["rule"].iloc[0]


def test_columns_of_a_file_that_number_its_rows_are_named():
    path = FILES["path of a CSV file"](NUMBERS.assign(customer_id=np.arange(45) * 7 + 100))
    for model in (CART(3), KernelKMeans(3)):
        with pytest.warns(
            UserWarning, match=r"X, the table in .*table.csv.gz: customer_id looks like an identifier"
        ):
            model.fit(path, labels=Y)


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
        assert_array_equal(table.dense(), POINTS)
    else:
        assert_array_equal(table.tensor, values)
        assert type(table.restore(values)) is type(KINDS[kind](POINTS) if kind == "polars" else table.data)
    for rows in ([3, 1], slice(1, 4)):
        assert_array_equal(as_array(table.take(rows).dense()), POINTS[rows])
    assert_array_equal(as_array(table.select([2, 0]).dense()), POINTS[:, [2, 0]])
    assert_array_equal(as_array(table.column(1)), POINTS[:, 1])
    assert_array_equal(table.frame(), POINTS)
    assert sum(map(len, table.blocks(1 << 25))) == 90
    refused("X has 3 features, the clustering was fitted on 4", Table.read, table, 4)


def test_batches():
    _, tree, _ = FITTED["numbers"]
    found = CART(3).fit(lambda: pa.table(NUMBERS).to_reader(10), labels=Y)
    assert found.predict(lambda: pl.from_pandas(NUMBERS).iter_slices(10)).tolist() == tree.labels_.tolist()


def test_a_stream_is_read_once():
    stream = pa.table(NUMBERS).to_reader()
    KernelKMeans(3).fit_predict(stream)
    refused(r"X has no rows .* can be read once", CART(2).fit, stream)


def test_decimal_numbers_are_numbers():
    found = duckdb.sql("SELECT range / 1.0::DECIMAL(9, 2) AS a FROM range(20)")
    assert ev.kmeans_cost(found, [0] * 20) == pytest.approx(665)


@pytest.mark.parametrize(
    "entry",
    [
        "neuralize(labels=y, X=X)",
        "net.predict(X)",
        "tree.fit(X, labels=y)",
        "rules.measure(X, y)",
        "KernelKMeans.fit(X, labels=y)",
        "patterns(X, y)",
    ],
)
def test_columns_of_the_same_name_are_refused(entry):
    twice = pa.table(NUMBERS).rename_columns(["x", "y", "x"])
    for table in (twice, twice.to_pandas()):
        refused(r"X has several columns of the same name: \['x'\]", TABLES[0][1][entry], table, Y)


def test_levels_of_column_names_are_joined():
    X = NUMBERS.set_axis(pd.MultiIndex.from_product([["a"], ["mean", "std", ""]]), axis=1)
    net = neuralize(CENTERS.to_numpy(), X)
    assert net.feature_names_ == list(NEON(net).attribute(X)) == ["a_mean", "a_std", "a"]
    assert "a_" in explain(X, labels=Y).to_frame()["rule"].iloc[0]


class Cells:
    """An AnnData: a matrix of cells and genes."""

    def __init__(self, X):
        self.X, self.shape, self.obs_names = X, X.shape, Y.index + 100
        self.var_names = pd.Index(["CD3", "CD8", "CD19"])
        self.obs = pd.DataFrame({"leiden": pd.Categorical(Y.map({0: "T", 1: "B", 2: "NK"}))}, self.obs_names)


def test_matrix_of_an_anndata():
    cells, counts = Cells(NUMBERS.to_numpy()), Cells(sparse.csr_matrix(NUMBERS.clip(0)))
    relevance = NEON(neuralize(CENTERS.to_numpy(), cells)).attribute(cells)
    assert [list(axis) for axis in relevance.axes] == [list(cells.obs_names), list(cells.var_names)]
    tree = CART(3).fit(counts, labels=Y)
    assert tree.predict(counts).tolist() == tree.tree_.predict(counts.X).tolist()
    assert "CD" in explain(KMeans(3, n_init=1).fit(counts.X), counts).to_frame()["rule"].iloc[0]
    for given in (cells, counts):
        found = explain(given, "leiden", fast=True)
        assert {*found.to_frame().index} == {"T", "B", "NK"}
        assert found.to_frame()["rule"].str.contains("CD").all()
        assert found.contents.title == f"{len(Y)} cells by leiden"
    refused(r"adata.obs has no column \['leidn'\] \(did you mean 'leiden'\?\)", explain, cells, "leidn")


@pytest.mark.parametrize("read", [pl.from_pandas, lambda frame: frame.astype({"work": "string"})])  # of pandas.NA
def test_reports_of_text_with_gaps(read):
    frame = MIXED[["x", "work"]]
    assert "work is State" in explain(read(frame), labels=frame["work"] == "State").to_frame()["rule"].iloc[1]


def table():
    """The table of the page."""
    lines = [["", *CONTAINERS], ["---"] * (1 + len(CONTAINERS))]
    lines += [[f"`{entry}`", *(outcome(entry, one) for one in CONTAINERS)] for entry in [*ANY, *NUMERIC]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(PAGE.read_text(encoding="utf-8").replace(first_table(), table(), 1), encoding="utf-8")
