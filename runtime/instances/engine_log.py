"""What an engine's log says: the error that came first, and how far the engine has started.

In words of vLLM where it has its own; what is not known is not guessed.
"""

import re
from collections.abc import Callable

_MOST_CHARS = 300
_SAME_TROUBLE_S = 120.0  # after its cause, an engine logs what that led to
# as vLLM begins its lines: (EngineCore pid=7) ERROR 11-26 15:33:12 [core.py:1000] ...
_PREFIX = re.compile(
    r"^(?:\([\w :-]+ pid=\d+\) ?)?(?:[A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?)?"
)
_EXCEPTION = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|OutOfMemory\w*|NotFound)\b: *\S")
_USAGE = re.compile(r"^[\w.-]+: error: \S")  # of command lines
_SAYS_NOTHING = re.compile(r"[Ss]ee root cause above|\d+ validation errors? for \w+$")
_TRACEBACK = "Traceback (most recent call last)"
_CHAINED = re.compile(r"^(?:During handling of the above exception|The above exception was)")
_VALIDATION = re.compile(r"^\s+(?:Value|Assertion) error, ")
_SHARDS = re.compile(r"checkpoint shards: +\d+% Completed \| (\d+)/(\d+)")
_PERCENT = re.compile(r"(\d{1,3})(?:\.\d+)?\s?%")
_STEPS = (
    (re.compile(r"Starting to load model|Loading model from scratch"), "reading weights"),
    (re.compile(r"Loading (?:model )?weights took|Model loading took"), "weights are read"),
    (re.compile(r"Compiling a graph|Warming up model|Capturing .*[Gg]raph"), "warming up"),
    (re.compile(r"init engine .* took|Starting vLLM (?:API )?server"), "opening its port"),
)
_READING, _ARE_READ = 0, 1


class EngineLog:
    """Owns what an engine's log says of its start; its `ServerProcess` feeds it.

    Reads a log line by line. `progress` is the share of the weights that is read, null when that
    is not what goes on; `step` is what goes on, empty if the log does not say.
    """

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """A new process writes from here on."""
        self._error = ""
        self.step = ""
        self._at = -1  # of _STEPS
        self.progress: float | None = None
        self._error_s = 0.0
        self._is_chained = False  # the next traceback is of the same error, and says more of it
        self._is_over = True  # what follows is another error
        self._is_settled = False

    @property
    def error(self) -> str:
        """The line that says what the others came from; of a start, or else of the last minutes."""
        return self._error if not self._is_settled or self._is_recent() else ""

    def settle(self) -> None:
        """It has started: errors until now ended nothing."""
        self._error, self._is_settled, self.progress = "", True, None

    def read(self, line: str) -> None:
        """The next line."""
        text = _PREFIX.sub("", line)
        if _CHAINED.match(text):
            self._is_chained = True
        elif text.startswith(_TRACEBACK):
            self._is_over = self._is_over or (bool(self._error) and not self._is_chained)
            self._is_chained = False
        elif _EXCEPTION.match(text) or _USAGE.match(text) or _VALIDATION.match(text):
            self._note_error(text.strip())
        else:
            self._note_progress(text)

    def _note_error(self, text: str) -> None:
        if _SAYS_NOTHING.search(text):
            return
        if self._error and self._is_over and self._is_recent():
            return
        self._is_over = False
        self._error, self._error_s = text[:_MOST_CHARS], self._clock()

    def _is_recent(self) -> bool:
        return self._clock() - self._error_s < _SAME_TROUBLE_S

    def _note_progress(self, text: str) -> None:
        for at, (pattern, _) in enumerate(_STEPS):
            if pattern.search(text):
                self._reach(at)
        if self._at > _READING:
            return
        if shards := _SHARDS.search(text):
            done, total = int(shards[1]), int(shards[2])
            self._note_share(done / total)
            if done < total:
                self.step = f"reading weights, file {done + 1} of {total}"
        elif percent := _PERCENT.findall(text):
            self._note_share(int(percent[-1]) / 100)

    def _note_share(self, share: float) -> None:
        if share >= 1:
            self._reach(_ARE_READ)
        else:
            self.progress = share

    def _reach(self, at: int) -> None:
        if at > self._at:
            self._at, self.step = at, _STEPS[at][1]
        if self._at > _READING:
            self.progress = None
