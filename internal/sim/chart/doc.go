// Package chart draws what package evaluate found, as the paper's Figures 6 to 9
// have it: the time that actions take over time, utilisation, what a trajectory's
// time is made of, and sweeps.
//
// Drawing is a matter of people: nothing here decides anything, and the numbers
// are in the tables and the JSON.
package chart
