"""rLLM 0.3: a sandbox for its agent flows.

    from rota.adapters.rllm import RotaSandbox

    flow.set_sandbox(RotaSandbox("task-7", image="python:3.12", cores="1-8"))

rLLM makes sandboxes of its own by the name of a backend, and has no list of others: whoever
gives a flow its sandbox gives it this one. It is one by its methods, for rLLM's protocol.
"""

from __future__ import annotations

import subprocess
from typing import Any

from .place import Place, exit_code


class RotaSandbox:
    """A sandbox of rota. See ``place.Place`` for the options."""

    def __init__(self, name: str = "", image: str | None = None, **options: Any):
        self.name = name
        self._place = Place({**options, "image": image, **({"name": name} if name else {})})

    def exec(self, command: str, timeout: float | None = None, user: str | None = None) -> str:
        """Runs a command of the shell, and returns what it wrote to standard output.

        timeout: in seconds, from its start: what it waits in the queue does not count.

        Raises CalledProcessError if it fails, and TimeoutExpired if it took too long.
        """
        action = self._place.shell(command, user=user, timeout_s=timeout)
        if action.reason == "TIMEOUT":
            raise subprocess.TimeoutExpired(command, timeout or 0.0, action.stdout, action.stderr)
        if not action.succeeded:
            raise subprocess.CalledProcessError(exit_code(action), command, action.stdout, action.stderr)
        return action.stdout

    def upload_file(self, local_path: str, remote_path: str) -> None:
        """Copies a file into it. A relative path is below the directory of its trajectory."""
        self._place.upload(local_path, remote_path)

    def upload_dir(self, local_path: str, remote_path: str) -> None:
        """Copies a directory with all that is in it."""
        self._place.upload(local_path, remote_path)

    def download_file(self, remote_path: str) -> bytes:
        """A whole file of it. One that is not there raises FileNotFoundError."""
        return self._place.read(remote_path)

    def is_alive(self) -> bool:
        """Whether it can be used. False also if no server answers."""
        try:
            return self._place.alive()
        except Exception:
            return False

    def close(self) -> None:
        """Ends its commands, and removes its files."""
        self._place.close()
