"""Training jobs: what is asked for, and what became of it."""

from __future__ import annotations

from typing import Any, Mapping, Sequence, Tuple, Union

from .spec import seconds

#: The period, and (offset, length) or (offset, length, nodes) of each part in which the
#: job holds its group; or a Cycle as docs/api.md has it.
Cycle = Union[Tuple[float, Sequence[Sequence[float]]], Mapping[str, Any]]


def submission(
    name: str,
    nodes: int,
    cycle: Cycle | None,
    set_up_s: float | None,
    backfill: bool,
    hooks: Mapping[str, Mapping[str, dict]] | None = None,
    labels: Mapping[str, str] | None = None,
) -> dict:
    """The request that submits a job."""
    given = {
        "name": name,
        "nodes": nodes,
        "cycle": None if cycle is None else _cycle(cycle, nodes),
        "setUp": None if set_up_s is None else seconds(set_up_s),
        "backfill": backfill or None,
        "hooks": [{"deployment": name, **kinds} for name, kinds in (hooks or {}).items()] or None,
        "labels": dict(labels or {}) or None,
    }
    return {key: value for key, value in given.items() if value is not None}


def _cycle(cycle: Cycle, nodes: int) -> dict:
    if isinstance(cycle, Mapping):
        return dict(cycle)
    period, parts = cycle
    segments = []
    for part in parts:
        if len(part) not in (2, 3):
            raise ValueError(f"{part!r} is no part of a cycle: write (offset, length) or (offset, length, nodes)")
        width = int(part[2]) if len(part) == 3 else nodes
        segments.append({"offset": seconds(part[0]), "length": seconds(part[1]), "nodes": width})
    return {"period": seconds(period), "segments": segments}


class Job:
    """What rota knows of a job; ``raw`` is all of it."""

    def __init__(self, raw: Mapping[str, Any]):
        self.raw = raw
        self.name = raw["name"]
        #: QUEUED, RUNNING, SUSPENDED or COMPLETED.
        self.state = raw["state"].removeprefix("JOB_STATE_")
        #: The node group that it is on, empty unless it runs.
        self.group = raw.get("group", "")
        self.labels: dict[str, str] = raw.get("labels", {})
        #: While queued: a sentence that says what it waits for.
        self.waiting_for = raw.get("message", "")
        #: How many steps were finished.
        self.cycles = int(raw.get("finishedCycles", 0))

    def __repr__(self) -> str:
        return f"<Job {self.name} {self.state}>"
