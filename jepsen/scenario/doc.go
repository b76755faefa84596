// Package scenario runs a cluster of real processes under a load and faults, and
// puts what happened before the checkers.
//
// A run goes through the same stages whatever its scenario: start, warm up,
// faults one after the other in an order that the seed decides, settle, stop,
// collect, check, report. The load goes on until the last fault is over;
// watchers and observers go on until everything has settled, so that they see
// the end of all that they have seen begin.
//
// A new capability adds its workload to workload.All, so that it is part
// of every scenario, and its faults to a scenario in catalog.go.
package scenario
