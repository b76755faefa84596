"""Memory of a GPU that another process has passed, with the library that ROTA_TEST_CUDA names, which
stands for the driver. A Go test of package device builds it and runs these tests."""

import ctypes
import gc
import os
import unittest

from rota.gpu import GPUError, GPUMemory
from rota.state import OnDevice, StateError

LIBRARY = os.environ.get("ROTA_TEST_CUDA", "")
UUID = "GPU-00010203-0405-0607-0809-0a0b0c0d0e01"


class Agent:
    """What an OnDevice calls."""

    def __init__(self):
        self.calls = []

    def _call(self, op, **_):
        self.calls.append(op)


@unittest.skipUnless(LIBRARY, "ROTA_TEST_CUDA names no library")
class Memory(unittest.TestCase):
    def setUp(self):
        GPUMemory.library = LIBRARY
        self.cuda = ctypes.CDLL(LIBRARY)
        self.context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), 101)
        self.call("cuCtxSetCurrent", self.context)
        self.addCleanup(self.call, "cuDevicePrimaryCtxRelease_v2", 101)

    def call(self, name, *args):
        self.assertEqual(getattr(self.cuda, name)(*args), 0, name)

    def allocate(self):
        """The address and the handle of new memory, as an agent has them."""
        address, handle = ctypes.c_uint64(), ctypes.create_string_buffer(64)
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(4096))
        self.call("cuIpcGetMemHandle", handle, address)
        self.addCleanup(self.call, "cuMemFree_v2", address)
        return address.value, handle.raw

    def test_views_are_in_place(self):
        (first, a), (second, b) = self.allocate(), self.allocate()
        memory = GPUMemory(UUID, [a, b])
        self.assertEqual((memory.ordinal, self.cuda.simulated_cuda_opened()), (1, 2))
        view = memory.view(1, 256, (3, 5), "bfloat16")
        want = {"shape": (3, 5), "typestr": "<i2", "data": (second + 256, False), "version": 3}
        self.assertEqual(view.__cuda_array_interface__, want)
        self.assertEqual(memory.view(0, 0, (), "float32").__cuda_array_interface__["data"][0], first)
        self.assertTrue(memory.in_use())
        del view
        gc.collect()
        self.assertFalse(memory.in_use())
        memory.close()
        memory.close()
        self.assertEqual((self.cuda.simulated_cuda_opened(), self.cuda.simulated_cuda_retained(1)), (0, 1))

    def test_a_state_stays_open_while_it_is_used(self):
        address, handle = self.allocate()
        agent = Agent()
        place = {"name": "w", "dtype": "uint8", "shape": [7], "fd": 0, "at": 0, "bytes": 7}
        on_gpu = OnDevice(agent, {}, {"tensors": [place], "handles": [], "gpu": UUID})
        on_gpu.handles = [handle]
        view = on_gpu.view("w")
        with self.assertRaises(StateError) as caught:
            on_gpu.close()
        self.assertEqual((caught.exception.reason, agent.calls), ("MAPPED", []))
        self.assertEqual(view.__cuda_array_interface__["data"][0], address)
        del view
        on_gpu.close()
        on_gpu.close()
        self.assertEqual((agent.calls, self.cuda.simulated_cuda_opened()), (["close_device"], 0))
        with self.assertRaises(StateError):
            on_gpu.view("w")

    def test_what_the_driver_refuses(self):
        _, handle = self.allocate()
        with self.assertRaisesRegex(GPUError, "GPU-1, .*CUDA_VISIBLE_DEVICES"):
            GPUMemory("GPU-1", [])
        with self.assertRaisesRegex(GPUError, "cuIpcOpenMemHandle_v2: SIMULATED_INVALID_VALUE") as caught:
            GPUMemory(UUID, [handle, b"nothing" + bytes(57)])
        self.assertEqual(caught.exception.reason, "SIMULATED_INVALID_VALUE")
        self.assertEqual((self.cuda.simulated_cuda_opened(), self.cuda.simulated_cuda_retained(1)), (0, 1))
        GPUMemory.library = "/nonexistent/libcuda.so.1"
        with self.assertRaisesRegex(GPUError, "driver of the GPU"):
            GPUMemory(UUID, [])


if __name__ == "__main__":
    unittest.main()
