package service

import "strconv"

func newDriver(cfg Config) driver {
	return &launchd{home: cfg.Home, domain: "gui/" + strconv.Itoa(cfg.UID), log: cfg.Log, run: command}
}
