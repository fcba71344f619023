"""Saving and loading of a fitted SCAN."""

from __future__ import annotations

import torch
from torch import nn

from neonxc.common.estimators import pack_estimator, unpack_estimator
from neonxc.common.registry import Values, can_pack, register

from .estimator import SCAN

FITTED = ("labels_", "losses_", "history_", "neighbors_", "image_shape_", "embedding_")


def _pack(obj: SCAN) -> Values:
    values = pack_estimator(obj, FITTED)
    if not can_pack(obj.embedding_):
        raise TypeError(
            "can't save a SCAN with a custom backbone; save the network that neonxc.neuralize returns for it, and "
            "load that with neonxc.load(path, features=scan.embedding_)"
        )
    return values | {"weight": obj.cluster_head_.weight, "bias": obj.cluster_head_.bias}


def _unpack(cls: type[SCAN], values: Values) -> SCAN:
    obj = unpack_estimator(cls, values, FITTED)
    obj._check()
    obj.cluster_head_ = nn.Linear(*values["weight"].shape[::-1])
    obj.cluster_head_.load_state_dict({name: values[name] for name in ("weight", "bias")}, assign=True)
    obj.embedding_.eval()
    obj.image_shape_ = tuple(obj.image_shape_)
    obj.predict(torch.zeros(1, *obj.image_shape_))  # fails now if the stored tensors are inconsistent
    return obj


register(SCAN, _pack, _unpack)
