"""Networks that users pass: wrappers are removed, and those that are random or change themselves are refused."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.lazy import LazyModuleMixin

from neonxc.common.watch import Watch

_drew_nothing: WeakSet[nn.Module] = WeakSet()  # networks whose first run in eval mode drew no random numbers


def unwrapped(module: nn.Module) -> nn.Module:
    """Return the network inside ``DataParallel``, ``DistributedDataParallel`` or ``torch.compile``."""
    if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        return unwrapped(module.module)
    if type(module).__name__ == "OptimizedModule":  # importing its class would load the compiler
        return unwrapped(module._orig_mod)  # type: ignore[arg-type]
    return module


def evaluated(module: nn.Module, x: Tensor, name: str = "") -> Any:
    """Run a network, of which every input has to get the same result at any time and beside any other inputs.

    In eval mode it is just run; if the first run changes the state of the random generator, it is run again as
    follows. If parts of it are in training mode, every operator is looked at before it runs: networks whose layers
    do the same in both modes are accepted.

    Parameters
    ----------
    module : nn.Module
    x : Tensor [N, ...]
        Inputs of the network.
    name : str
        Name of the network in errors, if it has one for the user.

    Raises
    ------
    ValueError
        The network would draw random numbers, change its parameters or buffers, or normalize by the batch, or it
        has layers without weights. Its parameters and buffers are as before.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined]
        return module(x)
    try:
        return _as_in_eval_mode(module, x, name)
    finally:
        if not torch.is_grad_enabled():  # autocast of torch 2.6 would keep its weights without a gradient
            torch.clear_autocast_cache()


def _as_in_eval_mode(module: nn.Module, x: Tensor, name: str) -> Any:
    varies = may_vary(module)
    if not varies and module in _drew_nothing:
        return module(x)
    if not varies:
        before = _random_state(x)
        output = module(x)
        if _random_state(x) == before:
            _drew_nothing.add(module)
            return output
    if len(x) == 1 and any(map(_is_by_batch, parts(module))):  # PyTorch has another error for a batch of one
        evaluated(module, torch.cat([x, x]), name)
    module = unwrapped(module)  # neither compiled nor in other threads, where operators are not seen
    with Watch(module, name):
        return module(x)


def may_vary(module: nn.Module) -> bool:
    """Whether parts of a network are in training mode, normalize by the batch, or have no weights yet."""
    return any(
        (inner.training and not _is_wrapper(inner)) or _is_by_batch(inner) or isinstance(inner, LazyModuleMixin)
        for inner in parts(module)
    )


def parts(module: nn.Module) -> list[nn.Module]:
    """Return a network and all modules in it, faster than `modules` does; shared ones come several times."""
    found = [module]
    for inner in found:  # the list grows meanwhile
        found += [part for part in inner._modules.values() if part is not None]
    return found


def _is_wrapper(module: nn.Module) -> bool:
    """Whether a module only calls others, whose mode may be another one than its own."""
    kind = type(module)
    return kind is nn.Sequential or kind.__module__.startswith("neonxc.") or unwrapped(module) is not module


def _is_by_batch(module: nn.Module) -> bool:
    return isinstance(module, _BatchNorm) and module.running_mean is None


def _random_state(x: Tensor) -> bytes:
    """The state of the random generator for the device of a tensor, which other threads may change as well."""
    state = torch.cuda.get_rng_state(x.device) if x.is_cuda else torch.get_rng_state()
    return state.numpy().tobytes()
