"""Threads for calls that wait for what others do, for as long as these take.

They are no threads of an event loop's executor, which a few such calls would fill: then nothing else
of the program that needs one would go on.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import os
from typing import Any, Callable, TypeVar

Done = TypeVar("Done")


#: How many threads calls have: those that wait for what others do, those that servers answer at once, and
#: those that submit or open something, which wait for as long as servers are overloaded. Each has a
#: connection while it runs, of which a server closes some beyond 2,048.
_THREADS = {"waits": 4096, "asks": 256, "opens": 64}


def _new_pools() -> dict[str, concurrent.futures.ThreadPoolExecutor]:
    return {name: concurrent.futures.ThreadPoolExecutor(most, thread_name_prefix="rota") for name, most in _THREADS.items()}


_pools = _new_pools()


async def in_thread(call: Callable[..., Done], /, *args: Any, **kwargs: Any) -> Done:
    """Runs a blocking call beside the loop, with the context variables of the caller."""
    return await _run("waits", call, *args, **kwargs)


async def briefly(call: Callable[..., Done], /, *args: Any, **kwargs: Any) -> Done:
    """As in_thread, for a call that servers answer at once."""
    return await _run("asks", call, *args, **kwargs)


async def opening(call: Callable[..., Done], /, *args: Any, **kwargs: Any) -> Done:
    """As in_thread, for a call that submits or opens something."""
    return await _run("opens", call, *args, **kwargs)


async def _run(pool: str, call: Callable[..., Done], /, *args: Any, **kwargs: Any) -> Done:
    run = functools.partial(contextvars.copy_context().run, call, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_pools[pool], run)


def in_background(call: Callable[[], Any]) -> None:
    """Runs a blocking call for which nobody waits."""
    _pools["waits"].submit(call)


def _forked() -> None:
    """The threads stay in the process that was forked."""
    global _pools
    _pools = _new_pools()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
