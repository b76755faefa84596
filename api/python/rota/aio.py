"""The client whose methods are coroutines: each call blocks a thread, not the loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import datetime
import functools
import threading
from typing import Any, AsyncIterator, Awaitable, BinaryIO, Callable, Iterable, List, Mapping, Sequence, TypeVar

from .background import Output, Process
from .client import Client, check_input
from .cluster import Cluster
from .episode import Batch, Episode, Rollout, Summary, _batches
from .errors import ActionFailed, Error, TurnLost
from .files import File, Files
from .job import Cycle, Job
from .many import Command
from .names import names_checked
from .rollout import Sample
from .spec import Action, Size, Submission, spec
from .threads import briefly, in_background, in_thread, opening
from .trajectory import Trajectory
from .turn import Turn

Done = TypeVar("Done")


@names_checked
class AsyncClient:
    """As Client, for asyncio.

    A call that is canceled may be carried out all the same. What it would have opened, submitted or
    created without the caller knowing its number is closed or canceled then.
    """

    def __init__(self, *servers: str, **options: Any):
        self.blocking = Client(*servers, **options)

    async def call(self, method: str, request: dict | None = None) -> dict:
        return await in_thread(self.blocking.call, method, request)  # which may wait for what others do

    async def submit(self, *specs: dict, request_id: str | None = None) -> Submission:
        """As Client.submit. If it is canceled, so are its actions, unless it has a request_id."""
        submitted = functools.partial(self.blocking.submit, *specs, request_id=request_id)
        if request_id is not None:
            return await opening(submitted)  # the caller can repeat it
        return await _or_undone(submitted, lambda ids: self.blocking.cancel(*ids))

    async def get(self, action: int) -> Action:
        return await briefly(self.blocking.get, action)

    async def cancel(self, *actions: int) -> None:
        await briefly(self.blocking.cancel, *actions)

    def logs(
        self, action: int, *, since: datetime.datetime | float | None = None, follow: bool = False, times: bool = False
    ) -> AsyncIterator[Output]:
        """As Client.logs, for ``async for``."""
        return AsyncProcess(self, action).output(follow, since=since, times=times)

    async def wait(self, action: int, timeout_s: float | None = None) -> Action:
        """As Client.wait; no thread waits while the action runs."""

        async def poll() -> Action:
            pause = 0.01
            while not (now := await self.get(action)).ended:
                await asyncio.sleep(pause)
                pause = min(2 * pause, 0.5)
            return await in_thread(self.blocking.whole, now) if now.truncated else now

        try:
            return await asyncio.wait_for(poll(), timeout_s)
        except asyncio.TimeoutError:
            raise TimeoutError(f"action {action} has not ended after {timeout_s} s") from None

    async def run(
        self, argv: Sequence[str] | None = None, *, check: bool = False, stdin: bytes | str | BinaryIO | None = None, **fields: Any
    ) -> Action:
        """As Client.run. If it is canceled, or fails, so is its action."""
        check_input(stdin, fields)
        process = await self.start(argv, stdin=stdin is not None, **fields)
        try:
            if stdin is not None:
                await process.feed(stdin)
            action = await self.wait(process.id)
        except (Exception, asyncio.CancelledError):
            with contextlib.suppress(Error):
                await asyncio.shield(self.cancel(process.id))  # nobody waits for it
            raise
        if check and not action.succeeded:
            raise ActionFailed(action)
        return action

    async def start(self, argv: Sequence[str] | None = None, **fields: Any) -> AsyncProcess:
        """As Client.start."""
        ids = await self.submit(spec(argv, **fields))
        return AsyncProcess(self, ids[0])

    async def map(self, commands: Iterable[Command], *, parallel: int = 256, check: bool = False, progress: bool = True, **fields: Any) -> List[Action]:
        """As Client.map. If it is canceled, so are its actions."""
        stop = threading.Event()
        work = asyncio.ensure_future(in_thread(self.blocking._map, commands, parallel, check, progress, fields, stop))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            stop.set()
            await asyncio.wait([work])
            if not work.cancelled():
                work.exception()  # nobody is told
            raise

    async def list(self, **about: Any) -> List[Action]:
        return await briefly(lambda: self.blocking.list(**about))

    async def trajectories(self, **about: Any) -> List[dict]:
        return await briefly(lambda: self.blocking.trajectories(**about))

    async def summaries(self, **about: Any) -> List[dict]:
        return await briefly(lambda: self.blocking.summaries(**about))

    async def create_node_group(self, name: str, nodes: int) -> dict:
        return await briefly(self.blocking.create_node_group, name, nodes)

    async def submit_job(self, name: str, nodes: int, cycle: Cycle | None = None, **about: Any) -> Job:
        return await briefly(lambda: self.blocking.submit_job(name, nodes, cycle, **about))

    async def jobs(self, **about: Any) -> List[Job]:
        return await briefly(lambda: self.blocking.jobs(**about))

    async def job(self, name: str) -> Job:
        return await briefly(self.blocking.job, name)

    async def suspend_job(self, name: str) -> Job:
        return await briefly(self.blocking.suspend_job, name)

    async def resume_job(self, name: str) -> Job:
        return await briefly(self.blocking.resume_job, name)

    async def complete_job(self, name: str) -> Job:
        return await briefly(self.blocking.complete_job, name)

    async def delete_job(self, name: str) -> None:
        await briefly(self.blocking.delete_job, name)

    async def register_engine(self, model: str, argv: Sequence[str], driver: str, **about: Any) -> dict:
        return await briefly(lambda: self.blocking.register_engine(model, argv, driver, **about))

    async def engines(self) -> List[dict]:
        return await briefly(self.blocking.engines)

    async def remove_engine(self, model: str) -> None:
        await briefly(self.blocking.remove_engine, model)

    async def migrate(self, source: str, target: str, **about: Any) -> int:
        return await _or_undone(lambda: self.blocking.migrate(source, target, **about), self.blocking.cancel_migration)

    async def migration(self, migration: int) -> dict:
        return await briefly(self.blocking.migration, migration)

    async def migrations(self, live: bool = False, **only: Any) -> List[dict]:
        return await briefly(lambda: self.blocking.migrations(live, **only))

    async def cancel_migration(self, migration: int) -> None:
        await briefly(self.blocking.cancel_migration, migration)

    async def create_rollout(self, policy: str, groups: int, samples_per_group: int, **about: Any) -> dict:
        created = functools.partial(self.blocking.create_rollout, policy, groups, samples_per_group, **about)
        return await _or_undone(created, lambda rollout: self.blocking.close_rollout(rollout["id"]))

    async def close_rollout(self, rollout: int) -> dict:
        return await briefly(self.blocking.close_rollout, rollout)

    async def rollout(self, rollout: int) -> dict:
        return await briefly(self.blocking.rollout, rollout)

    async def rollouts(self, policy: str = "", include_ended: bool = False) -> List[dict]:
        return await briefly(self.blocking.rollouts, policy, include_ended)

    async def open_member(self, rollout: int, group: int, **about: Any) -> int:
        return await _or_undone(lambda: self.blocking.open_member(rollout, group, **about), self._closed)

    async def put_sample(self, trajectory: int, **about: Any) -> tuple[bool, str]:
        return await briefly(lambda: self.blocking.put_sample(trajectory, **about))

    async def get_batch(self, policy: str, step: int, groups: int, wait_s: float | None = None) -> List[Sample]:
        """As Client.get_batch. A thread waits; one that is canceled waits for ten seconds more."""
        canceled = threading.Event()
        try:
            return await in_thread(self.blocking.get_batch, policy, step, groups, wait_s, canceled)
        except asyncio.CancelledError:
            canceled.set()
            raise

    async def publish_version(self, policy: str, version: int) -> int:
        return await briefly(self.blocking.publish_version, policy, version)

    async def suspend_policy(self, policy: str) -> None:
        await briefly(self.blocking.suspend_policy, policy)

    async def resume_policy(self, policy: str) -> None:
        await briefly(self.blocking.resume_policy, policy)

    async def policy(self, policy: str) -> dict:
        return await briefly(self.blocking.policy, policy)

    async def policies(self) -> List[dict]:
        return await briefly(self.blocking.policies)

    async def register_worker(self, name: str, policy: str, url: str, token_s: Mapping[int, float], **about: Any) -> dict:
        return await briefly(lambda: self.blocking.register_worker(name, policy, url, token_s, **about))

    async def update_worker(self, name: str, **about: Any) -> dict:
        return await briefly(lambda: self.blocking.update_worker(name, **about))

    async def remove_worker(self, name: str) -> None:
        await briefly(self.blocking.remove_worker, name)

    async def worker(self, name: str) -> dict:
        return await briefly(self.blocking.worker, name)

    async def workers(self, policy: str = "") -> List[dict]:
        return await briefly(self.blocking.workers, policy)

    async def set_affinity(self, policy: str, task_class: str = "", hardware: Sequence[str] = (), **about: Any) -> None:
        await briefly(lambda: self.blocking.set_affinity(policy, task_class, hardware, **about))

    async def remove_affinity(self, policy: str, task_class: str = "") -> None:
        await briefly(self.blocking.remove_affinity, policy, task_class)

    async def affinities(self, policy: str = "") -> List[dict]:
        return await briefly(self.blocking.affinities, policy)

    async def open_generation(self, policy: str, **about: Any) -> int:
        return await _or_undone(lambda: self.blocking.open_generation(policy, **about), self._closed)

    def _closed(self, trajectory: int) -> None:
        self.blocking.call("TrajectoryService/CloseTrajectory", {"id": str(trajectory)})

    async def suspend_trajectory(self, trajectory: int) -> None:
        await briefly(self.blocking.suspend_trajectory, trajectory)

    async def resume_trajectory(self, trajectory: int) -> None:
        await briefly(self.blocking.resume_trajectory, trajectory)

    def turn(self, deployment: str, **about: Any) -> AsyncTurn:
        """A turn of "job/deployment", for ``async with``. See Turn for the arguments."""
        return AsyncTurn(self, deployment, **about)

    def close(self) -> None:
        """Closes the connections that nobody uses."""
        self.blocking.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: Any) -> None:
        self.close()

    def trajectory(self, memory: Size | None = None, **fields: Any) -> AsyncTrajectory:
        """A session of actions; it is opened by ``async with``."""
        return AsyncTrajectory(self, memory, fields)


@names_checked
class AsyncFiles:
    """As Files, for ``await``."""

    def __init__(self, client: AsyncClient, trajectory: int):
        self.blocking = Files(client.blocking, trajectory)

    async def list(self, path: str = "") -> List[File]:
        return await briefly(self.blocking.list, path)

    async def stat(self, path: str) -> File:
        return await briefly(self.blocking.stat, path)

    async def read(self, path: str) -> bytes:
        return await in_thread(self.blocking.read, path)

    async def read_text(self, path: str, encoding: str = "utf-8") -> str:
        return await in_thread(self.blocking.read_text, path, encoding)

    async def write(self, path: str, content: bytes | str, mode: int = 0o644) -> None:
        await in_thread(self.blocking.write, path, content, mode)

    async def mkdir(self, path: str) -> None:
        await briefly(self.blocking.mkdir, path)

    async def move(self, path: str, new_path: str) -> None:
        await briefly(self.blocking.move, path, new_path)

    async def remove(self, path: str, recursive: bool = False) -> None:
        await briefly(self.blocking.remove, path, recursive)


@names_checked
class AsyncTrajectory:
    """As Trajectory, for ``async with``, which ``files``, ``pause``, ``resume``, ``usage``, ``snapshot`` and ``fork`` need, too."""

    blocking: Trajectory
    files: AsyncFiles

    def __init__(self, client: AsyncClient, memory: Size | None, fields: dict, of: Trajectory | None = None):
        self.client = client
        self.id = 0
        self._open = (of.fork if of else client.blocking.trajectory, memory, fields)
        self._forks = of is not None  # waits for what runs there, and for copies

    async def __aenter__(self) -> AsyncTrajectory:
        how, memory, fields = self._open
        opened = await _or_undone(lambda: how(memory, **fields), Trajectory.close, in_thread if self._forks else opening)
        self.id, self.blocking = opened.id, opened
        self.files = AsyncFiles(self.client, self.id)
        return self

    async def __aexit__(self, *_: Any) -> None:
        await asyncio.shield(self.client.call("TrajectoryService/CloseTrajectory", {"id": str(self.id)}))

    async def pause(self) -> bool:
        return await in_thread(self.blocking.pause)

    async def resume(self) -> bool:
        return await briefly(self.blocking.resume)

    async def usage(self, interval_s: float = 0) -> dict:
        return await in_thread(self.blocking.usage, interval_s)

    async def snapshot(self, name: str = "", timeout_s: float = 600) -> dict:
        return await in_thread(self.blocking.snapshot, name, timeout_s)

    def fork(self, memory: Size | None = None, **fields: Any) -> AsyncTrajectory:
        """As Trajectory.fork; it is opened by ``async with``, with the files of that moment."""
        return AsyncTrajectory(self.client, memory, fields, self.blocking)

    async def submit(self, *specs: dict) -> Submission:
        return await self.client.submit(*({**one, "trajectoryId": str(self.id)} for one in specs))

    async def run(self, argv: Sequence[str] | None = None, *, check: bool = False, **fields: Any) -> Action:
        return await self.client.run(argv, check=check, trajectory=self.id, **fields)

    async def start(self, argv: Sequence[str] | None = None, **fields: Any) -> AsyncProcess:
        return await self.client.start(argv, trajectory=self.id, **fields)


@names_checked
class AsyncProcess:
    """As Process, for ``async with``."""

    def __init__(self, client: AsyncClient, action: int):
        self.client = client
        self.id = action
        self.blocking = Process(client.blocking, action)

    async def write(self, data: bytes | str) -> None:
        await in_thread(self.blocking.write, data)

    async def close_stdin(self) -> None:
        await in_thread(self.blocking.close_stdin)

    async def feed(self, data: bytes | str | BinaryIO) -> None:
        await in_thread(self.blocking.feed, data)

    async def send_signal(self, signal: str | int, all: bool = False) -> None:
        await briefly(self.blocking.send_signal, signal, all)

    async def resize(self, rows: int, columns: int) -> None:
        await briefly(self.blocking.resize, rows, columns)

    async def poll(self) -> Action | None:
        return await briefly(self.blocking.poll)

    async def wait(self, timeout_s: float | None = None, *, check: bool = False) -> Action:
        action = await self.client.wait(self.id, timeout_s)
        if check and not action.succeeded:
            raise ActionFailed(action)
        return action

    async def cancel(self) -> None:
        await self.client.cancel(self.id)

    async def output(
        self, follow: bool = True, *, since: datetime.datetime | float | None = None, times: bool = False
    ) -> AsyncIterator[Output]:
        """As Process.output; a thread waits for each piece."""
        left = threading.Event()
        pieces = self.blocking._output(follow, since, times, left)
        try:
            while (piece := await in_thread(lambda: next(pieces, None))) is not None:
                yield piece
        finally:
            left.set()
            with contextlib.suppress(ValueError):  # a thread waits for the next piece
                pieces.close()

    async def __aenter__(self) -> AsyncProcess:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await asyncio.shield(briefly(self.blocking.__exit__))


class AsyncEpisode:
    """As Episode, for ``async with``. Its requests to the model wait in threads of the rollout."""

    def __init__(self, client: AsyncClient, episode: Episode, threads: concurrent.futures.Executor | None = None):
        self.blocking = episode
        self._threads = threads
        self.client = client
        self.id, self.group, self.prompt = episode.id, episode.group, episode.prompt
        self.files = AsyncFiles(client, episode.id)

    async def chat(self, messages: Sequence[Any], **body: Any) -> dict:
        return await self._thread(lambda: self.blocking.chat(messages, **body))

    async def ask(self, path: str, **body: Any) -> dict:
        return await self._thread(lambda: self.blocking.ask(path, **body))

    async def _thread(self, ask: Callable[[], dict]) -> dict:
        if self._threads is None:
            return await in_thread(ask)
        return await asyncio.get_running_loop().run_in_executor(self._threads, contextvars.copy_context().run, ask)

    async def run(self, argv: Sequence[str] | None = None, *, check: bool = False, **fields: Any) -> Action:
        return await self.client.run(argv, check=check, trajectory=self.id, **fields)

    async def sample(self, reward: float, reference: str = "", tokens: int = 0) -> bool:
        return await briefly(self.blocking.sample, reward, reference, tokens)

    async def __aenter__(self) -> AsyncEpisode:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await asyncio.shield(briefly(self.blocking.close))


class AsyncRollout:
    """As Rollout, for ``async with``: its loops are coroutines."""

    def __init__(self, client: AsyncClient, policy: str, prompts: Sequence[Any], **about: Any):
        self.client = client
        self.blocking = Rollout(client.blocking, policy, prompts, **about)

    async def __aenter__(self) -> AsyncRollout:
        await _or_undone(self.blocking.__enter__, Rollout.__exit__)
        return self

    async def __aexit__(self, *_: Any) -> None:
        await asyncio.shield(briefly(self.blocking.__exit__))

    async def get(self) -> dict:
        return await briefly(self.blocking.get)

    async def episode(self, group: int, **fields: Any) -> AsyncEpisode:
        return AsyncEpisode(self.client, await _or_undone(lambda: self.blocking.episode(group, **fields), Episode.close))

    async def run(self, loop: Callable[[AsyncEpisode], Awaitable[float | None]], *, parallel: int = 32, tries: int = 2) -> Summary:
        """As Rollout.run. Each episode is a coroutine in the caller's event loop.

        If it is canceled, so are the loops that run, and their episodes are closed.
        """
        caller, stop = asyncio.get_running_loop(), threading.Event()
        tasks: set[Any] = set()
        threads = concurrent.futures.ThreadPoolExecutor(max(1, parallel))

        async def in_loop(episode: Episode) -> float | None:
            if stop.is_set():
                raise asyncio.CancelledError
            task = asyncio.current_task()
            tasks.add(task)
            try:
                return await loop(AsyncEpisode(self.client, episode, threads))
            finally:
                tasks.discard(task)

        def one(episode: Episode) -> float | None:
            return asyncio.run_coroutine_threadsafe(in_loop(episode), caller).result()

        episodes = asyncio.ensure_future(in_thread(self.blocking._run, one, parallel, tries, stop))
        try:
            return await asyncio.shield(episodes)
        except asyncio.CancelledError:
            stop.set()
            for task in list(tasks):
                task.cancel()
            await asyncio.wait([episodes])
            if not episodes.cancelled():
                episodes.exception()  # nobody is told
            raise
        finally:
            threads.shutdown(wait=False)


class AsyncCluster:
    """As Cluster, for ``async with``: the methods of its workers are coroutines."""

    def __init__(self, client: AsyncClient, *args: Any, **about: Any):
        self.blocking = Cluster(client.blocking, *args, **about)

    async def __aenter__(self) -> AsyncCluster:
        await _or_undone(self.blocking.__enter__, Cluster.close)
        return self

    async def __aexit__(self, *_: Any) -> None:
        await asyncio.shield(briefly(self.blocking.close))

    @property
    def step(self) -> int:
        """Of the training that calls belong to: a higher one begins the job's next cycle."""
        return self.blocking.step

    @step.setter
    def step(self, step: int) -> None:
        self.blocking.step = step

    def __getattr__(self, name: str) -> Any:
        if name == "blocking" or name.startswith("_"):  # also before there is a blocking one, as in a copy
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        found = getattr(self.blocking, name)
        if not callable(found) or isinstance(found, type):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            return await in_thread(found, *args, **kwargs)

        return call


async def async_batches(client: AsyncClient, policy: str, groups: int, **about: Any) -> AsyncIterator[Batch]:
    """As batches, for ``async for``. A thread waits; one that is canceled waits for ten seconds more."""
    canceled = threading.Event()
    one_by_one = _batches(client.blocking, policy, groups, canceled, **about)
    try:
        while True:
            yield await in_thread(next, one_by_one)
    finally:
        canceled.set()


class AsyncTurn(Turn):
    """As Turn, for ``async with``. The task in its body is canceled when the turn is lost.

    That arrives as TurnLost. Its lease is renewed by a thread, so that a loop that is
    busy does not lose it.
    """

    def __init__(self, client: AsyncClient, deployment: str, **about: Any):
        super().__init__(client.blocking, deployment, **about)
        self._user_on_lost, self.on_lost = self.on_lost, self._interrupt
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task | None = None
        self._inside = False
        self._interrupted = False

    def __enter__(self) -> Any:
        raise TypeError("a turn of an AsyncClient is for async with")

    async def __aenter__(self) -> AsyncTurn:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        ready = asyncio.Event()
        self._notify = lambda: self._tell(ready.set)
        try:
            self._begin()
            try:
                await asyncio.wait_for(ready.wait(), self._timeout_s)
            except asyncio.TimeoutError:
                pass
            self._granted(self._ready.is_set())
        except BaseException:
            await _in_thread(self._give_up)
            raise
        self._inside = True
        return self

    async def __aexit__(self, kind: Any, err: BaseException | None, _: Any) -> None:
        self._inside = False
        ours = self._interrupted and isinstance(err, asyncio.CancelledError)
        try:
            await _in_thread(self._leave, TurnLost(self, self._why) if ours else err)
        except asyncio.CancelledError:
            if ours or not self._interrupted:
                raise
            ours = True  # it arrived when the body was over
        if ours and self._canceled_by_us_alone():
            raise TurnLost(self, self._why) from None

    def _canceled_by_us_alone(self) -> bool:
        uncancel = getattr(self._task, "uncancel", None)  # since Python 3.11
        return uncancel is None or uncancel() == 0

    def _interrupt(self, _: Turn) -> None:
        """Is called by the thread that renews."""
        self._tell(self._cancel)
        if self._user_on_lost is not None:
            self._user_on_lost(self)

    def _cancel(self) -> None:
        if self._inside and not self._interrupted:
            self._interrupted = True
            self._task.cancel()

    def _tell(self, what: Callable[[], Any]) -> None:
        try:
            self._loop.call_soon_threadsafe(what)
        except RuntimeError:
            pass  # the loop is gone, and with it whoever would listen


async def _or_undone(do: Callable[[], Done], undo: Callable[[Done], Any], how: Callable[..., Awaitable[Any]] = opening) -> Done:
    """Does something in a thread. If the task is canceled meanwhile, the thread undoes what it has done.

    The cancellation does not wait for that.
    """
    lock, canceled, done = threading.Lock(), threading.Event(), []

    def undone(result: Done) -> None:
        with contextlib.suppress(Error):  # nobody is told
            undo(result)

    def run() -> None:
        if canceled.is_set():
            return
        result = do()
        with lock:
            if not canceled.is_set():
                done.append(result)
                return
        undone(result)

    work = asyncio.ensure_future(how(run))
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        with lock:
            canceled.set()
        if done:  # it had just ended
            in_background(lambda: undone(done[0]))
        work.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # nobody is told
        raise
    return done[0]


async def _in_thread(func: Callable[..., Any], *args: Any) -> None:
    """Runs to its end although the task is canceled meanwhile, in a thread of its own.

    Those of the loop may all wait for what this one gives back.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future = loop.create_future()

    def run() -> None:
        try:
            func(*args)
        except Exception as err:
            loop.call_soon_threadsafe(done.set_exception, err)
        else:
            loop.call_soon_threadsafe(done.set_result, None)

    threading.Thread(target=run, daemon=True).start()
    canceled = False
    while not done.done():
        try:
            await asyncio.wait([done])
        except asyncio.CancelledError:
            canceled = True
    if done.exception() is not None and not canceled:
        raise done.exception()
    if canceled:
        raise asyncio.CancelledError
