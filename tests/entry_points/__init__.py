"""Every public function that takes tensors, called on a few points.

`test_far_device.py` does so on other devices, with networks that were saved, and compares recorded answers.

An entry is a function of `at`, which moves a tensor or a module to the device in question (`at.device`), and gives
back all that is worth comparing. Tensors among it have to be on that device.
"""

from . import clusterings, elsewhere, evaluation, networks, results, trees  # noqa: F401  # each adds its entries
from .table import ENTRIES, Entry

__all__ = ["ENTRIES", "Entry"]
