"""The interfaces that the adapters have, as the frameworks declare them: names, arguments and defaults.

Written from the sources of the versions named here. No framework is needed to compare with them.
"""

from __future__ import annotations

import abc
import sys
import types
from typing import Any, Optional


class AbstractRuntime(abc.ABC):
    """SWE-ReX 1.4.0 (5c995c36), src/swerex/runtime/abstract.py"""

    @abc.abstractmethod
    async def is_alive(self, *, timeout: float | None = None): ...

    @abc.abstractmethod
    async def create_session(self, request): ...

    @abc.abstractmethod
    async def run_in_session(self, action): ...

    @abc.abstractmethod
    async def close_session(self, request): ...

    @abc.abstractmethod
    async def execute(self, command): ...

    @abc.abstractmethod
    async def read_file(self, request): ...

    @abc.abstractmethod
    async def write_file(self, request): ...

    @abc.abstractmethod
    async def upload(self, request): ...

    @abc.abstractmethod
    async def close(self): ...


class AbstractDeployment(abc.ABC):
    """SWE-ReX 1.4.0 (5c995c36), src/swerex/deployment/abstract.py"""

    @abc.abstractmethod
    def add_hook(self, hook): ...

    @abc.abstractmethod
    async def is_alive(self, *, timeout: float | None = None): ...

    @abc.abstractmethod
    async def start(self, *args, **kwargs): ...

    @abc.abstractmethod
    async def stop(self, *args, **kwargs): ...

    @property
    @abc.abstractmethod
    def runtime(self): ...


class BaseTool:
    """verl (3e3662a0), verl/tools/base_tool.py"""

    def __init__(self, config: dict, tool_schema): ...

    def get_openai_tool_schema(self): ...

    async def create(self, instance_id: Optional[str] = None, **kwargs): ...

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs): ...

    async def calc_reward(self, instance_id: str, **kwargs): ...

    async def release(self, instance_id: str, **kwargs): ...


class BaseTextEnv:
    """SkyRL (a9564572), skyrl-gym/skyrl_gym/envs/base_text_env.py"""

    def step(self, action: str): ...

    def init(self, prompt): ...

    def close(self): ...


class RllmSandbox:
    """rLLM 0.3.0 (9beb6e0f), rllm/sandbox/protocol.py"""

    def exec(self, command: str, timeout: float | None = None, user: str | None = None): ...

    def upload_file(self, local_path: str, remote_path: str): ...

    def upload_dir(self, local_path: str, remote_path: str): ...

    def close(self): ...

    def is_alive(self): ...


class SlimeSandbox:
    """slime (36608fb0), slime/agent/sandbox.py"""

    async def __aenter__(self): ...

    async def __aexit__(self, exc_type, exc, tb): ...

    async def exec(self, cmd: str, *, user: str = "root", env: dict[str, str] | None = None, timeout: int = 120, check: bool = False): ...

    async def write_file(self, sandbox_path: str, content, *, user: str = "root"): ...

    async def read_file(self, sandbox_path: str, *, user: str = "root"): ...


class Request(types.SimpleNamespace):
    """A request of SWE-ReX: its fields, with the framework's defaults."""


def create_session(session="default", startup_source=(), startup_timeout=1.0):
    return Request(session=session, startup_source=list(startup_source), startup_timeout=startup_timeout, session_type="bash")


def bash(command, session="default", timeout=None, check="raise", expect=(), interactive=False, quit=False):
    return Request(
        command=command, session=session, timeout=timeout, is_interactive_command=interactive, is_interactive_quit=quit, check=check,
        error_msg="", expect=list(expect), action_type="bash",
    )


def interrupt(session="default", expect=()):
    return Request(session=session, timeout=0.2, n_retry=3, expect=list(expect), action_type="bash_interrupt")


def command(words, shell=False, timeout=None, check=False, env=None, cwd=None, merge=False):
    return Request(command=words, timeout=timeout, shell=shell, check=check, error_msg="", env=env, cwd=cwd, merge_output_streams=merge)


def installed(**modules: dict[str, Any]) -> dict[str, types.ModuleType]:
    """Modules as sys.modules has them, by names with __ for a dot, and the packages above them."""
    made: dict[str, types.ModuleType] = {}
    for name, has in modules.items():
        parts = name.split("__")
        for end in range(1, len(parts) + 1):
            path = ".".join(parts[:end])
            made.setdefault(path, types.ModuleType(path))
            made[path].__path__ = []  # type: ignore[attr-defined]
        made[".".join(parts)].__dict__.update(has)
    assert not set(made) & set(sys.modules)
    return made
