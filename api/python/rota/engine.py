"""How models are served."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from .spec import Size, seconds, size, with_body


def declaration(
    model: str,
    argv: Sequence[str],
    driver: str,
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    probe: str | None = "/health",
    sleep_level: int | None = None,
    sleep: Mapping[str, Any] | None = None,
    wake: Mapping[str, Any] | None = None,
    start_timeout_s: float | None = None,
    call_timeout_s: float | None = None,
    asleep_memory: Size | None = None,
) -> dict:
    """The declaration of an engine; see ``Client.register_engine``."""
    if isinstance(argv, str):
        raise TypeError('argv is a list of words: for a shell write ["sh", "-c", COMMAND]')
    given = {
        "model": model,
        "driver": "ENGINE_DRIVER_" + driver.upper(),
        "command": {"argv": list(argv), "env": dict(env or {}), "dir": cwd or ""},
        "probePath": None if probe == "/health" else probe,
        "noProbe": True if probe is None else None,
        "sleepLevel": sleep_level,
        "sleep": None if sleep is None else with_body(sleep),
        "wake": None if wake is None else with_body(wake),
        "startTimeout": None if start_timeout_s is None else seconds(start_timeout_s),
        "callTimeout": None if call_timeout_s is None else seconds(call_timeout_s),
        "asleepMemoryBytes": None if asleep_memory is None else str(size(asleep_memory)),
    }
    return {key: value for key, value in given.items() if value is not None}
