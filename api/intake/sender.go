package intake

import (
	"sync"
	"time"
)

const (
	// One sender may take this part of a budget.
	senderPart = 2
	// amends is in what time a sender that is blamed for all that it may take is blamed
	// for nothing any more.
	amends = 5 * time.Minute
	// sendersMax is how many are remembered before those are forgotten who owe nothing.
	sendersMax = 1024
)

// senders are those whose large requests are being decoded, or were refused for what
// they were. What a refused request took stays charged to its sender for a while: who
// sends large requests that no server could ever accept, has soon used up what it may
// take, and only that.
type senders struct {
	max float64
	now func() time.Time

	mu sync.Mutex
	by map[string]*account
}

// account is what a sender has taken, in bytes.
type account struct {
	held  float64 // by requests that are being served
	blame float64 // by requests that were refused
	at    time.Time
}

func newSenders(max int64) *senders {
	return &senders{max: float64(max), now: time.Now, by: make(map[string]*account)}
}

// room is why a sender may take something, or may not.
type room int

const (
	hasRoom room = iota
	noRoom       // it has too much in the works
	toBlame      // too much of what it sent was refused
)

// take charges a sender for n bytes if it may have them. It may always have one request,
// the largest of which takes so much.
func (s *senders) take(name string, n, largest int64) room {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch a := s.account(name); {
	case a.held+a.blame+float64(n) <= max(s.max, float64(largest)):
		a.held += float64(n)
		return hasRoom
	case a.blame > 0:
		return toBlame
	}
	return noRoom
}

// end ends the charge for n bytes: at once, or, if the request was refused, slowly.
func (s *senders) end(name string, n int64, refused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.account(name)
	a.held -= float64(n)
	if refused {
		a.blame = min(a.blame+float64(n), s.max)
	}
}

// account brings the account of a sender up to date.
func (s *senders) account(name string) *account {
	a := s.by[name]
	if a == nil {
		if len(s.by) >= sendersMax {
			s.forget()
		}
		a = &account{at: s.now()}
		s.by[name] = a
	}
	s.forgive(a)
	return a
}

// forgive takes off what has been made good by waiting.
func (s *senders) forgive(a *account) {
	now := s.now()
	a.blame = max(0, a.blame-s.max*now.Sub(a.at).Seconds()/amends.Seconds())
	a.at = now
}

// forget drops those who owe nothing.
func (s *senders) forget() {
	for name, a := range s.by {
		if s.forgive(a); a.held+a.blame == 0 {
			delete(s.by, name)
		}
	}
}
