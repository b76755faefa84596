// Package client is the Go client of rota.
//
// It exists because a correct caller of a replicated service does several
// things that are easy to get almost right:
//
//   - A call whose answer was lost has an unknown outcome. Submissions carry a
//     request ID and an expiry in log time, so that they can be repeated until
//     an answer arrives and still take effect once.
//   - Any server answers, but the leader answers soonest. The client sticks to
//     one server, follows the hint of where the leader is, and moves on when a
//     server fails.
//   - Submissions that are made at the same time travel together: what arrives
//     while one call is in flight goes into the next. There is no timer, so a
//     lone submission never waits.
//   - A cluster whose queue is full wants no more for a while. What one refusal says
//     holds for all submissions of the client: they wait together, and are sent in few
//     calls of which the servers refuse a small part.
//   - Watches and waits go on where they were after a server is lost, without
//     gaps or repetitions.
//
// Whether to repeat is decided by one rule. An error of rota carries an
// ErrorDetail, and is worth repeating if that has a retry delay; an error
// without one came from the network, and is worth repeating if the call is.
//
// The raw services are there too, for everything that has no method here. They
// go through the same choice of server and the same repetition.
package client
