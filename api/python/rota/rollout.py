"""Rollouts, their samples, and the versions of a policy: the trainer's side.

docs/rollouts.md says what a group, a sample and a version are.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

from .calls import Calls
from .names import names_checked
from .errors import Error
from .spec import Size, seconds, size

# How long one call waits for a batch, in seconds: a third of the time for which calls are repeated, at most.
_PATIENCE_S = 10.0
_MEMBER = "ROLLOUT_MEMBER_STATE_"


@dataclass(frozen=True)
class Sample:
    """What a trajectory made for training."""

    trajectory: int
    rollout: int
    group: int
    #: The version with which its trajectory began.
    version: int
    reward: float
    tokens: int
    #: Where its bytes are, in words of whoever put it.
    reference: str


def _sample(message: dict) -> Sample:
    return Sample(
        trajectory=int(message["trajectoryId"]),
        rollout=int(message["rolloutId"]),
        group=int(message.get("group", 0)),
        version=int(message.get("version", 0)),
        reward=float(message.get("reward", 0.0)),
        tokens=int(message.get("tokens", 0)),
        reference=message.get("reference", ""),
    )


@names_checked
class Rollouts(Calls):
    """The methods of Client about rollouts."""

    def create_rollout(
        self, policy: str, groups: int, samples_per_group: int, *, redundant: int = 0, staleness: int = 0, name: str = ""
    ) -> dict:
        """Declares prompt groups, for which trajectories are opened then. Returns the rollout.

        policy: what is trained, such as the name of the model.
        redundant: trajectories that a group may have beyond samples_per_group; the last are
            closed when the group is complete.
        staleness: how many versions before the current one a trajectory may have begun.
        """
        spec: dict[str, Any] = {
            "name": name, "policy": policy, "groups": groups, "samplesPerGroup": samples_per_group,
            "redundant": redundant, "staleness": staleness,
        }
        request = {"namespace": self.namespace, "requestId": self.request_id(), "spec": spec}
        return self.call("RolloutService/CreateRollout", request)["rollout"]

    def close_rollout(self, rollout: int) -> dict:
        """Closes the trajectories of a rollout that have made no sample. Complete groups stay."""
        return self.call("RolloutService/CloseRollout", {"id": str(rollout)})["rollout"]

    def rollout(self, rollout: int) -> dict:
        """A rollout as it is now, with its counts."""
        return self.call("RolloutService/GetRollout", {"id": str(rollout)})["rollout"]

    def rollouts(self, policy: str = "", include_ended: bool = False) -> list[dict]:
        """The rollouts, oldest first; of one policy, if it is given."""
        request = {"namespace": self.namespace, "policy": policy, "includeEnded": include_ended}
        return self._pages("RolloutService/ListRollouts", request, "rollouts")

    def open_member(self, rollout: int, group: int, *, memory: Size = 0, name: str = "", idle_timeout_s: float = 0.0) -> int:
        """Opens a trajectory for a group of a rollout. Returns its ID.

        memory: to reserve for its environment. Close it with PutSample, or CloseTrajectory.
        """
        request: dict[str, Any] = {
            "namespace": self.namespace, "requestId": self.request_id(), "name": name, "memoryBytes": str(size(memory)),
            "rollout": {"rolloutId": str(rollout), "group": group},
        }
        if idle_timeout_s:
            request["idleTimeout"] = seconds(idle_timeout_s)
        return int(self.call("TrajectoryService/OpenTrajectory", request)["trajectory"]["id"])

    def put_sample(
        self, trajectory: int, *, reward: float = 0.0, tokens: int = 0, reference: str = "", keep_open: bool = False
    ) -> tuple[bool, str]:
        """Puts the sample of a trajectory into the buffer, and closes the trajectory.

        Each trajectory makes one sample: put again it is the same. Returns whether it is in
        the buffer, and what became of the trajectory: "sampled", or "stale", "redundant" or
        "failed" if it came too late.
        """
        request = {
            "trajectoryId": str(trajectory), "reward": reward, "tokens": str(tokens), "reference": reference, "keepOpen": keep_open,
        }
        answer = self.call("RolloutService/PutSample", request)
        return answer.get("accepted", False), answer["state"].removeprefix(_MEMBER).lower()

    def get_batch(
        self, policy: str, step: int, groups: int, wait_s: float | None = None, canceled: threading.Event | None = None
    ) -> list[Sample]:
        """The samples of a step of training; waits until enough groups are complete.

        step: the last one again, which has the same batch, or the next one, which ends that.
        wait_s: how long to wait, in seconds; None: for ever. Then Error says GROUPS_MISSING.
        canceled: ends the wait within ten seconds when it is set.
        """
        over = None if wait_s is None else time.monotonic() + wait_s
        patience = min(_PATIENCE_S, self.retry_s / 3)
        while True:
            left = patience if over is None else max(0.0, min(patience, over - time.monotonic()))
            request = {"policy": policy, "step": str(step), "groups": groups, "wait": f"{left:.3f}s"}
            try:
                answer = self.call("RolloutService/GetBatch", request, try_s=left + patience)
                return [_sample(s) for s in answer.get("samples", [])]
            except Error as e:
                if e.reason != "GROUPS_MISSING" or left < patience or canceled is not None and canceled.is_set():
                    raise

    def publish_version(self, policy: str, version: int) -> int:
        """Makes a version the current one. Returns how many trajectories are closed by that.

        Published again, nothing changes. A policy that belongs to no namespace yet then belongs to
        that of the client, if it has one.
        """
        request = {"policy": policy, "version": str(version), "namespace": self.namespace}
        answer = self.call("RolloutService/PublishVersion", request)
        return int(answer.get("closedTrajectories", 0))

    def suspend_policy(self, policy: str) -> None:
        """Holds the requests of a policy at the gateways, so that its weights can change."""
        self.call("RolloutService/SuspendPolicy", {"policy": policy})

    def resume_policy(self, policy: str) -> None:
        """Lets the requests of a policy go on."""
        self.call("RolloutService/ResumePolicy", {"policy": policy})

    def policy(self, policy: str) -> dict:
        """A policy as it is now: its version, its last step, and what waits for the next one."""
        return self.call("RolloutService/GetPolicy", {"policy": policy})["policy"]

    def policies(self) -> list[dict]:
        """All policies, by name."""
        return self._pages("RolloutService/ListPolicies", {}, "policies")
