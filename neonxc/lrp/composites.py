"""Composites: which layer follows which rule."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from torch import nn

from neonxc.lrp.rules import Gamma, Rule


class Composite:
    """Map the layers of a network to rules.

    Parameters
    ----------
    default : Rule, optional
        For every linear layer that nothing below matches; LRP-gamma with gamma 0.25 unless given.
    layers : mapping of str or module type to Rule, optional
        By name (as in ``named_modules()``, with ``*`` and ``?``) or by type; the first match in order wins.

    Examples
    --------
    >>> from torch import nn
    >>> from neonxc.lrp import Composite, Epsilon, Gamma
    >>> composite = Composite(Gamma(0.25), {"features.2*": Gamma(0.1), nn.Linear: Epsilon()})
    """

    def __init__(
        self, default: Rule | None = None, layers: Mapping[str | type[nn.Module], Rule] | None = None
    ) -> None:
        self.default = default or Gamma(0.25)
        self.layers = dict(layers or {})

    def rule(self, name: str, module: nn.Module) -> Rule:
        """Return the rule of the module with this name."""
        for key, rule in self.layers.items():
            if fnmatchcase(name, key) if isinstance(key, str) else isinstance(module, key):
                return rule
        return self.default

    def __repr__(self) -> str:
        return f"Composite({self.default!r}, {self.layers!r})"
