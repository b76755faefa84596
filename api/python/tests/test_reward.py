"""Calls of reward functions, and replicas, over sockets."""

import asyncio
import http.client
import json
import threading
import unittest

import rota
from rota import cluster, process, reward


def length(prompt="", response="", label=None):
    if label == "broken":
        raise RuntimeError("no")
    return len(response)


async def later(**fields):
    return {"score": float(fields["solution_str"] == fields["ground_truth"]), "data_source": fields["data_source"]}


class Server:
    """A replica of a function, at the path of a gateway."""

    def __init__(self, function):
        self.replica = reward.Replica(function, 0)
        self.address = "127.0.0.1:%d" % self.replica.server_address[1]
        self.url = "http://" + self.address

    def __enter__(self):
        threading.Thread(target=self.replica.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.replica.shutdown()
        self.replica.server_close()

    def post(self, path, body):
        connection = http.client.HTTPConnection(self.address, timeout=10)
        try:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()


class TestReplica(unittest.TestCase):
    def test_slime(self):
        with Server(length) as server:
            self.assertEqual(server.post("/", {"prompt": "1+1=", "response": "two", "label": "2"}), (200, 3))
            self.assertEqual(server.post("/", {"label": "broken"})[0], 500)
            self.assertEqual(server.post("/", {"unknown": 1})[0], 400)
            self.assertEqual(server.post("/classify", {"model": "rm"})[0], 400)

    def test_what_is_wrong_in_a_function_is_not_the_callers_fault(self):
        for wrong in (lambda self: self + 1, lambda self: {}[self], lambda self: {1, 2}):
            with Server(wrong) as server:
                status, answer = server.post("/", {"self": "x"})
                self.assertEqual(status, 500, answer)

    def test_verl(self):
        with Server(later) as server:
            call = {"data_source": "gsm8k", "solution_str": "4", "ground_truth": "4", "extra_info": {"num_turns": None}}
            self.assertEqual(server.post("/", call), (200, {"score": 1.0, "data_source": "gsm8k"}))
        with Server(len) as server:
            call = {"model": "rm", "input": "<|user|>", "activation": False}
            status, answer = server.post("/classify", call)
            self.assertEqual((status, answer["data"][-1]["probs"][-1]), (200, 8.0))
            status, answer = server.post("/v1/embeddings", {"model": "rm", "input": "abc"})
            self.assertEqual((status, answer["data"][-1]["embedding"][-1]), (200, 3.0))

    def test_function(self):
        self.assertIs(reward._load("json:dumps"), json.dumps)
        with self.assertRaises(ValueError):
            reward._load("json")


class TestReward(unittest.TestCase):
    def test_calls(self):
        with Server(length) as server:
            judge = rota.Reward("judge", server.url, retry_s=0)
            self.assertEqual(judge(response="four"), 4)
            self.assertEqual(judge({"response": "four"}), 4)
            with self.assertRaises(rota.ModelError) as caught:
                judge(label="broken")
            self.assertEqual(caught.exception.status, 500)
            with self.assertRaises(TypeError):
                judge("a", response="b")
            self.assertEqual(asyncio.run(rota.AsyncReward("judge", server.url)(response="four")), 4)

    def test_serverless(self):
        class Trainer:
            @process.register_serverless(attr="score", reward="judge", gateway="")
            def rewards(self, answers):
                return [self.score(response=answer) for answer in answers]

        with Server(length) as server:
            mark = dict(process.how(Trainer.rewards), gateway=server.url)
            fake = cluster.Cluster.__new__(cluster.Cluster)
            fake.client, fake.worker_cls = None, Trainer
            self.assertEqual(fake._serverless("rewards", mark, ["a", "bc"]), [1, 2])


if __name__ == "__main__":
    unittest.main()
