"""The client whose methods block."""

from __future__ import annotations

import contextlib
import copy
import datetime
import http.client
import inspect
import itertools
import json
import os
import random
import re
import secrets
import ssl
import struct
import threading
import time
import weakref
from typing import Any, BinaryIO, Iterator, Mapping, Sequence

from .background import Output, Process, collect
from .engine import declaration
from .errors import ActionFailed, Error, UnknownOutcome, from_answer
from .job import Cycle, Job, submission
from .many import Many
from .names import names_checked, refuse_unknown
from .overload import Overload
from .rollout import Rollouts
from .spec import Action, Size, StartEstimate, Submission, seconds, size, spec
from .token import Token
from .trajectory import Trajectory
from .turn import Turn
from .worker import Workers

_LEADER = "Rota-Leader"
_SUBMIT = "ActionService/SubmitActions"
_SERVER = "rota://role/server"

#: Methods that begin so change nothing.
_READS = ("Get", "List", "Stat", "Read", "Summarize", "Explain", "Advise")
#: Methods that begin so may be repeated although they carry no request ID.
_HARMLESS = (
    *_READS, "RegisterEngine", "Cancel", "Close", "Renew", "Yield", "Suspend", "Resume", "PauseTrajectory", "Complete",
    "Set", "Write", "Make", "PutSample", "PublishVersion", "ResizeActionTerminal", "RegisterWorker", "UpdateWorker",
)
#: Reasons of refusals by servers that do not know whether the leader has carried the call out.
_PROVES_NOTHING = ("UNKNOWN_OUTCOME", "LEADER_UNREACHABLE")
# For how long a request ID may be used again, in seconds. Servers remember it for ten
# minutes, and the last try takes its time.
_REMEMBERED_S = 240.0
# The least time that a server has for one try of several, in seconds.
_TRY_MIN_S = 2.0
# How long a connection may take to be made, in seconds.
_DIAL_S = 5.0
# For how long a server that failed is not asked for being the leader, in seconds.
_AVOID_S = 3.0
#: Where "rota dev" listens.
_ADDR = "127.0.0.1:7400"
#: The address of a server; one of IPv6 is in brackets.
_HOST_PORT = re.compile(r"(\[[^\s/\[\]]+\]|[^\s/:\[\]]+):[0-9]{1,5}")


#: The clients of this process.
_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def _forked() -> None:
    for client in list(_clients):
        client._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def addresses(text: str) -> list[str]:
    """The addresses in a list with commas, as the CLI reads it."""
    found = [address.strip() for address in text.split(",") if address.strip()]
    for address in found:
        if not _HOST_PORT.fullmatch(address):
            raise ValueError(f'{address!r} is not the host:port of a server, such as "{_ADDR}"')
    if not found:
        raise ValueError(f"{text!r} names no server")
    return found


@names_checked
class Client(Many, Rollouts, Workers):
    """Talks to one cluster. Threads may share it.

    servers: host:port of one server or more. One is enough to find the leader; all
        of them are needed to survive the loss of any. Without any, they are those of the
        variable ROTA_ADDR, or 127.0.0.1:7400, where "rota dev" listens.
    retry_s: how long a call is repeated, in seconds.
    ca, cert, key: PEM files, as "rota tls issue client" makes them. Without any the
        connection is not encrypted, which servers accept on loopback only.
    token, token_file: instead of cert and key, the secret of a token or a JWT, or a private
        file that has it. Without them it is that of the variable ROTA_TOKEN, if there is one.

    What is not given is read from the variables of the CLI: ROTA_NAMESPACE, ROTA_CA, ROTA_CERT,
    ROTA_KEY, ROTA_TOKEN and ROTA_TOKEN_FILE.
    """

    def __init__(
        self,
        *servers: str,
        namespace: str | None = None,
        retry_s: float = 30.0,
        ca: str | None = None,
        cert: str | None = None,
        key: str | None = None,
        token: str | None = None,
        token_file: str | None = None,
    ):
        if not retry_s > 0:
            raise ValueError(f"retry_s={retry_s!r}: a call needs some time: give seconds, more than 0")
        self.namespace, ca, cert, key, token_file = _settings(namespace, ca, cert, key, token, token_file)
        self.retry_s = retry_s
        self._servers = addresses(",".join(servers) or os.environ.get("ROTA_ADDR") or _ADDR)
        self._current = self._servers[0]
        self._avoid: dict[str, float] = {}  # until when, for servers that failed
        self._token = Token(token, token_file)
        self._tls = None
        if ca is not None:
            self._tls = ssl.create_default_context(cafile=ca)
            self._tls.minimum_version = ssl.TLSVersion.TLSv1_3
            self._tls.check_hostname = False  # its role says who a server is, see _connect
            if cert is not None:
                self._tls.load_cert_chain(cert, key)
        self._idle: dict[str, list[http.client.HTTPConnection]] = {}
        self._begin()
        _clients.add(self)

    def _begin(self) -> None:
        """Makes what no other process may use, at the beginning and after a fork."""
        for connection in itertools.chain(*self._idle.values()):
            connection.close()  # the process that was forked goes on to use it
        self._idle = {}
        self._lock = threading.Lock()
        self._overload = Overload()
        self._prefix = secrets.token_urlsafe(9)
        self._numbers = itertools.count(1)

    # Actions

    def submit(self, *specs: dict, request_id: str | None = None) -> Submission:
        """Queues actions, all of them or none, and returns their IDs.

        If the queue is full, all submissions of this client wait as long as servers ask them to.
        request_id: names the submission. One that is repeated with the same queues nothing twice
            and returns the same IDs; None: a new one, for this call and its tries.
        The list has ``estimates`` as well: when each action is expected to start.
        """
        request = {"namespace": self.namespace, "actions": list(specs), "requestId": request_id or self.request_id()}
        answer = self.call(_SUBMIT, request)
        return Submission(map(int, answer["ids"]), map(StartEstimate.of, answer.get("estimates", [])))

    def get(self, action: int) -> Action:
        """An action as it is now."""
        return Action(self.call("ActionService/GetAction", {"id": str(action)})["action"])

    def cancel(self, *actions: int) -> None:
        """Ends actions: queued ones at once, running ones as soon as they are killed."""
        self.call("ActionService/CancelActions", {"ids": [str(i) for i in actions]})

    def wait(self, action: int, timeout_s: float | None = None) -> Action:
        """Returns an action when it has ended, with all that it wrote. Raises TimeoutError after timeout_s."""
        give_up = None if timeout_s is None else time.monotonic() + timeout_s
        pause = 0.01
        while True:
            now = self.get(action)
            if now.ended:
                return self.whole(now)
            if give_up is not None and time.monotonic() + pause > give_up:
                raise TimeoutError(f"action {action} is {now.state} after {timeout_s} s {now.waiting_for}".rstrip())
            time.sleep(pause)
            pause = min(2 * pause, 0.5)

    def whole(self, action: Action) -> Action:
        """Reads what an action wrote from its node, if that is more than the cluster keeps.

        ``truncated`` stays true if the node has dropped the beginning, or no longer has it.
        """
        if action.truncated:
            try:
                collect(action, Process(self, action.id).output(follow=False))
            except Error:
                pass  # its node is gone, or has made room
        return action

    def logs(
        self, action: int, *, since: datetime.datetime | float | None = None, follow: bool = False, times: bool = False
    ) -> Iterator[Output]:
        """What an action has written, from its node. See Process.output for the arguments."""
        return Process(self, action).output(follow, since=since, times=times)

    def run(
        self, argv: Sequence[str] | None = None, *, check: bool = False, stdin: bytes | str | BinaryIO | None = None, **fields: Any
    ) -> Action:
        """Submits a command or an HTTP call, waits for its end and returns what became of it.

        If that is interrupted, or fails, the action is canceled.
        stdin: what the command finds in its standard input: bytes, text, or what a file has.
        With check, ActionFailed is raised unless that is success. See ``spec`` for
        the other arguments.
        """
        check_input(stdin, fields)
        process = self.start(argv, stdin=stdin is not None, **fields)
        try:
            if stdin is not None:
                process.feed(stdin)
            action = process.wait()
        except BaseException:
            with contextlib.suppress(Error):
                process.cancel()  # nobody waits for it
            raise
        if check and not action.succeeded:
            raise ActionFailed(action)
        return action

    def start(self, argv: Sequence[str] | None = None, **fields: Any) -> Process:
        """Submits a command, and returns a Process to talk to it while it runs.

        See ``spec`` for the arguments, such as stdin=True and tty=(24, 80).
        """
        return Process(self, self.submit(spec(argv, **fields))[0])

    def trajectory(
        self,
        memory: Size | None = None,
        objective: str | None = None,
        *,
        env: Mapping[str, str] | None = None,
        dir: str = "",
        image: str | None = None,
        network: str = "none",
        timeout_s: float | None = None,
        pause_at_timeout: bool = False,
        snapshot: Mapping[str, Any] | int | None = None,
        **fields: Any,
    ) -> Trajectory:
        """Opens a session of actions that keeps a node, memory and a directory, and no cores.

        image: its commands run in a container of this image (docs/sandboxes.md), which
            reaches no network, or all that its node does with network="host".
        timeout_s: it closes by itself so many seconds after it was opened.
        pause_at_timeout: it is paused then, and so many seconds after each resumption.
        snapshot: it begins with the files of this one, by ID or as Trajectory.snapshot returns
            it, in a container of the same image.
        env, dir: environment of all its commands, and working directory of those that name
            none, such as a path below its directory.
        objective: "step" divides cores so that the last trajectory of a step ends soon;
        "mean", the default, so that actions complete soon.
        fields: others of OpenTrajectoryRequest, such as spreadGroup, and labels={"run": "42"}.
        """
        refuse_unknown("a trajectory", fields, OPEN if fields else ())
        if objective is not None:
            fields["objective"] = "OBJECTIVE_" + objective.upper()
        if memory is not None:
            fields["memoryBytes"] = str(size(memory))
        if timeout_s is not None:
            fields["timeout"] = seconds(timeout_s)
        if pause_at_timeout:
            fields["pauseAtTimeout"] = True
        if snapshot is not None:
            fields["snapshotId"] = str(snapshot if isinstance(snapshot, int) else snapshot["id"])
        if env or dir or image:
            fields["spec"] = {"env": dict(env or {}), "dir": dir}
        if image:
            fields["spec"]["container"] = {"image": image, "network": "NETWORK_" + network.upper()}
        request = {"namespace": self.namespace, **fields, "requestId": self.request_id()}
        return Trajectory(self, int(self.call("TrajectoryService/OpenTrajectory", request)["trajectory"]["id"]))

    # Jobs and turns

    def create_node_group(
        self,
        name: str,
        nodes: int = 0,
        hook_pool: str = "default",
        *,
        members: Sequence[Mapping[str, Any]] = (),
        selector: Mapping[str, Any] | None = None,
    ) -> dict:
        """Makes a set of nodes that one deployment at a time holds.

        hook_pool: the pool whose agents run hooks of deployments.
        members: GPUs that belong to it, such as {"node": "n1", "firstGpu": 0, "gpus": 4};
            without "gpus" all of the node. Each counts as a node.
        selector: which nodes are spares: {"labels": {"gpu": "h100"}, "gpus": 4}.
        """
        request = {"name": name, "hookPool": hook_pool, **_members(nodes, members, selector)}
        return self.call("LedgerService/CreateNodeGroup", request)["group"]

    def set_node_group_members(
        self,
        name: str,
        members: Sequence[Mapping[str, Any]] = (),
        *,
        nodes: int = 0,
        selector: Mapping[str, Any] | None = None,
    ) -> dict:
        """Says anew what belongs to a node group, as create_node_group does."""
        request = {"name": name, **_members(nodes, members, selector)}
        return self.call("LedgerService/SetNodeGroupMembers", request)["group"]

    def node_group(self, name: str) -> dict:
        """Returns a node group, with its members and why it lacks some."""
        return self.call("LedgerService/GetNodeGroup", {"name": name})["group"]

    def submit_job(
        self,
        name: str,
        nodes: int,
        cycle: Cycle | None = None,
        *,
        set_up_s: float | None = None,
        backfill: bool = False,
        hooks: Mapping[str, Mapping[str, dict]] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Job:
        """Queues a training job, and places it if some group has room for it.

        cycle: what it needs of its group again and again, if that is known, in seconds:
            (60, [(0, 20), (30, 5)]) are turns from 0 to 20 and from 30 to 35 of each
            minute. Without one it gets a group to itself until its first step has ended.
        set_up_s: what changing deployments takes, as long as it was not measured.
        backfill: it takes what others leave and has no reservation.
        hooks: what agents run when a deployment gets the group or leaves it, by
            deployment and by "sleep", "wake" and "prefetch": actions, as ``rota.spec``
            makes them, with a timeout_s.
        labels: for finding it, see jobs.
        """
        request = submission(name, nodes, cycle, set_up_s, backfill, hooks, labels)
        return self._job("Submit", {**request, "requestId": self.request_id()})

    def job(self, name: str) -> Job:
        """A job as it is now."""
        return self._job("Get", {"name": name})

    def jobs(self, *, labels: Mapping[str, str] | None = None, ended: bool = False) -> list[Job]:
        """The jobs that have all of these labels, the first submitted first; with ended, also completed ones."""
        about = {"namespace": self.namespace, "labels": dict(labels or {}), "includeEnded": ended}
        return [Job(raw) for raw in self._pages("JobService/ListJobs", about, "jobs")]

    def suspend_job(self, name: str) -> Job:
        """Gives the reservation of a job back. Its turns wait, and the one it holds is asked to stop."""
        return self._job("Suspend", {"name": name})

    def resume_job(self, name: str) -> Job:
        """Queues a suspended job again."""
        return self._job("Resume", {"name": name})

    def complete_job(self, name: str) -> Job:
        """Ends a job. Turns that wait are canceled, and the one it holds is asked to stop."""
        return self._job("Complete", {"name": name})

    def delete_job(self, name: str) -> None:
        """Ends a job, and forgets it as soon as none of its turns is held."""
        self.call("JobService/DeleteJob", {"namespace": self.namespace, "name": name})

    def _job(self, verb: str, request: dict) -> Job:
        return Job(self.call(f"JobService/{verb}Job", {"namespace": self.namespace, **request})["job"])

    def turn(self, deployment: str, **about: Any) -> Turn:
        """A turn of "job/deployment", for ``with``. See Turn for the arguments."""
        return Turn(self, deployment, **about)

    # Engines

    def register_engine(self, model: str, argv: Sequence[str], driver: str, **about: Any) -> dict:
        """Declares how a model is served, or changes that. Returns the engine.

        argv: the command that starts it. {{port}}, {{gpus}} and {{devices}} are replaced in it.
        driver: "vllm", "sglang", "process" or "http": how it sleeps and wakes.
        about: env and cwd of the command.
            probe: the path that answers 200 once it can serve, "/health" by default. None, for
            the driver process: it is ready as soon as it is started.
            sleep_level: of vLLM, 1 or 2.
            sleep, wake: calls of the driver http, such as {"method": "POST", "path": "/sleep"}.
            start_timeout_s, call_timeout_s: how long it may take, in seconds.
            asleep_memory: host memory that it keeps while it sleeps.
        """
        refuse_unknown("an engine", about, inspect.signature(declaration).parameters)
        request = {"engine": declaration(model, argv, driver, **about)}
        return self.call("EngineService/RegisterEngine", request)["engine"]

    def engines(self) -> list[dict]:
        """How models are served, and where their engines are."""
        return self.call("EngineService/ListEngines").get("engines", [])

    def remove_engine(self, model: str) -> None:
        """Forgets how a model is served. What runs of it ends when no action uses it."""
        self.call("EngineService/RemoveEngine", {"model": model})

    # What is where

    def residency(self, *, node: str = "", model: str = "", job: str = "") -> list[dict]:
        """The table of working sets: models on GPUs, then deployments on node groups.

        node, model, job: only what is on that node, that model, deployments of that job.
        """
        about = {"node": node, "model": model, "namespace": self.namespace, "job": job}
        return self._pages("ResidencyService/ListResidency", about, "rows")

    def models(self) -> list[dict]:
        """The models that are resident, have an engine, or are named by an action on GPUs."""
        return self._pages("ResidencyService/ListModels", {}, "models")

    def model(self, name: str) -> dict:
        """What is known of one model: "model", where it is in "resident", and actions that name it."""
        return self.call("ResidencyService/GetModel", {"model": name})

    def explain_model(self, model: str, *, gpus: Sequence[int] = (1,), **about: Any) -> dict:
        """What would become of an action that names a model if it came now.

        "placement" says which chunk of GPUs it would get and what would be evicted, or
        "waitingFor" what it would wait for; "spared" why other models would stay.
        about: gpuClass, memoryBytes, class and pool, as in the API.
        """
        refuse_unknown("explain_model", about, ("gpus", "gpuClass", "memoryBytes", "class", "pool"))
        return self.call("ResidencyService/ExplainModel", {"model": model, "gpus": list(gpus), "namespace": self.namespace, **about})

    def gpus(self, pool: str = "") -> list[dict]:
        """The nodes that have GPUs, with the use of each GPU."""
        return self._pages("ResidencyService/ListGpus", {"pool": pool}, "nodes")

    def _pages(self, method: str, request: dict, field: str) -> list[dict]:
        """Reads all pages of a list."""
        rows, token = [], ""
        while True:
            page = self.call(method, {**request, "pageSize": 1000, "pageToken": token})
            rows += page.get(field, [])
            token = page.get("nextPageToken", "")
            if not token:
                return rows
    # Migrations

    def migrate(
        self,
        source: str,
        target: str,
        *,
        trajectory: int = 0,
        tag: str = "",
        prefixes: Sequence[str] = (),
        keys: Sequence[str] = (),
        length: int = 0,
        queue_timeout_s: float | None = None,
        run_timeout_s: float | None = None,
    ) -> int:
        """Asks for KV caches to be copied from one node to another. Returns the migration's ID.

        trajectory: whose KV cache it is. The copy runs only while an action of the trajectory
            is queued or runs, and is abandoned when the last of them ends first.
        tag, prefixes, keys: which values of the cache. With a trajectory and none of these:
            the tag "trajectory%ID", of requests with {"lmcache.tag.trajectory": "ID"}.
        length: what the trajectory is predicted to do yet, in any one unit; the longest goes
            first.
        queue_timeout_s, run_timeout_s: how long it may wait and run, in seconds.
        """
        request: dict[str, Any] = {"namespace": self.namespace, "source": source, "target": target, "length": str(length)}
        if trajectory:
            request["trajectoryId"] = str(trajectory)
        if tag or prefixes or keys:
            request["selector"] = {"tag": tag, "prefixes": list(prefixes), "keys": list(keys)}
        if queue_timeout_s is not None:
            request["queueTimeout"] = f"{queue_timeout_s}s"
        if run_timeout_s is not None:
            request["runTimeout"] = f"{run_timeout_s}s"
        request["requestId"] = self.request_id()
        return int(self.call("MigrationService/RequestMigration", request)["id"])

    def migration(self, migration: int) -> dict:
        """A migration as it is now: its state, and what it waits for."""
        return self.call("MigrationService/GetMigration", {"id": str(migration)})["migration"]

    def migrations(self, live: bool = False, **only: Any) -> list[dict]:
        """The migrations, oldest first; with live, those that have not ended.

        only: others of ListMigrationsRequest, such as node and trajectoryId.
        """
        refuse_unknown("migrations", only, ("live", "node", "trajectoryId", "namespace"))
        request = {"namespace": self.namespace, "live": live, **only}
        all_of_them: list[dict] = []
        while True:
            answer = self.call("MigrationService/ListMigrations", request)
            all_of_them += answer.get("migrations", [])
            if not answer.get("nextPageToken"):
                return all_of_them
            request = {**request, "pageToken": answer["nextPageToken"]}

    def cancel_migration(self, migration: int) -> None:
        """Ends a migration. What was copied stays at the target."""
        self.call("MigrationService/CancelMigration", {"id": str(migration)})

    # Calls

    def request_id(self) -> str:
        """An identifier that no other client makes."""
        return f"{self._prefix}.{next(self._numbers)}"

    def call(self, method: str, request: dict | None = None, *, try_s: float | None = None) -> dict:
        """Calls a method such as "QuotaService/ListQuotas", again if need be.

        try_s: how long a server may take to answer one try. None: half of retry_s, so that another
            server can be asked then; all of it if the call is not repeated.

        Calls that change something are repeated if they were refused for sure, or for
        four minutes if they carry a requestId: servers remember it for ten. Otherwise
        UnknownOutcome says that nobody knows.
        """
        request = request or {}
        _, _, name = method.partition("/")
        # Input without an offset is written again with each try.
        harmless = name.startswith(_HARMLESS) and (name != "WriteActionInput" or "offset" in request)
        repeatable = harmless or "requestId" in request
        try_s = try_s or (max(self.retry_s / 2, min(self.retry_s, _TRY_MIN_S)) if repeatable else self.retry_s)
        forgotten = time.monotonic() + (_REMEMBERED_S if "requestId" in request else 0)
        body = json.dumps(request).encode()
        give_up = time.monotonic() + self.retry_s
        unsure = False
        for tries in itertools.count():
            of_round = self._overload.enter(give_up) if method == _SUBMIT else 0
            if of_round is None:
                raise _outcome(copy.copy(self._overload.refusal), unsure, name)  # other threads raise it, too
            server, overloaded = self._current, None
            try:
                return self._ask(server, method, body, not repeatable, try_s)
            except Error as err:
                self._after(err, server)
                overloaded = err if err.code == "resource_exhausted" and err.retry_after is not None else None
                lost = isinstance(err, UnknownOutcome) or err.reason in _PROVES_NOTHING
                unsure = unsure or lost
                delay = err.retry_after
                if delay is None or unsure and not harmless and time.monotonic() >= forgotten:
                    raise _outcome(err, lost or unsure and not harmless, name) from None
                delay = delay * random.uniform(1, 1.5) or _backoff_s(tries)
                if time.monotonic() + delay > give_up:
                    raise _outcome(err, unsure, name) from None
            finally:
                if method == _SUBMIT and overloaded is not None:
                    self._overload.refused(of_round, overloaded)
                elif method == _SUBMIT:
                    self._overload.passed(of_round)
            if method != _SUBMIT or overloaded is None:  # else it waits with all others
                time.sleep(delay)

    def once(self, method: str, request: dict, timeout_s: float) -> dict:
        """One try of a call that may be repeated. After a failure another server is asked next."""
        server = self._current
        try:
            return self._ask(server, method, json.dumps(request).encode(), False, timeout_s)
        except Error as err:
            self._after(err, server)
            raise

    def stream(self, method: str, request: dict) -> Iterator[dict]:
        """One try of a call that is answered with many messages, such as "ActionService/WatchActions".

        Raises TimeoutError if none comes for retry_s.
        """
        server = self._current
        connection, connected = self._connect(server), False
        body = json.dumps(request).encode()
        headers = {"Content-Type": "application/connect+json", **self._token.headers(server, self._tls is not None)}
        try:
            self._dial(server, connection)
            connected = True
            connection.sock.settimeout(self.retry_s)
            connection.request("POST", "/rota.v1." + method, struct.pack(">BI", 0, len(body)) + body, headers)
            response = connection.getresponse()
            if response.status != 200:
                raise from_answer(response.status, response.read())
            yield from _messages(response)
        except (OSError, http.client.HTTPException) as err:
            if connected and isinstance(err, TimeoutError):
                raise
            self._failed(server)
            raise Error(f"{server}: {err}", retry_after=0.0) from None
        finally:
            connection.close()

    def close(self) -> None:
        """Closes the connections that nobody uses. Others are made when needed."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for connection in itertools.chain(*idle.values()):
            connection.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _ask(self, server: str, method: str, body: bytes, fresh: bool, timeout_s: float) -> dict:
        """One try with one server, which may be silent for so long.

        fresh: on a connection of its own. One that was idle may turn out to be closed,
        and then nobody knows whether the server has read the request.
        """
        headers = {"Content-Type": "application/json", **self._token.headers(server, self._tls is not None)}
        with self._lock:
            idle = [] if fresh else self._idle.get(server, [])
            pooled = bool(idle)
            connection = idle.pop() if pooled else self._connect(server)
        sent = False
        try:
            if connection.sock is None:
                self._dial(server, connection, timeout_s)
            connection.sock.settimeout(timeout_s)
            sent = True
            connection.request("POST", "/rota.v1." + method, body, headers)
            response = connection.getresponse()
            answer = response.read()
        except ssl.SSLCertVerificationError as err:
            connection.close()
            raise Error(f"{server}: {err}: is ca the authority of this cluster?") from None
        except (OSError, http.client.HTTPException) as err:
            connection.close()
            if pooled:
                self._drop(server)
            kind = UnknownOutcome if sent else Error
            raise kind(f"{server}: {err}", retry_after=0.0) from None
        with self._lock:
            self._idle.setdefault(server, []).append(connection)
        leader = response.headers.get(_LEADER)
        if leader and time.monotonic() >= self._avoid.get(leader, 0.0):
            self._current = leader
        if response.status != 200:
            raise from_answer(response.status, answer)
        return json.loads(answer)

    def _drop(self, server: str) -> None:
        """Closes the connections to a server that nobody uses: what ended one has ended all."""
        with self._lock:
            idle = self._idle.pop(server, [])
        for connection in idle:
            connection.close()

    def _connect(self, server: str) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(server)
        return http.client.HTTPSConnection(server, context=self._tls)

    def _dial(self, server: str, connection: http.client.HTTPConnection, timeout_s: float = _DIAL_S) -> None:
        connection.timeout = min(timeout_s, _DIAL_S)
        connection.connect()
        self._check_role(server, connection)

    def _check_role(self, server: str, connection: http.client.HTTPConnection) -> None:
        """Refuses whoever has a certificate of the cluster that is not a server's."""
        if self._tls is None:
            return
        names = connection.sock.getpeercert().get("subjectAltName", ())
        if ("URI", _SERVER) not in names:
            connection.close()
            raise Error(f"{server}: its certificate is not that of a server: {names}")

    def _after(self, err: Error, server: str) -> None:
        """Makes the server after one that failed the current one."""
        if err.retry_after is not None and err.code != "resource_exhausted":
            self._failed(server)

    def _failed(self, server: str) -> None:
        self._avoid[server] = time.monotonic() + _AVOID_S
        if self._current == server:
            at = self._servers.index(server) if server in self._servers else -1
            self._current = self._servers[(at + 1) % len(self._servers)]


def _settings(namespace: str | None, ca: str | None, cert: str | None, key: str | None, token: str | None, token_file: str | None) -> tuple:
    """What the program says, or else the environment. Who has a token needs no certificate."""
    found = os.environ.get
    if ca is None:
        ca = found("ROTA_CA") or None
    if cert is None and token is None and token_file is None:
        cert, key = found("ROTA_CERT") or None, key or found("ROTA_KEY") or None
    if token is None and token_file is None and "ROTA_TOKEN" not in os.environ:
        token_file = found("ROTA_TOKEN_FILE") or None
    _check_files(ca, cert, key)
    return found("ROTA_NAMESPACE", "") if namespace is None else namespace, ca, cert, key, token_file


def _check_files(ca: str | None, cert: str | None, key: str | None) -> None:
    """Refuses files that say that the connection is to be encrypted, and would not encrypt it."""
    if (cert is None) != (key is None):
        given, lacking = ("key", "cert") if cert is None else ("cert", "key")
        raise ValueError(f"{given} without {lacking}: give both, as arguments or as ROTA_CERT and ROTA_KEY")
    if cert is not None and ca is None:
        raise ValueError("cert and key without ca: nothing would be encrypted: give ca, or ROTA_CA, or neither cert nor key")


def check_input(stdin: Any, fields: Mapping[str, Any]) -> None:
    """Refuses input for an action that may begin again: the next attempt would wait for it for ever."""
    if stdin is not None and fields.get("lossPolicy") == "LOSS_POLICY_RETRY":
        raise TypeError("stdin is for one attempt: leave out lossPolicy, or give the input as a file or in argv")


def _members(nodes: int, members: Sequence[Mapping[str, Any]], selector: Mapping[str, Any] | None) -> dict:
    request: dict = {"nodes": nodes, "members": [dict(m) for m in members]}
    if selector is not None:
        request["selector"] = dict(selector)
    return request


def _backoff_s(tries: int) -> float:
    """The pause after a try that no server gave a delay for, in seconds."""
    return min(0.01 * 2 ** min(tries, 7), 1.0) * random.uniform(0.5, 1)


def _outcome(err: Error, unsure: bool, name: str) -> Error:
    """The error of a call that may have been carried out by a try before its last. Nothing is done by a read."""
    if name.startswith(_READS):
        return Error(str(err), err.code, err.reason, err.retry_after) if isinstance(err, UnknownOutcome) else err
    if not unsure or isinstance(err, UnknownOutcome):
        return err
    return UnknownOutcome(str(err), err.code, err.reason)


def _messages(response: http.client.HTTPResponse) -> Iterator[dict]:
    """The messages of a stream of Connect: each has flags and its length before it."""
    while True:
        head = response.read(5)
        if len(head) < 5:
            raise Error("the stream was cut off", retry_after=0.0)
        flags, length = struct.unpack(">BI", head)
        body = response.read(length)
        if len(body) < length:
            raise Error("the stream was cut off", retry_after=0.0)
        message = json.loads(body)
        if flags & 2 == 0:
            yield message
        elif "error" in message:
            raise from_answer(200, json.dumps(message["error"]).encode())
        else:
            return


#: What trajectory may be given: its arguments, and the fields of OpenTrajectoryRequest by their names in the API.
OPEN = {name for name in inspect.signature(Client.trajectory).parameters if name not in ("self", "fields")} | {
    "name", "pool", "idleTimeout", "spreadGroup", "spreadLabel", "rollout", "generation", "labels", "expireTime", "namespace",
}
