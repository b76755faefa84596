"""The files of a trajectory: what its actions leave in their directory, and find there."""

from __future__ import annotations

import base64
import dataclasses
import secrets
from typing import TYPE_CHECKING, Iterator, List

from .errors import Error, UnknownOutcome
from .names import names_checked

if TYPE_CHECKING:
    from .client import Client

_CHUNK = 1 << 20


@dataclasses.dataclass(frozen=True)
class File:
    """A file in the directory of a trajectory.

    type: "regular", "directory", "link" or "other" (a socket, a pipe).
    size: of a regular file, in bytes.
    mode: permissions, such as 0o644.
    target: where a link leads.
    """

    name: str
    type: str
    size: int
    mode: int
    target: str

    @classmethod
    def of(cls, answer: dict) -> File:
        kind = answer.get("type", "").removeprefix("FILE_TYPE_").lower()
        size, mode = int(answer.get("sizeBytes", 0)), answer.get("mode", 0)
        return cls(answer.get("name", ""), kind, size, mode, answer.get("target", ""))


@names_checked
class Files:
    """The directory of a trajectory, as ``trajectory.files``.

    Paths are relative to it. What is not there raises Error with the reason FILE_NOT_FOUND.
    """

    def __init__(self, client: Client, trajectory: int):
        self._client = client
        self._trajectory = str(trajectory)

    def _call(self, method: str, path: str, **fields: object) -> dict:
        request: dict = {"trajectoryId": self._trajectory, "path": path, **fields}
        return self._client.call("FileService/" + method, request)

    def list(self, path: str = "") -> List[File]:
        """The files of a directory, by name."""
        return list(self._pages(path))

    def _pages(self, path: str) -> Iterator[File]:
        token = ""
        while True:
            answer = self._call("ListFiles", path, pageToken=token)
            yield from map(File.of, answer.get("files", []))
            token = answer.get("nextPageToken", "")
            if not token:
                return

    def stat(self, path: str) -> File:
        """What a file is. A link is not followed."""
        return File.of(self._call("StatFile", path)["file"])

    def read(self, path: str) -> bytes:
        """The whole content of a regular file.

        It is read in pieces, as far as it reached at the beginning. Raises Error with the code "aborted" if it
        has become shorter meanwhile.
        """
        content, end = bytearray(), None
        while True:
            answer = self._call("ReadFile", path, offset=str(len(content)))
            data, size = base64.b64decode(answer.get("data", "")), int(answer.get("sizeBytes", 0))
            content += data
            end = size if end is None else end
            if size < end or not data and len(content) < end:
                raise Error(f"{path} was changed while it was read", "aborted", retry_after=0.0)
            if len(content) >= end:
                return bytes(content[:end])

    def read_text(self, path: str, encoding: str = "utf-8") -> str:
        """The whole content of a text file."""
        return self.read(path).decode(encoding)

    def write(self, path: str, content: bytes | str, mode: int = 0o644) -> None:
        """Writes a whole file, and makes the directories above it.

        It appears under its name when all of it is there, in place of what had the name.
        """
        data = content.encode() if isinstance(content, str) else content
        above, slash, name = path.rpartition("/")
        short = name.encode()[:200].decode(errors="ignore")  # a name has 255 bytes at most
        temporary = f"{above}{slash}.{short}.{secrets.token_hex(8)}.part"
        try:
            for at in range(0, max(len(data), 1), _CHUNK):
                chunk = base64.b64encode(data[at : at + _CHUNK]).decode()
                # Nothing is truncated: a try that was given up and arrives late writes what is there already.
                self._call("WriteFile", temporary, offset=str(at), data=chunk, parents=True, mode=mode)
            self._name(temporary, path, len(data))
        except BaseException:
            self._discard(temporary)
            raise

    def _name(self, temporary: str, path: str, size: int) -> None:
        try:
            try:
                self.move(temporary, path)
            except UnknownOutcome:
                self.move(temporary, path)  # if that was done, there is nothing to move any more
        except Error as err:
            # A call that was repeated may find that done.
            if err.reason != "FILE_NOT_FOUND" or self.stat(path).size != size:
                raise

    def _discard(self, path: str) -> None:
        try:
            self.remove(path)
        except Exception:
            pass  # it may not be there, or nobody answers: what counts is the first error

    def mkdir(self, path: str) -> None:
        """Makes a directory and those above it. One that is there is left alone."""
        self._call("MakeDirectory", path)

    def move(self, path: str, new_path: str) -> None:
        """Renames a file or a directory. A file that has the new name is replaced."""
        self._call("MoveFile", path, newPath=new_path)

    def remove(self, path: str, recursive: bool = False) -> None:
        """Removes a file, a link or a directory; recursive: with all that is in it."""
        self._call("RemoveFile", path, recursive=recursive)
