"""Fingerprints: hashes that identify a network or a set of numbers."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from torch import Tensor

from neonxc.common.registry import pack
from neonxc.network import NeuralizedClustering

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def fingerprint(net: NeuralizedClustering) -> str:
    """Return a hash of a network's structure and values, the same on every device and in every process."""
    try:
        described, tensors = pack(net)
    except TypeError:  # the class of the head is not registered
        described, tensors = {"head": plain_text(net.head)}, {}
    features = {} if net.features is None else net.features.state_dict()
    numbers = {f"features.{name}": value for name, value in features.items()} | net.state_dict() | tensors
    return hash_of([described, plain_text(net.features)], numbers)


def hash_of(described: Any, tensors: Mapping[str, Any]) -> str:
    """Return a hash of JSON values and named tensors, arrays or tables; other values are hashed by their text."""
    digest = hashlib.sha256(json.dumps(described, sort_keys=True, default=str).encode())
    for name, value in sorted(tensors.items()):
        if not isinstance(value, Tensor):
            array = value.toarray() if issparse(value) else np.asarray(value)
            if array.dtype.kind not in "biuf":
                digest.update(f"{name} {plain_text(array.tolist())}".encode())
                continue
            value = torch.as_tensor(array.astype(array.dtype.newbyteorder("="), order="C"))
        digest.update(f"{name} {value.dtype} {list(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def plain_text(value: Any) -> str:
    """Return the text of an object without memory addresses, which differ between processes."""
    return _ADDRESS.sub("", repr(value))
