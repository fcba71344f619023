"""Graphs on points, and the SpEx explainers that cut them."""
