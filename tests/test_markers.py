"""Marker rules of single cells: planted genes, brute force, AnnData of every kind, and what scanpy reads."""

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from refusals import refused
from scipy import sparse
from sklearn.metrics import fbeta_score, precision_score, recall_score
from sklearn.model_selection import train_test_split

import neonxc
from neonxc.trees.genes import Expression
from neonxc.trees.one_rule import best_rule

GENES = [f"G{i}" for i in range(60)]
TYPES = np.repeat(["B", "NK", "T4", "T8"], 75)


@dataclass
class Cells:
    """What is read of an AnnData."""

    X: Any
    obs: pd.DataFrame
    var_names: pd.Index
    raw: Any = None
    layers: dict = field(default_factory=dict)
    uns: dict = field(default_factory=dict)


def planted(convert=sparse.csr_matrix) -> Cells:
    """Sparse noise; G0 marks B, G1 marks NK, G2 and G3 mark T8, and T4 has G2 without G3. G4 repeats G1."""
    rng = np.random.default_rng(0)
    X = rng.gamma(2, 1, (300, 60)) * (rng.random((300, 60)) < 0.1)
    for gene, types in {0: "B", 1: "NK", 2: "T4 T8", 3: "T8"}.items():
        high = np.isin(TYPES, types.split()) & (rng.random(300) < 0.98)
        X[:, gene] = np.where(high, rng.uniform(3, 6, 300), X[:, gene] * 0.3)
    X[:, 4] = X[:, 1]
    return Cells(convert(X), pd.DataFrame({"type": pd.Categorical(TYPES), "x": 0}), pd.Index(GENES))


@cache
def expected():
    return neonxc.markers(planted(), "type")


def test_planted_markers_are_found():
    found = expected()
    genes = dict(zip(found.to_frame().index, found.to_frame()["genes"].str.split(", ").map(set), strict=True))
    assert genes.pop("NK") <= {"G1", "G4"}
    assert genes == {"B": {"G0"}, "T4": {"G2", "G3"}, "T8": {"G3"}}
    assert len(found.panel) == 4, "of two genes that are equal the panel needs one"
    assert (found.to_frame()[["precision", "recall", "f_beta"]] > 0.9).all(axis=None)
    assert found.to_frame()["cells"].tolist() == [25] * 4
    assert "panel of 4 genes: " in str(found)
    assert "G0" in found._repr_html_()
    assert found.rules.to_sql("cells").startswith("-- SQL for")


def test_measures_are_those_of_scikit_learn():
    cells = planted(np.asarray)
    found = neonxc.markers(cells, "type", beta=0.7, random_state=3)
    _, test = train_test_split(np.arange(300), test_size=1 / 3, random_state=3, stratify=TYPES)
    for rule in found.rules:
        true = TYPES[test] == rule.label
        met = rule.matches(cells.X[test])
        expected = precision_score(true, met), recall_score(true, met), fbeta_score(true, met, beta=0.7)
        assert found.to_frame().loc[rule.label, ["precision", "recall", "f_beta"]].tolist() == pytest.approx(
            expected
        )
        assert rule.counts.f_score(0) == rule.counts.precision


@pytest.mark.parametrize("convert", [np.asarray, sparse.csc_matrix, sparse.csr_array, np.float32])
def test_matrices_of_all_kinds_have_the_same_markers(convert, monkeypatch):
    wanted = expected().to_frame()
    monkeypatch.setattr("neonxc.common.memory.CPU", 8 * 60 * 40)  # blocks of 40 cells
    cells = planted(convert)
    found = neonxc.markers(cells, "type").to_frame()
    assert found["genes"].equals(wanted["genes"])
    assert found["f_beta"].tolist() == pytest.approx(wanted["f_beta"].tolist())
    values = cells.X.data if sparse.issparse(cells.X) else cells.X[:, 7]
    values[-1] = np.nan
    message = r"the expression of gene 'G[0-9]+' has values that are not finite"
    refused(message, neonxc.markers, cells, "type")


def stored():
    """Zeros, whose expression is in `raw` and in a layer."""
    cells = planted()
    return Cells(np.zeros((300, 60)), cells.obs, cells.var_names, raw=cells, layers={"counts": cells.X})


def test_a_matrix_that_is_missing():
    cells = stored()
    cells.raw = cells.X = None
    refused("adata.X is missing .*layers, \\['counts'\\]", neonxc.markers, cells, "type")
    refused("AnnData without a matrix X: .*layers, \\['counts'\\]", neonxc.neuralize, np.eye(60)[:2], cells)
    assert neonxc.markers(cells, "type", layer="counts").to_frame().equals(expected().to_frame())


def test_noise_has_no_markers():
    cells = planted()
    expected_without = neonxc.markers(planted(), pd.Series(TYPES).where(TYPES != "NK")).to_frame()
    for labels in (
        [-1 if name == "NK" else name for name in TYPES],
        pd.Series([-2.0 if name == "NK" else name for name in TYPES], dtype=object),
    ):
        assert neonxc.markers(cells, labels).to_frame().equals(expected_without)


def test_raw_values_and_layers():
    found = neonxc.markers(stored(), "type")
    assert found.to_frame().equals(expected().to_frame())
    assert found.notes == ["expression: adata.raw"]
    assert neonxc.markers(stored(), "type", layer="counts").to_frame().equals(found.to_frame())
    assert neonxc.markers(stored(), "type", use_raw=False).to_frame()["rule"].eq("").all()


@pytest.mark.parametrize("shift", [0, 1e8])
def test_statistics_by_brute_force(shift, monkeypatch):
    monkeypatch.setattr("neonxc.common.memory.CPU", 8 * 60 * 11)
    cells = planted(lambda X: sparse.csr_matrix(X + shift))
    data = Expression.of(cells, "type", None, False, None, 0)
    X = cells.X.toarray()
    parts = [X[data.train][TYPES[data.train] == label] for label in data.clusters]
    means, squares, fractions = (np.array([of(part) for part in parts]) for of in (
        lambda part: part.mean(0), lambda part: part.var(0) * len(part), lambda part: (part > 0).mean(0)
    ))  # fmt: skip
    for found, wanted in (
        (data.means, means),
        (data.moments.squares.numpy(), squares),
        (data.fractions, fractions),
    ):
        assert np.allclose(found, wanted)
    d, fraction = data.effects(0, np.array([1, 3]))
    rest = np.concatenate([parts[1], parts[3]])
    pooled = np.sqrt((squares[0] + rest.var(0) * len(rest)) / (len(parts[0]) + len(rest) - 2))
    # the rest is pooled within its clusters: only their means are between
    assert np.allclose(d * pooled, means[0] - rest.mean(0))
    assert np.allclose(fraction, np.maximum(fractions[0], (rest > 0).mean(0)))
    assert data.competitors(3)[0] == 2, "T4 is nearest to T8"


def test_the_rule_is_the_best_leaf():
    X = pd.DataFrame(np.random.default_rng(1).normal(size=(400, 3)), columns=list("abc"))
    inside = X.eval("a > 0.3 and b <= 0.8 and c > -1").to_numpy()
    tests, score = best_rule(X, inside, length=3, beta=0.5)
    met = np.logical_and.reduce([test.matches(X[test.name].to_numpy()) for test in tests])
    assert score == pytest.approx(fbeta_score(inside, met, beta=0.5))
    assert score > 0.95
    assert len(best_rule(X, inside, length=1)[0]) == 1
    assert best_rule(X * 0, inside)[0] == ()


def test_genes_that_rules_may_use():
    cells = planted()
    assert set(neonxc.markers(cells, "type", max_genes=1).to_frame()["genes"].str.count(",")) == {0}
    assert not {"G0", "G3"} & set(neonxc.markers(cells, "type", among=[*GENES[1:3], *GENES[4:]]).panel)
    assert neonxc.markers(cells, "type", min_fraction=0.995).to_frame().loc["B", "rule"] == ""
    cells.obs["type"] = cells.obs["type"].where(TYPES != "NK")
    assert neonxc.markers(cells, "type").to_frame().index.tolist() == ["B", "T4", "T8"]


def test_what_is_stored():
    cells = planted()
    found = neonxc.markers(cells, "type", key_added="mine")
    stored = cells.uns["mine"]
    assert stored["names"].dtype.names == ("B", "NK", "T4", "T8")
    assert stored["names"]["T4"][:2].tolist() == [test.name for test in found.rules.clusters["T4"][0].conditions]
    assert len({*stored["names"]["B"]}) == len(stored["scores"]["B"]) == 10
    assert min(stored["scores"]["B"][0], stored["logfoldchanges"]["B"][0]) > 3
    assert np.isnan(stored["pvals_adj"]["B"]).all()
    assert stored["panel"] == found.panel


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groupby": "typ"}, r"adata.obs has no column \['typ'\] \(did you mean 'type'\?\)"),
        ({"groupby": "x"}, "at least two clusters of at least 3 cells, got 1 cluster,"),
        ({"groupby": ["rare"] * 2 + ["common"] * 298}, r"fewer cells in {'rare': 2}"),
        ({"groupby": TYPES[1:]}, r"groupby needs one group per cell, \(300,\), got shape \(299,\)"),
        ({"layer": "counts"}, r"layer needs one of adata.layers, \[\], got 'counts'"),
        ({"use_raw": True}, "use_raw=True needs adata.raw"),
        ({"among": ["G1", "CD3E"]}, r"among has genes that the expression lacks: \['CD3E'\]"),
        ({"max_genes": 0}, "max_genes needs a whole number >= 1"),
        ({"min_fraction": 2}, "min_fraction needs"),
        ({"beta": -1}, "beta needs"),
        ({}, r"same name: \['G0'\]; call adata.var_names_make_unique"),
    ],
)
def test_errors(options, message):
    cells = planted()
    cells.var_names = cells.var_names if options else pd.Index(["G0", *GENES[:-1]])
    refused(message, neonxc.markers, cells, **{"groupby": "type", **options})


@pytest.mark.usefixtures("without_reality")
def test_clusters_are_a_column_or_given():
    cells = planted()
    cells.obs.index = [f"cell {i}" for i in range(300)]
    shuffled = cells.obs["type"].sample(frac=1, random_state=0)
    for groups in (shuffled, list(TYPES), cells.obs["type"].array, cells.obs["type"].reset_index(drop=True)):
        assert neonxc.markers(cells, groups).to_frame().equals(expected().to_frame())
    assert neonxc.explain(cells, shuffled, fast=True).description.title == "300 cells by type"
    message = r"each cell of adata.obs_names once in its index, it lacks \['cell 0'\]"
    refused(message, neonxc.markers, cells, cells.obs["type"].iloc[1:])


@pytest.mark.usefixtures("without_reality")
@pytest.mark.filterwarnings("ignore:the surrogate")
@pytest.mark.parametrize(
    ("options", "matrix"),
    [
        pytest.param({}, "adata.raw", marks=pytest.mark.slow),
        ({"layer": "counts"}, "adata.layers['counts']"),
    ],
)
def test_reports_read_the_expression_that_markers_read(options, matrix):
    report = neonxc.explain(stored(), "type", fast=True, **options)
    assert f"Expression is that of {matrix}." in report.description.notes
    assert report.to_frame()["fidelity"].min() > 0.9
    message = "layer= and use_raw= are for an AnnData"
    refused(message, neonxc.explain, planted().X, labels=TYPES, use_raw=False, error=TypeError)


@pytest.mark.parametrize("label", ["rare", 7])
def test_clusters_of_few_cells_have_no_rule(label):
    cells = planted()
    groups = pd.Series(TYPES if label == "rare" else np.arange(300) // 75).astype(object)
    groups[0] = label
    found = neonxc.markers(cells, groups)
    assert found.to_frame().loc[label, ["rule", "cells"]].tolist() == ["", 0]
    assert found.to_frame().drop(label)["f_beta"].min() > 0.8
    assert f"left out, as a rule needs at least 3 cells: {label} (1 cell)" in str(found)
    assert str(label) not in cells.uns["markers"]["names"].dtype.names


def test_scanpy_draws_and_stores_them(tmp_path):
    scanpy = pytest.importorskip("scanpy")
    cells = scanpy.datasets.pbmc68k_reduced()
    found = neonxc.markers(cells, "louvain")
    assert found.to_frame()["f_beta"].mean() > 0.75
    cells.write_h5ad(tmp_path / "cells.h5ad")
    cells = scanpy.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    table = scanpy.get.rank_genes_groups_df(cells, "3", key="markers")
    assert table["names"][0] in found.to_frame().loc["3", "genes"]
    assert cells.uns["markers"]["table"]["rule"].tolist() == found.to_frame()["rule"].tolist()
    options = {"key": "markers", "n_genes": 3, "dendrogram": False, "show": False, "return_fig": True}
    drawn = scanpy.pl.rank_genes_groups_dotplot(cells.to_memory(), **options)
    assert set(found.panel) <= set(np.ravel(drawn.var_names))
    assert neonxc.markers(cells, "louvain").to_frame().equals(found.to_frame())


def test_searched_cells_are_limited(monkeypatch):
    monkeypatch.setattr("neonxc.trees.genes.SEARCHED", 100)
    found = neonxc.markers(planted(), "type")
    assert found.to_frame()["f_beta"].min() > 0.85
    assert sum(rule.counts.of_cluster for rule in found.rules) == 200, "counts are of all training cells"
