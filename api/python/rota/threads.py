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


def _new_pool() -> concurrent.futures.ThreadPoolExecutor:
    return concurrent.futures.ThreadPoolExecutor(max_workers=4096, thread_name_prefix="rota")


_pool = _new_pool()


async def in_thread(call: Callable[..., Done], /, *args: Any, **kwargs: Any) -> Done:
    """Runs a blocking call beside the loop, with the context variables of the caller."""
    run = functools.partial(contextvars.copy_context().run, call, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_pool, run)


def in_background(call: Callable[[], Any]) -> None:
    """Runs a blocking call for which nobody waits."""
    _pool.submit(call)


def _forked() -> None:
    """The threads stay in the process that was forked."""
    global _pool
    _pool = _new_pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
