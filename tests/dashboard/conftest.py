"""The example store, its dashboard, and a browser. Tests of pages need Debian's chromium."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from ci.util.process import STORE_VARIABLE
from tests.ci.stored_history import BEGIN, ENVIRONMENT, Project, noisy, result
from tests.ci.written_site import write
from tests.dashboard.browsing import CHROMIUM, NO_CHROMIUM, Example, Window, launch, write_example


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Example]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(STORE_VARIABLE, raising=False)  # the caller's database
        yield write_example(tmp_path_factory.mktemp("dashboard"))


@pytest.fixture(scope="session")
def plain_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of a project without git and operators, whose runs are all of one day.

    Its 10,000 tests are all executed. With a cold cache, which fewer runs have, it became slower.
    """
    project = Project(folder=tmp_path_factory.mktemp("plain"))
    project.configure()
    cold = [*noisy(300, 11), *noisy(400, 11, seed=2)]
    for place, (warm, slow) in enumerate(zip(noisy(100, 22, seed=3), cold, strict=True)):
        for kind, seconds in (("warm", warm), ("cold", slow), ("warm", warm + 1)):
            cache = {"tool": "ccache", "state": kind, "hit_rate": 0.9}
            ran = result(seconds, environment={**ENVIRONMENT, "compiler_cache": cache})
            assert ran.pytest is not None
            pytest_result = ran.pytest.model_copy(update={"passed": 10_000 + place, "skipped": 0})
            started = BEGIN + timedelta(minutes=5 * len(project.runs))
            project.run(
                None,
                ran.model_copy(update={"pytest": pytest_result}),
                started_at=started,
                finished_at=started,
            )
    code, site = write(project)
    assert code == 0
    return site


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip(NO_CHROMIUM)
    with sync_playwright() as playwright:
        chromium = launch(playwright.chromium)
        yield chromium
        chromium.close()


@pytest.fixture
def window(browser: Browser, example: Example) -> Iterator[Window]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    found = Window(context.new_page(), example.site)
    yield found
    context.close()
    assert found.errors == []
    assert found.strange_requests == []
