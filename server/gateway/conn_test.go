package gateway

import (
	"bufio"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestIdleConnectionsAreClosed also if no other request comes, and not before their time.
func TestIdleConnectionsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := newPool("http://127.0.0.1:1", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer p.close()
		var closed [2]time.Duration
		began := time.Now()
		for i := range closed {
			here, there := net.Pipe()
			go func() {
				if _, err := there.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
					closed[i] = time.Since(began)
				}
			}()
			p.put(&conn{Conn: here, br: bufio.NewReader(here)})
		}
		time.Sleep(idleMax / 2)
		p.put(p.pop()) // the newest one served another request
		time.Sleep(3 * idleMax)
		synctest.Wait()
		if want := [2]time.Duration{idleMax, idleMax * 3 / 2}; closed != want || len(p.idle) != 0 {
			t.Errorf("closed after %v, want %v; %d are left", closed, want, len(p.idle))
		}
	})
}
