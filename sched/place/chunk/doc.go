// Package chunk answers where on the GPUs: which aligned run of which node, and
// what has to leave its memory first.
//
// It is the GPU manager of ARL-Tangram (§5.3 and appendix B): chunks of 1, 2, 4 or
// 8 GPUs at aligned starts, split and merged like buddies; residents that stay
// where they were used last until others need the memory; and the DP operator that
// lets one arrangement algorithm, which knows nothing of GPUs, choose degrees of
// parallelism that can all be placed.
//
// # Chunks are derived
//
// The state of the allocator is one bit per GPU. Free chunks are the maximal
// aligned runs of these bits, found with a few shifts and masks, so there is no
// list of chunks that could disagree with the bits and no merge that could be
// missed. Nodes need not have 8 GPUs: one with 6 has a chunk of 4 and one of 2.
//
// # One task, one chunk
//
// The printed Prev of Algorithm 4 takes k GPUs from any chunks, larger ones first,
// until k is reached. That contradicts the rest of the paper, and rota does not do
// it. Section 5.3 calls a legal allocation one aligned interval, and tensor
// parallelism needs it: each layer ends in a collective among all its GPUs, which
// is as slow as the slowest link between any two, and counts by level do not even
// say on which node a chunk is; 8 GPUs as 4+2+1+1 may be four machines. The printed
// operator also never splits: with one free chunk of 8 it has no room for a task
// of 1, although the text above it says "allowing chunk splitting". Here a task
// takes one chunk, cut from a larger one if need be.
//
// # Why the smallest chunk that suffices
//
// For free counts n let S(l) be the sum over b >= l of n(b) * 2^(b-l): how many
// chunks of level l could be cut. Taking a chunk of level a from a free one of
// level b >= a lowers S(l) by 2^(a-l) for l <= a, by 1 for a < l <= b, and not
// otherwise. Call a state better than another if no S(l) is smaller.
//
// Lemma: taking from the smallest b that suffices, in the better of two states,
// leaves a state that is better than what any choice leaves in the other. If the
// better state S takes from level b and the other, T, from c >= b, this is plain.
// If c < b, then S has no chunk of levels a to b-1, so S(l) = 2*S(l+1) there, while
// T(c) >= 2*T(c+1) + 1. From S(c) >= T(c) follows S(c+1) > T(c+1), being integers,
// and with S(l) = 2*S(l+1) and T(l) >= 2*T(l+1) the same up to S(b) > T(b). So the 1
// that S loses above T at levels c+1 to b is there to lose.
//
// Hence, for whatever requests in whatever order:
//
//   - If any placement exists, this one finds it. The operator is exact: a state it
//     reaches can be realised, by doing the same to the bits, and one that cannot
//     be reached from the full state by it cannot be needed.
//   - What is left depends only on how many chunks of each level were taken: both
//     of two orders are at least as good as the other. So a DP may serve the tasks
//     in any order, and one table answers all prefixes of them.
//   - All fit if and only if at each level l the requests of level l and above,
//     measured in chunks of level l, are at most S(l). That is Counts.Fits, and it
//     is how a resident chunk of a larger free one can be preferred without
//     breaking what was promised to others (Request.Rest).
//
// Not every tuple of the mixed radix is a state of a cluster: a node of 8 has at
// most 4 free chunks of 1. Only those that are reached from real counts are.
//
// # How many states
//
// A chunk is split only when no smaller one suffices, which leaves one of each
// level between. So there are never more chunks of a level than at first, or one,
// and that is the radix, not how many could be cut. Five empty nodes of 8 have
// 2*2*2*6 = 48 states, 256 of them 2,056; with every chunk that could be cut as the
// radix they were 56,826 and 277 billion.
//
// Chunks that the tasks cannot use are clipped: S(l) to what all of them take at
// their most, and counts to one per task that can touch the level. This changes no
// answer. Measured on nodes of 8 after a while of allocations of all sizes
// (TestStates), with tasks that can use any degree:
//
//	GPUs    taken    8 tasks   16 tasks   32 tasks   128 tasks
//	   40   0-90 %      6-48       6-48       6-48        6-48
//	2,048      0 %        72        136        264       1,032
//	2,048     25 %        72        136        264       1,032
//	2,048     50 %        72        136        264     140,300
//	2,048     75 %        72        136        264      22,356
//	2,048     90 %        72        136     16,800      16,800
//
// So a pool of the size that the paper measures needs no bound, nor does one with
// more large chunks than the tasks can take. The most that 128 tasks can make is 55
// million, with 1,024 free GPUs in 128, 128, 80 and 40 chunks. Where all levels matter and are many,
// NewOperator hides chunks until a limit is met, small ones
// of rare levels first, since they save most states for their GPUs; by the lemma it
// is never wrong to be told of fewer chunks, only less good. Measured against the exact
// optimum of 15,000 to 22,000 states (TestWhatFewerStatesCost), the sum of durations is
// longer by 0.3 to 4.0 % where chunks are hidden until 4,096 states are left, and by 0.7
// to 11.7 % with 1,024.
//
// A DP per node, as the paper has it for cores, would need only 48 states or
// fewer at any size, but then it must be known beforehand which task goes to which
// node, and tasks are not bound to one here.
//
// # Residents
//
// A resident variant comes first, then the chunk with the cheapest evictions, then the
// smallest free chunk that suffices. All parts of a free chunk are compared,
// not only its first: in an idle cluster, where whole nodes are free, an allocator
// that always cuts the first part would load every model over the last.
//
// What an eviction costs is the caller's (Resident.Worth). Where nothing has a worth, the
// least recently used goes first, of the parts of the smallest chunk that suffices (LRU). A
// worth that grows with the set-up and the uses, beyond an age that grows with what is evicted,
// is GreedyDual (Young 1994; Cao and Irani 1997) with frequency (Cherkasova 1998). Looking for the
// cheapest eviction in all chunks matters more than the worths themselves, as single free GPUs
// between taken ones are few: the smallest chunk that suffices is often the one GPU that was
// given back last. The promises of Request.Rest are kept as for residents.
//
// The paper takes the smallest level first and looks for a resident among chunks
// of that. Served first come, first served with 10 models of all degrees that run
// for 5 s each (TestResidentFirst), a set-up of 5 s and a load of 20 %, the mean
// time to completion is 6.2 s here and 7.9 s there on 40 GPUs, 5.4 s and 7.4 s on
// 128. With a set-up of 0.5 s and a load of 70 % on 40 GPUs it is 7.6 s here and
// 7.4 s there: then what is split for a resident delays an action that needs a whole node,
// unless it is counted in Request.Rest.
package chunk
