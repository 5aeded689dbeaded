"""Reads a line of a CK Builder config file: the type of a Composable Kernel instance, in either notation.

The short notation is the output of GetTypeString(), the full one lists every template argument:

    DeviceGroupedConvFwdMultipleABD_Xdl_CShuffle_V3<256, 128, 128, 64, Default, 32, 32, 2, 2, 8, 8, 8, 1, 1,
        BlkGemmPipelineScheduler: Intrawave, BlkGemmPipelineVersion: v3>      (one line)
    DeviceGroupedConvFwdMultipleABD_Xdl_CShuffle_V3<2,NHWGC,GKYXC,EmptyTuple,NHWGK,bf16,...,Intrawave,v3,bf16,
        bf16,false,1>

`FORMS` has the meaning of the numbers for the classes in the public files, in the names of the classes'
template parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from tile_oracle.arch import Triple
from tile_oracle.kernel.named import other_kernel

WAVEFRONT = 64
_T = TypeVar("_T")


class UnreadableLineError(ValueError):
    """A line without a kernel; the message is the reason."""


@dataclass(frozen=True)
class BuilderLine:
    """The kernel of one line. place: file and line number. warp_tile: its k is the one that Composable
    Kernel's builder uses. assumed_vector_c: the line does not give vectors[2], which is then set to
    vectors[1]. assumed_layout: neither line nor path gives the layout, which is then nhwgc."""

    place: str
    direction: str
    dtype: str
    ndim: int
    tile: Triple
    waves: Triple
    warp_tile: Triple
    vectors: Triple
    pipeline: str
    scheduler: str
    double_smem_buffer: bool
    split_image: bool
    num_groups_to_merge: int
    explicit_gemm: bool
    two_stage: bool
    specialization: str
    assumed_vector_c: bool = False
    assumed_layout: bool = False


@dataclass(frozen=True)
class Form:
    """The names of a line's values, in order; the last `optional` of them may be missing."""

    names: tuple[str, ...]
    optional: int = 0

    def takes(self, count: int) -> bool:
        """Returns whether a line with `count` values can have this form."""
        return len(self.names) - self.optional <= count <= len(self.names)


_TILE = "BlockSize MPerBlock NPerBlock KPerBlock"
_XDL = "MPerXDL NPerXDL MXdlPerWave NXdlPerWave"
_SHUFFLE = "CShuffleMXdlPerWavePerShuffle CShuffleNXdlPerWavePerShuffle"
_SCHEDULE = "BlkGemmPipeSched BlkGemmPipelineVer"
_COMPUTE = "AComputeDataType BComputeDataType"


def _transfer(operand: str) -> str:
    names = (
        "ClusterLengths ArrangeOrder AccessOrder SrcVectorDim SrcScalarPerVector DstScalarPerVector LdsExtra"
    )
    return " ".join(f"{operand}BlockTransfer{name}" for name in names.split())


def _form(*parts: str, optional: int = 0) -> Form:
    return Form(tuple(" ".join(parts).split()), optional)


_MOVES = (
    f"{_transfer('A')} {_transfer('B')} {_SHUFFLE} CBlockTransferClusterLengths CBlockTransferScalarPerVector"
)
_MULTIPLE_D = (
    "NDimSpatial ALayout BLayout DsLayout ELayout ADataType BDataType AccDataType CShuffleDataType "
    "DsDataType EDataType AElementwiseOp BElementwiseOp CElementwiseOp ConvSpecialization"
)
_WEIGHT = (
    "NDimSpatial ALayout BLayout ELayout ADataType BDataType EDataType AccDataType AElementwiseOp "
    f"BElementwiseOp CElementwiseOp ConvSpecialization BlockSize MPerBlock NPerBlock {{k}} K1 {_XDL} {_MOVES}"
)
_FWD = f"{_TILE} AK1 BK1 {_XDL} {_MOVES}"
_FWD_SHORT = (
    f"{_TILE} ConvSpecialization {_XDL} ABlockTransferSrcScalarPerVector BBlockTransferSrcScalarPerVector "
    f"CBlockTransferScalarPerVector {_SHUFFLE}"
)
# In the class without a pipeline version the fourth size counts steps of K1; in the others it is the depth.
_WHOLE_K = _WEIGHT.format(k="KPerBlock")

FORMS: Mapping[str, tuple[Form, ...]] = {
    "DeviceGroupedConvFwdMultipleABD_Xdl_CShuffle": (
        _form(_FWD_SHORT, "NumGroupsToMerge", optional=1),
        _form(
            _MULTIPLE_D, "GemmSpec NumGemmKPrefetchStage", _FWD, _COMPUTE, "LoopSched NumGroupsToMerge",
            optional=4,
        ),
    ),
    "DeviceGroupedConvFwdMultipleABD_Xdl_CShuffle_V3": (
        _form(_FWD_SHORT, _SCHEDULE),
        _form(
            _MULTIPLE_D, "GemmSpec", _FWD, _SCHEDULE, _COMPUTE, "DirectLoad NumGroupsToMerge", optional=4
        ),
    ),
    "DeviceGroupedConvFwdMultipleD_Xdl_CShuffle_Large_Tensor": (
        _form(_FWD_SHORT),
        _form(_MULTIPLE_D, "GemmSpec NumGemmKPrefetchStage", _FWD, _COMPUTE, "LoopSched", optional=3),
    ),
    "DeviceGroupedConvBwdDataMultipleD_Xdl_CShuffle_v1": (
        _form(
            _TILE, "AK1 BK1 ConvSpecialization", _XDL,
            "ABlockTransferSrcScalarPerVector BBlockTransferSrcScalarPerVector", _SHUFFLE,
        ),
        _form(
            _MULTIPLE_D, "DoPadGemmM DoPadGemmN NumGemmKPrefetchStage", _FWD, "LoopSched", _COMPUTE,
            "MaxTransposeTransferSrc MaxTransposeTransferDst", optional=5,
        ),
    ),
    "DeviceGroupedConvBwdDataMultipleD_Xdl_CShuffle": (
        _form(
            _MULTIPLE_D.replace("CShuffleDataType ", ""), "DoPadGemmM DoPadGemmN NumGemmKPrefetchStage", _FWD,
            "CBlockTransferOther LoopSched", _COMPUTE, "MaxTransposeTransferSrc MaxTransposeTransferDst",
        ),
    ),
    "DeviceGroupedConvBwdWeight_Xdl_CShuffle": (
        _form(
            _WEIGHT.format(k="K0PerBlock"), _COMPUTE, "MaxTransposeTransferSrc MaxTransposeTransferDst",
            optional=4,
        ),
    ),
    "DeviceGroupedConvBwdWeight_Xdl_CShuffleV3": (
        _form(_WHOLE_K, _SCHEDULE, _COMPUTE, "DirectLoad NumGroupsToMerge", optional=4),
    ),
    "DeviceGroupedConvBwdWeightTwoStage_Xdl_CShuffle": (
        _form(
            _WHOLE_K, _SCHEDULE, "NumGroupsToMerge", _COMPUTE,
            "TransposeTransferSrc TransposeTransferDst", optional=5,
        ),
    ),
}  # fmt: skip
"""Class -> forms of its lines, short forms first."""

_LINE = re.compile(r"(Device\w+)\s*<(.*)>\s*[,;]?\s*")
_LABEL = re.compile(r"[A-Za-z]\w*:\s*")
_DIRECTIONS = (("BwdWeight", "bwd_weight"), ("BwdData", "bwd_data"), ("Fwd", "forward"))
_DTYPES = ("bf16", "fp16", "fp32")
_RANKS = {"nhwgc": 2, "2d": 2, "ndhwgc": 3, "3d": 3}
_OTHER_LAYOUTS = ("ngchw", "ngcdhw", "nchw", "ncdhw")
_LAYOUTS = {2: ("NHWGC", "GKYXC", "NHWGK"), 3: ("NDHWGC", "GKZYXC", "NDHWGK")}
_PIPELINES: Mapping[str, str] = {
    "v1": "basic_v1", "v2": "mem", "v3": "compv3", "v4": "compv4", "v5": "compv5"
}  # fmt: skip
"""BlockGemmPipelineVersion -> pipeline; v4 has two LDS buffers. Instances without a version are v1."""
_DIRECT_LOAD = "_DirectLoad"
_DIRECT_PIPELINES: Mapping[str, str] = {"v1": "basic_async_v1", "v4": "comp_async"}
"""BlockGemmPipelineVersion -> pipeline of an instance that loads directly to LDS."""
_EXPLICIT = "DeviceGroupedConvBwdWeight_Explicit_Xdl"
_SPECIALIZATIONS = {
    "Default": "Default", "OddC": "Default",
    **{name: name for name in ("Filter1x1Pad0", "Filter1x1Stride1Pad0", "Filter3x3")},
}  # fmt: skip
_WARP_K = {"bf16": 16, "fp16": 16, "fp32": 8}
_YES = ("true", "1")


def read_line(place: str, text: str, path: Path, more: Mapping[str, Sequence[Form]]) -> BuilderLine:
    """Reads the kernel of a line.

    path: path of the file, which gives data type and layout if the line does not. more: forms of further
    classes, and further forms of these. Raises UnreadableLineError.
    """
    match = _LINE.fullmatch(text)
    if match is None:
        if what := other_kernel(text):
            raise UnreadableLineError(f"{what}: no operation here has such kernels")
        raise UnreadableLineError("not of the form Class<number, ...>")
    name = match[1]
    if "streamk" in f"{name} {path.name}".lower():
        raise UnreadableLineError("stream-K: kernels here do not share tiles among workgroups")
    if name == _EXPLICIT:
        return _line_of(place, name, _explicit_values(match[2]), path)
    values = [_LABEL.sub("", value, count=1) for value in _split(match[2])]
    forms = (*FORMS.get(name.removesuffix(_DIRECT_LOAD), ()), *more.get(name, ()))
    if not forms:
        raise UnreadableLineError(f"{name[:80]} is not among the headers' grouped convolutions")
    form = next((form for form in forms if form.takes(len(values))), None)
    if form is None:
        wanted = min((len(form.names) for form in forms), key=lambda count: abs(count - len(values)))
        raise UnreadableLineError(f"{name} has {wanted} values, not {len(values)}")
    return _line_of(place, name, dict(zip(form.names, values, strict=False)), path)


def _split(text: str) -> Iterator[str]:
    """Splits at commas outside brackets."""
    depth = 0
    cuts = [-1]
    for place, letter in enumerate(text):
        depth += (letter in "(<") - (letter in ")>")
        if letter == "," and not depth:
            cuts.append(place)
    for first, last in pairwise([*cuts, len(text)]):
        yield text[first + 1 : last].strip()


def _explicit_values(text: str) -> dict[str, str]:
    """Returns the values of an explicit GEMM's line, which have labels. It is for 1x1 filters with stride 1
    only:

    DeviceBatchedGemmXdlUniversal<MNKPadding, CRR> BlkSize: 128, BlkTile: 32x16x64, WaveTile: 16x16, K1: 4x4,
    WaveMap: 1x1, VmemReadVec: 4x2xSeq(2), BlkGemmPipelineScheduler: Intrawave, BlkGemmPipelineVersion: v2,
    BlkGemmPipelinePrefetchStages: 2

    Older lines have neither K1 nor the width of stores.
    """
    given = dict(re.findall(r"([A-Za-z]\w*):\s*((?:[^,()]|\([^()]*\))+)", text))
    names = {
        "BlkSize": "BlockSize",
        "BlkTile": "MPerBlock NPerBlock KPerBlock",
        "WaveTile": "MPerXDL NPerXDL",
        "WaveMap": "MXdlPerWave NXdlPerWave",
        "VmemReadVec": "ABlockTransferSrcScalarPerVector BBlockTransferSrcScalarPerVector "
        "CBlockTransferScalarPerVector",
        "BlkGemmPipelineScheduler": "BlkGemmPipeSched",
        "BlkGemmPipelineVersion": "BlkGemmPipelineVer",
    }
    found = {"ConvSpecialization": "Filter1x1Stride1Pad0"}
    for label, meant in names.items():
        if label not in given:
            raise UnreadableLineError(f"{_EXPLICIT} does not give {label}")
        found |= zip(meant.split(), (part.strip() for part in given[label].split("x")), strict=False)
    stores = re.findall(r"\d+", found.get("CBlockTransferScalarPerVector", ""))
    if len(set(stores)) > 1:
        raise UnreadableLineError(
            f"{_EXPLICIT} stores in widths of {' and '.join(stores)}: kernels here in one"
        )
    return found | ({"CBlockTransferScalarPerVector": stores[0]} if stores else {})


def _line_of(place: str, name: str, value: Mapping[str, str], path: Path) -> BuilderLine:
    direction = next((ours for theirs, ours in _DIRECTIONS if theirs in name), None)
    if direction is None:
        raise UnreadableLineError(f"{name} has no direction in its name")
    given = next((v for k, v in value.items() if k.endswith("Specialization")), "Default")
    if given not in _SPECIALIZATIONS:
        raise UnreadableLineError(f"specialization {given[:40]} is not one of {', '.join(_SPECIALIZATIONS)}")

    def number(*keys: str) -> int:
        for key in keys:
            if key in value:
                if not re.fullmatch(r"[1-9][0-9]{0,6}", value[key]):
                    raise UnreadableLineError(f"{key} is not a positive integer")
                return int(value[key])
        raise UnreadableLineError(f"{name} does not give {keys[0]}")

    k = number("K0PerBlock") * number("K1") if "K0PerBlock" in value else number("KPerBlock")
    tile = (number("MPerBlock"), number("NPerBlock"), k)
    warp = (number("MPerXDL", "MPerXdl"), number("NPerXDL", "NPerXdl"))
    waves = _waves(tile, warp, (number("MXdlPerWave"), number("NXdlPerWave")), number("BlockSize"))
    version = value.get("BlkGemmPipelineVer", "v1")
    loop = value.get("LoopSched", "Default")
    scheduler = value.get("BlkGemmPipeSched", "Intrawave" if loop == "Default" else loop).lower()
    if version not in _PIPELINES:
        raise UnreadableLineError(f"pipeline version {version[:40]} is not one of {', '.join(_PIPELINES)}")
    direct = name.endswith(_DIRECT_LOAD) or value.get("DirectLoad", "false") in _YES
    if direct and version not in _DIRECT_PIPELINES:
        raise UnreadableLineError(f"{name} loads directly to LDS in {version}: kernels here do in v1 and v4")
    if scheduler not in ("intrawave", "interwave"):
        raise UnreadableLineError(f"scheduler {scheduler[:40]} is neither Intrawave nor Interwave")
    dtype, ndim = _kind(value, path)
    vector_a = number("ABlockTransferSrcScalarPerVector")
    vector_b = number("BBlockTransferSrcScalarPerVector")
    stores = (
        "CBlockTransferScalarPerVector",
        "CDEBlockTransferScalarPerVector_NPerBlock",
        "CBlockTransferScalarPerVector_NWaveNPerXdl",
    )
    # Short lines of bwd_data and older ones of explicit GEMMs omit it. There B and the result are both
    # contiguous along the input channels.
    explicit = name == _EXPLICIT
    assumed = (direction == "bwd_data" or explicit) and not any(key in value for key in stores)
    vector_c = vector_b if assumed else number(*stores)
    return BuilderLine(
        place,
        direction,
        dtype,
        ndim,
        tile,
        waves,
        (*warp, _WARP_K[dtype]),
        (vector_a, vector_b, vector_c),
        (_DIRECT_PIPELINES if direct else _PIPELINES)[version],
        scheduler,
        double_smem_buffer=version == "v4",
        split_image="Large_Tensor" in name,
        num_groups_to_merge=number("NumGroupsToMerge") if "NumGroupsToMerge" in value else 1,
        explicit_gemm=explicit,
        # As upstream: sums cannot be added in memory one value of 16 bits at a time.
        two_stage="TwoStage" in name or (explicit and dtype != "fp32" and vector_c % 2 == 1),
        specialization=_SPECIALIZATIONS[given],
        assumed_vector_c=assumed,
        assumed_layout="NDimSpatial" not in value and not _said_by(path, _RANKS),
    )


def _waves(tile: Triple, warp: tuple[int, int], each: tuple[int, int], threads: int) -> Triple:
    """Waves along m, n and k: enough along m and n to cover the tile, the others along k."""
    along = []
    for extent, size, count in zip(tile, warp, each, strict=False):
        if extent % (size * count):
            raise UnreadableLineError(
                f"{count} matrix tiles of {size} per wave do not divide a tile of {extent}"
            )
        along.append(extent // (size * count))
    m, n = along
    if threads % (WAVEFRONT * m * n):
        raise UnreadableLineError(f"{threads} threads are not {m} x {n} waves of {WAVEFRONT}")
    return (m, n, threads // (WAVEFRONT * m * n))


# ---- data type and rank -----------------------------------------------------------------------------


def _kind(value: Mapping[str, str], path: Path) -> tuple[str, int]:
    """Data type and rank, from a full line or from the path. Both must agree."""
    dtypes = _said_by(path, {dtype: dtype for dtype in _DTYPES})
    ranks = _said_by(path, _RANKS)
    if "NDimSpatial" not in value:
        if len(dtypes) != 1:
            raise UnreadableLineError(f"its path does not name exactly one data type of {', '.join(_DTYPES)}")
        if other := _said_by(path, {layout: layout for layout in _OTHER_LAYOUTS}):
            raise UnreadableLineError(f"layout {min(other)}: problems here have nhwgc or ndhwgc")
        if len(ranks) > 1:
            raise UnreadableLineError("its path names both layouts, nhwgc and ndhwgc")
        return next(iter(dtypes)), next(iter(ranks), 2)
    dtype, ndim = _checked_kind(value)
    if dtypes and dtypes != {dtype}:
        raise UnreadableLineError(f"the line is of {dtype}, its path of {' and '.join(sorted(dtypes))}")
    if ranks and ranks != {ndim}:
        raise UnreadableLineError(f"the line is {ndim}D, its path {'D and '.join(map(str, sorted(ranks)))}D")
    return dtype, ndim


def _said_by(path: Path, words: Mapping[str, _T]) -> set[_T]:
    """Returns the meaning of the words in the file name; if it has none of them, of the nearest folder that
    has."""
    for part in reversed(path.parts):
        found = {words[word] for word in re.split(r"[^a-z0-9]+", part.lower()) if word in words}
        if found:
            return found
    return set()


def _checked_kind(value: Mapping[str, str]) -> tuple[str, int]:
    """Data type and rank of a full line. Only plain convolutions of one type in channels-last layout are
    accepted."""
    if value["NDimSpatial"] not in ("2", "3"):
        raise UnreadableLineError(f"NDimSpatial {value['NDimSpatial'][:40]} is neither 2 nor 3")
    ndim = int(value["NDimSpatial"])
    layouts = tuple(value[name] for name in ("ALayout", "BLayout", "ELayout"))
    wanted = _LAYOUTS[ndim]
    # bwd_data reads the output image and writes the input image; some lists name them in that order.
    if layouts not in (wanted, wanted[::-1]) and tuple(sorted(layouts)) != tuple(sorted(wanted)):
        shown = " ".join(layouts)[:80]
        raise UnreadableLineError(f"layout {shown}: problems here have {' '.join(wanted)}")
    if value.get("DsLayout", "EmptyTuple") not in ("EmptyTuple", "Tuple()"):
        raise UnreadableLineError(f"DsLayout {value['DsLayout'][:40]}: kernels here have no further operand")
    for name in ("AElementwiseOp", "BElementwiseOp", "CElementwiseOp"):
        if value[name] != "PassThrough":
            raise UnreadableLineError(f"{name} {value[name][:40]}: kernels here only convolve")
    dtype = value["ADataType"]
    if dtype not in _DTYPES:
        raise UnreadableLineError(f"data type {dtype[:40]} is not one of {', '.join(_DTYPES)}")
    for name in ("BDataType", "EDataType", "AComputeDataType", "BComputeDataType"):
        if value.get(name, dtype) != dtype:
            raise UnreadableLineError(f"{name} is {value[name][:40]}, not {dtype}")
    if value.get("GemmSpec", "MNKPadding") != "MNKPadding":
        raise UnreadableLineError(f"GEMM padding {value['GemmSpec'][:40]}: kernels here pad all three axes")
    if any(value.get(name, "true") not in _YES for name in ("DoPadGemmM", "DoPadGemmN")):
        raise UnreadableLineError("DoPadGemmM, DoPadGemmN: kernels here pad all three axes")
    return dtype, ndim
