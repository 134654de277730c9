"""What clients made the coordinator allocate goes back to the system, also after the largest."""

import ctypes
import subprocess
import sys

import pytest

_LIBC = ctypes.CDLL(None)
# A large buffer comes and goes, then one of a client's body: how many lie outside glibc's heaps?
_PROGRAM = """
import ctypes, sys
from runtime.coordinator.heap import bound_free_memory

class Told(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd",
        "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Told
if sys.argv[1] == "bounded":
    bound_free_memory()
large = bytes(30 * 2**20)
del large
before = libc.mallinfo2().hblks
body = bytes(2**20)
print(libc.mallinfo2().hblks - before)
"""


def mapped_for_a_body(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, how], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(not hasattr(_LIBC, "mallinfo2"), reason="needs glibc 2.33 or later")
def test_large_buffers_stay_outside_the_heaps_even_after_a_larger_one_was_freed() -> None:
    assert mapped_for_a_body("as it comes") == 0  # what bounding is for
    assert mapped_for_a_body("bounded") == 1
