"""Turns and jobs, with a server that has one group of nodes."""

import asyncio
import threading
import time
import unittest
from unittest import mock

import rota
from rota.turn import now

from .test_client import LOST, NO_LEADER, Server, refusal


#: States of turns that have the group, and those in which they are renewed.
GRANTED = ("TURN_STATE_SETTING_UP", "TURN_STATE_HELD")
LIVE = ("TURN_STATE_WAITING", *GRANTED)


class Group(Server):
    """Grants turns of one group in the order they were asked for, as a server of rota does.

    It keeps no leases: ``lose`` says that one has run out. With ``hooks``, a group that
    was granted is set up by agents until ``ready`` or ``fail``. ``first`` has answers
    that come before its own, by method.
    """

    def __init__(self, lease_s=2.0, margin_s=0.5, hooks=False, **first):
        super().__init__()
        self.terms = {"leaseDuration": f"{lease_s}s", "leaseMargin": f"{margin_s}s"}
        self.hooks = hooks
        self.first = first
        self.turns, self.requests = {}, {}
        self.token = 0
        self.silent = False  # renewals are not answered any more
        self.changed = threading.Condition()

    def answer(self, path, body):
        self.asked.append((path, body))
        method = path.rpartition("/")[2]
        if self.first.get(method):
            answer = self.first[method].pop(0)
            return answer(self, body) if callable(answer) else answer
        with self.changed:
            return getattr(self, method)(body)

    def asked_for(self, method):
        return [body for path, body in self.asked if path == "/rota.v1.TurnService/" + method]

    # What happens at the server

    def grant(self):
        if not any(t["state"] in GRANTED for t in self.turns.values()):
            for turn in self.turns.values():
                if turn["state"] == "TURN_STATE_WAITING":
                    self.token += 1
                    state = "TURN_STATE_SETTING_UP" if self.hooks else "TURN_STATE_HELD"
                    turn.update(state=state, token=str(self.token), group="g", setUpNeeded=not self.hooks)
                    break
        self.changed.notify_all()

    def end(self, turn, state):
        turn["state"] = "TURN_STATE_" + state
        self.grant()

    def hold(self):
        """Another takes the group, and returns what gives it back."""
        with self.changed:
            turn = self.turns[-1] = {"id": "-1", "state": "TURN_STATE_WAITING"}
            self.grant()

        def release():
            with self.changed:
                self.end(turn, "YIELDED")

        return release

    def lose(self, number=1):
        with self.changed:
            self.end(self.turns[number], "LOST")

    def ready(self, number=1):
        """The hooks have ended."""
        with self.changed:
            self.turns[number].update(state="TURN_STATE_HELD", readyTime="2026-01-01T00:00:00Z")
            self.changed.notify_all()

    def fail(self, message, number=1):
        """A hook has failed."""
        with self.changed:
            self.turns[number]["message"] = message
            self.end(self.turns[number], "CANCELED")

    def ask_to_stop(self, number=1):
        with self.changed:
            self.turns[number]["stop"] = True
            self.changed.notify_all()

    def lack(self, degraded, number=1):
        """The group lacks other members."""
        with self.changed:
            self.turns[number]["degraded"] = degraded
            self.changed.notify_all()

    # Its methods

    def AcquireTurn(self, body):
        replayed = body["requestId"] in self.requests
        if not replayed:
            number = self.requests[body["requestId"]] = len(self.requests) + 1
            self.turns[number] = {"id": str(number), "state": "TURN_STATE_WAITING"}
            self.grant()
        return 200, {}, {"turn": self.turns[self.requests[body["requestId"]]], "replayed": replayed, **self.terms}

    def RenewTurn(self, body):
        turn = self.turns[int(body["turnId"])]

        def news():
            token = turn.get("token", "0") != body["token"]
            stop = turn.get("stop", False) and not body["stopKnown"]
            lacks = turn.get("degraded", "") != body.get("knownDegraded", turn.get("degraded", ""))
            ready = "readyTime" in turn and body.get("settingUp", False)
            return token or stop or lacks or ready or turn["state"] not in LIVE

        self.changed.wait_for(news, float(body["wait"].rstrip("s")))
        if self.silent:
            return LOST
        live = turn["state"] in LIVE
        return 200, {}, {"turn": turn, "renewed": live, **self.terms}

    def YieldTurn(self, body):
        turn = self.turns[int(body["turnId"])]
        if turn["state"] == "TURN_STATE_LOST":
            return refusal(400, "failed_precondition", "TURN_ENDED")
        if turn.get("token", "0") != body["token"]:
            return refusal(400, "failed_precondition", "TURN_FENCED")
        if turn["state"] == "TURN_STATE_SETTING_UP" and not body.get("failed"):
            return refusal(400, "failed_precondition", "TURN_SETTING_UP")
        self.end(turn, "CANCELED" if body["token"] == "0" or body.get("failed") else "YIELDED")
        return 200, {}, {"turn": turn}

    def GetTurn(self, body):
        return 200, {}, {"turn": self.turns[int(body["turnId"])]}


class Clocks(unittest.TestCase):
    def test_leases_are_counted_where_there_is_only_the_clock_of_python(self):
        with mock.patch("rota.turn._CLOCK", None):
            before = time.monotonic()
            self.assertTrue(before <= now() <= time.monotonic())


class Case(unittest.TestCase):
    def serve(self, **options):
        server = Group(**options)
        self.addCleanup(server.__exit__)
        return server

    def client(self, server, **options):
        client = rota.Client(server.address, **options)
        self.addCleanup(client.close)
        return client

    def soon(self, what, check):
        deadline = time.monotonic() + 20
        while not check():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(0.005)


class Turns(Case):
    def test_it_is_granted_and_yielded_with_what_setting_up_took(self):
        server = self.serve()
        with self.client(server).turn("job-a/actor", expect_s=40, step=3, operation="forward_backward") as turn:
            self.assertEqual((turn.token, turn.group, turn.needs_set_up, turn.lost), (1, "g", True, False))
            time.sleep(0.05)
            turn.set_up_done()
            turn.check()
            self.assertGreater(turn.left_s, 0)
        asked = server.asked_for("AcquireTurn")[0]
        self.assertEqual(
            {key: asked[key] for key in ("deployment", "operation", "step", "expect")},
            {"deployment": "job-a/actor", "operation": "OPERATION_FORWARD_BACKWARD", "step": "3", "expect": "40s"},
        )
        yielded = server.asked_for("YieldTurn")[0]
        self.assertEqual((yielded["turnId"], yielded["token"]), ("1", "1"))
        self.assertTrue(0.05 <= float(yielded["setUp"].rstrip("s")) < 10, yielded)
        self.assertFalse(turn.lost)

    def test_it_waits_and_hears_of_the_grant(self):
        server = self.serve()
        release = server.hold()
        held = []
        with self.client(server) as client:

            def hold():
                with client.turn("job-a/actor") as turn:
                    held.append(turn.token)

            thread = threading.Thread(target=hold)
            thread.start()
            self.soon("it waits", lambda: len(server.asked_for("RenewTurn")) > 2)
            self.assertEqual(held, [])
            release()
            thread.join(10)
        self.assertEqual(held, [2])

    def test_it_is_renewed_for_longer_than_a_lease(self):
        server = self.serve(lease_s=0.9, margin_s=0.1)
        with self.client(server).turn("job-a/actor") as turn:
            time.sleep(2.0)
            self.assertFalse(turn.lost)
        self.assertEqual(server.turns[1]["state"], "TURN_STATE_YIELDED")

    def test_a_lease_that_ran_out_is_lost_though_nobody_says_so(self):
        server = self.serve(lease_s=1.0, margin_s=0.2)
        told = []
        with self.assertRaises(rota.TurnLost) as caught:
            with self.client(server).turn("job-a/actor", on_lost=told.append) as turn:
                turn.check()
                server.silent = True
                self.soon("it is lost", lambda: turn.lost)
                with self.assertRaises(rota.TurnLost):
                    turn.check()
                self.soon("somebody is told", lambda: told)
        self.assertIs(caught.exception.turn, turn)
        self.assertEqual(told, [turn])

    def test_a_lease_counts_from_when_its_renewal_was_sent(self):
        """Every answer takes most of what a renewal is good for. It is not good for longer."""

        def late(server, body):
            time.sleep(0.6)
            with server.changed:
                return server.AcquireTurn(body)

        server = self.serve(lease_s=1.2, margin_s=0.2, AcquireTurn=[late])
        sent = time.monotonic()
        with self.assertRaises(rota.TurnLost):
            with self.client(server).turn("job-a/actor") as turn:
                entered = time.monotonic()
                last = time.monotonic()
                server.silent = True
                self.soon("it is lost", lambda: turn.lost)
                self.assertGreater(entered - sent, 0.6)
                self.assertLess(time.monotonic() - last, 1.2)

    def test_what_is_heard_after_the_deadline_changes_nothing(self):
        server = self.serve(lease_s=1.0, margin_s=0.2)
        with self.assertRaises(rota.TurnLost):
            with self.client(server).turn("job-a/actor") as turn:
                server.silent = True
                self.soon("it is lost", lambda: turn.lost)
                server.silent = False
                time.sleep(0.3)
                self.assertTrue(turn.lost)

    def test_rota_says_that_it_is_lost(self):
        server = self.serve()
        with self.assertRaisesRegex(rota.TurnLost, "LOST"):
            with self.client(server).turn("job-a/actor") as turn:
                server.lose()
                self.soon("it hears of it", lambda: turn.lost)

    def test_lost_hides_no_error_of_the_body_but_names_it(self):
        server = self.serve()
        with self.assertRaises(rota.TurnLost) as caught:
            with self.client(server).turn("job-a/actor") as turn:
                server.lose()
                self.soon("it hears of it", lambda: turn.lost)
                raise ValueError("the body's")
        self.assertIsInstance(caught.exception.__cause__, ValueError)

    def test_it_is_asked_to_stop_and_still_holds(self):
        server = self.serve()
        with self.client(server).turn("job-a/actor", preemptible=True) as turn:
            self.assertFalse(turn.stopping)
            server.ask_to_stop()
            self.soon("it hears of it", lambda: turn.stopping)
            self.assertFalse(turn.lost)
        self.assertEqual(server.turns[1]["state"], "TURN_STATE_YIELDED")

    def test_it_hears_what_its_group_lacks_and_says_what_it_knows(self):
        server, told = self.serve(), []
        with self.client(server).turn("job-a/actor", on_degraded=lambda t: told.append(t.degraded)) as turn:
            self.assertEqual(turn.degraded, "")
            server.lack("n1: the node is down")
            self.soon("it hears of it", lambda: told == ["n1: the node is down"])
            self.assertEqual(turn.degraded, "n1: the node is down")
            server.lack("")
            self.soon("it hears of the end", lambda: told == ["n1: the node is down", ""])
            self.assertFalse(turn.lost)
        known = [body["knownDegraded"] for body in server.asked_for("RenewTurn")]
        self.assertIn("n1: the node is down", known)

    def test_a_body_that_fails_gives_it_back_and_says_so(self):
        server = self.serve()
        with self.assertRaisesRegex(ValueError, "the body's"):
            with self.client(server).turn("job-a/actor") as turn:
                turn.set_up_done()
                raise ValueError("the body's")
        yielded = server.asked_for("YieldTurn")
        self.assertEqual([(y["token"], y.get("failed"), "setUp" in y) for y in yielded], [("1", True, False)])

    def test_it_is_asked_for_once_whatever_happens_to_leaders(self):
        def carried_out_unheard(server, body):
            with server.changed:
                server.AcquireTurn(body)
            return LOST

        server = self.serve(
            AcquireTurn=[NO_LEADER, carried_out_unheard],
            RenewTurn=[LOST, NO_LEADER],
            YieldTurn=[NO_LEADER, LOST, NO_LEADER],
        )
        with self.client(server).turn("job-a/actor") as turn:
            self.soon("it is renewed", lambda: len(server.asked_for("RenewTurn")) > 3)
            self.assertFalse(turn.lost)
        asked = server.asked_for("AcquireTurn")
        self.assertEqual((len(asked), len({body["requestId"] for body in asked}), len(server.turns)), (3, 1, 1))
        self.assertEqual(len(server.asked_for("YieldTurn")), 4)
        self.assertEqual(server.turns[1]["state"], "TURN_STATE_YIELDED")

    def test_another_server_renews_when_one_hangs(self):
        hung = threading.Event()
        server = self.serve(lease_s=2.4, margin_s=0.4)

        def hang(_, body):
            hung.wait(20)
            return LOST

        other = self.serve(RenewTurn=[hang] * 9, YieldTurn=[NO_LEADER] * 9)
        other.AcquireTurn = lambda body: server.answer("/rota.v1.TurnService/AcquireTurn", body)
        with rota.Client(other.address, server.address) as client:
            with client.turn("job-a/actor") as turn:
                time.sleep(2.5)
                self.assertFalse(turn.lost)
            hung.set()
            turn._thread.join(20)  # so that its connection is closed
        self.assertEqual(server.turns[1]["state"], "TURN_STATE_YIELDED")

    def test_waiting_has_an_end(self):
        server = self.serve()
        server.hold()
        with self.assertRaises(TimeoutError):
            with self.client(server).turn("job-a/actor", timeout_s=0.2):
                self.fail("it was granted")
        self.assertEqual(server.turns[1]["state"], "TURN_STATE_CANCELED")

    def test_given_up_at_the_moment_of_the_grant_it_is_given_back(self):
        server = self.serve()
        release = server.hold()

        def granted_first(server, body):
            self.assertEqual(body["token"], "0")
            release()
            with server.changed:
                return server.YieldTurn(body)

        server.first["YieldTurn"] = [granted_first]
        server.RenewTurn = lambda body: LOST  # nothing is heard of the grant
        with self.assertRaises(TimeoutError):
            with self.client(server).turn("job-a/actor", timeout_s=0.2):
                self.fail("it was granted")
        self.assertEqual([y["token"] for y in server.asked_for("YieldTurn")], ["0", "2"])
        self.assertEqual(server.turns[1]["state"], "TURN_STATE_CANCELED")

    def hold(self, server, **about):
        """Takes a turn in a thread. Returns that, and a list of what has come of it."""
        told = []

        def hold():
            try:
                with self.client(server).turn("job-a/actor", **about) as turn:
                    told.append((turn.token, turn.needs_set_up, turn.lost))
            except Exception as err:
                told.append(err)

        thread = threading.Thread(target=hold)
        thread.start()
        self.addCleanup(thread.join, 20)
        return thread, told

    def setting_up(self, server):
        """Returns when it was renewed for a while by who knows that hooks run."""
        self.soon("hooks run", lambda: sum(r.get("settingUp", False) for r in server.asked_for("RenewTurn")) > 2)

    def test_it_is_entered_when_hooks_have_made_the_group_ready(self):
        server = self.serve(hooks=True)
        thread, told = self.hold(server)
        self.setting_up(server)
        self.assertEqual(told, [])
        server.ready()
        thread.join(10)
        self.assertEqual(told, [(1, False, False)])
        self.assertEqual(server.turns[1]["state"], "TURN_STATE_YIELDED")
        renewals = [r for r in server.asked_for("RenewTurn") if r.get("settingUp")]
        self.assertEqual({r["token"] for r in renewals}, {"1"})
        yielded = server.asked_for("YieldTurn")
        self.assertEqual([("failed" in y, "setUp" in y) for y in yielded], [(False, False)])

    def test_it_waits_no_renewal_to_hear_that_the_group_is_ready(self):
        server = self.serve(lease_s=80.0, margin_s=0.5, hooks=True)
        thread, told = self.hold(server)
        self.soon("hooks run", lambda: server.asked_for("RenewTurn"))
        server.ready()
        thread.join(10)  # a renewal is held back for twice as long
        self.assertEqual(told, [(1, False, False)])

    def test_it_waits_and_then_hooks_run(self):
        server = self.serve(hooks=True)
        release = server.hold()
        thread, told = self.hold(server)
        self.soon("it waits", lambda: len(server.asked_for("RenewTurn")) > 1)
        self.assertFalse(any(r.get("settingUp") for r in server.asked_for("RenewTurn")))
        release()
        self.setting_up(server)
        self.assertEqual(told, [])
        server.ready()
        thread.join(10)
        self.assertEqual(told, [(2, False, False)])

    def test_a_hook_that_failed_is_named(self):
        server = self.serve(hooks=True)
        thread, told = self.hold(server)
        self.setting_up(server)
        server.fail("wake hook of default/job-a/actor: exit code 3")
        thread.join(10)
        (err,) = told
        self.assertIsInstance(err, rota.TurnLost)
        self.assertRegex(str(err), "CANCELED: wake hook of default/job-a/actor: exit code 3")

    def test_given_up_while_hooks_run_it_is_canceled(self):
        server = self.serve(hooks=True)
        thread, told = self.hold(server, timeout_s=0.3)
        thread.join(10)
        self.assertIsInstance(told[0], TimeoutError)
        self.assertEqual([(y["token"], y.get("failed")) for y in server.asked_for("YieldTurn")], [("1", True)])
        self.assertEqual(server.turns[1]["state"], "TURN_STATE_CANCELED")

    def test_refusals_arrive(self):
        server = self.serve(AcquireTurn=[refusal(404, "not_found", "JOB_NOT_FOUND")])
        with self.assertRaises(rota.Error) as caught:
            with self.client(server).turn("job-z/actor"):
                self.fail("it was granted")
        self.assertEqual(caught.exception.reason, "JOB_NOT_FOUND")
        with self.assertRaisesRegex(ValueError, "forward_backward"):
            self.client(server).turn("job-a/actor", operation="backward")

    def test_it_is_for_one_use(self):
        turn = self.client(self.serve()).turn("job-a/actor")
        with turn:
            pass
        with self.assertRaises(RuntimeError):
            turn.__enter__()


class AsyncTurns(Case):
    """What differs for asyncio."""

    def run_async(self, server, body):
        async def main():
            async with rota.AsyncClient(server.address) as client:
                return await body(client)

        return asyncio.run(main())

    def test_many_wait_for_one_that_is_held(self):
        """More of them than the loop has threads."""
        server = self.serve()

        async def one(client, held):
            async with client.turn("job-a/actor") as turn:
                held.append(turn.token)
                self.assertEqual(sum(t["state"] == "TURN_STATE_HELD" for t in list(server.turns.values())), 1)
                await asyncio.sleep(0.01)

        async def main(client):
            held = []
            await asyncio.gather(*(one(client, held) for _ in range(40)))
            return held

        self.assertEqual(self.run_async(server, main), list(range(1, 41)))

    def test_the_task_is_interrupted_when_it_is_lost(self):
        server = self.serve()

        async def main(client):
            async with client.turn("job-a/actor"):
                asyncio.get_running_loop().call_later(0.1, server.lose)
                await asyncio.sleep(60)

        with self.assertRaisesRegex(rota.TurnLost, "LOST"):
            self.run_async(server, main)

    def test_a_busy_loop_keeps_it(self):
        server = self.serve(lease_s=0.9, margin_s=0.1)

        async def main(client):
            async with client.turn("job-a/actor") as turn:
                time.sleep(1.5)
                return turn.lost

        self.assertFalse(self.run_async(server, main))

    def test_a_canceled_task_gives_it_back(self):
        server = self.serve()
        release = server.hold()

        async def main(client):
            async def one():
                async with client.turn("job-a/actor"):
                    await asyncio.sleep(60)

            for held in (False, True):
                task = asyncio.create_task(one())
                turn = len(server.requests) + 1
                while turn not in server.turns or held and "token" not in server.turns[turn]:
                    await asyncio.sleep(0.01)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                self.assertEqual(server.turns[turn]["state"], "TURN_STATE_CANCELED")
                if not held:
                    release()

        self.run_async(server, main)

    def test_waiting_has_an_end(self):
        server = self.serve()
        server.hold()

        async def main(client):
            async with client.turn("job-a/actor", timeout_s=0.2):
                self.fail("it was granted")

        with self.assertRaises(TimeoutError):
            self.run_async(server, main)
        self.assertEqual(server.turns[1]["state"], "TURN_STATE_CANCELED")


class Jobs(unittest.TestCase):
    def test_a_job_and_its_life(self):
        def job(state, **more):
            return 200, {}, {"job": {"name": "job-a", "state": "JOB_STATE_" + state, **more}}

        answers = (
            (200, {}, {"group": {"name": "g", "nodes": 8}}),
            NO_LEADER,
            job("QUEUED", message="for a group"),
            job("RUNNING", group="g", finishedCycles="3"),
            job("SUSPENDED"),
            LOST,
            job("QUEUED"),
            job("COMPLETED"),
            (200, {}, {}),
        )
        with Server(*answers) as server, rota.Client(server.address, namespace="team") as client:
            self.assertEqual(client.create_node_group("g", 8)["nodes"], 8)
            queued = client.submit_job("job-a", 8, cycle=(60, [(0, 20), (30.5, 5, 2)]), set_up_s=1.5)
            self.assertEqual((queued.state, queued.waiting_for), ("QUEUED", "for a group"))
            running = client.job("job-a")
            self.assertEqual((running.state, running.group, running.cycles), ("RUNNING", "g", 3))
            self.assertEqual(client.suspend_job("job-a").state, "SUSPENDED")
            self.assertEqual(client.resume_job("job-a").state, "QUEUED")
            self.assertEqual(client.complete_job("job-a").state, "COMPLETED")
            client.delete_job("job-a")
        methods = [path.rpartition("/")[2] for path, _ in server.asked]
        want = "CreateNodeGroup SubmitJob SubmitJob GetJob SuspendJob ResumeJob ResumeJob CompleteJob DeleteJob"
        self.assertEqual(" ".join(methods), want)
        first, again = server.asked[1][1], server.asked[2][1]
        self.assertEqual(first, again)
        self.assertTrue(first.pop("requestId"))
        segments = [{"offset": "0s", "length": "20s", "nodes": 8}, {"offset": "30.5s", "length": "5s", "nodes": 2}]
        self.assertEqual(
            first,
            {
                "namespace": "team",
                "name": "job-a",
                "nodes": 8,
                "cycle": {"period": "60s", "segments": segments},
                "setUp": "1.5s",
            },
        )

    def test_hooks_are_sent(self):
        group = 200, {}, {"group": {"name": "g", "nodes": 8}}
        answers = (group, group, (200, {}, {"job": {"name": "job-a", "state": "JOB_STATE_QUEUED"}}))
        wake = {"http": {"method": "POST", "url": "http://engine:8000/wake_up"}, "runTimeout": "60s"}
        prefetch = {"command": {"argv": ["./prefetch.sh"]}, "runTimeout": "60s"}
        with Server(*answers) as server, rota.Client(server.address) as client:
            client.create_node_group("g", 8)
            client.create_node_group("h", 8, hook_pool="engines")
            hooks = {"actor": {"wake": wake, "prefetch": prefetch}, "critic": {"sleep": wake}}
            client.submit_job("job-a", 8, hooks=hooks)
        groups = [body for path, body in server.asked if path.endswith("CreateNodeGroup")]
        self.assertEqual([body.get("hookPool") for body in groups], ["default", "engines"])
        self.assertEqual(
            server.asked[2][1]["hooks"],
            [{"deployment": "actor", "wake": wake, "prefetch": prefetch}, {"deployment": "critic", "sleep": wake}],
        )

    def test_members_are_sent(self):
        group = 200, {}, {"group": {"name": "g", "nodes": 1, "degraded": "0 of 1 members are there"}}
        members, selector = [{"node": "n1", "firstGpu": 4, "gpus": 4}], {"labels": {"gpu": "h100"}, "gpus": 4}
        with Server(group, group, group) as server, rota.Client(server.address) as client:
            client.create_node_group("g", members=members, selector=selector)
            client.set_node_group_members("g", members)
            self.assertEqual(client.node_group("g")["degraded"], "0 of 1 members are there")
        self.assertEqual([path.rpartition("/")[2] for path, _ in server.asked], ["CreateNodeGroup", "SetNodeGroupMembers", "GetNodeGroup"])
        self.assertEqual([body.get("members") for _, body in server.asked], [members, members, None])
        self.assertEqual([body.get("selector") for _, body in server.asked], [selector, None, None])

    def test_a_cycle_has_pairs(self):
        with self.assertRaisesRegex(ValueError, "offset"):
            rota.Client("nobody:1").submit_job("job-a", 1, cycle=(60, [(1, 2, 3, 4)]))


if __name__ == "__main__":
    unittest.main()
