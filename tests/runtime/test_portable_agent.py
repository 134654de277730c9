"""Agents and their stages run where there is no POSIX: the code is held to it, and made to act so.

This machine is Linux: what Windows and macOS do beyond that was not run.
"""

import ast
import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from ended import has_ended
from fake_web import PATIENCE_S, wait_until

from runtime.platforms import kill_session

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = ("runtime.agent.main", "runtime.agent.join", "runtime.engine.main", "runtime.__main__")
# The one place for what differs, and what looks whether the kernel offers it before it is used.
APART = {
    "runtime/platforms.py",
    "runtime/agent/service.py",  # systemd, if it runs
    "runtime/engine/core_use.py",  # /proc, if it is there
    "runtime/models/free_memory.py",  # /sys/fs/cgroup, if it can be read
}
POSIX_MODULES = {
    "crypt", "fcntl", "grp", "nis", "posix", "pty", "pwd", "resource", "spwd", "syslog", "termios",
    "tty",
}  # fmt: skip
POSIX_NAMES = {
    "os": {
        "chown", "fchown", "fork", "forkpty", "geteuid", "getegid", "getgid", "getpgid", "getuid",
        "kill", "killpg", "lchown", "mkfifo", "nice", "posix_spawn", "preadv", "pwritev",
        "sched_getaffinity", "sched_setaffinity", "setpgid", "setpriority", "setsid", "setuid",
        "sysconf", "uname", "wait", "waitpid",
    },
    "signal": {
        "SIGALRM", "SIGCHLD", "SIGHUP", "SIGKILL", "SIGQUIT", "SIGSTOP", "SIGUSR1", "SIGUSR2",
        "alarm", "pthread_kill", "pthread_sigmask", "setitimer", "sigwait",
    },
    "socket": {"AF_UNIX", "SO_REUSEPORT"},
}  # fmt: skip
POSIX_METHODS = {"add_signal_handler", "remove_signal_handler"}
POSIX_ARGUMENTS = {"preexec_fn", "pass_fds"}
POSIX_FOLDERS = ("/proc/", "/sys/", "/dev/", "/tmp/", "/etc/", "/var/")


def source_of(module: str) -> Path | None:
    base = ROOT.joinpath(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


def modules_of(tree: ast.AST, package: str) -> Iterator[str]:
    """What is imported anywhere in the file, at its top or within functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def reached() -> dict[str, ast.Module]:
    """Our files that an agent or a stage may come to load, by their paths."""
    found: dict[str, ast.Module] = {}
    waiting = list(ENTRIES)
    while waiting:
        module = waiting.pop()
        path = source_of(module)
        if path is None or module.split(".")[0] not in ("runtime", "planner"):
            continue
        name = path.relative_to(ROOT).as_posix()
        if name in found:
            continue
        found[name] = ast.parse(path.read_text())
        waiting += modules_of(found[name], module)
        waiting.append(module.rpartition(".")[0])
    return found


def beside_guards(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that run only after `sys.platform` was looked at."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and "sys.platform" in ast.unparse(child.test):
            continue
        yield from beside_guards(child)


def posix_of(tree: ast.Module) -> Iterator[str]:
    """What of the file is POSIX only."""
    for module in modules_of(tree, ""):
        if module in POSIX_MODULES:
            yield f"imports {module}"
    for node in beside_guards(tree):
        line = f"line {getattr(node, 'lineno', '?')}"
        if isinstance(node, ast.Attribute):
            of = node.value.id if isinstance(node.value, ast.Name) else ""
            if node.attr in POSIX_METHODS or node.attr in POSIX_NAMES.get(of, ()):
                yield f"{line}: {of}.{node.attr}"
        elif isinstance(node, ast.keyword) and node.arg in POSIX_ARGUMENTS:
            yield f"{line}: {node.arg}="
        elif isinstance(node, ast.Constant) and str(node.value).startswith(POSIX_FOLDERS):
            yield f"{line}: {node.value!r}"


def test_what_an_agent_loads_keeps_to_what_all_systems_have() -> None:
    files = reached()
    assert {"runtime/agent/agent.py", "runtime/engine/stage.py", *APART} <= files.keys()
    faults = {
        name: found
        for name, tree in files.items()
        if name not in APART and (found := list(posix_of(tree)))
    }
    assert not faults


@pytest.mark.parametrize(
    "text",
    [
        "import fcntl", "def f():\n    import pwd", "import os\nos.fork()",
        "from signal import SIGKILL\nimport signal\nsignal.SIGKILL",
        "loop.add_signal_handler(15, stop)", "Popen(x, preexec_fn=f)", "Path('/proc/stat')",
    ],
)  # fmt: skip
def test_the_look_sees_what_is_posix_only(text: str) -> None:
    assert list(posix_of(ast.parse(text)))


WITHOUT_POSIX = """
import asyncio, os, signal, sys
import psutil, uvicorn, zmq  # these know the system they are on by themselves
for name in ("crypt", "grp", "pwd", "resource", "termios", "pty", "tty", "syslog"):
    sys.modules[name] = None
for name in ("fork", "killpg", "setsid", "getuid", "geteuid", "sched_getaffinity"):
    delattr(os, name)
for name in ("SIGHUP", "SIGUSR1", "SIGALRM"):
    delattr(signal, name)
def refuse(self, *arguments):
    raise NotImplementedError
asyncio.unix_events._UnixSelectorEventLoop.add_signal_handler = refuse
"""


@pytest.mark.processes
def test_an_agent_starts_and_ends_by_signal_without_posix(tmp_path: Path) -> None:
    """Nobody answers at its server, so it waits to join; SIGTERM ends it as its own end."""
    program = WITHOUT_POSIX + (
        "from runtime.agent.main import main\n"
        "import pathlib, threading, time\n"
        f"data_dir = {str(tmp_path / 'agent')!r}\n"
        "def end():\n"
        "    while not pathlib.Path(data_dir, 'identity.json').exists():\n"
        "        time.sleep(0.02)\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "threading.Thread(target=end, daemon=True).start()\n"
        "sys.exit(main(['--server', 'http://127.0.0.1:9', '--token', 'hlxj_x', '--name', 'box',\n"
        "    '--data-dir', data_dir]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "agent" / "identity.json").exists()


@pytest.mark.processes
def test_without_sessions_a_process_is_ended_with_what_descends_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sleeps = "import time; time.sleep(600)"
    starts = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {sleeps!r}])"

    async def run() -> None:
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", starts)
        known = psutil.Process(process.pid)
        await asyncio.to_thread(wait_until, known.children, what="the process has a child")
        children = known.children()
        monkeypatch.delattr("os.killpg")
        await asyncio.to_thread(kill_session, process.pid)
        await process.wait()
        await asyncio.to_thread(
            wait_until, lambda: all(map(has_ended, children)), what="its child went, too"
        )

    asyncio.run(asyncio.wait_for(run(), 2 * PATIENCE_S))
