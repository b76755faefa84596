// Package bench measures rota on one machine, with real processes and fsync on,
// beside something that gives the numbers a scale: a Connect call that does
// nothing on the same HTTP stack, a bare fork and exec, a three-member etcd.
//
// What is measured and what it is compared with always run on the same machine
// in the same invocation. Servers and load generator share its cores, so figures
// are of the whole, not of a server alone.
package bench
