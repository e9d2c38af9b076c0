package child

import "syscall"

// endWithParent has the kernel kill the child when the thread that started it
// ends, and with it when this process is killed.
func endWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
