"""Clusters of workers: processes that rota starts, whose methods a driver calls (RollArt §5.2).

    class Trainer(rota.Worker):
        @rota.register
        def compute_gradients(self, batch):
            return self.rank, len(batch)

    with rota.Cluster(client, Trainer, {"h800": {"workers": 2, "cores": 4}}) as trainers:
        print(trainers.compute_gradients([1, 2, 3]))  # one result of each worker

Each worker is an action in a trajectory of its own: it has cores and memory, its output is kept,
and it is killed when the cluster is closed. A call is a file in the directory of that trajectory,
so nothing listens, and a driver may be anywhere.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import functools
import importlib
import inspect
import io
import itertools
import json
import pathlib
import threading
import time
import zipfile
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping, Sequence

from .errors import ActionFailed, Error, restored
from .spec import Size, spec
from .process import CALLS, CODE, Layout, Worker, how
from .reward import Reward

if TYPE_CHECKING:
    from .client import Client
    from .trajectory import Trajectory

#: Pauses between two looks for a result, in seconds.
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.005, 0.25
#: How often a worker's process is asked for while a result is awaited.
_ALIVE_EVERY_S = 1.0


class WorkerError(Exception):
    """A method of a worker raised an exception, or its process ended.

    trace: what it wrote. ended: its process has ended.
    """

    def __init__(self, rank: int, message: str, trace: str = "", ended: bool = False):
        super().__init__(f"worker {rank}: {message}")
        self.rank = rank
        self.trace = trace
        self.ended = ended

    def __reduce__(self):
        return restored, (type(self), *self.args), self.__dict__


class _GivenUp(Exception):
    """Nobody waits for a call any more, because another worker has ended."""


@dataclasses.dataclass(frozen=True)
class Resources:
    """What the workers of one kind of hardware get.

    workers: how many there are.
    cores, memory, gpus, pool: of each, as in rota.spec.
    """

    workers: int = 1
    cores: int | Sequence[int] = 1
    memory: Size = "256MiB"
    gpus: int | None = None
    pool: str | None = None


class _Process:
    """One worker, as the driver sees it."""

    def __init__(self, rank: int, hardware: str, trajectory: Trajectory, action: int):
        self.rank = rank
        self.hardware = hardware
        self.trajectory = trajectory
        self.action = action
        self.busy = 0
        self._numbers = itertools.count(1)
        # The results of calls that nobody waits for any more. They may come yet.
        self._late: collections.deque[str] = collections.deque()

    def call(
        self, method: str, args: Sequence[Any], kwargs: Mapping[str, Any], timeout_s: float | None, stop: threading.Event | None = None
    ) -> Any:
        """Calls a method there, and waits for what it returns, or until stop is set."""
        number = f"{next(self._numbers):08d}"
        request = {"method": method, "args": list(args), "kwargs": dict(kwargs)}
        try:
            text = json.dumps(request)
        except TypeError as err:
            raise TypeError(f"{method}: arguments and results of workers are what JSON has: {err}") from None
        self._forget_late()
        call, result = f"{CALLS}/{number}.call", f"{CALLS}/{number}.result"
        self.trajectory.files.write(call, text)
        try:
            answer = json.loads(self._result(result, method, timeout_s, stop))
        except (TimeoutError, _GivenUp):
            self._forget(call)  # it need not begin any more
            self._late.append(result)
            raise
        if "error" in answer:
            raise WorkerError(self.rank, f"{method}: {answer['error']}", answer.get("trace", ""))
        return answer["result"]

    def _result(self, path: str, method: str, timeout_s: float | None, stop: threading.Event | None) -> bytes:
        pause, begun, asked = _PAUSE_MIN_S, time.monotonic(), time.monotonic()
        ended: WorkerError | None = None
        while True:
            try:
                answer = self.trajectory.files.read(path)
            except Error as err:
                if err.reason != "FILE_NOT_FOUND":
                    raise
            else:
                self._forget(path)
                return answer
            if ended is not None:
                raise ended
            if stop is not None and stop.is_set():
                raise _GivenUp
            now = time.monotonic()
            if timeout_s is not None and now - begun > timeout_s:
                raise TimeoutError(f"worker {self.rank} has not answered {method} after {timeout_s} s")
            if now - asked > _ALIVE_EVERY_S:
                ended, asked = self._ended(), now
                if ended is not None:
                    continue  # the result may have come before the end
            time.sleep(pause)
            pause = min(1.5 * pause, _PAUSE_MAX_S)

    def _forget_late(self) -> None:
        """Removes the oldest result that came too late, if it has come."""
        if self._late and (path := self._late.popleft()) and not self._forget(path):
            self._late.append(path)

    def _forget(self, path: str) -> bool:
        try:
            self.trajectory.files.remove(path)
        except Error:
            return False  # it goes with the trajectory
        return True

    def _ended(self) -> WorkerError | None:
        action = self.trajectory.client.get(self.action)
        return WorkerError(self.rank, f"its process ended: {ActionFailed(action)}", action.stderr, ended=True) if action.ended else None


class Cluster:
    """Workers of one class, for ``with``. Methods of the class are methods of the cluster.

    worker_cls: a class that is derived from Worker, in a module (not the main one).
    resources: what the workers of each kind of hardware get, by its name: Resources, or its
        fields.
    args: arguments of the class, beside those of Worker. They are what JSON has.
    code: files and directories that the workers import, beside the module of worker_cls.
    python: the interpreter on the nodes.
    env: environment of the workers.
    timeout_s: how long one call may take; None: as long as it takes.
    layout: how the workers share a model; data-parallel only if None.
    deployment: "job/deployment": calls of methods with an operation wait for a turn of it.
    """

    def __init__(
        self,
        client: Client,
        worker_cls: type[Worker],
        resources: Mapping[str, Resources | Mapping[str, Any]],
        *,
        args: Mapping[str, Any] | None = None,
        code: Iterable[str | pathlib.Path] = (),
        python: str = "python3",
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        layout: Layout | None = None,
        deployment: str = "",
    ):
        if worker_cls.__module__ == "__main__":
            raise TypeError(f"{worker_cls.__name__} is in the main module, which workers cannot import: move it to a module")
        self.client = client
        self.worker_cls = worker_cls
        self.resources = {name: r if isinstance(r, Resources) else Resources(**r) for name, r in resources.items()}
        self.world_size = sum(r.workers for r in self.resources.values())
        self.layout = layout or Layout(dp=self.world_size)
        if self.layout.ranks != self.world_size:
            raise ValueError(f"{self.layout} has {self.layout.ranks} ranks, and there are {self.world_size} workers")
        self.deployment = deployment
        #: Of the training that calls belong to: a higher one begins the job's next cycle.
        self.step = 0
        self.workers: list[_Process] = []
        self._args = dict(args or {})
        self._code = [_source(worker_cls), *map(pathlib.Path, code)]
        self._python = python
        self._env = dict(env or {})
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None
        for name, method in inspect.getmembers(worker_cls, callable):
            if (mark := how(method)) is not None:
                if hasattr(self, name):
                    raise TypeError(f"{worker_cls.__name__}.{name}: a Cluster has {name!r} of its own: give the method another name")
                setattr(self, name, functools.partial(getattr(self, "_" + mark["how"]), name, mark))

    def __enter__(self) -> Cluster:
        bundle = _bundle(self._code)
        kinds = [(name, r) for name, r in self.resources.items() for _ in range(r.workers)]
        self._pool = concurrent.futures.ThreadPoolExecutor(max(1, self.world_size))
        try:
            for rank, (hardware, r) in enumerate(kinds):
                self.workers.append(self._start(rank, hardware, r, bundle))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Ends the processes of all workers, and what they keep."""
        workers, self.workers = self.workers, []
        failed: Error | None = None
        for worker in workers:
            try:
                worker.trajectory.close()
            except Error as err:
                failed = err  # the others have to go all the same
        if self._pool is not None:
            self._pool.shutdown(wait=False)
        if failed is not None:
            raise failed

    def _start(self, rank: int, hardware: str, r: Resources, bundle: bytes) -> _Process:
        fields = {} if r.pool is None else {"pool": r.pool}
        trajectory = self.client.trajectory(r.memory, name=f"{self.worker_cls.__name__} {rank}", **fields)
        try:
            trajectory.files.write(CODE, bundle)
            trajectory.files.mkdir(CALLS)
            about = {
                "class": f"{self.worker_cls.__module__}:{self.worker_cls.__qualname__}", "args": self._args,
                "rank": rank, "world_size": self.world_size, "hardware": hardware,
                "layout": dataclasses.asdict(self.layout),
            }  # fmt: skip
            argv = [self._python, "-c", "from rota import process; process.main()", json.dumps(about)]
            path = [CODE, self._env.get("PYTHONPATH")]
            env = {**self._env, "PYTHONPATH": ":".join(filter(None, path))}
            action = spec(argv, env=env, cores=r.cores, gpus=r.gpus, name=f"worker {rank}", resizable=False)
            return _Process(rank, hardware, trajectory, trajectory.submit(action)[0])
        except BaseException:
            trajectory.close()
            raise

    def _started(self) -> list[_Process]:
        if not self.workers:
            raise RuntimeError("the cluster is not started: use it in a with statement")
        return self.workers

    def _call(
        self, worker: _Process, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], stop: threading.Event | None = None
    ) -> Any:
        """Calls a method of a worker."""
        return self._carry_out(self._take([worker]), name, args, kwargs, stop)

    def _take(self, workers: Sequence[_Process]) -> _Process:
        """The least busy worker of some, which is busier from then on."""
        with self._lock:
            worker = min(workers, key=lambda w: (w.busy, w.rank))
            worker.busy += 1
        return worker

    def _carry_out(
        self, worker: _Process, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], stop: threading.Event | None = None
    ) -> Any:
        """Calls a method of a worker that was taken."""
        try:
            return worker.call(name, args, kwargs, self._timeout_s, stop)
        except WorkerError as err:
            if stop is not None and err.ended:
                stop.set()
            raise
        finally:
            with self._lock:
                worker.busy -= 1

    def _all(self, name: str, mark: dict, *args: Any, **kwargs: Any) -> Any:
        """Calls a method of all workers, and gathers their results (execute_all)."""
        if not mark["operation"] or not self.deployment:
            return self._execute_all(name, mark, args, kwargs)
        with self.client.turn(self.deployment, operation=mark["operation"], step=self.step):
            return self._execute_all(name, mark, args, kwargs)

    def _execute_all(self, name: str, mark: dict, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        # The others may wait for a worker that has ended, for ever.
        calls, stop = [], threading.Event()
        for worker in self._started():
            one, named = args, kwargs
            if mark["dispatch"] == "split":
                one = [self.layout.split(worker.rank, arg) for arg in args]
                named = {key: self.layout.split(worker.rank, arg) for key, arg in kwargs.items()}
            calls.append(self._pool.submit(self._call, worker, name, one, named, stop))
        concurrent.futures.wait(calls)
        for failed in (call.exception() for call in calls):
            if failed is not None and not isinstance(failed, _GivenUp):
                raise failed
        return self.layout.gather(mark["gather"], [call.result() for call in calls])

    def _one(self, name: str, mark: dict, *args: Any, tag_name: str = "", **kwargs: Any) -> Any:
        """Calls a method of the least busy worker on the hardware that a tag prefers."""
        affinity = mark["affinity"]
        preferred = affinity.get(tag_name, affinity.get("default", ()))
        workers = self._started()
        for hardware in [preferred] if isinstance(preferred, str) else preferred:
            if suited := [worker for worker in workers if worker.hardware == hardware]:
                workers = suited
                break
        return self._carry_out(self._take(workers), name, args, kwargs)

    def _serverless(self, name: str, mark: dict, *args: Any, **kwargs: Any) -> Any:
        """Runs a method here, with a function in the place of one attribute."""
        proxy: Reward | Serverless
        if mark["reward"]:
            proxy = Reward(mark["reward"], mark["gateway"], **mark["options"])
        else:
            proxy = Serverless(self.client, mark["url"], **mark["options"])
        worker = self.worker_cls.__new__(self.worker_cls)
        setattr(worker, mark["attr"], proxy)
        try:
            return getattr(self.worker_cls, name)(worker, *args, **kwargs)
        finally:
            proxy.close()


class Serverless:
    """A function behind a URL. Each call is an action: queued, limited by quotas, repeated.

    client: of the cluster whose agents make the calls.
    url: where its argument is posted as JSON, and answered with JSON of at most 4 KiB.
    fields: others of rota.spec, such as quotas and timeout_s.
    """

    def __init__(self, client: Client, url: str, **fields: Any):
        self._client = client
        self._url = url
        self._fields = fields

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if args and kwargs:
            raise TypeError("give a function keyword arguments, or positional ones")
        body = kwargs or (args[0] if len(args) == 1 else list(args))
        headers = {"Content-Type": "application/json"}
        call = {"url": self._url, "method": "POST", "headers": headers, "body": json.dumps(body)}
        action = self._client.run(http=call, **self._fields)
        if not action.succeeded:
            raise ActionFailed(action)
        return json.loads(action.stdout)

    def close(self) -> None:
        """Does nothing: the connections are those of the client."""


def _source(worker_cls: type) -> pathlib.Path:
    """The file of a class's module, or the directory of its package."""
    top = worker_cls.__module__.partition(".")[0]
    file = inspect.getfile(importlib.import_module(top))
    path = pathlib.Path(file)
    return path.parent if path.name == "__init__.py" else path


def _bundle(code: Iterable[pathlib.Path]) -> bytes:
    """A ZIP archive of this package and of the code of workers, which Python imports from."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        names = set()
        for path in [pathlib.Path(__file__).parent, *code]:
            files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
            for file in files:
                name = str(pathlib.Path(path.name) / file.relative_to(path)) if path.is_dir() else file.name
                if name not in names:
                    names.add(name)
                    out.writestr(zipfile.ZipInfo(name), file.read_bytes())
    return archive.getvalue()
