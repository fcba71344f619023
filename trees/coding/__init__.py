"""Codes of the columns of a table: ranks of values, bins, entries of sparse columns, and exact sums."""
