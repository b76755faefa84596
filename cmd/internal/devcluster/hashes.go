package devcluster

import (
	"context"
	"fmt"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

// ServerHash is the state hash of one server.
type ServerHash struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	Index   uint64 `json:"index"`
	Hash    string `json:"hash"`
	Error   string `json:"error,omitempty"`
}

// HashReport compares the state of all servers.
type HashReport struct {
	Equal   bool         `json:"equal"`
	Servers []ServerHash `json:"servers"`
}

// hashRounds is how often servers are asked again because one no longer knew
// the hash of the entry that another had answered for.
const hashRounds = 10

// CompareHashes asks all servers for the hash of their state until they answer
// for the same index: hashes of different indexes cannot be compared. Dial makes
// a client of one server.
func CompareHashes(ctx context.Context, peers []*rotav1.Peer, dial func(addr string) (*client.Client, error)) HashReport {
	var report HashReport
	index := uint64(0)
	for range hashRounds {
		report = HashReport{Equal: len(peers) > 0}
		newest := index
		sameIndex, failed := true, false
		for _, p := range peers {
			s := ServerHash{ID: p.Id, Address: p.Address}
			if err := s.ask(ctx, newest, dial); err != nil {
				s.Error, failed = err.Error(), true
			}
			newest = max(newest, s.Index)
			report.Servers = append(report.Servers, s)
			first := report.Servers[0]
			sameIndex = sameIndex && s.Index == first.Index
			report.Equal = report.Equal && s.Error == "" && s.Index == first.Index && s.Hash == first.Hash
		}
		if sameIndex || failed || ctx.Err() != nil {
			break
		}
		index = newest
	}
	return report
}

func (s *ServerHash) ask(ctx context.Context, minIndex uint64, dial func(string) (*client.Client, error)) error {
	c, err := dial(s.Address)
	if err != nil {
		return err
	}
	defer c.Close()
	resp, err := c.Operator.GetStateHash(ctx, &rotav1.GetStateHashRequest{MinIndex: minIndex})
	if err != nil {
		return err
	}
	if resp.ServerId != s.ID {
		return fmt.Errorf("%s answers at the address of %s", resp.ServerId, s.ID)
	}
	s.Index, s.Hash = resp.Index, resp.Hash
	return nil
}

// HashesEqual compares the state of all servers of the cluster.
func (c *Cluster) HashesEqual(ctx context.Context) (HashReport, error) {
	api, err := c.Dial()
	if err != nil {
		return HashReport{}, err
	}
	defer api.Close()
	peers, err := api.Operator.ListPeers(ctx, &rotav1.ListPeersRequest{})
	if err != nil {
		return HashReport{}, err
	}
	return CompareHashes(ctx, peers.Peers, func(addr string) (*client.Client, error) {
		return client.New(client.Config{Addrs: []string{addr}})
	}), nil
}
