// Command etcd-bench measures how many values per second an etcd cluster
// accepts, in the way that `rota bench submit` measures actions: workers that
// wait for each answer before they make the next request. It is a module of its
// own, so that rota does not depend on etcd. It prints one JSON object.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// rate has the fields of what `rota bench` prints.
type rate struct {
	What       string  `json:"what"`
	Submitters int     `json:"submitters"`
	Seconds    float64 `json:"seconds"`
	Count      int     `json:"count"`
	PerSecond  float64 `json:"per_second"`
	P50MS      float64 `json:"p50_ms"`
	P99MS      float64 `json:"p99_ms"`
	MaxMS      float64 `json:"max_ms"`
}

func main() {
	endpoints := flag.String("endpoints", "127.0.0.1:2379", "members, host:port[,host:port...]")
	clients := flag.Int("clients", 256, "concurrent puts")
	connections := flag.Int("connections", 32, "connections that they share")
	duration := flag.Duration("duration", 10*time.Second, "measured time, after a second of warm-up")
	size := flag.Int("size", 300, "bytes of a value")
	probing := flag.Bool("probe", false, "instead: print the leader, wait for a line, print one when another member has committed a put")
	flag.Parse()
	if *probing {
		exitOn(probe(strings.Split(*endpoints, ",")))
		return
	}
	r, err := measure(strings.Split(*endpoints, ","), *clients, *connections, *size, *duration)
	exitOn(err)
	exitOn(json.NewEncoder(os.Stdout).Encode(r))
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "etcd-bench:", err)
		os.Exit(1)
	}
}

func measure(endpoints []string, clients, connections, size int, d time.Duration) (*rate, error) {
	leader, err := waitLeader(endpoints)
	if err != nil {
		return nil, err
	}
	conns := make([]*clientv3.Client, min(connections, clients))
	for i := range conns {
		// As for rota, straight to the leader: no put is forwarded.
		if conns[i], err = dial(leader); err != nil {
			return nil, err
		}
		defer conns[i].Close()
	}
	return putLoad(conns, clients, strings.Repeat("x", size), d)
}

func dial(endpoint string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second, Logger: zap.NewNop(),
	})
}

// waitLeader returns the member that leads, once there is one.
func waitLeader(endpoints []string) (string, error) {
	deadline := time.Now().Add(30 * time.Second)
	var last error
	for time.Now().Before(deadline) {
		for _, e := range endpoints {
			c, err := dial(e)
			if err != nil {
				last = err
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			s, err := c.Status(ctx, e)
			cancel()
			c.Close()
			if err == nil && s.Leader != 0 && s.Leader == s.Header.MemberId {
				return e, nil
			}
			last = err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return "", fmt.Errorf("no leader in 30 s: %v", last)
}

func putLoad(conns []*clientv3.Client, clients int, value string, d time.Duration) (*rate, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	begin := time.Now().Add(time.Second)
	end := begin.Add(d)
	latencies := make([][]time.Duration, clients)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				began := time.Now()
				if began.After(end) {
					return
				}
				_, err := conns[i%len(conns)].Put(ctx, fmt.Sprintf("action/%06d/%09d", i, n), value)
				if err != nil {
					cancel(err)
					return
				}
				if now := time.Now(); now.After(begin) && now.Before(end) {
					latencies[i] = append(latencies[i], now.Sub(began))
				}
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	all := slices.Concat(latencies...)
	if len(all) == 0 {
		return nil, fmt.Errorf("not one put ended in the measured time")
	}
	slices.Sort(all)
	at := func(percent int) float64 {
		return float64(all[max(1, (len(all)*percent+99)/100)-1].Microseconds()) / 1000
	}
	return &rate{What: "etcd put", Submitters: clients, Seconds: d.Seconds(), Count: len(all),
		PerSecond: float64(len(all)) / d.Seconds(), P50MS: at(50), P99MS: at(99), MaxMS: at(100)}, nil
}
