"""The rule sets `profiler` and `tests`: kernels as a checkout's CK Builder config files list them.

Every line of such a file is an instance of Composable Kernel, written as its GetTypeString() prints it:

    DeviceGroupedConvFwdMultipleABD_Xdl_CShuffle_V3<256, 128, 128, 64, Default, 32, 32, 2, 2, 8, 8, 8, 1, 1,
        BlkGemmPipelineScheduler: Intrawave, BlkGemmPipelineVersion: v3>      (one line)

Which number is what, the checkout's own headers say: GetTypeString() names the fields in order. Direction is
in the class's name, data type and rank in the file's path. A line that cannot be read, or says something that
no field of a kernel here says, is counted with its reason and left out.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tile_oracle.arch import Triple, known_archs
from tile_oracle.errors import RuleError
from tile_oracle.json_tree import shown
from tile_oracle.pool.rule_parts import TileRule

BUILDER_SETS = ("profiler", "tests")
"""The folders of config files, and the rule sets that are made of them."""

_ROOTS = ("", "projects/composablekernel", "composablekernel")
_IMPL = "include/ck/tensor_operation/gpu/device/impl"
_SUFFIXES = (".conf", ".config")
_MOST_FILES, _MOST_BYTES, _MOST_LINES = 500, 8 << 20, 100_000
_WAVEFRONT = 64

_TYPE_STRING = re.compile(
    r"str\s*<<\s*\"(Device\w+)\"\s*"
    # Later versions may print more of the name, as a template argument says.
    r"(?:;\s*(?:if\s+constexpr\s*\(\w+\)\s*\{\s*str\s*<<\s*\"(\w+)\"\s*;\s*\}\s*)?str\s*)?"
    r"<<\s*\"<\"\s*<<(.*?);",
    re.DOTALL,
)
_LINE = re.compile(r"(Device\w+)\s*<(.*)>\s*[,;]?\s*")
_LABEL = re.compile(r"[A-Za-z]\w*:\s*")
_DIRECTIONS = (("BwdWeight", "bwd_weight"), ("BwdData", "bwd_data"), ("Fwd", "forward"))
_DTYPES = ("bf16", "fp16", "fp32")
_PIPELINES: Mapping[str, str] = {
    "v1": "basic_v1", "v2": "mem", "v3": "compv3", "v4": "compv4", "v5": "compv5"
}  # fmt: skip
"""BlockGemmPipelineVersion -> pipeline; v4 has two LDS buffers. An instance without one has the first."""


class _Unreadable(ValueError):
    """Why a line makes no kernel."""


@dataclass(frozen=True)
class BuilderLine:
    """One line as a block of rules would say it. place: file and line number."""

    place: str
    direction: str
    dtype: str
    ndim: int
    tile: TileRule
    vectors: Triple
    pipeline: str
    scheduler: str
    double_smem_buffer: bool
    split_image: bool
    num_groups_to_merge: int
    two_stage: bool


@dataclass(frozen=True)
class BuilderConfigs:
    """All that a set's config files hold. left_out: (place, reason) of every line that makes no kernel."""

    name: str
    folder: Path
    archs: tuple[str, ...]
    files: int
    lines: tuple[BuilderLine, ...]
    left_out: tuple[tuple[str, str], ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should be told: how many lines were left out, and why, the most frequent first."""
        if not self.left_out:
            return ()
        total = len(self.lines) + len(self.left_out)
        first: dict[str, str] = {}
        for place, reason in self.left_out:
            first.setdefault(reason, place)
        counts = Counter(reason for _, reason in self.left_out)
        return (
            f"kernel set {self.name}: {len(self.left_out)} of {total} lines in {self.files} config files "
            "were left out",
            *(
                f"  {count} lines: {reason} (first: {first[reason]})"
                for reason, count in counts.most_common()
            ),
        )


def read_builder_configs(name: str, folder: Path) -> BuilderConfigs:
    """The config files of a set in a checkout. Raises RuleError when there are none that can be used."""
    root = next((folder / part for part in _ROOTS if (folder / part / _IMPL).is_dir()), None)
    if root is None:
        raise RuleError(
            f"kernel set {name}: {shown(str(folder))} is no checkout of Composable Kernel: it has no {_IMPL}"
        )
    paths = _config_files(root, name)
    if not paths:
        raise RuleError(
            f"kernel set {name}: there is no config file (*.conf, *.config) in a folder {name} below "
            f"{shown(str(root))}; a ROCm install has none, a checkout of Composable Kernel may"
        )
    fields = _fields_by_class(root / _IMPL)
    lines: list[BuilderLine] = []
    left_out: list[tuple[str, str]] = []
    for path in paths:
        for place, text in _lines(path, root):
            try:
                lines.append(_read_line(place, text, path.relative_to(root), fields))
            except _Unreadable as error:
                left_out.append((place, str(error)))
            if len(lines) + len(left_out) > _MOST_LINES:
                raise RuleError(
                    f"kernel set {name}: more than {_MOST_LINES:,} lines: these are no config files"
                )
    archs = tuple(arch for arch in known_archs() if arch.startswith("gfx9"))
    configs = BuilderConfigs(name, root, archs, len(paths), tuple(lines), tuple(left_out))
    if not lines:
        raise RuleError(f"kernel set {name}: no line makes a kernel; {' / '.join(configs.notes[:3])}")
    return configs


def _config_files(root: Path, name: str) -> list[Path]:
    found: list[Path] = []
    for place, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in ("build", "docs"))
        here = Path(place)
        if name in here.relative_to(root).parts:
            found += [here / file for file in sorted(files) if file.endswith(_SUFFIXES)]
    if len(found) > _MOST_FILES:
        raise RuleError(f"kernel set {name}: more than {_MOST_FILES} config files below {shown(str(root))}")
    return found


def _lines(path: Path, root: Path) -> Iterator[tuple[str, str]]:
    """(place, text) of every line that is neither empty nor a comment."""
    where = path.relative_to(root).as_posix()
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise RuleError(f"{where} is too large to be a config file")
        text = path.read_text("utf-8", "replace")
    except OSError as error:
        raise RuleError(f"{where} cannot be read: {error.strerror}") from None
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith(("#", ";", "//")):
            yield f"{where}:{number}", stripped


# ---- what the headers say of a class's numbers ---------------------------------------------------


def _fields_by_class(folder: Path) -> dict[str, list[tuple[str, ...]]]:
    """Class -> the names of what its GetTypeString() prints, in order; several where headers differ."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for path in sorted(folder.glob("device_grouped_conv*.hpp")):
        try:
            text = path.read_text("utf-8", "replace")
        except OSError as error:
            raise RuleError(f"{path} cannot be read: {error.strerror}") from None
        for name, more, printed in _TYPE_STRING.findall(text):
            names = tuple(_printed(printed))
            for full in {name, name + more}:
                if names and names not in found.setdefault(full, []):
                    found[full].append(names)
    return found


def _printed(text: str) -> Iterator[str]:
    for part in text.split("<<"):
        words = re.findall(r"[A-Za-z_]\w*", re.sub(r"\"[^\"]*\"", "", part))
        if words:
            yield words[-1]  # of a call or a look-up, what stands inside


# ---- one line ------------------------------------------------------------------------------------


def _read_line(
    place: str, text: str, path: Path, classes: Mapping[str, Sequence[tuple[str, ...]]]
) -> BuilderLine:
    match = _LINE.fullmatch(text)
    if match is None:
        raise _Unreadable("not of the form Class<number, ...>")
    name = match[1]
    values = [_LABEL.sub("", part.strip(), count=1) for part in match[2].split(",")]
    if name not in classes:
        raise _Unreadable(f"{name[:80]} is not among the headers' grouped convolutions")
    names = next((names for names in classes[name] if len(names) == len(values)), None)
    if names is None:
        wanted = " or ".join(str(len(names)) for names in classes[name])
        raise _Unreadable(f"{name} has {wanted} values, not {len(values)}")
    return _line_of(place, name, dict(zip(names, values, strict=True)), path)


def _line_of(place: str, name: str, value: Mapping[str, str], path: Path) -> BuilderLine:
    direction = next((ours for theirs, ours in _DIRECTIONS if theirs in name), None)
    if direction is None:
        raise _Unreadable(f"{name} does not say its direction")
    if name.endswith("_DirectLoad"):
        raise _Unreadable(f"{name} loads straight to LDS, which none of the versions v1 to v5 does")
    special = next((v for k, v in value.items() if k.endswith("Specialization")), "Default")
    if special != "Default":
        raise _Unreadable(f"specialisation {special[:40]}: kernels here are for all filters")

    def number(*keys: str) -> int:
        for key in keys:
            if key in value:
                if not re.fullmatch(r"[1-9][0-9]{0,6}", value[key]):
                    raise _Unreadable(f"{key} is not a number from 1 up")
                return int(value[key])
        raise _Unreadable(f"{name} does not say {keys[0]}")

    tile = (number("MPerBlock"), number("NPerBlock"), number("KPerBlock"))
    warp = (number("MPerXDL", "MPerXdl"), number("NPerXDL", "NPerXdl"))
    waves = _waves(tile, warp, (number("MXdlPerWave"), number("NXdlPerWave")), number("BlockSize"))
    version = value.get("BlkGemmPipelineVer", "v1")
    scheduler = value.get("BlkGemmPipeSched", "Intrawave").lower()
    if version not in _PIPELINES:
        raise _Unreadable(f"pipeline version {version[:40]} is not one of {', '.join(_PIPELINES)}")
    if scheduler not in ("intrawave", "interwave"):
        raise _Unreadable(f"scheduler {scheduler[:40]} is neither Intrawave nor Interwave")
    words = re.split(r"[^a-z0-9]+", path.as_posix().lower())
    dtypes = [word for word in words if word in _DTYPES]
    if len(set(dtypes)) != 1:
        raise _Unreadable(f"its path does not say one data type of {', '.join(_DTYPES)}")
    ranks = {
        3 if word in ("ndhwgc", "3d") else 2 for word in words if word in ("ndhwgc", "3d", "nhwgc", "2d")
    }
    if len(ranks) != 1:
        raise _Unreadable("its path does not say the layout, nhwgc or ndhwgc")
    return BuilderLine(
        place,
        direction,
        dtypes[0],
        ranks.pop(),
        TileRule(tile, (waves,), ((*warp, None),)),
        (
            number("ABlockTransferSrcScalarPerVector"),
            number("BBlockTransferSrcScalarPerVector"),
            number("CDEBlockTransferScalarPerVector_NPerBlock", "CBlockTransferScalarPerVector_NWaveNPerXdl"),
        ),
        _PIPELINES[version],
        scheduler,
        double_smem_buffer=version == "v4",
        split_image="Large_Tensor" in name,
        num_groups_to_merge=number("NumGroupsToMerge") if "NumGroupsToMerge" in value else 1,
        two_stage="TwoStage" in name,
    )


def _waves(tile: Triple, warp: tuple[int, int], each: tuple[int, int], threads: int) -> Triple:
    """Waves along m, n and k: as many as it takes to cover the tile, and what the workgroup has beyond."""
    along = []
    for extent, size, count in zip(tile, warp, each, strict=False):
        if extent % (size * count):
            raise _Unreadable(f"{count} matrix tiles of {size} a wave do not divide a tile of {extent}")
        along.append(extent // (size * count))
    m, n = along
    if threads % (_WAVEFRONT * m * n):
        raise _Unreadable(f"{threads} threads are not {m} x {n} waves of {_WAVEFRONT}")
    return (m, n, threads // (_WAVEFRONT * m * n))
