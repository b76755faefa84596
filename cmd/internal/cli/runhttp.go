package cli

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rota/agent/httpcall"
	rotav1 "rota/api/gen/rota/v1"
)

// httpFlags describe an HTTP call. An action is an HTTP call or a command.
type httpFlags struct {
	url, method, data string
	headers           []string
	accept            []uint
}

func (f *httpFlags) addTo(fs *pflag.FlagSet) {
	fs.StringVar(&f.url, "url", "", "make an HTTP call instead of running a command")
	fs.StringVar(&f.method, "method", "", "method of the call (default: POST with --data, else GET)")
	fs.StringArrayVar(&f.headers, "header", nil, `header of the call, "NAME: VALUE"; repeat the flag for more headers`)
	fs.StringVar(&f.data, "data", "", "body of the call, or @FILE to read the body from a file")
	fs.UintSliceVar(&f.accept, "accept", nil, "statuses that count as success (default: 200 to 299)")
}

// used reports whether any flag of a call is set.
func (f *httpFlags) used() bool {
	return f.url != "" || f.method != "" || f.data != "" || len(f.headers) > 0 || len(f.accept) > 0
}

// call turns the flags into a call.
func (f *httpFlags) call() (*rotav1.HttpCall, error) {
	body, err := readData("--data", f.data)
	if err != nil {
		return nil, err
	}
	call := &rotav1.HttpCall{Method: f.method, Url: f.url, Body: body}
	for _, header := range f.headers {
		name, value, ok := strings.Cut(header, ":")
		if !ok || name == "" {
			return nil, usageErrorf("--header %q is not NAME: VALUE", header)
		}
		if call.Headers == nil {
			call.Headers = make(map[string]string)
		}
		call.Headers[name] = strings.TrimSpace(value)
	}
	for _, status := range f.accept {
		if status > 599 {
			return nil, usageErrorf("--accept: %d is not a status", status)
		}
		call.Accept = append(call.Accept, uint32(status))
	}
	return call, nil
}

// readData returns the body that a flag gives: its text, or the content of @FILE.
func readData(flag, text string) ([]byte, error) {
	file, ok := strings.CutPrefix(text, "@")
	if !ok {
		return []byte(text), nil
	}
	body, err := os.ReadFile(file)
	if err != nil {
		return nil, usageErrorf("%s: %w", flag, err)
	}
	return body, nil
}

// checkWork checks that there is a command or a call, and not both.
func (f *runFlags) checkWork(argv []string) error {
	switch {
	case f.http.used() && f.http.url == "":
		return usageErrorf("--method, --header, --data and --accept describe an HTTP call; give its --url")
	case f.http.used() && len(argv) > 0:
		return usageErrorf("--url is instead of a command; leave out one of them")
	case f.http.used() && (len(f.env) > 0 || f.dir != ""):
		return usageErrorf("--env and --dir are for commands; leave them out with --url")
	case !f.http.used() && len(argv) == 0:
		return usageErrorf("nothing to run; write: rota run -- COMMAND [ARG...], or: rota run --url URL")
	}
	return nil
}

// callText is the method and the URL of a call.
func callText(call *rotav1.HttpCall) string {
	return httpcall.Method(call) + " " + call.GetUrl()
}

// httpCallCmd is started by supervisors, with all that it needs in the environment.
func (a *app) httpCallCmd() *cobra.Command {
	return &cobra.Command{
		Use: httpcall.Command, Short: "Make the HTTP call of an action", Hidden: true, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if code := httpcall.Main(cmd.Context(), os.Getenv, a.out, a.err); code != 0 {
				return &codeError{code: code}
			}
			return nil
		},
	}
}
