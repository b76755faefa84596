// Package tracing makes the spans of an action: one action, one trace, from its client to its
// process.
//
// The context of a span travels as text, in the form of W3C Trace Context. It is in the
// specification of the action, which the log carries and the state machine does not read, and
// in what an agent is told of an attempt. So each process continues a trace without knowing
// those before it. Only the server that accepts an action begins a trace of its own, if its
// client has none.
//
// Spans are sent by the official SDK in the background. Its queue is bounded: spans that find it
// full are dropped, and nothing waits.
package tracing
