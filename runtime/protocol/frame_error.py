"""What is raised for frames of every kind."""


class FrameError(ValueError):
    """A frame that is not ours, cut short, or contradicts itself."""
