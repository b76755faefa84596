package rpc

import rotav1 "rota/api/gen/rota/v1"

// redacted stands where a secret was. No header or variable that a caller needs says this.
const redacted = "[redacted]"

// redact takes out of a specification what may be secret: the values of headers and of
// variables. Every client may read every action, and a specification also gets into what
// people paste. Their names stay, since they say what a command was given. Agents get the
// values by a way of their own (server/dispatch).
func redact(spec *rotav1.ActionSpec) {
	for name := range spec.GetHttp().GetHeaders() {
		spec.Http.Headers[name] = redacted
	}
	redactCommand(spec.GetCommand())
}

// redactCommand takes out of a command the values of its variables.
func redactCommand(c *rotav1.Command) {
	for name := range c.GetEnv() {
		c.Env[name] = redacted
	}
}
