"""Tables are read as people have them, and what is not a table is told apart."""

import gzip
import io
import json
import re
import sys
import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from refusals import refused
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from turns import every

import neonxc
from neonxc.cli.options import in_words_of_commands
from neonxc.common.locales import printed_in
from neonxc.common.numbers import as_printed, percent, text
from neonxc.data.files import read_table
from neonxc.data.files.notation import is_number
from neonxc.data.preparation import DATE, prepare
from neonxc.rules import Rules
from neonxc.trees import CART


@pytest.fixture
def read(tmp_path):
    """Write a file and read it: text in UTF-8, bytes as they are."""

    def written(content, name="t.csv", **options):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_table(path, **options)

    return written


def columns(frame):
    return frame.to_dict("list")


def told(frame):
    return frame.attrs["notes"]


NUMBERS = {"a": [1, 2], "b": [0.5, -3e-5]}
TEXT = b"a,b\n1,0.5\n2,-3e-5\n"
XY = {"a": [1, 2], "b": ["x,y", "z,z"]}
WITHOUT_NAME = "Unnamed: 0"
READ = {
    '"a, b","c ""d"""\n"1","two\nlines"\n2,"x; y"\n': {"a, b": [1, 2], 'c "d"': ["two\nlines", "x; y"]},
    "39,Private,?\n40,Private,1\n41,State,2\n": {  # every word of the first line is there again
        "x0": [39, 40, 41],
        "x1": ["Private", "Private", "State"],
        "x2": [None, 1, 2],
    },
    "country,2000,2001\nA,1,2\nB,3,4\n": {"country": ["A", "B"], "2000": [1, 3], "2001": [2, 4]},
    "1,5;2,5\n1,7;2,7\n": {"x0": [1.5, 1.7], "x1": [2.5, 2.7]},
    **{f"{line}\na;b\n1;x,y\n2;z,z\n": XY for line in ("sep=;", '"sep=;"', "SEP=;")},  # as Excel needs it
    f"{WITHOUT_NAME},a\n7,1\n9,2\n": {"a": [1, 2]},  # numbers of rows that were selected
    ",a\n1,1\n1,2\n": {WITHOUT_NAME: [1, 1], "a": [1, 2]},
    ",a\nx,1\ny,2\n": {WITHOUT_NAME: ["x", "y"], "a": [1, 2]},
    '"a";"b"\n"r1";1;2\n"r2";3;4\n': {WITHOUT_NAME: ["r1", "r2"], "a": [1, 3], "b": [2, 4]},  # as R writes it
    "price\n12,50\n1.213,75\n": {"price": [12.5, 1213.75]},
}


@pytest.mark.parametrize("text", READ)
def test_tables_as_people_have_them(read, text):
    pd.testing.assert_frame_equal(read(text), pd.DataFrame(READ[text]), check_dtype=False)


NOTED = {
    "1,0.5\n2,-3e-5\n": (
        "the first line is data: the columns are called x0 ... x1; if it names them: header=1 or --header 1"
    ),
    ",a\n0,0\n1,1\n2,4\n": "the first column has no name and numbers the rows: it was dropped",
    ",a\n1,0\n2,1\n3,4\n": "the first column has no name and numbers the rows: it was dropped",
    "a,a, b ,,\n1,2,3,4,\n5,6,7,8,\n": "columns of the same name are called a.1",
}
NAMED = [["x0", "x1"], ["a"], ["a"], ["a", "a.1", "b", "Unnamed: 3"]]


@pytest.mark.parametrize(("text", "names"), [*zip(NOTED, NAMED, strict=True)])
def test_names_of_columns(read, text, names):
    assert told(read(text)) == [NOTED[text]]
    assert list(read(text)) == names
    assert list(read(",a\n0,1\n1,2\n", needed=[WITHOUT_NAME])) == [WITHOUT_NAME, "a"]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_separators_and_ends_of_lines(read, separator, end):
    text = end.join(["a,b", "1,0.5", "2,-3e-5", ""]).replace(",", separator)
    frame = read(text)
    assert columns(frame) == NUMBERS
    assert list(map(str, frame.dtypes)) == ["int64", "float64"]
    assert told(frame) == []


MARKS = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252", *MARKS])
def test_encodings(read, encoding):
    frame = read(MARKS.get(encoding, b"") + "größe,b\n1,é\n2,x\n".encode(encoding))
    assert columns(frame) == {"größe": [1, 2], "b": ["é", "x"]}
    assert bool(told(frame)) == (encoding == "cp1252")


def test_compressed_tables_and_standard_input(read, monkeypatch):
    for content in (TEXT, gzip.compress(TEXT, mtime=0)):
        assert columns(read(content, "t.csv.gz")) == columns(read(content)) == NUMBERS
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        assert columns(read_table("-")) == NUMBERS
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a,b\n1\n")))
    refused("standard input can't be read as a table: line 2 has 1 cell", read_table, "-")


def test_parquet(read):
    frame = pd.DataFrame({"whole": [1, 2, 3], "word": ["x", None, "z"], "true": [True, False, True]})
    frame["gaps"] = pd.array([1, None, 3], dtype="Int64")
    frame["kind"] = pd.Categorical(["a", "b", "a"])
    frame["day"] = pd.date_range("2020", periods=3)
    whole = frame.to_parquet()
    found = read(whole, "t.parquet")
    assert [str(found[name].dtype) for name in ("whole", "gaps", "true")] == ["int64", "float64", "bool"]
    pd.testing.assert_frame_equal(found, frame.astype({"gaps": float, "kind": object}), check_dtype=False)
    numbered = frame[["whole"]].set_axis([7, 8, 9])
    assert list(read(numbered.to_parquet())) == ["whole"]
    assert columns(read(numbered.rename_axis("town").to_parquet())) == {"town": [7, 8, 9], "whole": [1, 2, 3]}
    large = pd.DataFrame({"a": pd.array([2**53 + 1, None], dtype="Int64"), "b": [1, 2]})
    assert read(large.to_parquet())["a"][0] == str(2**53 + 1)
    refused("columns and no data", read, frame.iloc[:0].to_parquet())
    infinite = pd.DataFrame({"a": [1.0, np.inf]}).to_parquet()
    refused(r"t.csv, row 1, column 'a': 'inf' is not a finite number", read, infinite)
    schema = whole.replace(b"ARROW:schema", b"ARROW:scheme").replace(b"numpy_type", b"numpy_typo")  # a KeyError
    broken = whole.replace(b"\x01\x00\x00\x00x", b"\x01\x00\x00\x00\xff")  # a text that is not UTF-8
    assert broken != whole
    for content in (b"PAR1", whole[: len(whole) // 2], b"PAR1" + bytes(60) + b"PAR1", schema, broken):
        refused(r"t\.csv is damaged, or is not a Parquet file", read, content)


@pytest.mark.parametrize("marker", ["", "NA", "?", "nan", "NULL", "None", "-", "#N/A", " "])
def test_missing_values(read, marker):
    frame = read(f"a,b,c\n1,x,7\n{marker},{marker},8\n3,y,9\n")
    assert frame["a"].dtype == np.float64
    assert frame[["a", "b"]].isna().to_numpy().tolist() == [[False, False], [True, True], [False, False]]


def test_truth_values(read):
    frame = read("a,b,c\n1,true,True\n2,FALSE,\n3,True,false\n")
    assert frame["b"].dtype == bool
    assert frame["b"].tolist() == [True, False, True]
    assert frame["c"].dropna().tolist() == ["True", "false"]


# cells of a column, and the numbers that they are
WRITTEN = [
    "1,5|? → 1.5|",
    "1,234|2,5 → 1.234|2.5",
    "1,234|2,500 → 1.234|2.5",
    "1.234,5|12,25 → 1234.5|12.25",
    "1,234,567|12 → 1234567|12",
    "1200|1.106|2.250 → 1200|1.106|2.25",
    "1.106|0.5|2 → 1.106|0.5|2",
    "1.106|2.250 → 1.106|2.25",
    "600|1.106 → 600|1106",
    "600|1,106 → 600|1106",
    "1.106,29 €|12,5 €|0 → 1106.29|12.5|0",
    "$1,106.29|-$5.00|($3.50) → 1106.29|-5|-3.5",
    "CHF 1'106.29|CHF 7.- → 1106.29|7",
    "US$ 1,200|US$ 5.50 → 1200|5.5",
    "12,- €|13,50 €|14,-- € → 12|13.5|14",
    "12,5 %|3 % → 12.5|3",
    "12 kg|7 kg → 12|7",
    "12 m²|15,5 m² → 12|15.5",
    "90 km/h|7.5 km/h → 90|7.5",
    "1 106,29|1\xa0106|1\u2009106|1\u202f106,5 \u2192 1106.29|1106|1106|1106.5",
    "1'106.29|2’500|3`000 → 1106.29|2500|3000",
    "1,00,000|12,34,567 → 100000|1234567",
    "(1,234.50)|12.00 → -1234.5|12",
    "$(1,234.50)|$12.00|($3) → -1234.5|12|-3",
    "￥1,200|￥900 → 1200|900",
    "5|N/V|#¡DIV/0!|#CALC!|<NULL>|-nan|not reported|entfällt → 5|||||||",
    "1.106,29-|5,00 → -1106.29|5",
    "−5,5|3 → -5.5|3",
    "5|k.A.|--|\\N|#DIV/0!|#N/A|n/a|#WERT!|keine Angabe|missing|UNKNOWN → 5||||||||||",
    "5|k.A. → 5|",
    "05|100|7 → 5|100|7",
    "9007199254740993|5 → 9007199254740993|5",
]
TEXT_ALL_THE_SAME = [
    "01067|10115|80331",
    "01067|007",
    "00|01|12",
    "+4930123|+4930124",
    "1,2,3|4,5",
    "9007199254740993||5",
    "99999999999999999999|5",
    "12 kg|500 g",
    "12 %|0.5",
    "5 Mio. €|700 Tsd. €",
    "A12|A13",
    "12 A/12 B|13 A/12 B",
    "12|12a|14b",
    "(0.5)|(0.12)",
    "2-|3|1-",
    "2020-01-01|2021-02-02",
    "10:30|11:20",
    "1-2|3-4",
    "1.2.3|1.2.4",
    "0176 123 456|0151 765 432",
    "1/2|3/4",
    "<0.05|0.3",
    "18+|25+",
    "1st|2nd",
    "5 ± 1|6 ± 2",
    "missing|unknown",
]
UNDERSTOOD = {
    "1,234|2,5": "decimal commas",
    "1,234|2,500": "decimal commas, which could separate thousands, were understood in a (1,234 is 1.234)",
    "1,234,567|12": "commas between thousands",
    "1.106|2.250": "decimal points, which could separate thousands, were understood in a (1.106 is 1.106)",
    "600|1.106": "points between thousands were understood in a (1.106 is 1106)",
    "12 kg|7 kg": "units were understood in a (12 kg is 12)",
    "(1,234.50)|12.00": "parentheses around negative numbers were understood in a ((1,234.50) is -1234.5)",
    "1.106,29-|5,00": "minus signs behind numbers were understood in a (1.106,29- is -1106.29)",
    "5|k.A.": "words for missing values were understood in a (k.A.)",
    "05|100|7": "numbers that look like codes, as postal codes do, are in a (05); to leave out: ignore=['a'] or",
    "01067|10115|80331": "a (01067) is a code, and stays text; as numbers: numbers=['a'] or --numbers a; to leave",
    "+4930123|+4930124": "a (+4930123) is a code",
    "9007199254740993||5": "whole numbers beyond 2**53 stay text, as some are missing or too large: a",
    "12 kg|500 g": "numbers in several units stay text: a (kg, g)",
}


@pytest.mark.parametrize("separator", ";\t")
@pytest.mark.parametrize("row", [*WRITTEN, *TEXT_ALL_THE_SAME])
def test_numbers_as_people_write_them(read, row, separator):
    cells, *numbers = (part.split("|") for part in row.split(" → "))
    rows = [f"{cell}{separator}{'xy'[i % 2]}" for i, cell in enumerate(cells)]
    frame = read("\n".join([f"a{separator}b", *rows]))
    assert (frame["a"].dtype.kind in "if") == bool(numbers)
    if numbers:
        assert_array_equal(frame["a"], [json.loads(number or "NaN") for number in numbers[0]])
    else:
        assert frame["a"].fillna("").tolist() == cells
    if "|".join(cells) in UNDERSTOOD:
        assert any(note.startswith(UNDERSTOOD["|".join(cells)]) for note in told(frame))


OTHER_COLUMNS = [  # lines of a table, and the numbers in its column a
    "a;b / 1.106;2,5 / 2.250;3 → 1106|2250",
    "a;b / 1.106;2.5 / 2.250;3 → 1.106|2.25",
    "a;b / 600;2.5 / 1,106;3 → 600|1106",
    "a;b / 600;2,5 / 1,106;3 → 600|1.106",
    "a;b / 600;1.234.567 / 1,106;3 → 600|1.106",
    'a,b / "1,106","2,5" / "2,250",3 → 1.106|2.25',
    "b;a / -1,5e-3;1.234 / 2,5;10.000 → 1234|10000",
    "b;a / 1,5;1.5 / 2,5;10.25 → 1.5|10.25",
    "b;a / 1,5;0.125 / 2,5;0.250 → 0.125|0.25",
    'a,b / "1,234",x / "12,000",y → 1234|12000',
    'a,b / "1,234.5",x / 7,y → 1234.5|7',
    'a,b / "1,5",x / "12,25",y → 1.5|12.25',
]


@pytest.mark.parametrize("row", OTHER_COLUMNS)
def test_a_mark_is_told_by_other_columns(read, row):
    text, numbers = row.replace(" / ", "\n").split(" → ")
    expected = [*map(float, numbers.split("|"))]
    assert read(text)["a"].tolist() == read(text, ignore=["b"])["a"].tolist() == expected


def test_one_row_is_read_as_the_table_before(read):
    """With the format of a table, which a file's own marks may contradict."""
    fitted = read("a;u;n;t;k\n1,5;2 kg;600;true;1\n2;3 kg;950;False;x\n").attrs["format"]

    def one(line, **options):
        return read(f"a;u;n;t;k\n{line}\n", format=fitted, **options)

    assert columns(one("1.106;4;1.106;TRUE;1")) == {"a": [1106], "u": [4], "n": [1106], "t": [True], "k": ["1"]}
    unit = "no unit, but kg in the table that the model was fitted to, is in u"
    assert unit in one("1;4;1;true;1").attrs["notes"]
    assert one("7;4 kg;5;;1")["t"].isna().all()
    points = one("12.5;4 kg;1.106;true;x")
    assert columns(points)["a"] + columns(points)["n"] == [12.5, 1.106]
    assert any("decimal points, unlike in the table" in note for note in points.attrs["notes"])
    refused("'u': '500 g' is not a number in kg, as in the table that the model was", one, "1,5;500 g;1;true;x")
    refused("'a': '1,5 €' is not a number, as in the table that the model was fitted", one, "1,5 €;5;1;true;x")
    refused("column 'a': '1.5.5' is not a number", one, "1.5.5;5;1;true;x")
    mixed = "\n".join(["a;b", *["1,5;x"] * 20, "1.5;x"])
    refused(r"column 'a': '1\.5' is not a number", read, mixed, format=fitted)


@pytest.mark.parametrize("given", [{"a": "text"}, "text", "[]", '{"a": 1}'])
def test_what_is_no_format(read, given):
    refused(r"format needs the text in frame\.attrs\['format'\], got", read, "a;b\n1;2\n", format=given)


def test_columns_that_a_user_has_changed_have_no_format(read):
    """Whether they are text or numbers now; models are fitted to what they are."""
    frame = read("a;b;c;d\n1,5;0;2 kg;1\n2;1;3 kg;2\n").drop(columns="d").rename(columns={"c": "e"})
    frame["b"] = frame["b"] == 0
    given, array, plain = (
        CART(2).fit(X, labels=[0, 1]).tree_.rules().table_format
        for X in (frame, frame.to_numpy(float), pd.DataFrame({"a": [1, 2]}))
    )
    assert [*json.loads(given)["columns"]] == ["a"]
    assert array is plain is None


def test_further_words_for_missing_values(read):
    frame = read("a;b\n5;x\n999;Keine\nnix;y\n", na=("999", "nix", "keine"))
    assert frame.isna().to_numpy().tolist() == [[False, False], [True, True], [True, False]]
    assert read("a;b\n999;keine\n", format=frame.attrs["format"]).isna().all(axis=None)
    for na in (-999, [-999], "-999"):  # as a number, however it is written
        assert read("a;b\n5,5;x\n-999,0;y\n-999;x\n", na=na)["a"].isna().tolist() == [False, True, True]
    typed = pd.DataFrame({"a": [1, 999], "b": ["x", "none"]}).to_parquet()
    assert read(typed, "t.parquet", na=["999"]).isna().to_numpy().tolist() == [[False, False], [True, True]]


@pytest.mark.parametrize(
    ("last", "why"),
    [
        ("Summe;6;1,5", "'Summe'"),
        ("Grand Total:;;2", "'Grand Total:'"),
        (";10;4,5", "its numbers are the sums of theirs"),
        ("w;10;7", None),
    ],
)
def test_a_total_at_the_end_is_told(read, last, why):
    frame = read(f"n;a;b\nx;1;1,5\ny;2;1\nz;3;1\nz;4;1\n{last}\n")
    assert len(frame) == 5
    notes = [note for note in told(frame) if "total" in note]
    assert len(notes) == bool(why)
    assert all(note.startswith(f"line 6 looks like a total of the rows above ({why}), but") for note in notes)
    totalled = "\n".join(["a;b", *["1;2"] * 20, "Total;40"])
    refused(r"line 22, column 'a': 'Total' is not .*; the line may be a total", read, totalled)


WORDS = [
    "manquant",
    "Manquante",
    "n.d.",
    "s.o.",
    "non renseigné",
    "sans objet",
    "sin datos",
    "no aplica",
    "mancante",
]
WORDS += [
    "non disponibile",
    "sem dados",
    "não informado",
    "ontbreekt",
    "n.v.t.",
    "nicht verfügbar",
    "#NOM?",
    "n.c.",
]


@pytest.mark.parametrize("word", WORDS)
def test_words_for_missing_numbers_in_six_languages(read, word):
    assert read(f"a;b\n1,5;1\n{word};2\n2,5;3\n")["a"].isna().tolist() == [False, True, False]


def test_all_unknown_words_are_in_one_message(read):
    rows = [f"{i};{i * 2};{i}" for i in range(40)]
    with pytest.raises(ValueError, match=r"t\.csv, line 42, column 'b': 'NC' is not a number") as error:
        read("\n".join(["a;b;c", *rows, "1;NC;1", "abs;2;2", "3;nc;-/-", "4;NC;4"]))
    message = str(error.value)
    assert (
        "; nor are 'abs' (line 43, column 'a'), 'nc' (line 44, column 'b'), '-/-' (line 44, column 'c'); "
        in message
    )
    assert "leave the columns out (ignore=['a', 'b', 'c'] or --ignore a --ignore b --ignore c)" in message
    assert message.endswith("as missing (na=['abs', 'NC', '-/-'] or --na abs --na NC --na -/-)")
    assert in_words_of_commands(message).endswith("as missing (--na abs --na NC --na -/-)")
    fixed = read("\n".join(["a;b;c", *rows, "1;NC;1", "abs;2;2", "3;nc;-/-"]), na=["abs", "NC", "-/-"])
    assert fixed.isna().sum().tolist() == [1, 2, 1]


def test_words_among_numbers_are_named(read):
    frame = read("a;b\n" + "".join(f"{i if i % 4 else 'NC'};{i}\n" for i in range(40)))
    assert told(frame) == ["a is text, with 'NC' among numbers; as numbers: na=['NC'] or --na NC"]


def test_codes_become_numbers_if_that_is_asked_for(read):
    text = "PLZ;store_id;ICD;a\n" + "".join(f"0{i % 3}067;{i % 5};25{i % 4}.83;{i}\n" for i in range(20))
    frame = read(text)
    assert frame["PLZ"][1] == "01067"
    assert (frame["store_id"][1], frame["ICD"][1]) == ("1", "251.83")
    assert (
        "PLZ (00067), store_id (0), ICD (250.83) are codes, and stay text; as numbers: numbers=[" in told(frame)[0]
    )
    assert told(frame)[0].endswith("--ignore PLZ --ignore store_id --ignore ICD")
    asked = read(text, numbers=["PLZ", "store_id", "ICD"])
    assert asked.iloc[1].tolist() == [1067, 1, 251.83, 1]
    assert told(asked) == []
    new = read("PLZ;store_id;ICD;a\n00067;1;250.83;5\n", format=asked.attrs["format"])
    assert new.iloc[0].tolist() == [67, 1, 250.83, 5]


# --- units and marks, as they are printed -----------------------------------------------------------------

SALES = [(f"{1000 + 37 * i},50 €", f"{i % 7},25 kg", f"{i % 9 * 11} %") for i in range(40)]
SALES += [(f"1{i % 10}.{250 + i},75 €", f"{20 + i % 5},5 kg", f"{i % 9 * 11} %") for i in range(40)]
GERMAN = "Umsatz;Gewicht;Anteil\n" + "".join(";".join(row) + "\n" for row in SALES)


@pytest.fixture
def sales(read):
    """A German table, and the network of two clusters of it."""
    frame = read(GERMAN)
    model = make_pipeline(StandardScaler(), KMeans(2, n_init=2, random_state=0)).fit(frame)
    return frame, neonxc.neuralize(model, frame)


def test_units_and_marks_are_printed_wherever_numbers_are(sales):
    frame, net = sales
    bare = frame.copy()
    bare.attrs = {}  # the network remembers
    later = bare.iloc[::-1].reset_index(drop=True)
    rules = CART(2).fit(frame, labels=net.predict(frame)).tree_.rules()
    texts = {
        "rules": str(rules),
        "markdown": rules.to_markdown(),
        "html": rules.to_html().partition("</style>")[2],
        "rule": str(rules[0]),
        "summary": str(neonxc.NEON(net).summary(bare)),
        "contrast": str(neonxc.contrast(net, bare, 0, 1)),
        "counterfactual": str(neonxc.counterfactual(net, bare.iloc[:1])),
        "moves": str(neonxc.moves(net, bare, later)),
    }
    for name, words in texts.items():
        assert re.search(r"\d (€|kg)", words), name
        assert not re.search(r"\d\.\d\d?\b(?!\d)", words), name  # no decimal point
    assert re.search(r"\d\.\d{3} €", texts["summary"])
    assert "# in " in rules.to_python()
    assert re.search(r"^-- (Umsatz|Gewicht) is in (€|kg)$", rules.to_sql("t"), re.MULTILINE)
    assert "," not in rules.to_sql("t").case
    assert re.search(r"\d,\d", texts["counterfactual"])
    loaded = Rules.from_dict(json.loads(json.dumps(rules.to_dict())))
    assert str(loaded) == str(rules)
    assert re.sub(r"[.,]", "", rules.to_text(locale="en")) == re.sub(r"[.,]", "", str(rules))
    assert rules.to_text(locale="en") != str(rules)


def test_units_belong_to_no_numbers_that_were_scaled(sales):
    frame, _ = sales
    scaled = (frame - frame.mean()) / frame.std()
    assert scaled.attrs["format"]  # pandas passes it on
    for X, has_units in (
        (frame, True),
        (frame.iloc[3:60], True),
        (scaled, False),
        (np.log(frame[["Umsatz"]]), False),
    ):
        tree = CART(2).fit(X, labels=X["Umsatz"] > X["Umsatz"].median()).tree_
        assert ("€" in str(tree.rules())) == has_units
    assert "GWh" in str(CART(2).fit(frame, labels=frame["Umsatz"] > 2000).tree_.rules(units={"Umsatz": "GWh"}))


def test_numbers_of_a_page_are_those_that_are_printed():
    random = np.random.default_rng(0)
    numbers = (random.normal(size=2000) * 10.0 ** random.integers(-8, 18, 2000)).tolist()
    for number in [*numbers, 0.0, -0.0, 1, 1e-4, 9.99999e-5, 9.9996, 999.96, 1000.5, 12345.6, 5e14 + 0.5, 1e15]:
        for decimals in (0, 2):
            written = text(float(number), decimals=decimals, separators=False)
            assert repr(as_printed(number, decimals)) == repr(float(written))


LOCALES = {
    "de": "1.234.567,5",
    "de_CH": "1’234’567.5",
    "de-AT": "1\u00a0234\u00a0567,5",
    "fr_FR.UTF-8": "1\u00a0234\u00a0567,5",
    "en": "1,234,567.5",
    "es": "1.234.567,5",
    "es_MX": "1,234,567.5",
}


@pytest.mark.parametrize("locale", LOCALES)
def test_numbers_are_printed_with_the_marks_of_a_locale(locale):
    with printed_in(locale):
        assert text(1234567.5, 8) == LOCALES[locale]
        assert text(2024) == "2024"  # which may be a year
        assert text(1.5, separators=False) == "1.5"
        assert (percent(0.994), text(1.5e-7)) == ("99.4%".replace(".", text(0.5)[1]), f"1{text(0.5)[1]}5e-07")
    assert text(1234567.5, 8) == LOCALES["en"]
    for unknown in ("", "xx", "german", "de_CH_1"):
        with (
            pytest.raises(ValueError, match="locale needs a language, possibly with a region"),
            printed_in(unknown),
        ):
            pass


STYLES = {  # how digits before a group, decimal signs and minus signs are written, and what is around a number
    "point": ("", ".", "-", "{}"),
    "german": (".", ",", "-", "{}"),
    "english": (",", ".", "-", "{}"),
    "swiss": ("’", ".", "-", "CHF {}"),
    "french": ("\u202f", ",", "−", "{} €"),
    "accounting": (",", ".", "(", "{}"),
}


@given(
    values=st.lists(st.floats(-1e6, 1e6).map(lambda x: round(x, 3)), min_size=2, max_size=6),
    style=st.sampled_from([*STYLES]),
)
def test_numbers_come_back_however_they_are_written(tmp_path_factory, values, style):
    values = [*values, 0.25]  # some value tells which is the decimal sign
    group, decimal, minus, around = STYLES[style]
    marks = str.maketrans({",": group, ".": decimal, "-": minus})
    texts = [around.format(f"{value:,.4f}".translate(marks)) for value in values]
    texts = [text + ")" * text.startswith("(") for text in texts]
    path = tmp_path_factory.mktemp("numbers") / "t.csv"
    path.write_text("\n".join(["a;b", *(f"{text};x{i}" for i, text in enumerate(texts))]), encoding="utf-8")
    assert_array_equal(read_table(path)["a"], values)


NO_TABLES = {
    b"\x89PNG\r\n\x1a\n": "is not a table but a PNG image: export it as CSV",
    b"\xff\xd8\xff\xe0": "a JPEG image",
    b"%PDF-1.7\n": "a PDF document",
    b"PK\x03\x04....xl/workbook.xml": "an Excel file or a zip archive: save the sheet as CSV, or unpack",
    b"\xd0\xcf\x11\xe0\xa1\xb1": "an old Excel file: save the sheet as CSV",
    b"SQLite format 3\0": "binary data",
    b"<!DOCTYPE html>\n<html><body>a,b</body></html>": "an HTML page",
    b"\n<HTML>": "an HTML page",
    b'<?xml version="1.0"?>': "an XML file",
    b'[{"a": 1, "b": 2}]': "a JSON file",
    b'{"a": 1, "b": 2}\n{"a": 3, "b": 4}\n': "a JSON file",
    b"a\0,\0b\0": "binary data, or text in UTF-16 without a byte order mark",
    b"": "it is empty",
    b" \n\n": "it is empty",
    "\ufeff".encode(): "it is empty",
    gzip.compress(b"", mtime=0): "it is empty",
    gzip.compress(b"\x89PNG\r\n", mtime=0): "a PNG image",
    b"Once upon a time\nthere was a king\n": "is not a table but one column of text",
    b"a b c\n1 2 3\n4 5 6\n": "is not a table but one column of text",
    b"It was, he said, late.\nYes.\nNo, no, no, she said.\nWell, then.\n": "line 2 has 1 cell",
}


def test_folders_and_files_that_are_not_there(tmp_path):
    refused("Is a directory", read_table, tmp_path)
    refused("No such file", read_table, tmp_path / "none.csv")


MANY = [f"{i},{i * 1.5}" for i in range(12)]
BAD = {
    "a,b\n1,2\n1\n": "line 3 has 1 cell, the first line has 2",
    "a,b\n1,2\n1,2,3\n3,4\n": "line 3 has 3 cells, the first line has 2",
    "\na;b\n\n1;2\n\n3\n": "line 6 has 1 cell, the first line has 2",
    "My table, 2024, of towns\na,b\n1,2\n3,4\n": (
        "line 2 has 2 cells, the first line has 3; remove what is above the header, or if that is line 2, pass "
        "header=2 or --header 2"
    ),
    "a,b\n": "a header and no data",
    "a,b\n1,2\n3,inf\n": "line 3, column 'b': 'inf' is not a finite number",
    "\n".join(
        ["a,b", *MANY, "", "12,oops", "13,7"]
    ): "line 15, column 'b': 'oops' is not a number, as the others are",
    "\n".join(["a,b", '1,"\n2"', *MANY, "zz,1"]): "line 16, column 'a': 'zz' is not a number",
    'a,b\n1,2\n"3,4\n5,6\n': "can't be read as a table: the file ends inside a quote",
    'a,b\n1,2\n3,"4\n5,6\n': "is a quote never closed?",
    "sep=;\na;b\n1;2\n3\n": "line 4 has 1 cell",
}


TITLED = [  # what is above "town,x,y", and the line of the header
    ("Towns in 2024\n", 2),
    ("Towns in 2024\nas of 1 May\n\n", 4),
    ("Towns,,\n", 2),
    ("Towns,,\n,,\n", 3),
    ("# towns, in 2024\n", 2),
    ("# towns, in 2024, by size\n", 2),
    ("sep=,\nTowns\n", 3),
]


@pytest.mark.parametrize(("above", "line"), TITLED)
@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("names", ["town,x,y", ",2023,2024"])
def test_the_header_is_found_below_titles(read, above, line, separator, names):
    text = f"{above}{names}\nRome,1,2\nBonn,3,4\nOslo,5,6\n".replace(",", separator)
    frame = read(text)
    assert frame.columns[1:].tolist() == names.split(",")[1:]
    assert frame.iloc[:, 1].tolist() == [1, 3, 5]
    assert len(told(frame)) == 1
    assert told(frame)[0].startswith(f"line {line} is the header, and what is above it is left out ('")
    first = 2 if above.startswith("sep") else 1
    assert told(frame)[0].endswith(f"to take another line: header={first} or --header {first}")


def test_the_header_is_the_line_that_the_caller_names(read):
    text = "all,towns,2024\ncountry,2000,2001\nA,1,2\nB,3,4\n"  # the title fills the table
    assert columns(read(text, header=2)) == {"country": ["A", "B"], "2000": [1, 3], "2001": [2, 4]}
    assert columns(read("1,2\n3,4\n", header=1)) == {"1": [3], "2": [4]}  # even if it looks like data
    assert columns(read("\n\na,b\n1,2\n", header=1)) == {"a": [1], "b": [2]}
    refused(
        "header needs the line with the names of the columns, and .*t.csv has 2 lines",
        read,
        "a,b\n1,2\n",
        header=3,
    )


UNTITLED = {  # tables whose first line is the header, whatever is below
    ",town\nr1,Rome\nr2,Bonn\n": [WITHOUT_NAME, "town"],
    "a,a, b ,,\n1,2,3,4,\n": ["a", "a.1", "b", "Unnamed: 3"],
    "name,,\nAnna,1,2\nBert,3,4\n": ["name", "Unnamed: 1", "Unnamed: 2"],
    "#name,age\nAnna,31\nBert,42\n": ["#name", "age"],
    "a,b\nx,y,z\nu,v,w\n": [WITHOUT_NAME, "a", "b"],
}


@pytest.mark.parametrize("text", UNTITLED)
def test_headers_that_are_no_titles(read, text):
    assert list(read(text)) == UNTITLED[text]


@pytest.mark.parametrize("content", NO_TABLES | BAD)
def test_errors_name_the_place_or_what_the_file_is(read, content):
    with pytest.raises(ValueError, match=r"t\.csv") as error:
        read(content)
    assert (NO_TABLES | BAD)[content] in str(error.value)
    assert "\n" not in str(error.value)


def test_a_column_with_mistakes_can_be_left_out(read):
    text = "\n".join(["a,b", *MANY, "12,oops"])
    assert list(read(text, ignore=["b"])) == ["a"]
    assert read(text, needed=["a"])["b"].tolist()[-1] == "oops"
    refused("oops", read, text, needed=["a", "b"])
    assert read("\n".join(["a,b", *MANY, *["0,word"] * 4]))["b"].tolist()[-1] == "word"  # too many to be mistakes


def test_columns_that_are_not_there_are_all_named(read):
    message = r"t\.csv has no column \['x', 'y'\]; its columns are \['a', 'b'\]"
    refused(message, read, "a,b\n1,2\n", ignore=["x", "a", "y"])
    refused(message, read, "a,b\n1,2\n", needed=["x", "a", "y"])
    refused("no column left", read, "a,b\n1,2\n", ignore=["a", "b"])


# --- what a table may do -------------------------------------------------------------------------------------

PIECES = ["-", " ", "1", "1.", "1,", "1'", "1 ", "(", "()", "$", "EUR", "kg ", " k", "l/100 ", "+", "inf", "\t"]
PIECES += ["\u00a0", "e", "1e", "0.1-", "2020-01-01T10:00 ", "^", "_", ","]
BEFORE = ("", "-", "$", "- 1", "1 kg", "2020-01-01T10:00")


@pytest.mark.parametrize("piece", every(2, PIECES))
def test_cells_are_read_in_linear_time(piece):
    # SECURITY.md: A table is read in linear time.
    """Cells of 20,000 characters, whatever they repeat; `-`, 800 blanks and `!` took 53 seconds."""
    for start in BEFORE:
        for end in ("", "!", ")", " kg!"):
            cell = start + piece * (20_000 // len(piece)) + end
            before = time.process_time()
            is_number(cell, with_unit=True)
            pd.Series([cell]).str.strip().str.fullmatch(DATE, case=False)
            assert time.process_time() - before < 1


def test_long_cells_in_files(tmp_path):
    path = tmp_path / "table.csv"
    for piece in (" ", "1 ", "2020-01-01T10:00 "):
        cell = "-" + piece * (20_000 // len(piece)) + "!"
        path.write_text("a;b\n" + f"1;{cell}\n" + "".join(f"{i};x{i % 3}\n" for i in range(20)))
        before = time.process_time()
        prepare(read_table(path))
        assert time.process_time() - before < 2


def test_many_columns_of_one_name(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(";".join(["a"] * 5000) + "\n" + ";".join(["1"] * 5000) + "\n")
    before = time.process_time()
    assert [*read_table(path).columns[[0, 1, -1]]] == ["a", "a.1", "a.4999"]
    assert time.process_time() - before < 2


@pytest.mark.parametrize(
    ("cells", "unit"),
    [
        (["7,5 l/100 km", "8 l/100 km"], "l/100 km"),
        (["5.1 kWh/100km", "6 kWh/100km"], "kWh/100km"),
        (["5 per 1000", "6.5 per 1000"], "per 1000"),
        (["5 m^2", "6.5 m^2"], "m^2"),
        (["5 s^-1", "6.5 s^-1"], "s^-1"),
        (["5 kg/m3", "6.5 kg/m3"], "kg/m3"),
    ],
)
def test_units_with_digits(cells, unit, tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a;b\n" + "".join(f"{cell};1\n" for cell in cells * 4))
    column = read_table(path)["a"]
    assert column.tolist()[:2] == [float(cell.split()[0].replace(",", ".")) for cell in cells]
    assert json.loads(read_table(path).attrs["format"])["columns"]["a"][2] == unit


def test_files_that_unpack_to_more_than_a_limit(tmp_path, monkeypatch):
    # SECURITY.md: Every cell is; files of gzip and Parquet
    zipped = tmp_path / "table.csv.gz"
    columns = tmp_path / "table.parquet"
    zipped.write_bytes(gzip.compress(b"a;b\n" + b"1;2\n" * 100_000))
    pd.DataFrame({"a": np.zeros(100_000), "b": 1.0}).to_parquet(columns)
    for path in (zipped, columns):
        assert len(read_table(path)) == 100_000
    monkeypatch.setattr("neonxc.data.files.cells.UNPACKED", 100_000)
    monkeypatch.setattr("neonxc.data.files.cells.RATIO", 2)
    for path in (zipped, columns):
        with pytest.raises(ValueError, match=r"has .* bytes, and unpacks to more than 100,000; .* pass the data"):
            read_table(path)


ROWS = ["51.1;4.5;a", "48;3.25;b", "39.3;5;c", "44;4;a"]
BODY = "\n".join(ROWS) + "\n"
PADDED = BODY.replace("\n", ";\n")
R_NOTE = "the header has no name for the first column, whose cells name the rows, as R writes tables"
BLANK = "{} no cell that is filled: left out"
NOTE = "{} a note below the table and no row: left out ({})"
LAID_OUT = {  # text around the rows, and the notes on it
    "separators at the ends of the rows": (f"x;y;kind\n{PADDED}", []),
    "several of them": ("x;y;kind\n" + BODY.replace("\n", ";;\n"), []),
    "separators at the end of the header": (f"x;y;kind;;\n{BODY}", []),
    "lines of separators": (f";;\nx;y;kind\n;;\n{BODY};;\n;;\n", [BLANK.format("lines 3, 8, 9 have")]),
    "a note below": (f"x;y;kind\n{BODY}Source: the office\n", [NOTE.format("line 6 has", "'Source: the office'")]),
    "notes that fill the table": (
        f"x;y;kind\n{BODY};;\nSource: a, b;;\n# end;;\n",
        [BLANK.format("line 6 has"), NOTE.format("lines 7, 8 have", "'Source: a, b'")],
    ),
    "texts as formulas": ("x;y;kind\n" + BODY.replace("51.1", '="51.1"').replace(";a", ';="a"'), []),
}


@pytest.mark.parametrize("case", LAID_OUT)
def test_what_is_around_the_rows_shifts_and_adds_nothing(read, case):
    text, notes = LAID_OUT[case]
    frame = read(text)
    expected = {"x": [51.1, 48, 39.3, 44], "y": [4.5, 3.25, 5, 4], "kind": ["a", "b", "c", "a"]}
    assert columns(frame) == expected
    assert [note for note in told(frame) if "is the header" not in note] == notes


KEPT = {  # rows that look like what is left out, and are none
    "a first column alone, also above": ("x;y;kind\nu;1;a\nv;;\nw;2;b\nz;;\n", 4),
    "a number alone": ("x;y;kind\n1;1;a\n2;;\n3;4;b\n5;;\n", 4),
    "two columns": ("x;y\nu;1\nv;2\nw;\n", 3),
}


@pytest.mark.parametrize("case", KEPT)
def test_rows_with_gaps_are_no_notes(read, case):
    text, n_rows = KEPT[case]
    assert len(read(text)) == n_rows
    assert told(read(text)) == []


def test_names_of_rows_are_all_different(read):
    rows = ["r1;2;3", "r4;5;6"]
    frame = read("\n".join(["a;b", *rows]))
    assert list(frame) == [WITHOUT_NAME, "a", "b"]
    assert told(frame) == [R_NOTE]
    refused("line 2 has 3 cells, the first line has 2", read, "\n".join(["a;b", *rows, "r4;7;8"]))


NUMBERED = {  # names that number the columns, as pandas writes them, and rows that look like them
    "0,1,2\n0.5,a,7\n1.5,b,8\n": ["0", "1", "2"],
    "1,2,3,4,5\n7,7,7,7,7\n8,8,8,8,8\n": ["1", "2", "3", "4", "5"],
    "1,2,3\n3,2,1\n2,2,2\n": ["x0", "x1", "x2"],
    "1,3\n0.5,2.5\n": ["x0", "x1"],
}


@pytest.mark.parametrize("text", NUMBERED)
def test_names_that_number_the_columns(read, text):
    assert list(read(text)) == NUMBERED[text]


TOTALLED = {
    "groups and all": (
        "kind;a;b\nx;1;2\ny;2;2\nz;4;3\nNorth Total;7;7\nx;3;1\ny;2;2\nz;5;2\nSouth Total;10;5\n"
        "Grand Total;17;12\n",
        "lines 5 ('North Total'), 9 ('South Total'), 10 ('Grand Total') look like totals of the rows above, "
        "but are used like them: to leave them out, remove them",
    ),
    "a sum and means": (
        "a;b;kind\n1;2;x\n2;2;y\n4;3;z\n7;7;Summe\n2.33;2.33;Mittelwert\n",
        "lines 5 ('Summe'), 6 ('Mittelwert') look like totals of the rows above, but are used like them: to leave "
        "them out, remove them",
    ),
    "a category": ("kind;a\n" + "average;1\nlow;2\nhigh;3\n" * 4 + "average;9\n", None),
    "no sum": ("kind;a\nx;1\ny;2\nz;4\nTotal;5\nx;1\ny;3\n", None),
}


@pytest.mark.parametrize("case", TOTALLED)
def test_totals_of_groups_are_told(read, case):
    text, note = TOTALLED[case]
    assert told(read(text)) == ([] if note is None else [note])


def test_a_line_of_units_is_pointed_out(read):
    body = "".join(f"{i};{i / 2};u\n" for i in range(20))
    message = "; if line 2 belongs to the header, as units do, remove it"
    refused(re.escape(message), read, f"a;b;kind\nkg;m;-\n{body}")
    with pytest.raises(ValueError, match="'kg' is not a number") as error:
        read(f"a;b;kind\nkg;3;-\n{body}")  # a mistake
    assert message not in str(error.value)


def test_columns_of_text_with_mostly_numbers_are_told(read):
    cells = [f"{i}.5{'*' if i % 4 == 0 else ''}" for i in range(40)]
    frame = read("a;b\n" + "".join(f"{cell};1\n" for cell in cells))
    strays = ", ".join(repr(f"{i}.5*") for i in range(0, 40, 4))
    assert told(frame) == [f"most cells are numbers, but the column stays text: a (with {strays})"]


def test_values_that_the_table_of_the_model_did_not_have_are_told(read, tmp_path):
    frame = read("land;n\nDE;1\nFR;2\nDE;3\n")
    assert told(read("land;n\nde;1\nDE;2\n;3\n", format=frame.attrs["format"])) == [
        "values that the table of the model did not have are in land ('de')"
    ]
    assert told(read("land;n\nFR;1\n", format=frame.attrs["format"])) == []
    path = tmp_path / "tree.safetensors"
    for names in (["n"], ["land", "n"]):  # a model keeps the values of its own columns alone
        neonxc.save(CART(2).fit(frame[names], labels=[0, 1, 1]), path)
        assert (b"FR" in path.read_bytes()) == ("land" in names)


MONTHS = {  # cells, and whether they are read as numbers
    "months with points": (["01.2024", "12.2023", "7.1999"], False),
    "days": (["01.12", "24.12", "03.04"], False),
    "days without zeros": (["11.12", "24.12", "13.04"], True),
    "other decimals": (["1.2024", "12.2023", "13.1999"], True),
    "two cells": (["1.2024", "12.2023", "1.2024"], True),
}


@pytest.mark.parametrize("case", MONTHS)
def test_months_with_points_are_no_numbers(read, case):
    cells, is_number = MONTHS[case]
    values = columns(read("a;b\n" + "".join(f"{cell};x\n" for cell in cells)))["a"]
    assert values == ([*map(float, cells)] if is_number else cells)


def test_a_damaged_character_leaves_the_others_as_they_are(read):
    frame = read("größe;b\nä;1\nö?;2\n".encode().replace(b"?", b"\xff"))
    assert columns(frame) == {"größe": ["ä", "ö\ufffd"], "b": [1, 2]}
    assert told(frame) == ["1 character of the text can't be read: read as \ufffd"]
