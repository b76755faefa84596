// Package gang chooses the nodes of a gang: actions that start all at once or not at all.
//
// The members of a gang ask for the same, so all that matters of a node is how many of them
// it has room for. That makes the question exact where gangs of unlike members would need
// vector bin packing: a gang fits if and only if the rooms of all nodes add up to its size.
package gang
