package cluster

import (
	"fmt"
	"path/filepath"

	"rota/jepsen/history"
	"rota/server/replica"
)

// ReadLog returns the log of a server that has stopped, from its data folder,
// each entry checked.
func ReadLog(dataDir string) (history.Log, error) {
	entries, err := replica.ReadLog(dataDir)
	if err != nil {
		return history.Log{}, fmt.Errorf("log of %s: %w", filepath.Dir(dataDir), err)
	}
	var log history.Log
	for _, e := range entries {
		if log.First == 0 {
			log.First = e.Index
		}
		log.Entries = append(log.Entries, history.Entry{Index: e.Index, Term: e.Term, Data: e.Command, Voters: e.Voters})
	}
	return log, nil
}
