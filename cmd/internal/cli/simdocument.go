package cli

import (
	"bytes"
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
the output. If a command fails, the text is a sentence with the reason. "rota sim
document" then exits with 1 at the end.`,
		Example: "  make evaluate\n  rota sim document docs/evaluation.md --only mopd",
		RunE: func(cmd *cobra.Command, args []string) error {
			old, err := os.ReadFile(args[0])
			if err != nil {
				return fmt.Errorf("document: %w", err)
			}
			failed := 0
			text, err := fillDocument(string(old), func(command string) string {
				if !strings.Contains(command, only) {
					return ""
				}
				fmt.Fprintf(a.err, "%s\n", command)
				var out, errOut bytes.Buffer
				if run(cmd.Context(), append(strings.Fields(command)[1:], "--markdown"), &out, &errOut) != exitOK {
					failed++
					return "Not measured: " + strings.TrimPrefix(strings.TrimSpace(errOut.String()), "rota: ") + ".\n"
				}
				return out.String()
			})
			if err != nil {
				return usageErrorf("%s: %w", args[0], err)
			}
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			if err := os.WriteFile(args[0], []byte(text), 0o644); err != nil {
				return fmt.Errorf("document: %w", err)
			}
			if failed > 0 {
				return fmt.Errorf("%d of the commands in %s failed; the document says why", failed, args[0])
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&only, "only", "", "run only commands that contain this text")
	return cmd
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
