// Package sched decides which action starts where and how wide.
//
// It is pure: it reads a state, returns decisions and changes nothing. The state
// machine runs it inside Apply, so the same log yields the same decisions on
// every replica, and a new leader has nothing to recover. A Pass returns one
// decision at a time and sees the state as the decisions before have made it.
//
// The three questions have a folder each: order (when), place (where), scale
// (how much).
package sched
