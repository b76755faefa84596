package bench

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"rota/agent/tier"
	"rota/agent/tier/transfer"
	"rota/api/httpx"
	"rota/api/pki"
	"rota/cmd/internal/spin"
)

// MigrateOptions say how much moves from one KV cache to another.
type MigrateOptions struct {
	// Dir is where the certificates are made; empty: the folder for temporary files.
	Dir string
	// Bytes are those of all values; ValueBytes those of each.
	Bytes, ValueBytes uint64
	// PresentPercent of the values are at the target already, under other keys.
	PresentPercent int
	Rounds         int
}

// MigrateResult compares migrations with bare copies of as many bytes over TLS.
type MigrateResult struct {
	Bytes      uint64 `json:"bytes"`
	ValueBytes uint64 `json:"value_bytes"`
	Rounds     int    `json:"rounds"`
	// MovedBytes and PresentBytes are of a migration.
	MovedBytes   uint64 `json:"moved_bytes"`
	PresentBytes uint64 `json:"present_bytes"`
	// MigrationMS and CopyMS are medians. A copy has the bytes that a migration moves.
	MigrationMS float64 `json:"migration_ms"`
	CopyMS      float64 `json:"copy_ms"`
	// CopyAllMS is how long a copy of all bytes would take, at the rate of the median copy.
	CopyAllMS float64 `json:"copy_all_ms"`
	// Speed is the time of the copy over that of the migration in the same round: 1 is as fast.
	Speed Spread     `json:"speed"`
	Noise spin.Noise `json:"noise"`
}

const (
	migratePrefix = "trajectory-"
	// copyBytes are written at once by the bare copy.
	copyBytes = 512 << 10
)

// migration is the benchmark while it runs: two stores, and what moves between them.
type migration struct {
	o              MigrateOptions
	dir            string // of the certificates, which are looked at again now and then
	source, target *tier.Store
	server         *http.Server
	agentAddress   string
	client         *tls.Config
	bare           net.Listener
	landing        []byte // where the bare copy puts its bytes
	progress       transfer.Progress
}

// Migrate moves values from one store to another, through the handler of the source's agent,
// over TLS and loopback in one process. Beside it, as many bytes are copied from the same
// memory to other memory over a bare TLS connection. Both take turns; each is told of every turn.
func Migrate(ctx context.Context, o MigrateOptions, each func(round int, what string, took time.Duration)) (*MigrateResult, error) {
	m, err := newMigration(o)
	if err != nil {
		return nil, err
	}
	defer m.close()
	var moves, copies []time.Duration
	meter := spin.NewMeter()
	for round := -1; round < o.Rounds; round++ { // the first is not measured: memory is touched
		if round >= 0 {
			meter.Sample()
		}
		var took [2]time.Duration
		for i := range took {
			turn := (round + i + 2) % 2
			run := []func(context.Context) (time.Duration, error){m.move, m.copy}[turn]
			if took[turn], err = run(ctx); err != nil {
				return nil, err
			}
			if round >= 0 {
				each(round, []string{"migration", "copy"}[turn], took[turn])
			}
		}
		if round >= 0 {
			moves, copies = append(moves, took[0]), append(copies, took[1])
		}
	}
	meter.Sample()
	return m.result(moves, copies, meter.Noise()), nil
}

func newMigration(o MigrateOptions) (_ *migration, err error) {
	m := &migration{o: o}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	// Twice as much as the values take, and the index.
	memory := tier.Options{MemoryBytes: 2*o.Bytes + 4*o.ValueBytes + 64<<20}
	if m.source, err = tier.Open(memory); err != nil {
		return nil, err
	}
	if m.target, err = tier.Open(memory); err != nil {
		return nil, err
	}
	for i := range o.values() {
		if err := fill(m.source, i, fmt.Sprint(migratePrefix, i), o.ValueBytes); err != nil {
			return nil, err
		}
	}
	if m.source.Len() != o.values() {
		return nil, fmt.Errorf("the source holds %d of %d values; choose larger values", m.source.Len(), o.values())
	}
	return m, m.listen()
}

func (o MigrateOptions) values() int { return int(o.Bytes / o.ValueBytes) }

// present says whether a value is at the target already, of which PresentPercent are.
func (o MigrateOptions) present(i int) bool {
	return (i+1)*o.PresentPercent/100 > i*o.PresentPercent/100
}

func fill(s *tier.Store, i int, key string, n uint64) error {
	v, err := s.NewValue(n)
	if err != nil {
		return err
	}
	_, _ = rand.NewChaCha8([32]byte{byte(i), byte(i >> 8), byte(i >> 16), byte(i >> 24)}).Read(v.Bytes())
	_, err = s.Set(key, v, time.Time{}, tier.Always)
	return err
}

// listen opens the port of the source's agent, and one for bare copies, with certificates of
// their own.
func (m *migration) listen() error {
	dir, err := os.MkdirTemp(m.o.Dir, "rota-bench-")
	if err != nil {
		return err
	}
	m.dir = dir
	dir = filepath.Join(dir, "tls")
	if err := errors.Join(pki.NewCA(dir), pki.Issue(dir, pki.RoleAgent, "source"), pki.Issue(dir, pki.RoleAgent, "target")); err != nil {
		return err
	}
	conf, err := pki.ServerConfig(pki.FilesIn(dir, "source"), pki.RoleAgent)
	if err != nil {
		return err
	}
	if m.client, err = pki.ClientConfig(pki.FilesIn(dir, "target"), pki.RoleAgent); err != nil {
		return err
	}
	conf.NextProtos = []string{"http/1.1"}
	agent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	m.agentAddress = agent.Addr().String()
	mux := http.NewServeMux()
	mux.Handle(transfer.Path, transfer.NewSource(m.source, func(peer string, migration uint64) (transfer.Selector, bool) {
		return transfer.Selector{Prefixes: []string{migratePrefix}}, peer == "target" && migration == 1
	}))
	m.server = httpx.NewServer(mux)
	go func() { _ = m.server.Serve(tls.NewListener(agent, conf)) }()
	bare, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	m.bare = tls.NewListener(bare, conf)
	return nil
}

func (m *migration) close() {
	if m.dir != "" {
		defer os.RemoveAll(m.dir)
	}
	if m.server != nil {
		_ = m.server.Close()
	}
	if m.bare != nil {
		_ = m.bare.Close()
	}
	for _, s := range []*tier.Store{m.source, m.target} {
		if s != nil {
			_ = s.Close()
		}
	}
}

// move runs one migration to a target that has what it is to have.
func (m *migration) move(ctx context.Context) (time.Duration, error) {
	m.target.Clear()
	for i := range m.o.values() {
		if m.o.present(i) {
			if err := fill(m.target, i, fmt.Sprint("present-", i), m.o.ValueBytes); err != nil {
				return 0, err
			}
		}
	}
	client := transfer.NewClient(m.client)
	defer client.CloseIdleConnections()
	began := time.Now()
	got, err := transfer.Pull{Client: client, Address: m.agentAddress, Migration: 1, Store: m.target, Peer: "source"}.Run(ctx)
	took := time.Since(began)
	if err == nil && (got.MovedBytes != m.toMove() || got.MovedBytes+got.PresentBytes != got.TotalBytes) {
		err = fmt.Errorf("%d bytes were moved, want %d: %+v", got.MovedBytes, m.toMove(), got)
	}
	m.progress = got
	return took, err
}

// toMove is how many bytes the target does not have.
func (m *migration) toMove() (n uint64) {
	for i := range m.o.values() {
		if !m.o.present(i) {
			n += m.o.ValueBytes
		}
	}
	return n
}

// copy copies the values that a migration moves, over a TLS connection and nothing else.
func (m *migration) copy(ctx context.Context) (time.Duration, error) {
	if m.landing == nil {
		m.landing = make([]byte, m.toMove())
	}
	sent := make(chan error, 1)
	began := time.Now()
	go func() { sent <- m.send() }()
	dialer := &tls.Dialer{Config: m.client}
	conn, err := dialer.DialContext(ctx, "tcp", m.bare.Addr().String())
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	_, err = io.ReadFull(conn, m.landing)
	took := time.Since(began)
	return took, errors.Join(err, <-sent)
}

func (m *migration) send() error {
	conn, err := m.bare.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	for i := range m.o.values() {
		if m.o.present(i) {
			continue
		}
		v, _, err := m.source.Peek(fmt.Sprint(migratePrefix, i))
		if err != nil || v == nil {
			return fmt.Errorf("value %d is gone: %w", i, err)
		}
		for part := range slices.Chunk(v.Bytes(), copyBytes) {
			if _, err = conn.Write(part); err != nil {
				break
			}
		}
		v.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *migration) result(moves, copies []time.Duration, noise spin.Noise) *MigrateResult {
	speeds := make([]float64, len(moves))
	for i := range moves {
		speeds[i] = float64(copies[i]) / float64(moves[i])
	}
	slices.Sort(speeds)
	r := &MigrateResult{
		Bytes: m.progress.TotalBytes, ValueBytes: m.o.ValueBytes, Rounds: len(moves),
		MovedBytes: m.progress.MovedBytes, PresentBytes: m.progress.PresentBytes,
		Speed: Spread{Median: speeds[len(speeds)/2], Min: speeds[0], Max: speeds[len(speeds)-1]}, Noise: noise,
	}
	r.MigrationMS, _, _ = quantiles(moves)
	r.CopyMS, _, _ = quantiles(copies)
	r.CopyAllMS = r.CopyMS * float64(r.Bytes) / float64(max(1, r.MovedBytes))
	return r
}
