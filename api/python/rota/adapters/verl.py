"""verl: a tool that runs commands in a sandbox of rota.

In the tool configuration of a rollout:

    tools:
      - class_name: rota.adapters.verl.RotaTool
        config:
          type: native
          image: python:3.12
          cores: 1-8
          memory: 2GiB
          timeout_s: 120
          reward_command: python3 -m pytest -q

verl's agent loop creates and releases a tool for each call. All calls of one trajectory share a
sandbox nevertheless: it is kept for as long as verl keeps the data of the loop.
"""

from __future__ import annotations

import math
import dataclasses
import threading
import uuid
import weakref
from typing import Any, Optional

from ..spec import Action
from .lazy import Types, installed, subclass
from ..threads import in_thread
from .place import Place, exit_code

_SCHEMA = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Runs a command of the shell. Files last from one command to the next; the directory and variables do not.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string", "description": "The command, as for sh -c."}},
            "required": ["command"],
        },
    },
}


@dataclasses.dataclass
class ToolResponse:
    text: Optional[str] = None
    image: Optional[list] = None
    video: Optional[list] = None


_answers = Types("verl.tools.schemas", ToolResponse)


class _RotaTool:
    """A tool of verl that runs the argument "command" in a sandbox of rota.

    config: the options of ``place.Place``, and

    reward_command: what calc_reward runs: the reward is the number that it prints last, or else 1.0
        if it succeeds and 0.0 if not.
    step_reward: also run it after each call, for the reward of the step; verl's agent loop asks
        for no other.
    setup: a command that is run when the sandbox was opened.

    ``create_kwargs`` of a sample take the place of the same names, such as image and setup.
    """

    def __init__(self, config: dict, tool_schema: Any):
        self.config = config
        self.tool_schema = tool_schema or self._own_schema()
        function = self.tool_schema["function"] if isinstance(self.tool_schema, dict) else self.tool_schema.function
        self.name = function["name"] if isinstance(function, dict) else function.name
        self._about: dict[str, dict] = {}
        self._boxes: dict[str, _Box] = {}

    def _own_schema(self) -> Any:
        schemas = installed("verl.tools.schemas")
        return _SCHEMA if schemas is None else schemas.OpenAIFunctionToolSchema.model_validate(_SCHEMA)

    def get_openai_tool_schema(self) -> Any:
        return self.tool_schema

    async def create(self, instance_id: Optional[str] = None, **kwargs: Any) -> tuple[str, Any]:
        instance_id = instance_id or str(uuid.uuid4())
        given = {**kwargs, **kwargs.get("create_kwargs", {})}
        given.pop("create_kwargs", None)
        self._about[instance_id] = {**self.config, **given}
        return instance_id, _answers.ToolResponse()

    async def execute(self, instance_id: str, parameters: dict[str, Any], **kwargs: Any) -> tuple[Any, float, dict]:
        box = self._box(instance_id, kwargs.get("agent_data"))
        command = parameters.get("command")
        if not isinstance(command, str):
            return _answers.ToolResponse(text='this tool needs the argument "command", a text'), 0.0, {}
        action = await in_thread(box.run, command)
        reward = await in_thread(box.reward) if box.step_reward else 0.0
        return _answers.ToolResponse(text=observation(action)), reward, {"exit_code": exit_code(action), "action": action.id}

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float:
        return await in_thread(self._box(instance_id, kwargs.get("agent_data")).reward)

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        self._about.pop(instance_id, None)
        box = self._boxes.pop(instance_id, None)
        if box is not None:
            await in_thread(box.close)

    def _box(self, instance_id: str, agent_data: Any) -> _Box:
        """The sandbox of a loop, or else of an instance."""
        key = instance_id if agent_data is None else agent_data.request_id
        if key not in self._boxes:
            self._boxes[key] = _Box(self._about[instance_id])
            if agent_data is not None:
                weakref.finalize(agent_data, _abandon, self._boxes, key).atexit = False
        return self._boxes[key]


def _abandon(boxes: dict[str, _Box], key: str) -> None:
    """Closes the sandbox of a loop that is over, and waits for nobody."""
    box = boxes.pop(key, None)
    if box is not None:
        threading.Thread(target=box.close, daemon=True).start()


class _Box:
    """The sandbox of one trajectory of verl."""

    def __init__(self, config: dict):
        options = dict(config)
        options.pop("type", None)
        self._setup: str = options.pop("setup", "")
        self._reward: str = options.pop("reward_command", "")
        self.step_reward: bool = bool(self._reward) and bool(options.pop("step_reward", False))
        options.pop("step_reward", None)
        self._place = Place(options)
        self._lock = threading.Lock()

    def run(self, command: str) -> Action:
        with self._lock:  # a model may ask for two calls at once: the first sets up
            if self._setup:
                self._place.shell(self._setup, check=True)
                self._setup = ""
        return self._place.shell(command)

    def reward(self) -> float:
        return reward_of(self._place.shell(self._reward)) if self._reward else 0.0

    def close(self) -> None:
        self._place.close()


def observation(action: Action) -> str:
    """What a model is shown of a command: what it wrote, and how it ended unless with success."""
    text = action.stdout + action.stderr
    if action.succeeded:
        return text
    code = exit_code(action)
    why = "" if action.reason == "EXITED" else f" ({action.reason.lower().replace('_', ' ')})"
    return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}exit code {code}{why}"


def reward_of(action: Action) -> float:
    """The reward that a command gives: the number that it wrote last, or else whether it succeeded."""
    last = action.stdout.split()[-1:]
    try:
        if math.isfinite(reward := float(last[0])):
            return reward
    except (IndexError, ValueError):
        pass
    return 1.0 if action.succeeded else 0.0


_made: dict[str, type] = {}


def __getattr__(name: str) -> type:
    if name != "RotaTool":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name not in _made:
        _made[name] = subclass(_RotaTool, "verl.tools.base_tool", "BaseTool")
    return _made[name]
