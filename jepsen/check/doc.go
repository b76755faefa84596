// Package check decides from the record of a run whether every promise was kept.
//
// Each checker holds one promise against what was seen from outside: calls and
// their answers, executions as the witness saw them, events of watchers, samples
// of servers, and the logs that the servers left behind. None of them trusts the
// servers to know what happened: the log is replayed here, by a state machine
// and beside a model of our own.
//
// Two ways to be wrong decide how they are written. A checker that cries wolf
// hides the wolf: a call without an answer may have happened or not, a row that
// retention has dropped is not lost, two times that were taken by different
// goroutines are compared with a tolerance. And a checker that had nothing to
// look at has proved nothing: each says how much it looked at, and none at all
// fails the run unless its scenario says why that checker does not apply.
package check
