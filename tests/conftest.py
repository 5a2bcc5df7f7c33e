"""The fixtures of all tests."""

from __future__ import annotations

import gc
import importlib.util
import itertools
import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from daemons import Daemon, Proxy, Raw, running
from gates import Gate
from hypothesis import HealthCheck, settings
from persons import Person, Sits, Tmux
from system import PATIENCE

from shellsession import Agents, DaemonUnavailable, NoSuchAgent, RemoteSession, Session, connect
from shellsession.daemon.client.admin import Visit

# The SDKs' own tests are for `make test-integrations`, which installs the SDKs.
collect_ignore = [] if importlib.util.find_spec("mcp") else ["integrations"]

# The suite runs the same generated cases each time; HYPOTHESIS_PROFILE=explore looks for new ones.
_BASE = settings(deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
settings.register_profile("steady", _BASE, derandomize=True, max_examples=50)
settings.register_profile("explore", _BASE, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

# What a runner of several processes (and readline in it) exports is no part of the environment that is under test.
for _name in [name for name in os.environ if name.startswith("PYTEST_XDIST_")] + ["COLUMNS", "LINES"]:
    os.environ.pop(_name, None)


def import_from(first: float) -> None:
    """Import all test files, beginning with the one that has that part of them before it.

    In a clean clone pytest has to compile them. Workers that go through them in step all compile each: 5 s for each
    worker. From different ones on, each compiles its share, and finds those of the others made.
    """
    names = sorted(path.stem for path in Path(__file__).parent.rglob("test_*.py"))
    begin = int(len(names) * first)
    for name in names[begin:] + names[:begin]:
        with suppress(Exception, pytest.skip.Exception):  # whoever collects it comes across it again, and tells
            importlib.import_module(name)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """What thousands of tests are made of stays to the end: to look through it for garbage, again and again, took an
    eighth of all that the tests themselves take."""
    gc.disable()
    try:
        worker = getattr(session.config, "workerinput", None)
        if worker and session.config.args == session.config.getini("testpaths"):
            import_from(int(worker["workerid"].removeprefix("gw")) / worker["workercount"])
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(scope="module")
def company() -> Iterator[None]:
    """A session beside those of the tests: what a host has once is then not started anew for each of a thousand."""
    with Session() as sh:
        sh.run("true")
        yield


def emptied(directory: Path) -> Path:
    """The directory, empty; the same one, as a shell may be in it."""
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o700)
    for entry in directory.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink()
    return directory


_numbers = itertools.count()


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty directory for a command to work in; always at the same path within one test.

    Not in ``tmp_path``: for a name pytest looks through all that it has made, which takes as long as many a test.
    """
    return emptied(tmp_path_factory.getbasetemp() / f"place{next(_numbers)}" / "ours" / "place")


def beside(place: Path) -> Path:
    """Another empty directory, of the same name, and with as long a path."""
    return emptied(place.parent.with_name("bash") / place.name)


def chosen(request: pytest.FixtureRequest, *names: str) -> list[tuple[Any, ...]]:
    """What the tests of this module that were chosen to run get for these parameters, in their order."""
    tests = [item for item in request.session.items if isinstance(item, pytest.Function)]
    specs = [test.callspec.params for test in tests if test.module is request.module and hasattr(test, "callspec")]
    return [tuple(spec[name] for name in names) for spec in specs if spec.keys() >= set(names)]


@pytest.fixture
def new_session(place: Path) -> Iterator[Callable[..., Session]]:
    """Makes sessions in ``place`` that are closed after the test."""
    with ExitStack() as opened:

        def make(**options: Any) -> Session:
            options.setdefault("cwd", place)
            options.setdefault("timeout", 20.0)
            return opened.enter_context(Session(**options))

        yield make


@pytest.fixture
def new_agents(place: Path) -> Iterator[Callable[..., Agents]]:
    """Makes ``Agents``, which are closed with the test."""
    made: list[Agents] = []

    def new(*arguments: Any, **options: Any) -> Agents:
        made.append(Agents(*arguments, **{"cwd": place, **options}))
        return made[-1]

    yield new
    for agents in made:
        agents.close()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon process for the tests of a module; what they leave running in it is not waited for at its end."""
    with running(tmp_path_factory.mktemp("daemon"), "--patience", "0") as daemon:
        yield daemon


@pytest.fixture
def raw(daemon: Daemon) -> Iterator[Raw]:
    with Raw(daemon.socket) as raw:
        yield raw


@pytest.fixture
def remote(daemon: Daemon, request: pytest.FixtureRequest, place: Path) -> Iterator[RemoteSession]:
    """A session of this test's own agent in ``place``, with a secret in its environment."""
    env = {"PATH": os.environ["PATH"], "API_TOKEN": "opensesame"}
    with connect(request.node.name, daemon.socket, False, cwd=place, env=env, timeout=None) as session:
        yield session
        session.close()


@pytest.fixture
def agent(request: pytest.FixtureRequest, daemon: Daemon) -> Iterator[str]:
    """The name of an agent of this test alone; what it has in the daemon is closed after the test."""
    name = "a" + str(abs(hash(request.node.nodeid)))[:8]
    yield name
    with suppress(NoSuchAgent, DaemonUnavailable):
        Visit(name, daemon.socket).close()


@pytest.fixture
def agents() -> Iterator[Agents]:
    with Agents() as agents:
        yield agents


@pytest.fixture
def sh(new_session: Callable[..., Session]) -> Session:
    """One session in ``place``."""
    return new_session()


# -- calls that are cancelled


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


@pytest.fixture
def started(tmp_path: Path) -> Path:
    """A FIFO in which a command says that it has begun."""
    os.mkfifo(path := tmp_path / "started")
    return path


# -- connections that are lost


@pytest.fixture
def gate(place: Path) -> Gate:
    return Gate(place)


@pytest.fixture
def proxy(daemon: Daemon, tmp_path: Path) -> Iterator[Proxy]:
    with Proxy(str(tmp_path / "proxy"), daemon.socket) as proxy:
        yield proxy


# -- a person at a terminal (attach)


@pytest.fixture
def sits(daemon: Daemon, agent: str, tmp_path: Path) -> Iterator[Sits]:
    """Makes a person sit down at the agent's session."""
    with ExitStack() as seats:

        def sit(*options: str, socket: str = daemon.socket, **env: str) -> Person:
            person = Person(socket, agent, tmp_path, *options, **env)
            seats.callback(person.screen.close, force=True)
            return person

        yield sit


@pytest.fixture
def client(daemon: Daemon, agent: str, tmp_path: Path) -> Iterator[RemoteSession]:
    """One of the agent's own clients."""
    with connect(agent, daemon.socket, cwd=tmp_path, timeout=PATIENCE) as client:
        yield client.open()


@pytest.fixture
def elsewhere() -> Iterator[Callable[..., Future[Any]]]:
    """Calls a function in a thread."""
    with ThreadPoolExecutor() as pool:
        yield pool.submit


@pytest.fixture
def tmux(tmp_path: Path, daemon: Daemon, agent: str) -> Iterator[Tmux]:
    """A terminal in which a person has attached."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed (all but whole screens is tested without it, too)")
    terminal = Tmux("t", tmp_path)
    try:
        attach = f"{sys.executable} -m shellsession attach {agent} --socket {daemon.socket}"
        terminal.types(f"alias attach='{attach}'; clear", "Enter")
        terminal.types("attach", "Enter")
        terminal.shows(f"{agent}:")
        yield terminal
    finally:
        terminal("kill-server")
