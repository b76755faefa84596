package runtime

import (
	"path/filepath"
	"strconv"

	"rota/agent/plan"
)

// trajectoryVariable names the directory of an attempt's trajectory in its environment.
const trajectoryVariable = "ROTA_TRAJECTORY_DIR"

// WorkDir is the working directory of an attempt outside trajectories, or of an HTTP call, whose
// Spec names none, in a supervisor's directory.
func WorkDir(dir string, key plan.Key) string {
	return filepath.Join(dir, workName, key.String())
}

// TrajectoryDir is the directory of a trajectory, in a supervisor's directory. It is there from
// the first attempt, or MakeTrajectory, on.
func TrajectoryDir(dir string, trajectory uint64) string {
	return filepath.Join(dir, homesName, trajectoryPrefix+strconv.FormatUint(trajectory, 10))
}
