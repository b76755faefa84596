package workload

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	rotav1 "rota/api/gen/rota/v1"
)

// knownMax is how many actions are remembered for others to read: few enough
// that each is read while it lives.
const knownMax = 256

// known has the newest actions that any workload knows of.
type known struct {
	mu      sync.Mutex
	actions []uint64
	oldest  int // where the next one goes, once there are knownMax
}

func (k *known) add(ids []uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range ids {
		if len(k.actions) < knownMax {
			k.actions = append(k.actions, id)
			continue
		}
		k.actions[k.oldest] = id
		k.oldest = (k.oldest + 1) % knownMax
	}
}

// pick returns one of them, 0 if there are none yet.
func (k *known) pick(source *rand.Rand) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.actions) == 0 {
		return 0
	}
	return k.actions[source.IntN(len(k.actions))]
}

// requestLife is how long servers are to remember a request, in log time: longer
// than anybody repeats it. A request says so itself, since one that is repeated
// after it was forgotten would count as new.
const requestLife = 15 * time.Minute

// readingAge is how long a reading of log time is good for.
const readingAge = 10 * time.Second

// logClock estimates log time.
type logClock struct {
	mu      sync.Mutex
	reading bool // somebody is asking a server
	logTime time.Time
	at      time.Time // when that was read
}

// expiry returns the log time until which a request that is made now is to be
// remembered. It asks the worker's server from time to time; nil if no server
// has ever answered.
func (k *logClock) expiry(ctx context.Context, w *worker) *timestamppb.Timestamp {
	k.mu.Lock()
	defer k.mu.Unlock()
	if time.Since(k.at) > readingAge && !k.reading {
		k.reading = true
		k.mu.Unlock()
		logTime, err := w.logTime(ctx)
		k.mu.Lock()
		// Log time never goes back: what is older is of a server that has just begun
		// to read its log.
		if k.reading = false; err == nil && logTime.After(k.logTime) {
			k.logTime, k.at = logTime, time.Now()
		}
	}
	if k.at.IsZero() {
		return nil
	}
	return timestamppb.New(k.logTime.Add(time.Since(k.at) + requestLife))
}

func (w *worker) logTime(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, w.env.timeout())
	defer cancel()
	status, err := w.conns[w.at].operator.GetStatus(ctx, &rotav1.GetStatusRequest{})
	return status.GetLogTime().AsTime(), err
}
