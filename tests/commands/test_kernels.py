"""`tile-oracle pool list`: what it prints."""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.pools import kernel_pool
from tile_oracle.arch import known_archs
from tile_oracle.cli import main
from tile_oracle.commands import kernels
from tile_oracle.errors import KernelError, RuleError
from tile_oracle.operation import Kind
from tile_oracle.pool import explain_pool_of_kind
from tile_oracle.pool.kernel_filter import filter_fields
from tile_oracle.terminal.argument_table import add_arguments

CONVOLUTION = Kind.of("grouped_conv", direction="forward", dtype="bf16", ndim=2)

EXAMPLES = Path(__file__).parents[2] / "examples"
_KIND = ("--direction", "forward", "--dtype", "bf16", "--ndim", "2")


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["kernels", *arguments]) == 0
    return capsys.readouterr().out


def table(text: str, head: str) -> dict[str, list[str]]:
    """The rows below the line that starts with `head`, by their first cell (or first three)."""
    lines = iter(text.splitlines())
    while not next(lines).startswith(head):
        pass
    rows = {}
    for line in lines:
        if not line:
            break
        cells = line.split()
        rows[" ".join(cells[:3])] = cells[3:]
    return rows


def test_without_arguments_it_counts_the_default_set_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    rows = table(output(capsys), "arch")
    assert rows["gfx950 bf16 2D"] == ["300", "150", "150"]
    assert rows["cpu fp32 3D"] == [str(len(kernel_pool(d, "fp32", 3, "cpu"))) for d in ("forward",) * 3]
    amd = {"gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1200", "gfx1201"}
    assert {row.split()[0] for row in rows} == amd | {"sm_90", "cpu"}
    assert rows["gfx1201 bf16 2D"] == ["4", "-", "-"]


def test_one_kind_is_counted_by_tile_and_pipeline_and_with_a_filter(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = output(capsys, "--arch", "gfx950", *_KIND)
    rows = table(text, "tile ")
    assert rows["128x64x128 8x2x1 16x16x32"] == ["8", "4", "2", "4", "4", "8", "30"]
    assert len(rows) == 10 + 1
    assert "gfx950, forward bf16 2D: 300 kernels" in text
    assert "180 more are proposed by the rules and refused" in text
    where = ("--kernel-filter", "tile_n >= 128 and pipeline == 'compv5'")
    text = output(capsys, "--arch", "gfx950", "--dtype", "bf16", "--ndim", "3", *where)
    assert "12 of 300  6 of 150    6 of 150" in text
    assert "forward bf16 2D: 0 of 24 kernels" in output(capsys, "--arch", "cpu", *_KIND, *where)


def test_the_list_is_the_pool_one_name_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "--arch", "cpu", *_KIND, "--kernel-set", "tiny", "--list")
    assert text.splitlines() == [kernel.name for kernel in kernel_pool("forward", "bf16", 2, "cpu", "tiny")]


def test_refusals_are_counted_and_shown_by_example(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "--arch", "gfx942", *_KIND, "--refused")
    explained = explain_pool_of_kind(CONVOLUTION, "gfx942")
    assert "1 kind of problem: 480 proposed, 240 allowed, 240 refused" in text
    for rule, count in explained.rules.items():
        assert f"  {rule} " in text
        assert f" {count}\n" in text
    for reason, count in explained.reasons.items():
        assert f"{count:>7}  {reason}\n" in text
    assert "e.g. grouped_conv_forward_bf16_2d_128x128x64_basic_v1_interwave\n" in text
    text = output(capsys, "--arch", "gfx942", *_KIND, "--refused", "--first", "2")
    rest = list(explained.reasons.values())[2:]
    assert f"{sum(rest)}  for {len(rest)} other reasons; --first shows more" in text
    text = output(capsys, "--arch", "cpu", *_KIND, "--refused")
    assert text == "kernel set default on cpu, 1 kind of problem: 24 proposed, 24 allowed, 0 refused\n"


@pytest.mark.slow
def test_a_name_is_explained_field_by_field_and_by_architecture(capsys: pytest.CaptureFixture[str]) -> None:
    name = "grouped_conv_forward_bf16_2d_64x64x64_compv4_intrawave_dsb"
    text = output(capsys, name)
    assert text.startswith(name + "\n")
    for field in filter_fields("grouped_conv"):
        assert field == "name" or f"  {field} " in text
    assert "gfx950   allowed; 256 threads, 32,768 of 163,840 LDS bytes; in the sets default\n" in text
    assert "cpu      refused\n           waves: 4x1x1 is not one of 1x1x1 on cpu\n" in text
    assert all(f"\n{arch} " in text for arch in known_archs())


def test_an_old_name_is_shown_as_it_is_written_now(capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, "grouped_conv_forward_bf16_2d_64x64x64_compv3", "--arch", "gfx950")
    assert text.startswith("grouped_conv_forward_bf16_2d_64x64x64_compv3_intrawave\n  (written as ")
    assert "gfx942" not in text


def test_a_users_rule_set_is_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tile = {"tile": "64x64x64", "waves": "1x1x1", "warp_tile": ["4x32x1", "8x32x1"]}
    block = {"arch": ["cpu"], "direction": ["forward"], "pipeline": ["mem", "compv3"], "tiles": [tile]}
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"about": "my \x1b[2J rules", "blocks": [block]}))
    text = output(capsys, "--kernel-set", str(path))
    assert table(text, "arch")["cpu bf16 2D"] == ["4"]
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("--arch", "gfx1250"), RuleError, "no rules for gfx1250"),
        (("--arch", "gfx95"), RuleError, r"did you mean gfx950\?"),
        (("--kernel-set", "huge"), RuleError, "kernel set 'huge' is not known"),
        (("--kernel-filter", "tile_q == 1"), RuleError, "column 1: a kernel has no field 'tile_q'"),
        (("--kernel-filter", ""), RuleError, "the kernel filter is empty"),
        (("conv_64x64",), KernelError, "'conv_64x64' is not a kernel name"),
    ],
)
def test_mistakes_are_one_line(arguments: tuple[str, ...], error: type[Exception], message: str) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser, kernels.ARGUMENTS)
    with pytest.raises(error, match=message):
        kernels.run(parser.parse_args(arguments))


_ASSEMBLY = """\
\t.amdgcn_target "amdgcn-amd-amdhsa--gfx950"
\t.type\tone,@function
one:
\ts_load_dword s2, s[0:1], 0x0
\ts_waitcnt lgkmcnt(0)
\tv_mov_b32_e32 v0, s2
\ts_endpgm
.Lfunc_end0:
"""


@pytest.mark.slow
def test_the_help_teaches_by_examples_that_work(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kernel.s").write_text(_ASSEMBLY)
    shutil.copy(EXAMPLES / "own_triton_kernel" / "my_kernels.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    text = kernels.EXAMPLES
    commands = [line.strip() for line in text.splitlines() if line.startswith("  tile-oracle pool list")]
    assert len(commands) >= 6
    for command in commands:
        if "kernels-old" in command or ("my_kernels" in command and find_spec("triton") is None):
            continue  # tests/compiling/test_prebuilt_folder.py compares folders
        assert output(capsys, *shlex.split(command.split("   ")[0])[3:])
    for field in filter_fields("grouped_conv"):
        assert field in text


def test_a_config_file_without_a_checkout_is_for_the_own_family(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "nhwgc_bf16.conf"
    path.write_text(
        "DeviceGroupedConvFwdMultipleABD_Xdl_CShuffle"
        "<64, 64, 64, 32, Default, 32, 32, 2, 2, 1, 1, 1, 1, 1, 1>\n"
    )
    text = output(capsys, "--kernel-set", str(path), "--arch", "gfx950", *_KIND)
    assert "1 more are proposed by the rules and refused" in text
    assert "--ck-tile DIR allows what a checkout can build" in text
