// The servers and the reader in Go, with the command line of the Rust program:
// serve RUNTIME WORK HOGS N and read RUNTIME FILE MODE SECONDS.
package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) != 6 {
		panic("usage: serve RUNTIME WORK HOGS N, or read RUNTIME FILE MODE SECONDS")
	}
	switch os.Args[1] {
	case "serve":
		serve(os.Args[3], os.Args[4] == "yielding", must(strconv.Atoi(os.Args[5])))
	case "read":
		read(os.Args[3], os.Args[4] == "direct", must(strconv.ParseFloat(os.Args[5], 64)))
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func serve(work string, yielding bool, hogs int) {
	listener := must(net.Listen("tcp4", "127.0.0.1:0"))
	for range hogs {
		go hog(yielding)
	}
	switch work {
	case "echo":
		go accept(listener)
	case "http":
		go http.Serve(listener, http.HandlerFunc(answer))
	default:
		panic(work)
	}
	fmt.Println(listener.Addr())
	io.ReadAll(os.Stdin)
}

func accept(listener net.Listener) {
	for {
		go echo(must(listener.Accept()))
	}
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

// No server here dates its replies.
func answer(reply http.ResponseWriter, request *http.Request) {
	reply.Header()["Date"] = nil
	reply.Header().Set("Content-Type", "text/plain")
	io.WriteString(reply, request.URL.Path[1:])
}

var sink int

func hog(yielding bool) {
	for {
		if yielding {
			runtime.Gosched()
		} else {
			sink++
		}
	}
}

const (
	readers = 128
	block   = 4096
)

// The numbers in a block's first and last bytes are its place.
func read(path string, direct bool, seconds float64) {
	flags := os.O_RDONLY
	if direct {
		flags |= syscall.O_DIRECT
	}
	file := must(os.OpenFile(path, flags, 0))
	blocks := uint64(must(file.Stat()).Size()) / block
	start := time.Now()
	end := start.Add(time.Duration(seconds * float64(time.Second)))
	var done atomic.Int64
	var all sync.WaitGroup
	for reader := range uint64(readers) {
		all.Add(1)
		go func() {
			defer all.Done()
			// Mapped memory is aligned as O_DIRECT wants it.
			buffer := must(syscall.Mmap(-1, 0, block,
				syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON))
			state := (reader + 1) * 0x9e3779b97f4a7c15
			var count int64
			for time.Now().Before(end) {
				state ^= state << 13
				state ^= state >> 7
				state ^= state << 17
				position := state % blocks
				n := must(file.ReadAt(buffer, int64(position*block)))
				if n != block || binary.LittleEndian.Uint64(buffer) != position ||
					binary.LittleEndian.Uint64(buffer[block-8:]) != position {
					panic("another block")
				}
				count++
			}
			done.Add(count)
		}()
	}
	all.Wait()
	elapsed := time.Since(start).Seconds()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	cpu := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	fmt.Println(done.Load(), elapsed, cpu(usage.Utime)+cpu(usage.Stime))
}
