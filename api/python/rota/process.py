"""Workers: what runs in the processes of a Cluster."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import pathlib
import sys
import time
import traceback
from typing import Any, Callable, Mapping, Sequence

#: Where a worker finds its code and its calls, in the directory of its trajectory.
CODE, CALLS = ".rota/code.zip", ".rota/calls"
#: Pauses between two looks for a call, in seconds: short after a call, longer without.
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.002, 0.05

_MARK = "_rota_how"

#: How arguments reach workers, and how their results become one.
DISPATCH = ("all", "split")
GATHER = ("list", "dp", "concat", "first")


@dataclasses.dataclass(frozen=True)
class Layout:
    """How ranks share a model: rank = (pipeline * dp + data) * tp + tensor.

    dp, tp, pp: data-, tensor- and pipeline-parallel ranks.
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1

    def __post_init__(self) -> None:
        if min(self.dp, self.tp, self.pp) < 1:
            raise ValueError(f"each dimension of {self} is at least 1")

    @property
    def ranks(self) -> int:
        return self.dp * self.tp * self.pp

    def place(self, rank: int) -> tuple[int, int, int]:
        """The data-, tensor- and pipeline-parallel rank of a rank."""
        return rank // self.tp % self.dp, rank % self.tp, rank // (self.tp * self.dp)

    def split(self, rank: int, value: Any) -> Any:
        """What a rank gets of an argument: its part of a list, all of anything else."""
        if not isinstance(value, list):
            return value
        data, _, _ = self.place(rank)
        return value[len(value) * data // self.dp : len(value) * (data + 1) // self.dp]

    def gather(self, how: str, results: Sequence[Any]) -> Any:
        """One result of those of all ranks, as ``register`` says."""
        if how == "list":
            return list(results)
        speaks = [result for rank, result in enumerate(results) if self.place(rank)[1:] == (0, self.pp - 1)]
        if how == "concat":
            return [item for part in speaks for item in part]
        return speaks if how == "dp" else speaks[0]


class Worker:
    """What runs in each process of a Cluster. Derive from it, and mark methods.

    rank: of this worker, from 0. world_size: how many there are.
    hardware: the kind of resources that it was given.
    layout: how the ranks share a model.
    """

    rank: int
    world_size: int
    hardware: str
    layout: Layout

    def setup(self, **args: Any) -> None:
        """Is called once, before the first call, with the arguments of the Cluster."""


def register(
    method: Callable | None = None, *, dispatch: str = "all", gather: str = "list", operation: str = ""
) -> Callable:
    """Marks a method that a Cluster calls on all of its workers.

    dispatch: "all": each worker gets the same arguments. "split": each argument that is a list is
        split evenly over the data-parallel ranks, and the workers of one such rank get its part.
    gather: "list": the results of all workers, by rank. "dp": one result of each data-parallel
        rank, that of its first tensor-parallel and last pipeline rank. "concat": these as one
        list, each of them being a list. "first": that of the first data-parallel rank.
    operation: such as "forward_backward": a Cluster with a deployment takes a turn for each call.
    """
    if dispatch not in DISPATCH or gather not in GATHER:
        raise ValueError(f"dispatch is one of {DISPATCH}, gather one of {GATHER}: not {dispatch!r}, {gather!r}")
    about = {"how": "all", "dispatch": dispatch, "gather": gather, "operation": operation}

    def mark(method: Callable) -> Callable:
        setattr(method, _MARK, about)
        return method

    return mark if method is None else mark(method)


def hw_mapping(affinity: Mapping[str, str | Sequence[str]] | None = None, **by_tag: str | Sequence[str]) -> Callable:
    """Marks a method that a Cluster calls on one worker, which the argument tag_name chooses.

    affinity, by_tag: the kind of hardware that a tag prefers, or several, the best first;
        "default" is for other tags. If there is none of these, any worker is as good.
    """
    mapping = {**(affinity or {}), **by_tag}

    def mark(method: Callable) -> Callable:
        setattr(method, _MARK, {"how": "one", "affinity": mapping})
        return method

    return mark


def register_serverless(
    attr: str, serverless_url: str = "", *, reward: str = "", gateway: str = "", **options: Any
) -> Callable:
    """Marks a method that runs in the driver, with a function as one of its attributes.

    attr: the name of that attribute, such as "reward_proxy".
    serverless_url: where its argument is posted as JSON, by an action for each call.
    reward, gateway: a reward function and the URL of a gateway, instead of serverless_url; it is
        called as in rota.Reward.
    options: of the actions, as in rota.spec, such as quotas={"reward": 1}; or of rota.Reward.
    """
    if bool(serverless_url) == bool(reward):
        raise TypeError("register_serverless needs serverless_url, or reward and gateway")

    def mark(method: Callable) -> Callable:
        about = {"attr": attr, "url": serverless_url, "reward": reward, "gateway": gateway, "options": options}
        setattr(method, _MARK, {"how": "serverless", **about})
        return method

    return mark


def how(method: Any) -> dict | None:
    """How a cluster calls a method, or None if it does not."""
    return getattr(method, _MARK, None)


def serve(about: Mapping[str, Any], calls: pathlib.Path, forever: Callable[[], bool] = lambda: True) -> None:
    """Makes a worker, and carries out its calls in the order of their numbers."""
    worker = _make(about)
    pause = _PAUSE_MIN_S
    while forever():
        waiting = sorted(name for name in os.listdir(calls) if name.endswith(".call"))
        for name in waiting:
            _carry_out(worker, calls / name)
        pause = _PAUSE_MIN_S if waiting else min(1.2 * pause, _PAUSE_MAX_S)
        time.sleep(pause)


def _make(about: Mapping[str, Any]) -> Worker:
    module, _, name = about["class"].partition(":")
    cls: Any = importlib.import_module(module)
    for part in name.split("."):
        cls = getattr(cls, part)
    worker = cls()
    worker.rank, worker.world_size, worker.hardware = about["rank"], about["world_size"], about["hardware"]
    worker.layout = Layout(**about["layout"])
    worker.setup(**about["args"])
    return worker


def _carry_out(worker: Worker, call: pathlib.Path) -> None:
    try:
        request = json.loads(call.read_text())
    except FileNotFoundError:
        return  # its driver has given it up
    answer: dict[str, Any]
    try:
        if how(getattr(type(worker), request["method"])) is None:
            raise AttributeError(f"{request['method']} is not marked with @rota.register or another decorator")
        answer = {"result": getattr(worker, request["method"])(*request["args"], **request["kwargs"])}
        text = json.dumps(answer)
    except Exception as err:
        text = json.dumps({"error": f"{type(err).__name__}: {err}", "trace": traceback.format_exc()})
    part = call.with_suffix(".part")
    part.write_text(text)
    # The result appears whole, and before the call goes.
    part.replace(call.with_suffix(".result"))
    call.unlink(missing_ok=True)


def main() -> None:
    """The process of a worker. Its argument says which worker it is."""
    serve(json.loads(sys.argv[1]), pathlib.Path(CALLS))
