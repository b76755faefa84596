"""What can go wrong."""

from __future__ import annotations

import json
from typing import Any


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
    """No answer says it: what was asked for may have been done or not."""


def restored(kind: type[BaseException], *args: Any) -> BaseException:
    """An exception that was pickled, of a class whose __init__ takes other arguments than its text."""
    return kind.__new__(kind, *args)


class ActionFailed(Exception):
    """An action ended, and not with success. ``action`` says how."""

    def __init__(self, action):
        super().__init__(_end(action))
        self.action = action

    def __reduce__(self):
        return restored, (type(self), *self.args), self.__dict__


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
    alone. It is None in an exception that comes from another process.
    """

    def __init__(self, turn, why: str):
        super().__init__(f"turn {turn.id} of {turn.deployment} is lost: {why}")
        self.turn = turn

    def __reduce__(self):
        return restored, (type(self), *self.args), {**self.__dict__, "turn": None}


#: Codes that a server of rota does not explain: another try may do better. They do not say that
#: nothing was done.
TRANSIENT = {"unavailable", "unknown", "internal", "aborted", "canceled", "deadline_exceeded"}


def from_answer(status: int, body: bytes) -> Error:
    """The error that an answer which is none carries."""
    try:
        answer = json.loads(body)
        code, message = answer["code"], answer.get("message", "")
    except (ValueError, KeyError, TypeError):
        if status in (408, 502, 503, 504):  # a proxy, which may have passed the call on
            return UnknownOutcome(f"HTTP status {status}", retry_after=0.0)
        if status == 429:
            return Error(f"HTTP status {status}", retry_after=0.0)
        return Error(f"HTTP status {status}", "unknown")
    for detail in answer.get("details", []):
        if detail.get("type") == "rota.v1.ErrorDetail":
            about = detail.get("debug", {})
            delay = about.get("retryDelay")
            return Error(message, code, about.get("reason", ""), None if delay is None else float(delay.rstrip("s")))
    return UnknownOutcome(message, code, retry_after=0.0) if code in TRANSIENT else Error(message, code)
