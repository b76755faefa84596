package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestFlagsOfHideWhatURLsSay: operators see the flags of a process, and no password in them.
func TestFlagsOfHideWhatURLsSay(t *testing.T) {
	cmd := &cobra.Command{}
	fs := cmd.Flags()
	for name, value := range map[string]string{
		"plain": "127.0.0.1:7400", "url": "http://127.0.0.1:4318/v1/traces",
		"user": "https://me:se,cret@traces.example:4318/x@y", "query": "https://traces.example/v1?key=secret#top",
	} {
		fs.String(name, value, "")
	}
	fs.StringSlice("list", []string{"http://a.example:1", "http://me:secret@b.example"}, "")
	got := flagsOf(cmd)
	for name, want := range map[string]string{
		"plain": "127.0.0.1:7400", "url": "http://127.0.0.1:4318/v1/traces",
		"user": "https://HIDDEN@traces.example:4318/x@y", "query": "https://traces.example/v1?HIDDEN#top",
		"list": "[http://a.example:1,http://HIDDEN@b.example]",
	} {
		if got[name] != want {
			t.Errorf("--%s is shown as %q, want %q", name, got[name], want)
		}
	}
}

// TestAWrongEndpointOfTracesIsNotRepeated: it may have a password.
func TestAWrongEndpointOfTracesIsNotRepeated(t *testing.T) {
	for _, endpoint := range []string{"ftp://me:secret@traces.example", "http://me:secret@[::1"} {
		_, err := (&processFlags{otlp: endpoint}).tracer("rota", "s1", nil)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v", err)
		}
	}
}
