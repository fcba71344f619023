"""Explainers of kernel clusterings, whose tests are intervals of a column."""
