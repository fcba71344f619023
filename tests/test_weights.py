"""Weights of rows, as those of a survey: a weight of 2 is a repeated row, and one of 0 a row that is not there."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from numpy.testing import assert_allclose, assert_array_equal
from refusals import refused
from sklearn.base import clone
from sklearn.cluster import DBSCAN, KMeans
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import adjusted_rand_score, silhouette_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn
from turns import slow

import neonxc
from neonxc import NEON, evaluation, neuralize
from neonxc.cli.commands import main
from neonxc.data import weights
from neonxc.data.preparation import prepare
from neonxc.evaluation import choice
from neonxc.trees.fit import weighting

pytestmark = pytest.mark.usefixtures("without_reality")

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
    before = before.drop(index=before.index[:5])
    after = after.drop(index=after.index[-7:])
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


def of_locations():
    torch.manual_seed(0)
    images = torch.rand(12, 3, 10, 10) + 0.5 * (torch.arange(12) % 2)[:, None, None, None]
    features = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.ReLU()).eval()
    points = features(images).detach().permute(0, 2, 3, 1).reshape(-1, 4).numpy()
    return neuralize(kmeans().fit(points), images, features), images


def test_the_weight_of_an_image_is_that_of_its_locations():
    net, images = of_locations()
    weight = np.arange(12) % 4
    every = images[np.repeat(np.arange(12), weight)]
    summary = NEON(net).summary(images, sample_weight=weight)
    expected = NEON(net).summary(every)
    assert_array_equal(summary.sizes, expected.sizes)
    assert_allclose(summary.relevance, expected.relevance, rtol=1e-4, atol=1e-6)
    same_values(summary.values, expected.values)
    assert weight[np.concatenate(summary.prototypes) // 16].all()

    report = neonxc.explain(net, images, fast=True, sample_weight=weight)
    found = report.description
    expected = neonxc.explain(net, every, fast=True).description
    assert (found.n, found.rows) == (expected.n, 16 * (weight > 0).sum())
    for card, other in zip(found.clusters, expected.clusters, strict=True):
        assert card.size == other.size
        assert [each.effect for each in card.statements] == [each.effect for each in other.statements]
        for item in card.prototypes:
            assert weight[item.row // 16]
            assert item.name.startswith(f"{item.row // 16}: ")
    assert weight[np.array(found.points.rows) // 16].all()


@pytest.mark.parametrize("name", ["mixed", "noise", "texts", "features", *slow("pipeline", "sparse")])
def test_a_weight_of_2_is_a_repeated_row_in_reports(name):
    net, X = NETWORKS[name]()
    weight = pd.Series(WEIGHT, X.index)[::-1] if hasattr(X, "iloc") else WEIGHT
    report = neonxc.explain(net, X, fast=True, sample_weight=weight)
    found = report.description
    expected = neonxc.explain(net, repeated(X), fast=True).description
    assert (found.n, found.k, found.noise) == (WEIGHT.sum(), expected.k, expected.noise)
    assert found.rows == (WEIGHT > 0).sum()
    assert f"{found.rows} " in found.source
    assert f"({found.n} by weight)" in found.source
    for card, other in zip(found.clusters, expected.clusters, strict=True):
        assert (card.label, card.size, card.nearest) == (other.label, other.size, other.nearest)
        assert card.near == other.near
        assert card.share == pytest.approx(other.share)
        for one, two in zip(card.statements, other.statements, strict=True):
            if name == "texts":  # terms of equal relevance
                continue
            assert (one.text, one.effect, one.bins) == (two.text, two.effect, two.bins)
            assert (one.inside_typical, one.outside_typical) == (two.inside_typical, two.outside_typical)
            assert one.inside == pytest.approx(two.inside, abs=0.002)
            assert one.relevance == pytest.approx(two.relevance, abs=0.002)
    for column, other in zip(found.columns, expected.columns, strict=True):
        assert (column.mean, column.spread) == (pytest.approx(other.mean), pytest.approx(other.spread))
    assert found.points.axes == expected.points.axes
    for pair, other in zip(found.pairs, expected.pairs, strict=True):
        if name == "texts":
            continue
        assert [column[0] for column in pair.relevance] == [column[0] for column in other.relevance]
        for one, two in zip(pair.relevance, other.relevance, strict=True):
            assert one[1] == pytest.approx(two[1], abs=0.002)
            assert one[2:] == two[2:]
    figures = {figure.key: figure.value for figure in found.figures}
    others = {figure.key: figure.value for figure in expected.figures}
    assert figures.keys() == others.keys()
    assert figures["silhouette"] == pytest.approx(others["silhouette"], abs=1e-5)
    tree = report.tree.tree_
    of_noise = 0 if tree.noise is None else tree.noise.sum().item()
    assert tree.samples[0].item() + of_noise == WEIGHT.sum()
    assert found.tree[0].samples == tree.samples[0].item()
    assert "by their weights" in " ".join(found.notes)
    assert WEIGHT[found.points.rows].all()  # numbers of rows of X
    assert WEIGHT[[item.row for card in found.clusters for item in card.prototypes]].all()
    assert report.html()


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
    assert (code, out.partition(" (")[0]) == (0, f"0 of {WEIGHT.sum()} rows")
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


def test_a_weight_of_2_is_a_repeated_row_in_measures():
    positions = DRAW.integers(0, 3, N)
    other = np.where(DRAW.random(N) < 0.7, positions, DRAW.integers(0, 4, N))
    points = NUMBERS.to_numpy()
    numbers = WEIGHT.astype(float)
    there = WEIGHT > 0
    rows = np.repeat(np.arange(N), WEIGHT)
    index = choice.weighted_rand_index(positions[there], other[there], numbers[there])
    assert index == pytest.approx(adjusted_rand_score(positions[rows], other[rows]))
    silhouette = choice.weighted_silhouette(points[there], positions[there], numbers[there])
    assert silhouette == pytest.approx(silhouette_score(points[rows], positions[rows]))
    q = [0.0, 0.005, 0.3, 0.5, 0.995, 1.0]
    found = weights.weighted_quantile(points[there, 0], q, numbers[there])
    assert_allclose(found, np.quantile(points[rows, 0], q))


def test_rows_are_drawn_by_their_weights():
    weight = DRAW.exponential(1, 5000) ** 2
    weight[7] = 3000
    rows, mass = weights.drawn(np.arange(5000), 2000, weight)
    assert mass.sum() == pytest.approx(weight.sum())
    assert len(rows) <= 2000
    assert mass[rows == 7] == pytest.approx(3000, rel=0.01)
    for values in (np.sin(np.arange(5000)), np.arange(5000) % 3 == 0):
        error = np.average(values[rows], weights=mass) - np.average(values, weights=weight)
        assert abs(error) < 0.05
    rows, mass = weights.drawn(np.arange(5000), 2000, np.full(5000, 3.0))
    assert_array_equal(rows, weights.drawn(np.arange(5000), 2000, None)[0])
    assert_allclose(mass, 7.5)


def test_a_contrast_of_many_points_is_that_of_their_weights():
    X = DRAW.normal(0, 1, (9000, 2)) + 6 * (np.arange(9000) % 2)[:, None]
    net = neuralize(np.array([[0.0, 0.0], [6.0, 6.0]]), X)
    weight = np.where(X[:, 0] % 6 > 1, 400.0, 1.0)  # of the right side of each cluster
    found = neonxc.contrast(net, X, 0, 1, sample_weight=weight)
    labels = net.predict(X)
    for column, (label, other) in enumerate([(0, 1), (1, 0)]):
        rows = labels == label
        relevance = NEON(net).attribute(X[rows], target=label, competitor=other)
        assert_allclose(found.relevance.iloc[:, column], np.average(relevance, 0, weight[rows]), rtol=0.02)
    assert found.sizes[0] <= 2000


@pytest.mark.parametrize("scale", ["standard", "robust", "minmax"])
def test_a_weight_of_2_is_a_repeated_row_in_preparation(scale):
    X = FRAME.assign(street=np.where(np.arange(N) % 25 == 0, [f"side {i % 3}" for i in range(N)], "main"))
    X.loc[X.index[::13], "street"] = None
    one = prepare(X, scale=scale)
    other = prepare(repeated(X), scale=scale)
    points, unweighted = weighting.fit_transform(one.pipeline, one.frame, WEIGHT.astype(float))
    assert not unweighted
    assert_allclose(repeated(points), other.pipeline.fit_transform(other.frame), atol=1e-12)
    assert_allclose(clone(one.pipeline).fit_transform(X), prepare(X, scale=scale).pipeline.fit_transform(X))


def test_a_weight_of_2_is_a_repeated_row_in_the_choice_of_k():
    found = evaluation.choose_k(FRAME, range(2, 4), preprocessing=prepare(FRAME).pipeline, sample_weight=WEIGHT)
    every = repeated(FRAME)
    expected = evaluation.choose_k(every, range(2, 4), preprocessing=prepare(FRAME).pipeline)
    measures = ["inertia", "silhouette", "cost_ratio"]
    assert_allclose(found.frame[measures], expected.frame[measures], rtol=1e-3)
    # of other halves; with two clusters, each may be the third one's
    assert_allclose(found.frame["stability"][1:], expected.frame["stability"][1:], atol=0.05)
    assert (found.k, found.rows) == (expected.k, (WEIGHT > 0).sum())


def test_agreement_of_a_tree_is_that_of_repeated_rows():
    net, X = NETWORKS["pipeline"]()
    labels = np.asarray(net.predict(X))
    tree = neonxc.trees.CART(3, max_leaves=2).fit(X, labels=labels)
    found = evaluation.agreement(net, tree, X, sample_weight=WEIGHT)
    expected = evaluation.agreement(net, tree, repeated(X))
    assert_allclose(found.same, expected.same)
    assert_allclose(found.network, expected.network, rtol=1e-5)
    assert_allclose(found.tree, expected.tree, rtol=1e-5)
    assert WEIGHT[found.rows].all()


def supports(net):
    """The grouping of the supports of a surrogate, which may know noise."""
    return getattr(net.head.grouping, "clusters", net.head.grouping)


@pytest.mark.parametrize("noise", [False, True])
def test_a_surrogate_is_that_of_repeated_rows(noise):
    labels = np.where(noise & (np.arange(N) % 10 == 0), -1, GROUP)
    frame = NUMBERS.assign(place=FRAME["town"])
    frame.loc[frame.index[labels < 0], "income"] += DRAW.choice([-9, 9], (labels < 0).sum())
    net = neuralize(labels=labels, X=frame, sample_weight=WEIGHT)
    expected = neuralize(labels=repeated(labels), X=repeated(frame))
    rows = frame.iloc[WEIGHT > 0]
    if not noise:  # repeated rows support each other, so that their radii are smaller
        assert (np.asarray(net.predict(rows)) == np.asarray(expected.predict(rows))).mean() > 0.95
        assert net.fidelity_ == pytest.approx(expected.fidelity_, abs=0.03)
        assert net.fidelity_held_out_ == pytest.approx(expected.fidelity_held_out_, abs=0.1)
    # the weight of each point of a cluster is its fraction of the cluster's weight
    of_points = supports(net).log_weights.double().exp()
    assert of_points.sum() == pytest.approx(3)
    of_clusters = [WEIGHT[(labels == cluster) & (WEIGHT > 0)] for cluster in range(3)]
    wanted = np.sort(np.concatenate([of_one / of_one.sum() for of_one in of_clusters]))
    assert_allclose(np.sort(of_points.numpy()), wanted, rtol=1e-5)
    # a scale is no repetition of rows that could support themselves
    equal = neuralize(labels=labels, X=frame, sample_weight=np.full(N, 1000.0))
    plain = neuralize(labels=labels, X=frame)
    assert supports(equal).gamma == pytest.approx(supports(plain).gamma, rel=1e-5)
    assert equal.noise_held_out_ == plain.noise_held_out_
    for name in ("fidelity_", "fidelity_held_out_", "stability_", "beta"):
        assert getattr(equal, name) == pytest.approx(getattr(plain, name), rel=1e-4)


def test_agreement_and_beta_of_a_network_are_those_of_repeated_rows():
    model = kmeans().fit(NUMBERS)
    model.labels_[:20] = (model.labels_[:20] + 1) % 3
    with pytest.warns(UserWarning, match="of X the label"):
        net = neuralize(model, NUMBERS, sample_weight=WEIGHT)
    model.labels_ = repeated(model.labels_)
    with pytest.warns(UserWarning, match="of X the label"):
        expected = neuralize(model, repeated(NUMBERS))
    assert net.beta == pytest.approx(expected.beta)
    assert net.agreement_ == pytest.approx(expected.agreement_)
    assert_allclose(net.spread_, expected.spread_)


@pytest.mark.parametrize("kind", ["labels", *slow("table")])
def test_reports_that_cluster_or_fit_do_so_with_weights(kind):
    labels = {"labels": GROUP} if kind == "labels" else {}
    of_repeated = {"labels": repeated(GROUP)} if labels else {}
    clusters = {} if labels else {"clusters": 3}
    report = neonxc.explain(FRAME, fast=True, sample_weight=WEIGHT, **labels, **clusters)
    expected = neonxc.explain(repeated(FRAME), fast=True, **of_repeated, **clusters)
    assert sorted(card.size for card in report.description.clusters) == sorted(
        card.size for card in expected.description.clusters
    )
    one, other = ({figure.key: figure.value for figure in each.description.figures} for each in (report, expected))
    assert one["silhouette"] == pytest.approx(other["silhouette"], abs=1e-3)
    assert one["fidelity"] == pytest.approx(other["fidelity"], abs=0.1)  # of other held-out rows
    if labels:
        assert one["surrogate"] == pytest.approx(other["surrogate"], abs=0.1)


def test_a_whole_report_weighs_flipping_refits_and_moves():
    model = make_pipeline(StandardScaler(), kmeans()).fit(NUMBERS, kmeans__sample_weight=WEIGHT)
    before = NUMBERS.copy()
    before.iloc[:40, 0] += 15
    report = neonxc.explain(model, NUMBERS, before=before, sample_weight=WEIGHT)
    contents = report.description
    figures = {figure.key: figure.value for figure in contents.figures}
    assert figures["stability"] > 0.9
    net = neuralize(model, NUMBERS)
    moved = neonxc.moves(net, before, NUMBERS, sample_weight=(WEIGHT, WEIGHT))
    assert (contents.moves.headline, contents.moves.unlike) == (moved.headline, moved.unlike)
    assert [move.size for move in contents.moves.moves] == [move.size for move in moved.moves]
    labels = np.asarray(net.predict(NUMBERS))
    assigned = np.asarray(report.tree.predict(NUMBERS))
    for card, label in zip(contents.clusters, net.classes_, strict=True):
        of_label = labels == label
        assert card.fidelity == pytest.approx(np.average(assigned[of_label] == label, weights=WEIGHT[of_label]))
    expected = neonxc.explain(net, repeated(NUMBERS)).description
    aucs = [next(figure.value for figure in each.figures if figure.key == "auc") for each in (contents, expected)]
    assert aucs[0] == pytest.approx(aucs[1], abs=4)
    for pair, other in zip(contents.pairs, expected.pairs, strict=True):
        assert [part[0] for part in pair.relevance] == [part[0] for part in other.relevance]


@pytest.mark.slow
def test_commands_choose_and_fit_surrogates_with_weights(files, monkeypatch, capsys, tmp_path):
    choices = []
    sizes = []
    for name, file, more in (("w", files[0], ["--weights", "w"]), ("r", files[1], [])):
        for out, options in (
            ("k", ["--clusters", "2-3", "--ignore", "label"]),
            ("l", ["--labels", "place", "--ignore", "label"]),
        ):
            code, _, _ = ran(monkeypatch, capsys, "table", file, *options, *more, "--out", tmp_path / name / out)
            assert code == 0
        choices.append(pd.read_csv(tmp_path / name / "k" / "choose-k.csv"))
        sizes.append(pd.read_csv(tmp_path / name / "l" / "clusters.csv")["rows"])
    assert_allclose(choices[0]["inertia"], choices[1]["inertia"], rtol=1e-6)
    assert_allclose(choices[0]["silhouette"], choices[1]["silhouette"], rtol=1e-6)
    assert sizes[0].sum() == sizes[1].sum() == WEIGHT.sum()
    assert_allclose(sizes[0], sizes[1], atol=0.05 * WEIGHT.sum())
