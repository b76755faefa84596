package cli

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rota/agent"
	"rota/agent/tier"
	"rota/agent/tier/kvfs"
	"rota/agent/tier/resp"
)

// tierStatMax is how long a cache may take to say how it is.
const tierStatMax = 10 * time.Second

// kvFlags are the flags of an agent about its KV cache.
type kvFlags struct {
	memory, diskSize, rate            size
	disk, listen, files, passwordFile string
}

func (f *kvFlags) addTo(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.Var(&f.memory, "kv-memory", "memory of the KV cache, such as 4GiB, which the node then does not offer; 0: no KV cache")
	fs.StringVar(&f.disk, "kv-disk", "", "folder of the KV cache's disk tier (default: memory only)")
	fs.Var(&f.diskSize, "kv-disk-size", "maximum size of the KV cache's disk tier, such as 100GiB; needed with --kv-disk")
	fs.StringVar(&f.listen, "kv-listen", agent.DefaultKVListen, "address of the KV cache for Redis clients: loopback or unix:/path")
	fs.StringVar(&f.files, "kv-files", "", "directory whose files are the values of the KV cache, for SGLang HiCache; needs root and FUSE (default: none)")
	fs.StringVar(&f.passwordFile, "kv-password-file", "", "file with the password that clients of the KV cache need (default: no password)")
	fs.Var(&f.rate, "kv-migration-rate", "maximum rate of copies from other nodes' KV caches in bytes a second, such as 1GiB; 0: no limit")
}

func (f *kvFlags) apply(cfg *agent.Config) (err error) {
	cfg.KV = agent.KV{MemoryBytes: uint64(f.memory), Dir: f.disk, DiskBytes: uint64(f.diskSize), Listen: f.listen, Files: f.files, MigrationBytesPerSecond: uint64(f.rate)}
	cfg.KV.Password, err = readPassword("--kv-password-file", f.passwordFile)
	return err
}

// readPassword reads the only line of a file; no file, no password.
func readPassword(flag, path string) (string, error) {
	if path == "" {
		return "", nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", usageErrorf("%s: %w", flag, err)
	}
	password := strings.TrimSpace(string(b))
	if password == "" {
		return "", usageErrorf("%s: %s is empty; write a password into it", flag, path)
	}
	return password, nil
}

// guardCmd is started by agents that serve their KV cache as files.
func (a *app) guardCmd() *cobra.Command {
	return &cobra.Command{
		Use: kvfs.GuardCommand, Short: "Unmount the files of a KV cache when their agent has died", Hidden: true, DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageErrorf("%s takes the directory", kvfs.GuardCommand)
			}
			return kvfs.Guard(args[0], os.Stdin, os.Stdout)
		},
	}
}

func (a *app) tierCmd() *cobra.Command {
	return group("tier", "See the KV cache of this node", a.tierStatCmd())
}

func (a *app) tierStatCmd() *cobra.Command {
	var address, passwordFile string
	cmd := &cobra.Command{
		Use: "stat", Short: "Show what the KV cache holds and how often it is hit", Args: exactly(),
		Long: `Asks the KV cache of the agent on this machine. Each tier has a line with its bytes, its
values and its hits. Below are the misses, how often values are stored once for several keys,
and copies that did not match their checksum. Counts start when the agent starts.`,
		Example: "  rota tier stat\n  rota tier stat --address unix:/run/rota/kv.sock",
		RunE: func(cmd *cobra.Command, _ []string) error {
			password, err := readPassword("--password-file", passwordFile)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), tierStatMax)
			defer cancel()
			fields, err := resp.Info(ctx, address, password)
			if err != nil {
				return fmt.Errorf("KV cache at %s: %w; is an agent with --kv-memory running there?", address, err)
			}
			return a.printTier(readTier(fields))
		},
	}
	cmd.Flags().StringVar(&address, "address", agent.DefaultKVListen, "address of the KV cache: HOST:PORT or unix:/path")
	cmd.Flags().StringVar(&passwordFile, "password-file", "", "file with the password of the KV cache (default: no password)")
	return cmd
}

// tierStat is what `rota tier stat` prints.
type tierStat struct {
	Keys         uint64   `json:"keys"`
	Memory       tierLine `json:"memory"`
	Disk         tierLine `json:"disk"`
	DiskState    string   `json:"disk_state"`
	DiskWhy      string   `json:"disk_why,omitempty"`
	DirectIO     bool     `json:"direct_io"`
	LogicalBytes uint64   `json:"logical_bytes"`
	UniqueBytes  uint64   `json:"unique_bytes"`
	// DedupeRatio is logical by unique bytes: 2 if every value has two keys.
	DedupeRatio float64 `json:"dedupe_ratio"`
	Misses      uint64  `json:"misses"`
	Evicted     uint64  `json:"evicted"`
	Expired     uint64  `json:"expired"`
	Corrupt     uint64  `json:"corrupt"`
	Lost        uint64  `json:"lost"`
	// Files is the directory of --kv-files; empty without it.
	Files        string `json:"files,omitempty"`
	FilesMounted bool   `json:"files_mounted,omitempty"`
}

type tierLine struct {
	Bytes    uint64 `json:"bytes"`
	BytesMax uint64 `json:"bytes_max"`
	Items    uint64 `json:"items"`
	Hits     uint64 `json:"hits"`
}

// readTier reads the fields that the cache answers with. One that is not there is 0.
func readTier(fields map[string]string) tierStat {
	n := func(name string) uint64 {
		v, _ := strconv.ParseUint(fields[name], 10, 64)
		return v
	}
	st := tierStat{
		Keys:      n("keys"),
		Memory:    tierLine{n("memory_bytes"), n("memory_bytes_max"), n("memory_items"), n("memory_hits")},
		Disk:      tierLine{n("disk_bytes"), n("disk_bytes_max"), n("disk_items"), n("disk_hits")},
		DiskState: fields["disk"], DiskWhy: fields["disk_why"], DirectIO: fields["disk_direct"] == "true",
		LogicalBytes: n("logical_bytes"), UniqueBytes: n("unique_bytes"), DedupeRatio: 1,
		Misses: n("misses"), Evicted: n("evicted"), Expired: n("expired"), Corrupt: n("corrupt"), Lost: n("lost"),
		Files: fields["files_directory"], FilesMounted: fields["files_mounted"] == "true",
	}
	if st.UniqueBytes > 0 {
		st.DedupeRatio = float64(st.LogicalBytes) / float64(st.UniqueBytes)
	}
	return st
}

func (a *app) printTier(st tierStat) error {
	if a.json() {
		return writeJSON(a.out, st)
	}
	row := func(name string, l tierLine) []string {
		return []string{name, formatSize(l.Bytes), formatSize(l.BytesMax), fmt.Sprint(l.Items), fmt.Sprint(l.Hits)}
	}
	rows := [][]string{row("memory", st.Memory)}
	if st.DiskState != tier.DiskNone {
		rows = append(rows, row("disk", st.Disk))
	}
	writeTable(a.out, []string{"tier", "used", "limit", "values", "hits"}, rows)
	disk := st.DiskState
	if disk == tier.DiskWorks && st.DirectIO {
		disk += ", with direct I/O"
	}
	if st.DiskWhy != "" {
		disk += ": " + st.DiskWhy
	}
	fmt.Fprintln(a.out)
	return a.printFields(nil, append([]field{
		{"Keys", fmt.Sprint(st.Keys)}, {"Disk", disk},
		{"Deduplication", fmt.Sprintf("%.2f (%s of values, %s stored)", st.DedupeRatio, formatSize(st.LogicalBytes), formatSize(st.UniqueBytes))},
		{"Misses", fmt.Sprint(st.Misses)}, {"Evicted", fmt.Sprint(st.Evicted)}, {"Expired", fmt.Sprint(st.Expired)},
		{"Corrupt", fmt.Sprint(st.Corrupt)}, {"Lost", fmt.Sprint(st.Lost)},
	}, st.filesField()...))
}

// filesField says where the cache can be used as files; nothing without --kv-files.
func (st tierStat) filesField() []field {
	switch {
	case st.Files == "":
		return nil
	case st.FilesMounted:
		return []field{{"Files", st.Files}}
	}
	return []field{{"Files", st.Files + ", not mounted; the log of the agent says why"}}
}
