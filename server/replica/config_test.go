package replica

import (
	"strings"
	"testing"
	"time"
)

func TestConfigurationsThatAreNotSafeAreRefused(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*Config)
		refused string
	}{
		{"defaults", func(*Config) {}, ""},
		{"no directory", func(c *Config) { c.Dir = "" }, "Dir"},
		{"as many entries kept as two snapshots span", func(c *Config) { c.SnapshotThreshold, c.TrailingLogs = 10, 20 }, "TrailingLogs"},
		{"one more", func(c *Config) { c.SnapshotThreshold, c.TrailingLogs = 10, 21 }, ""},
		{"fewer entries kept than the default threshold needs", func(c *Config) { c.TrailingLogs = 100 }, "TrailingLogs"},
		{"a disk that may take no time", func(c *Config) { c.DiskHangLimit = time.Millisecond }, "DiskHangLimit"},
		{"a disk that may take less", func(c *Config) { c.DiskHangLimit = -time.Second }, "DiskHangLimit"},
	} {
		cfg := Config{ServerID: "s1", Dir: "d", Address: "127.0.0.1:1", Machine: &machine{}, Stream: &stream{}, Exit: func(error) {}}
		c.change(&cfg)
		cfg.setDefaults()
		err := cfg.validate()
		if (err != nil) != (c.refused != "") || err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
