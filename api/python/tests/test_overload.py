"""How submissions wait after a refusal, with a clock of the test and against servers that refuse."""

import threading
import unittest

import rota
from rota.overload import Overload
from .test_client import SUBMITTED, Server, refusal


class Clock:
    """A clock that moves when somebody sleeps."""

    def __init__(self):
        self.at = 100.0

    def now(self):
        return self.at

    def sleep(self, seconds):
        self.at += seconds


def full(delay=1.0):
    return rota.Error("full", "resource_exhausted", "QUEUE_FULL", delay)


class Throttle(unittest.TestCase):
    def setUp(self):
        self.clock = Clock()
        self.overload = Overload(self.clock.now, self.clock.sleep)

    def test_after_a_refusal_submissions_wait_for_its_delay(self):
        self.overload.refused(self.overload.enter(1000), full(10))
        began = self.clock.at
        self.overload.enter(1000)
        self.assertTrue(10 <= self.clock.at - began <= 15, self.clock.at - began)

    def test_who_would_wait_too_long_is_told_at_once(self):
        refused = full(10)
        self.overload.refused(self.overload.enter(1000), refused)
        self.assertIsNone(self.overload.enter(self.clock.at + 5))
        self.assertEqual(self.clock.at, 100.0)
        self.assertIs(self.overload.refusal, refused)

    def test_a_round_follows_what_was_accepted(self):
        first = [self.overload.enter(1000) for _ in range(40)]
        self.overload._waiting = 1  # somebody always waits
        for of_round in first[:20]:
            self.overload.passed(of_round)
        for of_round in first[20:]:
            self.overload.refused(of_round, full())
        self.clock.sleep(2)
        second = [self.overload.enter(1000) for _ in range(26)]
        self.assertEqual(len(set(second)), 1)
        self.assertIsNone(self.overload.enter(self.clock.at))  # 20 and a quarter more are under way
        for of_round in second:
            self.overload.passed(of_round)
        third = [self.overload.enter(1000) for _ in range(33)]
        self.assertIsNone(self.overload.enter(self.clock.at))
        self.overload.passed(first[0])  # late: it is of no round that counts
        for of_round in third:
            self.overload.refused(of_round, full())
        self.clock.sleep(2)
        for _ in range(16):
            self.overload.enter(1000)
        self.assertIsNone(self.overload.enter(self.clock.at))

    def test_it_ends_when_nobody_waits(self):
        self.overload.refused(self.overload.enter(1000), full())
        self.overload.passed(self.overload.enter(1000))
        began = self.clock.at
        for _ in range(100):
            self.overload.enter(1000)
        self.assertEqual(self.clock.at, began)


class Submissions(unittest.TestCase):
    def test_each_thread_raises_an_exception_of_its_own(self):
        with rota.Client("127.0.0.1:1", retry_s=5.0) as client:
            client._overload.refused(client._overload.enter(1e18), full(60))
            errors = []
            for _ in range(2):
                with self.assertRaises(rota.Error) as caught:
                    client.submit(rota.spec(["true"]))
                errors.append(caught.exception)
        self.assertIsNot(errors[0], errors[1])
        self.assertEqual([(err.reason, err.retry_after, str(err)) for err in errors], [("QUEUE_FULL", 60, "full")] * 2)

    def test_a_client_sends_all_once_there_is_room(self):
        refusals = [refusal(429, "resource_exhausted", "QUEUE_FULL", "0.050s")] * 3
        with Server(*refusals, SUBMITTED) as server, rota.Client(server.address) as client:
            ids = []
            threads = [threading.Thread(target=lambda: ids.append(client.submit(rota.spec(["true"])))) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(ids, [[7]] * 8)
        self.assertEqual(len(server.asked), 8 + 3)

    def test_who_gives_up_is_told_what_servers_said(self):
        with Server(refusal(429, "resource_exhausted", "QUEUE_FULL", "60s")) as server:
            with rota.Client(server.address, retry_s=1.0) as client:
                for _ in range(3):
                    with self.assertRaises(rota.Error) as caught:
                        client.submit(rota.spec(["true"]))
                    self.assertEqual(caught.exception.reason, "QUEUE_FULL")
        self.assertEqual(len(server.asked), 1)


if __name__ == "__main__":
    unittest.main()
