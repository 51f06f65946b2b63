// The suites in Go, with the command line of the Rust program, whose files say what they are:
// run NAME KIND N WORKERS MILLISECONDS prints ns_per_op cpu_ns_per_op [least median most].
package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// What a measurement finds.
type report struct {
	ops    uint64
	took   took
	shares []uint64
}

type took struct{ elapsed, cpu time.Duration }

// Measures what it takes from now on.
func stopwatch() func() took {
	start, before := time.Now(), cpuTime()
	return func() took { return took{time.Since(start), cpuTime() - before} }
}

// The process's, all threads together.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func main() {
	if len(os.Args) != 7 {
		fmt.Fprintln(os.Stderr, "usage: run NAME KIND N WORKERS MILLISECONDS")
		os.Exit(1)
	}
	kind, n := os.Args[3], number(os.Args[4])
	length := time.Duration(number(os.Args[6])) * time.Millisecond
	runtime.GOMAXPROCS(number(os.Args[5]))

	once := map[string]func(n int, length time.Duration) report{
		"create": create, "storm": storm, "matmult": matmult, "skynet": skynet,
		"cycle": cycle, "yield": yield, "churn": churn,
		"locality-own":    func(n int, length time.Duration) report { return locality(n, false, length) },
		"locality-shared": func(n int, length time.Duration) report { return locality(n, true, length) },
		"transfer-yield":  func(n int, length time.Duration) report { return transfer(n, false, length) },
		"transfer-park":   func(n int, length time.Duration) report { return transfer(n, true, length) },
	}[kind]
	once(n, length/5)
	found := once(n, length)
	// In floating point: none at all is an infinite time.
	ops := float64(found.ops)
	fmt.Printf("%.3f %.3f", float64(found.took.elapsed)/ops, float64(found.took.cpu)/ops)
	if shares := found.shares; len(shares) > 0 {
		slices.Sort(shares)
		fmt.Printf(" %d %d %d", shares[0], shares[len(shares)/2], shares[len(shares)-1])
	}
	fmt.Println()
}

func number(arg string) int {
	n, err := strconv.Atoi(arg)
	if err != nil {
		panic(err)
	}
	return n
}

// Marsaglia's xorshift.
type random uint64

func newRandom(seed int) random {
	return random((uint64(seed) + 1) * 0x9E3779B97F4A7C15)
}

func (r *random) below(n int) int {
	*r ^= *r << 13
	*r ^= *r >> 7
	*r ^= *r << 17
	return int(uint64(*r)>>32) % n
}
