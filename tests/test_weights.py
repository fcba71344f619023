"""Weights of rows, as those of a survey: a weight of 2 is a repeated row, and one of 0 a row that is not there."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused
from sklearn.cluster import DBSCAN, KMeans
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import neonxc
from neonxc import NEON, neuralize
from neonxc.cli.commands import main
from neonxc.data.preparation import prepare

DRAW = np.random.default_rng(0)
N = 150
GROUP = np.arange(N) % 3
FRAME = pd.DataFrame(
    {
        "age": DRAW.normal(40, 5, N) + 20 * (GROUP == 1),
        "income": DRAW.normal(3, 0.3, N) + 2 * (GROUP == 2),
        "town": np.where(DRAW.random(N) < 0.8, np.array(["Rome", "Turin", "Milan"])[GROUP], "Rome"),
    },
    index=[f"person {i}" for i in range(N)],
)
FRAME.loc[FRAME.index[::17], "age"] = np.nan
NUMBERS = FRAME[["age", "income"]].fillna(40.0)
WEIGHT = DRAW.integers(0, 4, N)


def kmeans():
    return KMeans(3, n_init=3, random_state=0)


def of_mixed():
    prepared = prepare(FRAME)
    return neuralize(make_pipeline(prepared.pipeline, kmeans()).fit(prepared.frame), FRAME), FRAME


def of_texts():
    texts = np.array(
        [
            ["sun and sand", "snow ice cold", "rain in the city"][g] + " again" * (i % 2)
            for i, g in enumerate(GROUP)
        ]
    )
    return neuralize(make_pipeline(TfidfVectorizer(), kmeans()).fit(texts), texts), pd.Series(texts)


def of_features():
    torch.manual_seed(0)
    x = torch.randn(N, 1, 4, 4) + 3 * torch.as_tensor(GROUP)[:, None, None, None]
    features = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).eval()
    return neuralize(kmeans().fit(features(x).detach().numpy()), x, features), x


def of_sparse():
    X = NUMBERS.to_numpy() - NUMBERS.min().to_numpy()
    X[X < 1] = 0
    return neuralize(kmeans().fit(X), X), sp.csr_array(X)


NETWORKS = {
    "pipeline": lambda: (neuralize(make_pipeline(StandardScaler(), kmeans()).fit(NUMBERS), NUMBERS), NUMBERS),
    "noise": lambda: (neuralize(DBSCAN(2.5, min_samples=4).fit(NUMBERS), NUMBERS), NUMBERS),
    "mixed": of_mixed,
    "sparse": of_sparse,
    "texts": of_texts,
    "features": of_features,
}


def repeated(X, weight=WEIGHT):
    rows = np.repeat(np.arange(N), weight)
    return X.iloc[rows] if hasattr(X, "iloc") else X[torch.as_tensor(rows)] if torch.is_tensor(X) else X[rows]


def same_values(one, other):
    assert_allclose(one.means, other.means, rtol=1e-5, atol=1e-9)
    assert_allclose(one.overall, other.overall, rtol=1e-5)
    assert_allclose(one.effects, other.effects, rtol=1e-4, atol=1e-6)
    assert one.shares.keys() == other.shares.keys()
    for column, shares in one.shares.items():
        assert_allclose(shares, other.shares[column][shares.columns])


@pytest.mark.parametrize("name", NETWORKS)
def test_a_weight_of_2_is_a_repeated_row_in_summaries(name):
    net, X = NETWORKS[name]()
    summary = NEON(net).summary(X, sample_weight=WEIGHT)
    of_repeated = NEON(net).summary(repeated(X))
    assert_allclose(summary.relevance, of_repeated.relevance, rtol=1e-4, atol=1e-6)
    assert_array_equal(summary.sizes, of_repeated.sizes)
    assert summary.n_noise == of_repeated.n_noise
    same_values(summary.values, of_repeated.values)
    assert (WEIGHT[np.concatenate(summary.prototypes)] > 0).all()
    scaled = NEON(net).summary(X, sample_weight=WEIGHT / 1e4)  # fractions have no scale, and rows are counted
    assert_allclose(scaled.relevance, summary.relevance, rtol=1e-4, atol=1e-6)
    assert_allclose(scaled.values.means, summary.values.means)
    assert_allclose(scaled.values.effects, summary.values.effects, rtol=0.05, atol=0.01)


@pytest.mark.parametrize("name", ["pipeline", "mixed", "features"])
def test_a_weight_of_2_is_a_repeated_row_in_contrasts(name):
    net, X = NETWORKS[name]()
    found = neonxc.contrast(net, X, 0, 1, sample_weight=WEIGHT)
    expected = neonxc.contrast(net, repeated(X), 0, 1)
    assert_allclose(found.relevance, expected.relevance, rtol=1e-4, atol=1e-6)
    assert_allclose(found.effects, expected.effects, rtol=1e-4)
    assert found.accuracy == pytest.approx(expected.accuracy)
    assert str(found.rules) == str(expected.rules)


def test_a_weight_of_2_is_a_repeated_row_in_moves():
    net, before = NETWORKS["pipeline"]()
    after = before.copy()
    after.iloc[10:80, 0] += 15
    after.iloc[90:120, 1] -= 2
    before, after = before.drop(index=before.index[:5]), after.drop(index=after.index[-7:])
    weight = pd.Series(WEIGHT, FRAME.index)

    def repeated_of(frame):
        frame = frame.loc[frame.index.repeat(weight[frame.index])]
        return frame.set_axis(
            [f"{a} {b}" for a, b in zip(frame.index, frame.groupby(level=0).cumcount(), strict=True)]
        )

    found = neonxc.moves(net, before, after, sample_weight=(weight, weight[::-1]))
    expected = neonxc.moves(net, repeated_of(before), repeated_of(after))
    assert found.headline == expected.headline
    for name in ("table", "entered", "left", "outside"):
        assert_array_equal(getattr(found, name), getattr(expected, name))
    assert_array_equal(found.shares, expected.shares)
    for one, other in zip(found.moves, expected.moves, strict=True):
        assert (one.old, one.new) == (other.old, other.new)
        assert_allclose(one.share, other.share)
        assert_allclose(one.change, other.change)
        assert_allclose(one.relevance, other.relevance)
        assert_allclose(one.values.means, other.values.means)
    of_after = neonxc.moves(net, before, after, sample_weight=weight[after.index])
    assert of_after.table.to_numpy().sum() == weight[after.index[5:]].sum()
    assert of_after.left.sum() == 7


def test_drawn_columns_count_by_weight():
    net, X = NETWORKS["pipeline"]()
    found = NEON(net).summary(X, method="permute", sample_weight=WEIGHT).relevance
    expected = NEON(net).summary(repeated(X), method="permute").relevance
    assert_allclose(found, expected, atol=0.15)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.ones(N - 1), "one weight per point"),
        (-np.ones(N), "weights >= 0"),
        (np.zeros(N), "a weight > 0, got zeros alone"),
        (np.full(N, np.nan), "NaN"),
        (pd.Series(np.ones(N), [f"other {i}" for i in range(N)]), "matched by index"),
    ],
)
def test_refused(weight, message):
    net, X = NETWORKS["pipeline"]()
    refused(message, NEON(net).summary, X, sample_weight=weight)
    refused(message, neonxc.contrast, net, X, 0, 1, sample_weight=weight)
    refused(message, neonxc.moves, net, X, X, sample_weight=weight)


def test_locations_of_maps_have_no_weights():
    images = torch.randn(3, 2, 5, 5)
    net = neuralize(torch.eye(2), images, nn.Conv2d(2, 2, 1))
    refused(
        "one point per input; this network clusters the locations",
        NEON(net).summary,
        images,
        sample_weight=[1, 2, 1],
    )


@pytest.mark.parametrize("name", ["pipeline", "mixed", "noise"])
def test_a_weight_of_2_is_a_repeated_row_in_reports(name):
    net, X = NETWORKS[name]()
    weight = pd.Series(WEIGHT, X.index)
    report = neonxc.explain(net, X, fast=True, sample_weight=weight[::-1])
    expected = neonxc.explain(net, repeated(X), fast=True)
    assert report.contents.n == (WEIGHT > 0).sum()
    for card, other in zip(report.contents.cards, expected.contents.cards, strict=True):
        assert card.label == other.label
        assert card.share == pytest.approx(other.share)
        for one, two in zip(card.statements, other.statements, strict=True):
            assert (one.text, one.effect) == (two.text, two.effect)
            assert one.relevance == pytest.approx(two.relevance, abs=0.002)
    tree = report.tree.tree_
    of_noise = 0 if tree.noise is None else tree.noise.sum().item()
    assert tree.samples[0].item() + of_noise == WEIGHT.sum()
    assert "by their weights" in " ".join(report.contents.notes)


def test_reports_refuse_weights_of_one_cluster():
    net, X = NETWORKS["pipeline"]()
    one = np.asarray(net.predict(X) == 0, float)
    refused("rows of at least two clusters", neonxc.explain, net, X, fast=True, sample_weight=one)
    refused("a weight > 0, got zeros", neonxc.explain, net, X, fast=True, sample_weight=0 * one)


@pytest.fixture
def files(tmp_path):
    """A table with a column of weights, and one with repeated rows."""
    X = NUMBERS.assign(place=np.where(GROUP == 0, "city", "village"), label=[*"abc" * 50])
    X.assign(w=WEIGHT).to_csv(tmp_path / "weighted.csv", index=False)
    repeated(X).to_csv(tmp_path / "repeated.csv", index=False)
    return tmp_path / "weighted.csv", tmp_path / "repeated.csv"


def ran(monkeypatch, capsys, *arguments):
    monkeypatch.setattr("sys.argv", ["neonxc", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    return ended.value.code, out, err


def test_commands_take_a_column_of_weights(files, monkeypatch, capsys, tmp_path):
    weighted, every = files
    options = ["--clusters", 3, "--ignore", "label"]
    summaries = []
    for name, file, more in (("w", weighted, ["--weights", "w"]), ("r", every, [])):
        code, _, err = ran(monkeypatch, capsys, "table", file, *options, *more, "--out", tmp_path / name)
        assert code == 0
        assert ("of weight 0: left out" in err) == (name == "w")
        summaries.append(pd.read_csv(tmp_path / name / "columns.csv").sort_values(["points", "column"]))
    one, other = (table[["points", "mean", "effect", "column"]].reset_index(drop=True) for table in summaries)
    pd.testing.assert_frame_equal(one, other, rtol=1e-6)

    by_label = ["--labels", "label", "--weights", "w"]
    code, out, _ = ran(monkeypatch, capsys, "rules", weighted, *by_label, "--ignore", "place")
    held_out = [int(line.split()[2]) for line in out.splitlines() if line.startswith("    held out:")]
    total = int(next(line for line in out.splitlines() if line.startswith("total")).split()[1])
    assert (code, total + held_out[-1]) == (0, WEIGHT.sum())

    page = tmp_path / "page.json"
    code, _, _ = ran(monkeypatch, capsys, "explain", weighted, *options, "--weights", "w", "--fast", "--out", page)
    assert code == 0
    assert "by their weights" in page.read_text()
    model = tmp_path / "w" / "model.safetensors"
    code, out, _ = ran(monkeypatch, capsys, "moves", model, weighted, weighted, "--weights", "w")
    assert (code, out.partition(":")[0]) == (0, f"{WEIGHT.sum()} rows")
    later = ["moves", model, weighted, weighted, "--weights", "w", "--fast", "--out", page]
    assert ran(monkeypatch, capsys, *later)[0] == 0  # also with a report, which matches all rows


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--weights", "nothing"], "has no column"),
        (["--weights", "place"], "needs a number >= 0 in every row"),
        (["--weights", "label", "--labels", "label"], "need two columns"),
    ],
)
def test_commands_refuse_other_columns(files, monkeypatch, capsys, arguments, message):
    code, _, err = ran(monkeypatch, capsys, "rules", files[0], *arguments)
    assert code == 2
    assert message in err
