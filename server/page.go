package server

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"majordomus/server/cockpit"
)

// A page in a browser must not have the key: what a browser keeps, extensions
// and whoever looks over a shoulder can read, and the key opens everything for
// ever. So whoever has the key asks for a code, which is worth one exchange
// within a minute and may therefore stand in an address; the page exchanges it
// for a token, which opens what it reads and nothing else, for a day. The token
// is made from the key and not kept anywhere: the checkout's next server knows
// it too, so that a page outlives its server, and a rotated key ends it.

const (
	pathCockpit = "/cockpit"

	codeLife  = time.Minute
	mostCodes = 16
	tokenLife = 24 * time.Hour
)

// codes are those that were given out and are worth something yet. Its zero
// value is ready.
type codes struct {
	mu    sync.Mutex
	given []givenCode // the oldest first
}

type givenCode struct {
	sum   [sha256.Size]byte // compared in constant time whatever is offered
	until time.Time
}

// give makes a code. Past the bound the oldest one is worth nothing any more:
// who waits is the one who asked last.
func (c *codes) give() string {
	code := rand.Text()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pruneLocked()
	if n := len(c.given) - (mostCodes - 1); n > 0 {
		c.given = slices.Delete(c.given, 0, n)
	}
	c.given = append(c.given, givenCode{sha256.Sum256([]byte(code)), time.Now().Add(codeLife)})
	return code
}

// spend reports whether code was worth anything, which it is not again.
func (c *codes) spend(code string) bool {
	sum := sha256.Sum256([]byte(code))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pruneLocked()
	found := -1
	for i := range c.given {
		if subtle.ConstantTimeCompare(sum[:], c.given[i].sum[:]) == 1 {
			found = i
		}
	}
	if found < 0 {
		return false
	}
	c.given = slices.Delete(c.given, found, found+1)
	return true
}

func (c *codes) pruneLocked() {
	now := time.Now()
	c.given = slices.DeleteFunc(c.given, func(g givenCode) bool { return !now.Before(g.until) })
}

// pageToken makes a token: NONCE.EXPIRY.MAC, of which only the last is secret.
func pageToken(key string) string {
	var nonce [16]byte
	rand.Read(nonce[:]) // never fails
	said := hex.EncodeToString(nonce[:]) + "." + strconv.FormatInt(time.Now().Add(tokenLife).Unix(), 10)
	return said + "." + tokenMAC(key, said)
}

// isPageToken reports whether token was made with that key, by whichever server
// of the checkout, and is good still.
func isPageToken(key, token string) bool {
	until, ok := tokenEnd(key, token)
	return ok && time.Now().Before(until)
}

// tokenEnd is until when a token is good that was made with that key.
func tokenEnd(key, token string) (until time.Time, ok bool) {
	i := strings.LastIndexByte(token, '.')
	if i < 0 || subtle.ConstantTimeCompare([]byte(token[i+1:]), []byte(tokenMAC(key, token[:i]))) != 1 {
		return time.Time{}, false
	}
	_, expiry, _ := strings.Cut(token[:i], ".") // as we wrote it, by the MAC
	seconds, err := strconv.ParseInt(expiry, 10, 64)
	return time.Unix(seconds, 0), err == nil
}

// tokenMAC never is a proof of the lease: that is over hex digits alone.
func tokenMAC(key, said string) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte("majordomus page " + said))
	return hex.EncodeToString(mac.Sum(nil))
}

// isPage reports whether r comes from a page, for something that pages read.
func (s *Server) isPage(r *http.Request) bool {
	if r.Method != http.MethodGet {
		return false
	}
	switch r.URL.Path {
	case "/api/v1/server", "/api/v1/peers", "/api/v1/executions", "/api/v1/upstreams", "/api/v1/events":
	default:
		return false
	}
	token, ok := bearer(r)
	key := s.currentKey()
	return ok && key != nil && isPageToken(key.text, token)
}

// serveCode gives whoever has the key a code for one page.
func (s *Server) serveCode(w http.ResponseWriter, r *http.Request) {
	if !s.decode(w, r, &struct{}{}) {
		return
	}
	answer(w, http.StatusOK, map[string]any{"code": s.codes.give(), "expires_in": int(codeLife / time.Second)})
}

// serveToken exchanges a code for a token.
func (s *Server) serveToken(w http.ResponseWriter, r *http.Request) {
	var offered struct{ Code string }
	if !s.decode(w, r, &offered) {
		return
	}
	if !s.codes.spend(offered.Code) {
		refuse(w, http.StatusUnauthorized, "invalid_code", "this code is not known, was used, or is older than a minute; majordomus open makes another")
		return
	}
	key := "" // where there is none nobody is asked for it
	if is := s.currentKey(); is != nil {
		key = is.text
	}
	answer(w, http.StatusOK, map[string]string{"token": pageToken(key)})
}

// serveCockpit serves the page, which tells nobody anything by itself.
func (s *Server) serveCockpit(w http.ResponseWriter, r *http.Request) {
	content, mediaType, ok := cockpit.File(strings.TrimPrefix(r.URL.Path, pathCockpit))
	if !ok {
		refuse(w, http.StatusNotFound, "not_found", "there is nothing at this path")
		return
	}
	h := w.Header()
	h.Set("Content-Type", mediaType)
	h.Set("Content-Length", strconv.Itoa(len(content)))
	h.Set("Content-Security-Policy", cockpit.Policy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	io.WriteString(w, content) // ignore error: the client has gone
}
