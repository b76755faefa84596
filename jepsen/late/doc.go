// Package late judges how late turns are because of actions in the gaps of their groups
// (docs/ledger.md, "Members"): a reservation is never late because of such an action, except by what the
// action overran, and that is counted. It looks at the states after the entries of a log, one after the
// other, and works out what is reserved, which turns are due and what they wait for by code of its own. So
// it can run beside a simulation, beside random histories and over the log of a real cluster.
package late
