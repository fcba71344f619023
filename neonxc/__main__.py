"""``python -m neonxc``, and ``torchrun -m neonxc``."""

from neonxc.cli.commands import main

main()
