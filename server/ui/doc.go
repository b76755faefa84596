// Package ui is the web page of a server: what the cluster does now, for people.
//
// The page shows and changes nothing. It has no data of its own: each part of it calls the
// server's own API in the same process, with the certificate or the token of whoever looks, so it
// shows what that caller may read and no more. Only the numbers of the charts are sampled beside it,
// for those who may read all actions and trajectories.
//
// A browser without a certificate logs in with a token. Its cookie is a random name for a session in
// the memory of this server, so that the token is neither in the browser nor on a disk, and a session
// ends with the process. The API itself looks at no cookie, so a page of another site gets nothing
// from it.
//
// It is html/template with htmx, an extension of htmx for server-sent events, and uPlot for
// charts, embedded and served from the server itself: there is no build step, nothing comes from
// elsewhere, and the content security policy allows no script but these files. Reads are stale
// ones, so the page also works on a server that has lost its leader.
package ui
