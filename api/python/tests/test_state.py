"""The state client and a real agent, whose socket ROTA_STATE names."""

import os
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

import rota
from rota.state import StateClient, StateError, Tensor

ADDRESS = os.environ.get("ROTA_STATE", "")

try:
    import numpy
except ImportError:
    numpy = None


class Unreachable(unittest.TestCase):
    def test_an_agent_that_is_not_there(self):
        with self.assertRaisesRegex(StateError, "--state-memory") as caught:
            StateClient("unix:/nonexistent/state.sock")
        self.assertIsInstance(caught.exception, rota.Error)
        with self.assertRaises(ValueError):
            StateClient("127.0.0.1:1")


@unittest.skipUnless(ADDRESS, "ROTA_STATE names no agent")
class States(unittest.TestCase):
    def setUp(self):
        self.states = StateClient(ADDRESS, timeout=120)
        self.addCleanup(self.states.close)
        self.name = self.id().rpartition(".")[2]

    def put(self, version, rank=0, *, data, **more):
        with self.states.create(self.name, version, rank, tensors=[Tensor("w", "uint8", (len(data),), **more)]) as new:
            view = new.memory("w")
            view[:] = data
            view.release()
            return new.commit()

    def test_bytes_go_to_disk_and_back(self):
        info = self.put(1, data=b"weights")
        self.assertEqual((info["bytes"], info["in_memory"]), (7, True))
        self.assertEqual(self.states.offload(self.name, 1), {"written_bytes": 7, "unchanged_bytes": 0})
        with self.assertRaises(StateError) as caught:
            self.states.open(self.name, 1)
        self.assertEqual(caught.exception.reason, "OFFLOADED")
        self.states.restore(self.name, 1)
        with self.states.open(self.name, 1) as state:
            view = state.memory("w")
            self.assertEqual(bytes(view), b"weights")
            self.assertTrue(view.readonly)
            self.assertEqual(state.tensors["w"], Tensor("w", "uint8", (7,)))
            view.release()

    def test_views_hold_a_commit_up(self):
        with self.states.create(self.name, 1, tensors=[Tensor("w", "uint8", (9,))]) as new:
            view = new.memory("w")
            with self.assertRaises(StateError) as caught:
                new.commit()
            self.assertEqual(caught.exception.reason, "MAPPED")
            view[:] = b"123456789"
            view.release()
            new.commit()
        self.assertEqual([s["version"] for s in self.states.list(self.name)], [1])

    def test_checkpoints_copies_and_drops(self):
        self.put(1, data=b"saved")
        with tempfile.TemporaryDirectory() as directory:
            self.assertEqual(self.states.checkpoint(self.name, 1, directory=directory)["written_bytes"], 5)
            self.assertEqual(self.states.checkpoint(self.name, 1, directory=directory)["written_bytes"], 0)
            self.states.load(self.name, 1, directory=directory, to=(self.name, 2))
        self.states.copy(self.name, 2, to=(self.name, 3, 7))
        self.states.drop(self.name, 1)
        self.assertEqual([(s["version"], s["rank"]) for s in self.states.list(self.name)], [(2, 0), (3, 7)])
        self.assertEqual(self.states.info(self.name, 3, 7)["details"][0]["name"], "w")
        self.assertGreater(self.states.stat()["memory_bytes"], 0)

    def test_a_slice_of_shards(self):
        self.put(1, 0, data=b"abcd", global_shape=(8,), offset=(0,))
        self.put(1, 1, data=b"efgh", global_shape=(8,), offset=(4,))
        self.states.offload(self.name, 1, 1)
        with self.states.read(self.name, 1, "w", offset=(2,), shape=(4,)) as part:
            view = part.memory("w")
            self.assertEqual(bytes(view), b"cdef")
            view.release()

    def test_a_worker_that_dies_leaves_nothing(self):
        code = f"""
            import os, signal
            from rota.state import StateClient, Tensor
            new = StateClient({ADDRESS!r}).create({self.name!r}, 1, tensors=[Tensor("w", "uint8", (1 << 20,))])
            os.kill(os.getpid(), signal.SIGKILL)
        """
        self.assertEqual(subprocess.run([sys.executable, "-B", "-c", textwrap.dedent(code)]).returncode, -9)
        deadline = time.monotonic() + 60
        while True:
            try:
                self.put(1, data=b"mine")
                return
            except StateError as err:
                self.assertEqual(err.reason, "EXISTS")
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)

    def test_refusals_have_a_reason(self):
        for call, reason in [
            (lambda: self.states.open(self.name, 1), "NOT_FOUND"),
            (lambda: self.states.to_device(self.name, 1), "NO_DEVICE"),
            (lambda: self.states.to_host(self.name, 1), "NO_DEVICE"),
            (lambda: self.states.open_device(self.name, 1), "NO_DEVICE"),
            (lambda: self.states.create(self.name, 1, tensors=[Tensor("w", "float31", (1,))]), "INVALID"),
            (lambda: self.states.create(self.name, 1, tensors=[Tensor("w", "uint8", (1 << 39,))]), "MEMORY_FULL"),
        ]:
            with self.assertRaises(StateError) as caught:
                call()
            self.assertEqual(caught.exception.reason, reason)

    @unittest.skipUnless(numpy, "NumPy is not installed")
    def test_arrays_are_mapped_in_place(self):
        tensors = [
            Tensor("w", "float32", (3, 4), group="weights"),
            Tensor("m", "bfloat16", (5,), group="optimizer"),
            Tensor("scalar", "int64", ()),
            Tensor("none", "float64", (0, 3)),
        ]
        with self.states.create(self.name, 1, tensors=tensors) as new:
            new.array("w")[:] = numpy.arange(12).reshape(3, 4)
            new.array("m")[:] = 7
            new.array("scalar")[()] = -1
            new.commit()
        with self.states.open(self.name, 1) as state:
            w = state.array("w")
            self.assertTrue((w == numpy.arange(12).reshape(3, 4)).all())
            self.assertFalse(w.flags.writeable or w.flags.owndata)
            self.assertEqual((state.array("m").dtype.name, state.array("scalar").item(), state.array("none").shape), ("uint16", -1, (0, 3)))
            del w
        with self.states.read(self.name, 1, "w", offset=(1, 1), shape=(2, 2)) as part:
            self.assertEqual(part.array("w").tolist(), [[5, 6], [9, 10]])
