"""What clients made the coordinator allocate goes back to the system, also after the largest."""

import ctypes
import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

_LIBC = ctypes.CDLL(None)
# A large buffer comes and goes, then one of a client's body: how many lie outside glibc's heaps?
_PROGRAM = """
import ctypes, sys
from runtime.free_memory import bound_free_memory

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


# Bodies below the size that lies outside the heaps come and go, but one is kept at their end.
_HOLES = """
from pathlib import Path
from runtime.free_memory import bound_free_memory
from runtime.free_memory import give_back_free_memory

def resident_pages():
    return int(Path("/proc/self/statm").read_text().split()[1])

bound_free_memory()
bodies = [bytearray(b"x") * 200_000 for _ in range(200)]
kept = bodies.pop()
full = resident_pages()
del bodies
holes = resident_pages()
give_back_free_memory()
print(full - holes, holes - resident_pages())
"""


def told_by(program: str, *arguments: str) -> list[int]:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    return [int(number) for number in done.stdout.split()]


def mapped_for_a_body(how: str) -> int:
    (count,) = told_by(_PROGRAM, how)
    return count


@pytest.mark.skipif(not hasattr(_LIBC, "mallinfo2"), reason="needs glibc 2.33 or later")
def test_large_buffers_stay_outside_the_heaps_even_after_a_larger_one_was_freed() -> None:
    assert mapped_for_a_body("as it comes") == 0  # what bounding is for
    assert mapped_for_a_body("bounded") == 1


@pytest.mark.skipif(not hasattr(_LIBC, "malloc_trim"), reason="needs glibc")
def test_what_is_free_between_what_is_used_is_given_back_too() -> None:
    by_itself, when_told = told_by(_HOLES)
    assert by_itself < 1000 < 8000 < when_told  # pages, of 9766 in all
