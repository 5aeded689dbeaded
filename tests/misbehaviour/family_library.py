"""Families of misbehaviour as kernels: one library for all, and a target whose kernels are copies of it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from evil_target import EvilTarget

from tests.misbehaviour.families import INNOCENT, Family
from tile_oracle.compiling.builder import Builder, BuildResult
from tile_oracle.files.data_files import data_folder
from tile_oracle.operations.grouped_conv.kernel import GroupedConvKernel
from tile_oracle.targets.target import finished

_PRELUDE = Path(__file__).with_name("prelude.hpp")
_MOST_VARIANTS = 100

_DISPATCH = """
static const family_ *family() {
    static const family_ *found = nullptr;
    if (!found) {
        dl_info_ info;
        dladdr((const void *)&family, &info);
        const char *file = strrchr(info.file, '/');
        const char *name = file ? file + 1 : info.file;
        const size_t length = (size_t)(strrchr(name, '.') - name);
        for (const family_ &each : families)
            if (strlen(each.name) == length && !strncmp(each.name, name, length)) found = &each;
    }
    return found;
}

extern "C" {
int32_t to_abi_version(void) { return TILE_ORACLE_ABI_VERSION; }
int64_t to_workspace_bytes(const to_conv_args *a) { return family()->workspace(a); }
int32_t to_launch(const to_conv_args *a) { return family()->launch(a); }
}
"""


def library_source(families: Sequence[Family]) -> str:
    """The header that replaces kernels/cpu/grouped_conv.hpp."""
    parts = ['#include "prelude.hpp"']
    for i, family in enumerate(families):
        parts.append(
            f"namespace family_{i} {{  /* {family.name} */\n{family.declarations}\n"
            f"static int64_t workspace(const to_conv_args *a) {{ (void)a; return {family.workspace}; }}\n"
            f"static int32_t launch(const to_conv_args *a) {{ {family.launch}\n return TO_OK; }}\n}}"
        )
    rows = (
        f'{{"{family.name}", family_{i}::workspace, family_{i}::launch}}' for i, family in enumerate(families)
    )
    parts.append(f"static const family_ families[] = {{{', '.join(rows)}}};")
    return "\n".join(parts) + _DISPATCH


class FamilyTarget(EvilTarget):
    """A target over the families; kernels of a family differ only in their variant."""

    def __init__(self, folder: Path, families: Sequence[Family], timeout_s: float = 2.0) -> None:
        self.families = (INNOCENT, *families)
        # Others may run these tests at the same time.
        self.shared = f"/dev/shm/to-family-{sha256(str(folder.resolve()).encode()).hexdigest()[:12]}-"
        include = folder / "include"
        include.mkdir(parents=True, exist_ok=True)
        (include / "grouped_conv.hpp").write_text(
            library_source(self.families).replace("/dev/shm/to-family-", self.shared)
        )
        shutil.copy(_PRELUDE, include)
        shutil.copy(data_folder("kernels") / "cpu" / "abi.h", include)
        builder = Builder("cpu", toolchain="ziglang", build_dir=folder / "cache", include=include)
        super().__init__(builder, timeout_s)
        self._folder = folder / "libraries"

    def kernel(self, family: Family, variant: int = 1) -> GroupedConvKernel:
        """The kernel of a family."""
        number = next(i for i, known in enumerate(self.families) if known.name == family.name)
        return GroupedConvKernel("forward", "fp32", 2, number + 1, variant, 1, 1, 1, 1, 1, 1, 1)

    def build(self, kernel: GroupedConvKernel) -> Future[BuildResult]:
        """All kernels come from one binary: the one of the first family's first variant."""
        family = self.families[kernel.tile_m - 1]
        built = self.builder.submit(self.kernel(INNOCENT)).result()
        if built.binary is None:
            raise AssertionError(built.log)
        path = self._folder / str(kernel.tile_n) / f"{family.name}.so"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            # A copy, not a link: the loader takes two names of one file for the same library.
            shutil.copy(built.binary.path, path)
        return finished(replace(built, kernel=kernel, binary=replace(built.binary, path=path)))

    def close(self) -> None:
        """Stops the compiler. Safe to call twice."""
        self.builder.close()
