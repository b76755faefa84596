"""Unknown arguments: a TypeError says which name is the nearest."""

from __future__ import annotations

import difflib
import functools
import inspect
from typing import Any, Callable, Iterable, TypeVar

_Class = TypeVar("_Class", bound=type)


def refuse_unknown(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raises TypeError for a name that is not known, with the nearest that is."""
    names = sorted(known)
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            raise TypeError(f"{what} has no argument {name!r}" + (f": did you mean {near[0]!r}?" if near else ""))


def names_checked(cls: _Class) -> _Class:
    """A class whose public methods say so of unknown keyword arguments, as refuse_unknown does."""
    for name, method in list(vars(cls).items()):
        if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_")):
            setattr(cls, name, _checked(cls.__name__ if name == "__init__" else name, method))
    return cls


def _checked(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    parameters = list(inspect.signature(method).parameters.values())[1:]  # without self
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return method  # it passes them on, or checks them itself
    known = [p.name for p in parameters]

    @functools.wraps(method)
    def checked(*args: Any, **given: Any) -> Any:
        refuse_unknown(name, given, known)
        return method(*args, **given)

    return checked
