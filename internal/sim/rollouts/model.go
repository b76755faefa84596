package rollouts

import (
	"fmt"
	"slices"
	"strings"

	"rota/internal/engine/model"
)

// served is a model of Heddle §7, with the degree of parallelism that the baselines have there.
type served struct {
	name   string
	degree int64
}

var models = []served{{"8b", 1}, {"14b", 1}, {"32b", 2}}

// hardware of all workers, if they are of one kind. Heddle has Hopper GPUs.
const hardware = "h800"

// degreesMax is the largest degree of a worker: the GPUs of a machine.
const degreesMax = 8

// ModelNames lists the models: Qwen3 of three sizes.
func ModelNames() []string {
	out := make([]string, len(models))
	for i := range models {
		out[i] = models[i].name
	}
	return out
}

func modelOf(name string) (*served, error) {
	if i := slices.IndexFunc(models, func(m served) bool { return m.name == name }); i >= 0 {
		return &models[i], nil
	}
	return nil, fmt.Errorf("%w: model %q is not one of %s", ErrSetup, name, strings.Join(ModelNames(), ", "))
}

// profileOf is the profile of a model on so many GPUs.
func profileOf(name string, degree int64) (*model.Profile, error) {
	return profileOn(hardware, name, degree)
}

// profileOn is the same on GPUs of a kind.
func profileOn(kind, name string, degree int64) (*model.Profile, error) {
	return model.Find(fmt.Sprintf("qwen3-%s-%s-tp%d", name, kind, degree))
}
