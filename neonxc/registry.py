"""The classes that files may name, and how their objects become JSON values and tensors, and come back.

This module knows no class of the package: whoever defines a class registers it here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

LEFT_OUT = "custom"  # what a file holds in place of a feature network that can't be saved
PLAIN = (bool, int, float, str, list, tuple, dict, type(None))
Part = TypeVar("Part", bound=type[nn.Module])


@dataclass(frozen=True)
class Form:
    """How objects of one class are taken apart into named values, and built again."""

    cls: type
    pack: Callable[[Any], dict[str, Any]]
    unpack: Callable[[Any, dict[str, Any]], Any]


FORMS: dict[str, Form] = {}
"""Registered forms by the name of their class."""


def register(
    cls: type, pack: Callable[[Any], dict[str, Any]], unpack: Callable[[Any, dict[str, Any]], Any]
) -> None:
    """Let :func:`neonxc.save` and :func:`neonxc.load` handle the objects of a class.

    Subclasses have to be registered themselves. A file names the class, so :func:`neonxc.load` needs the class to
    be registered, by an import or otherwise, before it is called.

    Parameters
    ----------
    cls : type
    pack : callable
        Takes an object and returns its values by name. A value is a tensor, a JSON value (numbers, strings, None,
        and lists and dictionaries of these), or an object whose class is registered.
    unpack : callable
        Takes `cls` and the values by name, and returns the object. It should refuse values that do not fit
        together: a file may hold anything.

    Raises
    ------
    ValueError
        Another class of this name is registered. The same class may be defined and registered again.
    """
    known = FORMS.get(cls.__name__)
    if known is not None and (known.cls.__module__, known.cls.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(f"{cls.__name__} is registered for {known.cls.__module__}.{known.cls.__qualname__}")
    FORMS[cls.__name__] = Form(cls, pack, unpack)


def storable(cls: Part) -> Part:
    """Register a module whose plain attributes are named in ``PLAIN``; a class decorator.

    Its buffers are stored as tensors and its child modules, whose classes have to be registered too, as parts.
    The `state_dict` holds the plain attributes as well, so that it describes the module completely.
    """
    part: Any = cls
    part.get_extra_state, part.set_extra_state = _extra_state, _set_extra_state
    register(cls, _pack_module, _unpack_module)
    return cls


def pack(obj: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Describe an object by JSON values and named tensors.

    Raises
    ------
    TypeError
        The class of the object, or of a part of it, is not registered, or its form refuses the object.
    """
    name = type(obj).__name__
    form = FORMS.get(name)
    if form is None or form.cls is not type(obj):
        raise TypeError(
            f"can't save a {name}; neonxc saves networks from neonxc.neuralize, trees of neonxc.trees, clusterers "
            "and features of neonxc.models, and classes that neonxc.registry.register is given"
        )
    values: dict[str, Any] = {}
    parts: dict[str, Any] = {}
    tensors: dict[str, Tensor] = {}
    own: list[str] = []
    for key, value in form.pack(obj).items():
        if isinstance(value, Tensor):
            own.append(key)
            tensors[key] = value
        elif isinstance(value, PLAIN):
            values[key] = value
        else:
            parts[key], inner = pack(value)
            tensors |= {f"{key}.{inner_key}": tensor for inner_key, tensor in inner.items()}
    return {"class": name, "values": values, "tensors": own, "parts": parts}, tensors


def unpack(described: Mapping[str, Any], tensors: Mapping[str, Tensor], prefix: str = "") -> Any:
    """Build the object that :func:`pack` described; its tensors are those whose names begin with `prefix`.

    A description that is not one of an object raises whatever is raised first.
    """
    form = FORMS[described["class"]]
    values = dict(described["values"])
    values |= {key: tensors[prefix + key] for key in described["tensors"]}
    values |= {key: unpack(part, tensors, f"{prefix}{key}.") for key, part in described["parts"].items()}
    return form.unpack(form.cls, values)


def can_pack(obj: Any) -> bool:
    """Whether :func:`pack` takes an object."""
    try:
        pack(obj)
    except TypeError:
        return False
    return True


def _pack_module(module: Any) -> dict[str, Any]:
    if module._parameters:
        raise TypeError(f"can't save a {type(module).__name__} with parameters; make them buffers")
    return {name: getattr(module, name) for name in (*module.PLAIN, *module._buffers, *module._modules)}


def _unpack_module(cls: Any, values: dict[str, Any]) -> nn.Module:
    module = cls.__new__(cls)
    nn.Module.__init__(module)
    for name in cls.PLAIN:
        setattr(module, name, values.pop(name))
    for name, value in values.items():  # both refuse a name that the class uses otherwise
        add = module.add_module if isinstance(value, nn.Module) else module.register_buffer
        add(name, value)
    return module


def _extra_state(module: Any) -> Tensor:
    """Plain attributes as JSON in a tensor: a state_dict of tensors alone fits into any file."""
    plain = json.dumps({name: getattr(module, name) for name in module.PLAIN})
    return torch.tensor(list(plain.encode()), dtype=torch.uint8)


def _set_extra_state(module: Any, state: Tensor) -> None:
    plain = json.loads(bytes(state.tolist()))
    for name in module.PLAIN:
        setattr(module, name, plain[name])
