"""Problem sets: what is read, what is refused and how, and properties of the shipped sets."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tile_oracle.errors import ProblemSetError
from tile_oracle.files.data_files import data_folder
from tile_oracle.judge.slices import slices_of
from tile_oracle.operations.grouped_conv.problem import DIRECTIONS, GroupedConvProblem
from tile_oracle.problem_set import (
    MAX_FILE_BYTES,
    MAX_LINE_BYTES,
    format_problem_set,
    list_problem_sets,
    load_problem_set,
    load_problem_sets,
)

SHORT = "N,C,K,Hi,Wi,Y,X\n"
ROW = "1,8,16,9,9,3,3\n"


@pytest.fixture
def write(tmp_path: Path):
    def write(content: str | bytes, name: str = "my.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def refusal(path: Path | str) -> str:
    with pytest.raises(ProblemSetError) as caught:
        load_problem_set(path)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 1200
    return message


class TestReading:
    def test_defaults_fill_omitted_columns(self, write) -> None:
        loaded = load_problem_set(write(SHORT + ROW))
        assert loaded.problems == (GroupedConvProblem("forward", "bf16", 2, 1, 8, 16, 1, 9, 9, 3, 3),)
        assert (loaded.name, loaded.provenance, loaded.sources) == ("my", "", ("",))

    def test_the_published_benchmark_columns_are_read(self, write) -> None:
        columns = "N,C,K,G,Hi,Wi,Y,X,stride_h,stride_w,pad_h,pad_w\n"
        (problem,) = load_problem_set(write(columns + "1,144,144,144,56,56,3,3,2,2,1,1\n")).problems
        assert problem.id == "forward-bf16-n1-g144-c144-k144-i56x56-f3x3-s2-p1"

    def test_columns_come_in_any_order_with_spaces_and_every_field(self, write) -> None:
        text = " X , Y,Wi,Hi,K,C,N,dtype,direction,dilation_w\n2,3,9,10,16,8,4, fp16 , bwd_data ,3\n"
        (problem,) = load_problem_set(write(text)).problems
        assert problem.id == "bwd_data-fp16-n4-c8-k16-i10x9-f3x2-d1x3"

    def test_the_rank_comes_from_the_depth_columns_of_each_row(self, write) -> None:
        text = "N,C,K,Di,Hi,Wi,Z,Y,X,pad_d\n1,8,8,1,9,9,1,3,3,0\n1,8,8,1,9,9,1,3,3,1\n1,8,8,5,9,9,3,3,3,0\n"
        assert [p.ndim for p in load_problem_set(write(text)).problems] == [2, 3, 3]

    def test_a_given_rank_is_kept(self, write) -> None:
        (problem,) = load_problem_set(write("ndim," + SHORT + "3," + ROW)).problems
        assert problem.ndim == 3

    def test_comments_above_the_header_are_the_provenance(self, write) -> None:
        text = "# made by hand\n#\n# for a test\n" + SHORT + "# not this\n\n" + ROW
        assert load_problem_set(write(text)).provenance == "made by hand\n\nfor a test"

    def test_windows_line_ends_and_a_byte_order_mark_change_nothing(self, write) -> None:
        plain = load_problem_set(write("# a\n" + SHORT + ROW))
        windows = load_problem_set(
            write(b"\xef\xbb\xbf" + ("# a\n" + SHORT + ROW).replace("\n", "\r\n").encode())
        )
        assert (windows.problems, windows.provenance) == (plain.problems, plain.provenance)

    def test_a_last_line_without_an_end_is_read(self, write) -> None:
        assert len(load_problem_set(write(SHORT + ROW.strip())).problems) == 1

    def test_sources_stay_with_their_problems(self, write) -> None:
        text = "source," + SHORT + '"a, ""b""",' + ROW + "c," + ROW.replace("8", "4")
        assert load_problem_set(write(text)).sources == ('a, "b"', "c")

    def test_the_hash_is_that_of_the_files_bytes(self, write) -> None:
        path = write("# é\n" + SHORT + ROW)
        assert load_problem_set(path).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()

    def test_repeated_problems_of_a_users_file_are_counted(self, write) -> None:
        loaded = load_problem_set(write(SHORT + ROW + ROW + ROW.replace("8", "4")))
        assert (len(loaded.problems), loaded.repeated_rows) == (2, 1)

    def test_rows_that_repeat_a_problem_of_a_shipped_set_name_both_lines(self, write, monkeypatch) -> None:
        path = write("# x\n" + SHORT + ROW + ROW)
        monkeypatch.setattr("tile_oracle.problem_set.data_folder", lambda _: path.parent)
        message = refusal("my")
        assert f"{path}:4: forward-bf16-n1-c8-k16-i9x9-f3x3 is on line 3 already" in message
        assert refusal(path) == message

    @given(
        st.lists(
            st.tuples(
                st.integers(1, 9), st.integers(1, 9), st.text(st.characters(exclude_categories=["Cs", "Cc"]))
            ),
            min_size=1,
            unique_by=lambda row: row[:2],
        ),
        st.sampled_from(DIRECTIONS),
    )
    @example([(1, 1, "[TILEWRIGHT_PICK]")], "forward")  # the word of another program's file
    def test_a_written_set_is_read_back(self, tmp_path_factory, rows, direction: str) -> None:
        path = tmp_path_factory.mktemp("set") / "written.csv"
        problems = [GroupedConvProblem(direction, "fp32", 3, n, c, 5, 1, 9, 9, 3, 3) for n, c, _ in rows]
        sources = [" ".join(source.split()) for *_, source in rows]
        path.write_text(format_problem_set(problems, sources, "one\n\ntwo"), encoding="utf-8")
        loaded = load_problem_set(path)
        assert (loaded.problems, loaded.sources) == (tuple(problems), tuple(sources))
        assert loaded.provenance == "one\n\ntwo"


class TestNames:
    def test_every_shipped_file_is_listed(self) -> None:
        assert set(list_problem_sets()) == {path.stem for path in data_folder("problems").glob("*.csv")}

    def test_a_misspelt_name_gets_the_closest_one(self) -> None:
        assert "did you mean forward_smoke?" in refusal("foward_smok")

    def test_a_name_never_becomes_a_path(self, tmp_path, monkeypatch) -> None:
        (tmp_path / "mine").write_text(SHORT + ROW)
        monkeypatch.chdir(tmp_path)
        assert "no problem set is called 'mine'" in refusal("mine")
        assert "no problem set is called '..'" in refusal("..")
        assert len(load_problem_set("./mine").problems) == 1

    def test_a_tilde_is_the_home_folder(self, write, monkeypatch) -> None:
        path = write(SHORT + ROW)
        monkeypatch.setenv("HOME", str(path.parent))
        assert load_problem_set("~/my.csv").problems == load_problem_set(path).problems

    def test_several_sets_are_one_and_share_no_problem(self, write) -> None:
        smoke = load_problem_set("forward_smoke")
        again, new = smoke.problems[3], dataclasses.replace(smoke.problems[3], direction="bwd_data")
        own = write(format_problem_set([again, new], ["my again", "my new"], "mine"))
        both = load_problem_sets(f"forward_smoke, {own}")
        assert both.problems == (*smoke.problems, new)
        assert both.sources == (*smoke.sources, "my new")
        assert (both.name, both.repeated_rows, both.path) == ("forward_smoke,my", 1, None)
        assert [part.name for part in both.parts] == ["forward_smoke", "my"]
        assert both.sha256 not in {part.sha256 for part in both.parts}

    def test_one_set_alone_is_that_set(self) -> None:
        assert load_problem_sets("forward_smoke") == load_problem_set("forward_smoke")
        assert load_problem_sets("forward_smoke,forward_smoke") == load_problem_set("forward_smoke")

    @pytest.mark.parametrize("text", ["", ",", "forward_smoke,", "forward_smoke,,bwd_data_smoke"])
    def test_an_empty_name_among_several_is_refused(self, text: str) -> None:
        with pytest.raises(ProblemSetError, match="has an empty name"):
            load_problem_sets(text)


class TestRefusals:
    @pytest.mark.parametrize(
        ("content", "line", "message"),
        [
            ("", None, "no header row; it would be: N,C,K,Hi,Wi,Y,X"),
            ("# only a comment\n\n", None, "no header row"),
            (SHORT, None, "a header but no problems below it"),
            ("N,C,K,Hi,Wi,Y\n1,8,8,9,9,3\n", 1, "no column X; a header row needs at least N,C,K,Hi,Wi,Y,X"),
            ("N,C,K,Hi,Wi,Y,X,stride\n" + ROW, 1, "column 8, 'stride', is unknown; did you mean stride_"),
            ("# c\nN,C,K,hi,Wi,Y,X\n" + ROW, 2, "column 4, 'hi', is unknown; did you mean Hi?"),
            ("M,N,K,Hi\n1,2,3,4\n", 1, "column 4, 'Hi', is unknown; known are dtype, layout"),
            ("N," + SHORT + "1," + ROW, 1, "column N appears twice"),
            (SHORT + "1,8,16,9,9,3\n", 2, "6 cells, but the header row has 7 columns"),
            (SHORT + ROW + "1,8,16,9,9,3,3,1\n", 3, "8 cells, but the header row has 7 columns"),
            (SHORT + "1,8,16,9,9,3.0,3\n", 2, "Y = '3.0' is not an integer; write 3"),
            (SHORT + "1e3,8,16,9,9,3,3\n", 2, "N = '1e3' is not an integer; write 1000"),
            (SHORT + "1,8,,9,9,3,3\n", 2, "K = '' is not an integer; fill the cell"),
            (SHORT + "1,NaN,16,9,9,3,3\n", 2, "C = 'NaN' is not an integer; write digits only"),
            (SHORT + "1,inf,16,9,9,3,3\n", 2, "C = 'inf' is not an integer; write digits only"),
            (SHORT + "1,٣,16,9,9,3,3\n", 2, "C = '٣' is not an integer"),
            (SHORT + "-1,8,16,9,9,3,3\n", 2, "N = -1 is not an integer from 1 to 2^31 - 1"),
            (SHORT + "1,8,16," + "9" * 5000 + ",9,3,3\n", 2, "is not an integer"),
            (SHORT + "1,8,16,9,9,30,3\n", 2, "the dilated filter Y is larger than the padded input Hi"),
            ("dtype," + SHORT + "int8," + ROW, 2, "dtype 'int8' is not one of bf16, fp16, fp32"),
            ("direction," + SHORT + "f" * 60000 + "," + ROW, 2, "direction 'fff"),
            (SHORT + '1,8,"16,9,9,3,3\n' + ROW * 3, 5, "not CSV"),
            (SHORT + "1,8,16,9,9,3\r3\n", 2, "not CSV"),
            ("N,C\0", 1, "a zero byte: this is a binary file"),
            (b"\x7fELF\x02\x01\x01\xff\xfe\x80", 1, "not UTF-8 text"),
            ("N,C".encode("utf-16"), 1, "this is UTF-16: save it"),
            (b"x" * (MAX_LINE_BYTES * 3), 1, "a line has more than 65,536 bytes"),
        ],
    )
    def test_a_bad_file_gets_one_line_with_its_place(
        self, write, content, line: int | None, message: str
    ) -> None:
        path = write(content)
        place = f"{path}:{line}: " if line else f"{path}: "
        said = refusal(path)
        assert said.startswith(place)
        assert message in said

    def test_a_missing_file(self, tmp_path) -> None:
        assert "none.csv does not exist" in refusal(tmp_path / "none.csv")

    def test_a_folder(self, tmp_path) -> None:
        assert "is a folder; give the path of a CSV file in it" in refusal(tmp_path)

    def test_a_pipe_is_not_waited_for(self, tmp_path) -> None:
        os.mkfifo(tmp_path / "pipe.csv")
        assert "is not a regular file" in refusal(tmp_path / "pipe.csv")

    @pytest.mark.parametrize("text", ["a\0b.csv", "x" * 5000 + ".csv", "line\nbreak.csv", "\udcff.csv"])
    def test_paths_that_no_system_has(self, text: str) -> None:
        assert "exist" in refusal(text) or "read" in refusal(text)

    def test_a_file_of_two_gigabytes_is_refused_unread(self, tmp_path) -> None:
        path = tmp_path / "huge.csv"
        with path.open("wb") as file:
            file.truncate(2 * 2**30)
        assert f"has 2048 MiB, but a problem set may have at most {MAX_FILE_BYTES // 2**20}" in refusal(path)

    def test_reading_stops_at_the_row_limit(self, write, monkeypatch) -> None:
        monkeypatch.setattr("tile_oracle.problem_set.MAX_ROWS", 3)
        assert "more than 3 rows" in refusal(write(SHORT + ROW * 4))

    @given(
        st.binary(max_size=300)
        | st.text(alphabet='NCKHiWYX,0123456789\n\r"# .e-', max_size=300).map(str.encode)
    )
    def test_no_content_at_all_ends_in_anything_but_one_line(self, tmp_path_factory, content: bytes) -> None:
        path = tmp_path_factory.mktemp("junk") / "junk.csv"
        path.write_bytes(content)
        try:
            lines = 1 if load_problem_set(path).problems else 0
        except ProblemSetError as error:
            lines = len(str(error).split("\n"))
        assert lines == 1


class TestSmokeSets:
    """Small sets for first tries."""

    @pytest.mark.parametrize("direction", DIRECTIONS)
    def test_they_cover_every_kind_of_layer_in_little_work(self, direction: str) -> None:
        loaded = load_problem_set(f"{direction}_smoke")
        assert 8 <= len(loaded.problems) <= 12
        assert {p.direction for p in loaded.problems} == {direction}
        assert {p.dtype for p in loaded.problems} == {"bf16"}
        assert all(2e6 <= p.flops <= 200e6 for p in loaded.problems)
        covered = {name for p in loaded.problems for name in slices_of(p)}
        assert covered >= {"1x1", "3x3", "depthwise", "grouped", "strided", "dilated", "3D", "odd channels"}
        assert all(loaded.sources)
        assert "chosen by hand" in loaded.provenance

    def test_the_forward_one_has_ten(self) -> None:
        assert len(load_problem_set("forward_smoke").problems) == 10
