// Package settle finds out from the answer of a provider what a call really used of a quota:
// tokens, or money. Clients, servers and agents read the same rules, so that a rule that the
// agent cannot follow is refused when the action is submitted.
package settle
