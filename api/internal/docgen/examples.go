package main

import (
	_ "embed"
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

//go:embed examples.txt
var examplesText string

// example is one call of a method.
type example struct {
	method string // SERVICE/METHOD
	body   string // JSON
	// refused are the reasons with which a small cluster may refuse it; none: it does it.
	refused []string
}

// parseExamples reads lines "SERVICE/METHOD BODY" or "SERVICE/METHOD BODY ! REASON|REASON".
func parseExamples(text string) (map[string]example, error) {
	all := map[string]example{}
	for n, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		method, rest, ok := strings.Cut(line, " ")
		if _, twice := all[method]; !ok || twice {
			return nil, fmt.Errorf("examples.txt:%d: %q has no body, or an example already", n+1, method)
		}
		e := example{method: method}
		body, reasons, refused := strings.Cut(rest, " ! ")
		if e.body = body; refused {
			e.refused = strings.Split(reasons, "|")
		}
		all[method] = e
	}
	return all, nil
}

// needsExample: clients call it, and an answer is one message.
func needsExample(m protoreflect.MethodDescriptor) bool {
	return !m.IsStreamingServer() && m.ParentFile().Path() != "rota/v1/agent.proto"
}

// printExamples writes the calls of a service.
func (p *page) printExamples(s protoreflect.ServiceDescriptor) error {
	begun := false
	for i := range s.Methods().Len() {
		m := s.Methods().Get(i)
		if !needsExample(m) {
			continue
		}
		e, ok := p.examples[string(s.Name())+"/"+string(m.Name())]
		if !ok {
			return fmt.Errorf("examples.txt has no example of %s/%s", s.Name(), m.Name())
		}
		if !begun {
			p.printf("\n```sh\n")
			begun = true
		}
		if len(e.refused) > 0 {
			p.printf("# In a new cluster: %s\n", strings.Join(e.refused, " or "))
		}
		p.printf("rpc %s '%s'\n", e.method, e.body)
	}
	if begun {
		p.printf("```\n")
	}
	return nil
}
