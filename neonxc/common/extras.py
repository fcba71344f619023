"""The command that installs optional packages."""

from __future__ import annotations


def installed_by(*extras: str) -> str:
    """Return the command that installs extras of this package, for an error about a package that is missing.

    There is no release yet, so that they are installed from a checkout. Docstrings and the documentation write the
    same command, which a test compares.

    Parameters
    ----------
    *extras : str
        Names in ``pyproject.toml``.

    Examples
    --------
    >>> from neonxc.common.extras import installed_by
    >>> print(installed_by("vision", "text"))
    in a checkout, pip install -e ".[vision,text]"
    """
    names = ",".join(extras)
    return f'in a checkout, pip install -e ".[{names}]"'
