// Package removal removes the trees of files that commands leave behind.
//
// An agent without root cannot empty a directory that its own commands have made read-only, as Go
// does with its cache of modules: what cannot be removed is opened up first. And
// commands may nest directories deeper than a process may have files open: the removal of such a tree
// must not take all descriptors of the agent.
package removal
