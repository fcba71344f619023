"""examples/papers/beta_interpretable.py on small tables of the same columns: its methods, figures and reports."""

import json

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from neonxc.evaluation import interpretability


@pytest.fixture(scope="module")
def module(example):
    return example("beta_interpretable")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tables like Adult and Communities and Crime."""
    folder, rng, n = tmp_path_factory.mktemp("tables"), np.random.default_rng(0), 80
    pd.DataFrame(
        {
            "age": rng.integers(17, 90, n),
            "workclass": rng.choice(["Private", "State-gov"], n),
            "fnlwgt": rng.integers(10_000, 99_999, n),
            "income": rng.choice(["<=50K", ">50K"], n, p=[0.75, 0.25]),
        }
    ).to_csv(folder / "adult.csv.gz", index=False)
    police = np.where(rng.random(n) < 0.8, np.nan, rng.random(n))
    crimes = np.where(rng.random(n) < 0.1, np.nan, rng.random(n) * 1000)
    pd.DataFrame(
        {
            "communityname": [f"town {i}" for i in range(n)],
            "state": rng.choice(["NJ", "PA"], n),
            "countyCode": rng.random(n),
            "communityCode": rng.random(n),
            "fold": rng.integers(1, 11, n),
            "population": rng.integers(10_000, 90_000, n),
            "PolicBudgPerPop": police,
            "murders": rng.integers(0, 9, n),
            "ViolentCrimesPerPop": crimes,
            "nonViolPerPop": rng.random(n),
        }
    ).to_csv(folder / "communities.csv.gz", index=False)
    return folder


def test_what_is_clustered(module, folder):
    adult, crime = module.adult(folder), module.communities(folder)
    assert list(adult.X) == ["age", "workclass", "income"]
    assert list(crime.X) == ["population", "PolicBudgPerPop", "ViolentCrimesPerPop"]
    assert 0 < crime.X["PolicBudgPerPop"].isna().sum() < len(crime.X) < 80
    assert len(module.values_of_interest(adult)[1]) == len(module.values_of_interest(crime)[1]) == 4


def test_the_partition_has_clusters_of_one_value(module):
    values = np.repeat([0, 1, 2], [5, 30, 12])
    labels = module.partition(values, 6)
    assert len(np.unique(labels)) == 6
    assert interpretability(labels, values) == 1
    assert np.bincount(np.unique(labels, return_counts=True)[1]).argmax() <= 12


def test_every_method_is_measured(module, folder):
    data = module.adult(folder)
    records = module.measure(data, 5, (0.6, 1.0))
    assert [one["method"] for one in records] == ["KC", "KC*", "P_F", "KC_F", "IKC", "β-IC", "β-IC"]
    found = {(one["method"], one["beta"]): one for one in records}
    assert found["KC", None]["over KC"] == 1
    assert found["KC*", None]["objective"] <= found["KC", None]["objective"]
    assert found["β-IC", 0.6]["interpretability"] >= 0.6
    assert found["β-IC", 1.0]["interpretability"] == found["IKC", None]["interpretability"] == 1
    assert found["β-IC", 1.0]["objective"] <= found["IKC", None]["objective"]
    for one in records:
        assert one["counts"].sum() == len(data.X)
        assert one["counts"].shape == (one["clusters"], 4)


def test_reports(module, folder, tmp_path):
    app = typer.Typer()
    app.command()(module.main)
    options = ["--data", folder, "--out", tmp_path, "--quick", "--figure", 2, "--figure", 5]
    CliRunner().invoke(app, [*map(str, options)], catch_exceptions=False)
    assert {path.name for path in tmp_path.glob("*.png")} == {
        "figure2.png",
        *(f"figure5_{name}.png" for name in ("adult", "communities")),
    }
    report = json.loads((tmp_path / "interpretable.json").read_text(encoding="utf-8"))
    assert len(report["tables"]) == 4
    for heading, table in report["tables"].items():
        assert all(row["interpretability"] == 1 for row in table["rows"] if row["method"] == "IKC"), heading
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert text.count("## Figure") == 4
    assert "income is " in text
    assert all(heading in text for heading in report["tables"])
