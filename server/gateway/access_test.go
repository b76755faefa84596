package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rota/api/pki"
	"rota/internal/need"
)

func writeFile(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

const testKey = "a-key-of-a-test-0123"

func TestAPIKeys(t *testing.T) {
	_, engines, g := world(t, dialectVLLM, func(c *Config) {
		c.APIKeys, c.WorkerKey = writeFile(t, "# the team\n"+testKey+"\n\n"), writeFile(t, "worker-secret\n")
	})
	for name, c := range map[string]struct {
		header []string
		status int
	}{
		"key and header":  {[]string{"Authorization", "Bearer " + testKey}, 200},
		"key names it":    {[]string{trajectoryHeader, "", "Authorization", "Bearer " + testKey + ":trajectory-7"}, 200},
		"no key":          {nil, 401},
		"only a name":     {[]string{"Authorization", "Bearer trajectory-7"}, 401},
		"a wrong key":     {[]string{"Authorization", "Bearer " + testKey + "x"}, 401},
		"another scheme":  {[]string{"Authorization", "Basic " + testKey}, 401},
		"key without one": {[]string{trajectoryHeader, "", "Authorization", "Bearer " + testKey}, 400},
	} {
		resp := post(t, g, "/v1/completions", `{"prompt":"x"}`, c.header...)
		if got := readAll(t, resp); resp.StatusCode != c.status {
			t.Errorf("%s: %d %s", name, resp.StatusCode, got)
		}
	}
	for _, h := range engines[0].header {
		if h.Get("Authorization") != "Bearer worker-secret" {
			t.Errorf("the engine has seen %v", h)
		}
	}
	for path, status := range map[string]int{"/v1/models": 401, "/metrics": 401, "/health": 200} {
		resp, err := http.Get("http://" + g.Addr() + path)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != status {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
	for _, text := range []string{"", "# nothing\n", "short\n", "a key with many spaces\n", "a-key-with-a-colon:trajectory-7\n"} {
		if _, err := loadKeys(writeFile(t, text)); !errors.Is(err, errKeys) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// What others can reach asks them who they are.
func TestBeyondLoopback(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(pki.NewCA(dir), pki.IssueCertificate(dir, pki.Certificate{Role: pki.RoleServer, Name: "web", Hosts: []string{"127.0.0.1"}}),
		pki.Issue(dir, pki.RoleClient, "loop")); err != nil {
		t.Fatal(err)
	}
	web, loop := pki.FilesIn(dir, "web"), pki.FilesIn(dir, "loop")
	c := newCluster(t)
	for name, cfg := range map[string]Config{
		"plain":        {},
		"keys, no TLS": {APIKeys: writeFile(t, testKey)},
		"TLS, no keys": {Cert: web.Cert, Key: web.Key},
	} {
		cfg.Listen, cfg.Servers = "0.0.0.0:0", []string{c.addr}
		if g, err := Start(cfg); !errors.Is(err, ErrOpen) {
			t.Errorf("%s: %v", name, err)
			if err == nil {
				g.Stop()
			}
		}
	}
	_, _, g := world(t, dialectVLLM, func(cfg *Config) {
		cfg.Listen, cfg.Cert, cfg.Key, cfg.ClientCA = "0.0.0.0:0", web.Cert, web.Key, web.CA
	})
	roots := x509.NewCertPool()
	pem, err := os.ReadFile(web.CA)
	if err != nil {
		t.Fatal(err)
	}
	roots.AppendCertsFromPEM(pem)
	pair, err := tls.LoadX509KeyPair(loop.Cert, loop.Key)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(strings.TrimPrefix(g.Addr(), "[::]"), ":")
	for _, with := range []bool{true, false} {
		conf := &tls.Config{RootCAs: roots}
		if with {
			conf.Certificates = []tls.Certificate{pair}
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: true}}
		req, _ := http.NewRequest(http.MethodPost, "https://127.0.0.1:"+port+"/v1/completions", strings.NewReader(`{"prompt":"x","stream":true,"max_tokens":5}`))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set(trajectoryHeader, "7")
		resp, err := client.Do(req)
		if (err == nil) != with {
			t.Errorf("with a certificate %v: %v", with, err)
		}
		if err == nil {
			if j := join(t, readAll(t, resp)); resp.ProtoMajor != 2 || j.text != generated("x", 5) {
				t.Errorf("%s: %+v", resp.Proto, j)
			}
			resp.Body.Close()
		}
		client.CloseIdleConnections()
	}
}

// pythonClient streams with nothing but the standard library.
const pythonClient = `
import http.client, json, sys
c = http.client.HTTPConnection(sys.argv[1], timeout=60)
body = {"messages": [{"role": "user", "content": "hello"}], "stream": True, "max_tokens": 12, "user": "trajectory-7"}
c.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
r = c.getresponse()
assert r.status == 200, (r.status, r.read())
text, done = "", False
for line in r:
    line = line.decode().strip()
    if line == "data: [DONE]":
        done = True
    elif line.startswith("data: "):
        text += json.loads(line[6:])["choices"][0]["delta"].get("content", "")
assert done
c.request("GET", "/v1/models")
assert [m["id"] for m in json.load(c.getresponse())["data"]] == ["policy"]
sys.stdout.buffer.write(text.encode())
`

// A client of the standard library of Python, whose worker fails in the middle.
func TestPython(t *testing.T) {
	need.Tool(t, "python3")
	c, engines, g := world(t, dialectVLLM, nil)
	engines[0].set(once(5, cutOff))
	moveWhenFailed(t, c, "w1", "w2")
	cmd := exec.CommandContext(t.Context(), "python3", "-c", pythonClient, g.Addr())
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if want := generated("<user>hello<assistant>", 12); err != nil || string(out) != want {
		t.Errorf("%v %q, want %q\n%s", err, out, want, &problems)
	}
}
