"""The fitted tree: its nodes, predictions, and conversion to scikit-learn."""
