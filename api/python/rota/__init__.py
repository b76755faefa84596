"""Client of rota, with the standard library only.

    import rota

    client = rota.Client("127.0.0.1:7400")
    action = client.run(["pytest", "-n", "{{cores}}"], cores=[1, 2, 4, 8], name="pytest")
    print(action.state, action.stdout)

    with client.trajectory(memory="512MiB") as trajectory:
        trajectory.files.write("greeting", "hello")
        print(trajectory.run(["cat", "greeting"]).stdout)

    with client.start(["python3", "-i"], tty=(24, 80)) as process:
        process.write("print(6 * 7); exit()\\n")
        print(process.wait().stdout)

    with client.turn("job-a/actor", operation="forward_backward", step=3) as turn:
        train()  # the job has its group of nodes for itself

``AsyncClient`` has the same methods as coroutines. Every other method of the API
is a ``call``; requests and answers are the JSON of docs/api.md.

``rota.state`` reaches the weights and optimizer states that the agent of a node holds
(docs/state.md).

A call that fails for want of a leader, or of a server, is repeated with other
servers. Submissions carry a request ID, so that repeating them queues nothing twice.
"""

from .aio import AsyncClient, AsyncCluster, AsyncEpisode, AsyncFiles, AsyncProcess, AsyncRollout, AsyncTrajectory, AsyncTurn, async_batches
from .background import Output, Process
from .client import Client, Trajectory
from .cluster import Cluster, Resources, Serverless, WorkerError
from .episode import Batch, Episode, Model, ModelError, Rollout, Summary, batches
from .errors import ActionFailed, Error, TurnLost, UnknownOutcome
from .files import File, Files
from .job import Job
from .reward import AsyncReward, Reward
from .rollout import Sample
from .spec import Action, StartEstimate, Submission, gang, spec
from .throttle import throttled
from .usage import used
from .turn import Turn
from .process import Layout, Worker, hw_mapping, register, register_serverless

__all__ = [
    "Action",
    "ActionFailed",
    "AsyncClient",
    "AsyncCluster",
    "AsyncEpisode",
    "AsyncFiles",
    "AsyncProcess",
    "AsyncReward",
    "AsyncRollout",
    "AsyncTrajectory",
    "AsyncTurn",
    "Batch",
    "Client",
    "Cluster",
    "Episode",
    "Error",
    "File",
    "Files",
    "Job",
    "Layout",
    "Model",
    "ModelError",
    "Output",
    "Process",
    "Resources",
    "Reward",
    "Rollout",
    "Sample",
    "Serverless",
    "StartEstimate",
    "Submission",
    "Summary",
    "Trajectory",
    "Turn",
    "TurnLost",
    "UnknownOutcome",
    "Worker",
    "WorkerError",
    "async_batches",
    "batches",
    "gang",
    "hw_mapping",
    "register",
    "register_serverless",
    "spec",
    "throttled",
    "used",
]
