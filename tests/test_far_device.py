"""The whole public interface on a device that is not the CPU: nothing mixes, and results are those of the CPU."""

import contextlib
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from entry_points import ENTRIES
from far_device import far_device

PACKAGES = ["", "evaluation", "lrp", "models", "plot", "rules", "trees"]

# Public names that are not called on another device by themselves
NOT_CALLED = {
    "they take no tensors": (
        "models.load_image models.to_tensor data.files.read_table data.preparation.prepare "
        "data.preparation.Preparation inputs.terms.Terms rules.Column rules.Condition rules.Counts rules.Rule "
        "rules.SQL trees.Column trees.Condition trees.Rule "
        "lrp.UnsupportedOperation trees.parameters.explainer trees.saving.register_explainer "
        "common.registry.register common.registry.storable progress batch_function BatchFunction"
    ),
    "every network consists of them": (
        "head.Head head.Answer head.Question head.detection.LinearDetection head.quadratic.QuadraticDetection "
        "head.detection.EdgeDetection head.grouping.Minimum head.grouping.UnionOfIntervals "
        "head.competition.Rivals head.competition.Path "
        "inputs.Inputs"
    ),
    "relevance passes through them": "lrp.FunctionRule lrp.LinearLayer lrp.Place lrp.Rule",
    "every tree explainer consists of them": (
        "trees.explainers.center_based.CenterTree trees.criteria.criterion.Criterion "
        "trees.cuts.cuts.Cuts trees.cuts.columns.Columns "
        "trees.explainers.expanding.BestFirst trees.cuts.growth.Splits "
        "trees.cuts.nodes.Node trees.fit.problem.Problem trees.explainers.refine.refined "
        "trees.cuts.search.Search "
        "trees.criteria.sums.Sum trees.criteria.sums.channels trees.criteria.sums.clusters "
        "trees.criteria.sums.pairs trees.criteria.sums.parted trees.criteria.sums.parted_from "
        "trees.criteria.sums.points"
    ),
    "every imputer returns one": "evaluation.imputers.Filling",
    "every report consists of them": "report.contents.Card report.contents.Contents report.contents.PointMap",
}


def public_names():
    """Callables of the packages, and those of the reference in the documentation, without `neonxc.`."""
    found, module = [], ""
    for package in PACKAGES:
        home = import_module(f"neonxc.{package}".rstrip("."))
        found += [f"{package}.{name}".lstrip(".") for name in home.__all__ if callable(getattr(home, name))]
    for page in sorted((Path(__file__).parent.parent / "docs" / "reference").glob("*.md")):
        for line in page.read_text(encoding="utf-8").splitlines():
            if line.startswith(".. currentmodule::"):
                module = line.split()[-1].removeprefix("neonxc").lstrip(".")
            elif re.fullmatch(r"   [A-Za-z][\w.]*", line):
                found.append(f"{module}.{line.strip()}".lstrip("."))
    return set(found)


def test_every_public_function_is_called():
    covered = {name for one in ENTRIES.values() for name in one.covers}
    left_out = set(" ".join(NOT_CALLED.values()).split())
    public = public_names()
    assert len(public) > 150
    assert not covered & left_out
    assert public - covered - left_out == set(), "add an entry to tests/entry_points, or a reason to NOT_CALLED"
    assert (covered | left_out) - public == set(), "these are not public"


NUMBER = re.compile(r"\d+\.\d+(?:e-?\d+)?")


class At:
    """Moves tensors and modules to a device."""

    def __init__(self, device):
        self.device = torch.device(device)

    def __call__(self, given):
        return given.to(self.device)


def assert_same(got, want, device, exactly=True, where="result"):
    """Tensors are on the device, everything else is as it is; random numbers of two devices differ."""
    assert type(got) is type(want) or isinstance(want, torch.Tensor), f"{where}: {type(got)} for {type(want)}"
    if isinstance(want, dict):
        assert got.keys() == want.keys(), where
        for key, value in want.items():
            assert_same(got[key], value, device, exactly, f"{where}[{key!r}]")
    elif isinstance(want, (list, tuple)):
        assert len(got) == len(want), where
        for number, (one, other) in enumerate(zip(got, want, strict=True)):
            assert_same(one, other, device, exactly, f"{where}[{number}]")
    elif isinstance(want, torch.Tensor):
        assert isinstance(got, torch.Tensor), f"{where}: {type(got)}"
        assert got.device.type == device.type, f"{where} is on {got.device}"
        assert got.shape == want.shape, where
        assert got.dtype == want.dtype, where
        assert_same(got.detach().cpu().numpy(), want.detach().numpy(), device, exactly, where)
    elif isinstance(want, pd.DataFrame | pd.Series):
        assert_same(got.to_numpy(), want.to_numpy(), device, exactly, where)
    elif isinstance(want, np.ndarray) and want.dtype == object:
        assert_same(got.tolist(), want.tolist(), device, exactly, where)
    elif exactly and isinstance(want, np.ndarray | float) and np.asarray(want).dtype.kind == "f":
        float64 = (
            1e-5 if device.type == "cuda" else 1e-8
        )  # a GPU adds the float32 sums of a network in another order
        rounding = 1e-3 if np.asarray(want).dtype == np.float32 else float64
        np.testing.assert_allclose(got, want, rtol=rounding, atol=rounding, err_msg=where)
    elif exactly and isinstance(want, str):
        assert NUMBER.sub("", got) == NUMBER.sub("", want), where
        assert_same(*([float(text) for text in NUMBER.findall(one)] for one in (got, want)), device, where=where)
    elif exactly:
        np.testing.assert_array_equal(got, want, err_msg=where)


def cases():
    return [pytest.param(name, id=name, marks=[pytest.mark.slow] * one.slow) for name, one in ENTRIES.items()]


@pytest.mark.parametrize("name", cases())
def test_on_a_device_that_is_far(name):
    check(name, far_device())


@pytest.mark.cuda
@pytest.mark.parametrize("name", cases())
def test_on_cuda(name):
    check(name, cuda(), exactly=not ENTRIES[name].draws)


@contextlib.contextmanager
def cuda():
    with torch.backends.cudnn.flags(allow_tf32=False):
        yield At("cuda")


def check(name, device, exactly=True):
    want = called(name, "cpu")
    with device as found:
        assert_same(called(name, found.device), want, found.device, exactly)


def called(name, device):
    torch.manual_seed(0)
    return ENTRIES[name].work(At(device))


def test_operations_on_the_device_are_those_of_the_cpu(far):
    x = torch.arange(6.0).reshape(2, 3)
    y = x.to(far.device)
    assert y.device == far.device
    for operation in (
        lambda a: a + 1,
        lambda a: a @ a.T,
        lambda a: a[[1, 0]],
        lambda a: a[[]],
        lambda a: a[:, [0, 2]],
        lambda a: a[np.array([1])],
        lambda a: a[a > 2],
        lambda a: a.sort(descending=True).values,
        lambda a: torch.cat([a, a.new_zeros(1, 3)]),
        lambda a: torch.nn.Linear(3, 2).to(a.device)(a).shape,
        lambda a: a.new_tensor([1, 2]),
        lambda a: torch.tensor([1.0], device=a.device),
        lambda a: torch.tensor([a[0, 1], a[1, 1]]).to(a.device),
        lambda a: torch.as_tensor(np.ones(2), device=a.device),
        lambda a: torch.rand(2, device=a.device, generator=torch.Generator(a.device).manual_seed(0)),
        lambda a: a.clone().mul_(2),
        lambda a: torch.add(a, a, out=torch.empty_like(a)),
        lambda a: torch.inference_mode()(lambda: a + 1)(),
        lambda a: a.tolist(),
        lambda a: f"{a.sum():.2f}",
    ):
        assert_same(operation(y), operation(x), far.device)


def test_what_is_written_into_a_view_is_in_the_whole(far):
    x = torch.zeros(2, 3, device=far.device)
    x[0] = 1.0
    x[[1], 2] = torch.tensor(5.0)
    x[:, 1].add_(2)
    assert x.tolist() == [[1, 3, 1], [0, 2, 5]]


def test_gradients_and_training(far):
    weight = torch.nn.Parameter(torch.ones(3, device=far.device))
    x = torch.arange(6.0).reshape(2, 3).to(far.device)
    (x * weight).sum().backward()
    assert weight.grad.device == far.device
    assert weight.grad.tolist() == [3, 5, 7]
    torch.optim.SGD([weight], lr=1.0).step()
    assert weight.tolist() == [-2, -4, -6]


@pytest.mark.parametrize(
    "mixed",
    [
        lambda x, y: x + y,
        lambda x, y: y + x,
        lambda x, y: x.sum() + y,
        lambda x, y: torch.cat([x, y]),
        lambda x, y: torch.where(y > 0, x, 0.0),
        lambda x, y: x.index_select(0, torch.tensor([0])),
        lambda x, y: y[x[0].long()],
        lambda x, y: x.masked_fill(y > 0, 0.0),
        lambda x, y: x.__setitem__([0], y[:1]),
        lambda x, y: y.add_(x.sum()),
        lambda x, y: torch.add(x, x, out=y),
        lambda x, y: torch.nn.Linear(2, 2)(x),
        lambda x, y: torch.rand(2, device=x.device, generator=torch.Generator()),
        lambda x, y: torch.rand(2, generator=torch.Generator(x.device)),
        lambda x, y: x.long() @ x.long(),
    ],
)
def test_devices_do_not_mix(mixed, far):
    with pytest.raises(RuntimeError, match=r"same device|of the CPU|device type for generator|not implemented"):
        mixed(torch.ones(2, 2, device=far.device), torch.ones(2, 2))


def test_what_cuda_allows_is_allowed(far):
    x, y = torch.zeros(2, 2, device=far.device), torch.ones(2, 2)
    x[torch.tensor([0])] = torch.tensor(3.0)
    x[torch.tensor([False, True])] += torch.tensor(1.0)
    assert (x + torch.tensor(1.0)).tolist() == [[4, 4], [2, 2]]
    assert x.copy_(y).device == far.device
    assert y.copy_(x * 2).device.type == "cpu"
    assert y.tolist() == [[2, 2], [2, 2]]


def test_the_host_reads_it_by_copies_alone(far):
    x = torch.ones(2, device=far.device)
    for read in (x.numpy, lambda: np.asarray(x), lambda: np.array([x[0]])):
        with pytest.raises(TypeError, match="device type tensor to numpy"):
            read()
    before = far.waits
    x + x, x[0], x.sum(), x[[0]], torch.ones(2) + 1, x.to(torch.float64)
    assert far.waits == before
    float(x[0]), bool(x.any()), x.tolist(), x.cpu().numpy(), x[x > 0], x.nonzero()
    assert far.waits == before + 6
