"""The criteria of the explainers, one family per file."""
