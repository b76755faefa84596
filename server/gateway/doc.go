// Package gateway is the OpenAI-compatible front of rollout workers. Agent loops talk to it as
// if it were one engine; it sends each request to the worker that the cluster has assigned to
// the request's trajectory, with the priority that the cluster has given it.
//
// A gateway decides nothing and stores nothing. It follows routes with a watch and goes on with
// the last ones while no server answers, so any number of gateways may run, and one that is
// killed costs the requests that it had under way, nothing else.
//
// It reads as little as it can. A body is scanned once for the few keys that matter; these are
// edited in place, and every other byte passes through. Connections to workers are its own
// (conn.go): one goroutine serves a request from its first byte to its last, which costs less
// than the hand-over between goroutines inside a general HTTP client.
//
// What clients were sent is remembered for as long as a request runs, because a worker may fail
// or be needed for something else. The request then goes on at another worker behind what was
// already generated, and the client sees one stream (generation.go). Where that cannot be done
// without a guess, the client gets an error and decides itself.
package gateway
