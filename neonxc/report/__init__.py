"""A clustering in one page: what its clusters are, why, by which rules, and how far to believe it."""
