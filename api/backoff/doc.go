// Package backoff says when to try again: later each time, and at random, so that
// callers who failed together do not come back together. Clients, agents and tests
// share it.
package backoff
