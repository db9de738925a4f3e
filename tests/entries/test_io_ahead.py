"""Text files that are read ahead give what they give line by line: entries, malformed lines, positions."""

from __future__ import annotations

import gzip
import itertools

import numpy as np
import pytest
from helpers.cases import each

from tensorcep.entries.io import Position, Schema, chunks, text
from tensorcep.entries.io.lines import UNDECODED, open_lines
from tensorcep.entries.io.schema import layout_of

CSV = "\n".join(f"u{n % 7},{n % 5},{n}.5" for n in range(40))
TEXTS = {
    "plain": "a,b,y\n" + CSV + "\n",
    "no end": "a,b,y\n" + CSV,
    "crlf": "a,b,y\r\n" + CSV.replace("\n", "\r\n") + "\r\n",
    "cr": "a,b,y\r" + CSV.replace("\n", "\r") + "\r",
    "mixed ends": "a,b,y\n" + CSV.replace("\n", "\r", 5) + "\r\n1,2,3\n",
    "mark": "\ufeffa,b,y\n" + CSV + "\n\ufeffx,2,3\n",
    "bad lines": "a,b,y\n" + CSV.replace("u3,3,10.5", "u3,3").replace("17.5", "x").replace("u2,", ",") + "\n",
    "blanks": "a,b,y\n" + CSV.replace("\nu1,", "\n\nu1, ").replace("u4,", " u4 ,") + "\n",
    "quotes": "a,b,y\n" + CSV.replace("u5", '"u5"').replace("u6", '"u\n6"').replace("u0", '"u,0"') + "\n",
    "spellings": "a,b,y\n" + CSV.replace("u1,", "007,").replace("u2,", "+7,").replace("u3,", "-0,") + "\n",
    "numbers": "a,b,y\n" + CSV.replace("u", "") + "\n7,99999999999999999999,1\n1e3,2,3\nTrue,NA,3\n",
    "comments": "a,b,y\n" + CSV.replace("\n", " # c\n", 9) + "\n# u1,2,3\n",
    "no text": "a,b,y\n" + CSV.replace("u5", "u\udcff") + "\n",
    "only a header": "a,b,y\n",
}
READINGS = {"labels": Schema(), "indices": Schema(labels=False, index_base=0), "no header": Schema(header=False)}


def source(path, how, start, bad, *, in_blocks):
    """What takes the entries of a file, in blocks or as those of a pipe are taken."""
    how = how._replace(bad_line=bad)
    if in_blocks:
        with chunks.open_chunks(str(path), how, start) as found:
            yield from iter(lambda: found.take(7), None)
        return
    with open_lines(str(path)) as lines:
        layout = layout_of(str(path), "csv", lines, how)
    with open_lines(str(path)) as lines:
        found = text.TextReader(
            layout, lambda n: "".join(itertools.islice(lines, n)).encode(errors=UNDECODED), start, False
        )
        yield from iter(lambda: found.take(7), None)


def story(path, how, line, *, in_blocks):
    """Every entry, malformed line and end of a piece, whatever the pieces are."""
    told, entries, ends = [], [], set()
    for piece in source(path, how, Position(0, line), lambda *bad: told.append(bad), in_blocks=in_blocks):
        columns = [found.tolist() for found in (*piece.columns, piece.values)]
        entries += list(zip(*columns, strict=True))
        ends.add(piece.position)
    return told, entries, max(ends, default=None)


@each("name", TEXTS)
@each("reading", READINGS)
@pytest.mark.filterwarnings("ignore:Mean of empty slice")
def test_io_reading_ahead_changes_nothing(tmp_path, monkeypatch, name, reading):
    how, path = READINGS[reading], tmp_path / "x.csv"
    path.write_bytes(TEXTS[name].encode("utf-8", "surrogateescape"))
    packed = tmp_path / "x.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for line, block in itertools.product((0, 1, 9, 24, 41, 99), (90, 1 << 20)):
        monkeypatch.setattr(text, "BLOCK", block)
        right = story(path, how, line, in_blocks=False)
        assert story(path, how, line, in_blocks=True) == right
    told, entries, end = story(packed, how, 9, in_blocks=True)
    plainly = story(path, how, 9, in_blocks=False)
    assert (entries, end) == plainly[1:]
    assert [bad[1:] for bad in told] == [bad[1:] for bad in plainly[0]]


def test_io_plain_lines_are_read_together(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(TEXTS["plain"], encoding="utf-8")
    (whole,) = source(path, READINGS["labels"], Position(0, 34), None, in_blocks=True)
    assert whole.columns[0].tolist() == [f"u{n % 7}" for n in range(33, 40)]
    found = text.entries_in(path.read_bytes()[6:], next_layout(path))
    assert found is not None
    np.testing.assert_array_equal(found[0].values, np.arange(40) + 0.5)


def next_layout(path):
    with open_lines(str(path)) as lines:
        return layout_of(str(path), "csv", lines, Schema())
