package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// A refusal is a server's answer that it will not.
type refusal struct{ path, status, code, message string }

func (r *refusal) Error() string {
	if r.code == "" {
		return fmt.Sprintf("the server refused %s: %s", r.path, r.status)
	}
	return fmt.Sprintf("the server refused %s: %s (%s)", r.path, r.message, r.code)
}

// call asks the server at base for path with the checkout's key, sends body
// and decodes the answer into result, both as JSON where not nil. It takes at
// most 10 s; a server that hangs is its caller's to report.
func call(ctx context.Context, base, key, method, path string, body, result any) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var send io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encoding the request to %s: %w", path, err)
		}
		send = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, base+path, send)
	if err != nil {
		return fmt.Errorf("asking %s: %w", path, err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	// No proxy: the address is always this machine's own.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("asking the server: %w", err)
	}
	defer resp.Body.Close() // ignore error: read to its end or given up
	b, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err != nil {
		return fmt.Errorf("reading the server's answer: %w", err)
	}
	if resp.StatusCode >= 300 {
		var e struct {
			Error struct{ Code, Message string }
		}
		json.Unmarshal(b, &e) // ignore error: then the status has to do
		return &refusal{path, resp.Status, e.Error.Code, e.Error.Message}
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(b, result); err != nil {
		return fmt.Errorf("decoding the server's answer to %s: %w", path, err)
	}
	return nil
}

// peers asks the server at base how many clients are attached to it.
func peers(ctx context.Context, base, key string) (int, error) {
	var state struct{ Peers int }
	err := call(ctx, base, key, http.MethodGet, "/api/v1/server", nil, &state)
	return state.Peers, err
}
