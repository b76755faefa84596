package rpc

import (
	"errors"
	"testing"

	rotav1 "rota/api/gen/rota/v1"
)

const (
	installKey = rotav1.ChangeGossipKeysRequest_OPERATION_INSTALL
	useKey     = rotav1.ChangeGossipKeysRequest_OPERATION_USE
	removeKey  = rotav1.ChangeGossipKeysRequest_OPERATION_REMOVE
)

func member(name, failure string, keys ...string) *rotav1.GossipMember {
	return &rotav1.GossipMember{Name: name, Error: failure, Keys: keys}
}

// TestKeysChangeInTheSafeOrderOnly: a step that would part a process from the others is
// refused. A process without gossip is none.
func TestKeysChangeInTheSafeOrderOnly(t *testing.T) {
	for _, c := range []struct {
		name      string
		operation rotav1.ChangeGossipKeysRequest_Operation
		members   []*rotav1.GossipMember
		reason    string
	}{
		{"install", installKey, []*rotav1.GossipMember{member("s1", "", "old"), member("s2", "", "old")}, ""},
		{"install while one is away", installKey, []*rotav1.GossipMember{member("s1", "", "old"), member("s2", "down")}, ""},
		{"install without keys", installKey, []*rotav1.GossipMember{member("s1", ""), member("s2", "")}, "NO_GOSSIP_KEYS"},
		{"use", useKey, []*rotav1.GossipMember{member("s1", "", "old", "new"), member("n1", "", "old", "new"), member("n2", "")}, ""},
		{"use what one lacks", useKey, []*rotav1.GossipMember{member("s1", "", "old", "new"), member("n1", "", "old")}, "KEY_NOT_INSTALLED"},
		{"use while one is away", useKey, []*rotav1.GossipMember{member("s1", "", "old", "new"), member("s2", "down")}, "KEYS_UNKNOWN"},
		{"remove", removeKey, []*rotav1.GossipMember{member("s1", "", "old", "new"), member("s2", "", "old", "new")}, ""},
		{"remove again", removeKey, []*rotav1.GossipMember{member("s1", "", "old"), member("s2", "", "old")}, ""},
		{"remove what one uses", removeKey, []*rotav1.GossipMember{member("s1", "", "old", "new"), member("s2", "", "new", "old")}, "KEY_IN_USE"},
		{"remove while one is away", removeKey, []*rotav1.GossipMember{member("s1", "", "old", "new"), member("s2", "down")}, "KEYS_UNKNOWN"},
	} {
		var f *failure
		err := mayChange(c.members, c.operation, "new")
		reason := ""
		if errors.As(err, &f) {
			reason = f.reason
		}
		if reason != c.reason || (err == nil) != (c.reason == "") {
			t.Errorf("%s: %v, want %q", c.name, err, c.reason)
		}
	}
}

func TestRequestsForKeysAreChecked(t *testing.T) {
	for _, c := range []struct {
		name string
		req  *rotav1.ChangeGossipKeysRequest
		ok   bool
	}{
		{"a random key", &rotav1.ChangeGossipKeysRequest{Operation: installKey}, true},
		{"a given key", &rotav1.ChangeGossipKeysRequest{Operation: installKey, Key: make([]byte, gossipKeyBytes)}, true},
		{"a short key", &rotav1.ChangeGossipKeysRequest{Operation: installKey, Key: make([]byte, 16)}, false},
		{"install an ID", &rotav1.ChangeGossipKeysRequest{Operation: installKey, Id: "x"}, false},
		{"use an ID", &rotav1.ChangeGossipKeysRequest{Operation: useKey, Id: "x"}, true},
		{"use nothing", &rotav1.ChangeGossipKeysRequest{Operation: useKey}, false},
		{"remove a key", &rotav1.ChangeGossipKeysRequest{Operation: removeKey, Id: "x", Key: make([]byte, gossipKeyBytes)}, false},
		{"nothing", &rotav1.ChangeGossipKeysRequest{Id: "x"}, false},
	} {
		change, id, err := keyringChange(c.req)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.ok && (id == "" || len(change.Install) == 0 && change.Use == "" && change.Remove == "") {
			t.Errorf("%s: nothing is changed: %v of %q", c.name, change, id)
		}
	}
}

// TestALevelIsActivatedWhenEveryServerSupportsIt: what is common, and what is in the way.
func TestALevelIsActivatedWhenEveryServerSupportsIt(t *testing.T) {
	server := func(id string, level uint32) *rotav1.ServerRelease {
		return &rotav1.ServerRelease{Id: id, LevelMax: level}
	}
	silent := &rotav1.ServerRelease{Id: "s3", Error: "does not answer"}
	for _, c := range []struct {
		name    string
		servers []*rotav1.ServerRelease
		common  uint32
		blocked string
	}{
		{"all new", []*rotav1.ServerRelease{server("s1", 4), server("s2", 4)}, 4, ""},
		{"all old", []*rotav1.ServerRelease{server("s1", 3), server("s2", 3)}, 3, "the newest feature level of this release is active already"},
		{"one old, the first", []*rotav1.ServerRelease{server("s1", 3), server("s2", 4)}, 3, "s1: supports feature levels up to 3 only; upgrade the server"},
		{"one old, the last", []*rotav1.ServerRelease{server("s1", 5), server("s2", 3)}, 3, "s2: supports feature levels up to 3 only; upgrade the server"},
		{"different, and all newer", []*rotav1.ServerRelease{server("s1", 5), server("s2", 4)}, 4, ""},
		{"one silent", []*rotav1.ServerRelease{server("s1", 4), silent}, 0, "s3: no answer; start the servers or remove them"},
	} {
		if common, blocked := commonLevel(3, c.servers); common != c.common || blocked != c.blocked {
			t.Errorf("%s: level %d, %q; want %d, %q", c.name, common, blocked, c.common, c.blocked)
		}
	}
}

// An installation that has not reached every process goes on with the same key. One that has is
// followed by another.
func TestTheInstallationOfAKeyCanBeRepeated(t *testing.T) {
	s := &Server{}
	all := []*rotav1.GossipMember{member("s1", "", "old"), member("s2", "", "old"), member("n1", "")}
	if _, id := s.keyToInstall(all, []byte("a"), "A"); id != "A" {
		t.Fatalf("the first key is %s", id)
	}
	for _, c := range []struct {
		what    string
		members []*rotav1.GossipMember
		again   bool
	}{
		{"one lacks it", []*rotav1.GossipMember{member("s1", "", "old", "A"), member("s2", "", "old"), member("n1", "")}, true},
		{"one did not answer", []*rotav1.GossipMember{member("s1", "", "old", "A"), member("s2", "down"), member("n1", "")}, true},
		{"all have it", []*rotav1.GossipMember{member("s1", "", "old", "A"), member("s2", "", "old", "A"), member("n1", "")}, false},
		{"it is in use", []*rotav1.GossipMember{member("s1", "", "A", "old"), member("s2", "", "old"), member("n1", "")}, false},
		{"it reached none", all, false},
	} {
		s.newestKey = gossipKey{[]byte("a"), "A"}
		key, id := s.keyToInstall(c.members, []byte("b"), "B")
		if want := map[bool]string{true: "aA", false: "bB"}[c.again]; string(key)+id != want {
			t.Errorf("%s: the key is %s with the ID %s", c.what, key, id)
		}
	}
}
