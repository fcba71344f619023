"""A hierarchy of two-way splits: a leaf's logit is the minimum over its path."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from neonxc.detection import Detection, prototypes
from neonxc.heads.base import DetectionHead
from neonxc.pooling import take_most
from neonxc.preprocessing import Preprocessing


class HierarchyHead(DetectionHead):
    """Two-way splits down a tree: a leaf's logit is the minimum over its path.

    Parameters
    ----------
    children : sequence of (left, right)
        Splits, parents first. A child ``>= 0`` is the leaf of that column, ``-s`` the split number s.
    left, right : Tensor [S, p]
        Centers of each split's two children.
    preprocessing : Preprocessing, optional
        From raw columns to the space of the centers.
    """

    PLAIN = ("n_clusters", "children_")
    signs: Tensor

    def __init__(
        self,
        children: Sequence[tuple[int, int]],
        left: Tensor,
        right: Tensor,
        preprocessing: Preprocessing | None = None,
    ) -> None:
        preprocessing = preprocessing or Preprocessing.identity(left.shape[1])
        directions, anchors, frame = prototypes(torch.cat([left, right]), preprocessing)
        # a split's neuron is its right child's minus its left one's: positive on the left
        (d_left, d_right), (a_left, a_right) = directions.chunk(2), anchors.chunk(2)
        super().__init__(Detection(d_right - d_left, a_left + a_right, frame), len(children) + 1)
        self.children_ = [(int(a), int(b)) for a, b in children]
        self.register_buffer("signs", path_signs(self.children_))

    def pool(self, detected: Tensor) -> Tensor:
        """Logits [N, K]: the weakest evidence on each leaf's path."""
        reach = {0: torch.full_like(detected[:, 0], torch.inf)}  # minimum over the path so far
        logits = [reach[0]] * self.n_clusters
        for split, children in enumerate(self.children_):
            for child, evidence in zip(children, (detected[:, split], -detected[:, split]), strict=True):
                value = torch.minimum(reach[split], evidence)
                if child >= 0:
                    logits[child] = value
                else:
                    reach[-child] = value
        return torch.stack(logits, dim=1)

    def coefficients(
        self, detected: Tensor, target: Tensor, beta: float | Tensor, competitor: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Weights of the splits: shares of those on the target's path, with its side as their sign."""
        signs = self.signs.to(detected)[target]
        on_path = signs != 0
        if competitor is not None:  # the two part at one split, the only one whose sides they are on
            on_path &= signs * self.signs.to(detected)[competitor] < 0
        contrasts = torch.where(on_path, signs * detected, torch.inf)
        return take_most(contrasts, beta) * signs, None


def path_signs(children: Sequence[tuple[int, int]]) -> Tensor:
    """Sides [K, S] on which each leaf lies of each split: 1 left, -1 right, 0 not on its path."""
    signs = torch.zeros(len(children) + 1, len(children), dtype=torch.int8)
    below: dict[int, list[int]] = {}
    for split in range(len(children) - 1, -1, -1):  # children come after their parents
        sides = [[child] if child >= 0 else below[-child] for child in children[split]]
        below[split] = sides[0] + sides[1]
        for side, leaves in zip((1, -1), sides, strict=True):
            signs[leaves, split] = side
    return signs
