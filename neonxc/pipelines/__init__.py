"""Pipelines of scikit-learn as an encoding of the table, followed by one affine map."""
