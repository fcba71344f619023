"""Networks that users pass: wrappers are removed, and those that are random or change themselves are refused.

A network may be explained if every input gets the same features at any time and beside any other inputs.
:func:`evaluated` runs it, and tests this:

    network                       test
    in eval mode, first run     the state of the random generator stays the same; if not, two more runs in which
                                all random numbers are 0, and 1, have the same features; if not, the next test
    may vary (training mode)    every operator is checked before it runs, in each run (:mod:`neonxc.common.watch`)
    any, until it passes        two rows have the features that they have alone (:mod:`neonxc.common.rows`)
"""

from __future__ import annotations

import copy
from itertools import chain
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.lazy import LazyModuleMixin

from neonxc.common.local_calls import local_calls
from neonxc.common.rows import HalfOfRows, TwoRows, compared, features_of
from neonxc.common.watch import SameDraws, Watch

_steady: WeakSet[nn.Module] = WeakSet()  # networks whose first run in eval mode drew no random numbers
_separate: WeakSet[nn.Module] = WeakSet()  # networks whose rows were compared with themselves in another batch


def unwrapped(module: nn.Module) -> nn.Module:
    """Return the network inside ``DataParallel``, ``DistributedDataParallel`` or ``torch.compile``."""
    if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        return unwrapped(module.module)
    if type(module).__name__ == "OptimizedModule":  # importing its class would load the compiler
        return unwrapped(module._orig_mod)  # type: ignore[arg-type]
    return module


def in_eval_mode(module: nn.Module) -> nn.Module:
    """Return a network in eval mode: the network itself, or a copy with its parameters and buffers."""
    if not any(inner.training for inner in module.modules()):
        return module
    shared = {id(tensor): tensor for tensor in chain(module.parameters(), module.buffers())}
    return copy.deepcopy(module, shared).eval()


def evaluated(module: nn.Module, x: Tensor, name: str = "", compare: bool = True) -> Any:
    """Run a network, in which every input has to get the same result at any time and beside any other inputs.

    It gets a copy of the inputs, which it may change. ``DistributedDataParallel`` runs in this process alone.

    - In eval mode the network is run. If the first run changes the state of the random generator, it is run twice
      more, with 0 and with 1 in place of all numbers that it draws. Numbers that change nothing are accepted.
    - If parts of it are in training mode, or it draws random numbers in eval mode, every operator is checked
      before it runs: networks whose layers do the same in both modes are accepted.
    - Once for each network, two rows are run without the others (:mod:`neonxc.common.rows`).

    Parameters
    ----------
    module : nn.Module
    x : Tensor [N, ...]
        Inputs of the network.
    name : str
        Name of the network in errors; by default, that of its class.
    compare : bool
        Whether two rows are run without the others. It is False for networks that are made for one batch.

    Raises
    ------
    ValueError
        If the network would draw random numbers, change its parameters or buffers, or normalize by the batch, if
        it has layers without weights, or if the features of a row depend on the rows beside it. Its parameters
        and buffers are as before.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing():  # type: ignore[attr-defined]
        return module(x)
    try:
        with local_calls:
            run = _watched if may_vary(module) else _as_in_eval_mode
            return run(module, x, name, compare)
    finally:
        if not torch.is_grad_enabled():  # autocast of torch 2.6 would keep its weights without a gradient
            torch.clear_autocast_cache()


def _as_in_eval_mode(module: nn.Module, x: Tensor, name: str, compare: bool) -> Any:
    """Run a network in eval mode; the first time, find out whether it draws random numbers or mixes rows."""
    if module in _steady and are_separate(module):
        return module(x.clone())
    before = _random_state(x)
    comparison = _comparison(module, x, compare)
    output = module(x.clone())  # after the comparison, so that hooks of the network end with the batch
    if module not in _steady and _random_state(x) != before:
        if not _ignores_draws(module, x, output):
            return _watched(module, x, name, compare)
        output = module(x.clone())
    _steady.add(module)
    _check_rows(module, comparison, x, output, name)
    return output


def _watched(module: nn.Module, x: Tensor, name: str, compare: bool) -> Any:
    """Run a network that may vary, and check every operator before it runs."""
    if len(x) == 1 and any(map(_is_by_batch, parts(module))):  # PyTorch has another error for a batch of one
        evaluated(module, torch.cat([x, x]), name, compare)
    module = unwrapped(module)  # neither compiled nor in other threads, where operators are not seen
    with Watch(module, name):
        comparison = _comparison(module, x, compare)
        output = module(x.clone())
        _check_rows(module, comparison, x, output, name)
    return output


def _comparison(module: nn.Module, x: Tensor, compare: bool) -> TwoRows | HalfOfRows | None:
    """Run rows of the batch without the others, unless this was done before."""
    if not compare or are_separate(module):
        return None
    return compared(unwrapped(module), x)


def are_separate(module: nn.Module) -> bool:
    """Whether a comparison has shown that a network gives each row the features that it has alone."""
    return unwrapped(module) in _separate


@torch.no_grad()
def _ignores_draws(module: nn.Module, x: Tensor, output: object) -> bool:
    """Whether the features stay the same if all random numbers that a network draws are 0, and if they are 1."""
    module = unwrapped(module)
    features = features_of(output)
    for number in (0.0, 1.0):
        try:
            with SameDraws(number):
                again = features_of(module(x.clone()))
        except Exception:  # numbers that are positions, say, of which there is none
            return False
        if features is None or again is None or not torch.equal(features, again):
            return False
    return True


@torch.no_grad()
def _check_rows(
    module: nn.Module, comparison: TwoRows | HalfOfRows | None, x: Tensor, output: object, name: str
) -> None:
    """Raise an error if rows have other features in the `output` for a batch than in that of the comparison."""
    features = features_of(output)
    if comparison is None or features is None or len(features) != len(x):
        return
    if not comparison.agrees(features):
        name = name or f"the network ({type(unwrapped(module)).__name__})"
        raise ValueError(
            f"{name} mixes the rows of X: a row has other features beside other rows, which would take part in "
            "its explanation. If rows are the nodes of a graph, compute their features once and pass these as X; "
            "normalize by running statistics in place of those of the batch"
        )
    _separate.add(unwrapped(module))


def may_vary(module: nn.Module) -> bool:
    """Whether parts of a network are in training mode, normalize by the batch, or have no weights yet."""
    for inner in parts(module):
        if inner.training and not _is_wrapper(inner):
            return True
        if _is_by_batch(inner) or isinstance(inner, LazyModuleMixin):
            return True
    return False


def parts(module: nn.Module) -> list[nn.Module]:
    """Return a network and all modules in it, faster than `modules` does; shared modules come several times."""
    modules = [module]
    for inner in modules:  # the list grows meanwhile
        modules += [part for part in inner._modules.values() if part is not None]
    return modules


def _is_wrapper(module: nn.Module) -> bool:
    """Whether a module only calls others, which may be in another mode."""
    kind = type(module)
    is_ours = kind.__module__.startswith("neonxc.")
    return kind is nn.Sequential or is_ours or unwrapped(module) is not module


def _is_by_batch(module: nn.Module) -> bool:
    """Whether a module normalizes by the batch in eval mode as well."""
    return isinstance(module, _BatchNorm) and module.running_mean is None


def _random_state(x: Tensor) -> bytes:
    """Return the state of the random generator for the device of a tensor; other threads may change it as well."""
    if x.is_cuda:
        state = torch.cuda.get_rng_state(x.device)
    else:
        state = torch.get_rng_state()
    return state.numpy().tobytes()
