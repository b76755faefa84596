package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// documented are the files of the public API, in the order of the page.
var documented = []string{
	"rota/v1/action.proto",
	"rota/v1/trajectory.proto",
	"rota/v1/file.proto",
	"rota/v1/stream.proto",
	"rota/v1/usage.proto",
	"rota/v1/image.proto",
	"rota/v1/node.proto",
	"rota/v1/quota.proto",
	"rota/v1/class.proto",
	"rota/v1/job.proto",
	"rota/v1/turn.proto",
	"rota/v1/ledger.proto",
	"rota/v1/operator.proto",
	"rota/v1/engine.proto",
	"rota/v1/residency.proto",
	"rota/v1/migration.proto",
	"rota/v1/worker.proto",
	"rota/v1/snapshot.proto",
	"rota/v1/reward.proto",
	"rota/v1/rollout.proto",
	"rota/v1/access.proto",
	"rota/v1/agent.proto",
}

const intro = `# API

Generated from ` + "`api/rota/v1/*.proto`" + ` by ` + "`make generate`" + `; do not edit.

Every method is ` + "`POST /rota.v1.SERVICE/METHOD`" + ` on the one port of any server
(OutputService: of an agent; KeyringService: of both, for servers): JSON or binary over Connect, gRPC or gRPC-Web. Field names in JSON are lowerCamelCase
(snake_case is accepted), 64-bit integers are strings, bytes are base64, durations
are like ` + "`\"1.5s\"`" + `. A field that does not exist is refused. Streams need a Connect or
gRPC client. gRPC health and reflection are served too.

Each method has an example, which a test runs against a new cluster of one server, one node and no GPUs, in
the order of ` + "`api/internal/docgen/examples.txt`" + `. In the examples, rpc is this function of the shell. Outside of
` + "`rota dev`" + `, give curl ` + "`--cacert`, `--cert` and `--key`" + ` too:

` + "```sh\n" + `rpc() { curl -s "http://127.0.0.1:7400/rota.v1.$1" -H 'Content-Type: application/json' -d "$2"; }
` + "```" + `

## JSON

A field that has its default, such as 0, "" or an empty list, is left out of an answer. A 64-bit integer is
a string in an answer; a request may also have a number. Enums are their names. A time is like
` + "`\"2026-03-01T12:00:00Z\"`" + `, a map is an object.

## Errors

Every error has a Connect code, a message for people and an [ErrorDetail](#errordetail), whose ` + "`reason`" + ` is
stable:

` + "```json\n" + `{"code": "not_found", "message": "...", "details": [{"type": "rota.v1.ErrorDetail", "value": "...",
  "debug": {"reason": "ACTION_NOT_FOUND", "message": "...", "code": 5}}]}
` + "```" + `

With ` + "`retryDelay`" + `, the same call may succeed after that time; without, it will not. A call that changes
something and got no answer may have been done: repeat it with the same ` + "`requestId`" + `, and it is done once.
The reason UNKNOWN_OUTCOME says the same of a server that lost the leader meanwhile.

RESOURCE_EXHAUSTED with a ` + "`retryDelay`" + ` says that the queue is full, or something else is overloaded. It holds for
all submissions of a program, so none of them should be sent before the delay is over. The clients for Go and
Python make them wait together.

## Paging

A list answers with at most ` + "`pageSize`" + ` rows and a ` + "`nextPageToken`" + `, empty at the end. Ask again with that
as ` + "`pageToken`" + ` and the same filters. A token is good for the query that it came from, at any server. With
` + "`allowStale`" + `, a server answers from what it knows, without asking the leader.

## Filters

Every filter of a list that is set must hold. ` + "`labels`" + ` are those that a row must have, all of them, with these
values. ` + "`namespace`" + ` is "default" if it is empty; where a list allows it, "*" is all.

## Services
`

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "docgen:", err)
		os.Exit(1)
	}
}

// run reads a descriptor set and writes the page.
func run(in io.Reader, out io.Writer) error {
	raw, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(raw, &set); err != nil {
		return fmt.Errorf("read the descriptor set: %w", err)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		return err
	}
	examples, err := parseExamples(examplesText)
	if err != nil {
		return err
	}
	p := page{w: bufio.NewWriter(out), own: map[protoreflect.FullName]bool{}, examples: examples}
	if err := p.print(files); err != nil {
		return err
	}
	return p.w.Flush()
}

// page writes Markdown. Errors of the writer come out of Flush.
type page struct {
	w *bufio.Writer
	// own are the messages and enums that are on the page and can be linked to.
	own      map[protoreflect.FullName]bool
	examples map[string]example
}

func (p *page) printf(format string, args ...any) { fmt.Fprintf(p.w, format, args...) }

func (p *page) print(files *protoregistry.Files) error {
	var all []protoreflect.FileDescriptor
	for _, path := range documented {
		f, err := files.FindFileByPath(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, f)
		for i := range f.Messages().Len() {
			p.own[f.Messages().Get(i).FullName()] = true
		}
		for i := range f.Enums().Len() {
			p.own[f.Enums().Get(i).FullName()] = true
		}
	}
	p.printf("%s\n", intro)
	for _, f := range all {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			p.printf("- [%s](#%s)\n", s.Name(), anchor(s.Name()))
		}
	}
	for _, f := range all {
		if err := p.file(f); err != nil {
			return err
		}
	}
	return nil
}

// file writes the services of a file, then its messages and enums.
func (p *page) file(f protoreflect.FileDescriptor) error {
	for i := range f.Services().Len() {
		s := f.Services().Get(i)
		p.printf("\n## %s\n\n%s| method | request | response | |\n|---|---|---|---|\n", s.Name(), comment(s))
		for j := range s.Methods().Len() {
			m := s.Methods().Get(j)
			stream := ""
			if m.IsStreamingServer() {
				stream = "stream of "
			}
			p.printf("| %s | %s | %s%s | %s |\n", m.Name(), p.link(m.Input()), stream, p.link(m.Output()), cell(m))
		}
		if err := p.printExamples(s); err != nil {
			return err
		}
	}
	for i := range f.Messages().Len() {
		p.message(f.Messages().Get(i))
	}
	for i := range f.Enums().Len() {
		p.enum(f.Enums().Get(i))
	}
	return nil
}

func (p *page) message(m protoreflect.MessageDescriptor) {
	p.printf("\n### %s\n\n%s", m.Name(), comment(m))
	if m.Fields().Len() == 0 {
		p.printf("No fields.\n")
		return
	}
	p.printf("| field | type | |\n|---|---|---|\n")
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		text := cell(f)
		if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() {
			text = strings.TrimSpace("One of `" + string(o.Name()) + "`. " + text)
		}
		p.printf("| `%s` | %s | %s |\n", f.JSONName(), p.fieldType(f), text)
	}
}

func (p *page) enum(e protoreflect.EnumDescriptor) {
	p.printf("\n### %s\n\n%s| value | |\n|---|---|\n", e.Name(), comment(e))
	for i := range e.Values().Len() {
		v := e.Values().Get(i)
		if v.Number() == 0 && cell(v) == "" {
			continue // the unspecified value that every enum has
		}
		p.printf("| `%s` | %s |\n", v.Name(), cell(v))
	}
}

func (p *page) fieldType(f protoreflect.FieldDescriptor) string {
	switch {
	case f.IsMap():
		return fmt.Sprintf("map of %s to %s", p.single(f.MapKey()), p.single(f.MapValue()))
	case f.IsList():
		return "list of " + p.single(f)
	case f.HasOptionalKeyword():
		return "optional " + p.single(f)
	}
	return p.single(f)
}

func (p *page) single(f protoreflect.FieldDescriptor) string {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return p.link(f.Message())
	case protoreflect.EnumKind:
		return p.link(f.Enum())
	}
	return f.Kind().String()
}

// link names a type, as a link if it is on the page.
func (p *page) link(d protoreflect.Descriptor) string {
	if p.own[d.FullName()] {
		return fmt.Sprintf("[%s](#%s)", d.Name(), anchor(d.Name()))
	}
	return string(d.Name())
}

func anchor(n protoreflect.Name) string { return strings.ToLower(string(n)) }

// comment is what stands before a declaration, as paragraphs.
func comment(d protoreflect.Descriptor) string {
	text := strings.TrimSpace(d.ParentFile().SourceLocations().ByDescriptor(d).LeadingComments)
	if text == "" {
		return ""
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = escape(strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n") + "\n\n"
}

// cell is a comment on one line.
func cell(d protoreflect.Descriptor) string { return strings.Join(strings.Fields(comment(d)), " ") }

// escape keeps what Markdown would take for its own.
func escape(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`, "_", `\_`).Replace(s)
}
