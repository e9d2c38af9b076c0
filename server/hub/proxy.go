package hub

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// proxies says by which proxy an address is reached, as the variables HTTP_PROXY,
// HTTPS_PROXY and NO_PROXY of env have it. net/http reads those of this process,
// and it depends on who started that. This machine is reached without one.
func proxies(env []string) func(*http.Request) (*url.URL, error) {
	vars := map[string]string{}
	for _, pair := range env {
		key, value, _ := strings.Cut(pair, "=")
		vars[key] = value
	}
	pick := func(name string) string {
		if v := vars[name]; v != "" {
			return v
		}
		return vars[strings.ToLower(name)]
	}
	by := map[string]string{"http": pick("HTTP_PROXY"), "https": pick("HTTPS_PROXY")}
	without := pick("NO_PROXY")
	return func(r *http.Request) (*url.URL, error) {
		proxy := by[r.URL.Scheme]
		if proxy == "" || isThisMachine(r.URL.Hostname()) || excepted(without, r.URL) {
			return nil, nil
		}
		if !strings.Contains(proxy, "://") {
			proxy = "http://" + proxy
		}
		u, err := url.Parse(proxy)
		if err != nil || u.Host == "" {
			return nil, fmt.Errorf("the variable %s_PROXY is no address", strings.ToUpper(r.URL.Scheme)) // never its value: it may have a password
		}
		return u, nil
	}
}

func isThisMachine(host string) bool {
	host = plainHost(host)
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && (a.Unmap().IsLoopback() || a.Unmap().IsUnspecified())
}

func plainHost(host string) string { return strings.TrimSuffix(strings.ToLower(host), ".") }

// excepted reports whether the list names the host of u: as itself or as below
// it, as an address or a range of them, each with or without a port.
func excepted(list string, u *url.URL) bool {
	host := plainHost(u.Hostname())
	address, _ := netip.ParseAddr(host) // ignore error: a name is no address, and equals none
	for entry := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' || r == ' ' }) {
		entry = plainHost(entry)
		if entry == "*" {
			return true
		}
		if prefix, err := netip.ParsePrefix(entry); err == nil {
			if prefix.Contains(address.Unmap()) {
				return true
			}
			continue
		}
		name := strings.Trim(entry, "[]")
		if h, port, err := net.SplitHostPort(entry); err == nil {
			if port != portOf(u) {
				continue
			}
			name = h
		}
		if a, err := netip.ParseAddr(name); err == nil {
			if a.Unmap() == address.Unmap() {
				return true
			}
			continue
		}
		name = strings.TrimPrefix(strings.TrimPrefix(name, "*"), ".")
		if name != "" && (host == name || strings.HasSuffix(host, "."+name)) {
			return true
		}
	}
	return false
}

func portOf(u *url.URL) string {
	switch p := u.Port(); {
	case p != "":
		return p
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}
