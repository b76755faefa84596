// Package inventory reads what a machine has: cores by NUMA node, memory and
// labels. It reads the kernel's files below a root directory, so that tests
// can show it machines that are not there.
package inventory
