"""A linear clustering head with a softmax, as deep clustering trains it."""

from __future__ import annotations

import torch
from torch import Tensor

from neonxc.detection import Detection, Frame
from neonxc.heads.base import DetectionHead
from neonxc.pooling import competitor_weights, logits


class LinearHead(DetectionHead):
    """The greatest of some linear functions, or a softmax of them beyond a threshold.

    Parameters
    ----------
    weight : Tensor [K, d]
    bias : Tensor [K], optional
    threshold : float, optional
        Explain ``p_c > threshold`` instead of ``p_c > p_k`` for all k.

    Notes
    -----
    NEON paper, Prop. 6 (``f_c = log p_c / max_k p_k``) and Prop. 7 (``f_c`` is the log odds of p_c over those of
    the threshold). On raw columns a contrast is counted from the point nearest to zero at which it vanishes;
    behind a feature network the standard linear rule is the default, which counts from zero.
    """

    PLAIN = ("n_clusters", "threshold")

    def __init__(self, weight: Tensor, bias: Tensor | None = None, threshold: float | None = None) -> None:
        zero = weight.new_zeros(weight.shape[1])
        bias = weight.new_zeros(len(weight)) if bias is None else bias
        frame = Frame(root=zero, origin=zero.clone(), diagonal=True)
        super().__init__(Detection(weight, torch.zeros_like(weight), frame, -bias), len(weight))
        self.threshold = threshold

    def assign(self, x: Tensor) -> Tensor:
        """Column [N] of the cluster with the greatest output."""
        return self.detection(x).argmin(dim=1)

    def pool(self, detected: Tensor) -> Tensor:
        """Logits [N, K]."""
        return logits(detected, self.threshold)

    def coefficients(
        self, detected: Tensor, target: Tensor, beta: float | Tensor, competitor: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Weights of the linear functions: the competitors' shares, and minus their sum at the target."""
        return competitor_weights(detected, target, beta, competitor, self.threshold), None

    def relevance(
        self, x: Tensor, target: Tensor, beta: float | Tensor, competitor: Tensor | None = None
    ) -> Tensor:
        """Relevance [N, d]: each contrast counted from its zero nearest to the origin."""
        detected = self.detection(x)
        weights, _ = self.coefficients(detected, target, beta, competitor)
        directions, bias = self.detection.directions.to(detected), self.detection.bias.to(detected)
        # sum_k s_k b_k / |w_k|^2 w_k * w_k over contrasts w_k = D_k - D_c, b_k: no pair is laid out over d
        mode = "donot_use_mm_for_euclid_dist"  # the other one cancels
        apart = torch.cdist(directions, directions, compute_mode=mode).square()[target]
        share = torch.where(apart > 0, weights * (bias - bias[target][:, None]) / apart, 0.0)
        own = directions[target]
        squares = share @ directions.square() - 2 * own * (share @ directions)
        squares = squares + share.sum(1, keepdim=True) * own.square()
        return self.detection.relevance(x, weights) + squares
