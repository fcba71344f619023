"""A device that is not the CPU, on every machine: code for CUDA is tested on it where nobody has CUDA.

A far tensor holds a tensor of the CPU and says that it lives on `FAR`. Operations on far tensors refuse tensors of
the CPU wherever CUDA does, and what the host waits for is counted. The type of the device is "lazy": every build
of PyTorch knows it and has a device guard for it, and nothing else here uses it.

Not emulated: autocast (it is off), inference mode (gradients are off instead), what is in `torch.cuda`, and the
rounding and the random numbers of a GPU (they are those of the CPU).
"""

import contextlib
from unittest import mock

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

FAR = torch.device("lazy", 0)
COPIES = {"copy_", "_to_copy"}
INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_"}  # a far tensor may be indexed by one of the CPU
PRODUCTS = {
    "mm",
    "addmm",
    "bmm",
    "baddbmm",
    "mv",
    "addmv",
    "dot",
}  # which CUDA has of floating-point numbers alone
WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "unique_dim"}
DRAWS = {"rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial"}
DRAWS |= {"random_", "uniform_", "normal_", "bernoulli_", "exponential_"}


class FarTensor(torch.Tensor):
    """A tensor on `FAR`; `near` is what it holds."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, near):
        layout = {"strides": near.stride(), "storage_offset": near.storage_offset(), "dtype": near.dtype}
        return torch.Tensor._make_wrapper_subclass(
            cls, near.shape, **layout, device=FAR, requires_grad=near.requires_grad
        )

    def __init__(self, near):
        self.near = near

    def __repr__(self):
        return f"FarTensor({self.near})"

    def __getitem__(self, index):
        return super().__getitem__(_indices(index))

    def __setitem__(self, index, value):
        super().__setitem__(_indices(index), value)

    def tolist(self):
        return self.cpu().tolist()

    def numpy(self, *, force=False):
        if not force:
            raise TypeError(f"can't convert {FAR} device type tensor to numpy. Use Tensor.cpu() first.")
        return self.detach().cpu().numpy()

    def __array__(self, *args, **kwargs):
        return self.numpy()

    def __format__(self, form):
        return format(self if self.ndim else self.item(), form) if form else repr(self)

    def new_tensor(self, data, *, dtype=None, device=FAR, requires_grad=False):
        return self.near.new_tensor(data, dtype=dtype).to(device).requires_grad_(requires_grad)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


class Generator(torch.Generator):
    """A generator that says for tensors of which device it draws."""

    def __new__(cls, device="cpu"):
        return super().__new__(cls, "cpu" if _is_far(device) else device)

    def __init__(self, device="cpu"):
        self.place = torch.device(device)

    @property
    def device(self):
        return self.place


class FarDevice(TorchDispatchMode):
    """While it is entered, `FAR` is a device like others; it counts how often the host waits for a result."""

    device = FAR

    def __init__(self):
        super().__init__()
        self.waits = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.waits += _waits(func, args, kwargs or {})
        return _run(func, args, kwargs or {})


@contextlib.contextmanager
def far_device():
    """`FAR` exists in here."""
    make, take, autocast, enabled = torch.tensor, torch.as_tensor, torch.autocast, torch.is_autocast_enabled

    def tensor(data, *, dtype=None, device=None, requires_grad=False):
        if not _is_far(device):
            return make(_known(data), dtype=dtype, device=device, requires_grad=requires_grad)
        return make(_known(data), dtype=dtype).to(device).requires_grad_(requires_grad)

    def as_tensor(data, dtype=None, device=None):
        if isinstance(data, FarTensor) or _is_far(device):
            return (data if isinstance(data, torch.Tensor) else take(data)).to(device=device, dtype=dtype)
        return take(data, dtype=dtype, device=device)

    changes = [
        (torch, "tensor", tensor),
        (torch, "as_tensor", as_tensor),
        (torch, "Generator", Generator),
        (torch, "autocast", lambda kind, *a, **k: _nothing() if kind == FAR.type else autocast(kind, *a, **k)),
        (torch, "is_autocast_enabled", lambda kind="cuda": kind != FAR.type and enabled(kind)),
        (torch._C, "_InferenceMode", lambda on: torch.no_grad() if on else _nothing()),
    ]
    changes += [
        (owner, name, _drawn(getattr(owner, name)))
        for owner in (torch, torch.Tensor)
        for name in DRAWS
        if hasattr(owner, name)
    ]
    with contextlib.ExitStack() as stack:
        for change in changes:
            stack.enter_context(mock.patch.object(*change))
        yield stack.enter_context(FarDevice())


def _run(func, args, kwargs):
    """What an operation gives, on the device on which CUDA would give it."""
    tensors, device = list(_tensors((*args, *kwargs.values()))), kwargs.get("device")
    if not any(isinstance(t, FarTensor) for t in tensors) and not _is_far(device):
        return func(*args, **kwargs)
    _check(func, args, kwargs, tensors)
    own = {id(t.near if isinstance(t, FarTensor) else t): t for t in tensors}  # what is changed in place stays itself
    near = {name: _each(FarTensor, _near, value) for name, value in kwargs.items()}
    if device is not None:
        near["device"] = torch.device("cpu")
    found = func(*_each(FarTensor, _near, args), **near)
    made = FarTensor if device is None or _is_far(device) else lambda t: t
    return _each(torch.Tensor, lambda t: own[id(t)] if id(t) in own else made(t), found)


def _check(func, args, kwargs, tensors):
    """Raise where CUDA would: tensors meet of which one is on the CPU, and no number, no index and not copied."""
    name = _name(func)
    far = [t for t in tensors if isinstance(t, FarTensor)]
    if name in COPIES or not far:
        return
    meet = tensors if name not in INDEXED or not isinstance(args[0], FarTensor) else [args[0], *args[2:3]]
    if any(t.ndim for t in _on_cpu(meet)):
        shapes = [f"{list(t.shape)} on {t.device}" for t in tensors]
        raise RuntimeError(f"Expected all tensors to be on the same device, but {name} got {', '.join(shapes)}")
    if func._schema.is_mutable:
        given = {argument.name: argument for argument in func._schema.arguments}
        values = dict(zip(given, args, strict=False)) | kwargs
        if any(_on_cpu([values[key] for key in values if given[key].alias_info and given[key].alias_info.is_write])):
            raise RuntimeError(f"{name} would change a tensor of the CPU by one on {FAR}")
    if name in PRODUCTS and not (far[0].is_floating_point() or far[0].is_complex()):
        raise RuntimeError(f"{name} is not implemented for {far[0].dtype} on {FAR}, as on CUDA")


def _on_cpu(values):
    return (t for t in _tensors(values) if not isinstance(t, FarTensor))


def _near(far):
    return far.near


def _tensors(values):
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _each(kind, change, value):
    """Everything of a kind in nested lists, changed."""
    if isinstance(value, (list, tuple)):
        return type(value)([_each(kind, change, one) for one in value])
    return change(value) if isinstance(value, kind) else value


def _waits(func, args, kwargs):
    """Whether the host needs to know what a far tensor holds."""
    name = _name(func)
    if name in INDEXED:
        return any(
            t is not None and t.dtype in (torch.bool, torch.uint8) for t in args[1] if isinstance(t, FarTensor)
        )
    if name in COPIES:
        there = isinstance(args[0], FarTensor) if name == "copy_" else _is_far(kwargs.get("device", FAR))
        return not there and any(isinstance(t, FarTensor) for t in args[:2])
    return name in WAITING and isinstance(args[0], FarTensor)


def _drawn(function):
    """A function that draws, from generators of the tensor's device alone."""

    def draw(*args, generator=None, **kwargs):
        found = function(*args, generator=generator, **kwargs)
        if isinstance(generator, Generator) and generator.device.type != found.device.type:
            raise RuntimeError(
                f"Expected a '{found.device.type}' device type for generator but found '{generator.device.type}'"
            )
        return found

    return draw


def _indices(index):
    """Sequences in an index as tensors."""
    if isinstance(index, tuple):
        return tuple(_indices(part) for part in index)
    return torch.as_tensor(index) if isinstance(index, list | range | np.ndarray) else index


def _known(data):
    """Numbers on `FAR`, in lists, as numbers."""
    return _each(FarTensor, FarTensor.tolist, data)


def _name(func):
    return func._schema.name.removeprefix("aten::")


def _is_far(device):
    return device is not None and torch.device(device).type == FAR.type


_nothing = contextlib.nullcontext
