package cli

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

// topRows is how many rows of each table are read.
const topRows = 200

// topViews are the tables of rota top, in the order of their keys.
var topViews = []string{"nodes", "queued", "running", "quotas", "workers"}

func (a *app) topCmd() *cobra.Command {
	var interval time.Duration
	var once bool
	var view string
	cmd := &cobra.Command{
		Use: "top", Short: "Watch nodes, actions, quotas and workers in the terminal", Args: exactly(),
		Long: `Shows the cluster and follows it. Reads come from the server that answers and may be older
than what the leader has, so the command also works without a leader. With -o json, it prints the
table of --view once, as the API's list.

Keys: 1 to 5 or Tab choose a table, j and k or the arrows scroll, Space pauses, q ends.`,
		Example: "  rota top\n  rota top --view queued --interval 5s\n  rota top --once",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			m := &topModel{view: viewNumber(view), interval: interval, read: func() topData { return readTop(ctx, c, a.settings.timeout) }}
			if m.view < 0 {
				return usageErrorf("--view %s: there are %s", view, strings.Join(topViews, ", "))
			}
			if interval < 100*time.Millisecond {
				return usageErrorf("--interval must be at least 100ms")
			}
			if once || a.json() || !isTerminal(a.out) {
				if m.data = m.read(); m.data.err != nil {
					return m.data.err
				}
				return a.printTop(m)
			}
			_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithAltScreen(), tea.WithOutput(unchecked(a.out))).Run()
			if ctx.Err() != nil {
				return nil // Ctrl-C is how one leaves
			}
			return err
		}),
	}
	cmd.Flags().DurationVar(&interval, "interval", 2*time.Second, "time between two looks; at least 100ms")
	cmd.Flags().BoolVar(&once, "once", false, "write what there is now, and end; so it is also when the output is no terminal")
	cmd.Flags().StringVar(&view, "view", "nodes", "table to begin with: "+strings.Join(topViews, ", "))
	words(cmd, "view", topViews...)
	return cmd
}

// printTop prints one look: the frame, or the chosen table as JSON.
func (a *app) printTop(m *topModel) error {
	if a.json() {
		return writeProto(a.out, m.list(), true)
	}
	_, err := fmt.Fprintln(a.out, m.frame())
	return err
}

// list is the chosen table as the API lists it.
func (m *topModel) list() proto.Message {
	d := &m.data
	switch topViews[m.view] {
	case "queued":
		return &rotav1.ListActionsResponse{Actions: d.queued}
	case "running":
		return &rotav1.ListActionsResponse{Actions: d.running}
	case "quotas":
		return &rotav1.ListQuotasResponse{Quotas: d.quotas}
	case "workers":
		return &rotav1.ListWorkersResponse{Workers: d.workers}
	}
	return &rotav1.ListNodesResponse{Nodes: d.nodes}
}

func viewNumber(name string) int {
	for i, v := range topViews {
		if v == name {
			return i
		}
	}
	return -1
}

// topData is one look at the cluster.
type topData struct {
	at      time.Time
	status  *rotav1.GetStatusResponse
	nodes   []*rotav1.Node
	queued  []*rotav1.Action
	running []*rotav1.Action
	quotas  []*rotav1.Quota
	workers []*rotav1.Worker
	err     error
}

// readTop asks for all tables, so that another one is there at once when it is chosen.
func readTop(ctx context.Context, c *client.Client, timeout time.Duration) topData {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	d := topData{at: time.Now()}
	d.status = look(ctx, &d.err, c.Operator.GetStatus, &rotav1.GetStatusRequest{})
	d.nodes = look(ctx, &d.err, c.Nodes.ListNodes, &rotav1.ListNodesRequest{PageSize: topRows, AllowStale: true}).GetNodes()
	list := func(state rotav1.ActionState) []*rotav1.Action {
		return look(ctx, &d.err, c.Actions.ListActions, &rotav1.ListActionsRequest{
			Namespace: "*", States: []rotav1.ActionState{state}, PageSize: topRows, AllowStale: true,
		}).GetActions()
	}
	d.queued, d.running = list(rotav1.ActionState_ACTION_STATE_QUEUED), list(rotav1.ActionState_ACTION_STATE_RUNNING)
	d.quotas = look(ctx, &d.err, c.Quotas.ListQuotas, &rotav1.ListQuotasRequest{AllowStale: true}).GetQuotas()
	d.workers = look(ctx, &d.err, c.Workers.ListWorkers, &rotav1.ListWorkersRequest{PageSize: topRows, AllowStale: true}).GetWorkers()
	return d
}

// look makes one call, unless one before it failed.
func look[Q, A any](ctx context.Context, err *error, method func(context.Context, *Q) (*A, error), req *Q) (answer *A) {
	if *err == nil {
		answer, *err = method(ctx, req)
	}
	return answer
}

// topModel is the state of the screen. It implements tea.Model.
type topModel struct {
	view, scroll  int
	width, height int
	interval      time.Duration
	paused        bool
	read          func() topData
	// data is the newest look that succeeded, problem why a later one did not.
	data    topData
	problem error
}

type topTick struct{}

// Init implements tea.Model.
func (m *topModel) Init() tea.Cmd { return m.look }

func (m *topModel) look() tea.Msg { return m.read() }

// Update implements tea.Model.
func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case topData:
		if m.problem = msg.err; msg.err == nil {
			m.data = msg
		}
		return m, tea.Tick(m.interval, func(time.Time) tea.Msg { return topTick{} })
	case topTick:
		if m.paused {
			return m, tea.Tick(m.interval, func(time.Time) tea.Msg { return topTick{} })
		}
		return m, m.look
	case tea.KeyMsg:
		return m.key(msg.String())
	}
	return m, nil
}

func (m *topModel) key(key string) (tea.Model, tea.Cmd) {
	switch key {
	case "q", "esc", "ctrl+c":
		return m, tea.Quit
	case "tab":
		m.view, m.scroll = (m.view+1)%len(topViews), 0
	case "shift+tab":
		m.view, m.scroll = (m.view+len(topViews)-1)%len(topViews), 0
	case "down", "j":
		m.scroll++
	case "up", "k":
		m.scroll = max(0, m.scroll-1)
	case "pgdown":
		m.scroll += max(1, m.height-topFrame)
	case "pgup":
		m.scroll = max(0, m.scroll-max(1, m.height-topFrame))
	case "home", "g":
		m.scroll = 0
	case " ":
		m.paused = !m.paused
	default:
		if len(key) == 1 && key[0] >= '1' && int(key[0]-'1') < len(topViews) {
			m.view, m.scroll = int(key[0]-'1'), 0
		}
	}
	return m, nil
}

// topFrame is how many lines are no rows of the table.
const topFrame = 5

// View implements tea.Model: as much of the frame as the screen has room for.
func (m *topModel) View() string {
	if m.data.status == nil {
		if m.problem != nil {
			return "No answer: " + printable(m.problem.Error()) + "\nq ends."
		}
		return "Asking the cluster ..."
	}
	lines := strings.Split(m.frame(), "\n")
	if m.height <= topFrame || m.width <= 0 {
		return strings.Join(lines, "\n")
	}
	head, rows := lines[:topFrame-1], lines[topFrame-1:]
	room := m.height - topFrame
	m.scroll = min(m.scroll, max(0, len(rows)-room))
	rows = rows[m.scroll:min(len(rows), m.scroll+room)]
	for i := range head {
		head[i] = cut(head[i], m.width)
	}
	for i := range rows {
		rows[i] = cut(rows[i], m.width)
	}
	return strings.Join(append(head, rows...), "\n")
}

// cut shortens a line to the width of the screen.
func cut(line string, width int) string {
	if r := []rune(line); len(r) > width {
		return string(r[:max(0, width-1)]) + "…"
	}
	return line
}

// frame is everything that there is to show: two lines about the cluster, one about the tables,
// and the chosen table.
func (m *topModel) frame() string {
	s := m.data.status
	var b bytes.Buffer
	leader := s.GetLeaderId()
	if leader == "" {
		leader = "none"
	}
	fmt.Fprintf(&b, "%s  leader %s  %d queued  %d running  %d trajectories  %s up\n", m.data.at.Format("15:04:05"),
		printable(leader), s.GetQueuedActions(), s.GetRunningActions(), s.GetOpenTrajectories(), plural(int(s.GetNodesUp()), "node"))
	switch {
	case m.problem != nil:
		fmt.Fprintf(&b, "NO ANSWER since: %s\n", printable(m.problem.Error()))
	case m.paused:
		b.WriteString("paused: Space goes on\n")
	default:
		fmt.Fprintf(&b, "cluster %s  %s  entry %d\n", s.GetClusterId(), printable(s.GetServerId()), s.GetAppliedIndex())
	}
	for i, name := range topViews {
		mark := " "
		if i == m.view {
			mark = "*"
		}
		fmt.Fprintf(&b, "%d%s%s  ", i+1, mark, name)
	}
	b.WriteString("\n")
	header, rows := m.table()
	writeTable(&b, header, rows)
	return strings.TrimRight(b.String(), "\n")
}

// table is the chosen table.
func (m *topModel) table() (header []string, rows [][]string) {
	d := &m.data
	switch topViews[m.view] {
	case "nodes":
		header = []string{"name", "state", "pool", "free cores", "free memory", "free gpus", "running", "queued", "trajectories"}
		for _, n := range d.nodes {
			gpus := ""
			if n.Gpus != nil {
				gpus = fmt.Sprintf("%d of %d", len(n.FreeGpus), n.Gpus.Count)
			}
			rows = append(rows, []string{n.Name, nodeState(n), n.Pool, coresText(n), memoryText(n), gpus,
				fmt.Sprint(n.RunningActions), fmt.Sprint(n.QueuedActions), fmt.Sprint(n.OpenTrajectories)})
		}
	case "queued", "running":
		header = []string{"id", "namespace", "name", "class", "node", "cores", "gpus", "for", "command"}
		actions := d.queued
		if topViews[m.view] == "running" {
			actions = d.running
		}
		for _, act := range actions {
			since := act.SubmitTime
			if act.StartTime != nil {
				since = act.StartTime
			}
			rows = append(rows, []string{fmt.Sprint(act.Id), act.Namespace, act.Spec.GetName(), act.Spec.GetClass(), act.Node,
				formatCPUs(act.Cpus), formatCPUs(act.Gpus), formatDuration(max(0, d.at.Sub(since.AsTime())).Truncate(time.Second)), commandText(act, 60)})
		}
	case "quotas":
		header = []string{"name", "limit", "in use", "effective", "waiting", "overdrawn"}
		for _, q := range d.quotas {
			rows = append(rows, []string{q.Name, fmt.Sprintf("%d x %d", q.Limit, q.Keys), fmt.Sprint(q.HeldUnits + q.WindowUnits),
				fmt.Sprint(q.EffectiveUnits), fmt.Sprint(q.WaitingActions), fmt.Sprint(q.OverdrawnUnits)})
		}
	case "workers":
		header = []string{"name", "policy", "state", "version", "degree", "trajectories", "generating", "predicted", "tokens"}
		for _, w := range d.workers {
			rows = append(rows, []string{w.Spec.GetName(), w.Spec.GetPolicy(), enumWord(w.State, "WORKER_STATE_"), fmt.Sprint(w.Spec.GetVersion()),
				fmt.Sprint(w.Spec.GetDegree()), fmt.Sprint(w.Trajectories), fmt.Sprint(w.Generating), fmt.Sprint(w.PredictedTokens), fmt.Sprint(w.OutputTokens)})
		}
	}
	return header, rows
}
