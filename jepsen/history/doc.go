// Package history is what a run under faults leaves behind: the record that
// workloads, faults and observers write and that checkers read. It holds data
// only, so that every stage of the pipeline can be run again on a stored record.
//
// All times are nanoseconds of one monotonic clock, that of the process which
// runs the test, since the run began. Clocks of the servers never appear.
package history
