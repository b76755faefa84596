package fsm

import (
	"strconv"

	logv1 "rota/api/gen/log/v1"
	"rota/api/share"
	"rota/fsm/state"
)

// Bounds of request IDs, in bytes and nanoseconds.
const (
	requestIDBytesMax    = 64
	requestTTLDefault    = 10 * 60 * 1_000_000_000
	requestTTLMax        = 60 * 60 * 1_000_000_000
	requestTTLSlack      = 60 * 1_000_000_000 // the client's idea of log time may run ahead
	requestsFullRetryLag = 1_000_000_000
)

// replay answers a request that was accepted before, and refuses one that cannot
// be remembered or has expired. Nil means that it is new. It is of a namespace, or of none.
func (x *execution) replay(q *logv1.Request, of *state.Namespace, verb state.Verb, count uint32) *logv1.Result {
	if q == nil || q.Id == "" {
		return nil
	}
	if len(q.Id) > requestIDBytesMax {
		return refuse(codeInvalidArgument, "INVALID", "request_id has %d bytes, at most %d are allowed", len(q.Id), requestIDBytesMax)
	}
	if q.ExpireNs != 0 && q.ExpireNs <= x.now() {
		return refuse(codeDeadlineExceeded, "REQUEST_EXPIRED", "the request expired %d ms ago by the cluster's clock; whether it had been accepted is no longer known", (x.now()-q.ExpireNs)/1_000_000)
	}
	if q.ExpireNs > x.now()+requestTTLMax+requestTTLSlack {
		return refuse(codeInvalidArgument, "INVALID", "expire_time is more than one hour ahead of the cluster's clock")
	}
	if old := x.s.Request(q.Id); old != nil {
		if old.Verb != verb || old.Count != count || old.Digest != q.Digest {
			return refuse(codeAlreadyExists, "REQUEST_MISMATCH", "request_id %q was used for a different request; use a new one for each", q.Id)
		}
		if e := x.expiry(q); e > old.Expires { // as long as its repetition may be repeated
			kept := *old
			kept.Expires = e
			x.s.PutRequest(&kept)
		}
		return &logv1.Result{FirstId: old.FirstID, Count: old.Count, Replayed: true}
	}
	return x.mayRemember(of)
}

// mayRemember refuses a request ID when too many are remembered, of all or of its namespace.
func (x *execution) mayRemember(of *state.Namespace) *logv1.Result {
	most, all := int(x.settings().RequestsMax), x.s.RequestCount()
	switch {
	case all >= most:
		return retryAfter(refuse(codeResourceExhausted, "TOO_MANY_REQUESTS", "%d request IDs are remembered already; use earlier expire_times", all), requestsFullRetryLag)
	case of != nil && !x.mayHaveMore(most, all, func() int { return x.s.RequestsOf(of.ID) }):
		return retryAfter(refuse(codeResourceExhausted, "TOO_MANY_REQUESTS",
			"%d request IDs of namespace %q are remembered, and others may have the %d that are left; use earlier expire_times", x.s.RequestsOf(of.ID), of.Name, most-all), requestsFullRetryLag)
	}
	return nil
}

// mayHaveMore reports whether a namespace that has some of what is bounded for the cluster may have
// one more: from LevelResizing on, none has more than is left for the others. As long as not even half
// is taken, nobody can have that, and what it has is not counted.
func (x *execution) mayHaveMore(most, all int, own func() int) bool {
	return x.s.Meta().Level < state.LevelResizing || 2*all < most || x.s.NamespaceCount() == 1 || share.Room(most, all, own())
}

// remember keeps an accepted request for its replays.
func (x *execution) remember(q *logv1.Request, of *state.Namespace, verb state.Verb, first uint64, count uint32) {
	if q == nil || q.Id == "" {
		return
	}
	r := &state.Request{ID: q.Id, Expires: x.expiry(q), Verb: verb, Digest: q.Digest, FirstID: first, Count: count}
	if of != nil && x.s.Meta().Level >= state.LevelResizing {
		r.Namespace = of.ID
	}
	x.s.PutRequest(r)
}

// expiry is until when a request is remembered, in log time.
func (x *execution) expiry(q *logv1.Request) int64 {
	if q.ExpireNs == 0 {
		return x.now() + requestTTLDefault
	}
	return q.ExpireNs
}

func itoa(i int) string { return strconv.Itoa(i) }
