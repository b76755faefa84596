package tensor

import "fmt"

// batchBlocks is how many blocks are written before they are synced: with each sync the disk writes
// its cache and the file system its journal. It also bounds how many files are open at once.
const batchBlocks = 64

// pageOf returns the bytes of a block and what fills its last page, and what gives them up.
type pageOf func(p piece) (page []byte, free func(), err error)

// putAll makes sure that the blocks of a state are in a folder, whole and durable but for their
// names, and says which had to be written. If blocks are given, their locks are taken. It fails with
// ErrDisk, ErrCorrupt, ErrClosed, or as page does.
func (s *Store) putAll(f folder, pieces []piece, blocks []*block, page pageOf) (wrote []bool, err error) {
	wrote = make([]bool, len(pieces))
	first := firsts(pieces)
	for from := 0; from < len(pieces); from += batchBlocks {
		to := min(from+batchBlocks, len(pieces))
		b := batch{store: s, folder: f, pieces: pieces[from:to], first: first[from:to], page: page, wrote: wrote[from:to]}
		if blocks != nil {
			b.blocks = blocks[from:to]
		}
		if err := b.put(); err != nil {
			return nil, err
		}
	}
	return wrote, nil
}

// firsts says of each block whether none before it has its bytes: equal blocks of a state are written once.
func firsts(pieces []piece) []bool {
	first := make([]bool, len(pieces))
	met := make(map[hash]bool, len(pieces))
	for i, p := range pieces {
		first[i] = !met[p.hash()]
		met[p.hash()] = true
	}
	return first
}

// batch is blocks that are synced together.
type batch struct {
	store  *Store
	folder folder
	pieces []piece
	first  []bool   // none before it has its bytes
	blocks []*block // nil: no locks
	page   pageOf
	wrote  []bool
}

// put writes the blocks, then syncs them, and then gives them their names: a name never stands for
// bytes that a crash could take away.
func (b *batch) put() error {
	made := make([]*written, len(b.pieces))
	defer func() {
		for _, w := range made {
			w.discard()
		}
	}()
	err := b.store.each(b.pieces, func(i int, p piece) (err error) {
		page, free, err := b.page(p)
		if err != nil {
			return err
		}
		defer free()
		if err := p.check(page[:p.bytes()]); err != nil {
			return fmt.Errorf("in memory: %w", err)
		}
		if !b.first[i] {
			return nil
		}
		return b.locked(i, func() error {
			made[i], err = b.folder.write(p.hash(), page, p.bytes())
			return err
		})
	})
	if err != nil {
		return err
	}
	if err := b.folder.sync(made); err != nil {
		return err
	}
	return b.store.each(b.pieces, func(i int, p piece) error {
		if made[i] == nil {
			return nil
		}
		b.wrote[i] = true
		return b.locked(i, func() error { return b.folder.name(p.hash(), made[i]) })
	})
}

// locked calls f with the lock of block i. Between two calls nobody removes the file: the state has a
// reference to the block. Another state may write the same block meanwhile, and then one file
// replaces the other, which has the same bytes.
func (b *batch) locked(i int, f func() error) error {
	if b.blocks != nil {
		b.blocks[i].mu.Lock()
		defer b.blocks[i].mu.Unlock()
	}
	return f()
}
