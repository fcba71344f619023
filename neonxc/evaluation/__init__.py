"""Metrics: of clusterings by trees, and of the trees themselves."""

from neonxc.evaluation.clustering import agreement, cost_ratio, kmeans_cost, surrogate_cost, wad, waes

__all__ = ["agreement", "cost_ratio", "kmeans_cost", "surrogate_cost", "wad", "waes"]
