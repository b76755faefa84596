"""Actions that run while the program goes on: standard input, signals, terminals and output."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import threading
import time
from typing import TYPE_CHECKING, BinaryIO, Iterable, Iterator

from .errors import ActionFailed, Error
from .names import names_checked
from .spec import Action, seconds

if TYPE_CHECKING:
    from .client import Client

#: How much input one call carries, the most that one may.
_INPUT = 64 << 10
#: How long a server waits for room for input, in seconds, the most that it does.
_INPUT_WAIT_S = 5.0
#: Reasons for which there is nobody who reads input any more.
_DEAF = ("INPUT_CLOSED", "ATTEMPT_ENDED", "ACTION_NOT_FOUND")


@dataclasses.dataclass(frozen=True)
class Output:
    """A piece of what an action wrote.

    stream: "stdout" or "stderr". With a terminal, all is "stdout".
    offset: where it is in its stream. A jump says that older output was dropped.
    time: when it had been written, by the clock of the node, to about a quarter of a second; None unless
    times were asked for.
    """

    stream: str
    data: bytes
    offset: int
    time: datetime.datetime | None = None


@names_checked
class Process:
    """An action that ``Client.start`` has submitted. Leaving its context cancels it, if it runs."""

    def __init__(self, client: Client, action: int):
        self.client = client
        self.id = action
        self._writer = client.request_id()
        self._offset = 0
        self._attempt = 0
        self._writing = threading.Lock()  # two writes at a time would take the same offset

    def write(self, data: bytes | str) -> None:
        """Writes to the standard input, of an action that was started with stdin or tty.

        Returns when all of it is written, and waits for the action to start and to read it.
        Each byte arrives once. Writes of several threads follow each other. Raises Error with the reason INPUT_CLOSED if the command has closed
        its standard input, and ATTEMPT_ENDED if it has ended.
        """
        raw = data.encode() if isinstance(data, str) else bytes(data)
        with self._writing:
            while raw:
                before = self._offset
                self._input(raw[:_INPUT], False)
                raw = raw[self._offset - before :]

    def close_stdin(self) -> None:
        """Ends the standard input. On a terminal it is Ctrl-D."""
        with self._writing:
            while not self._input(b"", True):
                pass

    def _input(self, data: bytes, eof: bool) -> bool:
        request = {"actionId": str(self.id), "writer": self._writer, "data": base64.b64encode(data).decode(), "eof": eof}
        request["wait"] = seconds(min(_INPUT_WAIT_S, self.client.retry_s / 4))
        while True:
            try:
                answer = self.client.call(
                    "StreamService/WriteActionInput", {**request, "attempt": self._attempt, "offset": str(self._offset)}
                )
            except Error as err:
                if err.reason != "ACTION_QUEUED":
                    raise
                continue  # the call has waited between its tries
            # What was written to one attempt is not there in the next.
            self._attempt, self._offset = answer["attempt"], int(answer.get("offset", 0))
            return answer.get("closed", False)

    def feed(self, data: bytes | str | BinaryIO) -> None:
        """Writes all of the standard input and ends it, as far as the command reads it.

        data: may be a file that is open for reading bytes.
        """
        try:
            if isinstance(data, (bytes, str)):
                self.write(data)
            else:
                while piece := data.read(16 * _INPUT):
                    self.write(piece)
            self.close_stdin()
        except Error as err:
            if err.reason not in _DEAF:
                raise

    def send_signal(self, signal: str | int, all: bool = False) -> None:
        """Sends a signal such as "INT" or signal.SIGINT to the process group of the command.

        all: to every process of the action. It must run; see docs/api.md for the signals.
        """
        text = str(int(signal)) if isinstance(signal, int) else signal
        request = {"actionId": str(self.id), "signal": text, "all": all, "requestId": self.client.request_id()}
        self.client.call("StreamService/SignalAction", request)

    def resize(self, rows: int, columns: int) -> None:
        """Changes the size of its terminal."""
        size = {"rows": rows, "columns": columns}
        self.client.call("StreamService/ResizeActionTerminal", {"actionId": str(self.id), "size": size})

    def poll(self) -> Action | None:
        """The action if it has ended, else None."""
        now = self.client.get(self.id)
        return now if now.ended else None

    def wait(self, timeout_s: float | None = None, *, check: bool = False) -> Action:
        """As Client.wait. With check, ActionFailed is raised unless it succeeded."""
        action = self.client.wait(self.id, timeout_s)
        if check and not action.succeeded:
            raise ActionFailed(action)
        return action

    def cancel(self) -> None:
        """Ends it."""
        self.client.cancel(self.id)

    def output(
        self, follow: bool = True, *, since: datetime.datetime | float | None = None, times: bool = False
    ) -> Iterator[Output]:
        """What it writes, from its node, as far as that keeps it.

        follow: until it has ended; waits for it to start. Otherwise what there is now.
        A server may be lost meanwhile: each byte comes once.
        since: leaves out what was written before this time, or more than so many seconds ago.
        times: the pieces say when they were written. With since or times, Error with the reason
        OUTPUT_HAS_NO_TIMES is raised for output of which that is not known.
        """
        return self._output(follow, since, times, threading.Event())

    def _output(
        self, follow: bool, since: datetime.datetime | float | None, times: bool, left: threading.Event
    ) -> Iterator[Output]:
        """As output, until nobody wants it any more; of an action that is silent that is seen in retry_s."""
        request: dict = {"actionId": str(self.id), "attempt": 0, "follow": follow, "times": times}
        if since is not None:
            request["since"] = timestamp(since)
        reached = {"stdout": 0, "stderr": 0}
        failing_since: float | None = None
        while True:
            request.update({name + "Offset": str(offset) for name, offset in reached.items()})
            try:
                for message in self.client.stream("ActionService/ReadActionOutput", request):
                    chunk = message["chunk"]
                    request["attempt"] = chunk["attempt"]
                    name = chunk["stream"].removeprefix("OUTPUT_STREAM_").lower()
                    data, offset = base64.b64decode(chunk.get("data", "")), int(chunk.get("offset", 0))
                    reached[name] = offset + len(data)
                    failing_since = None
                    yield Output(name, data, offset, parse_time(chunk["time"]) if times else None)
                return
            except TimeoutError:
                if left.is_set():
                    return
                # Either nothing was written, or the server is gone: then another one is asked.
                self.client.get(self.id)
                failing_since = None
            except Error as err:
                if left.is_set():
                    return
                failing_since = time.monotonic() if failing_since is None else failing_since
                if err.retry_after is None or time.monotonic() > failing_since + self.client.retry_s:
                    raise
                time.sleep(max(err.retry_after, 0.05))

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        if self.poll() is None:
            self.cancel()


def timestamp(since: datetime.datetime | float) -> str:
    """A time as the API has it: of a datetime, or of so many seconds ago."""
    if not isinstance(since, datetime.datetime):
        since = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=since)
    return since.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> datetime.datetime:
    """A time of the API, to a microsecond."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    at = datetime.datetime.strptime(whole, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=datetime.timezone.utc)
    return at + datetime.timedelta(microseconds=int(fraction[:6].ljust(6, "0")))


def collect(action: Action, pieces: Iterable[Output]) -> None:
    """Gives an action all of its output. It is truncated if the beginning of a stream is not there."""
    whole = {"stdout": bytearray(), "stderr": bytearray()}
    dropped = False
    for piece in pieces:
        dropped = dropped or piece.offset != len(whole[piece.stream])
        whole[piece.stream] += piece.data
    if any(whole.values()):
        action.stdout_bytes, action.stderr_bytes = map(bytes, whole.values())
        action.truncated = dropped
