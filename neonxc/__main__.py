"""``python -m neonxc``."""

from neonxc.cli.commands import main

main()
