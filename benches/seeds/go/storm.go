// Many short goroutines.
package main

import (
	"sync"
	"time"
)

const batch = 10_000

func repeat(length time.Duration, once func() uint64) report {
	start, read := time.Now(), stopwatch()
	var ops uint64
	for time.Since(start) < length {
		ops += once()
	}
	return report{ops: ops, took: read()}
}

func create(chains int, length time.Duration) report {
	return repeat(length, func() uint64 {
		end := make(chan bool)
		var link func(left int)
		link = func(left int) {
			if left == 0 {
				end <- true
				return
			}
			go link(left - 1)
		}
		for range chains {
			link(batch)
		}
		for range chains {
			<-end
		}
		return uint64(chains * batch)
	})
}

func storm(spawners int, length time.Duration) report {
	return repeat(length, func() uint64 {
		var left sync.WaitGroup
		left.Add(spawners * batch)
		for range spawners {
			go func() {
				for range batch {
					go func() { left.Done() }()
				}
			}()
		}
		left.Wait()
		return uint64(spawners * batch)
	})
}

func skynet(leaves int, length time.Duration) report {
	const children = 10
	type sums struct{ sum, threads uint64 }
	var node func(parent chan sums, first, leaves uint64)
	node = func(parent chan sums, first, leaves uint64) {
		if leaves == 1 {
			parent <- sums{first, 1}
			return
		}
		theirs := make(chan sums, children)
		each := leaves / children
		for i := range uint64(children) {
			go node(theirs, first+i*each, each)
		}
		all := sums{0, 1}
		for range children {
			child := <-theirs
			all.sum += child.sum
			all.threads += child.threads
		}
		parent <- all
	}
	return repeat(length, func() uint64 {
		root := make(chan sums, 1)
		go node(root, 0, uint64(leaves))
		found := <-root
		if found.sum != uint64(leaves)*uint64(leaves-1)/2 {
			panic("not the sum")
		}
		return found.threads
	})
}

func matmult(size int, length time.Duration) report {
	const least = 8
	a, b, product := make([]uint64, size*size), make([]uint64, size*size), make([]uint64, size*size)
	for i := range a {
		a[i], b[i] = uint64(i), uint64(i)
	}
	var block func(done chan struct{}, rows, columns [2]int)
	block = func(done chan struct{}, rows, columns [2]int) {
		others, count := make(chan struct{}, 64), 0
		for {
			height, width := rows[1]-rows[0], columns[1]-columns[0]
			if max(height, width) < least {
				break
			}
			itsRows, itsColumns := rows, columns
			if height >= width {
				middle := rows[0] + height/2
				itsRows[1], rows[0] = middle, middle
			} else {
				middle := columns[0] + width/2
				itsColumns[1], columns[0] = middle, middle
			}
			go block(others, itsRows, itsColumns)
			count++
		}
		for row := rows[0]; row < rows[1]; row++ {
			for column := columns[0]; column < columns[1]; column++ {
				var sum uint64
				for i := range size {
					sum += a[row*size+i] * b[i*size+column]
				}
				product[row*size+column] = sum
			}
		}
		for range count {
			<-others
		}
		done <- struct{}{}
	}
	return repeat(length, func() uint64 {
		done := make(chan struct{}, 1)
		block(done, [2]int{0, size}, [2]int{0, size})
		return uint64(size * size * size)
	})
}
