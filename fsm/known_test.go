package fsm

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	logv1 "rota/api/gen/log/v1"
)

// TestAnUnknownFieldStopsTheReplica: wherever in an entry there is something that this
// build does not know, it does not go on without.
func TestAnUnknownFieldStopsTheReplica(t *testing.T) {
	more := protowire.AppendVarint(protowire.AppendTag(nil, 900, protowire.VarintType), 1)
	for of, alter := range map[string]func(*logv1.Entry) proto.Message{
		"Entry":     func(e *logv1.Entry) proto.Message { return e },
		"Command":   func(e *logv1.Entry) proto.Message { return e.Commands[0] },
		"Action":    func(e *logv1.Entry) proto.Message { return e.Commands[0].GetSubmitActions().Actions[0] },
		"Bootstrap": func(e *logv1.Entry) proto.Message { return e.Commands[1].GetBootstrap() },
	} {
		e := &logv1.Entry{Commands: []*logv1.Command{submission(2), bootstrapBy(0)}}
		alter(e).ProtoReflect().SetUnknown(more)
		data, err := e.MarshalVT()
		if err != nil {
			t.Fatal(err)
		}
		m := New(Options{})
		if _, err := m.ApplyData(1, 1, data); err == nil || !strings.Contains(err.Error(), "field 900 of "+of) {
			t.Errorf("an unknown field of %s: %v", of, err)
		}
		if m.Applied() != 0 {
			t.Errorf("an entry with an unknown field of %s is applied", of)
		}
	}
}

// FuzzKnown: whatever the decoder makes of bytes, without unknown fields it is known; and
// the look through the bytes ends.
func FuzzKnown(f *testing.F) {
	data, err := (&logv1.Entry{TimeNs: 5, Commands: []*logv1.Command{submission(3), bootstrapBy(2)}}).MarshalVT()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		var e logv1.Entry
		if err := e.UnmarshalVT(data); err != nil {
			_ = entryFields.check(data) // any answer
			return
		}
		if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, &e); err != nil {
			return
		}
		again, err := e.MarshalVT()
		if err != nil {
			t.Fatal(err)
		}
		if err := entryFields.check(again); err != nil {
			t.Errorf("%v in %x", err, again)
		}
		if err := entryFields.check(slices.Concat(again, protowire.AppendVarint(protowire.AppendTag(nil, 901, protowire.VarintType), 1))); err == nil {
			t.Error("a field 901 is known")
		}
	})
}

// BenchmarkKnown compares the look through an entry with its decoding.
func BenchmarkKnown(b *testing.B) {
	for name, c := range map[string]*logv1.Command{
		"submit": submission(1000),
		"report": manyReports(1000),
	} {
		data, err := (&logv1.Entry{Commands: []*logv1.Command{c}}).MarshalVT()
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name+"/known", func(b *testing.B) {
			for range b.N {
				if err := entryFields.check(data); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/item")
		})
		b.Run(name+"/decode", func(b *testing.B) {
			for range b.N {
				var e logv1.Entry
				if err := e.UnmarshalVT(data); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/item")
		})
	}
}

func manyReports(n int) *logv1.Command {
	var reports []*logv1.AttemptReport
	for i := range n {
		reports = append(reports, &logv1.AttemptReport{ActionId: uint64(i + 1), Attempt: 1, ExecNs: 1e9, CpuNs: 1e9, Reason: 1})
	}
	return &logv1.Command{Verb: &logv1.Command_ReportAttempts{ReportAttempts: &logv1.ReportAttempts{Reports: reports}}}
}
