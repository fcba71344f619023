"""Commands on tables: what they write, what they say, and one readable line for every mistake."""

import csv
import gc
import gzip
import io
import json
import re
import warnings
from pathlib import Path
from unittest import mock
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import neonxc
from neonxc import NEON
from neonxc.data.files import read_table
from neonxc.data.files.cells import read_cells
from neonxc.data.files.notation import is_number
from neonxc.data.files.spreadsheets import text_of, written
from neonxc.trees import CART

pytestmark = pytest.mark.usefixtures("without_reality")


def read(path, separator=","):
    with open(path, newline="") as file:
        return list(csv.reader(file, delimiter=separator))


def number(cell):
    """The number in a cell of a German file."""
    return float(cell.replace(",", "."))


@pytest.fixture
def notes(neonxc_command):
    """Run a command that succeeds -> what it prints beside its output."""

    def run(command):
        code, _, err = neonxc_command(*command.split())
        assert code == 0, err
        return err

    return run


@pytest.fixture
def refused(neonxc_command):
    """Run a command that fails -> the line that says why."""

    def run(command):
        code, _, err = neonxc_command(*command.split())
        *notes, last = err.splitlines()
        assert (code, {note[:6] for note in notes} <= {"note: "}) == (2, True)
        return last

    return run


@pytest.fixture
def of_a(neonxc_command):
    """The file of a network of two clusters, at 0 and 1 of a column a."""
    neonxc.save(neonxc.neuralize(np.array([[0.0], [1.0]]), pd.DataFrame({"a": [0.0, 1.0]})), "net.safetensors")
    return "net.safetensors"


def test_table_explains_rows_by_raw_columns(ran, wine_csv):
    assert "what speaks for it" in ran("table wine.csv -k 3 --ignore target --out r")
    relevance, columns, clusters = (pd.read_csv(f"r/{name}.csv") for name in ("relevance", "columns", "clusters"))
    assert Path("r/clusters.png").stat().st_size > 0
    X = pd.read_csv(wine_csv).drop(columns="target")
    assert [*relevance] == ["row", "cluster", "logit", *X]
    assert relevance["row"].tolist() == [*range(178)]
    np.testing.assert_allclose(relevance[[*X]].sum(axis=1), relevance["logit"])
    assert (relevance["logit"] >= 0).all()
    net = neonxc.load("r/model.safetensors")
    model = make_pipeline(StandardScaler(), KMeans(3, n_init=10, random_state=0)).fit(X)
    own = relevance["cluster"]
    for labels in (net.predict(X), model.predict(X)):
        np.testing.assert_array_equal(labels, own)
    assert net.feature_names_ == [*X]
    assert [*columns] == ["cluster", "column", "relevance", "direction", "mean", "overall", "effect", "points"]
    found = columns.pivot(index="cluster", columns="column")
    means = {"relevance": relevance[[*X]].groupby(own).mean(), "mean": X.groupby(own).mean()}
    for name, mean in {**means, "overall": [X.mean()] * 3}.items():
        np.testing.assert_allclose(found[name][[*X]], mean)
    clear = columns[columns["effect"].abs() >= 0.36]
    assert ((clear["direction"] == "↑") == (clear["mean"] > clear["overall"])).all()
    assert {*clear["direction"]} == {*"↑↓"}
    assert {*columns.drop(clear.index)["direction"]} <= {"≈", "'="}  # no formula of a spreadsheet
    assert [*clusters] == ["cluster", "rows", "prototype_rows", "what_speaks_for_it"]
    typical = NEON(net).summary(X).prototypes
    assert [*clusters["prototype_rows"]] == [" ".join(map(str, rows.tolist())) for rows in typical]
    assert re.match(r"\w+ \+\d.* \([↑↓] \S+ vs \S+, d = \S+\), ", clusters["what_speaks_for_it"][0])


@pytest.fixture
def people_csv(tmp_path):
    """A table as people have them: two groups, numbers and words with gaps, an identifier, a date, an income."""
    rng = np.random.default_rng(0)
    lines = ["id;age;hours;work;since;income"]
    for i in range(60):
        age = "?" if i % 15 == 3 else f"{rng.normal(30 + 25 * (i % 2), 3):.1f}".replace(".", ",")
        hours = "NA" if i % 20 == 5 else rng.integers(20, 60)
        work, income = (("office", "low"), ("farm", "high"))[i % 2]
        lines.append(f"p{i};{age};{hours};{'' if i % 12 == 7 else work};20{i % 20 + 10}-03-01;{income}")
    path = tmp_path / "people.csv"
    path.write_text("\n".join(lines))
    return path


def test_table_of_words_and_gaps(notes, people_csv):
    err = notes("table people.csv -k 2 --ignore income --out r")
    for told in (
        "note: decimal commas were understood in age (",
        "note: id looks like an identifier (every value is different): left out; to use: --keep id\n",
        "note: since holds dates or times: left out",
        "note: 2 columns of numbers have missing values: age (7%), hours (5%); filled in with the median",
        "note: 1 column of categories is one-hot encoded: work (2 values, and missing values)",
    ):
        assert f"\n{told}" in f"\n{err}"
    header, *rows = read("r/relevance.csv", ";")  # as people.csv is written
    assert header == ["row", "cluster", "logit", "age", "hours", "work"]
    numbers = np.array([[*map(number, row)] for row in rows])[:, 1:]
    np.testing.assert_allclose(numbers[:, 2:].sum(1), numbers[:, 1])
    assert (numbers[:, 0] == numbers[0, 0]).tolist() == [i % 2 == 0 for i in range(60)]


def test_a_column_names_the_clusters(ran, people_csv):
    assert "2 clusters of people.csv by income, 60 rows" in ran("table people.csv --labels income --out r")
    header, *rows = read("r/relevance.csv", ";")
    assert header == ["row", "label", "cluster", "logit", "age", "hours", "work"]
    assert [row[1:3] for row in rows] == [["low"] * 2, ["high"] * 2] * 30
    assert neonxc.load("r/model.safetensors").fidelity_ == 1


def test_numbers_of_clusters_side_by_side(ran, wine_csv):
    out = ran("table wine.csv -k 2-4 --ignore target --out r")
    assert "k = 3 has the greatest silhouette (0.28)" in out
    assert "it is used here" in out
    header, *rows = read("r/choose-k.csv")
    assert header == ["k", "inertia", "silhouette", "stability", "cost_ratio"]
    assert [row[0] for row in rows] == ["2", "3", "4"]
    assert Path("r/choose-k.png").stat().st_size > 0
    assert len(read("r/clusters.csv")) == 4


FORMATS = {
    "text": "held out: ",
    "markdown": "### high",
    "html": "<table",
    "sql": 'FROM "people"',
    "python": "def cluster(row):",
    "json": '"rules"',
    "csv": "cluster,name,rule,samples,mistakes,",
}


@pytest.mark.parametrize("format", FORMATS)
def test_rules_in_every_format(ran, people_csv, format):
    out = ran(f"rules people.csv --labels income --format {format}")
    assert FORMATS[format] in out
    name = f"new/rules.{ {'text': 'txt', 'markdown': 'md', 'python': 'py'}.get(format, format) }"
    assert ran(f"rules people.csv --labels income --out {name}") == f"{name}\n"
    if format == "csv":  # a file for spreadsheets, as people.csv is written
        expected = pd.read_csv(io.StringIO(out))
        pd.testing.assert_frame_equal(pd.read_csv(name, sep=";", decimal=","), expected)
    else:
        assert Path(name).read_text(encoding="utf-8") == out


def test_rules_in_a_dialect_of_sql(ran, people_csv):
    asked = "rules people.csv --labels income --dialect tsql --table crm.people"
    out = ran(f"{asked} --format sql")
    assert out.startswith("-- SQL for tsql\n")
    assert "FROM [crm].[people];" in out
    ran(f"{asked} --out rules.SQL")
    assert Path("rules.SQL").read_text(encoding="utf-8") == out


def test_rules_of_kmeans_and_of_labels(ran, people_csv):
    out = ran("rules people.csv -k 2 --ignore income")
    assert "\n    work is office\n" in out
    assert out.count("cluster ") == 2
    assert "held out: " in out
    assert ran("rules people.csv --labels income --leaves 2").count("mistake") >= 2


@pytest.mark.filterwarnings("ignore:the surrogate")
def test_rows_without_a_label_are_noise(notes, people_csv):
    err = notes("table people.csv --labels work --out r")
    assert "note: 5 of 60 rows are noise and in no cluster: 5 of them have no label" in err


def test_a_column_with_noise(ran, notes):
    lines = ["a,label", *(f"{i % 3 + i / 1000},{i % 3 - 1}" for i in range(60))]
    Path("t.csv").write_text("\n".join(lines))
    rules = "rules t.csv --labels label --leaves 2"
    assert notes(rules) == "note: 20 of 60 rows are noise and in no cluster: their label is -1\n"
    out = ran(rules)
    assert out.count("cluster ") == 2
    assert re.search(r"agreement 100% \(\d\d% with noise\)", out)
    ran("table t.csv --labels label --out r")
    assert [row[2] for row in read("r/relevance.csv")[1:]] == ["-1", "0", "1"] * 20
    Path("t.csv").write_text("\n".join(lines).replace(",-1", ",2"))
    assert re.search("note: no rule leads to cluster [012]; a larger number of --leaves allows", notes(rules))


def test_columns_that_are_called_as_results_are(ran, tmp_path):
    """Columns of the table keep their names, and those of results are numbered."""
    rows = range(60)
    columns = {"cluster": [i % 2 + i / 1000 for i in rows], "logit": [(i * 7) % 11 for i in rows]}
    columns |= {"row": [(i * 5) % 13 for i in rows], "label": [(i * 3) % 7 for i in rows]}
    pd.DataFrame(columns | {"y": ["u" if i % 2 else "v" for i in rows]}).to_csv("t.csv", index=False)
    ran("table t.csv --labels y --out r")
    header = read("r/relevance.csv")[0]
    assert header == ["row_2", "label_2", "cluster_2", "logit_2", "cluster", "logit", "row", "label"]
    assert [row[1] for row in read("r/relevance.csv")[1:3]] == ["v", "u"]
    assert 'END AS "cluster_2"\nFROM' in ran("rules t.csv --labels y --format sql")


@pytest.mark.parametrize("copy", ["same", "renamed"])
def test_a_column_that_repeats_the_labels_is_left_out(ran, notes, copy):
    names = {"same": {"u": "u", "v": "v"}, "renamed": {"u": "7", "v": "3"}}[copy]
    lines = [f"{i % 2 + i / 1000},{names['uv'[i % 2]]},{'uv'[i % 2]}" for i in range(60)]
    Path("t.csv").write_text("\n".join(["a,copy,y", *lines]))
    note = "note: copy has one value for each cluster, as the labels have: left out; to use: --keep copy\n"
    assert note in notes("rules t.csv --labels y")
    assert "copy" not in ran("rules t.csv --labels y")
    assert note not in notes("rules t.csv --labels y --keep copy")


def test_a_column_of_names_and_noise(ran, notes):
    numbers = {"-1": "-1", "0": "left", "1": "right"}
    lines = ["a,label", *(f"{i % 3 + i / 1000},{[*numbers.values()][i % 3]}" for i in range(60))]
    Path("t.csv").write_text("\n".join(lines))
    note = "note: 20 of 60 rows are noise and in no cluster: their label is -1\n"
    assert notes("rules t.csv --labels label --leaves 2") == note
    ran("table t.csv --labels label --out r")
    assert [row[2] for row in read("r/relevance.csv")[1:]] == ["-1", "left", "right"] * 20
    assert [row[0] for row in read("r/clusters.csv")[1:]] == ["left", "right", "-1"]


def test_saved_models_give_new_rows_their_clusters(ran, refused, people_csv, monkeypatch):
    ran("table people.csv -k 2 --ignore income --out r")
    header, *rows = csv.reader(io.StringIO(ran("apply r/model.safetensors people.csv")), delimiter=";")
    assert header == ["id", "age", "hours", "work", "since", "income", "cluster", "logit"]
    relevance = read("r/relevance.csv", ";")[1:]
    assert [row[6] for row in rows] == [row[1] for row in relevance]
    ran("apply r/model.safetensors people.csv --out new/rows.csv")
    written = pd.read_csv("new/rows.csv", sep=";", decimal=",")
    np.testing.assert_allclose(written["logit"], [number(row[2]) for row in relevance])

    def piped(text, run):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return run("apply r/model.safetensors -")

    new = "work;age;more;cluster\nfarm;60,5;1;x\noffice;?;oops;y\n"  # another order, further columns, fewer
    assert "standard input has no column ['hours']; its columns are ['work', 'age', " in piped(new, refused)
    new = new.replace(";more", ";more;hours").replace(";1;", ";1;40;").replace(";oops;", ";oops;50;")
    header, old, young = csv.reader(io.StringIO(piped(new, ran)), delimiter=";")
    assert header == ["work", "age", "more", "hours", "cluster", "cluster_2", "logit"]
    assert [old[5], young[5]] == [relevance[1][1], relevance[0][1]]


AS_IS = [
    "01067",
    "+4930123",
    "9007199254740993",
    "",
    "NA",
    "TRUE",
    "1e3",
    "0.70",
    "1.106,29 €",
    " x",
    'a "b"',
    "k.A.",
]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_apply_passes_files_on_as_they_are_written(ran, of_a, separator):
    rows = [["", "a", "same", "same", *[f"c{i}" for i in range(len(AS_IS))], "logit"]]
    rows += [[str(i), f"{i % 2}.{i % 4}", "x", "", *(AS_IS if i else AS_IS[::-1]), "y"] for i in range(9)]
    for lines in (rows, [[*row, ""] for row in rows]):  # as spreadsheets write them
        with open("t.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter=separator, lineterminator="\n").writerows(lines)
        found = [*csv.reader(io.StringIO(ran(f"apply {of_a} t.csv")), delimiter=separator)]
        assert [row[:-2] for row in found] == lines
        assert found[0][-2:] == ["cluster", "logit_2"]
        assert [row[-2] for row in found[1:]] == [str(i % 2) for i in range(9)]


def test_apply_passes_values_of_parquet_on(ran, of_a):
    ids = pd.array([2**53 + 1, None], dtype="Int64")
    pd.DataFrame({"a": [0.25, 1], "id": ids, "b": [True, False]}).to_parquet("t.parquet")
    found = [line.rpartition(",")[0] for line in ran(f"apply {of_a} t.parquet").splitlines()]
    assert found == ["a,id,b,cluster", "0.25,9007199254740993,True,0", "1.0,,False,1"]


def test_one_new_row_is_read_as_the_table_of_the_model(ran, refused):
    """A network, a tree and rules keep how it was read."""
    sizes = [(600, 950, "1.106", "12.500")[i % 4] for i in range(40)]
    rows = [f"{size};{i % 2},5 kg;{'unklar' if i % 9 == 5 else i % 2}" for i, size in enumerate(sizes)]
    Path("t.csv").write_text("\n".join(["size;weight;kind", *rows]))
    ran("table t.csv -k 3 --na unklar --out r")
    ran("rules t.csv -k 3 --na unklar --out r/rules.safetensors")
    frame = read_table("t.csv", na=["unklar"])
    made = {name: neonxc.load(f"r/{name}.safetensors") for name in ("model", "rules")}
    tree = CART(3).fit(frame, labels=made["model"].predict(frame))
    made |= {"tree": tree, "bare": tree.tree_, "of_tree": neonxc.neuralize(tree), "sliced": made["rules"][:]}
    row = frame.iloc[[2]].assign(weight=1.5, kind=np.nan)
    for name, one in made.items():
        neonxc.save(one, f"r/{name}.safetensors")
        apply = f"apply r/{name}.safetensors one.csv"
        Path("one.csv").write_text("size;weight;kind\n1.106;1,5 kg;unklar\n")
        assert ran(apply).splitlines()[1].split(";")[3] == str(one.predict(row)[0]), name
        if name not in ("rules", "sliced"):  # whose few columns may be others
            Path("one.csv").write_text("size;weight;kind\n1.106;500 g;1\n")
            assert "column 'weight': '500 g' is not a number in kg" in refused(apply)


def test_identifiers_are_text_as_written(ran, refused, of_a):
    Path("before.csv").write_text("id,a\n007,0\n7,1\n9007199254740993,0\n9007199254740992,1\n")
    Path("after.csv").write_text("a,id\n1,7\n1,9007199254740992\n0,9007199254740993\n1,007\n")
    out = ran(f"moves {of_a} before.csv after.csv --ids id")
    assert "1 of 4 rows (25%) moved" in out
    assert "007" in out
    assert "before.csv has no column ['key']" in refused(f"moves {of_a} before.csv after.csv --ids key")
    Path("gaps.csv").write_text("id,a\n007,0\nNA,1\nnobody,1\n")
    assert read_cells("gaps.csv").ids("id", ["nobody"]).tolist() == ["007", None, None]
    pd.DataFrame({"id": pd.array([7, None], dtype="Int64")}).assign(a=0.5).to_parquet("ids.parquet")
    assert read_cells("ids.parquet").ids("id").tolist() == ["7", None]


def test_what_has_no_clusters_is_not_applied(refused, people_csv):
    neonxc.save(np.eye(3), "x.safetensors")
    assert "no clustering, but an object of class ndarray" in refused("apply x.safetensors people.csv")


def test_quiet_commands_print_no_notes(notes, people_csv):
    assert notes("--quiet rules people.csv -k 2") == ""
    assert notes("rules people.csv -k 2 -q") == ""
    assert notes("rules people.csv -k 2 --no-progress") == notes("rules people.csv -k 2") != ""
    assert "note: " in notes("rules people.csv -k 2")


def test_warnings_are_notes(neonxc_command, people_csv, monkeypatch):
    def warned(*_):
        warnings.warn("take\n care", UserWarning, stacklevel=1)
        raise ValueError("far enough")

    monkeypatch.setattr("neonxc.report.clusters.by_choice", warned)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        code, _, err = neonxc_command("table", people_csv, "-k", 2)
    assert (code, err.splitlines()[-2:]) == (2, ["note: take care", "neonxc: far enough"])


RULES = "rules people.csv --labels income"
REFUSED = {
    f"{RULES} --out r.xlsx": "the suffix of --out tells the format of the rules: .txt, .md, ",
    f"{RULES} --out r": "the suffix of --out tells the format of the rules: .txt, .md, ",
    f"{RULES} --out r.safetensors --format sql": "in --format sql ends in .sql, got --out r.safetensors",
    f"{RULES} --out r.xlsx --format html": "in --format html ends in .html or .htm, got --out r.xlsx",
    f"{RULES} --out r.md --dialect duckdb": "--dialect and --table are for --format sql, and ",
    f"{RULES} --table people": "--dialect and --table are for --format sql, and ",
    f"{RULES} --format sql --dialect oracle": "'oracle' is not one of 'ansi', 'duckdb', ",
    f"{RULES} --format sql --table crm.": "table must be the name of a table, or the parts",
    "rules people.csv -k 3 --leaves 2": "3 clusters need at least as many --leaves, got 2",
    "explain people.csv --out report.pdf": ".html or .json",
    "explain nothing.csv": "does not exist",
    "apply people.csv people.csv": "",
    "table people.csv -k 2-500": "500 clusters need at least as many different rows of people.csv; got 60",
    "table people.csv --labels nope": "people.csv has no column ['nope']; its columns are ['id', 'age', ",
    "table people.csv --labels incom": "people.csv has no column ['incom'] (did you mean 'income'?); its ",
    "table people.csv --ignore Hour": "people.csv has no column ['Hour'] (did you mean 'hours'?); its ",
    "table people.csv --keep ids": "keep: the table has no column ['ids'] (did you mean 'id'?); its ",
    "table people.csv --labels id": "column 'id' of people.csv has 60 different labels in 60 rows",
    "table people.csv --labels age --ignore hours": "column 'age' of people.csv ",
    "table people.csv --labels income -k 2": "pass --clusters or --labels, not both",
    "table people.csv -k 4-2": "a range must increase",
    "table people.csv -k 1-3": "at least 2 clusters are needed",
    "table people.csv -k many": "'many' is neither a number of clusters nor a range such as 2-12",
}


@pytest.mark.parametrize("command", REFUSED)
def test_what_is_refused_leaves_nothing(refused, people_csv, tmp_path, command):
    found = refused(command)
    assert found.startswith("neonxc: ")
    assert REFUSED[command] in found
    assert [*tmp_path.iterdir()] == [people_csv]


def test_names_are_taken_as_they_are(ran):
    X = np.random.default_rng(0).normal(size=(20, 2))
    np.savetxt("a.csv", X, delimiter=",", header="speed [m/s][/b],$\\frac{$", comments="")
    out = ran("table a.csv -k 2 --out r[b]")
    assert "speed [m/s][/b]" in out
    assert "r[b]" in out


def test_a_failure_leaves_nothing_and_spares_what_was_there(neonxc_command, wine_csv, tmp_path, monkeypatch):
    Path("r").mkdir()
    Path("r/relevance.csv").write_text("mine")
    monkeypatch.setattr("neonxc.cli.tables.save", Mock(side_effect=OSError("disk full")))
    code, _, err = neonxc_command(*["table", "wine.csv", "-k", "2", "--out", "r"])
    assert (code, err.splitlines()[-1]) == (1, "neonxc: disk full")
    assert {path.name for path in tmp_path.rglob("*")} == {"r", "relevance.csv", "wine.csv"}
    assert Path("r/relevance.csv").read_text() == "mine"


PACKED = gzip.compress("\n".join(["a,b", *(f"{i},{i * i}" for i in range(500))]).encode())
BAD_TABLES = {
    "bad.csv, line 3, column 'b': 'inf' is not a finite number": b"a,b\n1,2\n3,inf\n",
    "the table has no column left to cluster by; a, b have only one value: left out": b"a,b\n1,2\n",
    "as many different rows of bad.csv; only 2 of the 3 are different": b"a,b\n1,2\n2,2\n2,2\n",
    "3 clusters need at least as many different rows of bad.csv; got 2": b"a,b\n1,2\n2,3\n",
    "neonxc: bad.csv.gz can't be read: Compressed file ended": PACKED[: len(PACKED) // 2],
    "neonxc: bad.csv.gz can't be read: Error": PACKED[:15] + bytes([PACKED[15] ^ 255]) + PACKED[16:],
    "neonxc: bad.csv.gz can't be read: CRC": PACKED[:-8] + bytes(4) + PACKED[-4:],
    "neonxc: bad.csv.gz can't be read: Not": PACKED + b"more",
    "neonxc: bad.csv.gz can't be read as a table: it is empty": b"",
}


@pytest.mark.parametrize("message", BAD_TABLES)
def test_bad_tables(refused, message):
    name = "bad.csv.gz" if "bad.csv.gz" in message else "bad.csv"
    Path(name).write_bytes(BAD_TABLES[message])
    last = refused(f"table {name} -k 3 --out r")
    assert last.startswith("neonxc: ")
    assert message in last
    assert not Path("r").exists()


def test_few_different_rows_where_no_number_is_given(ran, refused, notes):
    for name, rows in {"few": "1,2\n3,4\n5,9\n", "four": "1,2\n3,4\n9,5\n4,4\n" * 30}.items():
        Path(f"{name}.csv").write_text("a,b\n" + rows)
        assert "cluster 1:" in ran(f"rules {name}.csv")  # up to 3 clusters are compared
    assert "it is used here" in notes("rules four.csv")  # the rules alone are the output
    Path("two.csv").write_text("a,b\n" + "1,2\n3,4\n" * 30)
    assert "two.csv has only 2 different rows: there is nothing to cluster" in refused("rules two.csv")


def test_columns_of_one_name_and_of_ours(notes):
    X = np.random.default_rng(0).normal(size=(20, 3))
    np.savetxt("a.csv", X, delimiter=",", header="a,a,cluster", comments="")
    assert "columns of the same name are called a.1" in notes("table a.csv -k 2 --out r")
    assert read("r/relevance.csv")[0] == ["row", "cluster_2", "logit", "a", "a.1", "cluster"]


def test_a_report_of_a_table(ran, people_csv):
    assert "new/report.html" in ran("explain people.csv --clusters 2 --fast --out new/report.html")
    assert gc.get_freeze_count() > 0  # what was loaded is no garbage
    assert gc.isenabled()
    assert "Left out for speed" in Path("new/report.html").read_text()


def test_a_report_of_texts_and_of_photos(ran, refused):
    texts = Path("texts.txt")
    report = Path("texts.json")
    texts.write_text("sun and moon\nsalt the soup\nstars, sun, moon\nstir soup with salt\n" * 3)
    ran(f"explain {texts} --clusters 2 --out {report}")
    assert '"kind": "texts"' in report.read_text()
    assert "Left out for speed" not in report.read_text()
    assert "--clusters" in refused(f"explain {texts} --out {report}")
    texts.write_text("हिन्दी किताब\n我喜欢猫\nхлеб, cafe\u0301\n" * 3, encoding="utf-8")
    ran(f"explain {texts} --clusters 3 --fast --out {report}")
    written = report.read_text(encoding="utf-8")
    assert "<function counted_words>" in written  # without its address
    names = {column["name"] for column in json.loads(written)["columns"]}
    assert names == {*"我喜欢猫", "हिन्दी", "किताब", "хлеб", "café"}
    texts.write_text("the\nof\nand\n")
    assert "no terms besides English stop words" in refused(f"explain {texts} --clusters 2 --out {report}")
    Path("photos").mkdir()
    assert "has no photos" in refused("explain photos --clusters 2 --out a.html")


ESCAPE = "\x1b]0;owned\x07\x1b[31mred\u202e"
"""A name that would set the title of a terminal, colour it, and turn its direction."""
COMMANDS = (
    "table -k 2",
    "explain -k 2 --fast",
    "rules -k 2",
    "rules -k 2 --format markdown",
    "table -k 2-3",
    "table --labels no",
)


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("row", ["", "x,1\n"])
def test_names_do_not_reach_the_terminal_as_they_are(command, row, neonxc_command):
    # SECURITY.md: A name does nothing to a terminal or a spreadsheet.
    # SECURITY.md: Control characters in what the commands print are replaced, and in the CSV files
    numbers = np.random.default_rng(0).normal(size=(30, 2)).round(3)
    lines = [f"{first},{second}" for first, second in numbers]
    Path("t.csv").write_text(f"{ESCAPE},{ESCAPE}\n" + "\n".join(lines) + "\n" + row, encoding="utf-8")
    name, *options = command.split()
    _, out, err = neonxc_command(name, "t.csv", *options)
    assert out + err
    assert not {*ESCAPE} & {"\x1b", "\x07", "\u202e"} & {*out, *err}


@pytest.mark.parametrize(
    "command",
    [
        "rules t.csv --labels label --out new.txt",
        "apply net.safetensors t.csv --out new.csv",
        "explain t.csv -k 2 --fast --out new.html",
    ],
)
def test_a_failure_midway_leaves_the_old_output(command, neonxc_command, monkeypatch):
    # SECURITY.md: Files are written atomically
    frame = pd.DataFrame({"a": np.repeat([0.0, 9.0], 20) + np.arange(40) / 40, "b": np.arange(40) % 7})
    frame.assign(label=frame["a"] > 5).to_csv("t.csv", index=False)
    neonxc.save(neonxc.neuralize(frame.iloc[[0, 20]].to_numpy(), frame), "net.safetensors")
    out = Path(command.split()[-1])
    out.write_text("old")
    with monkeypatch.context() as broken:
        broken.setattr("neonxc.common.atomic.os.replace", mock.Mock(side_effect=OSError("no space left")))
        code, _, err = neonxc_command(*command.split())
    assert code != 0
    assert "no space left" in err
    assert out.read_text() == "old"
    assert not [*Path().glob("*.part")]
    assert neonxc_command(*command.split())[0] == 0
    assert out.read_text() != "old"


WRITTEN = {  # text: cell
    "=1+1": "'=1+1",
    "+a": "'+a",
    "-x": "'-x",
    "@b": "'@b",
    "\tx": "'\tx",
    "\r=x": "'\r=x",
    "\n=x": "'\n=x",
    "＝1": "'＝1",
    "-1+cmd|' /C calc'!A0": "'-1+cmd|' /C calc'!A0",
    "-2024-01-01": "'-2024-01-01",
    "'=x": "''=x",
    "''-5": "'" + "''-5",
    "-5": "-5",
    " -5": " -5",
    "-1.106,29 €": "-1.106,29 €",
    "+4930123": "+4930123",
    "-inf": "-inf",
    "-": "-",
    "--": "--",
    "": "",
    "'": "'",
    "'tis": "'tis",
    "a=b": "a=b",
    "5-x": "5-x",
}


@pytest.mark.parametrize("text", WRITTEN)
def test_a_text_is_written_for_spreadsheets_and_read_back(text):
    assert written(text) == WRITTEN[text]
    assert text_of(WRITTEN[text]) == text
    assert text_of(written(WRITTEN[text])) == WRITTEN[text]


def test_no_file_of_a_command_has_formulas_of_a_spreadsheet(neonxc_command):
    # SECURITY.md: A name does nothing to a terminal or a spreadsheet.
    # SECURITY.md: Control characters in what the commands print are replaced, and in the CSV files
    values = np.repeat([0.0, -1.0], 20)
    names = ['=HYPERLINK("http://a")', "+a", "@b", "-c", "-7"]
    table = pd.DataFrame(dict.fromkeys(names, values)) + np.random.default_rng(0).normal(size=(40, 5)).round(2)
    table["@who"] = np.where(np.arange(40) % 3, "@x", "y")
    table.assign(label=np.where(values < 0, "=1+1", "-x")).to_csv("t.csv", index=False)
    for command in (
        "table t.csv --labels label --out o",
        "table t.csv -k 2-3 --ignore label --out k",
        "rules t.csv --labels label --out rules.csv",
        "apply o/model.safetensors t.csv --out applied.csv",
        "apply o/model.safetensors applied.csv --out again.csv",
    ):
        code, _, err = neonxc_command(*command.split())
        assert code == 0, err
    Path("piped.csv").write_text(neonxc_command("apply", "o/model.safetensors", "t.csv")[1])
    files = [path for path in Path().rglob("*.csv") if path.name != "t.csv"]
    assert len(files) == 11
    for path in files:
        cells = [cell for row in read(path) for cell in row]
        formulas = [cell for cell in cells if cell.startswith(("=", "+", "@", "-")) and not is_number(cell)]
        assert not formulas, path
    for path in ("rules.csv", "o/clusters.csv", "o/relevance.csv", "o/columns.csv", "applied.csv"):
        assert {"'=1+1", "'-x"} <= {cell for row in read(path) for cell in row}, path
    quoted = ['\'=HYPERLINK("http://a")', "'+a", "'@b", "'-c", "-7", "'@who"]
    assert read("o/relevance.csv")[0] == ["row", "label", "cluster", "logit", *quoted]
    applied = read("applied.csv")
    assert applied == read("piped.csv")
    assert [row[: len(applied[0])] for row in read("again.csv")] == applied
    original = read_table("t.csv")
    pd.testing.assert_frame_equal(read_table("applied.csv")[[*original]], original)


IN_WORDS = {
    "table t.csv --scale foo": "Invalid value for '--scale': 'foo' is not one of 'none', 'standard'",
    "table t.csv -k 2": "leave the column out (--ignore a), or let the cell count as missing (--na x)",
    "rules t.csv --leaves x": "Invalid value for '--leaves': a whole number is needed",
    "rules t.csv --leaves 1": "Invalid value for '--leaves': a number of at least 2 is needed",
    "explain t.csv --size 5": "Invalid value for '--size': a number of at least 32 is needed",
    "table t.csv -k x": "Invalid value for '--clusters' / '-k': 'x' is neither a number of clusters nor",
    "rules keep.csv --keep nope": "neonxc: --keep: the table has no column ['nope']; its columns are ['n_clusters",
    "rules keep.csv --format sql -k 2 --table .": "neonxc: --table must be the name of a table",
}


@pytest.mark.parametrize("command", IN_WORDS)
def test_messages_are_in_the_words_of_the_command(command, refused):
    Path("t.csv").write_text("a,b\n" + "1,2\n" * 20 + "x,3\n")
    Path("keep.csv").write_text("n_clusters=3,b\n" + "1.5,2\n2.5,4\n" * 20)
    assert IN_WORDS[command] in refused(command)


PYTHON = r"<|list\[|\b(str|int|bool|path|Path|TEXT|INTEGER|BOOLEAN)\b|n_clusters|max_leaves|sample_weight|\(na\)"
EVERY = ("demo", "heatmap", "table", "explain", "rules", "apply", "moves", "layers", "compare")


@pytest.mark.parametrize("command", ["", *EVERY])
def test_the_help_has_no_words_of_python(command, neonxc_command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, err = neonxc_command(*command.split(), "--help")
    assert (code, err) == (0, "")
    assert not re.findall(PYTHON, out)
    assert ("CELL" in out) == (command in ("table", "explain", "rules", "apply", "moves", "layers", "compare"))


WORKS = {  # what a command calls after it has read its arguments, and a call of it
    "demo": ("photos.demo_photo", "demo"),
    "heatmap": ("photos.extractor", "heatmap photo0.png -k 2"),
    "table": ("tables.table_attributions", "table wine.csv -k 2"),
    "explain": ("reports.table_report", "explain wine.csv -k 2"),
    "rules": ("tables.cluster_rules", "rules wine.csv -k 2"),
    "apply": ("tables.applied", "apply wine.csv wine.csv"),
    "moves": ("tables.moved", "moves wine.csv wine.csv wine.csv"),
    "compare": ("tables.compared", "compare wine.csv wine.csv wine.csv"),
    "layers": ("tables.layers_of", "layers wine.csv --labels target"),
}
CODES = [
    (ValueError("no"), 2, "neonxc: no"),
    (OSError("disk full"), 1, "neonxc: disk full"),
    (ImportError("no package"), 1, "neonxc: no package"),
    (RuntimeError("no weights"), 1, "neonxc: no weights"),
    (MemoryError(), 1, "neonxc: MemoryError"),
    (KeyboardInterrupt(), 130, "neonxc: interrupted"),
]


@pytest.mark.parametrize(
    ("command", "codes"),
    [
        # errors of all kinds are caught in one place: by default, most commands raise one of them
        *((command, CODES if command in ("demo", "apply") else CODES[:1]) for command in EVERY),
        *(pytest.param(command, CODES[1:], marks=pytest.mark.slow) for command in EVERY),
    ],
)
def test_exit_codes(command, codes, neonxc_command, wine_csv, photos, monkeypatch):
    name, call = WORKS[command]
    for error, code, message in codes:
        monkeypatch.setattr(f"neonxc.cli.{name}", Mock(side_effect=error))
        got, _, err = neonxc_command("-q", *call.split())
        assert (got, err.splitlines()[-1]) == (code, message)
    assert neonxc_command(command, "--help")[0] == 0
    for wrong in ("--bogus", "--out wine.csv/x"):
        got, _, err = neonxc_command(*call.split(), *wrong.split())
        assert (got, err[:8], err.count("\n")) == (2, "neonxc: ", 1)
    monkeypatch.setattr(f"neonxc.cli.{name}", Mock(side_effect=AssertionError("a fault of ours")))
    with pytest.raises(AssertionError):  # Python prints the whole traceback, and exits with 1
        neonxc_command("-q", *call.split())


CUSTOMERS = "Kundenliste 2024;;;\n\nPLZ;Umsatz;Größe;Ort\n"
CUSTOMERS += "".join(
    f"0{2346 + i % 3};{'1.250' if i % 2 else '980'},{i % 10}0 €;1,{i % 9} m;{'Köln' if i % 2 else 'Bonn'}\n"
    for i in range(60)
)


@pytest.fixture
def customers(tmp_path):
    path = tmp_path / "kunden.csv"
    path.write_text(CUSTOMERS, encoding="utf-8")
    return path


def test_a_german_table(neonxc_command, customers):
    code, out, err = neonxc_command("rules", "kunden.csv", "-k", 2)
    assert code == 0
    assert (
        "note: line 3 is the header, and what is above it is left out ('Kundenliste 2024'); to take another" in err
    )
    assert "to take another line: --header 1\n" in err
    assert "PLZ (02346) is a code, and stays text; as numbers: --numbers PLZ; to leave out: --ignore PLZ\n" in err
    assert "=" not in err
    assert re.search(r"Umsatz [≤>] 1\.000 €", out)
    english = neonxc_command("--quiet", "rules", "kunden.csv", "-k", 2, "--locale", "en")[1]
    assert re.search(r"Umsatz [≤>] 1,000 €", english)
    code, _, err = neonxc_command("rules", "kunden.csv", "-k", 2, "--locale", "klingon")
    assert code == 2
    assert "--locale needs a language" in err
    assert (
        ","
        not in neonxc_command("rules", "kunden.csv", "-k", 2, "--format", "sql")[1]
        .partition("CASE")[2]
        .partition("END")[0]
    )


def test_files_for_spreadsheets_are_written_as_the_table_is(ran, customers, wine_csv):
    ran("table kunden.csv -k 2 --out r")
    content = Path("r/relevance.csv").read_bytes()
    assert content.startswith("\ufeffrow;cluster;logit;PLZ;Umsatz;Größe;Ort".encode())
    relevance = pd.read_csv("r/relevance.csv", sep=";", decimal=",")
    np.testing.assert_allclose(relevance.iloc[:, 3:].sum(axis=1), relevance["logit"], rtol=1e-6)
    assert read_table("r/relevance.csv")["logit"].tolist() == relevance["logit"].tolist()
    ran("apply r/model.safetensors kunden.csv --out new.csv")
    assert Path("new.csv").read_bytes().startswith("\ufeffPLZ;Umsatz;Größe;Ort;cluster;logit".encode())
    ran("table wine.csv -k 2 --ignore target --out w")
    assert Path("w/relevance.csv").read_bytes().startswith(b"row,cluster,logit,")  # ASCII needs no mark


LABELS_AS_WRITTEN = {  # labels in a file, and those of the clusters
    "codes": ["007", "012", "120"],
    "units": ["10 %", "20 %", "30 %"],
    "months": ["2024-01", "2024-02", "2024-03"],
    "numbers": ["1", "2", "3"],
}


@pytest.mark.parametrize("case", LABELS_AS_WRITTEN)
def test_labels_keep_their_text(ran, notes, case):
    names = LABELS_AS_WRITTEN[case]
    rows = [f"{i % 3 + i / 1000},{names[i % 3]}" for i in range(60)]
    Path("t.csv").write_text("\n".join(["a,branch_id", *rows]))
    assert notes("rules t.csv --labels branch_id") == ""
    rules = json.loads(ran("rules t.csv --labels branch_id --format json"))["rules"]
    assert sorted(str(rule["label"]) for rule in rules) == names


def test_labels_that_differ_in_capitals_are_pointed_out(notes):
    rows = [f"{i % 3 + i / 1000},{('north', 'North', 'south')[i % 3]}" for i in range(60)]
    Path("t.csv").write_text("\n".join(["a,y", *rows]))
    told = "labels that differ in capitals, blanks or invisible characters alone are used as different ones"
    assert notes("rules t.csv --labels y") == f"note: {told}: 'north', 'North'\n"


def test_new_values_are_told_by_commands_on_new_rows(ran, notes):
    rows = [f"{i % 3 * 4 + i / 1000},{'abc'[i % 3]},{i % 7}" for i in range(60)]
    Path("t.csv").write_text("\n".join(["x,kind,n", *rows]))
    ran("table t.csv -k 3 --out r")
    Path("new.csv").write_text("\n".join(["x,kind,n", *rows[1:], "0.1,d,3"]))
    told = "values that the table of the model did not have are in kind ('d')"
    assert notes("apply r/model.safetensors new.csv") == f"note: {told}\n"
    assert notes("compare r/model.safetensors r/model.safetensors new.csv") == f"note: {told}\n"
    assert notes("moves r/model.safetensors t.csv new.csv") == f"note: new.csv: {told}\n"
    ran("rules t.csv -k 3 --out r/rules.safetensors")
    assert notes("apply r/rules.safetensors t.csv") == ""


def test_layers_advise_nothing_that_they_lack(ran):
    rows = [f"{i},{i % 4 + i / 1000},{'ab'[i // 2 % 2]},{'pqrs'[i % 4]}" for i in range(80)]
    Path("t.csv").write_text("\n".join(["id,x,coarse,fine", *rows]))
    out = ran("layers t.csv --labels coarse,fine")
    assert "id looks like an identifier (every value is different): left out\n" in out
    assert "keep" not in out


@pytest.mark.filterwarnings("ignore:the surrogate")
def test_the_logit_of_a_row_is_that_of_the_network(ran):
    """Beside relevance of a surrogate, it was the sum of the relevance."""
    rows = [f"{i % 3 + i * 37 % 100 / 50},{i * 13 % 29},{'uvw'[i % 3]}" for i in range(60)]
    Path("t.csv").write_text("\n".join(["a,b,y", *rows]))
    ran("table t.csv --labels y --out r")
    applied = pd.read_csv(io.StringIO(ran("apply r/model.safetensors t.csv")))
    relevance = pd.read_csv("r/relevance.csv")
    np.testing.assert_allclose(relevance["logit"], applied["logit"])
    residual = NEON(neonxc.load("r/model.safetensors")).residual(pd.read_csv("t.csv")[["a", "b"]])
    np.testing.assert_allclose(relevance[["a", "b"]].sum(axis=1) + residual, relevance["logit"])
    assert np.abs(residual).max() > 0.01
