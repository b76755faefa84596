// Package chunks decides what becomes of the engines of one node: which one starts, wakes,
// falls asleep or stops next, and in which order.
//
// It is evict-on-execution (ARL-Tangram §5.3) as one node sees it. The cluster says which
// engines should be ready. An engine gets GPU memory only when the engines that leave have
// confirmed that they hold none. So the memory of the engines that are awake never exceeds
// that of a GPU. A healthy engine that an attempt uses is never touched.
//
// Everything is decided here and done elsewhere. Chunks is told what is desired and what
// came of its steps. Next takes the time and returns the steps that are due. There is no
// clock, goroutine, lock, file or socket.
package chunks
