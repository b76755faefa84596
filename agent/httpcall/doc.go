// Package httpcall is what an action does that is an HTTP call instead of a
// command.
//
// The call is made by a process of its own, of the agent's binary, which the
// supervisor starts as it starts a command. So a call is at most once, killed
// with the lease and by its time limit, has its output read and its end
// journaled exactly as a command, and nothing of that is written twice.
//
// The call is handed over in a variable of the environment. Headers may hold
// secrets, and a command line is there for every user of the machine to read; an
// environment only for the same user and root. Other attempts may run as the same
// user, so the process makes itself unreadable to them as it starts. The variable stays below the
// 128 KiB that Linux has for one: an action has at most 64 KiB, in base64 88.
//
// A connection is used once, so that net/http never sends a request again by
// itself, as it does when a connection that was kept turns out to be closed.
//
// The agent's proxies, in HTTP_PROXY, HTTPS_PROXY and NO_PROXY, are used.
package httpcall
