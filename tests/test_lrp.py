"""LRP of networks and their operations against gradients; and what it leaves behind in a network: nothing."""

import copy
import gc
import weakref

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from refusals import refused, untraceable
from test_lrp_constants import Net, points
from torch import nn
from torch.testing import assert_close

from neonxc.lrp import LRP, Composite, Epsilon, Gamma


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
}


# --- witnesses ---------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_without_gamma_it_is_gradient_times_input(dtype):
    padded = conv(3, 4, (2, 5), padding="same", dilation=2, padding_mode="reflect")
    nets = [*(make() for make in NETS.values()), nn.Sequential(padded, conv(4, 2, bias=False), *head(128))]
    for net in nets:
        net = ready(net).to(dtype)
        x = images().to(dtype).requires_grad_()
        (gradient,) = torch.autograd.grad(net(x)[:, 1].sum(), x)
        for rule in (Gamma(0.0), Epsilon(0.0)):
            found = LRP(net, Composite(rule)).attribute(x.detach(), 1)
            assert_close(found, (gradient * x).detach())


# --- batch norm --------------------------------------------------------------------------------------------


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
    "scale last": lambda x, m, s, w, b: (x - m + b * s / w) * (w / s).expand_as(x[:1]),
    "negative": lambda x, m, s, w, b: -(x * (-w / s)) + (b - m * w / s).expand_as(x),
    "negative last": lambda x, m, s, w, b: -(x * (-w / s) - (b - m * w / s)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rule", [Gamma(0.25), Epsilon(0.1)], ids=repr)
def test_scales_and_shifts_by_channel_are_batch_norm(form, rule):
    nets = [NETS["batch norm"](), NETS["depthwise"]()]
    nets.append(nn.Sequential(conv(3, 4), nn.ReLU(), nn.BatchNorm2d(4), nn.ReLU(), conv(4, 2), *head(72)))
    for net in map(ready, nets):
        norms = nn.BatchNorm1d, nn.BatchNorm2d
        by_hand = nn.Sequential(*(ByHand(part, form) if isinstance(part, norms) else part for part in net))
        found, wanted = (LRP(one, Composite(rule)).attribute(images(), 1) for one in (by_hand, net))
        assert (found - wanted).norm() < 1e-9 * wanted.norm()


# --- composites and rules ----------------------------------------------------------------------------------


def test_first_match_by_name_or_type_wins():
    net = ready(nn.Sequential(nn.Sequential(conv(3, 4), nn.ReLU(), conv(4, 4)), *head(144), nn.Linear(5, 2)))
    name, kind, late, pattern, default = map(Gamma, (0.1, 0.2, 0.3, 0.4, 0.5))
    first = Composite(default, {"0.2": name, nn.Conv2d: kind, "0.?": late, "[12]*": pattern})
    each = Composite(late, {"0.0": kind, "0.2": name, "2": pattern, "3": default})
    assert_close(*(LRP(net, composite).attribute(images(), 0) for composite in (first, each)))


def test_rules_by_the_names_of_weights():
    """Also where a function is called; tied weights follow the rule of their first name."""
    plain = nn.Sequential(nn.Linear(3, 3, bias=False), nn.ReLU(), nn.Linear(3, 3, bias=False)).double()
    net = Net(lambda n, x: F.linear(F.linear(x, n.a.weight).relu(), n.b.weight))
    x = points()[:, 1:]
    net.a, net.b = plain[::2]
    net.a.weight = net.b.weight
    wanted = LRP(net, Composite(Epsilon(0.4))).attribute(x, 0)
    for one, (first, second) in ((net, "ab"), (plain, "02")):
        rules = {first: Epsilon(0.4), second: Gamma(9.0)}
        assert_close(LRP(one, Composite(Gamma(0.1), rules)).attribute(x, 0), wanted)


# --- targets and recordings --------------------------------------------------------------------------------


def test_targets():
    net = ready(NETS["conv relu maxpool linear"]())
    x = images(4)
    lrp = LRP(net)
    each = [3, 0, 4, 3]
    single = torch.stack([lrp.attribute(x, c) for c in range(5)])
    for target in (each, torch.tensor(each), np.array(each)):
        assert_close(lrp.attribute(x, target), single[each, range(4)])
    assert_close(lrp.attribute(x, (2,)), single[2])
    assert_close(lrp.attribute((x,), 1), (single[1],))
    maps = LRP(net[0])
    recording = maps.record(x)
    start = torch.zeros_like(recording.output)
    start[:, 4, 2, 7] = 1
    assert_close(maps.attribute(x, (4, 2, 7)), recording.propagate(start))
    one = LRP(nn.Sequential(net, nn.Linear(5, 1).double()))
    assert_close(one.attribute(x), one.attribute(x, 0))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (None, r"target is missing: the network's output has shape \[3, 5\]"),
        (5, r"target needs columns from 0 to 4, got 5"),
        ((1, 1), r"target needs 1 number for outputs \[3, 5\], got \(1, 1\)"),
        ([0, 1], r"target has 2 entries for 3 inputs"),
        ([0, 1, 5], r"target needs columns from 0 to 4, got \[0, 1, 5\]"),
        ([0.0, 1.0, 2.0], r"target needs whole column numbers"),
    ],
)
def test_unknown_targets(target, message):
    refused(message, LRP(ready(NETS["conv relu maxpool linear"]())).attribute, images(), target)


# --- what can't be explained, and what is left behind ------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.BatchNorm1d(3), r"is in training mode: its BatchNorm1d \('1'\) would change its num_batches_tracked"),
        (nn.Dropout(), r"is in training mode: its Dropout \('1'\) would draw random numbers; call .eval\(\)"),
        (Net(lambda n, x: F.dropout(x)).train(), r"its Net \('1'\) would draw random numbers; call .eval\(\)"),
        (Net(lambda n, x: F.dropout(x)), r"Net \('1'\) .* in eval mode as well; .* on self.training"),
        (Net(lambda n, x: F.batch_norm(x, None, None, training=True)), r"Net \('1'\) .* normalizes by the batch"),
    ],
    ids=["batch norm", "dropout", "function dropout", "dropout in both modes", "function batch norm"],
)
def test_training_mode_is_an_error(layer, message):
    net = nn.Sequential(nn.Linear(4, 3), layer, nn.Linear(3, 2)).double()
    before = copy.deepcopy(net.state_dict())
    refused(message, LRP(net).attribute, points(), 0)
    assert all(torch.equal(before[k], v) for k, v in net.state_dict().items())


def test_inputs_and_outputs_that_are_refused():
    x = points()
    lrp = LRP(nn.Linear(4, 3).double())
    x[2, 1] = -torch.inf
    for name, call in (("inputs", lrp.attribute), ("x", lambda x, _: lrp.record(x))):
        refused(f"{name} has a value that is not finite: -inf in row 2, column 1", call, x, 0)
    refused("inputs needs one tensor, got a tuple of 2", lrp.attribute, (x, x), 0)
    pairs = LRP(nn.MaxPool1d(2, return_indices=True))
    refused("one tensor as its output, got tuple", pairs.attribute, points(), 0, error=TypeError)


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
    end = nn.Sequential(nn.Sigmoid() if fails else nn.ReLU(inplace=True))
    net = nn.Sequential(conv(3, 4), nn.BatchNorm2d(4), nn.ReLU(inplace=True), *head(256), end)
    net = ready(net).requires_grad_(not frozen)
    net[0].bias.requires_grad_(frozen)
    net[2].train()  # a flag that is not everywhere the same
    x = images()
    before = traces(net)
    state = copy.deepcopy(net.state_dict())
    given = x.clone()
    if fails:
        untraceable(r"\(module '5.0', Sigmoid\)", net, x)
    else:
        assert not LRP(net).attribute(x, 0).requires_grad
    assert traces(net) == before
    assert torch.equal(x, given)
    assert all(torch.equal(value, net.state_dict()[key]) for key, value in state.items())
    assert net(x).grad_fn is not None  # an ordinary pass again


def test_nothing_is_retained():
    net = ready(NETS["residual"]())
    lrp = LRP(net)
    x = images()
    kept = []
    net[0].register_forward_hook(lambda module, args, y: kept.extend(map(weakref.ref, (args[0], y))))
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


def test_inference_mode_changes_nothing():
    net = ready(NETS["residual"]())
    x = images()
    expected = LRP(net).attribute(x, 1)
    with torch.inference_mode():
        for same in (x, torch.rand_like(x).copy_(x)):
            assert_close(LRP(net).attribute(same, 1), expected)
