"""Graphs on points, and the SpEx explainers that cut them."""

from neonxc.trees.graph.graph import Graph, as_graph, knn_graph

__all__ = ["Graph", "as_graph", "knn_graph"]
