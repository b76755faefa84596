"""Runs every snippet of the documents below, and compares what it prints with what stands below it."""

import asyncio
import contextlib
import dataclasses
import io
import os
import pathlib
import re
import sys
import unittest
from unittest import mock

from rota.adapters import lazy, place, swerex, verl

from . import interfaces

SERVERS = os.environ.get("ROTA_SERVERS", "").split()
ROOT = pathlib.Path(__file__).parents[3]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(document):
    """Its blocks of code: language, text, and the text block that follows at once, or None."""
    text = (ROOT / document).read_text(encoding="utf-8")
    found = list(_BLOCK.finditer(text))
    for block, after in zip(found, [*found[1:], None]):
        printed = after is not None and after[1] == "text" and not text[block.end() : after.start()].strip()
        yield block[1], block[2], after[2] if printed else None


def fields(name, **defaults):
    """A class of requests, with the framework's defaults."""
    return dataclasses.make_dataclass(name, [(k, object, dataclasses.field(default=v)) for k, v in defaults.items()])


def swe_rex():
    """SWE-ReX as far as the cookbook imports it, as modules."""
    session = fields("CreateBashSessionRequest", **{**vars(interfaces.create_session()), "startup_source": ()})
    action = fields("BashAction", **{**vars(interfaces.bash("")), "expect": ()})
    return interfaces.installed(
        swerex__runtime__abstract={
            "AbstractRuntime": interfaces.AbstractRuntime, "CreateBashSessionRequest": session, "BashAction": action,
        },
        swerex__deployment__abstract={"AbstractDeployment": interfaces.AbstractDeployment},
    )


@unittest.skipUnless(SERVERS, "ROTA_SERVERS names no cluster")
class Documents(unittest.TestCase):
    def setUp(self):
        for patch in (mock.patch.dict(os.environ, ROTA_ADDR=",".join(SERVERS)), mock.patch.dict(sys.modules, swe_rex())):
            patch.start()
            self.addCleanup(patch.stop)
        self.addCleanup(place.connect("", None).close)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(ROOT)
        for forget in (lazy.installed.cache_clear, swerex._made.clear):
            forget()
            self.addCleanup(forget)

    def follow(self, document, at_least):
        names = {"__name__": "snippet"}
        count = 0
        for language, code, printed in blocks(document):
            if language != "python":
                continue
            count += 1
            out = io.StringIO()
            with self.subTest(document, code=code), contextlib.redirect_stdout(out):
                exec(compile(code, f"{document}, snippet {count}", "exec"), names)
                if printed is not None:
                    self.assertEqual(out.getvalue(), printed)
                if "client" in names:
                    names["client"].close()
        self.assertGreaterEqual(count, at_least)

    def test_guide(self):
        self.follow("docs/python.md", 14)

    def test_cookbook(self):
        self.follow("docs/cookbook.md", 6)

    def test_readme(self):
        self.follow("README.md", 1)

    def test_the_tool_of_verl(self):
        [file] = [code for language, code, _ in blocks("docs/cookbook.md") if language == "yaml"]
        head, _, config = file.partition("config:\n")
        self.assertIn("class_name: rota.adapters.verl.RotaTool", head)
        options = dict(line.strip().split(": ", 1) for line in config.splitlines())
        tool = verl.RotaTool({**options, "timeout_s": float(options["timeout_s"])}, None)

        async def call():
            instance, _ = await tool.create()
            answers = [await tool.execute(instance, {"command": c}) for c in ("ls -d repo", "echo 42 > repo/answer")]
            await tool.release(instance)
            return [(answer.text, reward) for answer, reward, _ in answers]

        self.assertEqual(asyncio.run(call()), [("repo\n", 0.0), ("", 1.0)])
