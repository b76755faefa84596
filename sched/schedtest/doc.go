// Package schedtest has versions of the scheduler that no build has, so that tests
// can go from one version to the next before there is a next: upgrades, replicas
// that know more or less than others, replays of what an older version decided.
//
// What these versions decide is as legal as what version 1 does, and mostly
// something else: a replica that decides by the wrong one has another state.
package schedtest
