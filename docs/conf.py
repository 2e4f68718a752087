"""How Sphinx builds the manual; `nox -s docs` does it with warnings as errors."""

from __future__ import annotations

from respool._version import __version__

project = "respool"
author = "The respool authors"
copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "numpydoc",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
root_doc = "index"
nitpicky = False

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "undoc-members": False}
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
autosummary_generate = False  # numpydoc loads it; nothing here uses it
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

html_theme = "furo"
html_title = f"respool {release}"
html_show_copyright = False
