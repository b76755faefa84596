"""Three rollouts of the example of an agent loop, at the same time.

    python3 rollouts.py SERVERS GATEWAYS POLICY PROMPTS
"""

import concurrent.futures
import sys

import agent_loop

import rota


def main(servers: str, gateways: str, policy: str, prompts: str) -> None:
    with rota.Client(*servers.split(",")) as client, concurrent.futures.ThreadPoolExecutor() as pool:

        def rollout(number: int, gateway: str) -> str:
            texts = [f"Write essay {number}.{n}." for n in range(int(prompts))]
            with rota.Rollout(
                client, policy, texts, samples_per_group=2, redundant=1, staleness=100, gateway=gateway, memory="16MiB", idle_timeout_s=600
            ) as open_rollout:
                return str(open_rollout.run(agent_loop.loop, parallel=3, tries=20))

        addresses = gateways.split(",")
        begun = [pool.submit(rollout, number, addresses[number % len(addresses)]) for number in range(3)]
        for done in begun:
            print(done.result(), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
