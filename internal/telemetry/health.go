package telemetry

import (
	"encoding/json"
	"net/http"
)

// Check is one condition of being ready.
type Check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Reason says why it does not hold, and what to do.
	Reason string `json:"reason,omitempty"`
}

// Require is a check that holds or does not, for a reason.
func Require(name string, ok bool, reason string) Check {
	if ok {
		reason = ""
	}
	return Check{name, ok, reason}
}

// Health is the answer of /readyz and /livez.
type Health struct {
	OK     bool    `json:"ok"`
	Checks []Check `json:"checks"`
}

// HealthHandler answers 200 if all checks hold and 503 if not, with all of them as JSON.
func HealthHandler(checks func() []Check) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := Health{OK: true, Checks: checks()}
		for _, c := range h.Checks {
			h.OK = h.OK && c.OK
		}
		w.Header().Set("Content-Type", "application/json")
		if !h.OK {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(h)
	})
}

// Alive are the checks of a process that answers at all: none.
func Alive() []Check { return []Check{} }
