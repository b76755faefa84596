"""The files of trajectories, against servers that answer what a test wants."""

import base64
import unittest

import rota

from .test_client import LOST, Server, refusal


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

    def trajectory(self, server):
        client = rota.Client(server.address)
        self.addCleanup(client.close)
        return rota.Trajectory(client, 5)

    def test_a_file_that_changes_while_it_is_read_is_not_mixed(self):
        def piece(data, size):
            return 200, {}, {"data": base64.b64encode(data).decode(), "sizeBytes": str(size)}

        with Server(piece(b"ab", 4), piece(b"cd", 4)) as server:
            self.assertEqual(self.trajectory(server).files.read("f"), b"abcd")
        with Server(piece(b"ab", 4), piece(b"cde", 5)) as server:  # more is written at its end
            self.assertEqual(self.trajectory(server).files.read("f"), b"abcd")
        for second in (piece(b"c", 3), piece(b"", 2), piece(b"", 4)):
            with Server(piece(b"ab", 4), second) as server:
                with self.assertRaises(rota.Error) as caught:
                    self.trajectory(server).files.read("f")
            self.assertEqual(caught.exception.code, "aborted")

    def test_a_file_gets_its_name_although_an_answer_is_lost(self):
        gone, done = refusal(404, "not_found", "FILE_NOT_FOUND"), (200, {}, {})
        stat = (200, {}, {"file": {"sizeBytes": "1"}})
        for answers in ([LOST, done], [LOST, gone, stat]):
            with Server(done, *answers) as server:
                self.trajectory(server).files.write("f", "x")
            self.assertEqual([path.rpartition("/")[2] for path, _ in server.asked][:3], ["WriteFile", "MoveFile", "MoveFile"])
            self.assertEqual(len(server.asked), 1 + len(answers))


if __name__ == "__main__":
    unittest.main()
