"""Sphinx: the pages of this folder as a site; ``make docs`` builds it, warnings are errors."""

project = "briquette"
copyright = "The briquette developers"  # Sphinx's name for it
html_theme = "furo"
html_title = "briquette"
extensions = ["myst_parser"]
exclude_patterns = ["_build"]
myst_heading_anchors = 4
# grammar of C++ and of diffs is not checked by the highlighter: pages show parts of files
suppress_warnings = ["misc.highlighting_failure"]
