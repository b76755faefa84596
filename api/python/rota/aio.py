"""The client whose methods are coroutines: each call blocks a thread, not the loop."""

from __future__ import annotations

import asyncio
from typing import Any, Sequence

from .client import Client
from .errors import ActionFailed
from .spec import Action, Size, spec


class AsyncClient:
    """As Client, for asyncio."""

    def __init__(self, *servers: str, **options: Any):
        self.blocking = Client(*servers, **options)

    async def call(self, method: str, request: dict | None = None) -> dict:
        return await asyncio.to_thread(self.blocking.call, method, request)

    async def submit(self, *specs: dict) -> list[int]:
        return await asyncio.to_thread(self.blocking.submit, *specs)

    async def get(self, action: int) -> Action:
        return await asyncio.to_thread(self.blocking.get, action)

    async def cancel(self, *actions: int) -> None:
        await asyncio.to_thread(self.blocking.cancel, *actions)

    async def wait(self, action: int, timeout_s: float | None = None) -> Action:
        """As Client.wait; no thread waits while the action runs."""

        async def poll() -> Action:
            pause = 0.01
            while not (now := await self.get(action)).ended:
                await asyncio.sleep(pause)
                pause = min(2 * pause, 0.5)
            return now

        try:
            return await asyncio.wait_for(poll(), timeout_s)
        except asyncio.TimeoutError:
            raise TimeoutError(f"action {action} has not ended after {timeout_s} s") from None

    async def run(self, argv: Sequence[str], *, check: bool = False, **fields: Any) -> Action:
        ids = await self.submit(spec(argv, **fields))
        try:
            action = await self.wait(ids[0])
        except asyncio.CancelledError:
            await asyncio.shield(self.cancel(ids[0]))
            raise
        if check and not action.succeeded:
            raise ActionFailed(action)
        return action

    def close(self) -> None:
        """Closes the connections that nobody uses."""
        self.blocking.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: Any) -> None:
        self.close()

    def trajectory(self, memory: Size | None = None, **fields: Any) -> AsyncTrajectory:
        """A session of actions; it is opened by ``async with``."""
        return AsyncTrajectory(self, memory, fields)


class AsyncTrajectory:
    """As Trajectory, for ``async with``."""

    def __init__(self, client: AsyncClient, memory: Size | None, fields: dict):
        self.client = client
        self.id = 0
        self._open = (memory, fields)

    async def __aenter__(self) -> AsyncTrajectory:
        memory, fields = self._open
        opened = await asyncio.to_thread(lambda: self.client.blocking.trajectory(memory, **fields))
        self.id = opened.id
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self.client.call("TrajectoryService/CloseTrajectory", {"id": str(self.id)})

    async def submit(self, *specs: dict) -> list[int]:
        return await self.client.submit(*({**one, "trajectoryId": str(self.id)} for one in specs))

    async def run(self, argv: Sequence[str], *, check: bool = False, **fields: Any) -> Action:
        return await self.client.run(argv, check=check, trajectory=self.id, **fields)
