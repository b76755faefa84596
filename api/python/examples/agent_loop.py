"""An agent loop: a model writes, a tool in the episode's environment measures, a trainer learns.

    python3 agent_loop.py SERVERS GATEWAY POLICY

SERVERS are host:port of rota servers with commas between, GATEWAY the URL of "rota gateway", POLICY the name of the
model that its workers serve. Nothing is trained here: train() is where that would be.
"""

import concurrent.futures
import sys

import rota

STEPS, GROUPS, ENOUGH = 3, 2, 20


def loop(episode: rota.Episode) -> float:
    """One episode: turns of the model and of the tool, until the tool is content."""
    messages = [{"role": "user", "content": episode.prompt}]
    words = 0
    for _ in range(3):
        said = episode.chat(messages, max_tokens=12)
        episode.files.write("essay", said["content"])
        words += int(episode.run(["wc", "-w", "essay"], check=True).stdout.split()[0])
        if words >= ENOUGH:
            break
        messages += [said, {"role": "user", "content": f"{words} words are too few, go on."}]
    return min(words / ENOUGH, 1.0)


def train(client: rota.Client, policy: str) -> None:
    """Takes a batch for each step, and publishes what the step made of the weights."""
    for batch in rota.batches(client, policy, GROUPS, timeout_s=120):
        rewards = [sample.reward for sample in batch.samples]
        print(f"step {batch.step}: {len(rewards)} samples, mean reward {sum(rewards) / len(rewards):.2f}", flush=True)
        version = int(client.policy(policy).get("version", 0)) + 1
        client.publish_version(policy, version)
        for worker in client.workers(policy):  # here each would load the weights
            client.update_worker(worker["spec"]["name"], version=version)
        if batch.step >= STEPS:
            return


def main(servers: str, gateway: str, policy: str) -> None:
    with rota.Client(*servers.split(",")) as client:
        prompts = [f"Write an essay about the number {n}." for n in range(STEPS * GROUPS)]
        with concurrent.futures.ThreadPoolExecutor() as pool:
            trainer = pool.submit(train, client, policy)
            with rota.Rollout(client, policy, prompts, samples_per_group=2, redundant=1, staleness=STEPS, gateway=gateway) as rollout:
                print(rollout.run(loop, parallel=4))
            trainer.result()


if __name__ == "__main__":
    main(*sys.argv[1:])
