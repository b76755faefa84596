"""The client and a cluster of real processes, whose addresses ROTA_SERVERS has."""

import asyncio
import http.server
import os
import threading
import time
import unittest

import rota

from tests.test_client import Server
from tests.workers import Adder

SERVERS = os.environ.get("ROTA_SERVERS", "").split()


@unittest.skipUnless(SERVERS, "ROTA_SERVERS names no cluster")
class Cluster(unittest.TestCase):
    def setUp(self):
        self.client = rota.Client(*SERVERS)
        self.addCleanup(self.client.close)

    def test_a_command_runs(self):
        action = self.client.run(["sh", "-c", "echo {{cores}}; echo two >&2; exit 3"], cores=[1, 2], memory="32MiB")
        self.assertEqual((action.state, action.exit_code, action.stderr), ("FAILED", 3, "two\n"))
        self.assertIn(action.stdout, ("1\n", "2\n"))
        with self.assertRaises(rota.ActionFailed):
            self.client.run(["false"], check=True)

    def test_an_http_call_is_made(self):
        arrived = []

        class Engine(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                arrived.append((self.path, self.headers["Rota-Attempt"], self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(202)
                self.end_headers()
                self.wfile.write(b"woken")

            def log_message(self, *_):
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Engine) as engine:
            threading.Thread(target=engine.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
            call = {"url": "http://127.0.0.1:%d/wake_up?tags=weights" % engine.server_port, "body": "{}"}
            accepted = self.client.run(http=call)
            refused = self.client.run(http={**call, "accept": [200]})
            engine.shutdown()
        self.assertEqual((accepted.state, accepted.stdout), ("SUCCEEDED", "woken"), accepted.raw)
        self.assertEqual((refused.state, refused.exit_code), ("FAILED", 22), refused.raw)
        self.assertEqual(arrived, 2 * [("/wake_up?tags=weights", "1", b"{}")])

    def test_a_trajectory_keeps_its_node(self):
        with self.client.trajectory(memory="32MiB", name="python") as trajectory:
            nodes = {trajectory.run(["true"], check=True).node for _ in range(3)}
            self.assertEqual(len(nodes), 1)
        with self.assertRaises(rota.Error) as caught:
            trajectory.run(["true"])
        self.assertTrue(caught.exception.reason.startswith("TRAJECTORY_"), caught.exception.reason)

    def test_workers_answer_calls(self):
        kinds = {"compute": {"memory": "64MiB"}, "bandwidth": {"memory": "64MiB"}}
        with rota.Cluster(self.client, Adder, kinds, args={"start": 5}, timeout_s=120) as cluster:
            self.assertEqual(cluster.add(1), [[0, 6], [1, 6]])
            self.assertEqual(cluster.add(number=2), [[0, 8], [1, 8]])
            self.assertEqual(cluster.generate("x", tag_name="FrozenLake"), "compute 0/2: x")
            self.assertEqual(cluster.generate("y", tag_name="WebShop"), "bandwidth 1/2: y")
            self.assertEqual(cluster.double([1, 2, 3]), [2, 4, 6])
            with self.assertRaises(rota.WorkerError) as caught:
                cluster.fail()
            self.assertIn("as it was told", str(caught.exception))
            with self.assertRaises(rota.WorkerError) as caught:
                cluster.leave()
            self.assertIn("its process ended", str(caught.exception))
            ids = [worker.trajectory.id for worker in cluster.workers]
        for trajectory in ids:
            state = self.client.call("TrajectoryService/GetTrajectory", {"id": str(trajectory)})["trajectory"]["state"]
            self.assertIn(state, ("TRAJECTORY_STATE_CLOSING", "TRAJECTORY_STATE_CLOSED"))

    def test_a_deployment_of_workers_takes_turns(self):
        self.group("python")
        self.client.submit_job("python-workers", 4)
        layout = rota.Layout(dp=1, tp=2)
        with rota.Cluster(
            self.client, Adder, {"cpu": {"workers": 2, "memory": "64MiB"}}, layout=layout, deployment="python-workers/actor", timeout_s=120
        ) as cluster:
            cluster.step = 1
            self.assertEqual(cluster.double(list(range(5))), [0, 2, 4, 6, 8])
            turns = self.client.call("TurnService/ListTurns", {"job": "python-workers", "includeEnded": True}).get("turns", [])
        self.assertEqual([turn["operation"] for turn in turns], ["OPERATION_FORWARD_BACKWARD"])
        self.client.delete_job("python-workers")

    def test_a_reward_is_a_function_of_a_url(self):
        def reward(body):
            return 200, {}, {"reward": len(body["answer"])}

        with Server(None) as service:
            service.answer = lambda path, body: reward(body)
            ask = rota.Serverless(self.client, f"http://{service.address}/score", timeout_s=60)
            self.assertEqual([ask(answer="four"), ask({"answer": "six"})], [{"reward": 4}, {"reward": 3}])

    def test_files_of_a_trajectory_last(self):
        big = os.urandom(2_500_000)
        with self.client.trajectory(memory="32MiB", name="files") as trajectory:
            files = trajectory.files
            files.write("in/words", "one two\n")
            files.write("in/big", big, mode=0o600)
            ran = trajectory.run(["sh", "-c", "wc -w <in/words >out; ln -s in link; cat in/words"], check=True)
            self.assertEqual(ran.stdout, "one two\n")
            self.assertEqual(files.read_text("out").strip(), "2")
            self.assertEqual(files.read("in/big"), big)
            listed = [(f.name, f.type, f.target) for f in files.list()]
            self.assertEqual(listed, [("in", "directory", ""), ("link", "link", "in"), ("out", "regular", "")])
            self.assertEqual([(f.name, f.size, f.mode) for f in files.list("in")], [("big", len(big), 0o600), ("words", 8, 0o644)])
            files.mkdir("a/b")
            files.move("out", "a/b/moved")
            self.assertEqual(files.stat("a/b/moved").type, "regular")
            files.remove("a", recursive=True)
            for outside in ("../x", "/etc/passwd"):
                with self.assertRaises(rota.Error) as caught:
                    files.read(outside)
                self.assertEqual(caught.exception.reason, "INVALID_PATH")
            with self.assertRaises(rota.Error) as caught:
                files.read("a/b/moved")
            self.assertEqual(caught.exception.reason, "FILE_NOT_FOUND")
        with self.assertRaises(rota.Error) as caught:
            files.read("in/words")
        self.assertTrue(caught.exception.reason.startswith("TRAJECTORY_"), caught.exception.reason)

    def test_commands_of_a_trajectory_share_an_environment(self):
        with self.client.trajectory(memory="32MiB", env={"ONE": "1", "TWO": "2"}, dir="project") as trajectory:
            ran = trajectory.run(["sh", "-c", "echo $ONE $TWO; touch here"], env={"TWO": "own"}, check=True)
            self.assertEqual(ran.stdout, "1 own\n")
            self.assertEqual([f.name for f in trajectory.files.list("project")], ["here"])

    def test_files_with_asyncio(self):
        async def main():
            async with rota.AsyncClient(*SERVERS, retry_s=60.0) as client:
                async with client.trajectory(memory="32MiB") as trajectory:
                    await trajectory.files.write("greeting", "hello")
                    return (await trajectory.run(["cat", "greeting"])).stdout

        self.assertEqual(asyncio.run(main()), "hello")

    def test_refusals_have_a_reason(self):
        with self.assertRaises(rota.Error) as caught:
            self.client.get(1 << 40)
        self.assertEqual(caught.exception.reason, "ACTION_NOT_FOUND")

    def group(self, name):
        """Makes a node group, also if nobody knows whether the last try has."""
        while True:
            try:
                return self.client.create_node_group(name, 4)
            except rota.UnknownOutcome:
                pass
            except rota.Error as err:
                if err.reason != "NODE_GROUP_EXISTS":
                    raise
                return None

    def test_a_job_takes_turns_and_its_cycle_is_learned(self):
        self.group("python")
        job = self.client.submit_job("python-job", 4)
        self.assertEqual((job.state, job.group, "cycle" in job.raw), ("RUNNING", "python", False))
        tokens = []
        for step in (1, 2):
            with self.client.turn("python-job/actor", operation="forward_backward", step=step) as turn:
                tokens.append(turn.token)
                self.assertEqual((turn.group, turn.needs_set_up), ("python", step == 1))
                time.sleep(0.2)
                turn.set_up_done()
        self.assertLess(tokens[0], tokens[1])
        job = self.client.job("python-job")
        self.assertEqual((job.cycles, "cycle" in job.raw), (1, True), job.raw)
        self.assertEqual(self.client.suspend_job("python-job").state, "SUSPENDED")
        self.assertEqual(self.client.suspend_job("python-job").state, "SUSPENDED")
        with self.assertRaises(TimeoutError):
            with self.client.turn("python-job/actor", timeout_s=0.5):
                self.fail("a suspended job has been granted a turn")
        self.assertIn(self.client.resume_job("python-job").state, ("QUEUED", "RUNNING"))
        with self.client.turn("python-job/critic") as turn:
            self.assertTrue(turn.needs_set_up)
            self.assertEqual(self.client.complete_job("python-job").state, "COMPLETED")
            deadline = time.monotonic() + 30
            while not turn.stopping and time.monotonic() < deadline:
                time.sleep(0.02)
            self.assertTrue(turn.stopping)
            self.assertFalse(turn.lost)
        with self.assertRaises(rota.Error) as caught:
            with self.client.turn("python-job/actor"):
                self.fail("a completed job has been granted a turn")
        self.assertEqual(caught.exception.reason, "JOB_STATE")

    def test_turns_of_many_tasks_exclude_each_other(self):
        self.group("python-tasks")

        async def main():
            async with rota.AsyncClient(*SERVERS, retry_s=60.0) as client:
                await client.submit_job("python-tasks", 4)
                inside, tokens = [], []

                async def task(number):
                    async with client.turn(f"python-tasks/deployment-{number % 3}") as turn:
                        inside.append(number)
                        self.assertEqual(inside, [number])
                        tokens.append(turn.token)
                        await asyncio.sleep(0.01)
                        inside.remove(number)

                await asyncio.gather(*(task(number) for number in range(12)))
                await client.delete_job("python-tasks")
                return tokens

        tokens = asyncio.run(main())
        self.assertEqual((len(set(tokens)), tokens), (12, sorted(tokens)))

    def test_many_at_once_whatever_happens_to_servers(self):
        """Whoever starts this may kill the leader meanwhile: nothing is lost or runs twice."""

        async def main():
            async with rota.AsyncClient(*SERVERS, retry_s=60.0) as client:
                return await asyncio.gather(*(client.run(["echo", str(i)]) for i in range(60)))

        actions = asyncio.run(main())
        self.assertEqual([a.stdout for a in actions], [f"{i}\n" for i in range(60)])
        self.assertEqual(len({a.id for a in actions}), 60)
        self.assertEqual({a.raw["attempt"] for a in actions}, {1})


if __name__ == "__main__":
    unittest.main()
