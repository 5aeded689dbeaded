"""The command line `tile-oracle`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.processes import LONGEST_S, run_python
from tests.pytest_project import heed_ctrl_c
from tile_oracle.cli import main
from tile_oracle.commands.table import COMMANDS, called_today, named_command
from tile_oracle.errors import HarnessError
from tile_oracle.version import __version__


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return run_python("-m", "tile_oracle.cli", *arguments, cwd=cwd)


def test_help_shows_every_command_in_a_line() -> None:
    done = run("--help")
    assert done.returncode == 0
    for name in COMMANDS:
        assert re.search(rf"^ +{name}\s+\S+", done.stdout, re.MULTILINE)
    assert "pytest --problem-set forward_smoke" in done.stdout


@pytest.mark.parametrize("group", ["pool", "runs", "model"])
def test_a_group_s_help_shows_its_commands(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([group, "--help"])
    shown = capsys.readouterr().out
    assert all(f"\n  {name}  " in shown for name in COMMANDS if name.startswith(f"{group} "))


def test_scripts_may_use_the_earlier_names(capsys: pytest.CaptureFixture[str]) -> None:
    earlier = "kernels portfolio search history compare merge oracle import suggest"
    for name in f"{earlier} train evaluate features ship seal export predict".split():
        assert named_command(called_today([name, "--help"])) is not None, name
    for name in ("model card", "model parity", "pool search", "card", "parity", "search"):
        assert named_command(called_today([*name.split(), "x"])) is not None, name
    assert called_today(["pool", "search", "x"]) == ["pick", "--search", "x"]
    assert called_today(["kernels", "kernels"]) == ["pool", "list", "kernels"]
    assert called_today(["problems", "train"]) == ["problems", "train"]
    with pytest.raises(SystemExit):
        main(["kernels", "--help"])
    assert capsys.readouterr().out.startswith("usage: tile-oracle pool list ")


@pytest.mark.parametrize("module", ["tile_oracle", "tile_oracle.cli"])
def test_version(module: str) -> None:
    assert run_python("-m", module, "--version").stdout == f"tile-oracle {__version__}\n"


@pytest.mark.parametrize(
    ("command", "status", "begin"),
    [
        (["tile_oracle", "problems"], 2, "tile-oracle problems: "),
        (["pytest", "--problem-set", "forward_smoke"], 4, "ERROR: "),
    ],
)
def test_python_without_docstrings_is_refused_in_one_line(
    command: list[str], status: int, begin: str, tmp_path: Path
) -> None:
    """LightGBM cannot be imported then: its own traceback names no variable."""
    done = run_python("-m", *command, cwd=tmp_path, env={**os.environ, "PYTHONOPTIMIZE": "2"})
    assert done.returncode == status
    assert done.stderr.strip().startswith(f"{begin}PYTHONOPTIMIZE=2 (or python -OO) removes docstrings")
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("word", ["--help", "--version", "no-such-command"])
def test_unknown_commands_import_none(word: str) -> None:
    script = (
        "import sys, tile_oracle.cli\n"
        f"try: tile_oracle.cli.main([{word!r}])\n"
        "except SystemExit: pass\n"
        "own = {'arguments', 'json_output', 'program', 'table'}\n"
        "loaded = {name[21:] for name in sys.modules if name.startswith('tile_oracle.commands.')}\n"
        "print(*loaded - own, 'end')"
    )
    assert run_python("-c", script, check=True).stdout.splitlines()[-1] == "end"


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_every_command_has_help_with_an_example_that_fits_the_terminal(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Except for commands, which are pasted whole, and single words that are as long."""
    for columns in (60, 80, 100):
        monkeypatch.setenv("COLUMNS", str(columns))
        with pytest.raises(SystemExit) as ended:
            main([*name.split(), "--help"])
        assert ended.value.code == 0
        shown = capsys.readouterr().out
        wide = [line.strip() for line in shown.splitlines() if len(line) > columns]
        commands = ("tile-oracle ", "pytest ", "python ", "make ")
        assert [line for line in wide if not line.startswith((*commands, "[-")) and '"' not in line] == []
    assert shown.startswith(f"usage: tile-oracle {name}".rstrip())
    assert "\noptions:\n" in shown
    assert re.search(rf"^  tile-oracle {name}\b", shown, re.MULTILINE) or not name


def test_words_behind_an_option_are_taken(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["problems", "gemm_smoke", "--ids", "softmax_smoke"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert (printed[0][:4], printed[-1][:4]) == ("gemm", "soft")


def test_a_mistake_gives_one_line_that_names_the_command() -> None:
    done = run("problems", "no_such_set")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("tile-oracle problems: no problem set is called 'no_such_set'")
    assert done.stderr.count("\n") == 1


def test_only_the_named_command_is_imported() -> None:
    code = (
        "import sys; from tile_oracle.cli import main; main(['problems', 'forward_smoke']); "
        "print(*{'lightgbm', 'pyarrow', 'tile_oracle.commands.train'} & sys.modules.keys(), file=sys.stderr)"
    )
    assert run_python("-c", code, check=True).stderr.strip() == ""


@pytest.mark.parametrize("words", ["kernels --list --arch gfx950", "--help", "problems gemm_smoke"])
def test_a_closed_pipe_is_not_an_error(words: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "tile_oracle.cli", *words.split()]
    # Buffered, as for most people: what is left in the buffer is written at the very end.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False, env=environment
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def interrupted(*words: str, folder: Path) -> tuple[int, str]:
    """The status and the errors of this Python with these words, which got Ctrl-C once it printed "ready"."""
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_ctrl_c,
    )
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=LONGEST_S)
    return process.returncode, errors


def test_ctrl_c_ends_with_130(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "endless")
    script = """
import sys, tile_oracle.cli, tile_oracle.commands.problems as p
def run(args):
    try:
        print("ready", flush=True)
        open("endless").read()
    except KeyboardInterrupt:  # as when a module's import is broken off
        raise ImportError("numpy.core.multiarray failed to import") from None
p.run = run
sys.exit(tile_oracle.cli.main(["problems"]))
"""
    said = "interrupted: the same command starts again\n"
    assert interrupted("-c", script, folder=tmp_path) == (130, said)


@pytest.mark.parametrize(
    ("imported", "begins"), [("argparse", "the program"), ("shutil", "-m tile_oracle")], ids=["early", "late"]
)
def test_ctrl_c_among_the_imports_ends_with_130(imported: str, begins: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "endless")
    (tmp_path / f"{imported}.py").write_text("print('ready', flush=True)\nopen('endless').read()\n")
    scripts = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts["tile-oracle"].partition(":")
    script = f"import sys\nfrom {module} import {function}\nsys.exit({function}())"
    words = ["-c", script] if begins == "the program" else begins.split()
    assert interrupted(*words, "problems", folder=tmp_path) == (130, "")


def test_an_interrupted_command_says_how_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def is_interrupted(args: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(COMMANDS["build"].load(), "run", is_interrupted)
    handlers: dict[int, object] = {}
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    assert main(["build", "-o", "prebuilt"]) == 130
    assert "<lambda>" in str(handlers[signal.SIGINT]), "a second one is no traceback"
    assert "interrupted: what is compiled is in the cache, and the same command" in capsys.readouterr().err


def test_errors_of_the_harness_and_no_others_are_caught(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = COMMANDS["problems"].load()

    def user_error(_: object) -> int:
        raise HarnessError("the disk is made of cheese")

    def mistake_of_ours(_: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(module, "run", user_error)
    assert main(["problems"]) == 2
    assert capsys.readouterr().err == "tile-oracle problems: the disk is made of cheese\n"
    monkeypatch.setattr(module, "run", mistake_of_ours)
    with pytest.raises(ZeroDivisionError):
        main(["problems"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["docter"], "there is no command 'docter': did you mean doctor?"),
        (["measure"], "there is no command 'measure': `tile-oracle --help` lists the commands"),
        (["model", "trian"], "there is no command 'trian': did you mean train?"),
        (["model", "xyzzy"], "`tile-oracle model --help` lists the commands"),
        (["doctor", "--ck-tyle", "3d"], "unrecognized arguments: --ck-tyle 3d; did you mean --ck-tile?"),
        (["doctor", "3d"], "unrecognized arguments: 3d"),
        ([], "the following arguments are required: COMMAND"),
        (["pool", "list", "--op", "gem"], "argument --op: unknown 'gem': did you mean gemm?"),
        (["pool", "list", "--op", "fft"], "argument --op: unknown 'fft': one of grouped_conv,"),
        (["pick", "gemm,bf16,rcr,m1,n8,k8"], "did you mean 'gemm-bf16-rcr-m1-n8-k8'?"),
        (["pick", "gemm bf16 rcr 1 8 8"], "one looks like gemm-bf16-rcr-m1-n4096-k4096"),
        (["problems", "forward_smoke", "--dtype", "fp16"], "--dtype goes with --out"),
        (["runs", "merge", "a", "-o", "b.parquet", "--device", "H100"], "--device goes with --format oracle"),
        (["runs", "compare", "old", "new", "--pairs", "open.csv"], "--pairs goes with --records: give that"),
        (["model", "evaluate", "mine", "--json"], "--json goes with RECORDS: give that, too"),
        (["problems", "gemm_smoke", "--ids", "-o", "a.csv"], "--ids goes without --out: leave one of them"),
        (
            ["runs", "compare", "a", "b", "--json", __file__],
            "would be replaced, a file of another kind: name another",
        ),
        (["runs", "compare", "a", "b", "--json", "--markdown=-"], "--markdown and --json both print: write"),
        (["problems", "gemm_smoke", "-o", "a.parquet"], "a.parquet: it is written as .csv: name it a.csv"),
        (["problems", "gemm_smoke softmax_smoke"], "several sets are written gemm_smoke,softmax_smoke"),
    ],
)
def test_a_command_line_that_is_wrong_gets_one_line_with_what_was_meant(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status: object = main(arguments)
    except SystemExit as ended:
        status = ended.code
    assert status == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""
