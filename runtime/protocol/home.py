"""The home folder of the user who runs a program."""

from pathlib import Path


def home_folder() -> Path:
    """The root folder for a user id without a home, as containers may have."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")
