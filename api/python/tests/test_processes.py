"""Clients in programs that fork, that wait in threads, and that come back after a while."""

import asyncio
import concurrent.futures
import contextlib
import contextvars
import http.client
import os
import socket
import threading
import time
import unittest
from unittest import mock

import rota
from rota.threads import in_thread

from .test_client import SUBMITTED, Handler, Server

RUNNING = (200, {}, {"action": {"id": "1", "state": "ACTION_STATE_RUNNING"}})


class SilentHandler(Handler):
    def do_POST(self):
        if not self.path.endswith("ReadActionOutput"):
            return super().do_POST()
        self.server.asked.append((self.path, None))
        self.server.over.wait(120)
        self.close_connection = True


class Silent(Server):
    """A server that never says what an action wrote."""

    def __init__(self):
        self.over = threading.Event()
        super().__init__(RUNNING)
        self.RequestHandlerClass = SilentHandler

    def __exit__(self, *_):
        self.over.set()
        super().__exit__()


class Processes(unittest.TestCase):
    @unittest.skipUnless(hasattr(os, "fork"), "this system does not fork")
    def test_a_forked_process_has_requests_and_connections_of_its_own(self):
        with Server(SUBMITTED) as server, rota.Client(server.address) as client:
            client.submit(rota.spec(["true"]))
            child = os.fork()
            if child == 0:
                ended = 1
                with contextlib.suppress(BaseException):
                    held = sum(map(len, client._idle.values()))
                    client.submit(rota.spec(["true"]))
                    ended = held
                os._exit(ended)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            client.submit(rota.spec(["true"]))
        self.assertEqual(len({body["requestId"] for _, body in server.asked}), 3)

    def test_connections_that_ended_together_cost_one_try(self):
        with Server(RUNNING) as server, rota.Client(server.address) as client:
            for _ in range(30):
                connection = http.client.HTTPConnection(server.address)
                connection.connect()
                connection.sock.shutdown(socket.SHUT_RDWR)
                client._idle.setdefault(server.address, []).append(connection)
            with mock.patch("rota.client._backoff_s", return_value=0.0) as pauses:
                client.get(1)
        self.assertEqual(pauses.call_count, 1)

    def test_addresses(self):
        with mock.patch.dict(os.environ, {"ROTA_ADDR": " a:7400, b:7400 ,"}):
            self.assertEqual(rota.Client()._servers, ["a:7400", "b:7400"])
            self.assertEqual(rota.Client("c:1", " d:2")._servers, ["c:1", "d:2"])
            self.assertEqual(rota.Client("[::1]:7400")._servers, ["[::1]:7400"])
        for bad in ("a b:7400", "a:port", "10.0.0.1", "http://a:7400", "a:", "::1:7400"):
            with self.assertRaisesRegex(ValueError, "host:port"):
                rota.Client(bad)
        with self.assertRaises(ValueError):
            rota.Client(" , ")

    def test_calls_that_wait_for_each_other_need_no_threads_of_the_loop(self):
        about = contextvars.ContextVar("about")

        class Waits(Server):
            """Answers calls when there are as many as a test makes at a time."""

            def __init__(self):
                super().__init__((200, {}, {"trajectory": {"id": "1"}, "x": 1}))
                self.together = threading.Barrier(4, timeout=60)

            def answer(self, path, body):
                if not path.endswith("CloseTrajectory"):
                    self.together.wait()
                return super().answer(path, body)

        async def main(server):
            asyncio.get_running_loop().set_default_executor(concurrent.futures.ThreadPoolExecutor(1))
            about.set("mine")
            self.assertEqual(await in_thread(about.get), "mine")
            async with rota.AsyncClient(server.address) as client:

                async def open_one():
                    async with client.trajectory():
                        pass

                judge = rota.AsyncReward("judge", "http://" + server.address)
                # What opens can be undone, and is another way to a thread.
                await asyncio.gather(client.call("X/GetX"), client.call("X/GetX"), judge(call="x"), open_one())
                judge.blocking.close()

        with Waits() as server:
            asyncio.run(main(server))

    def test_waiting_for_output_leaves_the_threads_of_the_loop_alone(self):
        async def main(server):
            asyncio.get_running_loop().set_default_executor(concurrent.futures.ThreadPoolExecutor(1))
            async with rota.AsyncClient(server.address, retry_s=0.5) as client:

                async def follow():
                    async for _ in client.logs(1, follow=True):
                        pass

                task = asyncio.create_task(follow())
                while not any(path.endswith("ReadActionOutput") for path, _ in server.asked):
                    await asyncio.sleep(0.01)
                await asyncio.wait_for(client.get(1), 60)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

        with Silent() as server:
            asyncio.run(main(server))
            end = time.monotonic() + 120
            while True:  # the thread that waited for the output ends, and asks for it no more
                before = len(server.asked)
                time.sleep(2)
                if len(server.asked) == before:
                    break
                self.assertLess(time.monotonic(), end)
