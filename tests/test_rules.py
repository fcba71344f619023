"""Every rule of LRP against its formula written out, zennit, and the sum that it should keep."""

import copy
from functools import lru_cache, partial
from itertools import chain, cycle, islice, repeat

import lrp_witnesses as witness
import numpy as np
import pytest
import torch
from lrp_witnesses import Attention, Concatenation, Gated, Sum
from numpy.testing import assert_allclose
from refusals import refused
from torch import nn
from torch.testing import assert_close
from torchvision.models.resnet import BasicBlock, ResNet
from zennit import rules as zennit_rules
from zennit import types
from zennit.composites import SpecialFirstLayerMapComposite
from zennit.layer import Sum as ZennitSum
from zennit.torchvision import ResNetCanonizer

from neonxc.lrp import LRP, AlphaBeta, Composite, Epsilon, Flat, Gamma, WSquare, ZBox, ZPlus

LOW = -4.0
HIGH = 5.0
# ours, and the witness's
RULES = {
    "epsilon": (Epsilon(0.0), partial(witness.epsilon, size=0.0)),
    "epsilon 0.1": (Epsilon(0.1), partial(witness.epsilon, size=0.1)),
    "gamma": (Gamma(0.4), partial(witness.gamma, gamma=0.4)),
    "z+": (ZPlus(), witness.z_plus),
    "alpha-beta": (AlphaBeta(2.0, 1.0), partial(witness.alpha_beta, alpha=2.0, beta=1.0)),
    "alpha-beta 1.5": (AlphaBeta(1.5, 0.5), partial(witness.alpha_beta, alpha=1.5, beta=0.5)),
    "flat": (Flat(), witness.flat),
    "w2": (WSquare(), witness.w_square),
    "box": (ZBox(LOW, HIGH), partial(witness.z_box, low=LOW, high=HIGH)),
}
SIGNED = [(True, False), (True, True), (False, False)]  # whether with a bias, whether inputs are positive


def points(*shape, n=2, positive=False, seed=1):
    """Of both signs, or positive with some exact zeros."""
    x = torch.randn(n, *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x.relu() if positive else x


def ready(net, bias=True, seed=0):
    """In eval mode and float64; biases, scales and statistics of normalizations at random, biases 0 if so told."""
    generator = torch.Generator().manual_seed(seed)
    for module in net.modules():
        for name, tensor in chain(module.named_parameters(recurse=False), module.named_buffers(recurse=False)):
            if tensor.is_floating_point():
                draw = torch.rand(tensor.shape, generator=generator)
                if tensor.ndim > 1:  # weights: all of a size
                    draw = (2 * draw - 1) * (3 / tensor[0].numel()) ** 0.5
                elif name in ("weight", "running_var"):
                    draw = draw + 0.5
                else:
                    draw = (draw - 0.5) * bias
                tensor.data = draw.to(tensor)
    return net.double().eval()


def with_head(*layers, shape, k=3):
    trunk = nn.Sequential(*layers, nn.Flatten()).eval()
    return nn.Sequential(*trunk, nn.Linear(trunk(torch.zeros(1, *shape)).shape[1], k))


def several(names, rules, others=()):
    """Every name with four of the rules, in turns, and with these the values of others."""
    turns = cycle(rules)
    rest = cycle(others or [()])
    return [(name, rule, *next(rest)) for name in names for rule in islice(turns, 4)]


def gap(a, b):
    return float((a - b).norm() / b.norm())


def agrees(net, composite, x, witness_rules, target=1):
    """With the witness, point by point; `witness_rules` makes the rules of the layers, in order."""
    wanted = np.array([witness.relevance(net, point, target, witness_rules()) for point in x.numpy()])
    assert np.abs(wanted).max() > 0
    found = LRP(net, composite).attribute(x, target)
    assert_allclose(found, wanted, rtol=1e-9, atol=1e-12 * np.abs(wanted).max())
    single = LRP(copy.deepcopy(net).float(), composite).attribute(x.float(), target)
    assert gap(single.double(), torch.from_numpy(wanted)) < 1e-3


# --- the witness ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bias", "positive"), SIGNED)
@pytest.mark.parametrize("rule", RULES)
def test_one_layer(rule, positive, bias):
    layer = ready(nn.Linear(5, 3, bias=bias))
    x = points(5, n=5, positive=positive)
    x[0] = 0.0  # nothing to share
    ours, formula = RULES[rule]
    agrees(layer, Composite(ours), x, lambda: repeat(formula))


# --- every rule in every layer -----------------------------------------------------------------------------

CONV1 = nn.Conv1d
CONV2 = nn.Conv2d
UP1 = nn.ConvTranspose1d
UP2 = nn.ConvTranspose2d
# name: (shape of a point, a layer, its options, a normalization); each comes first, and again behind a ReLU
KINDS = {
    "linear": ((5,), nn.Linear, {}),
    "conv1d": ((3, 13), CONV1, {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 2}),
    "conv2d": ((3, 7, 6), CONV2, {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 2)}),
    "padding same": ((3, 5, 6), CONV2, {"kernel_size": 3, "padding": "same", "dilation": (1, 2)}),
    "padding same, even": ((3, 6), CONV1, {"kernel_size": 4, "padding": "same"}),
    "grouped": ((4, 5, 5), CONV2, {"kernel_size": 3, "groups": 2, "padding": 1}),
    "conv3d": ((2, 4, 5, 4), nn.Conv3d, {"kernel_size": 2, "padding": (0, 1, 0)}),
    "transposed 1d": (
        (3, 5),
        UP1,
        {"kernel_size": 3, "stride": 3, "padding": 2, "output_padding": 1, "dilation": 2},
    ),
    "transposed 2d": (
        (4, 3, 4),
        UP2,
        {"kernel_size": 3, "stride": 2, "output_padding": 1, "padding": 1, "groups": 2},
    ),
    "conv, norm": ((3, 6, 6), CONV2, {"kernel_size": 3, "padding": 1, "stride": 2}, nn.BatchNorm2d(4)),
    "transposed, norm": (
        (4, 3, 3),
        UP2,
        {"kernel_size": 2, "stride": 2, "groups": 2},
        nn.BatchNorm2d(4, affine=False),
    ),
    "linear, norm": ((5,), nn.Linear, {}, nn.BatchNorm1d(4)),
}


@lru_cache(2)
def two_layers(kind, bias):
    """The same network for all rules, whose matrices the witness need not find again."""
    shape, layer, options, *norm = KINDS[kind]
    layers = [[layer(i, 4, bias=bias, **options), *copy.deepcopy(norm), nn.ReLU()] for i in (shape[0], 4)]
    return ready(with_head(*chain(*layers), shape=shape), bias)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize(("kind", "rule", "bias", "positive"), several(KINDS, RULES, SIGNED))
def test_rules_in_layers(kind, rule, bias, positive):
    ours, formula = RULES[rule]
    x = points(*KINDS[kind][0], positive=positive)
    agrees(two_layers(kind, bias), Composite(ours), x, lambda: repeat(formula))


@pytest.mark.parametrize("above", ["gamma", "flat", "box"])
@pytest.mark.parametrize("first", RULES)
def test_rules_follow_each_other(first, above):
    """Relevance that rules above give to zeros reaches the rules below, through a ReLU that is not active.

    Of equal maxima, such as zeros, the first is the winner.
    """
    layers = nn.Conv2d(2, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 2), nn.BatchNorm2d(4), nn.ReLU()
    net = ready(with_head(*layers, shape=(2, 8, 8)))
    composite = Composite(RULES["z+"][0], {0: RULES[first][0], 1: RULES[above][0]})
    agrees(net, composite, points(2, 8, 8), lambda: [RULES[name][1] for name in (first, above, "z+")])


def test_last_layers_by_depth():
    layers = [(nn.Linear(inputs, 6), nn.ReLU()) for inputs in (4, 6, 6)]
    net = ready(nn.Sequential(*chain(*layers), nn.Linear(6, 3)))
    composite = Composite(Gamma(0.4), {-1: Epsilon(0.1), range(2): ZPlus(), 1: Flat()})
    agrees(net, composite, points(4), lambda: [RULES[r][1] for r in ("z+", "z+", "gamma", "epsilon 0.1")])


BOXES = [
    ([-4.0, -3.0], (3.5, 5.0)),  # a sequence per channel
    (torch.tensor([-4.0, -3.0])[:, None, None], np.array([3.5, 5.0])),
    (points(2, 6, 6, n=1).abs() - 9, 7.0),  # a pixel each
    (1.0, 7.0),
]


@pytest.mark.parametrize("bounds", BOXES)
def test_box_per_channel(bounds):
    def pixels(bound):
        bound = torch.as_tensor(bound).double()
        return torch.broadcast_to(bound[:, None, None] if bound.ndim == 1 else bound, (1, 2, 6, 6)).numpy().ravel()

    net = ready(with_head(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), shape=(2, 6, 6)))
    x = points(2, 6, 6).abs().clamp(max=2.4) + 1
    (low, high) = map(pixels, bounds)
    first = partial(witness.z_box, low=low, high=high)
    agrees(net, Composite(ZPlus(), {0: ZBox(*bounds)}), x, lambda: [first, witness.z_plus])


# --- what is between the layers ----------------------------------------------------------------------------


def conv(i, o, k=3, **options):
    return nn.Conv2d(i, o, k, **options)


ACTIVATIONS = [
    *(nn.ReLU(inplace=True), nn.ReLU6(), nn.LeakyReLU(0.2), nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.Hardswish()),
    *(nn.ELU(), nn.SELU(), nn.CELU(), nn.Mish(), nn.Tanh(), nn.Hardtanh(-0.5, 0.7)),
]
PARTS = {
    "overlapping maxima": lambda: nn.MaxPool2d(3, stride=2, padding=1, ceil_mode=True),
    "adaptive maximum": lambda: nn.AdaptiveMaxPool2d(3),
    "padded average": lambda: nn.AvgPool2d(3, stride=2, padding=1),
    "adaptive average": lambda: nn.AdaptiveAvgPool2d((2, 3)),
    "enlarged": lambda: nn.Upsample(scale_factor=2),
    "pixel shuffle": lambda: nn.PixelShuffle(2),
    "dropout": lambda: nn.Sequential(nn.Dropout(), nn.Identity()),
    "residual": lambda: Sum(nn.Identity(), nn.Sequential(conv(4, 3, padding=1), nn.ReLU(), conv(3, 4, padding=1))),
    "concatenation": lambda: Concatenation(nn.Identity(), nn.Sequential(conv(4, 3, padding=1), nn.ReLU())),
    "layer norm": lambda: nn.LayerNorm([4, 6, 6]),
    "group norm": lambda: nn.GroupNorm(2, 4),
    "gate": lambda: Gated(conv(4, 4, 1), nn.Sigmoid()),
    "squeeze and excite": lambda: Gated(nn.AdaptiveAvgPool2d(1), conv(4, 4, 1), nn.Hardsigmoid()),
}


@pytest.mark.parametrize(("activation", "rule"), several(ACTIVATIONS, RULES))
def test_activations(activation, rule):
    ours, formula = RULES[rule]
    net = ready(nn.Sequential(nn.Linear(4, 16), activation, nn.Linear(16, 9), activation, nn.Linear(9, 3)))
    agrees(net, Composite(ours), 2 * points(4), lambda: repeat(formula))


@pytest.mark.parametrize(("name", "rule"), several(PARTS, RULES))
def test_between_layers(name, rule):
    ours, formula = RULES[rule]
    # no ReLU before an average: how relevance divides among nothing but zeros is nobody's rule
    net = ready(with_head(conv(3, 4), PARTS[name](), nn.ReLU(), shape=(3, 8, 8)))
    agrees(net, Composite(ours), points(3, 8, 8), lambda: repeat(formula))


@pytest.mark.parametrize(("rule", "fused"), [*zip(RULES, cycle([False, True]), strict=False)])
def test_attention(rule, fused):
    ours, formula = RULES[rule]
    net = ready(with_head(nn.Linear(3, 4), nn.LayerNorm(4), Attention(4, fused), shape=(5, 3)))
    agrees(net, Composite(ours), points(5, 3), lambda: repeat(formula))


# --- the sum -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("rule", ["flat", "w2", "box"])  # which give relevance to zeros
def test_zeros_that_come_from_zeros(rule, dtype):
    """Layers that see nothing but zeros, and ReLUs that see the zeros of others: relevance is finite, and kept."""
    layers = [(nn.Linear(8, 8, bias=False), nn.ReLU(), nn.ReLU()) for _ in range(3)]
    net = ready(nn.Sequential(*chain(*layers), nn.Linear(8, 3))).to(dtype)
    net[0].weight.data[0] = torch.tensor([1.0, -1.0] * 4)  # 0 wherever the input is even, as edge detectors are
    for x in (torch.zeros(1, 8), points(8, positive=True), -points(8, positive=True)):
        x = x.to(dtype)
        assert_close(LRP(net, Composite(RULES[rule][0])).attribute(x, 0).sum(1), net(x)[:, 0].detach())


def test_rules_that_are_the_same():
    assert (Epsilon(), Gamma(), AlphaBeta()) == (Epsilon(1e-6), Gamma(0.25), AlphaBeta(2.0, 1.0))
    assert AlphaBeta(1.1, 0.1).alpha == 1.1  # 1.1 - 0.1 is not 1.0


# --- zennit ------------------------------------------------------------------------------------------------


EXACT = {"stabilizer": 1e-12}
# ours; zennit's above and in the first layer
COMPOSITES = {
    "epsilon": (Composite(Epsilon(1e-6)), zennit_rules.Epsilon(1e-6), None),
    "gamma": (Composite(Gamma(0.25)), zennit_rules.Gamma(0.25, **EXACT), None),
    "box, z+": (
        Composite(ZPlus(), {0: ZBox(LOW, HIGH)}),
        zennit_rules.ZPlus(**EXACT),
        zennit_rules.ZBox(LOW, HIGH, **EXACT),
    ),
}


def zennit(net, rule, first, x, target):
    layers = [
        (types.Activation, zennit_rules.Pass()),
        ((ZennitSum, *types.AvgPool.__subclass__), zennit_rules.Norm(1e-15)),
        (types.Linear, rule),
    ]
    composite = SpecialFirstLayerMapComposite(
        layers, [(types.Linear, first or rule)], canonizers=[ResNetCanonizer()]
    )
    leaf = x.clone().requires_grad_()
    with composite.context(net) as modified:
        for module in modified.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_var.data -= module.eps  # merged; zennit leaves 1 / sqrt(1 + eps) behind
        output = modified(leaf)
        start = torch.zeros_like(output)
        start[:, target] = output[:, target].detach()
        return torch.autograd.grad(output, leaf, start)[0]


@pytest.mark.parametrize("name", COMPOSITES)
def test_agrees_with_zennit(name):
    net = ready(ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10)).requires_grad_(False)
    x = points(3, 32, 32, n=1).clamp(LOW, HIGH)
    (composite, *rules) = COMPOSITES[name]
    assert gap(LRP(net, composite).attribute(x, 3), zennit(net, *rules, x, 3)) < 1e-9


# --- bad arguments -----------------------------------------------------------------------------------------


def test_a_box_has_the_shape_of_the_inputs():
    net = with_head(nn.Conv2d(2, 4, 3), shape=(2, 8, 8))
    x = torch.rand(1, 2, 8, 8)
    for name, low, high in (("low", [0.0] * 3, 1.0), ("high", 0.0, torch.ones(1, 2, 9, 9))):
        box = Composite(layers={0: ZBox(low, high)})
        refused(rf"{name} .*\[1, 2, 8, 8\]", LRP(net, box).attribute, x, 0)
