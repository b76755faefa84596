package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// probe prints the leader once all members serve, waits for a line on standard
// input, and prints another when one of the other members has committed a put.
func probe(endpoints []string) error {
	leader, err := waitLeader(endpoints)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var others []*clientv3.Client
	for _, e := range endpoints {
		c, err := dial(e)
		if err != nil {
			return err
		}
		defer c.Close()
		// A connection, and a member that is in step, are no part of a failover.
		for {
			if _, err = c.Put(ctx, "probe", "before"); err == nil {
				break
			}
			if ctx.Err() != nil {
				return fmt.Errorf("%s does not serve: %w", e, err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		if e != leader {
			others = append(others, c)
		}
	}
	fmt.Println(leader)
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	committed := make(chan struct{}, len(others))
	for _, c := range others {
		go func() {
			for ctx.Err() == nil {
				// etcd holds a put until there is a leader, but may lose it: ask anew.
				try, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				_, err := c.Put(try, "probe", "after")
				cancel()
				if err == nil {
					committed <- struct{}{}
					return
				}
			}
		}()
	}
	select {
	case <-committed:
		fmt.Println("committed")
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
