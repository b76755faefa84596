"""Actions: what is asked for, and what became of it."""

from __future__ import annotations

import base64
import inspect
import os
import re
import sys
from typing import Any, Iterable, Mapping, NamedTuple, Sequence, Union

from .names import refuse_unknown

_UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}
_UNITS.update({unit + "i": 1024**i for i, unit in enumerate("KMGT", start=1)})

#: How much of what an action wrote the cluster keeps, in bytes.
_TAILS = 4 << 10

Cores = Union[int, Sequence[int], range]
Size = Union[int, str]


def size(value: Size) -> int:
    """Bytes of a size such as 4096, "512MiB" or "2GB"."""
    if isinstance(value, int):
        return value
    match = re.fullmatch(r"\s*(\d+)\s*([KMGT]i?)?B?\s*", value)
    if match is None:
        raise ValueError(f'{value!r} is no size: write a number of bytes, or one such as "512MiB"')
    return int(match[1]) * _UNITS[match[2] or ""]


def seconds(value: float) -> str:
    """A duration as the API has it."""
    return f"{value:.9f}".rstrip("0").rstrip(".") + "s"


def http_call(call: str | Mapping[str, Any]) -> dict:
    """An HTTP call as the API has it, of a URL or of the fields of HttpCall.

    Its body may be text or bytes.
    """
    fields = {"url": call} if isinstance(call, str) else dict(call)
    unknown = fields.keys() - {"url", "method", "headers", "body", "accept"}
    if unknown or "url" not in fields:
        raise TypeError(f"an HTTP call has a url, and may have method, headers, body and accept: {sorted(fields)}")
    return with_body(fields)


def with_body(fields: Mapping[str, Any]) -> dict:
    """The fields of a call, its body as JSON has bytes."""
    fields = dict(fields)
    body = fields.get("body")
    if body is not None:
        raw = body.encode() if isinstance(body, str) else bytes(body)
        fields["body"] = base64.b64encode(raw).decode()
    return fields


def current_trace() -> str | None:
    """The trace context of this program, None if it has none."""
    if "opentelemetry" in sys.modules:  # never imported for this alone
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier: dict = {}
        TraceContextTextMapPropagator().inject(carrier)
        if carrier.get("traceparent"):
            return carrier["traceparent"]
    text = os.environ.get("TRACEPARENT", "")
    return text if re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", text) else None


def spec(
    argv: Sequence[str] | None = None,
    *,
    http: str | Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    cores: Cores | None = None,
    memory: Size | None = None,
    resizable: bool = True,
    gpus: int | Sequence[int] | None = None,
    gpu_memory: Size | None = None,
    model: str | None = None,
    quotas: Mapping[str, int] | Sequence[str] | None = None,
    settle: Mapping[str, str] | None = None,
    name: str | None = None,
    class_: str | None = None,
    size_hint: int | None = None,
    pool: str | None = None,
    trajectory: int | None = None,
    expect_s: float | None = None,
    queue_timeout_s: float | None = None,
    timeout_s: float | None = None,
    traceparent: str | None = None,
    stdin: bool = False,
    tty: tuple[int, int] | None = None,
    labels: Mapping[str, str] | None = None,
    **more: Any,
) -> dict:
    """An action to submit: a command, or an HTTP call that its node makes.

    http: a URL, or {"url": ..., "method": ..., "headers": {...}, "body": ..., "accept": [...]}.
    cores: 2 for exactly two, range(1, 9) for one to eight, [1, 2, 4] for one of these.
    resizable: False for an action that keeps the cores that it starts with. Others get more or
        fewer while they run, never fewer than the least, on nodes that can do that.
    gpus: a number of GPUs or a list of those that it can use: 1, 2, 4 and 8.
    gpu_memory: what it takes of the memory of each.
    model: what has to be in their memory. In the command, in env and in the URL, {{engine}}
        becomes the address of its engine; see Client.register_engine.
    quotas: names of quotas, or units of each by name: what it expects to use.
    settle: of an HTTP call, by quota, where the answer says what it really used: "usage" for the
        APIs of OpenAI and Anthropic, or a path such as "usage.total_tokens". See used().
    class_: the class from whose actions rota learns how long they take, such as "pytest".
    size_hint: how large it is among those of its class, such as its number of tests or tokens.
    expect_s: how long it takes with one core or GPU, in seconds, if that is known.
    traceparent: the W3C trace context that the action is part of. The default is that of the
        current span of OpenTelemetry, if the program uses it, else TRACEPARENT.
    stdin: True for a standard input that Process.write writes to; otherwise it is empty.
    tty: rows and columns of a terminal, which is its standard input, output and error.
    labels: for finding it, see Client.list.
    more: other fields of ActionSpec as docs/api.md has them, such as lossPolicy.
    """
    refuse_unknown("an action", more, _MORE if more else ())
    if isinstance(argv, str):
        raise TypeError('argv is a list of words: for a shell write ["sh", "-c", COMMAND]')
    if (argv is None) == (http is None):
        raise TypeError("an action is either a command, argv, or an HTTP call, http")
    if http is not None and (env or cwd or stdin or tty):
        raise TypeError("env, cwd, stdin and tty are for commands")
    resources: dict = {}
    if isinstance(cores, int):
        resources["cores"] = cores
    elif isinstance(cores, range):
        if cores.step != 1 or len(cores) == 0:
            raise ValueError(f"cores={cores!r} must be a range of one number after the other, such as range(1, 9)")
        resources.update(cores=cores[0], maxCores=cores[-1])
    elif cores is not None:
        resources["allowedCores"] = list(cores)
    if not resizable:
        resources["resizable"] = False
    if memory is not None:
        resources["memoryBytes"] = str(size(memory))
    if gpus is not None:
        resources["gpus"] = {"gpus": [gpus] if isinstance(gpus, int) else list(gpus)}
        if gpu_memory is not None:
            resources["gpus"]["memoryBytes"] = str(size(gpu_memory))
        if model is not None:
            resources["gpus"]["model"] = model
    elif gpu_memory is not None or model is not None:
        raise TypeError("gpu_memory and model need gpus")
    if quotas:
        units = quotas if isinstance(quotas, Mapping) else dict.fromkeys(quotas, 1)
        resources["quotas"] = [{"quota": quota, "units": n} for quota, n in units.items()]
    for quota, rule in (settle or {}).items():
        named = [q for q in resources.get("quotas", ()) if q["quota"] == quota]
        if not named:
            raise ValueError(f"settle names {quota!r}, which quotas does not")
        named[0]["settle"] = rule
    given = {
        "command": None if argv is None else {"argv": list(argv), "env": dict(env or {}), "dir": cwd or ""},
        "http": None if http is None else http_call(http),
        "resources": resources,
        "name": name,
        "class": class_,
        "sizeHint": None if size_hint is None else str(size_hint),
        "pool": pool,
        "trajectoryId": None if trajectory is None else str(trajectory),
        "profile": None if expect_s is None else {"duration": seconds(expect_s)},
        "queueTimeout": None if queue_timeout_s is None else seconds(queue_timeout_s),
        "runTimeout": None if timeout_s is None else seconds(timeout_s),
        "traceparent": traceparent or current_trace(),
        "stdin": True if stdin else None,
        "tty": None if tty is None else {"rows": tty[0], "columns": tty[1]},
        "labels": dict(labels) if labels else None,
    }
    return {**{key: value for key, value in given.items() if value is not None}, **more}


#: What spec may be given: its arguments, and the fields of ActionSpec by their names in the API.
_MORE = {name for name in inspect.signature(spec).parameters if name != "more"} | {
    "class", "command", "lossPolicy", "maxAttempts", "profile", "queueTimeout", "resources", "runTimeout", "gangSize", "gangSpread", "sizeHint", "trajectoryId",
}


def gang(one: Mapping[str, Any], size: int, *, spread: str | None = None) -> list[dict]:
    """The actions of a gang: they start all at once, or none does, and end with the first that fails.

    Submit them together: client.submit(*rota.gang(rota.spec(["./train"], gpus=8), 4)). Each finds its
    place in ROTA_GANG_RANK, the hosts of all in ROTA_GANG_HOSTS, and where they may meet in
    ROTA_GANG_ADDRESS.

    spread: "node" if each needs a node of its own.
    """
    if size < 1:
        raise ValueError(f"a gang of {size} actions")
    if spread not in (None, "node"):
        raise ValueError(f'spread={spread!r} must be "node" or None')
    place = {"gangSize": size} if spread is None else {"gangSize": size, "gangSpread": "GANG_SPREAD_NODE"}
    return [{**one, **place} for _ in range(size)]


class StartEstimate(NamedTuple):
    """When an action is expected to start: in so many seconds from when that was said."""

    #: In one of two cases within this time; None: unknown.
    p50_s: float | None
    #: Meant to hold in nine of ten cases; for GPUs it holds less often (docs/evaluation.md).
    p90_s: float | None
    #: If unknown: a sentence that says why.
    unknown_reason: str = ""

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> StartEstimate:
        """Makes one of the JSON of the API."""
        p50_s, p90_s = (None if key not in raw else float(raw[key].removesuffix("s")) for key in ("p50", "p90"))
        return cls(p50_s, p90_s, raw.get("unknownReason", ""))


class Submission(list):
    """The IDs of actions that were submitted together, a list of int."""

    def __init__(self, ids: Iterable[int], estimates: Iterable[StartEstimate]):
        super().__init__(ids)
        #: When each is expected to start. Empty if the server is too old to say.
        self.estimates = list(estimates)


class Action:
    """What rota knows of an action; ``raw`` is all of it."""

    def __init__(self, raw: Mapping[str, Any]):
        self.raw = raw
        self.id = int(raw["id"])
        #: QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELED, LOST or EXPIRED.
        self.state = raw["state"].removeprefix("ACTION_STATE_")
        self.node = raw.get("node", "")
        #: While queued: a sentence that says what it waits for.
        self.waiting_for = raw.get("waitingFor", "")
        #: While queued: when it is expected to start; None otherwise.
        self.estimate = StartEstimate.of(raw["estimate"]) if "estimate" in raw else None
        result = raw.get("result", {})
        #: Why it ended, such as EXITED or TIMEOUT; empty before.
        self.reason = result.get("reason", "").removeprefix("END_REASON_")
        #: One sentence, where the reason alone does not say it all.
        self.message = result.get("message", "")
        #: None unless the command has exited.
        self.exit_code: int | None = result.get("exitCode", 0) if self.reason == "EXITED" else None
        #: What it wrote. ``Client.run`` and ``wait`` read all of it from its node; elsewhere these are
        #: the ends that the cluster keeps, 4 KiB together.
        self.stdout_bytes = base64.b64decode(result.get("stdoutTail", ""))
        self.stderr_bytes = base64.b64decode(result.get("stderrTail", ""))
        #: Whether it may have written more than that.
        self.truncated = len(self.stdout_bytes) + len(self.stderr_bytes) >= _TAILS

    @property
    def stdout(self) -> str:
        """What it wrote to standard output, as UTF-8."""
        return self.stdout_bytes.decode(errors="replace")

    @property
    def stderr(self) -> str:
        """What it wrote to standard error, as UTF-8."""
        return self.stderr_bytes.decode(errors="replace")

    @property
    def ended(self) -> bool:
        return self.state not in ("QUEUED", "RUNNING")

    @property
    def succeeded(self) -> bool:
        return self.state == "SUCCEEDED"

    def __repr__(self) -> str:
        return f"<Action {self.id} {self.state}>"
