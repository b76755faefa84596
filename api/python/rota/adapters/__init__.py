"""Sandboxes of rota behind the interfaces of frameworks for reinforcement learning and agents.

    rota.adapters.swerex   SWE-ReX: RotaRuntime, RotaDeployment
    rota.adapters.verl     verl: RotaTool, a BaseTool
    rota.adapters.skyrl    SkyRL: RotaEnv, a BaseTextEnv
    rota.adapters.rllm     rLLM: RotaSandbox
    rota.adapters.slime    slime: RotaSandbox

No framework is imported before a class of its adapter is asked for. If it is installed, the
class is a subclass of the framework's; otherwise it has the same methods and stands alone.

Each sandbox is a trajectory (docs/sandboxes.md), and each command in it is an action: it waits
in the queue, gets cores, is limited and logged. See ``place.Place`` for the options that all
adapters have.
"""
