"""Kernels whose waits, barriers or buffers are broken, and right rewritings: what the verifier of waits says.

A mutant counts where a trace of it shows that it is broken: one way through the code, with the bytes of every
access to LDS, on which an access is not ordered or a register is used before it is loaded. The trace follows
the definition, access by access. It shares the tables and the addresses with the verifier, not the analysis.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.source_providers import open_kernel_source
from tile_oracle.kernel import parse_kernel_name
from tile_oracle.verify.assembly import parse_assembly
from tile_oracle.verify.graph import control_flow
from tile_oracle.verify.instructions import LDS, NO_WAIT, Instruction, decode
from tile_oracle.verify.lane_values import WAVE
from tile_oracle.verify.lds_paths import LdsPaths, follow_lds
from tile_oracle.verify.verifier import verify_assembly
from tools.faults.campaign import Campaign, Outcome, main

ARCH = "gfx950"
NATIVE = (
    "gemm_bf16_rcr_compv3_cshuffle_intrawave_False_False_False_False_64x64x64_2x2x1_16x16x32",
    "gemm_fp16_rrr_compv3_cshuffle_intrawave_False_False_False_False_64x64x128_2x2x1_16x16x32",
    "gemm_bf16_rcr_compv4_cshuffle_intrawave_False_False_False_False_16x64x128_1x4x1_16x16x32",
    "gemm_bf16_rcr_comp_async_cshuffle_intrawave_False_False_False_False_64x64x64_2x2x1_16x16x32",
    "gemm_bf16_rcr_basic_async_v1_cshuffle_interwave_False_False_False_False_64x64x64_2x2x1_16x16x32",
)
TRITON = re.compile(
    r"gemm_bf16_(rcr|rrr)_triton\.tiles\.BLOCK_K=64\.BLOCK_M=64\.BLOCK_N=64\..*num_stages=[23]\.num_warps=4"
    r"|attention_bf16_d64_causal1_triton\.attention_prefill\.BLOCK_M=64\..*num_warps=4"
)
MOST_TRITON = 5
ROUNDS = 5
"""Rounds of a loop of unknown length in a trace."""
MOST_STEPS = 3000
WAYS = 6
"""Traces of a kernel, which take other branches."""
REWRITINGS = 5
"""One in so many faults is a right rewriting, in which nothing may be found."""

_WAIT, _BARRIER = re.compile(r"^\s+s_waitcnt "), re.compile(r"^\s+s_barrier")
_COUNT = re.compile(r"(vmcnt|lgkmcnt)\((\d+)\)")
_PLACE = re.compile(r"\b(offset:|0x)([0-9a-f]+)$")
_CODE = re.compile(r"^\t[a-z]\w+")

_TARGET = "\t.amdgcn_target"

Lines = list[str]


def _drop(lines: Lines, at: int, draw: random.Random) -> Lines:
    return [*lines[:at], *lines[at + 1 :]]


def _loosen(lines: Lines, at: int, draw: random.Random) -> Lines:
    more = draw.choice((1, 1, 2, 8))
    changed = _COUNT.sub(lambda match: f"{match[1]}({int(match[2]) + more})", lines[at])
    return [*lines[:at], changed, *lines[at + 1 :]]


def _forget_counter(lines: Lines, at: int, draw: random.Random) -> Lines:
    counts = [match[0] for match in _COUNT.finditer(lines[at])]
    kept = draw.choice(counts) if len(counts) > 1 else "expcnt(0)"
    return [*lines[:at], f"\ts_waitcnt {kept}", *lines[at + 1 :]]


def _later(lines: Lines, at: int, draw: random.Random) -> Lines:
    """Moves the line behind some of the following instructions of its block."""
    end, passed, most = at + 1, 0, draw.randint(1, 6)
    while (
        end < len(lines) and passed < most and not re.match(r"^[.\w$]+:|\s+s_(c?branch|endpgm)", lines[end])
    ):
        passed += bool(_CODE.match(lines[end]))
        end += 1
    return [*lines[:at], *lines[at + 1 : end], lines[at], *lines[end:]]


def _swap_place(lines: Lines, at: int, draw: random.Random) -> Lines:
    """Replaces the offset by another one in the kernel: other buffers meet."""
    known = sorted({match[2] for line in lines if (match := _PLACE.search(line)) and _is_place(line)})
    changed = _PLACE.sub(lambda match: match[1] + draw.choice(known), lines[at])
    return [*lines[:at], changed, *lines[at + 1 :]]


def _is_place(line: str) -> bool:
    return bool(_PLACE.search(line)) and bool(re.match(r"^\t(ds_|s_add_i32 m0)", line))


_MUTATIONS: tuple[tuple[str, Callable[[str], bool], Callable[[Lines, int, random.Random], Lines]], ...] = (
    ("wait dropped", lambda line: bool(_WAIT.match(line)), _drop),
    ("wait loosened", lambda line: bool(_WAIT.match(line) and _COUNT.search(line)), _loosen),
    ("counter left out", lambda line: bool(_WAIT.match(line) and _COUNT.search(line)), _forget_counter),
    ("wait moved down", lambda line: bool(_WAIT.match(line)), _later),
    ("barrier dropped", lambda line: bool(_BARRIER.match(line)), _drop),
    ("barrier moved down", lambda line: bool(_BARRIER.match(line)), _later),
    ("buffer's place changed", _is_place, _swap_place),
)


def _strengthen(lines: Lines, at: int, draw: random.Random) -> Lines:
    changed = _COUNT.sub(lambda match: f"{match[1]}({draw.randint(0, int(match[2]))})", lines[at])
    return [*lines[:at], changed, *lines[at + 1 :]]


def _add(lines: Lines, at: int, draw: random.Random) -> Lines:
    """Puts a no-op or a wait for everything in front of an instruction."""
    return [*lines[:at], draw.choice(("\ts_nop 0", "\ts_waitcnt vmcnt(0) lgkmcnt(0)")), *lines[at:]]


def _rename(lines: Lines, at: int, draw: random.Random) -> Lines:
    """Exchanges two vector registers that stand in no range."""
    text = "\n".join(lines)
    ranges = [range(int(a), int(b) + 1) for a, b in re.findall(r"\bv\[(\d+):(\d+)\]", text)]
    alone = sorted(
        {int(one) for one in re.findall(r"\bv(\d+)\b", text)} - {0} - {i for r in ranges for i in r}
    )
    if len(alone) < 2:
        return lines
    one, other = draw.sample(alone, 2)
    new = {str(one): str(other), str(other): str(one)}
    return [
        re.sub(r"\b(v|\$vgpr)(\d+)\b", lambda match: match[1] + new.get(match[2], match[2]), line)
        for line in lines
    ]


def _exchange(lines: Lines, at: int, draw: random.Random) -> Lines:
    """Exchanges two neighbouring instructions that compute and do not depend on each other."""
    if not all(re.match(r"^\t[sv]_", line) for line in lines[at : at + 2]):
        return lines
    both = [
        decode(parse_assembly(f"\t.type\tx,@function\nx:\n{line}\n").functions[0].lines[0])
        for line in lines[at : at + 2]
    ]
    first, second = ((one.reads, one.writes) for one in both)
    plain = all(one.writes and not (one.memory or one.loads or one.matrix or one.leaves) for one in both)
    if not plain or first[1] & (second[0] | second[1]) or first[0] & second[1]:
        return lines
    # Wait states are counted by neighbours, of which each of the two has new ones.
    return [*lines[:at], "\ts_nop 7", lines[at + 1], lines[at], "\ts_nop 7", *lines[at + 2 :]]


_REWRITINGS: tuple[tuple[Callable[[str], bool], Callable[[Lines, int, random.Random], Lines]], ...] = (
    (lambda line: bool(_WAIT.match(line) and _COUNT.search(line)), _strengthen),
    (lambda line: bool(_CODE.match(line)), _add),
    (lambda line: bool(_CODE.match(line)), _rename),
    (lambda line: bool(re.match(r"^\t[sv]_(add|and|or|lshl|xor|mul|mov)", line)), _exchange),
)


@dataclass
class _Access:
    """An access to LDS in a trace. done: the step of the wait that covers it."""

    at: int
    one: Instruction
    footprint: int | None
    step: int
    done: int | None = None


@dataclass
class _Trace:
    """The state of a wave on its way through the code, and what is wrong there, by definition."""

    paths: LdsPaths
    waves: bool
    vm: list[_Access] = field(default_factory=list)
    lgkm: list[_Access] = field(default_factory=list)
    accesses: list[_Access] = field(default_factory=list)
    barriers: list[int] = field(default_factory=list)
    step: int = 0

    def is_wrong(self, at: int, one: Instruction, footprint: int | None) -> bool:
        """Executes an instruction; returns whether it uses what is not there or not ordered."""
        self.step += 1
        self._wait(one)
        if one.barrier:
            self.barriers.append(self.step)
        wrong = self._is_early(one)
        mine = _Access(at, one, footprint, self.step)
        if one.counts_vm:
            self.vm.append(mine)
        if one.counts_lgkm:
            self.lgkm.append(mine)
        if one.lds_read or one.lds_write or one.to_lds:
            wrong = wrong or any(self._races(before, mine) for before in self.accesses)
            self.accesses.append(mine)
        return wrong

    def _wait(self, one: Instruction) -> None:
        for queue, most in ((self.vm, one.wait_vm), (self.lgkm, one.wait_lgkm)):
            mixed = queue is self.lgkm and any(other.one.counts_lgkm != LDS for other in queue)
            if most >= NO_WAIT or (most and mixed):
                continue
            for other in queue[: max(0, len(queue) - most)]:
                other.done = self.step
            del queue[: max(0, len(queue) - most)]

    def _is_early(self, one: Instruction) -> bool:
        used = one.reads | one.writes
        return any(other.one.loads & used for other in (*self.vm, *self.lgkm))

    def _races(self, before: _Access, mine: _Access) -> bool:
        writes = before.one.lds_write or before.one.to_lds or mine.one.lds_write or mine.one.to_lds
        if not writes or before.footprint is None or mine.footprint is None or before.at == mine.at:
            return False
        own = before.one.to_lds and before.done is None and not mine.one.to_lds
        ordered = before.done is not None and any(before.done <= barrier for barrier in self.barriers)
        if ordered or not (self.waves or own):
            return False
        prints = self.paths.footprints
        first, second = prints[before.footprint], prints[mine.footprint]
        return (first.all_lanes or second.all_lanes) and first.meets(second, own)


def broken_ways(text: str, ways: Sequence[int]) -> Iterator[int]:
    """The ways, each a seed that draws branches, on which a trace of the kernel shows that it is broken."""
    function = parse_assembly(text).functions[0]
    code = [decode(line) for line in function.lines]
    paths = follow_lds(control_flow(function, code), code, function.most_threads, function.without_value)
    for way in ways:
        if _is_broken(code, _Trace(paths, function.most_threads > WAVE), random.Random(way)):
            yield way


def _is_broken(code: Sequence[Instruction], trace: _Trace, draw: random.Random) -> bool:
    blocks = trace.paths.graph.blocks
    visits: Counter[str] = Counter()
    number = 0
    while trace.step < MOST_STEPS:
        block = blocks[number]
        for at in range(block.begin, block.end):
            if trace.is_wrong(at, code[at], trace.paths.accesses[number].get(at)):
                return True
        if not block.successors:
            return False
        number = draw.choice(block.successors)
        back = [one for one in block.successors if blocks[one].begin <= block.begin]
        forth = [one for one in block.successors if one not in back]
        if back and forth:
            visits[block.name] += 1
            number = draw.choice(back if visits[block.name] % ROUNDS else forth)
    return False


def kernels(folder: Path) -> Iterator[tuple[str, str]]:
    """(name, assembly) of kernels that this project compiles, and of some in Triton that ship with it."""
    with Builder(ARCH, build_dir=folder, runs_here=False) as builder:
        for name in NATIVE:
            yield name, builder.assembly(parse_kernel_name(name))
    source = open_kernel_source(ARCH, "triton")
    shipped = [one for kind in source.kinds or () for one in source.pool(kind) if TRITON.fullmatch(one.name)]
    with Builder(ARCH, build_dir=folder, runs_here=False, source=source) as builder:
        for kernel in random.Random(1).sample(shipped, min(MOST_TRITON, len(shipped))):
            variants = builder.assembly(kernel).split(_TARGET)[1:]
            with_copies = [one for one in variants if re.search(r"^\tbuffer_load.* lds$", one, re.MULTILINE)]
            yield kernel.name, _TARGET + (with_copies or variants)[0]


def attempts(text: str, draw: random.Random) -> Iterator[tuple[str, str]]:
    """(what was done, text) of mutants, without end."""
    lines = text.splitlines()
    while True:
        what, fits, mutate = draw.choice(_MUTATIONS)
        places = [at for at, line in enumerate(lines) if fits(line)]
        if places:
            at = draw.choice(places)
            yield f"{what}: line {at + 1}", "\n".join(mutate(lines, at, draw))


def rewritten(text: str, draw: random.Random) -> str:
    """The text after some right rewritings."""
    lines = text.splitlines()
    for _ in range(draw.randint(1, 4)):
        fits, rewrite = draw.choice(_REWRITINGS)
        lines = rewrite(lines, draw.choice([at for at, line in enumerate(lines) if fits(line)]), draw)
    return "\n".join(lines)


def run(count: int, seed: int, texts: Sequence[tuple[str, str]] = ()) -> Outcome:
    """Verifies broken kernels and right rewritings. texts: instead of the campaign's kernels."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        texts = list(texts or kernels(Path(folder)))
    counts: Counter[str] = Counter()
    failures = []
    for name, text in texts:
        report = verify_assembly(text)
        counts["kernels as compiled: " + _said(text)] += 1
        if report.findings:
            failures.append(f"{name}: {report.findings[0].rule} in the kernel as it was compiled")
    streams = [attempts(text, draw) for _, text in texts]
    # A way through the code that no problem takes may look broken in a right kernel.
    ways = [sorted(set(range(WAYS)) - set(broken_ways(text, range(WAYS)))) for _, text in texts]
    for number in range(count):
        place = number % len(texts)
        name, _ = texts[place]
        if number % REWRITINGS == 0:
            name, text = draw.choice(texts)
            text = rewritten(text, draw)
            said = _said(text)
            counts["right rewritings: " + said] += 1
            if said == "found":
                failures.append(f"{name}: {verify_assembly(text).findings[0].lines()} in a right rewriting")
            continue
        shown = (one for one in streams[place] if any(True for _ in broken_ways(one[1], ways[place])))
        what, broken = next(shown)
        said = _said(broken)
        counts[f"{what.partition(':')[0]}: {said}"] += 1
        counts["broken kernels: " + said] += 1
        if said == "clean":
            failures.append(f"{name}: {what}: neither found nor named")
    return Outcome(count, dict(sorted(counts.items())), failures, {"kernels": len(texts)})


def _said(text: str) -> str:
    report = verify_assembly(text)
    return "found" if report.findings else "not proven" if report.not_proven else "clean"


CAMPAIGN = Campaign(
    name="lost_waits",
    promise="every broken kernel is found or named as not proven; nothing is found in right ones",
    full_count=560,
    run=run,
)

if __name__ == "__main__":
    sys.exit(main(CAMPAIGN))
