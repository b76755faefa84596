package server

import (
	"net"
	"net/http"
	"strings"
)

// refuseRebound turns away pages of other sites. Without TLS the port is on loopback, but a browser
// on this machine reaches it: a site may give its own name the address of this machine, and is then
// no other site to the browser (DNS rebinding). Such a request names a host that is not this
// machine. Only browsers are looked at: other programs choose the address themselves.
func (s *Server) refuseRebound(next http.Handler) http.Handler {
	if s.cfg.TLS.Enabled() {
		return next // the certificate is not one of the other site's name
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isBrowser(r) && !isThisMachine(r.Host) {
			http.Error(w, "a browser must name this server by localhost or a loopback address", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isBrowser reports whether a browser sent a request: they say so, and where a change comes from.
func isBrowser(r *http.Request) bool {
	return r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" || strings.HasPrefix(r.UserAgent(), "Mozilla/")
}

// isThisMachine reports whether a host, with a port or without, can be this machine only.
func isThisMachine(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	ip := net.ParseIP(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || ip != nil && ip.IsLoopback()
}
