// Package share divides a bounded number of things among the keys that ask for them, so that one
// key cannot hold them all. A key is an attempt, a caller, or whatever else must not crowd out
// its equals.
//
// The rule is the dynamic threshold of buffers that queues share (Choudhury and Hahne, "Dynamic
// queue length thresholds for shared-memory packet switches", IEEE/ACM Transactions on Networking
// 6(2), 1998): a key may hold no more than is left free. A key that is alone gets about half. The
// more keys there are, the less each gets. No number of keys and no share has to be configured.
package share
