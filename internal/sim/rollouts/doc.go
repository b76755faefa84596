// Package rollouts evaluates how rollouts are served: which worker generates for which trajectory,
// in which order, and with how many GPUs. The same trajectories run in virtual time on the engines
// of internal/engine/model, under rota and under the policies of others. Nothing is measured on a
// real engine.
//
// # What is rota's
//
// All that rota decides here is decided by the packages that ship: lengths by sched/predict,
// priorities by sched/place/worker, degrees of parallelism by sched/scale/degrees, placement and
// moves by sched/place/partition, the order of transfers by sched/transmit. This package only says
// what they are asked, and when:
//
//   - Before a step, degrees are chosen for the lengths of the step before. Before the first one they
//     are chosen for lengths of which only the mean is assumed (degrees.Spread). Placement and
//     priorities take what is predicted of each trajectory.
//   - After each turn it is predicted again, and trajectories whose tools run may move. A move
//     begins when the transfer can begin, and is given up if the tool ends before.
//   - Profiles say what is measured at short contexts with the step's mix of prompt and output
//     tokens. What contexts add, for reading and for memory, is given beside it.
//
// # What would flatter it
//
// Knowledge that users lack: so the predictor begins with nothing, and the first step, in which
// rota knows nothing, is in the table too. True lengths are a policy of their own. Weak
// baselines: so all policies have the same engines and the same GPUs, and the degree of the
// baselines can be set (Setup.Degree), as theirs need not be the best one on these engines.
//
// # What is not simulated
//
// Network, gateways and commits: a decision takes no time. Prediction by a model. The change of
// degrees between steps. Weights, but in Train: each step begins with empty caches. Rewards.
//
// CompareHardware has mixed tasks on two kinds of hardware, without moves and degrees: where
// trajectories begin is all that differs.
//
// Train compares a synchronous loop of training with an asynchronous one. Training is a time in
// it, and no policy that plans whole steps can run there.
package rollouts
