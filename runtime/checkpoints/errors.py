"""The error of a checkpoint that cannot be used."""


class CheckpointError(Exception):
    """A checkpoint we cannot run; the message names the file, the value and the remedy."""
