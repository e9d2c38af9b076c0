package service

import "strconv"

func newDriver(cfg Config) driver {
	return &systemd{
		home: cfg.Home, runtime: "/run/user/" + strconv.Itoa(cfg.UID), log: cfg.Log, run: command,
		program: []string{"/usr/bin/systemctl", "/bin/systemctl", "/run/current-system/sw/bin/systemctl"},
	}
}
