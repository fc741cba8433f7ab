package lock

import (
	"container/heap"
	"time"
)

// An alarm is a point in time at which the keeper looks at something: at a hold,
// to renew it or to say that it is lost, or at a call, to give it up.
type alarm struct {
	at    time.Time
	index int          // in the keeper's heap, -1 if not there
	hold  *hold        // or
	call  *callContext // that is given up
}

// set puts the alarm into the heap, or moves it there. The caller has the mutex.
func (k *keeper) set(a *alarm, at time.Time) {
	a.at = at
	if a.index < 0 {
		heap.Push(&k.alarms, a)
	} else {
		heap.Fix(&k.alarms, a.index)
	}
	k.arm()
}

// unset takes the alarm out of the heap. The timer stays as it is: to wake once
// for nothing is cheaper than to move it at every release.
func (k *keeper) unset(a *alarm) {
	if a.index >= 0 {
		heap.Remove(&k.alarms, a.index)
	}
}

// arm makes the timer fire for the earliest alarm at the latest.
func (k *keeper) arm() {
	if len(k.alarms) == 0 {
		return
	}
	at := k.alarms[0].at
	switch {
	case k.timer == nil:
		k.timer = time.AfterFunc(time.Until(at), k.tick)
	case k.wakeAt.IsZero() || at.Before(k.wakeAt):
		k.timer.Reset(time.Until(at))
	default:
		return
	}
	k.wakeAt = at
}

// An alarmHeap orders alarms by time. It implements heap.Interface.
type alarmHeap []*alarm

func (q alarmHeap) Len() int           { return len(q) }
func (q alarmHeap) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q alarmHeap) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *alarmHeap) Push(x any) {
	a := x.(*alarm)
	a.index = len(*q)
	*q = append(*q, a)
}

func (q *alarmHeap) Pop() any {
	old := *q
	a := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	a.index = -1
	return a
}
