"""A device that is not the CPU, on every machine: code for CUDA is tested on it where nobody has CUDA.

A far tensor holds a tensor of the CPU and says that it lives on `FAR`. Operations on far tensors refuse tensors of
the CPU wherever CUDA does. The type of the device is "lazy": every build of PyTorch knows it and has a device
guard for it, and nothing else here uses it.

Not emulated: autocast (it is off), inference mode (gradients are off instead), what is in `torch.cuda`, and the
rounding and the random numbers of a GPU (they are those of the CPU).
"""

import contextlib
import functools
from dataclasses import dataclass
from unittest import mock

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

FAR = torch.device("lazy", 0)
COPIES = {"copy_", "_to_copy"}
INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_"}  # a far tensor may be indexed by one of the CPU
# Products, which CUDA has of floating-point numbers alone
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot"}
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
    """While it is entered, `FAR` is a device like others."""

    device = FAR

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # else a wrapper of each operation, for torch.compile, takes as long as the operation

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if FarTensor not in types and not _is_far(kwargs.get("device")):
            return func(*args, **kwargs)  # as most operations are, of the CPU alone
        return _run(func, args, kwargs)


@contextlib.contextmanager
def far_device():
    """`FAR` exists in here."""
    make = torch.tensor
    take = torch.as_tensor
    autocast = torch.autocast
    enabled = torch.is_autocast_enabled

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
    tensors = _tensors((args, tuple(kwargs.values())), [])
    device = kwargs.get("device")
    far = [t for t in tensors if type(t) is FarTensor]
    if not far and not _is_far(device):
        return func(*args, **kwargs)
    about = _about(func)
    if far and (len(far) < len(tensors) or about.product):
        _check(about, args, kwargs, tensors)
    near = {name: _each(FarTensor, _near, value) for name, value in kwargs.items()}
    if device is not None:
        near["device"] = torch.device("cpu")
    found = func(*_each(FarTensor, _near, args), **near)
    stays = device is None or _is_far(device)
    if not about.written:
        return _each(torch.Tensor, FarTensor, found) if stays else found
    own = {id(t.near if type(t) is FarTensor else t): t for t in tensors}  # what is changed in place stays itself
    return _each(torch.Tensor, lambda t: own[id(t)] if id(t) in own else FarTensor(t), found)


@dataclass(frozen=True)
class About:
    """What there is to know about an operation."""

    name: str
    product: bool  # of matrices
    arguments: tuple  # their names
    written: frozenset  # those that are changed


@functools.cache
def _about(func):
    schema = func._schema
    name = schema.name.removeprefix("aten::")
    written = frozenset(one.name for one in schema.arguments if one.alias_info and one.alias_info.is_write)
    return About(name, name in PRODUCTS, tuple(one.name for one in schema.arguments), written)


def _check(about, args, kwargs, tensors):
    """Raise where CUDA would: tensors meet of which one is on the CPU, and no number, no index and not copied."""
    if about.name in COPIES:
        return
    meet = tensors
    if about.name in INDEXED and type(args[0]) is FarTensor:
        meet = _tensors((args[0], *args[2:3]), [])
    if any(t.ndim for t in meet if type(t) is not FarTensor):
        shapes = [f"{list(t.shape)} on {t.device}" for t in tensors]
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but {about.name} got {', '.join(shapes)}"
        )
    given = dict(zip(about.arguments, args, strict=False)) | kwargs
    changed = _tensors([given[name] for name in about.written if name in given], [])
    if not all(type(t) is FarTensor for t in changed):
        raise RuntimeError(f"{about.name} would change a tensor of the CPU by one on {FAR}")
    if about.product and not any(t.is_floating_point() or t.is_complex() for t in tensors):
        raise RuntimeError(f"{about.name} is not implemented for {tensors[0].dtype} on {FAR}, as on CUDA")


def _near(far):
    return far.near


def _tensors(values, found):
    """All tensors in nested lists, appended to a list."""
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            _tensors(value, found)
    return found


def _each(kind, change, value):
    """Everything of a kind in nested lists, changed."""
    if isinstance(value, kind):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)([_each(kind, change, one) for one in value])
    return value


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
    if not isinstance(index, list | range | np.ndarray):
        return index
    return torch.as_tensor(index) if len(index) else torch.zeros(0, dtype=torch.int64)


def _known(data):
    """Numbers on `FAR`, in lists, as numbers."""
    return _each(FarTensor, FarTensor.tolist, data)


def _is_far(device):
    return device is not None and (device is FAR or torch.device(device).type == FAR.type)


_nothing = contextlib.nullcontext
