"""What the methods of Client that stand in files of their own need of it."""

from __future__ import annotations


class Calls:
    """The calls of a Client."""

    namespace: str

    def call(self, method: str, request: dict | None = None, *, try_s: float | None = None) -> dict:
        raise NotImplementedError  # of Client

    def request_id(self) -> str:
        raise NotImplementedError  # of Client

    def _pages(self, method: str, request: dict, field: str) -> list[dict]:
        raise NotImplementedError  # of Client
