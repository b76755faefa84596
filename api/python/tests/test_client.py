"""The client against servers that answer what a test wants."""

import asyncio
import http.server
import json
import os
import socket
import pickle
import tempfile
import threading
import time
import types
import unittest
from unittest import mock

import rota
from rota import client as client_module
from rota.spec import size


class Server(http.server.ThreadingHTTPServer):
    """Answers with what ``answers`` has, one after the other, the last for ever."""

    def __init__(self, *answers):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = list(answers)
        self.asked = []
        self.address = "127.0.0.1:%d" % self.server_address[1]
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def answer(self, path, body):
        self.asked.append((path, body))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status, headers, answer = self.server.answer(self.path, json.loads(body))
        if status == 0:  # the connection is lost before the answer
            self.close_connection = True
            return
        text = json.dumps(answer).encode()
        self.send_response(status)
        for key, value in {"Content-Length": str(len(text)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def refusal(status, code, reason, delay=None):
    about = {"reason": reason}
    if delay is not None:
        about["retryDelay"] = delay
    detail = {"type": "rota.v1.ErrorDetail", "value": "", "debug": about}
    return status, {}, {"code": code, "message": reason.lower(), "details": [detail]}


SUBMITTED = (200, {}, {"ids": ["7"]})
NO_LEADER = refusal(503, "unavailable", "NO_LEADER", "0.010s")
LOST = (0, {}, None)


class Calls(unittest.TestCase):
    def client(self, *servers, **options):
        client = rota.Client(*servers, **options)
        self.addCleanup(client.close)
        return client

    def test_a_submission_is_repeated_under_the_same_request_id(self):
        with Server(NO_LEADER, LOST, SUBMITTED) as server:
            ids = self.client(server.address).submit(rota.spec(["true"]))
        self.assertEqual(ids, [7])
        self.assertEqual(len({body["requestId"] for _, body in server.asked}), 1)
        self.assertEqual(len(server.asked), 3)

    def test_a_submission_says_when_its_actions_would_start(self):
        estimates = [{"p50": "1.500s", "p90": "70s"}, {"unknownReason": "nothing is known"}]
        with Server((200, {}, {"ids": ["7", "8"], "estimates": estimates})) as server:
            ids = self.client(server.address).submit(rota.spec(["true"]), rota.spec(["true"]))
        self.assertEqual(ids, [7, 8])
        self.assertEqual(ids.estimates, [(1.5, 70.0, ""), (None, None, "nothing is known")])
        queued = {"id": "7", "state": "ACTION_STATE_QUEUED", "estimate": {"p50": "0s", "p90": "0.250s"}}
        with Server((200, {}, {"action": queued})) as server:
            self.assertEqual(self.client(server.address).get(7).estimate, rota.StartEstimate(0.0, 0.25))
        with Server((200, {}, {"action": {"id": "7", "state": "ACTION_STATE_RUNNING"}})) as server:
            self.assertIsNone(self.client(server.address).get(7).estimate)

    def test_what_may_have_been_done_is_not_repeated_without_a_request_id(self):
        with Server(LOST, (200, {}, {})) as server:
            with self.assertRaises(rota.UnknownOutcome):
                self.client(server.address).call("QuotaService/CreateQuota", {"name": "x"})
        self.assertEqual(len(server.asked), 1)

    def test_what_may_be_forgotten_is_not_repeated(self):
        with mock.patch("rota.client._REMEMBERED_S", 0.0), Server(LOST, SUBMITTED) as server:
            with self.assertRaises(rota.UnknownOutcome):
                self.client(server.address).submit(rota.spec(["true"]))
            self.assertEqual(len(server.asked), 1)

    def test_a_refusal_for_good_is_not_repeated(self):
        with Server(refusal(400, "invalid_argument", "UNSATISFIABLE")) as server:
            with self.assertRaises(rota.Error) as caught:
                self.client(server.address).submit(rota.spec(["true"], cores=999))
        self.assertEqual((caught.exception.code, caught.exception.reason), ("invalid_argument", "UNSATISFIABLE"))
        self.assertNotIsInstance(caught.exception, rota.UnknownOutcome)
        self.assertEqual(len(server.asked), 1)

    def test_the_leader_is_asked_next(self):
        with Server(SUBMITTED) as leader:
            with Server((200, {"Rota-Leader": leader.address}, {"ids": ["1"]})) as follower:
                client = self.client(follower.address)
                client.submit(rota.spec(["true"]))
                client.submit(rota.spec(["true"]))
        self.assertEqual((len(follower.asked), len(leader.asked)), (1, 1))

    def test_another_server_is_asked_when_one_is_gone(self):
        with Server(SUBMITTED) as gone:
            pass
        with Server(SUBMITTED) as server:
            self.assertEqual(self.client(gone.address, server.address).submit(rota.spec(["true"])), [7])

    def silent(self):
        """The address of a server that takes connections and never answers."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.addCleanup(listener.close)
        return "127.0.0.1:%d" % listener.getsockname()[1]

    def test_another_server_is_asked_when_one_is_silent(self):
        with Server(SUBMITTED) as server:
            client = self.client(self.silent(), server.address, retry_s=8.0)
            self.assertEqual(client.submit(rota.spec(["true"])), [7])
            self.assertEqual(client._current, server.address)

    def test_a_server_that_was_silent_to_the_end_is_not_asked_next(self):
        with Server((200, {}, {"quotas": []})) as server:
            client = self.client(self.silent(), server.address, retry_s=0.2)
            with self.assertRaises(rota.UnknownOutcome):
                client.call("QuotaService/CreateQuota", {"name": "x"})
            client.retry_s = 60.0
            client.call("QuotaService/ListQuotas")
        self.assertEqual(len(server.asked), 1)

    def test_a_leader_that_cannot_be_reached_is_left_alone_for_a_while(self):
        with Server(SUBMITTED) as gone:
            pass
        with mock.patch("rota.client._AVOID_S", 600.0), Server((200, {"Rota-Leader": gone.address}, {"ids": ["7"]})) as server:
            client = self.client(server.address)
            for _ in range(3):
                client.submit(rota.spec(["true"]))
            self.assertEqual(client._current, server.address)
        self.assertEqual(len(server.asked), 3)

    def test_pauses_are_bounded_however_many_there_were(self):
        for tries in (0, 1, 7, 5000):
            self.assertLessEqual(client_module._backoff_s(tries), 1.0)

    def test_it_gives_up_in_time(self):
        with Server(NO_LEADER) as server:
            with self.assertRaises(rota.Error) as caught:
                self.client(server.address, retry_s=1.0).submit(rota.spec(["true"]))
        self.assertEqual(caught.exception.reason, "NO_LEADER")
        self.assertGreater(len(server.asked), 1)

    def test_waiting_ends_with_the_action_or_in_time(self):
        def action(state):
            return 200, {}, {"action": {"id": "7", "state": "ACTION_STATE_" + state, "waitingFor": "for cores"}}

        with Server(action("QUEUED"), action("RUNNING"), action("SUCCEEDED")) as server:
            self.assertTrue(self.client(server.address).wait(7).succeeded)
        with Server(action("QUEUED")) as server:
            with self.assertRaisesRegex(TimeoutError, "for cores"):
                self.client(server.address).wait(7, timeout_s=0.1)

    def test_an_abandoned_run_is_canceled(self):
        running = (200, {}, {"action": {"id": "7", "state": "ACTION_STATE_RUNNING"}})

        async def main(client):
            async with client:
                await asyncio.wait_for(client.run(["sleep", "99"]), 0.2)

        with Server(SUBMITTED, running) as server:
            with self.assertRaises(asyncio.TimeoutError):
                asyncio.run(main(rota.AsyncClient(server.address)))
        self.assertEqual(server.asked[-1], ("/rota.v1.ActionService/CancelActions", {"ids": ["7"]}))

    def test_a_canceled_submission_cancels_its_actions(self):
        asked = threading.Event()
        answer = threading.Event()

        class Slow(Server):
            def answer(self, path, body):
                if path.endswith("SubmitActions"):
                    asked.set()
                    answer.wait(60)
                return super().answer(path, body)

        async def main(client, **about):
            async with client:
                submission = asyncio.ensure_future(client.submit(rota.spec(["true"]), **about))
                await asyncio.to_thread(asked.wait, 60)
                submission.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await submission
                answer.set()

        canceled = ("/rota.v1.ActionService/CancelActions", {"ids": ["7"]})
        for about, last in (({}, canceled), ({"request_id": "mine"}, None)):
            asked.clear()
            answer.clear()
            with Slow(SUBMITTED) as server:
                asyncio.run(main(rota.AsyncClient(server.address), **about))
                end = time.monotonic() + 60
                while last and len(server.asked) < 2 and time.monotonic() < end:  # a thread cancels them
                    time.sleep(0.01)
            self.assertEqual(server.asked[1:], [last] if last else [])


class Doubts(unittest.TestCase):
    """Answers that do not say whether a call was carried out."""

    def client(self, *servers, **options):
        client = rota.Client(*servers, **options)
        self.addCleanup(client.close)
        return client

    def test_what_a_proxy_says_proves_nothing(self):
        bare = (503, {}, {"code": "unavailable", "message": "upstream"})
        unreachable = refusal(503, "unavailable", "LEADER_UNREACHABLE", "0.010s")
        for answer in (*((status, {}, {"proxy": 1}) for status in (408, 502, 503, 504)), bare, unreachable):
            with Server(answer, (200, {}, {})) as server:
                with self.assertRaises(rota.UnknownOutcome):
                    self.client(server.address).call("QuotaService/CreateQuota", {"name": "x"})
            self.assertEqual(len(server.asked), 1, answer)
            with Server(answer, SUBMITTED) as server:
                self.assertEqual(self.client(server.address).submit(rota.spec(["true"])), [7])
        with Server((429, {}, {"proxy": 1}), (200, {}, {})) as server:
            self.client(server.address).call("QuotaService/CreateQuota", {"name": "x"})
        self.assertEqual(len(server.asked), 2)

    def test_what_may_be_done_twice_is_repeated(self):
        for method in ("A/SummarizeActions", "A/ExplainModel", "A/AdviseRatio", "A/PauseTrajectory", "A/UpdateWorker", "A/RegisterWorker"):
            with Server(LOST, (200, {}, {"x": 1})) as server:
                self.assertEqual(self.client(server.address).call(method), {"x": 1})

    def test_a_refusal_after_a_lost_try_is_one_where_that_does_not_matter(self):
        gone = refusal(404, "not_found", "ACTION_NOT_FOUND")
        for method, sure in (("A/GetAction", True), ("A/CancelActions", True), ("A/SignalAction", False)):
            with Server(LOST, gone) as server:
                with self.assertRaises(rota.Error) as caught:
                    self.client(server.address).call(method, {"requestId": "x"})
            self.assertEqual(isinstance(caught.exception, rota.UnknownOutcome), not sure, method)
            self.assertEqual(caught.exception.reason, "ACTION_NOT_FOUND")

    def test_a_fork_is_there_although_its_snapshot_stays(self):
        snapshot = (200, {}, {"snapshot": {"id": "3", "state": "SNAPSHOT_STATE_READY"}})
        opened = (200, {}, {"trajectory": {"id": "8"}})
        with Server(snapshot, opened, refusal(400, "failed_precondition", "X")) as server:
            self.assertEqual(rota.Trajectory(self.client(server.address), 7).fork().id, 8)
        self.assertEqual([path.rpartition("/")[2] for path, _ in server.asked], ["CreateSnapshot", "OpenTrajectory", "DeleteSnapshot"])

    def test_settings_that_cannot_be_meant_are_refused(self):
        lone = ({"cert": "c", "key": "k"}, {"ca": "a", "cert": "c"}, {"ca": "a", "key": "k"}, {"key": "k"})
        for wrong in (*lone, {"retry_s": 0}, {"retry_s": -1.0}):
            with self.assertRaisesRegex(ValueError, "give"):
                rota.Client("127.0.0.1:1", **wrong)

    def test_a_run_that_is_interrupted_cancels_its_action(self):
        for err in (KeyboardInterrupt(), ValueError("the file is broken")):

            def broken(_):
                raise err

            with Server(SUBMITTED, NO_LEADER, (200, {}, {})) as server:
                with self.assertRaises(type(err)):
                    self.client(server.address).run(["cat"], stdin=types.SimpleNamespace(read=broken))
            self.assertEqual(server.asked[-1], ("/rota.v1.ActionService/CancelActions", {"ids": ["7"]}))

    def test_a_run_that_fails_is_over(self):
        failed = (200, {}, {"action": {"id": "7", "state": "ACTION_STATE_FAILED"}})
        with Server(SUBMITTED, failed) as server:
            with self.assertRaises(rota.ActionFailed):
                self.client(server.address).run(["false"], check=True)
        self.assertEqual(server.asked[-1][0], "/rota.v1.ActionService/GetAction")

    def test_a_coroutine_is_canceled_although_its_action_cannot_be(self):
        class Refuses(Server):
            def answer(self, path, body):
                answer = super().answer(path, body)
                return refusal(400, "failed_precondition", "X") if path.endswith("CancelActions") else answer

        async def main(address):
            async with rota.AsyncClient(address) as client:
                run = asyncio.ensure_future(client.run(["sleep", "99"]))
                while len(server.asked) < 2:
                    await asyncio.sleep(0.01)
                run.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await run

        with Refuses(SUBMITTED, (200, {}, {"action": {"id": "7", "state": "ACTION_STATE_RUNNING"}})) as server:
            asyncio.run(main(server.address))
        self.assertEqual(server.asked[-1][0], "/rota.v1.ActionService/CancelActions")

    def test_input_is_for_one_attempt(self):
        with self.assertRaises(TypeError):
            rota.Client("127.0.0.1:1").run(["cat"], stdin="x", lossPolicy="LOSS_POLICY_RETRY")
        with self.assertRaises(TypeError):
            asyncio.run(rota.AsyncClient("127.0.0.1:1").run(["cat"], stdin="x", lossPolicy="LOSS_POLICY_RETRY"))


class Exceptions(unittest.TestCase):
    def test_they_can_be_sent_to_another_process(self):
        action = rota.Action({"id": "7", "state": "ACTION_STATE_FAILED", "result": {"reason": "END_REASON_EXITED", "exitCode": 3}})
        turn = types.SimpleNamespace(id=4, deployment="a/b", lock=threading.Lock())
        for err, fields in (
            (rota.Error("m", "not_found", "R", 2.0), ("code", "reason", "retry_after")),
            (rota.UnknownOutcome("m", "aborted"), ("code",)),
            (rota.ModelError(429, b'{"error": {"message": "slow"}}'), ("status", "body")),
            (rota.WorkerError(3, "m", "trace", True), ("rank", "trace", "ended")),
            (rota.ActionFailed(action), ()),
            (rota.TurnLost(turn, "why"), ()),
        ):
            back = pickle.loads(pickle.dumps(err))
            self.assertEqual((type(back), str(back)), (type(err), str(err)))
            for field in fields:
                self.assertEqual(getattr(back, field), getattr(err, field))
        self.assertEqual(pickle.loads(pickle.dumps(rota.ActionFailed(action))).action.exit_code, 3)
        self.assertIsNone(pickle.loads(pickle.dumps(rota.TurnLost(turn, "why"))).turn)


class Throttled(unittest.TestCase):
    def test_tells_the_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "throttle")
            with mock.patch.dict(os.environ, {"ROTA_THROTTLE_FILE": path}):
                for after, want in ((None, "refused"), (30, "30.000"), (0.5, "0.500")):
                    self.assertTrue(rota.throttled(after))
                    with open(path, encoding="utf-8") as file:
                        self.assertEqual(file.read(), want + "\n")

    def test_without_quotas(self):
        with mock.patch.dict(os.environ):
            os.environ.pop("ROTA_THROTTLE_FILE", None)
            self.assertFalse(rota.throttled(30))


class Used(unittest.TestCase):
    def test_tells_the_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "usage")
            with mock.patch.dict(os.environ, {"ROTA_USAGE_FILE": path}):
                self.assertTrue(rota.used("tokens", 1834))
                self.assertTrue(rota.used("cents", 0))
            with open(path, encoding="utf-8") as file:
                self.assertEqual(file.read(), "tokens 1834\ncents 0\n")

    def test_refuses_what_is_no_use(self):
        for quota, units in (("", 1), ("a b", 1), ("a\n", 1), ("a", -1), ("a", 1.5), ("a", True)):
            with self.assertRaises(ValueError):
                rota.used(quota, units)

    def test_without_quotas(self):
        with mock.patch.dict(os.environ):
            os.environ.pop("ROTA_USAGE_FILE", None)
            self.assertFalse(rota.used("tokens", 1))


class Specs(unittest.TestCase):
    def test_a_gang_is_some_of_one_action(self):
        one = rota.spec(["train"], cores=2)
        members = rota.gang(one, 3, spread="node")
        self.assertEqual(members, 3 * [{**one, "gangSize": 3, "gangSpread": "GANG_SPREAD_NODE"}])
        self.assertEqual(rota.gang(one, 1), [{**one, "gangSize": 1}])
        for wrong in ({"size": 0}, {"size": 2, "spread": "rack"}):
            with self.assertRaises(ValueError):
                rota.gang(one, **wrong)

    def test_settle(self):
        spec = rota.spec(http="http://x", quotas={"tokens": 2000, "calls": 1}, settle={"tokens": "usage"})
        self.assertEqual(spec["resources"]["quotas"], [{"quota": "tokens", "units": 2000, "settle": "usage"}, {"quota": "calls", "units": 1}])
        with self.assertRaises(ValueError):
            rota.spec(http="http://x", quotas=["calls"], settle={"tokens": "usage"})

    def test_cores(self):
        self.assertEqual(rota.spec(["x"], cores=2)["resources"], {"cores": 2})
        self.assertEqual(rota.spec(["x"], cores=0, quotas=["judge"])["resources"], {"cores": 0, "quotas": [{"quota": "judge", "units": 1}]})
        self.assertEqual(rota.spec(["x"], cores=range(1, 9))["resources"], {"cores": 1, "maxCores": 8})
        self.assertEqual(rota.spec(["x"], cores=range(1, 9), resizable=False)["resources"], {"cores": 1, "maxCores": 8, "resizable": False})
        self.assertEqual(rota.spec(["x"], cores=[1, 4])["resources"], {"allowedCores": [1, 4]})
        for wrong in (range(1, 9, 2), range(3, 3)):
            with self.assertRaises(ValueError):
                rota.spec(["x"], cores=wrong)

    def test_what_is_known(self):
        spec = rota.spec(["x"], class_="pytest", size_hint=212, expect_s=1.5)
        self.assertEqual((spec["class"], spec["sizeHint"], spec["profile"]), ("pytest", "212", {"duration": "1.5s"}))
        self.assertNotIn("sizeHint", rota.spec(["x"], class_="pytest"))

    def test_sizes(self):
        self.assertEqual([size(s) for s in (5, "5", "2KB", "2KiB", "1 GiB")], [5, 5, 2000, 2048, 1 << 30])
        for wrong in ("", "GiB", "1.5GiB", "-1", "1XB"):
            with self.assertRaises(ValueError):
                size(wrong)

    def test_http_calls(self):
        self.assertEqual(rota.spec(http="http://e/x"), {"http": {"url": "http://e/x"}, "resources": {}})
        call = {"url": "http://e/x", "method": "PUT", "headers": {"A": "b"}, "accept": [200, 404]}
        self.assertEqual(rota.spec(http={**call, "body": "hi"})["http"], {**call, "body": "aGk="})
        self.assertEqual(rota.spec(http={**call, "body": b"\xff"}, cores=0, quotas=["e"])["http"]["body"], "/w==")
        for wrong in ({}, {"argv": ["x"], "http": "http://e"}, {"http": "http://e", "cwd": "/"}, {"http": {}}, {"http": {**call, "json": 1}}):
            with self.assertRaises(TypeError):
                rota.spec(**wrong)

    def test_an_http_call_is_run(self):
        ended = {"id": "7", "state": "ACTION_STATE_SUCCEEDED", "result": {"stdoutTail": "aGk="}}
        with Server(SUBMITTED, (200, {}, {"action": ended})) as server:
            with rota.Client(server.address) as client:
                self.assertEqual(client.run(http="http://e/x", cores=0, quotas=["e"]).stdout, "hi")
        self.assertEqual(server.asked[0][1]["actions"][0]["http"], {"url": "http://e/x"})

    def test_models(self):
        gpus = rota.spec(["x"], gpus=2, gpu_memory="1GiB", model="judge")["resources"]["gpus"]
        self.assertEqual(gpus, {"gpus": [2], "memoryBytes": "1073741824", "model": "judge"})
        for wrong in ({"model": "judge"}, {"gpu_memory": 5}):
            with self.assertRaises(TypeError):
                rota.spec(["x"], **wrong)

    def test_engines(self):
        engine = {"spec": {"model": "judge"}, "generation": "1"}
        with Server(LOST, (200, {}, {"engine": engine, "engines": [engine]})) as server:
            with rota.Client(server.address) as client:
                self.assertEqual(client.register_engine("judge", ["serve", "{{port}}"], "vllm", sleep_level=2, start_timeout_s=90), engine)
                client.register_engine("rules", ["x"], "process", probe=None, env={"A": "b"}, cwd="/srv")
                call = {"path": "/sleep", "body": "hi"}
                client.register_engine("ranker", ["x"], "http", sleep=call, wake=call, probe="/ready", asleep_memory="1KiB")
                self.assertEqual(client.engines(), [engine])
                client.remove_engine("judge")
                with self.assertRaises(TypeError):
                    client.register_engine("judge", "serve", "vllm")
        vllm, process, ranker = (body["engine"] for _, body in server.asked[1:4])
        command = {"argv": ["serve", "{{port}}"], "env": {}, "dir": ""}
        self.assertEqual(vllm, {"model": "judge", "driver": "ENGINE_DRIVER_VLLM", "command": command, "sleepLevel": 2, "startTimeout": "90s"})
        self.assertTrue(process["noProbe"] and process["command"] == {"argv": ["x"], "env": {"A": "b"}, "dir": "/srv"})
        coded = {"path": "/sleep", "body": "aGk="}
        self.assertEqual([ranker[k] for k in ("sleep", "wake", "probePath", "asleepMemoryBytes")], [coded, coded, "/ready", "1024"])
        paths = ["RegisterEngine"] * 4 + ["ListEngines", "RemoveEngine"]
        self.assertEqual([path for path, _ in server.asked], ["/rota.v1.EngineService/" + p for p in paths])

    def test_residency(self):
        first, second = {"workingSet": "judge"}, {"workingSet": "default/a/actor"}
        pages = (200, {}, {"rows": [first], "nextPageToken": "t"}), (200, {}, {"rows": [second], "models": [], "nodes": []})
        with Server(*pages) as server, rota.Client(server.address) as client:
            self.assertEqual(client.residency(job="a"), [first, second])
            self.assertEqual((client.models(), client.gpus("p")), ([], []))
            client.model("judge")
            client.explain_model("judge", gpus=(1, 2), memoryBytes="5")
        about = {"node": "", "model": "", "namespace": "", "job": "a", "pageSize": 1000}
        self.assertEqual([body for _, body in server.asked[:2]], [{**about, "pageToken": ""}, {**about, "pageToken": "t"}])
        self.assertEqual(server.asked[5][1], {"model": "judge", "gpus": [1, 2], "namespace": "", "memoryBytes": "5"})
        paths = ["ListResidency"] * 2 + ["ListModels", "ListGpus", "GetModel", "ExplainModel"]
        self.assertEqual([path for path, _ in server.asked], ["/rota.v1.ResidencyService/" + p for p in paths])
    def test_migrations_are_requested_and_listed(self):
        first = {"migrations": [{"id": "7"}], "nextPageToken": "more"}
        answers = [(200, {}, a) for a in ({"id": "7"}, {"id": "8"}, {"migration": {"id": "7"}}, first, {"migrations": [{"id": "8"}]}, {})]
        with Server(*answers) as server, rota.Client(server.address, namespace="team") as client:
            self.assertEqual(client.migrate("n1", "n2", trajectory=5, length=12), 7)
            self.assertEqual(client.migrate("n1", "n2", tag="job%5", keys=["k"], queue_timeout_s=30, run_timeout_s=1.5), 8)
            self.assertEqual(client.migration(7), {"id": "7"})
            self.assertEqual(client.migrations(live=True, node="n1"), [{"id": "7"}, {"id": "8"}])
            client.cancel_migration(8)
        bodies = [body for _, body in server.asked]
        of = {"namespace": "team", "source": "n1", "target": "n2"}
        self.assertTrue(bodies[0].pop("requestId") != bodies[1].pop("requestId"))
        self.assertEqual(bodies[0], {**of, "trajectoryId": "5", "length": "12"})
        selector = {"tag": "job%5", "prefixes": [], "keys": ["k"]}
        self.assertEqual(bodies[1], {**of, "length": "0", "selector": selector, "queueTimeout": "30s", "runTimeout": "1.5s"})
        self.assertEqual(bodies[4], {"namespace": "team", "live": True, "node": "n1", "pageToken": "more"})
        paths = ["RequestMigration"] * 2 + ["GetMigration"] + ["ListMigrations"] * 2 + ["CancelMigration"]
        self.assertEqual([path for path, _ in server.asked], ["/rota.v1.MigrationService/" + p for p in paths])

    def test_a_command_is_a_list(self):
        with self.assertRaises(TypeError):
            rota.spec("echo hello")


if __name__ == "__main__":
    unittest.main()
