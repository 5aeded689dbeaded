"""The guardian of one worker: contains it, reports how it ended, and cleans up all of its processes.

It is started as `python -I -S guardian.py SETTINGS` (JSON, see `measure.containment`) before any kernel code
runs. It imports only the standard library, so that it starts fast and stays small. It does not see the
messages between harness and worker.

With namespaces, the worker and its descendants live in their own PID namespace: they cannot see or signal
anything outside, they have no network, and killing the namespace's init process kills all of them at once.
Without namespaces, orphaned processes become children of the guardian, which kills them.

It kills the worker when the harness asks for it, when the harness is gone, when the worker's processes exceed
the memory or task limit, and when a kernel has stopped the harness. To the verdict pipe it writes one line
`contained WORD...`, and one for the end: `exit CODE`, `signal NUMBER`, `memory BYTES`, `processes COUNT` or
`stopped`.
"""

# ruff: noqa: PTH208 - no pathlib: importing it takes longer than all the rest.
from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from contextlib import suppress
from typing import Any, NoReturn

CONTAINED = "TILE_ORACLE_CONTAINED"
"""Environment variable of a worker that cannot see or signal outside processes."""

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 1, 4, 36
_NEW_NS, _NEW_IPC, _NEW_USER, _NEW_PID, _NEW_NET = 0x20000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
_MS_NOSUID_NODEV_NOEXEC, _MS_REC_SLAVE = 2 | 4 | 8, 0x4000 | 0x80000
_MS_BIND, _MS_REMOUNT_BIND_RDONLY = 0x1000, 0x20 | 0x1000 | 1
_TICK_MS = 200
_ENDS_WITHIN_S = 30.0
"""Time for the worker to note that it is not to blame, and to end, after the harness is gone."""
_DIES_WITHIN_S = 50.0
_LIBC = ctypes.CDLL(None, use_errno=True)


def _prctl(what: int, value: int) -> None:
    _LIBC.prctl(what, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))


def _call(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Guardian:
    """One worker's guardian."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._settings = settings
        self._control: int = settings["control"]
        self._verdict: int = settings["verdict"]
        self._harness = os.getppid()
        self._contained: list[str] = []
        self._child = 0
        self._ending = -1
        """Pipe on which the namespace's init process reports how the worker ended; -1 without namespaces."""
        self._stopped_since: float | None = None
        self._said = False

    def run(self) -> None:
        for fd in (self._control, self._verdict):
            os.set_inheritable(fd, False)
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        if self._settings["namespaces"]:
            self._unshare()
        self._start()
        for fd in self._settings["keep"]:
            os.close(fd)
        self._say("contained " + " ".join(self._contained))
        with suppress(ValueError, OSError):
            self._watch()
        self._end_all()

    def _say(self, line: str) -> None:
        with suppress(OSError):
            os.write(self._verdict, line.encode() + b"\n")

    def _say_end(self, line: str) -> None:
        """Reports the first cause; later calls do nothing."""
        if not self._said:
            self._said = True
            self._say(line)

    # ---- containment ------------------------------------------------------------------------------

    def _unshare(self) -> None:
        """Makes namespaces, as far as this machine allows; the worker does without the others."""
        user, group = os.geteuid(), os.getegid()
        wanted = _NEW_PID | _NEW_NET | _NEW_IPC
        try:
            try:
                if user:
                    raise PermissionError
                _call(_LIBC.unshare(wanted))
            except OSError:
                _call(_LIBC.unshare(_NEW_USER | wanted))
                _write("/proc/self/setgroups", "deny")
                _write("/proc/self/uid_map", f"{user} {user} 1")
                _write("/proc/self/gid_map", f"{group} {group} 1")
                self._contained.append("user")
        except OSError as error:
            self._contained = [f"no-namespaces:{error.errno or 0}"]
            return
        self._contained += ["pid", "net", "ipc"]

    def _start(self) -> None:
        if "pid" not in self._contained:
            self._child = self._fork_worker()
            _prctl(_PR_SET_DUMPABLE, 0)
            return
        read_fd, write_fd = os.pipe()
        said_fd, say_fd = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read_fd)
            os.close(said_fd)
            self._be_init(write_fd, say_fd)
        os.close(write_fd)
        os.close(say_fd)
        with os.fdopen(said_fd) as said:
            self._contained += said.read().split()
        self._child, self._ending = child, read_fd
        _prctl(_PR_SET_DUMPABLE, 0)

    def _be_init(self, ending: int, say: int) -> NoReturn:
        """Runs the init process of the namespace. When it ends, every process in the namespace is killed."""
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        with suppress(OSError):
            _call(_LIBC.unshare(_NEW_NS))
            _call(_LIBC.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC_SLAVE), None))
            _call(_LIBC.mount(b"proc", b"/proc", b"proc", ctypes.c_ulong(_MS_NOSUID_NODEV_NOEXEC), None))
            os.write(say, b"proc")
        for place in (b"/proc/sys", b"/proc/sysrq-trigger", b"/sys"):
            _make_read_only(place, bind=place != b"/sys")
        os.close(say)
        os.close(self._control)
        os.close(self._verdict)
        worker = self._fork_worker()
        for fd in (*self._settings["keep"], 1, 2):
            os.close(fd)
        _prctl(_PR_SET_DUMPABLE, 0)
        while True:
            pid, status = os.waitpid(-1, 0)
            if pid == worker:
                os.write(ending, _ending(status).encode())
                os._exit(0)

    def _fork_worker(self) -> int:
        guardian = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:
            os.setsid()
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != guardian:
                os._exit(0)
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
                signal.signal(number, signal.SIG_DFL)
            self._limit()
            for fd in self._settings["keep"]:
                os.set_inheritable(fd, True)
            if "pid" in self._contained:
                os.environ[CONTAINED] = "1"
            command = self._settings["command"]
            os.execv(command[0], command)
        except BaseException as error:
            os.write(2, f"the worker cannot be started: {error}\n".encode())
        os._exit(127)

    def _limit(self) -> None:
        """Sets the worker's limits, which its descendants inherit."""
        # When memory runs out, the OOM killer shall choose the worker first.
        _write("/proc/self/oom_score_adj", "800")
        for what, most in self._settings["limits"].items():
            with suppress(OSError, ValueError):
                number = getattr(resource, what)
                hard = resource.getrlimit(number)[1]
                most = most if hard == resource.RLIM_INFINITY else min(most, hard)
                resource.setrlimit(number, (most, most))

    # ---- watching -----------------------------------------------------------------------------------

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        ended = self._ending
        if ended < 0:
            ended = os.pidfd_open(self._child)
        poll.register(ended, select.POLLIN)
        tick = time.monotonic()
        while True:
            left_ms = max(1, _TICK_MS - int(1e3 * (time.monotonic() - tick)))
            ready = dict(poll.poll(left_ms))
            if ended in ready:
                return
            if self._control in ready:
                if not os.read(self._control, 1):  # the harness is gone
                    poll.unregister(self._control)
                    poll.poll(1e3 * _ENDS_WITHIN_S)
                return
            if time.monotonic() - tick >= _TICK_MS / 1e3:
                tick = time.monotonic()
                if not self._within_bounds():
                    return

    def _within_bounds(self) -> bool:
        """Returns whether the worker's processes stay within their limits."""
        tree = _tree(self._child)
        tasks = sum(count for _, count in tree)
        if tasks > self._settings["most_tasks"]:
            self._say_end(f"processes {tasks}")
            return False
        most = self._settings["memory_bytes"]
        if most:
            # Shared memory is counted once, for the first process.
            first, *others = [_memory_bytes(pid) for pid, _ in tree] or [(0, 0)]
            taken = first[0] + sum(all_ - shared for all_, shared in others)
            if taken > most:
                self._say_end(f"memory {taken}")
                return False
        if "pid" not in self._contained and self._harness_was_stopped():
            self._say_end("stopped")
            return False
        return True

    def _harness_was_stopped(self) -> bool:
        """Returns whether the harness has been stopped or traced for too long, and not by terminal job
        control."""
        state, group, terminal, foreground = _state(self._harness)
        job_control = terminal != 0 and foreground not in (group, -1)
        if state not in "Tt" or (state == "T" and job_control):
            self._stopped_since = None
            return False
        if self._stopped_since is None:
            self._stopped_since = time.monotonic()
        limit_s: float = self._settings["stopped_s"]
        return time.monotonic() - self._stopped_since > limit_s

    # ---- the end ------------------------------------------------------------------------------------

    def _end_all(self) -> None:
        deadline = time.monotonic() + _DIES_WITHIN_S
        if self._ending >= 0:
            with suppress(OSError):
                os.kill(self._child, signal.SIGKILL)
            self._tell_ending_of_namespace(deadline)
        else:
            self._end_descendants(deadline)
        if self._stopped_since is not None:
            with suppress(OSError):
                os.kill(self._harness, signal.SIGCONT)

    def _tell_ending_of_namespace(self, deadline: float) -> None:
        poll = select.poll()
        poll.register(self._ending, select.POLLIN)
        if poll.poll(1e3 * max(0.0, deadline - time.monotonic())):
            said = os.read(self._ending, 100).decode()
            self._say_end(said or "signal 9")
            with suppress(OSError):
                os.waitpid(self._child, 0)

    def _end_descendants(self, deadline: float) -> None:
        """Kills all descendants, including orphans, which become children of this process."""
        with suppress(OSError):
            # The worker first, so that nothing new starts and its end is reported before the others'.
            pid, status = os.waitpid(self._child, os.WNOHANG)
            if pid:
                self._say_end(_ending(status))
            else:
                os.kill(self._child, signal.SIGKILL)
        while time.monotonic() < deadline:
            for pid, _ in _tree(os.getpid())[1:]:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except OSError:
                return
            if pid == self._child:
                self._say_end(_ending(status))
            if not pid:
                time.sleep(0.002)


def _ending(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"signal {os.WTERMSIG(status)}"
    return f"exit {os.WEXITSTATUS(status)}"


def _make_read_only(place: bytes, *, bind: bool) -> None:
    """Makes the machine's settings read-only in this mount namespace, where that is possible.

    bind: the place is no mount of its own.
    """
    flags = ctypes.c_ulong(_MS_REMOUNT_BIND_RDONLY | _MS_NOSUID_NODEV_NOEXEC)
    with suppress(OSError):
        if bind:
            _call(_LIBC.mount(place, place, None, ctypes.c_ulong(_MS_BIND), None))
        _call(_LIBC.mount(None, place, None, flags, None))


def _write(path: str, text: str) -> None:
    """Writes to a file of the operating system. Failure is ignored: the feature is then unavailable."""
    with suppress(OSError):
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)


def _tree(root: int) -> list[tuple[int, int]]:
    """Returns a process and its descendants, as (process id, number of threads)."""
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        try:
            tasks = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue
        found.append((pid, len(tasks)))
        for task in tasks:
            with suppress(OSError, ValueError):
                waiting += map(int, _read(f"/proc/{pid}/task/{task}/children").split())
    return found


def _memory_bytes(pid: int) -> tuple[int, int]:
    """Resident memory of a process, and the part of it that may be shared."""
    try:
        _, resident, shared, *_ = _read(f"/proc/{pid}/statm").split()
    except (OSError, ValueError):
        return 0, 0
    return int(resident) * resource.getpagesize(), int(shared) * resource.getpagesize()


def _state(pid: int) -> tuple[str, int, int, int]:
    """State, process group, terminal and the terminal's foreground group; state "X" once it is gone."""
    try:
        fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        return fields[0], int(fields[2]), int(fields[4]), int(fields[5])
    except (OSError, ValueError, IndexError):
        return "X", 0, 0, -1


def _read(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 1 << 16).decode(errors="replace")
    finally:
        os.close(fd)


if __name__ == "__main__":
    Guardian(json.loads(sys.argv[1])).run()
    os._exit(0)
