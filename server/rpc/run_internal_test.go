package rpc

import (
	"testing"
	"testing/synctest"
	"time"

	rotav1 "rota/api/gen/rota/v1"
)

// What an attempt has written may take far longer to come than it took to end.
func TestOutputMayTakeLongAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const chunks = 10
		passed := uint64(0)
		r := &run{chunks: make(chan *rotav1.OutputChunk), reader: make(chan struct{}), send: func(m *rotav1.RunActionResponse) error {
			passed = m.GetOutput().Offset + 1
			return nil
		}}
		go func() {
			defer close(r.reader)
			for at := range uint64(chunks) {
				time.Sleep(outputGrace - time.Second)
				r.chunks <- &rotav1.OutputChunk{Attempt: 1, Data: []byte("x"), Offset: at}
			}
		}()
		if err := r.drain(t.Context()); err != nil || passed != chunks {
			t.Errorf("%d of %d chunks were passed on, %v", passed, chunks, err)
		}

		r.reader = make(chan struct{}) // of an agent that hangs
		began := time.Now()
		if err := r.drain(t.Context()); err != nil || time.Since(began) != outputGrace {
			t.Errorf("silence ends after %v, %v", time.Since(began), err)
		}
	})
}
