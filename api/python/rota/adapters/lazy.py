"""Classes of frameworks that may not be installed."""

from __future__ import annotations

import functools
import importlib
import types
from typing import Any


@functools.lru_cache(maxsize=None)
def installed(module: str) -> types.ModuleType | None:
    """A module of a framework, None if the framework is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as err:
        if (err.name or "").partition(".")[0] != module.partition(".")[0]:
            raise  # it is installed, and lacks something
        return None


class Types:
    """The classes of a framework's module by their names, or else ours, which have the same fields."""

    def __init__(self, module: str, *own: type):
        self._module = module
        self._own = {cls.__name__: cls for cls in own}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(installed(self._module), name, None) or self._own[name]


def subclass(body: type, module: str, name: str) -> type:
    """A class with the methods of body that is a subclass of a framework's, if that is there."""
    framework = installed(module)
    bases = (body,) if framework is None else (body, getattr(framework, name))
    return types.new_class(body.__name__.lstrip("_"), bases, exec_body=lambda ns: ns.update({"__module__": body.__module__, "__doc__": body.__doc__}))
