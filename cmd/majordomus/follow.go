package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"time"

	"majordomus/lease"
)

var errUnserved = errors.New("no server runs in this checkout")

// reached is a server that has proved to be the checkout's.
type reached struct {
	url, key string
	token    string // of its lease: another token is another server
}

// reach finds the server that serves p now, and starts none. The error is
// errUnserved, for exit code 10, when there is none.
func (p place) reach(ctx context.Context, probe func(context.Context, lease.Document) lease.ProbeReply) (reached, error) {
	none := &exitError{exitNo, errUnserved}
	f := p.folder.Read()
	switch {
	case f.State == lease.Unreadable:
		return reached{}, fmt.Errorf("reading the lease: %w", f.Err)
	case f.State != lease.Present || f.Document.URL == nil:
		return reached{}, none
	}
	switch reply := probe(ctx, f.Document); reply.Outcome {
	case lease.Ours:
	case lease.Refused, lease.NotHolder:
		return reached{}, none
	default:
		return reached{}, fmt.Errorf("asking the server at %s: %w", address(f.Document), reply.Err)
	}
	r := reached{url: *f.Document.URL, token: f.Document.Token}
	if f.Document.Auth == "" {
		return r, nil // it proved nothing, and is given nothing
	}
	key, err := p.folder.ReadKey()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return reached{}, err
	}
	r.key = key
	return r, nil
}

func (r reached) get(ctx context.Context, path string, result any) error {
	return call(ctx, r.url, r.key, http.MethodGet, path, nil, result)
}

// The kinds of an event stream that are about the stream.
const (
	heardHello = "hello" // it begins: what was asked before may be out of date
	heardGap   = "gap"   // some were lost
)

// heard is something that a server told.
type heard struct {
	from reached
	kind string
	data []byte
}

// How a stream that says nothing is seen to be dead (a server comments every
// 15 s), how often the lease is looked at meanwhile, how long before a server
// is asked again, and when it is time to say that there is none.
const (
	mostSilence  = 45 * time.Second
	leasePeriod  = 500 * time.Millisecond
	followPause  = 200 * time.Millisecond
	patienceTold = 5 * time.Second
)

// follower follows what the servers of a checkout tell, the next one where one
// is replaced. Its owner reads heard until it is closed, and then err.
type follower struct {
	p     place
	said  io.Writer // for people: that it goes on with another server
	heard chan heard
	err   error
}

// follow begins to follow r. It ends with ctx, or when a server knows no
// events.
func (p place) follow(ctx context.Context, r reached, said io.Writer) *follower {
	f := &follower{p: p, said: said, heard: make(chan heard)}
	go f.run(ctx, r)
	return f
}

func (f *follower) run(ctx context.Context, r reached) {
	defer close(f.heard)
	after := "" // of the first server what happens from now on, of the next ones all
	for {
		err := f.hear(ctx, r, &after)
		if ctx.Err() != nil {
			return
		}
		if no := (*refusal)(nil); errors.As(err, &no) && (strings.HasPrefix(no.status, "404") || strings.HasPrefix(no.status, "400")) {
			f.err = err // an older server, which would say so for ever
			return
		}
		next, ok := f.next(ctx)
		if !ok {
			return
		}
		if next.token != r.token {
			fmt.Fprintf(f.said, "majordomus: another server serves this checkout now, %s\n", next.url)
			after = "0"
		}
		r = next
	}
}

// next waits for a server.
func (f *follower) next(ctx context.Context) (reached, bool) {
	began, told := time.Now(), false
	for {
		select {
		case <-ctx.Done():
			return reached{}, false
		case <-time.After(followPause):
		}
		r, err := f.p.reach(ctx, f.p.folder.Probe)
		if err == nil {
			return r, true
		}
		if !told && time.Since(began) > patienceTold && ctx.Err() == nil {
			told = true
			fmt.Fprintf(f.said, "majordomus: %v any more; waiting for one\n", errUnserved)
		}
	}
}

// hear passes on what r tells until it ends or another server has its lease.
func (f *follower) hear(ctx context.Context, r reached, after *string) error {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() {
		tick := time.NewTicker(leasePeriod)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if l := f.p.folder.Read(); l.State == lease.Present && l.Document.URL != nil && l.Document.Token != r.token {
				cancel()
				return
			}
		}
	})
	return r.events(ctx, after, func(h heard) bool {
		select {
		case f.heard <- h:
			return true
		case <-ctx.Done():
			return false
		}
	})
}

// events reads the server's events until it ends, tell says no more, or
// nothing has come for too long. *after is the number of the last one.
func (r reached) events(ctx context.Context, after *string, tell func(heard) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	path := "/api/v1/events"
	if *after != "" {
		path += "?after=" + *after
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+path, nil)
	if err != nil {
		return fmt.Errorf("asking for events: %w", err)
	}
	if r.key != "" {
		req.Header.Set("Authorization", "Bearer "+r.key)
	}
	req.Header.Set("Accept", "text/event-stream")
	silent := time.AfterFunc(mostSilence, cancel)
	defer silent.Stop()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // no proxy, as in call
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("asking for events: %w", err)
	}
	defer resp.Body.Close() // ignore error: read to its end or given up
	if resp.StatusCode != http.StatusOK {
		return &refusal{path: path, status: resp.Status}
	}
	var kind, id string
	var data []byte
	for lines := bufio.NewReader(resp.Body); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return fmt.Errorf("reading events: %w", err)
		}
		silent.Reset(mostSilence)
		name, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "event":
			kind = value
		case "id":
			id = value
		case "data":
			data = append(data, value...)
		}
		if strings.TrimRight(line, "\r\n") != "" || kind == "" {
			continue
		}
		if kind == heardHello && *after == "" {
			// If this stream breaks, it goes on where it began.
			var hello struct{ Newest json.Number }
			if json.Unmarshal(data, &hello) == nil {
				id = hello.Newest.String()
			}
		}
		if !tell(heard{r, kind, data}) {
			return ctx.Err()
		}
		if id != "" {
			*after = id
		}
		kind, id, data = "", "", nil
	}
}
