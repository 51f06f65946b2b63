// The work in Go, with the command line of the Rust program: run NAME WAIT LOAD SECONDS prints the
// samples, and serve NAME serves echo.
package main

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strconv"
	"time"
)

// As in work.rs.
const (
	gap     = 100 * time.Microsecond
	turn    = time.Microsecond
	longest = 5_000_000
	warmUp  = 200 * time.Millisecond
)

func main() {
	switch {
	case len(os.Args) == 6 && os.Args[1] == "run":
		seconds := must(strconv.ParseFloat(os.Args[5], 64))
		run(os.Args[3], os.Args[4], time.Duration(seconds*float64(time.Second)))
	case len(os.Args) == 3 && os.Args[1] == "serve":
		serve()
	default:
		panic("usage: run NAME WAIT LOAD SECONDS, or serve NAME")
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func run(wait, load string, time time.Duration) {
	processors, sleepers := runtime.GOMAXPROCS(0), 8
	switch load {
	case "yielding":
		for range 8 * processors {
			go beside(true)
		}
	case "computing":
		sleepers = 32
		for range 2 * processors {
			go beside(false)
		}
	}
	results := make(chan []int64)
	switch wait {
	case "waiting", "computing":
		sleepers = 1
		go wake(wait == "computing", time, results)
	case "millisecond", "random":
		for sleeper := range sleepers {
			go func() { results <- sleep(wait == "random", uint64(sleeper), time) }()
		}
	default:
		panic(wait)
	}
	output := bufio.NewWriter(os.Stdout)
	for range sleepers {
		for _, sample := range <-results {
			fmt.Fprintln(output, sample)
		}
	}
	output.Flush()
}

func compute(duration time.Duration) {
	for start := time.Now(); time.Since(start) < duration; {
	}
}

func beside(yields bool) {
	for {
		compute(turn)
		if yields {
			runtime.Gosched()
		}
	}
}

type samples struct {
	from, end time.Time
	samples   []int64
}

func newSamples(duration time.Duration) samples {
	from := time.Now().Add(warmUp)
	return samples{from, from.Add(duration), make([]int64, 0, 1<<16)}
}

// False: time is up.
func (s *samples) add(sample time.Duration) bool {
	now := time.Now()
	if !now.Before(s.from) {
		s.samples = append(s.samples, max(0, sample.Nanoseconds()))
	}
	return now.Before(s.end)
}

// Goroutines cannot be parked by the program; the nearest thing is a channel each that holds one
// wake-up.
func wake(computes bool, duration time.Duration, results chan []int64) {
	there, back := make(chan time.Time, 1), make(chan struct{}, 1)
	go func() {
		samples := newSamples(duration)
		for samples.add(time.Since(<-there)) {
			back <- struct{}{}
		}
		results <- samples.samples
	}()
	for {
		compute(gap)
		there <- time.Now()
		if computes {
			compute(gap)
		}
		<-back
	}
}

func sleep(random bool, sleeper uint64, duration time.Duration) []int64 {
	samples := newSamples(duration)
	numbers := rand.New(rand.NewPCG(sleeper, 1))
	time.Sleep(time.Duration(numbers.Int64N(longest)))
	for {
		length := time.Millisecond
		if random {
			length = time.Duration(numbers.Int64N(longest))
		}
		due := time.Now().Add(length)
		time.Sleep(length)
		if !samples.add(time.Since(due)) {
			return samples.samples
		}
	}
}

func serve() {
	listener := must(net.Listen("tcp4", "127.0.0.1:0"))
	go func() {
		for {
			go echo(must(listener.Accept()))
		}
	}()
	fmt.Println(listener.Addr())
	io.ReadAll(os.Stdin)
}

// net sets TCP_NODELAY of itself.
func echo(connection net.Conn) {
	defer connection.Close()
	buffer := make([]byte, 1024)
	for {
		n, err := connection.Read(buffer)
		if err != nil {
			return
		}
		if _, err = connection.Write(buffer[:n]); err != nil {
			return
		}
	}
}
