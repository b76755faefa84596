// Package scale answers how much: the degree of parallelism of an action.
package scale
