package gossip

import (
	"encoding/json"
	"fmt"

	"github.com/hashicorp/memberlist"
)

// Role is what a member is.
type Role string

// The roles there are.
const (
	RoleServer Role = "server"
	RoleAgent  Role = "agent"
)

// Member is one process as it describes itself. Nothing of it is proven.
type Member struct {
	Name string
	Role Role
	// Addr is where it serves RPC, as host:port.
	Addr string
}

// clusterNameMax bounds the cluster's name, which is in every packet.
const clusterNameMax = 128

// meta is a Member on the wire. Its fields are short because memberlist allows
// 512 bytes.
type meta struct {
	Cluster string `json:"c"`
	Role    Role   `json:"r"`
	Addr    string `json:"a"`
}

func encodeMeta(cluster string, m Member) ([]byte, error) {
	if cluster == "" || len(cluster) > clusterNameMax {
		return nil, fmt.Errorf("cluster name %q must be 1 to %d bytes", cluster, clusterNameMax)
	}
	if m.Role != RoleServer && m.Role != RoleAgent {
		return nil, fmt.Errorf("role %q is neither %q nor %q", m.Role, RoleServer, RoleAgent)
	}
	b, err := json.Marshal(meta{Cluster: cluster, Role: m.Role, Addr: m.Addr})
	if err != nil {
		return nil, err
	}
	if len(b) > memberlist.MetaMaxSize {
		return nil, fmt.Errorf("cluster name and address take %d bytes, at most %d are allowed", len(b), memberlist.MetaMaxSize)
	}
	return b, nil
}

// member reads what a node says about itself; an error if it is not of our
// cluster.
func (g *Gossip) member(node *memberlist.Node) (Member, error) {
	var m meta
	if err := json.Unmarshal(node.Meta, &m); err != nil {
		return Member{}, fmt.Errorf("%s: %w: unreadable metadata", node.Name, ErrCluster)
	}
	if m.Cluster != g.cluster {
		return Member{}, fmt.Errorf("%s: %w: %q", node.Name, ErrCluster, m.Cluster)
	}
	return Member{Name: node.Name, Role: m.Role, Addr: m.Addr}, nil
}

// NotifyAlive refuses a single member of another cluster.
func (g *Gossip) NotifyAlive(peer *memberlist.Node) error {
	_, err := g.member(peer)
	return err
}

// NotifyMerge refuses a whole list if any living member is of another cluster.
func (g *Gossip) NotifyMerge(peers []*memberlist.Node) error {
	for _, p := range peers {
		if p.State == memberlist.StateDead || p.State == memberlist.StateLeft {
			continue
		}
		if _, err := g.member(p); err != nil {
			return err
		}
	}
	return nil
}

// NotifyJoin, NotifyLeave and NotifyUpdate are called with memberlist's lock
// held, so they only leave a mark.

// NotifyJoin marks a change.
func (g *Gossip) NotifyJoin(*memberlist.Node) { g.changed() }

// NotifyLeave marks a change.
func (g *Gossip) NotifyLeave(*memberlist.Node) { g.changed() }

// NotifyUpdate marks a change.
func (g *Gossip) NotifyUpdate(*memberlist.Node) { g.changed() }

func (g *Gossip) changed() {
	select {
	case g.changes <- struct{}{}:
	default:
	}
}

// metaDelegate spreads our metadata and nothing else.
type metaDelegate []byte

func (d metaDelegate) NodeMeta(int) []byte             { return d }
func (d metaDelegate) NotifyMsg([]byte)                {}
func (d metaDelegate) GetBroadcasts(int, int) [][]byte { return nil }
func (d metaDelegate) LocalState(bool) []byte          { return nil }
func (d metaDelegate) MergeRemoteState([]byte, bool)   {}
