"""Labels, lists and summaries, against a server that answers what a test wants."""

import asyncio
import unittest

import rota
from tests.test_client import Server

ACTION = {"id": "7", "state": "ACTION_STATE_SUCCEEDED"}


class Find(unittest.TestCase):
    def client(self, server):
        client = rota.Client(server.address)
        self.addCleanup(client.close)
        return client

    def test_labels_are_sent(self):
        self.assertEqual(rota.spec(["true"], labels={"run": "42"})["labels"], {"run": "42"})
        with Server((200, {}, {"trajectory": {"id": "3"}})) as server:
            self.client(server).trajectory(labels={"run": "42"})
            self.assertEqual(server.asked[0][1]["labels"], {"run": "42"})

    def test_lists_read_all_pages_up_to_a_limit(self):
        with Server((200, {}, {"actions": [ACTION], "nextPageToken": "t"}), (200, {}, {"actions": [ACTION]})) as server:
            found = self.client(server).list(labels={"run": "1"}, since_s=60, states=["failed"], class_="x")
            self.assertEqual([a.id for a in found], [7, 7])
            first, second = (body for _, body in server.asked)
            self.assertEqual((first["labels"], first["states"], first["class"], first["newestFirst"]), ({"run": "1"}, ["ACTION_STATE_FAILED"], "x", True))
            self.assertTrue(first["submittedSince"].endswith("Z"))
            self.assertEqual((second["pageToken"], second["submittedSince"]), ("t", first["submittedSince"]))
        with Server((200, {}, {"trajectories": [{"id": "1"}], "nextPageToken": "t"})) as server:
            client = rota.AsyncClient(server.address)
            self.addCleanup(client.close)
            found = asyncio.run(client.trajectories(limit=2, name_prefix="a"))
            self.assertEqual((len(found), len(server.asked), server.asked[1][1]["pageSize"]), (2, 2, 1))

    def test_summaries_are_read(self):
        with Server((200, {}, {"summaries": [{"value": "a", "actions": "2"}]})) as server:
            self.assertEqual(self.client(server).summaries(by="run")[0]["actions"], "2")
            self.assertEqual(server.asked[0][1]["groupBy"], "run")

    def test_an_unknown_argument_names_the_nearest(self):
        with self.assertRaises(TypeError) as caught:
            rota.spec(["true"], lable={"run": "1"})
        self.assertIn("did you mean 'labels'?", str(caught.exception))
        with self.assertRaises(TypeError) as caught:
            rota.Client("127.0.0.1:1").run(["true"], timeout=3)
        self.assertIn("did you mean 'timeout_s'?", str(caught.exception))
        client = rota.Client("127.0.0.1:1")
        for call, near in (
            (lambda: client.list(label={}), "labels"), (lambda: client.trajectory(labls={}), "labels"), (lambda: client.submit_job("j", 1, cycles=None), "cycle"),
            (lambda: client.turn("j/d", operations="sync"), "operation"), (lambda: client.register_engine("m", ["x"], "http", probes="/"), "probe"),
            (lambda: client.logs(7, sinces=3), "since"), (lambda: rota.Process(client, 7).output(folow=True), "follow"),
            (lambda: client.migrations(nodes="n"), "node"), (lambda: rota.AsyncClient("127.0.0.1:1").wait(7, timeouts=3), "timeout_s"),
            (lambda: rota.Client(retries_s=3), "retry_s"), (lambda: client.trajectory(image="x", networks="host"), "network"),
        ):
            with self.assertRaises(TypeError) as caught:
                call()
            self.assertIn(f"did you mean {near!r}?", str(caught.exception))
        self.assertEqual(rota.spec(["true"], lossPolicy="LOSS_POLICY_RETRY", maxAttempts=3)["maxAttempts"], 3)
