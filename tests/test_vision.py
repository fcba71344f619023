"""Vision networks of transformers, with random weights, and image processors."""

from types import SimpleNamespace

import pytest
import torch
from refusals import refused
from torch.testing import assert_close

import neonxc
from neonxc import NEON
from neonxc.models import FeatureExtractor, to_tensor

transformers = pytest.importorskip("transformers")

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
VISION = {"ViT": 1, "DeiT": 2, "Dinov2WithRegisters": 5, "CLIPVision": 1, "SiglipVision": 0, "BlipVision": 1}


@pytest.mark.parametrize("name", VISION)
def test_vision_transformers(name):
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(image_size=32, patch_size=8, **SIZES)
    model = getattr(transformers, f"{name}Model")(config).eval()
    processor = transformers.ViTImageProcessor(image_std=[0.25] * 3)
    features = FeatureExtractor(model, processor=processor)
    assert features.tokens == VISION[name]
    assert (features.mean, features.std) == ((0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    x = features.preprocess(torch.rand(4, 3, 32, 32))
    states = model(pixel_values=x).last_hidden_state[:, features.tokens :]
    assert_close(features(x).flatten(2).mT, states)
    net = neonxc.neuralize(states.flatten(0, 1)[:3], x, features=features)
    assert NEON(net).heatmaps(x).shape == (4, 3, 32, 32)
    pooled = FeatureExtractor(model, pool="class" if features.tokens else "avg", processor=processor)
    pair = neonxc.similarity(pooled, x[:2], x[2:])
    neonxc.plot.pair(pair, 0, [pooled.deprocess(x[0]), pooled.deprocess(x[2])])


PROCESSORS = [
    ("ViT", {"do_normalize": False}),
    ("CLIP", {"do_rescale": False, "do_normalize": False}),
    ("Bit", {"do_rescale": False, "image_mean": [103.9, 116.8, 123.7], "image_std": [1, 2, 3]}),
    ("Siglip", {"rescale_factor": 1 / 127.5, "image_mean": [0.1, 0.2, 0.3]}),
    ("EfficientNet", {"rescale_factor": 1 / 127.5, "rescale_offset": True}),
    ("Vivit", {}),
]


@pytest.mark.parametrize(("name", "settings"), PROCESSORS)
@pytest.mark.parametrize("nested", [False, True])
def test_preprocess_does_what_the_image_processor_does(name, settings, nested):
    processor = getattr(transformers, f"{name}ImageProcessor")(**settings, do_resize=False, do_center_crop=False)
    photo = torch.randint(256, (3, 8, 8), dtype=torch.uint8)
    expected = processor([photo], return_tensors="pt")["pixel_values"].reshape(photo.shape).float()
    whole = SimpleNamespace(image_processor=processor) if nested else processor
    features = FeatureExtractor(torch.nn.Conv2d(3, 4, 1), processor=whole)
    assert_close(features.preprocess(photo / 255), expected, atol=1e-4, rtol=1e-5)
    assert_close(features.deprocess(expected), photo / 255)


def test_image_processors_that_reorder_channels():
    message = r"must keep the order of the colours .*do_flip_channel_order"
    processor = transformers.MobileViTImageProcessor()
    refused(message, FeatureExtractor, torch.nn.Conv2d(3, 4, 1), processor=processor)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_image_processors_in_half_precision(dtype):
    def processor(photo):
        return ((to_tensor(photo) - 0.5) / 0.25).to(dtype)

    features = FeatureExtractor(torch.nn.Conv2d(3, 4, 1), processor=processor)
    assert (features.mean, features.std) == ((0.5,) * 3, (0.25,) * 3)


PARTS = {
    "CLIPModel": "vision_model",
    "SiglipModel": "vision_model",
    "OwlViTModel": "vision_model",
    "ViTForImageClassification": "vit",
}


@pytest.mark.parametrize(("name", "part"), PARTS.items())
def test_errors_name_the_part_for_images(name, part):
    sizes = SIZES | {"image_size": 32, "patch_size": 8}
    options = {"text_config": SIZES, "vision_config": sizes} if part == "vision_model" else sizes
    architecture = getattr(transformers, name)
    images = torch.rand(2, 3, 32, 32)
    model = architecture(architecture.config_class(**options)).eval()
    refused(rf"{name}, .* gives no features of images .* pass its part '{part}'", FeatureExtractor, model)
    ask = neonxc.neuralize(torch.eye(2), features=model).predict
    refused("FeatureExtractor|pixel|input_ids", ask, images, error=(TypeError, ValueError))
    assert FeatureExtractor(model.get_submodule(part))(images).shape == (2, 32, 4, 4)


def test_tokens_of_oblong_images():
    config = transformers.ViTConfig(image_size=(32, 48), patch_size=8, **SIZES)
    features = FeatureExtractor(transformers.ViTModel(config).eval())
    assert features.tokens == 1
    assert features(torch.rand(2, 3, 32, 48)).shape == (2, 32, 4, 6)


def test_maps_of_convolutional_networks():
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])
    model = transformers.ResNetModel(config).eval()
    assert FeatureExtractor(model)(torch.rand(2, 3, 32, 48)).shape == (2, 16, 4, 6)


def test_patches_at_random():
    model = transformers.ViTMAEModel(transformers.ViTMAEConfig(image_size=32, patch_size=8, **SIZES))
    refused("ViTMAEModel draws patches at random", FeatureExtractor, model.eval())
