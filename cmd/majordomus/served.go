package main

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"

	"majordomus/install"
	"majordomus/lease"
	"majordomus/lease/checkout"
)

// unrecordedVar keeps a server from being recorded: those of the demo and of the
// benchmark leave nothing.
const unrecordedVar = "MAJORDOMUS_UNRECORDED"

const noneServed = "no checkout is served on this account"

// register opens the record of what was served on this account.
func register() (*install.Register, error) {
	dir, err := accountDir()
	if err != nil {
		return nil, err
	}
	return install.OpenRegister(dir), nil
}

// noteServed has c found from anywhere on this account. That it cannot is no
// reason not to serve.
func (a *app) noteServed(c *checkout.Checkout, log *slog.Logger) {
	if a.getenv(unrecordedVar) != "" || a.only != nil { // the benchmark's, among whatever environment
		return
	}
	r, err := register()
	added := false
	if err == nil {
		added, err = r.Add(c.ID, c.Root)
	}
	if err != nil {
		log.Debug("`status --all` will not know of this checkout elsewhere", "err", err)
	}
	if !added {
		return
	}
	// Once for each checkout, what is gone is forgotten: temporary ones come and
	// go by the hundred.
	list, err := r.List()
	if err != nil {
		log.Debug("some of what was served is not known", "err", err)
	}
	for _, s := range list {
		if s.ID == c.ID {
			continue
		}
		if err := forgetGone(r, s); err != nil {
			log.Debug("a record stays", "err", err)
		}
	}
}

// forgetGone forgets a checkout whose folder is no more. The folder's name may
// have come to be another's; then that is recorded by itself when it is served.
func forgetGone(r *install.Register, s install.Served) error {
	_, err := os.Stat(s.Root)
	if !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return r.Remove(s.ID)
}

// forgetServed forgets the checkouts that are gone.
func (a *app) forgetServed() {
	r, err := register()
	if err != nil {
		return // ignore error: then none was recorded
	}
	list, _ := r.List() // ignore error: known says it
	for _, s := range list {
		if err := forgetGone(r, s); err != nil {
			a.logger().Debug("a record stays", "err", err)
		}
	}
}

// known are all checkouts that this account knows of, beside those of seen: that
// were served, were installed for, or are trusted. Those that are gone are left
// out. It only reads.
func (a *app) known(seen []*checkout.Checkout) []*checkout.Checkout {
	var roots []string
	log := a.logger()
	if r, err := register(); err == nil {
		list, err := r.List()
		if err != nil {
			log.Warn("some of what was served is not known", "err", err)
		}
		for _, s := range list {
			roots = append(roots, s.Root)
		}
	}
	if l, err := installed(); err == nil {
		list, err := l.List()
		if err != nil {
			log.Warn("some of what is installed is not known", "err", err)
		}
		for _, e := range list {
			if e.Root != "" && e.Kind != install.Hooks { // which are a repository's
				roots = append(roots, e.Root)
			}
		}
	}
	if l, err := ledger(); err == nil {
		trusted, err := l.Roots()
		if err != nil {
			log.Warn("some of what is trusted is not known", "err", err)
		}
		for _, root := range trusted {
			roots = append(roots, root)
		}
	}
	slices.Sort(roots)
	var list []*checkout.Checkout
	for _, root := range slices.Compact(roots) {
		if root == "" {
			continue
		}
		c, err := checkout.Open(root)
		if err != nil {
			log.Debug("a checkout was left out", "root", root, "err", err)
			continue
		}
		same := func(o *checkout.Checkout) bool { return o.ID == c.ID }
		if !slices.ContainsFunc(seen, same) && !slices.ContainsFunc(list, same) {
			list = append(list, c)
		}
	}
	return list
}

// servedElsewhere are the checkouts that have a lease, beside those of seen.
func (a *app) servedElsewhere(seen []*checkout.Checkout) []*checkout.Checkout {
	a.forgetServed()
	return slices.DeleteFunc(a.known(seen), func(c *checkout.Checkout) bool {
		_, kept := lease.Kept(c)
		return !kept
	})
}
