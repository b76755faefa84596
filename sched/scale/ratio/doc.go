// Package ratio advises how to divide GPUs between training and rollouts, from what steps of both
// took (RollArt §8: a trainer that waits for samples 62 % of the time has too many GPUs).
//
// A stage is taken to need a fixed time and a time that falls with its GPUs, a + b/g. Two measured
// numbers of GPUs give both; one number gives b alone, as if all of the stage scaled. All divisions
// of the GPUs are tried, so the advice is exact for these formulas.
//
// # What is not covered
//
//   - The formula itself. Communication grows with GPUs, and the longest trajectory bounds a rollout
//     from below (a of the rollout). The further the advice is from what was measured, the less it
//     is worth: Advice.Extrapolated says so. Measure again after a change, and ask again.
//   - Spread from step to step. Give means of several steps.
//   - Hardware. GPUs of both stages are taken to be exchangeable.
package ratio
