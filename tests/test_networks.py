"""LRP on the networks people use, unmodified, with random weights and random statistics."""

import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torchvision
from refusals import refused
from sklearn.cluster import KMeans
from torch import nn
from torch.testing import assert_close

import neonxc
from neonxc import NEON
from neonxc.lrp import LRP, Composite, Constant, Epsilon
from neonxc.models import FeatureExtractor

NETWORKS = {
    "torchvision": ["alexnet", "resnet18", "mobilenet_v3_small", "efficientnet_b0", "squeezenet1_1"],
    "timm": ["convnext_atto", "efficientnet_lite0", "vit_tiny_patch16_224"],
}
LARGE = {
    "torchvision": ["vgg11", "vgg16", "vgg16_bn", "resnet50", "mobilenet_v2", "convnext_tiny", "vit_b_16"],
    "timm": ["resnet18", "vit_small_patch14_reg4_dinov2"],
}
SMALL = {"vit_b_16": 224, "alexnet": 96, "vit_tiny_patch16_224": 64, "vit_small_patch14_reg4_dinov2": 56}
ONLY_RELU = {"squeezenet1_1", "vgg11", "vgg16", "vgg16_bn", "alexnet", "resnet18", "resnet50"}


def build(library, name):
    if library == "torchvision":
        net = torchvision.models.get_model(name, weights=None)
        if isinstance(net, (torchvision.models.VGG, torchvision.models.AlexNet)):  # smaller at the top
            width = net.classifier[-1].in_features // 64
            first = next(m for m in net.classifier if isinstance(m, nn.Linear)).in_features
            net.classifier = nn.Sequential(
                *(nn.Dropout(), nn.Linear(first, width), nn.ReLU(inplace=True), nn.Linear(width, 10))
            )
    else:
        timm = pytest.importorskip("timm")
        options = {"dynamic_img_size": True} if name.startswith("vit") else {}
        net = timm.create_model(name, pretrained=False, num_classes=10, **options)
    generator = torch.Generator().manual_seed(0)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1, generator=generator)
            module.running_var.uniform_(0.5, 1.5, generator=generator)
            nn.init.uniform_(module.weight, 0.5, 1.5, generator=generator)  # timm starts some at zero
        elif isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight, generator=generator)  # torchvision starts ViT heads at zero
    return net.eval()


def picture(name, n=1):
    return torch.randn(n, 3, *[SMALL.get(name, 64)] * 2, generator=torch.Generator().manual_seed(1))


def gradient_times_input(net, x, target):
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(net(leaf)[:, target].sum(), leaf)
    return x * gradient


HEAVY = "alexnet", "efficientnet_b0", "vit_small_patch14_reg4_dinov2"  # of kinds of which there are smaller ones


def networks(of):
    return pytest.mark.parametrize(
        ("library", "name"),
        [
            pytest.param(library, name, marks=[pytest.mark.slow] * (name in HEAVY))
            for library in of
            for name in of[library]
        ],
    )


@networks(NETWORKS)
def test_works_unmodified(library, name):
    net = build(library, name)
    x = picture(name)
    recording = LRP(net).record(x)
    with torch.no_grad():
        assert_close(recording.output, net(x), rtol=1e-3, atol=1e-4)
    start = torch.zeros_like(recording.output)
    start[:, 3] = 1
    relevance = recording.propagate(start)
    assert relevance.shape == x.shape
    assert torch.isfinite(relevance).all()
    assert (relevance != 0).float().mean() > 0.9
    assert_close(LRP(net, Composite()).attribute(x, 3), relevance)  # one walk or several
    if name in ONLY_RELU:
        plain = LRP(net, Composite(Epsilon(0.0))).attribute(x, 3)
        wanted = gradient_times_input(net, x, 3)
        assert (plain - wanted).norm() < 1e-3 * wanted.norm()


@pytest.mark.slow
@networks(LARGE)
def test_large_ones_work_unmodified(library, name):
    test_works_unmodified(library, name)


def small_transformer():
    net = torchvision.models.VisionTransformer(32, 8, 2, 2, 32, 64, num_classes=10)
    nn.init.xavier_uniform_(net.heads.head.weight)
    return net.eval(), torch.randn(2, 3, 32, 32)


def test_attention_of_features_is_constant_by_default():
    """Every softmax is, unless the features are probabilities."""
    net, x = small_transformer()
    held = Composite(functions={torch.softmax: Constant()})
    for features, same in ((net, held), (nn.Sequential(net, nn.Softmax(1)), Composite())):
        head = neonxc.neuralize(features(x).detach().numpy(), x, features)
        default, own, other = (neonxc.NEON(head, rules).attribute(x) for rules in (None, same, Composite()))
        assert_close(default, own)
        assert torch.allclose(default, other) == (same is not held)


# --- what a network does to X, and to the rows of a batch ----------------------------------------------------


class Rows(nn.Module):
    """Features of rows [N, 6], as a test writes them."""

    def __init__(self, run):
        super().__init__()
        torch.manual_seed(0)
        self.run = run
        self.a = nn.Linear(6, 8)
        self.attention = nn.MultiheadAttention(8, 2)  # of the first dimension
        self.places = nn.Parameter(torch.randn(100, 8))
        self.edges = torch.randint(0, 20, (2, 40))
        self.eval()

    def forward(self, x):
        return self.run(self, x)


def table(dtype=torch.float32, n=20):
    x = torch.randn(n, 6, generator=torch.Generator().manual_seed(1), dtype=dtype)
    x[0] = 0.0  # padding
    return x


def neuralized(run, x, *, train=False):
    net = Rows(run).to(x.dtype).train(train)
    return neonxc.neuralize(torch.randn(3, 8, dtype=x.dtype), x, net)


def standardized(n, x):
    x -= x.mean(1, keepdim=True)
    return n.a(x.div_(x.std(1, keepdim=True) + 1e-3))


WRITING = {
    "in place": standardized,
    "only large ones": lambda n, x: n.a(x.div_(10.0) if x.max() > 3 else x),
    "a part": lambda n, x: n.a(F.relu(x[:, :3], inplace=True).sum(1, keepdim=True) + x),
    "through data": lambda n, x: n.a(x.data.mul_(0.5)),
    "through NumPy": lambda n, x: (np.negative(x.detach().numpy(), out=x.detach().numpy()), n.a(x))[1],
    "missing": lambda n, x: (x.masked_fill_(x < 0, 0.0), n.a(x))[1],
}


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("as_array", [False, True])
@pytest.mark.parametrize("name", WRITING)
def test_networks_may_write_into_copies_of_x_alone(name, as_array, train):
    x = table()
    x[3:] *= 5.0  # of a later run
    given = x.numpy() if as_array else x
    before = x.clone()
    clustering = neuralized(WRITING[name], x[:2], train=train)
    with torch.no_grad():
        expected = clustering.head(WRITING[name](clustering.features, x.clone())).argmax(1)
    for _ in range(2):
        assert_close(torch.as_tensor(np.asarray(clustering.predict(given))), expected)
    if "through" not in name:  # which LRP can't follow
        NEON(clustering).attribute(given)
        NEON(clustering).summary(given)
    clustering(x)
    assert torch.equal(x, before)


def test_maps_leave_photos_as_they_are():
    net = nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True)).eval()
    photos = torch.randn(6, 3, 8, 8)
    before = photos.clone()
    with torch.no_grad():
        points = net(photos.clone()).movedim(1, -1).flatten(0, 2)[:2]
    clustering = neonxc.neuralize(points, photos, net)
    NEON(clustering).heatmaps(photos)
    clustering.predict(photos)
    FeatureExtractor(net, "1").points(photos)
    assert torch.equal(photos, before)


def neighbours(n, x):
    return n.a(x)[torch.cdist(x, x).topk(3, largest=False).indices].mean(1)


def shifted(n, x):
    h = n.a(x)
    return torch.cat([h[:1], h[1:] + 0.01 * h[:-1]])


MIXING = {
    "adjacency": lambda n, x: torch.eye(20, dtype=x.dtype).roll(1, 0) @ n.a(x) + n.a(x),
    "edges": lambda n, x: n.a(x).index_add(0, n.edges[1], n.a(x)[n.edges[0]]),
    "nearest neighbours": neighbours,
    "frames": lambda n, x: (n.a(x).view(-1, 4, 8) + n.a(x).view(-1, 4, 8).mean(1, keepdim=True)).flatten(0, 1),
    "shifted": shifted,
    "softmax": lambda n, x: n.a(x).softmax(0),
    "normalized": lambda n, x: F.normalize(n.a(x), dim=0),
    "batch": lambda n, x: (n.a(x) - n.a(x).mean(0)) / (n.a(x).std(0) + 1e-5),
    "largest": lambda n, x: n.a(x / x.abs().max()),
    "attention": lambda n, x: n.attention(n.a(x), n.a(x), n.a(x))[0],
    "weakly": lambda n, x: n.a(x) + 1e-3 * n.a(x).mean(0),
    "first row": lambda n, x: n.a(x) - n.a(x[:1]),
    "places": lambda n, x: n.a(x) + n.places[: len(x)],
    "number": lambda n, x: n.a(x) / len(x),
    "order": lambda n, x: n.a(x).sort(0).values,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MIXING)
def test_networks_that_mix_rows_are_refused(name, dtype):
    for train in (False, True):
        refused("mixes the rows of X", neuralized, MIXING[name], table(dtype), train=train)
    later = neonxc.neuralize(torch.randn(3, 8, dtype=dtype), features=Rows(MIXING[name]).to(dtype))
    refused("mixes the rows of X", later.predict, table(dtype))
    refused("mixes the rows of X", NEON(later).attribute, table(dtype))


SEPARATE = {
    "linear": lambda n, x: n.a(x),
    "one row is no batch": lambda n, x: n.a(x[:, None]).squeeze(),
    "batches of one size": lambda n, x: n.a(x.reshape(20, 6)),
    "batches of three": lambda n, x: n.a(x) if len(x) > 2 else n.missing,
    "the same for all": lambda n, x: n.a(x) * 0 + n.places[0],
    "large and small": lambda n, x: torch.cat([n.a(x)[:, :4] * 1e12, n.a(x)[:, 4:]], 1),
    "steps": lambda n, x: n.a(x).round(),
    "nearest code": lambda n, x: n.places[torch.cdist(n.a(x), n.places).argmin(1)],
    "softmax": lambda n, x: n.a(x).softmax(1),
    "half precision": lambda n, x: n.a(x).bfloat16().float(),
    "missing": lambda n, x: n.a(x.where(x != 0, torch.nan)).nan_to_num(),
    "single rows": lambda n, x: torch.cat([n.a(row) for row in x.split(1)]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SEPARATE)
def test_networks_that_do_not_mix_rows_are_accepted(name, dtype):
    x = table(dtype)
    for train in (False, True):
        clustering = neuralized(SEPARATE[name], x, train=train)
        with torch.no_grad():
            expected = clustering.head(SEPARATE[name](clustering.features, x))
        assert_close(clustering(x).detach(), expected)


def test_rows_are_run_apart_once():
    sizes = []
    clustering = neuralized(lambda n, x: (sizes.append(len(x)), n.a(x))[1], table())
    clustering.predict(table())
    clustering.predict(table(n=7))
    assert sum(size == 2 for size in sizes) == 3
    assert sizes[3:] == [20] * (len(sizes) - 4) + [7]


# --- random numbers ------------------------------------------------------------------------------------------

IGNORED = {
    "not used": lambda n, x: (torch.rand(3), n.a(x))[1],
    "times zero": lambda n, x: n.a(x) + 0.0 * torch.rand(8),
    "never": lambda n, x: n.a(x) if torch.rand(()) < 2 else -n.a(x),
    "mask of nothing": lambda n, x: n.a(x).masked_fill(torch.rand(len(x), 8) > 1, 0.0),
    "dropped": lambda n, x: (F.dropout(x, 0.5), n.a(x))[1],
}
USED = {
    "noise": lambda n, x: n.a(x) + torch.randn(8),
    "rarely": lambda n, x: n.a(x) if torch.rand(()) > 1e-6 else -n.a(x),
    "even in the number": lambda n, x: n.a(x) * (torch.rand(()) - 0.5).abs(),
    "rows": lambda n, x: n.a(x)[torch.randperm(len(x))],
    "dropout": lambda n, x: F.dropout(n.a(x), 0.5),
}


@pytest.mark.parametrize("name", [*IGNORED, *USED])
def test_random_numbers_are_refused_if_they_change_something(name):
    x = table()
    train = False
    if name in USED:
        refused("would draw random numbers in eval mode", neuralized, USED[name], x, train=train)
    else:
        clustering = neuralized(IGNORED[name], x, train=train)
        with torch.no_grad():
            assert_close(clustering(x), clustering.head(clustering.features.a(x)))


# --- other processes -----------------------------------------------------------------------------------------


@pytest.fixture
def waiting(monkeypatch):
    """A wrapper that would wait for other processes, and the threads in which it did."""
    parallel = nn.parallel.DistributedDataParallel
    waits = []
    monkeypatch.setattr(parallel, "__init__", lambda self, module: nn.Module.__init__(self))
    monkeypatch.setattr(
        parallel, "forward", lambda self, x: (waits.append(threading.get_ident()), self.module(x))[1]
    )

    def wrapped(module):
        wrapper = parallel(module)
        wrapper.module = module
        return wrapper.eval()

    return wrapped, waits


def test_no_process_waits_for_others(waiting):
    wrapped, waits = waiting
    inner = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU()).eval()
    x = table()
    last = nn.Linear(8, 4)
    plain = nn.Sequential(inner, last)
    expected = neonxc.neuralize(plain(x)[:3].detach(), x, plain)
    for net in (wrapped(plain), nn.Sequential(wrapped(inner), last), wrapped(nn.Sequential(wrapped(inner), last))):
        clustering = neonxc.neuralize(plain(x)[:3].detach(), x, net)
        assert_close(clustering.predict(x), expected.predict(x))
        assert_close(NEON(clustering).attribute(x), NEON(expected).attribute(x))
        assert_close(clustering(x), expected(x))
    assert not waits
    net(x)
    assert waits  # as before, where it is trained


# --- which dimension holds the features --------------------------------------------------------------------


class Tokens(nn.Module):
    """Tokens [N, T, d] of small layers, or of patches, and what a network makes of them."""

    def __init__(self, run):
        super().__init__()
        torch.manual_seed(0)
        d = 6
        self.run = run
        self.weight = torch.randn(3, d)
        self.linear = nn.Linear(3, d)
        self.norm = nn.LayerNorm(d)
        self.patches = nn.Conv2d(3, d, 4, 4)
        self.attention = nn.TransformerEncoderLayer(d, 2, 8, batch_first=True)
        self.lstm = nn.LSTM(3, d, batch_first=True)
        self.series = nn.Conv1d(3, d, 1)
        self.eval()

    def forward(self, x):
        return self.run(self, x)


TOKENS = {
    "linear": lambda n, x: n.linear(x).relu(),
    "linear, residual": lambda n, x: (h := n.linear(x)) + h.sigmoid() * h,
    "attention": lambda n, x: n.norm(n.attention(n.linear(x))),
    "plain product": lambda n, x: x @ n.weight,
    "einsum": lambda n, x: torch.einsum("ntc,cd->ntd", x, n.weight).tanh(),
    "mixing": lambda n, x: torch.ones(6, 6).tril() @ n.linear(x),
    "lstm": lambda n, x: n.lstm(x)[0],
    "convolution, turned": lambda n, x: n.series(x.mT).mT,
    "class token left out": lambda n, x: torch.cat([h := n.linear(x), h[:, :1]], 1)[:, 1:],
}


@pytest.mark.parametrize("name", TOKENS)
def test_as_many_tokens_as_features_are_no_channels_in_silence(name):
    """With T = d, [N, T, d] could be read as [N, d, T]: other rows, and other labels."""
    x = torch.randn(10, 6, 3, generator=torch.Generator().manual_seed(0))
    last = Tokens(TOKENS[name])
    with torch.no_grad():
        points = last(x).flatten(0, 1)
    model = KMeans(3, n_init=1, random_state=0).fit(points.double().numpy())
    labels = torch.from_numpy(model.labels_).view(10, 6)
    refused(r"shape \[10, 6, 6\].* last dimension.*movedim\(-1, 1\)", neonxc.neuralize, model, x, features=last)
    for turn in (lambda h: h.mT, lambda h: h.movedim(-1, 1)[..., None]):
        first = Tokens(lambda n, x, turn=turn: turn(TOKENS[name](n, x)))
        net = neonxc.neuralize(model, x, features=first)
        assert_close(torch.as_tensor(net.predict(x)).view(10, 6), labels, check_dtype=False)


MAPS = {
    "convolution": lambda n, x: n.series(x).relu(),
    "linear, then a convolution": lambda n, x: n.series(n.linear(x.mT)[..., :3].mT),
    "nothing": lambda n, x: x[:, [0, 1, 2, 0, 1, 2]],
}


@pytest.mark.parametrize("name", MAPS)
def test_series_as_long_as_they_have_channels_are_accepted(name):
    x = torch.randn(10, 3, 6, generator=torch.Generator().manual_seed(0))
    first = Tokens(MAPS[name])
    with torch.no_grad():
        points = first(x).mT.flatten(0, 1)
    model = KMeans(3, n_init=1, random_state=0).fit(points.double().numpy())
    net = neonxc.neuralize(model, x, features=first)
    assert_close(torch.as_tensor(net.predict(x)).view(-1), torch.from_numpy(model.labels_), check_dtype=False)


def test_features_of_another_width_are_refused_with_their_shape():
    x = torch.randn(10, 5, 3)
    message = r"shape \[10, 5, 6\].* has 5 features, .* fitted on 6: .* return features.movedim\(-1, 1\)$"
    refused(message, neonxc.neuralize, np.eye(6), x, features=Tokens(TOKENS["linear"]))
