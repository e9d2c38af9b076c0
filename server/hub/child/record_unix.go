//go:build unix

package child

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

const (
	recordSchema = "majordomus-hosted-group/v1"
	recordSuffix = ".json"
	tempSuffix   = ".tmp"
)

// markName is the variable that marks all that a recorded child starts: what is
// left of a group when its leader is dead has nothing else to be known by. Its
// value is the record's token.
const markName = "MAJORDOMUS_GROUP"

// A record says which group a server hosts. Numbers of processes come round, so
// each goes with the time at which it was given, in the kernel's own words, and
// with what the number is valid in.
type record struct {
	Schema    string   `json:"schema"`
	Name      string   `json:"name"` // for people
	Token     string   `json:"token"`
	Boot      string   `json:"boot"`
	Namespace string   `json:"namespace"` // of process numbers
	Server    identity `json:"server"`
	Leader    identity `json:"leader"`
}

// An identity is a process that is not mistaken for another one.
type identity struct {
	PID   int    `json:"pid"`
	Start string `json:"start"`
}

// hasMark looks for the mark among strings that each end in a zero byte.
func hasMark(b []byte, token string) bool {
	return bytes.Contains(append([]byte{0}, b...), []byte("\x00"+markName+"="+token+"\x00"))
}

func newToken() string {
	b := make([]byte, 16)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

func isToken(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 16
}

// A recorder keeps the record of one child while its group lives.
type recorder struct {
	folder string
	record record
}

// newRecorder returns nil where nothing is to be recorded.
func newRecorder(spec Spec) *recorder {
	if spec.Records == "" {
		return nil
	}
	return &recorder{spec.Records, record{Schema: recordSchema, Name: spec.Name, Token: newToken()}}
}

// mark returns what a recorded child has in its environment.
func (k *recorder) mark() []string {
	if k == nil {
		return nil
	}
	return []string{markName + "=" + k.record.Token}
}

// write records a group, whole or not at all. It is not synced: after a power
// cut there is no process that it could be about.
//
// The child runs already, so there is a moment in which a kill of this process
// leaves what the child has started without a record. Nobody starts anything
// within the fraction of a millisecond that it lasts but a shell.
func (k *recorder) write(g *group) error {
	if k == nil {
		return nil
	}
	r := &k.record
	r.Leader = identity{g.id, g.start}
	r.Server.PID = os.Getpid()
	r.Server.Start, _ = startOf(r.Server.PID)
	r.Boot, r.Namespace = system()
	if r.Boot == "" || r.Server.Start == "" || r.Leader.Start == "" {
		return errors.New("the system does not tell when a process was started")
	}
	// No more than the folder itself: a checkout that was moved away is not to be
	// made again.
	if err := os.Mkdir(k.folder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	root, err := os.OpenRoot(k.folder)
	if err != nil {
		return err
	}
	defer root.Close() // ignore error: nothing is written through it
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	temp := r.Token + tempSuffix
	f, err := root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = root.Rename(temp, r.Token+recordSuffix)
	}
	if err != nil {
		root.Remove(temp) // ignore error: Sweep finds it
	}
	return err
}

func (k *recorder) remove() {
	if k == nil {
		return
	}
	root, err := os.OpenRoot(k.folder)
	if err != nil {
		return // removed with all that was in it
	}
	defer root.Close()                         // ignore error: nothing is written through it
	root.Remove(k.record.Token + recordSuffix) // ignore error: Sweep finds it, and no group
}

// parseRecord reads a record. What it cannot be sure of is an error.
func parseRecord(b []byte) (record, error) {
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return record{}, err
	}
	switch {
	case r.Schema != recordSchema:
		return record{}, fmt.Errorf("schema %q", r.Schema)
	case !isToken(r.Token), r.Boot == "", r.Server.Start == "", r.Leader.Start == "":
		return record{}, errors.New("incomplete")
	case r.Leader.PID <= 1, r.Server.PID <= 0:
		// As the number of a group, 1 is all there are, and 0 one's own.
		return record{}, fmt.Errorf("process %d of server %d", r.Leader.PID, r.Server.PID)
	}
	return r, nil
}

// A sight is what a sweeper sees of what a record is about.
type sight struct {
	boot, namespace string
	server          bool     // it lives
	members         []member // of the leader's group
	known           bool     // whether these are all
	marked          func(pid int, token string) bool
}

type verdict string

const (
	keep verdict = "keep" // somebody else's business
	drop verdict = "drop" // there is nothing left that it is about
	end  verdict = "end"  // its group is left, and nobody's
)

// judge says what is to be done about a record, and why. Nothing is ended that
// might be somebody else's: one that stays costs memory, one that is wrongly
// killed costs work.
func (r record) judge(s sight) (verdict, string) {
	switch {
	case s.boot != r.Boot:
		return drop, "it is from before the system was started"
	case s.namespace != r.Namespace:
		// A container that shares the checkout: its numbers mean nothing here.
		return keep, "it is about processes in another namespace"
	case s.server:
		// Two servers of a checkout are usual for a while: one that lost the
		// lease serves its sessions to their end.
		return keep, "its server lives"
	case !s.known:
		return keep, "the processes cannot be listed"
	case len(s.members) == 0:
		return drop, "its group is gone"
	}
	for _, m := range s.members {
		if m.pid == r.Leader.PID {
			if m.start == r.Leader.Start {
				return end, "its leader lives"
			}
			return drop, "the number of its group is another one's now"
		}
	}
	// Without the leader, the number may have been given away, and have lost
	// its new leader as well. A member with the mark was started by the
	// recorded child; and the only way into a session is to be born there. So
	// it is the group of old.
	for _, m := range s.members {
		if s.marked(m.pid, r.Token) {
			return end, "what its leader started lives"
		}
	}
	return drop, "none of the processes with its number is provably of it"
}
