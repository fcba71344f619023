"""Benchmarks: commands that print, and save as JSON, the figures that the documentation quotes."""

import os

# Idle OpenMP threads of one library (torch, scikit-learn) must not spin while another library works. The variable
# must be set before the first of them is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
