//go:build unix && !darwin

package main

import "testing"

func TestHomeIn(t *testing.T) {
	t.Parallel()
	lines := "root:x:0:1:root:/root:/bin/bash\n# note\nbad:x:7:7:/home/bad\nrel:x:8:8::home:/bin/sh\nme:x:1000:0:Me,,,:/home/me/:/bin/zsh\nalias:x:1000:9::/home/alias:/bin/sh"
	for uid, want := range map[string]string{"0": "/root", "1000": "/home/me", "7": "", "8": "", "9": "", "": ""} {
		if got := homeIn(lines, uid); got != want {
			t.Errorf("%s: %q", uid, got)
		}
	}
}
