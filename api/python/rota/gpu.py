"""Memory of a GPU that another process has allocated, by the CUDA driver.

The driver is loaded when it is first needed; nothing else is.
"""

from __future__ import annotations

import ctypes
import weakref
from typing import Sequence

from .errors import Error

#: Element types as ``__cuda_array_interface__`` has them.
_TYPES = {
    "float64": "<f8", "float32": "<f4", "float16": "<f2", "bfloat16": "<i2", "float8_e4m3": "|u1", "float8_e5m2": "|u1",
    "int64": "<i8", "int32": "<i4", "int16": "<i2", "int8": "|i1",
    "uint64": "<u8", "uint32": "<u4", "uint16": "<u2", "uint8": "|u1", "bool": "|b1",
}  # fmt: skip

#: Types of torch that have another name, or that torch takes no view of.
_TORCH = {"float8_e4m3": "float8_e4m3fn"}
_TORCH_BITS = {"uint16": "<i2", "uint32": "<i4", "uint64": "<i8"}

_HANDLE_BYTES = 64
_LAZY_PEER_ACCESS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS


class GPUError(Error):
    """The driver of the GPU has refused. ``reason`` is the name of its error, or empty."""

    def __init__(self, message: str, reason: str = ""):
        super().__init__(message, "failed_precondition", reason)


class _Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * _HANDLE_BYTES)]


class _Driver:
    """The functions of libcuda that are used."""

    def __init__(self, path: str):
        try:
            self._library = ctypes.CDLL(path)
        except OSError as err:
            raise GPUError(f"{err}; is the driver of the GPU installed?") from err
        self.call("cuInit", 0)

    def call(self, name: str, *args) -> None:
        result = getattr(self._library, name)(*args)
        if result:
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(result, ctypes.byref(text))
            reason = (text.value or b"").decode()
            raise GPUError(f"{name}: {reason or 'error'} ({result})", reason)

    def device(self, uuid: str) -> tuple[int, int]:
        """The number of a GPU and the driver's name of it."""
        count, seen = ctypes.c_int(), []
        self.call("cuDeviceGetCount", ctypes.byref(count))
        for ordinal in range(count.value):
            device, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
            self.call("cuDeviceGet", ctypes.byref(device), ordinal)
            self.call("cuDeviceGetUuid_v2", raw, device)
            text = bytes(raw).hex()
            seen.append(f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")
            if seen[-1] == uuid:
                return ordinal, device.value
        raise GPUError(f"the state is on {uuid}, and this process sees {', '.join(seen) or 'no GPU'}: see CUDA_VISIBLE_DEVICES")


class _View:
    """An array in memory of a GPU, as other libraries take it."""

    def __init__(self, memory: GPUMemory, address: int, shape: tuple[int, ...], typestr: str):
        self._memory = memory  # open while this exists
        self.__cuda_array_interface__ = {"shape": shape, "typestr": typestr, "data": (address, False), "version": 3}


class GPUMemory:
    """Memory of the GPU with a UUID that another process has passed as handles."""

    #: What is loaded: the driver's library.
    library = "libcuda.so.1"

    def __init__(self, uuid: str, handles: Sequence[bytes]):
        self._driver = _Driver(self.library)
        self.ordinal, self._device = self._driver.device(uuid)
        self._views: weakref.WeakSet[_View] = weakref.WeakSet()
        self._addresses: list[ctypes.c_uint64] = []
        self._context = ctypes.c_void_p()
        self._driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._device)
        try:
            for handle in handles:
                address = ctypes.c_uint64()
                self._within("cuIpcOpenMemHandle_v2", ctypes.byref(address), _Handle.from_buffer_copy(handle), _LAZY_PEER_ACCESS)
                self._addresses.append(address)
        except BaseException:
            self.close()
            raise

    def _within(self, name: str, *args) -> None:
        """Calls the driver in the context of the GPU, which torch uses too."""
        self._driver.call("cuCtxPushCurrent_v2", self._context)
        try:
            self._driver.call(name, *args)
        finally:
            self._driver.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def view(self, group: int, at: int, shape: tuple[int, ...], dtype: str) -> _View:
        """An array that begins at a byte of a group."""
        view = _View(self, self._addresses[group].value + at, shape, _TYPES[dtype])
        self._views.add(view)
        return view

    def tensor(self, view: _View, dtype: str):
        """A view as a torch tensor, which keeps it."""
        import torch

        interface = view.__cuda_array_interface__
        interface["typestr"] = _TORCH_BITS.get(dtype, interface["typestr"])
        return torch.as_tensor(view, device=f"cuda:{self.ordinal}").view(getattr(torch, _TORCH.get(dtype, dtype)))

    def in_use(self) -> bool:
        """Whether views are left."""
        return len(self._views) > 0

    def close(self) -> None:
        """Gives the memory up. Work of this process on it ends first."""
        if self._context.value is None:
            return
        self._within("cuCtxSynchronize")
        while self._addresses:
            self._within("cuIpcCloseMemHandle", self._addresses[-1])
            self._addresses.pop()
        self._driver.call("cuDevicePrimaryCtxRelease_v2", self._device)
        self._context = ctypes.c_void_p()
