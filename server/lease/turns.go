package lease

import (
	"time"

	peerv1 "rota/api/gen/peer/v1"
	"rota/fsm/state"
)

// RenewTurns renews leases of turns that were asked for before the call, as Renew
// does those of nodes, and says what became of each.
//
// A turn that waits has token 0. Its holder may not know yet that it was granted, and
// this server may not know it yet although the holder does; neither is held against it.
// Other tokens than the turn's are fenced.
//
// A holder that was asked to stop, and has not yielded within a lease after this
// leader has first seen that, is renewed no more. Nor does it help to be silent: then
// the lease ends as any other.
func (t *Table) RenewTurns(verify func() error, turns []*peerv1.TurnLease) ([]peerv1.TurnRenewal, error) {
	if err := verify(); err != nil {
		return nil, err
	}
	t.mu.Lock() // before the state is read, as in Renew
	defer t.mu.Unlock()
	if t.leases == nil {
		return nil, ErrNotLeading
	}
	answers := make([]peerv1.TurnRenewal, len(turns))
	var expiring error
	t.view(func(s *state.State) {
		grace := time.Duration(s.Meta().Settings.LeaseNS)
		for i, asked := range turns {
			row := s.Turn(state.TurnID(asked.Id))
			if row == nil || !row.State.Live() || row.State == state.TurnHeld && asked.Token != 0 && asked.Token != row.Token {
				answers[i] = peerv1.TurnRenewal_TURN_RENEWAL_FENCED
				continue
			}
			if answers[i] = t.renewTurn(row, grace); answers[i] == peerv1.TurnRenewal_TURN_RENEWAL_UNSPECIFIED {
				expiring = ErrExpiring
			}
		}
	})
	return answers, expiring
}

// renewTurn renews the lease of one live turn, which may take so long to stop. It is
// left open for one whose end is being committed.
func (t *Table) renewTurn(row *state.Turn, grace time.Duration) peerv1.TurnRenewal {
	key, now := subject{turn: row.ID}, t.now()
	lease := t.leases[key]
	if lease.number != row.Token {
		lease = held{number: row.Token}
	}
	if lease.expiring {
		return peerv1.TurnRenewal_TURN_RENEWAL_UNSPECIFIED
	}
	lease = lease.seen(row.Stop, now)
	if row.Stop && now.Sub(lease.stopped) > grace {
		t.leases[key] = lease
		return peerv1.TurnRenewal_TURN_RENEWAL_STOPPED
	}
	lease.renewed = now
	t.leases[key] = lease
	return peerv1.TurnRenewal_TURN_RENEWAL_RENEWED
}

// seen remembers since when a turn is asked to stop.
func (h held) seen(stop bool, now time.Time) held {
	if stop && h.stopped.IsZero() {
		h.stopped = now
	}
	return h
}
