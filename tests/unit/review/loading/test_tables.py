"""Reading CSV: whatever the file looks like, a row is read or reported, with the number that a spreadsheet shows."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from statlib.kernel.refusals import Refusal
from statlib.review.loading.review import LoadReason
from statlib.review.loading.tables import Table, headers, read_table


def table_of(folder: Path, content: bytes) -> Table:
    path = folder / "data.csv"
    path.write_bytes(content)
    return read_table(path)


@pytest.mark.parametrize(
    "content",
    [
        b"a,b\n1,x\n2,y\n",
        b"a,b\r\n1,x\r\n2,y\r\n",
        b"a,b\r1,x\r2,y\r",
        b"\xef\xbb\xbfa,b\n1,x\n2,y\n",
        b"a;b\n1;x\n2;y\n",
        b"a\tb\n1\tx\n2\ty\n",
        b"a,b\n1,x\n2,y",
        b' a ,"b"\n 1 , x\n"2","y"\n',
    ],
    ids=["lf", "crlf", "cr", "byte-order mark", "semicolons", "tabs", "no last line end", "spaces and quotes"],
)
def test_every_usual_way_to_write_the_same_table_reads_alike(tmp_path: Path, content: bytes) -> None:
    table = table_of(tmp_path, content)
    assert [(row.number, row["a"], row["b"]) for row in table.rows()] == [(2, "1", "x"), (3, "2", "y")]
    assert table.problems == []


def test_unicode_and_quoted_line_breaks_are_kept(tmp_path: Path) -> None:
    table = table_of(tmp_path, 'a,b\n1,"Ménière’s\r\n病, part ""2"""\n2,\u2028y\n'.encode())
    assert [(row.number, row["b"]) for row in table.rows()] == [(2, 'Ménière’s\r\n病, part "2"'), (3, "y")]
    assert table.problems == []


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (b"1", "has 1 columns where the header has 2"),
        (b"1,2,3", "has 3 columns where the header has 2"),
        (b"1,caf\xe9", "holds bytes that are not UTF-8"),
        (b"1,a\x00b", "holds a NUL character"),
        (b'1,"open', "is not valid CSV (unexpected end of data)"),
        (b'1,"a"b', "is not valid CSV (',' expected after '\"')"),
        (b"1," + b"x" * 131_073, "is not valid CSV (field larger than field limit (131072))"),
    ],
    ids=["too few columns", "too many columns", "latin-1", "nul", "open quote", "text after a quote", "huge field"],
)
def test_a_damaged_row_is_reported_and_the_rows_around_it_are_read(tmp_path: Path, row: bytes, reason: str) -> None:
    table = table_of(tmp_path, b"a,b\n1,before\n" + row + b"\n2,after\n3,last\n")
    assert [values["b"] for values in table.rows()] == ["before", "after", "last"]
    assert [str(problem) for problem in table.problems] == [f"data.csv, row 3: {reason}"]


def test_an_open_quote_that_a_later_row_closes_costs_its_own_row_only(tmp_path: Path) -> None:
    table = table_of(tmp_path, b'a,b\n1,"open\n2,x\n3,"quoted"\n4,y\n')
    assert [row["a"] for row in table.rows()] == ["2", "3", "4"]
    assert [problem.row for problem in table.problems] == [2]


def test_blank_lines_count_as_rows_and_are_no_problem(tmp_path: Path) -> None:
    table = table_of(tmp_path, b"a,b\n\n1,x\n,\n \n2,y\n")
    assert [row.number for row in table.rows()] == [3, 6]
    assert table.problems == []


@pytest.mark.parametrize(
    ("content", "detail"),
    [(b"", "no header line"), (b"\n\n", "no header line"), ("a,b\n".encode("utf-16"), "is UTF-16, expected UTF-8")],
    ids=["empty", "only blank lines", "utf-16"],
)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, content: bytes, detail: str) -> None:
    with pytest.raises(Refusal, match=detail) as raised:
        table_of(tmp_path, content)
    assert raised.value.reason is LoadReason.ExportUnreadable


@pytest.mark.parametrize(("header", "what"), [("a,c", "no column named 'b'"), ("a,b,b", "2 columns named 'b'")])
def test_a_required_column_must_be_there_once(tmp_path: Path, header: str, what: str) -> None:
    (tmp_path / "data.csv").write_text(f"{header}\n")
    with pytest.raises(Refusal, match=what) as raised:
        read_table(tmp_path / "data.csv", ("a", "b"))
    assert raised.value.reason is LoadReason.FormatUnknown


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="No such file") as raised:
        read_table(tmp_path / "data.csv")
    assert raised.value.reason is LoadReason.ExportUnreadable


def test_headers_lists_csv_files_only_and_empty_ones_as_empty(tmp_path: Path) -> None:
    (tmp_path / "b.CSV").write_text("x,y\n1,2\n")
    (tmp_path / "a.csv").touch()
    (tmp_path / "notes.txt").write_text("x,y\n")
    (tmp_path / "folder.csv").mkdir()
    assert {path.name: header for path, header in headers(tmp_path).items()} == {"a.csv": (), "b.CSV": ("x", "y")}


@pytest.mark.parametrize("name", ["missing", "file.csv"])
def test_headers_refuses_what_is_no_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "file.csv").write_text("a\n")
    with pytest.raises(Refusal) as raised:
        headers(tmp_path / name)
    assert raised.value.reason is LoadReason.ExportUnreadable


def test_a_header_that_is_utf_16_stops_the_whole_folder(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("a,b\n".encode("utf-16"))
    with pytest.raises(Refusal, match="UTF-16"):
        headers(tmp_path)


def test_a_gzipped_table_reads_as_the_plain_one_does(tmp_path: Path) -> None:
    path = tmp_path / "data.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n1,x\n"))
    assert headers(tmp_path) == {path: ("a", "b")}
    assert [(row.number, row["b"]) for row in read_table(path).rows()] == [(2, "x")]


@pytest.mark.parametrize("content", [b"a,b\n1,x\n", gzip.compress(b"a,b\n1,x\n")[:-4]], ids=["plain", "cut off"])
def test_what_is_no_whole_gzip_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "data.csv.gz"
    path.write_bytes(content)
    with pytest.raises(Refusal, match="not a whole gzip file") as raised:
        read_table(path)
    assert raised.value.reason is LoadReason.ExportUnreadable


def test_headers_are_read_from_the_start_of_a_file_alone(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_bytes(b"a,b\n" + b"1,x\n" * 400_000)
    assert headers(tmp_path) == {tmp_path / "data.csv": ("a", "b")}


def test_rows_without_a_key_of_their_own_are_reported(tmp_path: Path) -> None:
    table = table_of(tmp_path, b"a,b\n1,x\n,y\n1,z\n2,w\n")
    assert [(key, row["b"]) for key, row in table.keyed_rows("a")] == [("1", "x"), ("2", "w")]
    assert [(problem.row, problem.reason) for problem in table.problems] == [
        (3, "a is empty"),
        (4, "a 1 occurs already in row 2"),
    ]
