"""What can go wrong."""

from __future__ import annotations

import json


class Error(Exception):
    """A refusal, or that nobody could be asked.

    ``code`` is that of Connect, such as "not_found"; ``reason`` is rota's own, such
    as "QUEUE_FULL", or empty if no server of rota answered.
    """

    def __init__(self, message: str, code: str = "unavailable", reason: str = "", retry_after: float | None = None):
        super().__init__(message)
        self.code = code
        self.reason = reason
        #: Seconds after which a repetition may succeed, None where it is useless.
        self.retry_after = retry_after


class UnknownOutcome(Error):
    """The last try got no answer: what was asked for may have been done or not."""


class ActionFailed(Exception):
    """An action ended, and not with success. ``action`` says how."""

    def __init__(self, action):
        super().__init__(_end(action))
        self.action = action


def _end(action) -> str:
    """How an action ended, and the last lines that it wrote to standard error."""
    text = f"action {action.id} ended as {action.state}: {action.reason}"
    if action.exit_code is not None:
        text += f", exit code {action.exit_code}"
    if action.message:
        text += f": {action.message}"
    last = action.stderr.strip().splitlines()[-10:]
    return "\n".join([text, *last])


class TurnLost(Exception):
    """The lease of a turn ran out, or its place in the line: others may have the group.

    ``turn`` says which. What was computed since is not known to have had the group
    alone.
    """

    def __init__(self, turn, why: str):
        super().__init__(f"turn {turn.id} of {turn.deployment} is lost: {why}")
        self.turn = turn


#: Codes that a server of rota does not explain: another try may do better.
TRANSIENT = {"unavailable", "unknown", "internal", "aborted", "canceled", "deadline_exceeded"}


def from_answer(status: int, body: bytes) -> Error:
    """The error that an answer which is none carries."""
    try:
        answer = json.loads(body)
        code, message = answer["code"], answer.get("message", "")
    except (ValueError, KeyError, TypeError):
        code = "unavailable" if status in (408, 429, 502, 503, 504) else "unknown"
        return Error(f"HTTP status {status}", code, retry_after=0.0 if code == "unavailable" else None)
    for detail in answer.get("details", []):
        if detail.get("type") == "rota.v1.ErrorDetail":
            about = detail.get("debug", {})
            delay = about.get("retryDelay")
            return Error(message, code, about.get("reason", ""), None if delay is None else float(delay.rstrip("s")))
    return Error(message, code, retry_after=0.0 if code in TRANSIENT else None)
