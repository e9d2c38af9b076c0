package lease

import (
	"bufio"
	"context"
	"crypto/hmac"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"
)

// serverName is what a server of ours calls itself in its index.
const serverName = "majordomus"

// Outcome is what asking at a lease's address came to.
type Outcome int

const (
	Ours        Outcome = iota // the holder of this lease, by its own word and, where the lease says so, by proof
	NotHolder                  // a server of this checkout that says that it no longer holds the lease
	Silent                     // connected, and no answer in time; or one that says "not now" (503)
	Refused                    // nobody listens there, or who did hung up without an answer
	Unreachable                // no way there from this process
	Stranger                   // somebody else answered, or somebody without proof
)

func (o Outcome) String() string {
	switch o {
	case Ours:
		return "ours"
	case NotHolder:
		return "not the holder"
	case Silent:
		return "silent"
	case Refused:
		return "refused"
	case Unreachable:
		return "unreachable"
	case Stranger:
		return "a stranger"
	}
	return fmt.Sprintf("Outcome(%d)", int(o))
}

// Index is the body of a server's GET /, which probes read.
type Index struct {
	Name         string `json:"name"`
	Version      string `json:"version"`
	Repository   string `json:"repository"` // the checkout's name, for people
	RepositoryID string `json:"repository_id"`
	// GitRepositoryID is absent without git.
	GitRepositoryID string `json:"git_repository_id,omitempty"`
	LinkedWorktree  bool   `json:"linked_worktree"`
	// LeaseHolder is nil where the server is too old to say, which counts as
	// true.
	LeaseHolder *bool     `json:"leaseholder,omitempty"`
	StartedAt   time.Time `json:"started_at"`
	// Stale says why the code on disk is not the code running; nil if it is.
	Stale       *string   `json:"stale"`
	Counts      Counts    `json:"counts"`
	Fingerprint string    `json:"fingerprint"`
	Surfaces    []Surface `json:"surfaces"`
	// Proof answers the challenge of who asked with one.
	Proof string `json:"proof,omitempty"`
}

// Counts says how much a server offers.
type Counts struct {
	Tools     int `json:"tools"`
	Resources int `json:"resources"`
	Prompts   int `json:"prompts"`
	Layer     int `json:"layer"`
}

// A Surface is a way into a server.
type Surface struct {
	ID   string `json:"id"`
	Path string `json:"path"`
}

// A ProbeReply is what one probe found. Index is what was answered if the
// outcome is Ours or NotHolder. Err says more about every outcome but Ours.
type ProbeReply struct {
	Outcome Outcome
	Index   Index
	Err     error
}

// Probe asks once at the address of doc whether the holder of doc is there, and
// waits for the probe timeout at most. It speaks to loopback addresses only: a
// document is a file that a checkout can bring along, and must not choose whom
// on the network this process calls. Proxies are ignored, redirects are not
// followed, and no more than 64 KiB are read.
func (f *Folder) Probe(ctx context.Context, doc Document) ProbeReply {
	if doc.Auth == "key" {
		// A server whose key file is gone could prove itself to nobody, and
		// would be taken for a stranger. It reads the new one when it is asked.
		if _, err := f.ReadKey(); errors.Is(err, fs.ErrNotExist) {
			f.Key() // ignore error: then the proof fails, and says so
		}
	}
	return f.probe(ctx, doc, f.cfg.Timings.ProbeTimeout)
}

// ProbePatiently asks again until somebody answers, or the busy grace is over.
func (f *Folder) ProbePatiently(ctx context.Context, doc Document) ProbeReply {
	began := time.Now()
	for pause := firstPause; ; pause = longer(pause) {
		reply := f.Probe(ctx, doc)
		if reply.Outcome != Silent || time.Since(began) >= f.cfg.Timings.BusyGrace || f.cfg.sleep(ctx, pause) != nil {
			return reply
		}
	}
}

func (f *Folder) probe(ctx context.Context, doc Document, within time.Duration) ProbeReply {
	if f.cfg.ask != nil {
		return f.cfg.ask(ctx, doc, within)
	}
	host, err := target(doc.address())
	if err != nil {
		return ProbeReply{Outcome: Stranger, Err: err}
	}
	if doc.Auth == "key" {
		// A proof by a key that others know proves nothing. The server reads
		// the new one when it is asked.
		if _, err := f.ReadKey(); errors.Is(err, errKnown) {
			f.Key() // ignore error: then the proof fails, and says so
		}
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	nonce := newToken()
	body, reply := ask(ctx, host, nonce)
	if reply.Err != nil {
		return reply
	}
	stranger := func(format string, a ...any) ProbeReply {
		return ProbeReply{Outcome: Stranger, Err: fmt.Errorf(format, a...)}
	}
	var x Index
	if err := json.Unmarshal(body, &x); err != nil {
		return stranger("what answers at %s is no server of ours: its answer is not an index", host)
	}
	switch {
	case x.Name != serverName:
		return stranger("what answers at %s is no server of ours but %.40q", host, x.Name)
	case x.RepositoryID != f.cfg.Checkout.ID:
		return stranger("the server at %s serves another checkout, %.60q", host, x.Repository)
	}
	switch doc.Auth {
	case "": // of another maker, which has no key to prove anything by
	case "key":
		key, err := f.ReadKey()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return ProbeReply{Outcome: Unreachable, Err: fmt.Errorf("checking the proof of %s: %w", host, err)}
		}
		if err != nil {
			return stranger("checking the proof of %s: %w", host, err)
		}
		if !hmac.Equal([]byte(x.Proof), []byte(Proof(key, nonce, doc.Token))) {
			return stranger("the server at %s does not prove that it holds this lease", host)
		}
	default:
		return stranger("the lease wants %.20q to be proved, which is not known here", doc.Auth)
	}
	if x.LeaseHolder != nil && !*x.LeaseHolder {
		return ProbeReply{NotHolder, x, fmt.Errorf("the server at %s says that it no longer holds the lease", host)}
	}
	return ProbeReply{Outcome: Ours, Index: x}
}

// target is the host and port of a lease's address.
func target(address string) (string, error) {
	u, err := url.Parse(address)
	bad := fmt.Errorf("the lease's address %.80q is not one on this machine", address)
	if err != nil || u.Scheme != "http" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Port() == "" {
		return "", bad
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err != nil && u.Hostname() != "localhost" || err == nil && !ip.IsLoopback() {
		return "", bad
	}
	return u.Host, nil
}

// ask sends one request and returns the body of a 200. It is written out
// because a client that may follow, reuse or retry something leaves open what
// it was that did not answer.
func ask(ctx context.Context, host, nonce string) ([]byte, ProbeReply) {
	failed := func(o Outcome, err error) ([]byte, ProbeReply) {
		return nil, ProbeReply{Outcome: o, Err: fmt.Errorf("asking at %s: %w", host, err)}
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", host)
	if err != nil && refused(err) {
		return failed(Refused, err)
	}
	if err != nil {
		// Also a connect that times out: a process that listens is connected
		// to by the kernel, even when it is stopped.
		return failed(Unreachable, err)
	}
	defer conn.Close() // ignore error: nothing of it is kept
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	ended := func(err error) ([]byte, ProbeReply) {
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return failed(Silent, errors.New("connected, but no answer in time"))
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), isReset(err):
			return failed(Refused, fmt.Errorf("hung up before it answered: %w", err))
		}
		return failed(Stranger, fmt.Errorf("the answer is not HTTP: %w", err))
	}
	if _, err := fmt.Fprintf(conn, "GET /?challenge=%s HTTP/1.1\r\nHost: %s\r\nAccept: application/json\r\nUser-Agent: majordomus\r\nConnection: close\r\n\r\n", nonce, host); err != nil {
		return ended(err)
	}
	const most = 64 << 10
	// Headers are bounded too.
	res, err := http.ReadResponse(bufio.NewReader(io.LimitReader(conn, 2*most)), &http.Request{Method: http.MethodGet})
	if err != nil {
		return ended(err)
	}
	defer res.Body.Close() // ignore error: the connection is closed anyway
	switch {
	case res.StatusCode == http.StatusServiceUnavailable:
		return failed(Silent, errors.New("it says that it cannot tell at the moment (503)"))
	case res.StatusCode != http.StatusOK:
		return failed(Stranger, fmt.Errorf("it answers %d", res.StatusCode))
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, most+1))
	if err != nil {
		return ended(err)
	}
	if len(body) > most {
		return failed(Stranger, fmt.Errorf("it answers more than %d bytes", most))
	}
	return body, ProbeReply{}
}

// Windows has its own numbers, which package syscall does not map to these.
func refused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.Errno(10061))
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNABORTED) ||
		errors.Is(err, syscall.Errno(10054)) || errors.Is(err, syscall.Errno(10053))
}
