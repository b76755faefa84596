package replica

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	boltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"

	logv1 "rota/api/gen/log/v1"
)

// nullMachine applies entries at no cost.
type nullMachine struct {
	machine
	applied atomic.Uint64
	now     atomic.Int64
}

func (m *nullMachine) Apply(l *raft.Log) any {
	var entry logv1.Entry
	if err := entry.UnmarshalVT(l.Data); err != nil {
		return err
	}
	m.now.Store(entry.TimeNs)
	m.applied.Store(l.Index)
	results := make([]*logv1.Result, len(entry.Commands))
	one := &logv1.Result{Index: l.Index}
	for i := range results {
		results[i] = one
	}
	return results
}

func (m *nullMachine) Now() int64                                { return m.now.Load() }
func (m *nullMachine) Applied() uint64                           { return m.applied.Load() }
func (m *nullMachine) WaitApplied(context.Context, uint64) error { return nil }

const benchPayload = 300

func benchCommand() *logv1.Command { return create(string(make([]byte, benchPayload))) }

func benchPropose(b *testing.B, proposers, pipeline int, forwarded bool) {
	c := newCluster(b, 3, func(cfg *Config) {
		cfg.Machine = &nullMachine{}
		cfg.Pipeline = pipeline
	})
	nd := c.leader()
	if forwarded {
		nd = c.followers()[0]
	}
	cmd := benchCommand()
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var wg sync.WaitGroup
	for range proposers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for left.Add(-1) >= 0 {
				if _, err := nd.replica.Propose(context.Background(), cmd); err != nil {
					b.Error(err)
					return
				}
			}
		}()
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "op/s")
}

// benchStores measures one commit after the other with each kind of log store.
func benchStores(b *testing.B, open func(b *testing.B, kind StoreKind) (commit func() error)) {
	for _, kind := range []StoreKind{WAL, BoltDB} {
		b.Run(string(kind), func(b *testing.B) {
			commit := open(b, kind)
			took := make([]time.Duration, 0, b.N)
			b.ResetTimer()
			for range b.N {
				start := time.Now()
				if err := commit(); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
			}
			b.StopTimer()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

// One commit after the other; compare with BenchmarkBareRaft1.
func BenchmarkPropose1(b *testing.B) {
	benchStores(b, func(b *testing.B, kind StoreKind) func() error {
		lead := newCluster(b, 3, func(cfg *Config) {
			cfg.Machine, cfg.LogStore = &nullMachine{}, kind
		}).leader()
		cmd := benchCommand()
		return func() error {
			_, err := lead.replica.Propose(context.Background(), cmd)
			return err
		}
	})
}

func BenchmarkPropose(b *testing.B) {
	for _, proposers := range []int{256, 1024} {
		for _, pipeline := range []int{1, 2} {
			b.Run(fmt.Sprintf("proposers=%d/pipeline=%d", proposers, pipeline), func(b *testing.B) {
				benchPropose(b, proposers, pipeline, false)
			})
		}
		b.Run(fmt.Sprintf("proposers=%d/forwarded", proposers), func(b *testing.B) {
			benchPropose(b, proposers, 1, true)
		})
	}
}

// BenchmarkBareRaft1 is hashicorp/raft on raft-wal and on raft-boltdb, with nothing of
// ours.
func BenchmarkBareRaft1(b *testing.B) {
	benchStores(b, func(b *testing.B, kind StoreKind) func() error {
		lead := bareCluster(b, kind)
		entry := logv1.Entry{Commands: []*logv1.Command{benchCommand()}}
		data, err := entry.MarshalVT()
		if err != nil {
			b.Fatal(err)
		}
		return func() error { return lead.Apply(data, 0).Error() }
	})
}

// bareStores are raft's stores as they come.
func bareStores(b *testing.B, kind StoreKind) (stable *boltdb.BoltStore, logs raft.LogStore) {
	dir := b.TempDir()
	stable, err := boltdb.NewBoltStore(filepath.Join(dir, "raft.db"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = stable.Close() })
	if kind == BoltDB {
		return stable, stable
	}
	w, err := wal.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = w.Close() })
	return stable, w
}

func bareCluster(b *testing.B, kind StoreKind) *raft.Raft {
	var servers raft.Configuration
	var streams []*stream
	for i := range 3 {
		s := listen(b, "127.0.0.1:0")
		streams = append(streams, s)
		servers.Servers = append(servers.Servers, raft.Server{ID: raft.ServerID(fmt.Sprint(i)), Address: raft.ServerAddress(s.Addr().String())})
	}
	var nodes []*raft.Raft
	for i, s := range streams {
		stable, logs := bareStores(b, kind)
		snaps := raft.NewDiscardSnapshotStore()
		trans := raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{Stream: s, MaxPool: 4, Timeout: 5 * time.Second, Logger: hclog.NewNullLogger()})
		conf := raft.DefaultConfig()
		conf.LocalID, conf.Logger, conf.NoLegacyTelemetry = servers.Servers[i].ID, hclog.NewNullLogger(), true
		if err := raft.BootstrapCluster(conf, logs, stable, snaps, trans, servers); err != nil {
			b.Fatal(err)
		}
		r, err := raft.NewRaft(conf, &nullMachine{}, logs, stable, snaps, trans)
		if err != nil {
			b.Fatal(err)
		}
		nodes = append(nodes, r)
		b.Cleanup(func() {
			s.cut()
			_ = r.Shutdown().Error()
		})
	}
	var lead *raft.Raft
	eventually(b, "a leader", func() bool {
		for _, r := range nodes {
			if r.State() == raft.Leader {
				lead = r
			}
		}
		return lead != nil
	})
	if err := lead.Barrier(0).Error(); err != nil {
		b.Fatal(err)
	}
	return lead
}
