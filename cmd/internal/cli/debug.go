package cli

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	rotav1 "rota/api/gen/rota/v1"
	"rota/internal/telemetry"
)

// bundle is an archive for those who look into a problem.
type bundle struct {
	tar *tar.Writer
	now time.Time
	// files and failed are what is in it, and what could not be had.
	files  []bundleFile
	failed map[string]string
}

type bundleFile struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
	What  string `json:"what"`
}

func (b *bundle) add(name, what string, data []byte) error {
	b.files = append(b.files, bundleFile{name, len(data), what})
	err := b.tar.WriteHeader(&tar.Header{Name: "rota-debug/" + name, Mode: 0o600, Size: int64(len(data)), ModTime: b.now})
	if err == nil {
		_, err = b.tar.Write(data)
	}
	return err
}

// part is a file that each process gives.
type bundlePart struct{ name, path, what string }

var bundleParts = []bundlePart{
	{"readyz.json", "/readyz", "whether the process is ready, and why not"},
	{"metrics.txt", "/metrics", "metrics"},
	{"state.json", telemetry.StatePath, "Raft state of a server, or attempts and lease of an agent, in numbers"},
	{"config.json", telemetry.ConfigPath, "flags that the process runs with"},
	{"log.txt", telemetry.LogsPath, "newest lines of the log"},
	{"heap.pprof", telemetry.ProfilePath + "heap", "profile of memory"},
	{"goroutines.txt", telemetry.ProfilePath + "goroutine?debug=2", "stacks of goroutines"},
}

func (a *app) debugCmd() *cobra.Command {
	var file string
	var agents []string
	var cpu time.Duration
	cmd := &cobra.Command{
		Use: "debug", Short: "Collect profiles, metrics, logs and Raft state of all servers into one archive", Args: exactly(),
		Long: `Asks the servers at --addr, all other servers that they know, and the --agents for what helps
to find a problem, and writes it into one archive. What does not answer is left out and
named in the archive. The archive has a manifest of its files.

The archive contains no keys and no certificates: flags name their files. It contains no
commands, environments and outputs of actions. Logs can contain names and error messages.
The command needs the role operator.`,
		Example: "  rota operator debug --file rota-debug.tgz\n  rota operator debug --file rota-debug.tgz --agents 10.0.0.9:7412 --cpu 10s",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cpu < 0 || cpu > time.Minute {
				return usageErrorf("--cpu is %v; give at most 1m", cpu)
			}
			return a.debug(cmd.Context(), file, agents, cpu)
		},
	}
	cmd.Flags().StringVar(&file, "file", "rota-debug.tgz", "archive to write")
	cmd.Flags().StringSliceVar(&agents, "agents", nil, "addresses of --metrics ports of agents to ask as well")
	cmd.Flags().DurationVar(&cpu, "cpu", 2*time.Second, "how long to profile the CPU use of each process, one after the other; 0: not")
	return cmd
}

func (a *app) debug(ctx context.Context, file string, agents []string, cpu time.Duration) (err error) {
	servers, err := splitAddrs(a.settings.addr)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("%w; name another --file", err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = os.Remove(file)
		}
	}()
	zip := gzip.NewWriter(f)
	b := &bundle{tar: tar.NewWriter(zip), now: time.Now(), failed: map[string]string{}}
	known, err := a.bundleCluster(ctx, b, servers)
	if err != nil {
		return err
	}
	answered := 0
	for _, addr := range slices.Concat(known, agents) {
		ok, err := a.bundleProcess(ctx, b, addr, cpu)
		if err != nil {
			return err
		}
		if ok {
			answered++
		}
	}
	if answered == 0 {
		return &codeError{exitUnavailable, fmt.Errorf("%w at %s", errNoServer, strings.Join(slices.Concat(known, agents), ","))}
	}
	if err := b.close(zip); err != nil {
		return err
	}
	return a.printBundle(file, b)
}

// bundleCluster adds what the cluster says of itself, and returns the addresses of all servers
// that are known.
func (a *app) bundleCluster(ctx context.Context, b *bundle, servers []string) ([]string, error) {
	c, err := a.dial()
	if err != nil { // no server answers: agents may
		b.failed["cluster"] = err.Error()
		return servers, nil
	}
	defer c.Close()
	peers, err := call(ctx, a, c.Operator.ListPeers, &rotav1.ListPeersRequest{AllowStale: true})
	for _, p := range peers.GetPeers() {
		if !slices.Contains(servers, p.Address) {
			servers = append(servers, p.Address)
		}
	}
	if err := b.message("cluster/peers.json", "servers of the cluster", peers, err); err != nil {
		return nil, err
	}
	pools, err := call(ctx, a, c.Operator.ListPools, &rotav1.ListPoolsRequest{AllowStale: true})
	return servers, b.message("cluster/pools.json", "pools, and why they are halted", pools, err)
}

// message adds an answer of the API, or notes why there is none.
func (b *bundle) message(name, what string, m proto.Message, err error) error {
	if err != nil {
		b.failed[name] = err.Error()
		return nil
	}
	data, err := protojson.MarshalOptions{Multiline: true}.Marshal(m)
	if err != nil {
		return err
	}
	return b.add(name, what, data)
}

// bundleProcess adds what one process says. ok: it answered.
func (a *app) bundleProcess(ctx context.Context, b *bundle, addr string, cpu time.Duration) (ok bool, err error) {
	parts := bundleParts
	if cpu > 0 {
		path := fmt.Sprintf("%sprofile?seconds=%d", telemetry.ProfilePath, max(1, int(cpu.Seconds())))
		parts = append(slices.Clone(parts), bundlePart{"cpu.pprof", path, "profile of CPU use"})
	}
	dir := strings.ReplaceAll(addr, ":", "-") + "/"
	for _, part := range parts {
		data, status, err := a.process(ctx, addr, http.MethodGet, part.path, nil, a.settings.timeout+cpu)
		if err != nil {
			b.failed[dir+part.name] = err.Error()
			if !ok {
				break // the process is down
			}
			continue
		}
		ok = true
		// A process that is not ready says so with another status.
		if status != http.StatusOK && part.path != "/readyz" {
			b.failed[dir+part.name] = strings.TrimSpace(string(data))
			continue
		}
		if err := b.add(dir+part.name, part.what, data); err != nil {
			return ok, err
		}
	}
	return ok, nil
}

// close writes the manifest and ends the archive.
func (b *bundle) close(zip *gzip.Writer) error {
	data, err := json.MarshalIndent(map[string]any{
		"time": b.now.UTC(), "version": Version, "files": b.files, "missing": b.failed,
	}, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(b.add("manifest.json", "this list", data), b.tar.Close(), zip.Close())
}

func (a *app) printBundle(file string, b *bundle) error {
	rows := make([][]string, 0, len(b.files)+len(b.failed))
	for _, f := range b.files {
		rows = append(rows, []string{f.Name, formatSize(uint64(f.Bytes)), f.What})
	}
	var missing []string
	for name := range b.failed {
		missing = append(missing, name)
	}
	slices.Sort(missing)
	for _, name := range missing {
		rows = append(rows, []string{name, "missing", b.failed[name]})
	}
	a.say("wrote %s", file)
	return a.printValue(map[string]any{"file": file, "files": b.files, "missing": b.failed}, []string{"file", "size", "content"}, rows)
}
