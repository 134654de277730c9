"""Sphinx settings of the documentation: `make docs`. Nothing is fetched, no warning is let pass.

What can be told by the program itself (the REST API, command lines, the list of decisions) is
written anew into `docs/generated/` before each build.
"""

import sys
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from docs.generate import write_all  # noqa: E402 - wants the repository on the path

project = "HelixWeb"
release = version = metadata.version("helixweb")
copyright = "the HelixWeb authors"
extensions = ["myst_parser"]
exclude_patterns = ["_build", "README.md"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
nitpicky = True
html_theme = "furo"
html_title = "HelixWeb"
html_static_path = ["_static"]
html_css_files = ["docs.css"]
html_show_copyright = html_show_sphinx = False
html_copy_source = html_show_sourcelink = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b6e8c", "color-brand-content": "#0b6e8c"},
    "dark_css_variables": {"color-brand-primary": "#5cc8e6", "color-brand-content": "#5cc8e6"},
}
# Fences of what a shell shows: nothing of the lexer's guesses at errors.
highlight_language = "none"


def setup(app: object) -> None:
    """Sphinx calls this first."""
    write_all(HERE / "generated")
