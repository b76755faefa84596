"""Turns: an operation of a training job that has a group of nodes for itself."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Callable

from .errors import Error, TurnLost
from .names import names_checked
from .spec import seconds

if TYPE_CHECKING:
    from .client import Client

#: What a deployment does in a turn.
OPERATIONS = ("forward", "forward_backward", "optim_step", "checkpoint", "sync_weights", "generate", "custom")

#: How long a server may take to answer, where no lease says it yet.
_TRY_S = 5.0
#: The longest and the shortest pause after an answer that is none.
_PAUSE_S, _PAUSE_MIN_S = 0.5, 0.02
#: Reasons of refusals that say that the turn is over.
_OVER = ("TURN_NOT_FOUND", "TURN_ENDED", "TURN_FENCED")
_RAN_OUT = "its lease ran out"

# A clock that goes on while the machine sleeps, where there is one.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def now() -> float:
    """Seconds of the clock that leases are counted on."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


@names_checked
class Turn:
    """One turn of a deployment, for ``with``: the body has the group for itself.

    Entering waits until the turn is granted, leaving yields it. A thread renews its
    lease meanwhile, also while it waits. Code that keeps the interpreter's lock for as
    long as a lease loses it.

    deployment: "job/deployment", such as "job-a/actor".
    operation: one of OPERATIONS.
    step: of the training that it belongs to: a higher one begins the job's next cycle.
    expect_s: how long it will take without setting up; as the last of its kind if None.
    set_up_s: what setting up will take; as measured, or as the job says, if None.
    limit_s: after so long it is asked to stop.
    preemptible: rota may ask it to stop when another turn should go first.
    timeout_s: how long to wait for it: then TimeoutError.
    on_degraded: is called with the turn, by the thread that renews, whenever the group
        lacks other members than before while it is held: see ``degraded``.
    on_lost: is called with the turn, by the thread that renews, when it is lost. What
        cannot call ``check`` can be stopped there, with os._exit if need be.
    """

    def __init__(
        self,
        client: Client,
        deployment: str,
        *,
        operation: str = "custom",
        step: int = 0,
        expect_s: float | None = None,
        set_up_s: float | None = None,
        limit_s: float | None = None,
        preemptible: bool = False,
        timeout_s: float | None = None,
        on_lost: Callable[[Turn], Any] | None = None,
        on_degraded: Callable[[Turn], Any] | None = None,
    ):
        if operation not in OPERATIONS:
            raise ValueError(f"{operation!r} is no operation: it is one of {', '.join(OPERATIONS)}")
        given = {
            "namespace": client.namespace,
            "deployment": deployment,
            "operation": "OPERATION_" + operation.upper(),
            "step": str(step),
            "expect": None if expect_s is None else seconds(expect_s),
            "setUp": None if set_up_s is None else seconds(set_up_s),
            "limit": None if limit_s is None else seconds(limit_s),
            "preemptible": preemptible,
            "requestId": client.request_id(),
        }
        self._request = {key: value for key, value in given.items() if value is not None}
        self.client = client
        self.deployment = deployment
        self.on_lost = on_lost
        self.on_degraded = on_degraded
        #: What rota said of it last, as docs/api.md has a Turn.
        self.raw: dict = {}
        self.id = 0
        #: Only ever grows from one holder to the next: what is written can be fenced by it.
        self.token = 0
        #: It is asked to stop: leave the body soon. It will not be renewed for ever.
        self.stopping = False
        #: The deployment was not resident on the group: bring its state there first.
        self.needs_set_up = False
        #: Which members its group lacks and why; empty: it lacks none, as far as is known.
        self.degraded = ""
        self._timeout_s = timeout_s
        self._state = ""
        self._term = 0.0  # how long a renewal is good for: the lease less its margin
        self._deadline = 0.0
        self._granted_at: float | None = None
        self._set_up_s: float | None = None
        self._why = ""  # it was lost
        self._over = False  # it has ended, and rota said so
        self._leaving = False  # what happens to it is of no interest any more
        self._done = threading.Event()  # ends renewals, and pauses between them
        self._ready = threading.Event()  # granted, or never to be
        self._notify: Callable[[], Any] = lambda: None  # as soon as it is ready
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._serve, name=f"turn of {deployment}", daemon=True)

    @property
    def lost(self) -> bool:
        """It was granted, and is no longer: others may have the group."""
        if self._granted_at is not None and not self._over and now() >= self._deadline:
            self._why = self._why or _RAN_OUT  # for good, whatever is heard later
        return bool(self._why)

    @property
    def left_s(self) -> float:
        """For how long it is held if nothing more is heard of rota, in seconds."""
        return 0.0 if self.lost or self._over else max(0.0, self._deadline - now())

    @property
    def group(self) -> str:
        """The node group that it holds."""
        return self.raw.get("group", "")

    def check(self) -> None:
        """Raises TurnLost if it is lost. For before whatever must not happen twice."""
        if self.lost:
            raise TurnLost(self, self._why)

    def set_up_done(self) -> None:
        """Says that the deployment is on the group now: rota learns what that takes."""
        if self.needs_set_up and self._set_up_s is None and self._granted_at is not None:
            self._set_up_s = max(now() - self._granted_at, 1e-9)

    def __enter__(self) -> Turn:
        try:
            self._begin()
            self._granted(self._ready.wait(self._timeout_s))
        except BaseException:
            self._give_up()
            raise
        return self

    def __exit__(self, kind: Any, err: BaseException | None, _: Any) -> None:
        self._leave(err)

    # Its life

    def _begin(self) -> None:
        if self._thread.ident is not None:
            raise RuntimeError("a turn is for one use: ask the client for another")
        self._thread.start()

    def _granted(self, in_time: bool) -> None:
        """Raises what kept it from being granted."""
        if not in_time:
            raise TimeoutError(f"no turn of {self.deployment} after {self._timeout_s} s")
        if self._error is not None and self._granted_at is None:
            raise self._error
        self.check()  # this thread may wake long after the grant

    def _leave(self, err: BaseException | None) -> None:
        """Yields. What counts is whether the lease lasted to the end of the body."""
        lost = self.lost
        failed = lost or err is not None
        self._leaving = True
        try:
            self._yield(0.0 if lost else _TRY_S if failed else self.client.retry_s, failed)
        except Error:
            if not failed:
                raise
        finally:
            self._stop()
        if lost and not isinstance(err, TurnLost) and (err is None or isinstance(err, Exception)):
            raise TurnLost(self, self._why) from err

    def _give_up(self) -> None:
        """Takes it back in whatever state it is, if a server can be reached."""
        self._leaving = True
        try:
            if self.id:
                self._yield(_TRY_S, failed=True)
        except Error:
            pass  # it ends with its lease
        self._stop()

    def _stop(self) -> None:
        self._done.set()
        if self._thread.ident is not None:
            # The last renewal is answered when the turn ends, unless its server is gone.
            self._thread.join(min(1.0, self._term or 1.0))

    def _yield(self, retry_s: float, failed: bool) -> None:
        """Ends the turn, which is renewed until that is known. It may have ended already.

        failed: nothing is to be learned of it, and nobody knows what is on the group.
        """
        until = now() + retry_s
        while True:
            request = {"turnId": str(self.id), "token": str(self.token)}
            if failed:
                request["failed"] = True
            elif self._set_up_s is not None:
                request["setUp"] = seconds(self._set_up_s)
            try:
                self._learn(self.client.once("TurnService/YieldTurn", request, _TRY_S)["turn"])
                return
            except Error as err:
                if err.reason == "TURN_FENCED" and request["token"] == "0" and self._catch_up():
                    continue  # it was granted meanwhile
                if err.reason in _OVER:
                    return
                if err.retry_after is None or now() >= until:
                    raise
                time.sleep(_pause(err))

    def _catch_up(self) -> bool:
        """Learns the token of a turn that was granted while nobody listened."""
        self._learn(self.client.once("TurnService/GetTurn", {"turnId": str(self.id)}, _TRY_S)["turn"])
        return self.token != 0 and not self._over

    # The thread

    def _serve(self) -> None:
        """Asks for the turn, waits until it is granted and keeps it."""
        try:
            self._ask()
            heard, quiet_s = now(), 0.0
            while not self._over and not self._done.is_set():
                if self._renew(quiet_s):
                    heard, quiet_s = now(), 0.0
                else:
                    quiet_s = now() - heard
        except Exception as err:
            self._error = err
            if self._granted_at is not None and not self._leaving:
                self._why = self._why or str(err)
                if self.on_lost is not None:
                    self.on_lost(self)
        finally:
            self._ready.set()
            self._notify()

    def _ask(self) -> None:
        sent = now()  # the first try: its lease may have begun there
        answer = self.client.call("TurnService/AcquireTurn", self._request, try_s=_TRY_S)
        self.id = int(answer["turn"]["id"])
        self._count(answer, sent, renewed=True)
        if self._leaving and not self._over:
            try:
                self._yield(_TRY_S, failed=True)  # whoever gave it up did not know its number
            except Error:
                pass

    def _renew(self, quiet_s: float) -> bool:
        """Renews the lease, and waits for news meanwhile. False: nobody answered.

        An answer is held back for a quarter of what a renewal is good for, and another
        quarter is for its way. What is left is for tries with other servers.
        """
        held = self._granted_at is not None
        part = self._term / 4
        setting_up = self._state == "SETTING_UP"
        wait = 0.0 if quiet_s or self.token and not held and not setting_up else part
        timeout = wait + max(part, _PAUSE_MIN_S)
        if held:
            if self.lost:
                raise TurnLost(self, self._why)
            timeout = min(timeout, max(self._deadline - now(), _PAUSE_MIN_S))
        token, sent = self.token, now()
        request = {"turnId": str(self.id), "token": str(token), "wait": seconds(wait), "stopKnown": self.stopping}
        degraded = request["knownDegraded"] = self.degraded
        if setting_up:
            request["settingUp"] = True
        try:
            answer = self.client.once("TurnService/RenewTurn", request, timeout)
        except Error as err:
            self._unheard(err, held, quiet_s)
            return False
        self._count(answer, sent, answer.get("renewed", False))
        if held and self.degraded != degraded and not self._leaving and self.on_degraded is not None:
            self.on_degraded(self)
        if not answer.get("renewed") and token == self.token and not self._over:
            # It was asked to stop and has not. Its lease will run out.
            self._done.wait(max(min(part, self._deadline - now()), _PAUSE_MIN_S) if held else _PAUSE_MIN_S)
        return True

    def _unheard(self, err: Error, held: bool, quiet_s: float) -> None:
        """What to do about a renewal that nobody has answered."""
        if err.reason in _OVER:
            raise TurnLost(self, str(err))
        if not held and (err.retry_after is None or quiet_s > self.client.retry_s):
            raise err
        self._done.wait(_pause(err))

    def _count(self, answer: dict, sent: float, renewed: bool) -> None:
        """Takes an answer to what was sent at a time."""
        self._term = _duration(answer["leaseDuration"]) - _duration(answer["leaseMargin"])
        self._learn(answer["turn"])
        if renewed and not self._over and not self.lost:
            self._deadline = max(self._deadline, sent + self._term)
        ready = self._state == "HELD" and self._granted_at is None
        if ready and now() < self._deadline - self._term / 2:
            self._granted_at = now()
            self._ready.set()
            self._notify()

    def _learn(self, turn: dict) -> None:
        """Takes what rota says of the turn."""
        if self._over:
            return  # that was its end: what says something else is older
        state = turn["state"].removeprefix("TURN_STATE_")
        ended = state not in ("WAITING", "SETTING_UP", "HELD")
        if self._state != "HELD" or ended:  # an older answer may come later
            self._state = state
        self.raw = turn
        self.token = max(self.token, int(turn.get("token", 0)))
        self.needs_set_up = turn.get("setUpNeeded", False)
        self.stopping = self.stopping or turn.get("stop", False)
        self.degraded = turn.get("degraded", "")
        if ended and not self._leaving:
            why = f"rota says that it is {state}"
            if turn.get("message"):
                why += ": " + turn["message"]
            if self._granted_at is not None:
                self._why = why
            raise TurnLost(self, why)
        self._over = ended


def _pause(err: Error) -> float:
    """How long to wait before another try."""
    return min(max(err.retry_after or 0.0, _PAUSE_MIN_S), _PAUSE_S)


def _duration(text: str) -> float:
    """A duration of the API, in seconds."""
    return float(text.rstrip("s"))
