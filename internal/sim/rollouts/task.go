package rollouts

import (
	"fmt"
	"slices"
	"strings"
)

const (
	second      = 1_000_000_000 // nanoseconds
	millisecond = 1_000_000
	million     = 1_000_000
)

// logNormal is a log-normal distribution of whole numbers: its median, and the standard
// deviation of the logarithm in millionths. What is drawn lies between Least and Most.
type logNormal struct {
	Median, SigmaPPM, Least, Most int64
}

// Task says how trajectories of one type are drawn. Lengths of one trajectory belong together:
// a long one has more turns and longer turns.
type Task struct {
	Name string
	// Prompt are tokens of the prompt, Output all tokens that a trajectory generates, Turns its
	// requests to the model.
	Prompt, Output, Turns logNormal
	// ToolTokens are what a tool's result adds to the context, ToolNS how long the tool runs.
	ToolTokens, ToolNS logNormal
	// TurnSigmaPPM is how much turns of a trajectory differ in length, as SigmaPPM.
	TurnSigmaPPM int64
	// Source says where the figures come from.
	Source string
}

// outputMax is the longest output of a trajectory (Heddle §7: 40K tokens).
const outputMax = 40_000

// taskSource is what all tasks have in common.
const taskSource = "Heddle §7 and Table 1: dataset, at most 40K output tokens, mean tool time. " +
	"rollouts.csv (175 sessions of coding agents): spread of output (1.03, from its median and 95th percentile), of turns and within a trajectory, and their correlation. " +
	"Assumed: medians, so that a batch of 100 fits into the memory of one GPU, which Heddle's Fix-1 needs to be its fastest start; tokens of tools; spread of tool times"

// tasks are the three of Heddle §7. The means of the tool times are those of Table 1.
var tasks = []Task{
	{
		Name: "coding", Source: "CodeForces. " + taskSource,
		Prompt: logNormal{700, 400_000, 100, 4_000}, Output: logNormal{1_600, 1_030_000, 50, outputMax},
		Turns: logNormal{4, 1_000_000, 1, 64}, TurnSigmaPPM: 770_000,
		ToolTokens: logNormal{200, 800_000, 10, 4_000}, ToolNS: logNormal{273 * millisecond, 1_000_000, millisecond, 60 * second},
	},
	{
		Name: "search", Source: "HotpotQA. " + taskSource,
		Prompt: logNormal{300, 300_000, 50, 2_000}, Output: logNormal{800, 1_030_000, 50, outputMax},
		Turns: logNormal{4, 1_000_000, 1, 64}, TurnSigmaPPM: 770_000,
		ToolTokens: logNormal{800, 500_000, 50, 4_000}, ToolNS: logNormal{1_030 * millisecond, 800_000, millisecond, 60 * second},
	},
	{
		Name: "math", Source: "DAPO-Math. " + taskSource,
		Prompt: logNormal{200, 400_000, 50, 2_000}, Output: logNormal{1_600, 1_030_000, 50, outputMax},
		Turns: logNormal{3, 1_000_000, 1, 64}, TurnSigmaPPM: 770_000,
		ToolTokens: logNormal{40, 500_000, 5, 500}, ToolNS: logNormal{45 * millisecond, 500_000, millisecond, 10 * second},
	},
}

// TaskNames lists the synthetic tasks.
func TaskNames() []string {
	out := make([]string, len(tasks))
	for i := range tasks {
		out[i] = tasks[i].Name
	}
	return out
}

// taskOf finds a synthetic task.
func taskOf(name string) (*Task, error) {
	if i := slices.IndexFunc(tasks, func(t Task) bool { return t.Name == name }); i >= 0 {
		return &tasks[i], nil
	}
	return nil, fmt.Errorf("%w: task %q is not one of %s", ErrSetup, name, strings.Join(TaskNames(), ", "))
}
