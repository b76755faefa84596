"""What a sandbox uses of a cluster of real processes, whose addresses ROTA_SERVERS has."""

import asyncio
import os
import time
import unittest

import rota

SERVERS = os.environ.get("ROTA_SERVERS", "").split()


@unittest.skipUnless(SERVERS, "ROTA_SERVERS names no cluster")
class Usage(unittest.TestCase):
    def test_what_runs_is_measured(self):
        with rota.Client(*SERVERS) as client, client.trajectory(memory="64MiB") as sandbox:
            self.assertNotIn("actions", sandbox.usage())
            busy = sandbox.start(["sh", "-c", "while :; do :; done"])
            end = time.monotonic() + 120
            while not (used := sandbox.usage(0.1).get("actions")) or used[0].get("cores", 0) == 0:
                self.assertLess(time.monotonic(), end)
            self.assertEqual([one["actionId"] for one in used], [str(busy.id)])
            self.assertGreater(int(used[0]["memoryBytes"]), 0)
            with self.assertRaises(rota.Error) as refused:
                sandbox.usage(60)
            self.assertEqual(refused.exception.reason, "INVALID")

    def test_for_await(self):
        async def main():
            async with rota.AsyncClient(*SERVERS) as client, client.trajectory(memory="64MiB") as sandbox:
                return await sandbox.usage()

        self.assertGreater(int(asyncio.run(main())["diskBytes"]), 0)
