"""The criteria of the explainers: subclasses of :class:`neonxc.trees.criterion.Criterion`, one family per file."""
