"""What counts as depending on the network's input, and what as a constant; values written in place."""

import copy
import linecache
import pickle
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from refusals import refused, untraceable
from torch import nn
from torch.testing import assert_close

import neonxc
from neonxc.evaluation import compare, methods, pixel_flipping, sanity
from neonxc.lrp import LRP, Composite, Epsilon, Flat, Gamma, UnsupportedOperation
from neonxc.models import FeatureExtractor

GRADIENT = Composite(Epsilon(0.0))


class Net(nn.Module):
    """A forward pass written as a function of the module, to the outputs or to features that `b` maps to them."""

    def __init__(self, run):
        super().__init__()
        torch.manual_seed(0)
        self.run = run
        self.a = nn.Linear(4, 6)
        self.g = nn.Linear(4, 6)
        self.b = nn.Linear(6, 3)
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.s = nn.Parameter(torch.randn(6))
        self.q = nn.Parameter(torch.randn(1, 5, 6))
        self.A = nn.Parameter(torch.randn(4, 2))
        self.B = nn.Parameter(torch.randn(2, 6))
        self.w = nn.Parameter(torch.randn(6, 6))
        self.z = nn.Parameter(torch.randn(6))
        self.double().eval()

    def forward(self, x):
        found = self.run(self, x)
        return found if found.shape[-1:] == (3,) else self.b(found)


def points():
    return torch.randn(5, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def gradient_times_input(net, x, target=1):
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(net(leaf)[:, target].sum(), leaf)
    return (leaf * gradient).detach()


# --- parameters are constants, trainable or not ------------------------------------------------------------


TRAINABLE = {
    "LoRA": lambda n, x: (n.a(x) + x @ n.A @ n.B).relu() @ n.w,
    "attention": lambda n, x: F.scaled_dot_product_attention(n.q, h := n.a(x)[None], h)[0],
    "attention module": lambda n, x: n.attention(n.q, n.a(x)[None], n.g(x)[None])[0][0],
}


@pytest.mark.parametrize("name", TRAINABLE)
def test_trainable_and_frozen_networks_have_the_same_relevance_and_layers(name):
    net = Net(TRAINABLE[name])
    x = points()
    seen = [], []

    def explained(trainable):
        spy = {lambda place: seen[trainable].append((place.depth, place.name)): Epsilon()}
        return LRP(net.requires_grad_(trainable), Composite(Epsilon(0.01), spy)).attribute(x, 1)

    assert_close(explained(True), explained(False), rtol=0, atol=0)
    assert {*seen[0]} == {*seen[1]}


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    "norm", [nn.utils.weight_norm, nn.utils.spectral_norm, nn.utils.parametrizations.weight_norm]
)
def test_computed_weights_are_left_without_marks(norm):
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), norm(nn.Linear(6, 3))).double().eval()
    x = points()
    LRP(net).attribute(x, 1)
    plain = nn.Sequential(*net[:2], nn.Linear(6, 3).double())
    plain[2].weight.data = net[2].weight.detach()
    plain[2].bias.data = net[2].bias.detach()
    for composite in (Composite(Epsilon(0.0), {2: Gamma(1.0)}), Composite(Gamma(0.5))):
        assert_close(*(LRP(one, composite).attribute(x, 1) for one in (net, plain)))
    assert not vars(net[2].weight)


# --- without gradients -------------------------------------------------------------------------------------


@torch.no_grad()
def constant_output(n, x):
    return n.b(n.a(x))


@torch.inference_mode()
def inference(n, x):
    return n.b(n.a(x))


def of_a_size(n, x):
    with torch.no_grad():
        size = x.shape[0]
    return n.b(n.q[0, :size])


@pytest.mark.parametrize(
    "run",
    [
        of_a_size,
        lambda n, x: torch.ones_like(n.a(x)) + x.new_zeros(6),
        lambda n, x: n.q[0].to(x).expand_as(n.a(x).detach()),
        lambda n, x: n.b(n.q[0]) if x.abs().max().item() < 100 else n.a(x).detach().norm(),
    ],
    ids=["size", "like", "to", "checked"],
)
def test_an_output_that_does_not_depend_on_the_input_has_no_relevance(run):
    assert not LRP(Net(run)).attribute(points(), 1).any()


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.round()
        ctx.mark_non_differentiable(y)
        return y


def changed(change):
    def run(n, x):
        h = n.a(x)
        change(h)
        return n.b(h)

    return run


def hooked(hook):
    def run(n, x):
        handle = n.a.register_forward_hook(hook)
        h = n.a(x)
        handle.remove()
        return n.b(vars(n).pop("kept", h))

    return run


def written(h):
    buffer = torch.zeros_like(h)
    buffer[:, :3] = h[:, :3].detach()
    buffer[:, 3:] = 1.0
    return buffer


CUT = {
    "detach": lambda n, x: n.a(x).detach(),
    "the input": lambda n, x: n.a(x.detach()),
    "requires_grad_": changed(lambda h: h.requires_grad_(False)),
    "requires_grad": changed(lambda h: setattr(h, "requires_grad", False)),
    "data": changed(lambda h: setattr(h, "data", h.tanh())),
    "numpy": lambda n, x: torch.from_numpy(np.tanh(n.a(x).detach().numpy())),
    "list": lambda n, x: torch.tensor(n.a(x).tolist(), dtype=x.dtype),
    "list of tensors": lambda n, x: torch.tensor([[*row] for row in n.a(x)], dtype=x.dtype),
    "detach().requires_grad_()": lambda n, x: n.a(x).detach().requires_grad_(),
    "new tensor": lambda n, x: x.new_tensor(n.a(x).tolist()),
    "copy": lambda n, x: copy.deepcopy(n.a(x)),
    "buffer": lambda n, x: written(n.a(x)),
    "out": lambda n, x: torch.mul(n.a(x).detach(), 2, out=torch.empty(5, 6, dtype=x.dtype)),
    "codes": lambda n, x: n.w[n.a(x).argmin(1)].to(x),
    "codes of gates": lambda n, x: F.embedding(n.a(x).sigmoid().argmin(1), n.w),
    "a function of autograd": lambda n, x: Rounded.apply(n.a(x)),
    "hook": hooked(lambda module, args, output: output.detach()),
    "kept by a hook": lambda n, x: hooked(lambda module, args, output: setattr(n, "kept", output.detach()))(n, x),
}


@pytest.mark.filterwarnings("ignore:.*copy construct:UserWarning", "ignore:Converting a tensor:UserWarning")
@pytest.mark.parametrize("name", CUT)
def test_features_that_are_cut_off_from_the_input_are_errors_that_name_the_line(name):
    net = Net(CUT[name])
    x = points()
    with torch.no_grad():
        net(x.clone())
    message = r"output does not depend on the input: it was cut off by \S+, at .*test_lrp_constants.py:(\d+) in "
    with pytest.raises(UnsupportedOperation, match=message) as error:
        LRP(net).attribute(x, 1)
    line = linecache.getline(__file__, int(re.search(message, str(error.value))[1]))
    assert name in line or name in ("buffer", "a function of autograd")


def written_without_gradients(n, x):
    h = n.a(x)
    with torch.no_grad():
        h.mul_(2)
    return n.b(h)


SHIFTS = {
    "mean": lambda n, h: h - h.detach().mean((2, 3), keepdim=True),
    "mask": lambda n, h: torch.add(h, (h.mean((2, 3), keepdim=True) > 0).to(h), alpha=2),
    "code": lambda n, h: n.w[h.mean((2, 3)).argmax(1)][:, :, None, None] - h,
    "time": lambda n, h: h + n.g(torch.ones(len(h), 4).to(h))[:, :, None, None],
    "scale": lambda n, h: h * n.w[torch.zeros(len(h), dtype=torch.long)][:, :, None, None] + n.z[:, None, None],
}


@pytest.mark.parametrize("name", SHIFTS)
def test_shifts_of_channels_have_the_relevance_of_each_input_alone(name):
    def run(n, x):
        return n.b(SHIFTS[name](n, F.conv2d(x, n.w[:, :4, None, None], n.z)).relu().mean((2, 3)))

    net = Net(run)
    x = torch.randn(5, 4, 3, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    alone = torch.cat([LRP(net).attribute(row[None], 1) for row in x])
    assert_close(LRP(net).attribute(x, 1), alone)


def written_out_gradient(n, x):
    h = n.a(x)
    return n.b(h * torch.autograd.grad(h.square().sum(), h)[0])


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (constant_output, r"output does not depend on the input: .* torch.no_grad\(\), at .*in constant_output"),
        (lambda n, x: nn.Parameter(n.a(x)), r"output does not depend on the input: autograd has no path"),
        (written_out_gradient, r"can't trace gradients, computed at .*in written_out_gradient"),
        (lambda n, x: torch.vmap(lambda row: n.b(n.a(row)))(x), r"can't trace transforms such as torch.vmap"),
        (inference, r"can't trace torch.inference_mode\(\), used at .*in inference"),
        (written_without_gradients, r"under torch.no_grad\(\), called at .*in written_without_gradients"),
    ],
)
def test_what_has_no_relevance_for_want_of_gradients_is_an_error(run, message):
    untraceable(message, Net(run), points(), 1)


DOORS = {
    "NEON": lambda net, x: neonxc.NEON(net).attribute(x),
    "baseline": lambda net, x: neonxc.NEON(net, baseline=0.0).attribute(x),
    "extractor": lambda net, x: neonxc.NEON(clustering(FeatureExtractor(net.features, "b"))).attribute(x),
    "similarity": lambda net, x: neonxc.similarity(net.features, x, x.flip(0)),
    "gradient": lambda net, x: methods.sensitivity(net, x, net.assign(x)),
    "integrated gradients": lambda net, x: methods.integrated_gradients()(net, x, net.assign(x)),
}


def clustering(features):
    return neonxc.neuralize(np.eye(3), features=features)


@pytest.mark.parametrize("name", DOORS)
def test_every_way_into_a_network_names_the_line(name):
    net = clustering(Net(lambda n, x: n.b(torch.from_numpy(n.a(x.mean((2, 3))).detach().numpy()))))
    message = r"does not depend on the input: .*test_lrp_constants.py:\d+ in <"
    refused(message, DOORS[name], net, torch.randn(5, 4, 2, 2).double(), error=UnsupportedOperation)


def test_autocast_inside_the_network_is_off():
    def run(n, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = n.b(n.a(x).relu())
        assert not torch.is_autocast_enabled("cpu")
        return y

    net = Net(run).float()
    x = points().float()
    found = LRP(net).record(x)
    assert found.output.dtype == torch.float32
    net.run = lambda n, x: n.a(x).relu()
    assert_close(found.output, net(x), rtol=1e-6, atol=1e-6)


# --- what can't be seen ------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "run",
    [lambda n, x, f: n.a(f(x)), lambda n, x, f: f(n.b(n.a(x))), lambda n, x, f: n.a(x) + n.g(x) * f(n.g(x))],
    ids=["first", "last", "beside"],
)
def test_scripted_functions_are_refused(run):
    def double(x):
        return 2 * x

    net = Net(partial(run, f=torch.jit.script(double)))
    for _ in range(3):  # it is compiled anew when it has seen a few inputs
        untraceable(r"can't trace TorchScript or C\+\+", net, points(), 1)
    untraceable("TorchScript", torch.jit.trace(net.a, points()), points())


# --- threads -----------------------------------------------------------------------------------------------


@pytest.fixture
def often():
    """Threads take turns every few operations."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_a_network_may_be_trained_while_it_is_explained(often):
    trained = threading.Event()
    x = points()
    net = Net(lambda n, x: (n.a(x).relu() @ n.w).relu() * n.s)  # autograd keeps `s` for the walk back
    twin = copy.deepcopy(net).requires_grad_(False)

    def explain(composite):
        expected = LRP(twin, composite).attribute(x, 1)
        started.wait()
        while not trained.is_set():
            assert_close(LRP(twin, composite).attribute(x, 1), expected, rtol=0, atol=0)
            assert torch.isfinite(LRP(net, composite).attribute(x, 1)).all()

    def train():
        optimizer = torch.optim.SGD(net.parameters(), 1e-3)
        lost = 0
        started.wait()
        try:
            for _ in range(300):
                optimizer.zero_grad()
                net(x).square().mean().backward()
                lost += any(p.grad is None for p in (net.a.weight, net.w, net.s))
                optimizer.step()
        finally:
            trained.set()
        return lost

    composites = Composite(Gamma(0.25), {0: Flat()}), Composite(), Composite(Epsilon(0.1))
    started = threading.Barrier(4, timeout=60)
    with ThreadPoolExecutor(4) as pool:
        lost, *explained = [pool.submit(train), *(pool.submit(explain, composite) for composite in composites)]
    assert lost.result() == 0
    assert [one.result() for one in explained] == [None] * 3
    assert not torch.equal(net.w, twin.w)


# --- codes that a network looks up -------------------------------------------------------------------------


class Codes(nn.Module):
    """Features of numbers, columns 2 to 5, and of what is looked up by columns 0 and 1."""

    def __init__(self, look_up):
        super().__init__()
        torch.manual_seed(0)
        self.look_up = look_up
        self.table = nn.Embedding(5, 4)
        self.other = nn.Embedding(9, 4)
        self.bag = nn.EmbeddingBag(5, 4)
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 3)
        self.eval()

    def numbers(self, x):
        return self.a(x[:, 2:])

    def forward(self, x):
        return self.b((self.look_up(self, x) + self.numbers(x)).relu())


def coded():
    x = torch.randn(6, 6, generator=torch.Generator().manual_seed(0))
    x[:, 0] = torch.tensor([0.0, 1, 2, 3, 0, 1])
    x[:, 1] = torch.tensor([3.0, 1, 0, 0, 2, 1])
    return x


def quantized(n, x):
    h = n.numbers(x)
    return (n.table(torch.cdist(h, n.table.weight).argmin(1)) - h).detach()


LOOKED_UP = {
    "column 0": [
        lambda n, x: n.table(x[:, 0].long()),
        lambda n, x: n.table(x[:, 0].detach().round().int()),
        lambda n, x: n.table.weight.index_select(0, x.T[0].to(torch.int64)),
        lambda n, x: torch.zeros(len(x), 4).scatter_(1, x[:, :1].long(), 1.0),
    ],
    "column 1": [
        lambda n, x: n.table((x[:, 1] + 1).clamp(0, 4).long()),
        lambda n, x: n.table.weight[x[:, 1].long()],
        lambda n, x: torch.eye(5, 4)[x[:, 1].long()],
        lambda n, x: F.one_hot(x[:, 1].long(), 5).float()[:, :4],
    ],
    "column 3": [lambda n, x: n.table(torch.bucketize(x[:, 3].contiguous(), torch.linspace(-1, 1, 4)))],
    "columns 0, 1": [
        lambda n, x: n.table(x[:, 0].long()) + n.other(x[:, 1].long()),
        lambda n, x: n.other(x[:, :2].long() + torch.tensor([0, 4])).sum(1),
        lambda n, x: n.other((x[:, 0] + 2 * x[:, 1]).clamp(0, 8).long()),
        lambda n, x: n.table(x.split([2, 4], 1)[0].long()).mean(1),
        lambda n, x: n.bag(x[:, :2].long()),
    ],
}


@pytest.mark.parametrize(("columns", "look_up"), [(name, f) for name, runs in LOOKED_UP.items() for f in runs])
def test_columns_of_codes_that_are_looked_up_are_named(columns, look_up):
    net = Codes(look_up)
    x = coded()
    with pytest.warns(UserWarning, match=f"no relevance passes from {columns} of X.* called at {__file__}"):
        relevance = LRP(net).attribute(x, 1)
    assert not relevance[:, :2].any()
    LRP(net).attribute(x, 1)  # which warns no more
    clustering = neonxc.neuralize(torch.randn(3, 3), x, features=Codes(look_up))
    with pytest.warns(UserWarning, match=f"no relevance passes from {columns} of X"):
        neonxc.NEON(clustering).attribute(x)


def test_the_number_of_a_channel_is_named():
    net = nn.Sequential(Codes(lambda n, x: n.table(x[:, 0].long()))).eval()

    class Series(nn.Module):
        def forward(self, x):  # [N, T, d]
            return net(x.flatten(0, 1)).view(len(x), -1, 3).mean(1)

    with pytest.warns(UserWarning, match=r"from X\[:, :, 0\] of X"):
        LRP(Series().eval()).attribute(coded().view(2, 3, 6), 1)


@pytest.mark.parametrize(
    "look_up",
    [
        quantized,
        lambda n, x: n.other(torch.arange(4)).mean(0),
        lambda n, x: n.numbers(x).gather(1, x[:, 2:].argsort(1)),
        lambda n, x: n.numbers(x) * (x[:, 2:] != 0),
        lambda n, x: n.other((x != 0).cumsum(1)).sum(1),
        lambda n, x: n.numbers(x).topk(4).values[:, [0, 1, 2, 3]],
        lambda n, x: n.numbers(x)[:, x[0, 2:].argsort()],
    ],
)
def test_networks_that_look_up_no_codes_do_not_warn(look_up, recwarn):
    LRP(Codes(look_up)).attribute(coded(), 1)
    assert not [*recwarn]


# --- what a network keeps of a pass ------------------------------------------------------------------------


class Keeping(nn.Module):
    """A network that keeps its input and features, in attributes, containers and dictionaries of hooks."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a = nn.Conv2d(3, 4, 3)
        self.b = nn.Linear(4, 5)
        self.by_name = {}
        self.listed = []
        self.pair = ()
        self.a.register_forward_hook(partial(self.keep, self.by_name))
        collected = {}
        self.b.register_forward_hook(lambda module, given, output: collected.update(b=output))
        self.collected = collected
        self.eval()

    @staticmethod
    def keep(kept, module, given, output):
        kept["a"] = {"output": output, "given": given}

    def forward(self, x):
        self.x, self.last = x, self.a(x).relu_()
        self.listed.append(self.last)
        self.pair = (self.last, "relu")
        return self.b(self.last.mean((2, 3)))


@pytest.mark.parametrize("baseline", [None, 0.5])
def test_networks_that_keep_their_features_can_be_copied(baseline):
    network = Keeping()
    x = torch.rand(4, 3, 8, 8)
    with torch.no_grad():
        net = neonxc.neuralize(network(x)[:2].clone(), x, network)
    for explain in (
        lambda: neonxc.NEON(net, baseline=baseline).attribute(x),
        lambda: neonxc.NEON(net).heatmaps(x),
        lambda: LRP(network).attribute(x, 1),
        lambda: neonxc.concepts(net, x, "a", n_concepts=1),
    ):
        explain()
        other = copy.deepcopy(network)
        copy.deepcopy(net)
        kept = [network.x, network.last, *network.listed, network.pair[0], network.collected["b"]]
        kept += [network.by_name["a"]["output"], *network.by_name["a"]["given"]]
        assert not any(value.requires_grad for value in kept)
        assert torch.equal(other.last, network.last)
        assert network.pair[1] == "relu"


class Kept(nn.Module):
    """A network that keeps its input and features, and can be pickled."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a = nn.Conv2d(3, 4, 3)
        self.b = nn.Linear(4, 5)
        self.listed = []
        self.b.register_forward_hook(self.keep)
        self.eval()

    def keep(self, module, given, output):
        self.listed[:] = [*given, output]

    def forward(self, x):
        self.x, self.last = x, self.a(x).relu()
        return self.b(self.last.mean((2, 3)))


GROUPS = torch.arange(192).reshape(3, 8, 8) // 24
NO = {"progress": False}
RUNS = {
    "predict": lambda net, x: net.predict(x),
    "attribute": lambda net, x: neonxc.NEON(net).attribute(x),
    "baseline": lambda net, x: neonxc.NEON(net, baseline=0.5).attribute(x),
    "heatmaps": lambda net, x: neonxc.NEON(net).heatmaps(x),
    "summary": lambda net, x: neonxc.NEON(net).summary(x),
    "contrast": lambda net, x: neonxc.contrast(net, x, 0, 1),
    "concepts": lambda net, x: neonxc.concepts(net, x, "a", n_concepts=1),
    "similarity": lambda net, x: neonxc.similarity(net.features, x[:2], x[2:]),
    "moves": lambda net, x: neonxc.moves(net, x, x.flip(0)),
    "batches": lambda net, x: neonxc.batch_function(net, images="i")({"i": x.tolist()}),
    "explain": lambda net, x: neonxc.explain(net, x, fast=True),
    "flipping": lambda net, x: pixel_flipping(net, x, x),
    "compare": lambda net, x: compare(net, x, groups=GROUPS, **NO),
    "sanity": lambda net, x: sanity(net, x, points=2, repeats=1, stages=2, **NO),
    "methods": lambda net, x: [
        method(net, x, torch.zeros(len(x), dtype=torch.long))
        for method in methods.default_methods(groups=GROUPS).values()
    ],
    "points": lambda net, x: FeatureExtractor(net.features, "a").points(x),
    "extracted": lambda net, x: neonxc.neuralize(np.eye(2, 4), x, FeatureExtractor(net.features, "a")),
}


@pytest.mark.parametrize("run", RUNS)
def test_networks_can_be_copied_and_pickled_after_every_function(run):
    network = Kept()
    x = torch.rand(4, 3, 8, 8)
    with torch.no_grad():
        net = neonxc.neuralize(network(x)[:2].clone(), x, network)
    RUNS[run](net, x)
    assert not any(value.requires_grad for value in (network.x, network.last, *network.listed))
    for model in (network, net):
        for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            with torch.no_grad():
                assert_close(twin(x), model(x))


@pytest.mark.parametrize("run", ["attribute", "methods", "concepts"])
def test_what_a_user_keeps_stays_as_it_is(run):
    network = Kept()
    x = torch.rand(4, 3, 8, 8)
    with torch.no_grad():
        net = neonxc.neuralize(network(x)[:2].clone(), x, network)
    network.mine = mine = network.a(x)  # for a gradient of their own
    RUNS[run](net, x)
    assert network.mine is mine
    assert mine.requires_grad


def test_networks_that_keep_their_features_have_the_relevance_of_others():
    network = Keeping()
    x = torch.rand(4, 3, 8, 8)
    plain = nn.Sequential(network.a, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), network.b).eval()
    assert_close(LRP(network).attribute(x, 1), LRP(plain).attribute(x, 1))
    assert_close(network.x, x)
    assert_close(network.last, plain[:2](x).detach())
