"""Operations one by one: against plain gradients where they are linear, and written out where they are not."""

import re
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from refusals import untraceable
from test_lrp_constants import GRADIENT, Net, gradient_times_input, points
from torch import nn
from torch.testing import assert_close
from turns import slow

from neonxc.lrp import LRP, Composite, Epsilon, Flat, Gamma, Pass, ZPlus


def relevance(net, x, composite=GRADIENT, target=1):
    recording = LRP(net, composite).record(x)
    assert_close(recording.output, net(x))
    return LRP(net, composite).attribute(x, target)


# --- linear ------------------------------------------------------------------------------------------------


def part_of_a_view(n, x):
    h = n.a(x).view(-1, 2, 3)
    first = h[:, 0]
    last = h[:, 1]
    first.mul_(n.s[:3])
    h[:, 1] -= 1
    h.neg_()
    last *= 2  # sees both
    return h.flatten(1)


def part_of_a_buffer(n, x):
    buffer = x.new_zeros(len(x), 8)
    buffer[:, 1:4].copy_(n.a(x)[:, :3])
    buffer[:, 4:7] = n.a(x).relu()[:, 3:]
    buffer += 1
    return buffer[:, 2:7] @ n.w[:5]


def product_that_is_a_view(n, x):
    h = torch.einsum("ni,io->on", n.a(x), n.w)  # a transposed view of the product
    h[1:3] *= -1.5
    return (h - h.mean(0)).T


def scaled(n, x):
    h = same = n.a(x)
    h -= 0.5
    h *= 2
    h /= 3
    return same.relu()


def changed(change):
    """What is left of the first features when a function has changed them in place, and dropped its result."""

    def run(n, x):
        h = n.a(x)
        kept = h + 0
        change(h, n.g(x))
        return h + kept

    return run


def without_gradients(function):
    def run(n, x):
        with torch.no_grad():
            constant = function(n, x)
        return n.a(x) - constant

    return run


def statistics(n):
    return n.w[0].detach(), n.w[1].detach() ** 2


def normed(n, h):
    return F.batch_norm(h, *statistics(n), n.s, n.z)


LINEAR = {
    "hsplit, fliplr": lambda n, x: torch.column_stack([*torch.hsplit(n.a(x).fliplr(), 3)[1:], n.g(x)[:, 4:]]),
    "cat, stack, split": lambda n, x: torch.cat(torch.stack([n.a(x), n.a(-x)], 1).sum(1).split(2, 1), 1),
    "flatten": lambda n, x: torch.flatten(n.a(x).relu()[:, :, None], 1),
    "transposed": lambda n, x: (n.w @ n.a(x).relu().T.mT.mH).mH,
    "diff": lambda n, x: torch.diff(n.a(x), prepend=n.g(x)[:, :1]),
    "sum and mean": lambda n, x: n.a(x).relu() - n.a(x).mean(dim=1, keepdim=True) + x.sum(1, keepdim=True),
    "scatter_add": lambda n, x: n.g(x).scatter_add(1, torch.zeros(5, 6, dtype=torch.long), n.a(x)),
    "index_add_": lambda n, x: n.a(x).index_add_(1, torch.tensor([0, 1]), n.g(x)[:, :2]),
    "lerp": lambda n, x: torch.lerp(
        torch.addcmul(n.z, n.s, n.a(x), value=2), torch.addcdiv(n.z, n.g(x), n.s), 0.3
    ),
    "addmm": lambda n, x: torch.addmm(n.z, n.a(x), n.w),
    "LoRA": lambda n, x: (n.a(x) + x @ n.A @ n.B).relu(),
    "vector": lambda n, x: (n.a(x) @ n.s)[:, None] * n.z[:3],
    "vector left": lambda n, x: n.s @ n.a(x)[:, :, None] * n.z,
    "div other": lambda n, x: torch.div(n.a(x), other=n.s),
    "pooled with indices": lambda n, x: F.max_pool1d(n.a(x)[:, None], 2, return_indices=True)[0][:, 0],
    "constants": lambda n, x: 2 * n.a(x) / 3 * torch.arange(6.0, dtype=x.dtype) - 1,
    "computed parameter": lambda n, x: n.a(x) * n.s.exp(),
    # BatchNorm along another dimension than the product's is not folded
    "norm of maps": lambda n, x: normed(n, n.a(x).view(-1, 6, 1, 1) @ n.w[:, None, :5]).mean((2, 3)),
    "norm of as many maps": lambda n, x: normed(n, n.a(x).view(-1, 6, 1, 1) @ n.w[:, None]).mean((2, 3)),
    "norm of rows": lambda n, x: normed(n, n.a(x)[:, :, None] * n.z @ n.w).mean(2),
    "trainable tensor": lambda n, x: n.a(x) * torch.linspace(1, 2, 6).double().requires_grad_(),
    # in place
    "scaled": scaled,
    "relu_": changed(lambda h, g: h.relu_()),
    "relu of a part": changed(lambda h, g: F.relu(input=h[:, :3], inplace=True)),
    "parts": changed(lambda h, g: (h[:, :2].add_(g[:, 2:4]), h[:, 3].zero_(), h[:, 5].fill_(2.0))),
    "whole view": changed(lambda h, g: h.view(-1, 3, 2).mul_(2).add_(1)),
    "items": changed(lambda h, g: h.__setitem__((slice(None), slice(2)), g[:, 2:4])),
    "copy": lambda n, x: torch.zeros(5, 6, dtype=x.dtype).copy_(n.a(x)),
    **{f.__name__: f for f in (part_of_a_view, part_of_a_buffer, product_that_is_a_view)},
    # a second use of what a ReLU takes: outputs below zero have relevance then
    "sum": lambda n, x: torch.relu(h := n.a(x)) + h,
    "sum before": lambda n, x: (h := n.a(x)) + torch.relu(h),
    "item": lambda n, x: torch.relu(h := n.a(x)) + (h.__setitem__((slice(None), 0), 1.0), h)[1],
    "addmm of both": lambda n, x: torch.relu(h := n.a(x)) + torch.addmm(h, h, torch.eye(6, dtype=h.dtype)),
    # what is computed without gradients is a constant
    "no_grad": without_gradients(lambda n, x: n.a(x).mean(1, keepdim=True)),
    "no_grad, nonlinear": without_gradients(lambda n, x: F.relu(n.g(x).exp(), inplace=True)),
    "data": lambda n, x: n.a(x) * n.g(x).exp().data - n.g(x).mean().item(),
    "numpy": lambda n, x: n.a(x) * torch.from_numpy(np.tanh(n.g(x).detach().numpy())),
    "no cut": lambda n, x: torch.as_tensor(n.a(x.requires_grad_())),
    "mask of a gate": lambda n, x: torch.where(n.g(x).sigmoid() > 0.5, n.a(x), 0.0),
}


@pytest.mark.parametrize("name", LINEAR)
def test_linear_operations_follow_the_gradient(name):
    """With a walk back or several, and whether the network can be trained or not."""
    net = Net(LINEAR[name])
    x = points()
    recording = LRP(net, GRADIENT).record(x)
    assert_close(recording.output, net(x))
    assert torch.is_grad_enabled()
    wanted = torch.stack([gradient_times_input(net, x, k) for k in range(3)])
    starts = torch.eye(3, dtype=x.dtype)[:, None].expand(3, 5, 3)
    assert_close(recording.propagate(starts), wanted)
    for trainable in (True, False):
        assert_close(LRP(net.requires_grad_(trainable), GRADIENT).attribute(x, 1), wanted[1])


PRODUCTS = {
    "matmul": lambda x, w: x @ w,
    "mm": torch.mm,
    "einsum": lambda x, w: torch.einsum("ni,io->no", x, w),
    "einsum of a list": lambda x, w: torch.einsum("io,ni->no", [w, x]),
    "tensordot": lambda x, w: torch.tensordot(x, w, dims=1),
    "inner": lambda x, w: torch.inner(x, w.T),
    "other": lambda x, w: torch.matmul(x, other=w),
    "from the left": lambda x, w: (w.T @ x.T).T,
    "sparse": lambda x, w: (w.T.to_sparse_csr() @ x.T).T,
    "bmm": lambda x, w: torch.bmm(x[None], w[None])[0],
    "addmm": lambda x, w: torch.addmm(torch.zeros(6, dtype=x.dtype), x, mat2=w),
    "linalg": torch.linalg.matmul,
    "multi_dot": lambda x, w: torch.linalg.multi_dot([x, w]),
}


def with_plain(net):
    """Add the matrix `PLAIN` as an attribute, in a list, and as the weight of a layer."""
    net.plain = PLAIN
    net.listed = [PLAIN]
    net.same = nn.Linear(6, 6, bias=False).double().requires_grad_(False)
    net.same.weight.copy_(PLAIN.T)
    return net.eval()


def test_a_plain_matrix_has_the_rule_of_the_module_whose_attribute_it_is():
    net = nn.Sequential(with_plain(Net(lambda n, x: n.a(x) @ n.plain)))
    x = points()
    seen = []
    LRP(net, Composite(Epsilon(), {lambda place: seen.append(place.name): Epsilon()})).attribute(x, 1)
    assert {"0.a", "0", "0.b"} == {*seen}
    found = relevance(net, x, Composite(Epsilon(0.1), {"0": Gamma(2)}))
    layer = with_plain(Net(lambda n, x: n.same(n.a(x))))
    assert_close(found, relevance(layer, x, Composite(Epsilon(0.1), {"same": Gamma(2)})))


def product(function):
    return lambda n, x: function(n.a(x).relu(), n.w).relu()


def normalized(n, x):
    h = n.a(x).relu()
    h = h - h.mean(1, keepdim=True)
    return h / (h.square().mean(1, keepdim=True) + 1e-5).sqrt() * n.s + n.z


def maps(n, x):
    return n.a(x)[:, :, None] * torch.arange(1, 4)


PLAIN = torch.randn(6, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
WEIGHTS = {  # which are no parameters
    "attribute": lambda n: n.plain,
    "list": lambda n: n.listed[0],
    "global": lambda n: PLAIN,
    "computed": lambda n: n.plain.clone() * 1.0,
    "NumPy": lambda n: torch.from_numpy(PLAIN.numpy()),
}


def with_weight(function, weight):
    return lambda n, x: function(n.a(x).relu(), weight(n)).relu()


SAME = {name: (product(function), product(lambda x, w: F.linear(x, w.T))) for name, function in PRODUCTS.items()}
SAME |= {
    f"{name}, {weight}": (with_weight(function, WEIGHTS[weight]), lambda n, x: n.same(n.a(x).relu()).relu())
    for name, function in PRODUCTS.items()
    for weight in WEIGHTS
}
SAME |= {
    f"conv, {name}": (
        with_weight(lambda x, w: F.conv1d(x[:, :, None], w.T[:, :, None])[:, :, 0], weight),
        lambda n, x: n.same(n.a(x).relu()).relu(),
    )
    for name, weight in WEIGHTS.items()
}
SEEN = torch.tensor([[True, False, True], [False, False, False], [True, True, True]])


def masked(mask):
    def run(n, x):
        h = n.a(x).repeat(3, 1)[None, :3]
        return F.scaled_dot_product_attention(h, h, h, attn_mask=mask)[0]

    return run


def seeing(n, x):
    h = n.a(x).repeat(3, 1)[:3]
    parts = [((row @ h[keys].T) / 6**0.5).softmax(0) @ h[keys] for row, keys in zip(h, SEEN, strict=True)]
    return torch.stack([parts[0], 0 * h[1].detach(), parts[2]])  # a query that sees no key gets nothing


SAME |= {
    "mask of attention": (masked(SEEN), seeing),
    "added mask of attention": (masked(SEEN.double().log()), seeing),
    "a sum over what the weight has not": (
        lambda n, x: torch.einsum("nij,jk->nk", n.a(x)[:, None].expand(-1, 4, -1), n.w),
        lambda n, x: 4 * n.a(x) @ n.w,
    ),
    "a bias before its product": (
        lambda n, x: n.z + torch.einsum("ni,io->no", n.a(x), n.w),
        lambda n, x: F.linear(n.a(x), n.w.T, n.z),
    ),
    # whose bias absorbs its share
    "layer norm": (normalized, lambda n, x: F.layer_norm(n.a(x).relu(), (6,), n.s, n.z)),
    # called with the arguments in another order
    "batch norm": (
        lambda n, x: torch.batch_norm(n.a(x), n.s, n.z, *statistics(n), False, 0.1, 1e-5, False),
        lambda n, x: normed(n, n.a(x)),
    ),
    "instance norm": (
        lambda n, x: torch.instance_norm(maps(n, x), n.s, n.z, *statistics(n), False, 0.1, 1e-5, False).amax(2),
        lambda n, x: F.instance_norm(maps(n, x), *statistics(n), n.s, n.z, False).amax(2),
    ),
    "instance norm by its own statistics": (
        lambda n, x: torch.instance_norm(maps(n, x), n.s, n.z, None, None, True, 0.1, 1e-5, False).amax(2),
        lambda n, x: F.instance_norm(maps(n, x), weight=n.s, bias=n.z).amax(2),
    ),
}


# the variance and the mean of a row by one function, with its arguments in all forms
MOMENTS = {
    "var_mean": lambda row: torch.var_mean(row, 0, correction=0, keepdim=True),
    "var_mean by position": lambda row: torch.var_mean(row, (0,), False, True),
    "var_mean of all": lambda row: torch.var_mean(row, False),
    "std_mean": lambda row: squared(*torch.std_mean(input=row, dim=-1, unbiased=False)),
}


def squared(std, mean):
    return std.square(), mean


def standardized(rows, moments):
    of_rows = [(row, *moments(row)) for row in rows]
    return torch.stack([(row - mean) / (var + 1e-5).sqrt() for row, var, mean in of_rows])


SAME |= {
    f"layer norm by {name}": (
        lambda n, x, moments=moments: standardized(n.a(x), moments),
        lambda n, x: F.layer_norm(n.a(x), (6,)),
    )
    for name, moments in MOMENTS.items()
}


GATES = {
    "linear": (lambda h, g: F.linear(h, g), lambda h, g: h @ g.T),
    "conv": (lambda h, g: F.conv1d(h[:, :, None], g[:, :, None])[:, :, 0], lambda h, g: h @ g.T),
    "layer norm": (lambda h, g: F.layer_norm(h, (6,), g[0]), lambda h, g: F.layer_norm(h, (6,)) * g[0]),
    "mul other": (lambda h, g: torch.mul(h, other=g[0]), lambda h, g: h * g[0]),
    "div other": (lambda h, g: torch.div(h, other=g[0]), lambda h, g: h / g[0]),
    "addcmul": (lambda h, g: torch.addcmul(h, h, g[0]), lambda h, g: h + h * g[0]),
}


def gated(function, take=lambda gate: gate):
    return lambda n, x: function(n.a(x), take(n.g(x).repeat(6, 1)[:6].sigmoid()))


SAME |= {f"gate, {name}": (gated(one), gated(other, torch.detach)) for name, (one, other) in GATES.items()}


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize(
    ("name", "composite"),
    [
        # by default, each has one composite, in turns
        pytest.param(name, composite, marks=[pytest.mark.slow] * ((i + j) % 2))
        for i, name in enumerate(SAME)
        for j, composite in enumerate([Composite(Gamma(0.5)), Composite(Epsilon(0.1), {1: Flat()})])
    ],
    ids=str,
)
def test_what_is_written_in_another_way_has_the_same_relevance(name, composite):
    nets = [*map(with_plain, map(Net, SAME[name]))]
    for x in (points(), points()[:1]):
        found, wanted = (relevance(net, x, composite) for net in nets)
        assert_close(found, wanted)
        assert wanted.abs().sum() > 0
        starts = torch.randn(4, *nets[0](x).shape, dtype=x.dtype)
        assert_close(*(LRP(net, composite).record(x).propagate(starts) for net in nets))


def test_a_product_of_several_constants_keeps_its_gradient():
    net = Net(lambda n, x: torch.einsum("ni,io,o->no", n.a(x), n.w, -n.z))
    x = points()
    wanted = relevance(Net(lambda n, x: (n.a(x) @ n.w) * -n.z), x, Composite(Epsilon(0), {2: Gamma(5)}))
    assert_close(relevance(net, x, Composite(Epsilon(0), {1: Gamma(5)})), wanted)


# --- weights that depend on the input ----------------------------------------------------------------------


HALVED = {
    "product": lambda n, x: n.a(x) * n.g(x),
    "linear": lambda n, x: F.linear(n.a(x), n.g(x)[:3]),
    "conv": lambda n, x: F.conv1d(n.a(x)[None], n.g(x)[:3, None].expand(3, 5, 6))[0].T.expand(5, 3),
    "conv transposed": lambda n, x: F.conv_transpose1d(n.a(x).T[None], n.g(x).T[:, :3, None])[0].T,
    "layer norm": lambda n, x: F.layer_norm(n.z.expand(5, 6), (6,), n.a(x)[0] * n.g(x)[1]),
    "square": lambda n, x: n.a(x).square() + n.a(x) ** 2 + torch.pow(n.a(x), 2.0),
}


WHOLE = {
    "linear, weight alone": lambda n, x: F.linear(n.q[0], n.g(x)[:3]),
    "linear, bias": lambda n, x: F.linear(n.a(x), n.w[:3], n.g(x)[0, :3]),
    "linear, gate": lambda n, x: F.linear(n.a(x), n.g(x).detach().sigmoid()[:3]),
    "conv, bias": lambda n, x: F.conv1d(n.a(x)[:, :, None], n.w[:3, :, None], n.g(x)[0, :3])[:, :, 0],
    "layer norm, bias": lambda n, x: F.layer_norm(n.q[0], (6,), n.s, n.g(x)[0]),
    "group norm, weight": lambda n, x: F.group_norm(n.q[0], 2, n.g(x)[0], n.a(x)[1]),
    "rms norm, weight": lambda n, x: F.rms_norm(n.q[0], (6,), n.g(x)[0]),
}


@pytest.mark.parametrize("name", [*HALVED, *WHOLE])
def test_weights_computed_from_the_input_have_relevance_and_share_as_in_a_product(name):
    net = Net((HALVED | WHOLE)[name])
    x = points()
    net.b.bias.data.zero_()
    assert_close(relevance(net, x), gradient_times_input(net, x) / (2 if name in HALVED else 1))


REFUSED = {
    "clamp": lambda n, x: torch.clamp(n.a(x), max=n.g(x)),
    "prelu": lambda n, x: F.prelu(n.a(x), n.g(x)[0]),
    "batch_norm": lambda n, x: F.batch_norm(n.a(x), n.z, n.s.abs(), n.g(x)[0]),
    "grid_sample": lambda n, x: F.grid_sample(x[:, None, :, None], n.a(x).view(5, 1, 3, 2)).sum((1, 2)),
    "div": lambda n, x: torch.div(n.a(x), 0.5, rounding_mode="floor"),
    "sigmoid": lambda n, x: F.linear(torch.sigmoid(n.a(x)), n.g(x)[:3]),
    "MultiheadAttention with bias_k": lambda n, x: n.biased(*[n.a(x)[None]] * 3)[0][0],
    "pow": lambda n, x: n.a(x) ** 3,
    "exp": lambda n, x: n.a(x) + n.a(x).exp(),
    "log1p": lambda n, x: n.a(x).log1p_(),
    "sin": lambda n, x: torch.cat([n.a(x)[:, :5], torch.sin(x[:, 3:])], 1),
    "div__": lambda n, x: 1 / n.a(x),
    "uniform_": lambda n, x: n.a(x).uniform_(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_functions_without_a_rule_are_named_with_their_place(name):
    net = Net(REFUSED[name])
    net.biased = nn.MultiheadAttention(6, 2, add_bias_kv=True).double().eval()
    place = re.escape(f"called at {__file__}:{REFUSED[name].__code__.co_firstlineno} in <lambda>")
    untraceable(rf"LRP has no rule for '\w*{name}\b.*, {place}.*: .*n, x", net, points(), 1)


# --- messages along the edges of a graph inside one input, [N, nodes, d] -----------------------------------


SENDERS, RECEIVERS = torch.tensor([[0, 1, 2, 3, 4, 0, 2, 3], [1, 2, 3, 4, 0, 2, 0, 1]])
EDGES = F.one_hot(RECEIVERS, 5).T.double() @ F.one_hot(SENDERS, 5).double()  # [receivers, senders]


class Messages(nn.Module):
    """A layer of messages between two linear layers, and the mean of the nodes."""

    def __init__(self, run):
        super().__init__()
        torch.manual_seed(0)
        self.run = run
        self.a = nn.Linear(3, 4)
        self.b = nn.Linear(4, 3)
        self.double().eval()

    def forward(self, x):
        h = self.a(x)
        sent = h[:, SENDERS]
        to = RECEIVERS[None, :, None].expand_as(sent)
        return self.b(self.run(h, sent, to).relu()).mean(1)


def by_matrix(multiply):
    """Messages of all inputs in one product of matrices [nodes, N * d]."""

    def run(h, sent, to):
        return multiply(h.movedim(1, 0).flatten(1)).unflatten(1, h[:, 0].shape).movedim(0, 1)

    return run


def zeros(h):
    return torch.zeros_like(h)


SUMMED = {
    "index_add": lambda h, sent, to: zeros(h).index_add(1, RECEIVERS, sent),
    "index_add_": lambda h, sent, to: zeros(h).index_add_(1, RECEIVERS, sent),
    "scatter_add": lambda h, sent, to: zeros(h).scatter_add_(1, to, sent),
    "scatter": lambda h, sent, to: zeros(h).scatter_(1, to, sent, reduce="add"),
    "scatter_reduce": lambda h, sent, to: zeros(h).scatter_reduce(1, to, sent, "sum"),
    "scatter_reduce_": lambda h, sent, to: zeros(h).scatter_reduce_(1, to, sent, reduce="sum", include_self=False),
    "index_put": lambda h, sent, to: zeros(h).index_put(
        (torch.arange(len(h))[:, None], RECEIVERS[None]), sent, accumulate=True
    ),
}
EXTREMES = {"amax": torch.amax, "amin": torch.amin}
SPARSE = {
    "sparse.mm": lambda h: torch.sparse.mm(EDGES.to_sparse(), h),
    "sparse.mm, csr": lambda h: torch.sparse.mm(EDGES.to_sparse_csr(), h),
    "sparse.mm, sum": lambda h: torch.sparse.mm(EDGES.to_sparse_csr(), h, "sum"),
    "@": lambda h: EDGES.to_sparse() @ h,
    "addmm": lambda h: torch.sparse.addmm(torch.zeros_like(h), EDGES.to_sparse(), h),
}


def by_receiver(reduce):
    """The definition: for every node, what its neighbours send."""
    return lambda h, sent, to: torch.stack([reduce(h[:, SENDERS[i == RECEIVERS]]) for i in range(5)], 1)


MESSAGES = {name: (run, by_receiver(lambda sent: sent.sum(1))) for name, run in SUMMED.items()}
for name, extreme in EXTREMES.items():
    witness = by_receiver(partial(extreme, dim=1))
    MESSAGES |= {
        f"scatter_reduce, {name}": (
            lambda h, sent, to, name=name: zeros(h).scatter_reduce(1, to, sent, name, include_self=False),
            witness,
        ),
        f"index_reduce, {name}": (
            lambda h, sent, to, name=name: zeros(h).index_reduce(1, RECEIVERS, sent, name, include_self=False),
            witness,
        ),
    }
MESSAGES |= {
    "scatter_reduce, mean": (
        lambda h, sent, to: torch.scatter_reduce(zeros(h), 1, to, sent, "mean", include_self=False),
        by_receiver(lambda sent: sent.mean(1)),
    ),
    "scatter_reduce, mean with itself": (
        lambda h, sent, to: h.scatter_reduce(1, to, sent, "mean"),
        lambda h, sent, to: torch.stack(
            [torch.cat([h[:, i : i + 1], h[:, SENDERS[i == RECEIVERS]]], 1).mean(1) for i in range(5)], 1
        ),
    ),
    "segment_reduce": (
        lambda h, sent, to: torch.segment_reduce(
            h.movedim(1, 0).contiguous(), "sum", lengths=torch.tensor([2, 3])
        ).movedim(0, 1),
        lambda h, sent, to: torch.stack([h[:, :2].sum(1), h[:, 2:].sum(1)], 1),
    ),
    **{
        name: (by_matrix(multiply), lambda h, sent, to: torch.einsum("ij,njd->nid", EDGES, h))
        for name, multiply in SPARSE.items()
    },
}


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning", "ignore:.*(beta|deprecated):UserWarning")
@pytest.mark.parametrize("name", MESSAGES)
def test_messages_have_the_relevance_of_their_definition(name):
    found, wanted = map(Messages, MESSAGES[name])
    x = torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert_close(found(x), wanted(x))
    for composite in (GRADIENT, Composite(Gamma(0.5)), Composite(Epsilon(0.1), {0: Flat()})):
        relevance = LRP(wanted, composite).attribute(x, 1)
        assert relevance.any()
        assert_close(LRP(found, composite).attribute(x, 1), relevance)
        starts = torch.randn(3, 4, 3, dtype=x.dtype)
        assert_close(*(LRP(net, composite).record(x).propagate(starts) for net in (found, wanted)))


@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("scatter_reduce", lambda h, sent, to: zeros(h).scatter_reduce(1, to, sent, "prod", include_self=False)),
        ("index_reduce", lambda h, sent, to: zeros(h).index_reduce(1, RECEIVERS, sent, "prod")),
        ("scatter", lambda h, sent, to: zeros(h).scatter(1, to, sent, reduce="multiply")),
        ("_sparse_mm", by_matrix(lambda h: torch.sparse.mm(EDGES.to_sparse_csr(), h, "amax"))),
    ],
)
def test_messages_without_a_rule_are_named_with_their_place(name, run):
    x = torch.randn(4, 5, 3, dtype=torch.float64)
    untraceable(rf"LRP has no rule for '{name}'.*, called at {__file__}:.*(write|give)", Messages(run), x, 1)


ACTIVATIONS = [
    *(F.relu, F.relu6, F.hardtanh, F.hardswish, F.leaky_relu, F.elu, F.celu, F.selu, F.gelu, F.silu, F.mish),
    *(F.softsign, torch.tanh, F.tanhshrink, F.hardshrink, F.softshrink, F.softplus),
]


def activated(activation):
    """A layer whose output the activation alone uses."""
    return Net(lambda n, x: n.b(activation(n.a(x))))


def residual(activation):
    """A layer whose output is used beside the activation, too."""

    def run(n, x):
        h = n.a(x)
        return n.b(activation(h) + h)

    return Net(run)


@pytest.mark.parametrize("dtype", [torch.float32, *slow(torch.float64)], ids=str)
@pytest.mark.parametrize("rule", [Gamma(0.25), Gamma(0.0), Epsilon(0.1), ZPlus()], ids=repr)
@pytest.mark.parametrize("network", [activated, residual])
def test_a_layer_passes_relevance_with_its_activation_as_one_after_the_other(network, rule, dtype):
    torch.manual_seed(0)
    x = 3 * torch.randn(5, 4, dtype=dtype)
    for activation in ACTIVATIONS:
        net = network(activation).to(dtype)
        by_steps = Composite(rule, functions={activation: Pass()})  # an operation of its own
        for inputs in (x, x.abs()):
            assert_close(
                relevance(net, inputs, Composite(rule)), relevance(net, inputs, by_steps), msg=repr(activation)
            )


class Doubled(Gamma):
    def __call__(self, layer, x, y, m):
        return 2 * super().__call__(layer, x, y, m)


def test_a_rule_that_extends_another_one_is_called_before_activations_too():
    net = activated(F.gelu)
    x = points()
    doubled = relevance(net, x, Composite(Gamma(), {0: Doubled()}))
    assert_close(doubled, 2 * relevance(net, x, Composite(Gamma())))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_relevance_moves_back_to_the_places_of_maxima(n):
    """Unpooling puts maxima back where they were: all other values are zero."""
    conv = getattr(nn, f"Conv{n}d")
    pool = getattr(F, f"max_pool{n}d")

    class Unpooled(nn.Sequential):
        def forward(self, x):
            h = self[0](x).relu()
            values, places = pool(h, 2, return_indices=True)
            return self[1](getattr(F, f"max_unpool{n}d")(values, places, 2)).flatten(2).mean(2)

    class Masked(nn.Sequential):
        def forward(self, x):
            h = self[0](x).relu()
            _, places = pool(h.detach(), 2, return_indices=True)
            mask = torch.zeros_like(h).flatten(2).scatter(2, places.flatten(2), 1.0).view_as(h)
            return self[1](h * mask).flatten(2).mean(2)

    torch.manual_seed(0)
    layers = conv(3, 4, 3, padding=1), conv(4, 2, 3)
    found, wanted = (net(*layers).double().eval() for net in (Unpooled, Masked))
    x = torch.randn(2, 3, *[6] * n, dtype=torch.float64)
    for composite in (GRADIENT, Composite(Gamma(0.5)), Composite(Gamma(0.5), {0: Flat()})):
        assert_close(LRP(found, composite).attribute(x, 1), LRP(wanted, composite).attribute(x, 1))
        starts = torch.randn(3, 2, 2, dtype=x.dtype)
        assert_close(*(LRP(net, composite).record(x).propagate(starts) for net in (found, wanted)))
