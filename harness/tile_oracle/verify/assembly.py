"""Parses the output of clang and LLVM's llvm-objdump for AMD GPUs into functions of instructions.

This module knows only the syntax: labels, directives, comments, operands and modifiers. `instructions` knows
what an instruction does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tile_oracle.errors import BuildError

_LABEL = re.compile(r"([A-Za-z_.$][\w.$@]*):")
_OBJDUMP_LABEL = re.compile(r"([0-9a-fA-F]{8,16}) <([^>]+)>:")
_ADDRESS = re.compile(r"//\s*([0-9A-Fa-f]+):\s*((?:[0-9A-Fa-f]{8}\s*)+)")
_MNEMONIC = re.compile(r"[a-z][a-z0-9_]*")
_HSA = re.compile(r"\.amdhsa_(\w+)\s+(\S+)")
_NO_VALUE = re.compile(r"\s*; implicit-def: (.+)")
_REGISTER_OF_COMPILER = re.compile(r"(vgpr|agpr|sgpr)(\d+)")
_COMMA = re.compile(r",(?![^\[(]*[\])])")
_BRANCH_TO_NUMBER = re.compile(r"(?:0x[0-9a-fA-F]+|\d+)")


@dataclass(frozen=True)
class Line:
    """One instruction as written. number: line of the text, from 1. operands: split at commas. modifiers: the
    words after the last operand (`offset:16`, `lds`, `sc0`)."""

    number: int
    mnemonic: str
    operands: tuple[str, ...]
    modifiers: tuple[str, ...]
    text: str
    address: int | None = None


@dataclass
class Function:
    """Instructions in order, and the index that each label points to, which may be one past the end.

    without_value: index of an instruction -> the registers that have no value before it, by the compiler's
    comments. settings: the kernel's `.amdhsa_` directives; empty when the function is not a kernel.
    most_threads: of a workgroup; 0 where the text does not say.
    """

    name: str
    lines: list[Line] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    without_value: dict[int, tuple[str, ...]] = field(default_factory=dict)
    settings: Mapping[str, int] = field(default_factory=dict)
    most_threads: int = 0


@dataclass(frozen=True)
class Assembly:
    """The functions of a text. target: gfx950, or "" when the text does not name it. compiler: the text of
    `.ident`."""

    functions: tuple[Function, ...]
    target: str
    compiler: str


_CONSTANTS = re.compile(r"\.set\s+([\w.$]+),\s*(\d+)\s*$")


class _Reader:
    """Reads a text line by line."""

    def __init__(self) -> None:
        self.functions: list[Function] = []
        self.settings: dict[str, dict[str, int]] = {}
        """Kernel name -> its `.amdhsa_` directives."""
        self.metadata: list[str] = []
        self.target = self.compiler = ""
        self._constants: dict[str, int] = {}
        self._code: set[str] = set()
        """Names of labels that start a function."""
        self._current: Function | None = None
        self._kernel: dict[str, int] | None = None
        """The settings that the next `.amdhsa_` directive belongs to."""
        self._in_metadata = False

    def take(self, number: int, raw: str) -> None:
        """Reads one line. number: from 1."""
        line = raw.strip()
        if self._in_metadata:
            self._in_metadata = line != ".end_amdgpu_metadata"
            if self._in_metadata:
                self.metadata.append(raw)
            return
        if self._current is not None and (no_value := _NO_VALUE.match(raw)):
            names = tuple(kind[0] + number for kind, number in _REGISTER_OF_COMPILER.findall(no_value[1]))
            place = len(self._current.lines)
            self._current.without_value[place] = self._current.without_value.get(place, ()) + names
        comment = line.find("//")
        located = _ADDRESS.search(line) if comment >= 0 else None
        if comment >= 0:
            line = line[:comment].rstrip()
        comment = line.find(";")
        if comment >= 0:
            line = line[:comment].rstrip()
        line = self._after_label(line)
        if line.startswith("."):
            self._directive(line)
        elif self._current is not None and _MNEMONIC.match(line):
            address = int(located[1], 16) if located else None
            self._current.lines.append(_instruction(number, line, address))

    def _after_label(self, line: str) -> str:
        """Returns the line without the label at its start."""
        if match := _OBJDUMP_LABEL.fullmatch(line):
            self._code.add(match[2])
            self._begin(match[2])
            return ""
        match = _LABEL.match(line)
        if match is None:
            return line
        name = match[1]
        if name in self._code:
            self._begin(name)
        elif name.startswith(".Lfunc_end"):
            self._current = None
        elif self._current is not None:
            self._current.labels[name] = len(self._current.lines)
        return line[match.end() :].strip()

    def _begin(self, name: str) -> None:
        self._current = Function(name)
        self.functions.append(self._current)

    def _directive(self, line: str) -> None:
        if line.startswith(".type") and "@function" in line:
            self._code.add(line[5:].partition(",")[0].strip())
        elif line.startswith(".amdhsa_kernel"):
            self._kernel = self.settings.setdefault(line.split()[1], {})
        elif line.startswith(".end_amdhsa_kernel"):
            self._kernel = None
        elif self._kernel is not None and (match := _HSA.fullmatch(line)):
            self._kernel[match[1]] = _number(match[2], self._constants)
        elif line.startswith(".amdgcn_target"):
            # amdgcn-amd-amdhsa--gfx950:xnack-, and of newer compilers amdgpu9.50-amd-amdhsa-unknown-gfx950
            self.target = line.split('"')[1].partition(":")[0].rpartition("-")[2]
        elif line.startswith(".amdgpu_metadata"):
            self._in_metadata = True
        elif line.startswith(".ident"):
            self.compiler = line.partition('"')[2].rstrip('"')
        elif match := _CONSTANTS.fullmatch(line):
            self._constants[match[1]] = int(match[2])


def parse_assembly(text: str) -> Assembly:
    """Parses assembly of a compiler or disassembler. It may be several files one after another.

    Raises BuildError when the text has no function for an AMD GPU.
    """
    readers = [_Reader()]
    for number, line in enumerate(text.splitlines(), 1):
        if readers[-1].functions and line.lstrip().startswith(".amdgcn_target"):
            readers.append(_Reader())  # the next file, whose functions may have the same names
        readers[-1].take(number, line)
    functions = [function for reader in readers for function in _finished(reader)]
    if not functions:
        raise BuildError(
            "the text holds no function for an AMD GPU: give clang's -S output or llvm-objdump -d"
        )
    return Assembly(tuple(functions), readers[0].target, readers[0].compiler)


def _finished(reader: _Reader) -> list[Function]:
    """Returns the functions of one file that have instructions, with what its directives say about them."""
    functions = reader.functions
    for function in functions:
        function.settings = reader.settings.get(function.name, {})
        _name_branch_targets(function)
    most_threads = dict(_most_threads(reader.metadata))
    for function in functions:
        function.most_threads = most_threads.get(function.name, 0)
    return [function for function in functions if function.lines]


def _number(text: str, constants: Mapping[str, int]) -> int:
    try:
        return int(text, 0)
    except ValueError:
        return constants.get(text, 0)


def _instruction(number: int, line: str, address: int | None) -> Line:
    mnemonic, *rest = line.split(maxsplit=1)
    parts = _split(*rest)
    modifiers: list[str] = []
    if parts:
        # Modifiers follow the last operand after blanks; `s_waitcnt vmcnt(0) lgkmcnt(0)` keeps them all.
        parts[-1], *modifiers = parts[-1].split() or [""]
        while len(parts) > 1 and ":" in parts[-1] and "[" not in parts[-1].partition(":")[0]:
            modifiers.insert(0, parts.pop())
    return Line(number, mnemonic, tuple(parts), tuple(modifiers), line, address)


def _split(text: str = "") -> list[str]:
    """Splits at commas outside brackets."""
    parts = [part.strip() for part in _COMMA.split(text)]
    return parts if parts[-1] else parts[:-1]


def _name_branch_targets(function: Function) -> None:
    """Adds labels for branch targets of a disassembly, given in words from the next instruction."""
    if not any(line.address is not None for line in function.lines):
        return
    at_address = {line.address: index for index, line in enumerate(function.lines)}
    for index, line in enumerate(function.lines):
        is_branch = line.mnemonic == "s_branch" or line.mnemonic.startswith("s_cbranch_")
        if not is_branch or not line.operands or line.operands[0] in function.labels:
            continue
        if line.address is None or not _BRANCH_TO_NUMBER.fullmatch(line.operands[0]):
            continue
        words = int(line.operands[0], 0)
        target = line.address + 4 + 4 * (words - 0x10000 if words & 0x8000 else words)
        if target in at_address:
            name = f"@{target:x}"
            function.labels[name] = at_address[target]
            function.lines[index] = Line(
                line.number, line.mnemonic, (name,), line.modifiers, line.text, line.address
            )


def _most_threads(metadata: list[str]) -> Iterator[tuple[str, int]]:
    """Yields each kernel and the work-items of its largest workgroup, from clang's `.amdgpu_metadata`."""
    import yaml

    try:
        # As texts, by Python's own parser: a deeply nested text ends the process in that of C.
        for told in yaml.load_all("\n".join(metadata), Loader=yaml.BaseLoader):
            for kernel in told["amdhsa.kernels"]:
                yield kernel[".symbol"].removesuffix(".kd"), int(kernel[".max_flat_workgroup_size"])
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, yaml.YAMLError):
        raise BuildError("the text's .amdgpu_metadata is damaged: compile it again") from None
