"""Scripts that rerun the experiments of papers: their tables and figures."""
