"""Explainers that separate centers, and explainers that grow best first."""
