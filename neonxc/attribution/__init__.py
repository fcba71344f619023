"""NEON: the relevance of inputs for cluster decisions, and what is made of it."""
