"""Reward functions: calling one at a gateway, and making a replica of a Python function.

A replica is one process, which rota starts with the port that it has to listen on:

    rota reward register math -- python3 -m rota.reward --port {{port}} graders:math

It answers what frameworks send to a remote reward:

- slime's remote_rm: {"prompt", "response", "label"}; the answer is what the function returns.
- rota and verl's arguments of a reward function: any object, whose fields are the arguments.
- verl's reward loop with a discriminative model: {"model", "input"} at /classify and
  /v1/embeddings; the function is called with the input alone and returns a number.
"""

from __future__ import annotations

import argparse
import asyncio
import http.server
import importlib
import inspect
import json
import sys
import traceback
from typing import Any, Callable

from .episode import Model
from .threads import in_thread


class Reward:
    """A reward function at a gateway. Calling it returns what the function returns.

    name: of the function, as it was registered.
    gateway: URL of a gateway, such as "http://127.0.0.1:8000", or a Model.
    options: of the Model that is made of a URL: key, ca, timeout_s, retry_s.

    A call raises ModelError if the gateway or the function refuses it. One that nobody has
    answered, or that should be made later, is made again for retry_s seconds: functions are
    stateless, so that twice is as once.
    """

    def __init__(self, name: str, gateway: str | Model, **options: Any):
        self.name = name
        self.model = Model(gateway, **options) if isinstance(gateway, str) else gateway

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Posts the keyword arguments as an object, or the only argument as it is."""
        if args and kwargs:
            raise TypeError("give a reward function keyword arguments, or one argument")
        body = kwargs or (args[0] if len(args) == 1 else list(args))
        return self.model.ask(f"/v1/rewards/{self.name}", body)

    def close(self) -> None:
        """Closes the connections that nobody uses."""
        self.model.close()


class AsyncReward:
    """As Reward, for asyncio."""

    def __init__(self, name: str, gateway: str | Model, **options: Any):
        self.blocking = Reward(name, gateway, **options)

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return await in_thread(self.blocking, *args, **kwargs)


#: Paths at which verl asks a model, and where in the answer it looks for the score.
_SCORED = {
    "/classify": lambda score: {"data": [{"index": 0, "probs": [score], "num_classes": 1}]},
    "/v1/embeddings": lambda score: {"data": [{"index": 0, "embedding": [score]}]},
}


class WrongCall(Exception):
    """What was sent is not what the function takes."""


class Replica(http.server.ThreadingHTTPServer):
    """Answers calls of one function, each in a thread of its own."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, function: Callable[..., Any], port: int):
        self.function = function
        try:
            self._signature = inspect.signature(function)
        except ValueError:  # a few functions that are written in C have none
            self._signature = None
        super().__init__(("127.0.0.1", port), _Handler)

    def answer(self, path: str, call: Any) -> Any:
        """What the function says to the body of one call."""
        scored = _SCORED.get(path)
        if scored is not None:
            if not isinstance(call, dict) or "input" not in call:
                raise WrongCall('the body has no "input"')
            return scored(float(self._run([call["input"]], {})))
        return self._run([], call) if isinstance(call, dict) else self._run([call], {})

    def _run(self, args: list, kwargs: dict) -> Any:
        if self._signature is not None:
            try:
                self._signature.bind(*args, **kwargs)
            except TypeError as err:
                raise WrongCall(str(err)) from None
        result = self.function(*args, **kwargs)
        return asyncio.run(result) if inspect.iscoroutine(result) else result


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Replica
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            call = json.loads(body)
        except ValueError as err:
            self._send(400, _error(f"the body is not JSON: {err}"))
            return
        status, answer = 200, b""
        try:
            answer = json.dumps(self.server.answer(self.path.partition("?")[0], call)).encode()
        except WrongCall as err:
            status, answer = 400, _error(err)
        except Exception as err:
            traceback.print_exc()
            status, answer = 500, _error(err)
        self._send(status, answer)

    def do_GET(self) -> None:
        self._send(200, json.dumps({"status": "ok"}).encode())

    def _send(self, status: int, text: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Calls are counted at the gateway."""


def _error(err: Exception | str) -> bytes:
    message = err if isinstance(err, str) else f"{type(err).__name__}: {err}"
    return json.dumps({"error": {"message": message}}).encode()


def _load(name: str) -> Callable[..., Any]:
    module, _, function = name.partition(":")
    if not module or not function:
        raise ValueError(f"{name!r} names no function: write MODULE:FUNCTION")
    sys.path.insert(0, "")
    return getattr(importlib.import_module(module), function)


def main(argv: list[str] | None = None) -> None:
    """The process of a replica."""
    parser = argparse.ArgumentParser(prog="python3 -m rota.reward", description="Answers calls of a reward function.")
    parser.add_argument("--port", type=int, required=True, help="where to listen, on 127.0.0.1")
    parser.add_argument("function", metavar="MODULE:FUNCTION")
    flags = parser.parse_args(argv)
    Replica(_load(flags.function), flags.port).serve_forever()


if __name__ == "__main__":
    main()
