// Package e2b lets programs that were written for E2B use rota: their SDK works when its URLs and
// its key are those of a rota server.
//
// A sandbox of E2B is a trajectory: its directory lasts, and its processes are actions in it, so
// they are queued, given cores, limited and logged like all others. The package has no state of
// its own but the watchers that it was asked for. Like the web page, it calls the server's own
// API in the same process with the identity of the caller, so nobody gets a right in this way.
//
// E2B has two interfaces: a REST API for the sandboxes, and "envd" in each sandbox, which has
// Connect services for processes and directories, and HTTP for the content of files. A cluster
// has one address, so requests for an envd say which sandbox they mean by a header, which the SDK
// sends, or by the name of the host, PORT-SANDBOX.DOMAIN. docs/e2b.md lists what works.
package e2b
