"""Standard input, signals, terminals and output of actions."""

import asyncio
import base64
import datetime
import hashlib
import http.server
import json
import os
import signal
import socket
import struct
import threading
import types
import unittest
from unittest import mock

import rota

from .test_client import LOST, Server, refusal

SERVERS = os.environ.get("ROTA_SERVERS", "").split()


def took(offset, closed=False):
    return 200, {}, {"attempt": 1, "offset": str(offset), "closed": closed}


class Input(unittest.TestCase):
    def process(self, server):
        client = rota.Client(server.address, retry_s=30.0)
        self.addCleanup(client.close)
        return rota.Process(client, 7)

    def test_input_is_repeated_from_its_offset(self):
        queued = refusal(503, "unavailable", "ACTION_QUEUED", "0.010s")
        with Server(queued, LOST, took(3), took(5), took(5, closed=True)) as server:
            process = self.process(server)
            process.write("hello")
            process.close_stdin()
        sent = [(int(body["offset"]), base64.b64decode(body["data"]), body["eof"]) for _, body in server.asked]
        self.assertEqual(sent, [(0, b"hello", False)] * 3 + [(3, b"lo", False), (5, b"", True)])
        self.assertEqual(len({body["writer"] for _, body in server.asked}), 1)

    def test_nobody_has_to_read_all_of_it(self):
        with Server(refusal(400, "failed_precondition", "INPUT_CLOSED")) as server:
            self.process(server).feed("hello")
            with self.assertRaises(rota.Error):
                self.process(server).write("hello")

    def test_input_without_an_offset_is_not_repeated(self):
        with Server(LOST, took(1)) as server:
            process = self.process(server)
            with self.assertRaises(rota.UnknownOutcome):
                process.client.call("StreamService/WriteActionInput", {"actionId": "7", "data": "eA=="})

    def test_writes_of_several_threads_follow_each_other(self):
        class Pipe(Server):
            """Takes two bytes at a time, as far as they are new."""

            def __init__(self):
                super().__init__(None)
                self.arrived, self.lock = b"", threading.Lock()

            def answer(self, path, body):
                with self.lock:
                    at, data = int(body["offset"]), base64.b64decode(body["data"])
                    self.arrived += data[max(len(self.arrived) - at, 0) :][:2]
                    return took(len(self.arrived), body["eof"])

        with Pipe() as server:
            process = self.process(server)
            threads = [threading.Thread(target=process.write, args=(letter * 20,)) for letter in "abcd"]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            process.close_stdin()
        self.assertEqual(sorted(server.arrived[at : at + 20] for at in range(0, 80, 20)), [letter * 20 for letter in (b"a", b"b", b"c", b"d")])

    def test_output_that_was_quiet_for_long_survives_a_lost_connection(self):
        chunk = {"attempt": 1, "stream": "OUTPUT_STREAM_STDOUT"}
        a, b = {"chunk": {**chunk, "data": "YQ=="}}, {"chunk": {**chunk, "data": "Yg==", "offset": "1"}}
        lost, at = rota.Error("the stream was cut off", retry_after=0.0), 0.0
        # What a stream does: it sends a message, is silent for so many seconds, or is lost.
        streams = iter([[a, 1000, lost], [20, lost], [b, 1000, lost], [20, lost], [20, lost]])

        def stream(*_):
            nonlocal at
            for event in next(streams):
                if event is lost:
                    raise lost
                if isinstance(event, int):
                    at += event
                else:
                    yield event

        client = types.SimpleNamespace(retry_s=30.0, request_id=lambda: "w", stream=stream)
        clock = types.SimpleNamespace(monotonic=lambda: at, sleep=lambda _: None)
        seen = []
        with mock.patch("rota.background.time", clock), self.assertRaises(rota.Error):
            for piece in rota.Process(client, 7).output():
                seen.append(piece.data)
        self.assertEqual(seen, [b"a", b"b"])

    def test_a_signal_has_one_request_id(self):
        with Server(LOST, (200, {}, {"attempt": 1})) as server:
            self.process(server).send_signal(signal.SIGINT)
        self.assertEqual([body["signal"] for _, body in server.asked], ["2", "2"])
        self.assertEqual(len({body["requestId"] for _, body in server.asked}), 1)

    def test_output_is_read_from_another_server_when_one_is_silent(self):
        silent = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.addCleanup(silent.close)
        asked = []

        class Answers(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                asked.append(self.path.rpartition("/")[2])
                answer = json.dumps({"action": {"id": "7", "state": "ACTION_STATE_RUNNING"}}).encode()
                if asked[-1] == "ReadActionOutput":
                    chunk = {"attempt": 1, "stream": "OUTPUT_STREAM_STDOUT", "data": "aGk="}
                    messages = [(0, {"chunk": chunk}), (2, {})]
                    answer = b"".join(struct.pack(">BI", flags, len(raw)) + raw for flags, raw in ((f, json.dumps(m).encode()) for f, m in messages))
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_):
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
            addresses = ["127.0.0.1:%d" % port for port in (silent.getsockname()[1], server.server_address[1])]
            client = rota.Client(*addresses, retry_s=4.0)
            self.addCleanup(client.close)
            self.assertEqual([piece.data for piece in client.logs(7, follow=True)], [b"hi"])
            client.close()
            server.shutdown()
        self.assertEqual(asked, ["GetAction", "ReadActionOutput"])

    def test_streams_are_for_commands(self):
        self.assertEqual(rota.spec(["sh"], tty=(24, 80))["tty"], {"rows": 24, "columns": 80})
        self.assertNotIn("stdin", rota.spec(["sh"]))
        with self.assertRaises(TypeError):
            rota.spec(http="http://127.0.0.1/", stdin=True)


@unittest.skipUnless(SERVERS, "ROTA_SERVERS names no cluster")
class Streams(unittest.TestCase):
    def setUp(self):
        self.client = rota.Client(*SERVERS)
        self.addCleanup(self.client.close)

    def test_run_passes_input(self):
        data = os.urandom(1 << 20)
        action = self.client.run(["sha256sum"], stdin=data, check=True)
        self.assertEqual(action.stdout.split()[0], hashlib.sha256(data).hexdigest())
        self.assertEqual(self.client.run(["cat"], stdin="").stdout, "")
        self.assertEqual(self.client.run(["head", "-c", "1"], stdin=b"x" * (1 << 20)).stdout, "x")

    def test_output_has_times(self):
        with self.client.start(["sh", "-c", "echo one; read line; echo two"], stdin=True) as process:
            pieces = process.output(times=True)
            one = next(pieces)
            process.write("\n")
            two = next(pieces)
            self.assertEqual((one.data, two.data, one.time <= two.time), (b"one\n", b"two\n", True))
            process.wait()
        logs = list(self.client.logs(process.id, since=one.time - datetime.timedelta(seconds=2)))
        self.assertEqual((b"".join(piece.data for piece in logs), logs[0].time), (b"one\ntwo\n", None))
        self.assertEqual(list(self.client.logs(process.id, since=-3600)), [])

        async def collect():
            return [piece.time async for piece in rota.AsyncClient(*SERVERS).logs(process.id, since=3600, times=True)]

        self.assertTrue(all(asyncio.run(collect())))

    def test_a_conversation(self):
        with self.client.start(["sh", "-c", "while read line; do echo got $line; done; echo end >&2"], stdin=True) as process:
            pieces = process.output()
            process.write("one\n")
            self.assertEqual(next(pieces), rota.Output("stdout", b"got one\n", 0))
            process.write("two\n")
            self.assertEqual(next(pieces), rota.Output("stdout", b"got two\n", 8))
            process.close_stdin()
            self.assertEqual(list(pieces), [rota.Output("stderr", b"end\n", 0)])
            self.assertTrue(process.wait(check=True).succeeded)

    def test_a_terminal_and_a_signal(self):
        with self.client.start(["sh", "-c", "stty size; read line; stty size; while :; do sleep 0.05; done"], tty=(24, 80)) as process:
            pieces = process.output()
            self.assertEqual(next(pieces).data, b"24 80\r\n")
            process.resize(50, 132)
            process.write("\n")
            seen = b""
            while b"50 132" not in seen:
                seen += next(pieces).data
            process.send_signal("INT")
            self.assertEqual(process.wait().reason, "SIGNALED")

    def test_coroutines(self):
        async def converse():
            client = rota.AsyncClient(*SERVERS)
            self.assertEqual((await client.run(["cat"], stdin="text")).stdout, "text")
            async with await client.start(["cat"], stdin=True) as process:
                await process.write("a")
                await process.close_stdin()
                self.assertEqual(b"".join([piece.data async for piece in process.output()]), b"a")
                await process.wait(check=True)

        asyncio.run(converse())
