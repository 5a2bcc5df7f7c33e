"""If an SDK is missing or too old, one line says what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from commands import cli


@pytest.mark.parametrize(
    ("extra", "package", "program"),
    [
        ("anthropic", "anthropic", "from shellsession.integrations import anthropic; anthropic.runnable(None)"),
        ("anthropic", "anthropic", "from shellsession.integrations import anthropic; anthropic.async_runnable(None)"),
        ("inspect", "inspect_ai", "import shellsession.integrations.inspect_ai"),
        ("langchain", "langchain_core", "import shellsession.integrations.langchain"),
        ("mcp", "mcp", "import shellsession.integrations.mcp"),
        ("openai", "agents", "import shellsession.integrations.openai"),
        ("otel", "opentelemetry", "import shellsession.integrations.otel"),
        ("pydantic-ai", "pydantic_ai", "import shellsession.integrations.pydantic_ai"),
        ("ray", "ray", "from shellsession.cluster import RayAgents"),
        ("strands", "strands", "import shellsession.integrations.strands"),
        ("swe-rex", "swerex", "import shellsession.integrations.swe_rex"),
    ],
)
def test_a_missing_sdk_is_reported_in_a_line(extra: str, package: str, program: str) -> None:
    words = [sys.executable, "-c", f"import sys; sys.modules[{package!r}] = None; {program}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("shellsession.errors.MissingExtra: ")
    assert last.endswith(f"`pip install 'shellsession[{extra}]'`")


def test_the_server_tells_of_an_older_sdk(tmp_path: Path) -> None:
    """Version 1 of mcp is a package of the same name, without the server that we need."""
    (tmp_path / "mcp").mkdir()
    (tmp_path / "mcp" / "__init__.py").touch()
    (tmp_path / "mcp" / "server.py").write_text("class FastMCP: ...\n")
    done = cli("", "mcp", env={"PYTHONPATH": str(tmp_path)})
    said = done.stderr.decode()
    assert (done.returncode, said.count("\n")) == (125, 1)
    assert said.endswith("install shellsession again, with the extra: `pip install 'shellsession[mcp]'`\n")


def test_the_runner_tells_of_an_older_sdk(tmp_path: Path) -> None:
    """Before 0.84 there was no ToolError: the tool was made, and its first failure was an ImportError."""
    tools = tmp_path / "anthropic" / "lib" / "tools"
    tools.mkdir(parents=True)
    for package in (tmp_path / "anthropic", tools.parent, tools):
        (package / "__init__.py").touch()
    (tools / "__init__.py").write_text("class BetaBuiltinFunctionTool: ...\n")
    program = f"""import sys; sys.path.insert(0, {str(tmp_path)!r})
from shellsession import MissingExtra
from shellsession.integrations import anthropic
try:
    anthropic.runnable(None)
except MissingExtra as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout.endswith("`pip install 'shellsession[anthropic]'`\n")
