"""Rollouts and workers, against servers that answer what a test wants."""

import asyncio
import contextlib
import http.client
import itertools
import json
import os
import pathlib
import tempfile
import threading
import time
import types
import unittest

import rota
from rota import cluster, process

from tests.test_client import LOST, Server, refusal
from tests.workers import Adder


class Cluster(Server):
    """Answers as a cluster with one rollout does, in which each group needs a number of samples."""

    def __init__(self, need):
        super().__init__(None)
        self.need, self.lock = need, threading.Lock()
        self.ids, self.of, self.open, self.samples, self.closed = itertools.count(1), {}, set(), {}, []
        self.end = "CLOSED"  # what a trajectory is that is not open

    def answer(self, path, body):
        with self.lock:
            self.asked.append((path, body))
            return getattr(self, path.rpartition("/")[2])(body)

    def CreateRollout(self, _):
        return 200, {}, {"rollout": {"id": "9"}}

    def CloseRollout(self, body):
        self.closed.append(body["id"])
        return 200, {}, {"rollout": {"id": body["id"]}}

    def OpenTrajectory(self, body):
        group = body["rollout"]["group"]
        if len(self.samples.get(group, ())) == self.need:
            return refusal(400, "failed_precondition", "GROUP_COMPLETE")
        trajectory = next(self.ids)
        self.of[trajectory] = group
        self.open.add(trajectory)
        return 200, {}, {"trajectory": {"id": str(trajectory)}}

    def GetTrajectory(self, body):
        live = int(body["id"]) in self.open
        return 200, {}, {"trajectory": {"state": "TRAJECTORY_STATE_" + ("OPEN" if live else self.end)}}

    def CloseTrajectory(self, body):
        self.open.discard(int(body["id"]))
        return 200, {}, {}

    def PutSample(self, body):
        trajectory = int(body["trajectoryId"])
        of = self.samples.setdefault(self.of[trajectory], [])
        accepted = len(of) < self.need
        if accepted:
            of.append((trajectory, body["reward"]))
        self.open.discard(trajectory)
        if len(of) == self.need:
            self.open -= {t for t, group in self.of.items() if group == self.of[trajectory]}
        return 200, {}, {"accepted": accepted, "state": "ROLLOUT_MEMBER_STATE_" + ("SAMPLED" if accepted else "REDUNDANT")}


class Rollouts(unittest.TestCase):
    def client(self, server):
        client = rota.Client(server.address, namespace="research")
        self.addCleanup(client.close)
        return client

    def test_a_loop_runs_until_the_groups_are_complete(self):
        with Cluster(2) as server:
            with rota.Rollout(self.client(server), "coder", ["a", "b", "c"], samples_per_group=2, redundant=1) as rollout:
                summary = rollout.run(lambda episode: {"a": 1, "b": 2, "c": 3}[episode.prompt], parallel=2)
        self.assertEqual((summary.used, summary.failed), (6, 0), summary)
        self.assertEqual({g: [r for _, r in of] for g, of in server.samples.items()}, {0: [1, 1], 1: [2, 2], 2: [3, 3]})
        self.assertEqual(server.closed, ["9"])
        _, spec = server.asked[0]
        self.assertEqual((spec["namespace"], spec["spec"]["redundant"], spec["spec"]["groups"]), ("research", 1, 3))
        opened = [body for path, body in server.asked if path.endswith("OpenTrajectory")]
        self.assertTrue(all("generation" not in body for body in opened), "without a gateway nothing generates")

    def test_an_episode_that_fails_is_begun_again(self):
        failures = iter([ValueError("once")])

        def loop(episode):
            for err in failures:
                raise err
            return 1.0

        with Cluster(1) as server, rota.Rollout(self.client(server), "coder", ["a"]) as rollout:
            summary = rollout.run(loop)
        self.assertEqual((summary.used, summary.failed, str(summary.error)), (1, 1, "once"))
        self.assertEqual(server.open, set(), "each episode is closed")

    def test_a_sample_that_was_refused_is_not_used(self):
        class Stale(Cluster):
            """Refuses the first sample: the policy has moved on."""

            def PutSample(self, body):
                if int(body["trajectoryId"]) == 1:
                    self.open.discard(1)
                    return 200, {}, {"accepted": False, "state": "ROLLOUT_MEMBER_STATE_STALE"}
                return super().PutSample(body)

        for loop in (lambda episode: 1.0, lambda episode: episode.sample(1.0) and None, lambda episode: float(episode.sample(1.0))):
            with Stale(1) as server, rota.Rollout(self.client(server), "coder", ["a"]) as rollout:
                summary = rollout.run(loop)
            self.assertEqual((summary.used, summary.unused, summary.ended, summary.failed), (1, 1, 0, 0))

    def test_a_loop_that_fails_after_its_sample_was_used_has_used_it(self):
        def loop(episode):
            episode.sample(1.0)
            raise ValueError("too late")

        with Cluster(1) as server, rota.Rollout(self.client(server), "coder", ["a"]) as rollout:
            summary = rollout.run(loop)
        self.assertEqual((summary.used, summary.ended, summary.failed, str(summary.error)), (1, 0, 0, "too late"))

    def test_an_episode_that_always_fails_is_given_up(self):
        def loop(episode):
            raise ValueError(episode.prompt)

        with Cluster(1) as server, rota.Rollout(self.client(server), "coder", ["a"]) as rollout:
            summary = rollout.run(loop, tries=3)
        self.assertEqual((summary.used, summary.failed), (0, 3))

    def test_a_redundant_episode_ends_without_an_error(self):
        complete = threading.Event()

        def loop(episode):
            if episode.id == 1:
                self.assertTrue(complete.wait(30))
                raise RuntimeError("its trajectory is gone")
            episode.sample(1.0)
            complete.set()

        with Cluster(1) as server, rota.Rollout(self.client(server), "coder", ["a"], redundant=1) as rollout:
            summary = rollout.run(loop, parallel=2)
        self.assertEqual((summary.used, summary.ended, summary.failed), (1, 1, 0), summary)

    def test_an_episode_that_is_always_closed_is_given_up(self):
        self.given_up("CLOSED")

    def test_an_episode_whose_node_is_always_lost_is_given_up(self):
        self.given_up("LOST")

    def given_up(self, state):
        with Cluster(1) as server:
            server.end = state

            def loop(episode):
                server.open.discard(episode.id)
                raise RuntimeError("its trajectory is gone")

            with rota.Rollout(self.client(server), "coder", ["a"], idle_timeout_s=90) as rollout:
                summary = rollout.run(loop, tries=2)
        self.assertEqual((summary.used, summary.ended, summary.failed), (0, 20, 0), summary)
        opened = [body for path, body in server.asked if path.endswith("OpenTrajectory")]
        self.assertTrue(all(body["idleTimeout"] == "90s" for body in opened))

    def test_coroutines_run_as_loops(self):
        async def run(server):
            async with rota.AsyncClient(server.address) as client:
                async with rota.AsyncRollout(client, "coder", ["a", "b"], samples_per_group=2) as rollout:

                    async def loop(episode):
                        await asyncio.sleep(0)
                        return float(episode.group)

                    return await rollout.run(loop, parallel=4)

        with Cluster(2) as server:
            summary = asyncio.run(run(server))
        self.assertEqual(summary.used, 4)
        self.assertEqual(sorted(r for of in server.samples.values() for _, r in of), [0.0, 0.0, 1.0, 1.0])

    def test_a_rollout_needs_prompts_and_a_gateway_a_url(self):
        with self.assertRaises(ValueError):
            rota.Rollout(rota.Client("127.0.0.1:1"), "coder", [])
        with self.assertRaises(ValueError):
            rota.Model("127.0.0.1:8000")


class Batches(unittest.TestCase):
    def batches(self, server, **about):
        client = rota.Client(server.address)
        self.addCleanup(client.close)
        return rota.batches(client, "coder", 2, **about)

    SAMPLE = {"trajectoryId": "5", "rolloutId": "9", "group": 1, "version": "3", "reward": 0.5, "tokens": "70", "reference": "s3://x"}

    def test_a_trainer_that_starts_again_gets_its_last_batch_again(self):
        policy = (200, {}, {"policy": {"name": "coder", "step": "4"}})
        with Server(policy, (200, {}, {"step": "4", "samples": [self.SAMPLE]}), (200, {}, {"step": "5"})) as server:
            one_by_one = self.batches(server)
            first, second = next(one_by_one), next(one_by_one)
        self.assertEqual((first.step, second.step), (4, 5))
        self.assertEqual(first.groups(), {(9, 1): [rota.Sample(5, 9, 1, 3, 0.5, 70, "s3://x")]})
        self.assertEqual([body["step"] for _, body in server.asked[1:]], ["4", "5"])

    def test_the_first_batch_is_of_step_one(self):
        with Server(refusal(404, "not_found", "POLICY_NOT_FOUND"), (200, {}, {"step": "1"})) as server:
            self.assertEqual(next(self.batches(server)).step, 1)

    def test_a_checkpoint_says_where_to_go_on(self):
        with Server((200, {}, {"step": "8"})) as server:
            self.assertEqual(next(self.batches(server, after=7)).step, 8)

    def test_waiting_has_an_end(self):
        with Server(refusal(400, "failed_precondition", "GROUPS_MISSING")) as server:
            with self.assertRaises(TimeoutError):
                next(self.batches(server, after=0, timeout_s=0.2))


class Models(unittest.TestCase):
    def test_a_turn_names_its_trajectory(self):
        answer = {"choices": [{"message": {"role": "assistant", "content": "hello"}}]}
        with Cluster(1) as cluster, Server((200, {}, answer)) as gateway:
            client = rota.Client(cluster.address)
            self.addCleanup(client.close)
            with rota.Rollout(client, "coder", ["a"], gateway="http://" + gateway.address, task_class="swe") as rollout:
                with rollout.episode(0, prompt_tokens=12) as episode:
                    said = episode.chat([{"role": "user", "content": "hi"}], max_tokens=4)
        self.assertEqual(said["content"], "hello")
        path, body = gateway.asked[0]
        self.assertEqual((path, body["model"], body["max_tokens"]), ("/v1/chat/completions", "coder", 4))
        opened = next(body for path, body in cluster.asked if path.endswith("OpenTrajectory"))
        self.assertEqual(opened["generation"], {"policy": "coder", "taskClass": "swe", "hardware": [], "promptTokens": 12})

    def test_what_nobody_answered_is_asked_again(self):
        later = (503, {"Retry-After": "0"}, {"error": {"message": "no worker is up"}})
        late = (504, {}, {"error": {"message": "no replica answered within 1s"}})
        with Server(LOST, later, late, (200, {}, {"choices": []})) as gateway:
            model = rota.Model("http://" + gateway.address)
            self.assertEqual(model.ask("/v1/completions", {"prompt": "x"}), {"choices": []})
            model.close()
        self.assertEqual(len(gateway.asked), 4)

    def test_time_for_repetitions_begins_with_the_first_failure(self):
        class Slow(Server):
            def answer(self, path, body):
                if not self.asked:
                    time.sleep(0.4)
                return super().answer(path, body)

        with Slow(LOST, (200, {}, {"choices": []})) as gateway:
            model = rota.Model("http://" + gateway.address, retry_s=0.3)
            self.assertEqual(model.ask("/v1/completions", {"prompt": "x"}), {"choices": []})
            model.close()

    def test_requests_are_made_once_if_there_is_no_time_for_more(self):
        with Server(LOST) as gateway:
            with self.assertRaises(http.client.HTTPException):
                rota.Model("http://" + gateway.address, retry_s=0).ask("/v1/completions", {"prompt": "x"})
        self.assertEqual(len(gateway.asked), 1)
        with self.assertRaises(ValueError):
            rota.Model("http://127.0.0.1:1", retry_s=-1)

    @unittest.skipUnless(hasattr(os, "fork"), "this system does not fork")
    def test_a_forked_process_has_connections_of_its_own(self):
        with Server((200, {}, {"choices": []})) as gateway:
            model = rota.Model("http://" + gateway.address)
            model.ask("/v1/completions", {"prompt": "x"})
            with model._lock:  # as if another thread had it, which is not there in the child
                child = os.fork()
                if child == 0:
                    ended = 1
                    with contextlib.suppress(BaseException):
                        held = len(model._idle)
                        model.ask("/v1/completions", {"prompt": "x"})
                        ended = held
                    os._exit(ended)
                self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            model.ask("/v1/completions", {"prompt": "x"})
            model.close()
        self.assertEqual(len(gateway.asked), 3)

    def test_what_is_wrong_is_not_asked_again(self):
        with Server((400, {}, {"error": {"message": "no prompt"}})) as gateway:
            model = rota.Model("http://" + gateway.address)
            with self.assertRaises(rota.ModelError):
                model.ask("/v1/completions", {})
            model.close()
        self.assertEqual(len(gateway.asked), 1)

    def test_a_refusal_says_why(self):
        with Server((503, {}, {"error": {"message": "no worker of coder is up"}})) as gateway:
            model = rota.Model("http://" + gateway.address, retry_s=0.3)
            with self.assertRaises(rota.ModelError) as caught:
                model.ask("/v1/completions", {"prompt": "x"})
            model.close()
        self.assertEqual((caught.exception.status, "no worker of coder is up" in str(caught.exception)), (503, True))


class Layouts(unittest.TestCase):
    LAYOUT = rota.Layout(dp=2, tp=2, pp=2)

    def test_each_rank_has_a_place(self):
        places = [self.LAYOUT.place(rank) for rank in range(self.LAYOUT.ranks)]
        self.assertEqual(len(set(places)), 8)
        self.assertEqual(places[:4], [(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0)])

    def test_the_ranks_of_one_replica_get_the_same_part_and_nothing_is_lost(self):
        batch = list(range(7))
        parts = {}
        for rank in range(self.LAYOUT.ranks):
            data, _, _ = self.LAYOUT.place(rank)
            part = self.LAYOUT.split(rank, batch)
            self.assertEqual(parts.setdefault(data, part), part)
        self.assertEqual(parts[0] + parts[1], batch)
        self.assertEqual(self.LAYOUT.split(5, "whole"), "whole")

    def test_results_are_gathered_from_the_ranks_that_have_them(self):
        results = [[rank] for rank in range(8)]
        self.assertEqual(self.LAYOUT.gather("list", results), results)
        self.assertEqual(self.LAYOUT.gather("dp", results), [[4], [6]])  # the last stage, the first of each tensor group
        self.assertEqual(self.LAYOUT.gather("concat", results), [4, 6])
        self.assertEqual(self.LAYOUT.gather("first", results), [4])

    def test_what_cannot_be_is_refused(self):
        with self.assertRaises(ValueError):
            rota.Layout(dp=0)
        with self.assertRaises(ValueError):
            rota.register(dispatch="some")
        with self.assertRaises(ValueError):
            rota.Cluster(rota.Client("127.0.0.1:1"), Adder, {"cpu": {"workers": 3}}, layout=rota.Layout(tp=2))


class Files:
    """The files of a trajectory, in memory. With answers, a call is answered as soon as it is written."""

    def __init__(self):
        self.all, self.answers = {}, False

    def write(self, path, content):
        if self.answers:
            self.all[path.replace(".call", ".result")] = b'{"result": 7}'
        else:
            self.all[path] = content

    def read(self, path):
        if path not in self.all:
            raise rota.Error("no such file", "not_found", "FILE_NOT_FOUND")
        return self.all[path]

    def remove(self, path):
        self.read(path)
        del self.all[path]


class Workers(unittest.TestCase):
    def test_a_call_that_took_too_long_leaves_no_files(self):
        files = Files()
        worker = cluster._Process(0, "cpu", types.SimpleNamespace(files=files), 1)
        with self.assertRaises(TimeoutError):
            worker.call("add", [1], {}, 0.01)
        self.assertEqual(files.all, {}, "the worker need not begin it any more")
        files.all[f"{process.CALLS}/00000001.result"] = b'{"result": 1}'  # it had begun
        files.answers = True
        self.assertEqual([worker.call("add", [n], {}, 10) for n in (1, 2)], [7, 7])
        self.assertEqual(files.all, {})

    def answer(self, *calls):
        """What a worker answers to calls that lie there when it starts."""
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory)
            for number, call in enumerate(calls):
                (path / f"{number}.call").write_text(json.dumps({"args": [], "kwargs": {}, **call}))
            about = {"class": "tests.workers:Adder", "args": {"start": 10}, "rank": 1, "world_size": 2, "hardware": "h800", "layout": {}}
            process.serve(about, path, iter([True, False]).__next__)
            self.assertEqual(sorted(f.name for f in path.iterdir()), [f"{n}.result" for n in range(len(calls))])
            return [json.loads((path / f"{n}.result").read_text()) for n in range(len(calls))]

    def test_calls_are_carried_out_in_order(self):
        first, second = self.answer({"method": "add", "args": [1]}, {"method": "add", "kwargs": {"number": 2}})
        self.assertEqual((first["result"], second["result"]), ([1, 11], [1, 13]))

    def test_what_fails_says_so_and_the_worker_goes_on(self):
        failed, hidden, after = self.answer({"method": "fail"}, {"method": "hidden"}, {"method": "add", "args": [1]})
        self.assertEqual(failed["error"], "ValueError: as it was told")
        self.assertIn("in fail", failed["trace"])
        self.assertIn("is not marked", hidden["error"])
        self.assertEqual(after["result"], [1, 11])

    def test_a_class_in_the_main_module_is_refused(self):
        here = type("Here", (rota.Worker,), {"__module__": "__main__"})
        with self.assertRaises(TypeError):
            rota.Cluster(rota.Client("127.0.0.1:1"), here, {"cpu": {}})
