package client

import (
	"context"
	"errors"
	"time"
)

// persistence is one call on its way: how long it is repeated, where that is no use, and
// what its caller is told in the end.
type persistence struct {
	c      *Client
	giveUp time.Time
	pause  pacer
	// useless are the addresses where no repetition helps.
	useless map[string]bool
	// told is the newest error that a server of rota answered with, and toldAt its
	// address. It says more than that another server cannot be reached.
	told   error
	toldAt string
}

func (c *Client) persist() *persistence {
	return &persistence{c: c, giveUp: time.Now().Add(c.config.RetryFor)}
}

// again pauses before the next try of a call that failed at an address, and chooses the
// server for it. An error is the one to give up with.
func (p *persistence) again(ctx context.Context, addr string, err error) error {
	err = p.telling(addr, err)
	again, delay := transient(err)
	if unusable(err) {
		again = p.mayDoElsewhere(addr)
	}
	if ctx.Err() != nil || !again || time.Now().Add(delay).After(p.giveUp) {
		return err
	}
	p.c.waiting(err)
	if elsewhere(err) {
		p.c.servers.failed(addr)
	}
	if p.pause.wait(ctx, delay) != nil {
		return err
	}
	return nil
}

// telling returns the error that says most of what is wrong: that of this try, or what a
// server answered to an earlier one.
func (p *persistence) telling(addr string, err error) error {
	switch err = p.c.explain(addr, err); {
	case Detail(err) != nil:
		p.told, p.toldAt = err, addr
	case addr == p.toldAt && NeverSent(err):
		p.told = nil // that server is gone too
	case p.told != nil && !unusable(err):
		return p.told
	}
	return err
}

// mayDoElsewhere notes an address that is no use, and reports whether another may be.
func (p *persistence) mayDoElsewhere(addr string) bool {
	if p.useless == nil {
		p.useless = map[string]bool{}
	}
	p.useless[addr] = true
	for _, other := range p.c.config.Addrs {
		if !p.useless[other] {
			return true
		}
	}
	return false
}

// unusable reports whether calls to the same address fail until a person has changed
// something: no repetition there helps, and another address may do.
func unusable(err error) bool {
	var addr *AddrError
	return errors.As(err, &addr) || Detail(err).GetReason() == "NOT_A_MEMBER"
}

// waiting tells the user of the library why a call is repeated, once for each reason.
func (c *Client) waiting(err error) {
	if c.config.Waiting == nil || Detail(err).GetReason() != "NO_QUORUM" {
		return
	}
	reason := Detail(err).GetMessage()
	if before, _ := c.waitingFor.Swap(reason).(string); before != reason {
		c.config.Waiting(reason)
	}
}
