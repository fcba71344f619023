"""Reports of clusterings of every kind."""

import json
import re
import warnings
from inspect import signature
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from refusals import refused
from report_contents import TEXTS, WINE, extractor, images, model
from report_contents import report as made
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.cluster import DBSCAN, HDBSCAN, OPTICS, AgglomerativeClustering, KMeans
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris, load_wine, make_blobs, make_moons
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import train_test_split
from sklearn.neighbors import kneighbors_graph
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from turns import slow

import neonxc
from neonxc.data.preparation import prepare
from neonxc.evaluation import choose_k, null_reference
from neonxc.models import FeatureExtractor, KernelKMeans, WordVectors
from neonxc.report.points import projected
from neonxc.report.source import Arguments, clustered_data, read
from neonxc.report.wording import comparisons
from neonxc.trees import CART, IMM

pytestmark = pytest.mark.filterwarnings("ignore:the surrogate")


@pytest.fixture
def with_reality():
    """Ask whether clusters are real."""


@pytest.fixture(autouse=True)
def _quick(request, monkeypatch):
    """Do without least changes across curved boundaries, and do not ask whether clusters are real."""
    monkeypatch.setattr("neonxc.report.changes.SLOW", 0)
    if "with_reality" not in request.fixturenames:
        request.getfixturevalue("without_reality")


@pytest.fixture(scope="module")
def report():
    return made("wine")


@pytest.fixture(scope="module")
def few():
    return WINE[:60]


def kmeans(X, k=3):
    return KMeans(k, n_init=1, random_state=0).fit(X)


def explained(*args, **options):
    """A fast report and its contents."""
    found = neonxc.explain(*args, fast=True, **options)
    return found, found.description


def warned(contents):
    return " ".join(warning.text for warning in contents.warnings)


# What a report says, against the network and the tree


def test_cards_say_what_the_network_says(report):
    found = report.description
    labels = model().predict(WINE)
    assert (found.n, found.k, found.noise, found.kind) == (89, 3, 0, "table")
    summary = neonxc.NEON(report.net).summary(WINE)
    logit = neonxc.NEON(report.net).attribute(WINE).sum(axis=1).to_numpy()
    for k, card in enumerate(found.clusters):
        rows = np.flatnonzero(labels == k)
        shares = summary.relevance[k] / np.abs(summary.relevance[k]).sum()
        assert card.size == len(rows)
        assert [item.row for item in card.prototypes] == summary.prototypes[k][:4].tolist()
        assert [item.row for item in card.borderline] == rows[np.argsort(logit[rows])[:4]].tolist()
        for statement in card.statements:
            assert statement.relevance == pytest.approx(shares[statement.column], rel=5e-3)
            assert found.columns[statement.column].name in statement.text
            assert (sum(statement.inside), sum(statement.outside)) == pytest.approx((1, 1), abs=0.02)


def test_rules_and_tree_are_those_of_the_fitted_tree(report):
    labels = model().predict(WINE)
    leaf = report.tree.tree_.apply(WINE)
    nodes = report.description.tree
    for k, card in enumerate(report.description.clusters):
        own = labels == k
        for rule in card.rules:
            inside = leaf == rule.node
            assert (rule.samples, nodes[rule.node].cluster) == (inside.sum(), k)
            assert (rule.coverage, rule.precision) == pytest.approx((inside[own].mean(), own[inside].mean()))
        assert card.fidelity == pytest.approx((report.tree.labels_[own] == k).mean())
    for i, node in enumerate(nodes):
        assert (node.left < 0) == (node.text == "")
        if node.text:
            children = nodes[node.left], nodes[node.right]
            assert {child.parent for child in children} == {i}
            assert node.samples == sum(child.samples for child in children)
        else:
            assert node.mistakes == (labels[leaf == i] != node.cluster).sum()


def test_methods_are_compared_within_their_error():
    def compared(insertion, removal):
        """What the report says of pairs (lead of the other method over NEON, its standard error)."""
        parts = [
            SimpleNamespace(auc=97.0, best=99.5, competitor="IG", lead=insertion[0], error=insertion[1]),
            SimpleNamespace(auc=8.5, best=8.0, competitor="NCA", lead=removal[0], error=removal[1]),
        ]
        return comparisons(SimpleNamespace(insertion=parts[0], removal=parts[1]))

    by_insertion, by_removal = compared((2.5, 0.6), (0.5, 0.6))
    areas = "(NEON 97.0, IG 99.5, standard error 0.6)"
    assert by_insertion == f"By inserting the most relevant columns first, IG is better than NEON by 2.5 {areas}."
    assert "no method is better than NEON; NCA is as good within the error" in by_removal
    ahead, level = compared((-3.2, 0.5), (-0.2, 0.6))
    assert "no method is better than NEON, which is 3.2 ahead of IG" in ahead
    assert "within the error" in level


@pytest.mark.parametrize("kind", ["pipeline", "wide", *slow("tensor")])
def test_least_changes_lead_there_as_they_are_printed(kind, report, monkeypatch):
    X = WINE
    found = report
    names = [f"x{j}" for j in range(240)]
    if kind == "tensor":
        X = WINE.to_numpy()[:, :5]
        found = neonxc.explain(kmeans(X), torch.tensor(X))
    elif kind == "wide":
        monkeypatch.setattr("neonxc.report.changes.SLOW", 100)
        X = 1e-3 * np.random.default_rng(0).normal(size=(60, 240))
        X[:30, 7] += 40
        found = neonxc.explain(kmeans(X, 2), X)
    moved = X.copy() if kind == "pipeline" else pd.DataFrame(X, columns=names[: X.shape[1]])
    columns = found.description.columns
    points = found.description.points
    for row, change in zip(points.rows, points.changes, strict=True):
        for column, value in change.values:
            moved.loc[row, columns[column].name] = float(value)
            assert len(value) <= 12
    labels = found.net.predict(moved if kind == "pipeline" else moved.to_numpy())
    assert labels[points.rows].tolist() == [change.cluster for change in points.changes]


def test_changes_of_whole_numbers_are_whole():
    """Also of a column of floats: a missing value makes them of integers."""
    generator = np.random.default_rng(0)
    labels = np.arange(80) % 2
    frame = pd.DataFrame(
        {"rooms": 2.0 + 3 * labels + generator.integers(0, 2, 80), "width": generator.normal(size=80)}
    )
    frame.loc[5, "rooms"] = np.nan
    clusterer = make_pipeline(SimpleImputer(), StandardScaler(), KMeans(2, n_init=1, random_state=0)).fit(frame)
    changes = [change for change in neonxc.describe(clusterer, frame).points.changes if change]
    rooms = [text for change in changes for column, text in change.values if column == 0]
    assert rooms
    assert [text for text in rooms if not text.isdigit()] == []


def test_the_first_screen_says_what_was_found(report):
    found = report.description
    html = report.html()
    verdict = html.partition("<section id=verdict>")[2].partition("</section>")[0]
    assert re.match(r"\d rules assign \d+% of the held-out points to their own cluster\. Refits on", found.verdict)
    assert not re.search("NEON|flipping|insertion", verdict)
    assert re.search("NEON", html.partition("<section id=trust")[2])
    assert verdict.count("class=tile") <= 6
    assert [figure.key for figure in found.figures if figure.is_main] == ["fidelity", "stability", "silhouette"]
    source = explained(report.net, WINE)[1].source
    assert "given labels" not in source
    assert source.endswith("from a network")


@pytest.mark.usefixtures("with_reality")
def test_a_report_says_whether_its_clusters_are_real():
    blob = np.random.default_rng(1).normal(size=(200, 4))  # one in twenty is above by chance
    apart = make_blobs(120, 4, centers=3, cluster_std=0.5, random_state=0)[0]
    for X, is_real in ((blob, False), (apart, True)):
        scaled = make_pipeline(StandardScaler(), kmeans(X)).fit(X)
        made_of, found = explained(scaled, X)
        result = null_reference(scaled, X)
        lines = found.trust.reality
        assert result.above == is_real
        assert lines[:2] == result.lines()
        assert any("slices of one cloud" in line for line in lines) != is_real
        assert any(line.endswith("are separated.") for line in lines) == is_real
        assert all(line in str(made_of) for line in lines)
        assert "Are the clusters real?" in made_of.html()
    _, found = explained(DBSCAN(0.5).fit(apart), apart)  # finds gaps that are there by chance
    assert not any("separated" in line for line in found.trust.reality)
    labels = kmeans(apart).labels_.copy()
    labels[:9] = -1  # of a clusterer that is unknown
    assert not explained(apart, labels=labels)[1].trust.reality
    _, found = explained(pd.Series(kmeans(apart).labels_), apart)  # can't be fitted again
    assert not any("Clusterings of tables" in line for line in found.trust.reality)


@pytest.mark.slow
@pytest.mark.usefixtures("with_reality")
def test_whether_clusters_are_real_is_asked_of_weighted_rows():
    X = make_blobs(120, 4, centers=3, cluster_std=0.5, random_state=0)[0]
    model = make_pipeline(StandardScaler(), kmeans(X)).fit(X)
    weight = np.arange(120) % 3 + 1.0
    _, found = explained(model, X, sample_weight=weight)
    assert found.trust.reality == null_reference(model, X, sample_weight=weight).lines()


def test_a_report_says_whether_its_names_hold():
    apart, labels = make_blobs(240, 3, centers=3, cluster_std=0.5, random_state=0)
    halved = labels.copy()
    halved[labels == 2] = 2 + np.random.default_rng(2).permutation(80) % 2  # 2 and 3 are the same cloud
    for given, n_passed in ((labels, "3 of 3 names pass"), (halved, "2 of 4 names pass")):
        made_of, found = explained(apart, labels=given, names=[*"abc"])
        assert found.trust.names[0].startswith(f"{n_passed} a blind test")
        assert all(line in str(made_of) for line in found.trust.names)
        assert "Do the names hold?" in made_of.html()
    assert found.trust.names[1] == "By their names, clusters are confused: 2 with 3, 3 with 2."
    cards = found.clusters
    marks = [card.title.removeprefix(card.name) for card in cards]
    assert marks == ["", "", " (confused with 3)", " (confused with 2)"]
    assert f"cluster 2: {cards[2].title} (" in str(made_of)
    assert f"<bdi class=cut>{cards[2].title}</bdi></h3>" in made_of.html()
    assert [*made_of.to_frame()["name"]] == [card.name for card in cards]


@pytest.mark.parametrize(
    "given", [{0: "ours"}, pytest.param({0: "ours", 1: "yours", 2: "theirs"}, marks=pytest.mark.slow), {}]
)
def test_names_that_are_given_are_not_tested(given):
    X = make_blobs(90, centers=3, random_state=0)[0]
    _, found = explained(kmeans(X), X, cluster_names=given)
    assert {int(card.label): card.name for card in found.clusters} | given == {
        int(card.label): card.title for card in found.clusters
    }
    assert bool(found.trust.names) == (not given)
    if len(given) < 3:
        assert all(re.match("(rather )?(high|low|medium|extreme) x[01]", card.name) for card in found.clusters[1:])


def test_names_are_about_categories_missing_values_and_weighted_rows():
    n = np.arange(240)
    table = pd.DataFrame({"work": np.where(n % 3 == 0, "home", "office"), "age": 20.0 + n % 3 + n / 1000})
    table.loc[n % 3 == 1, "age"] = np.nan
    _, found = explained(table, labels=n % 3)
    assert [card.name for card in found.clusters][:2] == ["work is home", "age is missing"]
    assert found.trust.names[0].startswith("3 of 3")
    weight = np.where(n < 120, 1.0, 0.0)
    _, weighted = explained(table, labels=n % 3, sample_weight=weight)
    assert [card.name for card in weighted.clusters][:2] == ["work is home", "age is missing"]


def test_names_of_texts_are_terms_and_those_of_images_labels():
    _, found = explained(
        make_pipeline(TfidfVectorizer(), kmeans(TfidfVectorizer().fit_transform(TEXTS), 2)).fit(TEXTS), TEXTS
    )
    words = set(" ".join(TEXTS).lower().split())
    assert all(set(card.name.split(", ")) <= words for card in found.clusters)
    x = images()
    _, found = explained(x, labels=np.arange(12) // 6, features=extractor(pool="avg"))
    assert [card.title for card in found.clusters] == ["cluster 0", "cluster 1"]
    assert not found.trust.names


def test_numbers_have_the_units_and_marks_of_their_file(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["Umsatz;Stunden"]
    for i in range(60):
        euros = f"{(1000 + 900 * (i % 3)) + rng.integers(0, 99)}"
        hours = "k. A." if i % 5 == 0 else f"{10 * (i % 3) + i % 7},5 h"
        lines.append(f"{euros[0]}.{euros[1:]},50 €;{hours}")
    (tmp_path / "t.csv").write_text("\n".join(lines), encoding="utf-8")
    made = neonxc.explain(tmp_path / "t.csv", clusters=3)
    found = made.description
    html = made.html()
    assert [column.unit for column in found.columns] == ["€", "h"]
    assert found.marks.decimal == ","
    for card in found.clusters:
        printed = [value for item in card.prototypes for _, value, _ in item.values]
        assert [value for value in printed if not re.search("[0-9] (€|h)$|^missing$", value)] == []
        assert all(re.search("(€|h)$", each.inside_typical) for each in card.statements)
        assert all("€" in rule.text or " h" in rule.text for rule in card.rules)
    changed = [text for change in found.points.changes if change for column, text in change.values if column == 0]
    assert changed
    assert [text for text in changed if not re.fullmatch(r"(\d\.)?\d{3}(,\d+)?", text)] == []
    assert [column.n_digits for column in found.columns] == [4, 5]  # 1.234 €, but 1234 h
    assert re.search(r'<data value="[+−]\d,\d\d">\d\.\d{3}(,\d)? €</data>', html)  # with its standardised value
    assert json.loads(json.dumps(made.to_dict()))["points"]["values"][0][0] == found.points.values[0][0]
    english = str(neonxc.explain(tmp_path / "t.csv", clusters=3, fast=True, locale="en"))
    assert not re.search(r"\d,\d(?!\d\d)", english)  # a comma is between thousands


def test_texts_end_behind_a_word():
    X = [" ".join(["word", "other", "long" * (1 + i % 9)] * (30 + i)) for i in range(40)]
    model_of_texts = make_pipeline(TfidfVectorizer(), KMeans(2, n_init=1, random_state=0)).fit(X)
    _, found = explained(model_of_texts, X)
    for card in found.clusters:
        for item in card.prototypes:
            whole = X[item.row]
            shown = item.text.removesuffix("…")
            assert len(item.text) <= 600
            assert whole.startswith(shown)
            assert whole == shown or whole[len(shown)].isspace()
            assert all(end <= len(shown) for _, end, _ in item.marks)


def test_forms_of_a_report(report, tmp_path):
    frame = report.to_frame()
    first = report.description.clusters[0]
    assert (list(frame.index), frame["size"].sum()) == (["0", "1", "2"], 89)
    assert all(card.name in str(report) for card in report.description.clusters)
    for suffix in ("json", "html"):
        report.save(tmp_path / f"report.{suffix}")
    assert json.loads((tmp_path / "report.json").read_text()) == json.loads(json.dumps(report.to_dict()))
    assert first.name in (tmp_path / "report.html").read_text()
    refused(r"\.html or \.json", report.save, tmp_path / "report.pdf")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json"]


# Labels


def test_labels_and_names_of_ones_own_in_the_order_of_their_categories():
    X, y = make_blobs(60, centers=3, random_state=0)
    names = ["2", "10", "1"]
    labels = pd.Series(pd.Categorical.from_codes(y, names))
    report, found = explained(labels, X, names=[*"ab"], cluster_names={"10": "ten"}, title="Blobs")
    assert (found.title, [column.name for column in found.columns]) == ("Blobs", [*"ab"])
    assert [(card.label, card.size) for card in found.clusters] == [(name, 20) for name in names]
    assert (found.clusters[1].name, found.figures[0].key) == ("ten", "surrogate")
    assert not found.trust.seeds  # nothing to refit
    assert report.net.classes_.tolist() == names == [*CART(3).fit(X, labels=labels).tree_.rules().clusters]
    assert (report.net.predict(X) == labels).mean() > 0.8


@pytest.mark.parametrize("by_labels", [False, *slow(True)])
def test_the_card_of_noise_says_why(by_labels, monkeypatch):
    monkeypatch.setattr("neonxc.report.changes.SLOW", 20)
    X = make_moons(80, noise=0.05, random_state=0)[0]
    X[:5] += np.array([[9.0, 9], [-9, 9], [9, -9], [-9, -9], [0, 12]])
    X, dbscan = pd.DataFrame(X, columns=["a", "b"]), DBSCAN(0.4).fit(X)
    made = neonxc.explain(X, labels=dbscan.labels_) if by_labels else neonxc.explain(dbscan, X)
    found = made.description
    net = made.net
    rows = np.flatnonzero(dbscan.labels_ == -1)
    card = found.clusters[-1]
    logits = net(net.inputs.read(X.iloc[rows]).tensor).detach().numpy()
    assert found.noise == found.points.cluster.count(-1) == len(rows) >= 5
    assert (card.label, card.name, card.size, card.share) == ("-1", "noise", len(rows), len(rows) / 80)
    assert (card.rules, card.fidelity) == ([], None)
    relevance = neonxc.NEON(net).attribute(X.iloc[rows], target=-1).mean()
    for one in card.statements:
        assert one.relevance == pytest.approx(relevance.iloc[one.column] / relevance.abs().sum(), rel=5e-3)
        assert "medium" not in one.text
    order = rows[np.argsort(-logits[:, -1])].tolist()
    assert [item.row for item in (*card.prototypes, *card.borderline[::-1])] == order
    assert dict(card.near) == {k: n for k in (0, 1) if (n := (logits[:, :2].argmax(1) == k).sum())}
    assert f"noise ({len(rows)}, {card.share:.0%})\n    points by nearest cluster: " in str(made)
    assert not any(explained(dbscan, X)[1].points.changes)  # a fast report leaves out what takes long
    changes = {change.cluster for change in found.points.changes if change}
    assert changes
    assert changes <= {-1, 0, 1}


@pytest.mark.parametrize(
    "names",
    [pytest.param(["noise", "u", "v"], marks=pytest.mark.slow), ["noise", "u", -1], ["noise", -1], ["noise", "u"]],
)
def test_a_cluster_that_is_called_noise(names):
    """It is a cluster like others; noise is what has the label -1."""
    of_row = np.arange(90) % len(names)
    X = pd.DataFrame({"x": of_row + np.arange(90) / 1000, "y": np.arange(90) % 7})
    labels = [names[i] for i in of_row]
    _, found = explained(X, labels=labels)
    clusters = [name for name in names if name != -1]
    if len(clusters) > 1:
        assert found.title == f"{len(clusters)} clusters"
        assert [card.label for card in found.clusters[: len(clusters)]] == sorted(clusters)
        assert not any("explained like a second cluster" in note for note in found.notes)
    else:
        assert found.title == "1 cluster and noise"
        assert [card.label for card in found.clusters] == ["noise", "noise (-1)"]
    if len(clusters) > 1 and -1 in names:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            net = neonxc.neuralize(labels=labels, X=X)
        contrast = neonxc.contrast(net, X, "noise", -1)
        assert {rule.name for rule in contrast.rules} == {"noise", "noise (-1)"}


@pytest.mark.parametrize("given", [pytest.param("pipeline", marks=pytest.mark.slow), "network", "texts", "others"])
def test_one_cluster_and_outliers(given):
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 3)), columns=list("abc"))
    X.iloc[:12, 0] += np.tile([-1, 1], 6) * np.linspace(6, 40, 12)
    model = make_pipeline(StandardScaler(), DBSCAN(eps=1.4, min_samples=4)).fit(X)
    labels = None
    if given == "network":
        model = neonxc.neuralize(model, X)
    elif given == "others":
        model = HDBSCAN(min_cluster_size=80, allow_single_cluster=True, copy=True).fit(X)
    elif given == "texts":
        labels = np.where(model[-1].labels_ < 0, None, "in")
    _, found = explained(*([model, X] if labels is None else [X]), labels=labels)
    assert found.title == "1 cluster and noise"
    assert [card.label for card in found.clusters] == ["in" if given == "texts" else "0", "noise"]
    first = found.clusters[1].statements[0]
    assert (found.columns[first.column].name, first.text) == ("a", "extreme a")
    assert any(rule.text.startswith("a ") for rule in found.clusters[1].rules)
    assert any("noise, which is explained like a second cluster" in note for note in found.notes)
    if given == "network":
        assert model.classes_.tolist() == [0, -1], "the caller's network stays as it is"


# Kinds of tables and of models


def test_a_tree_a_kernel_and_networks(few):
    X = few.to_numpy()[:, :5]
    _, found = explained(IMM(3, random_state=0).fit(X), X)
    assert {figure.key: figure.value for figure in found.figures}["fidelity"] == 1
    assert explained(KernelKMeans(3, random_state=0).fit(torch.tensor(X)), torch.tensor(X))[1].k == 3
    net = neonxc.neuralize(kmeans(X), pd.DataFrame(X))  # whose columns have numbers
    assert explained(net, pd.DataFrame(X))[0].net is net


def test_sparse_matrices(few):
    X = csr_matrix(StandardScaler().fit_transform(few))
    (_, found), (_, dense) = (explained(kmeans(X), table, names=list(few)) for table in (X, X.toarray()))
    for one, other in zip(found.clusters, dense.clusters, strict=True):
        assert (one.size, one.name) == (other.size, other.name)
        assert [s.relevance for s in one.statements] == pytest.approx([s.relevance for s in other.statements])


sixty = np.arange(60)
HELD_OUT = train_test_split(sixty, test_size=0.2, random_state=0, stratify=sixty // 20)[1]


@pytest.mark.parametrize("rows", [HELD_OUT[:1], *slow(np.delete(sixty, HELD_OUT))])
def test_columns_may_have_gaps_in_some_rows_only(rows):
    labels = sixty // 20
    X = 9 * np.eye(3)[labels, :2] + np.random.default_rng(0).normal(size=(60, 2))
    frame = pd.DataFrame(X, columns=["a", "number"])
    frame["whole"] = pd.array(sixty % 7, "Int64")
    frame["truth"] = pd.array(sixty % 2 == 0, "boolean")
    frame["word"] = [*"uvw"] * 20
    frame.loc[rows, ["number", "whole", "truth", "word"]] = None
    assert explained(frame, clusters=3)[1].k == 3
    made, _ = explained(frame, labels=np.where(sixty == HELD_OUT[0], -1, labels))
    assert made.tree.tree_.n_noise == 1


def test_changes_behind_steps_that_are_no_scaling(monkeypatch):
    """A column beside the indicator of its gaps, and whole numbers behind a logarithm."""
    monkeypatch.setattr("neonxc.report.changes.SLOW", 100)
    X = pd.DataFrame(make_blobs(60, 3, centers=3, random_state=0)[0].round() + 20, columns=[*"abc"]).astype(int)
    gaps = X.astype(float)
    gaps.loc[7, "b"] = np.nan
    for step, table in ((SimpleImputer(add_indicator=True), gaps), (FunctionTransformer(np.log1p), X)):
        pipeline = make_pipeline(step, kmeans(X)).fit(table)
        assert any(neonxc.describe(pipeline, table).points.changes)


def test_clusters_of_missing_values():
    draw = np.random.default_rng(0)
    table = pd.DataFrame(draw.normal(size=(120, 2)), columns=["a", "b"])
    table.loc[:39, "a"], table.loc[80:, "b"] = np.nan, table["b"] + 5
    _, found = explained(table, labels=np.repeat([0, 1, 2], 40))
    (said,) = (one for one in found.clusters[0].statements if one.text == "a is missing")
    assert said.inside_typical == "missing"
    assert "missing" in [value for _, _, value, _ in found.pairs[0].relevance]


def test_explain_takes_and_documents_what_describe_does():
    assert signature(neonxc.explain).parameters == signature(neonxc.describe).parameters
    for function in (neonxc.explain, neonxc.describe):
        sections = re.findall(r"^    (\w+)\n    -+$", function.__doc__, flags=re.M)
        assert sections == ["Parameters", "Returns", "Raises", "Notes", "Examples"]
        documented = ", ".join(re.findall(r"^    ([\w, ]+) : ", function.__doc__, flags=re.M)).split(", ")
        assert documented == [*signature(function).parameters]
    with pytest.raises(TypeError, match=r"explain.* 'colour'"):
        neonxc.explain(WINE, colour="red")


def test_a_description_has_a_title_and_notes_of_ones_own():
    note = "From a shop."
    description = neonxc.describe(WINE, clusters=3, fast=True, title="Wines", notes=[note, note])
    assert description.title == "Wines"
    assert description.notes[0] == note
    assert description.notes.count(note) == 1


def test_no_answer_is_a_double_negation():
    table = pd.DataFrame({"size": ["big", "small"] * 30, "other": np.sin(sixty)})
    _, found = explained(CART(2).fit(table, labels=table["size"]), table)
    root = found.tree[0]
    label = found.clusters[found.tree[root.left].cluster].label
    assert root.text == f"size is {label}"  # not "size is not big"


def test_a_table_alone_is_clustered_as_the_command_does(tmp_path):
    X = load_iris(as_frame=True).data[::5].reset_index(drop=True)
    path = tmp_path / "iris.csv"
    X.to_csv(path, index=False)
    _, chosen = explained(X, notes=["from a garden"])
    choice = choose_k(X, range(2, 9), preprocessing=prepare(X).pipeline)
    assert chosen.k == choice.k
    assert "from a garden" in chosen.notes
    assert any(choice.reason in note for note in chosen.notes)
    given = (path, 3, 3, "iris.csv"), (str(path), range(2, 3), 2, "iris.csv"), (X.to_numpy(), "3", 3, "")
    given = *given, (X.to_numpy().tolist(), 3, 3, "")
    for table, k, number, name in given:
        _, found = explained(table, clusters=k, names=list("abcd"))
        assert re.fullmatch(f"{number} clusters of 30 rows.*{name}", found.title)
        assert [column.name for column in found.columns] == list("abcd")


# Texts and photos


@pytest.mark.parametrize(
    "kind", [tuple, pytest.param(lambda texts: pd.Series(texts, dtype="string"), marks=pytest.mark.slow)]
)
def test_texts_by_their_terms(kind):
    words = TfidfVectorizer()
    characters = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 3))
    for vectorizer in (words, characters):
        pipeline = make_pipeline(vectorizer, KMeans(3, n_init=3, random_state=0)).fit(TEXTS)
        _, found = explained(pipeline, kind(TEXTS))
        assert found.kind == "texts"
        card = found.clusters[pipeline.predict(["stir the soup"])[0]]
        item = card.prototypes[0]
        marked = {item.text[start:end] for start, end, value in item.marks if value > 0}
        assert ("stir" in marked) == bool(marked) == (vectorizer is words)  # n-grams of characters are not marked
        if vectorizer is words:
            assert {"stir", "soup"} <= {one.text for one in card.statements}


def test_whole_images():
    made_of = made("photos")
    found = made("photos").description
    assert "channel" not in str(made_of)
    assert f"    {found.clusters[0].prototypes[0].name}, IMG" in str(made_of)
    assert "<summary>Rules and relevance of the channels of the network</summary>" in made_of.html()
    assert (found.kind, [card.size for card in found.clusters]) == ("images", [6, 6])
    item = found.clusters[0].prototypes[0]
    shown = item.to_dict()
    assert all(shown[part].startswith("data:image/webp;base64,") for part in ("photo", "heatmap"))
    assert (item.photo.shape, item.heatmap.shape) == ((3, 16, 16), (16, 16))
    assert found.clusters[0].name == "cluster 0"  # channels say nothing to a reader


@pytest.mark.parametrize("is_network", [False, True])
@pytest.mark.parametrize("pool", ["avg", None])
def test_features_of_all_images_are_computed_once(pool, is_network):
    x = torch.rand(40, 1, 8, 8)
    x[:20] += 1
    layers = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.ReLU()).eval()
    features = FeatureExtractor(layers, "1", pool=pool)
    clusterer = kmeans(features.points(x).numpy(), 2)
    if is_network:
        clusterer = neonxc.neuralize(clusterer, x, features)
        features = None
    calls = []
    layers[0].register_forward_hook(lambda module, args, output: calls.append(len(args[0])))
    clustering = clustered_data(read(Arguments(clusterer, x, features=features)))
    assert 40 <= sum(calls) <= 44, calls  # a few single ones tell the shape
    net = clustering.whole
    labels = net.predict(x).flatten()
    assert (net.classes_[clustering.positions] == labels.numpy()).all()
    np.testing.assert_array_equal(clustering.points.data, torch.cat([*net.inputs.points(x)]))


@pytest.mark.parametrize(
    ("n_bands", "shown", "pool"),
    [
        (1, (0, 0, 0), "avg"),
        (2, (0, 1, 1), None),
        pytest.param(4, (0, 1, 2), "avg", marks=pytest.mark.slow),
        (12, (11, 6, 0), None),
        pytest.param(1, (0, 0, 0), None, marks=pytest.mark.slow),
        pytest.param(2, (0, 1, 1), "avg", marks=pytest.mark.slow),
        pytest.param(4, (0, 1, 2), None, marks=pytest.mark.slow),
        pytest.param(12, (11, 6, 0), "avg", marks=pytest.mark.slow),
    ],
)
def test_images_of_any_number_of_bands(n_bands, shown, pool):
    x = torch.rand(6, n_bands, 8, 8) * torch.arange(1, n_bands + 1)[:, None, None]  # the bands differ in scale
    x[:3, 0] += 2
    net = torch.nn.Sequential(torch.nn.Conv2d(n_bands, 4, 3, padding=1), torch.nn.ReLU()).eval()
    features = FeatureExtractor(net, "1", mean=(0.0,) * n_bands, std=(1.0,) * n_bands, pool=pool)
    net = neonxc.neuralize(kmeans(features.points(x).numpy(), 2), x, features)

    found = neonxc.describe(net, x, fast=True)
    n_locations = 1 if pool else 64
    rows = [item.row // n_locations for item in found.clusters[0].prototypes]
    photos = torch.stack([item.photo for item in found.clusters[0].prototypes])
    assert any("images= chooses others" in note for note in found.notes) == (n_bands != 1)
    for i, band in enumerate(shown):  # the order of the pixels' values stays
        values = x[rows, band].flatten()
        pixels = photos[:, i].flatten()
        inside = (pixels > 0) & (pixels < 1)
        assert inside.float().mean() > (0.9 if n_bands > 1 else 0.4)  # a grey photo has values from 0 to 1
        assert torch.corrcoef(torch.stack([values[inside], pixels[inside]]))[0, 1] > 0.999

    pictures = torch.rand(6, 8, 8, 3).numpy()
    found = neonxc.describe(net, x, fast=True, images=pictures)
    item = found.clusters[0].prototypes[0]
    expected = torch.from_numpy(pictures[item.row // n_locations]).permute(2, 0, 1)
    assert torch.allclose(item.photo.double(), expected.double(), atol=1e-6)
    refused("images needs three bands", neonxc.describe, net, x, images=[0, n_bands, 0])
    refused("one picture per input, 6", neonxc.describe, net, x, images=pictures[:2])
    refused("images= is for clusters of images", neonxc.describe, model(), WINE, images=[0, 1, 2], error=TypeError)


def test_names_of_clusters_of_photos_locations_and_texts():
    kinds = {
        "images": (images(), extractor(pool="avg"), np.arange(12) // 6),
        "locations": (images()[[0, 7]], extractor(), np.arange(512) // 256),
        "texts": (TEXTS, WordVectors.from_texts(TEXTS, n_dimensions=3), np.arange(24) % 2),
    }
    for kind, (X, features, labels) in kinds.items():
        fast = kind != "texts"
        named = np.array(["x", "y"])[labels]
        found = neonxc.explain(X, labels=named, features=features, fast=fast).description
        assert bool(found.trust.flipping) != fast
        assert (found.kind, found.n) == (kind, len(labels))
        assert [(card.label, card.size) for card in found.clusters] == [
            *zip("xy", np.bincount(labels), strict=True)
        ]
        prototypes = [item for card in found.clusters for item in card.prototypes]
        assert all(item.heatmap is not None or item.marks for item in prototypes)
        plain = found.to_dict()
        for part in ("photo", "regions"):
            assert str(plain[part]).startswith("data:image/webp") == (kind == "locations")


# Warnings and what is left out


def test_warnings_in_plain_words(few, monkeypatch):
    assert "A single column has most of the relevance: proline" in warned(explained(kmeans(few), few)[1])
    even = np.random.default_rng(0).normal(size=(90, 4))
    for most in (1000, 60):  # all points are clustered again, or a sample
        monkeypatch.setattr("neonxc.report.describe.FAST", most)
        assert "The clusters are unstable" in warned(explained(even, clusters=5)[1])
    assert "The rules assign" in warned(explained(even, clusters=7)[1])


def test_columns_that_number_or_weight_the_rows_are_named(few):
    draw = np.random.default_rng(0)
    n = len(few)
    X = few.iloc[:, :2].assign(user_id=draw.permutation(n), fnlwgt=draw.integers(10_000, 900_000, n))
    text = "user_id, fnlwgt look like identifiers or weights of the rows, but they are used as features"
    used = ColumnTransformer([("used", StandardScaler(), [*few.columns[:2]])])
    for step in (StandardScaler(), used):
        _, found = explained(make_pipeline(step, kmeans(X)).fit(X), X)
        assert (text in warned(found)) == (step is not used)


def test_warnings_of_noise_and_of_clusters_without_rules():
    draw = np.random.default_rng(0)
    X = np.concatenate([draw.normal(size=(200, 2)), draw.normal(size=(3, 2)) * 0.01])
    labels = np.r_[(X[:200, 0] > 0).astype(int), [2, 2, 2]]
    made, found = explained(X, labels=labels)
    without = [k for k, card in enumerate(found.clusters) if not card.rules]
    assert [w.clusters for w in found.warnings if w.text.startswith("No rule leads to")] == [without] != [[]]
    assert "No rule of the tree leads to this cluster." in made.html()
    labels[:80] = -1
    made, found = explained(X, labels=labels)
    rules = [rule for card in found.clusters for rule in card.rules]
    noise = [r.samples * r.precision * (1 / r.with_noise - 1 / r.precision) for r in rules if r.with_noise]
    assert min(noise) > 0
    assert sum(noise) == pytest.approx(80)
    assert f", with noise {rules[0].with_noise:.0%})" in str(made)
    assert f"({rules[0].with_noise:.0%} with noise)" in made.html()
    assert "39% of the points are noise" in warned(found)


def test_a_sample_is_no_refit_of_clusters_by_density(monkeypatch):
    X = np.concatenate([make_blobs([60, 40], centers=[[0, 0], [9, 9]], random_state=0)[0], [[50, 50]]])
    for most in (1000, 90):
        monkeypatch.setattr("neonxc.report.describe.FAST", most)
        made, found = explained(DBSCAN(eps=1.5).fit(X), X)
        assert ("stability" in {figure.key for figure in found.figures}) == (most == 1000)
    assert "including 1 noise point<" in made.html()


def far_groups() -> np.ndarray:
    """Nine groups of 30 rows each."""
    centers = 10 * np.stack(np.meshgrid(range(3), range(3)), axis=-1).reshape(9, 2)
    return make_blobs([30] * 9, centers=centers, random_state=0)[0]


@pytest.mark.parametrize(
    ("model", "counts"),
    [
        (HDBSCAN(min_cluster_size=20, copy=True), {"min_cluster_size": 10}),
        (HDBSCAN(min_cluster_size=5, min_samples=19, copy=True), {"min_cluster_size": 3, "min_samples": 10}),
        (DBSCAN(eps=3, min_samples=24), {"min_samples": 12}),
        (AgglomerativeClustering(None, distance_threshold=45), {"distance_threshold": 45 / 2**0.5}),
    ],
)
def test_refits_have_the_parameters_for_half_of_the_rows(model, counts):
    """Half of the rows have no ball of as many rows, and joining clusters of them costs less."""
    X = far_groups()
    pipeline = make_pipeline(StandardScaler(with_std=False), model).fit(X)
    assert len(set(pipeline[-1].labels_) - {-1}) == 9
    rows = np.sort(np.random.default_rng(0).permutation(len(X))[: len(X) // 2])
    expected = adjusted_rand_score(
        pipeline[-1].labels_[rows], clone(model).set_params(**counts).fit_predict(X[rows])
    )
    description = neonxc.describe(pipeline, X, fast=True)
    assert description.trust.seeds[0] == pytest.approx(expected)
    assert np.mean(description.trust.seeds) > 0.8
    assert "Refits on halves of the rows find the same clusters" in description.verdict


def test_a_graph_of_all_rows_is_none_of_half_of_them():
    X = far_groups()
    model = AgglomerativeClustering(9, connectivity=kneighbors_graph(X, 10)).fit(X)
    description = neonxc.describe(model, X, fast=True)
    assert description.trust.seeds == []
    assert "Refits" not in description.verdict


def test_refits_of_optics_keep_the_rows_by_which_distances_are_smoothed():
    X = far_groups()
    model = OPTICS(min_samples=8).fit(X)
    rows = np.sort(np.random.default_rng(0).permutation(len(X))[: len(X) // 2])
    expected = adjusted_rand_score(model.labels_[rows], clone(model).fit_predict(X[rows]))
    assert neonxc.describe(model, X, fast=True).trust.seeds[0] == pytest.approx(expected)


def test_distributions_of_values_that_differ_in_their_last_digits():
    """Bins and means need more digits than four, or six, where the spread is small beside the values."""
    generator = np.random.default_rng(0)
    labels = np.arange(300) % 2
    years = 2007 + labels + generator.integers(0, 2, 300)
    seconds = 1.7e9 + 100 * labels + generator.normal(size=300)
    table = pd.DataFrame({"year": years, "second": seconds})
    description = neonxc.describe(table, labels=labels, fast=True)
    for statement in description.clusters[0].statements:
        widths = np.diff(statement.bins)
        assert widths == pytest.approx(widths.mean(), rel=0.01)
    for column, values in zip(description.columns, (years, seconds), strict=True):
        assert column.mean == pytest.approx(values.mean(), abs=1e-4 * values.std())


def test_values_have_the_decimals_by_which_they_differ():
    """A pressure of 1013 hPa is that of all rows; what is 100 times as spread needs no decimals."""
    generator = np.random.default_rng(0)
    labels = np.arange(200) % 2
    table = pd.DataFrame({"pressure": 1013 + labels + generator.normal(0, 0.3, 200)})
    table["price"] = 31_221 + 9_000 * labels + generator.normal(0, 900, 200)
    table["year"] = 2007 + labels + np.arange(200) % 5
    description = neonxc.describe(table, labels=labels, fast=True)
    for column, values in zip(description.columns, description.points.values, strict=True):
        exact = table[column.name].iloc[description.points.rows]
        np.testing.assert_allclose(values, exact, rtol=0, atol=min(0.5, column.spread / 20))
    examples = [example for cluster in description.clusters for example in cluster.prototypes]
    printed = {description.columns[column].name: value for column, value, _ in examples[0].values}
    assert re.fullmatch(r"101\d\.\d{1,2}", printed["pressure"])
    assert re.fullmatch(r"[34]\d,\d{3}", printed["price"])
    assert re.fullmatch(r"20\d\d", printed["year"])


def test_shares_of_relevance_that_cancels_are_shares():
    rng = np.random.default_rng(0)
    _, found = explained(rng.normal(size=(90, 5)), labels=rng.integers(0, 3, 90))  # of chance: both signs
    for card in found.clusters:
        assert sum(abs(statement.relevance) for statement in card.statements) <= 1.01
        assert all(abs(share) <= 1 for item in card.borderline for _, _, share in item.values)
    np.testing.assert_allclose(np.abs(found.points.relevance).sum(0), 1, atol=0.03)


def test_a_fast_report_says_what_it_leaves_out(few):
    fast, found = explained(kmeans(few.iloc[:, :1]), few.iloc[:, :1])
    assert "auc" not in {figure.key for figure in found.figures}
    assert not found.trust.flipping
    assert all(pair.relevance for pair in found.pairs)
    assert "pixel-flipping" not in found.verdict
    assert found.source.startswith("60 rows with 1 column, 3 clusters from")
    assert not any(found.points.changes)
    assert "Left out for speed: pixel-flipping, and the smallest changes that move points" in fast.html()
    assert "Smallest changes end" not in fast.html()
    texts = " ".join(made("texts").description.notes)
    assert "Left out for speed: pixel-flipping." in texts  # whose points have no columns to change


def test_few_points_are_not_held_out():
    X = np.random.default_rng(0).normal(size=(6, 2))
    found = neonxc.explain(kmeans(X, 6), X).description
    assert found.figures[0].value == 1
    assert "held-out" not in found.verdict
    assert "too few to hold out" in found.figures[0].help
    assert "The rules assign" not in warned(found)


def test_more_points_than_are_shown():
    draw = np.random.default_rng(0)
    X = draw.normal(size=(22_000, 3)) + 4 * draw.integers(0, 2, (22_000, 1))
    X[:30] += 40
    made, found = explained(KMeans(3, init=X[[0, 30, 31]], n_init=1).fit(X), X)
    points = found.points
    labels = made.tree.predict(X)
    assert (found.n, sum(card.size for card in found.clusters)) == (22_000, 22_000)
    assert any("a stratified sample of" in note for note in found.notes)
    assert len(points.rows) <= 5000
    assert 15 <= points.cluster.count(0) <= 30  # also of a small cluster
    assert len(found.trust.disagreements) == 8
    for item in found.trust.disagreements:  # each is on the map, where the table finds its clusters and values
        at = points.rows.index(item.row)
        assert found.tree[points.leaf[at]].cluster == labels[item.row] != points.cluster[at]
    table = made.html().partition("Points that the tree assigns to another cluster</h3>")[2]
    table = table.partition("</table>")[0]
    assert (table.count("<td"), table.count("<td></td>")) == (8 * (2 + 3), 0)


def test_of_many_clusters_the_nearest_rivals_are_compared():
    X = np.random.default_rng(0).normal(size=(66, 2))
    made, found = explained(kmeans(X, 22), X)
    pairs = {(pair.a, pair.b) for pair in found.pairs}
    assert len(pairs) <= 44
    assert all((min(k, card.nearest), max(k, card.nearest)) in pairs for k, card in enumerate(found.clusters))
    assert "Of more than 20 clusters, each is compared only with its 2 nearest competitors" in made.html()


# Projections and refusals


@pytest.mark.filterwarnings("ignore")  # of umap
@pytest.mark.parametrize("projection", ["tsne", pytest.param("umap", marks=pytest.mark.slow)])
def test_projections(few, projection):
    pytest.importorskip("umap" if projection == "umap" else "sklearn")
    _, found = explained(kmeans(few), few, projection=projection)
    assert found.points.axes.replace("-", "").lower() == projection


def test_signs_of_axes_do_not_depend_on_rounding():
    """The two columns of a binary category have opposite loadings, equal up to rounding."""
    binary = np.arange(50) % 3 > 0
    space = np.column_stack([binary, ~binary, np.linspace(0, 0.1, 50)])
    for columns in (slice(None), [1, 0, 2]):
        maps = [
            projected(space[:, columns] * (1 + change), "pca")[0]
            for change in 1e-12 * np.random.default_rng(0).standard_normal((20, 3))
        ]
        np.testing.assert_allclose(maps, [maps[0]] * 20, atol=1e-6)


def test_unusable_arguments():
    X = WINE
    one = model()
    explain = neonxc.explain
    labels = one.predict(X)
    refused("projection must be", explain, one, X, projection="mds")
    refused("needs the inputs", explain, one, error=TypeError)
    refused("not both", explain, one, X, labels=labels, error=TypeError)
    refused("names needs one name per column", explain, X.to_numpy(), labels=labels, names=["a"])
    refused("row_names needs one name per input", explain, one, X, row_names=["a"])
    refused("a single cluster", explain, one, X[labels == 0])
    refused("labels", explain, X, labels=labels[:10])
    refused(r"X needs the data, got .*: explain\(model, X\)", explain, X, one, error=TypeError)
    refused(r"X needs the data, got Pipeline: .*\(X, labels=", explain, one, labels=labels, error=TypeError)
    unknown = r"cluster_names has \['7'\], but the labels are \[0, 1, 2\]"
    refused(unknown, explain, one, X, cluster_names={7: "seven"})
    refused("clusters: 'few' is neither a number", explain, X, clusters="few")
    refused("clusters= is for a table alone", explain, X, labels=labels, clusters=3, error=TypeError)


@pytest.mark.filterwarnings("ignore:the surrogate")
@pytest.mark.parametrize("is_given", [False, True], ids=["k-means", "labels"])
def test_relevance_and_residual_of_a_point_add_up_to_its_logit(is_given):
    """The page had said that the relevance does, and "further columns" had the residual."""
    data = load_wine(as_frame=True).data.iloc[::3, :5]
    kmeans = make_pipeline(StandardScaler(), KMeans(3, n_init=3, random_state=0)).fit(data)
    clustering = kmeans[-1].labels_ if is_given else kmeans
    described = neonxc.describe(clustering, data, fast=True, progress=False)
    points = described.points
    assert (points.residual is not None) == is_given
    assert ("residual" in described.to_dict()["points"]) == is_given
    residual = points.residual if is_given else np.zeros(len(points.rows))
    sums = np.array(points.relevance).sum(axis=0) * points.total + residual
    np.testing.assert_allclose(sums, points.logit, rtol=0.01, atol=0.01)
