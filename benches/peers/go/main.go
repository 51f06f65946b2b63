// The work in Go, with the command line of the Rust program:
// run NAME KIND N WORKERS OPS prints NAME ns_per_op.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	if len(os.Args) != 7 {
		fmt.Fprintln(os.Stderr, "usage: run NAME KIND N WORKERS OPS")
		os.Exit(1)
	}
	name, kind := os.Args[2], os.Args[3]
	n, workers, ops := number(os.Args[4]), number(os.Args[5]), number(os.Args[6])
	runtime.GOMAXPROCS(workers)

	once := map[string]func(n, ops int) time.Duration{
		"spawn": spawn, "yield": yield, "wake": wake,
		"ping-pong": pingPong, "stream": stream, "mutex": mutex,
	}[kind]
	once(n, ops/5)
	elapsed := once(n, ops)
	fmt.Printf("%s %.2f\n", name, float64(elapsed.Nanoseconds())/float64(ops))
}

func number(arg string) int {
	n, err := strconv.Atoi(arg)
	if err != nil {
		panic(err)
	}
	return n
}

// Goroutines have no handle. One WaitGroup for all of a batch is the quickest way to join them
// (quicker than a channel each), though it brings no value back.
func spawn(threads, ops int) time.Duration {
	start := time.Now()
	for range ops / threads {
		var batch sync.WaitGroup
		batch.Add(threads)
		for range threads {
			go func() { batch.Done() }()
		}
		batch.Wait()
	}
	return time.Since(start)
}

func yield(threads, ops int) time.Duration {
	var ready atomic.Int64
	started := make(chan struct{})
	var all sync.WaitGroup
	all.Add(threads)
	for range threads {
		go func() {
			ready.Add(1)
			<-started
			for range ops / threads {
				runtime.Gosched()
			}
			all.Done()
		}()
	}
	for ready.Load() < int64(threads) {
		runtime.Gosched()
	}
	start := time.Now()
	close(started)
	all.Wait()
	return time.Since(start)
}

// Goroutines cannot be parked by the program; the nearest thing is a channel each that holds one
// wake-up.
func wake(_, ops int) time.Duration {
	mine, partners := make(chan struct{}, 1), make(chan struct{}, 1)
	go func() {
		for range ops / 2 {
			<-partners
			mine <- struct{}{}
		}
	}()
	start := time.Now()
	for range ops / 2 {
		partners <- struct{}{}
		<-mine
	}
	return time.Since(start)
}

func pingPong(capacity, ops int) time.Duration {
	there, back := make(chan int, capacity), make(chan int, capacity)
	go func() {
		for range ops {
			back <- <-there
		}
	}()
	start := time.Now()
	for trip := range ops {
		there <- trip
		if <-back != trip {
			panic("not what was sent")
		}
	}
	return time.Since(start)
}

func stream(pairs, ops int) time.Duration {
	channel := make(chan int, 100)
	var all sync.WaitGroup
	all.Add(2 * pairs)
	start := time.Now()
	for range pairs {
		go func() {
			for range ops / pairs {
				<-channel
			}
			all.Done()
		}()
		go func() {
			for message := range ops / pairs {
				channel <- message
			}
			all.Done()
		}()
	}
	all.Wait()
	return time.Since(start)
}

// The lock is held until all have come to it.
func mutex(threads, ops int) time.Duration {
	var count int
	var lock sync.Mutex
	var arrived atomic.Int64
	var all sync.WaitGroup
	all.Add(threads)
	lock.Lock()
	for range threads {
		go func() {
			arrived.Add(1)
			for range ops / threads {
				lock.Lock()
				count++
				lock.Unlock()
			}
			all.Done()
		}()
	}
	for arrived.Load() < int64(threads) {
		runtime.Gosched()
	}
	start := time.Now()
	lock.Unlock()
	all.Wait()
	elapsed := time.Since(start)
	if count != ops/threads*threads {
		panic("an increment was lost")
	}
	return elapsed
}
