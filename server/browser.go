package server

import (
	"net"
	"net/http"
	"strings"

	"rota/api/httpx"
	"rota/fsm/state"
)

// refuseRebound turns away pages of other sites. Without TLS the port is on loopback, but a browser
// on this machine reaches it: a site may give its own name the address of this machine, and is then
// no other site to the browser (DNS rebinding). Such a request names a host that is not this
// machine.
//
// A page can make a browser not say that it is one: Firefox lets it choose the User-Agent, and
// sends nothing else with a GET to the page's own site. So until tokens are in use, which such a
// page does not have, no program may use a name that a site can have. Other programs choose the
// address themselves.
func (s *Server) refuseRebound(next http.Handler) http.Handler {
	if s.cfg.TLS.Enabled() {
		return next // the certificate is not one of the other site's name
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isBrowser(r) && !isThisMachine(r.Host) {
			http.Error(w, "a browser must name this server by localhost or a loopback address", http.StatusForbidden)
			return
		}
		if s.couldBeSite(r.Host) && !s.tokensInUse() {
			http.Error(w, "without TLS and tokens, name this server by localhost, by an address, or by the one that it advertises", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isBrowser reports whether a browser sent a request: they say so, and where a change comes from.
func isBrowser(r *http.Request) bool {
	return r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" || strings.HasPrefix(r.UserAgent(), "Mozilla/")
}

// couldBeSite reports whether a host can be the name of a site: it has a dot, and is neither this
// machine, nor an address, nor what the server advertises.
func (s *Server) couldBeSite(host string) bool {
	name := hostname(host)
	return strings.Contains(name, ".") && net.ParseIP(name) == nil && !isThisMachine(host) && name != hostname(s.cfg.Advertise)
}

// tokensInUse reports whether calls without a token are refused, as far as this server knows.
func (s *Server) tokensInUse() (yes bool) {
	if s.machine != nil {
		s.machine.View(func(st *state.State) { yes = st.Meta().AccessEnabled })
	}
	return yes
}

// hostname is a host without its port.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.Trim(host, "[]"))
}

// isThisMachine reports whether a host, with a port or without, can be this machine only.
func isThisMachine(host string) bool {
	host = hostname(host)
	return httpx.OnLoopback(host) || strings.HasSuffix(host, ".localhost")
}
