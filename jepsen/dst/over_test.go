package dst
import "testing"
func TestOver(t *testing.T) {
	for i := uint64(1); i <= 6; i++ { o := Run(i, Options{}); t.Log(i, o.Overtaken, o.Expiries, o.Reads, o.Elections, o.Actions, o.Entries, o.Happened[ReturnLate], o.Violation) }
}
