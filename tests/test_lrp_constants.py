"""What counts as depending on the network's input, and what as a constant; values written in place."""

import copy
import linecache
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
from neonxc.evaluation.methods import integrated_gradients, sensitivity
from neonxc.lrp import LRP, Composite, Epsilon, Flat, Gamma, UnsupportedOperation
from neonxc.models import FeatureExtractor

GRADIENT = Composite(Epsilon(0.0))


class Net(nn.Module):
    """A forward pass written as a function of the module, to the outputs or to features that `b` maps to them."""

    def __init__(self, run):
        super().__init__()
        torch.manual_seed(0)
        self.run = run
        self.a, self.g, self.b = nn.Linear(4, 6), nn.Linear(4, 6), nn.Linear(6, 3)
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)
        self.s, self.q = nn.Parameter(torch.randn(6)), nn.Parameter(torch.randn(1, 5, 6))
        self.A, self.B = nn.Parameter(torch.randn(4, 2)), nn.Parameter(torch.randn(2, 6))
        self.w, self.z = nn.Parameter(torch.randn(6, 6)), nn.Parameter(torch.randn(6))
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
    "scale": lambda n, x: n.a(x) * n.s,
    "LoRA": lambda n, x: (n.a(x) + x @ n.A @ n.B).relu(),
    "addmm": lambda n, x: torch.addmm(n.z, n.a(x), n.w),
    "bmm": lambda n, x: torch.bmm(n.a(x)[None], n.w[None])[0],
    "residual": lambda n, x: n.a(x) + n.a(x) @ n.w,
    "attention": lambda n, x: attended(n, n.a(x)[None])[0],
    "attention module": lambda n, x: n.attention(n.q, n.a(x)[None], n.g(x)[None])[0][0],
}


def attended(n, x):
    return F.scaled_dot_product_attention(n.q, x, x)


def relevance_and_layers(net, x, rule):
    seen = set()
    spy = Composite(rule, {lambda place: bool(seen.add((place.depth, place.name))): rule})
    return LRP(net, spy).attribute(x, 1), seen


@pytest.mark.parametrize("name", TRAINABLE)
def test_trainable_and_frozen_networks_are_explained_alike(name):
    net, x = Net(TRAINABLE[name]), points()
    trainable, layers = relevance_and_layers(net, x, Epsilon(0.01))
    assert all(p.requires_grad for p in net.parameters())
    frozen, layers_frozen = relevance_and_layers(net.requires_grad_(False), x, Epsilon(0.01))
    assert_close(trainable, frozen, rtol=0, atol=0)
    assert layers == layers_frozen
    if "attention" not in name:
        assert_close(LRP(net, GRADIENT).attribute(x, 1), gradient_times_input(net, x))


def test_whose_gradients_are_wanted_stays_so_also_after_an_error():
    net, x = Net(TRAINABLE["LoRA"]), points()
    net.w.requires_grad_(False)
    wanted = {name: p.requires_grad for name, p in net.named_parameters()}
    LRP(net).attribute(x, 1)
    assert {name: p.requires_grad for name, p in net.named_parameters()} == wanted
    net.run = lambda n, x: n.a(x).exp()
    with pytest.raises(UnsupportedOperation):
        LRP(net).attribute(x, 1)
    assert {name: p.requires_grad for name, p in net.named_parameters()} == wanted


@pytest.mark.parametrize("made", [lambda s: s, lambda s: s.exp()], ids=["leaf", "computed"])
def test_tensors_that_could_be_trained_are_constants(made):
    net, x = Net(lambda n, x: n.a(x) * n.scale), points()
    net.scale = made(torch.linspace(1, 2, 6, dtype=torch.float64).requires_grad_())
    assert_close(LRP(net, GRADIENT).attribute(x, 1), gradient_times_input(net, x))


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("norm", [nn.utils.weight_norm, nn.utils.spectral_norm])
def test_weights_computed_by_a_hook_are_left_without_marks(norm):
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), norm(nn.Linear(6, 3))).double().eval()
    x = points()
    found = LRP(net, Composite(Epsilon(0.0), {"2": Epsilon(1.0)})).attribute(x, 1)
    plain = nn.Sequential(*net[:2], nn.Linear(6, 3).double())
    plain[2].weight.data, plain[2].bias.data = net[2].weight.detach(), net[2].bias.detach()
    assert_close(found, LRP(plain, Composite(Epsilon(0.0), {"2": Epsilon(1.0)})).attribute(x, 1))
    assert not vars(net[2].weight)


# --- without gradients -------------------------------------------------------------------------------------


def without_gradients(function):
    def run(n, x):
        with torch.no_grad():
            constant = function(n, x)
        return n.b(n.a(x) - constant)

    return run


DETACHED = {
    "no_grad": without_gradients(lambda n, x: n.a(x).mean(1, keepdim=True)),
    "no_grad, nonlinear": without_gradients(lambda n, x: n.g(x).exp()),
    "no_grad, a layer": without_gradients(lambda n, x: F.relu(n.g(x), inplace=True)),
    "detach": lambda n, x: n.a(x) + n.g(x).exp().detach(),
    "data": lambda n, x: n.a(x) + n.g(x).exp().data,
    "numpy": lambda n, x: n.a(x) * torch.from_numpy(np.tanh(n.g(x).detach().numpy())),
    "number": lambda n, x: n.a(x) - n.g(x).mean().item(),
    "straight through": lambda n, x: n.a(x) + (n.a(x).round() - n.a(x)).detach(),
    "no cut": lambda n, x: torch.as_tensor(n.a(x.requires_grad_())),
    "mask of a gate": lambda n, x: torch.where(n.g(x).sigmoid() > 0.5, n.a(x), 0.0),
}


@pytest.mark.parametrize("name", DETACHED)
def test_what_is_computed_without_gradients_is_a_constant(name):
    net, x = Net(DETACHED[name]), points()
    assert_close(LRP(net, GRADIENT).attribute(x, 1), gradient_times_input(net, x))
    assert torch.is_grad_enabled()


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
        lambda n, x: (n.a(x).detach().norm(), n.b(n.q[0]))[1] if x.isfinite().all() else None,
        lambda n, x: n.b(n.q[0]) if x.abs().max().item() < 100 else None,
    ],
    ids=["size", "like", "to", "unused", "checked"],
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
    buffer[:, :3], buffer[:, 3:] = h[:, :3].detach(), 1.0
    return buffer


CUT = {
    "detach": lambda n, x: n.a(x).detach(),
    "the input": lambda n, x: n.a(x.detach()),
    "the output": lambda n, x: n.b(n.a(x)).data,
    "in place": changed(lambda h: h.detach_()),
    "requires_grad_": changed(lambda h: h.requires_grad_(False)),
    "requires_grad_ of the input": lambda n, x: n.a(x.requires_grad_(False)),
    "requires_grad": changed(lambda h: setattr(h, "requires_grad", False)),
    "data": changed(lambda h: setattr(h, "data", h.tanh())),
    "numpy": lambda n, x: torch.from_numpy(np.tanh(n.a(x).detach().numpy())),
    "numpy of what has gradients": lambda n, x: torch.as_tensor(np.tanh(n.a(x).numpy())),
    "ranks": lambda n, x: torch.from_numpy(n.a(x).detach().numpy().argsort(0).argsort(0)).to(x),
    "asarray": lambda n, x: torch.as_tensor(np.asarray(n.a(x))),
    "list": lambda n, x: torch.tensor(n.a(x).tolist(), dtype=x.dtype),
    "number": lambda n, x: n.s * float(n.a(x).sum()),
    "list of tensors": lambda n, x: torch.tensor([[*row] for row in n.a(x)], dtype=x.dtype),
    "detach().requires_grad_()": lambda n, x: n.a(x).detach().requires_grad_(),
    "Variable": lambda n, x: torch.autograd.Variable(n.a(x).data),
    "new tensor": lambda n, x: x.new_tensor(n.a(x).tolist()),
    "copy": lambda n, x: copy.deepcopy(n.a(x)),
    "buffer": lambda n, x: written(n.a(x)),
    "out": lambda n, x: torch.mul(n.a(x).detach(), 2, out=torch.empty(5, 6, dtype=x.dtype)),
    "codes": lambda n, x: n.w[n.a(x).argmin(1)].to(x),
    "codes of gates": lambda n, x: F.embedding(n.a(x).sigmoid().argmin(1), n.w),
    "classes": lambda n, x: F.one_hot(n.a(x).topk(1).indices[:, 0], 6).to(x),
    "mask": lambda n, x: (n.a(x) > 0).type_as(x),
    "a function of autograd": lambda n, x: Rounded.apply(n.a(x)),
    "hook": hooked(lambda module, args, output: output.detach()),
    "kept by a hook": lambda n, x: hooked(lambda module, args, output: setattr(n, "kept", output.detach()))(n, x),
    "beside others": lambda n, x: (n.a(x) / x.detach().norm()).detach() * n.g(x).exp().detach(),
}


@pytest.mark.filterwarnings("ignore:.*copy construct:UserWarning", "ignore:Converting a tensor:UserWarning")
@pytest.mark.parametrize("name", CUT)
def test_features_that_are_cut_off_from_the_input_are_errors_that_name_the_line(name):
    net, x = Net(CUT[name]), points()
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

    net, x = Net(run), torch.randn(5, 4, 3, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
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
    "along": lambda net, x: neonxc.NEON(net, along=0.0).attribute(x),
    "extractor": lambda net, x: neonxc.NEON(clustering(FeatureExtractor(net.features, "b"))).attribute(x),
    "similarity": lambda net, x: neonxc.similarity(net.features, x, x.flip(0)),
    "gradient": lambda net, x: sensitivity(net, x, net.assign(x)),
    "integrated gradients": lambda net, x: integrated_gradients()(net, x, net.assign(x)),
    "gradient of a classifier": lambda net, x: sensitivity(net.features, x, 0),
}


def clustering(features):
    return neonxc.neuralize(np.eye(3), features=features)


@pytest.mark.parametrize(
    "cut", [lambda h: h.detach(), lambda h: torch.from_numpy(h.numpy())], ids=["detach", "numpy"]
)
@pytest.mark.parametrize("name", DOORS)
def test_every_way_into_a_network_names_the_line(name, cut):
    def run(n, x):
        embedding = n.a(x.mean((2, 3)))
        return n.b(cut(embedding))

    x = torch.randn(5, 4, 2, 2, dtype=torch.float64)
    refused(
        r"does not depend on the input: .*test_lrp_constants.py:\d+ in <",
        DOORS[name],
        clustering(Net(run)),
        x,
        error=UnsupportedOperation,
    )


def test_autocast_inside_the_network_is_off():
    def run(n, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = n.b(n.a(x).relu())
        assert not torch.is_autocast_enabled("cpu")
        return y

    net, x = Net(run).float(), points().float()
    found = LRP(net).record(x)
    assert found.output.dtype == torch.float32
    net.run = lambda n, x: n.a(x).relu()
    assert_close(found.output, net(x), rtol=1e-6, atol=1e-6)


# --- what can't be seen ------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "run",
    [
        lambda n, x, f: n.b(f(n.a(x))),
        lambda n, x, f: n.b(n.a(f(x))),
        lambda n, x, f: f(n.b(n.a(x))),
        lambda n, x, f: n.b(n.a(x) + n.g(x) * f(n.g(x))),
    ],
    ids=["inside", "first", "last", "beside"],
)
def test_scripted_functions_are_refused(run):
    def double(x):
        return 2 * x

    scripted = torch.jit.script(double)
    for _ in range(3):  # it is compiled anew when it has seen a few inputs
        untraceable(r"can't trace TorchScript or C\+\+", Net(lambda n, x: run(n, x, scripted)), points(), 1)


def test_errors_name_the_module():
    net = nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.Sigmoid()), nn.Linear(3, 2)).double().eval()
    untraceable(re.escape("(module '1.0', Sigmoid)"), net, points())


# --- values written in place -------------------------------------------------------------------------------


def part_added(n, x):
    h = n.a(x)
    h[:, :2] += n.g(x)[:, 2:4]
    return n.b(h)


def part_of_a_view(n, x):
    h = n.a(x).view(-1, 2, 3)
    first, last = h[:, 0], h[:, 1]
    first.mul_(n.s[:3])
    h[:, 1] -= 1
    h.neg_()
    last *= 2  # sees both
    return n.b(h.flatten(1))


def part_of_a_buffer(n, x):
    buffer = x.new_zeros(len(x), 8)
    buffer[:, 1:7].copy_(n.a(x))
    buffer += 1
    return n.b(buffer[:, 2:])


def whole_view(n, x):
    h = n.a(x)
    h.view(-1, 3, 2).mul_(2).add_(1)
    return n.b(h)


def product_that_is_a_view(n, x):
    h = torch.einsum("ni,io->on", n.a(x), n.w)  # a transposed view of the product
    h[1:3] *= -1.5
    return n.b((h - h.mean(0)).T)


WRITTEN = {
    "product": product_that_is_a_view,
    "part": part_added,
    "part of a view": part_of_a_view,
    "buffer": part_of_a_buffer,
    "whole view": whole_view,
    "copy": lambda n, x: torch.zeros(5, 6, dtype=x.dtype).copy_(n.a(x)),
    "zeros": lambda n, x: zeroed(n.a(x)),
    "halves": lambda n, x: halved(n.a(x)),
}


def zeroed(h):
    kept = h + 0
    h[:, :2].zero_()
    h[:, 3].fill_(2.0)
    return h + kept


def halved(h):
    first, last = h[:, :3], h[:, 3:]
    F.relu(input=first, inplace=True)
    return torch.cat([first, last], 1) + h


@pytest.mark.parametrize("name", WRITTEN)
def test_views_see_what_is_written_into_their_memory(name):
    net, x = Net(WRITTEN[name]), points()
    recording = LRP(net, GRADIENT).record(x)
    assert_close(recording.output, net(x))
    wanted = torch.stack([gradient_times_input(net, x, k) for k in range(3)])
    starts = torch.eye(3, dtype=x.dtype)[:, None].expand(3, 5, 3)
    assert_close(recording.propagate(starts), wanted)
    assert_close(LRP(net, GRADIENT).attribute(x, 1), wanted[1])


# --- threads -----------------------------------------------------------------------------------------------


@pytest.fixture
def often():
    """Threads take turns every few operations."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def together(*tasks):
    with ThreadPoolExecutor(len(tasks)) as pool:
        return [running.result() for running in [pool.submit(task) for task in tasks]]


def perceptron():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)).eval()


FIRST_FLAT = Composite(Gamma(0.25), {0: Flat()})


def test_explanations_at_the_same_time_are_those_one_by_one(often):
    net, x = perceptron(), torch.randn(5, 6, generator=torch.Generator().manual_seed(1))
    wanted = LRP(net, FIRST_FLAT).attribute(x, 1)
    explained = together(*[lambda: [LRP(net, FIRST_FLAT).attribute(x, 1) for _ in range(60)]] * 4)
    assert all(torch.equal(found, wanted) for several in explained for found in several)


def test_a_network_may_be_trained_while_it_is_explained(often):
    net, x = perceptron(), torch.randn(5, 6, generator=torch.Generator().manual_seed(1))
    scaled = nn.Sequential(net, Scale())
    twin = copy.deepcopy(scaled).requires_grad_(False)
    composites = [FIRST_FLAT, Composite(Gamma(0.25), {"0.0": Flat()}), Composite(), Composite(Epsilon(0.1))]
    wanted = [LRP(twin, composite).attribute(x, 1) for composite in composites]
    trained = threading.Event()

    def explain(composite, expected):
        while not trained.is_set():
            assert_close(LRP(twin, composite).attribute(x, 1), expected, rtol=0, atol=0)
            assert torch.isfinite(LRP(scaled, composite).attribute(x, 1)).all()

    def train():
        optimizer, lost = torch.optim.SGD(scaled.parameters(), 1e-3), 0
        try:
            for _ in range(300):
                optimizer.zero_grad()
                scaled(x).square().mean().backward()
                lost += any(p.grad is None for p in scaled.parameters())
                optimizer.step()
        finally:
            trained.set()
        return lost

    lost, *_ = together(train, *[partial(explain, *pair) for pair in zip(composites, wanted, strict=True)])
    assert lost == 0
    assert not torch.equal(scaled[0][0].weight, twin[0][0].weight)


class Scale(nn.Module):
    """A product in which autograd keeps the parameter for the walk back."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return x * self.scale
