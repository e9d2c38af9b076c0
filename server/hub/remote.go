package hub

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"majordomus/bridge/frame"
	"majordomus/server/hub/config"
)

const (
	// connectTimeout is for each of finding a connection and securing it.
	connectTimeout = 10 * time.Second

	// headTimeout is until an answer begins. A server that answers a call with
	// JSON begins when it has the result, so it is what Node's clients have;
	// what has begun may take any time.
	headTimeout = 5 * time.Minute

	// briefTimeout is for what is answered at once: a notification, an answer of
	// ours to a question.
	briefTimeout = 30 * time.Second

	// endTimeout is for telling a server that its session is over.
	endTimeout = 3 * time.Second

	// linger is how long the rest of a stream is read once the answer was in it:
	// a connection that was read to its end can be used again.
	linger = time.Second

	// mostResumes bounds how often in a row a stream that broke is asked for
	// again without a word coming.
	mostResumes = 5
	leastPause  = 100 * time.Millisecond // before that, whatever the server says

	// mostAbsent is how often in a row a server whose stream has broken may be
	// found away before that is the end: most are back within moments.
	mostAbsent = 2

	mostRedirects = 3
	longestSaying = 64 << 10 // of what is read of an error that is no message
)

const (
	sessionHeader  = "Mcp-Session-Id"
	protocolHeader = "Mcp-Protocol-Version"
	eventHeader    = "Last-Event-Id"
	eventStream    = "text/event-stream"
)

// remote is a session with a server that is reached by Streamable HTTP, in the
// revisions with a handshake.
//
// Every message of ours is a POST. The answer to a call comes as JSON or in a
// stream of events, and there what the server says before it is the call's: so
// it is known which client a question is for. What the server says by itself
// comes in the answer to a GET, which is asked for again when it ends. Of a
// stream that broke off the rest is asked for, where the server numbers its
// events; that repeats nothing.
//
// A request is never sent twice here. A server that has forgotten the session
// ends this one, as does one that cannot be reached; what is in flight goes on
// until it is answered or broken.
type remote struct {
	outstanding
	address string
	host    string // what the entry's headers have in the place of the address's; mostly ""
	header  http.Header
	bearing bool // the entry has a header that authorizes
	client  *http.Client
	idle    func() // closes connections without a request
	limit   int64
	head    time.Duration
	unasked unasked
	log     *slog.Logger

	life    context.Context // of connections being made
	endLife context.CancelFunc
	ctx     context.Context // of requests in flight, within life
	cancel  context.CancelCauseFunc
	hearing context.Context // of the stream of what it says by itself, within ctx
	deafen  context.CancelFunc
	once    sync.Once // stop

	at      sync.Mutex
	session string // "" before the handshake, and where the server has none
	version string // as negotiated
	err     error  // why it ended
	done    chan struct{}
	wg      sync.WaitGroup // all that runs; nothing is added from outside once err is there
}

// unrun is why the server did not run a request, for certain.
type unrun struct{ err error }

func (u *unrun) Error() string { return u.err.Error() }
func (u *unrun) Unwrap() error { return u.err }

var (
	// errForgotten: the server does not know the session any more. A new one may
	// be begun at once.
	errForgotten = errors.New("it has forgotten this session")

	errEnded  = errors.New("the session with it was ended")
	errNoHead = errors.New("it did not begin to answer")
)

// newRemote makes ready to call on the server of an entry whose variables are
// replaced. env says by which proxy.
func newRemote(e config.Server, env []string, version string, limit int64, u unasked, log *slog.Logger) *remote {
	if limit <= 0 {
		limit = frame.DefaultLimit
	}
	r := &remote{
		address: e.URL, header: http.Header{}, limit: limit, head: max(headTimeout, e.Timeout), unasked: u, log: log, done: make(chan struct{}),
	}
	r.life, r.endLife = context.WithCancel(context.Background())
	r.ctx, r.cancel = context.WithCancelCause(r.life)
	r.hearing, r.deafen = context.WithCancel(r.ctx)
	r.header.Set("User-Agent", "majordomus/"+version)
	for name, value := range e.Headers {
		if strings.EqualFold(name, "Host") {
			r.host = value
			continue
		}
		r.bearing = r.bearing || strings.EqualFold(name, "Authorization")
		r.header.Set(name, value)
	}
	// With one of theirs net/http would hand the answer on packed.
	r.header.Del("Accept-Encoding")
	dialer := &net.Dialer{Timeout: connectTimeout}
	transport := &http.Transport{
		Proxy: proxies(env),
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			// A dial outlives the request that it was begun for.
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(r.life, cancel)()
			return dialer.DialContext(ctx, network, address)
		},
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    connectTimeout,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 30 * time.Second},
		MaxIdleConnsPerHost:    16,
		MaxResponseHeaderBytes: 1 << 20,
		// Of a call on a connection that the server closes just then it cannot be
		// told whether it ran. Node closes after 5 s.
		IdleConnTimeout: 4 * time.Second,
	}
	if strings.HasPrefix(strings.ToLower(e.URL), "https:") {
		transport.IdleConnTimeout = time.Minute // a new one is dear, and HTTP/2 says what did not run
	}
	r.idle = transport.CloseIdleConnections
	r.client = &http.Client{Transport: transport, CheckRedirect: redirect}
	return r
}

// redirect follows only what takes the same request to the same server: the
// entry's headers are for nobody else, and a POST must not become a GET.
func redirect(to *http.Request, via []*http.Request) error {
	from := via[0]
	same := to.URL.Scheme == from.URL.Scheme && strings.EqualFold(to.URL.Hostname(), from.URL.Hostname()) && portOf(to.URL) == portOf(from.URL)
	if !same || to.Method != from.Method || len(via) > mostRedirects {
		return http.ErrUseLastResponse
	}
	return nil
}

func (r *remote) call(ctx context.Context, method string, params []byte, progress func(params []byte)) (frame.Message, error) {
	if ctx.Err() != nil {
		return frame.Message{}, context.Cause(ctx)
	}
	x := r.begin(progress)
	defer r.end(x)
	line := x.line(method, params)
	// It has the values of ctx, which say whose call it is, and reads on a moment
	// after the answer.
	post, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	failed := make(chan error, 1)
	ok := r.spawn(func() {
		defer cancel(nil)
		defer context.AfterFunc(r.ctx, func() { cancel(context.Cause(r.ctx)) })()
		failed <- r.exchange(post, cancel, x, method, line)
	})
	if !ok {
		cancel(nil)
		return frame.Message{}, &unrun{r.wait()}
	}
	var err error
	select {
	case m := <-x.answer:
		time.AfterFunc(linger, func() { cancel(nil) })
		return r.shaken(method, m)
	case err = <-failed:
	case <-ctx.Done():
		err = context.Cause(ctx)
		cancel(err)
		r.cancelled(x, method)
	}
	select {
	case m := <-x.answer: // at the same time
		return r.shaken(method, m)
	default:
		return frame.Message{}, err
	}
}

// cancelled tells the server, in its own time, that nobody waits any more: over
// HTTP a broken connection does not say that.
func (r *remote) cancelled(x *exchange, method string) {
	if method != "initialize" { // which must not be
		r.spawn(func() {
			r.post(r.ctx, frame.Notification("notifications/cancelled", []byte(`{"requestId":`+x.id+`}`)))
		})
	}
}

// shaken notes what the answer to initialize says about later requests.
func (r *remote) shaken(method string, m frame.Message) (frame.Message, error) {
	if method != "initialize" || m.Result == nil {
		return m, nil
	}
	version := textAt(m.Result, "protocolVersion")
	if !isHeaderText(version) {
		return m, errors.New("it answered initialize with a strange protocol version")
	}
	r.at.Lock()
	r.version = version
	r.at.Unlock()
	return m, nil
}

// tell returns when the server has taken the notification.
func (r *remote) tell(ctx context.Context, method string, params []byte) {
	r.post(ctx, frame.Notification(method, params))
	if method == "notifications/initialized" {
		r.spawn(r.listen)
	}
}

// wait returns when no more requests are taken.
func (r *remote) wait() error {
	<-r.done
	r.at.Lock()
	defer r.at.Unlock()
	return r.err
}

func (r *remote) stop(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { r.cancel(errEnded) })()
	r.once.Do(func() {
		ours := r.finish(errEnded)
		if ours {
			r.cancel(errEnded)
		}
		r.wg.Wait()
		r.at.Lock()
		known := r.session != ""
		r.at.Unlock()
		if ours && known {
			ctx, cancel := context.WithTimeoutCause(ctx, endTimeout, errNoHead)
			if resp, err := r.send(ctx, nil, http.MethodDelete, nil, ""); err == nil {
				resp.Body.Close() // whether it knows such an end or not
			}
			cancel()
		}
		r.cancel(errEnded)
		r.endLife()
		r.idle()
	})
}

// finish has no more requests taken; false when that was so already.
func (r *remote) finish(err error) bool {
	r.at.Lock()
	defer r.at.Unlock()
	if r.err != nil {
		return false
	}
	r.err = err
	close(r.done)
	r.deafen()
	return true
}

// spawn runs f, and has stop wait for it; false when it has ended.
func (r *remote) spawn(f func()) bool {
	r.at.Lock()
	defer r.at.Unlock()
	if r.err != nil {
		return false
	}
	r.wg.Go(f)
	return true
}

// known reports whether requests have a session that the server may forget.
func (r *remote) known() bool {
	r.at.Lock()
	defer r.at.Unlock()
	return r.session != ""
}

// send sends one HTTP request, and returns when its answer has begun. Where
// cancel, which is ctx's, is given, that may take as long as an answer may, else
// as long as ctx lasts. An error is an *unrun where nothing was sent.
func (r *remote) send(ctx context.Context, cancel context.CancelCauseFunc, method string, body []byte, after string) (*http.Response, error) {
	var sent atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }})
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(traced, method, r.address, reader)
	if err != nil {
		return nil, &unrun{errors.New("its address cannot be used")} // the error would tell it
	}
	req.Header = r.header.Clone()
	req.Host = r.host
	req.Header.Set("Accept", eventStream)
	if body != nil {
		req.Header.Set("Accept", "application/json, "+eventStream)
		req.Header.Set("Content-Type", "application/json")
	}
	r.at.Lock()
	for name, value := range map[string]string{sessionHeader: r.session, protocolHeader: r.version, eventHeader: after} {
		if req.Header.Del(name); value != "" {
			req.Header.Set(name, value)
		}
	}
	r.at.Unlock()
	if cancel != nil {
		late := time.AfterFunc(r.head, func() { cancel(fmt.Errorf("%w within %v", errNoHead, r.head)) })
		defer late.Stop()
	}
	resp, err := r.client.Do(req)
	switch {
	case err == nil:
		return resp, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	var outer *url.Error
	if errors.As(err, &outer) { // it tells the address, in which there may be a key
		err = outer.Err
	}
	if !sent.Load() {
		return nil, &unrun{fmt.Errorf("it cannot be reached: %w", err)}
	}
	return nil, fmt.Errorf("the connection broke before it answered: %w", err)
}

// post sends what is not answered: a notification, or the answer to a question.
func (r *remote) post(ctx context.Context, line []byte) {
	ctx, cancel := context.WithTimeoutCause(ctx, briefTimeout, fmt.Errorf("%w within %v", errNoHead, briefTimeout))
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	resp, err := r.send(ctx, nil, http.MethodPost, line, "")
	if err == nil {
		defer resp.Body.Close()
		switch {
		case resp.StatusCode/100 == 2:
			io.CopyN(io.Discard, resp.Body, longestSaying) // ignore error: nothing is expected there
			return
		case resp.StatusCode == http.StatusNotFound && r.known():
			r.finish(errForgotten)
		}
		_, err = r.refusal(resp)
	}
	if ctx.Err() == nil || errors.Is(err, errNoHead) {
		r.log.Info("a hosted server did not take what it was told", "err", err)
	}
}

// exchange sends a request and hears what comes back, until it is answered. It
// returns nil when it is, and reads on for a while then.
func (r *remote) exchange(ctx context.Context, cancel context.CancelCauseFunc, x *exchange, method string, line []byte) error {
	resp, err := r.send(ctx, cancel, http.MethodPost, line, "")
	var not *unrun
	switch {
	case errors.As(err, &not) && ctx.Err() == nil:
		r.finish(err) // to be tried again with growing pauses, by all calls together
		return err
	case errors.Is(err, errNoHead):
		r.cancelled(x, method)
		return err
	case err != nil:
		return err
	}
	defer func() { resp.Body.Close() }()
	if resp.StatusCode/100 != 2 {
		return r.refused(ctx, resp, x)
	}
	if method == "initialize" {
		r.at.Lock()
		r.session = resp.Header.Get(sessionHeader)
		r.at.Unlock()
	}
	switch kind := mediaType(resp); {
	case kind == eventStream:
		resp, err = r.follow(ctx, cancel, resp, x)
		return err
	case isJSON(kind) || kind == "":
		body, err := r.read(resp)
		if err != nil {
			return err
		}
		r.hear(ctx, body, x)
		switch {
		case !r.awaits(x):
			return nil
		case len(body) == 0:
			return fmt.Errorf("it answered %s, and nothing more", status(resp))
		}
		return fmt.Errorf("it answered with something else than the answer: %s", brief(body))
	default:
		return fmt.Errorf("it answered with %s instead of JSON or a stream of events: is this the address of an MCP server?", brief([]byte(kind)))
	}
}

// follow hears a stream until the answer was in it and it ends. Where it ends
// before that, its rest is asked for. It returns the response to be closed.
func (r *remote) follow(ctx context.Context, cancel context.CancelCauseFunc, resp *http.Response, x *exchange) (*http.Response, error) {
	stream := &events{limit: r.limit}
	stream.over(resp.Body)
	for tries := 0; ; {
		before := stream.last
		data, err := stream.next()
		if stream.last != before {
			tries = 0
		}
		if err == nil {
			r.hear(ctx, data, x)
			tries = 0
			continue
		}
		switch {
		case !r.awaits(x):
			return resp, nil
		case errors.Is(err, errLongEvent):
			return resp, fmt.Errorf("its answer has %w", err)
		}
		broken := errors.New("it closed the stream before it answered")
		if err != io.EOF {
			broken = fmt.Errorf("the stream broke before it answered: %w", err)
		}
		for more := false; !more; {
			switch {
			case ctx.Err() != nil:
				return resp, context.Cause(ctx)
			case stream.last == "" || tries == mostResumes:
				return resp, broken
			}
			pause := stream.retry
			if pause == 0 || tries > 0 {
				pause = max(pause, firstPause<<tries)
			}
			tries++
			if !sleep(ctx, min(max(pause, leastPause), longestPause)) {
				return resp, context.Cause(ctx)
			}
			if !r.awaits(x) { // it was answered elsewhere
				return resp, nil
			}
			next, err := r.send(ctx, cancel, http.MethodGet, nil, stream.last)
			if err != nil {
				continue
			}
			resp.Body.Close()
			resp = next
			switch {
			case resp.StatusCode/100 == 2 && mediaType(resp) == eventStream:
				stream.over(resp.Body)
				more = true
			case resp.StatusCode == http.StatusNotFound && r.known():
				r.finish(errForgotten)
				return resp, fmt.Errorf("%w, and it has forgotten the session", broken)
			case resp.StatusCode/100 != 5:
				return resp, broken
			}
		}
	}
}

// sleep reports whether ctx lasts for so long.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// listen hears what the server says by itself, as long as it offers that.
func (r *remote) listen() {
	stream := &events{limit: r.limit}
	opened := false
	for failures := 0; ; failures++ {
		began, last := time.Now(), stream.last
		ctx, cancel := context.WithCancel(r.hearing)
		// Some servers begin such an answer only when they have something to
		// say: it is waited for without end.
		resp, err := r.send(ctx, nil, http.MethodGet, nil, stream.last)
		more := true
		var not *unrun
		if errors.As(err, &not) && opened && failures >= mostAbsent && r.hearing.Err() == nil {
			r.finish(err)
		}
		if err == nil {
			switch code := resp.StatusCode; {
			case code/100 == 2 && mediaType(resp) == eventStream:
				opened = true
				stream.over(resp.Body)
				if r.heard(ctx, stream) || stream.last != last || time.Since(began) > steady {
					failures = 0
				}
			case code == http.StatusNotFound && opened && r.known():
				r.finish(errForgotten)
				more = false
			case code == http.StatusBadRequest && opened && r.known():
				_, why := r.refusal(resp)
				if gone, _ := r.unknown(ctx, why); gone {
					r.finish(errForgotten)
				}
				more = false
			case code/100 == 5 || code == http.StatusTooManyRequests:
			default: // it has none to offer, mostly 405
				more = false
			}
			resp.Body.Close()
		}
		cancel()
		pause := min(longestPause, max(stream.retry, firstPause<<min(failures, 20)))
		if !more || !sleep(r.hearing, pause+rand.N(pause/4+1)) {
			return
		}
	}
}

// heard hears a stream to its end, and reports whether anything was in it.
func (r *remote) heard(ctx context.Context, stream *events) (some bool) {
	for {
		data, err := stream.next()
		switch {
		case errors.Is(err, errLongEvent):
			r.log.Warn("a hosted server says too much", "err", err)
		case err != nil:
			return some
		default:
			some = true
			r.hear(ctx, data, nil)
		}
	}
}

// hear takes what an event or a body holds: a message, or several in a list,
// which is how the revision of March 2025 may have it. x is the call that it
// answers, if any. What is no message is dropped.
func (r *remote) hear(ctx context.Context, raw []byte, x *exchange) {
	raw = bytes.TrimLeft(bytes.TrimPrefix(raw, []byte("\ufeff")), " \t\r\n")
	if len(raw) > 0 && raw[0] == '[' {
		frame.Elements(raw, func(one []byte) bool { // ignore error: what stands before the fault counts
			r.hearOne(ctx, one, x)
			return true
		})
		return
	}
	r.hearOne(ctx, raw, x)
}

func (r *remote) hearOne(ctx context.Context, raw []byte, x *exchange) {
	m, err := frame.Parse(raw)
	var bad *frame.Error
	if errors.As(err, &bad) {
		r.strange(bad)
		return
	}
	oneLine(raw)
	switch {
	case m.IsRequest():
		// Within wg already, and so before stop has waited for it.
		r.wg.Go(func() { r.post(r.ctx, r.unasked.asked(ctx, m)) })
	case m.IsNotification() && m.Name() == "notifications/progress":
		r.progressed(m)
	case m.IsNotification():
		r.unasked.told(ctx, m)
	case x != nil && m.Error != nil && string(m.ID) == "null":
		m.ID = []byte(x.id) // it could not read what it answers here
		r.answered(m)
	default:
		r.answered(m)
	}
}

// oneLine makes the line ends in a message spaces: in what was parsed they stand
// between values, and never in a string.
func oneLine(message []byte) {
	for i, c := range message {
		if c == '\n' || c == '\r' {
			message[i] = ' '
		}
	}
}

// read reads a body of one message.
func (r *remote) read(resp *http.Response) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, r.limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("its answer broke off: %w", err)
	case int64(len(body)) > r.limit:
		return nil, fmt.Errorf("its answer has more than the largest message, which has %d bytes", r.limit)
	}
	return body, nil
}

// refused is for an answer without success. A message of the protocol in it that
// answers the call is the call's answer: then it returns nil.
func (r *remote) refused(ctx context.Context, resp *http.Response, x *exchange) error {
	code := resp.StatusCode
	if code == http.StatusNotFound && r.known() {
		r.finish(errForgotten)
		return &unrun{errForgotten}
	}
	body, why := r.refusal(resp)
	m, err := frame.Parse(body)
	answers := err == nil && m.IsResponse() && string(m.ID) == x.id
	aboutSession := strings.Contains(strings.ToLower(why.Error()), "session")
	if code == http.StatusBadRequest && r.known() && (aboutSession || !answers) {
		gone, same := r.unknown(ctx, why)
		if gone {
			r.finish(errForgotten) // the next call begins a new one
		}
		if gone && same && aboutSession {
			return &unrun{errForgotten}
		}
	}
	switch {
	case answers:
		oneLine(body)
		r.answered(m)
		return nil
	case code/100 == 3 || code/100 == 4:
		return &unrun{why}
	}
	return why
}

// unknown reports whether the server refuses even a ping. Many answer 400 and not
// 404 in a session that they do not know, the reference server among them. Where
// they give the same reason as before, what they refused before was refused for
// that.
func (r *remote) unknown(ctx context.Context, why error) (gone, same bool) {
	ctx, cancel := context.WithTimeout(ctx, briefTimeout)
	defer cancel()
	x := r.begin(nil)
	r.end(x) // its answer is of no use
	resp, err := r.send(ctx, nil, http.MethodPost, x.line("ping", nil), "")
	if err != nil {
		return false, false
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest && resp.StatusCode != http.StatusNotFound {
		return false, false
	}
	_, again := r.refusal(resp)
	return true, again.Error() == why.Error()
}

// refusal is an answer without success in words, and its body where that is
// JSON.
func (r *remote) refusal(resp *http.Response) ([]byte, error) {
	status := status(resp)
	switch wants := resp.Header.Get("Www-Authenticate"); {
	case resp.StatusCode == http.StatusUnauthorized && wants != "" && r.bearing:
		return nil, fmt.Errorf("it does not accept the Authorization header of its entry (%s: %s); OAuth is not supported yet", status, brief([]byte(wants)))
	case resp.StatusCode == http.StatusUnauthorized && wants != "":
		return nil, fmt.Errorf("it wants its clients authorized (%s: %s); OAuth is not supported yet: where it takes a token, put that into the headers of its entry", status, brief([]byte(wants)))
	}
	if to, err := resp.Location(); err == nil && resp.StatusCode/100 == 3 {
		return nil, fmt.Errorf("it redirects to %s://%s (%s), which is not followed: put the address that is meant into its entry", to.Scheme, to.Host, status)
	}
	switch kind := mediaType(resp); {
	case isJSON(kind):
	case kind == "text/plain" || kind == "":
		body, _ := io.ReadAll(io.LimitReader(resp.Body, longestSaying)) // ignore error: what came is said
		if len(body) > 0 {
			return nil, fmt.Errorf("it answered %s: %s", status, brief(body))
		}
		fallthrough
	default:
		return nil, fmt.Errorf("it answered %s", status)
	}
	body, err := r.read(resp)
	if err != nil {
		return nil, fmt.Errorf("it answered %s, and %w", status, err)
	}
	body = bytes.TrimSpace(body)
	said := body
	if text, ok := frame.Text(frame.Get(body, "error", "message")); ok {
		said = []byte(text)
	}
	return body, fmt.Errorf("it answered %s: %s", status, brief(said))
}

func status(resp *http.Response) string {
	return fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
}

func mediaType(resp *http.Response) string {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil && kind == "" {
		kind, _, _ = strings.Cut(resp.Header.Get("Content-Type"), ";")
		kind = strings.ToLower(strings.TrimSpace(kind))
	}
	return kind
}

func isJSON(kind string) bool { return kind == "application/json" || strings.HasSuffix(kind, "+json") }
