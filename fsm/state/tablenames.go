package state

// tableNames are what the tables are called for people.
var tableNames = map[byte]string{
	tableNamespaces: "namespaces", tablePools: "pools", tableNodes: "nodes", tableTrajectories: "trajectories",
	tableActions: "actions", tableAttempts: "attempts", tableRequests: "request IDs", tableWork: "queues to look at",
	tableParked: "parked queues", tableClasses: "classes", tableGPUClasses: "GPU classes", tableResidency: "residency",
	tableQuotas: "quotas", tableReturns: "returns of quotas", tableNodeGroups: "node groups", tableJobs: "jobs",
	tableReservations: "reservations", tableTurns: "turns", tableEngines: "engines", tableNodeEngines: "engines of nodes",
	tableMigrations: "migrations", tablePolicies: "policies", tableWorkers: "workers", tableGenerations: "generations",
	tableLengths: "lengths", tableRollouts: "rollouts", tableGroups: "groups of rollouts", tableSamples: "samples",
	tableBatches: "batches", tableRestoreParts: "parts of a backup",
	tableUses: "use of namespaces", tableSettings: "settings of namespaces", tableClocks: "clocks of namespaces", tableAccessPolicies: "access policies", tableAccessTokens: "access tokens",
	tableAuthMethods: "auth methods", tableRewards: "reward functions", tableReplicas: "replicas of reward functions",
	tableWorkerPools: "pools of workers", tableAffinities: "hardware affinities",
	tableFileSnapshots: "snapshots of files",
}

// TableCount is how many rows a table has.
type TableCount struct {
	Name string `json:"name"`
	Rows uint64 `json:"rows"`
}

// TableCounts returns the tables that have rows, in the order of snapshots; the events last.
func (s *State) TableCounts() (out []TableCount) {
	d := db(s)
	for i := range tables {
		if n := tables[i].rows(d); n > 0 {
			out = append(out, TableCount{tableNames[tables[i].id], uint64(n)})
		}
	}
	if n := d.events.next - d.events.first; n > 0 {
		out = append(out, TableCount{"events", n})
	}
	return out
}
