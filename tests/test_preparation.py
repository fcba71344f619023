"""Which columns of a table count, how they become numbers, and what is said about it."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from refusals import refused
from sklearn.cluster import KMeans
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import minmax_scale, robust_scale, scale

from neonxc import NEON, neuralize
from neonxc.common.arguments import remedy
from neonxc.common.numbers import percent
from neonxc.data.codes import is_called_code
from neonxc.data.files import read_table
from neonxc.data.preparation import prepare

N = 40
DRAW = np.random.default_rng(0)


def table(**columns):
    return pd.DataFrame({"number": np.sin(np.arange(N)), **columns})


SCALES = [({}, scale), ({"scale": "none"}, np.asarray), ({"scale": "minmax"}, minmax_scale)]


@pytest.mark.parametrize(("options", "scaled"), [*SCALES, ({"scale": "robust"}, robust_scale)])
def test_numbers_are_filled_and_scaled(options, scaled):
    frame = table(gaps=[np.nan, *range(1, N)], truth=[i % 3 == 0 for i in range(N)])
    prepared = prepare(frame, **options)
    Z = prepared.pipeline.fit_transform(prepared.frame)
    np.testing.assert_allclose(Z[:, 1], scaled(frame["gaps"].fillna(frame["gaps"].median())))
    assert_array_equal(Z[:, 3], frame["truth"])
    assert prepared.notes[0] == "1 column of numbers has missing values: gaps (2%); filled in with the median"


def test_categories_are_one_hot_with_rare_ones_together():
    words = ["a"] * 150 + ["b"] * 146 + [None] * 5 + ["c", "d"]
    prepared = prepare(pd.DataFrame({"number": np.sin(np.arange(303)), "word": words}))
    Z = prepared.pipeline.fit_transform(prepared.frame)
    assert_array_equal(Z[:, 1:].sum(0), [150, 146, 5, 2])
    assert_array_equal(Z[:, 1:].sum(1), 1)
    assert (
        "1 column of categories is one-hot encoded: word (4 values, 2 rare ones combined, and missing values)"
        in prepared.notes
    )
    new = prepared.pipeline.transform(pd.DataFrame({"number": [0.0], "word": ["new"]}))
    assert new[0, 4] == 1  # an unknown one is rare


IDENTIFIERS = {
    "from_one": np.arange(1, N + 1),
    "user_id": np.arange(N)[::-1] * 7,
    "name": [f"n{i}" for i in range(N)],
    "text": [f"n{i}" for i in range(N - 10)] + ["x"] * 10,
}


@pytest.mark.parametrize("name", IDENTIFIERS)
def test_identifiers_are_left_out_and_can_be_kept(name):
    frame = table(**{name: IDENTIFIERS[name], "last": np.cos(np.arange(N))})
    prepared = prepare(frame)
    assert list(prepared.frame) == ["number", "last"]
    assert prepared.notes[0].startswith(name)
    assert prepared.notes[0].endswith(f": left out; to use: keep=['{name}'] or --keep {name}")
    kept = prepare(frame, keep=[name])
    assert list(kept.frame) == ["number", name, "last"]


def test_few_rows_prove_nothing():
    for values in ([0, 1, 2], ["x", "y", "x"]):
        assert list(prepare(pd.DataFrame({"a": values, "b": [5.0, 3, 4]})).frame) == ["a", "b"]


DATES = [
    "2020-01-05",
    "5.1.2020",
    "01/05/20",
    "2020/1/5 12:30",
    "2020-01-05T12:30:59.5Z",
    "2020-01-05 12:30:00+01:00",
    "05-Jan-2020",
    "5. Januar 2020",
    "5 janv. 2020",
    "Jan 5, 2020",
    "5 Jan 2020 12:30",
]


DAYS = pd.date_range("2020-01-01", periods=N)


@pytest.mark.parametrize("until", [*DATES, DAYS, DAYS - DAYS[0]], ids=str)
def test_dates_are_left_out(until):
    if isinstance(until, str):
        until = [until.replace("5", "6"), until, None, until] * (N // 4)
    prepared = prepare(table(until=until, words=["2020-01-05", "soon"] * (N // 2)))
    assert list(prepared.frame) == ["number", "words"]
    assert "until holds dates or times: left out; encode them as numbers to use them" in prepared.notes


def test_columns_that_say_nothing():
    prepared = prepare(table(one=1, word="x", none=np.nan, gaps=[1, None] * (N // 2), some=["x", None] * (N // 2)))
    assert list(prepared.frame) == ["number", "some"]  # missing text is a category, a missing number has no value
    assert prepared.notes[:2] == ["one, word, gaps have only one value: left out", "none has no values: left out"]


@pytest.mark.parametrize("name", ["label", "Class", "true_label", "target", "species", "y"])
def test_labels_are_pointed_out_by_their_name(name):
    prepared = prepare(table(**{name: np.arange(N) % 4, "last": np.cos(np.arange(N))}))
    assert list(prepared.frame) == ["number", name, "last"]
    assert prepared.notes == [
        f"{name} looks like a label (4 values, its name), but it is used as a feature; to leave out: "
        f"ignore=['{name}'] or --ignore {name}"
    ]


SUSPECTS = {
    "rank": DRAW.permutation(N),
    "sorted": np.arange(N) ** 2 + 7,
    "year": np.arange(1990, 1990 + N),
    "fnlwgt": DRAW.integers(10_000, 900_000, N),
    "Sample weight": DRAW.random(N),
}
NO_SUSPECTS = {
    "weight": 80 + 20 * np.sin(np.arange(N)),  # as a weight in kg that goes with another column
    "lightweight": [i % 2 == 0 for i in range(N)],
    "word": ["abcde"[i % 5] for i in range(N)],
    "measured_id": np.sin(np.arange(N)),
    "time": np.sort(DRAW.random(N)),
    "price": DRAW.integers(1000, 9000, N),
    "index": DRAW.random(N),
    "key": np.arange(N) % 12,
    "display": np.arange(N) % 2,  # ends in "y"
    "y": np.sin(np.arange(N) + 1),
    "class": np.arange(N) ** 2 % 61,
    "valid": np.arange(N) % 7 * 7,  # ends in "id"
}


@pytest.mark.parametrize("name", [*SUSPECTS, *NO_SUSPECTS])
def test_what_looks_like_a_weight_or_an_identifier(name):
    prepared = prepare(table(**{name: (SUSPECTS | NO_SUSPECTS)[name], "last": np.cos(np.arange(N))}))
    notes = prepared.notes
    assert list(prepared.frame) == ["number", name, "last"]
    assert [note.partition(" look")[0] for note in notes if "used as" in note] == [name] * (name in SUSPECTS)
    if name in SUSPECTS:
        assert notes[0].endswith(f"X.drop(columns=['{name}']) or --ignore {name}")


CODES = ["customer_id", "id", "storeId", "PLZ", "Plz_Kunde", "ZIP code", "zip_code", "post code", "Postleitzahl"]
CODES += ["code postal", "Code INSEE", "Kunden-Nr", "KundenNr.", "Artikelnummer", "SIC", "sic87", "ICD-10", "GTIN"]
CODES += ["Tel.", "téléphone", "phone number", "N° client", "numéro de commande", "country_code", "Vorwahl"]
NO_CODES = ["valid", "acid", "paid", "grid", "music", "hotel", "number", "education_num", "NO", "no_of_calls"]
NO_CODES += ["code_lines", "Number of rooms", "zipped", "key", "nitrogen", "tellers", "phones"]


@pytest.mark.parametrize("name", [*CODES, *NO_CODES])
def test_numbers_that_are_called_codes_are_categories(name):
    values = np.arange(N) % 5 * 7 + 2346
    frame = table(**{name: values, "last": np.cos(np.arange(N))})
    prepared = prepare(frame)
    if name in NO_CODES:
        assert prepared.frame[name].tolist() == values.tolist()
        return
    assert prepared.frame[name].tolist() == [*map(str, values)]
    assert prepared.notes[0] == (
        f"{name} is called a code and used as a category; as numbers: {remedy('numbers', [name])}; to leave out: "
        f"{remedy('ignore', [name])}"
    )
    as_numbers = prepare(frame, numbers=[name])
    assert as_numbers.frame[name].tolist() == values.tolist()
    assert not any("code" in note for note in as_numbers.notes)


def test_codes_that_are_all_different_are_identifiers():
    values = DRAW.permutation(N) * 37 + 1000
    prepared = prepare(table(SIC=values, last=np.cos(np.arange(N))))
    assert list(prepared.frame) == ["number", "last"]
    assert prepared.notes[0].startswith("SIC looks like an identifier (every value is different): left out")
    gaps = np.where(np.arange(N) % 9 == 0, np.nan, np.arange(N) % 4 + 10.0)  # missing codes are a category
    assert prepare(table(zip=gaps)).frame["zip"].dropna().unique().tolist() == ["11", "12", "13", "10"]
    fractions = np.arange(N) % 5 / 2
    assert prepare(table(zip=fractions)).frame["zip"].tolist() == fractions.tolist()


MANY = 500
ISSUED = {
    "ids": DRAW.integers(10**7, 10**8, MANY),
    "codes": DRAW.permutation(MANY) * 37 + 23_456_789,
    "reference": DRAW.choice([37040044, 50010517], MANY) * 10**10 + DRAW.integers(0, 10**10, MANY),
    "contact": pd.Series(DRAW.integers(201, 990, MANY) * 10**7 + DRAW.integers(2e6, 1e7, MANY)).astype(float),
}
MEASURED = {
    "population": np.exp(DRAW.normal(16, 1.5, MANY)).round(),
    "income": np.exp(DRAW.normal(17.5, 0.4, MANY)).round(),
    "price": DRAW.integers(10_000, 99_000, MANY) * 1000,
    "seconds": DRAW.integers(1.5e9, 1.7e9, MANY),
    "milliseconds": DRAW.integers(1.5e12, 1.7e12, MANY),
    "nanoseconds": DRAW.integers(1.5e17, 1.7e17, MANY) * 10,
    "bytes": np.exp(DRAW.normal(20, 2, MANY)).round(),
    "height": DRAW.normal(5e7, 8e6, MANY).round(),
    "two_groups": np.r_[DRAW.normal(3e7, 2e6, MANY // 2), DRAW.normal(8e7, 2e6, MANY // 2)].round(),
    "repeated": DRAW.choice(DRAW.integers(10**9, 10**10, 40), MANY),
    "decimals": DRAW.uniform(10**8, 10**9, MANY),
    "small": DRAW.integers(10**5, 10**7, MANY),
}


@pytest.mark.parametrize("name", [*ISSUED, *MEASURED])
def test_issued_numbers_are_told_from_measured_ones(name):
    values = np.asarray((ISSUED | MEASURED)[name])
    frame = pd.DataFrame({"number": np.sin(np.arange(MANY)), name: values, "last": np.cos(np.arange(MANY))})
    notes = prepare(frame).notes
    assert [note.partition(" look")[0] for note in notes] == [name] * (name in ISSUED)


@pytest.mark.parametrize(
    "name", ["iban_number", "phone", "Phone number", "accountNo", "Telefonnummer", "card_no", "EAN13", "phone2"]
)
def test_numbers_of_rows_are_left_out_by_their_name(name):
    values = DRAW.integers(10**10, 10**11, N)
    values[1] = values[0]
    for column in (values, np.where(np.arange(N) == 3, np.nan, values)):
        frame = table(**{name: column, "last": np.cos(np.arange(N))})
        prepared = prepare(frame)
        assert list(prepared.frame) == ["number", "last"]
        assert prepared.notes == [
            f"{name} is called a number of the row, and nearly every value is different: left out; to use: "
            f"{remedy('keep', [name])}"
        ]
        assert list(prepare(frame, keep=[name]).frame) == ["number", name, "last"]
    for measured in (MEASURED["repeated"], MEASURED["seconds"], MEASURED["small"], MEASURED["bytes"]):
        # of codes, numbers that differ in most rows are identifiers, however they are spread
        assert (name in prepare(table(**{name: measured[:N]})).frame) != is_called_code(name)
    for other in ("phone_price", "account_balance", "number_of_bytes", "numbering", "discard"):
        assert other in prepare(table(**{other: values})).frame


def test_labels_by_their_place():
    income = ["low", "high"] * (N // 2)
    looks = "income looks like a label (2 values, the last column), but it is used as a feature"
    note = f"{looks}; to leave out: ignore=['income'] or --ignore income"
    assert prepare(table(income=income)).notes[-1] == note
    assert note not in prepare(table(income=income, last=np.cos(np.arange(N)))).notes
    assert prepare(table(income=income), ignore=["income"]).notes == []


def test_notes_of_reading_come_first():
    frame = table(one=1)
    frame.attrs["notes"] = ["read so"]
    assert prepare(frame).notes == ["read so", "one has only one value: left out"]
    assert frame.attrs["notes"] == ["read so"]


def test_long_lists_are_cut():
    frame = table(**{f"c{i}": [np.nan, *range(1, N)] for i in range(14)})
    assert prepare(frame).notes[0].endswith("c9 (2%), and 4 more; filled in with the median")


def test_errors():
    frame = table(b=np.arange(N) % 3)
    refused(
        r"ignore: the table has no column \['x', 'y'\]; its columns are", prepare, frame, ignore=["x", "b", "y"]
    )
    refused(r"keep: the table has no column \['x'\]", prepare, frame, keep=["x"])
    refused("scale must be one of", prepare, frame, scale="log")
    refused(r"several columns of the same name: \['b'\]", prepare, frame.set_axis(["b", "b"], axis=1))
    refused(r"columns \['a'\] have numbers greater than 1e\+150", prepare, pd.DataFrame({"a": [1e200, -1e200, 3]}))
    refused("no column left to cluster by; one has only one value", prepare, pd.DataFrame({"one": [1, 1]}))


NUMBER = st.none() | st.floats(-100, 100).map(lambda x: round(x, 2))
WORD = st.sampled_from(["a", "b", "c", None])


@given(st.lists(st.tuples(NUMBER, WORD, st.booleans()), min_size=20, max_size=20))
def test_whatever_is_prepared_can_be_clustered_and_explained(rows):
    frame = pd.DataFrame(rows, columns=["number", "word", "truth"]).assign(fixed=np.sin(np.arange(20)))
    prepared = prepare(frame.astype({"number": float}))
    model = make_pipeline(prepared.pipeline, KMeans(2, n_init=3, random_state=0)).fit(prepared.frame)
    net = neuralize(model, prepared.frame)
    assert_array_equal(net.predict(prepared.frame), model.predict(prepared.frame))
    relevance = NEON(net).attribute(prepared.frame)
    assert list(relevance) == list(prepared.frame)
    assert np.isfinite(relevance.to_numpy()).all()


LEFT_OUT = "left out; encode them as numbers to use them"
AS_NUMBERS = "when holds dates or times as whole numbers: left out; to use: keep=['when'] or --keep when"
TIMES_AND_OTHERS = {  # values, and the note that leaves them out, None for columns that are used
    "times of the day": (
        [f"{i % 24:02d}:{i * 7 % 60:02d}" for i in range(N)],
        f"when holds dates or times: {LEFT_OUT}",
    ),
    "durations": ([f"{i}:{i * 7 % 60:02d}:30.5" for i in range(N)], f"when holds dates or times: {LEFT_OUT}"),
    "slots of a timetable": ([f"{8 + i % 4}:00" for i in range(N)], None),
    "days": (pd.date_range("2020-01-30", periods=N).strftime("%Y%m%d").astype(int), AS_NUMBERS),
    "days and minutes": (
        pd.date_range("2020-01-30", periods=N, freq="h").strftime("%Y%m%d%H%M").astype(int),
        AS_NUMBERS,
    ),
    "months": ([f"{i % 12 + 1:02d}/{2000 + i % 9}" for i in range(N)], f"when holds dates or times: {LEFT_OUT}"),
    "quarters": ([f"Q{i % 4 + 1} {2000 + i % 9}" for i in range(N)], f"when holds dates or times: {LEFT_OUT}"),
    "a year of months": ([f"2024-{i % 6 + 1:02d}" for i in range(N)], None),
    "weeks": ([f"{2000 + i % 9}-W{i % 52 + 1:02d}" for i in range(N)], f"when holds dates or times: {LEFT_OUT}"),
    "hours": ([f"{i} h {i * 7 % 60} min" for i in range(N)], f"when holds dates or times: {LEFT_OUT}"),
    "no days": (np.arange(N) * 31 + 20_200_101, None),
}


@pytest.mark.parametrize("case", TIMES_AND_OTHERS)
def test_times_are_told_from_identifiers_and_categories(case):
    values, note = TIMES_AND_OTHERS[case]
    shuffled = np.asarray(values)[DRAW.permutation(N)]
    prepared = prepare(table(when=shuffled, last=np.cos(np.arange(N))))
    assert ("when" in prepared.frame) == (note is None)
    if note is not None:
        assert prepared.notes == [note]
    if note == AS_NUMBERS:
        assert "when" in prepare(table(when=shuffled), keep=["when"]).frame


@pytest.mark.parametrize("name", ["Datum", "order_date", "createdAt", "timestamp", "price"])
def test_numbers_of_days_and_seconds_are_dates_if_they_are_called_so(name):
    for values in (DRAW.integers(40_000, 46_000, N), DRAW.integers(1.5e9, 1.7e9, N)):
        is_date = name not in prepare(table(**{name: values}, last=np.cos(np.arange(N)))).frame
        assert is_date == (name != "price")


STAND_INS = {
    "below": (np.where(np.arange(N) % 6 == 0, -999, np.arange(N) % 17), "-999"),
    "above": (np.where(np.arange(N) % 6 == 0, 9999.0, np.arange(N) % 17 / 7), "9999"),
    "once": (np.where(np.arange(N) == 6, -999, np.arange(N) % 17), None),
    "near the others": (np.where(np.arange(N) % 6 == 0, 99, np.arange(N) * 2), None),
    "no nines": (np.where(np.arange(N) % 6 == 0, 1000, np.arange(N) % 60), None),
    "two values": (np.where(np.arange(N) % 6 == 0, 99, 0), None),
}


@pytest.mark.parametrize("case", STAND_INS)
def test_numbers_that_may_stand_for_missing_values_are_pointed_out(case):
    values, number = STAND_INS[case]
    notes = [note for note in prepare(table(a=values)).notes if "stand for" in note]
    fraction = percent(float((values == values[0]).mean()))
    expected = (
        f"a number far from all others may stand for a missing value, but is used as a number: a ({number} in "
        f"{fraction} of the rows); as a missing value: {remedy('na', [number])}"
    )
    assert notes == [expected] * (number is not None)


def test_spellings_of_one_category_are_pointed_out():
    towns = ["Zürich", "Zu\u0308rich", "Bonn", "Rom"] * (N // 4)
    notes = prepare(table(a=["Yes", "yes", "No", "no  way"] * (N // 4), b=["x", "y"] * (N // 2), c=towns)).notes
    told = [note for note in notes if "capitals" in note]
    assert told == [
        "categories that differ in capitals, blanks or invisible characters alone are used as different ones: "
        "a ('Yes', 'yes'), c ('Z\\xfcrich', 'Zu\\u0308rich')"
    ]


def test_numbers_as_text_are_pointed_out():
    prices = [f"{i},50 €" for i in range(N)]
    assert prepare(table(price=prices, last=np.cos(np.arange(N)))).notes == [
        "price holds numbers as text: left out; convert them to numbers to use them"
    ]
    prepared = prepare(table(age=[str(20 + i % 15) for i in range(N)], answer=[str(i % 5) for i in range(N)]))
    assert list(prepared.frame) == ["number", "age", "answer"]
    assert "numbers as text are categories: age; convert them to use them as numbers" in prepared.notes
    codes = prepare(table(**{"customer no": [str(20 + i) for i in range(N)]}, last=np.cos(np.arange(N))))
    assert codes.notes[0].startswith("customer no looks like an identifier")


def test_infinite_values_are_named():
    infinite = np.where(np.arange(N) == 3, np.inf, np.arange(N))
    refused(r"columns \['a'\] have infinite values", prepare, table(a=infinite))


PRICES = np.round(DRAW.gamma(2, 50, N), 2)
COPIED = {  # two columns, and whether they have the same numbers
    "the same": (PRICES, PRICES, True),
    "with tax, rounded": (PRICES, np.round(1.19 * PRICES, 2), True),
    "the remaining share": (PRICES / 1000, 1 - PRICES / 1000, True),
    "other gaps": (PRICES, np.where(np.arange(N) == 5, np.nan, PRICES), False),
    "nearly": (PRICES, PRICES + DRAW.normal(0, 1, N), False),
}


@pytest.mark.parametrize("case", COPIED)
def test_columns_that_count_twice_are_pointed_out(case):
    first, second, is_copy = COPIED[case]
    told = [note for note in prepare(table(a=first, b=second)).notes if "twice" in note]
    expected = (
        "columns with the numbers of another one, perhaps in another unit, count twice: b (as a); to leave out: "
        f"{remedy('ignore', ['b'])}"
    )
    assert told == [expected] * is_copy


def test_dates_with_words_are_no_numbers_with_words(tmp_path):
    """A remark said that the words were among numbers."""
    path = tmp_path / "t.csv"
    path.write_text("a;b\n" + "".join(f"{i + 1:02d}.03.2024;1\nopen;2\n01.{i + 1:02d}.2024;3\n" for i in range(9)))
    assert read_table(path).attrs["notes"] == []
