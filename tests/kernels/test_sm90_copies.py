"""sm_90's copies to LDS, in the PTX of kernels: on every path they are waited for before they are read."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import pytest

from tests.kernels.test_gpu_kernels_compile import assembly
from tile_oracle.kernel import parse_kernel_name

_COMP = "gemm_bf16_rcr_comp_async_cshuffle_intrawave_False_False_False_False_"
KERNELS = {
    f"{_COMP}64x64x64_2x2x1_16x16x32": 4,
    f"{_COMP}128x128x64_4x2x1_16x16x32": 3,
    f"{_COMP}256x128x64_4x2x1_16x16x32": 2,
    f"{_COMP.replace('comp_async', 'basic_async_v1')}64x64x64_2x2x1_16x16x32": 1,
    "grouped_conv_forward_bf16_2d_64x64x64_basic_async_v1_intrawave_dsb": 2,
}
"""Kernel -> its buffers in LDS."""
_LABEL = re.compile(r"(\$L\w+):")
_BRANCH = re.compile(r"(@!?%p\d+ )?bra(?:\.uni)?\s+(\$L\w+);")
_EVENT = re.compile(r"cp\.async\.(c[ag]|commit_group|wait_group \d+)|bar\.sync|ldmatrix|ret;")


@dataclass(frozen=True)
class Step:
    """How far a thread is, counted from the tile that it reads now or next: groups of copies committed,
    waited for, and waited for before a barrier. reads: it has begun to read the tile."""

    committed: int = 0
    landed: int = 0
    visible: int = 0
    reads: bool = False

    def after(self, event: str, buffers: int) -> Step:
        """The step behind an event of the PTX. Fails when a tile is read or overwritten too early."""
        if event in ("cp.async.cg", "cp.async.ca"):
            assert self.committed < buffers, "a copy overwrites a tile that other warps may be reading"
        elif event == "cp.async.commit_group":
            return replace(self, committed=self.committed + 1)
        elif event.startswith("cp.async.wait_group"):
            return replace(self, landed=max(self.landed, self.committed - int(event.split()[1])))
        elif event == "bar.sync":
            read = int(self.reads)
            return Step(self.committed - read, self.landed - read, self.landed - read)
        elif event == "ldmatrix":
            assert self.visible > 0, "a tile is read before all its copies are there"
            return replace(self, reads=True)
        return self


def blocks_of(ptx: str) -> dict[str, tuple[list[str], list[str]]]:
    """Label -> events and successors, of the kernel to_conv."""
    name, blocks = "entry", {"entry": ([], [])}
    body = ptx[ptx.index(".entry to_conv") :]
    for line in body[: body.index("\n}")].splitlines():
        if label := _LABEL.match(line):
            blocks[name][1].append(label[1])
            name = label[1]
            blocks[name] = ([], [])
        elif jump := _BRANCH.search(line):
            successors = blocks[name][1]
            successors.append(jump[2])
            name = f"{name}+"
            blocks[name] = ([], [])
            if jump[1]:
                successors.append(name)
        elif event := _EVENT.search(line):
            blocks[name][0].append(event[0])
    return blocks


def check(ptx: str, buffers: int) -> int:
    """Follows all paths; returns the number of states."""
    blocks = blocks_of(ptx)
    seen: set[tuple[str, Step]] = set()
    waiting = [("entry", Step())]
    while waiting:
        state = waiting.pop()
        if state in seen:
            continue
        seen.add(state)
        assert len(seen) < 20_000, "the groups are not as many as the tiles"
        step = state[1]
        for event in blocks[state[0]][0]:
            step = step.after(event, buffers)
        waiting += [(name, step) for name in blocks[state[0]][1]]
    return len(seen)


@pytest.mark.parametrize("name", KERNELS)
def test_copies_are_waited_for_before_the_barrier(name: str) -> None:
    """With fewer buffers than it has, the kernel would overwrite a tile; so the number is exact."""
    ptx = assembly(parse_kernel_name(name), "sm_90")
    buffers = KERNELS[name]
    assert check(ptx, buffers) > 10
    if buffers > 1:
        assert f"cp.async.wait_group {max(0, buffers - 2)};" in ptx
        with pytest.raises(AssertionError, match="overwrites a tile"):
            check(ptx, buffers - 1)


_WAIT = r"cp\.async\.wait_group 2;"


@pytest.mark.parametrize(
    ("found", "instead", "says"),
    [
        (_WAIT, "", "before all its copies"),
        (_WAIT, "cp.async.wait_group 3;", "before all its copies"),
        (r"(?s)(cp\.async\.wait_group 2;)(.*?)(bar\.sync\s+0;)", r"\3\2\1", "before all its copies"),
        (r"(?s)(wait_group 2;.*?)bar\.sync\s+0;", r"\1", "overwrites a tile|before all its copies"),
        (r"(?s)((?:commit_group;.*?){3})cp\.async\.commit_group;", r"\1", "before all its copies"),
    ],
    ids=["no wait", "a weaker wait", "wait behind the barrier", "no barrier", "no group for a tile"],
)
def test_a_mistake_in_the_loop_is_found(found: str, instead: str, says: str) -> None:
    name, buffers = next(iter(KERNELS.items()))
    ptx = assembly(parse_kernel_name(name), "sm_90")
    changed = re.sub(found, instead, ptx, count=1)
    assert changed != ptx
    with pytest.raises(AssertionError, match=says):
        check(changed, buffers)
