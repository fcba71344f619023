"""Concepts: the directions of a layer of the feature network on which the relevance of a cluster lies."""
