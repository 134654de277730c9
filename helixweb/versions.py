"""Which HelixWeb this is."""

from importlib import metadata


def product_version() -> str:
    """As the installed package says; "unknown" in a checkout that was never installed."""
    try:
        return metadata.version("helixweb")
    except metadata.PackageNotFoundError:
        return "unknown"
