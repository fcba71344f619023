"""Sphinx configuration: `sphinx-build -W --keep-going docs docs/_build/html`."""

import inspect
import logging
import os

from neonxc import __version__ as release

project = "neonxc"
author = "the neonxc developers"
project_copyright = f"2026, {author}"
version = ".".join(release.split(".")[:2])

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_design",
    "numpydoc",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

nb_execution_mode = "force"  # the notebooks are kept without outputs
nb_execution_in_temp = True  # what they write does not stay in the checkout
nb_execution_raise_on_error = True
nb_execution_timeout = 300  # seconds for a cell, which takes at most twenty on two cores
nb_render_markdown_format = "myst"  # with tables
nb_merge_streams = True  # what a loop prints is one output
logging.getLogger("traitlets").setLevel(logging.WARNING)  # the build is quiet if it is told to be
nb_output_stderr = "remove"  # progress bars, where a machine is slow
os.environ["PYTHONWARNINGS"] = "error::UserWarning:__main__"  # a notebook that warns fails, as it would not show

autodoc_typehints = "none"  # the docstrings state the types
autosummary_generate = True
numpydoc_show_class_members = False  # _templates/autosummary/class.rst lists them

html_theme = "furo"
html_title = f"neonxc {release}"
html_static_path = ["_static"]
html_css_files = ["neonxc.css"]


def documented_members(module: str, name: str) -> dict[str, list[str]]:
    """Public methods and properties of a class that this package defines, not those of PyTorch or captum."""
    cls = __import__(module, fromlist=[name])
    for part in name.split("."):
        cls = getattr(cls, part)
    found: dict[str, list[str]] = {"methods": [], "attributes": []}
    for base in cls.__mro__:
        for member, value in vars(base).items() if base.__module__.startswith("neonxc") else ():
            kind = "attributes" if isinstance(value, property) else "methods"
            documented = inspect.getdoc(getattr(cls, member)) if callable(value) or _is_descriptor(value) else None
            if not member.startswith("_") and documented and member not in found[kind]:
                found[kind].append(member)
    return found


def _is_descriptor(value: object) -> bool:
    return isinstance(value, (property, classmethod, staticmethod))


autosummary_context = {"documented_members": documented_members}
suppress_warnings = ["config.cache"]  # the function above cannot be pickled with the other settings
