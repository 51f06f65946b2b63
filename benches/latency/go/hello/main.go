// Hello world by a goroutine: when main began, and the goroutine.
package main

import (
	"fmt"
	"syscall"
	"unsafe"
)

// The clock of the Rust programs, whose numbers time.Now does not tell.
func now() int64 {
	const clockMonotonic = 1
	var time syscall.Timespec
	syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&time)), 0)
	return time.Nano()
}

func main() {
	began := now()
	first := make(chan int64)
	go func() { first <- now() }()
	fmt.Println(began, <-first)
}
