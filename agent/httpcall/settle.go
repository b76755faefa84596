package httpcall

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"rota/api/settle"
)

// answerBytesMax is how much of an answer is kept to find out what the call used.
const answerBytesMax = 8 << 20

// settlement finds out from an answer what the call used of quotas.
type settlement struct {
	rules string // lines of QUOTA=RULE
	path  string // of the file that says it to rota
	kind  string // Content-Type
	body  *kept
}

// newSettlement has the answer kept while it is read, if anything of it is to be found out.
func newSettlement(rules, path string, resp *http.Response) *settlement {
	if rules == "" || path == "" {
		return nil
	}
	s := &settlement{rules: rules, path: path, kind: resp.Header.Get("Content-Type"), body: &kept{}}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(resp.Body, s.body), resp.Body}
	return s
}

// tell writes down what was used. That fails without harm: what was expected counts.
func (s *settlement) tell(stderr io.Writer) {
	if s == nil {
		return
	}
	lines, err := s.lines()
	if err == nil && lines != "" {
		err = os.WriteFile(s.path, []byte(lines), 0o600)
	}
	if err != nil {
		fmt.Fprintf(stderr, "rota: what the call used cannot be told to its quotas, so what it expected to use counts: %v\n", err)
	}
}

func (s *settlement) lines() (lines string, err error) {
	if s.body.over {
		return "", fmt.Errorf("the answer is longer than %d MiB", answerBytesMax>>20)
	}
	for _, line := range strings.Split(s.rules, "\n") {
		quota, text, _ := strings.Cut(line, "=")
		rule, bad := settle.Parse(text)
		if bad != nil {
			err = errors.Join(err, fmt.Errorf("quota %s: %w", quota, bad))
			continue
		}
		units, said := rule.Units(s.kind, s.body.Bytes())
		if !said {
			err = errors.Join(err, fmt.Errorf("the answer has no number at %s, for quota %s", text, quota))
			continue
		}
		lines += fmt.Sprintf("%s %d\n", quota, units)
	}
	if lines == "" {
		return "", err
	}
	return lines, nil
}

// kept is the beginning of an answer.
type kept struct {
	bytes.Buffer
	over bool // there was more
}

// Write implements io.Writer. It never fails, as the answer goes on to the output.
func (k *kept) Write(p []byte) (int, error) {
	if k.over = k.over || k.Len()+len(p) > answerBytesMax; !k.over {
		k.Buffer.Write(p)
	}
	return len(p), nil
}
