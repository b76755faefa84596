// Package workload makes the workloads of the paper's evaluation (ARL-Tangram,
// arXiv:2603.13019, §6): AI coding, MOPD, DeepSearch, and the last two at once.
// What a scheduler makes of them is measured elsewhere; nothing here knows a
// policy, and the parameters were written down before any ran.
package workload
