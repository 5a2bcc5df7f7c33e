"""OpenTelemetry: the real SDK, with an exporter in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from shellsession import Agents, InvalidRequest, Limits, Session
from shellsession.integrations import otel


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> Iterator[TracerProvider]:
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(exporter))
    yield made
    made.shutdown()


def test_each_command_of_all_agents_is_a_span(provider: TracerProvider, exporter: InMemorySpanExporter) -> None:
    with Agents(extra_env={"API_TOKEN": "verysecret"}) as agents:
        agents.session("a1")
        otel.instrument(agents, provider)
        with provider.get_tracer("test").start_as_current_span("a turn of the model"):
            agents.run("a1", "sleep 0.05; echo verysecret")
        agents.run("a2", "echo err >&2; (exit 3)")
    first, turn, second = exporter.get_finished_spans()
    assert first.name == second.name == "shellsession.command"
    assert first.parent is not None
    assert first.parent.span_id == turn.context.span_id
    assert dict(first.attributes) == {
        "shellsession.agent": "a1",
        "shellsession.command": "sleep 0.05; echo ***",
        "shellsession.outcome": "exited",
        "shellsession.exit_code": 0,
        "shellsession.stdout_bytes": 11,
        "shellsession.stderr_bytes": 0,
    }
    assert first.end_time - first.start_time >= 50_000_000
    assert (first.status.status_code, second.status.status_code) == (StatusCode.UNSET, StatusCode.ERROR)
    assert (second.status.description, second.attributes["shellsession.agent"]) == ("exit status 3", "a2")
    assert "verysecret" not in first.to_json()


def test_a_span_has_the_signal_and_counts_omitted_output(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    with Session(limits=Limits(10)) as session:
        otel.instrument(session, provider)
        session.run("seq 100; seq 100 >&2; kill -9 $$")
    (span,) = exporter.get_finished_spans()
    found = [span.attributes[f"shellsession.{name}"] for name in ("signal", "stdout_bytes", "stderr_bytes")]
    assert found == [9, 292, 292]


def test_what_is_no_session_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="instrument a session of any kind"):
        otel.instrument("a1")
