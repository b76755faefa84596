package e2b

import (
	"io"
	"net/http"
	"path"
	"slices"
	"time"

	"rota/api/httpx"
)

// slowly writes to somebody who has to take something in a while, or is given up.
type slowly struct {
	to      io.Writer
	control *http.ResponseController
	idle    time.Duration
}

// Write writes small pieces, each of which has the time.
func (s *slowly) Write(p []byte) (n int, err error) {
	for piece := range slices.Chunk(p, 64<<10) {
		stop := httpx.Late(s.idle, func() { _ = s.control.SetWriteDeadline(time.Now()) })
		m, err := s.to.Write(piece)
		stop()
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

// awaited reads from somebody who has to send something in a while, or is given up. A deadline
// that is set before would also be over while something else is waited for.
type awaited struct {
	io.ReadCloser
	control *http.ResponseController
	idle    time.Duration
}

func (a *awaited) Read(p []byte) (int, error) {
	defer httpx.Late(a.idle, func() { _ = a.control.SetReadDeadline(time.Now()) })()
	return a.ReadCloser.Read(p)
}

// refuse leaves a little time for the rest to arrive, which the server reads for the other side to
// see the answer.
func (a *awaited) refuse() { _ = a.control.SetReadDeadline(time.Now().Add(refusedWait)) }

// slowAnswer is an answer that is written slowly.
type slowAnswer struct {
	http.ResponseWriter
	out *slowly
}

func (s slowAnswer) Write(p []byte) (int, error) { return s.out.Write(p) }

// Unwrap is for http.ResponseController.
func (s slowAnswer) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// bounded bounds how many lists of files are made and sent at once, as each can be large, and ends
// those that are not taken.
func (e *E2B) bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path.Base(r.URL.Path) {
		case "ListDir", "GetWatcherEvents":
			giveBack, err := e.lists.wait(r.Context(), sandboxIn(r.Context()).namespace)
			if err != nil {
				writeError(w, r, err)
				return
			}
			defer giveBack()
			w = slowAnswer{w, &slowly{w, http.NewResponseController(w), e.idleMax}}
		}
		next.ServeHTTP(w, r)
	})
}
