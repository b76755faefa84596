// Package replicas decides how many replicas a reward function has (RollArt §6: serverless
// rewards).
//
// It is a pure function of integers. More replicas are started at once, so that calls do not wait.
// Fewer are kept only when fewer have been enough for a whole idle time: demand comes in bursts,
// one for each batch of trajectories that ends, and a start costs more than an idle core. What
// stays then is what the largest burst of that time needed.
package replicas
