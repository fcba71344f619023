"""Who changed cluster between two versions of the rows, and by which columns."""

import json
import re
from html import escape
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from numpy.testing import assert_allclose
from refusals import refused
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.datasets import load_wine, make_blobs
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import neonxc
from neonxc import explain, moves, neuralize
from neonxc.trees import ExShallow

DRAW = np.random.default_rng(0)


@pytest.fixture(scope="module")
def wine():
    """A network, and a table before and after the proline of wines with much alcohol has risen in cluster 1."""
    before = load_wine(as_frame=True).data
    net = neuralize(make_pipeline(StandardScaler(), KMeans(3, n_init=10, random_state=0)).fit(before), before)
    own = net.predict(before)
    after = before + DRAW.normal(size=before.shape) * 0.05 * before.std().to_numpy()
    segment = (own == 1) & (before["alcohol"] > before["alcohol"][own == 1].median()).to_numpy()
    after.loc[segment, "proline"] += 5000
    return net, before, after, segment


def test_relevance_sums_to_the_change_of_the_contrast(wine):
    net, before, after, segment = wine
    found = moves(net, before, after)
    old = net.predict(before)
    new = net.predict(after)
    assert found.table.equals(pd.crosstab(old, new).rename_axis(index="old", columns="new")[[0, 1, 2]])
    assert found.n_moved == (old != new).sum()
    for move in found.moves:
        rows = (old == move.old) & (new == move.new)
        assert sorted(move.ids) == np.flatnonzero(rows).tolist()
        ends = [neonxc.NEON(net).attribute(x[rows], target=move.new, competitor=move.old) for x in (before, after)]
        assert_allclose(move.relevance, (ends[1] - ends[0]).mean(), rtol=1e-9, atol=1e-9)
        assert move.relevance.sum() == pytest.approx(move.change, rel=1e-9)
        assert move.change > 0
    assert escape(str(found)) in found._repr_html_()
    first = found.moves[0]
    assert sorted(first.ids) == np.flatnonzero(segment).tolist()
    assert first.top(1).index[0] == "proline"
    means = [x["proline"][segment].mean() for x in (before, after)]
    assert first.step("proline") == "{:.0f} → {:.0f}".format(*means)
    assert not first.usual.any()


def test_the_rule_is_measured_on_rows_that_it_has_not_seen(wine):
    net, before, after, segment = wine
    rule = moves(net, before, after).moves[0].rule
    assert rule.conditions[0].column.key == "alcohol"
    own = (net.predict(before) == 1).sum()
    assert rule.held_out.total == own - own // 2
    assert min(rule.held_out.precision, rule.held_out.coverage) > 0.8
    few = np.flatnonzero(segment)[5:]
    of_few = moves(net, before.drop(few), after.drop(few)).moves[0]
    assert of_few.rule is None
    assert of_few.who.startswith("There are too few rows to find a rule: at least 10 need to move")


def drifted(seed, *, planted):
    """Two versions of Gaussian clusters: a tenth of the rows are others, or a segment has the values of others."""
    draw = np.random.default_rng(seed)
    points, cluster = make_blobs(600, 5, centers=3, random_state=seed)
    before = pd.DataFrame(points).add_prefix("x")
    net = neuralize(make_pipeline(StandardScaler(), KMeans(3, n_init=3, random_state=0)).fit(before), before)
    after = before.copy()
    chosen = draw.random(600) < 0.1
    if planted:
        chosen = (cluster == 0) & (before["x1"] > before["x1"][cluster == 0].quantile(0.7)).to_numpy()
        after[chosen] = before[cluster == 1].iloc[: chosen.sum()].to_numpy()
    else:
        after[chosen] = before.iloc[draw.integers(600, size=chosen.sum())].to_numpy()
    return net, before, after


@pytest.mark.parametrize(
    ("weighted", "draws"),
    [(False, 4), *(pytest.param(weighted, 12, marks=pytest.mark.slow) for weighted in (False, True))],
)
def test_a_rule_is_better_than_chance(weighted, draws):
    weight = np.random.default_rng(0).uniform(0.5, 2, 600) if weighted else None
    at_random = []
    for seed in range(draws):
        for move in moves(*drifted(seed, planted=False), sample_weight=weight).moves:
            at_random.append(move)
            assert move.rule is None
        planted = moves(*drifted(seed, planted=True), sample_weight=weight).moves[0]
        counts = planted.rule.held_out
        assert counts.precision > 0.8
        assert counts.precision > counts.of_cluster / counts.total
        assert "moved (3" in planted.who or "moved (2" in planted.who  # the base rate is that of the segment, 30%
        assert "x1 > " in planted.who
    assert sum("No rule finds them" in move.who for move in at_random) >= (8 if draws == 12 else 1)


def test_what_json_holds_is_what_is_printed(wine):
    net, before, after, _ = wine
    shuffled = after.sample(frac=1, random_state=0).reset_index(drop=True)[: len(before)]
    for later in (after, after.iloc[3:], shuffled, before):
        found = moves(net, before, later)
        stored = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        assert stored["summary"] == str(found).splitlines()[: len(stored["summary"])]
        assert np.sum(stored["table"]) == stored["rows"]
        assert stored["moved"] == found.n_moved
        for move, one in zip(found.moves, stored["moves"], strict=True):
            assert (one["old"], one["new"], one["rows"]) == (move.old, move.new, len(move.ids))
            assert [column["name"] for column in one["columns"]] == [*move.named.index]
            assert one["typical"] == move.typical.index.tolist()
            assert all(sentence in str(found) for sentence in (one["what"], one["why"], one["who"]))
            assert (one["rule"] is None) == (move.rule is None)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([(7, "ash")], r"1 row of cluster \d has values .*, most often in ash \(1 row\)"),
        ([(7, "ash"), (8, "hue")], r"2 rows of cluster \d have values .* in (ash|hue) \(1 row\) and .* \(1 row\)"),
        ([(7, "ash"), (100, "ash")], r"2 rows of cluster 2 have .* most often in ash \(2 rows\)"),
    ],
)
def test_rows_outside_are_told_in_a_sentence(wine, rows, sentence):
    net, before, *_ = wine
    after = before.copy()
    for row, column in rows:
        after.loc[row, column] = 60
    found = moves(net, before, after)
    assert re.search(sentence, found.unlike)
    are = "1 row is outside the range of its" if len(rows) == 1 else "2 rows are outside the range of their"
    assert f"{are} cluster" in found.headline


def test_noise_moves_rows_near_the_boundary_as_much_as_others():
    before, _ = make_blobs(2000, 4, centers=4, cluster_std=4.0, random_state=0)
    net = neuralize(KMeans(4, n_init=3, random_state=0).fit(before), before)
    found = moves(net, before, before + DRAW.normal(size=before.shape))
    assert found.n_moved > 50
    assert np.concatenate([move.usual for move in found.moves]).mean() > 0.95
    assert "changed no more than rows that stayed" in str(found)
    assert str(moves(net, before, before)) == "0 of 2000 rows (0%) moved to another cluster."


def test_rows_are_matched(wine):
    net, before, after, _ = wine
    before = before.iloc[:170].copy()
    after = after.iloc[10:]
    wanted = moves(net, before, after)
    assert (int(wanted.entered.sum()), int(wanted.left.sum())) == (8, 10)
    assert wanted.table.to_numpy().sum() == 160
    assert " of 160 rows (" in wanted.headline
    assert "; 8 rows are new; 10 rows are gone" in wanted.headline
    mixed = after.sample(frac=1, random_state=0)
    plain = [x.reset_index(drop=True) for x in (before, mixed)]
    keys = [x.index.map("wine {}".format).to_list() for x in (before, mixed)]
    named = [x.assign(id=own) for x, own in zip(plain, keys, strict=True)]
    for tables, ids in (((before, mixed), None), (named, "id"), (plain, keys)):
        found = moves(net, *tables, ids=ids)
        for count in ("table", "entered", "left"):
            assert getattr(found, count).equals(getattr(wanted, count))
        pd.testing.assert_frame_equal(found.to_frame(), wanted.to_frame())
    refused("170 and 168 rows, and no index", moves, net, *plain)
    before.loc[102, "proline"] = np.nan
    refused("before has a value that is not finite: nan in row 102, column 'proline'", moves, net, before, after)
    refused("pass neonxc", moves, KMeans(2), *plain, error=TypeError)


@pytest.mark.parametrize(
    "container", [np.asarray, pl.from_pandas, lambda X: pl.from_pandas(X).lazy(), pa.Table.from_pandas]
)
def test_rows_without_an_index_go_by_their_order(wine, container):
    net, before, _, _ = wine
    back = before[::-1]
    other = container(back.reset_index(drop=True))
    assert moves(net, back, other).headline == "0 of 178 rows (0%) moved to another cluster"
    refused("have 3 and 178 rows, and no index", moves, net, back.iloc[:3], other)
    named = before.rename(index=str)
    stored = pa.Table.from_pandas(named)  # has an index
    assert (
        moves(net, stored, named.iloc[9:]).headline
        == "0 of 169 rows (0%) moved to another cluster; 9 rows are gone"
    )


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT])
def test_a_missing_identifier_is_that_of_no_row(wine, missing):
    net, before, *_ = wine
    letters = [f"{number:03}" for number in range(178)]
    lists = [[missing if i in gaps else name for i, name in enumerate(letters)] for gaps in ([3], [3, 5])]
    columns = [pd.Series(own, dtype=object) for own in lists]
    tuples = [[*zip(letters, own, strict=True)] for own in lists]
    for tables, ids in (
        ([before.set_axis(pd.Index(own)) for own in columns], None),
        ([before.set_axis(pd.MultiIndex.from_tuples(own)) for own in tuples], None),
        ([before.assign(id=own) for own in columns], "id"),
        *(([before, before], ids) for ids in (lists, columns, tuples)),
    ):
        found = moves(net, *tables, ids=ids)
        without = "without an identifier"
        counts = f"2 rows are new (2 {without}); 2 rows are gone (1 {without})"
        assert found.headline == f"0 of 176 rows (0%) moved to another cluster; {counts}"
        assert (found.unidentified, found.entered.sum(), found.left.sum()) == ((1, 2), 2, 2)


def test_whole_numbers_with_a_gap_stay_exact(wine):
    net, before, *_ = wine
    ids = pd.Series([None, *range(2**60, 2**60 + 177)], dtype="Int64")
    tables = before.assign(id=ids), before.assign(id=ids)[::-1].reset_index(drop=True)
    assert moves(net, *tables, ids="id").headline.startswith("0 of 177 rows (0%) moved")
    refused(
        "ids has the float 115.*, which is not exact", moves, net, before, before, ids=(ids.astype(float), ids)
    )


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (([1, 2], ["1", "2"]), "the identifier 1 of before is of type int, and '1' of after of type str"),
        ((["x", "7"], ["x", 7]), "the identifier '7' of before is of type str, and 7 of after of type int"),
        (([1, None], ["1", "2"]), "the identifier 1.0 of before is of type float, and '1' of after of type str"),
        (([(1, "a"), (2, "a")], [("1", "a"), ("2", "a")]), r"\(1, 'a'\) of before .* \('1', 'a'\) of after"),
        (([1, 2], [3, 4]), "no row of after has .*: before has 1, after has 3"),
        (([None, None], [3, 4]), "no row of after has .*: before has no identifiers, after has 3"),
        (([(1, 1), (1, 2)], [1, 2]), "no row of after has"),
        (([3, 3], [3, 4]), "before has several rows with the identifier 3"),
        ((np.eye(2), [3, 4]), r"one identifier per row, got shape \[2, 2\]"),
        (("id", "id"), "a sequence of identifiers for each table, got 'id'"),
        (([1], [2]), "a pair of 2 and 2 identifiers, got"),
        (7, "a pair of 2 and 2 identifiers, got"),
        ("customer", "before has no column 'customer'"),
    ],
)
def test_identifiers_that_match_nothing(wine, ids, message):
    net, before, *_ = wine
    refused(message, moves, net, before.iloc[:2], before.iloc[:2], ids=ids)


def test_rows_unlike_those_of_their_cluster_are_counted(wine):
    net, before, *_ = wine
    after = before.copy()
    after.iloc[:40] *= 3
    found = moves(net, before, after)
    assert found.outside.sum() == 40
    assert "outside the range of their cluster" in found.headline
    assert found.outside_columns.index[0] in found.unlike
    assert escape(found.unlike) in explain(net, after, before=before, fast=True).html()
    one = before.copy()
    one.loc[7, "ash"] = 60
    single = moves(net, before, one)
    assert (single.outside.sum(), single.outside_columns.to_dict()) == (1, {"ash": 1})
    mixed = before.sample(frac=1, random_state=0).reset_index(drop=True)
    assert moves(net, mixed[::2], mixed[1::2].set_axis(mixed.index[::2])).outside.sum() <= 4


def test_mixed_tables_with_gaps():
    group = np.arange(400) // 200
    before = pd.DataFrame({"spend": DRAW.normal(10 + 40 * group, 4), "visits": DRAW.normal(5, 1, 400)})
    before["plan"] = np.array(["free", "pro"])[group]
    before.loc[200, "plan"] = "free"  # a column that repeats the labels would be left out
    before.loc[::13, "visits"] = np.nan
    net = neuralize(labels=group, X=before)
    after = before.copy()
    after.loc[:39, ["plan", "spend"]] = ["pro", 50]
    move = moves(net, before, after).moves[0]
    assert len(move.ids) == 40
    assert set(move.top(2).index) == {"spend", "plan"}
    assert move.step("plan") == "is pro 0% → 100%"
    assert move.typical["plan", "after"].eq("pro").all()


def test_texts_and_trees():
    topics = [["star", "moon", "orbit", "comet"], ["salt", "soup", "bread", "oven"]]
    before = [" ".join(DRAW.choice(topics[i % 2], 6)) for i in range(60)]
    model = make_pipeline(TfidfVectorizer(), KMeans(2, n_init=3, random_state=0)).fit(before)
    after = [" ".join(DRAW.choice(topics[1], 6)) if i < 10 else text for i, text in enumerate(before)]
    move = moves(neuralize(model, before), before, after).moves[0]
    assert len(move.ids) == 5
    assert set(move.top(2).index) <= {*topics[0], *topics[1]}
    assert move.step(move.top(1).index[0]).startswith("in ")
    assert move.typical["text", "after"].tolist() == [after[i] for i in move.typical.index]
    dense = [model[0].transform(texts).toarray() for texts in (before, after)]
    tree = neuralize(ExShallow(2).fit(dense[0], labels=model.predict(before)))
    assert len(moves(tree, *dense).moves) == 1


def test_images():
    images = torch.randn(40, 3, 8, 8)
    backbone = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()).eval()
    move = moves(neuralize(backbone(images)[:2] * 3, features=backbone), images, images.flip(0)).moves[0]
    assert move.typical.shape == (min(len(move.ids), 5), 0)
    assert move.relevance.sum() == pytest.approx(move.change, rel=1e-4)
    maps = neuralize(torch.randn(2, 3), features=torch.nn.Identity())
    refused("one cluster per row", moves, maps, images, images)


def test_noise():
    X, _ = make_blobs(60, 2, centers=[[0, 0], [9, 0]], random_state=0)
    net = neuralize(HDBSCAN(min_cluster_size=10, copy=True).fit(X), X)
    far = X.copy()
    far[:12] += 100
    found = moves(net, X, far)
    assert {move.new for move in found.moves} == {-1}
    assert "0 → noise: 6 rows moved" in str(found)
    assert "why: The contrast rises by" in str(found)
    report = explain(net, far, before=X, fast=True)
    assert '<span class=chip data-k="-1" title=noise>' in report.html()


def test_frame_picture_and_page(wine):
    net, before, after, _ = wine
    found = moves(net, before.iloc[3:], after.iloc[:-2])
    for shares in (found.to_frame()["of change"].abs().groupby(["old", "new"]).sum(), found.shares.sum(axis=1)):
        assert_allclose(shares, 1)
    assert f"1 → 2: {len(found.moves[0].ids)} rows" in [axes.get_title() for axes in found.plot().axes]
    report = explain(net, after, before=before, fast=True)
    first = report.to_dict()["moves"]["moves"][0]
    assert first["columns"][0]["name"] == "proline"
    assert escape(first["rule"]["text"]) in report.html()
    assert 'href="#moves"' in report.html()
    assert 'href="#moves"' not in explain(net, after, fast=True).html()


def test_the_picture_names_no_column_whose_share_is_nothing(wine):
    net, before, _, _ = wine
    panels = moves(net, before, before.assign(proline=before["proline"] + 900)).plot().axes[1:]
    names = [[name.get_text() for name in axes.get_yticklabels()] for axes in panels]
    assert names == [["proline", "12 further columns: +0"]] * len(panels) != []


def test_command(wine, tmp_path, neonxc_command):
    net, before, after, _ = wine
    neonxc.save(net, "net")
    neonxc.save(ExShallow(3).fit(before).tree_.rules(), "rules")
    before.to_csv("before.csv", index_label="id")
    after.iloc[2:].to_csv("after.csv", index_label="id")
    files = "before.csv", "after.csv"
    code, out, _ = neonxc_command("moves", "net", *files, "--ids", "id", "--out", "moves.html", "--fast")
    assert code == 0
    assert "2 rows are gone" in out
    assert "proline" in out
    assert "after.csv since before.csv" in (tmp_path / "moves.html").read_text(encoding="utf-8")
    for suffix in ("json", "csv", "md", "txt"):
        assert neonxc_command("moves", "net", *files, "--ids", "id", "--out", f"out/moves.{suffix}")[0] == 0
    found = moves(net, *files, ids="id")
    assert json.loads(Path("out/moves.json").read_text()) == found.to_dict()
    assert Path("out/moves.txt").read_text() == f"{found}\n"
    assert Path("out/moves.md").read_text() == f"{found.to_markdown()}\n"
    written = pd.read_csv("out/moves.csv").set_index(["old", "new", "column"])
    pd.testing.assert_frame_equal(written, found.to_frame(), check_dtype=False)
    assert "must end in .html or .json or" in neonxc_command("moves", "net", *files, "--out", "moves.xlsx")[2]
    assert "pass ids, the column that identifies rows" in neonxc_command("moves", "net", *files)[2]
    assert "moves needs a network or a tree" in neonxc_command("moves", "rules", *files)[2]
