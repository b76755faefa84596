//go:build !race

package dst

const raced = false
