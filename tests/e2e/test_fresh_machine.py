"""README's commands in a minimal Debian, where it has what README names and where it has not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.e2e.fresh import USER, Finished, FreshMachine, quick_start

pytestmark = pytest.mark.docker

MISSING_PREREQUISITE = 3
ARCHIVE = f"/home/{USER}/infini ops 1.0"  # unpacked, as a browser leaves it
CLONE = "/srv/infini-ops"
# To become root and install packages: a whole line, for root or for a user without `sudo`.
LINE = re.compile(r"(su -c 'apt-get .*'|apt-get .* install .*)$", re.MULTILINE)


@pytest.fixture
def machine(fresh_image: str) -> Iterator[FreshMachine]:
    machine = FreshMachine(fresh_image)
    yield machine
    machine.close()


@pytest.fixture
def machine_with_engine(fresh_image: str) -> Iterator[FreshMachine]:
    machine = FreshMachine(fresh_image, with_engine=True)
    yield machine
    machine.close()


def assert_table(
    machine: FreshMachine, command: str, *, user: str, folder: str, engine: str
) -> None:
    """A first run prints a green row, and keeps it."""
    made = machine.type(command, user=user, folder=folder)
    assert made.exit_code == 0, made.output
    row = r"^ *CPU( \(selected \w+\))? +Yes +\d+ passed"
    assert re.search(row, made.output, re.MULTILINE), made.output
    document = json.loads(machine.root(f"cat '{folder}/results/latest/results.json'"))
    [row] = document["platforms"]
    verdict = row["verdict"]
    assert (document["engine"], verdict["product"], verdict["harness"]) == (
        engine,
        "passed",
        "clean",
    )
    assert row["pytest"]["passed"] > 0


def line_to_paste(refused: Finished) -> str:
    assert refused.exit_code == MISSING_PREREQUISITE, refused.output
    [line] = LINE.findall(refused.output)
    return str(line)


def packages_of(line: str) -> set[str]:
    words = line.strip("'").partition(" install ")[2].split()
    return {word for word in words if not word.startswith("-")}


def test_a_bare_machine_names_what_it_lacks_and_is_left_as_it_is(machine: FreshMachine) -> None:
    readme = quick_start()
    machine.put_tree(ARCHIVE)
    listing = f"find '{ARCHIVE}' /root /home /tmp -not -path '*/__pycache__*'"
    before = machine.root(listing)
    line = line_to_paste(machine.type(readme.commands[0], user=USER, folder=ARCHIVE))
    assert machine.root(listing) == before  # nothing was downloaded or made
    assert packages_of(line) == set(readme.packages) - {"git"}  # an archive needs none


@pytest.mark.complete
def test_on_a_bare_machine_the_pasted_line_is_enough(machine: FreshMachine) -> None:
    command = quick_start().commands[0]
    machine.put_tree(ARCHIVE)
    machine.root(line_to_paste(machine.type(command, user=USER, folder=ARCHIVE)))
    assert_table(machine, command, user=USER, folder=ARCHIVE, engine="host")


@pytest.mark.machines
@pytest.mark.parametrize("user", ["root", USER])
def test_a_clone_on_a_machine_with_what_readme_names(machine: FreshMachine, user: str) -> None:
    readme = quick_start()
    machine.root(f"apt-get update && apt install {' '.join(readme.packages)}")
    make_clone(machine, user)
    assert_table(machine, readme.commands[0], user=user, folder=CLONE, engine="host")


@pytest.mark.machines
@pytest.mark.parametrize("user", ["root", USER])
def test_a_clone_on_a_machine_with_an_engine(machine_with_engine: FreshMachine, user: str) -> None:
    machine, readme = machine_with_engine, quick_start()
    machine.put_tree(CLONE)
    line = line_to_paste(machine.type(readme.commands[0], user="root", folder=CLONE))
    # The container has the compiler.
    assert packages_of(line) <= set(readme.packages) - {"g++", "python3-dev"}
    machine.root(line)
    assert_table(machine, readme.commands[0], user=user, folder=CLONE, engine="docker")


def make_clone(machine: FreshMachine, user: str) -> None:
    """Make the checkout a repository with a commit, which belongs to ``user``."""
    machine.put_tree(CLONE)
    machine.root(f"chown --recursive {user}: {CLONE}")
    author = "-c user.name=newcomer -c user.email=newcomer@example.org"
    commands = f"git init --quiet && git add . && git {author} commit --quiet --message=all"
    assert machine.type(commands, user=user, folder=CLONE).exit_code == 0


@pytest.mark.machines
def test_the_tests_themselves_need_no_more_than_readme_names(machine: FreshMachine) -> None:
    # As an ordinary user without an engine: `.ci/run` is root with one, and installs more.
    readme = quick_start()
    assert "python3 noxfile.py -s tests" in readme.commands
    machine.root(f"apt-get update && apt install {' '.join(readme.packages)}")
    make_clone(machine, USER)
    tested = machine.type("python3 noxfile.py -s tests", user=USER, folder=CLONE)
    assert tested.exit_code == 0, tested.output
