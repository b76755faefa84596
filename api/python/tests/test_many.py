"""Many actions at once, whole outputs, and what the environment says of the cluster."""

import asyncio
import base64
import io
import os
import threading
import unittest
from unittest import mock

import rota
from rota.background import collect
from rota.many import Progress

from .test_client import Server, refusal

SERVERS = os.environ.get("ROTA_SERVERS", "").split()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def ended(reason="EXITED", **result):
    return rota.Action({"id": "7", "state": "ACTION_STATE_FAILED", "result": {"reason": "END_REASON_" + reason, **result}})


class Line(unittest.TestCase):
    def test_progress_is_for_terminals(self):
        with mock.patch.dict(os.environ, COLUMNS="40"):
            with Progress(4, to=(terminal := Terminal())) as bar:
                bar.show(1, 2, 0)
                bar.show(1, 2, 0)
                bar.show(4, 0, 1)
        lines = terminal.getvalue().split("\r")
        self.assertEqual([line.removesuffix("\x1b[K").strip() for line in lines[1:]], [
            "[#####" + "." * 17 + "] 1/4, 2 running", "[" + "#" * 12 + "] 4/4, 0 running, 1 failed\x1b[K",
        ])
        for off in ({"to": io.StringIO()}, {"on": False, "to": Terminal()}):
            with Progress(4, **off) as bar:
                bar.show(1, 2, 0)
            self.assertEqual(off["to"].getvalue(), "")

    def test_nothing_to_do(self):
        self.assertEqual(rota.Client("127.0.0.1:1").map([]), [])
        with self.assertRaises(ValueError):
            rota.Client("127.0.0.1:1").map([["true"]], parallel=0)
        with self.assertRaises(TypeError):
            rota.Client("127.0.0.1:1").map([rota.spec(["true"])], cores=1)


class Results(unittest.TestCase):
    def test_an_exit_code_is_of_what_has_exited(self):
        self.assertEqual([ended().exit_code, ended(exitCode=3).exit_code, ended("TIMEOUT").exit_code], [0, 3, None])

    def test_a_failure_says_what_it_knows(self):
        said = str(rota.ActionFailed(ended(exitCode=3, stderrTail=base64.b64encode(b"one\ntwo\n").decode())))
        self.assertEqual(said, "action 7 ended as FAILED: EXITED, exit code 3\none\ntwo")
        self.assertIn("no such file", str(rota.ActionFailed(ended("START_FAILED", message="no such file"))))

    def test_output_is_whole_or_says_that_it_is_not(self):
        tail = base64.b64encode(b"x" * 4096).decode()
        self.assertEqual((ended(stdoutTail="eHg=").truncated, ended(stdoutTail=tail).truncated), (False, True))
        action = ended(stdoutTail=tail)
        collect(action, [rota.Output("stdout", b"a", 0), rota.Output("stderr", b"e", 0), rota.Output("stdout", b"b", 1)])
        self.assertEqual((action.stdout, action.stderr, action.truncated), ("ab", "e", False))
        collect(action, [rota.Output("stdout", b"z", 9)])
        self.assertEqual((action.stdout_bytes, action.truncated), (b"z", True))
        collect(action, [])
        self.assertEqual(action.stdout_bytes, b"z")


class LostAnswers(unittest.TestCase):
    def test_what_was_submitted_is_canceled_though_its_answer_was_lost(self):
        unknown = refusal(500, "unknown", "UNKNOWN_OUTCOME")
        with Server(unknown, (200, {}, {"ids": ["7", "8"]}), (200, {}, {"canceled": 2})) as server:
            client = rota.Client(server.address, retry_s=0.1)
            self.addCleanup(client.close)
            with self.assertRaises(rota.UnknownOutcome):
                client.map([["true"], ["true"]])
        self.assertEqual([path.rpartition("/")[2] for path, _ in server.asked], ["SubmitActions", "SubmitActions", "CancelActions"])
        self.assertEqual(server.asked[0][1]["requestId"], server.asked[1][1]["requestId"])
        self.assertEqual(server.asked[2][1]["ids"], ["7", "8"])

    def test_what_was_refused_is_not_submitted_again(self):
        with Server(refusal(400, "invalid_argument", "INVALID")) as server:
            client = rota.Client(server.address, retry_s=0.1)
            self.addCleanup(client.close)
            with self.assertRaises(rota.Error):
                client.map([["true"]])
        self.assertEqual(len(server.asked), 1)


class Environment(unittest.TestCase):
    def test_servers_and_namespace(self):
        with Server((200, {}, {"ids": ["7"]})) as server, mock.patch.dict(os.environ, ROTA_ADDR=server.address, ROTA_NAMESPACE="n"):
            client = rota.Client()
            self.addCleanup(client.close)
            client.submit(rota.spec(["true"]))
            self.assertEqual(server.asked[0][1]["namespace"], "n")
            self.assertEqual(rota.Client(namespace="").namespace, "")
        with mock.patch.dict(os.environ):
            os.environ.pop("ROTA_ADDR", None)
            self.assertEqual(rota.Client()._servers, ["127.0.0.1:7400"])

    def test_certificates(self):
        with mock.patch.dict(os.environ, ROTA_CA="/nowhere/ca.pem"), self.assertRaises(FileNotFoundError):
            rota.Client("127.0.0.1:1")
        files = {"ROTA_CA": "a", "ROTA_CERT": "c", "ROTA_KEY": "k", "ROTA_TOKEN_FILE": "t"}
        with mock.patch.dict(os.environ, files), mock.patch("ssl.create_default_context") as context:
            rota.Client("127.0.0.1:1")
            context.return_value.load_cert_chain.assert_called_once_with("c", "k")
            context.return_value.load_cert_chain.reset_mock()
            rota.Client("127.0.0.1:1", token="secret")
            context.return_value.load_cert_chain.assert_not_called()


@unittest.skipUnless(SERVERS, "ROTA_SERVERS names no cluster")
class Many(unittest.TestCase):
    def setUp(self):
        self.client = rota.Client(*SERVERS)
        self.addCleanup(self.client.close)

    def test_results_come_in_order(self):
        commands = [["sh", "-c", f"echo {i}; exit $(({i} % 2))"] for i in range(12)]
        commands.append(rota.spec(["sh", "-c", "echo $X"], env={"X": "x"}, labels={"mine": "1"}))
        with mock.patch("sys.stderr", Terminal()) as terminal:
            results = self.client.map(commands[:12], parallel=5, cores=1) + self.client.map(commands[12:], progress=False)
        self.assertEqual([action.stdout for action in results], [f"{i}\n" for i in range(12)] + ["x\n"])
        self.assertEqual([action.exit_code for action in results], [0, 1] * 6 + [0])
        self.assertEqual(results[-1].raw["spec"]["labels"]["mine"], "1")
        self.assertIn(" 12/12, 0 running, 6 failed", terminal.getvalue())
        self.assertNotIn(" 1/1,", terminal.getvalue())

    def test_the_first_failure_cancels_the_others(self):
        with self.assertRaises(rota.ActionFailed) as caught:
            self.client.map([["sleep", "600"], ["sh", "-c", "echo why >&2; exit 4"]], check=True, labels={"t": "first"})
        self.assertEqual((caught.exception.action.exit_code, caught.exception.action.stderr), (4, "why\n"))
        [sleeper] = [a for a in self.client.list(labels={"t": "first"}) if a.id != caught.exception.action.id]
        self.assertEqual(self.client.wait(sleeper.id).state, "CANCELED")

    def test_coroutines(self):
        async def run():
            client = rota.AsyncClient(*SERVERS)
            done = await client.map([["echo", "a"], ["echo", "b"]])
            self.assertEqual([action.stdout for action in done], ["a\n", "b\n"])
            work = asyncio.ensure_future(client.map([["sleep", "600"]], labels={"t": "coroutine"}))
            while not (found := await client.list(labels={"t": "coroutine"})):
                await asyncio.sleep(0.05)
            work.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await work
            self.assertEqual((await client.wait(found[0].id)).state, "CANCELED")
            client.close()

        asyncio.run(run())

    def test_a_large_output_is_whole(self):
        action = self.client.run(["sh", "-c", "seq 300000; seq 10 >&2"])
        self.assertEqual(action.stdout_bytes, b"".join(b"%d\n" % i for i in range(1, 300001)))
        self.assertEqual((action.truncated, action.stderr.split()[-1]), (False, "10"))
        self.assertTrue(self.client.get(action.id).truncated)
        asynchronous = rota.AsyncClient(*SERVERS)
        self.addCleanup(asynchronous.close)
        self.assertEqual(asyncio.run(asynchronous.run(["seq", "5000"])).stdout, self.client.run(["seq", "5000"]).stdout)

    def test_input_from_a_file(self):
        data = os.urandom(3 << 20)
        action = self.client.run(["wc", "-c"], stdin=io.BytesIO(data), check=True)
        self.assertEqual(int(action.stdout), len(data))

    def test_a_trajectory_closes_by_itself(self):
        with self.client.trajectory(timeout_s=0.5, labels={"t": "short"}) as trajectory:
            ended = threading.Event()
            while self.client.trajectories(labels={"t": "short"}) and not ended.wait(0.05):
                pass
            with self.assertRaises(rota.Error):
                trajectory.run(["true"])
