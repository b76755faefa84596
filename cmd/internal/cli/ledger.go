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
	// ledgerWidth is the number of characters of a group's row.
	ledgerWidth = 60
	// ledgerLetters stand for jobs. All further jobs share the last letter.
	ledgerLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz*"
)

// ledgerColours are the colour codes of letters on a terminal. Letters use them in order and
// then start again with the first: a colour separates neighbours, and the letter identifies
// the job. Black and white are missing because they may be the colour of the background.
var ledgerColours = [...]int{32, 33, 34, 35, 36, 31, 92, 93, 94, 95, 96, 91}

func (a *app) ledgerCmd() *cobra.Command {
	return group("ledger", "See the reservations of node groups over time", a.reads(a.ledgerShowCmd()), a.ledgerResumeCmd())
}

func (a *app) ledgerShowCmd() *cobra.Command {
	var window time.Duration
	req := &rotav1.GetLedgerRequest{}
	cmd := &cobra.Command{
		Use: "show", Short: "Draw the reservations of node groups from now on", Args: exactly(),
		Long: `Draws a row for each group, from now on. A letter is a job, a dot is free time. If the time
of a character has several jobs, the letter is the job with the most time. On a terminal
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
	cmd.Flags().DurationVar(&window, "window", 0, "length of time to draw, such as 30m (default: the longest period)")
	cmd.Flags().StringVar(&req.Group, "group", "", "draw only this group")
	return cmd
}

func (a *app) ledgerResumeCmd() *cobra.Command {
	return &cobra.Command{
		Use: "resume", Short: "Resume the ledger after a failed decision", Args: exactly(),
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
		for _, r := range g.Intervals {
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

// drawGroup draws the slots of a window with width characters. Each character is the job
// with the most of its slots, if the job has at least half of them.
func drawGroup(g *rotav1.LedgerGroup, from, slots int64, width int, letters map[string]byte) string {
	var b strings.Builder
	for i := range int64(width) {
		begin, end := from+i*slots/int64(width), from+(i+1)*slots/int64(width)
		best, most := byte('.'), (end-begin)/2
		held := map[string]int64{}
		for _, r := range g.Intervals {
			held[r.Job] += max(0, min(end, r.End)-max(begin, r.Start))
			if held[r.Job] > most {
				best, most = letters[r.Job], held[r.Job]
			}
		}
		b.WriteByte(best)
	}
	return b.String()
}
