// Package predict says how many tokens and turns a trajectory generates yet (progressive
// prediction, Heddle §4.1), and learns it from those that have ended. It runs inside the
// replicated state machine: integers only, a bounded memory for each class, and a bounded time
// for each call.
//
// It remembers. A class keeps 256 examples of each stage, a sample of the last few thousand: of
// trajectories that had 0, 1, 2, 4, ... turns, how they looked then and what they generated after
// it. A trajectory goes on as the examples that it resembles did, each weighted by the inverse
// square of its distance (Shepard's weights). All features are logarithms in quarters of an octave,
// so a distance is a sum of ratios, and the far examples together are the mean of the class, to
// which a trajectory that resembles nothing is drawn. This learns from the first example, whatever
// the shape is, and forgets as the policy changes.
//
// A plane by least squares through the same examples is a second opinion: it goes on where there
// is no example. The two are combined by the errors that each made. On real sessions near examples
// were better in the first turns, and on simulated ones the plane was (docs/evaluation.md); neither
// is chosen for all.
//
// The siblings of a prompt group that have finished are a third opinion, combined in the same way.
// So siblings count as much as groups of this class are alike.
package predict
