"""What the engine costs, what it holds constant, and how it meets what it does not know."""

import copy
import threading
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from refusals import refused, untraceable
from test_lrp_constants import GRADIENT, Net, gradient_times_input, points
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from neonxc.lrp import (
    LRP,
    AlphaBeta,
    Composite,
    Constant,
    Epsilon,
    Flat,
    Gamma,
    Pass,
    UnsupportedOperation,
    ZBox,
    presets,
)
from neonxc.models import FeatureExtractor


def between(run):
    """Two linear layers, and between them a function that a test gives."""
    net = Net(lambda n, x: n.b(n.between(n, n.a(x))))
    net.between = run
    net.gate = nn.Linear(6, 6).double()
    return net


def small_vgg():
    layers = []
    for i, (inside, outside) in enumerate(((3, 8), (8, 8), (8, 16), (16, 16))):
        layers += [nn.Conv2d(inside, outside, 3, padding=1), nn.ReLU(inplace=True)]
        layers += [nn.MaxPool2d(2)] if i % 2 else []
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * 4 * 4, 10)).eval()


# --- cost --------------------------------------------------------------------------------------------------


class Count(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("pixels", [torch.rand, torch.randn], ids=["positive", "signed"])
@pytest.mark.parametrize("composite", [presets.paper(), None], ids=["paper", "default"])
def test_two_forward_convolutions_and_one_backward_per_layer(composite, pixels):
    walk = 4 + (pixels is torch.randn)  # one more for the negative pixels
    for walks in (1, 5):
        with Count() as count:
            recording = LRP(small_vgg(), composite).record(pixels(2, 3, 16, 16))
            for _ in range(walks):
                recording.propagate(torch.ones_like(recording.output))
        assert (count.calls["convolution"], count.calls["convolution_backward"]) == (8, walks * walk)


@pytest.mark.parametrize("composite", [Composite(Gamma(0.25)), Composite(AlphaBeta(), {0: Flat()})], ids=repr)
def test_several_explanations_at_once(composite):
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.SiLU(), *small_vgg()[1:2], nn.Conv2d(4, 4, 3))
    recording = LRP(net.eval(), composite).record(torch.randn(2, 3, 12, 12))
    starts = torch.randn(5, *recording.output.shape)
    together = recording.propagate(starts)
    assert_close(together, torch.stack([recording.propagate(start) for start in starts]))


@pytest.mark.parametrize("photos", [False, True])
def test_large_sets_go_through_in_parts(photos, monkeypatch):
    """Also tables of few columns."""
    net = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 2))
    x = torch.randn(10_000, 2)
    most = 4096
    if photos:
        net = small_vgg()
        x = torch.rand(7, 3, 16, 16)
        most = 3
        monkeypatch.setattr("neonxc.common.memory.CPU", 3 << 15)
    rows = []
    target = torch.arange(len(x)) % 2
    net[0].register_forward_hook(lambda module, args, output: rows.append(len(output)))
    found = LRP(net.eval()).attribute(x, target)
    assert max(rows) <= most
    assert sum(rows) == len(x)
    for n in (0, 3, 6):
        assert_close(found[n], LRP(net).attribute(x[n : n + 1], target[n : n + 1])[0])


@pytest.mark.parametrize("rule", [Gamma(0.25), AlphaBeta(), Flat(), Epsilon(), ZBox(-1.0, 1.0)], ids=repr)
def test_an_empty_batch_has_empty_relevance(rule):
    assert LRP(small_vgg(), Composite(rule)).attribute(torch.empty(0, 3, 16, 16), 3).shape == (0, 3, 16, 16)


# --- gates -------------------------------------------------------------------------------------------------

GATES = {
    "sigmoid": lambda n, x: x * torch.sigmoid(n.gate(x)),
    "hardsigmoid in place": lambda n, x: F.hardsigmoid(n.gate(x), inplace=True) * x,
    "gate over a view": lambda n, x: n.gate(x).sigmoid()[:, None, :].squeeze(1).expand_as(x) * x,
    "norm": lambda n, x: x / (x.norm(dim=1, keepdim=True) + 1e-6),
    "rms by hand": lambda n, x: x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-6),
    "sum": lambda n, x: x / (x * x.detach()).sum(1, keepdim=True),
    "gelu by hand": lambda n, x: 0.5 * x * (1 + torch.tanh(0.8 * (x + 0.04 * x**3)).exp()),
    "in place": lambda n, x: x.mul_(torch.sigmoid(n.gate(x))),
    "glu": lambda n, x: F.glu(torch.cat([x, n.gate(x)], 1)),
}


@pytest.mark.parametrize("name", GATES)
def test_gates_are_held_constant(name):
    net = between(GATES[name])
    x = points()
    found = LRP(net, Composite(Epsilon(0.0))).attribute(x, 1)
    hidden = net.a(x).detach()
    factor = GATES[name](net, hidden.clone()).detach() / hidden
    wanted = x * ((net.b.weight[1] * factor) @ net.a.weight)
    assert_close(found, wanted.detach())


# --- what can't be seen ------------------------------------------------------------------------------------


def test_functions_of_autograd_and_recurrent_layers_are_refused():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * x

    untraceable(r"can't trace the autograd.Function 'Square'", between(lambda n, h: Square.apply(h)), points(), 1)
    net = between(lambda n, h: n.rnn(h)[0])
    net.rnn = nn.GRU(6, 6).double().eval()
    untraceable(r"recurrent layer GRU, called at .*'rnn'.*; write it out in", net, points(), 1)


@torch.library.custom_op("neonxc_test::relu", mutates_args=())  # a name that PyTorch has as well
def custom(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@custom.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


ELEMENTWISE = {
    "sigmoid": (lambda n, h: torch.sigmoid(h), torch.sigmoid),
    "round": (lambda n, h: h.round(), torch.round),
    "in place": (lambda n, h: h.exp_(), torch.exp),
    "special": (lambda n, h: torch.special.erf(h), torch.special.erf),
    "operator": (lambda n, h: torch.ops.neonxc_test.relu(h), torch.ops.neonxc_test.relu),
    "custom operator": (lambda n, h: custom(h), custom),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_the_advice_for_elementwise_functions_works(name):
    run, function = ELEMENTWISE[name]
    net = between(run)
    x = points()
    untraceable(r"Composite\(functions=.*Pass\(\) if it is elementwise", net, x, 1)
    found = LRP(net, Composite(Epsilon(0.0), functions={function: Pass()})).attribute(x, 1)
    h = net.a(x).detach()
    assert_close(found, (x * (net.b.weight[1] * run(net, h.clone()) / h @ net.a.weight)).detach())
    beside = between(lambda n, h: h + run(n, h.clone()))
    found = LRP(beside, Composite(Epsilon(0.0), functions={function: Constant()})).attribute(x, 1)
    assert_close(found, (x * (beside.b.weight[1] @ beside.a.weight)).detach())


@pytest.mark.parametrize(
    ("run", "advice"),
    [
        (lambda n, h: h.median(1, keepdim=True).values.expand_as(h), "'median', .*; write it out in operations"),
        (lambda n, h: torch.atan2(h, h * h), r"'atan2', .*; Composite\(functions={...: Constant\(\)}\) holds"),
        (lambda n, h: torch.fft.fft(h).real, "'fft_fft', .*; write it out in operations that have one, in real"),
        (lambda n, h: torch.ops.aten.silu.default(h), "'silu.default', .*; pass the network as it was written"),
    ],
)
def test_functions_that_cannot_pass_relevance_get_no_advice_to_do_so(run, advice):
    with pytest.raises(UnsupportedOperation, match=advice) as error:
        LRP(between(run)).attribute(points(), 1)
    assert "Pass()" not in str(error.value)


@pytest.mark.filterwarnings("ignore")  # quantisation has moved to another library
@pytest.mark.parametrize("static", [False, True])
def test_quantised_layers_are_errors_that_ask_for_the_network_before(static):
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
    if static:
        net = torch.ao.quantization.QuantWrapper(net).eval()
        net.qconfig = torch.ao.quantization.default_qconfig
        torch.ao.quantization.prepare(net, inplace=True)(torch.randn(9, 4))
        net = nn.Sequential(nn.Linear(4, 4), torch.ao.quantization.convert(net), nn.Linear(6, 3))
    else:
        net = torch.ao.quantization.quantize_dynamic(net, {nn.Linear})
    with pytest.raises(UnsupportedOperation, match=r"'\S*quantize\S*', .*; pass the network in floating") as error:
        LRP(net.eval()).attribute(torch.randn(5, 4), 0)
    assert "Composite" not in str(error.value)


# --- set-ups of training -----------------------------------------------------------------------------------


class Checkpointed(nn.Module):
    def __init__(self, net, reentrant):
        super().__init__()
        self.net = net
        self.reentrant = reentrant

    def forward(self, x):
        first = self.net[:5]
        last = self.net[5:]
        return checkpoint(last, checkpoint(first, x, use_reentrant=self.reentrant), use_reentrant=False)


def scaled(*gradients):
    return tuple(None if gradient is None else 5 * gradient for gradient in gradients)


def keep_gradient(module, args, output):
    if torch.is_grad_enabled():
        output.register_hook(torch.zeros_like)
        output.retain_grad()


def with_backward_hooks(net):
    for module in net.modules():
        module.register_full_backward_hook(lambda module, inputs, outputs: scaled(*inputs))
        module.register_full_backward_pre_hook(lambda module, outputs: scaled(*outputs))
        module.register_forward_hook(keep_gradient)
    for parameter in net.parameters():
        parameter.register_hook(torch.zeros_like)
    return net


def compiled_in_place(net):
    net.compile(backend="eager")
    return net


def compiled_layer(net):
    net[0].forward = torch.compile(net[0].forward, backend="eager", fullgraph=True)
    return net


SETUPS = {
    "reentrant": lambda net: Checkpointed(net, True),
    "not reentrant": lambda net: Checkpointed(net, False),
    "wrapped": lambda net: nn.Sequential(checkpoint_wrapper(net[:5]), *net[5:]),
    "backward hooks": with_backward_hooks,
    "compiled part": lambda net: nn.Sequential(torch.compile(net[:5], backend="eager"), *net[5:]),
    "compiled in place": compiled_in_place,
    "compiled layer": compiled_layer,
    "loaded for inference": torch.inference_mode()(copy.deepcopy),
}


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad:UserWarning")
@pytest.mark.parametrize("name", SETUPS)
def test_training_setups_have_the_relevance_of_the_network(name):
    net = small_vgg()
    x = torch.rand(2, 3, 16, 16)
    wanted = LRP(net).attribute(x, 3)
    setup = SETUPS[name](copy.deepcopy(net)).eval()
    with torch.no_grad():
        assert_close(setup(x), net(x))
    assert_close(LRP(setup).attribute(x, 3), wanted, rtol=0, atol=0)


def test_data_parallel_parts_are_plain_calls():
    net = small_vgg()
    x = torch.rand(2, 3, 16, 16)
    composite = Composite(layers={"0": Epsilon(0.5), "7": AlphaBeta()})  # names are those of the user's network
    wanted = LRP(net, composite).attribute(x, 3)
    part = nn.DataParallel(net[:5])
    # without one, nothing is distributed
    part.device_ids = [0]
    part.src_device_obj = torch.device("cuda", 0)
    setup = nn.Sequential(part, *net[5:])
    with pytest.raises((RuntimeError, AssertionError)):
        setup(x)
    assert_close(LRP(setup).attribute(x, 3), LRP(net).attribute(x, 3), rtol=0, atol=0)
    for same in (FeatureExtractor(net, ""), nn.DataParallel(net), torch.compile(net, backend="eager")):
        assert_close(LRP(same, composite).attribute(x, 3), wanted)


def test_other_threads_checkpoint_while_a_network_is_explained():
    net = between(lambda n, h: n.gate(h).relu())
    x = points()
    seen = []
    explaining = threading.Event()
    trained = threading.Event()

    def layer(h):
        seen.append(torch.is_grad_enabled())
        return net.a(h)

    def train():
        explaining.wait(10)
        checkpoint(layer, x.clone().requires_grad_(), use_reentrant=True).sum().backward()
        trained.set()

    net.between = lambda n, h: explaining.set() or (trained.wait(10) and n.gate(h).relu())
    trainer = threading.Thread(target=train)
    trainer.start()
    LRP(net).attribute(x, 1)
    trainer.join()
    assert seen == [False, True]  # without gradients, and again for the backward pass
    assert net.a.weight.grad is not None


@pytest.mark.skipif(torch.__version__ < "2.7", reason="torch 2.6 gives up on what ran in a dispatch mode")
def test_compilation_is_on_again_after_an_error():
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph

    torch.compiler.reset()  # after several compilations of nn.Linear, PyTorch runs it as it is
    net = between(lambda n, h: torch.sigmoid(h))
    x = points()
    net.a = torch.compile(net.a, backend=backend)
    with pytest.raises(UnsupportedOperation):
        LRP(net).attribute(x, 1)
    assert not compiled
    net(x)
    assert compiled


# --- composites --------------------------------------------------------------------------------------------


def test_rules_for_nothing_are_refused():
    refused("a rule needs to be an instance", Composite, layers={"a": Gamma}, error=TypeError)
    for key in ("exp", nn.Sigmoid):
        refused("needs to be a function such as", Composite, functions={key: Pass()}, error=TypeError)
    lrp = LRP(small_vgg(), Composite(layers={"classifer*": Epsilon()}))
    message = r"rule for 'classifer\*', which matches no layer with weights"
    refused(message, lrp.attribute, torch.rand(1, 3, 16, 16), 0)


def test_depths_and_blocks():
    seen = set()

    def spy(place):
        return bool(seen.add((place.name, place.depth, place.block)))

    LRP(small_vgg(), Composite(layers={spy: Epsilon()})).attribute(torch.rand(1, 3, 16, 16), 3)
    assert seen == {("0", 0, 1), ("2", 1, 1), ("5", 2, 2), ("7", 3, 2), ("11", 4, None)}


# --- normalisation inside the network ----------------------------------------------------------------------


@pytest.mark.parametrize("rule", [Gamma(0.25), ZBox(-3.0, 3.0), Flat()], ids=repr)
def test_normalisation_inside_the_network_passes_relevance_unchanged(rule):
    net = small_vgg()
    x = torch.rand(2, 3, 16, 16)
    mean, std = torch.tensor([[0.5, 0.4, 0.3], [0.2, 0.3, 0.4]])[:, :, None, None]
    x[:, :, :4] = 0.0  # black
    inside = nn.Module()
    composite = Composite(Gamma(0.25), {0: rule})
    inside.net = net
    inside.forward = lambda x: net((x - mean) / std)
    assert_close(LRP(inside, composite).attribute(x, 3), LRP(net, composite).attribute((x - mean) / std, 3))


def test_half_precision_and_autocast_are_computed_in_float32():
    net = small_vgg()
    x = torch.rand(2, 3, 16, 16)
    wanted = LRP(net).attribute(x, 3)
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=dtype):
            assert_close(LRP(net).attribute(x, 3), wanted)
    found = LRP(net.half()).attribute(x.half(), 3)
    assert found.dtype == torch.float32
    assert float(torch.corrcoef(torch.stack([found.flatten(), wanted.flatten()]))[0, 1]) > 0.99


# --- zeros -------------------------------------------------------------------------------------------------

# Functions of a network, its input, and a copy of the input as a constant, which is tested for zeros.
ZEROS = {
    "missing values": lambda n, x, at: n.a(x) * (at == 0).to(x).mean(1, keepdim=True),
    "positive ones": lambda n, x, at: n.a(x) / (at > 0).sum(1, keepdim=True).clamp(min=1),
    "count_nonzero": lambda n, x, at: n.a(x) * torch.count_nonzero(at, 1)[:, None],
    "another value": lambda n, x, at: n.a(torch.where(at == 0, n.s[:4], x)),
    "masked_fill": lambda n, x, at: n.a(x.masked_fill(at != 0, 0.0)) + n.g(x),
    "bool": lambda n, x, at: n.a(x) + n.g(at.bool().to(x)),
    "sign": lambda n, x, at: n.a(x) * at.sign().sum(1, keepdim=True).abs(),
    "first one": lambda n, x, at: n.a(x) * (at == 0).to(x).argmax(1)[:, None],
    "indices": lambda n, x, at: n.a(x).index_add(0, (at == 0).nonzero()[:, 0], n.g(x)[(at == 0).nonzero()[:, 0]]),
    "a branch": lambda n, x, at: n.a(x) if (at == 0).any() else n.g(x),
    "rows of padding": lambda n, x, at: n.a(x) * (at == 0).all(1, keepdim=True).logical_not(),
    "in place": lambda n, x, at: n.a(x.clone().masked_fill_(at == 0, 1.5)),
    "attention": lambda n, x, at: F.scaled_dot_product_attention(
        n.q, n.a(x)[None], n.g(x)[None], attn_mask=(at != 0).any(1)
    )[0],
    "tiny numbers": lambda n, x, at: n.a(x) * (at.abs() < 1e-9).sum(1, keepdim=True),
}
BOX = ZBox(-3.0, 3.0)
RULES = GRADIENT, Composite(), Composite(Flat()), Composite(Gamma(0.25), {0: BOX}), Composite(layers={1: BOX})


def with_zeros(dtype):
    x = points().to(dtype)
    x[0] = 0.0
    x[1, 1:] = 0.0
    x[2, 2] = 0.0
    return x


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ZEROS)
def test_networks_that_test_for_zeros_are_run_on_the_input_itself(name, dtype):
    """Relevance is that of the network whose tests for zeros are constants."""
    run = ZEROS[name]
    x = with_zeros(dtype)
    net = Net(lambda n, given: run(n, given, given.detach())).to(dtype)
    constant = Net(lambda n, given: run(n, given, x)).to(dtype)
    for composite in RULES:
        recording = LRP(net, composite).record(x)
        with torch.no_grad():
            assert_close(recording.output, net(x), rtol=1e-6, atol=1e-6)
        start = torch.zeros_like(recording.output)
        start[:, 1] = 1
        expected = LRP(constant, composite).attribute(x, 1)
        assert_close(LRP(net, composite).attribute(x, 1), expected)
        assert_close(recording.propagate(torch.stack([start, 2 * start])), torch.stack([expected, 2 * expected]))
        if composite is GRADIENT and name != "attention":  # where each factor gets half of the relevance
            assert_close(expected, gradient_times_input(net, x))


# Functions of hidden units that test them for zeros.
HIDDEN = {
    "how many are active": lambda h: h * (h > 0).sum(1, keepdim=True),
    "how many are not": lambda h: h * (h == 0).sum(1, keepdim=True),
    "their smallest": lambda h: h * (h.amin(1, keepdim=True) == 0),
    "a sum": lambda h: (h + h.roll(1, 1)) * ((h + h.roll(1, 1)) == 0).sum(1, keepdim=True),
    "a difference": lambda h: h - (h - h.roll(1, 0)).ne(0).to(h),
    "a part": lambda h: F.pad(h[:, 1:], (0, 1)) * (F.pad(h[:, 1:], (0, 1)) == 0).sum(1, keepdim=True),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", HIDDEN)
def test_zeros_of_hidden_units_are_zeros(name, dtype):
    net = Net(lambda n, x: n.b(HIDDEN[name](n.a(x).relu()))).to(dtype)
    x = with_zeros(dtype)
    for composite in RULES:
        with torch.no_grad():
            assert_close(LRP(net, composite).record(x).output, net(x), rtol=1e-6, atol=1e-6)
    assert_close(LRP(net, GRADIENT).attribute(x, 1), gradient_times_input(net, x))


@pytest.mark.parametrize("rule", [Flat(), BOX], ids=repr)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_relevance_of_inactive_units_is_conserved(rule, dtype):
    """Without biases, also through sums of units that are all zero."""
    net = Net(lambda n, x: n.b((n.a(x).relu() + n.g(x).relu()) * 2)).to(dtype)
    for layer in (net.a, net.g, net.b):
        nn.init.zeros_(layer.bias)
    x = with_zeros(dtype)
    found = LRP(net, Composite(rule)).attribute(x, 1)
    assert (found != 0).any(0).all()
    assert_close(found.sum(1), net(x)[:, 1].detach(), rtol=1e-4, atol=1e-5)
