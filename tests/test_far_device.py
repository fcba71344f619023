"""The whole public interface: the same answers as recorded, of saved networks, and elsewhere."""

import contextlib
import copy
import functools
import gzip
import json
import pickle
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from entry_points import ENTRIES
from far_device import far_device
from recorded_results import NUMBER, answer, difference, recorded
from torch import nn

import neonxc
from neonxc.models import SentenceEncoder

PACKAGES = ["", "evaluation", "lrp", "models", "plot", "rules", "trees"]

# Public names that are not called on another device by themselves
NOT_CALLED = {
    "they take no tensors": (
        "evaluation.TextJudge evaluation.WordJudge "
        "models.load_image models.to_tensor data.files.read_table data.preparation.prepare "
        "data.preparation.Preparation inputs.terms.Terms rules.Column rules.Condition rules.Counts rules.Rule "
        "rules.SQL trees.Column trees.Condition trees.Rule "
        "lrp.UnsupportedOperation trees.parameters.explainer trees.saving.register_explainer "
        "common.registry.register common.registry.storable progress batch_function BatchFunction "
        "common.result.Result common.result.markdown_table"
    ),
    "every network consists of them": (
        "head.Head head.Answer head.Question head.detection.LinearDetection head.quadratic.QuadraticDetection "
        "head.detection.EdgeDetection head.grouping.Minimum head.grouping.UnionOfIntervals "
        "head.competition.Competitors head.competition.Path "
        "inputs.Inputs"
    ),
    "relevance passes through them": "lrp.FunctionRule lrp.LinearLayer lrp.Place lrp.Rule",
    "every tree explainer consists of them": (
        "trees.explainers.center_based.CenterTree trees.criteria.criterion.Criterion "
        "trees.criteria.criterion.Pruning trees.cuts.search.Cuts trees.cuts.histograms.Columns "
        "trees.explainers.expanding.BestFirst trees.cuts.growth.Splits "
        "trees.cuts.growth.Node trees.fit.problem.Problem trees.explainers.refine.refined "
        "trees.cuts.search.Search "
        "trees.criteria.sums.Sum trees.criteria.sums.channels trees.criteria.sums.clusters "
        "trees.criteria.sums.pairs trees.criteria.sums.parted trees.criteria.sums.parted_from "
        "trees.criteria.sums.points"
    ),
    "every imputer returns one": "evaluation.imputers.Filling",
    "every report consists of them": "report.description.ClusterDescription report.description.PointMap",
}


def public_names():
    """Callables of the packages, and those of the reference in the documentation, without `neonxc.`."""
    found = []
    module = ""
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


class At:
    """Moves tensors and modules to a device."""

    def __init__(self, device):
        self.device = torch.device(device)

    def __call__(self, given):
        return given.to(self.device)


def assert_same(got, want, device, exactly=True, where="result"):
    """Tensors are on the device, everything else is as it is; random numbers of two devices differ."""
    assert type(got) is type(want) or isinstance(want, torch.Tensor), f"{where}: {type(got)} for {type(want)}"
    if isinstance(want, torch.Tensor):
        assert (got.device.type, got.shape, got.dtype) == (device.type, want.shape, want.dtype), where
        got = got.detach().cpu().numpy()
        want = want.detach().numpy()
    elif isinstance(want, dict):
        assert got.keys() == want.keys(), where
        got = [got[key] for key in want]
        want = [*want.values()]
    elif isinstance(want, pd.DataFrame | pd.Series):
        got = got.to_numpy()
        want = want.to_numpy()
    if isinstance(want, np.ndarray) and want.dtype == object:
        got = got.tolist()
        want = want.tolist()
    if isinstance(want, (list, tuple)):
        assert len(got) == len(want), where
        for number, pair in enumerate(zip(got, want, strict=True)):
            assert_same(*pair, device, exactly, f"{where}[{number}]")
    elif exactly and isinstance(want, str):
        assert NUMBER.sub("", got) == NUMBER.sub("", want), where
        assert_same(*([float(text) for text in NUMBER.findall(one)] for one in (got, want)), device, where=where)
    elif exactly and isinstance(want, np.ndarray | float) and np.asarray(want).dtype.kind == "f":
        # a GPU adds the float32 sums of a network in another order
        float64 = 1e-5 if device.type == "cuda" else 1e-8
        rounding = 1e-3 if np.asarray(want).dtype == np.float32 else float64
        np.testing.assert_allclose(got, want, rtol=rounding, atol=rounding, err_msg=where)
    elif exactly:
        np.testing.assert_array_equal(got, want, err_msg=where)


def called(name, device):
    torch.manual_seed(0)
    return ENTRIES[name].work(At(device))


def cases(covers=()):
    """The names of all entries, or of those that cover some names."""
    chosen = {name: one for name, one in ENTRIES.items() if not covers or {*covers} & {*one.covers}}
    return [pytest.param(name, id=name, marks=[pytest.mark.slow] * one.slow) for name, one in chosen.items()]


LARGE = ("backbone efficientnet_lite0", "backbone resnet18")  # by default, mobilenet_v3_small is moved and saved


here = functools.cache(answer)  # of an entry on the CPU, which three tests ask for


@pytest.fixture(scope="module")
def answers():
    path = Path(__file__).parent / "data" / "recorded_results.json.gz"
    return json.loads(gzip.decompress(path.read_bytes()))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", cases())
def test_answers_are_as_recorded(name, answers):
    assert difference(answers[name], recorded(here(name))) == ""


# Take longest there: what puts together the answers that other entries ask for one by one, and large networks
LONG = (*LARGE, "layers", "report", "markers", "sanity_checks", "comparison", "interpretable", "results_elsewhere")
FAR = [
    pytest.param(*case.values, id=case.id, marks=[*case.marks, *[pytest.mark.slow] * (case.id in LONG)])
    for case in cases()
]


@pytest.mark.parametrize("name", FAR)
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
    want = here(name)
    with device as found:
        assert_same(called(name, found.device), want, found.device, exactly)


def kept(net, path):
    """A network that was saved and loaded, given other state, given its own again, and pickled."""
    own = isinstance(net.features, nn.Sequential | SentenceEncoder) or getattr(net.features, "recipe", 0) is None
    neonxc.save(net, path)
    back = neonxc.load(path, features=net.features if own else None)
    assert (back.beta, back.feature_names_) == (net.beta, net.feature_names_)
    assert (back.classes_.dtype, back.classes_.tolist()) == (net.classes_.dtype, net.classes_.tolist())
    assert back.training == net.training
    state = net.state_dict()
    other = back.state_dict()
    assert state.keys() == other.keys()
    for key, value in state.items():
        assert other[key].dtype == value.dtype, key
        assert torch.equal(other[key], value), key
    spoiled = copy.deepcopy(back)
    for module in spoiled.modules():
        for key in ("gamma", "threshold"):
            if getattr(module, key, None) is not None:
                setattr(module, key, getattr(module, key) / 2)
    for tensor in spoiled.head.buffers():
        tensor.add_(1)
    spoiled.load_state_dict(state)
    return pickle.loads(pickle.dumps(spoiled))


SAVED = [
    pytest.param(*case.values, id=case.id, marks=[*case.marks, *[pytest.mark.slow] * (case.id in LARGE)])
    for case in cases(["neuralize", "NEON", "models.backbone", "models.KernelKMeans"])
]


@pytest.mark.parametrize("name", SAVED)
def test_networks_that_were_saved_answer_the_same(name, monkeypatch, tmp_path):
    for make in ("neuralize", "NeuralizedClustering"):
        of = getattr(neonxc, make)
        saved = functools.partial(lambda of, *given, **options: kept(of(*given, **options), tmp_path / "net"), of)
        monkeypatch.setattr(neonxc, make, saved)
    assert_same(called(name, "cpu"), here(name), torch.device("cpu"))


@pytest.mark.parametrize(
    "mixed",
    [
        lambda x, y: x + y,
        lambda x, y: x.index_select(0, torch.tensor([0])),
        lambda x, y: y[x[0].long()],
        lambda x, y: y.add_(x.sum()),
        lambda x, y: torch.rand(2, device=x.device, generator=torch.Generator()),
        lambda x, y: x.long() @ x.long(),
    ],
)
def test_devices_do_not_mix(mixed, far):
    with pytest.raises(RuntimeError, match=r"same device|of the CPU|device type for generator|not implemented"):
        mixed(torch.ones(2, 2, device=far.device), torch.ones(2, 2))


def test_numpy_reads_it_by_copies_alone(far):
    with pytest.raises(TypeError, match="device type tensor to numpy"):
        np.asarray(torch.ones(2, device=far.device))
