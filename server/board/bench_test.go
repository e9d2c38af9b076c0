package board

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// full is a board of 50 peers with 4 claims of 3 paths; each was seen in 64.
func full(b *testing.B, patterns, touched bool) *Board {
	d := New("shop", "id", false)
	for i := range 50 {
		key := fmt.Sprint("peer", i)
		d.Attach(key, Peer{Key: key, ID: fmt.Sprintf("p%04x", i), Client: "an editor", Since: time.Now()})
		for c := range 4 {
			scope := []string{fmt.Sprintf("apps/shop%d/src/part%d", i, c), fmt.Sprintf("docs/%d/%d.md", i, c), fmt.Sprintf("lib/shared/%d", (i+c)%40)}
			if patterns {
				scope[1] = fmt.Sprintf("apps/shop%d/**/*_%d.go", i, c)
			}
			announce(b, d, key, fmt.Sprint("claim", c), scope...)
		}
		if touched {
			for n := range 64 {
				d.Touch(key, []string{fmt.Sprintf("apps/shop%d/src/part%d/file%d.go", (i+n)%60, n%7, n)}, n%3 == 0)
			}
		}
	}
	return d
}

func BenchmarkCall(b *testing.B) {
	for _, listeners := range []int{0, 1, 4} {
		b.Run(fmt.Sprint(listeners, "listening"), func(b *testing.B) {
			d := full(b, false, true)
			var wg sync.WaitGroup
			for range listeners {
				wg.Go(func() {
					after := d.Newest()
					for {
						events, _, err := d.Events(b.Context(), after)
						if err != nil {
							return
						}
						after = events[len(events)-1].Number
					}
				})
			}
			b.Cleanup(wg.Wait)
			e := Execution{Peer: "p0001", Client: "an editor", Tool: "files__read", Upstream: "files", Started: time.Now()}
			b.ReportAllocs()
			for b.Loop() {
				d.Ended(d.Began(e), "ok", time.Millisecond)
			}
		})
	}
}

func BenchmarkAnnounce(b *testing.B) {
	for _, patterns := range []bool{false, true} {
		b.Run(fmt.Sprint("patterns=", patterns), func(b *testing.B) {
			d := full(b, patterns, true)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				announce(b, d, fmt.Sprint("peer", i%50), "claim0", "lib/shared/7", fmt.Sprint("apps/shop", i%50), "go.mod")
			}
		})
	}
}

func BenchmarkOverlaps(b *testing.B) {
	for _, touched := range []bool{false, true} {
		for _, patterns := range []bool{false, true} {
			for _, fold := range []bool{false, true} {
				b.Run(fmt.Sprint("touched=", touched, "/patterns=", patterns, "/fold=", fold), func(b *testing.B) {
					views, _ := full(b, patterns, touched).Views()
					b.ReportAllocs()
					for b.Loop() {
						Overlaps(views, fold)
					}
				})
			}
		}
	}
}

func BenchmarkViews(b *testing.B) {
	b.Run("same", func(b *testing.B) {
		d := full(b, false, true)
		b.ReportAllocs()
		for b.Loop() {
			d.Views()
		}
	})
	b.Run("changed", func(b *testing.B) {
		d := full(b, false, true)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			d.Touch("peer7", []string{fmt.Sprint("f", i)}, false)
			d.Views()
		}
	})
}
