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
_FILES = (torch.__file__, captum.__file__, np.__file__, __file__)
_FOLDERS = [f"{os.path.dirname(file)}{os.sep}" for file in _FILES if file]
LIBRARIES = (*_FOLDERS, copy.__file__)
"""Beginnings of the paths of files whose frames are not the user's."""


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
        prefix = ""
        if hasattr(network, "wraps"):  # a feature extractor: the attribute that holds the user's network
            prefix = f"{network.wraps}."
        self._names: dict[int, str] = {}
        # owners of parameters, buffers and plain attributes; tied ones occur twice
        self.owners: list[tuple[Tensor, Owner]] = []
        modules = dict(network.named_modules())
        for path, module in modules.items():
            layer = path.partition(".parametrizations.")[0]
            name = layer.removeprefix(prefix)
            self._names[id(module)] = name
            owner = (name, modules[layer])

            attributes = [value for value in vars(module).values() if isinstance(value, Tensor)]
            parameters = module.parameters(recurse=False)
            buffers = module.buffers(recurse=False)
            self.owners += [(tensor, owner) for tensor in (*parameters, *buffers, *attributes)]
        composite.check_names({name for _, (name, _) in self.owners})

    def rule(self, owner: Owner | None, weight: Tensor, x: Tensor) -> Callable[[], PropagationRule]:
        """Count the next linear layer; the function returned looks up its rule once all layers have run."""
        name, module = owner or ("", None)
        place = Place(name, module, self.count, self._block(weight, x))
        self.count += 1
        return lambda: self.composite.rule(place, self.count)

    def _block(self, weight: Tensor, x: Tensor) -> int | None:
        """Return 1 + how often the side of the feature map was halved; None if x is not a feature map."""
        is_matrix = weight.ndim == 2  # its inputs are the last dimension of x
        n_dimensions = 4 if is_matrix else 3  # of the smallest feature maps: [N, H, W, C] or [N, C, L]
        if self._side is None or x.ndim < n_dimensions:
            return None
        side = x.shape[-2] if is_matrix else x.shape[-1]
        halvings = round(math.log2(self._side / side))
        return 1 + max(0, halvings)

    def call_site(self) -> str:
        """Describe the line of user code that called the current operation, and the innermost module."""
        inside = ""
        for frame, line in walk_stack(sys._getframe(1)):  # its own frame would hold itself
            module = frame.f_locals.get("self")
            name = self._names.get(id(module))
            if name and not inside:
                inside = f" (module {name!r}, {type(module).__name__})"
            file = frame.f_code.co_filename
            if not file.startswith(LIBRARIES):
                code = linecache.getline(file, line).strip()
                return f"at {file}:{line} in {frame.f_code.co_name}{inside}: {code}"
        return f"inside torch{inside}"
