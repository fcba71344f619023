"""Commands on tables: what they write, what they say, and one readable line for every mistake."""

import csv
import gzip
import io
import json
import re
import warnings

import numpy as np
import pandas as pd
import pytest

import neonxc
from neonxc import NEON
from neonxc.pipelines.encoding import Encoding
from neonxc.pipelines.parts import Number
from neonxc.report.clusters import kmeans
from neonxc.trees import CART


def read(path):
    with open(path, newline="") as file:
        return list(csv.reader(file))


def test_table_explains_rows_by_raw_columns(neonxc_command, wine_csv, tmp_path):
    code, out, _ = neonxc_command("table", wine_csv, "-k", 3, "--ignore", "target", "--out", "result")
    assert code == 0
    assert "what speaks for it" in out
    rows = read(tmp_path / "result" / "relevance.csv")
    assert [row[0] for row in rows] == ["row", *map(str, range(178))]
    rows = [row[1:] for row in rows]
    assert rows[0][:3] == ["cluster", "logit", "alcohol"]
    numbers = np.array(rows[1:], dtype=float)
    np.testing.assert_allclose(numbers[:, 2:].sum(1), numbers[:, 1])
    assert (numbers[:, 1] >= 0).all()
    net = neonxc.load(tmp_path / "result" / "model.safetensors")
    X = np.array(read(wine_csv)[1:], dtype=float)[:, :-1]
    header, *columns = read(tmp_path / "result" / "columns.csv")
    assert header == ["cluster", "column", "relevance", "direction", "mean", "overall", "effect", "points"]
    assert len(columns) == 3 * X.shape[1]
    for cluster, column, relevance, direction, mean, overall, *_ in columns:
        i, inside = rows[0].index(column) - 2, numbers[:, 0] == int(cluster)
        assert float(relevance) == pytest.approx(numbers[inside, i + 2].mean())
        assert (float(mean), float(overall)) == pytest.approx((X[inside, i].mean(), X[:, i].mean()))
        assert direction == ("↑" if float(mean) > float(overall) else "↓")
    header, *clusters = read(tmp_path / "result" / "clusters.csv")
    assert header == ["cluster", "rows", "prototype_rows", "what_speaks_for_it"]
    typical = [[*map(int, row[2].split())] for row in clusters]
    assert [one.tolist() for one in NEON(net).summary(X).prototypes] == typical
    assert re.match(r"\w+ \+\d.* \([↑↓] \S+ vs \S+, d = \S+\), ", clusters[0][3])
    assert re.search(r"\+\d\S* \([↑↓] \S+ vs \S+, d = \S+\)", out)
    np.testing.assert_array_equal(net.predict(X), numbers[:, 0])
    assert net.feature_names_ == rows[0][2:]


@pytest.mark.parametrize("scale", ["none", "minmax", "robust"])
def test_table_scales(neonxc_command, wine_csv, tmp_path, scale):
    assert neonxc_command("table", wine_csv, "-k", 2, "--scale", scale, "--out", "r")[0] == 0
    assert (tmp_path / "r" / "clusters.png").stat().st_size > 0


def test_table_reads_gz_semicolons_and_no_header(neonxc_command, tmp_path):
    X = np.random.default_rng(0).normal(size=(20, 3))
    with gzip.open("a.csv.gz", "wt") as file:
        file.write("\n".join(";".join(map(repr, row)) for row in X.tolist()))
    assert neonxc_command("table", "a.csv.gz", "-k", 2, "--out", "r")[0] == 0
    assert read(tmp_path / "r" / "relevance.csv")[0] == ["row", "cluster", "logit", "x0", "x1", "x2"]


@pytest.fixture
def people_csv(tmp_path):
    """A table as people have them: two groups, numbers and words with gaps, an identifier, a date, an income."""
    rng = np.random.default_rng(0)
    lines = ["id;age;hours;work;since;income"]
    for i in range(60):
        old = i % 2
        age = "?" if i % 15 == 3 else f"{rng.normal(30 + 25 * old, 3):.1f}".replace(".", ",")
        hours = "NA" if i % 20 == 5 else rng.integers(20, 60)
        work = "" if i % 12 == 7 else ("office", "farm")[old]
        lines.append(f"p{i};{age};{hours};{work};20{i % 20 + 10}-03-01;{('low', 'high')[old]}")
    path = tmp_path / "people.csv"
    path.write_text("\n".join(lines))
    return path


def test_table_of_words_and_gaps(neonxc_command, people_csv, tmp_path):
    code, _, err = neonxc_command("table", people_csv, "-k", 2, "--ignore", "income", "--out", "r")
    assert code == 0, err
    notes = err.splitlines()
    for told in (
        "note: decimal commas were understood in age (",
        "note: id looks like an identifier (every value is different): left out",
        "note: --ignore COLUMN leaves a column out; --keep COLUMN keeps one that looks like an identifier",
        "note: since holds dates or times: left out",
        "note: 2 columns of numbers have missing values: age (7%), hours (5%); filled in with the median",
        "note: 1 column of categories is one-hot encoded: work (2 values, and missing values)",
    ):
        assert any(note.startswith(told) for note in notes), told
    header, *rows = read(tmp_path / "r" / "relevance.csv")
    assert header == ["row", "cluster", "logit", "age", "hours", "work"]
    numbers = np.array(rows, dtype=float)[:, 1:]
    np.testing.assert_allclose(numbers[:, 2:].sum(1), numbers[:, 1])
    own = numbers[:, 0] == numbers[0, 0]
    assert own.tolist() == [i % 2 == 0 for i in range(60)]


def test_a_column_names_the_clusters(neonxc_command, people_csv, tmp_path):
    code, out, err = neonxc_command("table", people_csv, "--labels", "income", "--out", "r")
    assert code == 0, err
    assert "2 clusters of people.csv by income, 60 rows" in out
    header, *rows = read(tmp_path / "r" / "relevance.csv")
    assert header == ["row", "label", "cluster", "logit", "age", "hours", "work"]
    assert [row[1] for row in rows] == ["low", "high"] * 30
    assert [row[2] for row in rows] == ["low", "high"] * 30
    net = neonxc.load(tmp_path / "r" / "model.safetensors")
    assert net.fidelity_ == 1


def test_numbers_of_clusters_side_by_side(neonxc_command, wine_csv, tmp_path):
    code, out, err = neonxc_command("table", wine_csv, "-k", "2-4", "--ignore", "target", "--out", "r")
    assert code == 0, err
    assert "k = 3 has the greatest silhouette (0.28)" in out
    assert "it is used here" in out
    header, *rows = read(tmp_path / "r" / "choose-k.csv")
    assert header == ["k", "inertia", "silhouette", "stability", "cost_ratio"]
    assert [row[0] for row in rows] == ["2", "3", "4"]
    assert (tmp_path / "r" / "choose-k.png").stat().st_size > 0
    assert len(read(tmp_path / "r" / "clusters.csv")) == 4
    code, _, err = neonxc_command("table", wine_csv, "-k", "2-500")
    assert code == 2
    assert "500 clusters need at least as many different rows of wine.csv; got 178" in err


def test_tables_from_standard_input_and_parquet(neonxc_command, wine_csv, tmp_path, monkeypatch):
    import pandas as pd

    pd.read_csv(wine_csv).to_parquet(tmp_path / "wine.parquet")
    found = []
    for source in (wine_csv, "wine.parquet", "-"):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(wine_csv.read_bytes())))
        code, out, err = neonxc_command("rules", source, "-k", 3, "--ignore", "target", "--format", "json")
        assert code == 0, err
        found.append(json.loads(out))
    assert found[0] == found[1] == found[2]


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
def test_rules_in_every_format(neonxc_command, people_csv, tmp_path, format):
    code, out, err = neonxc_command("rules", people_csv, "--labels", "income", "--format", format)
    assert code == 0, err
    assert FORMATS[format] in out
    suffix = {"text": "txt", "markdown": "md", "python": "py"}.get(format, format)
    code, told, err = neonxc_command("rules", people_csv, "--labels", "income", "--out", f"new/rules.{suffix}")
    assert (code, told) == (0, f"new/rules.{suffix}\n"), err
    assert (tmp_path / "new" / f"rules.{suffix}").read_text(encoding="utf-8") == out


def test_rules_in_a_dialect_of_sql(neonxc_command, people_csv, tmp_path):
    asked = ["rules", people_csv, "--labels", "income", "--dialect", "tsql", "--table", "crm.people"]
    code, out, err = neonxc_command(*asked, "--format", "sql")
    assert code == 0, err
    assert out.startswith("-- SQL for tsql\n")
    assert "FROM [crm].[people];" in out
    code, _, err = neonxc_command(*asked, "--out", "rules.SQL")
    assert code == 0, err
    assert (tmp_path / "rules.SQL").read_text(encoding="utf-8") == out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("--out r.xlsx", "the suffix of --out tells the format of the rules: .txt, .md, .*; got r.xlsx"),
        ("--out r", "the suffix of --out tells the format of the rules: .*; got r$"),
        ("--out r.safetensors --format sql", "in --format sql ends in .sql, got --out r.safetensors"),
        ("--out r.xlsx --format html", "in --format html ends in .html or .htm, got --out r.xlsx"),
        ("--out r.md --dialect duckdb", "--dialect and --table are for --format sql, and .* written as markdown"),
        ("--table people", "--dialect and --table are for --format sql, and .* written as text"),
        ("--format sql --dialect oracle", "'oracle' is not one of 'ansi', 'duckdb', "),
        ("--format sql --table crm.", "table must be the name of a table, or the parts"),
    ],
)
def test_bad_formats_of_rules(neonxc_command, people_csv, tmp_path, args, message):
    before = set(tmp_path.iterdir())
    code, _, err = neonxc_command("rules", people_csv, "--labels", "income", *args.split())
    assert (code, set(tmp_path.iterdir())) == (2, before)
    assert re.search(message, err)


def test_rules_of_kmeans_and_of_labels(neonxc_command, people_csv):
    code, out, err = neonxc_command("rules", people_csv, "-k", 2, "--ignore", "income")
    assert code == 0, err
    assert "\n    work is office\n" in out
    assert out.count("cluster ") == 2
    assert "held out: " in out
    code, out, _ = neonxc_command("rules", people_csv, "--labels", "income", "--leaves", 2)
    assert code == 0
    assert out.count("mistake") >= 2
    code, _, err = neonxc_command("rules", people_csv, "-k", 3, "--leaves", 2)
    assert (code, err) == (2, "neonxc: 3 clusters need at least as many --leaves, got 2\n")


def test_a_label_without_a_rule_is_told(neonxc_command, tmp_path):
    lines = ["a,kind", *(f"{i % 3},{'xyz'[i % 3]}" for i in range(60))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    code, _, err = neonxc_command("rules", "t.csv", "--labels", "kind", "--leaves", 2)
    assert code == 0
    assert re.search("note: no rule leads to cluster [xyz]; a larger number of --leaves allows", err)


@pytest.mark.filterwarnings("ignore:the surrogate")
def test_rows_without_a_label_are_noise(neonxc_command, people_csv, tmp_path):
    """In commands as in Python, whatever a missing label looks like."""
    code, out, err = neonxc_command("table", people_csv, "--labels", "work", "--out", "r")
    assert code == 0, err
    assert "note: 5 of 60 rows are noise and in no cluster: 5 of them have no label" in err
    assert "2 clusters of people.csv by work, 60 rows" in out
    code, _, err = neonxc_command("rules", people_csv, "--labels", "work")
    assert code == 0, err
    X, names = np.arange(30.0)[:, None], np.array(["a", "b", None] * 10, dtype=object)
    numbers = [0, 1, None] * 10
    for labels in (names, pd.Series(names), pd.Series(numbers, dtype=float), pd.Series(numbers, dtype="Int64")):
        net = neonxc.neuralize(labels=labels, X=X)
        assert net.classes_.tolist() in (["a", "b", -1], [0, 1, -1])
        with pytest.warns(UserWarning, match="10 points of noise"):
            assert set(CART(2).fit(X, labels=labels).labels_.tolist()) <= {"a", "b", 0, 1}


def test_a_column_with_noise(neonxc_command, tmp_path):
    lines = ["a,label", *(f"{i % 3 + i / 1000},{i % 3 - 1}" for i in range(60))]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    code, out, err = neonxc_command("rules", "t.csv", "--labels", "label", "--leaves", 2)
    assert (code, err) == (0, "note: 20 of 60 rows are noise and in no cluster: their label is -1\n")
    assert out.count("cluster ") == 2
    assert re.search(r"agreement 100% \(\d\d% with noise\)", out)
    code, out, err = neonxc_command("table", "t.csv", "--labels", "label", "--out", "r")
    assert code == 0, err
    assert "2 clusters of t.csv by label, 60 rows" in out
    assert [row[2] for row in read(tmp_path / "r" / "relevance.csv")[1:]] == ["-1", "0", "1"] * 20


def test_saved_models_give_new_rows_their_clusters(neonxc_command, people_csv, tmp_path, monkeypatch):
    from neonxc.data.files import read_table
    from neonxc.trees import ExShallow

    assert neonxc_command("table", people_csv, "-k", 2, "--ignore", "income", "--out", "r")[0] == 0
    assert neonxc_command("rules", people_csv, "-k", 2, "--ignore", "income", "--out", "rules.safetensors")[0] == 0
    frame = read_table(people_csv)
    X = frame[["age", "hours", "work"]]
    tree = ExShallow().fit(X, labels=frame["income"])
    neonxc.save(tree, tmp_path / "tree.safetensors")
    neonxc.save(tree.tree_, tmp_path / "bare.safetensors")
    wanted = {"r/model": "01" * 30, "rules": "01" * 30, "tree": ["low", "high"] * 30, "bare": ["low", "high"] * 30}
    for model, expected in wanted.items():
        code, out, err = neonxc_command("apply", f"{model}.safetensors", people_csv)
        assert code == 0, err
        header, *rows = csv.reader(io.StringIO(out), delimiter=";")
        logit = ["logit"] if model == "r/model" else []
        assert header == ["id", "age", "hours", "work", "since", "income", "cluster", *logit]
        clusters = [row[6] for row in rows]
        if model in ("r/model", "rules"):
            assert len(set(clusters[::2])) == len(set(clusters[1::2])) == 1
            assert clusters[0] != clusters[1]
        else:
            assert clusters == expected
    relevance = read(tmp_path / "r" / "relevance.csv")[1:]
    code, _, err = neonxc_command("apply", "r/model.safetensors", people_csv, "--out", "new/rows.csv")
    assert code == 0
    written = pd.read_csv(tmp_path / "new" / "rows.csv", sep=";", decimal=",")
    assert [str(cluster) for cluster in written["cluster"]] == [row[1] for row in relevance]
    np.testing.assert_allclose(written["logit"], [float(row[2]) for row in relevance])

    new = "work;age;more;cluster\nfarm;60,5;1;x\noffice;?;oops;y\n"  # another order, further columns, fewer
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(new.encode())))
    code, _, err = neonxc_command("apply", "r/model.safetensors", "-")
    assert (code, err.splitlines()[-1]) == (
        2,
        "neonxc: standard input has no column ['hours']; its columns are ['work', 'age', 'more', 'cluster']",
    )
    new = new.replace(";more", ";more;hours").replace(";1;", ";1;40;").replace(";oops;", ";oops;50;")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(new.encode())))
    code, out, err = neonxc_command("apply", "r/model.safetensors", "-")
    assert code == 0, err
    header, old, young = csv.reader(io.StringIO(out), delimiter=";")
    assert header == ["work", "age", "more", "hours", "cluster", "cluster_2", "logit"]
    assert [old[5], young[5]] == [relevance[1][0], relevance[0][0]]


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
def test_apply_passes_files_on_as_they_are_written(neonxc_command, tmp_path, separator):
    rows = [["", "a", "same", "same", *[f"c{i}" for i in range(len(AS_IS))], "logit"]]
    rows += [[str(i), f"{i % 2}.{i % 4}", "x", "", *(AS_IS if i else AS_IS[::-1]), "y"] for i in range(9)]
    neonxc.save(neonxc.neuralize(np.array([[0.0], [1.0]]), pd.DataFrame({"a": [0.0, 1.0]})), "net.safetensors")
    for lines in (rows, [[*row, ""] for row in rows]):  # as spreadsheets write them
        with open("t.csv", "w", newline="", encoding="utf-8") as file:
            csv.writer(file, delimiter=separator, lineterminator="\n").writerows(lines)
        code, out, err = neonxc_command("apply", "net.safetensors", "t.csv")
        assert code == 0, err
        found = [*csv.reader(io.StringIO(out), delimiter=separator)]
        assert [row[:-2] for row in found] == lines
        assert found[0][-2:] == ["cluster", "logit_2"]
        assert [row[-2] for row in found[1:]] == [str(i % 2) for i in range(9)]


def test_apply_passes_values_of_parquet_on(neonxc_command, tmp_path):
    frame = pd.DataFrame({"a": [0.25, 1], "id": pd.array([2**53 + 1, None], dtype="Int64"), "b": [True, False]})
    frame.to_parquet("t.parquet")
    neonxc.save(neonxc.neuralize(np.array([[0.0], [1.0]]), frame[["a"]]), "net.safetensors")
    code, out, err = neonxc_command("apply", "net.safetensors", "t.parquet")
    assert code == 0, err
    assert [row[:4] for row in csv.reader(io.StringIO(out))] == [
        ["a", "id", "b", "cluster"],
        ["0.25", "9007199254740993", "True", "0"],
        ["1.0", "", "False", "1"],
    ]


def test_one_new_row_is_read_as_the_table_of_the_model(neonxc_command, tmp_path):
    """A network, a tree and rules keep how it was read."""
    from neonxc.data.files import read_table

    sizes = [(600, 950, "1.106", "12.500")[i % 4] for i in range(40)]
    rows = [f"{size};{i % 2},5 kg;{'unklar' if i % 9 == 5 else i % 2}" for i, size in enumerate(sizes)]
    (tmp_path / "t.csv").write_text("\n".join(["size;weight;kind", *rows]))
    assert neonxc_command("table", "t.csv", "-k", 3, "--na", "unklar", "--out", "r")[0] == 0
    assert neonxc_command("rules", "t.csv", "-k", 3, "--na", "unklar", "--out", "r/rules.safetensors")[0] == 0
    frame = read_table("t.csv", na=["unklar"])
    tree = CART(3).fit(frame, labels=neonxc.load("r/model.safetensors").predict(frame))
    neonxc.save(tree, "r/tree.safetensors")
    neonxc.save(tree.tree_, "r/bare.safetensors")
    neonxc.save(neonxc.neuralize(tree), "r/of_tree.safetensors")
    neonxc.save(neonxc.load("r/rules.safetensors")[:], "r/sliced.safetensors")
    for name in ("model", "rules", "tree", "bare", "of_tree", "sliced"):
        apply = ("apply", f"r/{name}.safetensors", "one.csv")
        (tmp_path / "one.csv").write_text("size;weight;kind\n1.106;1,5 kg;unklar\n")
        code, out, err = neonxc_command(*apply)
        assert code == 0, err
        cluster = neonxc.load(f"r/{name}.safetensors").predict(frame.iloc[[2]].assign(weight=1.5, kind=np.nan))[0]
        assert out.splitlines()[1].split(";")[3] == str(cluster), name
        if name not in ("rules", "sliced"):  # whose few columns may be others
            (tmp_path / "one.csv").write_text("size;weight;kind\n1.106;500 g;1\n")
            assert "column 'weight': '500 g' is not a number in kg" in neonxc_command(*apply)[2]


def test_identifiers_are_text_as_written(neonxc_command, tmp_path):
    neonxc.save(neonxc.neuralize(np.array([[0.0], [1.0]]), pd.DataFrame({"a": [0.0, 1.0]})), "net.safetensors")
    (tmp_path / "before.csv").write_text("id,a\n007,0\n7,1\n9007199254740993,0\n9007199254740992,1\n")
    (tmp_path / "after.csv").write_text("a,id\n1,7\n1,9007199254740992\n0,9007199254740993\n1,007\n")
    code, out, err = neonxc_command("moves", "net.safetensors", "before.csv", "after.csv", "--ids", "id")
    assert code == 0, err
    assert "4 rows: 1 (25%) moved" in out
    assert "007" in out
    code, _, err = neonxc_command("moves", "net.safetensors", "before.csv", "after.csv", "--ids", "key")
    assert (code, err) == (2, "neonxc: before.csv has no column ['key']; its columns are ['id', 'a']\n")
    (tmp_path / "gaps.csv").write_text("id,a\n007,0\nNA,1\nnobody,1\n")
    from neonxc.data.cells import read_cells

    assert read_cells("gaps.csv").ids("id", ["nobody"]).tolist() == ["007", None, None]
    pd.DataFrame({"id": pd.array([7, None], dtype="Int64")}).assign(a=0.5).to_parquet("ids.parquet")
    assert read_cells("ids.parquet").ids("id").tolist() == ["7", None]


def test_what_has_no_clusters_is_not_applied(neonxc_command, people_csv, tmp_path):
    neonxc.save(Encoding(("age",), (Number(0),)), tmp_path / "encoding.safetensors")
    code, _, err = neonxc_command("apply", "encoding.safetensors", people_csv)
    assert (code, err) == (
        2,
        "neonxc: encoding.safetensors contains no clustering, but an object of class Encoding\n",
    )
    code, _, err = neonxc_command("apply", people_csv, people_csv)
    assert code == 2
    assert err.count("\n") == 1


def test_warnings_are_notes(neonxc_command, people_csv, monkeypatch):
    def warned(*_):
        warnings.warn("take\n care", UserWarning, stacklevel=1)
        raise ValueError("far enough")

    monkeypatch.setattr("neonxc.report.clusters.by_choice", warned)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        code, _, err = neonxc_command("table", people_csv, "-k", 2)
    assert code == 2
    assert err.splitlines()[-2:] == ["note: take care", "neonxc: far enough"]


BAD_LABELS = {
    ("--labels", "nope"): "people.csv has no column ['nope']; its columns are ['id', 'age', ",
    ("--labels", "incom"): "people.csv has no column ['incom'] (did you mean 'income'?); its columns are ['id', ",
    ("--ignore", "Hour"): "people.csv has no column ['Hour'] (did you mean 'hours'?); its columns are ['id', ",
    ("--keep", "ids"): "keep: the table has no column ['ids'] (did you mean 'id'?); its columns are ['id', ",
    ("--labels", "id"): "column 'id' of people.csv has 60 different labels in 60 rows",
    ("--labels", "age", "--ignore", "hours"): "column 'age' of people.csv ",
    ("--labels", "income", "-k", "2"): "pass --clusters or --labels, not both",
    ("-k", "4-2"): "a range must increase",
    ("-k", "1-3"): "at least 2 clusters are needed",
    ("-k", "many"): "'many' is neither a number of clusters nor a range such as 2-12",
}


@pytest.mark.parametrize("args", BAD_LABELS)
def test_bad_choices_of_clusters(neonxc_command, people_csv, args):
    code, _, err = neonxc_command("table", people_csv, *args)
    assert code == 2
    assert BAD_LABELS[args] in err.splitlines()[-1]


def test_kmeans_is_that_of_scikit_learn():
    from sklearn.cluster import KMeans

    X = np.random.default_rng(0).normal(size=(300, 4))
    for k in (2, 5, 9):
        ours, theirs = kmeans(X, k, "rows"), KMeans(k, n_init=10, random_state=0).fit(X)
        np.testing.assert_array_equal(ours.labels_, theirs.labels_)
        np.testing.assert_array_equal(ours.cluster_centers_, theirs.cluster_centers_)


def test_names_are_taken_as_they_are(neonxc_command, tmp_path):
    X = np.random.default_rng(0).normal(size=(20, 2))
    lines = ["speed [m/s][/b],$\\frac{$", *(f"{a},{b}" for a, b in X.tolist())]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    code, out, _ = neonxc_command("table", "a.csv", "-k", 2, "--out", "r [b]")
    assert code == 0
    assert "speed [m/s][/b]" in out
    assert "r [b]" in out


def test_a_failure_leaves_nothing_and_spares_what_was_there(neonxc_command, wine_csv, tmp_path, monkeypatch):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "relevance.csv").write_text("mine")
    monkeypatch.setattr("neonxc.cli.tables.save", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    code, _, err = neonxc_command("table", wine_csv, "-k", 2, "--out", "r")
    assert code == 2
    assert err.splitlines()[-1] == "neonxc: disk full"
    assert [file.name for file in (tmp_path / "r").iterdir()] == ["relevance.csv"]
    assert (tmp_path / "r" / "relevance.csv").read_text() == "mine"
    assert {file.name for file in tmp_path.iterdir()} == {"r", "wine.csv"}


BAD_TABLES = {
    "\n".join(
        ["a,b", *(f"{i},{i * i}" for i in range(15)), "", "3,x"]
    ): "line 18, column 'b': 'x' is not a number",
    "a,b\n1,2\n3,inf\n": "line 3, column 'b': 'inf' is not a finite number",
    "a,b\n1,2\n1\n": "line 3 has 1 cells, the first line has 2",
    "a,b\n": "a header and no data",
    "": "is empty",
    "a,b\n1,2\n": "the table has no column left to cluster by; a, b have only one value: left out",
    "a,b\n1,2\n1,2\n1,2\n": "a, b have only one value",
    "a,b\n1,2\n2,2\n2,2\n": "as many different rows of bad.csv; only 2 of the 3 are different",
    "a,b\n1,2\n2,3\n": "3 clusters need at least as many different rows of bad.csv; got 2",
    "%PDF-1.7": "bad.csv is no table but a PDF document: export it as CSV",
    "one\ntwo words\n": "bad.csv is no table but one column of text",
}


@pytest.mark.parametrize("text", BAD_TABLES, ids=BAD_TABLES.values())
def test_bad_tables(neonxc_command, tmp_path, text):
    (tmp_path / "bad.csv").write_text(text)
    code, _, err = neonxc_command("table", "bad.csv", "-k", 3, "--out", "r")
    assert code == 2
    *notes, last = err.splitlines()
    assert last.startswith("neonxc: ")
    assert BAD_TABLES[text] in last
    assert all(note.startswith("note: ") for note in notes)
    assert not (tmp_path / "r").exists()


def test_too_few_different_rows_where_no_number_is_given(neonxc_command, tmp_path):
    (tmp_path / "two.csv").write_text("a,b\n" + "1,2\n3,4\n" * 30)
    code, _, err = neonxc_command("rules", "two.csv")
    assert (code, err) == (2, "neonxc: two.csv has only 2 different rows: there is nothing to cluster\n")
    (tmp_path / "four.csv").write_text("a,b\n" + "1,2\n3,4\n9,5\n4,4\n" * 30)
    code, out, err = neonxc_command("rules", "four.csv")  # up to 3 clusters are compared
    assert code == 0, err
    assert "it is used here" in err  # the rules alone are the output
    assert "cluster 0:" in out


DAMAGES = {
    "can't be read: Compressed file ended": lambda packed: packed[: len(packed) // 2],
    "can't be read: Error": lambda packed: packed[:15] + bytes([packed[15] ^ 255]) + packed[16:],
    "can't be read: CRC": lambda packed: packed[:-8] + bytes(4) + packed[-4:],
    "can't be read: Not": lambda packed: packed + b"more",
    "can't be read as a table: it is empty": lambda packed: b"",
}


@pytest.mark.parametrize("message", DAMAGES)
def test_a_damaged_gz_is_one_line(neonxc_command, tmp_path, message):
    packed = gzip.compress("\n".join(["a,b", *(f"{i},{i * i}" for i in range(500))]).encode())
    (tmp_path / "bad.csv.gz").write_bytes(DAMAGES[message](packed))
    code, _, err = neonxc_command("table", "bad.csv.gz", "-k", 2)
    assert code == 2
    assert err.startswith(f"neonxc: bad.csv.gz {message}")
    assert err.count("\n") == 1


def test_columns_of_one_name_and_of_ours(neonxc_command, tmp_path):
    X = np.random.default_rng(0).normal(size=(20, 3))
    (tmp_path / "a.csv").write_text("\n".join(["a,a,cluster", *(",".join(map(str, row)) for row in X)]))
    code, _, err = neonxc_command("table", "a.csv", "-k", 2, "--out", "r")
    assert code == 0, err
    assert read(tmp_path / "r" / "relevance.csv")[0] == ["row", "cluster", "logit", "a", "a.1", "cluster"]
    assert "columns of the same name are called a.1" in err


def test_a_report_of_a_table(neonxc_command, people_csv, tmp_path):
    page = tmp_path / "new" / "report.html"
    code, out, err = neonxc_command("explain", people_csv, "--clusters", "2", "--fast", "--out", page)
    assert code == 0, err
    assert str(page) in out
    assert "2 clusters of" in page.read_text()
    assert "Left out for speed" in page.read_text()
    code, _, err = neonxc_command("explain", people_csv, "--out", tmp_path / "report.pdf")
    assert code == 2
    assert ".html or .json" in err
    code, _, err = neonxc_command("explain", tmp_path / "nothing.csv")
    assert code == 2
    assert "does not exist" in err


@pytest.mark.parametrize("rows", ["1,2\n3,4\n5,9\n8,1\n", "1,2\n3,4\n5,9\n"])
def test_rules_of_a_few_rows_without_a_number_of_clusters(neonxc_command, tmp_path, rows):
    (tmp_path / "few.csv").write_text("a,b\n" + rows)
    code, out, err = neonxc_command("rules", "few.csv")
    assert code == 0, err
    assert "cluster 1: " in out


def test_a_report_of_texts_and_of_photos(neonxc_command, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("sun and moon\nsalt the soup\nstars, sun, moon\nstir soup with salt\n" * 3)
    code, _, err = neonxc_command("explain", texts, "--clusters", "2", "--out", tmp_path / "texts.json")
    assert code == 0, err
    written = (tmp_path / "texts.json").read_text()
    assert '"kind": "texts"' in written
    assert "Left out for speed" not in written
    code, _, err = neonxc_command("explain", texts, "--out", tmp_path / "texts.json")
    assert code == 2
    assert "--clusters" in err
    texts.write_text("हिन्दी किताब\n我喜欢猫\nхлеб, cafe\u0301\n" * 3, encoding="utf-8")
    code, _, err = neonxc_command("explain", texts, "--clusters", "3", "--fast", "--out", tmp_path / "texts.json")
    assert code == 0, err
    written = (tmp_path / "texts.json").read_text(encoding="utf-8")
    assert "<function counted_words>" in written  # without its address
    found = json.loads(written)
    assert {column["name"] for column in found["columns"]} == {*"我喜欢猫", "हिन्दी", "किताब", "хлеб", "café"}
    texts.write_text("the\nof\nand\n")
    code, _, err = neonxc_command("explain", texts, "--clusters", "2", "--out", tmp_path / "texts.json")
    assert code == 2
    assert "texts.txt has no terms besides English stop words" in err
    (tmp_path / "photos").mkdir()
    code, _, err = neonxc_command("explain", tmp_path / "photos", "--clusters", "2", "--out", tmp_path / "a.html")
    assert code == 2
    assert "has no photos" in err
