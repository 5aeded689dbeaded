"""The clock of the CPU target: the harness's own machine code times runs of a kernel.

A kernel must not report its own time, and a Python loop would add about a microsecond to each run. So this
module has the machine code of tests/device/clock.c for each supported processor; a test compiles that file
and compares. On other processors nothing is timed.

Its clock is the C library's clock_gettime, which reads the time in the vDSO. A kernel runs in the same
process and can make this memory writable. So the code, and the pointers that lead to it, are compared with a
copy from the worker's start.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tile_oracle.errors import TargetError
from tile_oracle.files.passing_errors import unless_passing

_PAGE = 4096
_CODE_BYTES = 2 * _PAGE
"""The part of the C library's code that is compared, from the page of clock_gettime on."""
_LOADER = "ld-"
_LIBC = ctypes.CDLL(None)
_LIBC.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)


@dataclass(frozen=True)
class _Mapping:
    """One line of /proc/self/maps."""

    first: int
    last: int
    rights: str
    file: str

    def holds(self, address: int) -> bool:
        return self.first <= address < self.last


class ClockCode:
    """The bytes of the clock's code as they were when this was made.

    now: address of clock_gettime. own: further code of the clock, as (address, bytes).
    """

    def __init__(self, now: int, own: Sequence[tuple[int, int]] = ()) -> None:
        places = [*own, *_places(now, _mappings())]
        self._copies = [(address, ctypes.string_at(address, size)) for address, size in places]

    def changed(self) -> bool:
        """Returns whether the code, or a pointer to it, differs now."""
        return any(_LIBC.memcmp(address, copy, len(copy)) for address, copy in self._copies)


def _places(now: int, mappings: Sequence[_Mapping]) -> Iterator[tuple[int, int]]:
    """Yields the code of clock_gettime, the vDSO, and the pointers that lead to it.

    The C library calls the vDSO through a pointer that it, or the dynamic loader, keeps in memory that is
    read-only once the program has started (RELRO): the mapping before the file's writable one.
    """
    home = next((one for one in mappings if one.holds(now)), None)
    if home is None:
        return
    first = now - now % _PAGE
    yield first, min(_CODE_BYTES, home.last - first)
    for one, after in zip(mappings, [*mappings[1:], None], strict=True):
        if one.file == "[vdso]":
            yield one.first, one.last - one.first
        known = one.file == home.file or Path(one.file).name.startswith(_LOADER)
        relro = after is not None and after.file == one.file and after.rights.startswith("rw")
        if known and relro and one.rights.startswith("r--"):
            yield one.first, one.last - one.first


def _mappings() -> list[_Mapping]:
    """Returns the memory of this process, in the order of its addresses; empty where the system does not
    tell."""
    found = []
    lines: list[str] = []
    with unless_passing():
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    for line in lines:
        span, rights, _, _, _, *file = line.split(maxsplit=5)
        first, last = (int(part, 16) for part in span.split("-"))
        found.append(_Mapping(first, last, rights, file[0] if file else ""))
    return found


CODE: Mapping[str, bytes] = {
    "x86_64": bytes.fromhex(
        """
            48837f18000f8e23040000554157415641554154534883ec4848c7442408000000004531ff48893c24eb150f1f440000
            4883442408084c3b7f180f8df60300004c89fb488b47384889442418488b4740488b57304983c70148894424104885d2
            0f8eee0100004531c0eb1f0f1f440000488b3c24488b57304c8b4424204983c0014939d00f8dc6010000488b4f284c89
            c648c1e6074a8d34c6488b4431084885c07eda4c894424204801f1488b114c8b411031f6eb17662e0f1f840000000000
            488b41084883c6014839c67da34d85c07ef24c8b491831ffeb0f660f1f4400004883c7014c39c77dd74d85c97ef24c8b
            51204531c0662e0f1f840000000000904c8b59384c0fafde4c0359284c8b71404c0faff74c8b49484d0fafc84d01f14d
            01d94c8b71684c0faff64c0371584c8b61704c0fafe74c8b59784d0fafd84d01e34d01f34c8b71304c8b69604b8b2cfe
            4c01cd4f8b64fd004d030cde4d01dc4d035cdd004983fa107d164531f6e9ad000000662e0f1f8400000000000f1f4000
            4531ed662e0f1f8400000000000f1f004c8b51504d21ea4c8bb1800000004d21ee430f100411420f104c15000f57c843
            0f100433430f1014340f57d00f57d1420f10042a0f57c2420f11042a4c8b51204d8d75104983c5204d39d54d89f57eb0
            eb3d662e0f1f8400000000000f1f40004c8b51504d21f24c8ba9800000004d21f5420fb6441500433204114332042b43
            32042c423004324983c6014c8b51204d39d67ccc4983c0014c01d24c8b49184d39c80f8cc8feffff4c8b4110e99ffeff
            ff662e0f1f8400000000000f1f440000488b47404c897f504885c07e24488b442410480faf442408480344241831c990
            488b14c8c602ff4883c101483b4f407cefbf01000000488d742438488b0424ff5010488b0424488b7808488b0424ff10
            89c5bf01000000488d742428488b0424ff5010488b3c24488b4f404885c90f8ebd000000488b47484883f901751231d2
            e984000000662e0f1f840000000000904889ce48bafeffffffffffff7f4821d6488b542410480faf542408488b7c2418
            4c8d14174983c20831d2660f1f4400004d8b44d2f8450fb6004531c94180f8ff410f94c14901c1488b04244c89484849
            8b04d2440fb60031c04180f8ff488b3c240f94c04c01c8488947484883c2024839d675bcf6c1017428488b742410480f
            aff3488b4c2418488d0cf1488b0cd10fb60931d280f9ff0f94c24801c24889574885ed0f85a8000000488b442428482b
            4424384869c000ca9a3b4803442430482b442440488b4f20488904d9483b5f580f857afcffff488b4f704883f9107d10
            31c0eb40662e0f1f840000000000669031d2662e0f1f8400000000000f1f4000488b4760488b4f680f1004100f110411
            488b4f70488d42104883c2204839ca4889c27edc4839c80f8d23fcffff0f1f00488b4f60488b57680fb60c01880c0248
            83c001483b47707ce7e902fcffff31c0c34863c5eb0231c04883c4485b415c415d415e415f5dc3
            """
    ),
    "aarch64": bytes.fromhex(
        """
            080c40f91f0500f16b180054ffc301d1fe6f02a9fa6703a9f85f04a9f65705a9f44f06a919409952f30300aaf5031faa
            f8031faa16118052f71f80525973a77205000014680e40f9b52200911f0308ebaa1600546c2243a9fa0318aa692240f9
            180700919f0500f1cb0c0054ea031faa050000146c1a40f94a0500915f010cebca0b00546b1640f94b2d169b6e0540f9
            df0500f12bffff546c0140f96f0940f9ed031faa050000146e0540f9ad050091bf010eeb0afeff54ff0500f18bffff54
            710d40f9ee031faa04000014ce050091df010febaafeff543f0600f18bffff54701140f9ef031faa71c943a91f4200f1
            608542a9639145a931020d9b608946a9000c0d9b51460e9b722540f940000e9b623d40f943460f9b317878f8927878f8
            42000f9b20787af881787af87100118b6000008b5200128b4100018be2031faaab040054702940f9634140f91002028a
            6300028a0068f03c216af03c2268e33c436ae33c43800091201c206e411c236e001c216e8169e23c001c216e8069a23c
            42400091701140f97f0010ebcdfdff5411000014702940f9634140f91002028a6300028a04687038306a703825686338
            436a63381002044a84696238a300034a1002034a1002044a9069223842040091701140f95f0010ebebfdff54710d40f9
            ef0500918c01108bff0111ebebf7ff546f0940f9b6ffff176a2240f902000014ea0309aa3b21159b5f0500f1782a00f9
            0b010054e8031faa697b68f80805009137010039692240f91f0109eb6bffff54680a40f9e14300912000805200013fd6
            680240a900013fd6680a40f9f403002ae10300912000805200013fd6682240f91f0500f12b010054692640f96a8740f8
            4a0140395ffd03712915899a080500f1692600f941ffff54b4040035eaa340a9e90340f9eb0f40f9280108cb691240f9
            0829199b08010bcb28793af8682e40f95f0308eb81ecff54693a40f93f4100f16a000054e8031faa10000014e8031faa
            692a46a92069e83c4069a83c0a81009108410091693a40f95f0109eb2dffff5406000014692a46a92969683849692838
            08050091693a40f91f0109eb4bffff544dffff17e0031faac0035fd6807e409302000014e0031faaf44f46a9f65745a9
            f85f44a9fa6743a9fe6f42a9ffc30191c0035fd6
            """
    ),
}
"""platform.machine() -> the machine code of clock.c, which refers to nothing but its arguments."""

NOW = ctypes.cast(_LIBC.clock_gettime, ctypes.c_void_p).value or 0
"""Address of the C library's clock_gettime, found before a kernel is loaded: none can interpose its own."""


class Masks(ctypes.Structure):
    """Masks of clock.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("source", "at")),
        ("steps", ctypes.c_long * 3),
        ("within", ctypes.c_long),
    )


class Change(ctypes.Structure):
    """Change of clock.c."""

    _fields_ = (
        ("to", ctypes.c_void_p),
        ("extents", ctypes.c_long * 3),
        ("width", ctypes.c_long),
        ("masks", Masks * 2),
    )


class Turns(ctypes.Structure):
    """Runs of clock.c: what changes before each run, and what is looked at. `NativeClock.time` fills in what
    is run.

    changes: the address of an array of `Change`, whose lists `at` have one number more than there are runs.
    watched: of `watched_count` addresses for each run. kept_run: the run whose output, `out_bytes` at `out`,
    is copied to `kept`; -1: none. begun: after the runs, how many of them there were.
    """

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("launch", "args", "now")),
        ("count", ctypes.c_long),
        *((name, ctypes.c_void_p) for name in ("nanoseconds", "changes")),
        ("change_count", ctypes.c_long),
        ("watched", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in ("watched_count", "untouched", "begun", "kept_run")),
        *((name, ctypes.c_void_p) for name in ("out", "kept")),
        ("out_bytes", ctypes.c_long),
    )


@dataclass(frozen=True)
class Runs:
    """returned: the kernel's return value, 0 for success. untouched: watched bytes that a run had not written
    when it returned, summed over the runs.
    """

    returned: int
    nanoseconds: npt.NDArray[np.uint64]
    untouched: int


class NativeClock:
    """Runs kernels and measures the time between entry and return with CLOCK_MONOTONIC."""

    def __init__(self) -> None:
        """Raises TargetError where the machine code cannot run."""
        code = CODE.get(platform.machine())
        if code is None:
            raise TargetError(f"runs are timed on {' and '.join(CODE)} only: this is {platform.machine()}")
        try:
            rights = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
            self._memory = mmap.mmap(-1, len(code), prot=rights)
        except OSError as error:
            raise TargetError(f"this system forbids executable memory, which times runs: {error}") from None
        self._memory.write(code)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        rights = mmap.PROT_READ | mmap.PROT_EXEC
        _LIBC.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(len(code)), rights)
        self._run = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_void_p)(address)
        self._code = ClockCode(NOW, ((address, len(code)),))

    def changed(self) -> bool:
        """Returns whether a kernel has changed the code of this clock, so that its times cannot be
        trusted."""
        return self._code.changed()

    def time(self, launch: int, args: int, count: int, turns: Turns) -> Runs:
        """Runs the kernel `count` times. launch, args: addresses of the library's function and its
        argument."""
        nanoseconds = np.zeros(count, np.uint64)
        turns.launch, turns.args, turns.now, turns.count = launch, args, NOW, count
        turns.nanoseconds, turns.untouched = nanoseconds.ctypes.data, 0
        returned = int(self._run(ctypes.addressof(turns)))
        return Runs(returned, nanoseconds, turns.untouched)
