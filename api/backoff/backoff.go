package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is a pause that doubles, from Least to Most. Neither may be 0.
type Backoff struct {
	Least, Most time.Duration

	wait time.Duration
}

// Next is the pause before another try: between half and all of it.
func (b *Backoff) Next() time.Duration {
	b.wait = min(max(2*b.wait, b.Least), b.Most)
	return b.wait/2 + rand.N(b.wait/2+1)
}

// Reset begins anew, after a success.
func (b *Backoff) Reset() { b.wait = 0 }

// Sleep returns nil when the time has passed, and the cause of the context if that is
// done before.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
