"""The client and a cluster of real processes, whose addresses ROTA_SERVERS has."""

import asyncio
import os
import unittest

import rota

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

    def test_a_trajectory_keeps_its_node(self):
        with self.client.trajectory(memory="32MiB", name="python") as trajectory:
            nodes = {trajectory.run(["true"], check=True).node for _ in range(3)}
            self.assertEqual(len(nodes), 1)
        with self.assertRaises(rota.Error) as caught:
            trajectory.run(["true"])
        self.assertTrue(caught.exception.reason.startswith("TRAJECTORY_"), caught.exception.reason)

    def test_refusals_have_a_reason(self):
        with self.assertRaises(rota.Error) as caught:
            self.client.get(1 << 40)
        self.assertEqual(caught.exception.reason, "ACTION_NOT_FOUND")

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
