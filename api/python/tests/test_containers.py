"""Adapters whose sandboxes are containers, of the image that ROTA_TEST_IMAGE names."""

import os
import pathlib
import tempfile
import unittest

import rota
from rota.adapters import place, slime

SERVERS = os.environ.get("ROTA_SERVERS", "").split()
IMAGE = os.environ.get("ROTA_TEST_IMAGE", "")


@unittest.skipUnless(SERVERS and IMAGE, "ROTA_SERVERS and ROTA_TEST_IMAGE name no cluster with an image")
class Containers(unittest.IsolatedAsyncioTestCase):
    async def test_commands_and_files(self):
        self.addCleanup(place.connect(",".join(SERVERS), None).close)
        async with slime.RotaSandbox(IMAGE, addr=",".join(SERVERS), memory="64MiB", timeout=600) as sandbox:
            code, out, _ = await sandbox.exec("echo $$ > /tmp/note; pwd; ls / | grep -x workspace")
            self.assertEqual((code, out), (0, "/work\nworkspace\n"))
            await sandbox.write_file("below", "relative\n")
            await sandbox.write_file("/tmp/deep/er", "absolute\n")
            self.assertEqual((await sandbox.exec("cat /workspace/below /tmp/deep/er"))[1], "relative\nabsolute\n")
            self.assertEqual(await sandbox.read_file("/tmp/deep/er"), "absolute\n")
            self.assertEqual(await sandbox.read_file("/workspace/below"), await sandbox.read_file("below"))
            with tempfile.TemporaryDirectory() as folder:
                (pathlib.Path(folder) / "a").write_text("in a tree\n")
                sandbox._place.upload(folder, "/tmp/tree")
            self.assertEqual(await sandbox.read_file("/tmp/tree/a"), "in a tree\n")
            self.assertFalse(pathlib.Path("/tmp/tree/a").exists())

    def test_a_trajectory(self):
        with rota.Client(*SERVERS) as client, client.trajectory(memory="64MiB", image=IMAGE, dir="/workspace") as sandbox:
            sandbox.files.write("n", "7\n")
            self.assertEqual(sandbox.run(["sh", "-c", "pwd; cat n"], check=True).stdout, "/workspace\n7\n")
