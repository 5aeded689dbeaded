"""The arguments of commands as tables of text."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_oracle.commands.arguments import _LACKS, _NEEDS, _printed, check_places
from tile_oracle.commands.table import COMMANDS
from tile_oracle.errors import HarnessError
from tile_oracle.terminal.argument_table import STDOUT, WRITTEN, Argument, add_arguments, argument_table

TABLE = argument_table(
    """
files FILE...  some files
-o --out FOLDER!  a folder: it must
    be given, 100 %
--folds N=5  a number
--reach PERCENT=2.5  a share
--by oracle|pick=oracle  one of two words
--recipe NAME  one of the words below
--also RECORDS*  more than once
--json [FILE]  its file may be left out
--diff DIR DIR  two of them
--sizes N,...=1,2  text
--quiet  a switch
of a kind:
--of WORDS=  nothing
""",
    recipe=("plain", "best"),
)


def read(words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser, TABLE)
    return parser.parse_args(words.split())


def test_values_are_those_given_or_the_defaults_of_the_table() -> None:
    assert vars(read("a.csv b.csv -o here")) == {
        "files": [Path("a.csv"), Path("b.csv")], "out": Path("here"), "folds": 5, "reach": 2.5,
        "by": "oracle", "recipe": None, "also": [], "json": None, "diff": None, "sizes": "1,2",
        "quiet": False, "of": "",
    }  # fmt: skip
    given = read("a -o b --folds 7 --by pick --recipe best --also c --also d --json --diff e f --quiet")
    assert (given.folds, given.by, given.recipe, given.quiet) == (7, "pick", "best", True)
    assert (given.also, given.json, given.diff) == ([Path("c"), Path("d")], STDOUT, [Path("e"), Path("f")])
    assert read("a -o b --json found.json").json == Path("found.json")


@pytest.mark.parametrize(
    "words", ["--folds -1", "--by none", "--recipe none", "--reach 101", "--reach nan", "--reach -1"]
)
def test_other_values_are_refused(words: str) -> None:
    with pytest.raises(argparse.ArgumentError):
        read(f"a -o b {words}")


def test_what_an_argument_goes_with_is_an_argument_of_its_command() -> None:
    for command in COMMANDS.values():
        table = command.load().ARGUMENTS
        known = {name for one in table for name in (*one.names, one.attributes.get("metavar"))}
        for form in (_NEEDS, _LACKS):
            named = [found[1] for one in table if (found := form.search(one.attributes["help"]))]
            assert {word.split()[0] for text in named for word in re.split(", | or ", text)} <= known


WRITERS = [
    (command.name, one)
    for command in COMMANDS.values()
    for one in command.load().ARGUMENTS
    if one.names[-1].lstrip("-") in WRITTEN
    and re.match(r"FILE|PAGE|TABLE", one.attributes.get("metavar") or "")
]
"""All options of all commands that write a file."""
OTHERS = {
    "source": b'"""Kernels, and more."""\n\nimport os, sys\n', "page": b"<!DOCTYPE html>\n<p>a, b",
    "text": b"a, b and c\n", "records": b"PAR1\0,\0,", "list": b"one\ntwo\n", "object": b'{"a": 1, "b": 2}',
    "table": b"# from here\nN,C,K\n1,8,8\n", "notes": "# a, b\n\n## Of two → three\n".encode(),
}  # fmt: skip
KINDS_OF = {
    "markdown": "notes", "json": "object", "csv": "table", "pairs": "table",
    ".json": "object", ".csv": "table", ".txt": "list", ".parquet": "records",
}  # fmt: skip


@pytest.mark.parametrize(("command", "one"), WRITERS, ids=[f"{name}{one.names[-1]}" for name, one in WRITERS])
@given(chosen=st.data())
def test_a_file_replaces_neither_an_input_nor_a_file_of_another_kind(
    command: str, one: Argument, chosen: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    name, word = one.names[-1].lstrip("-"), one.attributes["metavar"]
    ending = chosen.draw(
        st.sampled_from([f".{end}" for end in re.split("[.{,}]", word)[1:] if end] or [".py"])
    )
    held = chosen.draw(st.sampled_from(sorted(OTHERS)))
    place = tmp_path_factory.mktemp("written") / f"mine{ending}"
    place.write_bytes(OTHERS[held])
    arguments = COMMANDS[command].load().ARGUMENTS
    others = {of.names[-1].lstrip("-").replace("-", "_"): None for of in arguments}
    others |= {name: place}
    own = {"PAGE": ["page"], "TABLE": ["object", "table"]}.get(word) or [
        KINDS_OF[ending if name in ("out", "output") else name]
    ]
    if held in own:
        check_places([one], argparse.Namespace(**others))
        spelt = chosen.draw(
            st.sampled_from([str(place), f"{place.parent}/./{place.name}", f"mine={place}", f"a,{place}"])
        )
        if "may be one of" in one.attributes["help"]:
            return
        others["records"] = [chosen.draw(st.sampled_from(["", "other"])), spelt]
    with pytest.raises(HarnessError, match="also an input" if held in own else "a file of another kind"):
        check_places([one], argparse.Namespace(**others))
    assert place.read_bytes() == OTHERS[held]


def test_a_minus_is_stdout_or_refused() -> None:
    for command in COMMANDS.values():
        for one in command.load().ARGUMENTS:
            name = one.names[-1].lstrip("-")
            if name not in WRITTEN or "metavar" not in one.attributes:
                continue
            args = argparse.Namespace(**{name: STDOUT})
            if name in ("out", "output"):
                with pytest.raises(HarnessError, match="-: nothing of this is printed"):
                    check_places([one], args)
            else:
                check_places([one], args)
                assert _printed(args) == [f"--{name}"], "no line goes there"


def test_help_is_one_text_with_the_default_and_the_rows_below_a_heading_are_a_group() -> None:
    by_name = {one.names[-1]: one for one in TABLE}
    assert by_name["--out"].attributes["help"] == "a folder: it must be given, 100 %%"
    assert by_name["--folds"].attributes["help"] == "a number (default: 5)"
    assert by_name["--folds"].attributes["default"] == 5, "argparse reads no default with --help"
    assert [one.names for one in TABLE if one.heading == "of a kind"] == [("--of",)]
