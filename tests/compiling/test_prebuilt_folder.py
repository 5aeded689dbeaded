from __future__ import annotations

import ctypes
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.compiling.small_family import make_kernel
from tile_oracle.cli import main
from tile_oracle.compiling import toolchain as toolchain_module
from tile_oracle.compiling.binary_identity import binary_identity
from tile_oracle.compiling.builder import Builder
from tile_oracle.compiling.drift import drift, read_version
from tile_oracle.compiling.isa import this_cpu
from tile_oracle.compiling.prebuild import Progress, prebuild
from tile_oracle.compiling.prebuilt_folder import MANIFEST, PrebuiltFolder
from tile_oracle.errors import BuildError

MakeBuilder = Callable[..., Builder]
X86 = this_cpu().machine == "x86_64"
BASELINE = "x86-64-v2" if X86 else "armv8-a"


@pytest.fixture(scope="module")
def common(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("common")


@pytest.fixture
def folder(common: Path, tmp_path: Path, make_builder: MakeBuilder) -> Path:
    """Three prebuilt kernels, in a folder that they were carried to."""
    if not (common / "made").exists():
        with make_builder(isa=BASELINE, build_dir=common / "cache") as builder:
            prebuild(builder, [make_kernel(tile_m) for tile_m in (3, 2, 1)], common / "made")
    return Path(shutil.copytree(common / "made", tmp_path / "carried"))


@pytest.fixture
def no_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The other machine; requested after the folder, which needs a compiler to be built."""
    monkeypatch.setattr(toolchain_module, "zig_folder", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))


def manifest(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / MANIFEST).read_text()))


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = manifest(folder)
    change(data)
    (folder / MANIFEST).write_text(json.dumps(data))


# ---- the round trip ------------------------------------------------------------------------------


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize("option", ["prebuilt", "build_dir"])
def test_another_machine_needs_no_compiler(folder: Path, make_builder: MakeBuilder, option: str) -> None:
    with make_builder(**{"toolchain": "auto", "build_dir": None, option: folder}) as builder:
        for tile_m in (1, 2, 3):
            result = builder.need(make_kernel(tile_m))
            binary = result.binary
            assert (result.status, result.cached) == ("ok", True)
            assert binary.path.is_relative_to(folder)
            assert (binary.isa, binary.arch) == (BASELINE, "cpu")
            assert "ziglang" in binary.toolchain
            assert f"-march={BASELINE}" in binary.flags
            assert ctypes.CDLL(str(binary.path)).to_abi_version() == 1
        assert builder.notes == []
        with pytest.raises(BuildError, match=r"64x64x64.* is not in .*carried and cannot be compiled"):
            builder.need(make_kernel())


def test_the_manifest_lists_the_folder(folder: Path) -> None:
    data = manifest(folder)
    assert list(data) == sorted(data)
    assert list(data["kernels"]) == sorted(make_kernel(tile_m).name for tile_m in (1, 2, 3))
    assert (data["isa"], data["arch"], data["machine"]) == (BASELINE, "cpu", this_cpu().machine)
    assert ("sse4_2" if X86 else "asimd") in data["features"]
    there = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert there == sorted([MANIFEST, *(entry["binary"] for entry in data["kernels"].values())])


# ---- filling a folder ----------------------------------------------------------------------------


def test_a_folder_of_the_same_kind_is_added_to(folder: Path, make_builder: MakeBuilder) -> None:
    with make_builder(isa=BASELINE) as builder:
        report = prebuild(builder, [make_kernel(9)], folder)
    assert (report.kernels_in_folder, report.replaced) == (4, 0)
    assert len(manifest(folder)["kernels"]) == 4


def test_a_folder_of_another_kind_is_replaced(folder: Path, make_builder: MakeBuilder, include: Path) -> None:
    (include / "more.hpp").write_text("")
    with make_builder(isa=BASELINE) as builder:
        report = prebuild(builder, [make_kernel(9)], folder)
    assert (report.kernels_in_folder, report.replaced) == (1, 3)
    assert len(list((folder / "binaries").iterdir())) == 1


def test_compile_failures_are_in_the_report(tmp_path: Path, make_builder: MakeBuilder) -> None:
    seen: list[Progress] = []
    with make_builder() as builder:
        kernels = [make_kernel(tile_m) for tile_m in (13, 1, 11)]
        report = prebuild(builder, kernels, tmp_path / "made", seen.append)
    assert [result.kernel.tile_m for result in report.failed] == [11, 13]
    assert [result.kernel.tile_m for result in report.built] == [1]
    assert len(manifest(tmp_path / "made")["kernels"]) == 1
    last = seen[-1]
    assert (last.done, last.total, last.failed, last.left_s) == (3, 3, 2, 0.0)


def test_no_kernels_and_somebody_elses_folder_are_refused(tmp_path: Path, make_builder: MakeBuilder) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with make_builder() as builder, pytest.raises(BuildError, match=r"holds other files .'thesis.tex'"):
        prebuild(builder, [make_kernel()], tmp_path / "mine")
    with make_builder() as builder, pytest.raises(BuildError, match="no kernel to build"):
        prebuild(builder, [], tmp_path / "made")


# ---- folders that do not fit ---------------------------------------------------------------------


def test_a_folder_for_another_machine_is_refused(folder: Path, make_builder: MakeBuilder) -> None:
    rewrite(folder, lambda data: data["features"].append("avx4096"))
    with pytest.raises(BuildError, match="lacks avx4096"):
        make_builder(prebuilt=folder)
    rewrite(folder, lambda data: data.update(machine="sparc64"))
    with pytest.raises(BuildError, match="lacks sparc64"):
        make_builder(prebuilt=folder)


def test_a_stale_folder_is_reported_and_built_again(
    folder: Path, make_builder: MakeBuilder, include: Path
) -> None:
    (include / "grouped_conv.hpp").open("a").write("// newer\n")
    with make_builder(prebuilt=folder) as builder:
        assert "carried was built from different kernel sources" in builder.notes[0]
        result = builder.need(make_kernel(1))
    assert (result.status, result.cached) == ("ok", False)


def test_a_kernel_of_other_source_is_compiled(folder: Path, make_builder: MakeBuilder) -> None:
    """The headers are the same, but what is generated for the kernel is not."""
    rewrite(folder, lambda data: data["kernels"][make_kernel(1).name].update(source_sha256="0" * 64))
    with make_builder(prebuilt=folder) as builder:
        assert not builder.need(make_kernel(1)).cached
        assert builder.need(make_kernel(2)).cached


@pytest.mark.usefixtures("no_compiler")
def test_a_stale_folder_without_a_compiler_is_refused(
    folder: Path, make_builder: MakeBuilder, include: Path
) -> None:
    (include / "grouped_conv.hpp").open("a").write("// newer\n")
    with pytest.raises(BuildError, match=r"different kernel sources.*cannot be built again: no") as error:
        make_builder(toolchain="auto", prebuilt=folder)
    assert "\n" not in str(error.value)


def test_a_requested_instruction_set_overrides_the_folder(folder: Path, make_builder: MakeBuilder) -> None:
    asked = "x86-64"
    with make_builder(prebuilt=folder, isa=asked, runs_here=False) as builder:
        assert f"was built for {BASELINE}, not {asked}" in builder.notes[0]
        assert not builder.need(make_kernel(1)).cached


# ---- damaged and forged folders ------------------------------------------------------------------


def first_entry(data: dict[str, Any]) -> dict[str, Any]:
    return dict.__getitem__(data["kernels"], min(data["kernels"]))  # type: ignore[no-any-return]


NEARLY = tuple(form.format(f"binaries/{'b' * 64}.so") for form in ("{}\n", "../{}", "{}/../x.so"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        *(
            (lambda d, path=path: first_entry(d).update(binary=path), "binary: expected `str` matching regex")
            for path in ("../../etc/passwd", "/lib/libc.so.6", f"binaries/../{'a' * 64}.so", *NEARLY)
        ),
        (lambda d: first_entry(d).update(sha256="00"), "sha256: expected `str` matching"),
        (lambda d: first_entry(d).update(bytes="many"), "bytes: expected `int`"),
        (lambda d: first_entry(d).update(bytes=True), "bytes: expected `int`"),
        (lambda d: d["kernels"].update(x=[]), "kernels: .*expected `object`, got `array`"),
        (lambda d: d.update(kernels=[]), "kernels: expected `object`"),
        (lambda d: d.update(format="something else"), "format"),
        (lambda d: d.update(features="sse2"), "features: expected `array`"),
        (lambda d: d.update(isa="\x1b[2J"), "isa: expected `str` matching"),
        (lambda d: d.pop("headers"), "missing required field `headers`"),
    ],
)
def test_an_invalid_manifest_is_refused(
    folder: Path, make_builder: MakeBuilder, change: Callable[[dict[str, Any]], object], says: str
) -> None:
    rewrite(folder, change)
    with pytest.raises(BuildError, match=rf"manifest\.json.*{says}.*: make the folder with") as error:
        make_builder(build_dir=folder)
    assert str(error.value).isprintable()


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize("damage", ["flipped bit", "longer", "missing", "link"])
def test_a_file_that_differs_from_the_manifest_is_not_loaded(
    folder: Path, make_builder: MakeBuilder, tmp_path: Path, damage: str
) -> None:
    path = folder / manifest(folder)["kernels"][make_kernel(1).name]["binary"]
    content = bytearray(path.read_bytes())
    path.unlink()
    if damage == "flipped bit":
        content[200] ^= 1
        path.write_bytes(content)
    elif damage == "longer":
        path.write_bytes(content + b"\0")
    elif damage == "link":
        (tmp_path / "elsewhere.so").write_bytes(content)
        path.symlink_to(tmp_path / "elsewhere.so")
    says = {
        "flipped bit": "sha256",
        "longer": "bytes long",
        "missing": "is missing",
        "link": "points outside its folder",
    }
    with make_builder(toolchain="auto", prebuilt=folder) as builder:
        with pytest.raises(BuildError, match=says[damage]) as error:
            builder.need(make_kernel(1))
        assert builder.need(make_kernel(2)).status == "ok"
    assert "\n" not in str(error.value)


def test_a_damaged_file_is_reported_and_compiled_again(folder: Path, make_builder: MakeBuilder) -> None:
    for path in (folder / "binaries").iterdir():
        path.write_bytes(b"")
    with make_builder(prebuilt=folder) as builder:
        result = builder.need(make_kernel(1))
        assert (result.status, result.cached) == ("ok", False)
        assert len(builder.notes) == 1
        assert "compiled again" in builder.notes[0]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8), lambda x: st.lists(x, max_size=2)
)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_manifest_is_accepted_or_refused(folder: Path, tmp_path: Path, data: st.DataObject) -> None:
    content = manifest(folder)
    place: dict[str, Any] = content if data.draw(st.booleans()) else first_entry(content)
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(JSON)
    other = tmp_path / "other"
    other.mkdir(exist_ok=True)
    (other / MANIFEST).write_text(json.dumps(content))
    try:
        ahead = PrebuiltFolder(other)
    except BuildError:
        return
    assert all(Path(entry.binary).parent == Path("binaries") for entry in ahead.entries.values())


# Two versions of a pool compared: real binaries in folders.


@pytest.fixture
def before(tmp_path: Path, make_builder: MakeBuilder) -> Path:
    """Kernels with tile_m 1, 2 and 3."""
    with make_builder() as builder:
        prebuild(builder, [make_kernel(tile_m) for tile_m in (1, 2, 3)], tmp_path / "before")
    return tmp_path / "before"


@pytest.fixture
def after(tmp_path: Path, include: Path, make_builder: MakeBuilder, before: Path) -> Path:
    """From other headers, with tile_m 1 and 2; the third binary has another name, and a fourth is new."""
    header = include / "grouped_conv.hpp"
    header.write_text(header.read_text() + "\n// a comment changes no code\n")
    with make_builder() as builder:
        prebuild(builder, [make_kernel(tile_m) for tile_m in (1, 2, 3, 4)], tmp_path / "after")
    path = tmp_path / "after" / MANIFEST
    manifest = json.loads(path.read_text())
    kernels = manifest["kernels"]
    kernels[make_kernel(5).name] = kernels.pop(make_kernel(3).name)
    # The second name gets the fourth kernel's binary: it has changed, and two names share one binary.
    kernels[make_kernel(2).name] = kernels[make_kernel(4).name]
    path.write_text(json.dumps(manifest))
    return tmp_path / "after"


def test_differing_kernels_are_told_and_damaged_folders_refused(
    before: Path, after: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two, three, four, five = (make_kernel(tile_m).name for tile_m in (1, 2, 3, 4, 5))
    found = drift(read_version(before), read_version(after))
    assert (found.gained, found.lost) == ((four,), ())
    assert found.renamed == ((three, five),)
    assert found.changed == (two,)
    assert found.same == (one,)
    assert found.a.twins() == ()
    assert found.b.twins() == (tuple(sorted((two, four))),)
    back = drift(found.b, found.a)
    assert (back.lost, back.renamed) == ((four,), ((five, three),))
    assert main(("kernels", "--diff", str(before), str(before))) == 0
    assert "no difference in 3 kernels" in capsys.readouterr().out
    assert main(("kernels", "--diff", str(before), str(after))) == 1
    text = capsys.readouterr().out
    assert "1 gained, 0 lost, 1 renamed, 1 changed, 1 the same" in text
    assert f"{make_kernel(3).name} -> {make_kernel(5).name}" in text
    assert main(("kernels", "--diff", str(before), str(after), "--json")) == 1
    content = json.loads(capsys.readouterr().out)
    assert content["gained"] == [make_kernel(4).name]
    assert content["twins"]["b"] == [sorted((make_kernel(2).name, make_kernel(4).name))]
    binary = next((before / "binaries").iterdir())
    binary.write_bytes(binary.read_bytes()[:200])
    with pytest.raises(BuildError, match="is damaged: build it again"):
        read_version(before)


def test_comments_of_ptx_do_not_count_and_other_files_do(tmp_path: Path) -> None:
    texts = {
        "a": ".target sm_90 // made on Monday\nadd r1;",
        "b": ".target sm_90\nadd r1;",
        "c": ".target sm_90",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.ptx").write_text(text)
    same, other = (binary_identity(tmp_path / f"{name}.ptx") for name in "ac")
    assert binary_identity(tmp_path / "b.ptx") == same != other
    for name in "ab":
        (tmp_path / name).write_text(f'{{"path": "/usr//lib", "algorithm": "{name}"}}')
    assert binary_identity(tmp_path / "a") != binary_identity(tmp_path / "b")
