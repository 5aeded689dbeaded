"""A sweep with misbehaving kernels: each gets its status, and the kernels after it are measured."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from evil_target import FLAG, EvilTarget, evil_kernel, small_problem

from tests.measure.sweeping import GOOD, PROBLEM, SETTINGS, Opener, built, swept
from tests.processes import has_ended, wait_until
from tests.samples import sampled
from tile_oracle.compiling.builder import Builder, BuildResult
from tile_oracle.errors import BuildError, TargetError
from tile_oracle.measure.supervisor import Supervisor
from tile_oracle.measure.worker_link import Lost
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel
from tile_oracle.record.schema import ROUND_FINAL, ROUND_SWEEP, STATUSES


@pytest.fixture(scope="module")
def long_lived(evil_builder: Builder) -> Iterator[Supervisor]:
    """One supervisor through all the evil kernels, one after the other."""
    assert FLAG not in os.environ
    supervisor = Supervisor(EvilTarget(evil_builder), SETTINGS)
    yield supervisor
    supervisor.close()


@dataclass(frozen=True)
class Evil:
    mode: str
    status: str
    detail: str
    new_worker: bool = False


EVILS = (
    Evil("exit_0", "crash", "exited with code 0", new_worker=True),
    Evil("overrun", "crash", "killed by SIGSEGV", new_worker=True),
    Evil("writes_input", "crash", "killed by SIGSEGV", new_worker=True),
    Evil("garbles_pipe", "crash", "wrote into the pipe", new_worker=True),
    Evil("closes_files", "crash", "exited with code 0", new_worker=True),
    Evil("workspace_underrun", "wrong", "wrote outside its output or workspace", new_worker=True),
    Evil("wrong", "wrong", "1 of 245 values wrong, at (0, 6, 6, 0, 4) got"),
    Evil("time_error", "wrong", "the kernel returned 5 when it was timed"),
    Evil("huge_workspace", "unsupported", "its workspace: cannot allocate 4,611,686,018,427,387,904 bytes"),
    Evil("no_workspace_bytes", "build_error", "does not export to_workspace_bytes"),
    Evil("needs_unknown", "build_error", "needs nobody_has_this, which nothing provides"),
    Evil("compile_error", "build_error", "this kernel does not compile"),
    Evil("prints", "ok", ""),
)


@pytest.mark.parametrize("evil", sampled(EVILS, every=2), ids=lambda evil: evil.mode)
def test_an_evil_kernel_gets_its_status_and_the_sweep_continues(evil: Evil, long_lived: Supervisor) -> None:
    supervisor = long_lived
    supervisor.open()
    first_worker = supervisor.worker_pid
    later = [evil_kernel("good", 2), evil_kernel("good", 3)]
    measurements = list(supervisor.sweep(PROBLEM, [GOOD, evil_kernel(evil.mode), *later]))
    by_kernel = {m.kernel: m for m in measurements if m.round == ROUND_SWEEP}
    assert set(by_kernel) == {GOOD, evil_kernel(evil.mode), *later}
    assert len(swept(measurements)) == 4
    bad = by_kernel[evil_kernel(evil.mode)]
    assert bad.status == evil.status
    assert bad.status in STATUSES
    assert evil.detail in bad.detail
    assert bad.ok or (bad.samples == 0 and not bad.tflops > 0)
    for kernel in (GOOD, *later):
        good = by_kernel[kernel]
        assert (good.status, good.check, good.check_points) == ("ok", "full", 245)
        assert good.latency_ms > 0
        assert good.samples > 0
    assert (supervisor.worker_pid != first_worker) == evil.new_worker
    finals = [m for m in measurements if m.round == ROUND_FINAL]
    assert {m.status for m in finals} == {"ok"}
    assert len(finals) >= 2


def test_the_time_of_a_kernel_that_kills_its_worker_counts(open_supervisor: Opener) -> None:
    """And only one that was right judges the device later."""
    supervisor = open_supervisor()
    assert swept(list(supervisor.sweep(PROBLEM, [evil_kernel("segfault")]))) == [("segfault", "crash")]
    assert supervisor.kernel_seconds > 0
    assert supervisor._good == []
    assert swept(list(supervisor.sweep(PROBLEM, [GOOD]))) == [("good", "ok")]
    assert [problem for problem, _ in supervisor._good] == [PROBLEM]


def test_a_device_is_lost_when_every_known_good_kernel_fails_in_two_workers(
    open_supervisor: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor, tries = open_supervisor(), iter([None, "fails", None, *["is now wrong"] * 4])
    monkeypatch.setattr(supervisor, "_try_good", lambda problem, binary: next(tries))
    for name in ("one.so", "other.so"):
        supervisor.trust(PROBLEM, Path(name))
    for _ in range(2):
        supervisor.suspect = True
        supervisor._probe()
        assert not supervisor.suspect
    with pytest.raises(Lost, match="a known-good kernel is now wrong"):
        supervisor._probe()
    assert list(tries) == []


def test_a_kernel_that_failed_judges_the_device_no_more_unless_there_is_no_other(
    open_supervisor: Opener,
) -> None:
    link, one, other = open_supervisor(), Path("one.so"), Path("other.so")
    link.trust(PROBLEM, one)
    link.trust(PROBLEM, other)
    for failed in (other, one):
        link.distrust(failed)
        assert link._good == [(PROBLEM, one)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "detail"),
    [
        ("loop", "no result after 2 s"),
        ("prints_for_ever", "no result after 2 s; it printed: "),
        ("loops_when_timed", "no result after 2 s"),
    ],
)
def test_a_kernel_that_does_not_return_is_a_timeout(mode: str, detail: str, open_supervisor: Opener) -> None:
    supervisor = open_supervisor(settings=replace(SETTINGS, timeout_s=2.0))
    measurements = list(supervisor.sweep(PROBLEM, built(supervisor, evil_kernel(mode), GOOD)))
    assert swept(measurements) == [(mode, "timeout"), ("good", "ok")]
    assert measurements[0].detail.startswith(detail)
    assert len(measurements[0].detail) < 500


def wait_until_gone(group: int) -> None:
    """Waits until no process of the group lives. Processes end a moment after they are killed."""
    wait_until(lambda: not living_members(group))


def living_members(group: int) -> list[int]:
    """Processes of a process group that are not zombies."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.parametrize(
    ("damage", "status"),
    [
        ("text", "build_error"),
        ("cut", "build_error"),
        ("no_symbol", "build_error"),
        ("missing", "device_lost"),
    ],
)
def test_a_library_that_cannot_be_loaded_is_a_build_error_and_a_lost_file_the_machines(
    damage: str, status: str, tmp_path: Path, evil_builder: Builder, open_supervisor: Opener
) -> None:
    binary = evil_builder.submit(GOOD).result().binary
    good = binary.path.read_bytes()
    content = {
        "text": b"this is no library\n",
        "cut": good[:40],
        "no_symbol": good.replace(b"\0to_launch\0", b"\0to_lounge\0"),
    }
    path = tmp_path / "broken.so"
    if damage in content:
        path.write_bytes(content[damage])
    target = EvilTarget(evil_builder, binaries={GOOD: path})
    supervisor = open_supervisor(target)
    measurements = list(supervisor.sweep(PROBLEM, built(supervisor, GOOD, evil_kernel("good", 2))))
    assert [m.status for m in measurements] == [status, "ok"]
    said = "this machine cannot load it: " if damage == "missing" else "cannot be loaded: "
    assert said in measurements[0].detail
    assert ("to_launch" in measurements[0].detail) == (damage == "no_symbol")


# ---- the device ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_broken_device_is_not_blamed_on_the_kernels_after(flag: Path, open_supervisor: Opener) -> None:
    kernels = [GOOD, evil_kernel("breaks_device"), *(evil_kernel("good", i) for i in range(2, 6))]
    supervisor = open_supervisor()
    measurements = list(supervisor.sweep(PROBLEM, built(supervisor, *kernels)))
    assert swept(measurements) == [("good", "ok"), ("breaks_device", "crash"), *[("good", "device_lost")] * 4]
    assert "a known-good kernel now fails: killed by SIGSEGV" in measurements[-1].detail
    # Later problems of the session are reported at once, and no worker is started for them.
    later = list(supervisor.sweep(small_problem(N=2), [GOOD]))
    assert swept(later) == [("good", "device_lost")]
    assert supervisor.worker_pid is None


def test_a_target_whose_device_does_not_open_says_so(evil_builder: Builder) -> None:
    target = EvilTarget(evil_builder)
    target.device_module = "tile_oracle.device.no_such_device"
    supervisor = Supervisor(target, SETTINGS)
    with pytest.raises(TargetError, match=r"cpu cannot be opened: ModuleNotFoundError: .*no_such_device"):
        supervisor.open()
    assert supervisor.worker_pid is None


# ---- the worker is killed from outside ----------------------------------------------------------------


def kill_worker(supervisor: Supervisor) -> None:
    assert supervisor.worker_pid is not None
    os.kill(supervisor.worker_pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_worker_killed_in_a_kernel_is_that_kernels_crash_only(flag: Path, open_supervisor: Opener) -> None:
    """The kernel waits for the flag, so it is running when the worker is killed."""
    supervisor = open_supervisor()
    kernels = built(supervisor, GOOD, evil_kernel("waits_for_flag"), evil_kernel("good", 2))
    sweep = supervisor.sweep(PROBLEM, kernels)
    assert next(sweep).ok

    def kill_once_it_runs() -> None:
        wait_until(lambda: supervisor.live_worker.running == 2)
        kill_worker(supervisor)

    killer = threading.Thread(target=kill_once_it_runs)
    killer.start()
    rest = list(sweep)
    killer.join()
    assert swept(rest) == [("waits_for_flag", "crash"), ("good", "ok")]
    assert rest[0].detail.startswith("killed by SIGKILL")


@pytest.fixture
def target_with(
    evil_builder: Builder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], EvilTarget]:
    """A target whose device module has this source, in which the CPU's device is imported."""

    def make(source: str) -> EvilTarget:
        imports = "import os, signal\nfrom tile_oracle.device.cpu import CpuDevice\n"
        (tmp_path / "own_device.py").write_text(imports + source)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        target = EvilTarget(evil_builder)
        target.device_module = "own_device"
        return target

    return make


@pytest.mark.slow
def test_a_worker_that_always_dies_with_no_kernel_running_is_a_lost_device(
    target_with: Callable[[str], EvilTarget], open_supervisor: Opener
) -> None:
    """Opening the device ends the process: no kernel is blamed, and the sweep must not loop forever."""
    target = target_with(
        "class Dying(CpuDevice):\n"
        "    def load(self, problem, *rest):\n"
        "        pass\n"
        "    def claim(self):\n"
        "        os._exit(3)\n"
        "open_device = Dying\n"
    )
    measurements = list(open_supervisor(target).sweep(PROBLEM, [GOOD, evil_kernel("good", 2)]))
    assert swept(measurements) == [("good", "device_lost")] * 2
    assert measurements[0].detail == "the worker died 3 times in a row while no kernel ran"


def test_a_kernel_faster_than_the_device_can_be_is_wrong(
    target_with: Callable[[str], EvilTarget], open_supervisor: Opener
) -> None:
    target = target_with(
        "from tile_oracle.arch.time_bound import Limits\n"
        "def open_device():\n"
        "    device = CpuDevice()\n"
        "    device.limits = Limits({'fp32': 1.0})\n"
        "    return device\n"
    )
    measurements = list(open_supervisor(target).sweep(PROBLEM, [GOOD]))
    assert swept(measurements) == [("good", "wrong")]
    assert "is faster than the device can be" in measurements[0].detail


@pytest.mark.slow
def test_a_problem_that_kills_the_worker_is_refused_and_the_next_one_measured(
    target_with: Callable[[str], EvilTarget], open_supervisor: Opener
) -> None:
    """As when the machine runs out of memory over one problem's data."""
    target = target_with(
        "class Choking(CpuDevice):\n"
        "    def load(self, problem, *rest):\n"
        "        if problem.N == 3:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "        super().load(problem, *rest)\n"
        "open_device = Choking\n"
    )
    supervisor = open_supervisor(target)
    statuses = [swept(list(supervisor.sweep(small_problem(N=n), [GOOD]))) for n in (2, 3, 4)]
    refused = next(supervisor.sweep(small_problem(N=3), [GOOD]))
    assert statuses == [[("good", "ok")], [("good", "unsupported")], [("good", "ok")]]
    assert refused.detail == "the worker killed by SIGKILL while it prepared the problem"


@pytest.mark.slow
@pytest.mark.parametrize("other_problem", [False, True], ids=["before a kernel", "before a problem"])
def test_a_worker_that_is_stopped_while_no_kernel_runs_is_replaced(
    other_problem: bool, open_supervisor: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No kernel is blamed, and the session does not wait for it."""
    monkeypatch.setattr("tile_oracle.measure.live_worker._LOOK_S", 0.05)
    supervisor = open_supervisor()
    assert swept(list(supervisor.sweep(PROBLEM, [GOOD]))) == [("good", "ok")]
    stopped = supervisor.worker_pid
    assert stopped is not None
    os.kill(stopped, signal.SIGSTOP)
    problem = small_problem(N=2) if other_problem else PROBLEM
    (measured,) = supervisor.sweep(problem, [evil_kernel("good", 2)])
    assert (measured.status, measured.detail) == ("ok", "")
    assert supervisor.worker_pid != stopped
    wait_until(lambda: has_ended(stopped))


# ---- use by callers -----------------------------------------------------------------------------------


def test_an_abandoned_sweep_does_not_disturb_the_next(open_supervisor: Opener) -> None:
    supervisor = open_supervisor()
    kernels = built(supervisor, *(evil_kernel("good", i) for i in range(1, 8)))
    sweep = supervisor.sweep(PROBLEM, kernels)
    next(sweep)
    sweep.close()
    other = small_problem(N=2)
    measurements = list(supervisor.sweep(other, kernels[3:5]))
    assert [(m.problem, m.kernel, m.status) for m in measurements[:2]] == [
        (other, kernels[3], "ok"),
        (other, kernels[4], "ok"),
    ]


def test_samples_are_returned_only_on_request(open_supervisor: Opener) -> None:
    without = next(open_supervisor().sweep(PROBLEM, [GOOD]))
    keeps = open_supervisor(settings=replace(SETTINGS, keep_samples=True))
    with_samples = next(keeps.sweep(PROBLEM, [GOOD]))
    assert without.sample_ms == ()
    assert len(with_samples.sample_ms) == with_samples.samples > 0
    assert min(with_samples.sample_ms) == pytest.approx(with_samples.latency_min_ms, abs=1e-6)


def test_an_unusable_builder_is_an_error_of_the_sweep(open_supervisor: Opener, evil_builder: Builder) -> None:
    class BrokenTarget(EvilTarget):
        def build(self, kernel: GroupedConvKernel) -> Future[BuildResult]:
            future: Future[BuildResult] = Future()
            future.set_exception(BuildError("the build folder is full"))
            return future

    with pytest.raises(BuildError, match="the build folder is full"):
        list(open_supervisor(BrokenTarget(evil_builder)).sweep(PROBLEM, [GOOD]))


def test_closing_in_the_middle_ends_the_worker_at_once(flag: Path, open_supervisor: Opener) -> None:
    supervisor = open_supervisor()
    sweep = supervisor.sweep(PROBLEM, built(supervisor, GOOD, evil_kernel("waits_for_flag")))
    assert next(sweep).ok
    worker = supervisor.worker_pid
    assert worker is not None
    supervisor.close()
    wait_until_gone(worker)
    sweep.close()
