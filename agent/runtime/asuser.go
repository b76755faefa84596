package runtime

import (
	"os"

	"rota/agent/internal/fileuser"
)

// as does something with the rights to files that the attempt's user has: the supervisor may reach
// more, and what a client names must not be reached with that.
func (o owner) as(do func() error) error {
	if !o.other() {
		return do()
	}
	return o.fileUser().Do(do)
}

// other says whether the attempt's user is another than the supervisor's.
func (o owner) other() bool { return o.user != nil && os.Geteuid() == 0 }

// asOnThread is as for the calling thread, which must be locked. After fileuser.ErrNotGivenBack it must
// do nothing more.
func (o owner) asOnThread(do func() error) error {
	if !o.other() {
		return do()
	}
	return o.fileUser().DoOnThread(do)
}

// fileUser is the user of an attempt that has another than the supervisor's.
func (o owner) fileUser() fileuser.ID {
	id := fileuser.ID{User: int(o.user.uid), Group: int(o.user.gid)}
	for _, g := range o.groups {
		id.Groups = append(id.Groups, int(g))
	}
	return id
}
