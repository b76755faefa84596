// Package gossip lets servers and agents find each other with
// hashicorp/memberlist.
//
// What it says is a hint: who is out there, in which role and at which address.
// It never kills, fences, votes or adds a voter, so the worst that a wrong
// answer costs is a connection attempt, which is then checked by TLS.
//
// memberlist trusts whoever reaches its port. So packets are encrypted and
// authenticated with a shared key, without which only loopback is bound. They
// carry the name of the cluster as a label, and every member also says the name
// in its metadata, because two clusters with one key could still merge through
// a member that once belonged to both.
//
// Two halves of a partition forget each other after a while and memberlist
// never merges them again by itself. So seeds that are not members are joined
// again for as long as the process lives.
//
// A name belongs to an address until its owner leaves, or is dead for long
// enough to be forgotten (about half a minute): a machine that comes back
// elsewhere in the meantime has to wait.
package gossip
