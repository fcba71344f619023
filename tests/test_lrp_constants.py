"""What counts as depending on the network's input, and what as a constant; values written in place."""

import copy
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neonxc.lrp import LRP, Composite, Epsilon, Flat, Gamma, UnsupportedOperation

GRADIENT = Composite(Epsilon(0.0))


class Net(nn.Module):
    """A forward pass written as a function of the module, between linear layers by one letter."""

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
        return self.run(self, x)


def points():
    return torch.randn(5, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def gradient_times_input(net, x, target=1):
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(net(leaf)[:, target].sum(), leaf)
    return (leaf * gradient).detach()


# --- parameters are constants, trainable or not ------------------------------------------------------------

TRAINABLE = {
    "scale": lambda n, x: n.b(n.a(x) * n.s),
    "LoRA": lambda n, x: n.b((n.a(x) + x @ n.A @ n.B).relu()),
    "addmm": lambda n, x: n.b(torch.addmm(n.z, n.a(x), n.w)),
    "bmm": lambda n, x: n.b(torch.bmm(n.a(x)[None], n.w[None])[0]),
    "residual": lambda n, x: n.b(n.a(x) + n.a(x) @ n.w),
    "attention": lambda n, x: n.b(attended(n, n.a(x)[None])[0]),
    "attention module": lambda n, x: n.b(n.attention(n.q, n.a(x)[None], n.g(x)[None])[0][0]),
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
    torch.testing.assert_close(trainable, frozen, rtol=0, atol=0)
    assert layers == layers_frozen
    if "attention" not in name:
        torch.testing.assert_close(LRP(net, GRADIENT).attribute(x, 1), gradient_times_input(net, x))


def test_whose_gradients_are_wanted_stays_so_also_after_an_error():
    net, x = Net(TRAINABLE["LoRA"]), points()
    net.w.requires_grad_(False)
    wanted = {name: p.requires_grad for name, p in net.named_parameters()}
    LRP(net).attribute(x, 1)
    assert {name: p.requires_grad for name, p in net.named_parameters()} == wanted
    net.run = lambda n, x: n.b(n.a(x).exp())
    with pytest.raises(UnsupportedOperation):
        LRP(net).attribute(x, 1)
    assert {name: p.requires_grad for name, p in net.named_parameters()} == wanted


@pytest.mark.parametrize("made", [lambda s: s, lambda s: s.exp()], ids=["leaf", "computed"])
def test_tensors_that_could_be_trained_are_constants(made):
    net, x = Net(lambda n, x: n.b(n.a(x) * n.scale)), points()
    net.scale = made(torch.linspace(1, 2, 6, dtype=torch.float64).requires_grad_())
    torch.testing.assert_close(LRP(net, GRADIENT).attribute(x, 1), gradient_times_input(net, x))


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("norm", [nn.utils.weight_norm, nn.utils.spectral_norm])
def test_weights_computed_by_a_hook_are_left_without_marks(norm):
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), norm(nn.Linear(6, 3))).double().eval()
    x = points()
    found = LRP(net, Composite(Epsilon(0.0), {"2": Epsilon(1.0)})).attribute(x, 1)
    plain = nn.Sequential(*net[:2], nn.Linear(6, 3).double())
    plain[2].weight.data, plain[2].bias.data = net[2].weight.detach(), net[2].bias.detach()
    torch.testing.assert_close(found, LRP(plain, Composite(Epsilon(0.0), {"2": Epsilon(1.0)})).attribute(x, 1))
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
    "detach": lambda n, x: n.b(n.a(x) + n.g(x).exp().detach()),
    "data": lambda n, x: n.b(n.a(x) + n.g(x).exp().data),
}


@pytest.mark.parametrize("name", DETACHED)
def test_what_is_computed_without_gradients_is_a_constant(name):
    net, x = Net(DETACHED[name]), points()
    torch.testing.assert_close(LRP(net, GRADIENT).attribute(x, 1), gradient_times_input(net, x))
    assert torch.is_grad_enabled()


@torch.no_grad()
def constant_output(n, x):
    return n.b(n.a(x))


@torch.inference_mode()
def inference(n, x):
    return n.b(n.a(x))


def test_an_output_that_does_not_depend_on_the_input_has_no_relevance():
    def run(n, x):
        with torch.no_grad():
            size = x.shape[0]
        return n.b(n.q[0, :size])

    assert not LRP(Net(run)).attribute(points(), 1).any()


def written_without_gradients(n, x):
    h = n.a(x)
    with torch.no_grad():
        h.mul_(2)
    return n.b(h)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (constant_output, r"output does not depend on the input: .* torch.no_grad\(\), at .*in constant_output"),
        (inference, r"can't trace torch.inference_mode\(\), used at .*in inference"),
        (written_without_gradients, r"under torch.no_grad\(\), called at .*in written_without_gradients"),
    ],
)
def test_what_has_no_relevance_for_want_of_gradients_is_an_error(run, message):
    with pytest.raises(UnsupportedOperation, match=message):
        LRP(Net(run)).attribute(points(), 1)


def test_autocast_inside_the_network_is_off():
    def run(n, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = n.b(n.a(x).relu())
        assert not torch.is_autocast_enabled("cpu")
        return y

    net, x = Net(run).float(), points().float()
    found = LRP(net).record(x)
    assert found.output.dtype == torch.float32
    net.run = lambda n, x: n.b(n.a(x).relu())
    torch.testing.assert_close(found.output, net(x), rtol=1e-6, atol=1e-6)


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
        with pytest.raises(UnsupportedOperation, match=r"can't trace TorchScript or C\+\+"):
            LRP(Net(lambda n, x: run(n, x, scripted))).attribute(points(), 1)


def test_errors_name_the_module():
    net = nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.Sigmoid()), nn.Linear(3, 2)).double().eval()
    with pytest.raises(UnsupportedOperation, match=re.escape("(module '1.0', Sigmoid)")):
        LRP(net).attribute(points(), 0)


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
    "copy": lambda n, x: n.b(torch.zeros(5, 6, dtype=x.dtype).copy_(n.a(x))),
    "zeros": lambda n, x: n.b(zeroed(n.a(x))),
    "halves": lambda n, x: n.b(halved(n.a(x))),
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
    torch.testing.assert_close(recording.output, net(x))
    wanted = torch.stack([gradient_times_input(net, x, k) for k in range(3)])
    starts = torch.eye(3, dtype=x.dtype)[:, None].expand(3, 5, 3)
    torch.testing.assert_close(recording.propagate(starts), wanted)
    torch.testing.assert_close(LRP(net, GRADIENT).attribute(x, 1), wanted[1])


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
            torch.testing.assert_close(LRP(twin, composite).attribute(x, 1), expected, rtol=0, atol=0)
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
