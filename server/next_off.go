//go:build !nextlevel

package server

import "net/http"

// nextRoutes adds what a build for the fault suite has beyond the newest feature level;
// see next.go.
func (s *Server) nextRoutes(*http.ServeMux) {}
