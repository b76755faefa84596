package resp

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rota/agent/tier"
	"rota/internal/need"
)

// output runs a program and returns what it says.
func output(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func port(t testing.TB, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	must(t, err)
	return port
}

func twoTiers(t testing.TB) tier.Options {
	return tier.Options{MemoryBytes: 64 << 20, Dir: t.TempDir(), DiskBytes: 256 << 20, BootID: "boot"}
}

func TestRedisCLI(t *testing.T) {
	need.Redis(t)
	address, s := serve(t, twoTiers(t), "secret")
	cli := func(args ...string) string {
		return strings.TrimSpace(output(t, "redis-cli", append([]string{"-p", port(t, address), "--no-auth-warning", "-a", "secret"}, args...)...))
	}
	for _, c := range []struct{ args, want string }{
		{"SET key value EX 100", "OK"}, {"GET key", "value"}, {"-3 GET key", "value"},
		{"MSET a 1 b 2", "OK"}, {"MGET a b", "1\n2"}, {"--scan --pattern k*", "key"}, {"DBSIZE", "3"}, {"FLUSHDB", "OK"},
		{"LPUSH a b", "ERR unknown command 'LPUSH', with args beginning with: 'a' 'b'"},
	} {
		if got := cli(strings.Fields(c.args)...); got != c.want {
			t.Errorf("%s: %q, want %q", c.args, got, c.want)
		}
	}
	if info := cli("INFO"); !strings.Contains(info, "redis_version:") || !strings.Contains(info, "disk:works") {
		t.Errorf("%s", info)
	}
	large := filepath.Join(t.TempDir(), "large")
	must(t, os.WriteFile(large, make([]byte, 3<<20), 0o600))
	output(t, "sh", "-c", "redis-cli -x -p "+port(t, address)+" --no-auth-warning -a secret SET large < "+large)
	if n, _ := s.Size("large"); n != 3<<20 {
		t.Errorf("a large value has %d bytes", n)
	}
}

func TestRedisBenchmark(t *testing.T) {
	need.Redis(t)
	address, s := serve(t, twoTiers(t), "")
	for _, pipeline := range []string{"1", "16"} {
		out := output(t, "redis-benchmark", "-p", port(t, address), "-t", "ping,set,get,mset", "-n", "500", "-c", "8", "-d", "10000", "-r", "100", "-P", pipeline, "-q")
		for _, test := range []string{"PING_INLINE", "PING_MBULK", "SET", "GET", "MSET"} {
			if !strings.Contains(out, test) {
				t.Errorf("pipeline %s: no %s in %s", pipeline, test, out)
			}
		}
	}
	if st := s.Stat(); st.MemoryHits < 500 || st.Keys < 50 {
		t.Errorf("%+v", st)
	}
}

// What LMCache's redis:// back end does, with the client that it does it with.
const pythonScript = `
import asyncio, os, sys, redis, redis.asyncio
versions = [{}]
if int(redis.__version__.split(".")[0]) >= 5:
    versions.append({"protocol": 3})
for kw in versions:
    r = redis.Redis.from_url(sys.argv[1], **kw)
    value = os.urandom(3_000_000)
    assert r.ping() and r.set("k", value, ex=50) and r.get("k") == value and 0 < r.ttl("k") <= 50
    assert not r.set("k", b"x", nx=True) and r.exists("k", "none") == 1 and r.strlen("k") == len(value)
    with r.pipeline(transaction=False) as p:
        for i in range(50):
            p.set(f"p{i}", str(i) * 1000)
        for i in range(50):
            p.get(f"p{i}")
        out = p.execute()
    assert out[:50] == [True] * 50 and out[50:] == [(str(i) * 1000).encode() for i in range(50)]
    assert r.mset({"a": 1, "b": 2}) and r.mget("a", "none", "b") == [b"1", None, b"2"]
    assert len(set(r.scan_iter("p*", count=7))) == 50 and r.dbsize() == 53
    assert r.delete("a", "none") == 1 and r.unlink("b") == 1 and r.pexpire("p0", 60000) and r.info()["keys"] == 51
    try:
        r.lpush("k", "x")
        assert False
    except redis.ResponseError as e:
        assert "unknown command" in str(e)
    assert r.flushdb() and r.get("k") is None

async def lmcache():
    r = await redis.asyncio.from_url(sys.argv[1])
    chunks = {f"model@1@0@{i:064x}@half": os.urandom(250_000) for i in range(20)}
    for key, kv in chunks.items():
        assert not await r.exists(key + "metadata")
        await r.set(key + "kv_bytes", kv)
        await r.set(key + "metadata", b"m" * 28)
    found = await asyncio.gather(*(r.get(key + "kv_bytes") for key in chunks))
    assert found == list(chunks.values())
    await r.close()
asyncio.run(lmcache())
print("fine")
`

func TestPythonClient(t *testing.T) {
	python := need.Redis(t)
	address, s := serve(t, twoTiers(t), "secret")
	if out := output(t, python, "-W", "ignore", "-c", pythonScript, "redis://:secret@"+address); strings.TrimSpace(out) != "fine" {
		t.Errorf("%s", out)
	}
	if n := s.Len(); n != 40 {
		t.Errorf("%d keys", n)
	}
}

// redisServer starts Redis itself, without persistence.
func redisServer(b *testing.B) (address string) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	address = l.Addr().String()
	must(b, l.Close())
	cmd := exec.Command("redis-server", "--port", port(b, address), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", b.TempDir())
	must(b, cmd.Start())
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for limit := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		nc, err := net.Dial("tcp", address)
		if err == nil {
			_ = nc.Close()
			return address
		}
		if time.Now().After(limit) {
			b.Fatal(err)
		}
	}
}

// BenchmarkBesideRedis lets redis-benchmark set and get values of 256 KiB, of Redis and of
// a memory tier, in turn. The values that are set differ: redis-benchmark puts numbers
// into them.
func BenchmarkBesideRedis(b *testing.B) {
	need.Redis(b)
	ours, s := serve(b, tier.Options{MemoryBytes: 1 << 30}, "")
	theirs := redisServer(b)
	const placeholder = "__rand_int__"
	value := strings.Repeat(placeholder, 4) + strings.Repeat("x", 256<<10-4*len(placeholder))
	setN := func(b *testing.B, n int, address, pipeline string) {
		cmd := exec.Command("redis-benchmark", "-p", port(b, address), "-n", fmt.Sprint(n), "-c", "8",
			"-r", "1000", "-P", pipeline, "-q", "-x", "SET", "key:"+placeholder)
		cmd.Stdin = strings.NewReader(value)
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
	set := func(b *testing.B, address, pipeline string) { setN(b, max(b.N, 16), address, pipeline) }
	get := func(b *testing.B, address, pipeline string) {
		output(b, "redis-benchmark", "-p", port(b, address), "-n", fmt.Sprint(max(b.N, 16)), "-c", "8",
			"-r", "1000", "-P", pipeline, "-q", "GET", "key:"+placeholder)
	}
	for _, address := range []string{ours, theirs} { // the memory is touched for the first time
		setN(b, 8000, address, "1")
	}
	for _, test := range []struct {
		name string
		run  func(b *testing.B, address, pipeline string)
	}{{"set", set}, {"get", get}} {
		for _, pipeline := range []string{"1", "16"} {
			for _, server := range []struct{ name, address string }{{"rota", ours}, {"redis", theirs}} {
				b.Run(fmt.Sprintf("%s/pipeline-%s/%s", test.name, pipeline, server.name), func(b *testing.B) {
					b.SetBytes(256 << 10)
					test.run(b, server.address, pipeline)
				})
			}
		}
	}
	if st := s.Stat(); st.UniqueBytes < st.LogicalBytes {
		b.Errorf("values are equal: %+v", st)
	}
}
