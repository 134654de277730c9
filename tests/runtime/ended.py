"""Whether a process has ended, whoever is to collect what is left of it."""

import psutil


def has_ended(process: psutil.Process | int) -> bool:
    """Also where nobody has asked yet how it ended; a process may end between two questions."""
    try:
        known = psutil.Process(process) if isinstance(process, int) else process
        return not known.is_running() or known.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
