package main

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// objectStore speaks as much of S3 as backups of scripts need. It is busy for the first request of
// each key. Signatures are verified in the tests of internal/s3.
type objectStore struct {
	mu      sync.Mutex
	objects map[string][]byte
	busy    []string
}

func (s *objectStore) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil || !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=script/") {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	key := strings.TrimPrefix(r.URL.Path, "/backups/")
	switch data, there := s.objects[key]; {
	case r.URL.Query().Has("list-type"):
		fmt.Fprint(w, "<ListBucketResult>")
		for name := range s.objects {
			if strings.HasPrefix(name, r.URL.Query().Get("prefix")) {
				fmt.Fprintf(w, "<Contents><Key>%s</Key></Contents>", name)
			}
		}
		fmt.Fprint(w, "</ListBucketResult>")
	case !slices.Contains(s.busy, key):
		s.busy = append(s.busy, key)
		w.WriteHeader(http.StatusServiceUnavailable)
	case r.Method == http.MethodPut:
		s.objects[key] = body
	case !there:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodDelete:
		delete(s.objects, key)
		w.WriteHeader(http.StatusNoContent)
	default:
		_, _ = w.Write(data)
	}
}
