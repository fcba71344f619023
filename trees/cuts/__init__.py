"""Codes of columns, the cuts in them, the sums left of a cut, the search for the best one, and growth."""
