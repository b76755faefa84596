package cli

import (
	"bytes"
	"strings"
	"testing"
)

// What cannot work is refused before anything listens.
func TestAGatewayRefusesUnsafeFlags(t *testing.T) {
	for want, args := range map[string][]string{
		"needs TLS and a check":      {"--listen", "0.0.0.0:0"},
		`unknown --unassigned "any"`: {"--unassigned", "any"},
		"--wait is 0s":               {"--wait", "0s"},
		"--requests-max":             {"--requests-max", "0"},
		`unknown --log-level "loud"`: {"--log-level", "loud"},
		"needs its key":              {"--tls-cert", "cert.pem"},
		"at least twice as large":    {"--body-max", "1GiB", "--bytes-max", "1MiB"},
		`"nowhere" is not host:port`: {"--addr", "nowhere"},
	} {
		var out bytes.Buffer
		root := (&app{out: &out, err: &out}).root()
		root.SetArgs(append([]string{"gateway", "--listen", "127.0.0.1:0"}, args...))
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", args, err, want)
		}
	}
}
