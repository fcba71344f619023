"""Threshold-tree explainers: a whole clustering as a few readable rules. None is released yet."""

__all__: list[str] = []
