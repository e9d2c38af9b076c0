package lease

import (
	"fmt"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// VersionVerdict is how a server's version stands to one's own.
type VersionVerdict int

const (
	Same        VersionVerdict = iota
	ServerOlder                // an older release or pre-release
	ServerNewer                // a newer one
	Unpublished                // one of the two was never released: a build from a work tree, a commit between tags, none
	Unordered                  // neither same nor comparable
)

func (v VersionVerdict) String() string {
	switch v {
	case Same:
		return "same"
	case ServerOlder:
		return "server older"
	case ServerNewer:
		return "server newer"
	case Unpublished:
		return "unpublished"
	case Unordered:
		return "unordered"
	}
	return fmt.Sprintf("VersionVerdict(%d)", int(v))
}

// CompareVersions orders release and pre-release tags, and nothing else. Two
// builds of one work tree bear the same name for different code, and a commit's
// pseudo-version would be "newer" than the release somebody chose: a server
// replaced on such grounds would be replaced back, for ever.
func CompareVersions(server, mine string) VersionVerdict {
	if unpublished(server) || unpublished(mine) {
		return Unpublished
	}
	if server == mine {
		return Same
	}
	if !semver.IsValid(server) || !semver.IsValid(mine) {
		return Unordered
	}
	switch semver.Compare(server, mine) {
	case -1:
		return ServerOlder
	case 1:
		return ServerNewer
	}
	if semver.Build(server) != semver.Build(mine) {
		return Unordered
	}
	return Same
}

func unpublished(v string) bool {
	return v == "" || strings.HasPrefix(v, "(") || strings.HasSuffix(v, "+dirty") || strings.Contains(v, "+dirty.") ||
		strings.HasSuffix(v, ".dirty") || module.IsPseudoVersion(v)
}
