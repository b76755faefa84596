// Package cli is the command line of rota: the tree of commands, where their
// settings come from, how they print and what they exit with.
//
// Every command follows the same rules, so that scripts can rely on them.
// Settings come from flags, then ROTA_* variables, then the config file.
// Results go to standard output, as a table for people or, with -o json, as the
// JSON form of the API's own messages: one document, or one line per message
// for commands that stream. Everything else goes to standard error. The exit
// code says what kind of failure it was; see `rota help exit-codes`.
package cli
