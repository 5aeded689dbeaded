"""Clang's offload bundles: how a host library carries its kernels' code. Only the standard library here.

The format is that of clang-offload-bundler (clang's documentation of that name): a magic, the number of
entries, for each its offset, size and target, then the contents. As a program, it puts one AMD code object
into a bundle, beside the empty entry of the host that the runtime expects:

    python offload_bundle.py CODE_OBJECT BUNDLE gfx950
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"
COMPRESSED = b"CCOB"
_ALIGNMENT = 4096
_HOST = "host-x86_64-unknown-linux-gnu-"
_MOST_ENTRIES = 64


def target_name(arch: str) -> str:
    """What an entry for an architecture is called."""
    return f"hipv4-amdgcn-amd-amdhsa--{arch}"


def make_bundle(code: bytes, arch: str) -> bytes:
    """A bundle of the host's empty entry and one code object."""
    entries = ((_HOST, b""), (target_name(arch), code))
    size = len(MAGIC) + 8 + sum(24 + len(name) for name, _ in entries)
    offset = -(-size // _ALIGNMENT) * _ALIGNMENT
    head = MAGIC + struct.pack("<Q", len(entries))
    for name, content in entries:
        head += struct.pack("<3Q", offset, len(content), len(name)) + name.encode()
    return head.ljust(offset, b"\0") + code


def code_objects(data: bytes) -> dict[str, bytes]:
    """Target -> code object, of every bundle in some data, one after the other. Raises ValueError."""
    if data[: len(COMPRESSED)] == COMPRESSED:
        raise ValueError("the bundle is compressed")
    found: dict[str, bytes] = {}
    begin = data.find(MAGIC)
    if begin < 0:
        raise ValueError("no offload bundle")
    while begin >= 0:
        found |= _entries(data, begin)
        begin = data.find(MAGIC, begin + len(MAGIC))
    return found


def _entries(data: bytes, begin: int) -> dict[str, bytes]:
    at = begin + len(MAGIC)
    try:
        (count,) = struct.unpack_from("<Q", data, at)
        if count > _MOST_ENTRIES:
            raise ValueError("the bundle has too many entries")
        at += 8
        found: dict[str, bytes] = {}
        for _ in range(count):
            offset, size, length = struct.unpack_from("<3Q", data, at)
            name = data[at + 24 : at + 24 + length].decode()
            at += 24 + length
            if begin + offset + size > len(data) or at > len(data):
                raise ValueError("an entry lies outside the bundle")
            if size:
                found[name] = data[begin + offset : begin + offset + size]
    except (struct.error, UnicodeDecodeError):
        raise ValueError("the bundle is damaged") from None
    return found


if __name__ == "__main__":
    source, output, machine = sys.argv[1:]
    Path(output).write_bytes(make_bundle(Path(source).read_bytes(), machine))
