"""Reports of clusterings of every kind."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.cluster import DBSCAN, HDBSCAN, KMeans
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris, load_wine, make_blobs, make_moons
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import neonxc
from neonxc.common.numbers import percent, plural, rounded, text
from neonxc.data.preparation import prepare
from neonxc.evaluation import choose_k, cost_ratio
from neonxc.models import FeatureExtractor, KernelKMeans, WordVectors
from neonxc.plot.images import as_photos
from neonxc.report.clustering import read, stratified, with_names
from neonxc.report.clusters import of_data
from neonxc.report.tree import grow
from neonxc.report.trust import FlippingPart, Rivalry
from neonxc.report.verdict import verdict
from neonxc.trees import CART, IMM

HOSTILE = '<script>alert("1")</script>'


@pytest.fixture(autouse=True)
def _few_searches(monkeypatch):
    """The least changes across curved boundaries take seconds: most tests do without them."""
    monkeypatch.setattr("neonxc.report.points.SLOW", 0)


@pytest.fixture(scope="module")
def wine():
    return load_wine(as_frame=True).data


@pytest.fixture(scope="module")
def few(wine):
    return wine.iloc[::3]


@pytest.fixture(scope="module")
def model(wine):
    return make_pipeline(StandardScaler(), KMeans(3, n_init=10, random_state=0)).fit(wine)


@pytest.fixture(scope="module")
def report(model, wine):
    return neonxc.explain(model, wine)


def test_cards_say_what_the_network_says(report, model, wine):
    found, labels = report.contents, model.predict(wine)
    assert (found.n, found.k, found.noise, found.kind) == (178, 3, 0, "table")
    summary = neonxc.NEON(report.net).summary(wine)
    logit = neonxc.NEON(report.net).attribute(wine).sum(axis=1).to_numpy()
    for k, card in enumerate(found.cards):
        assert card.size == (labels == k).sum()
        assert [item.row for item in card.prototypes] == summary.prototypes[k][:4].tolist()
        for statement in card.statements:
            share = summary.relevance[k, statement.column] / np.abs(summary.relevance[k]).sum()
            assert statement.relevance == pytest.approx(share, rel=5e-3)
            assert found.columns[statement.column].name in statement.text
            assert sum(statement.inside) == pytest.approx(1, abs=0.02)
            assert sum(statement.outside) == pytest.approx(1, abs=0.02)
        worst = np.flatnonzero(labels == k)[np.argsort(logit[labels == k])[:4]]
        assert [item.row for item in card.borderline] == worst.tolist()


def test_rules_and_tree_are_those_of_the_fitted_tree(report, model, wine):
    labels, leaf = model.predict(wine), report.tree.tree_.apply(wine)
    nodes = report.contents.tree
    for k, card in enumerate(report.contents.cards):
        for rule in card.rules:
            inside = leaf == rule.node
            assert rule.samples == inside.sum()
            assert rule.coverage == pytest.approx((inside & (labels == k)).sum() / (labels == k).sum())
            assert rule.precision == pytest.approx((labels[inside] == k).mean())
            assert nodes[rule.node].cluster == k
        assert card.fidelity == pytest.approx((report.tree.labels_[labels == k] == k).mean())
    for i, node in enumerate(nodes):
        assert (node.left < 0) == (node.text == "")
        if node.left >= 0:
            assert nodes[node.left].parent == nodes[node.right].parent == i
            assert node.samples == nodes[node.left].samples + nodes[node.right].samples
        else:
            assert node.mistakes == (labels[leaf == i] != node.cluster).sum()


def test_figures_are_measured(report, model, wine):
    figures = {figure.key: figure for figure in report.contents.figures}
    space = model[:-1].transform(wine)
    price = cost_ratio(space, report.tree.labels_, model.predict(wine))
    assert figures["price"].value == pytest.approx(price)
    assert 0.8 < figures["fidelity"].value <= 1
    assert figures["auc"].value > 90
    assert figures["stability"].value == pytest.approx(np.mean(report.contents.trust.seeds))
    assert len(report.contents.trust.seeds) == 5
    measured = choose_k(wine, [3], preprocessing=StandardScaler()).frame.loc[3]
    assert figures["stability"].value == pytest.approx(measured["stability"])  # one definition for both
    assert figures["silhouette"].value == pytest.approx(measured["silhouette"])
    names = [curve.name for curve in report.contents.trust.flipping]
    assert names[0] == "NEON"
    assert "random" in names


@pytest.mark.parametrize(("lead", "better"), [(0.5, "no method"), (2.5, "IG")])
def test_the_verdict_compares_methods_within_their_error(lead, better, model, wine):
    clustering = read(model, wine, None, None, None, None)
    insertion, removal = Rivalry(99.5 - lead, 99.5, "IG", lead, 0.6), Rivalry(8.0, 9.0, "NCA", -1.0, 0.2)
    found = verdict(clustering, grow(clustering), FlippingPart(insertion, removal, []))
    assert f"by insertion, {better} is clearly better (IG 99.5, NEON {99.5 - lead}, standard error 0.6)" in found
    assert found.endswith("by removal, no method is clearly better (NCA 9.0, NEON 8.0, standard error 0.2).")


def test_points_of_the_map(report, model, wine):
    points, labels = report.contents.points, model.predict(wine)
    assert points.rows == list(range(178))
    assert points.cluster == labels.tolist()
    assert points.leaf == report.tree.tree_.apply(wine).tolist()
    logits = report.net(torch.tensor(wine.to_numpy())).numpy()
    np.testing.assert_allclose(points.logit, logits.max(1), rtol=5e-3)
    relevance = neonxc.NEON(report.net).attribute(wine).to_numpy()
    np.testing.assert_allclose(points.total, np.abs(relevance).sum(1), rtol=5e-3)
    relevance = relevance / np.abs(relevance).sum(1, keepdims=True)
    np.testing.assert_allclose(np.array(points.relevance).T, relevance, atol=0.01, rtol=0.06)
    rival = np.argsort(logits, axis=1)[:, -2]
    assert points.rival == rival.tolist()
    for place in range(0, 178, 20):
        change = points.changes[place]
        assert change.cluster == rival[place]
        assert 1 <= len(change.values) <= 3
    assert min(points.x) == 0
    assert max(points.y) == 1000


@pytest.mark.parametrize("kind", ["pipeline", "tensor"])
def test_least_changes_lead_there_as_they_are_printed(kind, report, wine):
    made = report
    if kind == "tensor":
        X = wine.to_numpy()[:, :5]
        made = neonxc.explain(KMeans(3, n_init=3, random_state=0).fit(X), torch.tensor(X))
    found, x = made.contents.points, wine.to_numpy().copy()[:, : 5 if kind == "tensor" else None]
    for row, change in zip(found.rows, found.changes, strict=True):
        for column, value in change.values:
            x[row, column] = float(value)
    rows = [change.cluster for change in found.changes]
    labels = made.net.predict(pd.DataFrame(x, columns=wine.columns) if kind == "pipeline" else x)
    assert labels[found.rows].tolist() == rows
    assert max(len(value) for change in found.changes for _, value in change.values) <= 12


def test_pairs_are_contrasts(report, wine):
    pairs = {(pair.a, pair.b): pair for pair in report.contents.pairs}
    assert list(pairs) == [(0, 1), (0, 2), (1, 2)]
    found = neonxc.contrast(report.net, wine, 0, 2)
    assert [text for _, text in pairs[0, 2].rules] == [rule.text() for rule in found.rules]
    strongest = report.contents.columns[pairs[0, 2].relevance[0][0]].name
    assert strongest == found.top(1).index[0]


def test_forms_of_a_report(report, tmp_path):
    frame = report.to_frame()
    assert list(frame.index) == ["0", "1", "2"]
    assert frame["size"].sum() == 178
    said = str(report)
    assert all(card.name in said for card in report.contents.cards)
    report.save(tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text()) == json.loads(json.dumps(report.to_dict()))
    report.save(tmp_path / "report.html")
    assert report.contents.cards[0].name in (tmp_path / "report.html").read_text()
    assert "srcdoc" in report._repr_html_()
    with pytest.raises(ValueError, match=r"\.html or \.json"):
        report.save(tmp_path / "report.pdf")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json"]


@pytest.mark.filterwarnings("ignore:the surrogate gives")
def test_labels_alone_and_names_of_ones_own():
    iris = load_iris(as_frame=True)
    species = iris.target_names[iris.target]
    found = neonxc.explain(
        iris.data.to_numpy(),
        labels=species,
        names=list("abcd"),
        cluster_names={"setosa": "small"},
        title="Iris",
        fast=True,
    ).contents
    assert found.title == "Iris"
    assert [column.name for column in found.columns] == list("abcd")
    assert [card.label for card in found.cards] == ["setosa", "versicolor", "virginica"]
    assert found.cards[0].name == "small"
    assert found.figures[0].key == "surrogate"
    assert [card.size for card in found.cards] == [50, 50, 50]
    assert not found.trust.seeds  # nothing to refit


@pytest.mark.filterwarnings("ignore:the surrogate gives")
def test_clusters_are_in_the_order_of_their_categories():
    X, y = make_blobs(60, centers=3, random_state=0)
    labels = pd.Series(pd.Categorical.from_codes(y, ["2", "10", "1"]))
    report = neonxc.explain(pd.DataFrame(X, columns=["a", "b"]), labels=labels, fast=True)
    assert [card.label for card in report.contents.cards] == ["2", "10", "1"]
    assert [card.size for card in report.contents.cards] == [20, 20, 20]
    assert (
        report.net.classes_.tolist() == neonxc.neuralize(labels=labels, X=X).classes_.tolist() == ["2", "10", "1"]
    )
    tree = CART(3).fit(X, labels=labels).tree_
    assert tree.classes.tolist() == list(tree.rules().clusters) == ["2", "10", "1"]
    assert (report.net.predict(pd.DataFrame(X, columns=["a", "b"])) == labels).mean() > 0.8
    assert neonxc.explain(X, labels=labels.astype(str), fast=True).net.classes_.tolist() == ["1", "10", "2"]


@pytest.mark.filterwarnings("ignore:the surrogate gives")
def test_labels_may_come_first(wine, model):
    labels = model.predict(wine)
    for given in ((labels, wine, None), (wine, None, labels)):
        clustering = read(*given[:2], given[2], None, None, None)
        assert clustering.positions.tolist() == labels.tolist()
        assert clustering.whole.fidelity_ is not None  # a surrogate


@pytest.mark.parametrize("by_labels", [False, True])
def test_the_card_of_noise_says_why(by_labels, monkeypatch):
    monkeypatch.setattr("neonxc.report.points.SLOW", 20)
    X = make_moons(80, noise=0.05, random_state=0)[0]
    X[:5] += np.array([[9.0, 9], [-9, 9], [9, -9], [-9, -9], [0, 12]])
    X, model = pd.DataFrame(X, columns=["a", "b"]), DBSCAN(0.4).fit(X)
    made = neonxc.explain(X, labels=model.labels_, fast=True) if by_labels else neonxc.explain(model, X, fast=True)
    found, net, rows = made.contents, made.net, np.flatnonzero(model.labels_ == -1)
    card, logits = found.cards[-1], net(net.inputs.read(X.iloc[rows]).tensor).detach().numpy()
    assert found.noise == found.points.cluster.count(-1) == len(rows) >= 5
    assert (card.label, card.name, card.size, card.share) == ("-1", "noise", len(rows), len(rows) / 80)
    assert sum(one.size for one in found.cards) == 80
    assert (card.rules, card.fidelity) == ([], None)
    relevance = neonxc.NEON(net).attribute(X.iloc[rows], target=-1).mean()
    for one in card.statements:
        share = relevance.iloc[one.column] / relevance.abs().sum()
        assert one.relevance == pytest.approx(share, rel=5e-3)
        assert "medium" not in one.text
    order = rows[np.argsort(-logits[:, -1])].tolist()
    assert [item.row for item in (*card.prototypes, *card.borderline[::-1])] == order
    nearest = np.bincount(logits[:, :2].argmax(1), minlength=2)
    assert dict(card.rivals) == {k: n for k, n in enumerate(nearest.tolist()) if n}
    assert sum(one.share for one in found.cards) == pytest.approx(1)
    assert made.to_frame().index.tolist() == ["0", "1", "-1"]
    assert f"noise ({len(rows)}, {percent(card.share)})\n    points by nearest cluster: " in str(made)
    targets = {change.cluster for change in found.points.changes if change}
    assert targets
    assert targets <= {-1, 0, 1}


def test_a_tree_a_kernel_and_a_network(few):
    X = few.to_numpy()[:, :5]
    tree = IMM(3, random_state=0).fit(X)
    found = neonxc.explain(tree, X, fast=True).contents
    assert {figure.key: figure.value for figure in found.figures}["fidelity"] == 1
    kernel = KernelKMeans(3, random_state=0).fit(torch.tensor(X))
    assert neonxc.explain(kernel, torch.tensor(X), fast=True).contents.k == 3
    net = neonxc.neuralize(KMeans(3, n_init=3, random_state=0).fit(X), X)
    assert neonxc.explain(net, X, fast=True).net is net


@pytest.mark.filterwarnings("ignore:the surrogate gives")
def test_a_messy_table_with_hostile_names():
    draw = np.random.default_rng(0)
    kind = draw.choice(["a", "b", "c"], 240).astype(object)
    size = draw.normal(0, 1, 240) + 4 * (kind == "a")
    size[::17] = np.nan
    kind[::23] = None
    frame = pd.DataFrame({HOSTILE: kind, 'si"ze\n': size, "flag": draw.random(240) < 0.5})
    labels = np.where(size > 2, "large</script>", "small")
    report = neonxc.explain(frame, labels=labels, fast=True)
    found = report.contents
    assert {column.name for column in found.columns} == {HOSTILE, 'si"ze\n', "flag"}
    assert {column.kind for column in found.columns} == {"category", "number"}
    assert found.notes  # what was done to the table
    assert HOSTILE not in report.html()


@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda texts: pd.Series(texts, dtype="string")])
def test_texts_by_their_terms(kind):
    texts = ["the sun and the moon shine", "salt the soup", "stars, sun and moon", "stir the soup, salt"] * 6
    pipeline = make_pipeline(TfidfVectorizer(), KMeans(2, n_init=3, random_state=0)).fit(texts)
    found = neonxc.explain(pipeline, kind(texts), fast=True).contents
    assert found.kind == "texts"
    card = found.cards[pipeline.predict(["salt soup"])[0]]
    assert {"salt", "soup"} <= {statement.text for statement in card.statements}
    item = card.prototypes[0]
    marked = {item.text[start:end] for start, end, value in item.marks if value > 0}
    assert "soup" in marked


def test_texts_by_n_grams_of_characters_are_not_marked():
    texts = ["the sun and the moon shine", "salt the soup", "stars, sun and moon", "stir the soup, salt"] * 6
    pipeline = make_pipeline(TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 3)), KMeans(2, random_state=0))
    found = neonxc.explain(pipeline.fit(texts), texts, fast=True).contents
    for card in found.cards:
        assert all(item.text in texts and not item.marks for item in card.prototypes)


def test_texts_by_word_vectors():
    texts = ["the sun and the moon shine", "salt the soup", "stars, sun and moon", "stir the soup with salt"] * 6
    words = WordVectors.from_texts(texts, n_dimensions=3)
    model = KernelKMeans(2, 2, random_state=0).fit(words.points(texts))
    found = neonxc.explain(model, texts, features=words).contents
    assert found.kind == "texts"
    assert any("soup" in card.name for card in found.cards)
    assert found.cards[0].prototypes[0].marks


@pytest.fixture(scope="module")
def photos():
    torch.manual_seed(0)
    x = torch.rand(12, 3, 16, 16) * 0.2
    x[:6, 0] += 0.7
    return x


def extractor(**options):
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 3, padding=1), torch.nn.ReLU()).eval()
    return FeatureExtractor(net, "1", mean=(0.0,) * 3, std=(1.0,) * 3, **options)


def test_networks_of_tables_whose_columns_have_numbers():
    X = pd.DataFrame(load_iris().data)
    net = neonxc.neuralize(KMeans(3, n_init=2, random_state=0).fit(X.to_numpy()), X)
    assert len(neonxc.explain(net, X, fast=True).to_frame()) == 3


def test_whole_images(photos):
    torch.manual_seed(0)
    features = extractor(pool="avg")
    model = KMeans(2, n_init=3, random_state=0).fit(features.points(photos).numpy())
    made = neonxc.explain(model, photos, features, row_names=[f"p{i}" for i in range(12)])
    found = made.contents
    assert "channel" not in str(made)
    assert f"    {found.cards[0].prototypes[0].name}, p" in str(made)
    assert "<summary>Rules and relevance of the channels of the network</summary>" in made.html()
    assert found.kind == "images"
    assert sorted(card.size for card in found.cards) == [6, 6]
    item = found.cards[0].prototypes[0]
    assert item.name.startswith("p")
    assert item.picture.startswith("data:image/webp;base64,")
    assert item.heatmap.startswith("data:image/webp;base64,")
    assert found.cards[0].name == "cluster 0"  # channels say nothing to a reader


def test_photos_are_shown_as_they_were_before_the_network(photos):
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 3, padding=1), torch.nn.ReLU()).eval()
    features = FeatureExtractor(net, "1", mean=(0.3,) * 3, std=(0.5,) * 3, pool="avg")
    x = features.preprocess(photos)
    torch.testing.assert_close(as_photos(features, x), photos)


def test_locations_of_photos(photos):
    torch.manual_seed(0)
    features = extractor()
    x = photos[:3]
    model = KMeans(2, n_init=3, random_state=0).fit(features.points(x).numpy())
    found = neonxc.explain(model, x, features, fast=True).contents
    assert (found.kind, found.n) == ("locations", 3 * 256)
    assert found.photo.startswith("data:image/webp")
    assert found.regions.startswith("data:image/webp")
    for card, size in zip(found.cards, np.bincount(model.labels_), strict=True):
        assert card.size == size
        assert card.prototypes[0].heatmap


@pytest.mark.filterwarnings("ignore:the surrogate gives")
def test_names_of_clusters_of_photos_locations_and_texts(photos):
    names, texts = np.array(["x", "y"]), ["the sun and the moon", "salt the soup"] * 9
    words = WordVectors.from_texts(texts, n_dimensions=3)
    kinds = [
        (photos, extractor(pool="avg"), np.arange(12) // 6),
        (photos[[0, 7]], extractor(), np.arange(512) // 256),
        (texts, words, np.arange(18) % 2),
    ]
    for X, features, labels in kinds:
        found = neonxc.explain(X, labels=names[labels], features=features, fast=True).contents
        assert [card.label for card in found.cards] == ["x", "y"]
        assert all(item.heatmap or item.marks for card in found.cards for item in card.prototypes)


def test_warnings_in_plain_words(few):
    raw = neonxc.explain(KMeans(3, n_init=3, random_state=0).fit(few), few, fast=True).contents
    assert any("A single column has most of the relevance: proline" in warning.text for warning in raw.warnings)
    draw = np.random.default_rng(0)
    even = pd.DataFrame(draw.random((100, 6)), columns=list("abcdef"))
    found = neonxc.explain(KMeans(7, n_init=1, random_state=0).fit(even), even, fast=True).contents
    texts = " ".join(warning.text for warning in found.warnings)
    assert "The clusters are unstable" in texts
    assert "The rules assign" in texts


def test_columns_that_number_or_weight_the_rows_are_named(few):
    draw, n = np.random.default_rng(0), len(few)
    X = few.iloc[:, :2].assign(user_id=draw.permutation(n), fnlwgt=draw.integers(10_000, 900_000, n))
    scaled = make_pipeline(StandardScaler(), KMeans(3, n_init=3, random_state=0))
    used = ColumnTransformer([("used", StandardScaler(), [*few.columns[:2]])])
    text = "user_id, fnlwgt look like identifiers or weights of the rows, but they are used as features"
    alone = make_pipeline(used, KMeans(3, n_init=3, random_state=0)).fit(X)
    for model in (scaled.fit(X), alone):
        assert any(text in one.text for one in neonxc.explain(model, X, fast=True).contents.warnings) == (
            model is scaled
        )


def test_more_points_than_are_shown():
    draw = np.random.default_rng(0)
    X = draw.normal(size=(22_000, 3)) + 4 * draw.integers(0, 2, (22_000, 1))
    made = neonxc.explain(KMeans(2, n_init=1, random_state=0).fit(X), X, fast=True)
    found = made.contents
    assert found.n == 22_000
    assert any("a stratified sample of" in note for note in found.notes)
    points = found.points
    assert len(points.rows) <= 5000
    assert sum(card.size for card in found.cards) == 22_000
    shown = {row: (own, leaf) for row, own, leaf in zip(points.rows, points.cluster, points.leaf, strict=True)}
    labels = made.tree.predict(X)
    assert len(found.trust.disagreements) == 8
    for item in found.trust.disagreements:  # each is on the map, where the table finds its clusters and values
        own, leaf = shown[item.row]
        assert found.tree[leaf].cluster == labels[item.row] != own
    table = (
        made.html().partition("Points that the tree assigns to another cluster</h3>")[2].partition("</table>")[0]
    )
    assert table.count("<td") == 8 * (2 + 3)
    assert "<td></td>" not in table


@pytest.mark.filterwarnings("ignore")  # of umap
@pytest.mark.parametrize(
    ("projection", "package"), [("tsne", "sklearn"), pytest.param("umap", "umap", marks=pytest.mark.slow)]
)
def test_projections(model, wine, projection, package):
    pytest.importorskip(package)
    found = neonxc.explain(model, wine.iloc[::3], projection=projection, fast=True).contents
    assert found.points.axes.replace("-", "").lower() == projection


def test_signs_of_axes_do_not_depend_on_rounding():
    from neonxc.report.points import projected

    binary = np.arange(50) % 3 > 0
    space = np.column_stack([binary, ~binary, np.linspace(0, 0.1, 50)])
    for columns in (slice(None), [1, 0, 2]):
        maps = [
            projected(space[:, columns] * (1 + change), "pca")[0]
            for change in 1e-12 * np.random.default_rng(0).standard_normal((20, 3))
        ]
        np.testing.assert_allclose(maps, [maps[0]] * 20, atol=1e-6)


def test_unknown_projections(model, wine):
    with pytest.raises(ValueError, match="projection must be"):
        neonxc.explain(model, wine, projection="mds")


def test_unusable_arguments(model, wine):
    labels = model.predict(wine)
    with pytest.raises(TypeError, match="needs the inputs"):
        neonxc.explain(model)
    with pytest.raises(TypeError, match="not both"):
        neonxc.explain(model, wine, labels=labels)
    with pytest.raises(ValueError, match="names needs one name per column"):
        neonxc.explain(wine.to_numpy(), labels=labels, names=["a"])
    with pytest.raises(ValueError, match="row_names needs one name per input"):
        neonxc.explain(model, wine, row_names=["a"])
    with pytest.raises(ValueError, match="a single cluster"):
        neonxc.explain(model, wine[labels == 0])
    with pytest.raises(ValueError, match="labels"):
        neonxc.explain(wine, labels=labels[:10])
    with pytest.raises(TypeError, match=r"X needs the data, got .*: explain\(model, X\)"):
        neonxc.explain(wine, model)
    with pytest.raises(TypeError, match=r"X needs the data, got Pipeline: .* explain\(X, labels=...\)"):
        neonxc.explain(model, labels=labels)
    with pytest.raises(ValueError, match=r"several columns of the same name: \['a'\]"):
        neonxc.explain(model[-1], wine.set_axis(["a", "a", *wine.columns[2:]], axis=1))
    with pytest.raises(ValueError, match=r"cluster_names has \['7'\], but the labels are \[0, 1, 2\]"):
        neonxc.explain(model, wine, cluster_names={7: "seven"})


def test_numbers_as_they_are_printed():
    assert [text(value) for value in (3, 3.0, 0.123456, 1e-7, None, True, "x", 1234567.0, 1060.4, 1985)] == [
        "3", "3", "0.1235", "1e-07", "missing", "true", "x", "1,234,567", "1060", "1985",
    ]  # fmt: skip
    assert rounded([1.23456, float("nan"), 1234567]) == [1.23, 0, 1230000]
    assert [percent(share) for share in (0.5, 0.994, 1, 0.003, 0)] == ["50%", "99.4%", "100%", "0.3%", "0%"]
    near = (0.9996, 1e-9, -0.9996, -1e-9, 1.0001, -1, float("nan"), None)
    assert [percent(share) for share in near] == [
        "99.9%", "0.1%", "-99.9%", "-0.1%", "100.1%", "-100%", "–", "–",
    ]  # fmt: skip
    assert [text(value, 3, signed=True) for value in (1060.4, -0.5, 0.0)] == ["+1060", "-0.5", "+0"]


def test_samples_have_points_of_small_clusters():
    own = np.repeat([0, 1, 2], [10_000, 30, 500])
    found = stratified(own, 1000)
    assert np.array_equal(np.unique(found), found)
    sizes = np.bincount(own[found])
    assert sizes[1] == 30
    assert sizes[2] == 50
    assert 900 < sizes[0] < 1000
    assert np.array_equal(stratified(own, 20_000), np.arange(len(own)))


def test_trees_and_networks_of_mixed_tables(few):
    table = few.iloc[:, :3].assign(size=np.where(few["alcohol"] > 13, "big", "small"))
    labels = KMeans(3, n_init=3, random_state=0).fit_predict(few)
    found = neonxc.explain(CART(3).fit(table, labels=labels), table, fast=True).contents
    assert sum(card.size for card in found.cards) == len(table)
    numbers = ColumnTransformer([("n", StandardScaler(), [*few.columns[:3]]), ("c", OneHotEncoder(), ["size"])])
    mixed = make_pipeline(numbers, KMeans(2, n_init=3, random_state=0)).fit(table)
    labels = mixed.predict(table)
    found = neonxc.explain(neonxc.neuralize(mixed, table), table, fast=True).contents
    assert [card.size for card in found.cards] == np.bincount(labels).tolist()


def test_no_answer_is_a_double_negation():
    table = pd.DataFrame({"size": ["big", "small"] * 30, "other": np.sin(np.arange(60))})
    found = neonxc.explain(CART(2).fit(table, labels=table["size"]), table, fast=True).contents
    root = found.tree[0]
    assert root.text in ("size is big", "size is small")  # not "size is not big"
    assert found.cards[found.tree[root.left].cluster].label == root.text.removeprefix("size is ")


def test_sparse_matrices(few):
    X = csr_matrix(StandardScaler().fit_transform(few))
    model = KMeans(3, n_init=3, random_state=0).fit(X)
    found = neonxc.explain(model, X, names=list(few.columns), fast=True).contents
    dense = neonxc.explain(model, X.toarray(), names=list(few.columns), fast=True).contents
    for one, other in zip(found.cards, dense.cards, strict=True):
        assert (one.size, one.name) == (other.size, other.name)
        assert [s.relevance for s in one.statements] == pytest.approx([s.relevance for s in other.statements])


def test_few_points_are_not_held_out():
    X = np.random.default_rng(0).normal(size=(6, 2))
    found = neonxc.explain(KMeans(6, n_init=1, random_state=0).fit(X), X).contents
    assert found.figures[0].value == 1
    assert "held-out" not in found.verdict
    assert "too few to hold out" in found.figures[0].help
    assert not any("The rules assign" in warning.text for warning in found.warnings)


@pytest.mark.filterwarnings("ignore:the surrogate")
def test_warnings_of_noise_and_of_clusters_without_rules():
    draw = np.random.default_rng(0)
    X = np.concatenate([draw.normal(size=(200, 2)), draw.normal(size=(3, 2)) * 0.01])
    labels = np.r_[(X[:200, 0] > 0).astype(int), [2, 2, 2]]
    made = neonxc.explain(X, labels=labels, fast=True)
    found = made.contents
    without = [k for k, card in enumerate(found.cards) if not card.rules]
    assert without
    assert "No rule of the tree leads to this cluster." in made.html()
    assert [w.clusters for w in found.warnings if w.text.startswith("No rule leads to")] == [without]
    labels[:80] = -1
    made = neonxc.explain(X, labels=labels, fast=True)
    found = made.contents
    rules = [rule for card in found.cards for rule in card.rules]
    assert all(rule.with_noise is None or rule.with_noise < rule.precision for rule in rules)
    noise = [
        rule.samples * rule.precision * (1 / rule.with_noise - 1 / rule.precision)
        for rule in rules
        if rule.with_noise
    ]
    assert sum(noise) == pytest.approx(80)
    assert f", with noise {percent(rules[0].with_noise)})" in str(made)
    assert f"({percent(rules[0].with_noise)} with noise)" in made.html()
    assert any(warning.text.startswith("39% of the points are noise") for warning in found.warnings)


def test_a_column_beside_the_indicator_of_its_gaps():
    X = pd.DataFrame(make_blobs(60, 3, centers=3, random_state=0)[0], columns=[*"abc"])
    X.loc[7, "b"] = np.nan
    model = make_pipeline(SimpleImputer(add_indicator=True), KMeans(3, n_init=3, random_state=0)).fit(X)
    changes = neonxc.explain(model, X, fast=True).contents.points.changes
    assert any(changes)


def test_whole_numbers_behind_a_logarithm(monkeypatch):
    monkeypatch.setattr("neonxc.report.points.SLOW", 100)
    X = pd.DataFrame(make_blobs(60, 3, centers=3, random_state=0)[0].round() + 20, columns=[*"abc"]).astype(int)
    model = make_pipeline(FunctionTransformer(np.log1p), KMeans(3, n_init=3, random_state=0)).fit(X)
    assert any(neonxc.explain(model, X, fast=True).contents.points.changes)


@pytest.mark.filterwarnings("ignore:the surrogate")
def test_clusters_of_missing_values():
    draw = np.random.default_rng(0)
    a, b = np.where(np.arange(120) < 40, np.nan, draw.normal(size=120)), draw.normal(size=120)
    b[80:] += 5
    X = pd.DataFrame({"a": a, "b": b})
    found = neonxc.explain(X, labels=np.repeat([0, 1, 2], 40), fast=True).contents
    said = {found.columns[one.column].name: one for one in found.cards[0].statements}
    assert (said["a"].text, said["a"].inside_typical) == ("a is missing", "missing")
    pair = found.pairs[0]
    assert {typical for column, _, typical, _ in pair.relevance if found.columns[column].name == "a"} == {
        "missing"
    }


def test_a_table_alone_is_clustered_as_the_command_does(tmp_path):
    X = load_iris(as_frame=True).data[::3].reset_index(drop=True)
    X.to_csv(tmp_path / "iris.csv", index=False)
    chosen = neonxc.explain(X, fast=True, notes=["from a garden"]).contents
    choice = choose_k(X, range(2, 9), preprocessing=prepare(X).pipeline)
    assert chosen.k == choice.k
    assert any(choice.reason in note for note in chosen.notes)
    assert "from a garden" in chosen.notes
    found = neonxc.explain(tmp_path / "iris.csv", clusters=3, names=list("abcd"), fast=True).contents
    assert found.k == 3
    assert [column.name for column in found.columns] == list("abcd")
    assert found.title == "3 clusters of 50 rows of iris.csv"
    for given in (X.to_numpy(), str(tmp_path / "iris.csv")):
        prepared, of_three = of_data(with_names(given, list("abcd")), 3, "iris.csv")
        assert list(prepared.frame.columns) == list("abcd")
        assert of_three.what == found.title
    assert len(of_data(X, "2-4", "iris.csv")[1].model[-1].cluster_centers_) == 2
    with pytest.raises(ValueError, match="clusters: 'few' is neither a number"):
        neonxc.explain(X, clusters="few")
    with pytest.raises(TypeError, match="clusters= is for a table alone"):
        neonxc.explain(X, labels=np.zeros(50), clusters=3)


def test_a_fast_report_says_what_it_leaves_out(model, wine):
    made = neonxc.explain(model, wine, fast=True)
    found = made.contents
    assert "auc" not in {figure.key for figure in found.figures}
    assert not found.trust.flipping
    assert all(pair.relevance and not pair.rules for pair in found.pairs)
    assert "pixel-flipping" not in found.verdict
    page = made.html()
    assert "Left out for speed: the trees that separate pairs of clusters, and pixel-flipping." in page
    assert "<th scope=col class=n>Accuracy" not in page


@pytest.mark.filterwarnings("ignore:the surrogate")
@pytest.mark.parametrize("given", ["model", "pipeline", "network", "labels", "texts", "others"])
def test_one_cluster_and_outliers(given):
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 3)), columns=list("abc"))
    X.iloc[:12, 0] += np.tile([-1, 1], 6) * np.linspace(6, 40, 12)
    model = DBSCAN(eps=1.4, min_samples=4).fit(X)
    labels, named = model.labels_, {"labels": -1, "texts": None}
    cases = {
        "model": (model, X),
        "pipeline": (make_pipeline(StandardScaler(), DBSCAN(eps=1.4, min_samples=4)).fit(X), X),
        "network": (neonxc.neuralize(model, X), X),
        "others": (HDBSCAN(min_cluster_size=80, allow_single_cluster=True, copy=True).fit(X), X),
    }
    kept = np.where(labels < 0, named.get(given), labels if given == "labels" else "in")
    made = neonxc.explain(*cases.get(given, (X,)), labels=None if given in cases else kept, fast=True)
    found = made.contents
    assert found.title == "1 cluster and noise"
    assert [card.label for card in found.cards] == ["in" if given == "texts" else "0", "noise"]
    first = found.cards[1].statements[0]
    assert found.columns[first.column].name == "a"
    assert first.text == "extreme a"
    assert any(rule.text.startswith("a ") for rule in found.cards[1].rules)
    assert any("noise, which is explained like a second cluster" in note for note in found.notes)
    assert "1 cluster and noise" in made.html()
    if given == "network":
        assert cases["network"][0].classes_.tolist() == [0, -1], "the caller's network stays as it is"


def test_one_thing_is_not_several():
    X = pd.DataFrame(np.r_[np.zeros(20), np.ones(20), 9.0], columns=["a"])
    labels = np.r_[np.zeros(20), np.ones(20), -1].astype(int)
    made = neonxc.explain(CART(2).fit(X[:-1], labels=labels[:-1]), X, fast=True)
    assert made.contents.what.startswith("41 rows with 1 column, 2 clusters from")
    found = neonxc.explain(DBSCAN(eps=0.5).fit(X), X, fast=True)
    assert "including 1 noise point<" in found.html()
    assert [plural(n, "row") for n in (0, 1, 10_000)] == ["0 rows", "1 row", "10,000 rows"]


@pytest.mark.filterwarnings("ignore:the surrogate")
def test_shares_of_relevance_that_cancels_are_shares():
    rng = np.random.default_rng(0)
    X, labels = rng.normal(size=(90, 5)), rng.integers(0, 3, 90)
    found = neonxc.explain(X, labels=labels, fast=True).contents  # relevance of clusters of chance has both signs
    for card in found.cards:
        assert sum(abs(statement.relevance) for statement in card.statements) == pytest.approx(1, abs=0.01)
        assert all(abs(share) <= 1 for item in card.borderline for _, _, share in item.values)
    np.testing.assert_allclose(np.abs(found.points.relevance).sum(0), 1, atol=0.03)


@pytest.mark.parametrize("fast", [True, False])
def test_clusters_of_noise_are_unstable(fast, monkeypatch):
    monkeypatch.setattr("neonxc.report.explain.FAST", 100)
    X = np.random.default_rng(0).normal(size=(150, 4))
    found = neonxc.explain(X, clusters=4, fast=fast).contents
    assert any(warning.text.startswith("The clusters are unstable") for warning in found.warnings)


def test_a_sample_is_no_refit_of_clusters_by_density(monkeypatch):
    X, _ = make_blobs([60, 40], centers=[[0, 0], [9, 9]], random_state=0)
    X = np.concatenate([X, [[50, 50]]])
    for most, stability in ((1000, True), (90, False)):
        monkeypatch.setattr("neonxc.report.explain.FAST", most)
        found = neonxc.explain(DBSCAN(eps=1.5).fit(X), X, fast=True).contents
        assert any(figure.key == "stability" for figure in found.figures) is stability


HELD_OUT = train_test_split(np.arange(60), test_size=0.2, random_state=0, stratify=np.arange(60) // 20)[1]


@pytest.mark.filterwarnings("ignore:the surrogate")
@pytest.mark.parametrize("rows", [HELD_OUT[:1], HELD_OUT, np.delete(np.arange(60), HELD_OUT)])
def test_columns_may_have_gaps_in_some_rows_only(rows):
    labels = np.arange(60) // 20
    X = 9 * np.eye(3)[labels, :2] + np.random.default_rng(0).normal(size=(60, 2))
    frame = pd.DataFrame(X, columns=["a", "number"])
    frame["whole"] = pd.array(np.arange(60) % 7, "Int64")
    frame["truth"] = pd.array(np.arange(60) % 2 == 0, "boolean")
    frame["word"] = np.array(["u", "v", "w"], object)[np.arange(60) % 3]
    frame.loc[rows, ["number", "whole", "truth", "word"]] = None
    assert neonxc.explain(frame, clusters=3, fast=True).contents.k == 3
    tree = grow(read(None, frame, np.where(np.arange(60) == HELD_OUT[0], -1, labels), None, None, None))
    assert tree.tree.n_noise == 1


def test_of_many_clusters_the_nearest_rivals_are_compared():
    X = np.random.default_rng(0).normal(size=(120, 3))
    made = neonxc.explain(KMeans(24, n_init=1, random_state=0).fit(X), X, fast=True)
    pairs = {(pair.a, pair.b) for pair in made.contents.pairs}
    assert len(pairs) <= 48
    for k, card in enumerate(made.contents.cards):
        assert (min(k, card.nearest), max(k, card.nearest)) in pairs
    assert "Of more than 20 clusters, each is compared only with its 2 nearest rivals" in made.html()


def test_a_wide_table(monkeypatch):
    monkeypatch.setattr("neonxc.report.points.SLOW", 100)
    X = 1e-3 * np.random.default_rng(0).normal(size=(60, 240))
    X[:30, 7] += 40
    made = neonxc.explain(KMeans(2, n_init=1, random_state=0).fit(X), X)
    assert "Trees test only the 200 columns most relevant to the pair, of 240." in made.html()
    points = made.contents.points
    moved = X.copy()
    for row, change in zip(points.rows, points.changes, strict=True):
        for column, value in change.values:
            moved[row, int(made.contents.columns[column].name[1:])] = float(value)
    assert (made.net.predict(moved) != made.net.predict(X)).all()  # the whole change is shown
