"""``python -m neonxc``, and ``torchrun -m neonxc``."""

from neonxc.cli import main

main()
