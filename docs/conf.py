"""Settings of the documentation's site; `make docs` builds it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "diskhop"
author = "The diskhop authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "extensions.site"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "diskhop"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
highlight_language = "none"
myst_heading_anchors = 4
# Signatures: one argument per line where they are long. Shapes and units are in the text, types in the source.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
maximum_signature_line_length = 100
