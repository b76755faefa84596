package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// name is on the certificate of the hostile agent.
const name = "mallory"

const (
	register = "AgentService/RegisterNode"
	report   = "AgentService/ReportAttempts"
)

// makePools registers again and again, each time in another pool.
func (in *intruder) makePools(ctx context.Context) {
	may := append([]string{"ok", "failed_precondition", "resource_exhausted", "invalid_argument"}, overload...)
	began := time.Now().UnixNano()
	every(ctx, 50*time.Millisecond, func(n int) {
		body := fmt.Appendf(nil, `{"name":%q,"pool":"pool-%d-%d","address":"10.77.0.1:1","runtime":"process","memoryBytes":"1048576","journalId":"%d","numaNodes":[{"cpus":[0]}]}`,
			name, began, n, n)
		in.send(ctx, n, request{kind: "pools", path: register, body: body, may: may})
	})
}

// lie reports ends of what it never ran, and speaks for other nodes.
func (in *intruder) lie(ctx context.Context) {
	denied := append([]string{"permission_denied"}, overload...)
	nothing := append([]string{"ok", "failed_precondition", "not_found"}, overload...)
	every(ctx, 50*time.Millisecond, func(n int) {
		var ends []string
		for id := range 256 {
			ends = append(ends, fmt.Sprintf(`{"actionId":"%d","attempt":1,"result":{"reason":"END_REASON_EXITED","exitCode":66}}`, n*256+id+1))
		}
		reports := strings.Join(ends, ",")
		as := func(node string) []byte {
			return fmt.Appendf(nil, `{"name":%q,"incarnation":"%d","reports":[%s]}`, node, n+1, reports)
		}
		victim := in.Victims[n%len(in.Victims)]
		in.send(ctx, n, request{kind: "false reports", path: report, body: as(name), may: nothing})
		in.send(ctx, n, request{kind: "reports for others", path: report, body: as(victim), may: denied})
		in.send(ctx, n, request{kind: "reports for others", path: "AgentService/RenewLease", body: fmt.Appendf(nil, `{"name":%q,"incarnation":"%d"}`, victim, n+1), may: denied})
		in.send(ctx, n, request{kind: "reports for others", path: register, body: fmt.Appendf(nil, `{"name":%q,"address":"10.77.0.1:1","runtime":"process","memoryBytes":"1048576","journalId":"stolen","numaNodes":[{"cpus":[0]}]}`, victim), may: denied})
	})
}

// throwReports sends reports that are too large, as they are and zipped.
func (in *intruder) throwReports(ctx context.Context) {
	may := append([]string{"invalid_argument"}, overload...)
	many := bombs(report, 3)
	large := fmt.Appendf(nil, `{"name":%q,"incarnation":"1","reports":[{"actionId":"1","attempt":1,"result":{"message":%q}}]}`, name, strings.Repeat("x", 5<<20))
	in.throw(ctx, []request{many[0], {kind: "oversized reports", path: report, body: large, may: may}})
}

const (
	// floodsMax is how many connections it holds at once.
	floodsMax = 400
	// floodDials is how many it makes at the same time.
	floodDials = 8
	// floodEvery is when each of them makes another connection.
	floodEvery = 20 * time.Millisecond
)

// flood takes as many connections of gossip ports as it gets, without the key.
func (in *intruder) flood(ctx context.Context) {
	var dials sync.WaitGroup
	for d := range floodDials {
		dials.Go(func() { in.dialOn(ctx, d) })
	}
	dials.Wait()
}

// dialOn holds the part of the connections of one dialer, and replaces the oldest.
func (in *intruder) dialOn(ctx context.Context, d int) {
	held := make([]net.Conn, floodsMax/floodDials)
	garbage := bytes.Repeat([]byte{0x0b}, 512)
	dialer := net.Dialer{Timeout: time.Second}
	every(ctx, floodEvery, func(n int) {
		at := n % len(held)
		if held[at] != nil {
			held[at].Close()
		}
		var err error
		if held[at], err = dialer.DialContext(ctx, "tcp", in.Gossip[(n+d)%len(in.Gossip)]); err != nil {
			held[at] = nil
			in.tried("gossip connections refused")
			return
		}
		in.tried("gossip connections")
		_, _ = held[at].Write(garbage[:1+n%len(garbage)]) // whether it is heard does not matter
	})
	for _, c := range held {
		if c != nil {
			c.Close()
		}
	}
}
