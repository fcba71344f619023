"""Networks of timm by name: an optional package, and no way out to a hub."""

import json
import sys

import pytest
import torch
from refusals import refusals, refused
from torch.testing import assert_close

from neonxc.models import FeatureExtractor, backbone
from neonxc.models.backbones import build

timm = pytest.importorskip("timm")


@pytest.mark.parametrize(
    ("name", "block", "size", "shape"),
    [
        ("convnext_atto", None, (64, 96), (160, 4, 6)),
        ("resnet34", 4, (64, 96), (512, 2, 3)),
        ("timm/vit_small_patch16_224", 5, (64, 96), (384, 4, 6)),
        ("deit_tiny_distilled_patch16_224", None, (64, 96), (192, 4, 6)),
        ("mixer_s32_224", None, (224, 224), (512, 7, 7)),
    ],
)
def test_shapes(name, block, size, shape):
    with torch.device("meta"):
        extractor = backbone(name, block=block, weights=None)
        assert extractor(torch.empty(2, 3, *size)).shape == (2, *shape)
        assert extractor.size == (size if "mixer" in name else None)
    assert extractor.recipe["builder"] == "timm/" + name.removeprefix("timm/")


@pytest.mark.parametrize(
    ("name", "block", "prefix", "size"),
    [
        ("convnext_atto", 2, None, (64, 96)),
        pytest.param("vit_tiny_patch16_224", 3, 1, (64, 96), marks=pytest.mark.slow),
        ("vit_small_patch14_reg4_dinov2", 1, 5, (56, 112)),
        pytest.param("swin_tiny_patch4_window7_224", 2, 0, (224, 224), marks=pytest.mark.slow),
    ],
)
def test_features_are_those_that_timm_gives(name, block, prefix, size):
    extractor = backbone(name, block=block, weights=None)
    assert extractor.tokens == prefix
    images = torch.rand(1, 3, *size)
    options = {"return_prefix_tokens": True} if prefix else {}
    (witness,) = extractor.net.forward_intermediates(images, indices=[block], intermediates_only=True, **options)
    expected, first = witness if prefix else (witness, None)
    assert_close(extractor(images), expected)
    extractor.pool = "avg"
    assert_close(extractor(images), expected.mean((2, 3)))
    if prefix:
        extractor.pool = "class"
        assert_close(extractor(images), first[:, 0])


def test_ready_to_use():
    extractor = backbone("timm/vit_tiny_patch16_224", "norm", weights=None, pool="class", normalize=True)
    assert (extractor.layer, extractor.tokens, extractor.size) == ("norm", 1, None)
    assert extractor.mean == (0.5, 0.5, 0.5)  # timm's, not ImageNet's
    assert not any(module.training for module in extractor.modules())
    assert not any(parameter.requires_grad for parameter in extractor.parameters())
    assert_close(extractor(torch.rand(2, 3, 32, 48)).norm(dim=1), torch.ones(2))
    assert build(json.loads(json.dumps(extractor.recipe))).recipe == extractor.recipe
    for name, owner in (("resnet18", "torchvision"), ("timm/resnet18", "timm"), ("mobilenetv2_100", "timm")):
        assert backbone(name, weights=None).net.__module__.startswith(owner)
    message = r"VisionTransformer does not take images .* divisible by patch size"
    refused(message, extractor, torch.rand(1, 3, 33, 48))


def test_layout_follows_the_layer():
    with torch.device("meta"):
        for layer, tokens in {"patch_embed.proj": None, "patch_embed": 0, "blocks.2.mlp": 1, "head": None}.items():
            assert backbone("vit_tiny_patch16_224", layer, weights=None).tokens == tokens


# --- errors ------------------------------------------------------------------------------------------------


def unknown(*arguments, **options):
    return lambda: backbone(*arguments, weights=None, **options)


test_unknown_names = refusals(
    {
        r"no backbone is called 'convnext_ato' \(did you mean 'convnext_atto'\?\)": unknown("convnext_ato"),
        r"'timm/convnext_ato' \(did you mean .*those of timm.list_models\(\)": unknown("timm/convnext_ato"),
        "block of timm/convnext_atto must be 0 to 3; got 4": unknown("convnext_atto", block=4),
        r"'stage.1' is not a module of ConvNeXt .*'stages.1'": unknown("convnext_atto", "stage.1"),
        "returns a list, not a tensor; inside it, 'blocks.2.*' can be": unknown("crossvit_tiny_240", "blocks.2"),
        "needs a class token, but timm/vit_medium_patch16_reg4_gap_256 has none": unknown(
            "vit_medium_patch16_reg4_gap_256", pool="class"
        ),
    },
    (ValueError, TypeError),
)


@pytest.mark.parametrize(
    "name",
    [
        "hf-hub:timm/resnet18.a1_in1k",
        "timm/hf_hub:evil/model",
        "local-dir:/tmp",
        "timm/../x",
        "timm/resnet18.a1_in1k/../../x",
        "timm/resnet18.no_such_tag",
        "timm/",
        "",
    ],
)
def test_recipes_reach_no_hub(monkeypatch, name):
    monkeypatch.setattr(timm, "create_model", lambda *args, **options: pytest.fail("timm was asked"))
    for ask, given in ((build, {"builder": name}), (backbone, name)):
        refused("no backbone is called ", ask, given)


def test_recipes_ask_for_no_weights(monkeypatch):
    real = timm.create_model
    asked = []
    monkeypatch.setattr(timm, "create_model", lambda *a, **options: asked.append(options) or real(*a, **options))
    build({"builder": "timm/test_vit.r160_in1k"})
    assert asked
    assert not any(options.get("pretrained") for options in asked)


def test_without_timm(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    message = r'is a network of timm.*: in a checkout, pip install -e "\.\[timm\]"'
    for name in ("timm/convnext_atto", "timm/hf-hub:x/y"):
        refused(message, backbone, name, weights=None, error=ImportError)
    message = r'no backbone is called .*those of timm \(in a checkout, pip install -e "\.\[timm\]"'
    refused(message, backbone, "convnext_atto")
    assert backbone("resnet18", weights=None).layer == "layer4"


# --- weights -----------------------------------------------------------------------------------------------


def test_weights_from_a_file(tmp_path):
    extractor = backbone("timm/test_resnet", weights=None)
    path = tmp_path / "weights.pth"
    torch.save(extractor.net.state_dict(), path)
    images = torch.rand(1, 3, 32, 32)
    assert torch.equal(backbone("timm/test_resnet", weights=path)(images), extractor(images))
    refused("does not fit EfficientNet: ", backbone, "timm/test_efficientnet", weights=path)


@pytest.mark.parametrize("error", [None, OSError("offline"), RuntimeError("No pretrained weights exist for it")])
def test_default_weights(monkeypatch, error):
    real = timm.create_model
    asked = []

    def create(name, pretrained=False, **options):
        asked.append(pretrained)
        if error is not None:
            raise error
        return real(name, **options)

    monkeypatch.setattr(timm, "create_model", create)
    monkeypatch.setattr("huggingface_hub.utils.get_session", lambda: None)  # no test waits for an answer
    if error is None:
        backbone("timm/test_vit")
    else:
        with pytest.raises(RuntimeError) as raised:
            backbone("timm/test_vit")
        for part in ("timm's test_vit", str(error), "list_pretrained", "weights=PATH", "efficientnet_lite0()"):
            assert part in str(raised.value)
    assert asked == [True]


def test_offline_the_cache_alone_is_asked(monkeypatch, neonxc_command, tmp_path):
    from huggingface_hub import constants, utils

    class Client:
        def head(self, url, timeout):
            assert (url, timeout) == (constants.ENDPOINT, 3)
            raise OSError("no connection")

    def create(*_, **__):
        assert constants.HF_HUB_OFFLINE
        raise OSError("not in the cache")

    monkeypatch.setattr(utils, "get_session", Client)
    monkeypatch.setattr(timm, "create_model", create)
    (tmp_path / "a.png").touch()
    code, _, err = neonxc_command("heatmap", "a.png", "--backbone", "timm/test_vit")
    assert code == 1
    assert (
        "timm's test_vit (OSError: not in the cache). Give neonxc heatmap a file of weights (--weights FILE)"
        in err
    )
    assert "weights=" not in err  # that is for Python
    assert not constants.HF_HUB_OFFLINE


def test_maps_of_hiera_are_in_the_order_of_the_image():
    hiera = pytest.importorskip("timm.models.hiera").Hiera
    torch.manual_seed(0)
    net = hiera(img_size=(64, 64), embed_dim=16, num_heads=1, stages=(1, 2, 2, 1), num_classes=0).eval()
    x = torch.randn(2, 3, 64, 64)
    ends = ["blocks.0", "blocks.2", "blocks.4", "blocks.5"]
    wanted = net.forward_intermediates(x, intermediates_only=True)
    for around, prefix in ((net, ""), (torch.nn.Sequential(net), "0.")):
        for layer, maps in zip(ends, wanted, strict=True):
            assert_close(FeatureExtractor(around, prefix + layer)(x), maps)
            assert_close(FeatureExtractor(around, prefix + layer, pool="avg")(x), maps.mean((2, 3)))
        patches = FeatureExtractor(around, f"{prefix}patch_embed")(x)
        assert_close(patches, net.patch_embed.proj(x))
        for layer in ("unroll", "blocks.0.norm1"):
            inside = FeatureExtractor(around, prefix + layer)
            refused(f"not in the order of the image; choose a whole block such as '{prefix}blocks.0'", inside, x)


def test_maps_of_hiera_of_transformers_are_in_the_order_of_the_image():
    transformers = pytest.importorskip("transformers")
    config = transformers.HieraConfig(
        image_size=[64, 64], embed_dim=24, num_heads=[1, 1, 2, 2], depths=[1, 1, 1, 1], num_query_pool=2
    )
    torch.manual_seed(0)
    net = transformers.HieraModel(config).eval()
    x = torch.randn(2, 3, 64, 64)
    wanted = net(x, output_hidden_states=True).reshaped_hidden_states[-1].movedim(-1, 1)
    for layer in ("", "encoder"):
        assert_close(FeatureExtractor(net, layer)(x), wanted)
    inside = FeatureExtractor(net, "encoder.stages.0.layers.0.mlp")
    refused("not in the order of the image", inside, x)
