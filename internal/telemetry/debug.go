package telemetry

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// Paths of Debug, beside those of net/http/pprof.
const (
	LogLevelPath = "/debug/log-level"
	LogsPath     = "/debug/logs"
	ConfigPath   = "/debug/config"
	StatePath    = "/debug/state"
	ProfilePath  = "/debug/pprof/"
)

// levelBytesMax is more than the longest name of a level.
const levelBytesMax = 16

// Debug is what operators may ask a process.
type Debug struct {
	Logger hclog.Logger
	// Recent may be nil: nothing is remembered.
	Recent *Recent
	// Settings are the flags that the process runs with. They name files of secrets and
	// contain none.
	Settings map[string]string
	// State describes the process; it becomes JSON.
	State func() any
}

// Handler serves everything under /debug/.
func (d Debug) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+LogLevelPath, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, d.Logger.GetLevel()) })
	mux.HandleFunc("PUT "+LogLevelPath, d.setLevel)
	mux.HandleFunc("GET "+LogsPath, func(w http.ResponseWriter, _ *http.Request) {
		if d.Recent != nil {
			_, _ = d.Recent.WriteTo(w)
		}
	})
	mux.HandleFunc("GET "+ConfigPath, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, d.Settings) })
	mux.HandleFunc("GET "+StatePath, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, d.State()) })
	mux.HandleFunc(ProfilePath, pprof.Index)
	mux.HandleFunc(ProfilePath+"cmdline", pprof.Cmdline)
	mux.HandleFunc(ProfilePath+"profile", pprof.Profile)
	mux.HandleFunc(ProfilePath+"symbol", pprof.Symbol)
	mux.HandleFunc(ProfilePath+"trace", pprof.Trace)
	return mux
}

// setLevel changes the level of the log and answers the one before.
func (d Debug) setLevel(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, levelBytesMax))
	level := hclog.LevelFromString(strings.TrimSpace(string(body)))
	if err != nil || level == hclog.NoLevel {
		http.Error(w, "the levels are trace, debug, info, warn and error", http.StatusBadRequest)
		return
	}
	before := d.Logger.GetLevel()
	d.Logger.SetLevel(level)
	// Even where the new level hides it from others.
	d.Logger.Log(max(level, hclog.Info), "an operator changed the level of the log", "from", before, "to", level)
	fmt.Fprintln(w, before)
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v)
}
