"""Sphinx settings: Markdown by MyST, the theme furo."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

project = "spark_cursor_source"
author = "The authors of spark_cursor_source"
copyright = author
release = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "reference/_*.template.md"]
html_theme = "furo"
html_title = f"cursorq {release}"
html_static_path = ["_static"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_class_signature = "separated"
napoleon_google_docstring = True
