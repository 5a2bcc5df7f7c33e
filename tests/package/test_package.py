"""What ``make package`` has built, used as its users will: installed in a bare environment."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Final

import pytest
from documents import TOP, blocks

pytestmark = pytest.mark.timeout(120)  # an index may be slow

# Setuptools writes these.
_METADATA: Final = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt"}


def _built(pattern: str) -> Path:
    (path,) = (TOP / "dist").glob(pattern)
    return path


def _wheel() -> dict[str, bytes]:
    with zipfile.ZipFile(_built("*.whl")) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _metadata() -> Message[str, str]:
    (text,) = (content for name, content in _wheel().items() if name.endswith(".dist-info/METADATA"))
    return message_from_bytes(text)


def test_the_wheel_holds_the_package_the_man_page_and_nothing_else() -> None:
    """``make package`` builds the wheel from the source distribution, so this holds for both."""
    name = f"shellsession-{_metadata()['Version']}"
    files = [path for path in (TOP / "shellsession").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    # The tables of requirements are for contributors.
    expected = {str(path.relative_to(TOP)): path for path in files if path.parent.name != "parity"}
    expected[f"{name}.data/data/share/man/man1/shellsession.1"] = TOP / "docs" / "shellsession.1"
    expected[f"{name}.dist-info/licenses/LICENSE"] = TOP / "LICENSE"
    wheel = _wheel()
    assert set(wheel) == {*expected, *(f"{name}.dist-info/{one}" for one in _METADATA)}
    assert [one for one, path in expected.items() if wheel[one] != path.read_bytes()] == []


def test_the_source_distribution_holds_no_half_of_the_tests() -> None:
    with tarfile.open(_built("*.tar.gz")) as archive:
        tops = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    pages = {"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md"}
    built = {"MANIFEST.in", "PKG-INFO", "pyproject.toml", "setup.cfg", "shellsession.egg-info"}
    assert tops == {*pages, *built, "docs", "shellsession"}


def test_the_metadata_is_complete_and_names_no_address() -> None:
    """There is no public address of the project yet."""
    metadata = _metadata()
    wanted = ["Summary", "Author", "License-Expression", "License-File", "Keywords", "Classifier", "Requires-Python"]
    assert [field for field in wanted if not metadata.get(field)] == []
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert [field for field in ("Home-page", "Download-URL", "Project-URL") if metadata.get(field)] == []


# -- installed


def _environment(directory: Path, extra: str = "") -> Path:
    """Make an environment with the wheel, and return its bin directory. Pip is not in it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    options = ["--quiet", "--disable-pip-version-check", "--python", str(directory / "bin" / "python")]
    words = [sys.executable, "-m", "pip", *options, "install", f"{_built('*.whl')}{extra}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return directory / "bin"


def _run(*words: str | Path, cwd: Path) -> str:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The bin directory of an environment that has the wheel, what it depends on, and no pip."""
    top = tmp_path_factory.mktemp("bare")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHELLSESSION_SOCKET", str(top / "socket"))
        patch.setenv("XDG_STATE_HOME", str(top))
        programs = _environment(top / "venv")
        yield programs
        subprocess.run([programs / "shellsession", "stop"], cwd=top, capture_output=True, check=True)


def test_the_first_program_of_the_readme_runs(bare: Path, tmp_path: Path) -> None:
    program = blocks("README.md", "python")[0].text
    assert _run(bare / "python", "-W", "error", "-c", program, cwd=tmp_path)


def test_the_command_line_runs(bare: Path, tmp_path: Path) -> None:
    shellsession = bare / "shellsession"
    assert "[ ok ] session" in _run(shellsession, "doctor", cwd=tmp_path)
    assert _run(shellsession, "run", "--", "true", cwd=tmp_path) == ""
    assert "_shellsession" in _run(shellsession, "completion", "bash", cwd=tmp_path)
    assert (bare.parent / "share" / "man" / "man1" / "shellsession.1").exists()


@pytest.mark.skipif(None in map(shutil.which, ("systemd-analyze", "man")), reason="systemd or man is not installed")
def test_systemd_accepts_the_unit_with_all_its_options(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("MANPATH", f"{bare.parent / 'share' / 'man'}:")
    text = (TOP / "examples" / "systemd" / "shellsession.service").read_text(encoding="utf-8")
    unit = tmp_path / "shellsession.service"
    text = re.sub(r"^#(?=\w+=)", "", text.replace("%h/.local/bin", str(bare)), flags=re.MULTILINE)
    unit.write_text(text, encoding="utf-8")
    assert _run("systemd-analyze", "verify", "--user", unit, cwd=tmp_path) == ""


_CLIENT: Final = """
import asyncio, os, sys
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main():
    async with Client(stdio_client(StdioServerParameters(command=sys.argv[1], args=["mcp"]))) as client:
        print(*(tool.name for tool in (await client.list_tools()).tools))
        result = await client.call_tool("bash", {"command": "echo $((6 * 7))"})
        print(*(part.text for part in result.content))

asyncio.run(main())
"""


def test_the_extra_mcp_serves(tmp_path: Path) -> None:
    programs = _environment(tmp_path / "venv", "[mcp]")
    tools, answer = _run(programs / "python", "-c", _CLIENT, programs / "shellsession", cwd=tmp_path).splitlines()
    assert {"bash", "send", "wait", "interrupt", "restart", "jobs"} <= set(tools.split())
    assert answer == "42"


def test_an_extra_that_is_missing_is_named(bare: Path, tmp_path: Path) -> None:
    done = subprocess.run([bare / "shellsession", "mcp"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (125, 1)
    assert "pip install 'shellsession[mcp]'" in done.stderr
