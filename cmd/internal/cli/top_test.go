package cli

import (
	"errors"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"google.golang.org/protobuf/types/known/timestamppb"

	rotav1 "rota/api/gen/rota/v1"
)

// topOf is a screen with so many queued actions.
func topOf(queued int) *topModel {
	d := topData{at: time.Unix(1_800_000_100, 0), status: &rotav1.GetStatusResponse{LeaderId: "s1", ServerId: "s2", QueuedActions: uint64(queued), NodesUp: 1}}
	for i := range queued {
		d.queued = append(d.queued, &rotav1.Action{
			Id: uint64(i + 1), Namespace: "default", Spec: &rotav1.ActionSpec{Name: "evil\x1b[2J"}, SubmitTime: &timestamppb.Timestamp{Seconds: 1_800_000_000},
		})
	}
	d.nodes = []*rotav1.Node{{Name: "node-1", State: rotav1.NodeState_NODE_STATE_UP, Gpus: &rotav1.GpuInventory{Count: 8}, FreeGpus: []uint32{1, 2}}}
	m := &topModel{interval: time.Second}
	m.read = func() topData { return d }
	m.Update(m.Init()())
	m.Update(tea.WindowSizeMsg{Width: 70, Height: 12})
	return m
}

func press(m *topModel, keys ...string) {
	for _, k := range keys {
		switch k {
		case "tab":
			m.Update(tea.KeyMsg{Type: tea.KeyTab})
		case "pgdown":
			m.Update(tea.KeyMsg{Type: tea.KeyPgDown})
		default:
			m.Update(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(k)})
		}
	}
}

func TestTopShowsAndScrolls(t *testing.T) {
	m := topOf(30)
	if got := m.View(); !strings.Contains(got, "node-1") || !strings.Contains(got, "2 of 8") || !strings.Contains(got, "leader s1") {
		t.Error(got)
	}
	press(m, "tab")
	got := m.View()
	if !strings.Contains(got, "2*queued") || strings.Contains(got, "\x1b") || !strings.Contains(got, "1m40s") {
		t.Error(got)
	}
	press(m, "pgdown", "pgdown", "pgdown", "pgdown", "pgdown", "pgdown")
	for _, line := range strings.Split(m.View(), "\n") {
		if len([]rune(line)) > 70 {
			t.Errorf("wider than the screen: %q", line)
		}
	}
	if got := m.View(); !strings.Contains(got, "\n30 ") || strings.Count(got, "\n") >= 12 {
		t.Error(got)
	}
	press(m, "4")
	if got := m.View(); !strings.Contains(got, "OVERDRAWN") {
		t.Error(got)
	}
}

func TestTopGoesOnWithoutAnAnswer(t *testing.T) {
	m := topOf(1)
	m.Update(topData{err: errors.New("no server answers")})
	if got := m.View(); !strings.Contains(got, "no server answers") || !strings.Contains(got, "node-1") {
		t.Error(got)
	}
	m.Update(m.look())
	if got := m.View(); strings.Contains(got, "no server answers") {
		t.Error(got)
	}
	press(m, " ")
	if _, cmd := m.Update(topTick{}); !strings.Contains(m.View(), "paused") || cmd == nil {
		t.Error(m.View())
	}
	if _, cmd := m.Update(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("q")}); cmd == nil || cmd() != (tea.QuitMsg{}) {
		t.Error("q does not end it")
	}
}

func TestTopIsJSONToo(t *testing.T) {
	var out strings.Builder
	a := &app{out: &out, settings: settings{output: "json"}}
	m := topOf(2)
	m.view = viewNumber("queued")
	if err := a.printTop(m); err != nil || strings.Count(out.String(), `"id":`) != 2 {
		t.Errorf("%v\n%s", err, out.String())
	}
}
