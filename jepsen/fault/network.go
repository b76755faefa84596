package fault

import (
	"context"
	"errors"
	"fmt"
	"time"

	"rota/api/backoff"
	"rota/jepsen/proxy"
)

// errNoProxy: the network has nothing that could lose or delay.
var errNoProxy = errors.New("members talk to each other without a proxy: the scenario needs one")

// Loss and delay of a bad network.
const (
	lossPPM    = 80_000
	delayMean  = 30 * time.Millisecond
	delaySpray = 20 * time.Millisecond
)

// loss loses some of everything between all members.
func loss(_ context.Context, w *World) (*Injection, error) {
	return badNetwork(w, func(p *proxy.Proxy) { p.SetLoss(proxy.Any, proxy.Any, lossPPM) }, func(before, after proxy.Counters) string {
		return fmt.Sprintf("%d pieces of streams came late, %d datagrams did not come", after.Stalls-before.Stalls, after.Dropped-before.Dropped)
	})
}

// delay makes everything between all members late, some more than other.
func delay(_ context.Context, w *World) (*Injection, error) {
	return badNetwork(w, func(p *proxy.Proxy) { p.SetDelay(proxy.Any, proxy.Any, delayMean, delaySpray) }, func(before, after proxy.Counters) string {
		return fmt.Sprintf("%d pieces of streams and %d datagrams came late", after.Delayed-before.Delayed, after.DatagramsLate-before.DatagramsLate)
	})
}

// resets breaks every connection between members, again and again.
func resets(ctx context.Context, w *World) (*Injection, error) {
	p := w.Proxy
	if p == nil {
		return nil, errNoProxy
	}
	ctx, stop := context.WithCancel(ctx)
	done, total := make(chan struct{}), 0
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			total += p.Reset(proxy.Any, proxy.Any)
			_ = backoff.Sleep(ctx, 250*time.Millisecond)
		}
	}()
	return &Injection{End: func(context.Context) (string, error) {
		stop()
		<-done
		return plural(total, "connections were reset"), nil
	}}, nil
}

func badNetwork(w *World, deed func(*proxy.Proxy), proof func(before, after proxy.Counters) string) (*Injection, error) {
	p := w.Proxy
	if p == nil {
		return nil, errNoProxy
	}
	before := p.Counters()
	deed(p)
	return &Injection{End: func(context.Context) (string, error) {
		after := p.Counters()
		p.Heal()
		if after.Stalls+after.Dropped+after.Delayed+after.DatagramsLate == before.Stalls+before.Dropped+before.Delayed+before.DatagramsLate {
			return "", nil
		}
		return proof(before, after), nil
	}}, nil
}
