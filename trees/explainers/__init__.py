"""The explainers: those that separate centers, grow best first or cut graphs, of kernels, and baselines."""
