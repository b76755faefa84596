"""Tokens, against a server that says what it was sent."""

import asyncio
import http.server
import json
import os
import tempfile
import threading
import unittest
from unittest import mock

import rota
from rota.errors import Error
from rota.token import Token


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers every call with the header that says who calls."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps({"caller": self.headers.get("Authorization", "")}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class TokenTest(unittest.TestCase):
    def setUp(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        thread = threading.Thread(target=self.server.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.address = f"127.0.0.1:{self.server.server_port}"

    def caller(self, **options):
        with rota.Client(self.address, **options) as client:
            return client.call("AccessService/GetAccess")["caller"]

    def test_it_is_from_the_environment_or_an_argument(self):
        with mock.patch.dict(os.environ, {"ROTA_TOKEN": "rota_env"}):
            self.assertEqual(self.caller(), "Bearer rota_env")
            self.assertEqual(self.caller(token="rota_argument"), "Bearer rota_argument")
        with mock.patch.dict(os.environ):
            os.environ.pop("ROTA_TOKEN", None)
            self.assertEqual(self.caller(), "")

    def test_the_client_for_asyncio_has_it_too(self):
        async def ask():
            async with rota.aio.AsyncClient(self.address, token="rota_async") as client:
                return (await client.call("AccessService/GetAccess"))["caller"]

        self.assertEqual(asyncio.run(ask()), "Bearer rota_async")

    def test_a_file_is_read_again_and_must_be_private(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "token")

            def write(text, mode):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                os.chmod(path, mode)

            write("rota_one\n", 0o600)
            token = Token(file=path)
            self.assertEqual(token.headers("h:1", True), {"Authorization": "Bearer rota_one"})
            write("rota_two\n", 0o600)
            self.assertEqual(token.headers("h:1", True), {"Authorization": "Bearer rota_two"})
            write("rota_two\n", 0o644)
            with self.assertRaises(Error):
                token.headers("h:1", True)

    def test_it_is_not_sent_in_clear_to_another_machine(self):
        with self.assertRaises(Error):
            Token("rota_secret").headers("10.0.0.1:7400", False)


if __name__ == "__main__":
    unittest.main()
