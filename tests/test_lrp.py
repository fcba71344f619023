"""LRP of networks and their operations against gradients; and what it leaves behind in a network: nothing."""

import copy
import gc
import re
import weakref
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torchvision
from refusals import refused, untraceable
from torch import nn
from torch.nn.utils import parametrizations
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.testing import assert_close
from torchvision.ops import FrozenBatchNorm2d

from neonxc.lrp import LRP, AlphaBeta, Composite, Epsilon, Flat, Gamma, UnsupportedOperation, ZBox, ZPlus

DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32])


class Net(nn.Module):
    """A forward pass written as a function of the module, whose parts are given by name."""

    def __init__(self, run, **parts):
        super().__init__()
        self.run = run
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.run(self, x)


class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


def conv(i, o, k=3, **options):
    return nn.Conv2d(i, o, k, **options)


def ready(net, seed=0):
    """In eval mode and float64, biases and the statistics of BatchNorm drawn at random."""
    generator = torch.Generator().manual_seed(seed)
    for module in net.modules():
        for name, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
            if tensor.is_floating_point() and (name == "bias" or name.startswith("running") or tensor.ndim == 1):
                positive = name == "running_var" or (name == "weight" and tensor.ndim == 1)
                draw = torch.rand(tensor.shape, generator=generator)
                tensor.data = (0.5 + draw if positive else draw - 0.5).to(tensor)
    return net.double().eval()


def images(n=3, size=10, channels=3, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, channels, size, size, generator=generator, dtype=torch.float64)


def points(n=6, d=4, seed=1):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def head(d, k=5):
    return nn.Sequential(nn.Flatten(), nn.Linear(d, k))


NETS = {
    "conv relu maxpool linear": lambda: nn.Sequential(
        conv(3, 6), nn.ReLU(), nn.MaxPool2d(2), conv(6, 8), nn.ReLU(), *head(32)
    ),
    "batch norm": lambda: nn.Sequential(
        *(conv(3, 6), nn.BatchNorm2d(6), nn.ReLU(), nn.AvgPool2d(2)),
        *(conv(6, 8, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(32, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 5)),
    ),
    "depthwise": lambda: nn.Sequential(
        *(conv(3, 6, 1), nn.BatchNorm2d(6), nn.ReLU(), conv(6, 12, groups=6, stride=2), nn.BatchNorm2d(12)),
        *(nn.ReLU(), nn.AdaptiveAvgPool2d(2), *head(48)),
    ),
    "residual": lambda: nn.Sequential(
        *(conv(3, 4), nn.ReLU(), Residual(conv(4, 6, padding=1), nn.ReLU(), conv(6, 4, padding=1)), nn.ReLU()),
        *(nn.AdaptiveMaxPool2d(3), *head(36)),
    ),
    "dilated and grouped": lambda: nn.Sequential(
        conv(3, 6, dilation=2, padding=(2, 1)), nn.ReLU(), conv(6, 4, (3, 2), groups=2, stride=(1, 2)), *head(128)
    ),
    "one dimension": lambda: nn.Sequential(
        nn.Flatten(2), nn.Conv1d(3, 6, 5, stride=3), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(6, 4, 3), *head(56)
    ),
}


def gap(a, b):
    return float((a - b).norm() / b.norm())


# --- witnesses ---------------------------------------------------------------------------------------------


@DTYPES
def test_without_gamma_it_is_gradient_times_input(dtype):
    nets = {name: NETS[name]() for name in NETS}
    nets["linear chain"] = nn.Sequential(conv(3, 4, bias=False), conv(4, 2), *head(72))
    for net in nets.values():
        net, x = ready(net).to(dtype), images().to(dtype).requires_grad_()
        (gradient,) = torch.autograd.grad(net(x)[:, 1].sum(), x)
        for rule in (Gamma(0.0), Epsilon(0.0)):
            found = LRP(net, Composite(rule)).attribute(x.detach(), 1)
            assert_close(found, (gradient * x).detach())


# --- what a network may be made of -------------------------------------------------------------------------

OPERATIONS = {
    "F.relu": lambda n, x: n.b(F.relu(n.a(x))),
    "torch.relu": lambda n, x: n.b(torch.relu(n.a(x))),
    "Tensor.relu": lambda n, x: n.b(n.a(x).relu()),
    "F.relu in place": lambda n, x: n.b(F.relu(n.a(x), inplace=True)),
    "Tensor.relu_": lambda n, x: n.b(n.a(x).relu_()),
    "F.linear": lambda n, x: F.linear(torch.relu(F.linear(x, n.a.weight, n.a.bias)), n.b.weight, n.b.bias),
    "x += y": lambda n, x: n.b(plus(n.a(x), n.a(-x).relu())),
    "x -= y, x *= 2, x /= 3": lambda n, x: n.b(scaled(n.a(x)).relu()),
    "torch.flatten": lambda n, x: n.b(torch.flatten(n.a(x).relu()[:, :, None], 1)),
    "transposed twice": lambda n, x: n.b(n.a(x).relu().T.mT),
    "cat, stack, split": lambda n, x: n.b(torch.cat(torch.stack([n.a(x), n.a(-x)], 1).sum(1).split(2, 1), 1)),
    "sum and mean": lambda n, x: n.b(n.a(x).relu() - n.a(x).mean(dim=1, keepdim=True)) + x.sum(1, keepdim=True),
    "constants": lambda n, x: n.b(2 * n.a(x) / 3 * torch.arange(6.0, dtype=x.dtype) - 1),
    "parameters": lambda n, x: n.b(n.a(x) * n.scale.view(1, -1) + n.scale[None]),
    "matrix product": lambda n, x: torch.relu(x @ n.a.weight.T + n.a.bias).matmul(n.b.weight.t()),
    "into a buffer": lambda n, x: n.b(filled(n.a(x).relu())),
    "detached": lambda n, x: n.b(n.a(x).relu() + n.a(x).detach()),
}


def plus(x, y):
    x += y
    return x


def scaled(x):
    y = x
    x -= 0.5
    x *= 2
    x /= 3
    return y  # the same tensor


def filled(x):
    buffer = torch.zeros_like(x).detach()
    buffer[:, :3] = x[:, 3:]
    buffer += 1
    return buffer


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name):
    """gradient x input without gamma, and the network's own output."""
    parts = {"a": nn.Linear(4, 6), "b": nn.Linear(6, 3), "scale": nn.Parameter(torch.randn(6))}
    net, x = ready(Net(OPERATIONS[name], **parts)), points().requires_grad_()
    output = net(x)
    (gradient,) = torch.autograd.grad(output[:, 2].sum(), x)
    lrp = LRP(net, Composite(Gamma(0.0)))
    assert_close(lrp.attribute(x.detach(), 2), (gradient * x).detach())
    assert_close(lrp.record(x).output, output)
    assert torch.isfinite(LRP(net).attribute(x, 2)).all()


def run_and_drop(net, x):
    x = net.a(x)
    net.act(x)  # in place: the result is x
    return net.b(x)


@pytest.mark.parametrize(
    "act", [nn.ReLU(inplace=True), nn.ReLU6(inplace=True), torch.relu_], ids=["ReLU", "ReLU6", "relu_"]
)
def test_in_place_activations_whose_result_is_dropped(act):
    module = act if isinstance(act, nn.Module) else None
    net = ready(Net(run_and_drop, a=nn.Linear(4, 6), b=nn.Linear(6, 3), act=module or Net(lambda n, x: act(x))))
    x = points()
    assert_close(LRP(net).record(x).output, net(x))
    if module is not None:
        chain = nn.Sequential(net.a, type(act)(), net.b)
        assert_close(LRP(net).attribute(x, 0), LRP(chain).attribute(x, 0))
        assert act.inplace


@pytest.mark.parametrize("clipped", [nn.ReLU6(), nn.Hardtanh(0.0, 1e3)], ids=["ReLU6", "Hardtanh"])
@pytest.mark.parametrize("rule", [Gamma(0.25), Epsilon(), AlphaBeta(), Flat(), ZBox(-3.0, 3.0)], ids=repr)
def test_below_their_bound_clipped_rectifiers_are_relus(clipped, rule):
    layers = [conv(3, 8, 1), None, conv(8, 8, 3, groups=8), None, *head(8 * 16)]
    nets = [ready(nn.Sequential(*(layer or act for layer in layers))) for act in (nn.ReLU(), clipped)]
    x = images(size=6) / 10
    for composite in (Composite(rule), Composite(Gamma(0.25), {"2": rule})):
        expected, found = (LRP(net, composite).attribute(x, 0) for net in nets)
        assert_close(found, expected)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize(("kernel", "dilation"), [(3, 2), (4, 1), ((2, 5), 2)])
def test_reflected_padding(kernel, dilation):
    layer = conv(3, 4, kernel, padding="same", dilation=dilation, padding_mode="reflect")
    net = ready(nn.Sequential(layer, *head(400)))
    x = images().requires_grad_()
    (gradient,) = torch.autograd.grad(net(x)[:, 0].sum(), x)
    assert_close(LRP(net, Composite(Gamma(0.0))).attribute(x, 0), (gradient * x).detach())


class ByHand(nn.Module):
    """BatchNorm in eval mode as a network's own code, in one of several forms."""

    def __init__(self, norm, form):
        super().__init__()
        by_channel = [-1] if isinstance(norm, nn.BatchNorm1d) else [-1, 1, 1]
        self.weight, self.bias = (nn.Parameter(p.detach().view(by_channel)) for p in (norm.weight, norm.bias))
        self.register_buffer("mean", norm.running_mean.view(by_channel))
        self.deviation = (norm.running_var + norm.eps).sqrt().view(by_channel)  # neither parameter nor buffer
        self.form = form

    def forward(self, x):
        return FORMS[self.form](x, self.mean, self.deviation, self.weight, self.bias)


FORMS = {
    "scale and shift": lambda x, m, s, w, b: x * (w / s) + (b - m * w / s),
    "in its order": lambda x, m, s, w, b: (x - m) / s * w + b,
    "in place": lambda x, m, s, w, b: x.clone().sub_(m).div_(s).mul_(w).add_(b),
    "reversed": lambda x, m, s, w, b: b - (m - x).contiguous() * (1 / s) * w,
    "fused": lambda x, m, s, w, b: torch.addcmul(b - m * w / s, x, w / s),
    "doubled": lambda x, m, s, w, b: torch.add(b, 0.5 * ((x - m) / s * w), alpha=2),
    "scale last": lambda x, m, s, w, b: (x + (b * s / w - m)) * (w / s).expand_as(x[:1]),
    "negative": lambda x, m, s, w, b: -(x * (-w / s)) + (b - m * w / s).expand_as(x),
    "negative last": lambda x, m, s, w, b: -(x * (-w / s) - (b - m * w / s)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rule", [Gamma(0.25), ZPlus(), Epsilon(0.1)], ids=repr)
def test_scales_and_shifts_by_channel_are_batch_norm(form, rule):
    nets = [NETS["batch norm"](), NETS["depthwise"]()]
    nets.append(nn.Sequential(conv(3, 4), nn.ReLU(), nn.BatchNorm2d(4), nn.ReLU(), conv(4, 2), *head(72)))
    for net in map(ready, nets):
        by_hand = nn.Sequential(
            *(
                ByHand(layer, form) if isinstance(layer, nn.modules.batchnorm._BatchNorm) else layer
                for layer in net
            )
        )
        wanted = LRP(net, Composite(rule)).attribute(images(), 1)
        assert gap(LRP(by_hand, Composite(rule)).attribute(images(), 1), wanted) < 1e-9


def freeze(block, name, layer, after, norm):
    frozen = FrozenBatchNorm2d(norm.num_features, norm.eps).double()
    frozen.load_state_dict({key: value for key, value in norm.state_dict().items() if "batches" not in key})
    setattr(block, after, frozen)


def fuse(block, name, layer, after, norm):
    setattr(block, name, fuse_conv_bn_eval(layer, norm))
    setattr(block, after, nn.Identity())


@pytest.mark.parametrize("make", [freeze, fuse])
def test_frozen_and_fused_batch_norm_are_live_batch_norm(make):
    net = ready(torchvision.models.resnet18(num_classes=5).requires_grad_(False))
    changed = copy.deepcopy(net)
    for block in changed.modules():
        for (name, layer), (after, norm) in pairwise([*block.named_children()]):
            if isinstance(norm, nn.BatchNorm2d):
                make(block, name, layer, after, norm)
    x = images(2, 32)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in changed.modules())
    assert gap(LRP(changed).attribute(x, 1), LRP(net).attribute(x, 1)) < 1e-9


def test_a_norm_by_the_inputs_own_statistics_is_no_batch_norm():
    """Its bias absorbs its share, whether LayerNorm computes it or a network's own code."""

    def by_hand(n, x):
        x = n.a(x).relu()
        x = x - x.mean(1, keepdim=True)
        return n.b(x / (x.square().mean(1, keepdim=True) + n.norm.eps).sqrt() * n.norm.weight + n.norm.bias)

    net = ready(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.LayerNorm(6), nn.Linear(6, 3)))
    own = Net(by_hand)
    own.a, own.norm, own.b = net[0], net[2], net[3]
    for x in (points(), points(1)):
        assert_close(LRP(own).attribute(x, 1), LRP(net).attribute(x, 1))


def test_batch_norm_that_follows_no_linear_layer_keeps_its_gradient():
    net = ready(nn.Sequential(conv(3, 4), nn.ReLU(), nn.BatchNorm2d(4), conv(4, 2), *head(72)))
    x = images().requires_grad_()
    (gradient,) = torch.autograd.grad(net(x)[:, 0].sum(), x)
    assert_close(LRP(net, Composite(Gamma(0.0))).attribute(x, 0), (gradient * x).detach())


def test_weights_that_are_computed_follow_the_default_rule():
    net = nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 6)), nn.ReLU(), nn.Linear(6, 3)).double()
    plain = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), net[2]).double()
    plain[0].weight.data, plain[0].bias.data = net[0].weight.data, net[0].bias.data
    assert_close(LRP(net).attribute(points(), 0), LRP(plain).attribute(points(), 0))


# --- composites and rules ----------------------------------------------------------------------------------


def test_first_match_by_name_or_type_wins():
    class Named:
        def __init__(self, name):
            self.name = name

        def __call__(self, layer, x, y, m):
            seen.append(self.name)
            return layer.transpose(m, layer.weight, x)

    net = ready(nn.Sequential(nn.Sequential(conv(3, 4), nn.ReLU(), conv(4, 4)), *head(144), nn.Linear(5, 2)))
    composite = Composite(
        Named("default"),
        {"0.2": Named("name"), nn.Conv2d: Named("type"), "0.?": Named("too late"), "[12]*": Named("pattern")},
    )
    seen = []
    LRP(net, composite).attribute(images(), 0)
    assert seen == ["default", "pattern", "name", "type"]
    assert "too late" not in seen


def test_composite_is_gamma_unless_told():
    net, x = ready(NETS["batch norm"]()), images()
    wanted = LRP(net, Composite(Gamma(0.25))).attribute(x, 0)
    assert_close(LRP(net).attribute(x, 0), wanted)
    assert_close(LRP(net, Composite()).attribute(x, 0), wanted)
    assert gap(LRP(net, Composite(Gamma(0.1))).attribute(x, 0), wanted) > 1e-3


def test_rule_by_name_also_where_the_function_is_called():
    net = ready(Net(OPERATIONS["F.linear"], a=nn.Linear(4, 6), b=nn.Linear(6, 3)))
    plain = nn.Sequential(net.a, nn.ReLU(), net.b)
    found = LRP(net, Composite(Gamma(0.1), {"a": Epsilon(0.4)})).attribute(points(), 0)
    assert_close(found, LRP(plain, Composite(Gamma(0.1), {"0": Epsilon(0.4)})).attribute(points(), 0))


def test_tied_weights_follow_the_rule_of_their_first_name():
    net = ready(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)))
    net[2].weight, net[2].bias = net[0].weight, net[0].bias
    found = LRP(net, Composite(Gamma(0.1), {"0": Epsilon(0.4), "2": Gamma(9.0)})).attribute(points(), 0)
    assert_close(found, LRP(net, Composite(Epsilon(0.4))).attribute(points(), 0))


def test_a_rule_of_ones_own():
    """z+ for inputs of both signs, against its definition."""

    class ZPlus:
        def __call__(self, layer, x, y, m):
            positive, negative = layer.weight.clamp(min=0), layer.weight.clamp(max=0)
            z = layer.apply(x.clamp(min=0), positive) + layer.apply(x.clamp(max=0), negative)
            share = torch.where(z == 0, 0, m * y / z)
            up, down = (layer.transpose(share, w, x) for w in (positive, negative))
            return torch.where(x > 0, up, down)

    layer, x = ready(nn.Linear(4, 3, bias=False)), points()
    found = LRP(layer, Composite(ZPlus())).attribute(x, 1)
    parts = (x * layer.weight[1]).clamp(min=0).detach()
    wanted = parts / parts.sum(dim=1, keepdim=True) * layer(x)[:, 1:2].detach()
    assert_close(found, wanted)


# --- targets and recordings --------------------------------------------------------------------------------


def test_targets():
    net, x = ready(NETS["conv relu maxpool linear"]()), images(4)
    lrp = LRP(net)
    single = torch.stack([lrp.attribute(x, c) for c in range(5)])
    each = [3, 0, 4, 3]
    for target in (each, torch.tensor(each), np.array(each)):
        assert_close(lrp.attribute(x, target), single[each, range(4)])
    assert_close(lrp.attribute(x, (2,)), single[2])
    (inside,) = lrp.attribute((x,), 1)
    assert_close(inside, single[1])
    maps = LRP(nn.Sequential(net[0], net[1]))
    recording = maps.record(x)
    start = torch.zeros_like(recording.output)
    start[:, 4, 2, 7] = 1
    assert_close(maps.attribute(x, (4, 2, 7)), recording.propagate(start))
    one = nn.Sequential(net, nn.Linear(5, 1).double())
    assert_close(LRP(one).attribute(x), LRP(one).attribute(x, 0))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (None, r"target is missing: the network's output has shape \[3, 5\]"),
        (5, r"target needs columns from 0 to 4, got 5"),
        ((1, 1), r"target needs 1 numbers for outputs \[3, 5\], got \(1, 1\)"),
        ([0, 1], r"target has 2 entries for 3 inputs"),
        ([0, 1, 5], r"target needs columns from 0 to 4, got \[0, 1, 5\]"),
        ([0.0, 1.0, 2.0], r"target needs whole column numbers"),
    ],
)
def test_unknown_targets(target, message):
    refused(message, LRP(ready(NETS["conv relu maxpool linear"]())).attribute, images(), target)


def test_several_walks_back_from_one_recording():
    net, x = ready(NETS["batch norm"]()), images()
    recording = LRP(net).record(x)
    for _ in range(2):  # what a rule remembers of the first walk must not change the second
        for target in (0, 4):
            start = torch.zeros_like(recording.output).index_fill(1, torch.tensor([target]), 1.0)
            assert_close(recording.propagate(start), LRP(net).attribute(x, target))
    weights = torch.randn_like(recording.output)
    start = [torch.zeros_like(weights).index_fill(1, torch.tensor([c]), 1.0) * weights for c in range(5)]
    plain = LRP(net, Composite(Epsilon(0.0))).record(x)  # linear in what it starts from
    assert_close(plain.propagate(weights), sum(plain.propagate(s) for s in start))


def test_output_that_does_not_depend_on_the_input():
    net = Net(lambda n, x: torch.ones(len(x), 2) * n.scale.exp(), scale=nn.Parameter(torch.ones(2)))
    assert torch.equal(LRP(net).attribute(points(), 0), torch.zeros(6, 4, dtype=torch.float64))


# --- what can't be explained, and what is left behind ------------------------------------------------------

UNKNOWN = {
    "sigmoid": lambda n, x: torch.sigmoid(n.a(x)),
    "pow": lambda n, x: n.a(x) ** 3,
    "exp": lambda n, x: n.a(x).exp(),
    "abs": lambda n, x: n.a(x).abs(),
    "log1p": lambda n, x: n.a(x).log1p_(),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_functions_are_named_with_their_place(name):
    net = ready(Net(UNKNOWN[name], a=nn.Linear(4, 3)))
    line = UNKNOWN[name].__code__.co_firstlineno
    place = re.escape(f"LRP has no rule for {name!r}, called at {__file__}:{line} in <lambda>: ")
    untraceable(place + ".*n, x", net, points())


def test_unknown_function_inside_a_library_is_named():
    net = nn.Sequential(nn.Linear(4, 3), torchvision.ops.MLP(3, [3, 2], activation_layer=nn.LogSigmoid)).double()
    untraceable(r"'log_sigmoid', called at ", net.eval(), points())


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.BatchNorm1d(4), r"is in training mode: its BatchNorm1d \('1'\) would change its num_batches_tracked"),
        (nn.Dropout(), r"is in training mode: its Dropout \('1'\) would draw random numbers; call .eval\(\)"),
        (Net(lambda n, x: F.dropout(x)), r"its Net \('1'\) would draw random numbers; call .eval\(\)"),
        (Net(lambda n, x: F.dropout(x)).eval(), r"Net \('1'\) .* in eval mode as well; .* on self.training"),
        (Net(lambda n, x: F.batch_norm(x, None, None, training=True)), r"Net \('1'\) .* normalizes by the batch"),
    ],
    ids=["batch norm", "dropout", "function dropout", "dropout in both modes", "function batch norm"],
)
def test_training_mode_is_an_error(layer, message):
    net = nn.Sequential(nn.Linear(4, 4), layer, nn.Linear(4, 2)).double()
    before = copy.deepcopy(net.state_dict())
    refused(message, LRP(net).attribute, points(), 0)
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_not_finite_are_errors(bad):
    x = points()
    x[2, 1] = bad
    lrp = LRP(nn.Linear(4, 3).double())
    refused(rf"inputs has a value that is not finite: {bad} in row 2, column 1", lrp.attribute, x, 0)
    refused(rf"x has a value that is not finite: {bad} in row 2, column 1", lrp.record, x)


def test_several_outputs_are_an_error():
    net = Net(lambda n, x: (n.a(x), x), a=nn.Linear(4, 3).double())
    refused(r"one tensor as its output, got tuple", LRP(net).attribute, points(), 0, error=TypeError)


def test_several_inputs_are_an_error():
    refused(
        r"inputs needs one tensor, got a tuple of 2",
        LRP(nn.Linear(4, 3)).attribute,
        (torch.rand(2, 4), torch.rand(2, 4)),
        0,
    )


def traces(net):
    """All that a careless method might leave in a network."""
    hooks = [
        dict(getattr(module, name))
        for module in net.modules()
        for name in dir(module)
        if name.endswith("hooks") and isinstance(getattr(module, name, None), dict)
    ]
    flags = [(m.training, getattr(m, "inplace", None), set(m.__dict__)) for m in net.modules()]
    parameters = [(p.requires_grad, p.grad, p.data_ptr(), p._version) for p in net.parameters()]
    return hooks, flags, parameters


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_network_is_left_as_it_was(frozen, fails):
    end = nn.Sigmoid() if fails else nn.ReLU(inplace=True)
    net = nn.Sequential(conv(3, 4), nn.BatchNorm2d(4), nn.ReLU(inplace=True), *head(256), end)
    net = ready(net).requires_grad_(not frozen)
    net[2].train()  # a flag that is not everywhere the same
    x, before, state = images(), traces(net), copy.deepcopy(net.state_dict())
    given = x.clone()
    if fails:
        with pytest.raises(UnsupportedOperation):
            LRP(net).attribute(x, 0)
    else:
        found = LRP(net).attribute(x, 0)
        assert not found.requires_grad
    assert traces(net) == before
    assert torch.equal(x, given)
    assert all(torch.equal(value, net.state_dict()[key]) for key, value in state.items())
    assert net(x).grad_fn is not None or frozen  # an ordinary pass again


@pytest.mark.parametrize("rule", [Gamma(0.25), Epsilon(1e-6)], ids=repr)
def test_trainable_parameters_do_not_matter(rule):
    net, x = ready(NETS["batch norm"]()), images()
    wanted = LRP(copy.deepcopy(net).requires_grad_(False), Composite(rule)).attribute(x, 0)
    with torch.no_grad():
        found = LRP(net, Composite(rule)).attribute(x, 0)
    assert_close(found, wanted)
    assert all(p.grad is None for p in net.parameters())


@pytest.mark.parametrize("name", ["batch norm", "residual"])
def test_nothing_is_retained(name):
    net, composite = ready(NETS[name]()), Composite(Gamma(0.25))
    lrp, x = LRP(net, composite), images()
    kept = []
    watch = net[0].register_forward_hook(lambda module, args, y: kept.extend(map(weakref.ref, (args[0], y))))
    gc.collect()
    gc.disable()
    try:
        recording = lrp.record(x)
        kept += [weakref.ref(recording.x), weakref.ref(recording.output)]
        found = recording.propagate(torch.ones_like(recording.output))
        assert all(ref() is not None for ref in kept[:1])
        del recording, found
        assert [ref() for ref in kept] == [None] * len(kept)
    finally:
        gc.enable()
        watch.remove()


@pytest.mark.cuda
@pytest.mark.parametrize("name", NETS)
def test_cuda(name):
    net, x = ready(NETS[name]()), images()
    wanted = LRP(net).attribute(x, 0)
    found = LRP(net.cuda()).attribute(x.cuda(), 0)
    assert found.is_cuda
    assert_close(found.cpu(), wanted)


def test_batch_norm_of_another_dimension_than_the_products_is_not_folded():
    norm = nn.BatchNorm1d(4)
    norm.running_var.uniform_(0.5, 2)
    norm.running_mean.normal_()
    net = nn.Sequential(nn.Linear(6, 4), norm).double().eval()
    x = torch.randn(3, 4, 6, dtype=torch.float64, requires_grad=True)
    output = net(x)
    (gradient,) = torch.autograd.grad(output[:, 1, 2].sum(), x)
    relevance = LRP(net, Composite(Epsilon(0))).attribute(x.detach(), target=(1, 2))
    assert_close(relevance, (x * gradient).detach())


def test_torchscript_is_refused():
    net = torch.jit.trace(nn.Linear(3, 2), torch.rand(1, 3))
    untraceable("TorchScript", net, torch.rand(1, 3))


def test_inference_mode_changes_nothing():
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2)).eval()
    x = torch.rand(2, 1, 4, 4)
    expected = LRP(net).attribute(x, 1)
    with torch.inference_mode():
        assert_close(LRP(net).attribute(x, 1), expected)
        assert_close(LRP(net).attribute(torch.rand_like(x).copy_(x), 1), expected)
