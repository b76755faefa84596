// Package process runs servers and agents as children of one parent, such that
// they can be killed, paused and started again like those of a real cluster.
//
// Children die with their parent, however it ends: each is started with a
// parent death signal. That signal is tied to the thread that forked, so all
// children are forked by one thread that lives as long as the process. That
// thread also is the one that visits other network namespaces: a child begins
// in the namespace in which its parent's thread was.
package process
