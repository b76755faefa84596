"""Trajectories: sessions of actions that keep a node, memory and a directory."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Sequence

from .background import Process
from .errors import Error
from .files import Files
from .names import names_checked
from .spec import Action, Size, seconds

if TYPE_CHECKING:
    from .client import Client


@names_checked
class Trajectory:
    """A session of actions. Leaving its context closes it.

    files: its directory, where all of its actions work.
    """

    def __init__(self, client: Client, trajectory: int):
        self.client = client
        self.id = trajectory
        self.files = Files(client, trajectory)

    def submit(self, *specs: dict) -> list[int]:
        """Queues actions of the trajectory."""
        return self.client.submit(*({**one, "trajectoryId": str(self.id)} for one in specs))

    def run(self, argv: Sequence[str] | None = None, *, check: bool = False, **fields: Any) -> Action:
        """As Client.run, on the node of the trajectory."""
        return self.client.run(argv, check=check, trajectory=self.id, **fields)

    def start(self, argv: Sequence[str] | None = None, **fields: Any) -> Process:
        """As Client.start, on the node of the trajectory."""
        return self.client.start(argv, trajectory=self.id, **fields)

    def pause(self) -> bool:
        """Freezes all of its processes where they are. They keep their memory and give their cores
        back; new ones wait. Returns when they are frozen. False: it was paused already."""
        answer = self.client.call("TrajectoryService/PauseTrajectory", {"id": str(self.id)})
        pause = 0.01
        while answer["trajectory"].get("pause") == "PAUSE_STATE_PAUSING":
            time.sleep(pause)
            pause = min(2 * pause, 1)
            now = self.client.call("TrajectoryService/GetTrajectory", {"id": str(self.id)})
            answer["trajectory"] = now["trajectory"]
        return bool(answer.get("changed"))

    def resume(self) -> bool:
        """Lets its processes go on, each when it has its cores again. False: it was not paused."""
        answer = self.client.call("TrajectoryService/ResumeTrajectory", {"id": str(self.id)})
        return bool(answer.get("changed"))

    def usage(self, interval_s: float = 0) -> dict:
        """What its running actions use now: ``actions``, each with ``actionId``, ``cpuTime``,
        ``memoryBytes`` and more, and ``diskBytes`` and ``diskFreeBytes`` of the disk with its files.

        interval_s: time over which ``cores`` of each action is measured, at most 10; 0: not at all.
        """
        request = {"trajectoryId": str(self.id), "interval": seconds(interval_s)}
        return self.client.call("UsageService/GetTrajectoryUsage", request)

    def snapshot(self, name: str = "", timeout_s: float = 600) -> dict:
        """Keeps its files as they are, and returns the snapshot when others can begin with it.

        No action of it may run. Raises RuntimeError if the snapshot cannot be taken.
        """
        request = {"trajectoryId": str(self.id), "name": name, "requestId": self.client.request_id()}
        taken = self.client.call("SnapshotService/CreateSnapshot", request)["snapshot"]
        deadline, pause = time.monotonic() + timeout_s, 0.001
        while taken.get("state") == "SNAPSHOT_STATE_CREATING":
            if time.monotonic() > deadline:
                raise TimeoutError(f"snapshot {taken['id']} is not ready after {timeout_s} s")
            time.sleep(pause)
            pause = min(2 * pause, 0.1)
            taken = self.client.call("SnapshotService/GetSnapshot", {"id": taken["id"]})["snapshot"]
        if taken.get("state") != "SNAPSHOT_STATE_READY":
            why = taken.get("message") or "it was deleted"
            raise RuntimeError(f"snapshot {taken['id']} is of no use: {why}")
        return taken

    def fork(self, memory: Size | None = None, **fields: Any) -> Trajectory:
        """Opens another that begins with the files that this one has now, as Client.trajectory does.

        The snapshot is deleted: its files stay for as long as one of the two has them.
        """
        taken = self.snapshot()
        try:
            return self.client.trajectory(memory, snapshot=taken, **fields)
        finally:
            with contextlib.suppress(Error):  # what counts is whether the other was opened
                self.client.call("SnapshotService/DeleteSnapshot", {"id": taken["id"]})

    def close(self) -> None:
        """Cancels what is left of it, and gives its memory back."""
        self.client.call("TrajectoryService/CloseTrajectory", {"id": str(self.id)})

    def __enter__(self) -> Trajectory:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
