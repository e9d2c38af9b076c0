package board

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestExecutions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New("shop", "id", false)
		stop := b.Listen()
		began := time.Now()
		for i := range 3 {
			e := Execution{Number: 77, Peer: "pa", Client: "a", Tool: fmt.Sprint("tool ", i), Started: began, Outcome: "odd", Millis: 9}
			if n := b.Began(e); n != uint64(i+1) {
				t.Errorf("call %d has the number %d", i, n)
			}
		}
		time.Sleep(1500 * time.Microsecond)
		b.Ended(2, "ok", 1500*time.Microsecond)
		b.Ended(2, "failed", time.Hour)
		b.Ended(99, "ok", 0)
		running, ended := b.Executions(0)
		if len(running) != 2 || running[0].Number != 3 || running[1].Number != 1 || running[0].Outcome != Running || running[0].Millis != 1.5 {
			t.Errorf("running: %+v", running)
		}
		if len(ended) != 1 || ended[0] != (Execution{Number: 2, Peer: "pa", Client: "a", Tool: "tool 1", Started: began, Millis: 1.5, Outcome: "ok"}) {
			t.Errorf("ended: %+v", ended)
		}
		stop()
		stop()                                 // counts once
		b.Ended(b.Began(Execution{}), "ok", 0) // no word of its beginning
		b.Ended(1, "cut", time.Second)
		b.Ended(3, "error", time.Second)
		_, ended = b.Executions(2)
		if len(ended) != 2 || ended[0].Number != 3 || ended[1].Number != 1 {
			t.Errorf("the last two: %+v", ended)
		}
		if running, ended := New("", "", false).Executions(5); running == nil || ended == nil {
			t.Error("none is null")
		}

		// A listener has each as it was then.
		events, missed, err := b.Events(t.Context(), 0)
		if err != nil || missed != 0 || len(events) != 7 {
			t.Fatalf("%d events, %d missed, %v", len(events), missed, err)
		}
		var got []string
		for _, e := range events {
			got = append(got, fmt.Sprint(e.Kind, " ", e.Execution.Number, " ", e.Execution.Outcome))
		}
		if s := strings.Join(got, ", "); s != "call_began 1 running, call_began 2 running, call_began 3 running, call_ended 2 ok, call_ended 4 ok, call_ended 1 cut, call_ended 3 error" {
			t.Errorf("told: %s", s)
		}
	})
}

func TestNamesAreBounded(t *testing.T) {
	b := New("shop", "id", false)
	long := strings.Repeat("x", 1<<20)
	b.Began(Execution{Tool: long, Upstream: long, Client: long})
	b.Note(Event{Kind: UpstreamNow, Message: long})
	events, _, err := b.Events(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if j, err := json.Marshal(events); err != nil || len(j) > 8<<10 {
		t.Errorf("%d bytes, %v", len(j), err)
	}
}

func TestGaps(t *testing.T) {
	b := New("shop", "id", false)
	get := func(after uint64, first, missed uint64, n int) {
		t.Helper()
		events, m, err := b.Events(t.Context(), after)
		if err != nil || len(events) != n || m != missed || events[0].Number != first {
			t.Errorf("after %d: %d events, %d missed, %v; want %d from %d, %d missed", after, len(events), m, err, n, first, missed)
		}
	}
	note := func(n int) {
		for range n {
			b.Note(Event{Kind: UpstreamNow})
		}
	}
	note(1)
	get(0, 1, 0, 1)
	get(99, 1, 0, 1) // another server's number
	note(mostEvents - 1)
	get(0, 1, 0, mostEvents)
	get(mostEvents-1, mostEvents, 0, 1)
	note(1)
	get(0, 2, 1, mostEvents)
	get(1, 2, 0, mostEvents)
	get(2, 3, 0, mostEvents-1)
	note(5000)
	get(1, 5002, 5000, mostEvents)
	get(5001, 5002, 0, mostEvents)
	get(1<<60, 5002, 5001, mostEvents)
	if b.Newest() != mostEvents+5001 {
		t.Errorf("the newest is %d", b.Newest())
	}
}

func TestEventsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := New("shop", "id", false)
		why := errors.New("enough")
		ctx, stop := context.WithCancelCause(t.Context())
		stop(why)
		if _, _, err := b.Events(ctx, 0); err != why {
			t.Errorf("error %v", err)
		}
		if err := b.Changed(ctx, b.Revision()); err != why {
			t.Errorf("error %v", err)
		}
		if err := b.Changed(ctx, b.Revision()+1); err != nil {
			t.Errorf("changed already, but %v", err)
		}

		var wg sync.WaitGroup
		wg.Go(func() {
			if events, _, err := b.Events(t.Context(), 0); err != nil || len(events) != 1 || events[0].Kind != PeerCame {
				t.Errorf("events %+v, %v", events, err)
			}
		})
		wg.Go(func() {
			if err := b.Changed(t.Context(), 0); err != nil {
				t.Error(err)
			}
			// Whoever sees the change finds its event.
			if b.Newest() == 0 {
				t.Error("there is no event yet")
			}
		})
		synctest.Wait()
		b.Attach("1", Peer{Key: "a"})
		wg.Wait()

		// A call is no change, a path touched no event.
		revision, number := b.Revision(), b.Newest()
		changed, heard := false, false
		wg.Go(func() { changed = b.Changed(t.Context(), revision) == nil })
		b.Began(Execution{})
		synctest.Wait()
		if changed {
			t.Error("a call changes the peers")
		}
		number = b.Newest()
		wg.Go(func() { _, _, err := b.Events(t.Context(), number); heard = err == nil })
		b.Touch("a", []string{"x"}, true)
		synctest.Wait()
		if !changed || heard {
			t.Errorf("a path was touched: changed %v, heard %v", changed, heard)
		}
		b.Note(Event{Kind: LeaseLost})
		wg.Wait()
	})
}

// TestDeafListener: one who listened once and never again is in nobody's way.
func TestDeafListener(t *testing.T) {
	b := New("shop", "id", false)
	defer b.Listen()()
	b.Note(Event{Kind: UpstreamNow})
	if _, _, err := b.Events(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { b.Events(ctx, b.Newest()) }) // ignore error: what it gets, it keeps to itself
	for range 3 * mostEvents {
		b.Ended(b.Began(Execution{}), "ok", 0)
	}
	b.Attach("1", Peer{Key: "a"})
	announce(t, b, "a", "", "x")
	events, missed, err := b.Events(t.Context(), 1)
	if err != nil || len(events) != mostEvents || missed+mostEvents != 6*mostEvents+2 {
		t.Errorf("%d events, %d missed, %v", len(events), missed, err)
	}
	stop()
	wg.Wait()
}

// TestAMillion: memory is flat, and the numbers have no holes.
func TestAMillion(t *testing.T) {
	million := 1_000_000
	if testing.Short() {
		million = 50_000
	}
	b := New("shop", "id", false)
	defer b.Listen()()
	b.Attach("1", Peer{Key: "a", ID: "pa", Client: "client"})
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	call := func(i int) {
		n := b.Began(Execution{Peer: "pa", Client: "client", Tool: fmt.Sprint("tool", i), Started: time.Now()})
		b.Ended(n, "ok", time.Millisecond)
	}
	for i := range 4 * mostEvents {
		call(i)
	}
	before, number := heap(), b.Newest()
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var got, missed uint64
	last := number
	wg.Go(func() {
		for {
			events, m, err := b.Events(ctx, last)
			if err != nil {
				return
			}
			if events[0].Number != last+m+1 {
				t.Errorf("after %d comes %d, with %d missed", last, events[0].Number, m)
			}
			got, missed, last = got+uint64(len(events)), missed+m, events[len(events)-1].Number
		}
	})
	for i := range million {
		call(i)
		if i%1000 == 0 {
			b.Touch("a", []string{fmt.Sprint("src/", i)}, true)
			announce(t, b, "a", fmt.Sprint("c", i/1000%20), fmt.Sprint("src/", i))
			announce(t, b, fmt.Sprint("gone", i), "", "x")
		}
	}
	all := b.Newest() - number
	for done := false; !done; {
		b.mu.Lock()
		done = b.evBell.rung != nil // it waits for more
		b.mu.Unlock()
		runtime.Gosched()
	}
	stop()
	wg.Wait()
	if want := uint64(2*million + 2*((million+999)/1000)); all != want || got+missed != want || last != b.Newest() {
		t.Errorf("%d events, of which %d were heard and %d missed; want %d", all, got, missed, want)
	}
	after := heap()
	t.Logf("%d kB before, %d kB after; %d heard, %d missed", before>>10, after>>10, got, missed)
	if after-before > 256<<10 {
		t.Errorf("%d kB before, %d kB after", before>>10, after>>10)
	}
	running, ended := b.Executions(0)
	if len(running) != 0 || len(ended) != mostExecutions || ended[0].Number != uint64(4*mostEvents+million) {
		t.Errorf("%d run, %d have ended, the last is %d", len(running), len(ended), ended[0].Number)
	}
	for i, e := range ended {
		if e.Number != ended[0].Number-uint64(i) {
			t.Fatalf("execution %d is %d", i, e.Number)
		}
	}
	runtime.KeepAlive(b)
}
