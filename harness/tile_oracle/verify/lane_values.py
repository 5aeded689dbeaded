"""Computes registers whose values follow from the thread's number and constants, for all threads at once.

Addresses in LDS are such values in nearly all kernels: parts of the thread's number, and a buffer's offset
that is a constant in each round of a loop. Arguments, loaded data and the workgroup's number are unknown.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tile_oracle.verify.instructions import Instruction, constant_of
from tile_oracle.verify.registers import EXEC, M0, SCC, VCC, numbers_of, register_mask

WAVE = 64
"""Threads of a wave."""
ALL = 0xFFFFFFFF
"""All bits of a register."""

Lanes = NDArray[np.int64]
Value = int | Lanes | None
"""A register's value without sign: the same in all threads, or one for each thread (-1: unknown, -2: computed
from a register that nothing was written to, so that no right program uses it); None: unknown."""
Values = dict[int, Value]
"""Number of a register (the bit of its mask) -> its value. Those that are not there are unknown."""


(SCC_NUMBER,) = numbers_of(SCC)
EXEC_NUMBERS, VCC_NUMBERS = numbers_of(EXEC), numbers_of(VCC)

ACROSS_LANES = ("mask", "first", "lane", "into lane")
"""Kinds of vector operations that write something else than a value in each active lane."""

Source = int | tuple[int, ...]
"""A constant, or the numbers of registers."""
_Compute = Callable[..., Any]


@dataclass(frozen=True)
class Operation:
    """A computation whose results are known if its sources are. results, sources: by operand. kind: how
    `execute` applies the function. sets_scc: SCC becomes whether the result is not zero. low_bits: the low N
    bits of the result depend on the low N bits of the sources alone."""

    kind: str
    compute: _Compute
    results: tuple[int, ...]
    sources: tuple[Source, ...]
    vector: bool
    sets_scc: bool = False
    low_bits: bool = False

    @property
    def written(self) -> tuple[int, ...]:
        """The registers that it computes."""
        return (*self.results, SCC_NUMBER) if self.sets_scc else self.results

    def read(self) -> Iterator[int]:
        """Yields the registers that it reads."""
        for one in self.sources:
            if not isinstance(one, int):
                yield from one

    def needed(self, wanted: int) -> Iterator[tuple[int, int]]:
        """(register, bits of it) that the wanted bits of the results depend on."""
        bits = (1 << wanted.bit_length()) - 1 if self.low_bits else ALL
        if self.kind == "shift" and isinstance(self.sources[1], int):
            bits = self._shifted(wanted, self.sources[1] & 31)
        elif self.kind == "bit" and isinstance(self.sources[1], int):
            bits = 1 << (self.sources[1] & 31)
        elif self.compute is operator.and_ and self.kind == "32":
            constants = [one for one in self.sources if isinstance(one, int)]
            bits = wanted & constants[0] if constants else wanted
        elif self.compute is _and_not and isinstance(self.sources[0], int):
            bits = wanted & self.sources[0]
        elif self.compute in (operator.or_, operator.xor, operator.pos) and self.kind == "32":
            bits = wanted
        for number in self.read():
            yield number, bits

    def _shifted(self, wanted: int, by: int) -> int:
        if self.compute is _shift_left:
            return wanted >> by
        return (wanted << by) & ALL if self.compute is _shift_right else ALL


def _signed(value: Any) -> Any:
    return (value ^ 0x80000000) - 0x80000000


def _and_not(a: Any, b: Any) -> Any:
    return a & ~b


def _shift_left(value: Any, by: Any) -> Any:
    return value << (by & 31)


def _shift_right(value: Any, by: Any) -> Any:
    return value >> (by & 31)


def _shift_right_signed(value: Any, by: Any) -> Any:
    return _signed(value) >> (by & 31)


def _field(value: Any, at: Any, width: Any) -> Any:
    return (value >> (at & 31)) & ((1 << (width & 31)) - 1)


def _signed_field(value: Any, at: Any, width: Any) -> Any:
    sign = 1 << (((width & 31) - 1) & 31)
    return ((_field(value, at, width) ^ sign) - sign) * ((width & 31) > 0)


def _scalar_field(value: Any, where: Any) -> Any:
    return _field(value, where, where >> 16 & 0x7F)


def _signed_scalar_field(value: Any, where: Any) -> Any:
    return _signed_field(value, where, where >> 16 & 0x7F)


def _high_product(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return a * b >> 32
    product = np.asarray(a, np.int64).astype(np.uint64) * np.asarray(b, np.int64).astype(np.uint64)
    return (product >> np.uint64(32)).astype(np.int64)


def _select(mask: Any, a: Any, b: Any) -> Any:
    return (mask & a) | (~mask & b)


def _rotate(high: Any, low: Any, by: Any) -> Any:
    return ((high << 32 | low) if isinstance(high, int) else (high & 0x7FFFFFFF) << 32 | low) >> (by & 31)


def _two(first: _Compute, second: _Compute) -> _Compute:
    return lambda a, b, c: second(first(a, b) & ALL, c)


_SIMPLE: Mapping[str, _Compute] = {
    "mov": operator.pos, "add": operator.add, "sub": operator.sub, "mul": operator.mul,
    "subrev": lambda a, b: b - a, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    "not": operator.invert, "andn2": _and_not, "orn2": lambda a, b: a | ~b,
    "xnor": lambda a, b: ~(a ^ b), "nand": lambda a, b: ~(a & b), "nor": lambda a, b: ~(a | b),
    "min_u": np.minimum, "max_u": np.maximum, "min_i": lambda a, b: np.minimum(_signed(a), _signed(b)),
    "max_i": lambda a, b: np.maximum(_signed(a), _signed(b)), "abs": lambda a: abs(_signed(a)),
}  # fmt: skip
_LOGICAL = ("mov", "and", "or", "xor", "not", "andn2", "orn2", "xnor", "nand", "nor")


def _named(form: str, names: Sequence[str], kinds: Sequence[str] = ("",)) -> dict[str, _Compute]:
    """Returns the simple computations by the names that a form like `s_{}_{}` gives them. A kind that ends in
    32 chooses among signed and unsigned ones."""
    return {
        form.format(name, kind): _SIMPLE.get(f"{name}_{kind[:1]}") or _SIMPLE[name]
        for name in names
        for kind in kinds
    }


def _by_kind(table: Mapping[str, Mapping[str, _Compute]]) -> Mapping[str, tuple[str, _Compute]]:
    return {name: (kind, compute) for kind, named in table.items() for name, compute in named.items()}


_SCALAR = _by_kind({
    "32": {
        **_named("s_{}_{}", ("add", "sub", "min", "max"), ("i32", "u32")), **_named("s_{}_b32", _LOGICAL),
        "s_movk_i32": operator.pos, "s_mul_i32": operator.mul, "s_mul_hi_u32": _high_product,
        "s_abs_i32": _SIMPLE["abs"], "s_bfe_u32": _scalar_field, "s_bfe_i32": _signed_scalar_field,
        "s_lshl1_add_u32": lambda a, b: (a << 1) + b, "s_lshl2_add_u32": lambda a, b: (a << 2) + b,
        "s_lshl3_add_u32": lambda a, b: (a << 3) + b, "s_lshl4_add_u32": lambda a, b: (a << 4) + b,
        "s_sext_i32_i16": lambda a: ((a & 0xFFFF) ^ 0x8000) - 0x8000,
        "s_sext_i32_i8": lambda a: ((a & 0xFF) ^ 0x80) - 0x80,
        "s_bfm_b32": lambda a, b: ((1 << (a & 31)) - 1) << (b & 31),
        "s_pack_ll_b32_b16": lambda a, b: (a & 0xFFFF) | (b & 0xFFFF) << 16,
    },
    "64": _named("s_{}_b64", _LOGICAL),
    "shift": {"s_lshl_b32": _shift_left, "s_lshr_b32": _shift_right, "s_ashr_i32": _shift_right_signed},
    "cselect": {"s_cselect_b32": operator.pos, "s_cselect_b64": operator.pos},
    "onto": {"s_addk_i32": operator.add, "s_mulk_i32": operator.mul},
    "saveexec": _named("s_{}_saveexec_b64", ("and", "or", "xor", "andn2")),
})  # fmt: skip

_VECTOR = _by_kind({
    "32": {
        **_named("v_{}_b32", ("mov", "and", "or", "xor", "not", "xnor")),
        **_named("v_{}_u32", ("add", "sub", "subrev")), **_named("v_{}_{}", ("min", "max"), ("i32", "u32")),
        **_named("v_accvgpr_{1}_b32", ("mov",), ("read", "write", "mov")),
        "v_mul_lo_u32": operator.mul, "v_mul_hi_u32": _high_product,
        "v_mul_u32_u24": lambda a, b: (a & 0xFFFFFF) * (b & 0xFFFFFF),
        "v_mul_i32_i24": lambda a, b: _signed_field(a, 0, 24) * _signed_field(b, 0, 24),
        "v_mad_u32_u24": lambda a, b, c: (a & 0xFFFFFF) * (b & 0xFFFFFF) + c,
        "v_mad_i32_i24": lambda a, b, c: _signed_field(a, 0, 24) * _signed_field(b, 0, 24) + c,
        "v_and_or_b32": _two(operator.and_, operator.or_), "v_or3_b32": _two(operator.or_, operator.or_),
        "v_add3_u32": _two(operator.add, operator.add), "v_lshl_or_b32": _two(_shift_left, operator.or_),
        "v_lshl_add_u32": _two(_shift_left, operator.add), "v_add_lshl_u32": _two(operator.add, _shift_left),
        "v_xad_u32": _two(operator.xor, operator.add), "v_bfe_u32": _field, "v_bfe_i32": _signed_field,
        "v_bfi_b32": _select, "v_alignbit_b32": _rotate, "v_and_b16": operator.and_,
        "v_lshlrev_b16": lambda by, a: (a << (by & 15)) & 0xFFFF,
        "v_lshrrev_b16": lambda by, a: (a & 0xFFFF) >> (by & 15),
        "v_add_u16": lambda a, b: (a + b) & 0xFFFF, "v_sub_u16": lambda a, b: (a - b) & 0xFFFF,
        "v_mul_lo_u16": lambda a, b: (a * b) & 0xFFFF, "v_mad_u16": lambda a, b, c: (a * b + c) & 0xFFFF,
    },
    "64": {"v_mov_b64": operator.pos},
    "carry": {**_named("v_{}_co_u32", ("add", "sub", "subrev")), "v_mad_u64_u32": lambda a, b, c: a * b + c},
    "reversed": {
        "v_lshlrev_b32": _shift_left, "v_lshrrev_b32": _shift_right, "v_ashrrev_i32": _shift_right_signed,
    },
    "low half": {
        "v_lshlrev_b64": lambda by, a: _shift_left(a, by), "v_lshl_add_u64": _two(_shift_left, operator.add),
    },
    "table": {"v_bitop3_b32": operator.pos, "v_bitop3_b16": operator.pos},
    "cndmask": {"v_cndmask_b32": operator.pos},
    "first": {"v_readfirstlane_b32": operator.pos},
    "lane": {"v_readlane_b32": operator.pos},
    "into lane": {"v_writelane_b32": operator.pos},
    "low lanes": {"v_mbcnt_lo_u32_b32": operator.pos},
    "high lanes": {"v_mbcnt_hi_u32_b32": operator.pos},
})  # fmt: skip

_RELATIONS: Mapping[str, _Compute] = {
    "eq": operator.eq, "lg": operator.ne, "ne": operator.ne, "gt": operator.gt, "ge": operator.ge,
    "lt": operator.lt, "le": operator.le,
}  # fmt: skip
_ONLY_INTEGERS = ("i32", "u32", "u16", "i16", "u64")
_SELECTED = {"WORD_0": (0, 16), "WORD_1": (16, 16), "BYTE_0": (0, 8), "BYTE_1": (8, 8), "BYTE_2": (16, 8),
             "BYTE_3": (24, 8), "DWORD": (0, 32)}  # fmt: skip


def operation_of(one: Instruction) -> Operation | None:
    """Returns what an instruction computes; None for those whose results are unknown."""
    name = one.line.mnemonic
    operands = one.line.operands
    for suffix in ("_e32", "_e64", "_sdwa"):
        name = name.removesuffix(suffix)
    if one.matrix is not None or one.memory or one.dpp or not operands or one.half_result:
        return None
    allowed = ("src0_sel:", "src1_sel:", "dst_sel:DWORD", "dst_unused:UNUSED_PAD", "bitop3:")
    if any(not word.startswith(allowed) for word in one.line.modifiers):
        return None
    if name.startswith(("s_cmp_", "s_cmpk_", "v_cmp_", "s_bitcmp")):
        return _comparison(name, one)
    found = (_VECTOR if one.vector else _SCALAR).get(name)
    if found is None:
        return None
    kind, compute = found
    results = register_mask(operands[0])
    rest = list(operands[1:])
    if kind in ("carry", "low half"):
        results, rest = results & -results, rest[kind == "carry" :]
    if kind == "onto":
        rest, kind = [operands[0], *rest], "32"
    if kind == "reversed":
        rest, kind = rest[::-1], "shift"
    sources = _sources(rest)
    if sources is None or not results:
        return None
    if kind in ("carry", "low half"):
        kind, sources = "32", tuple(one if isinstance(one, int) else one[:1] for one in sources)
    if kind == "table":
        kind, compute = "32", _truth_table(one, 0xFFFF if name.endswith("16") else ALL)
    if any(word.startswith("src") for word in one.line.modifiers):
        compute = _with_selection(compute, kind == "shift" and name.endswith(("rev_b32", "rev_i32")), one)
        kind = "32"
    if kind == "cndmask" and len(sources) == 2:
        sources = (*sources, VCC_NUMBERS)
    if kind == "cselect":
        sources = (*sources, (SCC_NUMBER,))
    if kind == "into lane":
        sources = (*sources, numbers_of(results))
    if kind == "saveexec":
        sources = (*sources, EXEC_NUMBERS)
    scalar_scc = not one.vector and bool(one.writes & SCC) and not name.startswith(
        ("s_add", "s_sub", "s_min", "s_max", "s_lshl1", "s_lshl2", "s_lshl3", "s_lshl4")
    )  # fmt: skip
    numbers = numbers_of(results) + (EXEC_NUMBERS if kind == "saveexec" else ())
    plain = compute in (operator.add, operator.sub, operator.mul) or "add" in name or "sub" in name
    shift_at = {"v_lshl_add_u32": 1, "v_add_lshl_u32": 2}.get(name)
    if shift_at is not None:
        plain = isinstance(sources[shift_at], int)
    low = kind == "32" and plain and "24" not in name
    return Operation(kind, compute, numbers, sources, one.vector, scalar_scc, low)


def _with_selection(compute: _Compute, is_reversed: bool, one: Instruction) -> _Compute:
    """Returns the computation on the parts of the sources that an SDWA instruction selects."""
    words = dict(word.split(":", 1) for word in one.line.modifiers if word.startswith("src"))
    first, second = (_SELECTED.get(words.get(f"src{i}_sel", "DWORD"), (0, 32)) for i in (0, 1))
    if is_reversed:
        first, second = second, first

    def selected(*sources: Any) -> Any:
        parts = zip(sources, (first, second), strict=False)
        return compute(*(value >> at & (1 << width) - 1 for value, (at, width) in parts))

    return selected


def _truth_table(one: Instruction, mask: int) -> _Compute:
    """Returns the function of three bits that an instruction's modifier has as a table."""
    words = [word.partition(":")[2] for word in one.line.modifiers if word.startswith("bitop3:")]
    table = int(words[0], 0) if words else 0

    def looked_up(*sources: Any) -> Any:
        a, b, c = (*sources, 0)[:3]
        found = a & 0
        for place in range(8):
            if table >> place & 1:
                found = found | (a if place & 4 else ~a) & (b if place & 2 else ~b) & (c if place & 1 else ~c)
        return found & mask

    return looked_up


def _comparison(name: str, one: Instruction) -> Operation | None:
    if name.startswith("s_bitcmp"):
        sources = _sources(one.line.operands)
        wanted = int(name[8])
        if sources is None:
            return None
        return Operation("bit", lambda a, b: (a >> (b & 31) & 1 == wanted) * 1, (SCC_NUMBER,), sources, False)
    relation, kind = name.split("_")[-2:]
    compare = _RELATIONS.get(relation)
    operands = one.line.operands if not one.vector else one.line.operands[1:]
    sources = _sources(operands)
    if compare is None or sources is None or kind not in _ONLY_INTEGERS:
        return None
    if kind == "u64":
        return None if one.vector else Operation("compare 64", compare, (SCC_NUMBER,), sources, False)
    width = int(kind[1:])

    def extended(value: Any) -> Any:
        value = value & (1 << width) - 1
        return value if kind[0] == "u" else (value ^ 1 << width - 1) - (1 << width - 1)

    def function(a: Any, b: Any) -> Any:
        return compare(extended(a), extended(b)) * 1

    if not one.vector:
        return Operation("32", function, (SCC_NUMBER,), sources, False)
    return Operation("mask", function, numbers_of(register_mask(one.line.operands[0])), sources, True)


def _sources(operands: Sequence[str]) -> tuple[Source, ...] | None:
    """Returns the sources; None if one is neither an integer nor registers."""
    found: list[Source] = []
    for operand in operands:
        constant = constant_of(operand)
        if constant is not None:
            found.append(constant)
        elif operand.startswith(("-", "|", "abs", "neg", "sext")) or not register_mask(operand):
            return None
        else:
            found.append(numbers_of(register_mask(operand)))
    return tuple(found)


@dataclass(frozen=True)
class Threads:
    """The threads of a workgroup of one dimension, in whole waves."""

    waves: int

    @property
    def number(self) -> Lanes:
        """Each thread's number."""
        return np.arange(self.waves * WAVE, dtype=np.int64)

    def by_wave(self, value: Lanes) -> Lanes:
        """Returns the values by wave and lane."""
        return value.reshape(self.waves, WAVE)

    def same_in_wave(self, by_wave: Lanes) -> Value:
        """Returns a register of waves from one value for each."""
        return _normal(np.repeat(by_wave, WAVE))

    def bits(self, low: Value, high: Value) -> Lanes | None:
        """Returns each thread's bit of a mask of lanes: 0, 1 or -1; None if nothing is known."""
        if low is None or high is None:
            return None
        lane = self.number % WAVE
        half = np.where(lane < 32, low, high)
        return np.where(half < 0, -1, half >> (lane & 31) & 1)

    def mask(self, bits: Value) -> tuple[Value, Value]:
        """Returns the halves of the mask of lanes with these bits."""
        if bits is None:
            return None, None
        if isinstance(bits, int):
            return (ALL, ALL) if bits else (0, 0)
        halves = bits.reshape(self.waves, 2, 32)
        words = (np.maximum(halves, 0) << np.arange(32)).sum(axis=2)
        words = np.where((halves < 0).any(axis=2), -1, words)
        return self.same_in_wave(words[:, 0]), self.same_in_wave(words[:, 1])


def _normal(value: Any) -> Value:
    """Returns a number if it is known and the same in all threads; None if it is known in none."""
    first = int(value[0])
    if (value == first).all():
        return first if first >= 0 else None if first == -1 else value
    return value  # type: ignore[no-any-return]


def _apply(compute: _Compute, sources: Sequence[Value]) -> Value:
    """Returns a computation in each thread where all sources are known."""
    if any(one is None for one in sources):
        return None
    if all(isinstance(one, int) for one in sources):
        return int(compute(*sources)) & ALL
    result = np.asarray(compute(*sources), dtype=np.int64) & ALL
    for one in sources:
        if not isinstance(one, int):
            result = np.where(one < 0, np.minimum(one, result), result)  # type: ignore[arg-type, operator]
    return _normal(result)


def execute(operation: Operation, values: Values, threads: Threads, exec_is_full: bool) -> None:
    """Replaces the values of the registers that an operation writes."""
    results = _computed(operation, values, threads, exec_is_full)
    if operation.sets_scc:
        scc: Value = None
        if all(one is not None for one in results[:2]):
            parts = results[:1] if operation.kind in ("32", "shift") else results[:2]
            scc = _apply(lambda *halves: sum(half != 0 for half in halves) > 0, parts)
        values[SCC_NUMBER] = scc
    masked = operation.vector and operation.kind not in ACROSS_LANES
    if masked and not exec_is_full:
        active = threads.bits(*(values.get(number) for number in EXEC_NUMBERS))
        results = [
            _merged(values.get(number), new, active)
            for number, new in zip(operation.results, results, strict=True)
        ]
    for number, value in zip(operation.results, results, strict=True):
        values[number] = value


def _merged(old: Value, new: Value, active: Lanes | None) -> Value:
    """Returns the new value in active threads, the old one in others; unknown where it is not known which."""
    if active is None:
        return old if isinstance(old, int) and isinstance(new, int) and old == new else None
    before = -1 if old is None else old
    after = -1 if new is None else new
    either = np.where(np.equal(before, after), after, -1)
    return _normal(np.where(active == 1, after, np.where(active == 0, before, either)))


def _computed(operation: Operation, values: Values, threads: Threads, exec_is_full: bool) -> list[Value]:
    """Returns the results by register, in active threads."""
    kind, compute = operation.kind, operation.compute
    low, high = (_halves(operation, values, half) for half in (0, 1))
    if kind in ("32", "shift", "bit"):
        return [_apply(compute, low)]
    if kind == "64":
        return [_apply(compute, low), _apply(compute, high)][: len(operation.results)]
    if kind == "compare 64":
        known = all(isinstance(one, int) for one in (*low, *high))
        pairs = [b << 32 | a for a, b in zip(low, high, strict=True)] if known else []  # type: ignore[operator]
        return [int(compute(*pairs)) if known else None]
    if kind == "mask":
        bits = _apply(compute, low)
        if not exec_is_full:
            active = threads.bits(*(values.get(number) for number in EXEC_NUMBERS))
            bits = None if active is None or bits is None else _apply(operator.and_, [bits, active])
        return list(threads.mask(bits))
    if kind == "saveexec":
        kept = [values.get(number) for number in EXEC_NUMBERS]
        return [*kept, _apply(compute, low), _apply(compute, high)]
    if kind == "cselect":
        return [_chosen(low[2], b, a) for a, b in ((low[0], low[1]), (high[0], high[1]))][
            : len(operation.results)
        ]
    if kind == "cndmask":
        return [_chosen(threads.bits(low[2], high[2]), low[0], low[1])]
    return [_across_lanes(operation, low, threads, exec_is_full)]


def _halves(operation: Operation, values: Values, half: int) -> list[Value]:
    """Returns the lower or upper 32 bits of each source."""
    found: list[Value] = []
    for source in operation.sources:
        if isinstance(source, int):
            found.append(source >> 32 * half & ALL if half == 0 or source >= 0 else ALL)
        else:
            found.append(values.get(source[min(half, len(source) - 1)]))
    return found


def _chosen(condition: Value, if_zero: Value, if_one: Value) -> Value:
    if condition is None:
        same = isinstance(if_zero, int) and isinstance(if_one, int) and if_zero == if_one
        return if_zero if same else None
    if isinstance(condition, int):
        return if_one if condition else if_zero
    zero, one = (-1 if side is None else side for side in (if_zero, if_one))
    return _normal(np.where(condition < 0, -1, np.where(condition, one, zero)))


def _across_lanes(operation: Operation, low: list[Value], threads: Threads, exec_is_full: bool) -> Value:
    """Lane accesses, and counts of lower lanes."""
    kind, value = operation.kind, low[0]
    if kind in ("low lanes", "high lanes"):
        if value != ALL or low[1] is None:
            return None
        lane = threads.number % WAVE
        below = np.minimum(lane, 32) if kind == "low lanes" else np.maximum(lane - 32, 0)
        return _apply(operator.add, [below, low[1]])
    lane_number = low[1] if len(low) > 1 else 0
    if kind == "into lane":
        old = low[2]
        if not isinstance(lane_number, int):
            return None
        lanes = np.array(np.broadcast_to(-1 if old is None else old, threads.waves * WAVE))
        threads.by_wave(lanes)[:, lane_number & 63] = (
            -1 if value is None else value if isinstance(value, int) else threads.by_wave(value)[:, 0]
        )
        return _normal(lanes)
    if value is None or isinstance(value, int):
        return value
    if not isinstance(lane_number, int):
        return None
    by_wave = threads.by_wave(value)
    if kind == "first" and not exec_is_full and (by_wave != by_wave[:, :1]).any():
        return None
    return threads.same_in_wave(by_wave[:, lane_number & 63])


_OFFSET = re.compile(r"offset([01]?):(\d+)")
_BITS = re.compile(r"_(?:b|u|i|f)(8|16|32|64|96|128)")
_COPIED_DWORDS = re.compile(r"dword(?:x([34]))?")


def accesses_lds(one: Instruction) -> bool:
    """Returns whether an instruction reads or writes LDS, or copies to it."""
    return one.lds_read or one.lds_write or one.to_lds


def address_register(one: Instruction) -> int:
    """Returns the mask of the register that an access's address in LDS is in."""
    if one.to_lds:
        return M0
    operands = one.line.operands
    place = 1 if one.loads and len(operands) > 1 else 0
    return register_mask(operands[place]) if len(operands) > place else 0


def lds_begins(one: Instruction, values: Values, threads: Threads) -> tuple[list[np.ndarray], int] | None:
    """Returns the first bytes that each thread accesses (`Value`), and the width; None if nothing is
    known."""
    if "addtid" in one.line.mnemonic or "gds" in one.line.modifiers:
        return None
    (number,) = numbers_of(address_register(one)) or (-1,)
    base = values.get(number)
    if base is None:
        return None
    offsets, width = _offsets(one)
    lanes = np.broadcast_to(np.asarray(base, np.int64), (threads.waves * WAVE,))
    if one.to_lds:
        lanes = np.where(lanes < 0, lanes, lanes + threads.number % WAVE * width)
    return [np.where(lanes < 0, lanes, lanes + offset) for offset in offsets], width


def _offsets(one: Instruction) -> tuple[list[int], int]:
    """Returns the constant offsets of an access to LDS, and its bytes at each."""
    line = one.line
    found = {match[1]: int(match[2]) for word in line.modifiers if (match := _OFFSET.fullmatch(word))}
    if one.to_lds:
        match = _COPIED_DWORDS.search(line.mnemonic)
        return [found.get("", 0)], 4 * int(match[1] or 1) if match else 4
    bits = _BITS.search(line.mnemonic)
    width = int(bits[1]) // 8 if bits else 4
    if "read2" in line.mnemonic or "write2" in line.mnemonic:
        scale = width * (64 if "st64" in line.mnemonic else 1)
        return [found.get(which, 0) * scale for which in "01"], width
    return [found.get("", 0)], width


def least_end(one: Instruction) -> int:
    """Returns the end of the bytes that an access to LDS at an unknown address reaches at least."""
    offsets, width = _offsets(one)
    return max(offsets) + width
