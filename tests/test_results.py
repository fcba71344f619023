"""Results of this package are tables, which print themselves; names of former versions warn."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose
from sklearn.cluster import KMeans
from test_markers import planted
from torch import nn

import neonxc
from neonxc import evaluation, rules, trees
from neonxc.common.result import Result, markdown_table
from neonxc.evaluation import ZeroImputer
from neonxc.trees import IMM

X = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["a|b", "<u>"])
X.iloc[:20] += 8
X.iloc[20:40, 0] -= 8
MODEL = KMeans(3, n_init=3, random_state=0).fit(X)
LATER = X.copy()
LATER.iloc[:12] -= 8


@cache
def net():
    return neonxc.neuralize(MODEL, X)


@cache
def tree():
    return IMM(3).fit(X, labels=MODEL.labels_)


def concepts():
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    images = torch.rand(12, 3, 8, 8)
    return neonxc.concepts(neonxc.neuralize(network(images)[1:3].detach(), images, network), images, "1", 2)


def pairs():
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(12, 4)).eval()
    return neonxc.similarity(encoder, *torch.rand(2, 5, 3, 2, 2))


def flipping():
    relevance = neonxc.NEON(net()).attribute(X)
    return evaluation.pixel_flipping(net(), X, relevance, ZeroImputer(), repeats=1)


def calibration():
    return evaluation.calibrate_by_flipping(net(), X, ZeroImputer(), factors=(0.5, 1))


def comparison():
    return evaluation.compare(net(), X, {"a*b": neonxc.evaluation.methods.neon}, ZeroImputer(), repeats=1)


def match():
    masks = np.eye(3)[:, None]
    return evaluation.segmentation_match(masks[[2, 0, 1]], masks)


@cache
def layers():
    coarse = np.minimum(MODEL.labels_, 1)
    return neonxc.layers([coarse, MODEL.labels_], X)


# for each class: how one is made, and the number of rows of its table
CASES = {
    "Agreement": (lambda: evaluation.agreement(net(), tree(), X), 3),
    "Calibration": (calibration, 2),
    "Choice": (lambda: evaluation.choose_k(X, (2, 3)), 2),
    "ClusteringComparison": (lambda: neonxc.compare_clusterings(MODEL.labels_, MODEL.labels_, X), 3),
    "ClusterSummary": (lambda: neonxc.NEON(net()).summary(X), 6),
    "Comparison": (comparison, 1),
    "Concepts": (concepts, 4),
    "Contrast": (lambda: neonxc.contrast(net(), X, 0, 1), 2),
    "Counterfactual": (lambda: neonxc.counterfactual(net(), X, 1), 60),
    "Estimate": (lambda: neonxc.NEON(net(), baseline=X.mean()).estimate(X), 60),
    "Flipping": (flipping, 2),
    "Layers": (layers, 2),
    "Split": (lambda: layers().splits[0], 2),
    "Markers": (lambda: neonxc.markers(planted(), "type"), 4),
    "Moves": (lambda: neonxc.moves(net(), X, LATER), None),
    "ClusterNames": (lambda: neonxc.name_clusters(neonxc.neuralize(MODEL, X), X), 3),
    "Description": (lambda: neonxc.describe(MODEL, X, fast=True), 3),
    "NullReference": (lambda: evaluation.null_reference(MODEL, X, 2), 2),
    "Report": (lambda: neonxc.explain(MODEL, X, fast=True), 3),
    "Rules": (lambda: tree().tree_.rules(), 3),
    "Sanity": (lambda: evaluation.sanity(net(), X), 2),
    "SegmentationMatch": (match, 3),
    "Separation": (lambda: evaluation.separation(X, MODEL.labels_), 2),
    "Similarity": (pairs, 5),
    "TradeOff": (lambda: trees.trade_off(X, labels=MODEL.labels_, candidates={"a*b": IMM(3)}), 1),
}


@cache
def made(name):
    torch.manual_seed(0)
    return CASES[name][0]()


def test_every_result_is_a_case():
    homes = [neonxc, evaluation, rules, trees]
    public = {name for home in homes for name in home.__all__ if isinstance(getattr(home, name), type)}
    classes = [getattr(home, name) for home in homes for name in public if hasattr(home, name)]
    assert {one.__name__ for one in classes if issubclass(one, Result)} == CASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_results(name):
    found = made(name)
    (_, rows) = CASES[name]
    frame = found.to_frame()
    assert isinstance(found, Result)
    assert rows in (None, len(frame))
    assert len(frame)
    frame.insert(0, "new", 1)  # it is a table of its own
    assert "new" not in found.to_frame()
    frame = found.to_frame()
    markdown = found.to_markdown()
    assert str(found)
    assert markdown
    if name == "Rules":  # whose text is longer
        return
    assert repr(found) == str(found)
    header, line, *_ = markdown.splitlines()
    assert line == "|---" * (frame.shape[1] + frame.index.nlevels) + "|" or name in ("Calibration", "Comparison")
    assert header.count("|") == line.count("|")
    assert len(found.to_markdown(2)) <= len(markdown) + 2 * len(frame)
    assert "<u>" not in found._repr_html_()


def test_names_are_escaped():
    header, _, first, *_ = made("TradeOff").to_markdown().splitlines()
    assert first.startswith(r"| a\*b | ")
    assert r"a\|b" in made("Contrast").to_markdown()
    assert made("Contrast").to_markdown().splitlines()[2].replace(r"\|", "").count("|") == header.count("|") - 2


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("Agreement", "frame", "to_frame"),
        ("Choice", "frame", "to_frame"),
        ("ClusteringComparison", "clusters", "to_frame"),
        ("Comparison", "frame", "to_frame"),
        ("Comparison", "markdown", "to_markdown"),
        ("Markers", "table", "to_frame"),
        ("Sanity", "frame", "to_frame"),
        ("Sanity", "markdown", "to_markdown"),
    ],
)
def test_former_names_warn(name, old, new):
    found = made(name)
    with pytest.warns(DeprecationWarning, match=rf"{name}\.{old} is deprecated .* use {new}\(\)") as warned:
        before = getattr(found, old)() if old == "markdown" else getattr(found, old)
    assert warned[0].filename == __file__
    after = getattr(found, new)()
    assert before == after if old == "markdown" else before.equals(after)


@pytest.mark.parametrize("name", ["Calibration", "Comparison"])
def test_rows_were_dictionaries(name):
    found = made(name)
    with pytest.warns(DeprecationWarning, match="to_frame"):
        assert found.rows == found.to_frame().reset_index().to_dict("records")


def test_values_of_the_tables():
    estimate = made("Estimate")
    frame = estimate.to_frame()
    assert_allclose(frame["relevance"], estimate.relevance.sum(axis=1), rtol=1e-6)
    assert_allclose(frame["residual"], estimate.residual)
    assert_allclose(frame["largest stderr"], estimate.stderr.amax(1))
    assert made("SegmentationMatch").to_frame()["mask"].tolist() == [2, 0, 1]
    assert made("SegmentationMatch").to_frame()["cosine"].tolist() == [1, 1, 1]
    found = made("Counterfactual")
    assert_allclose(found.to_frame()["distance"], found.distance)
    assert found.to_frame()["outside"].tolist() == found.outside
    contrast = made("Contrast")
    assert contrast.to_frame()["effect"].to_dict() == contrast.effects.to_dict()
    assert contrast.to_frame().index[0] == contrast.top(1).index[0]


def test_words_of_similar_texts():
    relevance = np.array([[1.0, 3, 2, -1], [5.0, 1, 0, 0]])
    texts = [["a", "b", "c", "d"], ["e", "f"]]
    found = neonxc.Similarity(np.array([0.5, 1]), relevance, relevance, texts, texts)
    assert found.to_frame()["words of a"].tolist() == ["b, c, a", "e, f"]


def test_long_tables_are_shortened():
    relevance = torch.ones(200, 2)
    long = neonxc.Estimate(relevance, relevance, relevance[:, 0])
    assert len(str(long).splitlines()) < 70
    assert len(long.to_markdown().splitlines()) == 202


def test_markdown_table():
    assert markdown_table(["x", ""], [["1", "**2**"]]) == "| x |  |\n|---|---|\n| 1 | **2** |"
