"""Weights and optimizer states in the memory and on the disk of a node's agent.

    from rota.state import StateClient, Tensor

    with StateClient("unix:/var/lib/rota-agent/state.sock") as states:
        with states.create("actor", 3, rank=0, tensors=[Tensor("w", "float32", (1024, 1024))]) as new:
            new.array("w")[:] = weights  # NumPy; new.memory("w") without it
            new.commit()
        states.offload("actor", 3, rank=0)

The agent passes memory as descriptors, which are mapped here: no byte goes through the
socket. A client belongs to the process that made it, and its calls follow each other.
"""

from __future__ import annotations

import base64
import json
import mmap
import os
import socket
import struct
import threading
from dataclasses import dataclass
from typing import Iterable, List, Sequence

from .errors import Error
from .gpu import GPUMemory


class StateError(Error):
    """A refusal of the state manager.

    ``reason`` is INVALID, EXISTS, NOT_FOUND, MEMORY_FULL, DISK_FULL, NO_DISK, OFFLOADED,
    MAPPED, CORRUPT, HOLE, DEVICE_FULL, NO_DEVICE, DEVICE_FAILED, ON_DEVICE, NO_HANDLE, NO_REMOTE,
    REMOTE_FAILED, CLOSED or INTERNAL, or empty if there was no answer.
    """

    def __init__(self, message: str, reason: str = ""):
        super().__init__(message, "failed_precondition" if reason else "unavailable", reason)


@dataclass(frozen=True)
class Tensor:
    """A tensor, or the shard of one: then ``global_shape`` is that of the whole tensor,
    and ``offset`` where the shard begins. Tensors of one ``group`` share memory, and equal
    groups are stored once: give weights and optimizer a group each."""

    name: str
    dtype: str
    shape: Sequence[int]
    global_shape: Sequence[int] | None = None
    offset: Sequence[int] | None = None
    group: str = ""

    def _wire(self) -> dict:
        wire = {"name": self.name, "dtype": self.dtype, "shape": list(self.shape), "group": self.group}
        if self.global_shape is not None:
            wire["global"] = list(self.global_shape)
        if self.offset is not None:
            wire["offset"] = list(self.offset)
        return wire


#: Types that NumPy lacks, and as what their bits are shown.
_BITS = {"bfloat16": "uint16", "float8_e4m3": "uint8", "float8_e5m2": "uint8"}


#: The least size of memory for which huge pages are asked for.
_HUGE_BYTES_MIN = 64 << 20


def _ask_for_huge_pages(memory: mmap.mmap) -> None:
    """Pages that are larger are written for the first time, and pinned for a GPU, several times
    as fast. Not every kernel has them."""
    try:
        memory.madvise(mmap.MADV_HUGEPAGE)
    except (AttributeError, OSError):
        pass


class Mapped:
    """Tensors in memory that the agent has passed. Close it to unmap them."""

    def __init__(self, tensors: list[dict], sizes: list[int], fds: list[int], writable: bool):
        self._places = {t["name"]: t for t in tensors}
        self._maps: list[mmap.mmap] = []
        prot = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        try:
            for fd, size in zip(fds, sizes):
                self._maps.append(mmap.mmap(fd, size, flags=mmap.MAP_SHARED, prot=prot))
                if writable and size >= _HUGE_BYTES_MIN:
                    _ask_for_huge_pages(self._maps[-1])
        except BaseException:
            self.close()
            raise

    @property
    def tensors(self) -> dict[str, Tensor]:
        """What is there, by name."""
        return {
            name: Tensor(name, t["dtype"], tuple(t["shape"] or ()), _tuple(t.get("global")), _tuple(t.get("offset")), t.get("group", ""))
            for name, t in self._places.items()
        }

    def memory(self, name: str) -> memoryview:
        """The bytes of a tensor, in place."""
        place = self._places[name]
        return memoryview(self._maps[place["fd"]])[place["at"] : place["at"] + place["bytes"]]

    def array(self, name: str):
        """A tensor as a NumPy array, in place. What NumPy has no type for, such as
        bfloat16, is shown as unsigned integers of the same size."""
        import numpy

        place = self._places[name]
        dtype = numpy.dtype(_BITS.get(place["dtype"], place["dtype"]))
        return numpy.ndarray(tuple(place["shape"] or ()), dtype, buffer=self._maps[place["fd"]], offset=place["at"])

    def close(self) -> None:
        """Unmaps the memory. It fails with MAPPED while an array or a view of it exists."""
        while self._maps:
            try:
                self._maps[-1].close()
            except BufferError:
                raise StateError("arrays or views of the state are still in use: delete them, and close or commit again", "MAPPED") from None
            self._maps.pop()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            self.close()
        except StateError:
            if kind is None:
                raise


class Creation(Mapped):
    """A new state, to be written and committed. Leaving it without a commit frees it."""

    def __init__(self, client: StateClient, key: dict, *mapped):
        self._client, self._key, self._open = client, key, True
        super().__init__(*mapped, True)

    def commit(self) -> dict:
        """Seals the state: nobody can change it any more. Delete all arrays of it first."""
        self.close()
        info = self._client._call("commit", key=self._key)["info"]
        self._open = False
        return info

    def abort(self) -> None:
        """Frees the state."""
        if self._open:
            self._open = False
            self._client._call("abort", key=self._key)

    def __exit__(self, kind, *rest):
        try:
            self.abort()
        except (StateError, OSError):
            if kind is None:
                raise
        super().__exit__(kind, *rest)


class OnDevice:
    """A state in memory of a GPU, to be used in place.

        with states.open_device("actor", 3) as on_gpu:
            w = on_gpu.tensor("w")  # a torch tensor; on_gpu.view("w") for CuPy and others
            ...
            del w

    ``gpu`` is the UUID of the GPU, which has to be visible in this process. The memory stays
    until this is closed. Nothing keeps a worker from writing it, and states do not change:
    whoever writes it makes ``to_host`` fail with CORRUPT.

    Without ``view`` and ``tensor``: ``handles`` has 64 bytes for each group, for
    ``cuIpcOpenMemHandle``, and ``places`` says where each tensor is: ``fd`` is the number of
    the group, ``at`` the first byte."""

    def __init__(self, client: StateClient, key: dict, answer: dict):
        self._client, self._key, self._open = client, key, True
        self.places = {t["name"]: t for t in answer["tensors"]}
        self.handles = [base64.b64decode(h) for h in answer["handles"]]
        self.gpu = answer.get("gpu", "")
        self._groups: GPUMemory | None = None

    def view(self, name: str):
        """A tensor in place, as an object with ``__cuda_array_interface__``. What that has no
        type for, such as bfloat16, is shown as integers of the same size."""
        if not self._open:
            raise StateError("the state was closed", "NOT_FOUND")
        if self._groups is None:
            self._groups = GPUMemory(self.gpu, self.handles)
        place = self.places[name]
        return self._groups.view(place["fd"], place["at"], tuple(place["shape"] or ()), place["dtype"])

    def tensor(self, name: str):
        """A tensor in place, as a torch tensor on the GPU."""
        view = self.view(name)
        return self._groups.tensor(view, self.places[name]["dtype"])

    def close(self) -> None:
        """Allows the agent to free the memory. It fails with MAPPED while a tensor or a view
        of it exists."""
        if not self._open:
            return
        if self._groups is not None:
            if self._groups.in_use():
                raise StateError("tensors or views of the state on the GPU are still in use: delete them, and close again", "MAPPED")
            self._groups.close()
        self._open = False
        self._client._call("close_device", key=self._key)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            self.close()
        except StateError:
            if kind is None:
                raise


class StateClient:
    """A connection to the state manager of the agent on this machine."""

    def __init__(self, address: str, timeout: float | None = None):
        """``address`` is unix:/path, ``timeout`` the most seconds that a call may take."""
        if not address.startswith("unix:"):
            raise ValueError(f"{address!r} is no address of states; use unix:/path")
        self._lock = threading.Lock()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout)
        try:
            self._socket.connect(address[len("unix:") :])
        except OSError as err:
            self._socket.close()
            raise StateError(f"state manager at {address}: {err}; is an agent with --state-memory running there, as your user?") from err

    def close(self) -> None:
        """Ends the connection. What was created and not committed is freed."""
        self._socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def create(self, deployment: str, version: int, rank: int = 0, *, tensors: Iterable[Tensor]) -> Creation:
        """Makes memory for a new state."""
        key = _key(deployment, version, rank)
        answer, fds = self._exchange("create", key=key, tensors=[t._wire() for t in tensors])
        return self._mapped(fds, lambda: Creation(self, key, answer["tensors"], answer["sizes"], fds))

    def open(self, deployment: str, version: int, rank: int = 0) -> Mapped:
        """Maps a committed state for reading."""
        answer, fds = self._exchange("open", key=_key(deployment, version, rank))
        return self._mapped(fds, lambda: Mapped(answer["tensors"], answer["sizes"], fds, False))

    def read(self, deployment: str, version: int, name: str, *, offset: Sequence[int] | None = None, shape: Sequence[int] | None = None) -> Mapped:
        """Assembles a slice of a tensor from the shards of all ranks, in memory or on disk.
        Without ``offset`` and ``shape`` it is the whole tensor."""
        part = {"deployment": deployment, "version": version, "name": name}
        if offset is not None:
            part["offset"] = list(offset)
        if shape is not None:
            part["shape"] = list(shape)
        answer, fds = self._exchange("read", slice=part)
        return self._mapped(fds, lambda: Mapped(answer["tensors"], answer["sizes"], fds, False))

    def offload(self, deployment: str, version: int, rank: int = 0) -> dict:
        """Writes a state to disk and frees its memory. It then outlives the agent."""
        return self._call("offload", key=_key(deployment, version, rank))["moved"]

    def restore(self, deployment: str, version: int, rank: int = 0) -> None:
        """Reads a state from disk into memory."""
        self._call("restore", key=_key(deployment, version, rank))

    def to_device(self, deployment: str, version: int, rank: int = 0, *, keep: bool = False) -> None:
        """Copies a state from memory to the device, and frees the memory unless ``keep``."""
        self._call("to_device", key=_key(deployment, version, rank), keep=keep)

    def to_host(self, deployment: str, version: int, rank: int = 0, *, keep: bool = False, verify: bool = True) -> None:
        """Copies a state from the device to memory, and frees the device unless ``keep``.
        Bytes are compared with their hashes unless ``verify`` is false."""
        self._call("to_host", key=_key(deployment, version, rank), keep=keep, unverified=not verify)

    def open_device(self, deployment: str, version: int, rank: int = 0) -> OnDevice:
        """A state that is on a GPU, for use in place by this process."""
        key = _key(deployment, version, rank)
        return OnDevice(self, key, self._call("open_device", key=key))

    def checkpoint(self, deployment: str, version: int, rank: int = 0, *, directory: str) -> dict:
        """Writes a state to a folder, such as one on NFS, or to s3://BUCKET/PREFIX, durably."""
        return self._call("checkpoint", key=_key(deployment, version, rank), dir=_place(directory))["moved"]

    def load(self, deployment: str, version: int, rank: int = 0, *, directory: str, to: tuple | None = None) -> dict:
        """Reads a state of a checkpoint into memory, under its key or another: ``to`` is
        (deployment, version, rank)."""
        more = {} if to is None else {"to": _key(*to)}
        return self._call("load", key=_key(deployment, version, rank), dir=_place(directory), **more)["info"]

    def copy(self, deployment: str, version: int, rank: int = 0, *, to: tuple) -> dict:
        """Gives a state a second key, without copying its bytes."""
        return self._call("copy", key=_key(deployment, version, rank), to=_key(*to))["info"]

    def drop(self, deployment: str, version: int, rank: int = 0) -> None:
        """Forgets a state, in memory and on disk."""
        self._call("drop", key=_key(deployment, version, rank))

    def info(self, deployment: str, version: int, rank: int = 0) -> dict:
        """One state with its tensors."""
        return self._call("info", key=_key(deployment, version, rank))["info"]

    def list(self, deployment: str = "") -> List[dict]:
        """The states of a deployment, or all."""
        return self._call("list", deployment=deployment).get("states", [])

    def stat(self) -> dict:
        """Bytes, limits and counts of the state manager."""
        return self._call("stat")["stat"]

    def _call(self, op: str, **fields) -> dict:
        return self._exchange(op, **fields)[0]

    def _exchange(self, op: str, **fields) -> tuple[dict, List[int]]:
        request = json.dumps({"op": op, **fields}).encode()
        with self._lock:
            try:
                self._socket.sendall(struct.pack("<I", len(request)) + request)
                answer = json.loads(self._receive(struct.unpack("<I", self._receive(4))[0]))
                fds = self._descriptors(len(answer.get("sizes", ())))
            except BaseException as err:  # also an interrupt: what comes next would belong to this call
                self._socket.close()
                if isinstance(err, OSError):
                    raise StateError(f"{op}: the state manager did not answer: {err}") from err
                raise
        if "error" in answer:
            raise StateError(answer["error"]["message"], answer["error"]["code"])
        return answer, fds

    def _receive(self, n: int) -> bytes:
        data = bytearray()
        while len(data) < n:
            part = self._socket.recv(min(n - len(data), 1 << 20))
            if not part:
                raise ConnectionResetError("the connection was closed")
            data += part
        return bytes(data)

    def _descriptors(self, n: int) -> List[int]:
        if n == 0:
            return []
        _, fds, _, _ = socket.recv_fds(self._socket, 1, n, getattr(socket, "MSG_CMSG_CLOEXEC", 0))
        if len(fds) != n:
            for fd in fds:
                os.close(fd)
            raise OSError(f"{len(fds)} descriptors came, not {n}; raise the limit of open files")
        return list(fds)

    @staticmethod
    def _mapped(fds: List[int], make):
        try:
            return make()
        finally:
            for fd in fds:  # a mapping needs no descriptor
                os.close(fd)


def _place(directory: str) -> str:
    """Where a checkpoint is: the agent has another working directory than this process."""
    return directory if directory.startswith("s3://") else os.path.abspath(directory)


def _key(deployment: str, version: int, rank: int = 0) -> dict:
    return {"deployment": deployment, "version": version, "rank": rank}


def _tuple(shape) -> tuple | None:
    return None if shape is None else tuple(shape)
