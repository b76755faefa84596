"""What the methods of Client that stand in files of their own need of it."""

from __future__ import annotations

from typing import List

from .spec import Action, Submission


class Calls:
    """The calls of a Client."""

    namespace: str
    retry_s: float

    def call(self, method: str, request: dict | None = None, *, try_s: float | None = None) -> dict:
        raise NotImplementedError  # of Client

    def request_id(self) -> str:
        raise NotImplementedError  # of Client

    def submit(self, *specs: dict, request_id: str | None = None) -> Submission:
        raise NotImplementedError  # of Client

    def wait(self, action: int, timeout_s: float | None = None) -> Action:
        raise NotImplementedError  # of Client

    def cancel(self, *actions: int) -> None:
        raise NotImplementedError  # of Client

    def _pages(self, method: str, request: dict, field: str) -> List[dict]:
        raise NotImplementedError  # of Client
