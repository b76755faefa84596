package e2b

import (
	"io"
	"net/http"
	"path"
	"time"

	"rota/api/httpx"
)

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

// bounded bounds how many lists of files are made and sent at once, as each can be large. The server
// ends those that are not read.
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
		}
		next.ServeHTTP(w, r)
	})
}
