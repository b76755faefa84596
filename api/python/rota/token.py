"""Tokens: who a client is if it has no certificate."""

from __future__ import annotations

import os
import stat

from .errors import Error

_ENVIRONMENT = "ROTA_TOKEN"
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class Token:
    """The secret of a token of rota, or a JWT.

    secret: itself; None means that of ROTA_TOKEN.
    file: a private file that has it. It is read for each call, so that it can be replaced.
    """

    def __init__(self, secret: str | None = None, file: str | None = None):
        self._file = file
        self._secret = secret if secret is not None else os.environ.get(_ENVIRONMENT, "")

    def headers(self, server: str, encrypted: bool) -> dict[str, str]:
        """What a call to a server says of its caller."""
        secret = self._read() if self._file else self._secret.strip()
        if not secret:
            return {}
        if not encrypted and server.rpartition(":")[0] not in _LOOPBACK:
            raise Error(f"{server}: a token is only sent with TLS or to this machine: give ca, the CA of the servers")
        return {"Authorization": "Bearer " + secret}

    def _read(self) -> str:
        with open(self._file, encoding="utf-8") as file:
            if os.name == "posix" and stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o037:
                raise Error(f"{self._file}: other users can read or change this token: chmod 600 {self._file}")
            return file.read().strip()
