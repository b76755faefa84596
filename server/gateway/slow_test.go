package gateway

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	rotav1 "rota/api/gen/rota/v1"
)

// slowClient is one that takes long to read an event.
type slowClient struct {
	*httptest.ResponseRecorder
	// with is in the event; read is called once when it comes.
	with string
	read func()
}

func (c *slowClient) Write(p []byte) (int, error) {
	if c.read != nil && strings.Contains(string(p), c.with) {
		c.read()
		c.read = nil
	}
	return c.ResponseRecorder.Write(p)
}

// ask has a slow client make a request of trajectory 7.
func (c *slowClient) ask(g *Gateway, e endpoint, body string) string {
	c.ResponseRecorder = httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, e.path(), strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(trajectoryHeader, "7")
	g.generate(c, r, e)
	return c.Body.String()
}

// A worker whose answer the client does not read is not silent.
func TestAClientThatReadsSlowly(t *testing.T) {
	const limit = 300 * time.Millisecond
	cluster, engines, g := world(t, dialectVLLM, func(c *Config) { c.TokenTimeout, c.Wait = limit, time.Second })
	read := make(chan struct{})
	engines[0].set(func(_ *http.Request, i int) action {
		if i == 3 {
			<-read
		}
		return goOn
	})
	slow := &slowClient{with: "data: ", read: func() {
		time.Sleep(4 * limit)
		close(read)
	}}
	if j := join(t, slow.ask(g, completions, `{"prompt":"x","stream":true,"max_tokens":8}`)); j.text != generated("x", 8) || j.done != 1 {
		t.Errorf("%+v", j)
	}
	if _, _, _, failed := cluster.reported(7); len(failed) > 0 || engines[0].count() != 1 {
		t.Errorf("%d requests, failed: %v", engines[0].count(), failed)
	}
}

// A stream that is suspended while the client reads stops if it can go on later, and runs to its end
// if what the client reads can not.
func TestSuspendedWhileTheClientReads(t *testing.T) {
	for with, body := range map[string]string{"tool_calls": `"test_tool_calls":true,`, "content": ""} {
		c, engines, g := world(t, dialectVLLM, func(c *Config) { c.Wait = 5 * time.Second })
		suspended := make(chan struct{})
		slow := &slowClient{with: with, read: func() {
			c.tell(&rotav1.WatchRoutesResponse{SuspendedPolicies: []string{"policy"}})
			until(t, "the suspension", func() bool { return g.table.isHeld(&flight{id: 7, policy: "policy"}) })
			close(suspended)
		}}
		pause := once(3, cutOff)
		engines[0].set(func(r *http.Request, i int) action {
			switch {
			case pause(r, i) == goOn:
			case with == "content":
				<-r.Context().Done()
			default:
				<-suspended
			}
			return goOn
		})
		var asked sync.WaitGroup
		defer asked.Wait()
		if with == "content" {
			asked.Go(func() {
				until(t, "it waits", func() bool { return g.table.waiting(7) == 1 })
				c.tell(&rotav1.WatchRoutesResponse{ResumedPolicies: []string{"policy"}})
			})
		}
		got := slow.ask(g, chat, `{"messages":[],`+body+`"stream":true,"max_tokens":8}`)
		if j := join(t, got); j.done != 1 || j.problem != "" || with == "content" && j.text != generated("<assistant>", 8) {
			t.Errorf("%s: %s", with, got)
		}
		if want := map[string]int{"tool_calls": 1, "content": 2}[with]; engines[0].count() != want {
			t.Errorf("%s: %d requests, want %d", with, engines[0].count(), want)
		}
	}
}

// gatedConn is a connection of a client that reads only while its gate is open.
type gatedConn struct {
	net.Conn
	gate *sync.RWMutex
}

func (c gatedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.gate.RLock()
	defer c.gate.RUnlock()
	return n, err
}

// A client that does not read answers no pings. Over HTTP/2 it has as long as any other.
func TestAClientThatReadsNothingOverHTTP2(t *testing.T) {
	t.Parallel()
	_, engines, g := world(t, dialectVLLM, nil)
	var gate sync.RWMutex
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		con, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return gatedConn{con, &gate}, err
	}}}
	defer client.CloseIdleConnections()
	goes := make(chan struct{})
	engines[0].set(func(_ *http.Request, i int) action {
		if i == 4 {
			<-goes
		}
		return goOn
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+g.Addr()+"/v1/completions", strings.NewReader(`{"prompt":"x","stream":true,"max_tokens":8}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(trajectoryHeader, "7")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	gate.Lock()
	time.Sleep(6 * time.Second) // servers of the cluster are pinged after 3 s, and lost after 5 s
	gate.Unlock()
	close(goes)
	if j := join(t, readAll(t, resp)); resp.ProtoMajor != 2 || j.text != generated("x", 8) || j.done != 1 {
		t.Errorf("%s: %+v", resp.Proto, j)
	}
}
