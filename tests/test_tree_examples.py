"""The experiments of examples/papers/exshallow.py and examples/papers/exkmc.py, on a small scale, and the data they make."""

import gzip
import json

import numpy as np
import pytest
import typer
from scipy import stats
from sklearn.cluster import KMeans
from typer.testing import CliRunner

from neonxc.trees import CART, IMM, ExKMC


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One table to read, and two that are no numeric tables with a label."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(60, 3)) + np.arange(60)[:, None] % 4 * 6
    rows = [",".join([*map(repr, map(float, row)), "wxyz"[i % 4]]) for i, row in enumerate(X)]
    path = tmp_path_factory.mktemp("data")
    (path / "four.csv.gz").write_bytes(gzip.compress("\n".join(["a,b,c,label", *rows]).encode()))
    (path / "names.csv").write_text("a,label\nx,0\ny,1\n")
    (path / "income.csv").write_text("a,income\n1,0\n2,1\n")
    return path


def run(main, *options):
    app = typer.Typer()
    app.command()(main)
    result = CliRunner().invoke(app, [*map(str, options)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def size_of(path):
    """Width and height of a PNG, in pixels."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def table_of(text, title):
    """Rows of a markdown table as {first cell: cells}, without the marks of significance."""
    lines = text.split(f"### {title}\n\n")[1].split("\n\n")[0].splitlines()
    rows = [[cell.strip(" *▲▼") for cell in line.strip("|").split("|")] for line in lines]
    assert len({len(line) for line in lines}) == 1  # aligned
    return {row[0]: row for row in rows[2:]}


# ExShallow


@pytest.fixture(scope="module")
def exshallow_run(example, folder, tmp_path_factory):
    """Its module, what it printed, its records, its folder."""
    module, datasets, out = (
        example("exshallow"),
        example("datasets"),
        tmp_path_factory.mktemp("runs") / "exshallow",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "toys", lambda *names: datasets.toys("iris"))
        text = run(module.main, "--quick", "--seeds", 2, "--data", folder, "--out", out)
    return module, text, json.loads((out / "results.json").read_text()), out


def test_exshallow_writes_tables_records_and_figures(exshallow_run):
    exshallow, text, results, out = exshallow_run
    assert (out / "tables.md").read_text(encoding="utf-8").strip() in text
    trees, sweep = results["trees"], results["depth factors"]
    algorithms = {"k-means", "ExShallow", "ExGreedy", "IMM", "ExKMC", "ExShallow*"}
    assert {(r["dataset"], r["k"], r["seed"], r["algorithm"]) for r in trees} == {
        (name, k, seed, algorithm)
        for name, k in (("iris", 3), ("four", 4))
        for seed in (0, 1)
        for algorithm in algorithms
    }
    for record in trees:
        if record["algorithm"] != "k-means":
            assert record["cost"] >= 1 - 1e-9
            assert 1 <= record["waes"] <= record["wad"] < record["k"]
            assert 0 <= record["nmi"] <= 1
        base = exshallow.select(
            trees, "seconds", dataset=record["dataset"], seed=record["seed"], algorithm="k-means"
        )
        assert record["seconds"] >= base[0] > 0
    assert {r["depth_factor"] for r in sweep} == set(exshallow.FACTORS[::3])
    assert len(sweep) == 2 * 2 * len(exshallow.FACTORS[::3])
    width, height = size_of(out / "figures_4_5.png")
    assert width > height > 300


def test_exshallow_tables_are_the_means_of_the_records(exshallow_run):
    exshallow, text, results, _ = exshallow_run
    for title, metric in (("cost ratio", "cost"), ("WAES", "waes"), ("WAD", "wad"), ("NMI", "nmi")):
        table = table_of(text, f"Table 2: {title}")
        assert list(table) == ["iris", "four", "median"]
        for column, algorithm in enumerate(exshallow.ALGORITHMS, start=2):
            means = [
                exshallow.select(results["trees"], metric, dataset=name, algorithm=algorithm).mean()
                for name in ("iris", "four")
            ]
            found = [float(table[name][column]) for name in ("iris", "four", "median")]
            assert found == pytest.approx([*means, np.median(means)], abs=0.0051)
    assert table_of(text, "Table 2: cost ratio")["iris"][2:] == ["1.04"] * 4  # as in the paper
    assert len(table_of(text, "Table 3: a tuned depth factor")["iris"]) == 10
    assert len(table_of(text, "Table 4: seconds")["median"]) == 7


def test_exshallow_goals_are_those_of_exkmc(exshallow_run):
    exshallow, _, results, _ = exshallow_run
    for record in results["trees"]:
        if record["algorithm"] == "ExShallow*":
            goal = {key: record[key] for key in ("dataset", "seed")}
            cost = exshallow.select(results["trees"], "cost", algorithm="ExKMC", **goal)[0]
            size = exshallow.select(results["trees"], "waes", algorithm="ExKMC", **goal)[0]
            assert record["cost"] <= cost * (1 + 1e-9) or record["depth_factor"] == 0
            assert record["waes"] <= size + 1e-9
            assert record["depth_factor"] >= 0


def test_marks_are_those_of_one_sided_tests(example):
    exshallow = example("exshallow")
    generator = np.random.default_rng(0)
    base = generator.normal(size=30)
    for shift in (-1, -0.3, 0, 0.3, 1):
        values = base[::-1] + shift + generator.normal(size=30) / 2
        larger = stats.ttest_ind(values, base, equal_var=True, alternative="greater").pvalue < 0.05
        smaller = stats.ttest_ind(values, base, equal_var=True, alternative="less").pvalue < 0.05
        assert exshallow.differs(values, base) == "▲" * int(larger) + "▼" * int(smaller)
    same = np.full(5, 2.0)
    assert [exshallow.differs(same + add, same) for add in (0, 1, -1)] == ["", "▲", "▼"]
    assert exshallow.differs(same[:1] + 1, same[:1]) == ""  # one seed says nothing


def test_interval(example):
    values = np.array([1.0, 2, 4, 8])
    low, high = stats.t.interval(0.95, 3, loc=values.mean(), scale=stats.sem(values))
    assert example("exshallow").interval(values) == pytest.approx((high - low) / 2)
    assert example("exshallow").interval(values[:1]) == 0


def test_the_best_of_a_row_is_bold(example):
    exshallow = example("exshallow")
    records = [
        {"dataset": "data", "k": 3, "algorithm": name, "cost": cost, "nmi": cost}
        for name, cost in (("A", 1.0), ("B", 1.5), ("B", 1.5), ("A", 1.0))
    ]
    cost, nmi = (exshallow.compared(records, metric, ["A", "B"], "A")[0] for metric in ("cost", "nmi"))
    assert cost == ["data", "3", "**1.00** ", "1.50▲"]
    assert nmi == ["data", "3", "1.00 ", "**1.50**▲"]


# ExKMC


@pytest.fixture(scope="module")
def exkmc_run(example, folder, tmp_path_factory):
    """Its module, what it printed, its records, its folder."""
    module, datasets, out = example("exkmc"), example("datasets"), tmp_path_factory.mktemp("runs") / "exkmc"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "toys", lambda *names: datasets.toys("iris"))
        text = run(module.main, "--quick", "--seeds", 2, "--data", folder, "--out", out, "--no-synthetic")
    return module, text, json.loads((out / "results.json").read_text()), out


def test_exkmc_writes_tables_records_and_figures(exkmc_run):
    exkmc, text, results, out = exkmc_run
    assert (out / "tables.md").read_text(encoding="utf-8").strip() in text
    trees = results["trees"]
    assert {(r["dataset"], r["method"], r["seed"], r["leaves"] / r["k"]) for r in trees} == {
        (name, method, seed, leaves)
        for name in ("iris", "four")
        for method in exkmc.STYLES
        for seed in (0, 1)
        for leaves in range(1, 6)
    }
    assert len(trees) == 2 * 6 * 2 * 5
    assert all(r["cost"] >= 1 - 1e-9 for r in trees)
    for record in trees:
        if record["method"] == exkmc.BASED:
            assert record["surrogate"] >= record["cost"] - 1e-4  # k-means stops a little before its minimum
    rows = text.split("### Figure 2: cost ratio")[1].split("###")[0]
    assert rows.count("iris") == rows.count("four") == 3
    assert len(table_of(text, "Figure 4: seconds, k-means included")["iris"]) == 4
    for name in ("figure_2", "figure_4", "figure_5"):
        assert min(size_of(out / f"{name}.png")) > 300


def test_exkmc_costs_fall_with_every_leaf(exkmc_run):
    exkmc, _, results, _ = exkmc_run
    for name in ("iris", "four"):
        for seed in (0, 1):
            surrogate = exkmc.select(results["trees"], "surrogate", dataset=name, method=exkmc.BASED, seed=seed)
            assert len(surrogate) == 5
            assert (np.diff(surrogate) <= 1e-12).all()
    # Its clusters are far apart: every method that knows them finds them with as many leaves
    found = exkmc.select(results["trees"], "cost", dataset="four", method=exkmc.BASED, leaves=4)
    assert found == pytest.approx(1)


def test_times_add_up(exkmc_run):
    _, _, results, _ = exkmc_run
    times = {(r["dataset"], r["seed"], r["method"]): r["seconds"] for r in results["times"]}
    for (name, seed, _), seconds in times.items():
        assert seconds >= times[name, seed, "KMeans"] > 0


def test_leaves_get_the_center_that_costs_least(example):
    distances = np.array([[0.0, 1], [3, 1], [5, 0], [0, 9]])
    assert example("exkmc").labelled(np.array([0, 0, 2, 2]), distances).tolist() == [1, 1, 0, 0]


def test_grids_are_the_parameters_of_their_methods(example):
    exkmc = example("exkmc")
    for name, (method, grid) in exkmc.GRIDS.items():
        assert set(grid) <= set(method().get_params())
        assert all(set(values) <= set(grid[key]) for key, values in exkmc.QUICK[name].items())


# Data


def test_tables_of_a_folder(example, folder):
    (data,) = example("datasets").tables(folder)
    assert (data.name, data.k, data.X.shape) == ("four", 4, (60, 3))


def test_toys_have_as_many_clusters_as_classes(example):
    found = example("datasets").toys()
    assert [(data.name, data.k, len(data.X)) for data in found] == [
        ("iris", 3, 150),
        ("wine", 3, 178),
        ("breast cancer", 2, 569),
        ("digits", 10, 1797),
    ]


def test_synthetic_one(example):
    data = example("datasets").synthetic_one()
    X = data.X
    assert (data.k, X.shape) == (3, (5000, 1000))
    assert (X[:2, 0] == 1000).all()
    assert (X[0, 1:] == 1).all()
    assert not X[1, 1:].any()
    rest = X[2:]
    assert not rest[:, 0].any()
    ones = rest[:, 1:].sum(1)
    assert sorted(zip(*np.unique(ones, return_counts=True), strict=True)) == [(100, 2499), (899, 2499)]
    chosen = (rest[ones == 100][:, 1:]).mean(0)
    assert chosen == pytest.approx(100 / 999, abs=5 * np.sqrt(0.1 * 0.9 / 2499))  # any feature, equally often
    assert np.array_equal(X, example("datasets").synthetic_one().X)
    assert not np.array_equal(X, example("datasets").synthetic_one(seed=1).X)


def test_synthetic_two(example):
    data = example("datasets").synthetic_two(k=8, d=200)
    assert (data.k, data.X.shape) == (8, (1600, 200))
    assert set(np.unique(data.X)) == {-1, 0, 1}
    assert ((data.X == 0).sum(1) == 1).all()
    clusters = data.X.reshape(8, 200, 200)
    codewords = np.sign(clusters.sum(1))
    assert (np.abs(codewords) == 1).all()
    for cluster, codeword in zip(clusters, codewords, strict=True):
        assert sorted(np.argmax(cluster == 0, axis=1)) == list(range(200))  # each feature once
        assert ((cluster == codeword) | (cluster == 0)).all()
    apart = (codewords[:, None] != codewords).sum(2)[~np.eye(8, dtype=bool)]
    assert apart.min() > 200 / 4  # about half the features
    assert example("datasets").synthetic_two.__defaults__[:2] == (30, 1000)


def test_synthetic_one_is_hard_for_cart(example):
    data = example("datasets").synthetic_one(400, 60, nu=70, changed=6)
    centers = KMeans(3, n_init=3, random_state=0).fit(data.X).cluster_centers_
    cart, exkmc = (E.fit(data.X, centers=centers) for E in (CART(3), ExKMC(3, max_leaves=3)))
    assert cart.inertia_ > 3 * exkmc.inertia_


def test_synthetic_two_is_hard_for_as_many_leaves_as_clusters(example):
    data = example("datasets").synthetic_two(6, 60)
    model = KMeans(6, n_init=3, random_state=0).fit(data.X)
    cost = [E.fit(data.X, centers=model.cluster_centers_).inertia_ for E in (IMM(6), ExKMC(6, max_leaves=30))]
    assert cost[0] > 1.5 * model.inertia_
    assert cost[1] == pytest.approx(model.inertia_)
