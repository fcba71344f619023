"""Checks of networks that users pass: wrappers are removed, and training mode is refused."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd


def unwrapped(module: nn.Module) -> nn.Module:
    """Return the network inside ``DataParallel``, ``DistributedDataParallel`` or ``torch.compile``."""
    if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        return unwrapped(module.module)
    if type(module).__name__ == "OptimizedModule":  # importing its class would load the compiler
        return unwrapped(module._orig_mod)  # type: ignore[arg-type]
    return module


def check_evaluating(module: nn.Module, name: str = "features") -> None:
    """Raise a ValueError if a network is in training mode, in which a call would change it or be random."""
    for path, inner in module.named_modules():
        if inner.training and isinstance(inner, (_BatchNorm, _DropoutNd)):
            harm = "change its statistics" if isinstance(inner, _BatchNorm) else "drop units at random"
            layer = f"{type(inner).__name__} ({path!r})"
            raise ValueError(f"{name} is in training mode: its {layer} would {harm}; call .eval() on it first")


def takes_tokens(module: nn.Module, x: Tensor) -> bool:
    """Whether inputs [N, T, d] are tokens rather than channels [N, C, L], which a network convolves."""
    return x.ndim == 3 and not any(isinstance(inner, nn.Conv1d) for inner in module.modules())
