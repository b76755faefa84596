"""Workers against servers that answer what a test wants."""

import asyncio
import unittest

import rota
from tests.test_rollout import answered


class WorkerTest(unittest.TestCase):
    def test_a_worker_is_registered_updated_and_removed(self):
        worker = {"worker": {"spec": {"name": "a"}}}
        with answered(worker, worker, worker, {}) as server, rota.Client(server.address) as client:
            registered = client.register_worker("a", "p", "http://h:1", {32: 0.02, 1: 0.01}, dialect="vllm", hardware="h800", slots=8)
            self.assertEqual(registered, worker["worker"])
            client.update_worker("a", version=3)
            client.update_worker("a", draining=False, up=True)
            client.remove_worker("a")
        bodies = [body for _, body in server.asked]
        self.assertEqual(server.asked[0][0], "/rota.v1.WorkerService/RegisterWorker")
        spec = bodies[0]["spec"]
        self.assertEqual([p["batchSize"] for p in spec["profile"]["points"]], [1, 32])
        self.assertEqual((spec["dialect"], spec["slots"], spec["version"]), ("WORKER_DIALECT_VLLM", 8, "0"))
        self.assertEqual(bodies[1], {"name": "a", "up": False, "version": "3"})
        self.assertEqual(bodies[2], {"name": "a", "up": True, "draining": False})
        self.assertEqual(bodies[3], {"name": "a"})

    def test_a_trajectory_generates(self):
        with answered({"trajectory": {"id": "7"}}, {}, {}) as server, rota.Client(server.address, namespace="team") as client:
            self.assertEqual(client.open_generation("p", task_class="c", prompt_tokens=9, hardware=["a", "b"], idle_timeout_s=90, rollout=3, group=1), 7)
            client.suspend_trajectory(7)
            client.resume_trajectory(7)
        opened = server.asked[0][1]
        self.assertEqual(opened["generation"], {"policy": "p", "taskClass": "c", "promptTokens": 9, "hardware": ["a", "b"]})
        self.assertEqual((opened["namespace"], opened["rollout"]), ("team", {"rolloutId": "3", "group": 1}))
        self.assertEqual(opened["idleTimeout"], "90s")
        self.assertEqual([path for path, _ in server.asked[1:]], [f"/rota.v1.WorkerService/{verb}Generation" for verb in ("Suspend", "Resume")])

    def test_affinities_are_set_listed_and_removed(self):
        said = {"affinities": [{"affinity": {"policy": "p"}, "set": True}]}
        with answered({}, {}, said, {}, {}) as server, rota.Client(server.address) as client:
            client.set_affinity("p", "games", ["h800", "h20"], spill_percent=50)
            client.set_affinity("p", cost_percent=100)
            self.assertEqual(client.affinities("p"), said["affinities"])
            client.remove_affinity("p", "games")
            self.assertEqual(client.affinities(), [])
        bodies = [body for _, body in server.asked]
        self.assertEqual([path.rsplit("/", 1)[1] for path, _ in server.asked], ["SetAffinity", "SetAffinity", "ListAffinities", "RemoveAffinity", "ListAffinities"])
        games = {"policy": "p", "taskClass": "games", "hardware": ["h800", "h20"], "costPercent": 0, "spillPercent": 50}
        self.assertEqual(bodies[0], {"affinity": games})
        self.assertEqual(bodies[1]["affinity"], {"policy": "p", "taskClass": "", "hardware": [], "costPercent": 100, "spillPercent": 0})
        self.assertEqual(bodies[2:], [{"policy": "p"}, {"policy": "p", "taskClass": "games"}, {"policy": ""}])

    def test_workers_are_listed_in_pages(self):
        pages = ({"workers": [{"spec": {"name": "a"}}], "nextPageToken": "YQ"}, {"workers": [{"spec": {"name": "b"}}]})
        with answered(*pages) as server:
            async def listed():
                async with rota.AsyncClient(server.address) as client:
                    return await client.workers("p")
            self.assertEqual([w["spec"]["name"] for w in asyncio.run(listed())], ["a", "b"])
        self.assertEqual(server.asked[1][1], {"policy": "p", "pageSize": 1000, "pageToken": "YQ"})


if __name__ == "__main__":
    unittest.main()
