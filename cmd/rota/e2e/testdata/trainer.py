"""A trainer that a test kills. It says what each step was given, and goes on when it is told to.

    python3 trainer.py SERVERS POLICY GROUPS STEPS CHECKPOINT
"""

import json
import os
import sys

import rota


def main(servers: str, policy: str, groups: str, steps: str, checkpoint: str) -> None:
    after = 0
    if os.path.exists(checkpoint):
        with open(checkpoint) as file:
            after = int(file.read())
    with rota.Client(*servers.split(",")) as client:
        for batch in rota.batches(client, policy, int(groups), after=after, timeout_s=120):
            print(json.dumps({"step": batch.step, "trajectories": [sample.trajectory for sample in batch.samples]}), flush=True)
            if not sys.stdin.readline():
                return
            client.publish_version(policy, batch.step)
            for worker in client.workers(policy):
                client.update_worker(worker["spec"]["name"], version=batch.step)
            with open(checkpoint + ".new", "w") as file:
                file.write(str(batch.step))
            os.replace(checkpoint + ".new", checkpoint)
            if batch.step >= int(steps):
                return


if __name__ == "__main__":
    main(*sys.argv[1:])
