package rpc

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	rotav1 "rota/api/gen/rota/v1"
)

func goodSpec() *rotav1.ActionSpec {
	return &rotav1.ActionSpec{
		Name:       "unit tests",
		Command:    &rotav1.Command{Argv: strings.Fields("go test -count=1 -p {{cores}} -run ^TestX$ ./a ./b ./c"), Env: map[string]string{"GOCACHE": "/var/cache/go"}},
		Resources:  &rotav1.Resources{Cores: proto.Uint32(2), MaxCores: 8, MemoryBytes: 1 << 30},
		RunTimeout: durationpb.New(time.Minute),
	}
}

func submitOf(specs ...*rotav1.ActionSpec) *rotav1.SubmitActionsRequest {
	return &rotav1.SubmitActionsRequest{Namespace: "train", RequestId: "r-1", Actions: specs}
}

func TestSubmissionsAreRefusedWithThePathOfWhatIsWrong(t *testing.T) {
	cases := []struct {
		name  string
		spoil func(*rotav1.SubmitActionsRequest, *rotav1.ActionSpec)
		want  string // empty: nothing is wrong
	}{
		{"good", func(*rotav1.SubmitActionsRequest, *rotav1.ActionSpec) {}, ""},
		{"no actions", func(r *rotav1.SubmitActionsRequest, _ *rotav1.ActionSpec) { r.Actions = nil }, "actions must have at least one action"},
		{"too many actions", func(r *rotav1.SubmitActionsRequest, s *rotav1.ActionSpec) {
			r.Actions = make([]*rotav1.ActionSpec, 4097)
		}, "actions must have at most 4096 actions, has 4097"},
		{"namespace", func(r *rotav1.SubmitActionsRequest, _ *rotav1.ActionSpec) { r.Namespace = "Train!" }, `namespace may contain only a-z, 0-9, '-' and '.', is "Train!"`},
		{"request ID too long", func(r *rotav1.SubmitActionsRequest, _ *rotav1.ActionSpec) { r.RequestId = strings.Repeat("x", 65) }, "request_id must have at most 64 bytes, has 65"},
		{"expiry without ID", func(r *rotav1.SubmitActionsRequest, _ *rotav1.ActionSpec) {
			r.RequestId, r.ExpireTime = "", timestamppb.Now()
		}, "expire_time needs a request_id to expire"},
		{"expiry that is no time", func(r *rotav1.SubmitActionsRequest, _ *rotav1.ActionSpec) {
			r.ExpireTime = &timestamppb.Timestamp{Seconds: 1, Nanos: -1}
		}, "expire_time is not a valid time"},
		{"expiry in the year 9999", func(r *rotav1.SubmitActionsRequest, _ *rotav1.ActionSpec) {
			r.ExpireTime = &timestamppb.Timestamp{Seconds: 253402300799}
		}, "expire_time is not a valid time"},
		{"no spec", func(r *rotav1.SubmitActionsRequest, _ *rotav1.ActionSpec) { r.Actions[1] = nil }, "actions[1].command is required"},
		{"name", func(_ *rotav1.SubmitActionsRequest, s *rotav1.ActionSpec) { s.Name = strings.Repeat("n", 129) }, "actions[1].name must have at most 128 bytes, has 129"},
		{"name not UTF-8", func(_ *rotav1.SubmitActionsRequest, s *rotav1.ActionSpec) { s.Name = "\xff" }, "actions[1].name must be valid UTF-8"},
		{"pool of a trajectory", func(_ *rotav1.SubmitActionsRequest, s *rotav1.ActionSpec) { s.Pool, s.TrajectoryId = "cpu", 7 }, "actions[1].pool must be empty for an action of a trajectory: it runs in the trajectory's"},
		{"field of the future", func(_ *rotav1.SubmitActionsRequest, s *rotav1.ActionSpec) {
			s.Resources.ProtoReflect().SetUnknown([]byte{0xf8, 0x3f, 1}) // field 1023, varint 1
		}, "actions[1] has fields that this server does not know"},
		{"no command", func(_ *rotav1.SubmitActionsRequest, s *rotav1.ActionSpec) { s.Command = nil }, "actions[1].command is required, unless http is given"},
		{"empty program", func(_ *rotav1.SubmitActionsRequest, s *rotav1.ActionSpec) { s.Command.Argv[0] = "" }, "actions[1].command.argv must name a program"},
		{"NUL in an argument", func(_ *rotav1.SubmitActionsRequest, s *rotav1.ActionSpec) { s.Command.Argv[2] = "a\x00b" }, "actions[1].command.argv[2] must not contain a NUL byte"},
		{"too many arguments", func(_ *rotav1.SubmitActionsRequest, s *rotav1.ActionSpec) {
			s.Command.Argv = append(s.Command.Argv, make([]string, 4096)...)
		}, "actions[1].command.argv must have at most 4096 arguments"},
		{"illegal variable", func(_ *rotav1.SubmitActionsRequest, s *rotav1.ActionSpec) { s.Command.Env["A=B"] = "" }, `actions[1].command.env has the key "A=B"`},
		{"variable with a digit first", func(_ *rotav1.SubmitActionsRequest, s *rotav1.ActionSpec) { s.Command.Env["1A"] = "" }, `actions[1].command.env has the key "1A"`},
		{"variable of rota", func(_ *rotav1.SubmitActionsRequest, s *rotav1.ActionSpec) { s.Command.Env["ROTA_TOKEN"] = "" }, `actions[1].command.env has the key "ROTA_TOKEN": what begins with ROTA_ is set by rota`},
		{"NUL in a variable", func(_ *rotav1.SubmitActionsRequest, s *rotav1.ActionSpec) { s.Command.Env["A"] = "\x00" }, `actions[1].command.env["A"] must not contain a NUL byte`},
		{"directory outside", func(_ *rotav1.SubmitActionsRequest, s *rotav1.ActionSpec) { s.Command.Dir = "a/../../src" }, `actions[1].command.dir must be an absolute path, a path below the directory of the trajectory or the attempt, or empty; is "a/../../src"`},
		{"memory below what a process needs", func(_ *rotav1.SubmitActionsRequest, s *rotav1.ActionSpec) { s.Resources.MemoryBytes = 4095 }, "actions[1].resources.memory_bytes must be at least 1 MiB, which a process needs to start, or 0 for no limit; is 4095 bytes"},
		{"cores", func(_ *rotav1.SubmitActionsRequest, s *rotav1.ActionSpec) { s.Resources.Cores = proto.Uint32(600) }, "actions[1].resources.cores must be at most 512, is 600"},
		{"fewer at most than at least", func(_ *rotav1.SubmitActionsRequest, s *rotav1.ActionSpec) { s.Resources.MaxCores = 1 }, "actions[1].resources.max_cores must be 0 or at least cores, which is 2; is 1"},
		{"memory that would overflow sums", func(_ *rotav1.SubmitActionsRequest, s *rotav1.ActionSpec) { s.Resources.MemoryBytes = 1<<64 - 1 }, "actions[1].resources.memory_bytes must be at most 1 PiB, is 18446744073709551615 bytes"},
		{"negative duration", func(_ *rotav1.SubmitActionsRequest, s *rotav1.ActionSpec) { s.QueueTimeout = durationpb.New(-1) }, "actions[1].queue_timeout must not be negative, is -1ns"},
		{"long duration", func(_ *rotav1.SubmitActionsRequest, s *rotav1.ActionSpec) {
			s.RunTimeout = durationpb.New(31 * 24 * time.Hour)
		}, "actions[1].run_timeout must be at most 720h0m0s, is 744h0m0s"},
		{"duration of 10,000 years", func(_ *rotav1.SubmitActionsRequest, s *rotav1.ActionSpec) {
			s.RunTimeout = &durationpb.Duration{Seconds: 315_576_000_001}
		}, "actions[1].run_timeout is not a valid duration"},
		{"unknown policy", func(_ *rotav1.SubmitActionsRequest, s *rotav1.ActionSpec) { s.LossPolicy = 9 }, "actions[1].loss_policy is not a policy: 9"},
		{"attempts without retry", func(_ *rotav1.SubmitActionsRequest, s *rotav1.ActionSpec) { s.MaxAttempts = 2 }, "actions[1].max_attempts is 2, but without LOSS_POLICY_RETRY an action runs at most once"},
		{"too many attempts", func(_ *rotav1.SubmitActionsRequest, s *rotav1.ActionSpec) {
			s.LossPolicy, s.MaxAttempts = rotav1.LossPolicy_LOSS_POLICY_RETRY, 101
		}, "actions[1].max_attempts must be at most 100, is 101"},
		{"size", func(_ *rotav1.SubmitActionsRequest, s *rotav1.ActionSpec) {
			s.Command.Argv = append(s.Command.Argv, strings.Repeat("a", 40<<10), strings.Repeat("b", 40<<10))
		}, "actions[1].command makes the action"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := submitOf(goodSpec(), goodSpec())
			c.spoil(r, r.Actions[min(1, len(r.Actions)-1)])
			err := checkSubmit(r).err()
			switch {
			case c.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)):
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestRegistrationsAreRefused(t *testing.T) {
	good := func() *rotav1.RegisterNodeRequest {
		return &rotav1.RegisterNodeRequest{
			Name: "node-1", Address: "10.0.0.7:7410", JournalId: "j", MemoryBytes: 1 << 30,
			NumaNodes: []*rotav1.NumaNode{{Cpus: []uint32{0, 2}}, {Cpus: []uint32{1, 3}}},
		}
	}
	cases := []struct {
		name  string
		spoil func(*rotav1.RegisterNodeRequest)
		want  string
	}{
		{"good", func(*rotav1.RegisterNodeRequest) {}, ""},
		{"no name", func(r *rotav1.RegisterNodeRequest) { r.Name = "" }, "name is required"},
		{"name", func(r *rotav1.RegisterNodeRequest) { r.Name = "node_1" }, "name may contain only"},
		{"address", func(r *rotav1.RegisterNodeRequest) { r.Address = "10.0.0.7" }, "address must be host:port"},
		{"no journal", func(r *rotav1.RegisterNodeRequest) { r.JournalId = "" }, "journal_id is required"},
		{"no memory", func(r *rotav1.RegisterNodeRequest) { r.MemoryBytes = 0 }, "memory_bytes must not be 0"},
		{"memory", func(r *rotav1.RegisterNodeRequest) { r.MemoryBytes = 1 << 62 }, "memory_bytes must be at most"},
		{"no CPUs", func(r *rotav1.RegisterNodeRequest) { r.NumaNodes = nil }, "numa_nodes must have at least one node"},
		{"empty NUMA node", func(r *rotav1.RegisterNodeRequest) { r.NumaNodes[1].Cpus = nil }, "numa_nodes[1].cpus must not be empty"},
		{"high CPU", func(r *rotav1.RegisterNodeRequest) { r.NumaNodes[0].Cpus[1] = 512 }, "numa_nodes[0].cpus has CPU 512; the highest there can be is 511"},
		{"same CPU twice", func(r *rotav1.RegisterNodeRequest) { r.NumaNodes[1].Cpus[0] = 2 }, "numa_nodes[1].cpus has CPU 2, which is listed before"},
		{"label", func(r *rotav1.RegisterNodeRequest) { r.Labels = map[string]string{"": "x"} }, "labels must not have an empty key"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := good()
			c.spoil(r)
			err := checkRegistration(r).err()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestEqualSpecsAreEncodedEqually(t *testing.T) {
	s := goodSpec()
	for _, k := range []string{"A", "B", "C", "D", "E", "F"} {
		s.Command.Env[k] = k
	}
	first, err := encodeSpec(s)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if again, _ := encodeSpec(proto.CloneOf(s)); !bytes.Equal(first, again) {
			t.Fatal("two encodings of one spec differ")
		}
	}
}

func TestTailsShareWhatMayBeKept(t *testing.T) {
	cases := []struct{ stdout, stderr, wantOut, wantErr int }{
		{10, 20, 10, 20},
		{5000, 0, 4096, 0},
		{0, 5000, 0, 4096},
		{5000, 5000, 2048, 2048},
		{5000, 96, 4000, 96},
		{96, 5000, 96, 4000},
	}
	for _, c := range cases {
		out, errs := tails(make([]byte, c.stdout), make([]byte, c.stderr))
		if len(out) != c.wantOut || len(errs) != c.wantErr {
			t.Errorf("tails(%d, %d) = %d, %d; want %d, %d", c.stdout, c.stderr, len(out), len(errs), c.wantOut, c.wantErr)
		}
	}
	if got := sentence(strings.Repeat("x", messageBytesMax-1)+"é", messageBytesMax); got != strings.Repeat("x", messageBytesMax-1) {
		t.Errorf("a cut character is kept: %q", got[messageBytesMax-2:])
	}
}

// FuzzSubmit: whatever is decoded and passes the checks can be encoded for the
// log, fits its limits, and is read back the same.
func FuzzSubmit(f *testing.F) {
	seed, _ := submitOf(goodSpec(), spec2(), callSpec()).MarshalVT()
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		var r rotav1.SubmitActionsRequest
		if r.UnmarshalVT(data) != nil || checkSubmit(&r) != nil {
			return
		}
		command, err := submission(&r)
		if err != nil {
			t.Fatalf("checked, but not encoded: %v", err)
		}
		for i, a := range command.GetSubmitActions().Actions {
			if len(a.Spec) > specBytesMax || a.CoresMin == 0 && a.Needs == nil || a.CoresMax < a.CoresMin || a.AttemptsMax == 0 || a.QueueTimeoutNs < 0 {
				t.Fatalf("impossible action: %v", a)
			}
			var back rotav1.ActionSpec
			if err := proto.Unmarshal(a.Spec, &back); err != nil { // the strict decoder
				t.Fatalf("spec is not readable: %v", err)
			}
			if !proto.Equal(&back, r.Actions[i]) {
				t.Fatalf("spec changed from %v to %v", r.Actions[i], &back)
			}
		}
	})
}

func spec2() *rotav1.ActionSpec {
	return &rotav1.ActionSpec{
		TrajectoryId: 9, LossPolicy: rotav1.LossPolicy_LOSS_POLICY_RETRY, MaxAttempts: 5,
		Command: &rotav1.Command{Argv: []string{"true"}, Env: map[string]string{"A": "1", "B": "2"}, Dir: "/tmp"},
	}
}

func FuzzPageToken(f *testing.F) {
	p, _ := newPage(10, "", 1, 2, 3)
	f.Add(p.token(77))
	f.Add("AAAA")
	f.Fuzz(func(t *testing.T, token string) {
		p, v := newPage(10, token, 1, 2, 3)
		if v != nil || token == "" {
			return
		}
		if p.token(p.after) != token {
			t.Errorf("%q is accepted, but is not the token for %d", token, p.after)
		}
	})
}

func TestPageTokensAreGoodForTheirListOnly(t *testing.T) {
	p, _ := newPage(0, "", 1, 42)
	token := p.token(77)
	if again, v := newPage(0, token, 1, 42); v != nil || again.after != 77 || again.size != pageSizeDefault {
		t.Errorf("own token: %+v, %v", again, v)
	}
	for name, token := range map[string]string{
		"of another list": func() string { q, _ := newPage(0, "", 2, 42); return q.token(77) }(),
		"cut":             token[:10],
		"changed":         "B" + token[1:],
		"not base64":      "???",
	} {
		if _, v := newPage(0, token, 1, 42); v == nil {
			t.Errorf("token %s is accepted", name)
		}
	}
	if _, v := newPage(1001, "", 1); v == nil {
		t.Error("page of 1001 is accepted")
	}
}

func BenchmarkValidate(b *testing.B) {
	r := submitOf(goodSpec())
	b.ReportAllocs()
	for b.Loop() {
		if v := checkSubmit(r); v != nil {
			b.Fatal(v)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	two := goodSpec()
	two.Command.Env["GOFLAGS"] = "-mod=mod"
	for name, s := range map[string]*rotav1.ActionSpec{"env=1": goodSpec(), "env=2": two} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := submission(submitOf(s)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
