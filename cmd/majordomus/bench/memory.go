package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrNoMemory is returned on systems that do not tell the proportional memory of
// processes.
var ErrNoMemory = errors.New("proportional memory is read from /proc, which is Linux's")

// Proportional is the proportional memory of a process, in bytes: what it shares
// with others counts by its share.
func Proportional(pid int) (float64, error) {
	return field(pid, "smaps_rollup", "Pss:")
}

// Peak is the most resident memory that a process had, in bytes.
func Peak(pid int) (float64, error) {
	return field(pid, "status", "VmHWM:")
}

// Tree is the proportional memory of a process and of all below it.
func Tree(pid int) (float64, error) {
	sum, err := Proportional(pid)
	if err != nil {
		return 0, err
	}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return 0, err
	}
	for _, task := range tasks {
		b, err := os.ReadFile(task)
		if err != nil {
			continue // it has just ended
		}
		for word := range bytes.FieldsSeq(b) {
			if below, err := strconv.Atoi(string(word)); err == nil {
				more, err := Tree(below)
				if err != nil && !errors.Is(err, os.ErrNotExist) {
					return 0, err
				}
				sum += more
			}
		}
	}
	return sum, nil
}

func field(pid int, file, name string) (float64, error) {
	if runtime.GOOS != "linux" {
		return 0, ErrNoMemory
	}
	path := fmt.Sprintf("/proc/%d/%s", pid, file)
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, fmt.Errorf("reading the memory of a process: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == name {
			kb, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				return 0, fmt.Errorf("reading %s: %w", path, err)
			}
			return kb * 1024, nil
		}
	}
	return 0, fmt.Errorf("%s has no %s", path, name)
}

// Median is the middle one.
func Median(x []float64) float64 { return Quantile(x, 50) }

// Quantile is the one below which so many of a hundred are.
func Quantile(x []float64, percent int) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[min(len(x)*percent/100, len(x)-1)]
}

// Alone waits until of what was started in dir only the process is left that is
// named. Only Linux tells; elsewhere it does not wait.
func Alone(ctx context.Context, dir string, pid int) error {
	for {
		links, err := filepath.Glob("/proc/[0-9]*/cwd")
		if err != nil {
			return err
		}
		other := slices.ContainsFunc(links, func(l string) bool {
			to, err := os.Readlink(l)
			return err == nil && to == dir && filepath.Base(filepath.Dir(l)) != strconv.Itoa(pid)
		})
		if !other {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the processes in %s: %w", dir, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Load is how many processes wanted a processor in the last minute, where the
// system tells.
func Load() (float64, bool) {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0, false
	}
	word, _, _ := strings.Cut(string(b), " ")
	load, err := strconv.ParseFloat(word, 64)
	return load, err == nil
}
