"""The whole public interface on a device that is not the CPU: nothing mixes, and results are those of the CPU."""

import contextlib
import inspect
from importlib import import_module

import numpy as np
import pandas as pd
import pytest
import torch
from entry_points import ENTRIES
from far_device import far_device


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
    elif isinstance(want, pd.DataFrame):
        assert_same(got.to_numpy(), want.to_numpy(), device, exactly, where)
    elif exactly and isinstance(want, np.ndarray | float) and np.asarray(want).dtype.kind == "f":
        rounding = 1e-3 if np.asarray(want).dtype == np.float32 else 1e-8
        np.testing.assert_allclose(got, want, rtol=rounding, atol=rounding, err_msg=where)
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
    check(name, contextlib.nullcontext(Cuda()), exactly=not ENTRIES[name].draws)


class Cuda:
    device = torch.device("cuda")


def check(name, device, exactly=True):
    want = called(name, "cpu")
    with device as found:
        assert_same(called(name, found.device), want, found.device, exactly)


def called(name, device):
    torch.manual_seed(0)
    return ENTRIES[name].work(At(device))
