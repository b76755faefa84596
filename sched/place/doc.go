// Package place answers where: which node, and which of its cores.
//
// A trajectory goes to the usable node with the most free memory, as ARL-Tangram
// balances it (§5, CPU Manager), and stays there. An action without one goes to
// the node with the most free cores that also has the memory. Cores are
// exclusive and come from one NUMA node where one has enough.
package place
