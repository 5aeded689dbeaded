"""Decodes what the instructions of CDNA 3 and 4 (gfx942, gfx950) read, write and count, by mnemonic.

Sources: AMD's "Instruction Set Architecture" documents for CDNA 3 and CDNA 4 (chapters "Data Dependency
Resolution", "Manually Inserted Wait States", "Matrix Arithmetic Instructions"), LLVM's "User Guide for
AMDGPU Backend", and the source of that backend (wait states and passes of gfx950's matrix instructions).

`global_load_lds_*` and `buffer_load ... lds` count only in vmcnt, according to the ISA documents. LLVM up to
22.1 also counts them in lgkmcnt, which makes its waits too weak.
"""

from __future__ import annotations

import functools
import operator
import re
from dataclasses import dataclass

from tile_oracle.verify.assembly import Line
from tile_oracle.verify.registers import EXEC, M0, SCALAR_REGISTERS, SCC, VCC, VECTOR_REGISTERS, register_mask

NO_WAIT = 1 << 16
"""Value of `Instruction.wait_vm` and `wait_lgkm` without a wait on that counter."""

LDS, SCALAR_LOAD, FLAT, MESSAGE = "LDS", "scalar load", "flat", "message"
"""The kinds of instructions that lgkmcnt counts."""


@dataclass(frozen=True)
class Matrix:
    """A matrix instruction. passes: duration in passes of four cycles. xdl: XDL, that is not fp32 or fp64.
    double: fp64. ab, c: masks of the factors and of the accumulator input. side: rows of the block."""

    passes: int
    xdl: bool
    double: bool
    ab: int
    c: int
    side: int


@dataclass(frozen=True)
class Instruction:
    """The properties of one instruction that the verifier needs. Register sets are masks (`registers`).

    counts_vm: counted in vmcnt. counts_lgkm: its kind in lgkmcnt, or "". loads: registers written later, when
    the counter falls. lds_read, lds_write: accesses to LDS. to_lds: a direct copy from memory to LDS.
    wait_vm, wait_lgkm: the counts of s_waitcnt. wait_states: the wait states that it provides.
    """

    line: Line
    reads: int = 0
    writes: int = 0
    loads: int = 0
    counts_vm: bool = False
    counts_lgkm: str = ""
    lds_read: bool = False
    lds_write: bool = False
    to_lds: bool = False
    wait_vm: int = NO_WAIT
    wait_lgkm: int = NO_WAIT
    wait_states: int = 1
    barrier: bool = False
    ends: bool = False
    branch: str = ""
    conditional: bool = False
    leaves: bool = False
    vector: bool = False
    scalar: bool = False
    memory: bool = False
    transcendental: bool = False
    half_result: bool = False
    dot: bool = False
    lane_access: bool = False
    lane_select: int = 0
    permutes: bool = False
    dpp: bool = False
    divides_fmas: bool = False
    reads_m0_late: bool = False
    wide_store_data: int = 0
    matrix: Matrix | None = None
    known: bool = True


_TWO_RESULTS = re.compile(r"v_(add|sub|subrev|addc|subb|subbrev)_co_u32|v_div_scale|v_mad_[ui]64_[ui]32")
_READS_RESULT = re.compile(r"v_(fmac|mac|dot\d+c|pk_fmac|writelane|swap|smfmac|movreld|permlane\d*_swap)")
_TRANSCENDENTAL = re.compile(r"v_(rcp|rsq|sqrt|log|exp|sin|cos|prng)(_|$)")
_PACKED = ("v_pk_", "v_dot", "v_fma_mix", "v_mad_mix")
"""Instructions whose op_sel selects only sources."""
_DOT = re.compile(r"v_dot\d")
_SCALAR_READS_RESULT = re.compile(r"s_(addk|mulk|cmovk|bitset|cmov|movreld|rfe)")
_SCALAR_SETS_SCC = re.compile(
    r"s_(add|sub|addc|subb|min|max|and|or|xor|andn|orn|nand|nor|xnor|not|wqm|lsh|ash|bfe|bcnt|abs|absdiff|quadmask"
    r"|addk|cmp|cmpk|bitcmp|andn1|orn1|andn2|orn2|lshl\d_add)"
)
_SCALAR_READS_SCC = re.compile(r"s_(addc|subb|cselect|cmov|cmovk|cbranch_scc)")
_MATRIX = re.compile(r"v_(s?mfmac?)_(?:scale_)?(?:f32|i32|f64)_(\d+)x(\d+)x(\d+)(?:_(\d+)b)?_?(\w*)")
_NOT_LDS_MEMORY = ("ds_bpermute", "ds_permute", "ds_swizzle", "ds_nop", "ds_gws")
_DS_NO_RESULT = re.compile(r"ds_(write|add|sub|rsub|inc|dec|min|max|and|or|xor|mskor|cmpst|pk_add|wrap)")
_WAIT = re.compile(r"(vmcnt|lgkmcnt|expcnt)\((\d+)\)")
_WAIT_WORD = re.compile(r"(?:0x[0-9a-fA-F]+|\d+)")
_WIDTHS = re.compile(r"_(?:dword)?x([234])$|_b(96|128)$")


def decode(line: Line) -> Instruction:
    """Decodes one line of assembly. Does not raise: unknown instructions have `known` False."""
    name = line.mnemonic
    if name.startswith("v_"):
        return _vector(line, _base(name))
    if name.startswith("s_"):
        return _scalar(line)
    if name.startswith("ds_"):
        return _lds(line)
    if name.startswith(("global_", "buffer_", "scratch_", "flat_", "tbuffer_")):
        return _memory(line)
    return Instruction(line, known=name in ("exp",))


def _base(name: str) -> str:
    for suffix in ("_e32", "_e64", "_sdwa", "_dpp", "_e64_dpp"):
        name = name.removesuffix(suffix)
    return name


def _masks(operands: tuple[str, ...]) -> list[int]:
    return [register_mask(operand) for operand in operands]


def _union(masks: list[int]) -> int:
    return functools.reduce(operator.or_, masks, 0)


def _vector(line: Line, name: str) -> Instruction:
    masks = _masks(line.operands)
    if not masks or name == "v_nop":
        return Instruction(line, vector=True)
    if match := _MATRIX.match(name):
        return _matrix(line, masks, match)
    writes, rest = masks[0], masks[1:]
    if name.startswith("v_cmpx"):
        writes |= EXEC
    elif _TWO_RESULTS.match(name) and rest:
        writes |= rest[0]
        rest = rest[1:]
    elif name.startswith(("v_swap", "v_permlane")) and "swap" in name and rest:
        writes |= rest[0]
        rest = [*rest, masks[0]]
    reads = _union(rest)
    dpp = any(m.startswith(("row_", "quad_perm", "wave_")) for m in (*line.modifiers, *line.operands[-1:]))
    partial = "dst_unused:UNUSED_PRESERVE" in line.modifiers or dpp
    if _READS_RESULT.match(name) or partial:
        reads |= masks[0]
    if name.startswith("v_div_fmas"):
        reads |= VCC
    half = any(m.startswith("dst_sel:") and m != "dst_sel:DWORD" for m in line.modifiers)
    if not name.startswith(_PACKED):
        half = half or any(m.startswith("op_sel:[") and m.endswith("1]") for m in line.modifiers)
    # Unless it is preserved, the rest of the register is filled with zeros or the sign.
    if half and not {"dst_unused:UNUSED_PAD", "dst_unused:UNUSED_SEXT"} & set(line.modifiers):
        reads |= masks[0]
    lane = name.startswith(("v_readlane", "v_readfirstlane", "v_writelane"))
    select = masks[2] & (SCALAR_REGISTERS | M0) if lane and len(masks) > 2 else 0
    return Instruction(
        line,
        reads=reads | (0 if lane and "first" not in name else EXEC),
        writes=writes,
        vector=True,
        transcendental=_TRANSCENDENTAL.match(name) is not None,
        half_result=half,
        dot=_DOT.match(name) is not None,
        lane_access=lane,
        lane_select=select,
        permutes=name.startswith("v_permlane"),
        dpp=dpp,
        divides_fmas=name.startswith("v_div_fmas"),
    )


def _matrix(line: Line, masks: list[int], match: re.Match[str]) -> Instruction:
    sparse = match[1].startswith("s")
    result = masks[0]
    ab = _union(masks[1:3])
    c = result if sparse else (masks[3] if len(masks) > 3 else 0)
    others = _union(masks[3:]) if sparse else _union(masks[4:])
    m, n, k = (int(match[i]) for i in (2, 3, 4))
    kind = match[6].partition(" ")[0]
    return Instruction(
        line,
        reads=ab | c | others | EXEC,
        writes=result,
        vector=True,
        matrix=Matrix(
            _passes(m, n, k, kind, line.modifiers),
            kind not in ("f32", "f64"),
            kind == "f64",
            ab | others,
            c,
            m,
        ),
    )


def _passes(m: int, n: int, k: int, kind: str, modifiers: tuple[str, ...]) -> int:
    """Passes according to LLVM's SISchedule.td, the model of gfx950."""
    if kind == "f64":
        return 4 if (m, n) == (4, 4) else 16
    if (m, n) == (4, 4):
        return 2
    if "f8f6f4" in kind:
        formats = [m.partition(":")[2] for m in modifiers if m.startswith(("cbsz:", "blgp:"))]
        # fp8 and bf8 are formats 0 and 1; format 0 is omitted in assembly.
        slow = len(formats) < 2 or any(one in ("0", "1") for one in formats)
        return (8 if slow else 4) if m == 16 else (16 if slow else 8)
    if m == 16:
        return 8 if k <= 4 else 4
    return 16 if k <= 2 or (k == 4 and kind in ("f16", "bf16", "i8", "bf16_1k")) else 8


def _scalar(line: Line) -> Instruction:
    name, masks = line.mnemonic, _masks(line.operands)
    touched, first = _union(masks), line.operands[0] if line.operands else ""
    one = functools.partial(Instruction, line, scalar=True)
    if name == "s_waitcnt":
        vm, lgkm = _waits(line)
        return one(wait_vm=vm, wait_lgkm=lgkm)
    if name == "s_nop":
        return one(wait_states=int(first or "0", 0) + 1)
    if name == "s_barrier" or name.startswith("s_endpgm"):
        return one(barrier=name == "s_barrier", ends=name != "s_barrier")
    if name == "s_branch":
        return one(branch=first)
    if name.startswith("s_cbranch_"):
        condition = {"scc": SCC, "vcc": VCC, "exe": EXEC}.get(name[10:13], 0)
        return one(reads=condition, branch=first, conditional=True, known=condition != 0)
    if name.startswith(("s_setpc", "s_swappc", "s_call")):
        return one(reads=touched, leaves=True, known=False)
    if name.startswith(("s_load_", "s_buffer_load_", "s_scratch_load_", "s_memtime", "s_memrealtime")):
        return one(reads=_union(masks[1:]), loads=masks[0], counts_lgkm=SCALAR_LOAD)
    if name.startswith(("s_store_", "s_buffer_store_", "s_atomic_", "s_buffer_atomic_")):
        return one(reads=touched, counts_lgkm=SCALAR_LOAD)
    if name.startswith("s_sendmsg"):
        return one(reads=M0, counts_lgkm=MESSAGE, reads_m0_late=name != "s_sendmsghalt")
    if name.startswith(("s_cmp", "s_bitcmp")):
        return one(reads=touched, writes=SCC)
    if not masks or name.startswith((*_NO_REGISTERS, "s_setreg")):
        return one(reads=touched)
    writes, reads = masks[0], _union(masks[1:])
    if _SCALAR_READS_RESULT.match(name):
        reads |= masks[0]
    if _SCALAR_READS_SCC.match(name):
        reads |= SCC
    if "saveexec" in name or "wrexec" in name:
        writes |= EXEC | SCC
        reads |= EXEC
    elif _SCALAR_SETS_SCC.match(name):
        writes |= SCC
    return one(reads=reads, writes=writes, reads_m0_late=name.startswith("s_movrel"))


_NO_REGISTERS = (
    "s_setprio", "s_sleep", "s_sethalt", "s_setkill", "s_inst_prefetch", "s_icache_inv", "s_dcache",
    "s_trap", "s_incperflevel", "s_decperflevel", "s_ttracedata", "s_set_gpr_idx", "s_code_end", "s_wakeup",
    "s_set_valu",
)  # fmt: skip


def _waits(line: Line) -> tuple[int, int]:
    text = " ".join((*line.operands, *line.modifiers))
    counts = {match[1]: int(match[2]) for match in _WAIT.finditer(text)}
    if not counts and line.operands and _WAIT_WORD.fullmatch(line.operands[0]):
        word = int(line.operands[0], 0)
        vm = (word & 0xF) | (word >> 10 & 0x30)
        lgkm = word >> 8 & 0xF
        return (NO_WAIT if vm == 63 else vm), (NO_WAIT if lgkm == 15 else lgkm)
    return counts.get("vmcnt", NO_WAIT), counts.get("lgkmcnt", NO_WAIT)


def _lds(line: Line) -> Instruction:
    name = line.mnemonic
    masks = _masks(line.operands)
    if name.startswith("ds_gws"):
        reads = _union(masks) | M0 | EXEC
        return Instruction(line, reads=reads, counts_lgkm=LDS, memory=True, reads_m0_late=True)
    returns = "rtn" in name or not _DS_NO_RESULT.match(name)
    exchanges = name.startswith(_NOT_LDS_MEMORY)
    loads = masks[0] if returns and masks and name != "ds_nop" else 0
    reads = _union(masks[1:] if returns else masks)
    if "d16" in name:
        reads |= loads
    only_reads = name.startswith(("ds_read", "ds_load"))
    return Instruction(
        line,
        reads=reads | EXEC,
        loads=loads,
        counts_lgkm=LDS,
        lds_read=not exchanges and (only_reads or returns),
        lds_write=not exchanges and not only_reads,
        memory=True,
    )


def _memory(line: Line) -> Instruction:
    name, masks = line.mnemonic, _masks(line.operands)
    if name.startswith(_NOT_COUNTED):
        # Undercounting is safe, because a wait then covers less.
        return Instruction(line, memory=True)
    flat = FLAT if name.startswith("flat_") else ""
    one = functools.partial(Instruction, line, counts_vm=True, counts_lgkm=flat, memory=True)
    touched, loads = _union(masks) | EXEC, masks[0] if masks else 0
    is_atomic = "_atomic_" in name
    if "_lds_" in name or "lds" in line.modifiers:
        return one(reads=touched | M0, counts_lgkm="", to_lds=True, reads_m0_late=True)
    if "_load_" in name:
        keeps = "d16" in name or "tfe" in line.modifiers
        return one(reads=touched if keeps else _union(masks[1:]) | EXEC, loads=loads)
    if is_atomic and ("sc0" in line.modifiers or "glc" in line.modifiers):
        in_place = name.startswith("buffer_")
        return one(reads=touched if in_place else _union(masks[1:]) | EXEC, loads=loads)
    known = is_atomic or "_store_" in name
    return one(reads=touched, wide_store_data=_wide_data(line, masks), known=known)


_NOT_COUNTED = (
    *("buffer_inv", "buffer_wbl2", "buffer_wbinvl1", "buffer_gl"),
    *("global_wb", "global_inv"),
)


def _wide_data(line: Line, masks: list[int]) -> int:
    """Returns the data registers of a store of more than 8 bytes, which the next instruction must not
    overwrite. Buffer stores with a scalar offset are exempt."""
    match = _WIDTHS.search(line.mnemonic)
    if match is None or match[1] == "2":
        return 0
    is_buffer = line.mnemonic.startswith("buffer_")
    if is_buffer and len(masks) > 3 and masks[3]:
        return 0
    data = masks[:1] if is_buffer else masks[1:2]
    return _union(data) & VECTOR_REGISTERS


@functools.lru_cache(maxsize=1 << 16)
def constant_of(operand: str) -> int | None:
    """Returns the value of an integer constant, or None."""
    try:
        return int(operand, 0)
    except ValueError:
        return None
