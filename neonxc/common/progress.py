"""Progress bars of long work, and the switch that turns all of them off.

Bars appear where a person sees them move: in a terminal and in notebooks, and not in files and logs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tqdm import tqdm

DELAY = 2.0
"""Seconds before a bar appears."""
_SHOWN: ContextVar[bool] = ContextVar("progress", default=True)


@contextmanager
def progress(shown: bool) -> Iterator[None]:
    """Show or hide all progress bars of the package inside a ``with`` block.

    Parameters
    ----------
    shown : bool
        Whether progress bars are shown, in a terminal or a notebook; elsewhere there are none.

    Examples
    --------
    >>> import neonxc
    >>> from sklearn.datasets import load_iris
    >>> with neonxc.progress(False):
    ...     model = neonxc.models.KernelKMeans(3, random_state=0).fit(load_iris().data)
    """
    token = _SHOWN.set(bool(shown))
    try:
        yield
    finally:
        _SHOWN.reset(token)


def hide() -> None:
    """Hide all progress bars from this call on."""
    _SHOWN.set(False)


def are_shown() -> bool:
    """Whether progress bars are shown."""
    return _SHOWN.get()


def progress_bar(iterable: Iterable[Any] | None = None, *, disable: bool = False, **options: Any) -> tqdm[Any]:
    """Return a progress bar that appears after DELAY seconds, and vanishes at the end.

    Where stderr is neither a terminal nor shown by a notebook, it does not appear.
    """
    from tqdm.auto import tqdm  # a widget in notebooks; not needed to start the command

    is_hidden = disable or not _SHOWN.get() or not (_is_widget(tqdm) or _in_terminal())
    options = {"delay": DELAY, "leave": False} | options
    return tqdm(iterable, disable=is_hidden, **options)


def _is_widget(bar: type) -> bool:
    """Whether a class of bars, of those that tqdm chooses from, is that of notebooks."""
    return any(base.__name__ == "tqdm_notebook" for base in bar.__mro__)


def _in_terminal() -> bool:
    """Whether stderr is a terminal; programs without a console have none."""
    return sys.stderr is not None and sys.stderr.isatty()
