"""Rollouts: many episodes of an agent loop, whose samples a trainer takes in batches."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import http.client
import json
import os
import random
import ssl
import threading
import time
import urllib.parse
import weakref
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Sequence

from .client import OPEN
from .errors import Error, restored
from .names import names_checked, refuse_unknown
from .rollout import Sample
from .spec import Size, seconds, size
from .trajectory import Trajectory

if TYPE_CHECKING:
    from .client import Client

#: Names the trajectory of a request to a gateway.
TRAJECTORY_HEADER = "Rota-Trajectory"
#: Why a group has no place for another trajectory.
_NO_PLACE = ("GROUP_COMPLETE", "ROLLOUT_CLOSED", "GROUP_FULL")
#: How many times as often as one that fails an episode is begun again that rota closes.
_CLOSED_TIMES = 10


class ModelError(Exception):
    """A gateway or an engine refused a request. ``status`` is that of HTTP, ``body`` what it said."""

    def __init__(self, status: int, body: bytes):
        text = body.decode(errors="replace")
        try:
            about = json.loads(text)
            text = about.get("error", about).get("message", text)
        except (ValueError, AttributeError):
            pass
        super().__init__(f"HTTP status {status}: {text}")
        self.status = status
        self.body = body

    def __reduce__(self):
        return restored, (type(self), *self.args), self.__dict__


#: The models of this process.
_models: weakref.WeakSet[Model] = weakref.WeakSet()


def _forked() -> None:
    for model in list(_models):
        model._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class Model:
    """What generates, over the API of OpenAI, with the standard library. Threads may share it.

    url: of a gateway, such as "http://127.0.0.1:8000".
    key: an API key, if the gateway asks for one.
    ca: a PEM file with the authority of the gateway's certificate, for https.
    timeout_s: how long it may be silent, in seconds.
    retry_s: how long a request is repeated that nobody has answered, or that should be made
        later, from the end of its first try; 0: never. A turn may be generated twice then, and is
        answered once.
    """

    def __init__(self, url: str, *, key: str = "", ca: str | None = None, timeout_s: float = 600.0, retry_s: float = 60.0):
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f'{url!r} is no URL of a gateway: write one such as "http://127.0.0.1:8000"')
        if not retry_s >= 0:
            raise ValueError(f"retry_s={retry_s!r}: a time in seconds, or 0 to make each request once")
        self.url = url.rstrip("/")
        self._where = (parts.hostname, parts.port)
        self._path = parts.path.rstrip("/")
        self._tls = ssl.create_default_context(cafile=ca) if parts.scheme == "https" else None
        self._key = key
        self._timeout_s = timeout_s
        self._retry_s = retry_s
        self._idle: list[http.client.HTTPConnection] = []
        self._begin()
        _models.add(self)

    def _begin(self) -> None:
        """Makes what no other process may use, at the beginning and after a fork."""
        for connection in self._idle:
            connection.close()  # the process that was forked goes on to use it
        self._idle = []
        self._lock = threading.Lock()

    def ask(self, path: str, body: Mapping[str, Any], trajectory: int = 0) -> dict:
        """One request that is not streamed, such as "/v1/chat/completions"."""
        headers = {"Content-Type": "application/json"}
        if trajectory:
            headers[TRAJECTORY_HEADER] = str(trajectory)
        if self._key:
            headers["Authorization"] = "Bearer " + self._key
        return self._until_answered(path, json.dumps(body).encode(), headers)

    def _until_answered(self, path: str, text: bytes, headers: Mapping[str, str]) -> dict:
        give_up: float | None = None
        pause = 0.05
        while True:
            try:
                status, answer, later = self._try(path, text, headers)
                if status == 200:
                    return json.loads(answer)
                error: Exception = ModelError(status, answer)
            except (OSError, http.client.HTTPException) as err:
                error, later = err, 0.0
            if give_up is None:
                give_up = time.monotonic() + self._retry_s
            if later is None or time.monotonic() + max(pause, later) > give_up:
                raise error
            time.sleep(later or pause * random.uniform(0.5, 1))
            pause = min(2 * pause, 2.0)

    def close(self) -> None:
        """Closes the connections that nobody uses."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _pop(self) -> http.client.HTTPConnection:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        if self._tls is None:
            return http.client.HTTPConnection(*self._where, timeout=self._timeout_s)
        return http.client.HTTPSConnection(*self._where, timeout=self._timeout_s, context=self._tls)

    def _try(self, path: str, text: bytes, headers: Mapping[str, str]) -> tuple[int, bytes, float | None]:
        """The status, the answer, and after how many seconds to try again; None: never."""
        connection = self._pop()
        try:
            connection.request("POST", self._path + path, text, dict(headers))
            response = connection.getresponse()
            answer = response.read()
        except BaseException:
            connection.close()
            self.close()  # the others may have been idle for too long, too
            raise
        with self._lock:
            self._idle.append(connection)
        if response.status not in (429, 502, 503, 504):
            return response.status, answer, None
        return response.status, answer, _retry_after(response.headers.get("Retry-After"))


def _retry_after(value: str | None) -> float:
    try:
        return max(0.0, float(value or 0))
    except ValueError:
        return 0.0  # a date


@names_checked
class Episode(Trajectory):
    """A trajectory of a rollout: one try at one prompt. Leaving its context closes it.

    prompt: what its group is about, as Rollout was told.
    group: which group, from 0.
    """

    def __init__(self, rollout: Rollout, trajectory: int, group: int):
        super().__init__(rollout.client, trajectory)
        self.rollout = rollout
        self.group = group
        self.prompt = rollout.prompts[group]
        self.sampled = False  # its sample is used
        self._put = False  # its sample was put into the buffer, or refused

    def chat(self, messages: Sequence[Mapping[str, Any]], **body: Any) -> dict:
        """One turn of the model: the message that it answers.

        body: other fields of a chat completion, such as max_tokens, tools and temperature.
        """
        answer = self.ask("/v1/chat/completions", messages=list(messages), **body)
        return answer["choices"][0]["message"]

    def ask(self, path: str, **body: Any) -> dict:
        """A request to the gateway, at the worker of this episode; the whole answer."""
        if self.rollout.model is None:
            raise TypeError("the rollout has no gateway: make it with gateway=URL")
        return self.rollout.model.ask(path, {"model": self.rollout.policy, **body}, self.id)

    def sample(self, reward: float, reference: str = "", tokens: int = 0) -> bool:
        """Puts the sample of this episode into the buffer, and closes the episode.

        reference: where its bytes are, such as a path or a key; at most 1,024 bytes.
        It returns whether the sample is used: it is not if the group was complete, or if the
        policy has moved on by more versions than the rollout allows.
        """
        accepted, _ = self.client.put_sample(self.id, reward=reward, tokens=tokens, reference=reference)
        self._put = True
        self.sampled = self.sampled or accepted
        return accepted


@dataclasses.dataclass
class Summary:
    """What became of the episodes of Rollout.run.

    used, unused: samples that were put into the buffer, and that were refused.
    ended: episodes that rota closed: their group was complete, or they were too old.
    failed: episodes whose loop raised an exception. ``error`` is the last of these exceptions, also of
        a loop that raised one after its sample was used.
    """

    used: int = 0
    unused: int = 0
    ended: int = 0
    failed: int = 0
    error: BaseException | None = None


@names_checked
class Rollout:
    """Prompt groups and their episodes. Leaving its context closes it.

    policy: the model that generates, and that is trained.
    prompts: one for each group; anything that the loop understands.
    samples_per_group: how many samples complete a group.
    redundant: further episodes of each group; the last are closed when it is complete.
    staleness: how many versions may have been published since an episode began.
    gateway: the URL of a gateway, or a Model. None: the loop has other means to generate.
    memory: what is kept for the environment of an episode.
    task_class: tasks of one class generate about as much; rota learns how much.
    hardware: kinds of workers, the best first.
    generates: False if no worker of rota generates for it.
    idle_timeout_s: rota closes an episode of which it has heard nothing for so long, such as one
        whose agent loop was killed. Longer than a turn or an action takes. 0: never.
    """

    def __init__(
        self,
        client: Client,
        policy: str,
        prompts: Sequence[Any],
        *,
        samples_per_group: int = 1,
        redundant: int = 0,
        staleness: int = 0,
        gateway: str | Model | None = None,
        memory: Size | None = None,
        task_class: str = "",
        hardware: Sequence[str] = (),
        generates: bool | None = None,
        name: str = "",
        idle_timeout_s: float = 0.0,
    ):
        if not prompts:
            raise ValueError("a rollout has at least one prompt")
        self.client = client
        self.policy = policy
        self.prompts = list(prompts)
        self.model = Model(gateway) if isinstance(gateway, str) else gateway
        self.episodes_per_group = samples_per_group + redundant
        self.id = 0
        self._about: dict[str, Any] = {"redundant": redundant, "staleness": staleness, "name": name}
        self._samples_per_group = samples_per_group
        self._open: dict[str, Any] = {"namespace": client.namespace}
        if memory is not None:
            self._open["memoryBytes"] = str(size(memory))
        if idle_timeout_s:
            self._open["idleTimeout"] = seconds(idle_timeout_s)
        if generates if generates is not None else self.model is not None:
            self._open["generation"] = {"policy": policy, "taskClass": task_class, "hardware": list(hardware)}

    def __enter__(self) -> Rollout:
        created = self.client.create_rollout(self.policy, len(self.prompts), self._samples_per_group, **self._about)
        self.id = int(created["id"])
        return self

    def __exit__(self, *_: Any) -> None:
        try:
            self.client.close_rollout(self.id)
        finally:
            if self.model is not None:
                self.model.close()

    def get(self) -> dict:
        """The rollout as it is now, with its counts."""
        return self.client.rollout(self.id)

    def episode(self, group: int, *, prompt_tokens: int = 0, **fields: Any) -> Episode:
        """Opens an episode of a group, for ``with``.

        prompt_tokens: the length of its prompt, if that is known.
        fields: others of OpenTrajectoryRequest, such as name.
        """
        refuse_unknown("an episode", fields, OPEN)
        request = {**self._open, "rollout": {"rolloutId": str(self.id), "group": group}, **fields}
        if "generation" in request:
            request["generation"] = {**request["generation"], "promptTokens": prompt_tokens}
        request["requestId"] = self.client.request_id()
        answer = self.client.call("TrajectoryService/OpenTrajectory", request)
        return Episode(self, int(answer["trajectory"]["id"]), group)

    def run(self, loop: Callable[[Episode], float | None], *, parallel: int = 32, tries: int = 2) -> Summary:
        """Runs a loop for each episode that the groups need, in threads, until they are complete.

        loop: returns the reward of the episode, or calls ``sample`` itself and returns None.
        parallel: how many run at once.
        tries: how often an episode is begun whose loop raises an exception. One that rota closes,
            because it is idle, too old, or on a node that is lost, is begun ten times as often.

        If it is interrupted, or the cluster refuses an episode, no further ones begin, and it
        raises the exception when those that run have ended.
        """
        return self._run(loop, parallel, tries, threading.Event())

    def _run(self, loop: Callable[[Episode], float | None], parallel: int, tries: int, stop: threading.Event) -> Summary:
        """As run. When stop is set, no further episodes begin."""
        summary, lock = Summary(), threading.Lock()

        def count(field: str, error: BaseException | None = None) -> None:
            with lock:
                setattr(summary, field, getattr(summary, field) + 1)
                summary.error = error or summary.error

        def one(group: int) -> None:
            begun = {"ended": 0, "failed": 0, "unused": 0}
            while not stop.is_set() and begun["failed"] + begun["unused"] < tries and begun["ended"] < _CLOSED_TIMES * tries:
                if (episode := self._place(group)) is None:
                    return
                with episode:
                    outcome, error = self._once(loop, episode)
                count(outcome, error)
                if outcome == "used":
                    return
                begun[outcome] += 1

        with concurrent.futures.ThreadPoolExecutor(max(1, parallel)) as pool:
            try:
                begun = [pool.submit(one, group) for _ in range(self.episodes_per_group) for group in range(len(self.prompts))]
                for done in concurrent.futures.as_completed(begun):
                    done.result()
            except BaseException:
                stop.set()
                raise
        return summary

    def _place(self, group: int) -> Episode | None:
        try:
            return self.episode(group)
        except Error as err:
            if err.reason in _NO_PLACE:
                return None
            raise

    def _once(self, loop: Callable[[Episode], float | None], episode: Episode) -> tuple[str, BaseException | None]:
        """Runs one episode, and says what became of it as Summary counts it."""
        try:
            reward = loop(episode)
            if reward is None or episode._put:
                return ("used" if episode.sampled else "unused"), None
            return ("used" if episode.sample(reward) else "unused"), None
        except Exception as err:
            if episode.sampled:
                return "used", err
            if self._ended(episode):
                return "ended", None
            return "failed", err

    def _ended(self, episode: Episode) -> bool:
        """Whether rota closed the episode, and not its loop."""
        state = self.client.call("TrajectoryService/GetTrajectory", {"id": str(episode.id)})["trajectory"]["state"]
        return state in ("TRAJECTORY_STATE_CLOSING", "TRAJECTORY_STATE_CLOSED", "TRAJECTORY_STATE_LOST")


@dataclasses.dataclass(frozen=True)
class Batch:
    """The samples of one step."""

    step: int
    samples: list[Sample]

    def groups(self) -> dict[tuple[int, int], list[Sample]]:
        """The samples by rollout and group."""
        by: dict[tuple[int, int], list[Sample]] = {}
        for sample in self.samples:
            by.setdefault((sample.rollout, sample.group), []).append(sample)
        return by


def batches(client: Client, policy: str, groups: int, *, after: int | None = None, timeout_s: float | None = None) -> Iterator[Batch]:
    """The batches of a trainer, one step after the other, each of so many complete groups.

    after: the last step whose result is safe, as a checkpoint says. None: the last step that got
        a batch is given it again, because nobody knows whether it was trained with it.
    timeout_s: how long to wait for one batch: then TimeoutError.
    """
    return _batches(client, policy, groups, threading.Event(), after, timeout_s)


def _batches(
    client: Client, policy: str, groups: int, canceled: threading.Event, after: int | None = None, timeout_s: float | None = None
) -> Iterator[Batch]:
    """As batches. The wait for one ends within ten seconds when canceled is set."""
    if after is None:
        try:
            last = int(client.policy(policy).get("step", 0))
        except Error as err:
            if err.code != "not_found":
                raise
            last = 0
        after = max(last - 1, 0)
    while True:
        after += 1
        try:
            yield Batch(after, client.get_batch(policy, after, groups, timeout_s, canceled))
        except Error as err:
            if err.reason != "GROUPS_MISSING":
                raise
            raise TimeoutError(f"after {timeout_s} s {err}") from None
