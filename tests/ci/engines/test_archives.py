"""Archives of containers, which are hostile."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ci.engines.archives import CHUNK, chunks_of, extract, pack
from ci.facts.files import read_archive
from ci.model.plan import ResultLimits
from ci.util.tar import LARGEST_HEADERS

FILE, FOLDER, LINK, HARD_LINK = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
Member = tuple[str, bytes, str]  # name, type, and content or target


def tar(*members: Member, form: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as file:
        for name, kind, text in members:
            entry = tarfile.TarInfo(name)
            content = os.fsencode(text) if kind == FILE else b""
            entry.type, entry.size = kind, len(content)
            entry.linkname = "" if kind == FILE else text
            file.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def raw(name: str, *, kind: bytes = FILE, size: int = 0, text: bytes = b"") -> bytes:
    """An entry whose header may have any size, with ``text`` behind it."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.size = kind, size
    return entry.tobuf(tarfile.GNU_FORMAT) + text + bytes(-len(text) % 512)


def pieces(content: bytes) -> Iterator[bytes]:
    return chunks_of(io.BytesIO(content))


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.*")}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("of the host")
    folder = tmp_path / "results"
    folder.mkdir()
    return folder


CHAIN = [("r/a_leak.txt", LINK, "zz/" * 20 + "../secret"), ("r/zz", LINK, ".")]


def test_modes_and_times_of_sources(results: Path) -> None:
    times = (1_000_000_000, 1_000_000_001.5)
    with io.BytesIO() as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            for name, mode in {"f": 0o500, "f/g": 0o640, "f/h": 0o4000}.items():
                entry = tarfile.TarInfo(name)
                entry.mode, entry.mtime = mode, times[name == "f"]
                entry.type = tarfile.DIRTYPE if name == "f" else tarfile.REGTYPE
                archive.addfile(entry)
        assert extract([file.getvalue()], results, modes=True) == ()
    paths = [results / name for name in ("f", "f/g", "f/h")]
    assert [stat.S_IMODE(path.stat().st_mode) for path in paths] == [0o700, 0o640, 0o400]
    assert [path.stat().st_mtime for path in paths] == [times[1], times[0], times[0]]


@pytest.mark.parametrize("links", [False, True])
def test_a_chain_of_links_does_not_lead_out(results: Path, links: bool) -> None:
    left_out = extract(pieces(tar(*CHAIN)), results, strip=1, links=links)
    assert not (results / "a_leak.txt").exists()
    assert left_out == (("1 link: a_leak.txt",) if links else ("2 links: r/a_leak.txt, r/zz",))
    assert (results / "zz").is_symlink() is links


def test_a_link_that_leads_out_only_without_another_one(results: Path) -> None:
    # Through `far` the way of `a` ends inside. Without it, `..` leads out.
    members = [("d/e/x.txt", FILE, "x"), ("far", LINK, "d/e"), ("a", LINK, "far/../../../secret")]
    assert extract(pieces(tar(*members)), results, links=True) == ("1 link: a",)


def test_a_link_named_like_a_streamed_log(results: Path) -> None:
    (results / "install.log").write_text("streamed")
    content = tar(("r/install.log", LINK, "x"), ("r/pytest.jsonl", FILE, "{}"))
    assert extract(pieces(content), results, strip=1) == ("1 link: r/install.log",)
    assert files(results) == {"install.log": "streamed", "pytest.jsonl": "{}"}


@pytest.mark.parametrize("before", ["file", "folder", "link", "link to a folder"])
@pytest.mark.parametrize("kind", [FILE, FOLDER])
def test_an_entry_replaces_what_has_its_name(results: Path, before: str, kind: bytes) -> None:
    path, elsewhere = results / "x.log", results.parent / "elsewhere"
    elsewhere.mkdir()
    if before == "folder":
        (path / "inner").mkdir(parents=True)
    elif before == "file":
        path.write_text("before")
    else:
        path.symlink_to(elsewhere if "folder" in before else results.parent / "secret")
    below = "x.log" if kind == FILE else "x.log/a.txt"
    members = [("x.log", kind, "after" if kind == FILE else ""), (below, FILE, "after")]
    assert extract(pieces(tar(*members)), results) == ()
    assert (results / below).read_text() == "after"
    assert not path.is_symlink()
    assert list(elsewhere.iterdir()) == []
    assert (results.parent / "secret").read_text() == "of the host"


def test_of_two_entries_of_one_name_the_last_one_counts(results: Path) -> None:
    entries = {"a.b": "1", "a.b/c.d": "2", "e/g.h": "3", "e": "4"}
    members = [(name, FILE, text) for name, text in entries.items()]
    assert extract(pieces(tar(*members)), results) == ()
    assert (results / "a.b/c.d").read_text() == "2"
    assert (results / "e").read_text() == "4"
    members = [("a", LINK, "../secret"), ("a", FILE, "5"), ("f.g", FILE, "6"), ("f.g", LINK, "a")]
    assert extract(pieces(tar(*members)), results, links=True) == ()
    assert (results / "f.g").read_text() == "5"


@pytest.mark.parametrize("links", [False, True])
@pytest.mark.parametrize(
    ("member", "why"),
    [
        (("../escaped.txt", FILE, "x"), "unsafe name"),
        (("a/../../escaped.txt", FILE, "x"), "unsafe name"),
        (("/escaped.txt", FILE, "x"), "unsafe name"),
        (("//escaped.txt", FILE, "x"), "unsafe name"),
        (("//escaped", LINK, "x"), "unsafe name"),
        (("hard", HARD_LINK, "good.txt"), "link"),
        (("tty", tarfile.CHRTYPE, ""), "special file"),
        (("disk", tarfile.BLKTYPE, ""), "special file"),
        (("fifo", tarfile.FIFOTYPE, ""), "special file"),
        (("host.lock", FILE, '{"path": "/", "agent": null}'), "reserved name"),
        (("host.lock/x", FILE, ""), "reserved name"),
    ],
)
def test_what_never_comes_out(results: Path, member: Member, why: str, links: bool) -> None:
    content = tar(member, ("good.txt", FILE, "x"))
    left_out = extract(pieces(content), results, links=links, reserved={"host.lock"})
    assert left_out == (f"1 {why}: {member[0]}",)
    assert files(results.parent) == {"results/good.txt": "x"}


def test_leading_parts_are_dropped(results: Path) -> None:
    members = [("r", FOLDER, ""), ("r/events.jsonl", FILE, "{}"), ("./r/deep/er/a.log", FILE, "a")]
    assert extract(pieces(tar(*members)), results, strip=1) == ()
    assert files(results) == {"events.jsonl": "{}", "deep/er/a.log": "a"}


def test_odd_names_are_kept_and_shown_without_controls(results: Path) -> None:
    odd = ["-rf", "new\nline", "\x1b[31mred", "caf\udce9", "a\\b", "*", "~", " "]
    assert extract(pieces(tar(*((name, FILE, "x") for name in odd))), results) == ()
    assert sorted(os.fsencode(path.name) for path in results.iterdir()) == sorted(
        map(os.fsencode, odd)
    )
    left_out = extract(pieces(tar(*((name, LINK, "x") for name in odd))), results)
    assert left_out == ("8 links: -rf, new line, red, caf\ufffd, a\\b and 3 more",)


def test_a_name_that_the_disk_does_not_accept(results: Path) -> None:
    content = tar(("n" * 300, FILE, "x"), ("m" * 255, FILE, "x"), ("good.txt", FILE, "x"))
    (why,) = extract(pieces(content), results)
    assert why == f"1 name that this disk does not accept: {'n' * 300}"
    assert len(list(results.iterdir())) == 2


def test_modes_are_plain_and_times_possible(results: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as file:
        for name, mode, time in [("set", 0o7777, 1e9), ("b", 0, 1e300), ("c", 0o600, -1.0)]:
            entry = tarfile.TarInfo(name)
            entry.mode = mode
            entry.pax_headers = {"mtime": str(time)}
            file.addfile(entry)
        entry = tarfile.TarInfo("d")
        entry.pax_headers = {"mtime": "nan"}
        file.addfile(entry)
    assert extract(pieces(buffer.getvalue()), results) == ()
    modes = [stat.S_IMODE((results / name).stat().st_mode) for name in ("set", "b", "c", "d")]
    assert modes == [0o755, 0o644, 0o644, 0o644]
    assert (results / "set").stat().st_mtime == 1e9


def test_holes_stay_holes(results: Path) -> None:
    size = 64 << 20
    content = (
        raw("hole", size=size) + bytes(size) + raw("mixed", size=3 * CHUNK + 1, text=b"a" * CHUNK)
    )
    content += bytes(CHUNK) + b"b" + bytes(CHUNK) + bytes(511) + bytes(1024)
    assert extract(pieces(content), results) == ()
    assert (results / "hole").stat().st_size == size
    assert (results / "hole").stat().st_blocks * 512 <= 4096
    assert (results / "mixed").read_bytes() == b"a" * CHUNK + bytes(CHUNK) + b"b" + bytes(CHUNK)


LIMITS = ResultLimits(total_bytes=3 * CHUNK, entries=8, depth=3, name_bytes=20)


def test_files_beyond_the_limit_of_bytes_are_left_out(results: Path) -> None:
    members = [("a.txt", FILE, "a" * 2 * CHUNK), ("b.txt", FILE, "b" * CHUNK + "b")]
    hole = raw("hole", size=8 * CHUNK, text=bytes(8 * CHUNK))
    content = hole + tar(*members, ("c.txt", FILE, "c"), ("d.txt", FILE, "d" * CHUNK))
    why = f"for which the limit of {3 * CHUNK:,} bytes leaves no room"
    assert extract(pieces(content), results, limits=LIMITS) == (f"2 files {why}: b.txt, d.txt",)
    sizes = {path.name: path.stat().st_size for path in results.iterdir()}
    assert sizes == {"hole": 8 * CHUNK, "a.txt": 2 * CHUNK, "c.txt": 1}


def test_names_and_entries_beyond_a_limit_are_left_out(results: Path) -> None:
    many = [(f"{number}.txt", FILE, "") for number in range(8)]
    content = tar(("a/b/c.txt", FILE, ""), ("a/b/c/d", FILE, ""), ("long" * 6, FILE, ""), *many)
    assert extract(pieces(content), results, limits=LIMITS) == (
        "1 name of more than 3 parts: a/b/c/d",
        f"1 name of more than 20 bytes: {'long' * 6}",
        "1 part of the archive: everything after the first 8 entries",
    )
    assert files(results).keys() == {"a/b/c.txt", *(f"{number}.txt" for number in range(5))}


def test_holes_without_end_are_not_read(results: Path) -> None:
    def endless() -> Iterator[bytes]:
        yield GOOD + raw("hole", size=1 << 60)
        while True:
            yield bytes(CHUNK)

    (line,) = extract(endless(), results, limits=LIMITS)
    what = f"hole of {1 << 60:,} bytes, and everything after it"
    assert line == f"1 part of the archive: {what}"
    assert files(results) == {"good.txt": "x"}


GOOD = tar(("good.txt", FILE, "x"))[:1024]  # without the end


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"no archive" * 100, id="text"),
        pytest.param(GOOD, id="no end"),
        pytest.param(GOOD[:700], id="cut in a header or its padding"),
        pytest.param(GOOD + b"x" * 512, id="garbage"),
        pytest.param(GOOD + raw("big", size=1 << 40, text=b"x"), id="less than it says"),
        pytest.param(GOOD + raw("back", size=-512), id="negative size"),
        pytest.param(GOOD + raw("x", kind=b"L", size=1 << 40), id="name of a terabyte"),
        pytest.param(GOOD + raw("x", kind=b"x", size=1 << 40), id="header of a terabyte"),
        pytest.param(GOOD + raw("x", kind=b"x") * 10_000, id="headers without end"),
        pytest.param(
            GOOD + raw("x", kind=b"x", size=22, text=b"22 GNU.sparse.major=1\n")
            + raw("x", kind=b"x", size=22, text=b"22 GNU.sparse.minor=0\n"),
            id="sparse without a map",
        ),
    ],
)  # fmt: skip
def test_a_damaged_archive_is_named(results: Path, content: bytes) -> None:
    (line,) = extract(pieces(content), results)
    assert line.startswith("1 damaged part of the archive: ")
    assert [path.name for path in results.iterdir()] in ([], ["good.txt"])


def test_errors_of_the_disk_and_the_stream_are_raised(results: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield tar(("a.log", FILE, "x" * 5000))[:2000]
        raise ConnectionResetError("gone")

    (results / "a.log").write_text("streamed")
    with pytest.raises(ConnectionResetError, match="gone"):
        extract(broken(), results)
    assert files(results) == {"a.log": "streamed"}


names = st.text(st.sampled_from("ab./\n\x1b\udce9"), min_size=1, max_size=12)
members = st.tuples(
    names, st.sampled_from([FILE, FOLDER, LINK, HARD_LINK, tarfile.FIFOTYPE]), names
)


@given(st.lists(members, max_size=12), st.booleans(), st.integers(0, 2))
@example(CHAIN, True, 1)
def test_no_archive_leads_out(
    tmp_path_factory: pytest.TempPathFactory, found: list[Member], links: bool, strip: int
) -> None:
    top = tmp_path_factory.mktemp("top")
    folder = top / "a" / "b"
    extract(pieces(tar(*found, form=tarfile.GNU_FORMAT)), folder, links=links, strip=strip)
    assert [path.name for path in top.rglob("*") if not path.is_relative_to(folder)] == ["a"]
    for path in folder.rglob("*"):
        assert Path(os.path.realpath(path)).is_relative_to(folder)
        assert links or not path.is_symlink()


CHANGES = st.lists(st.tuples(st.integers(0, 2047), st.binary(max_size=20)), max_size=8)


def changed(changes: list[tuple[int, bytes]]) -> bytes:
    """An archive with some bytes changed."""
    content = bytearray(tar(("a/b", FILE, "x" * 600), ("c" * 120, FILE, "y")))
    for at, new in changes:
        content[at : at + len(new)] = new
    return bytes(content)


@given(st.binary(max_size=3000), CHANGES)
def test_any_bytes_are_read_to_their_end(
    tmp_path_factory: pytest.TempPathFactory, tail: bytes, changes: list[tuple[int, bytes]]
) -> None:
    """Raises nothing, and ends. Half of the inputs are archives with some bytes changed."""
    for text in (tail, changed(changes) + tail):
        extract(pieces(text), tmp_path_factory.mktemp("any"))


@given(CHANGES)
@example([(124, (-512).to_bytes(12, "big", signed=True))])  # tarfile reads it over and over
def test_any_artifact_is_read_to_its_end(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, bytes]]
) -> None:
    path = tmp_path_factory.mktemp("any") / "generated.tar.gz"
    path.write_bytes(gzip.compress(changed(changes)))
    list(read_archive(path) or ())


def test_pack_is_deterministic_and_extracts_again(results: Path) -> None:
    contents = {"b/c.d": b"2", "a.b": b"1"}
    packed = pack(contents, folders={"folder": 1000}).read()
    again = pack(dict(reversed(contents.items())), folders={"folder": 1000}).read()
    assert packed == again
    assert extract(pieces(packed), results) == ()
    assert files(results) == {"b/c.d": "2", "a.b": "1"}
    assert (results / "folder").is_dir()


def test_headers_fit_into_memory() -> None:
    assert LARGEST_HEADERS >= CHUNK  # the content is read in pieces of this size
