"""examples/papers/spex.py: its references and its form of CART against slow ones, the paper's figures, its output."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import typer
from sklearn.datasets import load_iris
from sklearn.metrics.pairwise import rbf_kernel
from typer.testing import CliRunner

from neonxc.models import KernelKMeans
from neonxc.trees import CART, IMM, KernelExpand, SpExClique

DOCS = Path(__file__).parent.parent / "docs"
FIGURES = re.compile(r"(-?\d\.\d+) \((-?\d\.\d+)(?:, ([+-]\d\.\d+))?\)")


@pytest.fixture(scope="module")
def spex(example):
    return example("spex")


@pytest.fixture(scope="module")
def toys(example):
    return example("spex_toys")


@pytest.fixture(scope="module")
def references(example):
    return example("spex_references")


def run(spex, *options):
    app = typer.Typer()
    app.command()(spex.main)
    return CliRunner().invoke(app, [*map(str, options)], catch_exceptions=False)


# Figure 2


def test_cart_cuts_through_the_wide_cluster_and_spex_below_it(toys):
    X, cluster = toys.wide_cluster()
    cart, spex = (explainer.fit(X, labels=cluster) for explainer in (CART(3), SpExClique(3)))
    assert int(cart.tree_.feature[0]) == 0
    assert 0 < (cart.labels_ != cluster).sum() < 30
    assert int(spex.tree_.feature[0]) == 1
    assert (spex.labels_ == cluster).all()


def test_a_tree_of_k_means_misses_the_moons_and_one_of_their_labels_does_not(toys):
    X, moon = toys.moons()
    tree = IMM(2, random_state=0).fit(X)
    assert (toys.renumbered(tree.labels_, moon) != moon).mean() > 0.2
    assert (SpExClique(2).fit(X, labels=moon).labels_ != moon).mean() < 0.16


def test_boxes_hold_the_points_of_their_nodes(toys):
    X, cluster = toys.wide_cluster()
    tree = CART(3).fit(X, labels=cluster).tree_
    leaves = tree.apply(X)
    nodes = list(toys.cells(tree, (X.min(0) - 1, X.max(0) + 1)))
    assert [node for node, _, _ in nodes] == list(range(tree.n_nodes))
    assert [depth for _, depth, _ in nodes] == tree.depths.tolist()
    for node, _, (low, high) in nodes:
        if int(tree.feature[node]) < 0:
            inside = np.logical_and(low < X, high >= X).all(1)
            assert (inside == (leaves == node)).all()


def test_renumbered_labels_are_the_same_clusters(toys):
    truth = np.repeat([0, 1, 2], 5)
    labels = np.array([2, 0, 1])[truth]
    labels[0] = 0
    assert toys.renumbered(labels, truth).tolist() == [1, *truth.tolist()[1:]]


# References


def test_kernel_kmeans_is_that_of_the_package(references):
    X = load_iris().data
    kernel = rbf_kernel(X, gamma=0.3)
    first = np.random.default_rng(5).choice(3, len(X))
    labels = references.kernel_kmeans(kernel, 3, np.random.default_rng(5), starts=1)
    model = KernelKMeans(3, gamma=0.3, objective="feature", init=first).fit(X)
    assert (labels == model.labels_).all()
    own = references.to_means(kernel, labels, 3)[np.arange(len(X)), labels].sum()
    assert own == pytest.approx(model.objective_)


def test_distances_in_feature_space(references):
    X = np.random.default_rng(0).normal(size=(20, 3))
    labels = np.arange(20) % 3
    far = references.to_means(X @ X.T, labels, 4)  # the linear kernel's feature space is that of X
    means = np.stack([X[labels == c].mean(0) for c in range(3)])
    assert far[:, :3] == pytest.approx(((X[:, None] - means) ** 2).sum(2))
    assert (far[:, 3] == np.inf).all()


def test_the_start_that_costs_least_is_kept(references):
    kernel = rbf_kernel(np.random.default_rng(1).normal(size=(60, 2)), gamma=1)
    found = []
    for starts in (1, 8):
        labels = references.kernel_kmeans(kernel, 5, np.random.default_rng(0), starts)
        found.append(references.to_means(kernel, labels, 5)[np.arange(60), labels].sum())
    assert found[1] < found[0]


def test_the_data_are_as_in_the_paper(references):
    iris, cancer = references.small(None)
    assert (iris.k, cancer.k, cancer.X.shape) == (3, 2, (569, 30))
    assert np.flatnonzero((load_iris().data != iris.X).any(1)).tolist() == [34, 37]
    data = references.Dataset("Ecoli", np.arange(25.0)[:, None], 3, np.repeat([0, 1, 2], [10, 3, 12]))
    kept = references.without_small_classes(data)
    assert (kept.k, kept.y.tolist()) == (2, [0] * 10 + [1] * 12)
    assert kept.X[:, 0].tolist() == [*range(10), *range(13, 25)]


# CART as it is printed


def gini(labels):
    return 1 - ((np.bincount(labels) / len(labels)) ** 2).sum()


def slow_leaves(X, labels, n_leaves):
    """Leaves of best-first growth by the decrease of impurity of a leaf's average point."""

    def best(rows):
        found = (np.inf,)
        for j in range(X.shape[1]):
            for value in np.unique(X[rows, j])[:-1]:
                left = X[rows, j] <= value
                score = left.mean() * gini(labels[rows[left]]) + (~left).mean() * gini(labels[rows[~left]])
                if score < found[0] - 1e-12:
                    found = (score, rows[left], rows[~left])
        return found

    leaves = [np.arange(len(X))]
    while len(leaves) < n_leaves:
        cuts = [best(rows) for rows in leaves]
        at = int(np.argmax([gini(labels[rows]) - cut[0] for rows, cut in zip(leaves, cuts, strict=True)]))
        leaves[at : at + 1] = cuts[at][1:]
    return {frozenset(rows.tolist()) for rows in leaves}


def test_printed_cart_splits_by_the_average_point(spex):
    generator, other = np.random.default_rng(0), 0
    for _ in range(6):
        X = generator.normal(size=(90, 2))
        labels = np.unique((X.sum(1) + generator.normal(size=90)).round().clip(-2, 3), return_inverse=True)[1]
        trees = [E(6, leaf_labels="own").fit(X, labels=labels).labels_ for E in (spex.PrintedCART, CART)]
        found = [{frozenset(np.flatnonzero(own == leaf)) for leaf in range(6)} for own in trees]
        assert found[0] == slow_leaves(X, labels, 6)
        other += found[0] != found[1]
    assert other  # weighted by points, other leaves are split


# The paper's figures


def test_tables_are_read_as_they_are_printed(spex, example):
    paper = example("spex_paper")
    second = paper.read(paper.TABLE_2)
    assert len(second) == 12
    assert all(len(figures) == 3 for row in second.values() for figures in row.values())
    assert second["kernel k-means", "CART, printed"]["R15"] == (0.682, 0.876, 0.759)
    assert second["spectral", "SpEx-kNN"]["Cancer"] == (0.507, 0.490, 0.562)
    for (_, name), row in second.items():
        assert name != "reference" or {figures[2] for figures in row.values()} == {1}
    assert paper.read(paper.TABLE_5)["2",]["Cancer"] == (0.681, 0.603, -0.019)
    assert paper.read(paper.TABLE_6)["CART-spectral",] == {
        "Ecoli": (0.434, 0.493),
        "Iris": (0.610, 0.648),
        "Cancer": (0.749, 0.631),
    }
    assert paper.read(paper.TABLE_4)["EMN",]["R15"] == (101,)


def test_figures_stand_beside_the_papers(example):
    paper = example("spex_paper")
    assert paper.beside(0.5004, 0.5) == "0.500 (0.500)"
    assert paper.beside(0.4571, 0.5) == "0.457 (0.500, -0.043)"
    assert paper.beside(0.1, None) == "0.100"
    text = paper.farthest({"one": (0.5, 0.6), "other": (0.51, 0.4)})
    assert text == "Largest difference to the paper's ARI: +0.110 (other)."


def compared(cell):
    """Our figure, the paper's, and the difference in a cell; None if it is of another kind."""
    found = FIGURES.fullmatch(cell)
    return found and [float(number or 0) for number in found.groups()]


def check_table_2(spex, report):
    """The figures in parentheses are the paper's, and those before them no further than 0.03 away."""
    paper, count = spex.read(spex.TABLE_2), 0
    for place, title in enumerate(spex.INDICES.values()):
        for row in report["tables"][f"Table 2: {title}"]["rows"]:
            theirs = paper.get((row["reference"], row["algorithm"]), {})
            for name, cell in row.items():
                found = compared(cell)
                assert (found is not None) == (name in theirs)
                if found is not None:
                    assert found[1] == theirs[name][place]
                    assert found[2] == pytest.approx(found[0] - found[1], abs=1e-9)
                    assert abs(found[2]) <= 0.03
                    count += 1
    return count


@pytest.fixture(scope="module")
def report(spex, tmp_path_factory):
    out = tmp_path_factory.mktemp("spex")
    result = run(spex, "--quick", "--tables", "2;5;6;figure2", "--out", out)
    assert result.exit_code == 0
    report = json.loads((out / "spex.json").read_text(encoding="utf-8"))
    assert spex.written(report["tables"]) in result.output
    assert (out / "spex-figure2.png").read_bytes()[:4] == b"\x89PNG"
    return report


def test_table_2_is_the_papers(spex, report):
    assert check_table_2(spex, report) == 3 * 12 * 2  # Iris and Cancer
    for record in report["records"]["2"]:
        if record["algorithm"] == "reference":
            assert record["ref"] == 1


def test_table_5_is_the_papers(spex, report):
    paper = spex.read(spex.TABLE_5)
    rows = report["tables"]["Table 5: SpEx-kNN by neighbours"]["rows"]
    assert [row["neighbours"] for row in rows] == ["2", "5", "10", "15", "20", "50"]
    for row in rows:
        for name in ("Iris", "Cancer"):
            for title, theirs in zip(spex.INDICES.values(), paper[row["neighbours"],][name], strict=True):
                found = compared(row[f"{name} {title}"])
                assert found[1] == theirs
                assert abs(found[2]) <= (0.0 if title != "REF" or row["neighbours"] != "2" else 0.05)


def test_table_6_is_the_papers(spex, report):
    paper = spex.read(spex.TABLE_6)
    for row in report["tables"]["Table 6: two leaves per cluster"]["rows"]:
        for name in ("Iris", "Cancer"):
            for title, theirs in zip(("ARI", "AMI"), paper[row["algorithm"],][name], strict=True):
                found = compared(row[f"{name} {title}"])
                assert found[1] == theirs
                assert abs(found[2]) <= 0.03


def test_an_unknown_table_is_named(spex):
    result = run(spex, "--tables", "2;7")
    assert result.exit_code == 2
    assert "'7' is none of" in result.output


# What is in the documentation


@pytest.fixture(scope="module")
def published():
    return json.loads((DOCS / "benchmarks" / "spex.json").read_text(encoding="utf-8"))


def test_published_tables_are_those_of_the_records(spex, published):
    makers = {"2": spex.table_2, "3": spex.table_3, "5": spex.table_5, "6": spex.table_6, "4": spex.table_4}
    tables = {}
    for name, records in published["records"].items():
        tables |= (makers | {"kernel": spex.table_of_kernels})[name](records)
    assert tables == published["tables"]
    assert check_table_2(spex, published) == 3 * 12 * 5


def test_the_page_has_the_published_tables(spex, published):
    page = (DOCS / "spex_results.md").read_text(encoding="utf-8")
    names = re.findall("^## (.+)$", page, flags=re.M)
    assert len(names) == 6
    for name in names:
        table = spex.written({name: published["tables"][name]}).removeprefix("#")  # a level higher on the page
        assert table in page


# Kernel trees


def test_expanded_kernel_trees_cost_less(example):
    kernel = example("spex_kernel")
    data = kernel.blobs(300)
    records = kernel.compared(data, "gaussian", 0.001, data.y)
    assert [(r["tree"], r["leaves"] > 10) for r in records] == [
        ("Kernel IMM", False),
        ("Kernel ExKMC", True),
        ("Kernel Expand", True),
    ]
    assert all(1 <= r["cost"] < records[0]["cost"] + 1e-9 for r in records)
    assert all(r["ref"] > records[0]["ref"] for r in records[1:])
    assert kernel.kernel_cost(data.X, data.y, "gaussian", 0.001) > 0


def test_an_interval_may_begin_with_the_first_of_few_values():
    X = np.repeat([[0.0], [1.0], [2.0]], 4, axis=0)
    tree = KernelExpand(2, base="none").fit(X, labels=np.repeat([0, 1, 1], 4))
    assert tree.labels_.tolist() == [0] * 4 + [1] * 8
    assert tree.tree_.samples[tree.tree_.feature < 0].min() == 4


@pytest.mark.slow
def test_the_other_tables(spex, tmp_path):
    result = run(spex, "--quick", "--tables", "3;4;kernel", "--out", tmp_path)
    assert result.exit_code == 0
    report = json.loads((tmp_path / "spex.json").read_text(encoding="utf-8"))
    assert [*report["tables"]] == ["Table 3: larger tables", "Table 4: milliseconds", "Kernel trees"]
    for record in report["records"]["3"]:
        assert record["ref"] == 1 if record["algorithm"] == "reference" else record["ref"] < 0.7
    kept = {r["algorithm"]: r["ref"] for r in report["records"]["3"]}
    assert kept["CART"] > kept["CART, printed"] + 0.2  # which cuts leaves of few points again and again
    assert all(record["ms"] > 0 for record in report["records"]["4"])
    large = [record for record in report["records"]["kernel"] if record["dataset"] == "2,000 points"]
    assert [record["leaves"] for record in large] == [10, 20, 20]
