"""Sphinx configuration: `sphinx-build -W --keep-going -b html docs docs/_build/html`."""

from neonxc import __version__ as release

project = "neonxc"
author = "the neonxc developers"
project_copyright = f"2026, {author}"
version = ".".join(release.split(".")[:2])

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
]
exclude_patterns = ["_build"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # types stand in the docstrings
numpydoc_show_class_members = False

html_theme = "furo"
html_title = f"neonxc {release}"
