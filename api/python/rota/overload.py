"""How the submissions of one client wait after a refusal."""

from __future__ import annotations

import random
import threading
import time
from typing import Callable

from .errors import Error

#: How soon a submission looks again, in seconds, while others are under way that decide about it.
_LOOK_S = 0.05


class Overload:
    """Holds submissions back that servers would refuse. Threads may share it.

    What a refusal for overload says holds for all submissions of a client. They wait here until its
    delay is over. Then as many are sent as were accepted before, and a quarter more, or half of those
    that were sent if that is more. If all of them are accepted, a quarter more follow at once. This ends
    when no submission waits.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> None:
        #: What servers said last.
        self.refusal: Error | None = None
        self._now, self._sleep = now, sleep
        self._lock = threading.Lock()
        self._waiting = 0
        self._until = 0.0  # nothing is sent before
        self._limit = 0  # submissions in a round; 0: all may be sent
        self._round = self._sent = self._accepted = 0

    def enter(self, give_up: float) -> int | None:
        """Waits until a submission may be sent, and returns its round. None: it would be too late."""
        with self._lock:
            self._waiting += 1
        try:
            while True:
                with self._lock:
                    now, wait = self._now(), 0.0
                    if self._limit:
                        wait = self._until - now if now < self._until else _LOOK_S if self._sent >= self._limit else 0.0
                    if wait == 0.0:
                        self._sent += 1
                        return self._round
                    if now + wait > give_up:
                        return None
                self._sleep(wait)
        finally:
            with self._lock:
                self._waiting -= 1

    def passed(self, of_round: int) -> None:
        """Notes that a submission was not refused for overload."""
        with self._lock:
            if of_round != self._round:
                return
            self._accepted += 1
            if not self._waiting:
                self._next(0)
            elif self._limit and self._accepted >= self._limit:
                self._next(self._limit + self._limit // 4 + 1)

    def refused(self, of_round: int, refusal: Error) -> None:
        """Notes that a submission was refused for overload."""
        with self._lock:
            delay_s = max(refusal.retry_after or 0.0, 0.01)
            self.refusal = refusal
            self._until = max(self._until, self._now() + delay_s * random.uniform(1, 1.5))
            if of_round == self._round:
                self._next(max(self._accepted + self._accepted // 4 + 1, self._sent // 2))

    def _next(self, limit: int) -> None:
        self._limit, self._sent, self._accepted = limit, 0, 0
        self._round += 1
