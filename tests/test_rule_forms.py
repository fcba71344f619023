"""Rules as SQL, as queries of pandas, as a Python function, as JSON, files, tables; measured on other points."""

import importlib.util
import json
import re
import sqlite3
import warnings
from math import inf, nan

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from refusals import refused
from rule_witnesses import assert_meets, assert_said, in_duckdb, run, sqlite, witness
from scipy.sparse import csr_matrix
from tree_witnesses import data

from neonxc.models import patterns
from neonxc.rules import Column, Condition, Counts, Rule, Rules, render_rules
from neonxc.trees import CART, ExKMC, KernelExKMC

QUERIED = ["a b", "it's", 'say "x"', "a.b", "select", "ünï ✓", "100%", "x;--", "[b]", "0"]
if pd.__version__ < "3":  # which can't quote all of them
    QUERIED = [name for name in QUERIED if name.isascii() and not {"'", '"'} & {*name}]
NAMES = [*QUERIED, "line\nbreak", "back`tick"]
ENGINES = ["python"] + ["numexpr"] * (importlib.util.find_spec("numexpr") is not None)
LABELS = {
    "names": ["it's", 'say "x"', "line\nbreak", "back\\slash"],
    "letters": ["a", "b", "c", "d"],
    "whole": [7, 2, 3, 10**12],
    "floats": [1.0, 2.0, 3.0, 4.0],
}
MANY = st.integers(0, 10**6)
X = np.array([[0.0, 5], [1, 5], [4, 5], [5, 5]])
COLUMN = Column(0, "x")
ONCE = Counts(1, 0)


def fitted(seed, *, names=NAMES, labels="letters", kind="grid", dtype=np.float64, model=CART):
    """Rules of a tree on random points, the tree, and the frame that it was fitted to."""
    rng = np.random.default_rng(seed)
    case = data(seed, 60, 4, 4, kind=kind)
    scale = 10.0 ** rng.integers(-3, 4, 4) if kind == "fine" else 1
    frame = pd.DataFrame((case.X * scale).astype(dtype), columns=rng.choice(names, 4, replace=False))
    tree = model(4, max_leaves=9).fit(frame, labels=np.array(LABELS[labels])[case.labels]).tree_
    return tree.rules(merge=bool(seed % 2)), tree, frame


def with_gaps(frame, seed):
    """The frame with values missing at random."""
    return frame.mask(np.random.default_rng(seed).random(frame.shape) < 0.2)


def of_points(X, labels, **options):
    """Rules of a tree with as many leaves as clusters."""
    return CART(len(set(labels))).fit(X, labels=labels).tree_.rules(**options)


def ruled(*conditions, label="a"):
    return Rule(label, label, conditions, ONCE)


# --- labels ------------------------------------------------------------------------------------------------


FORMS = given(
    seed=MANY,
    names=st.sampled_from([NAMES, QUERIED]),
    options=st.fixed_dictionaries(
        {
            "model": st.sampled_from([CART, ExKMC, KernelExKMC]),
            "kind": st.sampled_from(["grid", "fine"]),
            "labels": st.sampled_from(sorted(LABELS)),
            "dtype": st.sampled_from([np.float64, np.float32]),
        }
    ),
    table=st.sampled_from(["t", "order", 'my "own" table', "line\nbreak", "it's"]),
)


def said_in_every_form(seed, names, options, table):
    """Every form says what the tree does, and nothing where no rule is met."""
    rules, tree, frame = fitted(seed, names=names, **options)
    queries = names is QUERIED
    assert not queries or set(rules.to_query()) == set(rules.clusters)
    assert_said(rules, frame, tree.predict(frame).tolist(), queries, table=table)
    missing = with_gaps(frame, seed)
    expected = witness(rules, missing)
    assert None in expected or tree.n_leaves == 1
    assert_said(rules, missing, expected, queries, table=table)
    shuffled = missing[missing.columns[::-1]].assign(other="text")
    assert rules.predict(shuffled).tolist() == expected


test_every_form = settings(max_examples=7)(FORMS(said_in_every_form))
test_every_form_of_many_rules = pytest.mark.slow(settings(max_examples=20)(FORMS(said_in_every_form)))


def test_predict_takes_arrays_tensors_and_sparse_matrices():
    rules, tree, frame = fitted(4, labels="whole", kind="fine")
    X = torch.tensor(frame.to_numpy())
    expected = tree.predict(frame).tolist()
    for same in (X.tolist(), csr_matrix(X), frame.astype(object), X.requires_grad_()):
        found = rules.predict(same)
        assert found.tolist() == expected
        assert isinstance(found, torch.Tensor) == (same is X)
    assert rules.predict(X.bfloat16()).tolist() == tree.predict(X.bfloat16()).tolist()
    assert (rules.predict(X[:0]).tolist(), rules.predict(np.full((1, 4), nan)).tolist()) == ([], [None])
    refused("X has 3 features", rules.predict, X[:, :3])


def test_trees_without_names_read_frames_by_position():
    expected = [0, 0, 1, 1]
    rules = of_points(X, expected)
    named = of_points(X, expected, feature_names=["line\nbreak", "v"])
    assert ([column.key for column in rules.columns], named.columns[0].key) == ([0], "line\nbreak")
    assert named.columns[0].name == "line break"
    found = (
        rules.predict(pd.DataFrame(X, columns=["u", "v"])),
        named.predict(pd.DataFrame(X[:, ::-1], columns=["v", "line\nbreak"])),
    )
    assert [*map(list, found), run(rules, X), run(rules, X.tolist())] == [expected] * 4
    refused("cannot quote the name of column 0", rules.to_query)


BOUNDS = [0.1, 1 / 3, 2 / 3 * 1e-7, 1e300, -1e300, 5e-324, 1e-300]
BOUNDS += [2.0**53 + 2, 2.0**24 + 3, 123456789.12345679, -0.5, 0.0]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("bound", BOUNDS)
def test_bounds_are_exact(bound, dtype):
    """Rows on a bound and next to it, of which half go left."""
    with np.errstate(over="ignore"):
        near = dtype(bound)
    around = np.array([np.nextafter(near, dtype(-inf)), near, np.nextafter(near, dtype(inf))])
    frame = pd.DataFrame({"x": around[np.isfinite(around)]})
    below = ruled(Condition(COLUMN, ((-inf, bound),)))
    above = ruled(Condition(COLUMN, ((bound, inf),)), label="b")
    expected = ["a" if value <= bound else "b" for value in frame["x"].astype(float)]
    # pandas compares single precision with single precision
    assert_said(Rules((below, above), {}), frame, expected, queries=float(near) == bound)


NEVER = ruled(Condition(COLUMN, ()))
SOME = ruled(Condition(COLUMN), label="s")
ALWAYS = ruled()
LOW = ruled(Condition(COLUMN, ((-inf, 1.0),)), label="l")
GAP = ruled(Condition(COLUMN, values=(None,)))


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        ((), [None] * 3),
        ((NEVER,), [None] * 3),
        ((NEVER, SOME), ["s", None, "s"]),
        ((SOME, ALWAYS), ["s", "a", "s"]),
        ((GAP, LOW), ["l", "a", None]),
        ((LOW, GAP), ["l", "a", None]),
    ],
)
def test_rules_that_all_no_or_missing_values_meet(kept, expected):
    assert_said(Rules(kept, {}), pd.DataFrame({"x": [1.0, nan, 2.0]}), expected)


def test_truth_values():
    frame = pd.DataFrame({"b": [True, True, False, False, True], "c": [False, True, False, True, False], "x": 1.0})
    tree = CART(3, max_leaves=4).fit(frame, labels=[0, 1, 2, 2, 0]).tree_
    rules = tree.rules()
    expected = tree.predict(frame).tolist()
    texts = {text for rule in rules for text in rule.text().split(" and ")}
    assert texts == {"b is true", "b is false", "c is true", "c is false"}
    assert rules.predict(frame.astype(float)).tolist() == expected
    assert_said(rules, frame, expected, databases=[in_duckdb])
    gaps = frame.astype({"b": "boolean"})
    gaps.loc[0, "b"] = pd.NA
    assert rules.predict(gaps)[0] is None


# --- SQL ---------------------------------------------------------------------------------------------------


DIALECTS = {  # the source, a name, truth, and strings
    "ansi": ('"s"."t"', '"a""b`c]d\\e"', '"w"', "'it''s\n', TRUE", "'x\\y''z'"),
    "mysql": ("`s`.`t`", '`a"b``c]d\\e`', "`w`", "'it\\'s\\n', TRUE", "'x\\\\y\\'z'"),
    "bigquery": ("`s`.`t`", '`a"b\\`c]d\\\\e`', "`w`", "'it\\'s\\n', TRUE", "'x\\\\y\\'z'"),
    "tsql": ("[s].[t]", '[a"b`c]]d\\e]', "[w]", "N'it''s\n', 1", "N'x\\y''z'"),
    "spark": ("`s`.`t`", '`a"b``c]d\\e`', "`w`", "'it\\'s\\n', TRUE", "'x\\\\y\\'z'"),
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_dialects(dialect):
    # SECURITY.md: SQL is quoted.
    # SECURITY.md: Names and strings in rules are quoted
    source, x, w, values, label = DIALECTS[dialect]
    between = Condition(Column(0, 'a"b`c]d\\e'), ((0.5, 3.0),))
    listed = Condition(Column(1, "w"), values=("it's\n", True))
    rules = Rules((Rule("x\\y'z", "-- x\ny", (between, listed), ONCE),), {})
    sql = rules.to_sql(("s", "t"), dialect)
    assert sql.case == f"CASE\n  WHEN {x} > 0.5 AND {x} <= 3 AND {w} IN ({values}) THEN {label}\nEND"
    assert sql.selects["x\\y'z"].startswith(f"SELECT *\nFROM {source}\nWHERE ")
    assert "\n-- -- x y\nSELECT" in sql  # no line of a name leaves its comment
    for table in ("", None, ("schema", "")):
        refused("table must be the name of a table", rules.to_sql, table, dialect)
    refused(r"dialect must be one of \['ansi', 'duckdb', .*'tsql'\], got 'ms'", rules.to_sql, "t", "ms")


@pytest.mark.parametrize("sign", [1, -1])
def test_integers_beyond_doubles_in_databases(sign):
    X = pd.DataFrame({"id": sign * (2**53 + np.arange(8).repeat(4)), "width": np.arange(32)})
    labels = (X["id"].astype(float) > sign * (2**53 + 2)).astype(int).tolist()
    rules = of_points(X, labels)
    (found,) = zip(*sqlite(X).execute(f"SELECT {rules.to_sql('t', 'sqlite').case} FROM t"), strict=True)
    assert list(found) == rules.predict(X).tolist() == labels
    assert 'CAST("id" AS DOUBLE PRECISION)' in rules.to_sql("ids").case
    assert "CAST" not in rules.to_sql("ids", "mysql").case
    assert "CAST" not in of_points(X[["width"]], [0] * 16 + [1] * 16).to_sql("ids").case


# --- pandas and Python -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["Float64", "object"])
def test_queries_of_other_types(dtype):
    frame = pd.DataFrame({"index": [1, 2, 3, 4, 5, 6], "b": [0, 0, 1, 1, 1, 1]})
    rules = of_points(frame, [0, 0, 0, 1, 1, 1])
    frame = frame.astype(dtype)
    frame.loc[[0, 4], "index"] = pd.NA
    assert_meets(rules, frame, [None, 0, 0, 1, None, 1])


NASTY = ["inf", "Inf", "nan", "True", "None", "class", "index", "sin", "'''", "a\\", "@x", "#"]
NASTY += ["a b", "1 y", "1_y", "²", "`", "line\nbreak", "tab\t"]


@given(
    names=st.lists(st.sampled_from(NASTY) | st.text(max_size=4), min_size=2, max_size=4, unique=True),
    categories=st.lists(st.text("ab '\"\\`#@\n✓", max_size=4), min_size=1, max_size=3, unique=True),
    negated=st.booleans(),
)
@example(names=["a", "b"], categories=["\n"], negated=False)
def test_queries_of_any_names_and_categories_find_the_rows_or_name_a_column(names, categories, negated):
    words = [categories[i % len(categories)] + "x" * (i // 4) for i in range(8)]
    frame = pd.DataFrame({name: np.roll(np.arange(8.0), i) for i, name in enumerate(names)} | {names[0]: words})
    first = Condition(Column(0, names[0]), values=tuple(categories), negated=negated)
    others = [Condition(Column(i, name), ((0.5 * i, 6.5),)) for i, name in enumerate(names) if i]
    rules = Rules((ruled(first, *others),), {})
    try:
        (query,) = rules.to_query().values()
    except ValueError as error:
        assert any(f"the name of column {name!r};" in str(error) for name in names)  # noqa: PT017
        return
    for engine in ENGINES:
        assert frame.query(query, engine=engine).index.tolist() == np.flatnonzero(rules[0].matches(frame)).tolist()


def test_functions_of_rows_of_any_kind():
    rules, _, frame = fitted(5, labels="names")
    missing = with_gaps(frame, 5)
    database = sqlite(missing)
    database.row_factory = sqlite3.Row
    none, na = (missing.astype(object).where(missing.notna(), gone).to_dict("records") for gone in (None, pd.NA))
    for rows in (none, na, (row for _, row in missing.iterrows()), database.execute("SELECT * FROM t").fetchall()):
        assert run(rules, rows) == witness(rules, missing)
    frame = pd.DataFrame(X, columns=[3, 7])  # names that are numbers, which rules write as text
    for rows in (frame.to_dict("records"), [{"3": x} for x in X[:, 0]]):
        assert run(of_points(frame, [0, 0, 1, 1]), rows) == [0, 0, 1, 1]
    for wrong in ("a b", "class", ""):
        refused("name must be a valid name of a Python function, got", rules.to_python, wrong)


# --- JSON --------------------------------------------------------------------------------------------------


def test_json_keeps_all():
    column = Column(-1, "w", unit="m", whole=True, gaps=((0.5, -inf, inf),), term=True)
    listed = Condition(column, values=(None, "a", 1, True, 0.5), negated=True)
    rules = Rules((ruled(listed),), {"a": Counts(1, 0)}, divide=False)
    measured = noisy()[0].measure([[0.0], [2]], [0, 1])
    for one in (rules, measured):
        assert Rules.from_dict(json.loads(json.dumps(one.to_dict(), allow_nan=False))) == one


def test_what_describes_no_rules():
    whole = fitted(1)[0].to_dict()
    for wrong in ({"format": "other"}, [], None):
        refused("the dictionary does not describe rules: its format is", Rules.from_dict, wrong)
    refused("the rules have format version 2; this version of", Rules.from_dict, whole | {"version": 2})
    for damaged in ({"columns": []}, {"rules": [{}]}, {"rules": None}):
        refused("the description of rules is damaged", Rules.from_dict, whole | damaged)
    del whole["totals"]
    refused("damaged: KeyError", Rules.from_dict, whole)


# --- a collection and its table ----------------------------------------------------------------------------


def test_a_collection_is_a_sequence():
    rules, tree, _ = fitted(3)
    assert (*rules,) == rules.rules
    assert (len(rules), rules[-1], rules[:]) == (len(rules.rules), rules.rules[-1], rules)
    assert list(rules.clusters) == sorted(set(tree.classes) & {rule.label for rule in rules})
    assert [rule for own in rules.clusters.values() for rule in own] == sorted(rules, key=lambda rule: rule.label)
    assert str(rules) == rules.to_text() == render_rules(tree.rules(merge=True))
    assert rules._repr_html_() == rules.to_html() == render_rules(rules, "html")
    assert rules.to_markdown(2) == render_rules(rules, "markdown", 2)


def test_some_of_the_rules_are_a_collection_with_their_own_totals():
    frame = pd.DataFrame({"x": np.arange(10)})
    tree = CART(2, max_leaves=4).fit(frame, labels=[0, 0, 1, 1, 1, 0, 0, 1, 1, 1]).tree_
    rules = tree.rules().measure(frame, [0] * 10)
    part = rules[1:]
    assert part.rules == rules.rules[1:]
    for few, whole in ((part.totals, rules.totals), (part.held_out_totals, rules.held_out_totals)):
        assert (few[1], few[0].samples, whole[0].samples) == (whole[1], 2, 4)
    assert (part.agreement, part.cost_ratio) == (1, None)
    overlapping = patterns(frame, [0] * 5 + [1] * 5)
    assert [*overlapping[:1].totals.values()] == [overlapping[0].counts]
    assert np.isnan(overlapping.agreement)


def test_table():
    rules, tree, frame = fitted(3)
    table = rules.to_frame()
    measures = ["samples", "mistakes", "support", "coverage", "precision"]
    assert list(table) == ["cluster", "name", "rule", *measures]
    expected = [
        [rule.label, rule.name, rule.text(), *(getattr(rule, name) for name in measures)]
        for own in rules.clusters.values()
        for rule in own
    ]
    assert table.to_numpy().tolist() == expected
    both = rules.measure(frame[:9], tree.predict(frame)[:9]).to_frame()
    assert list(both) == [*table, *(f"held_out_{name}" for name in measures)]
    assert both["held_out_samples"].sum() == 9
    assert "mistakes" not in Rules(rules.rules, rules.totals, divide=False).to_frame()


# --- held-out points ---------------------------------------------------------------------------------------


@given(seed=MANY, weighted=st.booleans(), labels=st.sampled_from(sorted(LABELS)))
def test_measures_of_other_points_are_those_of_a_loop(seed, weighted, labels):
    rules, _, frame = fitted(seed, labels=labels)
    rng = np.random.default_rng(seed)
    other = with_gaps(frame.sample(40, replace=True, random_state=seed).reset_index(drop=True), seed)
    own = rng.choice(np.array(LABELS[labels]), 40)
    mass = rng.integers(0, 4, 40) / 2 if weighted else np.ones(40)
    found = rules.measure(other, own, mass if weighted else None)

    def expected(chosen, label):
        met = np.any([rule.matches(other) for rule in chosen], axis=0)
        of = own == label
        return Counts(*(mass[some].sum() for some in (met, met & ~of, of)), mass.sum())

    for rule, before in zip(found, rules, strict=True):
        got = rule.held_out
        want = expected([before], rule.label)
        assert (got, rule.counts) == (want, before.counts)
        with np.errstate(invalid="ignore"):
            shares = np.divide(
                [want.samples, *[want.samples - want.mistakes] * 2], [want.total, want.of_cluster, want.samples]
            )
        assert [got.support, got.coverage, got.precision] == pytest.approx(shares, nan_ok=True)
    assert found.held_out_totals == {label: expected(own, label) for label, own in rules.clusters.items()}


def test_labels_and_weights_of_other_points():
    measure = of_points(X, [0, 0, 1, 1]).measure
    labels = [0, -1, 1, 1]
    gaps = [np.array([0, missing, 1, 1], dtype=object) for missing in (None, nan, pd.NA)]
    for given_ in (labels, torch.tensor(labels), pd.Series(labels, dtype="Int64"), *gaps):
        found = [rule.held_out for rule in measure(torch.tensor(X), given_)]
        assert found == [Counts(1, 0, 1, 3, 1), Counts(2, 0, 2, 3)]
    refused(r"labels contains none of the labels of the rules, \[0, 1\], got '0'", measure, X, list("0000"))
    refused(r"labels needs shape \(4,\), one value per point, got \(3,\)", measure, X, labels[1:])
    refused(r"sample_weight needs one weight per point, shape \(4,\), got \(1,\)", measure, X, labels, [1])
    for wrong in (-1.0, nan):
        refused("sample_weight (needs weights >= 0|contains)", measure, X, labels, [wrong] * 4)


def cells(page):
    """Cells of the rows of a table."""
    return [re.findall(r"<t[dh][^>]*>\s*(.*?)\s*</t[dh]>", row, re.DOTALL) for row in page.split("<tr")[1:]]


HELD_OUT = """\
old: 2 samples (40%), 0 mistakes, coverage 100%, precision 100%
    held out: 2 samples (50%), 0 mistakes, coverage 67%, precision 100%
    age in [36, 70]

young: 3 samples (60%), 0 mistakes, coverage 100%, precision 100%
    held out: 2 samples (50%), 1 mistake, coverage 100%, precision 50%
    age ≤ 35   2 samples, 0 mistakes, coverage 67%; held out: coverage 100%, precision 50%
or  age > 70   1 sample, 0 mistakes, coverage 33%; held out: coverage 0%

total: 5 samples, 0 mistakes, agreement 100%, cost ratio 1
    held out: 4 samples, 1 mistake, agreement 75%"""


def test_reports_of_held_out_points():
    X = pd.DataFrame({"age": [17, 35, 36, 70, 71], "size": [1, 1, 1, 1, 9]})
    tree = CART(2, max_leaves=3).fit(X, labels=["young", "young", "old", "old", "young"]).tree_
    rules = tree.rules().measure(X[["size", "age"]][:4], ["young", "old", "old", "old"])
    assert rules.to_text() == HELD_OUT
    assert "\n\nHeld out: 2 samples (50%), 0 mistakes, coverage 67%, precision 100%\n\n" in rules.to_markdown()
    header, first, *_, last = cells(rules.to_html())[:-3]
    measures = "samples mistakes coverage precision"
    assert header[2:] == [f"{when}{name}" for when in ("", "held-out ") for name in measures.split()]
    assert " ".join([first[0], *first[2:]]) == "old 2 0 100% 100% 2 0 67% 100%"
    assert " ".join(last[-8:]) == "1 0 33% 100% 0 0 0% –"
    again = render_rules(list(rules))  # any iterable of a tree's rules
    assert again == rules.to_text().replace(", cost ratio 1", "")  # which single rules do not know


# --- noise, and clusters without a rule --------------------------------------------------------------------


def noisy(weight=None):
    """Rules of points of which two of five that meet the first rule are noise; cluster 2 has no leaf."""
    X = np.array([[0.0], [1], [2], [0.5], [1.5], [10], [11], [12], [13], [11.5]])
    labels = [0, 0, 2, -1, -1, 1, 1, 1, 1, 1]
    with pytest.warns(UserWarning, match="2 points of noise"):
        tree = CART(3, max_leaves=2).fit(X, labels=labels, sample_weight=weight).tree_
    return tree.rules(), X, labels


def test_noise_and_clusters_without_a_rule_are_told():
    rules, X, labels = noisy()
    low = rules.clusters[0][0]
    assert low.counts == Counts(3, 1, 2, 8, noise=2) == rules.measure(X, labels)[0].held_out
    assert (low.precision, low.counts.precision_with_noise) == (2 / 3, 2 / 5)
    weighted, *_ = noisy(np.where(np.array(labels) == -1, 3.0, 1.0))
    assert weighted.clusters[0][0].counts == Counts(3, 1, 2, 8, noise=6)
    assert [total.noise for total in rules[:1].totals.values()] == [2]
    assert rules.without_rule == ((2, "cluster 2"),)
    assert rules[:1].without_rule == of_points(X[:2], ["a", "b"]).without_rule == ()
    text = rules.to_text()
    page = rules.to_html()
    script = rules.to_sql("t")
    assert re.findall("precision.*", text) == ["precision 67% (40% with noise)", "precision 100%"]
    assert "agreement 88% (70% with noise)" in text
    assert "only the shares with noise count them" in text
    assert rules.to_markdown().count("67% (40% with noise)") == page.count("67% (40% with noise)") == 1
    assert "-- cluster 0: precision 67% (40% with noise)\nSELECT" in script
    said = "cluster 2: no rule: no leaf of the tree has this cluster"
    assert f"\n\n{said}\n\ntotal" in text
    assert "### cluster 2\n\nNo rule: no leaf of the tree has this cluster.\n\n" in rules.to_markdown()
    assert said.split(": ", 1) in cells(page)
    assert f"\n-- {said}\nSELECT" in script
    for table in (rules.to_frame(), rules.measure(X, labels).to_frame()):
        assert table.loc[2, ["cluster", "samples", "coverage"]].tolist() == [2, 0, 0]
        assert table["samples"].dtype == int
        assert table["precision_with_noise"].tolist()[:2] == [2 / 5, 1]
        assert table["rule"].isna().tolist() == [False, False, True]


def test_labels_of_another_numbering_are_told():
    frame = pd.DataFrame({"a": np.arange(40.0)})
    labels = np.arange(40) // 10
    rules = of_points(frame, labels)
    for other in ((labels + 1) % 4, np.array(["p", "q", 2, 3], object)[labels]):
        with pytest.warns(UserWarning, match=r"and for 100% if the clusters of the rules get other numbers"):
            rules.measure(frame, other)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rules.measure(frame, np.where(labels == 3, -1, labels))
        rules.measure(frame, np.random.default_rng(0).integers(0, 4, 40))


CENTS = np.array([4730.38, 4730.39, 4730.40, 4730.41, 22.61, 22.62, 22.63, 0.1, 0.2, 0.3, 1e-7, 2e-7, 1e12 + 0.25])


@pytest.mark.parametrize(
    ("below", "above"), [(4730.38, 4730.4), (22.61, 22.63), (0.1, 0.2), (1e-7, 3e-7), (0.1, 1e12)]
)
def test_bounds_in_sql_have_at_most_15_digits(below, above):
    rules = CART(2).fit(np.array([[below], [above]] * 3), labels=[0, 1] * 3).tree_.rules(feature_names=["x"])
    script = rules.to_sql("t")
    for literal in re.findall(r"(?:<=?|>=?) (\S+)", script.case):
        assert len(re.sub(r"\D", "", literal.partition("e")[0]).strip("0")) <= 15
    points = np.concatenate([CENTS, [below, above]])[:, None]
    connection = sqlite3.connect(":memory:")
    connection.execute('CREATE TABLE t ("x" DOUBLE)')
    connection.executemany("INSERT INTO t VALUES (?)", points.tolist())
    found = [row[0] for row in connection.execute(f"SELECT {script.case} FROM t")]
    assert found == rules.predict(points).tolist()
