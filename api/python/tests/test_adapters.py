"""Sandboxes of rota behind the interfaces of frameworks: their signatures, and real commands."""

import asyncio
import copy
import gc
import importlib
import inspect
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
from unittest import mock

import rota
from rota.adapters import lazy, place, rllm, skyrl, slime, swerex, verl

from . import interfaces
from .interfaces import bash, command, create_session, installed, interrupt

SERVERS = os.environ.get("ROTA_SERVERS", "").split()
ADDR = ",".join(SERVERS)

PAIRS = [
    (interfaces.AbstractRuntime, swerex, "RotaRuntime"),
    (interfaces.AbstractDeployment, swerex, "RotaDeployment"),
    (interfaces.BaseTool, verl, "RotaTool"),
    (interfaces.BaseTextEnv, skyrl, "RotaEnv"),
    (interfaces.RllmSandbox, rllm, "RotaSandbox"),
    (interfaces.SlimeSandbox, slime, "RotaSandbox"),
]


def shape(method):
    """Of a method: whether it is a coroutine, and its arguments by name, kind and default."""
    if isinstance(method, property):
        return "property"
    arguments = [(p.name, p.kind, p.default) for p in inspect.signature(method).parameters.values()]
    return inspect.iscoroutinefunction(method), arguments


class Signatures(unittest.TestCase):
    def test_each_adapter_has_the_methods_of_its_interface(self):
        for interface, module, name in PAIRS:
            adapter = getattr(module, name)
            for method, declared in vars(interface).items():
                if callable(declared) or isinstance(declared, property):
                    with self.subTest(interface.__doc__, method=method):
                        self.assertEqual(shape(getattr(adapter, method)), shape(declared))

    def test_nothing_is_imported_with_the_package(self):
        frameworks = ("swerex", "verl", "skyrl_gym", "rllm", "slime", "pydantic")
        script = "import sys, rota, rota.adapters.swerex, rota.adapters.verl, rota.adapters.skyrl, rota.adapters.rllm, rota.adapters.slime\n"
        script += f"assert not set(sys.modules) & set({frameworks})"
        subprocess.run([sys.executable, "-c", script], check=True)

    def test_a_sandbox_that_nobody_waits_for_is_closed(self):
        asked, answer, closed = threading.Event(), threading.Event(), threading.Event()

        class Trajectory:
            close = closed.set

        def opened(**_):
            asked.set()
            answer.wait(60)
            return Trajectory

        async def main():
            sandbox = slime.RotaSandbox("python:3.12", addr="127.0.0.1:1")
            with mock.patch.object(sandbox._place, "client", types.SimpleNamespace(trajectory=opened)):
                opening = asyncio.ensure_future(sandbox.__aenter__())
                await asyncio.to_thread(asked.wait, 60)
                opening.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await opening
                answer.set()
                self.assertTrue(await asyncio.to_thread(closed.wait, 60))

        asyncio.run(main())

    def test_a_runtime_is_closed_although_a_session_cannot_be_ended(self):
        async def main():
            runtime = swerex.RotaRuntime(addr="127.0.0.1:1")

            async def fails():
                raise rota.Error("no server answers")

            runtime._sessions["a"] = types.SimpleNamespace(close=fails)
            with self.assertRaises(rota.Error):
                await runtime.close()
            self.assertTrue(runtime.place._closed)

        asyncio.run(main())

    def test_an_interrupt_waits_for_no_write(self):
        written, free = [], threading.Event()

        class Client:
            names = iter("abc")

            def request_id(self):
                return next(self.names)

            retry_s = 30.0

            def call(self, method, request):
                written.append(request["writer"])
                if request["writer"] == "a":
                    free.wait(60)
                return {"attempt": 1, "offset": "1"}

            def stream(self, *_):
                raise rota.Error("it is lost", "not_found")

        async def main():
            talk = swerex._Talk(rota.Process(Client(), 7))
            blocked = asyncio.ensure_future(talk.say("x"))
            while not written:
                await asyncio.sleep(0.01)
            await talk.interrupt()
            self.assertFalse(blocked.done())
            free.set()
            await blocked
            await talk.end()  # what its reader ran into is of no interest
            self.assertEqual(written, ["a", "b"])

        asyncio.run(main())

    def test_only_a_file_that_is_not_there_is_missing(self):
        def cat(code, stderr, reason="EXITED"):
            action = rota.Action({"id": "1", "state": "ACTION_STATE_FAILED", "result": {"reason": "END_REASON_" + reason, "exitCode": code}})
            action.stderr_bytes = stderr
            return action

        sandbox = slime.RotaSandbox(addr="127.0.0.1:1")
        gone, denied = cat(1, b"cat: /x: No such file or directory\n"), cat(1, b"cat: /x: Permission denied\n")
        with mock.patch.object(sandbox._place, "run", return_value=gone):
            self.assertEqual(asyncio.run(sandbox.read_file("/x")), "")
        for other in (denied, cat(None, b"", "NODE_LOST")):
            with mock.patch.object(sandbox._place, "run", return_value=other), self.assertRaises(rota.ActionFailed):
                asyncio.run(sandbox.read_file("/x"))
        with mock.patch.object(sandbox._place, "run", side_effect=rota.Error("nobody answers")), self.assertRaises(rota.Error):
            asyncio.run(sandbox.read_file("/x"))

    def test_what_is_not_there_is_no_attribute(self):
        for module in (swerex, verl, skyrl):
            with self.assertRaises(AttributeError):
                module.RotaGone

    def test_it_is_a_subclass_where_the_framework_is_installed(self):
        class Answer(types.SimpleNamespace):
            """Stands for a class of the framework."""

        modules = installed(
            swerex__runtime__abstract={"AbstractRuntime": interfaces.AbstractRuntime, "ReadFileResponse": Answer},
            swerex__deployment__abstract={"AbstractDeployment": interfaces.AbstractDeployment},
            verl__tools__base_tool={"BaseTool": interfaces.BaseTool},
            skyrl_gym__envs__base_text_env={"BaseTextEnv": interfaces.BaseTextEnv},
        )
        made = [swerex._made, verl._made, skyrl._made]
        with mock.patch.dict(sys.modules, modules):
            lazy.installed.cache_clear()
            for one in made:
                one.clear()
            try:
                for interface, module, name in PAIRS[:4]:
                    self.assertTrue(issubclass(getattr(module, name), interface), name)
                    self.assertIs(getattr(module, name), getattr(module, name))
                self.assertFalse(inspect.isabstract(swerex.RotaRuntime))
                self.assertIs(swerex._answers.ReadFileResponse, Answer)
                self.assertEqual(skyrl.RotaEnv({"max_turns": 3}).max_turns, 3)
            finally:
                lazy.installed.cache_clear()
                for one in made:
                    one.clear()

    def test_an_import_that_fails_inside_of_a_framework_is_told(self):
        err = ModuleNotFoundError("No module named 'torch'", name="torch")
        with mock.patch.object(importlib, "import_module", side_effect=err), self.assertRaises(ModuleNotFoundError):
            lazy.installed.__wrapped__("verl.tools")

    def test_options(self):
        self.assertEqual([place.cores(c) for c in (None, 2, "2", "1-8", [1, 2])], [None, 2, 2, range(1, 9), [1, 2]])
        with self.assertRaises(ValueError):
            place.cores("many")
        with self.assertRaises(TypeError) as caught:
            place.Place({"imgae": "x"})
        self.assertIn("did you mean 'image'?", str(caught.exception))

    def test_a_tool_of_verl_without_verl(self):
        tool = copy.deepcopy(verl.RotaTool({"type": "native"}, None))  # verl copies tools so
        self.assertEqual((tool.name, tool.get_openai_tool_schema()["type"]), ("bash", "function"))
        with self.assertRaises(TypeError):
            asyncio.run(self.use(tool))

    async def use(self, tool):
        instance, _ = await tool.create(create_kwargs={"imgae": "x"})
        await tool.execute(instance, {"command": "true"})

    def test_rewards(self):
        for wrote, state, want in (("ok\n0.25\n", "SUCCEEDED", 0.25), ("ok\n", "SUCCEEDED", 1.0), ("", "FAILED", 0.0)):
            action = rota.Action({"id": "1", "state": "ACTION_STATE_" + state})
            action.stdout_bytes = wrote.encode()
            self.assertEqual(verl.reward_of(action), want)


def tearDownModule():
    place.connect(ADDR, None).close()


def state(trajectory):
    with rota.Client(*SERVERS) as client:
        return client.call("TrajectoryService/GetTrajectory", {"id": str(trajectory)})["trajectory"]["state"]


@unittest.skipUnless(SERVERS, "ROTA_SERVERS names no cluster")
class SweRex(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.deployment = swerex.RotaDeployment(addr=ADDR, memory="64MiB", name="swerex")
        with self.assertRaises(swerex.DeploymentNotStartedError):
            self.deployment.runtime
        await self.deployment.start()
        self.addAsyncCleanup(self.deployment.stop)
        self.runtime = self.deployment.runtime

    async def say(self, text, **about):
        return await self.runtime.run_in_session(bash(text, **about))

    async def test_a_session_keeps_its_state(self):
        self.assertTrue(await self.deployment.is_alive())
        await self.runtime.write_file(types.SimpleNamespace(path="rc.sh", content="greeting=hello; echo sourced\n"))
        opened = await self.runtime.create_session(create_session(startup_source=["rc.sh"]))
        self.assertEqual(opened.output, "sourced\n")
        with self.assertRaises(swerex.SessionExistsError):
            await self.runtime.create_session(create_session())
        await self.say("mkdir -p 'a b' && cd 'a b' && export X='two\nlines'\nf() { echo \"f $1\"; }\nalias g='f 7'")
        seen = await self.say('pwd; echo "$greeting $X"; f 1; g; echo e >&2')
        self.assertEqual(seen.output.splitlines()[0].rpartition("/")[2], "a b")
        self.assertEqual(seen.output.splitlines()[1:], ["hello two", "lines", "f 1", "f 7", "e"])
        self.assertEqual((seen.exit_code, seen.expect_string), (0, ""))
        # What belongs to one action is not carried to the next.
        actions = [(await self.say("echo $ROTA_ACTION_ID")).output for _ in range(2)]
        self.assertEqual(len(set(actions)), 2)
        await self.runtime.close_session(create_session())
        with self.assertRaises(swerex.SessionDoesNotExistError):
            await self.say("true")

    async def test_commands_that_fail(self):
        await self.runtime.create_session(create_session())
        with self.assertRaises(swerex.NonZeroExitCodeError):
            await self.say("echo why; false")
        silent = await self.say("cd /; exit 3", check="silent")
        self.assertEqual((silent.exit_code, (await self.say("pwd")).output), (3, "/\n"))
        self.assertIsNone((await self.say("false", check="ignore")).exit_code)
        with self.assertRaises(swerex.BashIncorrectSyntaxError):
            await self.say("if true; then")
        with self.assertRaises(swerex.CommandTimeoutError):
            await self.say("sleep 60", timeout=0.5)
        await self.runtime.run_in_session(interrupt())
        self.assertEqual((await self.say("echo still here")).output, "still here\n")
        self.assertEqual((await self.say("kill -9 $$", check="silent")).exit_code, 137)
        long = await self.say(f"cat > long <<'END'\n{'x' * 100_000}\nEND\nwc -c < long")
        self.assertEqual(int(long.output), 100_001)
        big = await self.say("seq 200000")
        self.assertEqual(big.output, "".join(f"{i}\n" for i in range(1, 200001)))

    async def test_an_interactive_program(self):
        await self.runtime.create_session(create_session())
        await self.say("X=41")
        said = await self.say('echo "got $X"; while read line; do echo "read $line."; done', interactive=True, expect=["got \\d+"])
        self.assertEqual(said.expect_string, "got \\d+")
        said = await self.say("one", interactive=True, expect=["read one\\."])
        self.assertEqual(said.expect_string, "read one\\.")
        await self.say("\x04", quit=True)
        self.assertEqual((await self.say("echo $X")).output, "41\n")

    async def test_execute(self):
        ran = await self.runtime.execute(command(["sh", "-c", "echo $A; pwd; echo e >&2; exit 4"], env={"A": "1"}, cwd="/"))
        self.assertEqual((ran.stdout, ran.stderr, ran.exit_code), ("1\n/\n", "e\n", 4))
        ran = await self.runtime.execute(command("echo $0 x", shell=True, merge=True))
        self.assertEqual((ran.stdout, ran.stderr), ("sh x\n", ""))
        self.assertEqual((await self.runtime.execute(command("rota-no-such-program"))).exit_code, 127)
        with self.assertRaises(swerex.NonZeroExitCodeError):
            await self.runtime.execute(command(["false"], check=True))
        with self.assertRaises(swerex.CommandTimeoutError):
            await self.runtime.execute(command(["sleep", "60"], timeout=0.5))

    async def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            tree = pathlib.Path(folder)
            (tree / "sub").mkdir()
            (tree / "sub" / "run.sh").write_text("#!/bin/sh\necho ran\n")
            (tree / "sub" / "run.sh").chmod(0o755)
            upload = types.SimpleNamespace
            await self.runtime.upload(upload(source_path=folder, target_path="tree"))
            await self.runtime.upload(upload(source_path=str(tree / "sub" / "run.sh"), target_path="bin/run"))
            ran = await self.runtime.execute(command("tree/sub/run.sh && bin/run", shell=True))
            self.assertEqual((ran.stdout, ran.stderr), ("ran\nran\n", ""))
            away = str(tree / "far" / "ä.txt")  # an absolute path, on the same machine here
            await self.runtime.write_file(types.SimpleNamespace(path=away, content="grüße\n"))
            read = await self.runtime.read_file(types.SimpleNamespace(path=away, encoding=None, errors=None))
            self.assertEqual(read.content, "grüße\n")
            for path in ("gone", "/gone/away"):
                with self.assertRaises(FileNotFoundError):
                    await self.runtime.read_file(types.SimpleNamespace(path=path, encoding=None, errors=None))

    async def test_it_ends(self):
        trajectory = self.runtime.place.trajectory.id
        await self.deployment.stop()
        self.assertIn(state(trajectory), ("TRAJECTORY_STATE_CLOSING", "TRAJECTORY_STATE_CLOSED"))
        self.assertFalse(await self.runtime.is_alive())


class Loop:
    """What verl's agent loop gives to a tool."""

    def __init__(self, request_id):
        self.request_id = request_id


@unittest.skipUnless(SERVERS, "ROTA_SERVERS names no cluster")
class Verl(unittest.IsolatedAsyncioTestCase):
    def tool(self, **config):
        return verl.RotaTool({"type": "native", "addr": ADDR, "memory": "64MiB", **config}, None)

    async def call(self, tool, agent_data, text, **create):
        """One call as ToolAgentLoop makes it."""
        instance, _ = await tool.create(create_kwargs=create)
        try:
            return await tool.execute(instance, {"command": text}, agent_data=agent_data)
        finally:
            await tool.release(instance)

    async def test_the_calls_of_a_loop_share_a_sandbox(self):
        tool = copy.deepcopy(self.tool(setup="echo 1 > n", reward_command="cat n", step_reward=True))
        loop = Loop("a")
        both = await asyncio.gather(*(self.call(tool, loop, "test -f n && echo yes") for _ in range(2)))
        self.assertEqual([answer.text for answer, _, _ in both], ["yes\n", "yes\n"])
        _, reward, metrics = await self.call(tool, loop, "echo 5 > n")
        self.assertEqual((reward, metrics["exit_code"]), (5.0, 0))
        answer, _, metrics = await self.call(tool, loop, "echo out; echo err >&2; exit 3")
        self.assertEqual((answer.text, metrics["exit_code"]), ("out\nerr\nexit code 3", 3))
        other, reward, _ = await self.call(tool, Loop("b"), "cat n", setup="echo 2 > n")
        self.assertEqual((other.text, reward), ("2\n", 2.0))
        trajectory = tool._boxes["a"]._place.trajectory.id
        del loop
        gc.collect()
        self.assertNotIn("a", tool._boxes)
        deadline = time.monotonic() + 120
        while state(trajectory) == "TRAJECTORY_STATE_OPEN" and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        self.assertNotEqual(state(trajectory), "TRAJECTORY_STATE_OPEN")

    async def test_an_instance_has_a_sandbox_until_it_is_released(self):
        tool = self.tool(reward_command="grep -q done log")
        instance, _ = await tool.create("mine")
        self.assertEqual(await tool.calc_reward(instance), 0.0)
        await tool.execute(instance, {"command": "echo done > log"})
        self.assertEqual(await tool.calc_reward(instance), 1.0)
        self.assertIn("argument", (await tool.execute(instance, {}))[0].text)
        await tool.release(instance)
        self.assertEqual(tool._boxes, {})

    async def test_a_call_that_takes_too_long(self):
        answer, _, metrics = await self.call(self.tool(timeout_s=0.5), Loop("c"), "echo begun; sleep 60")
        self.assertEqual((answer.text, metrics["exit_code"]), ("begun\nexit code 124 (timeout)", 124))


@unittest.skipUnless(SERVERS, "ROTA_SERVERS names no cluster")
class Others(unittest.IsolatedAsyncioTestCase):
    def test_skyrl(self):
        config = {"addr": ADDR, "memory": "64MiB", "setup": "echo 40 > n", "reward_command": 'test "$(cat n)" = 42', "observation_chars": 20}
        env = skyrl.RotaEnv(config, extras={"max_turns": 4, "reward_spec": None})
        prompt = [{"role": "user", "content": "make n 42"}]
        self.assertEqual(env.init(prompt)[0], prompt)
        seen = env.step("I look.\n<bash>cat n; exit 1</bash>")
        self.assertEqual(seen["observations"], [{"role": "user", "content": "40\nexit code 1"}])
        self.assertEqual((seen["reward"], seen["done"], seen["metadata"]["exit_code"]), (0.0, False, 1))
        self.assertIn("<bash>", env.step("no command")["observations"][0]["content"])
        self.assertIn("characters left out", env.step("<bash>seq 100</bash>")["observations"][0]["content"])
        last = env.step("<bash>echo 42 > n</bash><done>")
        self.assertEqual((last["observations"], last["reward"], last["done"]), ([], 1.0, True))
        env.close()
        env.close()

    def uploads_where_it_reads(self, sandbox):
        """Also if its commands work in another directory."""
        self.addCleanup(sandbox.close)
        with tempfile.TemporaryDirectory() as folder:
            run = pathlib.Path(folder) / "run.sh"
            run.write_text("#!/bin/sh\necho ran\n")
            run.chmod(0o755)
            sandbox.upload_dir(folder, "work/tree")
            sandbox.upload_file(str(run), "work/run.sh")
        self.assertEqual(sandbox.exec("tree/run.sh; ./run.sh"), "ran\nran\n")
        self.assertEqual(sandbox.download_file("work/tree/run.sh"), b"#!/bin/sh\necho ran\n")

    def test_rllm(self):
        sandbox = rllm.RotaSandbox("task-7", addr=ADDR, memory="64MiB")
        self.addCleanup(sandbox.close)
        self.assertTrue(sandbox.is_alive())
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "a.txt").write_text("a\n")
            sandbox.upload_dir(folder, "tree")
            sandbox.upload_file(folder + "/a.txt", "b.txt")
        self.assertEqual(sandbox.exec("cat tree/a.txt b.txt; echo e >&2"), "a\na\n")
        self.assertEqual(sandbox.download_file("b.txt"), b"a\n")
        self.uploads_where_it_reads(rllm.RotaSandbox("task-8", addr=ADDR, memory="64MiB", dir="work"))
        with self.assertRaises(subprocess.CalledProcessError) as caught:
            sandbox.exec("echo o; exit 9")
        self.assertEqual((caught.exception.returncode, caught.exception.stdout), (9, "o\n"))
        with self.assertRaises(subprocess.TimeoutExpired):
            sandbox.exec("sleep 60", timeout=0.5)
        sandbox.close()
        self.assertFalse(sandbox.is_alive())
        with self.assertRaises(rota.Error):
            sandbox.exec("true")

    async def test_slime(self):
        async with slime.RotaSandbox(addr=ADDR, memory="64MiB", timeout=600) as sandbox:
            self.assertEqual(state(sandbox.sandbox_id), "TRAJECTORY_STATE_OPEN")
            await sandbox.write_file("a/b.txt", "text\n")
            with tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder) / "c"
                file.write_bytes(b"\x00c")
                await sandbox.write_file("c", file)
            self.assertEqual(await sandbox.read_file("a/b.txt"), "text\n")
            self.assertEqual(await sandbox.read_file("gone"), "")
            self.assertEqual(await sandbox.exec("wc -c < c; echo $X >&2; exit 2", env={"X": "x"}), (2, "2\n", "x\n"))
            self.assertEqual((await sandbox.exec("sleep 60", timeout=1))[0], 124)
            with self.assertRaises(RuntimeError) as caught:
                await sandbox.exec("echo because >&2; false", check=True)
            self.assertIn("because", str(caught.exception))
