package server

import (
	"context"
	"time"

	logv1 "rota/api/gen/log/v1"
)

// quote proposes what this server's state hashed to at each checkpoint, so that
// all of them can be compared in the log. A quote that is not committed is not
// missed: the next checkpoint has another.
func (s *Server) quote(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-s.checkpoints:
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			_, err := s.replica.Propose(ctx, &logv1.Command{Verb: &logv1.Command_QuoteHash{
				QuoteHash: &logv1.QuoteHash{ServerId: s.cfg.ID, Index: c.Index, Hash: c.Hash},
			}})
			cancel()
			if err != nil {
				s.logger.Debug("state hash was not quoted", "index", c.Index, "error", err)
			}
		}
	}
}
