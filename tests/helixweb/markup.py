"""The markup of pages without the whitespace that depends on how templates are indented."""

import re


def tight(html: str) -> str:
    """Collapse whitespace, and remove it beside tags."""
    return re.sub(r" ?(<[^<>]*>) ?", r"\1", " ".join(html.split()))
