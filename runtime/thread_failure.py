"""What a process does when one of its threads fails: it logs the traceback and exits with status 1.

A process that lives on without the thread that sends or receives looks healthy and does nothing. A
process that exits is started again: a stage by its agent, others by their supervisor.
"""

import logging
import os
import sys
import threading

logger = logging.getLogger(__name__)

EXIT_STATUS = 1


def exit_when_a_thread_fails() -> None:
    """From now on an exception that no code of its thread handles ends this process."""
    threading.excepthook = _exit


def _exit(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_type is SystemExit:  # a thread that was told to end
        return
    name = "a thread that has ended" if failed.thread is None else failed.thread.name
    logger.critical(
        "the process exits: its thread %r failed: %r",
        name,
        failed.exc_value,
        exc_info=failed.exc_value,
    )
    logging.shutdown()
    sys.stderr.flush()
    os._exit(EXIT_STATUS)  # a thread that waits for the one that failed would prevent any other end
