"""What a rollout and a cluster of workers do when they are interrupted, or when half of a call is lost."""

import asyncio
import concurrent.futures
import copy
import json
import threading
import types
import unittest
import unittest.mock

import rota
from rota import cluster, process

from tests.test_client import Server, refusal
from tests.test_episode import Cluster
from tests.workers import Adder


class Interrupted(unittest.TestCase):
    def client(self, server):
        client = rota.Client(server.address, namespace="research")
        self.addCleanup(client.close)
        return client

    def test_no_episode_begins_after_one_was_refused(self):
        class Full(Cluster):
            def OpenTrajectory(self, body):
                if len(self.of) == 2:
                    return refusal(400, "failed_precondition", "QUOTA_TOO_SMALL")
                return super().OpenTrajectory(body)

        with Full(1) as server:
            with rota.Rollout(self.client(server), "coder", list(range(50))) as rollout:
                with self.assertRaises(rota.Error) as caught:
                    rollout.run(lambda episode: 1.0, parallel=1)
        self.assertEqual(caught.exception.reason, "QUOTA_TOO_SMALL")
        self.assertLess(sum(path.endswith("OpenTrajectory") for path, _ in server.asked), 10)

    def test_a_run_that_is_canceled_cancels_its_loops(self):
        canceled = []

        async def loop(_):
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                canceled.append(True)
                raise

        async def main(address):
            async with rota.AsyncClient(address, namespace="research") as client:
                async with rota.AsyncRollout(client, "coder", list(range(50))) as rollout:
                    run = asyncio.ensure_future(rollout.run(loop, parallel=3))
                    while len(server.open) < 3:
                        await asyncio.sleep(0.01)
                    run.cancel()
                    with self.assertRaises(asyncio.CancelledError):
                        await run

        with Cluster(1) as server:
            asyncio.run(main(server.address))
        self.assertLessEqual(len(canceled), 3)
        self.assertEqual(server.open, set())
        self.assertEqual(sum(path.endswith("OpenTrajectory") for path, _ in server.asked), 3)

    def test_a_wait_for_batches_that_is_canceled_ends(self):
        asked = threading.Event()

        class Empty(Cluster):
            def GetPolicy(self, _):
                return 200, {}, {"policy": {"step": "0"}}

            def GetBatch(self, _):
                asked.set()
                return refusal(400, "failed_precondition", "GROUPS_MISSING")

        async def main(client):
            one_by_one = rota.async_batches(client, "coder", 1)
            first = asyncio.ensure_future(one_by_one.__anext__())
            while not asked.is_set():
                await asyncio.sleep(0.01)
            first.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await first

        with Empty(1) as server:
            client = rota.AsyncClient(server.address, namespace="research")
            self.addCleanup(client.close)
            main_loop = threading.Thread(target=asyncio.run, args=(main(client),), daemon=True)
            main_loop.start()
            main_loop.join(60)
            self.assertFalse(main_loop.is_alive(), "the thread waits for ever")


class Files:
    """The directory of one worker, which goes wrong as a test wants."""

    def __init__(self, remove, appears=0):
        self.remove, self.appears = remove, appears

    def read(self, path):
        if self.appears > 0:
            self.appears -= 1
            raise rota.Error("it is not there", reason="FILE_NOT_FOUND")
        return json.dumps({"result": 7}).encode()

    def write(self, path, content):
        pass


class Trajectory:
    def __init__(self, files, client=None, close=lambda: None):
        self.files, self.client, self.close = files, client, close


class Workers(unittest.TestCase):
    def test_an_answer_whose_file_cannot_be_removed_is_an_answer(self):
        for reason in ("FILE_NOT_FOUND", "UNKNOWN_OUTCOME"):

            def remove(path):
                raise rota.Error("lost", reason=reason)

            worker = cluster._Process(0, "cpu", Trajectory(Files(remove)), 1)
            self.assertEqual(worker.call("add", (), {}, 5.0), 7)

    def test_an_answer_just_before_the_end_of_a_worker_is_an_answer(self):
        class Ended:
            def get(self, action):
                files.appears = 0  # it came between the look and the question
                return rota.Action({"id": "1", "state": "ACTION_STATE_FAILED"})

        files = Files(lambda path: None, appears=1 << 30)
        worker = cluster._Process(0, "cpu", Trajectory(files, Ended()), 1)
        self.assertEqual(worker.call("add", (), {}, 60.0), 7)

    def test_the_others_do_not_wait_for_a_worker_that_has_ended(self):
        class Client:
            def get(self, action):
                return rota.Action({"id": str(action), "state": "ACTION_STATE_" + ("FAILED" if action == 2 else "RUNNING")})

        class Silent(Files):

            def read(self, path):
                raise rota.Error("it is not there", reason="FILE_NOT_FOUND")

        client = rota.Client("127.0.0.1:1")
        with unittest.mock.patch("rota.cluster._ALIVE_EVERY_S", 0.0):
            workers = rota.Cluster(client, Adder, {"cpu": {"workers": 3}})
            workers.workers = [cluster._Process(n, "cpu", Trajectory(Silent(lambda path: None), Client()), n + 1) for n in range(3)]
            with concurrent.futures.ThreadPoolExecutor(3) as workers._pool:
                with self.assertRaises(rota.WorkerError) as caught:
                    workers.add(1)
        self.assertEqual((caught.exception.rank, caught.exception.ended), (1, True))
        self.assertEqual([worker.busy for worker in workers.workers], [0, 0, 0])

    def test_a_cluster_for_asyncio_has_the_attributes_of_one(self):
        workers = rota.AsyncCluster(rota.AsyncClient("127.0.0.1:1"), Adder, {"cpu": {"workers": 2}})
        workers.step = 7
        self.assertEqual((workers.blocking.step, workers.step, workers.world_size, workers.workers), (7, 7, 2, []))
        self.assertEqual((workers.layout.dp, workers.worker_cls), (2, Adder))
        self.assertEqual(copy.copy(workers).step, 7)
        self.assertTrue(asyncio.iscoroutinefunction(workers.add))
        for name in ("_pool", "__getstate_of_nobody__", "gone"):
            with self.assertRaises(AttributeError):
                getattr(workers, name)

    def test_a_method_cannot_take_the_place_of_what_a_cluster_has(self):
        for name in ("step", "close", "workers", "client", "layout", "deployment", "resources", "_all"):
            wrong = type("Wrong", (Adder,), {name: rota.register(lambda self: None), "__module__": "tests.workers"})
            with self.assertRaisesRegex(TypeError, f"Wrong.{name}:"):
                rota.Cluster(rota.Client("127.0.0.1:1"), wrong, {"cpu": {}})

    def test_workers_find_the_modules_of_their_user(self):
        submitted = []
        files = types.SimpleNamespace(write=lambda *_: None, mkdir=lambda *_: None)
        trajectory = types.SimpleNamespace(files=files, submit=lambda one: submitted.append(one) or [1])
        client = types.SimpleNamespace(trajectory=lambda *_, **__: trajectory)
        for env, want in ((None, process.CODE), ({"PYTHONPATH": "/mine:/yours"}, process.CODE + ":/mine:/yours")):
            workers = rota.Cluster(client, Adder, {"cpu": {}}, env=env)
            workers._start(0, "cpu", workers.resources["cpu"], b"")
            self.assertEqual(submitted.pop()["command"]["env"]["PYTHONPATH"], want)

    def test_the_least_busy_worker_is_taken_at_once(self):
        workers = rota.Cluster(rota.Client("127.0.0.1:1"), Adder, {"cpu": {"workers": 2}})
        both = [cluster._Process(n, "cpu", Trajectory(None), n) for n in range(2)]
        self.assertEqual([workers._take(both).rank for _ in range(4)], [0, 1, 0, 1])

    def test_a_function_takes_arguments_of_one_kind(self):
        with self.assertRaises(TypeError):
            rota.Serverless(rota.Client("127.0.0.1:1"), "http://127.0.0.1:1/")("a", b="c")

    def test_all_workers_are_closed_although_one_cannot_be(self):
        closed = []

        def refuse():
            raise rota.Error("no server answers")

        workers = rota.Cluster(rota.Client("127.0.0.1:1"), Adder, {"cpu": {"workers": 2}})
        workers.workers = [
            cluster._Process(0, "cpu", Trajectory(None, close=refuse), 1),
            cluster._Process(1, "cpu", Trajectory(None, close=lambda: closed.append(1)), 2),
        ]
        with self.assertRaises(rota.Error):
            workers.close()
        self.assertEqual(closed, [1])
