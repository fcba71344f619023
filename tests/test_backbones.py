"""Networks by name: their blocks, their tokens, their recipes and their weights."""

import copy
import json
from urllib.error import URLError

import pytest
import safetensors.torch
import torch
import torchvision
from refusals import refused
from torch import nn
from torch.testing import assert_close

from neonxc.models import BACKBONES, FeatureExtractor, backbone, efficientnet_lite0, vgg16
from neonxc.models.backbones import build


@pytest.mark.parametrize("name", BACKBONES)
def test_blocks_by_number(name):
    refused(rf"block of {name} must be \d to \d+; got 99", backbone, name, block=99)


def test_functions_build_their_network():
    with torch.device("meta"):
        for builder in (vgg16, efficientnet_lite0):
            built = builder(2, weights=None, pool="avg")
            name = builder.__name__
            assert built.recipe == backbone(name, block=2, weights=None, pool="avg").recipe


@pytest.mark.parametrize(
    ("name", "block", "kind", "shape"),
    [
        ("vgg16", 1, "MaxPool2d", (64, 32, 48)),
        ("alexnet", None, "ReLU", (256, 3, 5)),
        pytest.param("mobilenet_v2", None, "InvertedResidual", (96, 4, 6), marks=pytest.mark.slow),
        ("mobilenet_v2", 18, "Conv2dNormActivation", (1280, 2, 3)),
        ("mobilenet_v3_small", None, "InvertedResidual", (48, 4, 6)),
        pytest.param("efficientnet_b0", None, "Sequential", (112, 4, 6), marks=pytest.mark.slow),
        ("convnext_tiny", 4, "Sequential", (768, 2, 3)),
        ("vit_b_16", None, "EncoderBlock", (768, 14, 14)),
    ],
)
def test_blocks_of_torchvision(name, block, kind, shape):
    with torch.device("meta"):  # no memory and no time for 140 million weights
        extractor = backbone(name, block=block, weights=None)
        assert type(extractor.net.get_submodule(extractor.layer)).__name__ == kind
        images = torch.empty(2, 3, *(extractor.size or (64, 96)))
        assert extractor(images).shape == (2, *shape)


# --- the vision transformer of torchvision -----------------------------------------------------------------


@pytest.mark.slow
@torch.no_grad()
def test_vit_tokens():
    vit = backbone("vit_b_16", weights=None)
    images = torch.randn(1, 3, 224, 224)
    net = vit.net
    nn.init.normal_(net.heads.head.weight)  # torchvision's is zero
    tokens = torch.cat([net.class_token, net._process_input(images)], 1) + net.encoder.pos_embedding
    expected = net.encoder.layers(tokens)[:, 1:].reshape(1, 14, 14, 768).permute(0, 3, 1, 2)
    assert_close(vit(images), expected)
    normed = FeatureExtractor(net, "encoder.ln", tokens=vit.tokens, pool="class")(images)
    assert_close(net.heads(normed), net(images))  # it classifies the normed class token


def test_tokens_follow_the_layer():
    with torch.device("meta"):
        for layer, tokens in {"conv_proj": None, "encoder.layers.encoder_layer_3": 1, "encoder.ln": 1}.items():
            vit = backbone("vit_b_16", layer, weights=None)
            assert (vit.tokens, vit.size) == (tokens, (224, 224))
        refused("takes images of 224 x 224 pixels; got 224 x 288", vit, torch.empty(1, 3, 224, 288))
        assert backbone("convnext_tiny", "features.1.0.block.2", weights=None).tokens == 0  # channels last
    refused('pool="class" needs a layer with a class token', backbone, "resnet18", weights=None, pool="class")


# --- recipes -----------------------------------------------------------------------------------------------


def test_recipe_rebuilds():
    extractor = backbone("resnet18", "layer1", weights=None, pool="avg", normalize=True)
    assert extractor.recipe == {
        "builder": "resnet18",
        "layer": "layer1",
        "pool": "avg",
        "normalize": True,
        "tokens": None,
        "mean": [0.485, 0.456, 0.406],
        "std": [0.229, 0.224, 0.225],
    }
    older = build({"builder": "resnet18", "block": 1, "pool": "avg", "normalize": True})
    for again in (build(json.loads(json.dumps(extractor.recipe))), older):
        assert again.recipe == extractor.recipe
        assert not any(module.training for module in again.modules())
        assert not any(parameter.requires_grad for parameter in again.parameters())


def test_recipe_tells_the_truth():
    extractor = backbone("resnet18", weights=None)
    changes = {"layer": "layer2", "pool": "avg", "normalize": True, "mean": (0.5,) * 3, "std": (0.25,) * 3}
    vars(extractor).update(changes)
    for found in (build(extractor.recipe), copy.deepcopy(extractor)):
        assert found.recipe == extractor.recipe
        assert {name: getattr(found, name) for name in changes} == changes
    assert FeatureExtractor(extractor.net, "layer1").recipe is None
    extractor.net = nn.Sequential(extractor.net)
    assert extractor.recipe is None


def test_errors_of_backbone_and_build():
    for name in ("vgg12", 12, None):
        refused(rf"no backbone is called {name!r}.*; there are: efficientnet_lite0, ", backbone, name)
    message = r"'layer9' is not a module of ResNet \(did you mean 'layer"
    refused(message, backbone, "resnet18", "layer9", weights=None)
    for recipe in ({}, {"block": 1}, {"builder": []}, {"builder": "resnet18", "weights": "secret.pth"}):
        refused("not the recipe of a feature extractor", build, recipe)


# --- weights -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "suffix"), [("resnet18", ".safetensors"), ("efficientnet_lite0", ".pth")])
def test_weights_from_a_file(tmp_path, name, suffix):
    extractor = backbone(name, block=2, weights=None)
    path = tmp_path / f"weights{suffix}"
    write = safetensors.torch.save_file if suffix == ".safetensors" else torch.save
    write(extractor.net.state_dict(), path)
    images = torch.rand(1, 3, 32, 32)
    for given in (path, str(path)):
        assert torch.equal(backbone(name, block=2, weights=given)(images), extractor(images))


def test_damaged_and_foreign_weights(tmp_path):
    for name in ("text.pth", "text.safetensors"):
        (tmp_path / name).write_text("no weights")
    torch.save({"epoch": 3}, tmp_path / "other.pth")
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "linear.pth")
    torch.save(Evil(), tmp_path / "evil.pth")
    for file, message in {
        "text.pth": r"cannot read the weights '.*text.pth' \(\w+: ",
        "text.safetensors": r"cannot read the weights '.*text.safetensors' \(\w+: ",
        "none.pth": r"cannot read the weights '.*none.pth' \(FileNotFoundError: .*[Nn]o such file",
        "none.safetensors": r"cannot read the weights '.*none.safetensors' \(FileNotFoundError: .*[Nn]o such file",
        "other.pth": "other.pth' holds no state dict",
        "linear.pth": r"linear.pth' does not fit \w+: .*Missing key",
        "evil.pth": "cannot read the weights",
    }.items():
        for name in ("resnet18", "efficientnet_lite0"):
            refused(message, backbone, name, weights=tmp_path / file)


class Evil:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was executed",))


@pytest.mark.parametrize("error", [URLError("offline"), RuntimeError("invalid hash"), OSError("disk full")])
def test_default_weights_without_network(monkeypatch, tmp_path, error):
    def fail(url, **options):
        raise error

    monkeypatch.setattr(torchvision.models._api, "load_state_dict_from_url", fail)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    with pytest.raises(RuntimeError) as raised:
        vgg16()
    message = str(raised.value)
    for part in ("vgg16-397923af.pth", str(tmp_path / "checkpoints"), "weights=PATH", "weights=None"):
        assert part in message
    assert "efficientnet_lite0()" in message
    assert str(error) in message


def test_default_weights_are_those_of_torchvision(monkeypatch):
    # SECURITY.md: Weights of networks are read with
    extractor = backbone("resnet18", block=1, weights=None)
    asked = []

    def fetch(url, **options):
        asked.append((url.rpartition("/")[2], options))
        return extractor.net.state_dict()

    monkeypatch.setattr(torchvision.models._api, "load_state_dict_from_url", fetch)
    images = torch.rand(1, 3, 32, 32)
    assert torch.equal(backbone("resnet18", block=1)(images), extractor(images))
    assert asked == [("resnet18-f37072fd.pth", {"check_hash": True, "weights_only": True})]
