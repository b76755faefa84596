// Package rotatest builds the rota that tests of the binary drive.
package rotatest
