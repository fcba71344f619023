"""Concepts: directions of a layer that carry a cluster's relevance, against gradients, loops and planted ones."""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
import torchvision
from entry_points.data import TEXTS
from entry_points.networks import Letters, Transformer
from refusals import refused
from torch import nn

import neonxc
from neonxc import NEON
from neonxc.lrp import Composite, Epsilon
from neonxc.models import FeatureExtractor, SentenceEncoder
from neonxc.subspaces.concept_search import at_layer
from neonxc.subspaces.concepts import _pack, _unpack
from neonxc.subspaces.relevant import separated
from neonxc.trees import ExShallow

GRADIENT = Composite(Epsilon(0.0))


class Attention(nn.Module):
    """Tokens [N, 4, 6] of images, one of which is the class token, and their mean."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Conv2d(3, 6, 4, 4)
        self.mix = nn.Linear(6, 6)

    def forward(self, x):
        tokens = self.embed(x).flatten(2).mT
        return torch.relu(self.mix(tokens)).mean(1)


def convolutional(pooled=True):
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 6, 3), nn.ReLU(inplace=True), nn.Conv2d(6, 5, 3), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, *([nn.AdaptiveAvgPool2d(1), nn.Flatten()] if pooled else [])).eval()


def clustered(network, images, K=3):
    """Cluster by the features of the first inputs or locations."""
    with torch.no_grad():
        features = network(images)
    points = features if features.ndim == 2 else features.movedim(1, -1).flatten(0, -2)
    return neonxc.neuralize(points[:: len(points) // K][:K], images, network)


@pytest.fixture(scope="module")
def images():
    torch.manual_seed(1)
    return torch.rand(12, 3, 8, 8)


@pytest.mark.parametrize("layer", ["0", "1", "2", None])
@pytest.mark.parametrize("pooled", [True, False])
def test_the_maps_of_concepts_sum_to_the_heatmap(pooled, layer, images):
    net = clustered(convolutional(pooled), images)
    found = neonxc.concepts(net, images, layer, n_concepts=2)
    for label in found.classes:
        maps = found.heatmaps(net, images, label)
        whole = NEON(net).heatmaps(images, [label])[:, 0]
        assert maps.shape == (12, 3, 8, 8)
        torch.testing.assert_close(maps.sum(1), whole, rtol=1e-4, atol=1e-6 * float(whole.abs().max()))


class Meanwhile(nn.Module):
    """Calls a function before the main thread goes on."""

    call = None

    def forward(self, x):
        if self.call is not None and threading.current_thread() is threading.main_thread():
            self.call()
        return x


@pytest.mark.parametrize("layer", ["1", "3"])
def test_other_threads_predict_meanwhile(layer, images):
    """They get what they get alone, although the same network is asked for concepts."""
    network = nn.Sequential(Meanwhile(), *convolutional())
    net = clustered(network, images)
    seen = []
    with ThreadPoolExecutor(1) as pool, torch.no_grad():
        expected = pool.submit(net.predict, images).result(), pool.submit(NEON(net).heatmaps, images).result()
        network[0].call = lambda: seen.append(
            (pool.submit(net.predict, images).result(), pool.submit(NEON(net).heatmaps, images).result())
        )
        neonxc.concepts(net, images, layer, n_concepts=2).coordinates(net, images)
    assert len(seen) > 5
    for labels, maps in seen:
        assert torch.equal(labels, expected[0])
        assert torch.equal(maps, expected[1])
    assert not any(module._forward_hooks for module in network.modules())


@pytest.mark.parametrize("network", [convolutional(), Attention().eval()], ids=["maps", "tokens"])
def test_the_first_direction_by_gradients(network, images):
    net = clustered(network, images)
    layer = "0" if isinstance(network, nn.Sequential) else "mix"
    found = neonxc.concepts(net, images, layer, n_concepts=1, cluster=1, competitor=0, composite=GRADIENT)
    kept = [i for i in range(12) if i % 3 and int(net.predict(images[i : i + 1])) == 1]
    seen = []
    passes = []
    hook = network.get_submodule(layer).register_forward_hook(lambda _, __, y: (seen.append(y), y.clone())[1])
    for i in kept:
        far = net.head.detection.neurons(net.head.detection.located(network(images[i : i + 1])))
        (slope,) = torch.autograd.grad((far[:, 0] - far[:, 1]).sum(), seen[-1])
        passes.append(
            [v[0].T if v.ndim == 3 else v[0].flatten(1) for v in (seen[-1].detach().double(), slope.double())]
        )
    hook.remove()
    sums = sum(a @ m.T for a, m in passes)
    total = sum(float((a * m).sum()) for a, m in passes)
    _, vectors = torch.linalg.eigh((sums + sums.T) / 2)
    u = found.directions[0, 0].double()
    assert abs(float(vectors[:, -1] @ u)) == pytest.approx(1, abs=1e-4)
    assert found.total[0] == pytest.approx(total / len(kept), rel=1e-4)
    assert found.relevance[0, 0] == pytest.approx(float(u @ sums @ u) / len(kept), rel=1e-4)
    assert u[u.abs().argmax()] > 0  # a sign of its own
    places = []  # where it has most relevance
    for i, (a, m) in zip(kept, passes, strict=True):
        most, place = ((u @ a) * (u @ m)).max(0)
        side = a.shape[1] ** 0.5
        places.append((i, (place // side + 0.5) / side, (place % side + 0.5) / side, most))
    for one, expected in zip(found.references[0][0], sorted(places, key=lambda place: -place[3]), strict=False):
        assert one[:4] == pytest.approx(torch.tensor(expected).tolist(), rel=1e-4)


def test_directions_are_separated():
    generator = torch.Generator().manual_seed(0)
    hidden = torch.linalg.qr(torch.randn(4, 4, generator=generator, dtype=torch.float64))[0]
    alone = torch.eye(4, dtype=torch.float64)[torch.randint(4, (200,), generator=generator)]
    found = separated(*(alone * torch.rand(200, 1, generator=generator) @ hidden for _ in range(2)))
    torch.testing.assert_close(found @ found.mT, torch.eye(4, dtype=torch.float64))
    assert (found @ hidden.mT).abs().amax(1).min() > 0.999  # up to signs and their order
    values, multipliers = torch.randn(2, 50, 2, generator=generator, dtype=torch.float64)

    def spread(turn):
        return float(((values @ turn.mT) * (multipliers @ turn.mT)).square().sum())

    angles = np.linspace(0, np.pi / 2, 2000)
    turns = np.array([[np.cos(angles), np.sin(angles)], [-np.sin(angles), np.cos(angles)]])
    best = max(map(spread, torch.tensor(turns).movedim(-1, 0)))
    assert spread(separated(values, multipliers)) == pytest.approx(best, rel=2e-3)


def test_what_is_left_without_directions(images):
    net = clustered(convolutional(pooled=False), images)
    rest = images[:6]
    held = images[6:]
    found = neonxc.concepts(net, rest, "1", n_concepts=2, held_out=held)
    axes = found.directions[0]
    values = net.features[:2](held).detach()
    along = torch.einsum("kc,nchw->nkhw", axes, values)
    at = torch.arange(6) * 4 // 6  # locations of the features, 4 x 4, nearest to those of the layer, 6 x 6
    others = (net.predict(rest) != found.classes[0])[:, at][:, :, at]
    mean = net.features[:2](rest).detach().movedim(1, -1)[others].mean(0)
    to_mean = along - (axes @ mean)[:, None, None]
    for k in (1, 2):
        features = net.features[2:](values - torch.einsum("nkhw,kd->ndhw", to_mean[:, :k], axes[:k]))
        changed = net.classes_[net.head(features.movedim(1, -1).flatten(0, 2)).argmax(1).numpy()]
        before = net.predict(held).flatten().numpy()
        own = before == found.classes[0]
        assert found.left[0, k - 1] == pytest.approx((changed == before)[own].mean())
        assert found.unchanged[0, k - 1] == pytest.approx((changed == before)[~own].mean())
    frame = found.to_frame()
    np.testing.assert_array_equal(frame["unchanged"], found.unchanged.ravel())
    assert f"{found.unchanged[:, 1].mean():.0%} of the other points keep their cluster" in str(found)
    coordinates = found.coordinates(net, held)
    assert coordinates.shape == (6 * 4 * 4, 2 * len(found.classes))
    places = nn.functional.adaptive_avg_pool2d(along, 4).movedim(1, -1).flatten(0, 2)
    np.testing.assert_allclose(coordinates.iloc[:, :2], places, atol=1e-5)


@pytest.mark.parametrize(
    ("in_cluster", "shape", "expected"),
    [
        ([1, 0], (2, 2), [[1, 1, 1, 1], [0, 0, 0, 0]]),  # one decision per input
        ([[[1, 0], [0, 0]]], (2, 4), [[1, 1, 0, 0, 0, 0, 0, 0]]),  # a finer layer
        ([[[1, 0], [0, 0]]], (5,), [[1, 1, 0, 0, 0]]),  # a class token, and four tokens of a square
        ([[0, 1]], (4,), [[0, 0, 1, 1]]),
        ([[0, 1]], (2, 2), [[1, 1, 1, 1]]),  # a layer with more dimensions than the features
    ],
)
def test_locations_of_a_layer_that_are_in_a_cluster(in_cluster, shape, expected):
    assert at_layer(torch.tensor(in_cluster).bool(), shape).int().tolist() == expected


def test_directions_of_clusters_without_others_are_set_to_zero(images):
    net = clustered(convolutional(), images)
    alone = images[net.predict(images) == 0]
    found = neonxc.concepts(net, alone, "0", n_concepts=1, cluster=0, held_out=alone)
    values = net.features[:1](alone).detach()
    axis = found.directions[0, 0]
    along = torch.einsum("c,nchw->nhw", axis, values)
    changed = net.head(net.features[1:](values - along[:, None] * axis[:, None, None])).argmax(1)
    assert found.left[0, 0] == pytest.approx(float((changed == 0).float().mean()))
    assert np.isnan(found.unchanged).all()
    assert "keep their cluster" not in str(found)


def test_shared_directions_and_contrasts(images):
    net = clustered(convolutional(), images)
    shared = neonxc.concepts(net, images, "0", shared=True)
    assert (shared.directions == shared.directions[0]).all()
    one = neonxc.concepts(net, images, "0", cluster=0, competitor=1, held_out=images)
    maps = one.heatmaps(net, images, 0)
    expected = NEON(net).attribute(images, target=0, competitor=1)
    torch.testing.assert_close(maps.sum(1), expected.sum(1), rtol=1e-4, atol=1e-6 * float(expected.abs().max()))


class Turned(nn.Module):
    """Layers with the same output but for the place of the channels, which are last in "last" and in "next"."""

    def __init__(self, convolution, channels):
        super().__init__()
        torch.manual_seed(0)
        # no zeros, whose multipliers differ
        self.first = convolution(channels, 6, 3)
        self.act = nn.Softplus()
        self.last = nn.Linear(6, 6, bias=False)
        self.next = nn.Identity()
        nn.init.eye_(self.last.weight)

    def forward(self, x):
        h = self.act(self.first(x)).movedim(1, -1)
        return self.next(self.last(h)).movedim(-1, 1).flatten(2).mean(2)


@pytest.mark.parametrize(
    ("convolution", "shape"),
    [
        (nn.Conv1d, (2, 40)),
        (nn.Conv1d, (2, 9)),
        (nn.Conv2d, (3, 8, 8)),  # a map as wide as it has channels
        (nn.Conv2d, (3, 7, 9)),
        (nn.Conv2d, (3, 18, 30)),
        (nn.Conv3d, (2, 5, 6, 7)),
    ],
    ids=str,
)
def test_channels_are_found_where_they_are(convolution, shape):
    network = Turned(convolution, shape[0]).eval()
    x = torch.rand(12, *shape)
    net = clustered(network, x)
    found = {layer: neonxc.concepts(net, x, layer, 1, composite=GRADIENT) for layer in ("act", "last", "next")}
    expected = found["act"]
    assert expected.directions.shape[2] == 6
    for layer in ("last", "next"):
        torch.testing.assert_close(found[layer].directions, expected.directions, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(found[layer].relevance, expected.relevance, rtol=1e-3, atol=1e-5)
        np.testing.assert_array_equal(found[layer].left, expected.left)
        np.testing.assert_array_equal(found[layer].unchanged, expected.unchanged)
        places = [[one._replace(relevance=0) for one in each] for own in found[layer].references for each in own]
        assert places == [
            [one._replace(relevance=0) for one in each] for own in expected.references for each in own
        ]
        again = found[layer].coordinates(net, x)
        np.testing.assert_allclose(again, expected.coordinates(net, x), rtol=1e-3, atol=1e-4)


def swin():
    return torchvision.models.SwinTransformer([4, 4], 12, [1, 1], [2, 2], [4, 4], num_classes=5).eval()


def convnext():
    setting = torchvision.models.convnext.CNBlockConfig
    return torchvision.models.ConvNeXt([setting(8, 12, 1), setting(12, None, 1)], num_classes=5).eval()


def timm_swin():
    timm = pytest.importorskip("timm")
    options = {"embed_dim": 12, "depths": (1, 1), "num_heads": (2, 2), "window_size": 4, "img_size": 32}
    return timm.models.SwinTransformer(**options, num_classes=5).eval()


PUBLISHED = {
    "swin": (swin, {"features.1": 12, "features.1.0.mlp.0": 48, "features.3.0.norm1": 24, "norm": 24}),
    "swin's map": (swin, {"permute": 24, "features.0.0": 12}),
    "convnext": (convnext, {"features.1.0.block.0": 8, "features.1.0.block.2": 8, "features.1.0.block.4": 32}),
    "convnext's map": (convnext, {"features.1": 8, "features.3": 12}),
    "timm's swin": (timm_swin, {"layers.0": 12, "layers.1.blocks.0.mlp.act": 96, "norm": 24}),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_layers_of_published_networks_have_their_channels(name):
    build, layers = PUBLISHED[name]
    torch.manual_seed(0)
    network = build()
    x = torch.rand(4, 3, 32, 32)
    net = clustered(network, x)
    for layer, channels in layers.items():
        found = neonxc.concepts(net, x, layer, n_concepts=1, held_out=x)
        assert found.directions.shape[2] == channels, layer


def test_layers_of_audio_networks_have_their_channels():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 20}
    convolutions = {
        "conv_dim": (8, 8),
        "conv_kernel": (10, 3),
        "conv_stride": (5, 2),
        "num_feat_extract_layers": 2,
    }
    groups = {"num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2}
    config = transformers.Wav2Vec2Config(**sizes, **convolutions, **groups, attn_implementation="eager")

    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.audio = transformers.Wav2Vec2Model(config)

        def forward(self, x):
            return self.audio(x).last_hidden_state.mean(1)

    network = Mean().eval()
    x = torch.randn(4, 400)
    net = clustered(network, x)
    blocks = "audio.encoder.layers.0"
    layers = {"audio.feature_extractor.conv_layers.1": 8, "audio.feature_projection": None}
    layers |= {
        f"{blocks}.feed_forward": 12,
        f"{blocks}.feed_forward.intermediate_dense": 20,
        f"{blocks}.attention": None,
    }
    for layer, channels in layers.items():
        if channels is None:  # it returns several values
            refused(r"has no output \[N, C, ...\]", neonxc.concepts, net, x, layer, held_out=x)
            continue
        found = neonxc.concepts(net, x, layer, n_concepts=1, held_out=x)
        assert found.directions.shape[2] == channels, layer


def test_names_files_and_trees(images, tmp_path):
    net = clustered(FeatureExtractor(convolutional(pooled=False), "3", pool="avg"), images)
    found = neonxc.concepts(net, images, n_concepts=2)
    assert found.layer == "3"  # before it is pooled
    named = found.named(found.classes[0], {2: "corner"})
    frame = named.to_frame()
    assert frame.loc[(found.classes[0], 2), "name"] == "concept 2 (corner)"
    assert (frame["share"].abs().groupby(level=0).sum() <= 1 + 1e-9).all()
    neonxc.save(named, tmp_path / "c.safetensors")
    again = neonxc.load(tmp_path / "c.safetensors")
    assert (again.references, again.names) == (named.references, named.names)
    assert torch.equal(again.directions, named.directions)
    np.testing.assert_array_equal(again.left, named.left)
    np.testing.assert_array_equal(again.unchanged, named.unchanged)
    of_before = _pack(named)
    del of_before["unchanged"]  # as files of earlier versions
    assert np.isnan(_unpack(type(named), of_before).unchanged).all()
    tree = ExShallow(len(found.classes)).fit(named.coordinates(net, images), labels=net.predict(images))
    assert "concept 2 (corner)" in str(tree.feature_names_in_)


def test_what_has_no_concepts(images):
    net = clustered(convolutional(), images)
    concepts = neonxc.concepts
    cut = clustered(FeatureExtractor(convolutional(pooled=False), "1", pool="avg"), images)
    for message, *arguments in (
        ("layer needs the name of a module, got '9'", net, images, "9"),
        ("layer '2' is not run before the features", cut, images, "2"),
        ("at most 6, the channels of the layer, got 7", net, images, "0", 7),
    ):
        refused(message, concepts, *arguments)
    for own, competitor in ((0, 0), ([0, 1], 1)):
        message = f"cluster and competitor are both {competitor}"
        refused(message, concepts, net, images, "0", cluster=own, competitor=competitor)
    assert 1 not in concepts(net, images, "0", 1, competitor=1).classes
    refused("has no feature network", concepts, neonxc.neuralize(np.eye(3)), np.eye(3), error=TypeError)
    refused("cluster needs one of", concepts(net, images, "0").heatmaps, net, images, 17)
    centers = torch.cat([net.features(images[:1]), torch.full((1, 5), 99.0)])
    absent = neonxc.neuralize(centers, images, net.features)
    assert concepts(absent, images, "0").classes == [0]
    refused("cluster 1 has no point among the inputs", concepts, absent, images, "0", cluster=1)


class Branched(nn.Module):
    """Blocks that return several values, attention, and layers that are not called."""

    def __init__(self):
        super().__init__()

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Conv2d(4, 4, 1)
                self.b = nn.ReLU()

            def forward(self, x):
                return self.b(self.a(x)), x

        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, 4, 1)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.unused = nn.Linear(3, 3)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 5)
        self.eval()

    def forward(self, x):
        h = self.stem(x)
        for block in self.blocks:
            h, _ = block(h)
        h = h.flatten(2).mT
        return self.head(self.attention(h, h, h)[0].mean(1))


@pytest.mark.parametrize(
    ("layer", "names"),
    [
        ("blocks.0", ["blocks.0.a", "blocks.0.b"]),
        ("blocks", ["blocks.0.a", "blocks.0.b", "blocks.1.a", "blocks.1.b"]),
        ("unused", ["blocks.0.a", "blocks.0.b", "blocks.1.a", "blocks.1.b", "head"]),
        ("attention", ["blocks.0.b", "blocks.1.a", "blocks.1.b", "head"]),
        ("attention.out_proj", ["blocks.1.a", "blocks.1.b", "head"]),
    ],
)
def test_errors_name_the_layers_that_can_be_used(images, layer, names):
    network = Branched()
    features = network(images).detach()
    centers = torch.stack([features[features.sum(1).argmin()], features[features.sum(1).argmax()]])
    net = neonxc.neuralize(centers, images, network)
    calls = (
        lambda name: FeatureExtractor(network, name)(images),
        lambda name: neonxc.concepts(net, images, name, n_concepts=1),
    )
    for call in calls:
        with pytest.raises((ValueError, TypeError, RuntimeError), match=rf"{layer}'.* inside it.* used") as caught:
            call(layer)
        named = re.findall(r"'([\w.]+)'", str(caught.value).split(" inside it")[1])
        assert set(names) <= {*named}
        for name in named:
            call(name)
    assert not any(module._forward_hooks for module in network.modules())


def test_pictures(images):
    net = clustered(convolutional(), images)
    found = neonxc.concepts(net, images, "0", n_concepts=3)
    assert f"{len(found.classes)} clusters, 3 concepts each at 0" in repr(found)
    refused("cluster needs one of", neonxc.plot.concepts, found, net, images, 17)
    figure = neonxc.plot.concepts(found, net, images, found.classes[0])
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert texts[::2] == ["concept 1", "concept 2", "concept 3"]
    assert texts[1].endswith("% of the relevance")  # nothing is held out of a cluster of one image
    assert sum(len(axes.images) for axes in figure.axes) >= 9  # patches, a photo and its heatmap, of each
    report = neonxc.explain(net, images, fast=True, concepts=True)
    assert report.html().count('alt="Concepts of') == len(report.description.concepts) > 0


def test_words_of_a_sentence_encoder():
    encoder = SentenceEncoder(Transformer().double().eval(), Letters())
    net = neonxc.neuralize(encoder.points(TEXTS)[:2].numpy(), TEXTS, encoder)
    found = neonxc.concepts(net, TEXTS, n_concepts=2)
    tokens = encoder.tokenize(TEXTS)
    own = net.predict(TEXTS)
    for label, (references, *_) in zip(found.classes, found.references, strict=True):
        maps = found.heatmaps(net, TEXTS, label)
        whole = NEON(net).attribute(TEXTS, target=label)
        np.testing.assert_allclose(maps.sum(1), whole, atol=1e-6 * np.abs(whole).max())
        totals = defaultdict(list)
        for i in np.flatnonzero(own == label):
            for j, word in enumerate(tokens[i]):
                totals[word.lower()].append(maps[i, 0, j])
        relevance = [one.relevance for one in references]
        assert relevance == sorted(relevance, reverse=True)
        assert {one.row for one in references} == {-1}
        assert relevance == pytest.approx([np.mean(totals[one.word.lower()]) for one in references], rel=1e-4)
    assert found.coordinates(net, TEXTS).shape == (len(TEXTS), 2 * len(found.classes))
    assert len(neonxc.plot.concepts(found, net, TEXTS).axes) == 4
    refused("texts have concepts of their features", neonxc.concepts, net, TEXTS, "blocks")
