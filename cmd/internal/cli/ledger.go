package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rota/api/client"
	rotav1 "rota/api/gen/rota/v1"
)

const (
	// ledgerWidth is how many characters a group is drawn with.
	ledgerWidth = 60
	// ledgerLetters stand for jobs; all after them share the last.
	ledgerLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz*"
)

// ledgerColours are the codes of colours that letters have on a terminal, one after the
// other and from the first again: neighbours are told apart, and the letter tells which
// job it is. Black and white are left out, which may be those of the background.
var ledgerColours = [...]int{32, 33, 34, 35, 36, 31, 92, 93, 94, 95, 96, 91}

func (a *app) ledgerCmd() *cobra.Command {
	return group("ledger", "See who has reserved node groups when", a.reads(a.ledgerShowCmd()), a.ledgerResumeCmd())
}

func (a *app) ledgerShowCmd() *cobra.Command {
	var window time.Duration
	req := &rotav1.GetLedgerRequest{}
	cmd := &cobra.Command{
		Use: "show", Short: "Draw what is reserved of the node groups from now on", Args: exactly(),
		Long: `Draws a row for each group, from now on. A letter is a job, a dot is free. Where more
than one is in the time of a character, the one that has most of it is drawn. On a terminal
jobs have colours, unless NO_COLOR is set.`,
		Example: "  rota ledger show --window 30m\n  rota ledger show --group train-a -o json",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			if window > 0 { // how long a slot is, the cluster knows
				first, err := call(ctx, a, c.Ledger.GetLedger, &rotav1.GetLedgerRequest{Slots: 1, Group: req.Group})
				if err != nil {
					return err
				}
				slot := max(1, first.Slot.AsDuration())
				req.Slots = uint32(min((window+slot-1)/slot, 1<<31))
			}
			resp, err := call(ctx, a, c.Ledger.GetLedger, req)
			if err != nil {
				return err
			}
			if a.json() {
				return writeProto(a.out, resp, true)
			}
			paint := func(text string) string { return text }
			if isTerminal(a.out) && os.Getenv("NO_COLOR") == "" {
				paint = colourLetters
			}
			drawLedger(a.out, resp, paint)
			return nil
		}),
	}
	cmd.Flags().DurationVar(&window, "window", 0, "how far to look, such as 30m (default: the longest period)")
	cmd.Flags().StringVar(&req.Group, "group", "", "only this group")
	return cmd
}

func (a *app) ledgerResumeCmd() *cobra.Command {
	return &cobra.Command{
		Use: "resume", Short: "Go on after failed decisions of the ledger", Args: exactly(),
		Example: "  rota ledger resume",
		RunE: a.with(func(ctx context.Context, c *client.Client, _ []string) error {
			resp, err := call(ctx, a, c.Ledger.ResumeLedger, &rotav1.ResumeLedgerRequest{})
			if err != nil {
				return err
			}
			return a.printFields(resp, []field{{"ledger", "resumed"}})
		}),
	}
}

// colourLetters gives each letter its colour.
func colourLetters(text string) string {
	var b strings.Builder
	for len(text) > 0 {
		run := len(text) - len(strings.TrimLeft(text, text[:1]))
		if i := strings.IndexByte(ledgerLetters, text[0]); i >= 0 {
			fmt.Fprintf(&b, "\033[%dm%s\033[0m", ledgerColours[i%len(ledgerColours)], text[:run])
		} else {
			b.WriteString(text[:run])
		}
		text = text[run:]
	}
	return b.String()
}

// drawLedger writes a row for each group and what the letters mean, which are painted.
func drawLedger(w io.Writer, l *rotav1.GetLedgerResponse, paint func(letters string) string) {
	letters, order := map[string]byte{}, []string{}
	for _, g := range l.Groups {
		for _, r := range g.Reservations {
			if _, known := letters[r.Job]; !known {
				letters[r.Job] = ledgerLetters[min(len(order), len(ledgerLetters)-1)]
				order = append(order, r.Job)
			}
		}
	}
	slot, width := l.Slot.AsDuration(), int(min(ledgerWidth, max(1, int64(l.Slots))))
	window := time.Duration(l.Slots) * slot
	fmt.Fprintf(w, "log time now %s, slots of %v, a character is %v\n", formatTime(l.LogTime), slot, formatDuration(window/time.Duration(width)))
	if l.Halted != "" {
		fmt.Fprintf(w, "placement is halted: %s\n", printable(l.Halted))
	}
	name := 0
	for _, g := range l.Groups {
		name = max(name, len(g.Group.Name))
	}
	fmt.Fprintf(w, "%*s  now%*s\n", name, "", width-3+2, "+"+formatDuration(window))
	for _, g := range l.Groups {
		note := groupHolder(g.Group)
		if g.Group.Halted != "" {
			note = "halted: " + printable(g.Group.Halted)
		}
		fmt.Fprintf(w, "%-*s |%s| %s\n", name, g.Group.Name, paint(drawGroup(g, l.NowSlot, int64(l.Slots), width, letters)), note)
	}
	for _, job := range order {
		fmt.Fprintf(w, "%s  %s\n", paint(string(letters[job])), job)
	}
}

// drawGroup draws the slots of a window with so many characters: each is the job that
// has most of its slots, if that is at least half of them.
func drawGroup(g *rotav1.LedgerGroup, from, slots int64, width int, letters map[string]byte) string {
	var b strings.Builder
	for i := range int64(width) {
		begin, end := from+i*slots/int64(width), from+(i+1)*slots/int64(width)
		best, most := byte('.'), (end-begin)/2
		held := map[string]int64{}
		for _, r := range g.Reservations {
			held[r.Job] += max(0, min(end, r.End)-max(begin, r.Start))
			if held[r.Job] > most {
				best, most = letters[r.Job], held[r.Job]
			}
		}
		b.WriteByte(best)
	}
	return b.String()
}
