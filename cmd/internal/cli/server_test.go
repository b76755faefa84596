package cli

import (
	"testing"

	"rota/server/replica"
)

func TestLogStore(t *testing.T) {
	for name, want := range map[string]replica.StoreKind{"wal": replica.WAL, "boltdb": replica.BoltDB, "bolt": "", "": ""} {
		got, err := parseLogStore(name)
		if got != want || (err == nil) != (want != "") || err != nil && exitCode(err) != exitUsage {
			t.Errorf("--log-store %q: %q, %v", name, got, err)
		}
	}
}
