"""SkyRL: an environment whose actions are commands in a sandbox of rota.

    from skyrl_gym.envs import register

    register(id="rota", entry_point="rota.adapters.skyrl:RotaEnv")

The model writes a command between <bash> and </bash>, is shown what it wrote, and ends with
<done>. Give "</bash>" and "<done>" as stop strings.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Tuple

from .lazy import subclass
from .place import Place
from .verl import observation, reward_of

_COMMAND = re.compile(r"<bash>(.*?)</bash>", re.DOTALL)
_DONE = "<done>"
#: What is not an option of ``place.Place``.
_OWN = ("setup", "reward_command", "max_turns", "observation_chars")


class _RotaEnv:
    """An environment of SkyRL.

    env_config: the options of ``place.Place``, and

    setup: a command that is run when the sandbox was opened.
    reward_command: what is run at the end: the reward is the number that it prints last, or else
        1.0 if it succeeds and 0.0 if not.
    max_turns: of an episode, 10 by default.
    observation_chars: how much of its output the model is shown: the first half and the last.

    extras of a sample with these names take their place.
    """

    def __init__(self, env_config: Any = None, extras: Mapping[str, Any] = {}):
        super().__init__()
        names = (*_OWN, "image", "env", "dir", "cores", "memory", "labels")
        about = {**dict(env_config or {}), **{name: extras[name] for name in names if name in extras}}
        self._setup: str = about.pop("setup", "")
        self._reward: str = about.pop("reward_command", "")
        self.max_turns: int = about.pop("max_turns", 10)
        self._chars: int = about.pop("observation_chars", 10_000)
        self.turns = 0
        self._place = Place(about)

    def init(self, prompt: List[Dict[str, str]]) -> Tuple[List[Dict[str, str]], Dict[str, Any]]:
        """Opens the sandbox. Returns the prompt as it is."""
        trajectory = self._place.trajectory
        if self._setup:
            self._place.shell(self._setup, check=True)
        return prompt, {"trajectory": trajectory.id}

    def step(self, action: str) -> Dict[str, Any]:
        """Runs the last command that the model wrote. Returns a BaseTextEnvStepOutput."""
        self.turns += 1
        commands = _COMMAND.findall(action)
        metadata: Dict[str, Any] = {}
        if commands:
            ended = self._place.shell(commands[-1])
            metadata = {"action": ended.id, "exit_code": ended.exit_code, "reason": ended.reason}
            shown = self._shorten(observation(ended))
        else:
            shown = "Write one command between <bash> and </bash>, or <done>."
        if self.turns >= self.max_turns or _DONE in action:
            return self._output([], self._score(), True, metadata)
        return self._output([{"role": "user", "content": shown}], 0.0, False, metadata)

    def _output(self, observations: List[Dict[str, str]], reward: float, done: bool, metadata: Dict[str, Any]) -> Dict[str, Any]:
        return {"observations": observations, "reward": reward, "done": done, "metadata": metadata}

    def _score(self) -> float:
        return reward_of(self._place.shell(self._reward)) if self._reward else 0.0

    def _shorten(self, text: str) -> str:
        left_out = len(text) - self._chars
        if left_out <= 0:
            return text
        half = self._chars // 2
        return f"{text[:half]}\n[{left_out} characters left out]\n{text[len(text) - half :]}"

    def close(self) -> None:
        """Ends its commands, and removes its files."""
        self._place.close()


_made: Dict[str, type] = {}


def __getattr__(name: str) -> type:
    if name != "RotaEnv":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name not in _made:
        _made[name] = subclass(_RotaEnv, "skyrl_gym.envs.base_text_env", "BaseTextEnv")
    return _made[name]
