package rpc

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/gen/rota/v1/rotav1connect"
	"rota/fsm/state"
)

const (
	// gossipKeyBytes is the length of a gossip key.
	gossipKeyBytes = 32
	// keyringTimeout bounds one question to a process about its gossip keys.
	keyringTimeout = 3 * time.Second
	// keyringCalls is how many processes are asked at once.
	keyringCalls = 64
)

// ListGossipKeys asks every process for its gossip keys.
func (s *Server) ListGossipKeys(ctx context.Context, req *rotav1.ListGossipKeysRequest) (*rotav1.ListGossipKeysResponse, error) {
	members, err := s.gossipMembers(ctx, req.AllowStale)
	if err != nil {
		return nil, err
	}
	s.changeKeyrings(ctx, members, &rotav1.ChangeKeyringRequest{})
	return &rotav1.ListGossipKeysResponse{Members: members}, nil
}

// ChangeGossipKeys changes the gossip keys of every process, after it has made sure that
// none is parted from the others by that. The leader does it, one change after the other: of two
// at the same time, one could remove the key that the other begins to use.
func (s *Server) ChangeGossipKeys(ctx context.Context, req *rotav1.ChangeGossipKeysRequest) (*rotav1.ChangeGossipKeysResponse, error) {
	return onLeader(ctx, s, func() (*rotav1.ChangeGossipKeysResponse, error) {
		s.keyring.Lock()
		defer s.keyring.Unlock()
		return s.changeGossipKeys(ctx, req)
	}, func(ctx context.Context, c rotav1connect.OperatorServiceClient) (*rotav1.ChangeGossipKeysResponse, error) {
		return c.ChangeGossipKeys(ctx, req)
	})
}

func (s *Server) changeGossipKeys(ctx context.Context, req *rotav1.ChangeGossipKeysRequest) (*rotav1.ChangeGossipKeysResponse, error) {
	change, id, err := keyringChange(req)
	if err != nil {
		return nil, err
	}
	members, err := s.gossipMembers(ctx, false)
	if err != nil {
		return nil, err
	}
	s.changeKeyrings(ctx, members, &rotav1.ChangeKeyringRequest{})
	if change.Install != nil && len(req.Key) == 0 {
		change.Install, id = s.keyToInstall(members, change.Install, id)
	}
	if err := mayChange(members, req.Operation, id); err != nil {
		return nil, err
	}
	s.changeKeyrings(ctx, members, change)
	return &rotav1.ChangeGossipKeysResponse{Id: id, Members: members}, nil
}

// keyToInstall returns the random key of an earlier call if that has not reached every process and
// none uses it, else the new one. So the call can be repeated. Only the leader that made a key can
// do so: nothing else has it in a form that it hands on.
func (s *Server) keyToInstall(members []*rotav1.GossipMember, key []byte, id string) ([]byte, string) {
	if old := s.newestKey; old.key != nil && unfinished(members, old.id) {
		return old.key, old.id
	}
	s.newestKey = gossipKey{key, id}
	return key, id
}

// gossipKey is a key that this server made.
type gossipKey struct {
	key []byte
	id  string
}

// unfinished reports whether a key is at some processes and not at all, and none uses it.
func unfinished(members []*rotav1.GossipMember, id string) bool {
	some, all := false, true
	for _, m := range members {
		has := slices.Contains(m.Keys, id)
		if has && m.Keys[0] == id {
			return false
		}
		some = some || has
		all = all && (has || m.Error == "" && len(m.Keys) == 0)
	}
	return some && !all
}

// keyringChange is what each process is told, and the ID of the key.
func keyringChange(req *rotav1.ChangeGossipKeysRequest) (change *rotav1.ChangeKeyringRequest, id string, err error) {
	install := req.Operation == rotav1.ChangeGossipKeysRequest_OPERATION_INSTALL
	switch {
	case install && req.Id != "":
		return nil, "", wrong("id", "is for a key that is installed").failure()
	case install && len(req.Key) != 0 && len(req.Key) != gossipKeyBytes:
		return nil, "", wrong("key", "has %d bytes, must have %d", len(req.Key), gossipKeyBytes).failure()
	case !install && len(req.Key) != 0:
		return nil, "", wrong("key", "is for a key to install: give the ID of one that is").failure()
	case !install && req.Id == "":
		return nil, "", wrong("id", "must name a key: ListGossipKeys has the IDs").failure()
	}
	switch req.Operation {
	case rotav1.ChangeGossipKeysRequest_OPERATION_INSTALL:
		key := slices.Clone(req.Key)
		if len(key) == 0 {
			key = make([]byte, gossipKeyBytes)
			_, _ = rand.Read(key) // never fails
		}
		sum := sha256.Sum256(key)
		return &rotav1.ChangeKeyringRequest{Install: key}, hex.EncodeToString(sum[:8]), nil
	case rotav1.ChangeGossipKeysRequest_OPERATION_USE:
		return &rotav1.ChangeKeyringRequest{Use: req.Id}, req.Id, nil
	case rotav1.ChangeGossipKeysRequest_OPERATION_REMOVE:
		return &rotav1.ChangeKeyringRequest{Remove: req.Id}, req.Id, nil
	}
	return nil, "", wrong("operation", "must be install, use or remove").failure()
}

// mayChange refuses a step that would part a process from the others.
func mayChange(members []*rotav1.GossipMember, operation rotav1.ChangeGossipKeysRequest_Operation, id string) error {
	var silent, lack, send []string
	keyed := false
	for _, m := range members {
		keyed = keyed || len(m.Keys) > 0
		switch {
		case m.Error != "":
			silent = append(silent, m.Name)
		case len(m.Keys) > 0 && !slices.Contains(m.Keys, id):
			lack = append(lack, m.Name)
		case len(m.Keys) > 0 && m.Keys[0] == id:
			send = append(send, m.Name)
		}
	}
	switch {
	case !keyed && len(silent) == 0:
		return failed(connect.CodeFailedPrecondition, "NO_GOSSIP_KEYS", "no process gossips with keys: start the servers and agents with --gossip-key")
	case operation == rotav1.ChangeGossipKeysRequest_OPERATION_INSTALL:
		return nil
	case len(silent) > 0:
		return failed(connect.CodeFailedPrecondition, "KEYS_UNKNOWN",
			"%s: the gossip keys are not known, and the step could part the cluster: see `rota operator keyring list`, and bring the processes back or remove them from the cluster", some(silent))
	case operation == rotav1.ChangeGossipKeysRequest_OPERATION_USE && len(lack) > 0:
		return failed(connect.CodeFailedPrecondition, "KEY_NOT_INSTALLED", "%s: key %s is not installed: use `rota operator keyring install` first", some(lack), id)
	case operation == rotav1.ChangeGossipKeysRequest_OPERATION_REMOVE && len(send) > 0:
		return failed(connect.CodeFailedPrecondition, "KEY_IN_USE", "%s: key %s is in use: use `rota operator keyring use` with another key first", some(send), id)
	}
	return nil
}

// some lists names, not all if there are many.
func some(names []string) string {
	if len(names) <= namesMax {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d others", strings.Join(names[:namesMax], ", "), len(names)-namesMax)
}

// gossipMembers are the servers, and the agents of the nodes that are up. An agent that is
// down starts without the others if its keys are too old: it asks the servers that it knows.
func (s *Server) gossipMembers(ctx context.Context, stale bool) ([]*rotav1.GossipMember, error) {
	if err := s.catchUp(ctx, stale); err != nil {
		return nil, err
	}
	peers, err := s.Cluster.Peers(ctx)
	if err != nil {
		return nil, err
	}
	var members []*rotav1.GossipMember
	for _, p := range peers {
		members = append(members, &rotav1.GossipMember{Name: p.Id, Role: rotav1.GossipMember_ROLE_SERVER, Address: p.Address})
	}
	s.Machine.View(func(st *state.State) {
		st.Nodes(0, func(n *state.Node) bool {
			if n.State == state.NodeUp {
				members = append(members, &rotav1.GossipMember{Name: n.Name, Role: rotav1.GossipMember_ROLE_AGENT, Address: n.Address})
			}
			return true
		})
	})
	return members, nil
}

// changeKeyrings tells every process, and notes what it has then.
func (s *Server) changeKeyrings(ctx context.Context, members []*rotav1.GossipMember, change *rotav1.ChangeKeyringRequest) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, keyringCalls)
	for _, m := range members {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			s.changeKeyring(ctx, m, change)
		})
	}
	wg.Wait()
}

func (s *Server) changeKeyring(ctx context.Context, m *rotav1.GossipMember, change *rotav1.ChangeKeyringRequest) {
	ctx, cancel := context.WithTimeout(ctx, keyringTimeout)
	defer cancel()
	resp, err := s.Keyring(m.Address, m.Role == rotav1.GossipMember_ROLE_AGENT).ChangeKeyring(ctx, change)
	m.Error = ""
	switch code := connect.CodeOf(err); {
	case err == nil:
		m.Keys = resp.Ids
	case code == connect.CodeUnimplemented:
		m.Error = "its release has no keyring: upgrade it"
	case code == connect.CodeFailedPrecondition:
		m.Error = strings.TrimPrefix(err.Error(), "failed_precondition: ")
	default:
		m.Error = fmt.Sprintf("does not answer at %s: %v", m.Address, err)
	}
}
