"""Agreement of a surrogate with the labels that it explains, on the points of its fit and on held-out ones."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from neonxc.common.numbers import percent
from neonxc.common.warnings import warn

WARNING = 0.95
RECALL = 0.5  # a warning names clusters in which less than this share of the points gets its label, ...
COUNT = 5  # ... if they have at least this number of points
HELD_OUT = 0.2  # share of the points that are held out to measure fidelity


def hashed(x: Tensor, labels: Tensor) -> Tensor:
    """Hash every labelled point [n] by its values in float32."""
    values = torch.cat([x.float() + 0.0, labels[:, None].float()], 1).view(torch.int32).long()  # -0.0 is 0.0
    generator = torch.Generator().manual_seed(0)
    factors = torch.randint(-(2**62), 2**62, (values.shape[1],), generator=generator) * 2 + 1
    return (values * factors.to(x.device)).sum(1)  # modulo 2^64


def held_out_rows(x: Tensor) -> slice:
    """The points that are held out to measure fidelity: the first ones, in the order of their hashes."""
    return slice(int(HELD_OUT * len(x)))


def share(true: Tensor, weight: Tensor | None = None) -> float:
    """Return the share of a tensor of bool that is true, of points that may have weights."""
    if weight is None:
        return float(true.double().mean())
    return float((true * weight).sum() / weight.sum())


def warn_of_labels(
    right: Tensor,
    labels: Tensor,
    classes: np.ndarray,
    which: str,
    who: str = "the surrogate",
    weight: Tensor | None = None,
) -> bool:
    """Warn if a surrogate differs from the labels, overall or in a cluster; return whether it does.

    The points may have weights.
    """
    lost = []
    for k, name in enumerate(classes):
        members = labels == k
        fraction = share(right[members], None if weight is None else weight[members])
        if int(members.sum()) >= COUNT and fraction < RECALL:
            lost.append(f", {percent(fraction)} in cluster {name}")
    fraction = share(right, weight)
    if fraction >= WARNING and not lost:
        return False
    warn(
        f"{who} gives {percent(fraction)} of {which} their label{''.join(lost[:5])}: it explains a "
        "clustering that differs from the one given",
    )
    return True
