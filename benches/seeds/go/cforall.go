// Cforall's suite.
package main

import (
	"runtime"
	"sync/atomic"
	"time"
)

const ring = 5

func cycle(rings int, length time.Duration) report {
	return run(rings*ring, length, func(c *crew, me int) uint64 {
		if c.arrive() {
			for first := 0; first < len(c.members); first += ring {
				c.members[first].unpark()
			}
		}
		mine, successor := &c.members[me], &c.members[me/ring*ring+(me+1)%ring]
		var turns uint64
		for !c.stopped.Load() {
			mine.park()
			successor.unpark()
			turns++
		}
		return turns
	})
}

func yield(n int, length time.Duration) report {
	return run(n, length, func(c *crew, me int) uint64 {
		c.lineUp()
		var yields uint64
		for !c.stopped.Load() {
			runtime.Gosched()
			yields++
		}
		return yields
	})
}

const nobody = -1

type slots []atomic.Int64

// Half as many slots as goroutines.
func newSlots(n int) slots {
	s := make(slots, (n+1)/2)
	for i := range s {
		s[i].Store(nobody)
	}
	return s
}

func churn(n int, length time.Duration) report {
	s := newSlots(n)
	return run(n, length, func(c *crew, me int) uint64 {
		c.lineUp()
		r := newRandom(me)
		var ops uint64
		for !c.stopped.Load() {
			if other := s[r.below(len(s))].Swap(int64(me)); other != nobody {
				c.members[other].unpark()
			}
			c.members[me].park()
			ops++
		}
		return ops
	})
}

const cells, changes = 2048, 64

func locality(n int, shared bool, length time.Duration) report {
	s := newSlots(n)
	arrays := make([][cells]uint64, n)
	worksOn := make([]atomic.Int64, n)
	for i := range worksOn {
		worksOn[i].Store(int64(i))
	}
	return run(n, length, func(c *crew, me int) uint64 {
		c.lineUp()
		r := newRandom(me)
		var ops uint64
		for !c.stopped.Load() {
			array := worksOn[me].Load()
			for range changes {
				arrays[array][r.below(cells)]++
			}
			slot := &s[r.below(len(s))]
			if other := slot.Swap(nobody); other != nobody {
				if shared {
					worksOn[me].Store(worksOn[other].Swap(array))
				}
				c.members[other].unpark()
			}
			if other := slot.Swap(int64(me)); other != nobody {
				c.members[other].unpark()
			}
			c.members[me].park()
			ops++
		}
		return ops
	})
}

type seen struct {
	reign atomic.Uint64
	_     [56]byte
}

func transfer(n int, parks bool, length time.Duration) report {
	var leader, reign, completed atomic.Uint64
	all := make([]seen, n)
	lead := func(c *crew, me int, r *random) {
		mine := reign.Load() + 1
		all[me].reign.Store(mine)
		reign.Store(mine)
		if parks {
			c.wakeOthers(me)
		}
		for i := range all {
			for all[i].reign.Load() != mine {
				if c.stopped.Load() {
					return
				}
			}
		}
		completed.Store(mine)
		next := r.below(n)
		leader.Store(uint64(next))
		if parks {
			c.members[next].unpark()
		}
	}
	found := run(n, length, func(c *crew, me int) uint64 {
		c.lineUp()
		r := newRandom(me)
		var looks uint64
		for !c.stopped.Load() {
			looks++
			if leader.Load() == uint64(me) {
				lead(c, me, &r)
				continue
			}
			all[me].reign.Store(reign.Load())
			if parks {
				c.members[me].park()
			} else {
				runtime.Gosched()
			}
		}
		return looks
	})
	found.ops = completed.Load()
	return found
}
