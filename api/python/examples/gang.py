"""The members of a gang meet at rank 0: each tells it a number, and it tells all of them the sum.

Run it as a gang of any size:

    rota run --gang 4 -- python3 "$PWD/api/python/examples/gang.py"
"""

import os
import socket
import time

RANK = int(os.environ["ROTA_GANG_RANK"])
SIZE = int(os.environ["ROTA_GANG_SIZE"])
HOST = os.environ["ROTA_GANG_HOSTS"].split(",")[0]
PORT = int(os.environ["ROTA_GANG_PORT"])
PATIENCE_S = 120


def lead(number: int) -> int:
    """Rank 0: it hears the others, and tells them the sum."""
    family = socket.getaddrinfo(HOST, PORT)[0][0]
    with socket.create_server((HOST, PORT), family=family, backlog=SIZE) as server:
        server.settimeout(PATIENCE_S)
        others = [server.accept()[0].makefile("rw") for _ in range(SIZE - 1)]
    total = number + sum(int(other.readline()) for other in others)
    for other in others:
        print(total, file=other, flush=True)
    return total


def join(number: int) -> int:
    """The other ranks: rank 0 may not be there yet."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        try:
            leader = socket.create_connection((HOST, PORT))
            break
        except OSError:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.05)
    with leader.makefile("rw") as stream:
        print(number, file=stream, flush=True)
        return int(stream.readline())


if __name__ == "__main__":
    total = lead(RANK) if RANK == 0 else join(RANK)
    print(f"rank {RANK} of {SIZE}: the ranks add up to {total}")
