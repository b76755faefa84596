"""Rollouts and samples against servers that answer what a test wants."""

import asyncio
import unittest

import rota
from tests.test_client import NO_LEADER, Server, refusal

SAMPLE = {"trajectoryId": "7", "rolloutId": "3", "group": 1, "version": "4", "reward": -0.5, "tokens": "12", "reference": "s3://7"}
MISSING = refusal(400, "failed_precondition", "GROUPS_MISSING")


def answered(*answers):
    return Server(*((200, {}, a) for a in answers))


class RolloutTest(unittest.TestCase):
    def test_a_rollout_is_created_filled_and_closed(self):
        put = {"accepted": True, "state": "ROLLOUT_MEMBER_STATE_SAMPLED"}
        late = {"state": "ROLLOUT_MEMBER_STATE_STALE"}
        with answered({"rollout": {"id": "3"}}, {"trajectory": {"id": "7"}}, put, late, {"rollout": {"id": "3"}}) as server:
            with rota.Client(server.address, namespace="team") as client:
                self.assertEqual(client.create_rollout("model", 64, 8, redundant=2, staleness=1), {"id": "3"})
                self.assertEqual(client.open_member(3, 0, memory="1MiB", idle_timeout_s=0.00001), 7)
                self.assertEqual(client.put_sample(7, reward=0.5, tokens=12, reference="s3://7"), (True, "sampled"))
                self.assertEqual(client.put_sample(7, keep_open=True), (False, "stale"))
                client.close_rollout(3)
        bodies = [body for _, body in server.asked]
        self.assertNotEqual(bodies[0].pop("requestId"), bodies[1].pop("requestId"))
        spec = {"name": "", "policy": "model", "groups": 64, "samplesPerGroup": 8, "redundant": 2, "staleness": 1}
        self.assertEqual(bodies[0], {"namespace": "team", "spec": spec})
        self.assertEqual((bodies[1]["rollout"], bodies[1]["idleTimeout"]), ({"rolloutId": "3", "group": 0}, "0.00001s"))
        self.assertEqual(bodies[2], {"trajectoryId": "7", "reward": 0.5, "tokens": "12", "reference": "s3://7", "keepOpen": False})
        self.assertEqual(bodies[4], {"id": "3"})

    def test_a_batch_is_waited_for(self):
        with Server(MISSING, NO_LEADER, (200, {}, {"step": "1", "samples": [SAMPLE]})) as server, rota.Client(server.address) as client:
            batch = client.get_batch("model", 1, 2)
        self.assertEqual(batch, [rota.Sample(7, 3, 1, 4, -0.5, 12, "s3://7")])
        self.assertEqual([body["wait"] for _, body in server.asked], ["10.000s"] * 3)

    def test_a_wait_ends(self):
        with Server(MISSING) as server, rota.Client(server.address) as client:
            with self.assertRaises(rota.Error) as failed:
                client.get_batch("model", 1, 2, wait_s=0)
        self.assertEqual((failed.exception.reason, len(server.asked)), ("GROUPS_MISSING", 1))

    def test_versions_and_policies(self):
        pages = ({"policies": [{"name": "a"}], "nextPageToken": "YQ"}, {"policies": [{"name": "b"}]})
        with answered({"policy": {}, "closedTrajectories": 3}, {}, {}, *pages) as server, rota.Client(server.address) as client:
            self.assertEqual(client.publish_version("a", 5), 3)
            client.suspend_policy("a")
            client.resume_policy("a")
            self.assertEqual(client.policies(), [{"name": "a"}, {"name": "b"}])
        self.assertEqual(server.asked[0], ("/rota.v1.RolloutService/PublishVersion", {"policy": "a", "version": "5", "namespace": ""}))
        self.assertEqual(server.asked[4][1], {"pageSize": 1000, "pageToken": "YQ"})

    def test_a_sample_whose_answer_was_lost_is_put_again(self):
        with Server((0, {}, None), (200, {}, {"accepted": True, "state": "ROLLOUT_MEMBER_STATE_SAMPLED"})) as server:
            with rota.Client(server.address) as client:
                self.assertEqual(client.put_sample(7), (True, "sampled"))
        self.assertEqual(len(server.asked), 2)

    def test_with_asyncio(self):
        async def train(address):
            async with rota.AsyncClient(address) as client:
                return await client.get_batch("model", 2, 1, wait_s=5), await client.publish_version("model", 9)

        with answered({"samples": [SAMPLE]}, {}) as server:
            batch, closed = asyncio.run(train(server.address))
        self.assertEqual((batch[0].trajectory, closed), (7, 0))


if __name__ == "__main__":
    unittest.main()
