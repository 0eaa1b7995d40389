"""The first container of a pod: it copies folders of the image and unpacks archives."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ci.agent.unpack import copy_folder, unpack
from ci.engines.archives import pack

OLD = 946_684_800  # a time that no new file has


def test_a_folder_keeps_its_links_modes_and_times(tmp_path: Path) -> None:
    folder, copy = tmp_path / "venv", tmp_path / "volume" / "venv"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text("program")
    (folder / "bin" / "python").chmod(0o755)
    (folder / "bin" / "python3").symlink_to("python")
    (folder / "lib").mkdir()
    (folder / "lib64").symlink_to("lib")
    (folder / "gone").symlink_to("/nowhere")
    os.mkfifo(folder / "pipe")  # reading it would never end
    os.utime(folder / "bin" / "python", (OLD, OLD))
    (folder / "lib" / "a").touch()
    (folder / "lib").chmod(0o555)
    folder.chmod(stat.S_ISVTX | 0o777)
    copy_folder(folder, copy)
    program = (copy / "bin" / "python").stat()
    assert (stat.S_IMODE(program.st_mode), program.st_mtime) == (0o755, OLD)
    links = {name: (copy / name).readlink() for name in ("bin/python3", "lib64", "gone")}
    assert links == {
        "bin/python3": Path("python"),
        "lib64": Path("lib"),
        "gone": Path("/nowhere"),
    }
    assert [it.name for it in (copy / "lib").iterdir()] == ["a"]
    assert stat.S_IMODE((copy / "lib").stat().st_mode) == 0o555
    assert stat.S_IMODE(copy.stat().st_mode) == stat.S_ISVTX | 0o777
    assert not (copy / "pipe").exists()


def test_a_folder_that_the_image_lacks_is_made(tmp_path: Path) -> None:
    copy_folder(tmp_path / "missing", tmp_path / "volume" / "missing")
    assert (tmp_path / "volume" / "missing").is_dir()


def test_archives_come_on_top_of_folders(tmp_path: Path) -> None:
    folder = tmp_path / "image"
    folder.mkdir()
    (folder / "kept").write_text("of the image")
    (folder / "both").write_text("of the image")
    below = str(folder).lstrip("/")
    for name in ("sources", "job"):
        content = {f"{below}/both": name.encode(), f"{below}/{name}": b""}
        (tmp_path / f"{name}.tar").write_bytes(pack(content).read())
    archives = f"{tmp_path / 'sources.tar'},{tmp_path / 'job.tar'}"
    unpack([str(tmp_path / "volume"), archives, str(folder)])
    copy = tmp_path / "volume" / below
    assert sorted(it.name for it in copy.iterdir()) == ["both", "job", "kept", "sources"]
    assert (copy / "both").read_text() == "job"
