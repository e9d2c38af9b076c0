package session_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"majordomus/server/session"
)

var update = flag.Bool("update", false, "rewrite what the transcripts expect")

// a front is a client on one of the ways in.
type front interface {
	say(message string)
	hear() string
}

// TestTranscripts plays the transcripts in testdata/transcripts over every
// front: a link, the standard streams and HTTP must read the same, byte by byte.
//
//	> MESSAGE   the client says it
//	< MESSAGE   it is told that, next
//
// The folder's name is the era. In the one with a handshake the client has shaken
// hands before. With -update what was heard over the link is written down.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/transcripts/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	for _, file := range files {
		era := strings.TrimSuffix(filepath.Base(file), ".txtar")
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range archive.Files {
			t.Run(era+"/"+f.Name, func(t *testing.T) {
				for _, way := range []struct {
					name string
					open func(*testing.T, *house) front
				}{
					{"link", func(t *testing.T, h *house) front { return onLine(h.link(t), era) }},
					{"stdio", func(t *testing.T, h *house) front { return onLine(h.pipe(t, session.Peer{Plain: true}), era) }},
					{"http", func(t *testing.T, h *house) front { return onWeb(t, h, era) }},
				} {
					t.Run(way.name, func(t *testing.T) {
						heard := play(t, way.open(t, settle(t, nil)), string(f.Data))
						if *update && way.name == "link" {
							archive.Files[i].Data = heard
						}
					})
				}
			})
		}
		if *update && !t.Failed() {
			if err := os.WriteFile(file, txtar.Format(archive), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// play plays a transcript and returns it as it was.
func play(t *testing.T, f front, text string) (record []byte) {
	t.Helper()
	for n, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		direction, message, _ := strings.Cut(line, " ")
		switch direction {
		case ">":
			f.say(message)
		case "<":
			got := f.hear()
			if got != message && !*update {
				t.Fatalf("line %d:\n got %s\nwant %s", n+1, got, message)
			}
			line = "< " + got
		case "", "#":
		default:
			t.Fatalf("line %d: what is %q?", n+1, direction)
		}
		record = append(append(record, line...), '\n')
	}
	return record
}

type lineFront struct{ *line }

func onLine(l *line, era string) front {
	if era == shaken {
		l.greet(everything)
	}
	return lineFront{l}
}

func (f lineFront) hear() string {
	for {
		if s := f.next(); s[0] != '!' {
			return s
		}
	}
}

// webFront hears everything on one queue, as a client of the SDK's does.
type webFront struct {
	*web
	heard chan string
}

func onWeb(t *testing.T, h *house, era string) front {
	f := &webFront{h.web(t, era), make(chan string, 1000)}
	if era == shaken {
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		resp := f.do(f.request(ctx, http.MethodGet, ""))
		go f.listen(eventsOf(t, resp))
	}
	return f
}

func (f *webFront) listen(e *events) {
	for {
		s, ok := e.next()
		if !ok {
			return
		}
		f.heard <- s
	}
}

// say returns when the server has taken the message: its answer begins, or a
// question does. A call that does neither is taken when the next one is.
func (f *webFront) say(message string) {
	f.t.Helper()
	r := f.request(context.Background(), http.MethodPost, message)
	taken := make(chan struct{})
	go func() {
		defer close(taken)
		resp, err := f.client.Do(r)
		if err != nil {
			f.heard <- fmt.Sprint("!", err)
			return
		}
		defer resp.Body.Close()
		if resp.StatusCode == http.StatusAccepted {
			return
		}
		f.listen(eventsOf(f.t, resp))
	}()
	if !strings.Contains(message, `"id":`) || !strings.Contains(message, `"method":`) {
		<-taken // in order: what follows must find it done
	}
}

func (f *webFront) hear() string {
	f.t.Helper()
	select {
	case s := <-f.heard:
		return s
	case <-time.After(patience):
		f.t.Fatal("nothing more is heard")
		return ""
	}
}
