package server

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"majordomus/lease"
	"majordomus/lease/checkout"
)

const (
	uriServer = "majordomus://server"
	uriPeers  = "majordomus://peers"
	uriLayer  = "majordomus://layer/"
)

// registry is what clients can list, as it is now: what is ours, which stays,
// and the files of the layer, which come and go.
type registry struct {
	checkout *checkout.Checkout
	mcp      *mcpserver.MCPServer
	log      *slog.Logger

	walks atomic.Int64 // begun

	mu          sync.Mutex // held during a walk
	walked      bool       // there was a first walk
	files       map[string]checkout.LayerFile
	digest      string
	problem     string // why the last walk failed
	counts      lease.Counts
	fingerprint string
}

func newRegistry(c *checkout.Checkout, m *mcpserver.MCPServer, log *slog.Logger) *registry {
	return &registry{checkout: c, mcp: m, log: log}
}

// refresh looks at the layer, and returns the URIs of what was added, changed
// or removed if anything was. A walk that began after the call serves it as
// well as its own would: a hundred clients that list at once wait for one or
// two.
func (r *registry) refresh() (touched []string, changed bool) {
	before := r.walks.Load()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.walked && r.walks.Load() > before {
		return nil, false // and whoever walked tells
	}
	return r.walkLocked()
}

func (r *registry) walkLocked() (touched []string, changed bool) {
	r.walks.Add(1)
	first := !r.walked
	r.walked = true
	var layer checkout.Layer
	if r.checkout != nil {
		var err error
		if layer, err = r.checkout.Layer(); err != nil {
			// Files that cannot be listed for the moment have not gone.
			if why := plain(err); why != r.problem {
				r.problem = why
				r.log.Warn("reading the layer", "err", err)
			}
			if first {
				r.sumLocked()
			}
			return nil, false
		}
		r.problem = ""
	}
	digest := layer.Digest()
	if !first && digest == r.digest {
		return nil, false
	}
	r.digest = digest
	old := r.files
	r.files = make(map[string]checkout.LayerFile, len(layer.Files))
	var added []mcpserver.ServerResource
	for _, f := range layer.Files {
		r.files[f.Path] = f
		if was, ok := old[f.Path]; !ok || was.Size != f.Size || was.MIME != f.MIME || !was.ModTime.Equal(f.ModTime) {
			touched = append(touched, layerURI(f.Path))
			added = append(added, mcpserver.ServerResource{Resource: layerResource(f), Handler: r.read})
		}
	}
	var gone []string
	for path := range old {
		if _, ok := r.files[path]; !ok {
			gone = append(gone, layerURI(path))
		}
	}
	// One by one rather than all anew: replacing the whole leaves a moment
	// in which nothing is listed.
	if len(added) > 0 {
		r.mcp.AddResources(added...)
	}
	r.mcp.DeleteResources(gone...)
	r.sumLocked()
	if first {
		return nil, false
	}
	return append(touched, gone...), true
}

// sumLocked counts what there is, and fingerprints it.
func (r *registry) sumLocked() {
	tools, resources, prompts := r.mcp.ListTools(), r.mcp.ListResources(), r.mcp.ListPrompts()
	r.counts = lease.Counts{Tools: len(tools), Resources: len(resources), Prompts: len(prompts), Layer: len(r.files)}
	h := sha256.New()
	add(h, "tools", tools, func(t *mcpserver.ServerTool) any { return t.Tool })
	add(h, "resources", resources, func(t *mcpserver.ServerResource) any { return t.Resource })
	add(h, "prompts", prompts, func(p *mcpserver.ServerPrompt) any { return p.Prompt })
	fmt.Fprintf(h, "layer %s\n", r.digest)
	r.fingerprint = hex.EncodeToString(h.Sum(nil))
}

// add hashes the entries of one list in the order of their names.
func add[T any](h hash.Hash, kind string, entries map[string]T, of func(T) any) {
	fmt.Fprintf(h, "%s %d\n", kind, len(entries))
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		b, err := encode(of(entries[name]))
		if err != nil {
			b = []byte(err.Error()) // then it cannot be listed either
		}
		fmt.Fprintf(h, "%d %s\n", len(b), b)
	}
}

// current is the fingerprint of what can be listed: hex of a SHA-256 that
// changes when an entry, or a file of the layer, does.
func (r *registry) current() string {
	_, fingerprint := r.sums()
	return fingerprint
}

func (r *registry) sums() (lease.Counts, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.walked {
		r.walkLocked()
	}
	return r.counts, r.fingerprint
}

// failing is why the layer could not be read the last time, or "".
func (r *registry) failing() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.problem
}

// mime is the type of a file of the layer. One that was not there at the last
// walk is looked for again.
func (r *registry) mime(path string) string {
	r.mu.Lock()
	f, ok := r.files[path]
	r.mu.Unlock()
	if ok {
		return f.MIME
	}
	layer, err := r.checkout.Layer()
	i, ok := slices.BinarySearchFunc(layer.Files, path, func(f checkout.LayerFile, p string) int { return cmp.Compare(f.Path, p) })
	if err != nil || !ok {
		return "text/plain"
	}
	return layer.Files[i].MIME
}

func layerResource(f checkout.LayerFile) mcp.Resource {
	size := f.Size
	return mcp.Resource{
		URI: layerURI(f.Path), Name: "layer/" + f.Path, Title: f.Path, MIMEType: f.MIME, Size: &size,
		Description: "A file that this checkout shares with everybody who works in it.",
	}
}

// layerURI is the URI of a file of the layer.
func layerURI(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return uriLayer + strings.Join(parts, "/")
}

// layerPath is the file that a URI names, however it escapes it.
func layerPath(uri string) (string, bool) {
	rest, ok := strings.CutPrefix(uri, uriLayer)
	if !ok {
		return "", false
	}
	parts := strings.Split(rest, "/")
	for i, p := range parts {
		part, err := url.PathUnescape(p)
		if err != nil || strings.Contains(part, "/") {
			return "", false
		}
		parts[i] = part
	}
	return strings.Join(parts, "/"), true
}
