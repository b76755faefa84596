"""Pauses of a sandbox of a cluster of real processes, whose addresses ROTA_SERVERS has."""

import asyncio
import os
import time
import unittest

import rota

SERVERS = os.environ.get("ROTA_SERVERS", "").split()
LOOP = "cd $ROTA_TRAJECTORY_DIR; i=0; while :; do i=$((i+1)); echo $i >ticks.new && mv ticks.new ticks; done"


@unittest.skipUnless(SERVERS, "ROTA_SERVERS names no cluster")
class Pause(unittest.TestCase):
    def test_what_runs_stands_still(self):
        with rota.Client(*SERVERS) as client, client.trajectory(memory="64MiB") as sandbox:
            self.assertFalse(sandbox.resume())
            sandbox.start(["sh", "-c", LOOP])
            self.until("the first tick", lambda: self.ticks(sandbox) > 0)
            try:
                self.assertTrue(sandbox.pause())
            except rota.Error as refused:
                self.assertEqual(refused.reason, "NODE_CANNOT_FREEZE")
                self.skipTest("the node cannot freeze what runs")
            before = self.ticks(sandbox)
            self.assertFalse(sandbox.pause())
            sandbox.files.write("note", "written while it is paused\n")
            waits = sandbox.submit(rota.spec(["sh", "-c", "cat $ROTA_TRAJECTORY_DIR/note"], cores=0))
            time.sleep(0.1)
            self.assertEqual(self.ticks(sandbox), before)
            self.assertTrue(sandbox.resume())
            self.until("the next tick", lambda: self.ticks(sandbox) > before)
            self.assertEqual(client.wait(waits[0]).stdout, "written while it is paused\n")

    def test_one_that_runs_nothing_waits(self):
        async def main():
            async with rota.AsyncClient(*SERVERS) as client, client.trajectory(memory="64MiB") as sandbox:
                self.assertTrue(await sandbox.pause())
                waits = asyncio.create_task(sandbox.run(["echo", "late"], check=True))
                done, _ = await asyncio.wait([waits], timeout=0.2)
                self.assertFalse(done)
                self.assertTrue(await sandbox.resume())
                return await waits

        self.assertEqual(asyncio.run(main()).stdout, "late\n")

    def ticks(self, sandbox):
        try:
            return int(sandbox.files.read("ticks") or 0)
        except rota.Error:
            return 0

    def until(self, what, holds):
        end = time.monotonic() + 120
        while not holds():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.02)
