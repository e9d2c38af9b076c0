package bridge

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"majordomus/bridge/frame"
)

// A client may be ahead of its server, and of its own reading, but not without
// end: what it writes is left in its pipe until there is room.
func TestHowFarAClientMayBeAhead(t *testing.T) {
	const some, all = 2000, 100_000
	type ahead struct {
		in, out *io.PipeWriter
		heard   *io.PipeReader
		said    int
		find    chan struct{}
		more    chan struct{} // the rest may be said
	}
	run := func(t *testing.T, a *ahead) {
		inR, inW := io.Pipe()
		outR, outW := io.Pipe()
		a.in, a.out, a.heard, a.find = inW, outW, outR, make(chan struct{})
		a.more = make(chan struct{})
		answer := []byte(`{"content":"` + strings.Repeat("x", 1000) + `"}`)
		go func() {
			err := Run(context.Background(), Config{In: inR, Out: outW, JoinTimeout: 1 << 60, Find: func(ctx context.Context, _ error) (Endpoint, error) {
				<-a.find
				return Endpoint{Open: func(context.Context, string) (io.ReadWriteCloser, error) {
					ours, theirs := net.Pipe()
					go func() {
						defer theirs.Close()
						r, w := frame.NewReader(theirs, 0), frame.NewWriter(theirs)
						for {
							line, err := r.Next()
							if err != nil {
								return
							}
							if m, err := frame.Parse(line); err == nil && m.IsRequest() {
								w.Write(frame.Result(m.ID, answer)) // ignore error: the reader finds it broken
							}
						}
					}()
					return ours, nil
				}}, nil
			}})
			if err != nil {
				t.Error(err)
			}
			outW.Close()
		}()
		go func() {
			for i := range all {
				if i == some {
					<-a.more
				}
				if _, err := fmt.Fprintf(inW, `{"id":%d,"method":"ping"}`+"\n", i); err != nil {
					t.Error(err)
					return
				}
				a.said++
			}
			inW.Close()
		}()
	}
	end := func(t *testing.T, a *ahead) {
		r := frame.NewReader(a.heard, 0)
		for n := range all {
			if _, err := r.Next(); err != nil {
				t.Fatalf("after %d answers: %v", n, err)
			}
		}
		if _, err := r.Next(); err != io.EOF {
			t.Error(err)
		}
	}
	t.Run("without reading", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var a ahead
			run(t, &a)
			close(a.find)
			synctest.Wait() // the first answers stand before a client that reads none
			close(a.more)
			synctest.Wait()
			if a.said > some+10 {
				t.Errorf("%d requests were read, and no answer", a.said)
			}
			end(t, &a)
		})
	})
	t.Run("without a server", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var a ahead
			run(t, &a)
			close(a.more)
			synctest.Wait()
			if a.said > mostUnsent+10 || a.said < 1000 {
				t.Errorf("%d requests were read, and none sent", a.said)
			}
			close(a.find)
			end(t, &a)
		})
	})
}
