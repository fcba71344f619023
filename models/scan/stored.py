"""How a fitted SCAN is stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import nn

from neonxc.parameters import plain_parameters
from neonxc.registry import can_pack, register

from .estimator import SCAN


def _pack(obj: SCAN) -> dict[str, Any]:
    check_is_fitted(obj)
    if not can_pack(obj.embedding_):
        raise TypeError(
            "can't save a SCAN whose backbone is a network of your own; save the network that neonxc.neuralize "
            "makes of it, which neonxc.load takes back with features=scan.embedding_"
        )
    return {
        "params": plain_parameters(obj),
        "image_shape": list(obj.image_shape_),
        "losses": obj.losses_.tolist(),
        "history": obj.history_,
        "embedding": obj.embedding_,
        "labels": torch.from_numpy(obj.labels_),
        "neighbors": torch.from_numpy(obj.neighbors_),
        "weight": obj.cluster_head_.weight,
        "bias": obj.cluster_head_.bias,
    }


def _unpack(cls: type[SCAN], values: dict[str, Any]) -> SCAN:
    obj = cls(**values["params"])
    obj._check()
    K, d = values["weight"].shape
    obj.cluster_head_ = nn.Linear(d, K)
    obj.cluster_head_.load_state_dict({name: values[name] for name in ("weight", "bias")}, assign=True)
    obj.embedding_ = values["embedding"].eval()
    obj.image_shape_, obj.history_ = tuple(values["image_shape"]), values["history"]
    obj.losses_ = np.array(values["losses"])
    obj.labels_, obj.neighbors_ = values["labels"].numpy(), values["neighbors"].numpy()
    obj.predict(torch.zeros(1, *obj.image_shape_))  # what does not fit together shows now
    return obj


register(SCAN, _pack, _unpack)
