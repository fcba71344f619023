"""The columns of a node, the cuts in them, and the sums over the points left of a cut."""
