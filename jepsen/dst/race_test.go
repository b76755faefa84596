//go:build race

package dst

// raced: the race detector makes a simulation ten times slower, and there is
// little for it to find.
const raced = true
