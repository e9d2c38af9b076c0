package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"majordomus/lease/checkout"
	"majordomus/lease/launch"
	"majordomus/server"
	"majordomus/server/hub/config"
)

// hosts is what a server of the checkout may host: what its servers file says,
// if this account trusts it.
func (a *app) hosts(c *checkout.Checkout) *server.Hosting {
	if c == nil {
		return nil
	}
	if a.only != nil {
		return a.only
	}
	return &server.Hosting{
		Entries: func() (*config.File, error) { return a.entries(c) },
		Resolve: func(s config.Server) (config.Server, []string, error) { return a.resolve(c, s) },
	}
}

// entries reads the servers file, and the ledger after it: a change of either is
// noticed.
func (a *app) entries(c *checkout.Checkout) (*config.File, error) {
	f, err := config.Read(c.ServersFile)
	if err != nil {
		return nil, err
	}
	if len(f.Servers) == 0 {
		return f, nil
	}
	trust, err := trusted(c)
	switch {
	case err != nil:
		return nil, err
	case trust.Digest == "":
		return nil, &server.Untrusted{}
	case trust.Digest != f.Digest:
		return nil, &server.Untrusted{Changed: true}
	}
	return f, nil
}

// trusted is what this account agreed to for the checkout; zero if to nothing.
func trusted(c *checkout.Checkout) (config.Trust, error) {
	l, err := ledger()
	if err != nil {
		return config.Trust{}, err
	}
	t, _, err := l.Lookup(c.ID)
	if err != nil {
		return config.Trust{}, fmt.Errorf("reading what is trusted: %w", err)
	}
	return t, nil
}

// resolve makes an entry ready to be started. Its environment is the same
// whoever started this server: what a detached server has, PATH as it was where
// somebody trusted the file, the checkout's environment file, the entry's own.
func (a *app) resolve(c *checkout.Checkout, s config.Server) (config.Server, []string, error) {
	trust, err := trusted(c)
	if err != nil {
		return s, nil, err
	}
	env := map[string]string{}
	for _, pair := range launch.Environ(a.environ) {
		if key, value, ok := strings.Cut(pair, "="); ok {
			env[key] = value
		}
	}
	if trust.Path != "" {
		env["PATH"] = trust.Path
	}
	kept, err := config.ReadEnv(envFile(c))
	if err != nil {
		return s, nil, err
	}
	maps.Copy(env, kept)
	lookup := func(name string) (string, bool) { value, ok := env[name]; return value, ok }
	home, err := systemHome()
	if err != nil {
		home = a.home()
	}
	s, err = s.Expand(lookup, c.Root, home)
	if err != nil {
		return s, nil, err
	}
	maps.Copy(env, s.Env)
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(env)) {
		pairs = append(pairs, key+"="+env[key])
	}
	return s, pairs, nil
}
