package child

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// counters is PROCESS_MEMORY_COUNTERS.
type counters struct {
	size       uint32
	_          uint32 // page faults
	_          uintptr
	workingSet uintptr
	_          [6]uintptr
}

// processes is JOBOBJECT_BASIC_PROCESS_ID_LIST, with room for more processes
// than a hosted server has.
type processes struct {
	assigned, listed uint32
	ids              [1024]uintptr
}

var processMemory = windows.NewLazySystemDLL("kernel32.dll").NewProc("K32GetProcessMemoryInfo")

// memory adds up what the processes of the job have in memory; what they share
// is counted for each.
func (g *group) memory() (rss int64, ok bool) {
	var list processes
	err := windows.QueryInformationJobObject(g.job, windows.JobObjectBasicProcessIdList,
		uintptr(unsafe.Pointer(&list)), uint32(unsafe.Sizeof(list)), nil)
	if err != nil && err != windows.ERROR_MORE_DATA {
		return 0, false
	}
	for _, id := range list.ids[:min(int(list.listed), len(list.ids))] {
		rss += workingSet(uint32(id))
	}
	return rss, rss > 0
}

func workingSet(pid uint32) int64 {
	process, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, pid)
	if err != nil {
		return 0 // ended meanwhile
	}
	defer windows.CloseHandle(process) // ignore error: ours
	c := counters{size: uint32(unsafe.Sizeof(counters{}))}
	if ok, _, _ := syscall.SyscallN(processMemory.Addr(), uintptr(process), uintptr(unsafe.Pointer(&c)), uintptr(c.size)); ok == 0 {
		return 0
	}
	return int64(c.workingSet)
}
