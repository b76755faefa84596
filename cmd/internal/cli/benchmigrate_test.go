package cli

import (
	"strings"
	"testing"

	"rota/cmd/internal/bench"
	"rota/cmd/internal/spin"
)

func TestWriteMigrate(t *testing.T) {
	var out strings.Builder
	writeMigrate(&out, &bench.MigrateResult{
		Bytes: 1 << 30, ValueBytes: 1 << 20, Rounds: 3, MovedBytes: 1 << 29, PresentBytes: 1 << 29,
		MigrationMS: 500, CopyMS: 400, CopyAllMS: 800, Speed: bench.Spread{Median: 0.8, Min: 0.7, Max: 0.9},
		Noise: spin.Noise{Samples: 7, MeanMS: 99, CV: 0.1, Slowest: 1.4},
	})
	for _, want := range []string{
		"migration         512MiB   500  1074",
		"bare copy of all  1.00GiB  800  1342",
		"speed beside the bare copy: 0.80 (0.70 to 0.90); rounds: 3",
		"values of 1MiB; 512MiB were at the target already",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestCheckMigrate(t *testing.T) {
	good := bench.MigrateOptions{Bytes: 1 << 30, ValueBytes: 1 << 20, Rounds: 1}
	if err := checkMigrate(&good); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*bench.MigrateOptions){
		"no rounds":         func(o *bench.MigrateOptions) { o.Rounds = 0 },
		"all present":       func(o *bench.MigrateOptions) { o.PresentPercent = 100 },
		"large values":      func(o *bench.MigrateOptions) { o.ValueBytes = 65 << 20 },
		"small values":      func(o *bench.MigrateOptions) { o.ValueBytes = 1 },
		"less than a value": func(o *bench.MigrateOptions) { o.Bytes = 1000 },
		"too much":          func(o *bench.MigrateOptions) { o.Bytes = 1 << 40 },
	} {
		o := good
		change(&o)
		if checkMigrate(&o) == nil {
			t.Errorf("%s is not refused", name)
		}
	}
}
