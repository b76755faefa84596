"""The files of trajectories, against servers that answer what a test wants."""

import base64
import unittest

import rota

from .test_client import LOST, Server


class Home(Server):
    """Keeps files as a node does. A write whose answer is lost arrives once more, when another call comes."""

    def __init__(self):
        super().__init__(None)
        self.files, self.late = {}, []

    def answer(self, path, body):
        self.asked.append((path, body))
        method = path.rpartition("/")[2]
        if method == "WriteFile":
            self.write(body)
            if len(self.asked) == 1:
                self.late.append(body)
                return LOST
        if method == "MoveFile":
            for late in self.late:
                self.write(late)
            self.files[body["newPath"]] = self.files.pop(body["path"])
        return 200, {}, {}

    def write(self, body):
        data, at = base64.b64decode(body["data"]), int(body["offset"])
        before = self.files.get(body["path"], b"")
        after = b"" if body.get("truncate") else before[at + len(data) :]
        self.files[body["path"]] = before[:at] + data + after


class Files(unittest.TestCase):
    def write(self, name, content):
        with Home() as server:
            client = rota.Client(server.address)
            rota.Trajectory(client, 5).files.write(name, content)
            client.close()
        return server

    def test_a_try_that_arrives_late_takes_nothing_away(self):
        content = bytes(range(256)) * (3 << 12)  # three calls
        self.assertEqual(self.write("a/b", content).files, {"a/b": content})
        self.assertEqual(self.write("empty", b"").files, {"empty": b""})

    def test_the_longest_names_are_possible(self):
        for name in ("x" * 255, "\N{GREEK SMALL LETTER ALPHA}" * 127):
            server = self.write(name, "x")
            self.assertEqual(server.files, {name: b"x"})
            temporary = server.asked[0][1]["path"]
            self.assertLessEqual(len(temporary.encode()), 255)


if __name__ == "__main__":
    unittest.main()
