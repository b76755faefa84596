package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Version and Commit are set by the linker, see Makefile. Without it, Go says which
// commit was checked out, unless it was told not to.
var (
	Version = "0.1.0-dev"
	Commit  = ""
)

const unknownCommit = "unknown"

type versionInfo struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (a *app) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of this binary", Args: exactly(),
		Example: "  rota version -o json",
		RunE: func(*cobra.Command, []string) error {
			v := readVersion()
			return a.printValue(v, []string{"version", "commit", "go", "platform"},
				[][]string{{v.Version, v.Commit, v.Go, v.Platform}})
		},
	}
}

func readVersion() versionInfo {
	v := versionInfo{Version: Version, Commit: cmp.Or(Commit, unknownCommit), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			if Commit == "" {
				v.Commit = s.Value[:min(12, len(s.Value))]
			}
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func (v versionInfo) text() string {
	return fmt.Sprintf("rota %s, commit %s, %s, %s", v.Version, v.Commit, v.Go, v.Platform)
}
