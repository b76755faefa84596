"""A training job: in each step a turn that burns CPU, and between steps a rollout elsewhere."""

import fcntl
import os
import sys
import time

import rota

servers, witness, job = sys.argv[1].split(","), sys.argv[2], sys.argv[3]
steps, burn_s, rollout_s, set_up_s = int(sys.argv[4]), *map(float, sys.argv[5:8])


def say(what, step, turn):
    """One line for the witness, which the disk has when it returns."""
    line = f"{what} {job} {step} {turn.token} {time.monotonic_ns()}\n"
    file = os.open(witness, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, line.encode())
    os.fsync(file)
    os.close(file)


def burn(duration_s):
    end = time.monotonic() + duration_s
    while time.monotonic() < end:
        sum(range(1000))


def work(step, turn):
    """Has the group for itself: the kernel knows if it has not."""
    with open(witness + ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("overlap", step, turn)
        say("start", step, turn)
        if turn.needs_set_up:
            burn(set_up_s)
            turn.set_up_done()
        burn(burn_s)
        turn.check()
        say("end", step, turn)


with rota.Client(*servers, retry_s=90.0) as client:
    for step in range(1, steps + 1):
        with client.turn(f"{job}/actor", operation="forward_backward", step=step, expect_s=burn_s) as turn:
            work(step, turn)
        if step < steps:
            time.sleep(rollout_s)
