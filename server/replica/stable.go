package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"

	"rota/internal/failpoint"
)

// Names that raft uses in its stable store.
const (
	keyCurrentTerm = "CurrentTerm"
	keyVoteTerm    = "LastVoteTerm"
	keyVoteCand    = "LastVoteCand"
)

// keyVote is the one record that holds all three.
var keyVote = []byte("Vote")

// errNotFound must read exactly so: raft compares the text.
var errNotFound = errors.New("not found")

// kvStore is the part of raft-boltdb below the stable store.
type kvStore interface {
	Set(k, v []byte) error
	Get(k []byte) ([]byte, error)
}

// stableStore keeps raft's term and vote as one record, twice: in the store and
// in the mark. Raft writes the term of a vote and the candidate one after the
// other, and a crash between them would leave the old candidate with the new
// term: a vote that was never given. So the term waits here until the candidate
// arrives, and until then readers see the last committed vote.
type stableStore struct {
	guard *guard
	kv    kvStore
	mark  *mark

	mu       sync.Mutex
	current  vote
	voteTerm uint64 // of a vote whose candidate has not arrived yet
}

func openStable(kv kvStore, m *mark, g *guard) (*stableStore, error) {
	s := &stableStore{guard: g, kv: kv, mark: m, current: m.snapshot().vote}
	b, err := kv.Get(keyVote)
	if err != nil && err.Error() != errNotFound.Error() {
		return nil, fmt.Errorf("read vote: %w", err)
	}
	if err == nil {
		stored, err := decodeVote(b)
		if err != nil {
			return nil, err
		}
		// Each copy was durable before it was acted upon, so the newer is right.
		if !s.current.newer(stored) {
			s.current = stored
		}
	}
	return s, nil
}

// Set implements raft.StableStore.
func (s *stableStore) Set(key, val []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if string(key) != keyVoteCand {
		return s.guard.write("stable store", func() error { return s.kv.Set(key, val) })
	}
	if len(val) > candidateMax {
		return fmt.Errorf("candidate address is longer than %d bytes", candidateMax)
	}
	next := s.current
	next.voteTerm, next.candidate = s.voteTerm, string(val)
	err := s.commit(next)
	failpoint.Hit(failpoint.VoteDurable)
	return err
}

// SetUint64 implements raft.StableStore.
func (s *stableStore) SetUint64(key []byte, val uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch string(key) {
	case keyVoteTerm:
		s.voteTerm = val
		failpoint.Hit(failpoint.VoteSplit)
		return nil
	case keyCurrentTerm:
		next := s.current
		next.term = val
		return s.commit(next)
	}
	return s.guard.write("stable store", func() error {
		return s.kv.Set(key, binary.BigEndian.AppendUint64(nil, val))
	})
}

// commit makes next durable in both places. Called with mu held.
func (s *stableStore) commit(next vote) error {
	if next == s.current {
		return s.guard.err()
	}
	if err := s.mark.setVote(next); err != nil {
		return err
	}
	if next.voteTerm != s.current.voteTerm {
		failpoint.Hit(failpoint.VoteMarked)
	}
	err := s.guard.write("vote", func() error { return s.kv.Set(keyVote, encodeVote(next)) })
	if err == nil {
		s.current = next
	}
	return err
}

// Get implements raft.StableStore.
func (s *stableStore) Get(key []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if string(key) != keyVoteCand {
		return s.kv.Get(key)
	}
	if s.current.voteTerm == 0 {
		return nil, errNotFound
	}
	return []byte(s.current.candidate), nil
}

// GetUint64 implements raft.StableStore.
func (s *stableStore) GetUint64(key []byte) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var v uint64
	switch string(key) {
	case keyCurrentTerm:
		v = s.current.term
	case keyVoteTerm:
		v = s.current.voteTerm
	default:
		b, err := s.kv.Get(key)
		if err != nil {
			return 0, err
		}
		if len(b) != 8 {
			return 0, fmt.Errorf("%w: %q is not a number", ErrCorrupt, key)
		}
		return binary.BigEndian.Uint64(b), nil
	}
	if v == 0 {
		return 0, errNotFound
	}
	return v, nil
}

// term returns the newest term that this server has taken part in.
func (s *stableStore) term() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current.term
}

// unfound forgets the term of a founding that was cut short. A vote stays, and with it the term.
func (s *stableStore) unfound() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current.voteTerm != 0 {
		return nil
	}
	return s.commit(vote{})
}

func encodeVote(v vote) []byte {
	b := binary.LittleEndian.AppendUint64(nil, v.term)
	b = binary.LittleEndian.AppendUint64(b, v.voteTerm)
	b = append(b, v.candidate...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func decodeVote(b []byte) (vote, error) {
	n := len(b) - 4
	if n < 16 || crc32.Checksum(b[:n], castagnoli) != binary.LittleEndian.Uint32(b[n:]) {
		return vote{}, fmt.Errorf("%w: checksum of the vote", ErrCorrupt)
	}
	return vote{
		term:      binary.LittleEndian.Uint64(b),
		voteTerm:  binary.LittleEndian.Uint64(b[8:]),
		candidate: string(b[16:n]),
	}, nil
}
