"""slime: a sandbox for its agent rollouts.

    from rota.adapters.slime import RotaSandbox

    async with RotaSandbox("python:3.12", cores="1-8") as sandbox:
        code, out, err = await sandbox.exec("python3 -m pytest -q")

It is one by its methods, for the protocol ``Sandbox`` of slime/agent/sandbox.py, and takes the
place of its ``E2BSandbox``.
"""

from __future__ import annotations

import asyncio
import pathlib
import shlex
from typing import Any, Dict, Optional, Tuple, Union

from ..errors import ActionFailed
from ..threads import in_background, in_thread
from .place import Place, exit_code


class RotaSandbox:
    """A sandbox of rota, for ``async with``. See ``place.Place`` for the options.

    timeout: seconds after which it closes by itself.
    """

    sandbox_id: str

    def __init__(self, image: Optional[str] = None, *, timeout: Optional[int] = None, **options: Any):
        self._place = Place({**options, "image": image, "lifetime_s": timeout})
        self.sandbox_id = ""

    async def __aenter__(self) -> RotaSandbox:
        opening = asyncio.ensure_future(in_thread(lambda: self._place.trajectory))
        try:
            self.sandbox_id = str((await asyncio.shield(opening)).id)
        except asyncio.CancelledError:
            in_background(self._place.close)  # as soon as it is open
            raise
        return self

    async def __aexit__(self, exc_type: Any, exc: Any, tb: Any) -> None:
        await in_thread(self._place.close)

    async def exec(
        self, cmd: str, *, user: str = "root", env: Optional[Dict[str, str]] = None, timeout: int = 120, check: bool = False
    ) -> Tuple[int, str, str]:
        """Runs a command of the shell. Returns its exit code and what it wrote; 124 after timeout seconds.

        user: "root" is the user of the sandbox, whoever that is. Others need a sandbox that is root.
        check: RuntimeError if it fails.
        """
        action = await in_thread(lambda: self._place.shell(cmd, user=user, env=env, timeout_s=timeout))
        if check and not action.succeeded:
            raise RuntimeError(str(ActionFailed(action)))
        return exit_code(action), action.stdout, action.stderr

    async def write_file(self, sandbox_path: str, content: Union[str, bytes, pathlib.Path], *, user: str = "root") -> None:
        """Writes a file: text, bytes, or what a file of this machine has."""
        data = content.read_bytes() if isinstance(content, pathlib.Path) else content.encode() if isinstance(content, str) else content
        await in_thread(self._place.write, sandbox_path, data)
        if user != "root":
            await self.exec(f"chown {shlex.quote(user)} {shlex.quote(sandbox_path)}", check=True)

    async def read_file(self, sandbox_path: str, *, user: str = "root") -> str:
        """What a file has, as text. Like slime's own, empty for one that is not there."""
        try:
            return (await in_thread(self._place.read, sandbox_path)).decode(errors="replace")
        except FileNotFoundError:
            return ""
