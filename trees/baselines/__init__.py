"""Explainers for comparison: CUBT, CLTree, random thresholds, and the trade-off between several trees."""
