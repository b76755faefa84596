//go:build nextlevel

package server

import (
	"encoding/json"
	"net/http"

	"rota/fsm"
	"rota/fsm/state"
)

// nextRoutes adds the call of the next feature level, which only the fault suite makes:
// POST puts a note through the log, GET returns those of this server's state.
func (s *Server) nextRoutes(mux *http.ServeMux) {
	mux.HandleFunc("POST /next/notes", func(w http.ResponseWriter, r *http.Request) {
		results, err := s.replica.Propose(r.Context(), fsm.PutNote(r.FormValue("name"), r.FormValue("text")))
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case results[0].Refusal != nil:
			http.Error(w, results[0].Refusal.Reason+": "+results[0].Refusal.Message, http.StatusPreconditionFailed)
		}
	})
	mux.HandleFunc("GET /next/notes", func(w http.ResponseWriter, _ *http.Request) {
		notes := map[string]string{}
		s.machine.View(func(st *state.State) {
			for _, n := range st.Notes() {
				notes[n.Name] = n.Text
			}
		})
		_ = json.NewEncoder(w).Encode(notes) // the caller is gone
	})
}
