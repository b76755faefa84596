"""Workers that tests start."""

import os

import rota


class Adder(rota.Worker):
    """Adds, and remembers what it was told."""

    def setup(self, start=0):
        self.sum = start

    @rota.register
    def add(self, number):
        self.sum += number
        return [self.rank, self.sum]

    @rota.hw_mapping({"FrozenLake": "compute"}, default=["bandwidth"])
    def generate(self, prompt):
        return f"{self.hardware} {self.rank}/{self.world_size}: {prompt}"

    @rota.register_serverless(attr="reward_proxy", serverless_url="http://127.0.0.1:1/", timeout_s=5)
    def compute_rewards(self, answers):
        return [self.reward_proxy(answer) for answer in answers]

    @rota.register(dispatch="split", gather="concat", operation="forward_backward")
    def double(self, batch):
        return [2 * item for item in batch]

    @rota.register
    def fail(self):
        raise ValueError("as it was told")

    @rota.register
    def leave(self):
        os._exit(7)

    def hidden(self):
        return "never"
