from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import pytest

from tests.compiling.small_family import make_kernel
from tests.processes import LONGEST_S, wait_until
from tests.pytest_project import PROBLEMS, TWO_KERNELS, Project
from tests.samples import sampled
from tile_oracle.compiling import isa as isa_module
from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.cache import BuildCache
from tile_oracle.compiling.isa import Isa, this_cpu
from tile_oracle.compiling.process import CompilerProcesses
from tile_oracle.compiling.toolchain import Toolchain, find_toolchain
from tile_oracle.device.cpu import CpuDevice
from tile_oracle.errors import BuildError
from tile_oracle.problem import problem_from_id

MakeBuilder = Callable[..., Builder]


@dataclass(frozen=True)
class GatedToolchain:
    """The real compiler, wrapped so that each compilation first runs a command of the test."""

    real: Toolchain
    first: tuple[str, ...]
    name: str = "gated"
    version: str = "1.0"
    identity: str = "gated 1.0"
    fingerprint: str = "gated 1.0"
    suffix: str = ".so"

    def flags(self, arch: str, isa: Isa) -> tuple[str, ...]:
        return self.real.flags(arch, isa)

    def prepare(self, work: Path) -> None:
        self.real.prepare(work)

    def commands(self, source: str, output: str, flags: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
        return (self.first, *self.real.commands(source, output, flags))

    def server(self) -> tuple[str, ...]:
        return ()

    def forked(self, source: str, output: str) -> tuple[str, ...]:
        return ()


def gated(first: str) -> GatedToolchain:
    """Runs a line of the shell before each compilation."""
    return GatedToolchain(find_toolchain("ziglang"), ("sh", "-c", first))


def everything_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


# ---- building ------------------------------------------------------------------------------------


def test_a_kernel_becomes_a_library(make_builder: MakeBuilder, compiler: str) -> None:
    with make_builder(toolchain=compiler) as builder:
        result = builder.submit(make_kernel()).result()
    assert (result.status, result.cached, result.kernel) == ("ok", False, make_kernel())
    assert result.seconds > 0
    binary = result.binary
    assert (binary.arch, binary.isa, binary.toolchain) == ("cpu", "native", find_toolchain(compiler).identity)
    assert "-O3" in binary.flags
    assert binary.bytes == binary.path.stat().st_size
    assert ctypes.CDLL(str(binary.path)).to_abi_version() == 1


def test_the_next_session_finds_it_if_it_is_whole_and_of_this_machine(
    make_builder: MakeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make_builder() as builder:
        first = builder.need(make_kernel()).binary
        assert (builder.stats().compiled, builder.stats().cached) == (1, 0)
    with make_builder() as builder:
        future = builder.submit(make_kernel())
        assert future.done()
        assert builder.ended() == [make_kernel()]
        assert future.result().cached
        assert future.result().binary == first
        assert (builder.stats().compiled, builder.stats().cached) == (0, 1)
        assert builder.stats().compile_seconds == 0
    content = first.path.read_bytes()
    first.path.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    with make_builder() as builder:
        assert not builder.need(make_kernel()).cached
    assert first.path.read_bytes() == content
    other = replace(this_cpu(), model="another")
    monkeypatch.setattr(isa_module, "this_cpu", lambda: other)
    with make_builder() as builder:
        there = builder.need(make_kernel())
    assert not there.cached
    assert there.binary.flags == first.flags
    assert there.binary.source_hash != first.source_hash


def test_kernels_of_equal_code_share_a_binary(make_builder: MakeBuilder) -> None:
    with make_builder(jobs=2) as builder:
        futures = [builder.submit(kernel) for kernel in (make_kernel(), make_kernel(vector_a=8))]
        results = [future.result() for future in futures]
    assert results[0].binary == results[1].binary
    assert [result.kernel.vector_a for result in results] == [4, 8]
    assert (builder.stats().compiled, builder.stats().cached) == (1, 1)


@pytest.mark.parametrize(
    "change",
    [
        lambda make, include: make(isa="x86-64-v2" if this_cpu().machine == "x86_64" else "armv8-a"),
        lambda make, include: (include / "grouped_conv.hpp").open("a").write("// edited\n") and make(),
        lambda make, include: make(toolchain=gated("true")),
    ],
    ids=["instruction set", "header", "toolchain"],
)
def test_everything_that_affects_the_code_affects_the_entry(
    make_builder: MakeBuilder, include: Path, change: Callable[..., Builder]
) -> None:
    with make_builder() as builder:
        first, identity = builder.need(make_kernel()), builder.source_identity
    with change(make_builder, include) as builder:
        second = builder.need(make_kernel())
        assert builder.source_identity != identity
    assert not second.cached
    assert first.binary.source_hash != second.binary.source_hash


def test_compiled_headers_are_the_hashed_ones(make_builder: MakeBuilder, include: Path) -> None:
    with make_builder() as builder:
        (include / "grouped_conv.hpp").write_text("#error edited meanwhile")
        assert builder.need(make_kernel()).status == "ok"


# ---- what does not build -------------------------------------------------------------------------


def test_a_compile_error_is_a_status_with_its_log(make_builder: MakeBuilder, compiler: str) -> None:
    with make_builder(toolchain=compiler) as builder:
        futures = [builder.submit(make_kernel(tile_m)) for tile_m in (13, 16)]
        bad, good = (future.result() for future in futures)
        assert (bad.status, bad.binary, good.status) == ("build_error", None, "ok")
        assert bad.toolchain == good.toolchain != ""
        assert "thirteen rows are one too many" in bad.log
        assert str(builder.cache.folder) not in bad.log
        assert builder.stats().failed == 1
        kept = [path for path in everything_in(builder.cache.folder) if path.suffix == ".log"]
        assert [path.read_text() for path in kept] == [bad.log]


def test_workers_of_one_session_share_a_failure(make_builder: MakeBuilder) -> None:
    with make_builder() as one, make_builder() as two:
        first, second = one.need(make_kernel(13)), two.need(make_kernel(13))
    assert (second.status, second.cached, second.seconds) == ("build_error", True, 0.0)
    assert second.log == first.log
    assert second.toolchain == first.toolchain != ""


@pytest.mark.parametrize(
    ("tile_m", "says"),
    [(11, "does not export to_workspace_bytes"), (17, "needs somewhere_else, which nothing provides")],
)
def test_an_unusable_library_is_a_build_error(
    make_builder: MakeBuilder, compiler: str, tile_m: int, says: str
) -> None:
    with make_builder(toolchain=compiler) as builder:
        result = builder.need(make_kernel(tile_m))
    assert (result.status, result.binary) == ("build_error", None)
    assert says in result.log


def test_a_library_may_ask_for_what_need_not_be_there(make_builder: MakeBuilder, compiler: str) -> None:
    with make_builder(toolchain=compiler) as builder:
        result = builder.need(make_kernel(19))
    assert result.status == "ok", result.log
    assert ctypes.CDLL(str(result.binary.path)).asks() == 0


def test_a_compiler_that_hangs_is_stopped_with_its_children(
    make_builder: MakeBuilder, tmp_path: Path
) -> None:
    held = tmp_path / "held"
    hang = f"exec 9>{held}; (flock 9; sleep 1000) & flock 9; sleep 1000"
    with make_builder(toolchain=gated(hang), timeout_s=0.3) as builder:
        result = builder.need(make_kernel())
    assert result.status == "build_error"
    assert "stopped after 0.3 s" in result.log
    with held.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # blocks as long as one of them lives


def test_a_killed_compiler_is_reported_and_not_cached(make_builder: MakeBuilder) -> None:
    toolchain = gated("kill -SEGV $$")
    with make_builder(toolchain=toolchain) as one, make_builder(toolchain=toolchain) as two:
        results = [one.need(make_kernel()), two.need(make_kernel())]
    assert [(result.status, result.cached) for result in results] == [("build_error", False)] * 2
    assert "killed by signal 11 (SIGSEGV)" in results[0].log


def test_a_compiler_killed_from_outside_is_run_again(make_builder: MakeBuilder, tmp_path: Path) -> None:
    """As when memory is full: if killed once, it compiles the second time; if killed always, that is the
    error."""
    once = f"test -e {tmp_path}/killed || {{ touch {tmp_path}/killed; kill -KILL $$; }}"
    with make_builder(toolchain=gated(once)) as builder:
        assert builder.need(make_kernel()).status == "ok"
    always = "kill -KILL $$"
    with make_builder(toolchain=gated(always)) as builder:
        first, second = builder.need(make_kernel(tile_m=32)), builder.need(make_kernel(tile_m=32))
    assert first.interrupted
    assert "killed by signal 9 (SIGKILL)" in first.log
    assert second is not first  # the next request tries again


def test_a_very_long_log_keeps_its_ends(make_builder: MakeBuilder) -> None:
    talk = "echo first; seq 100000; echo last; exit 1"
    with make_builder(toolchain=gated(talk)) as builder:
        log = builder.need(make_kernel()).log
    assert log.startswith("first\n")
    assert log.endswith("last")
    assert "bytes left out" in log
    assert len(log) < 40_000


def test_a_full_disk_is_not_the_kernels_fault(make_builder: MakeBuilder) -> None:
    full = "exec seq 9999 > /dev/full"
    with (
        make_builder(toolchain=gated(full)) as builder,
        pytest.raises(BuildError, match=r"disk of the build folder .* is full"),
    ):
        builder.need(make_kernel())


def test_a_read_only_folder_serves_its_entries(make_builder: MakeBuilder) -> None:
    with make_builder() as builder:
        builder.need(make_kernel())
        folder = builder.cache.folder
    (folder / "work").rmdir()
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    folders = [path for path in (folder, *folder.rglob("*")) if path.is_dir()]
    for path in folders:
        path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        with make_builder() as builder:
            assert builder.need(make_kernel()).cached
    finally:
        for path in folders:
            path.chmod(0o755)
    # root may write anywhere, so also check what was written.
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


# ---- order, closing ------------------------------------------------------------------------------


def test_needed_kernels_compile_first(make_builder: MakeBuilder, tmp_path: Path) -> None:
    # The first compilation signals that it runs and waits; the others log their tiles in order.
    for pipe in ("runs", "go"):
        os.mkfifo(tmp_path / pipe)
    note = (
        f"grep TO_TILE_M kernel.cpp >> {tmp_path}/order; "
        f"if grep -q 'TILE_M 1$' kernel.cpp; then echo > {tmp_path}/runs; cat {tmp_path}/go; fi"
    )
    with make_builder(toolchain=gated(note), jobs=1) as builder:
        futures = [builder.submit(make_kernel(tile_m)) for tile_m in (1, 2, 3, 4)]
        (tmp_path / "runs").read_text()
        assert builder.ended() == []
        needed = threading.Thread(target=builder.need, args=(make_kernel(4),))
        needed.start()
        wait_until(lambda: [job.kernel.tile_m for job in builder._queue._waiting] == [4, 2, 3])
        (tmp_path / "go").write_text("")
        for future in futures:
            future.result()
        needed.join()
        assert builder.ended() == [make_kernel(tile_m) for tile_m in (1, 2, 3, 4)]
    order = [int(line.split()[-1]) for line in (tmp_path / "order").read_text().splitlines()]
    assert order == [1, 4, 2, 3]


def test_closing_stops_compilers_and_drops_the_queue(make_builder: MakeBuilder, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    toolchain = gated(f"echo > {tmp_path}/pipe; sleep 1000")
    builder = make_builder(toolchain=toolchain, jobs=1)
    futures = [builder.submit(make_kernel(tile_m)) for tile_m in (1, 2, 3)]
    (tmp_path / "pipe").read_text()  # the first compiler runs
    builder.close()
    builder.close()
    for future in (*futures, builder.submit(make_kernel(5))):
        with pytest.raises(BuildError, match="closed"):
            future.result(LONGEST_S)
    assert everything_in(builder.cache.folder) == []


def test_compilers_run_in_parallel(make_builder: MakeBuilder, tmp_path: Path) -> None:
    # Each writes its own pipe and reads the other's: both end only if both run at once.
    for number in (1, 2):
        os.mkfifo(tmp_path / f"pipe{number}")
    meet = (
        "n=$(sed -n 's/#define TO_TILE_M //p' kernel.cpp); "
        f"if [ $n = 1 ]; then echo > {tmp_path}/pipe1; cat {tmp_path}/pipe2; "
        f"else cat {tmp_path}/pipe1; echo > {tmp_path}/pipe2; fi"
    )
    with make_builder(toolchain=gated(meet), jobs=2, timeout_s=LONGEST_S) as builder:
        futures = [builder.submit(make_kernel(tile_m)) for tile_m in (1, 2)]
        assert [future.result().status for future in futures] == ["ok", "ok"]


def test_compilers_yield_to_kernels(make_builder: MakeBuilder, tmp_path: Path) -> None:
    # The priority is set just after the start: wait for it.
    toolchain = gated(f"until [ $(nice) = 10 ]; do :; done; nice > {tmp_path}/nice")
    with make_builder(toolchain=toolchain, timeout_s=LONGEST_S) as builder:
        assert builder.need(make_kernel()).status == "ok"
    assert (tmp_path / "nice").read_text() == "10\n"


# ---- invalid requests ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"jobs": 0}, "jobs = 0"),
        ({"timeout_s": float("nan")}, "timeout"),
        ({"timeout_s": -1.0}, "timeout"),
        ({"arch": "gfx906", "include": None}, "known are cpu, gfx950, gfx942, gfx90a, sm_90"),
        ({"arch": "gfx906"}, "gfx906"),
        ({"arch": "gfx950", "isa": "x86-64-v3"}, "--isa x86-64-v3 is for cpu"),
        ({"isa": "x86-64-v9"}, "not known"),
        ({"toolchain": "no-such-compiler"}, "pip install ziglang"),
        ({"isa": "armv8-a" if this_cpu().machine == "x86_64" else "x86-64-v2"}, "this machine lacks"),
    ],
)
def test_an_unusable_builder_says_why(
    make_builder: MakeBuilder, options: dict[str, object], says: str
) -> None:
    with pytest.raises(BuildError, match=says) as error:
        make_builder(**options)
    assert "\n" not in str(error.value)


# Sessions: real processes that share one build folder.

SESSION = """\
import json, sys
from pathlib import Path
from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.cache import BuildCache
from tile_oracle.kernel import parse_kernel_name

folder, include, jobs, gate, *names = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
toolchain = "ziglang"
if gate:
    from tests.compiling.test_builder import gated

    toolchain = gated(gate)
with Builder(toolchain=toolchain, build_dir=Path(folder), include=Path(include), jobs=int(jobs)) as builder:
    futures = [builder.submit(parse_kernel_name(name)) for name in names]
    results = [future.result() for future in futures]
    hashes = [result.binary.source_hash for result in results]
    stats = builder.stats()
    print(json.dumps({"compiled": stats.compiled, "cached": stats.cached, "hashes": hashes}))
"""


def start(
    folder: Path, include: Path, names: list[str], jobs: int = 1, gate: str = ""
) -> subprocess.Popen[str]:
    """A session that is up and waits for a line on its standard input. gate: what each compilation runs
    first."""
    command = [sys.executable, "-c", SESSION, str(folder), str(include), str(jobs), gate, *names]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    session = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert session.stdout.readline() == "ready\n"
    return session


def go(session: subprocess.Popen[str]) -> None:
    session.stdin.write("\n")
    session.stdin.flush()


def test_one_session_compiles_and_the_others_wait(tmp_path: Path, include: Path) -> None:
    names = [make_kernel(tile_m).name for tile_m in (20, 21, 22)]
    sessions = [start(tmp_path / "cache", include, names, jobs=2) for _ in range(4)]
    for session in sessions:
        go(session)
    answers = [json.loads(session.communicate()[0]) for session in sessions]
    assert sum(answer["compiled"] for answer in answers) == 3
    assert all(answer["compiled"] + answer["cached"] == 3 for answer in answers)
    assert len({tuple(answer["hashes"]) for answer in answers}) == 1
    kinds = sorted(path.name for path in everything_in(tmp_path / "cache"))
    assert kinds == sorted(["entry.json", "kernel.cpp", "kernel.so"] * 3)


@pytest.mark.parametrize("ended", sampled([2, 0, 3], every=3))
def test_a_killed_session_leaves_no_trace(tmp_path: Path, include: Path, ended: int) -> None:
    """Killed while the compiler of one of its kernels runs, the first to the last."""
    kernels = [make_kernel(tile_m) for tile_m in range(30, 34)]
    for pipe in ("runs", "never"):
        os.mkfifo(tmp_path / pipe)
    gate = (
        f"grep -q 'TILE_M {30 + ended}$' kernel.cpp && echo > {tmp_path}/runs && cat {tmp_path}/never; true"
    )
    session = start(tmp_path / "cache", include, [kernel.name for kernel in kernels], gate=gate)
    go(session)
    (tmp_path / "runs").read_text()
    session.kill()
    session.communicate()
    with Builder(toolchain=gated("true"), build_dir=tmp_path / "cache", include=include) as builder:
        results = [builder.need(kernel) for kernel in kernels]
        found = builder.stats()
    os.close(os.open(tmp_path / "never", os.O_RDWR))  # the compiler ends
    assert [result.status for result in results] == ["ok"] * 4
    assert (found.cached, found.compiled) == (ended, 4 - ended)


def test_a_stopped_session_does_not_block_the_others(tmp_path: Path, include: Path) -> None:
    """The lock's holder is stopped; after twice the compile timeout, others build without the lock."""
    with Builder(toolchain="ziglang", build_dir=tmp_path / "probe", include=include) as builder:
        binary = builder.need(make_kernel()).binary
    held = BuildCache(tmp_path / "cache").try_lock(binary.source_hash)
    with Builder(toolchain="ziglang", build_dir=tmp_path / "cache", include=include) as builder:
        builder._timeout_s = 0.2  # its compilers keep the usual one
        result = builder.need(make_kernel())
    assert result.status == "ok"
    held.close()


# The machine's faults are not the kernels': they are said, and nothing of them is kept.

SAYS = [
    f"collect2: fatal error: ld: {os.strerror(errno.ENOMEM)}",
    f"error: unable to open output file 'kernel.o': {os.strerror(errno.EMFILE)}",
    f"OSError: [Errno 5] {os.strerror(errno.EIO)}: 'kernel.hip'",
    f"ld.lld: error: failed to write output: {os.strerror(errno.EDQUOT)}",
    "LLVM ERROR: out of memory",
    "terminate called after throwing an instance of 'std::bad_alloc'",
]


@pytest.mark.parametrize("said", SAYS)
def test_a_compiler_that_the_machine_failed_says_nothing_about_the_kernel(said: str, tmp_path: Path) -> None:
    ended = CompilerProcesses().run(("sh", "-c", 'echo "$0" >&2; exit 1', said), tmp_path, 60)
    assert (ended.ok, ended.interrupted, ended.killed) == (False, True, True)
    assert said in ended.log


def test_a_compiler_that_started_is_believed(tmp_path: Path) -> None:
    (tmp_path / "compiler").write_text("#!/bin/sh\n")
    ended = CompilerProcesses().run((str(tmp_path / "compiler"),), tmp_path, 60)
    assert (ended.interrupted, ended.killed) == (True, True)
    assert ended.log.endswith("does not start: Permission denied")
    for line, ok in (("echo 'error: no member named x'; exit 1", False), ("echo 'no Cannot allocate'", True)):
        ended = CompilerProcesses().run(("sh", "-c", line), tmp_path, 60)
        assert (ended.ok, ended.interrupted) == (ok, False)


def test_a_binary_that_cannot_be_read_is_not_the_kernel_s_fault(tmp_path: Path) -> None:
    device = CpuDevice()
    try:
        device.load(problem_from_id(PROBLEMS[0]), 0)
        gone = device.check(tmp_path / "gone.so")
        assert (gone.status, gone.again) == ("device_lost", True)
        assert gone.detail.startswith("this machine cannot load it: No such file or directory: ")
        (tmp_path / "text.so").write_text("no library")
        assert device.check(tmp_path / "text.so").status == "build_error"
    finally:
        device.idle()  # a core that this process keeps is one that others wait for


def measured(project: Project) -> pd.DataFrame:
    return pd.read_parquet(project.folder / "reports" / "it" / "measurements")


@pytest.mark.slow
def test_a_resumed_session_measures_what_the_machine_s_fault_left_out(project: Project) -> None:
    project.problem_set("one.csv", PROBLEMS[:1])
    compiler = project.compiler("clang++", {})
    working = compiler.read_text()
    said = f"echo 'ld: {os.strerror(errno.EMFILE)}' >&2; exit 1"
    compiler.write_text(
        working.replace("exec ", f'case "$*" in *-dumpmachine*|*--version*) ;; *) {said};; esac\nexec ')
    )
    asked = ("--problem-set", "one.csv", "--target", "cpu", "--toolchain", compiler, "--run-name=it")
    session = (*asked, *TWO_KERNELS)
    first = project.pytest(*session)
    assert first.status != 0
    assert set(measured(project).status) == {"device_lost"}
    compiler.write_text(working)
    project.pytest(*session, "--resume")
    assert set(measured(project).status) <= {"ok", "noisy"}


def on_a_mount_without_code(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a shell command where `folder` is mounted noexec, for it alone."""
    unshare = ["unshare", "--mount", *(() if os.geteuid() == 0 else ("--map-root-user",))]
    mount = f"mount -t tmpfs -o noexec,mode=700 tmpfs {folder}"
    tried = subprocess.run([*unshare, "sh", "-c", mount], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"no mount can be made here: {tried.stderr.strip()}")
    return subprocess.run(
        [*unshare, "sh", "-c", f"{mount} && {command}"],
        cwd=folder.parent, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


@pytest.fixture
def no_code(project: Project) -> Path:
    project.problem_set("one.csv", PROBLEMS[:1])
    folder = project.folder / "no_code"
    folder.mkdir()
    return folder


REFUSAL = (
    "no_code: its file system is mounted noexec. "
    "Name a folder elsewhere with --build-dir or TILE_ORACLE_CACHE"
)


@pytest.mark.slow
def test_where_no_kernel_can_be_loaded_sessions_are_refused_and_builds_are_not(no_code: Path) -> None:
    line = f"{sys.executable} -m pytest --problem-set one.csv --target cpu --build-dir=no_code --run-name it"
    done = on_a_mount_without_code(line, no_code)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout + done.stderr
    (told,) = [one for one in (done.stdout + done.stderr).splitlines() if "no kernel can be loaded" in one]
    assert told.endswith(REFUSAL)
    assert not list((no_code.parent / "reports").glob("it/measurements/*"))
    done = on_a_mount_without_code(f"{sys.executable} -m tile_oracle.cli doctor --build-dir no_code", no_code)
    (told,) = [line for line in done.stdout.splitlines() if "noexec" in line]
    assert told.startswith("  missing loading: no kernel can be loaded from ")
    assert told.endswith(REFUSAL)
    assert "target cpu: kernels can run here" not in done.stdout
    line = "-m tile_oracle.cli build --kernel-set tiny --kernel-filter 'tile_m == 16' -o no_code/built"
    done = on_a_mount_without_code(f"{sys.executable} {line}", no_code)
    assert done.returncode == 0, done.stdout + done.stderr
