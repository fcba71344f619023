"""Description of the machine for the reports of the examples."""

from __future__ import annotations

import os
import platform
from typing import Any

import torch


def machine() -> dict[str, Any]:
    """Return the load, the processor, and the version and threads of torch."""
    return {
        "load (1, 5, 15 min)": [round(load, 2) for load in os.getloadavg()],
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        "torch": torch.__version__,
        "torch threads": torch.get_num_threads(),
    }
