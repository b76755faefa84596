"""Many actions at once, with a line that says how far they are."""

from __future__ import annotations

import collections
import contextlib
import shutil
import sys
import threading
from typing import Any, Iterable, List, Mapping, Sequence, TextIO, Union

from .errors import ActionFailed, Error, UnknownOutcome
from .find import Find
from .names import names_checked
from .spec import Action, spec

#: The words of a command, or what ``rota.spec`` makes.
Command = Union[Sequence[str], Mapping[str, Any]]

#: How many actions one submission carries, at most.
_CHUNK = 100
_LABEL = "rota-map"


@names_checked
class Many(Find):
    """The methods of Client that run many actions."""

    def map(
        self, commands: Iterable[Command], *, parallel: int = 256, check: bool = False, progress: bool = True, **fields: Any
    ) -> List[Action]:
        """Runs commands, and returns what became of each, in their order.

        commands: each is a list of words, or an action that ``rota.spec`` makes.
        parallel: how many are submitted at the same time.
        check: the first that does not succeed cancels the others, and raises ActionFailed.
        progress: a line on standard error says how far they are, if that is a terminal.
        fields: of all of them, as ``rota.spec`` has them: cores, memory, timeout_s, trajectory.

        If it is interrupted, its actions are canceled. Needs feature level 3, for a label.
        """
        return self._map(commands, parallel, check, progress, fields, threading.Event())

    def _map(
        self, commands: Iterable[Command], parallel: int, check: bool, progress: bool, fields: Mapping[str, Any], stop: threading.Event
    ) -> List[Action]:
        if parallel < 1:
            raise ValueError(f"parallel={parallel} must be at least 1")
        label = {_LABEL: self.request_id()}
        specs = collections.deque(_labeled(command, fields, label) for command in commands)
        results: List[Any] = [None] * len(specs)
        places: dict[int, int] = {}  # of actions that have not ended, by ID
        asked: dict[str, List[dict]] = {}  # submissions without an answer, by request ID
        failed, pause = 0, _PAUSE_S
        with Progress(len(specs), progress) as bar:
            try:
                while (specs or places) and not stop.is_set():
                    self._more(specs, places, asked, parallel, results)
                    live = {a.id: a.state for a in self.list(labels=label, states=("QUEUED", "RUNNING"), limit=0)}
                    ended = [action for action in places if action not in live]
                    for action in ended:
                        now = results[places.pop(action)] = self.wait(action)
                        failed += not now.succeeded
                        if check and failed:
                            raise ActionFailed(now)
                    bar.show(len(results) - len(specs) - len(places), list(live.values()).count("RUNNING"), failed)
                    pause = _PAUSE_S if ended else min(2 * pause, 20 * _PAUSE_S)
                    if places:
                        stop.wait(pause)
            finally:
                if left := [*places, *self._unanswered(asked)]:
                    self.cancel(*left)
        return results

    def _more(
        self, specs: collections.deque, places: dict[int, int], asked: dict[str, List[dict]], parallel: int, results: List[Any]
    ) -> None:
        """Submits as many as may be there at the same time."""
        while specs and len(places) < parallel:
            chunk = [specs.popleft() for _ in range(min(_CHUNK, parallel - len(places), len(specs)))]
            at = len(results) - len(specs) - len(chunk)
            asked[name := self.request_id()] = chunk
            try:
                ids = self.submit(*chunk, request_id=name)
            except Error as err:
                if not isinstance(err, UnknownOutcome):
                    del asked[name]  # it was refused
                raise
            places.update(zip(ids, range(at, at + len(ids))))
            del asked[name]

    def _unanswered(self, asked: Mapping[str, List[dict]]) -> List[int]:
        """The actions of submissions whose answers were lost: the same request ID finds them."""
        found: List[int] = []
        for name, chunk in asked.items():
            with contextlib.suppress(Error):  # no server answers: the error of the submission is told
                found += self.submit(*chunk, request_id=name)
        return found


#: How often it is asked what has ended, in seconds; up to twenty times that while nothing ends.
_PAUSE_S = 0.05


def _labeled(command: Command, fields: Mapping[str, Any], label: Mapping[str, str]) -> dict:
    if isinstance(command, Mapping):
        if fields:
            raise TypeError(f"{sorted(fields)} are for lists of words: give them to rota.spec")
        one = dict(command)
    else:
        one = spec(command, **fields)
    return {**one, "labels": {**one.get("labels", {}), **label}}


class Progress:
    """A line that is written again and again, on a terminal only."""

    def __init__(self, total: int, on: bool = True, to: TextIO | None = None):
        stream = to or sys.stderr
        self._to = stream if on and total > 0 and stream is not None and stream.isatty() else None
        self._total = total
        self._shown = ""

    def show(self, done: int, running: int, failed: int) -> None:
        """Says how many actions have ended, run, and have ended otherwise than with success."""
        if self._to is None:
            return
        text = f" {done}/{self._total}, {running} running" + (f", {failed} failed" if failed else "")
        width = max(0, min(40, shutil.get_terminal_size().columns - len(text) - 3))
        full = width * done // self._total
        line = "[" + "#" * full + "." * (width - full) + "]" + text
        if line != self._shown:
            self._to.write("\r" + line + "\x1b[K")
            self._to.flush()
            self._shown = line

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._to is not None and self._shown:
            self._to.write("\n")
            self._to.flush()
