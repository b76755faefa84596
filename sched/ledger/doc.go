// Package ledger keeps when training jobs need their groups of nodes, and finds
// times for more of them.
//
// A job that is trained with reinforcement learning needs its nodes for a fraction of
// each cycle, at about the same times. The ledger reserves these times for a horizon
// of 8 hours, so that other jobs can have the rest (PlexRL §4.3, §5.2.1, §7). It is
// pure: slots in, decisions out, nothing known of turns, processes or clocks.
//
//   - Ledger: what is reserved. A job is subtracted from all of the horizon or not at
//     all (Reserve), and given back at once (Release).
//   - Place: the group and the least shift for a job whose cycle is known, or a
//     Refusal that says what would have to change. PlaceCold: a group of its own for a
//     job whose cycle is not; Profile makes the cycle of one that ran, and with Share
//     others may come.
//   - Finish: a job that has finished a cycle is anchored again to what really
//     happened.
//   - Repack and Apply: moves that are worth what they cost, planned on a copy, and
//     checked when they are done.
//
// # A group is held whole
//
// A worker process holds all nodes of its group, and two jobs that need half of it
// each still need it one after the other. A segment says how many nodes work. Groups that
// are too wide for most jobs should be two groups.
//
// # A group has one period
//
// Over a horizon of a hundred cycles, jobs of different periods fit together almost
// nowhere: sooner or later each phase of one meets each of the other. So the members
// of a group do whole numbers of cycles in one period. A cycle that is shorter waits
// for its next turn; that may lengthen it by at most StretchPPM.
//
// This makes a group's interval set small and exact: one turn of the period says all
// about the horizon, and about all time after it. A fit holds for good, and is found in
// some ten steps, where a list for 8 hours would have a hundred times the intervals.
//
// A group takes the period that costs its members least: the multiples of each
// cycle, and what these may be stretched to, slot by slot where that is at most 16
// steps. A longer period has more room. Periods in which all members do a multiple of
// the same number of cycles are left out: half or a third of it is better.
//
// # What is derived
//
// Rows are Group and Reservation: a cycle, and the slot at which one of it starts (the
// anchor). The interval sets and who is where are derived from them, so a
// snapshot has rows only, and Build makes the same ledger of them as the one that
// came by them step by step (TestLedgerIsASlotArray). Nothing before the anchor is
// reserved.
//
// # Over-commitment
//
// Reserve, Share, Finish and Apply lay a group out before they change it, so no two
// jobs ever have it at once. Finish cannot be refused, since the job has run as it
// has. Early, it goes back until it meets who is in front. Late by at most PushPPM, it
// goes where it is and those behind make room, as far as gaps do not: each by at most
// as much as it is late, in the same order, so that it always fits. Later than that,
// they do so only if all of them together wait for less than it would; else it waits for
// a turn that fits, at the latest its old one a period later.
//
// Re-anchoring is worth it. With phases that vary by up to 2 %, 8 hours of one group, in
// the last 2 of them (TestDrift, 32 runs; apart is the median between a reservation and the
// segment that it is for, outside is how much of what ran was not within it, slower is
// how many cycles fewer were done than alone):
//
//	                      fixed anchors          re-anchored
//	jobs                  apart outside slower   apart outside slower
//	two 7B                 28 s    33 %  0.0 %   2.3 s   3.9 %  0.2 %
//	four 7B                44 s    50 %  0.0 %   2.2 s   3.6 %  0.1 %
//	7B and 30B             18 s    19 %  0.5 %   2.2 s   2.6 %  0.5 %
//	235B and two 7B        16 s    18 %  1.2 %   2.8 s   3.6 %  1.1 %
//
// With a PushPPM of 0, so that others make room only where that costs them less, it is the
// same to the digit. Before there was that rule, when no job was ever pushed and a job that was
// late waited, four 7B were 15.4 % slower and two 4.4 %.
//
// What is left apart is how much one cycle varies. With fixed anchors reservations
// say nothing after some hours: up to a third of what ran was in another's.
//
// # How the paper is read
//
//   - Equation 1. Both of its terms grow with the shift, so within a group and period
//     the earliest fit is the best whatever the weights. The end of a cycle is put off
//     by the shift and by the stretch. A shift is paid once and a stretch by every
//     cycle, so the cost is that of all cycles in a horizon; and what members are
//     stretched counts as well. Otherwise a group would be stretched for ever to save
//     one shift.
//   - Equation 2 is for one cycle, and windows of 8 hours. Here a fit is one for all
//     cycles of the group's period.
//   - The shift is within alpha*T of the stretched cycle: with alpha 1, which is the
//     default, all there are.
//   - Interference is not defined. Here it is how much closer than MarginPPM segments
//     come to their neighbours, in ppm of the period: there a delay of one delays the
//     other.
//   - Commensurate periods (§7.1) are preferred by the cost, since they stretch
//     no job, and of equal costs by how few cycles there are in the period.
//   - The duty ratio (§7.2) is called the time that a job waits, which is not one. Both
//     are bounded: how much of its period a group is held (DutyPPM), and how much of
//     its time any member has waited so far (WaitPPM, over at least 8 cycles).
//   - §5.2.1 calls O(log M) what verifies a fit. It is that per segment and shift. The
//     shifts tried are those at which a segment meets the end of an interval, and the
//     one that is in the way says which is next.
//   - The paper does not say what a dedicated group is in the ledger. It is a cycle of
//     one slot, always held.
//
// # What prunes
//
// Shifts are left out because of the group (it is too narrow, its period does not go
// with the cycle, or nothing there could be better than what has been found), or because
// the interval met at a smaller shift is still in the way. A 30B job among 200 others
// on 256 groups, of the paper's three models (alike) or of random cycles of 2 to 15
// minutes (mixed), where there are groups without jobs and where these are not to be
// used; and 200 jobs on 64 groups (BenchmarkPlace, BenchmarkScanOfSlots, which tries all
// shifts of the same periods slot by slot):
//
//	                 by groups   by intervals   tried   time     scan     factor
//	alike, empty       99.6 %        0.4 %          1   0.006 ms  18 ms   about 3,100
//	alike, settled     97.3 %        2.7 %         11   0.45 ms   18 ms    40
//	mixed, settled     23.4 %       75.8 %      1,321   0.84 ms   50 ms    60
//	alike, 64 groups   66.0 %       33.7 %        443   0.43 ms  2.6 ms     6
//
// Medians of two runs of BenchmarkPlace and BenchmarkScanOfSlots on an idle machine.
//
// The paper keeps a segment tree of the free nodes of the whole cluster, to filter over
// 80 % of the shifts. In this ledger the tree could rule a slot out only if no group at
// all is free: it left out 0.5 % of the shifts with 3 groups and none with more. So there
// is no tree.
package ledger
