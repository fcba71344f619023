"""The head of a neuralized clustering: detection, grouping and competition."""

from neonxc.head.head import Decision, Head, Noise, bisecting_head, centroid_head, linear_head

__all__ = ["Decision", "Head", "Noise", "bisecting_head", "centroid_head", "linear_head"]
