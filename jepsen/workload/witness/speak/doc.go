// Package speak is how processes under test talk to the witness: over a connection that the
// kernel closes when the last process that holds it is gone. It uses bare file descriptors,
// so that nothing but the end of the process, or its own will, closes one.
package speak
