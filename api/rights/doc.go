// Package rights says what a caller may do: rules of namespace, noun and verbs, the text form of
// policies, and the secrets of tokens.
//
// What no rule allows is refused. A rule names a namespace, or those with a prefix, or all; nouns
// that belong to no namespace, such as node, need a rule for all. Servers decide with a Set, the
// command line reads and writes policies with Parse and Format, so both agree on what a policy
// means. docs/security.md explains the model.
package rights
