package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// Marks in a document: a command, and the end of what it wrote last time.
const (
	documentBegin = "<!-- rota sim "
	documentClose = " -->"
	documentEnd   = "<!-- end -->"
)

func (a *app) simDocumentCmd() *cobra.Command {
	var only string
	cmd := &cobra.Command{
		Use: "document FILE", Short: "Run the simulations that a document names, and write their tables into the document", Args: exactly("FILE"),
		Long: `Looks in a Markdown file for comments that contain a command, such as

  <!-- rota sim compare coding --sweep batch=128,1280 -->
  <!-- end -->

It runs each command with --markdown, and replaces the text between the two comments with
the output, one after the other: what is done stays done if you interrupt it. If a command
fails, the text is a sentence with the reason. "rota sim document" then exits with 1 at the
end.`,
		Example: "  make evaluate\n  rota sim document docs/evaluation.md --only mopd",
		RunE: func(cmd *cobra.Command, args []string) error {
			d := document{path: args[0]}
			commands, err := d.commands(only)
			failed := 0
			for i, command := range commands {
				fmt.Fprintf(a.err, "%d of %d: %s\n", i+1, len(commands), command)
				var out, errOut bytes.Buffer
				if run(cmd.Context(), append(strings.Fields(command)[1:], "--markdown"), &out, &errOut) != exitOK {
					failed++
					out.Reset()
					fmt.Fprintf(&out, "Not measured: %s.\n", strings.TrimPrefix(strings.TrimSpace(errOut.String()), "rota: "))
				}
				if err := cmd.Context().Err(); err != nil {
					return err
				}
				if err := d.fill(command, out.String()); err != nil {
					return err
				}
			}
			if err == nil && failed > 0 {
				return fmt.Errorf("%d of the commands in %s failed; the document says why", failed, args[0])
			}
			return err
		},
	}
	cmd.Flags().StringVar(&only, "only", "", "run only commands that contain this text")
	return cmd
}

// document is a Markdown file with commands in it. It is read each time, so that somebody
// may write in it meanwhile.
type document struct{ path string }

// commands lists those that contain a text, in their order.
func (d *document) commands(only string) (all []string, err error) {
	err = d.change(func(command string) string {
		if strings.Contains(command, only) {
			all = append(all, command)
		}
		return ""
	})
	return all, err
}

// fill puts the output of a command below it.
func (d *document) fill(command, output string) error {
	return d.change(func(c string) string {
		if c == command {
			return output
		}
		return ""
	})
}

// change replaces the file by one with other outputs, at once.
func (d *document) change(output func(command string) string) error {
	old, err := os.ReadFile(d.path)
	if err != nil {
		return fmt.Errorf("document: %w", err)
	}
	text, err := fillDocument(string(old), output)
	if err != nil {
		return usageErrorf("%s: %w", d.path, err)
	}
	if text == string(old) {
		return nil
	}
	next := d.path + ".new"
	if err := errors.Join(os.WriteFile(next, []byte(text), 0o644), os.Rename(next, d.path)); err != nil {
		return fmt.Errorf("document: %w", err)
	}
	return nil
}

// fillDocument replaces what follows each command in a text by its output. An
// empty output leaves what is there.
func fillDocument(text string, output func(command string) string) (string, error) {
	var b strings.Builder
	for {
		i := strings.Index(text, documentBegin)
		if i < 0 {
			b.WriteString(text)
			return b.String(), nil
		}
		closing := strings.Index(text[i:], documentClose)
		end := strings.Index(text[i:], documentEnd)
		if closing < 0 || end < closing {
			return "", fmt.Errorf("what begins with %.60q has no %q after it", text[i:], documentEnd)
		}
		begin := text[i : i+closing+len(documentClose)]
		b.WriteString(text[:i] + begin + "\n")
		command := strings.TrimSuffix(strings.TrimPrefix(begin, "<!-- "), documentClose)
		if out := output(command); out != "" {
			b.WriteString("\n" + out + "\n")
		} else {
			b.WriteString(strings.TrimPrefix(text[i+closing+len(documentClose):i+end], "\n"))
		}
		b.WriteString(documentEnd)
		text = text[i+end+len(documentEnd):]
	}
}
