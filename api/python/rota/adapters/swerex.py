"""SWE-ReX 1.4: a runtime and its deployment, for SWE-agent and others.

    from rota.adapters.swerex import RotaDeployment

    deployment = RotaDeployment(image="python:3.12", cores="1-8", memory="4GiB")
    await deployment.start()
    await deployment.runtime.create_session(CreateBashSessionRequest())

A session is not a shell that stays: each command is an action of its own, which finds the
directory, the variables, the functions and the aliases that the last one left. So a session
holds no cores while the model thinks, and each command may get as many as are free. What a
command leaves in the background ends with it; interactive programs run until they are quit.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import dataclasses
import logging
import pathlib
import re
import secrets
from typing import Any

from ..background import Process
from ..errors import Error
from ..spec import Action
from .lazy import Types, subclass
from ..threads import in_thread
from .place import Place, exit_code

#: $1: where the state of the session is, $2: the command. What the cluster tells an action is not
#: part of the state: $3 keeps it.
_STEP = r"""
if ! __rota_why=$(bash -n -c "$2" 2>&1); then printf '%s\n' "$__rota_why" >&2; exit 2; fi
exec 2>&1
shopt -s expand_aliases
set -- "$1" "$2" "$(declare -p "${!ROTA_@}" TRACEPARENT 2>/dev/null)"
if [ -f "$ROTA_TRAJECTORY_DIR/$1" ]; then . "$ROTA_TRAJECTORY_DIR/$1" 2>/dev/null; fi
eval "$3"
__rota_state=$ROTA_TRAJECTORY_DIR/$1
__rota_save() {
  __rota_code=$?
  mkdir -p -- "${__rota_state%/*}"
  { declare -p; declare -f; alias -p; printf 'cd -- %q\n' "$PWD"; } >"$__rota_state.new" 2>/dev/null && mv -- "$__rota_state.new" "$__rota_state"
  exit $__rota_code
}
trap __rota_save EXIT
__rota_command=$2
set --
eval "$__rota_command"
"""
#: $1: where the state of the session is, $2: a program that is talked to.
_TALK = r"""
set -- "$1" "$2" "$(declare -p "${!ROTA_@}" TRACEPARENT 2>/dev/null)"
if [ -f "$ROTA_TRAJECTORY_DIR/$1" ]; then . "$ROTA_TRAJECTORY_DIR/$1" 2>/dev/null; fi
eval "$3"
eval "$2"
"""
#: Longer commands are sent as a file: an action has at most 64 KiB.
_WORD = 8 << 10
_CONTROL = re.compile(r"\x1b[@-_][0-?]*[ -/]*[@-~]")


@dataclasses.dataclass
class IsAliveResponse:
    is_alive: bool
    message: str = ""

    def __bool__(self) -> bool:
        return self.is_alive


@dataclasses.dataclass
class CreateBashSessionResponse:
    output: str = ""
    session_type: str = "bash"


@dataclasses.dataclass
class BashObservation:
    output: str = ""
    exit_code: int | None = None
    failure_reason: str = ""
    expect_string: str = ""
    session_type: str = "bash"


@dataclasses.dataclass
class CloseBashSessionResponse:
    session_type: str = "bash"


@dataclasses.dataclass
class CommandResponse:
    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None


@dataclasses.dataclass
class ReadFileResponse:
    content: str = ""


class WriteFileResponse:
    """Nothing is to be said."""


class UploadResponse:
    """Nothing is to be said."""


class CloseResponse:
    """Nothing is to be said."""


class NonZeroExitCodeError(RuntimeError):
    """A command that was to be checked has failed."""


class BashIncorrectSyntaxError(RuntimeError):
    """A command of a session is not one of bash."""

    def __init__(self, message: str, *, extra_info: dict[str, Any] | None = None):
        super().__init__(message)
        self.extra_info = extra_info or {}


class CommandTimeoutError(RuntimeError, TimeoutError):
    """A command ran for longer than it may, and was killed."""


class SessionExistsError(ValueError):
    """A session of that name is there."""


class SessionDoesNotExistError(ValueError):
    """No session has that name."""


class DeploymentNotStartedError(RuntimeError):
    """The deployment has no runtime yet, or no more."""


_answers = Types(
    "swerex.runtime.abstract", IsAliveResponse, CreateBashSessionResponse, BashObservation, CloseBashSessionResponse,
    CommandResponse, ReadFileResponse, WriteFileResponse, UploadResponse, CloseResponse,
)
_errors = Types(
    "swerex.exceptions", NonZeroExitCodeError, BashIncorrectSyntaxError, CommandTimeoutError, SessionExistsError,
    SessionDoesNotExistError, DeploymentNotStartedError,
)


class _Talk:
    """An interactive program that runs in a session."""

    def __init__(self, process: Process):
        self.process = process
        self._interrupts = Process(process.client, process.id)  # a writer that waits for no other
        self._text = ""
        self._news = asyncio.Event()
        self._ended = False
        self._reader = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        pieces = self.process.output()
        decode = codecs.getincrementaldecoder("utf-8")(errors="backslashreplace").decode
        try:
            while (piece := await in_thread(lambda: next(pieces, None))) is not None:
                self._text += decode(piece.data)
                self._news.set()
        finally:
            self._ended = True
            self._news.set()

    async def until(self, expect: list[str], timeout_s: float | None, quiet_s: float = 1.0) -> tuple[str, str]:
        """What is written until one of the patterns is, or the program ends, or is quiet if there is no pattern."""

        async def wait() -> tuple[str, str]:
            while True:
                found = [m for pattern in expect if (m := re.search(pattern, self._text))]
                if found:
                    first = min(found, key=lambda m: m.start())
                    return self._take(first.start(), first.end()), first.re.pattern
                if self._ended:
                    return self._take(len(self._text), len(self._text)), ""
                self._news.clear()
                try:
                    await asyncio.wait_for(self._news.wait(), None if expect or not self._text else quiet_s)
                except asyncio.TimeoutError:
                    return self._take(len(self._text), len(self._text)), ""

        return await asyncio.wait_for(wait(), timeout_s)

    def _take(self, end: int, rest: int) -> str:
        text, self._text = self._text[:end], self._text[rest:]
        return _CONTROL.sub("", text).replace("\r\n", "\n")

    async def say(self, text: str) -> None:
        await in_thread(self.process.write, text)

    async def interrupt(self) -> None:
        await in_thread(self._interrupts.write, "\x03")

    async def end(self) -> None:
        if not self._ended:
            await in_thread(self.process.cancel)
        with contextlib.suppress(Error):  # nobody wants to read any more
            await self._reader


class _Session:
    """What a session is between its commands: a file that has its state, and a program that it talks to."""

    def __init__(self, place: Place, name: str):
        self._place = place
        self._state = f".rota-session/{re.sub('[^A-Za-z0-9]', '_', name)}-{secrets.token_hex(3)}"
        self._lock = asyncio.Lock()
        self._talk: _Talk | None = None

    async def run(self, action: Any) -> Any:
        if getattr(action, "action_type", "bash") == "bash_interrupt":
            return await self._interrupt(action)
        async with self._lock:
            if action.is_interactive_command or action.is_interactive_quit:
                return await self._say(action)
            ended = await self.step(action.command, action.timeout)
            code = None if action.check == "ignore" else exit_code(ended)
            if action.check == "raise" and code != 0:
                raise _failed(action, code, ended.stdout)
            return _answers.BashObservation(output=ended.stdout, exit_code=code)

    async def step(self, command: str, timeout_s: float | None) -> Action:
        """Runs one command in the state that the last one left."""
        if len(command) > _WORD:
            await in_thread(self._place.write, self._state + ".command", command.encode())
            command = f'eval "$(cat "$ROTA_TRAJECTORY_DIR/{self._state}.command")"'
        argv = ["bash", "-c", _STEP, "bash", self._state, command]
        ended = await in_thread(lambda: self._place.run(argv, timeout_s=timeout_s))
        if ended.reason == "TIMEOUT":
            raise _errors.CommandTimeoutError(f"timeout after {timeout_s} seconds while running command {command!r}")
        if ended.stderr:
            raise _errors.BashIncorrectSyntaxError(
                f"{command!r} is not correct bash: {ended.stderr}", extra_info={"bash_stdout": "", "bash_stderr": ended.stderr}
            )
        return ended

    async def _say(self, action: Any) -> Any:
        if self._talk is None:
            argv = ["bash", "-c", _TALK, "bash", self._state, action.command]
            self._talk = _Talk(await in_thread(lambda: self._place.trajectory.start(argv, tty=(24, 200))))
        else:
            await self._talk.say(action.command + "\n")
        try:
            output, found = await self._talk.until(list(action.expect), action.timeout)
        except asyncio.TimeoutError:
            raise _errors.CommandTimeoutError(f"timeout after {action.timeout} seconds while running command {action.command!r}") from None
        if action.is_interactive_quit:
            await self._quit()
        output = output.lstrip().removeprefix(action.command).strip()
        return _answers.BashObservation(output=output, exit_code=0, expect_string=found)

    async def _interrupt(self, action: Any) -> Any:
        """Stops what the program does. A command that took too long is over already."""
        if self._talk is None:
            return _answers.BashObservation(output="", exit_code=0)
        await self._talk.interrupt()
        try:
            output, found = await self._talk.until(list(action.expect), max(action.timeout, 1.0))
        except asyncio.TimeoutError:
            raise _errors.CommandTimeoutError("the program does not react to Ctrl-C") from None
        return _answers.BashObservation(output=output.strip(), exit_code=0, expect_string=found)

    async def _quit(self) -> None:
        talk, self._talk = self._talk, None
        if talk is not None:
            await talk.end()

    async def close(self) -> None:
        await self._quit()


class _RotaRuntime:
    """A SWE-ReX runtime that is a sandbox of rota. See ``place.Place`` for the options."""

    def __init__(self, *, logger: logging.Logger | None = None, **options: Any):
        self.logger = logger or logging.getLogger("rota.swerex")
        self.place = Place(options)
        self._sessions: dict[str, _Session] = {}

    async def is_alive(self, *, timeout: float | None = None) -> Any:
        try:
            alive = await asyncio.wait_for(in_thread(self.place.alive), timeout)
        except Exception as err:
            return _answers.IsAliveResponse(is_alive=False, message=f"{type(err).__name__}: {err}")
        return _answers.IsAliveResponse(is_alive=alive, message="" if alive else "its trajectory has ended")

    async def create_session(self, request: Any) -> Any:
        if request.session in self._sessions:
            raise _errors.SessionExistsError(f"session {request.session} already exists")
        session = self._sessions[request.session] = _Session(self.place, request.session)
        sources = "".join(f"source {path}\n" for path in request.startup_source)
        try:
            started = await session.step(sources + ":", None)
        except BaseException:
            del self._sessions[request.session]
            raise
        return _answers.CreateBashSessionResponse(output=started.stdout)

    async def run_in_session(self, action: Any) -> Any:
        return await self._session(action.session).run(action)

    async def close_session(self, request: Any) -> Any:
        await self._session(request.session).close()
        del self._sessions[request.session]
        return _answers.CloseBashSessionResponse()

    def _session(self, name: str) -> _Session:
        if name not in self._sessions:
            raise _errors.SessionDoesNotExistError(f"session {name!r} does not exist")
        return self._sessions[name]

    async def execute(self, command: Any) -> Any:
        words = [command.command] if isinstance(command.command, str) else list(command.command)
        argv = ["sh", "-c", *words] if command.shell else words
        if command.merge_output_streams:
            argv = ["sh", "-c", 'exec "$@" 2>&1', "sh", *argv]
        ended = await in_thread(lambda: self.place.run(argv, timeout_s=command.timeout, env=command.env, cwd=command.cwd))
        if ended.reason == "TIMEOUT":
            raise _errors.CommandTimeoutError(f"timeout after {command.timeout} seconds while running command {command.command!r}")
        code = 127 if ended.reason == "START_FAILED" else exit_code(ended)
        if command.check and code != 0:
            raise _failed(command, code, ended.stdout + ended.stderr)
        return _answers.CommandResponse(stdout=ended.stdout, stderr=ended.stderr or ("" if code != 127 else ended.message), exit_code=code)

    async def read_file(self, request: Any) -> Any:
        content = await in_thread(self.place.read, request.path)
        text = content.decode(request.encoding or "utf-8", request.errors or "strict")
        return _answers.ReadFileResponse(content=text)

    async def write_file(self, request: Any) -> Any:
        await in_thread(self.place.write, request.path, request.content.encode())
        return _answers.WriteFileResponse()

    async def upload(self, request: Any) -> Any:
        await in_thread(self.place.upload, pathlib.Path(request.source_path), request.target_path)
        return _answers.UploadResponse()

    async def close(self) -> Any:
        try:
            for session in list(self._sessions.values()):
                await session.close()
        finally:
            self._sessions.clear()
            await in_thread(self.place.close)
        return _answers.CloseResponse()


def _failed(command: Any, code: int | None, output: str) -> Exception:
    text = f"command {command.command!r} failed with exit code {code}, and this output:\n{output}"
    return _errors.NonZeroExitCodeError(f"{command.error_msg}: {text}" if command.error_msg else text)


class _RotaDeployment:
    """A SWE-ReX deployment whose runtime is a sandbox of rota. See ``place.Place`` for the options."""

    def __init__(self, *, logger: logging.Logger | None = None, **options: Any):
        self.logger = logger or logging.getLogger("rota.swerex")
        self._options = options
        self._hooks: list[Any] = []
        self._runtime: Any = None

    def add_hook(self, hook: Any) -> None:
        hook.on_init(self)
        self._hooks.append(hook)

    async def is_alive(self, *, timeout: float | None = None) -> Any:
        return await self.runtime.is_alive(timeout=timeout)

    async def start(self, *args: Any, **kwargs: Any) -> None:
        for hook in self._hooks:
            hook.on_custom_step("Opening a sandbox of rota")
        self._runtime = _class("RotaRuntime")(logger=self.logger, **self._options)
        await in_thread(lambda: self._runtime.place.trajectory)

    async def stop(self, *args: Any, **kwargs: Any) -> None:
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            await runtime.close()

    @property
    def runtime(self) -> Any:
        if self._runtime is None:
            raise _errors.DeploymentNotStartedError("Deployment not started")
        return self._runtime


_CLASSES = {
    "RotaRuntime": (_RotaRuntime, "swerex.runtime.abstract", "AbstractRuntime"),
    "RotaDeployment": (_RotaDeployment, "swerex.deployment.abstract", "AbstractDeployment"),
}
_made: dict[str, type] = {}


def _class(name: str) -> type:
    if name not in _made:
        _made[name] = subclass(*_CLASSES[name])
    return _made[name]


def __getattr__(name: str) -> type:
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _class(name)
