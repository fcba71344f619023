"""Metrics: of clusterings by trees, and of the trees themselves."""

from neonxc.evaluation.clustering import (
    agreement,
    clustering_accuracy,
    cost_ratio,
    kmeans_cost,
    surrogate_cost,
    wad,
    waes,
)

__all__ = ["agreement", "clustering_accuracy", "cost_ratio", "kmeans_cost", "surrogate_cost", "wad", "waes"]
