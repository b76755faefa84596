package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"rota/cmd/internal/devcluster"
)

// EtcdFailover kills the leader of a three-member etcd again and again, and
// measures as Failover does: from the kill to the first put that was asked for
// after it and is committed.
func EtcdFailover(ctx context.Context, o EtcdOptions, kills int, each func(i int, took time.Duration)) (*FailoverResult, error) {
	if _, err := exec.LookPath(o.Etcd); err != nil {
		return nil, ErrNoEtcd
	}
	if _, err := exec.LookPath(o.Load); err != nil {
		return nil, ErrNoLoad
	}
	dir, err := os.MkdirTemp(o.Submit.Cluster.Dir, "etcd-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	members, err := etcdMembers(o.Etcd, dir)
	if err != nil {
		return nil, err
	}
	for _, m := range members {
		if err := m.Start(); err != nil {
			return nil, err
		}
		defer m.Kill()
	}
	var all []time.Duration
	r := &FailoverResult{Kills: kills}
	for i := range kills {
		took, err := o.killEtcdLeader(ctx, members)
		if err != nil {
			return nil, fmt.Errorf("kill %d: %w", i+1, err)
		}
		each(i, took)
		all = append(all, took)
		r.AllMS = append(r.AllMS, ms(took))
	}
	r.P50MS, r.P99MS, r.MaxMS = quantiles(all)
	return r, nil
}

// killEtcdLeader kills the leader, measures, and starts it again.
func (o EtcdOptions) killEtcdLeader(ctx context.Context, members []*devcluster.Process) (time.Duration, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var endpoints []string
	for _, m := range members {
		endpoints = append(endpoints, m.Addr)
	}
	// The probe prints the leader once all members serve, then waits for the
	// word to begin, so that its own start is no part of the measurement.
	probe := exec.CommandContext(ctx, o.Load, "-probe", "-endpoints", strings.Join(endpoints, ","))
	probe.Stderr = os.Stderr
	in, err := probe.StdinPipe()
	if err != nil {
		return 0, err
	}
	out, err := probe.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := probe.Start(); err != nil {
		return 0, err
	}
	defer func() { cancel(); _ = probe.Wait() }()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		return 0, fmt.Errorf("etcd-bench found no leader: %v", lines.Err())
	}
	at := slices.IndexFunc(members, func(m *devcluster.Process) bool { return m.Addr == lines.Text() })
	if at < 0 {
		return 0, fmt.Errorf("etcd-bench named %q as the leader, which is no member", lines.Text())
	}
	began := time.Now()
	members[at].Kill()
	if _, err := io.WriteString(in, "go\n"); err != nil {
		return 0, err
	}
	if !lines.Scan() {
		return 0, fmt.Errorf("no put was committed: %v", lines.Err())
	}
	return time.Since(began), members[at].Start()
}
