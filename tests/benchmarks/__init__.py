"""Benchmarks: commands that print, and save as JSON, the figures that the documentation quotes."""
