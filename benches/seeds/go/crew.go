// Goroutines that all do the same until time is up.
package main

import (
	"sync"
	"sync/atomic"
	"time"
)

type crew struct {
	arrived atomic.Int64
	started chan struct{}
	stopped atomic.Bool
	members []member
	clock   chan struct{}
}

// Goroutines cannot be parked by the program; the nearest thing is a channel each that holds one
// wake-up.
type member struct {
	wakeUp chan struct{}
	ops    uint64
	_      [112]byte
}

func (m *member) park() {
	<-m.wakeUp
}

func (m *member) unpark() {
	select {
	case m.wakeUp <- struct{}{}:
	default:
	}
}

func (c *crew) arrive() bool {
	last := c.arrived.Add(1) == int64(len(c.members))
	if last {
		close(c.clock)
	}
	return last
}

func (c *crew) lineUp() {
	if c.arrive() {
		close(c.started)
	} else {
		<-c.started
	}
}

func (c *crew) wakeOthers(me int) {
	for i := range c.members {
		if i != me {
			c.members[i].unpark()
		}
	}
}

func run(n int, length time.Duration, work func(c *crew, me int) uint64) report {
	c := &crew{started: make(chan struct{}), members: make([]member, n), clock: make(chan struct{})}
	var all sync.WaitGroup
	all.Add(n)
	for i := range c.members {
		c.members[i].wakeUp = make(chan struct{}, 1)
	}
	for i := range c.members {
		go func() {
			c.members[i].ops = work(c, i)
			all.Done()
		}()
	}
	<-c.clock
	read := stopwatch()
	time.Sleep(length)
	c.stopped.Store(true)
	took := read()
	c.wakeOthers(-1)
	all.Wait()
	found := report{took: took}
	for i := range c.members {
		found.ops += c.members[i].ops
		found.shares = append(found.shares, c.members[i].ops)
	}
	return found
}
