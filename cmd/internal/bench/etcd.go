package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"rota/cmd/internal/devcluster"
)

// EtcdOptions say how to compare rota with etcd.
type EtcdOptions struct {
	Submit SubmitOptions
	// Etcd is the server, Load the program that puts load on it (cmd/etcd-bench).
	Etcd, Load string
	// Rounds of everything, in an order that alternates.
	Rounds int
	// BatchDuration of the measurement of batches, which is to be sustained.
	BatchDuration time.Duration
}

// EtcdResult compares rota with etcd, in things done per second.
type EtcdResult struct {
	Etcd256     float64 `json:"etcd_per_s_256"`
	Etcd1024    float64 `json:"etcd_per_s_1024"`
	Null        float64 `json:"null_rpc_per_s"`
	Unary256    float64 `json:"unary_per_s_256"`
	Unary1024   float64 `json:"unary_per_s_1024"`
	Client1024  float64 `json:"client_per_s_1024"`
	Batch       float64 `json:"batch_per_s"`
	RatioUnary  float64 `json:"ratio_unary_1024"`
	RatioClient float64 `json:"ratio_client"`
	RatioBatch  float64 `json:"ratio_batch"`
}

// Errors of what the comparison needs.
var (
	ErrNoEtcd = errors.New("etcd is not installed: on Debian, apt-get install etcd-server")
	ErrNoLoad = errors.New("etcd-bench is not built: make bench-etcd builds it")
)

// step is one measurement of a round.
type step struct {
	into *float64
	run  func(context.Context) (Rate, error)
}

// Etcd compares the two. Whatever is not being measured is not running.
func Etcd(ctx context.Context, o EtcdOptions, each func(Rate)) (*EtcdResult, error) {
	if _, err := exec.LookPath(o.Etcd); err != nil {
		return nil, ErrNoEtcd
	}
	if _, err := exec.LookPath(o.Load); err != nil {
		return nil, ErrNoLoad
	}
	r := &EtcdResult{}
	steps := o.steps(r)
	for round := range o.Rounds {
		for i := range steps {
			s := steps[i]
			if round%2 == 1 {
				s = steps[len(steps)-1-i]
			}
			rate, err := s.run(ctx)
			if err != nil {
				return nil, err
			}
			each(rate)
			*s.into += rate.PerSecond / float64(o.Rounds)
		}
	}
	r.RatioUnary = r.Unary1024 / r.Etcd1024
	r.RatioClient = r.Client1024 / r.Etcd1024
	r.RatioBatch = r.Batch / r.Etcd1024
	return r, nil
}

func (o EtcdOptions) steps(r *EtcdResult) []step {
	etcd := func(n int) func(context.Context) (Rate, error) {
		return func(ctx context.Context) (Rate, error) { return o.etcdOnce(ctx, n) }
	}
	rota := func(mode Mode, n int) func(context.Context) (Rate, error) {
		return func(ctx context.Context) (Rate, error) { return SubmitOnce(ctx, o.Submit, mode, n) }
	}
	batch := func(ctx context.Context) (Rate, error) {
		submit := o.Submit
		submit.Duration = o.BatchDuration
		return SubmitOnce(ctx, submit, ModeBatch, submit.BatchSubmitters)
	}
	return []step{
		{&r.Etcd256, etcd(256)}, {&r.Unary256, rota(ModeUnary, 256)},
		{&r.Etcd1024, etcd(1024)}, {&r.Unary1024, rota(ModeUnary, 1024)},
		{&r.Null, rota(ModeNull, 1024)},
		{&r.Client1024, rota(ModeClient, 1024)}, {&r.Batch, batch},
	}
}

// etcdOnce measures puts to a fresh three-member etcd.
func (o EtcdOptions) etcdOnce(ctx context.Context, clients int) (Rate, error) {
	dir, err := os.MkdirTemp(o.Submit.Cluster.Dir, "etcd-bench-")
	if err != nil {
		return Rate{}, err
	}
	defer os.RemoveAll(dir)
	members, err := etcdMembers(o.Etcd, dir)
	if err != nil {
		return Rate{}, err
	}
	var endpoints []string
	for _, m := range members {
		if err := m.Start(); err != nil {
			return Rate{}, err
		}
		defer m.Kill()
		endpoints = append(endpoints, m.Addr)
	}
	cmd := exec.CommandContext(ctx, o.Load, "-endpoints", strings.Join(endpoints, ","),
		"-clients", strconv.Itoa(clients), "-connections", strconv.Itoa(o.Submit.Connections),
		"-duration", o.Submit.Duration.String(), "-size", strconv.Itoa(o.Submit.Size))
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return Rate{}, fmt.Errorf("etcd-bench: %w: %s", err, errOut.Bytes())
	}
	var rate Rate
	if err := json.Unmarshal(out.Bytes(), &rate); err != nil {
		return Rate{}, fmt.Errorf("etcd-bench printed %q: %w", out.Bytes(), err)
	}
	return rate, nil
}

// etcdMembers describes three members on free ports. Their addresses are those
// for clients. etcd fsyncs by default.
func etcdMembers(binary, dir string) ([]*devcluster.Process, error) {
	var ports []int
	for range 6 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	var initial []string
	for i := range 3 {
		initial = append(initial, fmt.Sprintf("m%d=http://127.0.0.1:%d", i, ports[2*i+1]))
	}
	var members []*devcluster.Process
	for i := range 3 {
		name, client := fmt.Sprintf("m%d", i), fmt.Sprintf("127.0.0.1:%d", ports[2*i])
		peer := fmt.Sprintf("http://127.0.0.1:%d", ports[2*i+1])
		members = append(members, devcluster.NewProcess(name, client, filepath.Join(dir, name), binary,
			"--name", name, "--data-dir", filepath.Join(dir, name, "data"),
			"--listen-client-urls", "http://"+client, "--advertise-client-urls", "http://"+client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--initial-cluster", strings.Join(initial, ","), "--quota-backend-bytes", strconv.Itoa(8<<30)))
	}
	return members, nil
}
