// Package workload makes the workloads of the paper's evaluation (ARL-Tangram,
// arXiv:2603.13019, §6): AI coding, MOPD, DeepSearch, and the last two at once.
// What a scheduler makes of them is measured elsewhere; nothing here knows a
// policy, and the parameters were written down before any ran.
//
// # Where the numbers are from
//
// Each workload is a file in params. Each number in it is a figure: a value and
// its source, without which a file is refused. [Figures] lists them. A source
// begins with
//
//   - "paper": a section of ARL-Tangram that states the number;
//   - "RollArt", "Heddle", "Kubernetes", "GPT-OSS": another publication that
//     states it (RollArt Table 1 has turns, Heddle Table 1 the means of tool
//     calls);
//   - "trace": quantiles of a public trace, embedded as a table. rollouts.csv is
//     a subset of callanjfox/kv-cache-tester (Apache-2.0), model_load.csv of
//     alibaba/clusterdata cluster-trace-v2026-GenAI;
//   - "derived from": computed from numbers that are stated, see below;
//   - "assumed because": a guess, with its reason. Sweeps move those that matter.
//
// # What is derived
//
// AI coding. Figure 7 of the paper says that the environment became 9.0 times
// faster, the reward 2.8 times and both together 4.3 times. With e and r as
// their times under ARL-Tangram, 9.0e + 2.8r = 4.3(e + r): the reward has 76 %
// of them. Table 1 has 0.975 + 0.015 + 0.024 = 1.014 for an action at batch
// 1280, which is read as seconds. With 40 turns and a reward, 41.6 s per
// trajectory, the reward takes 31.5 s and a tool call 0.21 s; in a single
// process, 2.8 times as much, the reward takes 88 s. The serial fraction follows
// from Figure 9, where batch 256 on 1,280 cores queues nowhere: DoP 4 was
// 2.0 times slower than up to 32. That all actions count and each has its share
// of overhead gives 0.07. How long the model thinks has the shape of the trace
// and a mean such that actions at one core take 47 % of a trajectory's life
// (§2.3).
//
// MOPD. Table 1 has 0.621 s per action at batch 2048, which is read as the time
// at TP 4: 2 s on one GPU.
//
// # What does not fit
//
// The text of the paper has no axes of its figures, and three of its numbers do
// not agree with the rest of this model:
//
//   - Figure 8(a) has 3.1x over pods at batch 128, where nothing queues. Amdahl's
//     law with rewards in a single process and Figure 9's serial fraction makes
//     it more than 5x. Either pods ran tests in parallel or the fraction is about
//     0.2, which Figure 9 excludes.
//   - 9.0x for the environment at batch 1280 cannot come from cores: 1,280 pods
//     that work for half of their lives keep 600 of 1,280 cores busy, if a tool
//     keeps one. With wider tools it can; see [Params.SetToolWidth].
//   - The 47 % may have been measured in a cluster where actions waited. Then
//     the model thinks for longer than here, and the load is lower.
//
// # Chance
//
// Draws are keyed as in package sim: by what is drawn and for whom. A larger
// batch has the same first trajectories, more turns the same first turns, and
// another serial fraction changes nothing but curves. Distributions are tables
// of quantiles, log-normal ones too, and everything is computed in integers, so
// a seed gives the same workload on every machine.
package workload
