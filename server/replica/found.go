package replica

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// A server with an empty disk cannot tell whether it is new or has lost what it had.
// If it voted in the second case, its vote could elect a leader without an entry that
// it once acknowledged. So it starts in quarantine. If it was told to found a cluster,
// it asks the other servers of its list whether one exists:
//
//   - One of them has taken part in an election: the cluster exists. This server joins
//     it, and stays in quarantine until it has caught up.
//   - All of them answered, and none has: the cluster is new.
//
// Every acknowledged entry is on another disk than this one, so as long as at most one
// server of the list has lost its disk, the second answer is never wrong.

const (
	// bootstrapTerm and bootstrapIndex are what a founded cluster begins with. Its
	// first election has the next term.
	bootstrapTerm, bootstrapIndex = 1, 1
	// inquiryPause is between two rounds of questions.
	inquiryPause = 100 * time.Millisecond
)

// question is a pre-vote request of no term, which no candidate sends: it asks a
// server for its term and nothing else. It takes the way of raft's own messages, so
// that a server answers as soon as it could take part in an election.
func (r *Replica) question() *raft.RequestPreVoteRequest {
	return &raft.RequestPreVoteRequest{RPCHeader: r.header()}
}

// answerQuestion returns the answer to a question, nil for any other message.
func (r *Replica) answerQuestion(cmd any) any {
	req, ok := cmd.(*raft.RequestPreVoteRequest)
	if !ok || req.Term != 0 {
		return nil
	}
	return &raft.RequestPreVoteResponse{RPCHeader: r.header(), Term: r.store.stable.term()}
}

// inquire asks all servers of the list but this one until one of them knows of a
// cluster (false), or all of them have answered in one round and none does (true).
func (r *Replica) inquire() (isNew bool) {
	reported := ""
	for {
		exists, missing := r.inquireOnce()
		if exists != "" {
			r.logger.Info("the cluster exists already: joining it", "known_by", exists)
			return false
		}
		if len(missing) == 0 {
			return true
		}
		if names := strings.Join(missing, ", "); names != reported {
			reported = names
			r.logger.Info("a new cluster is founded when every server of the bootstrap list has answered", "missing", names)
		}
		select {
		case <-r.closed:
			return false
		case <-time.After(inquiryPause):
		}
	}
}

// inquireOnce returns a server that has taken part in an election, if any, and those
// that did not answer.
func (r *Replica) inquireOnce() (exists string, missing []string) {
	terms := make([]uint64, len(r.cfg.Bootstrap))
	failures := make([]error, len(r.cfg.Bootstrap))
	var wg sync.WaitGroup
	for i, s := range r.cfg.Bootstrap {
		if s.ID == r.cfg.ServerID {
			continue
		}
		wg.Go(func() {
			var resp raft.RequestPreVoteResponse
			failures[i] = r.trans.RequestPreVote(raft.ServerID(s.ID), raft.ServerAddress(s.Address), r.question(), &resp)
			terms[i] = resp.Term
		})
	}
	wg.Wait()
	for i, s := range r.cfg.Bootstrap {
		switch {
		case failures[i] != nil:
			missing = append(missing, s.ID)
		case terms[i] > bootstrapTerm:
			exists = s.ID
		}
	}
	return exists, missing
}

// found writes the first configuration. It may be there already, if a crash came between this
// step and the next one. If there is a leader already, there is nothing to found, and false is
// returned: this server has to catch up.
func (r *Replica) found() (founded bool, err error) {
	var servers raft.Configuration
	for _, s := range r.cfg.Bootstrap {
		servers.Servers = append(servers.Servers, raft.Server{
			Suffrage: raft.Voter, ID: raft.ServerID(s.ID), Address: raft.ServerAddress(s.Address),
		})
	}
	err = r.raft.BootstrapCluster(servers).Error()
	switch {
	case err == nil:
		r.logger.Info("founded a new cluster", "servers", len(servers.Servers))
	case !errors.Is(err, raft.ErrCantBootstrap):
		return false, err
	case len(r.members().servers) == 0, r.store.stable.term() > bootstrapTerm:
		r.logger.Info("another server has founded the cluster: waiting for its leader")
		return false, nil
	}
	return true, nil
}
