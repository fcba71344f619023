"""Agreement of a surrogate with the labels that it explains, on the points of its fit and on held-out ones."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from neonxc.common.cluster_names import cluster_text
from neonxc.common.numbers import percent
from neonxc.common.warnings import warn

WARNING = 0.95
RECALL = 0.5  # a warning names clusters in which less than this fraction of the points gets its label, ...
COUNT = 5  # ... if they have at least this number of points
HELD_OUT = 0.2  # fraction of the points that are held out to measure fidelity


def hashed(x: Tensor, labels: Tensor) -> Tensor:
    """Hash every labelled point [n] by its values in float32."""
    # adding 0.0 makes -0.0 and 0.0 the same bits
    values = torch.cat([x.float() + 0.0, labels[:, None].float()], 1)
    bits = values.view(torch.int32).long()
    generator = torch.Generator().manual_seed(0)
    factors = torch.randint(-(2**62), 2**62, (bits.shape[1],), generator=generator) * 2 + 1
    return (bits * factors.to(x.device)).sum(1)  # modulo 2^64


def held_out_rows(x: Tensor) -> slice:
    """Return the points that are held out to measure fidelity: the first ones, in the order of their hashes."""
    return slice(int(HELD_OUT * len(x)))


def fraction_of(is_true: Tensor, weight: Tensor | None = None) -> float:
    """Return the fraction of a tensor of bool that is true, of points that may have weights."""
    if weight is None:
        return float(is_true.double().mean())
    return float((is_true * weight).sum() / weight.sum())


def warn_of_labels(
    is_correct: Tensor,
    labels: Tensor,
    classes: np.ndarray,
    name: str,
    model_name: str = "the surrogate",
    weight: Tensor | None = None,
) -> bool:
    """Warn if a model differs from the labels, overall or in a cluster; return whether it does.

    Parameters
    ----------
    is_correct : Tensor [n] of bool
        Whether points get their label.
    labels : Tensor [n]
        Positions of their labels among the `classes`.
    classes : ndarray [K]
    name, model_name : str
        What the warning calls the points, and the model.
    weight : Tensor [n], optional
        Weights of the points.
    """
    lost = []
    for cluster, label in enumerate(classes):
        members = labels == cluster
        member_weight = None if weight is None else weight[members]
        fraction = fraction_of(is_correct[members], member_weight)
        if int(members.sum()) >= COUNT and fraction < RECALL:
            lost.append(f", {percent(fraction)} in {cluster_text(label)}")
    fraction = fraction_of(is_correct, weight)
    if fraction >= WARNING and not lost:
        return False
    warn(
        f"{model_name} gives {percent(fraction)} of {name} their label{''.join(lost[:5])}: it explains a "
        "clustering that differs from the one given",
    )
    return True
