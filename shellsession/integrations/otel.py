"""OpenTelemetry: one span for each command that has ended (extra ``otel``).

::

    from shellsession import Session
    from shellsession.integrations import otel

    with Session() as sh:
        otel.instrument(sh)
        sh.run("make test")

A span is named "shellsession.command", and is a child of the span in which the caller got the result. Its attributes
begin with "shellsession.": agent, command (secrets masked), outcome, exit_code, signal, stdout_bytes, stderr_bytes.
It has the command's begin and end, and its status is an error if the exit status is not 0. It never has output.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from ..errors import InvalidRequest
from ..extras import missing
from ..models import VERSION, Result
from ..observe import sizes

try:
    from opentelemetry import trace
    from opentelemetry.trace import Status, StatusCode
except ImportError as error:
    raise missing("otel", error) from error


def instrument(target: Any, tracer_provider: trace.TracerProvider | None = None) -> None:
    """Make a span for each command of a session of any kind, or of all sessions of ``Agents``.

    ``tracer_provider``: the default is the global one. Raises InvalidRequest.
    """
    if not hasattr(target, "observe"):
        raise InvalidRequest(f"instrument a session of any kind, Agents or AsyncAgents, not {target!r:.100}")
    tracer = trace.get_tracer("shellsession", VERSION, tracer_provider)
    target.observe(partial(_record, tracer))


def _record(tracer: trace.Tracer, agent: str, command: str, result: Result) -> None:
    end = time.time_ns()
    attributes: dict[str, Any] = {"agent": agent, "command": command, "outcome": result.outcome, **sizes(result)}
    attributes |= {"exit_code": result.exit_code, "signal": result.signal}
    span = tracer.start_span(
        "shellsession.command",
        kind=trace.SpanKind.INTERNAL,
        attributes={f"shellsession.{name}": value for name, value in attributes.items() if value is not None},
        start_time=end - int(result.duration * 1e9),
    )
    if result.exit_code != 0 or result.outcome != "exited":
        span.set_status(Status(StatusCode.ERROR, result.reason or f"exit status {result.exit_code}"))
    span.end(end)
