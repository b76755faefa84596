// Package ui is the web page of a server: what the cluster does now, for people.
//
// The page shows and changes nothing. It has no data of its own: each part of it calls the
// server's own API in the same process, with the certificate of whoever looks, so it shows what
// that caller may read and no more. Only the numbers of the charts are sampled beside it.
//
// It is html/template with htmx, an extension of htmx for server-sent events, and uPlot for
// charts, embedded and served from the server itself: there is no build step, nothing comes from
// elsewhere, and the content security policy allows no script but these files. Reads are stale
// ones, so the page also works on a server that has lost its leader.
package ui
