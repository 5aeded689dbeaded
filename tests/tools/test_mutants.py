"""The mutation run: which changes it makes, which it leaves out, and who finds them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.processes import run_python
from tools import mutants

SOURCE = '''
from dataclasses import dataclass

LIMIT = 2


@dataclass(frozen=True)
class Sum:
    values: tuple[int, ...] = ()

    def over(self, other: int) -> bool:
        """Not changed: 1 < 2."""
        assert other < 10
        return sum(self.values) - other > LIMIT


def sign(value: int) -> int:
    return -1 if value < 0 else 1
'''
TEST = """
from tile_oracle.judge.sums import Sum, sign

def test_over():
    assert Sum((1, 4)).over(2)
    assert not Sum((1, 4)).over(3)

def test_sign():
    assert sign(-5) == -1
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small project with this project's folders."""
    files = {
        "harness/tile_oracle/__init__.py": "",
        "harness/tile_oracle/plugin.py": "",
        "harness/tile_oracle/judge/__init__.py": "",
        "harness/tile_oracle/judge/sums.py": SOURCE,
        "tests/judge/test_sums.py": TEST,
        "tools/mutants.toml": "equivalent = []\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    return tmp_path


def changes(found: list[mutants.Mutant]) -> list[tuple[str, str]]:
    return [(one.before, one.after) for one in found]


def test_each_change_is_one_of_a_value_an_operation_a_condition_or_a_result(checkout: Path) -> None:
    found = list(mutants.mutants_of("judge/sums.py"))
    returned, signed = "return sum(self.values) - other > LIMIT", "return -1 if value < 0 else 1"
    assert changes(found) == [
        ("LIMIT = 2", "LIMIT = 3"),
        (returned, "return None"),
        (returned, "return sum(self.values) - other >= LIMIT"),
        (returned, "return sum(self.values) - other < LIMIT"),
        (returned, "return sum(self.values) + other > LIMIT"),
        (signed, "return None"),
        (signed, "return -1 if not value < 0 else 1"),
        (signed, "return -1 if value <= 0 else 1"),
        (signed, "return -1 if value > 0 else 1"),
        (signed, "return -1 if value < 1 else 1"),
        (signed, "return +1 if value < 0 else 1"),
        (signed, "return -2 if value < 0 else 1"),
        (signed, "return -1 if value < 0 else 2"),
    ]
    for one in found:
        before, after = SOURCE.replace("    ", ""), one.text(SOURCE).replace("    ", "")
        assert one.before in before
        assert one.after in after
        assert SOURCE.split("\n")[one.line - 1].strip() == one.before


def test_an_edit_elsewhere_leaves_the_sample_as_it_is(checkout: Path) -> None:
    chosen = changes(mutants.sample(5, "1"))
    assert chosen != changes(mutants.sample(5, "2"))
    (checkout / "harness/tile_oracle/judge/sums.py").write_text("# a line more\n" + SOURCE)
    assert changes(mutants.sample(5, "1")) == chosen


@pytest.mark.slow
def test_the_tests_of_a_room_find_what_they_look_at(checkout: Path) -> None:
    (checkout / "tools").mkdir(exist_ok=True)
    for name in ("mutants.py", "command_line.py"):
        shutil.copy(Path(str(mutants.__file__)).with_name(name), checkout / "tools")
    (checkout / "tools" / "mutants.toml").write_text(
        '[[equivalent]]\nin = "judge/sums.py sign"\nreason = "as an example"\n'
        'before = "return -1 if value < 0 else 1"\nafter = "return -1 if value < 1 else 1"\n'
    )
    subprocess.run(["git", "init", "-q", str(checkout)], check=True)
    done = run_python("-m", "tools.mutants", "--jobs=1", cwd=checkout, env={**os.environ, "PYTHONPATH": ""})
    survivors = [lines.split("\n")[2].strip() for lines in done.stdout.split("SURVIVED ")[1:]]
    expected = ["return -1 if value < 0 else 2", "return -1 if value <= 0 else 1"]
    assert sorted(survivors) == expected, done.stderr
    assert "13 mutants, 1 of them equivalent: 2 survived\n83.3 % killed" in done.stdout
    assert done.returncode == 1


def test_what_is_listed_as_equivalent_is_a_mutant() -> None:
    listed = tomllib.loads(mutants.EQUIVALENT.read_text("utf-8"))["equivalent"]
    there = {(f"{one.file} {one.function}", one.before, one.after) for one in mutants.sample(1 << 30, "1")}
    assert [one for one in listed if (one["in"], one["before"], one["after"]) not in there] == []
