"""One server process: started in a session of its own, its output kept, ended with its children.

It does not see all of this process's environment: there may be the keys of other servers, a
database's password, a join token. What programs need to find themselves, their devices and their
caches goes by name; what looks like a secret is not passed on under any prefix. A file may name
more (`pass_environment`).
"""

import asyncio
import contextlib
import json
import logging
import os
import re
import time
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import psutil

from runtime.instances.command_lines import Launch
from runtime.instances.engine_log import EngineLog
from runtime.platforms import kill_session
from runtime.process_log import ProcessLog
from runtime.protocol.secrets_out import without_secrets
from runtime.tasks import cancel

_NAMES = frozenset(
    {
        "CURL_CA_BUNDLE",
        "HOME",
        "LANG",
        "LANGUAGE",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",  # allocators
        "LOGNAME",
        "PATH",
        "REQUESTS_CA_BUNDLE",
        "SHELL",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
        "TMPDIR",
        "TZ",
        "USER",
        "VIRTUAL_ENV",
    }
)
_PREFIXES = (
    "CONDA_", "CUBLAS_", "CUDA_", "CUDNN_", "FLASHINFER_", "GLOO_", "GOMP_", "HF_", "HIP_", "HSA_",
    "HUGGINGFACE_", "KMP_", "LC_", "MKL_", "NCCL_", "NVIDIA_", "OMP_", "OPENBLAS_", "PYTHON",
    "PYTORCH_", "RAY_", "ROCM_", "ROCR_", "TOKENIZERS_", "TORCH", "TRANSFORMERS_", "TRITON_",
    "UCX_", "VLLM_", "XDG_",
)  # fmt: skip
_SECRET = re.compile(r"(?:^|_)(?:API_?KEYS?|KEY|TOKENS?|SECRETS?|PASS(?:WORD|WD)?|CREDENTIALS?)$")
_MOST_TAIL_CHARS = 1500
_CHUNK_BYTES = 1 << 16
_LINE_END = re.compile(rb"[\r\n]+")  # bars of progress end in \r
_LEAVING_S = 10.0
_LOOK_S = 0.1
_LAST_WORDS_S = 1.0
logger = logging.getLogger(__name__)


def passed_on(environment: Mapping[str, str], *, also: Collection[str] = ()) -> dict[str, str]:
    """The part of `environment` that a server gets; `also` are names that a file asks for."""
    return {
        name: value
        for name, value in environment.items()
        if name in also or (_is_of_use(name) and not _SECRET.search(name))
    }


def _is_of_use(name: str) -> bool:
    return name in _NAMES or name.startswith(_PREFIXES)


class ServerProcess:
    """Owns one server process; a `SupervisedInstance` starts and ends it.

    At most one process at a time, whose log is `directory`/NAME.log; `on_line` hears its lines.

    Its id is kept in `directory`, so that what an earlier life of this process left running is
    ended before another is started: it would hold the port and the GPUs.
    """

    def __init__(
        self,
        directory: Path,
        *,
        name: str,
        on_line: Callable[[str], None] = lambda line: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._id_file = directory / f"{name}.pid"
        self.said = EngineLog(clock=clock)
        self._on_line = on_line
        self.log_path = directory / f"{name}.log"
        self._log = ProcessLog(self.log_path, on_line=self._read)
        self._process: Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._ended: str | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._ended is None

    @property
    def last_words(self) -> str:
        """The end of its log, without secrets."""
        return without_secrets("\n".join(self._log.tail).strip())[-_MOST_TAIL_CHARS:]

    @property
    def first_error(self) -> str:
        """The error in its log that the others came from, without secrets; empty if there is
        none."""
        return without_secrets(self.said.error)

    def take_end(self) -> str | None:
        """How it ended, once; None if it runs, or this was returned already."""
        ended = self._ended
        if ended is not None:
            self._process = self._reading = self._ended = None
        return ended

    async def start(self, launch: Launch) -> None:
        """Start it; that it cannot be shows as its end."""
        await self.end_left_over()
        self.said.begin()
        self._log.begin(" ".join(launch.argv))
        try:
            self._process = await asyncio.create_subprocess_exec(
                *launch.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=PIPE,
                stderr=STDOUT,
                env={
                    **launch.defaults,
                    **passed_on(os.environ, also=launch.passes),
                    **launch.environment,
                },
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            self._ended = f"{launch.argv[0]!r} cannot be started: {error}; is it installed here?"
            return
        logger.info("instance %s: started process %d", self._name, self._process.pid)
        self._reading = asyncio.create_task(self._follow(self._process))
        self._remember(self._process.pid)

    async def end_left_over(self) -> None:
        """End what an earlier life of this process started under this name and left running."""
        await asyncio.to_thread(self._end_left_over)

    def terminate(self) -> None:
        """Ask it to end."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()

    def kill(self) -> None:
        """End it and all that it started."""
        if self._process is not None and self._ended is None:
            kill_session(self._process.pid)

    async def gone(self) -> None:
        """Return when it has ended; at once if there is none."""
        if self._reading is not None:
            await asyncio.wait({self._reading})

    def _read(self, line: str) -> None:
        self.said.read(line)
        self._on_line(line)

    async def _follow(self, process: Process) -> None:
        stream = process.stdout
        if stream is None:
            raise RuntimeError("the instance was started without a pipe to its output")
        keeping = asyncio.create_task(self._keep(stream))
        try:
            code = await _exit_code(process)
            kill_session(process.pid)  # children that outlive it would keep the GPUs
            # One in a session of its own may hold the output still; that is not awaited.
            await asyncio.wait({keeping}, timeout=_LAST_WORDS_S)
        finally:
            await cancel(keeping)
        with contextlib.suppress(OSError):  # its number says when it was born
            self._id_file.unlink(missing_ok=True)
        self._ended = f"killed by signal {-code}" if code < 0 else f"exited with status {code}"
        logger.info("instance %s: process %d %s", self._name, process.pid, self._ended)

    async def _keep(self, output: asyncio.StreamReader) -> None:
        """Its lines, until the last writer has closed the output."""
        rest = b""
        while chunk := await output.read(_CHUNK_BYTES):
            *lines, rest = _LINE_END.split(rest + chunk)
            if len(rest) > _CHUNK_BYTES:
                lines, rest = [*lines, rest], b""
            for line in lines:
                self._log.append(line + b"\n")
        if rest:
            self._log.append(rest + b"\n")

    def _remember(self, pid: int) -> None:
        try:
            born = psutil.Process(pid).create_time()
            self._id_file.write_text(json.dumps({"pid": pid, "born": born}), encoding="utf-8")
        except psutil.Error:
            return  # it has ended already
        except OSError as error:  # a full disk ends no server
            logger.warning(
                "instance %s: its process id cannot be kept, so that it would outlive a kill of "
                "this process: %s", self._name, error,
            )  # fmt: skip

    def _end_left_over(self) -> None:
        try:
            left = json.loads(self._id_file.read_text(encoding="utf-8"))
            process = psutil.Process(int(left["pid"]))
            if process.create_time() != left["born"]:
                return  # the number is another's by now
        except (OSError, ValueError, KeyError, TypeError, psutil.Error):
            return
        logger.warning("instance %s: process %d is left over; ended", self._name, process.pid)
        kill_session(process.pid)
        with contextlib.suppress(psutil.Error):
            process.wait(timeout=_LEAVING_S)


async def _exit_code(process: Process) -> int:
    """Once the process itself has ended; its children may hold its output still, for the end of
    which `Process.wait` waits in some versions of Python."""
    while process.returncode is None:  # noqa: ASYNC110 - nothing tells of it
        await asyncio.sleep(_LOOK_S)
    return process.returncode
