"""Conversion of scikit-learn estimators and dataclasses to named values, and back, for the registry."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from neonxc.common.arguments import check_whole
from neonxc.common.registry import Values


def pack_estimator(obj: Any, fitted: Collection[str]) -> Values:
    """Return the plain parameters of a fitted estimator, and the fitted attributes that are named and exist."""
    check_is_fitted(obj)
    found = {name: getattr(obj, name) for name in fitted if hasattr(obj, name)}
    return {"params": plain_parameters(obj), "fitted": list(found), **found}


def unpack_estimator(cls: type, values: Values, fitted: Collection[str]) -> Any:
    """Rebuild an estimator; parameters that were not saved get their default values."""
    obj = cls(**values["params"])
    for name in set(values["fitted"]) & set(fitted):
        setattr(obj, name, values[name])
    n, names = values.get("n_features_in_", 1), values.get("feature_names_in_")
    check_whole("n_features_in_", n)
    if names is not None and len(names) != n:
        raise TypeError(f"it has not one name for each of {n} features")
    return obj


def pack_fields(obj: Any) -> Values:
    """Return the fields of a dataclass."""
    return {field.name: getattr(obj, field.name) for field in fields(obj)}


def plain_parameters(estimator: Any) -> dict[str, Any]:
    """Return the parameters that JSON can hold; others, such as estimators and networks, are left out."""
    plain = (bool, int, float, str, np.generic, type(None))
    given = estimator.get_params(deep=False)
    return {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in given.items()
        if isinstance(value, plain)
    }
