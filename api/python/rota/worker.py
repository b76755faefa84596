"""Workers: engines that generate for the trajectories of a policy.

docs/rollouts.md says which worker generates for which trajectory, and in which order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .calls import Calls
from .names import names_checked
from .spec import Size, seconds, size


@names_checked
class Workers(Calls):
    """The methods of Client about workers and what trajectories generate."""

    def register_worker(
        self, name: str, policy: str, url: str, token_s: Mapping[int, float], *, dialect: str = "openai", prefill_1k_s: float = 0.0,
        hardware: str = "", node: str = "", degree: int = 1, slots: int = 0, cost: int = 0, version: int = 0,
    ) -> dict:
        """Registers a worker, or changes it. Needs an operator's certificate. Returns the worker.

        token_s: the time for a token in seconds, by batch size, as measured.
        dialect: "openai", "vllm" or "sglang": how requests are given a priority.
        prefill_1k_s: the time to compute 1,000 tokens of a prompt that are in no cache.
        slots: trajectories that it generates for at once; 0: 1,024.
        """
        points = [{"batchSize": batch, "tokenTime": seconds(token_s[batch])} for batch in sorted(token_s)]
        spec: dict[str, Any] = {
            "name": name, "policy": policy, "url": url, "dialect": f"WORKER_DIALECT_{dialect.upper()}", "hardware": hardware, "node": node,
            "degree": degree, "slots": slots, "cost": str(cost), "version": str(version),
            "profile": {"points": points, "prefill1k": seconds(prefill_1k_s)},
        }
        return self.call("WorkerService/RegisterWorker", {"spec": spec})["worker"]

    def update_worker(self, name: str, *, version: int | None = None, draining: bool | None = None, up: bool = False) -> dict:
        """Says which version of the policy a worker has, drains it, or has it tried again at once."""
        request: dict[str, Any] = {"name": name, "up": up}
        if version is not None:
            request["version"] = str(version)
        if draining is not None:
            request["draining"] = draining
        return self.call("WorkerService/UpdateWorker", request)["worker"]

    def remove_worker(self, name: str) -> None:
        """Forgets a worker. Its trajectories go on at others. Needs an operator's certificate."""
        self.call("WorkerService/RemoveWorker", {"name": name})

    def worker(self, name: str) -> dict:
        """A worker as it is now."""
        return self.call("WorkerService/GetWorker", {"name": name})["worker"]

    def workers(self, policy: str = "") -> list[dict]:
        """The workers by name; of one policy, if it is given."""
        return self._pages("WorkerService/ListWorkers", {"policy": policy}, "workers")

    def set_affinity(self, policy: str, task_class: str = "", hardware: Sequence[str] = (), *, cost_percent: int = 0, spill_percent: int = 0) -> None:
        """Says which hardware the trajectories of a task class go to. Needs an operator's certificate.

        task_class: "" stands for all classes of the policy of which nothing else is said.
        hardware: kinds of hardware, the best first; measured tokens decide if there is none.
        cost_percent: how much the price of a worker counts, from 0 to 100.
        spill_percent: a later kind is taken if the work of an earlier one is longer by more than so many
            percent; 0: only if all workers of the earlier one are full or down.
        """
        affinity: dict[str, Any] = {
            "policy": policy, "taskClass": task_class, "hardware": list(hardware), "costPercent": cost_percent, "spillPercent": spill_percent,
        }
        self.call("WorkerService/SetAffinity", {"affinity": affinity})

    def remove_affinity(self, policy: str, task_class: str = "") -> None:
        """Forgets what was said of a task class: measured tokens decide. Needs an operator's certificate."""
        self.call("WorkerService/RemoveAffinity", {"policy": policy, "taskClass": task_class})

    def affinities(self, policy: str = "") -> list[dict]:
        """What was said and measured of task classes; of one policy, if it is given."""
        return self.call("WorkerService/ListAffinities", {"policy": policy}).get("affinities", [])

    def open_generation(
        self, policy: str, *, task_class: str = "", prompt_tokens: int = 0, hardware: Sequence[str] = (),
        memory: Size = 0, name: str = "", idle_timeout_s: float = 0.0, rollout: int = 0, group: int = 0,
    ) -> int:
        """Opens a trajectory that a policy generates for. Returns its ID.

        task_class: tasks of one class generate about as much; the cluster learns how much.
        hardware: kinds of hardware of its worker, the best first.
        idle_timeout_s: closes it when nothing was heard of it for so long, and frees its slot: longer
            than a turn takes. 0: never, whatever becomes of its agent loop.
        rollout, group: the prompt group that it makes a sample for; 0: none.
        """
        request: dict[str, Any] = {
            "namespace": self.namespace, "requestId": self.request_id(), "name": name, "memoryBytes": str(size(memory)),
            "generation": {"policy": policy, "taskClass": task_class, "promptTokens": prompt_tokens, "hardware": list(hardware)},
        }
        if idle_timeout_s:
            request["idleTimeout"] = seconds(idle_timeout_s)
        if rollout:
            request["rollout"] = {"rolloutId": str(rollout), "group": group}
        return int(self.call("TrajectoryService/OpenTrajectory", request)["trajectory"]["id"])

    def suspend_trajectory(self, trajectory: int) -> None:
        """Holds the requests of a trajectory at the gateways until it is resumed."""
        self.call("WorkerService/SuspendGeneration", {"id": str(trajectory)})

    def resume_trajectory(self, trajectory: int) -> None:
        """Lets the requests of a trajectory go on."""
        self.call("WorkerService/ResumeGeneration", {"id": str(trajectory)})
