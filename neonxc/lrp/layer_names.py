"""Names and rules of a network's layers, and the line of user code that called an operation."""

from __future__ import annotations

import copy
import linecache
import math
import os
import sys
from collections.abc import Callable
from traceback import walk_stack

import captum
import numpy as np
import torch
from torch import Tensor, nn

from neonxc.lrp.composites import Composite, Place
from neonxc.lrp.layer import PropagationRule

Owner = tuple[str, nn.Module]
LIBRARIES = (  # whose frames are not the user's
    *(
        f"{os.path.dirname(file)}{os.sep}"
        for file in (torch.__file__, captum.__file__, np.__file__, __file__)
        if file
    ),
    copy.__file__,
)


class UnsupportedOperation(RuntimeError):
    """A network calls an operation that LRP cannot propagate through; the message names it and its line."""


class LayerNames:
    """The names of a network's layers, and the rules of its linear layers.

    Names are those of the user's network: without the prefix of a feature extractor that wraps it, and with the
    name of a layer in place of its parametrization's.
    """

    def __init__(self, composite: Composite, network: nn.Module, side: int | None) -> None:
        self.composite = composite
        self.count = 0  # linear layers that have run so far
        self._side = side  # width of the network's input, if it is a feature map
        wrapped = f"{network.wraps}." if hasattr(network, "wraps") else ""
        self._names: dict[int, str] = {}
        # owners of parameters, buffers and plain attributes; tied ones occur twice
        self.owners: list[tuple[Tensor, Owner]] = []
        modules = dict(network.named_modules())
        for path, module in modules.items():
            layer = path.partition(".parametrizations.")[0]
            self._names[id(module)] = name = layer.removeprefix(wrapped)
            plain = (value for value in vars(module).values() if isinstance(value, Tensor))
            tensors = (*module.parameters(recurse=False), *module.buffers(recurse=False), *plain)
            self.owners += [(tensor, (name, modules[layer])) for tensor in tensors]
        composite.check_names({name for _, (name, _) in self.owners})

    def rule(self, owner: Owner | None, weight: Tensor, x: Tensor) -> Callable[[], PropagationRule]:
        """Count the next linear layer; the function returned looks up its rule once all layers have run."""
        name, module = owner or ("", None)
        place = Place(name, module, self.count, self._block(weight, x))
        self.count += 1
        return lambda: self.composite.rule(place, self.count)

    def _block(self, weight: Tensor, x: Tensor) -> int | None:
        matrix = weight.ndim == 2  # the inputs of a matrix are the last dimension
        if self._side is None or x.ndim < (4 if matrix else 3):
            return None
        return 1 + max(0, round(math.log2(self._side / x.shape[-2 if matrix else -1])))

    def call_site(self) -> str:
        """The line of user code that called the current operation, and the innermost module, as text."""
        inside = ""
        for frame, line in walk_stack(sys._getframe(1)):  # its own frame would hold itself
            module = frame.f_locals.get("self")
            if name := self._names.get(id(module)):
                inside = inside or f" (module {name!r}, {type(module).__name__})"
            file = frame.f_code.co_filename
            if not file.startswith(LIBRARIES):
                code = linecache.getline(file, line).strip()
                return f"at {file}:{line} in {frame.f_code.co_name}{inside}: {code}"
        return f"inside torch{inside}"
