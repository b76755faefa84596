// Package turns evaluates what training jobs that share nodes make of them, as PlexRL
// (§6.2, §6.3) does: how many GPU-hours a step takes when jobs share a group
// ([Packing]), and what becomes of three months of jobs ([Replay]). The jobs are
// simulated: they ask for turns, hold the group for as long as Table 2 says and yield it.
// Who gets which turn and which group is decided by the real state machine.
//
// # A job
//
// Tables 1 and 2 are in models.go. A step has a rollout on GPUs of the job's own, and
// three operations on the training group: sync_weight, compute_log_prob, update_actor.
// The paper allows one step of staleness, with synchronization at the end of each step.
// So a step is:
//
//	training group   sync k | log_prob k+1, update k+1 |  idle ...           | sync k+1
//	rollout GPUs            | rollout k+2 with the weights of k ............ |
//
// It ends when the rollout and the update both have. The rollout takes what Table 2 has as
// the cycle, less the synchronization. Operations that wait for the group are free as long
// as the rollout goes on, but for the synchronization: a step is longer by what that
// waits. The three are neighbours, so the group is set up once a step.
//
// Phases and rollouts vary by up to 2 % each way, a job alone as well as one that shares.
//
// # Set-up
//
// What it takes to put away the state of one deployment and get another's. Serial, the
// group does nothing else meanwhile. Overlapped, the state of whose reservation comes next
// is fetched while the turn before it runs (§4.5), and a turn waits for what is left: all
// of it, if somebody else comes.
//
// # Baselines
//
//   - split-async: the job alone, with the GPUs of its training and of its rollout.
//   - colocated: rollout and training take turns on the GPUs of the training, with a set-up
//     each step. The paper does not say how long the rollout takes there, so there are two
//     bounds. In the lower one, throughput goes with the number of GPUs and what Figure 7c
//     says of it (52.74 % of the peak instead of 75.03 %, measured for 235B). In the upper
//     one the longest sample decides, and the rollout takes as long as on its own GPUs.
//     What the paper reports of 30B, that it is dearer than split-async, is true of the
//     upper bound only.
//
// # The trace
//
// The paper's trace is not public. [Generate] makes one, and says how in trace.go. It was
// written before any policy was.
package turns
