// Package sim is a world in which the real state machine can be driven much
// faster than time passes: a virtual clock, a model of the log, replicas of
// fsm.Machine that apply it at their own pace, and nodes with agents.
//
// The world is one goroutine. What happens is an event at a virtual time; equal
// times are told apart by the order in which the events were scheduled. Chance
// is drawn by who asks and when, not from one stream, so that an event which is
// taken out of a run leaves the luck of all others as it was: that is what makes
// a failing run shrink.
//
// An agent here does what package agent/plan decides, as package agent does, but
// without sockets, files and processes. Everything of the servers is handed in, so
// that a test can put the real thing there.
package sim
