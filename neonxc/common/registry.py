"""Registry of the classes that can be saved, with functions that convert objects to JSON values and tensors.

:func:`pack` describes an object of a registered class by

    class      its name
    values     {name: JSON value}
    tensors    the names of its tensors, which are returned beside the description
    parts      {name: description} of objects of registered classes; the names of their tensors start with "name."

and :func:`unpack` builds the object again. The names are those that the class's pair of functions in FORMS uses.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from neonxc.common.arguments import check_whole, kind_of
from neonxc.common.declared import check_kind, check_sizes
from neonxc.common.numbers import plural

LEFT_OUT = "custom"
"""Placeholder in a file for a feature network that can't be saved."""
JSON = (bool, int, float, str, list, tuple, dict, type(None))
"""Types of values that JSON can hold."""
Values = dict[str, Any]
Part = TypeVar("Part", bound=type[nn.Module])


class Form(NamedTuple):
    """The functions that convert objects of one class to named values and back."""

    cls: type
    pack: Callable[[Any], Values]
    unpack: Callable[[Any, Values], Any]


FORMS: dict[str, Form] = {}
"""Registered forms by class name: only these classes can be loaded from a file."""


def register(cls: type, pack: Callable[[Any], Values], unpack: Callable[[Any, Values], Any]) -> None:
    """Register a class, so that :func:`neonxc.save` and :func:`neonxc.load` support its objects.

    Parameters
    ----------
    cls : type
        The class; subclasses need to be registered themselves.
    pack : callable
        ``pack(obj)`` returns a dict of named values: tensors, arrays, JSON values, or objects of registered
        classes.
    unpack : callable
        ``unpack(cls, values)`` returns the object. It needs to raise an error for invalid values, as a file may
        hold anything.

    Raises
    ------
    ValueError
        Another class of this name is registered. A class may be registered again, for example after a reload.
    """
    known = FORMS.get(cls.__name__)
    if known is not None and _full_name(known.cls) != _full_name(cls):
        raise ValueError(f"{cls.__name__} is registered for {_full_name(known.cls)}")
    FORMS[cls.__name__] = Form(cls, pack, unpack)


def load_as(name: str, cls: type) -> None:
    """Load objects of a former class name in saved files as objects of a registered class."""
    FORMS[name] = FORMS[cls.__name__]


def _full_name(cls: type) -> str:
    """Return the name of a class with its module."""
    return f"{cls.__module__}.{cls.__qualname__}"


def pack(obj: object) -> tuple[Values, dict[str, Tensor]]:
    """Convert an object to JSON values and named tensors.

    Raises
    ------
    TypeError
        The class of the object or of one of its parts is not registered, or the object can't be saved.
    """
    class_name = type(obj).__name__
    form = FORMS.get(class_name)
    if form is None or form.cls is not type(obj):
        raise TypeError(
            f"can't save {kind_of(obj)}; neonxc saves networks from neonxc.neuralize, trees of neonxc.trees, "
            "clusterers and features of neonxc.models, and classes registered with neonxc.common.registry.register"
        )
    described: Values = {"class": class_name, "values": {}, "tensors": [], "parts": {}}
    tensors: dict[str, Tensor] = {}
    for key, value in form.pack(obj).items():
        if isinstance(value, JSON):
            described["values"][key] = value
        elif isinstance(value, Tensor):
            described["tensors"].append(key)
            tensors[key] = value
        else:
            described["parts"][key], part_tensors = pack(value)
            tensors |= {f"{key}.{name}": tensor for name, tensor in part_tensors.items()}
    return described, tensors


def unpack(described: Mapping[str, Any], tensors: Mapping[str, Tensor], prefix: str = "") -> Any:
    """Rebuild an object from the result of :func:`pack`; the names of its tensors start with `prefix`."""
    if described["class"] not in FORMS:
        raise ValueError(f"{described['class']} is not registered; import the module that registers it")
    form = FORMS[described["class"]]
    values = dict(described["values"])
    check_sizes(values, tensors)
    values |= {key: tensors[prefix + key] for key in described["tensors"]}
    values |= {key: unpack(part, tensors, f"{prefix}{key}.") for key, part in described["parts"].items()}
    return form.unpack(form.cls, values)


def can_pack(obj: object) -> bool:
    """Whether an object can be saved."""
    try:
        pack(obj)
    except TypeError:
        return False
    return True


def storable(cls: Part) -> Part:
    """Register a class of modules, as a decorator; they are saved by ``PLAIN`` attributes, buffers and children.

    The plain attributes, JSON values whose names the class lists in ``PLAIN``, become part of the `state_dict`.
    """
    part: Any = cls
    part.get_extra_state = _extra_state
    part.set_extra_state = _set_extra_state
    register(cls, _pack_module, _unpack_module)
    return cls


def _pack_module(module: Any) -> Values:
    """Return the plain attributes, buffers and children of a module by name."""
    if module._parameters:
        raise TypeError(f"can't save {kind_of(module)} with parameters; make them buffers")
    names = (*module.PLAIN, *module._buffers, *module._modules)
    return {name: getattr(module, name) for name in names}


def _unpack_module(cls: Any, values: Values) -> nn.Module:
    """Rebuild a module without a call of its constructor."""
    module: nn.Module = cls.__new__(cls)
    nn.Module.__init__(module)
    for name in cls.PLAIN:
        has_default = hasattr(cls, name)
        if name in values or not has_default:  # files of earlier versions lack some attributes that have a default
            setattr(module, name, values.pop(name))
    for name in getattr(cls, "FORMER", ()):  # plain attributes in files of earlier versions
        values.pop(name, None)

    # both methods raise if the class uses the name for something else
    for name, value in values.items():
        if isinstance(value, nn.Module):
            module.add_module(name, value)
        else:
            module.register_buffer(name, value)
    return module


def _extra_state(module: Any) -> Tensor:
    """Return the plain attributes as JSON in a tensor, as some file formats hold tensors only."""
    plain = {name: getattr(module, name) for name in module.PLAIN}
    encoded = json.dumps(plain).encode()
    return torch.tensor(list(encoded), dtype=torch.uint8)


def _set_extra_state(module: Any, state: Tensor) -> None:
    """Set the plain attributes from the tensor of :func:`_extra_state`."""
    plain = json.loads(bytes(state.tolist()))
    for name in module.PLAIN:
        setattr(module, name, plain[name])


def _pack_array(array: np.ndarray) -> Values:
    """Pack numbers as a tensor, and other items as a list of distinct items and a tensor of positions in it."""
    if array.dtype.kind in "biuf":
        dtype = np.float64 if array.dtype.kind == "f" else np.int64
        data = torch.from_numpy(array.astype(dtype))
        return {"dtype": array.dtype.str, "levels": None, "data": data}
    items = array.ravel().tolist()
    levels = {item: i for i, item in enumerate(dict.fromkeys(items))}
    positions = torch.tensor([levels[item] for item in items], dtype=torch.int64)
    return {"dtype": array.dtype.str, "levels": list(levels), "data": positions.view(array.shape)}


def _unpack_array(cls: type, values: Values) -> np.ndarray:
    """Rebuild an array, whose type is checked against what the file holds."""
    data: np.ndarray = values["data"].numpy()
    levels = values["levels"]
    dtype = np.dtype(str(values["dtype"]))
    n_letters = sum(len(level) for level in levels or () if isinstance(level, str))
    check_kind(dtype, data.shape, levels, data.nbytes + n_letters)
    if levels is not None:
        distinct = np.asarray([*dict.fromkeys(levels)], dtype)
        data = distinct[data]
    return data.astype(dtype)


register(np.ndarray, _pack_array, _unpack_array)


def pack_estimator(obj: BaseEstimator, fitted: Collection[str]) -> Values:
    """Return the plain parameters of a fitted estimator, and those of the `fitted` attributes that it has."""
    check_is_fitted(obj)
    attributes = {name: getattr(obj, name) for name in fitted if hasattr(obj, name)}
    return {"params": plain_parameters(obj), "fitted": list(attributes), **attributes}


def unpack_estimator(cls: type, values: Values, fitted: Collection[str]) -> Any:
    """Rebuild an estimator; parameters that were not saved get their default values."""
    obj = cls(**values["params"])
    for name in set(values["fitted"]) & set(fitted):
        setattr(obj, name, values[name])
    n = values.get("n_features_in_", 1)
    names = values.get("feature_names_in_")
    check_whole("n_features_in_", n)
    if names is not None and len(names) != n:
        raise TypeError(f"it has not one name for each of {plural(n, 'feature')}")
    return obj


def pack_fields(obj: Any) -> Values:
    """Return the values of the fields of a dataclass by name."""
    return {field.name: getattr(obj, field.name) for field in fields(obj)}


def plain_parameters(estimator: BaseEstimator) -> dict[str, Any]:
    """Return the parameters that JSON can hold; others, such as estimators and networks, are left out."""
    parameters = {}
    for name, value in estimator.get_params(deep=False).items():
        if isinstance(value, np.generic):
            parameters[name] = value.item()
        elif isinstance(value, (bool, int, float, str, type(None))):
            parameters[name] = value
    return parameters
