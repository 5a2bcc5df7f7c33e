"""The fixtures of all tests."""

from __future__ import annotations

import atexit
import gc
import importlib.util
import itertools
import os
import shlex
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from bashes import BASH, OTHERS, version_of
from daemons import Daemon, Proxy, Raw, running
from gates import Gate
from hypothesis import HealthCheck, settings
from overlays import overlay as overlay, overlay_place as overlay_place
from persons import Person, Sits, Tmux
from samples import left_out
from system import PATIENCE, PYTHON

from shellsession import Agents, DaemonUnavailable, NoSuchAgent, RemoteSession, Session, connect
from shellsession.daemon.client.admin import Visit

# The SDKs' own tests are for `make test-integrations`, which installs the SDKs, and those of a cluster for
# `make test-cluster`. Those of the package need what `make package` has built, and run without these fixtures.
_NEEDS = {"integrations": "mcp", "cluster": "ray"}
collect_ignore = ["package", *(name for name, module in _NEEDS.items() if not importlib.util.find_spec(module))]
if "cluster" not in collect_ignore:
    from clusters import cluster as cluster  # for all modules there: it takes seconds to make

# The suite runs the same generated cases each time; HYPOTHESIS_PROFILE=explore looks for new ones. That a machine is
# slow is no fault of theirs.
_PASSED_OVER = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
_BASE = settings(deadline=None, database=None, suppress_health_check=_PASSED_OVER)
settings.register_profile("steady", _BASE, derandomize=True, max_examples=50)
settings.register_profile("explore", _BASE, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

# Remove what pytest-xdist and readline export: it is not part of the environment under test.
for _name in [name for name in os.environ if name.startswith("PYTEST_XDIST_")] + ["COLUMNS", "LINES"]:
    os.environ.pop(_name, None)

# What the daemons of the tests record outlives them, and is not for the user's own state directory.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="shellsession-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)

# `nohup make test &` ignores these, and so would every child. We ignore SIGQUIT and SIGHUP still, but by a handler.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        _is_ctrl_c = _number == signal.SIGINT
        signal.signal(_number, signal.default_int_handler if _is_ctrl_c else lambda *_: None)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say in one line what was skipped: `pytest -q` gives only the number."""
    reports = [report for report in terminalreporter.stats.get("skipped", []) if isinstance(report.longrepr, tuple)]
    counts = Counter(report.longrepr[2].removeprefix("Skipped: ") for report in reports)
    if counts:
        terminalreporter.write_line("skipped: " + "; ".join(f"{n} x {why}" for why, n in counts.most_common(5)))


def import_from(first: float) -> None:
    """Import all test files in a circle. ``first``, from 0 to 1, says where to begin.

    In a clean clone pytest must compile them. Workers in the same order would all compile every file: 5 s for each
    worker. With different starts each worker compiles its part, and finds the others' files compiled.
    """
    names = sorted(path.stem for path in Path(__file__).parent.rglob("test_*.py"))
    begin = int(len(names) * first)
    for name in names[begin:] + names[:begin]:
        with suppress(Exception, pytest.skip.Exception):  # collection meets the error again, and reports it
            importlib.import_module(name)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Exempt the collected tests from garbage collection: to search them again and again took an eighth of the tests'
    own time, and they live to the end anyway."""
    gc.disable()
    try:
        worker = getattr(session.config, "workerinput", None)
        if worker and session.config.args == session.config.getini("testpaths"):
            import_from(int(worker["workerid"].removeprefix("gw")) / worker["workercount"])
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not in a sample, except where one names a case. The contracts, which wait long, come first."""
    items.sort(key=lambda item: item.path.parent != Path(__file__).parent)
    if not any("[" in argument for argument in config.args):
        out = set(left_out(items))
        config.hook.pytest_deselected(items=list(out))
        items[:] = [item for item in items if item not in out]


@pytest.fixture(scope="module")
def company() -> Iterator[None]:
    """A session for the whole module: so what a host starts once is not started again for each test."""
    with Session() as sh:
        sh.run("true")
        yield


@pytest.fixture(scope="module", params=[BASH, *OTHERS], ids=[Path(bash).name for bash in (BASH, *OTHERS)])
def each_bash(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """Each bash in turn as the one that sessions find, and its version."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param != BASH:  # that one is found as it is, also in a sandbox, which hides our directory
            (directory := tmp_path_factory.mktemp("bin")).joinpath("bash").symlink_to(request.param)
            patch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
        yield version_of(request.param)


def emptied(directory: Path) -> Path:
    """Empty the directory, but keep it, as a shell may be in it."""
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
    """An empty directory for a command to work in. Its path is the same within one test.

    It is not in ``tmp_path``: to find a name for that, pytest lists all that it has made, which is slow.
    """
    return emptied(tmp_path_factory.getbasetemp() / f"place{next(_numbers)}" / "ours" / "place")


def beside(place: Path) -> Path:
    """Another empty directory, with the same name and a path of the same length."""
    return emptied(place.parent.with_name("bash") / place.name)


def chosen(request: pytest.FixtureRequest, *names: str) -> list[tuple[Any, ...]]:
    """The values of these parameters for the selected tests of this module, in their order."""
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
    """Makes ``Agents`` that are closed after the test."""
    made: list[Agents] = []

    def new(*arguments: Any, **options: Any) -> Agents:
        made.append(Agents(*arguments, **{"cwd": place, **options}))
        return made[-1]

    yield new
    for agents in made:
        agents.close()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon process for the tests of a module. At its end it does not wait for running commands."""
    with running(tmp_path_factory.mktemp("daemon"), "--patience", "0") as daemon:
        yield daemon


@pytest.fixture
def raw(daemon: Daemon) -> Iterator[Raw]:
    with Raw(daemon.socket) as raw:
        yield raw


@pytest.fixture
def remote(daemon: Daemon, request: pytest.FixtureRequest, place: Path) -> Iterator[RemoteSession]:
    """A session of an agent that only this test uses, in ``place``, with a secret in its environment."""
    env = {"PATH": os.environ["PATH"], "API_TOKEN": "opensesame"}
    with connect(request.node.name, daemon.socket, False, cwd=place, env=env, timeout=None) as session:
        yield session
        session.close()


@pytest.fixture
def agent(request: pytest.FixtureRequest, daemon: Daemon) -> Iterator[str]:
    """The name of an agent that only this test uses. Its session is closed after the test."""
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
    """A FIFO through which a command reports that it has begun."""
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
    """Attaches a person to the agent's session."""
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
    """A terminal with an attached person."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed (apt install tmux)")
    terminal = Tmux("t", tmp_path)
    try:
        attach = f"{PYTHON} -m shellsession attach {agent} --socket {daemon.socket}"
        terminal.types(f"alias attach={shlex.quote(attach)}; clear", "Enter")
        terminal.types("attach", "Enter")
        terminal.shows(f"{agent}:")
        yield terminal
    finally:
        terminal("kill-server")
