"""One sandbox, as all adapters use it."""

from __future__ import annotations

import functools
import pathlib
import re
import tarfile
import tempfile
import threading
from typing import Any, Mapping, Sequence

from ..client import Client
from ..trajectory import Trajectory
from ..errors import ActionFailed, Error
from ..names import refuse_unknown
from ..spec import Action, Cores, seconds

_OPTIONS = {
    "addr", "namespace", "image", "network", "memory", "cores", "env", "dir", "lifetime_s", "idle_timeout_s", "labels", "name", "pool", "timeout_s",
}

#: What commands say of a file that is not there.
_NOT_THERE = "No such file or directory"


class Place:
    """A trajectory that is opened when it is first used.

    Options, which are those of the adapters:

    addr, namespace: the servers, and the namespace; those of the environment, as for ``rota.Client``.
    image, network: the container (docs/sandboxes.md); without, commands are processes of the node.
    memory: of all of its commands together, such as "2GiB".
    cores: of each command: 2, "1-8" for one to eight, or [1, 2, 4].
    env, dir: environment of all commands, and the working directory of those that name none.
    lifetime_s, idle_timeout_s: it closes by itself so long after it was opened, or without a command.
        By default after half an hour without a command, since whoever uses it may die.
    labels, name, pool: as for ``rota.Client.trajectory``.
    timeout_s: of a command that names none.
    """

    def __init__(self, options: Mapping[str, Any] | None = None):
        given = dict(options or {})
        refuse_unknown("a sandbox", given, _OPTIONS)
        self.client: Client = connect(given.pop("addr", ""), given.pop("namespace", None))
        self._cores = cores(given.pop("cores", None))
        self._timeout_s: float | None = given.pop("timeout_s", None)
        lifetime_s = given.pop("lifetime_s", None)
        given["idleTimeout"] = seconds(given.pop("idle_timeout_s", 1800))
        given.update({name: dict(given[name]) for name in ("env", "labels") if given.get(name)})  # of OmegaConf, too
        self._about = {**given, "timeout_s": lifetime_s}
        self._lock = threading.Lock()
        self._closed = False
        self._trajectory: Trajectory | None = None

    @property
    def trajectory(self) -> Trajectory:
        """Its trajectory. The first use opens it."""
        with self._lock:
            if self._closed:
                raise Error("this sandbox is closed", "failed_precondition")
            if self._trajectory is None:
                self._trajectory = self.client.trajectory(**self._about)
            return self._trajectory

    def run(self, argv: Sequence[str], *, timeout_s: float | None = None, cwd: str | None = None, **fields: Any) -> Action:
        """Runs a command, and returns what became of it with all that it wrote."""
        limit = self._timeout_s if timeout_s is None else timeout_s
        return self.trajectory.run(argv, cores=self._cores, timeout_s=limit, cwd=cwd or None, **fields)

    def shell(self, command: str, *, user: str | None = None, **fields: Any) -> Action:
        """Runs a command of the shell, as another user than that of the sandbox if it may do that."""
        if user and user != "root":
            return self.run(["su", "-s", "/bin/sh", user, "-c", command], **fields)
        return self.run(["sh", "-c", command], **fields)

    def read(self, path: str) -> bytes:
        """A whole file. One that is not there raises FileNotFoundError.

        A relative path is below the directory of the trajectory; an absolute one is anywhere.
        """
        if not path.startswith("/"):
            try:
                return self.trajectory.files.read(path)
            except Error as err:
                raise _missing(err, path) from None
        action = self.run(["cat", "--", path], env={"LC_ALL": "C"})
        if action.exit_code and _NOT_THERE in action.stderr:
            raise FileNotFoundError(action.stderr.strip())
        self._must(action)
        if action.truncated:
            raise Error(f"{path} is larger than the output that a node keeps: give a path below the trajectory's directory")
        return action.stdout_bytes

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Writes a whole file, and makes the directories above it.

        A relative path is below the directory of the trajectory; an absolute one is anywhere.
        """
        if not path.startswith("/"):
            self.trajectory.files.write(path, data, mode)
            return
        script = 'mkdir -p -- "$(dirname -- "$1")" && cat > "$1"' + (' && chmod +x -- "$1"' if mode & 0o111 else "")
        self._must(self.run(["sh", "-c", script, "sh", path], stdin=data))

    def upload(self, source: str | pathlib.Path, target: str) -> None:
        """Copies a file, or a directory with all that is in it, from this machine."""
        source = pathlib.Path(source)
        if not source.is_dir():
            executable = bool(source.stat().st_mode & 0o111)
            self.write(target, source.read_bytes(), 0o755 if executable else 0o644)
            return
        # -o: the files belong to whoever extracts them, also for root. GNU tar and BusyBox know it.
        script = 'case $1 in /*) to=$1 ;; *) to=$ROTA_TRAJECTORY_DIR/$1 ;; esac; mkdir -p -- "$to" && tar -xof - -C "$to"'
        with tempfile.TemporaryFile() as archive:
            with tarfile.open(fileobj=archive, mode="w") as tar:
                tar.add(source, arcname=".")
            archive.seek(0)
            self._must(self.run(["sh", "-c", script, "sh", target], stdin=archive))

    def _must(self, action: Action) -> None:
        if not action.succeeded:
            raise ActionFailed(action)

    def alive(self) -> bool:
        """Whether it is open, or can be."""
        with self._lock:
            if self._closed or self._trajectory is None:
                return not self._closed
            trajectory = self._trajectory
        answer = self.client.call("TrajectoryService/GetTrajectory", {"id": str(trajectory.id)})
        return answer["trajectory"]["state"] in ("TRAJECTORY_STATE_PENDING", "TRAJECTORY_STATE_OPEN")

    def close(self) -> None:
        """Ends its commands, and removes its files. Nothing can be done with it afterwards."""
        with self._lock:
            self._closed = True
            trajectory, self._trajectory = self._trajectory, None
        if trajectory is not None:
            trajectory.close()


@functools.lru_cache(maxsize=None)
def connect(addr: str, namespace: str | None) -> Client:
    """The client of this process for a cluster. It is never closed."""
    return Client(*([addr] if addr else []), namespace=namespace)


def cores(value: Any) -> Cores | None:
    """Cores as a configuration file has them: 2, "1-8", [1, 2, 4]."""
    if isinstance(value, str):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", value.strip())
        if match is None:
            raise ValueError(f'cores={value!r} must be a number, or a range such as "1-8"')
        return range(int(match[1]), int(match[2]) + 1) if match[2] else int(match[1])
    return value if value is None or isinstance(value, (int, range)) else [int(n) for n in value]


def exit_code(action: Action) -> int:
    """The exit code as a shell says it: 128 and the signal for a command that a signal has ended.

    Raises ActionFailed for an action that ended for a reason of the cluster.
    """
    if action.exit_code is not None:
        return action.exit_code
    if action.reason == "SIGNALED":
        return 128 + action.raw["result"].get("signal", 0)
    if action.reason == "OUT_OF_MEMORY":
        return 137
    if action.reason == "TIMEOUT":
        return 124
    raise ActionFailed(action)


def _missing(err: Error, path: str) -> Exception:
    return FileNotFoundError(path) if err.reason == "FILE_NOT_FOUND" else err
