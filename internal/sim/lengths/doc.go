// Package lengths evaluates the prediction of lengths (package sched/predict, Heddle §4.1): how
// well it ranks trajectories that it has not seen by what they generate in all, after some turns,
// beside simpler predictors.
//
// Sessions are divided into folds. Each fold is predicted by what was learned from the others, in
// a random order, as the state machine would have. Sessions of one group, and sessions that begin
// with the same prompt and the same first answer, are in the same fold: copies of a session would
// make it easy.
//
// The measures are Heddle's (§7.3): the recall of the longest sessions, that is, which part of the
// longest are among as many that are predicted to be longest, and Pearson's correlation
// between what was predicted and what is true. Sessions with equal predictions are ranked at
// random, so their recall is an expectation. Intervals are of 95 %, by the bootstrap over groups.
//
// The baselines are a line through prompts and lengths, the mean of history, the tokens so far
// continued to the mean number of turns, and least squares on rota's own features, which is what
// rota would be if it did not remember examples.
//
// The trace has no groups, so siblings are evaluated on simulated sessions. They have a planted
// structure, see [Generate], and no figure from them says anything about real sessions.
package lengths
