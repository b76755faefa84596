package bench

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	rotav1 "rota/api/gen/rota/v1"
	"rota/api/pki"
	"rota/cmd/internal/spin"
)

// FilesOptions say what files to copy.
type FilesOptions struct {
	Cluster ClusterOptions
	// Bytes are copied each time: as one file, and as Files files of equal size.
	Bytes  int64
	Files  int
	Rounds int
}

// FilesFigure is one way of copying all bytes. Times are medians in milliseconds.
type FilesFigure struct {
	// Way is upload or download, of one file or of many, or the bare copy.
	Way string  `json:"way"`
	MS  float64 `json:"ms"`
	// Speed is the time of the bare copy over that of the way in the same round: 1 is as fast.
	Speed Spread `json:"speed"`
}

// FilesResult compares files that are copied to and from a trajectory with a bare TLS copy.
type FilesResult struct {
	Bytes       int64         `json:"bytes"`
	Files       int           `json:"files"`
	Rounds      int           `json:"rounds"`
	Figures     []FilesFigure `json:"figures"`
	LoadAverage float64       `json:"load_average"`
	Noise       spin.Noise    `json:"noise"`
}

// BareCopy is the way that others are compared with.
const BareCopy = "bare copy"

// filesWay copies all bytes once.
type filesWay struct {
	name string
	run  func(context.Context) error
	took []float64
}

// filesBench is the measurement while it runs.
type filesBench struct {
	o          FilesOptions
	h          *held
	dir        string
	one        string   // a file
	many       []string // files
	trajectory uint64
	server     *tls.Config
	client     *tls.Config
}

// Files copies files to a trajectory and back, through a server with TLS that passes them on to the
// agent with TLS, beside as many bytes over one TLS connection and nothing else. The ways take turns,
// in an order that rotates. The round before the first is not measured. each is told of every turn.
func Files(ctx context.Context, o FilesOptions, each func(round int, way string, took time.Duration)) (*FilesResult, error) {
	f := &filesBench{o: o}
	defer f.stop()
	r := &FilesResult{Bytes: o.Bytes, Files: o.Files, Rounds: o.Rounds, LoadAverage: loadAverage()}
	if err := f.start(ctx); err != nil {
		return nil, err
	}
	meter := spin.NewMeter()
	ways := f.ways()
	for round := -1; round < o.Rounds; round++ {
		// An upload comes before the download of the same, so that the order rotates by pairs.
		for i := range ways {
			way := ways[(i+2*(round+1))%len(ways)]
			meter.Sample()
			began := time.Now()
			if err := way.run(ctx); err != nil {
				return nil, fmt.Errorf("%s: %w", way.name, err)
			}
			if round >= 0 {
				way.took = append(way.took, ms(time.Since(began)))
				each(round, way.name, time.Since(began))
			}
		}
	}
	meter.Sample()
	bare := ways[len(ways)-1].took
	for _, way := range ways {
		speed := make([]float64, len(bare))
		for i := range bare {
			speed[i] = bare[i] / way.took[i]
		}
		r.Figures = append(r.Figures, FilesFigure{Way: way.name, MS: spreadOf(way.took).Median, Speed: spreadOf(speed)})
	}
	r.Noise = meter.Noise()
	return r, nil
}

func (f *filesBench) ways() []*filesWay {
	return []*filesWay{
		{name: "upload, 1 file", run: func(ctx context.Context) error { return f.upload(ctx, f.one) }},
		{name: "download, 1 file", run: func(ctx context.Context) error { return f.download(ctx, f.one) }},
		{name: fmt.Sprintf("upload, %d files", f.o.Files), run: func(ctx context.Context) error { return f.upload(ctx, f.many...) }},
		{name: fmt.Sprintf("download, %d files", f.o.Files), run: func(ctx context.Context) error { return f.download(ctx, f.many...) }},
		{name: BareCopy, run: f.copy},
	}
}

// start makes certificates, files and a cluster.
func (f *filesBench) start(ctx context.Context) (err error) {
	if f.dir, err = os.MkdirTemp(f.o.Cluster.Dir, "rota-bench-"); err != nil {
		return err
	}
	certificates := filepath.Join(f.dir, "tls")
	if err := pki.NewCA(certificates); err != nil {
		return err
	}
	flags := map[pki.Role][]string{}
	// An agent speaks for the node that its certificate names.
	for role, name := range map[pki.Role]string{pki.RoleServer: "server", pki.RoleAgent: "node-1", pki.RoleClient: "client"} {
		if err := pki.Issue(certificates, role, name); err != nil {
			return err
		}
		files := pki.FilesIn(certificates, name)
		flags[role] = []string{"--ca", files.CA, "--cert", files.Cert, "--key", files.Key}
	}
	if f.client, err = pki.ClientConfig(pki.FilesIn(certificates, "client"), pki.RoleServer); err != nil {
		return err
	}
	if f.server, err = pki.ServerConfig(pki.FilesIn(certificates, "server"), pki.RoleClient); err != nil {
		return err
	}
	f.server.NextProtos, f.client.NextProtos = nil, nil // the bare copy speaks no HTTP; httpx sets its own
	o := f.o.Cluster
	o.ServerArgs, o.AgentArgs, o.TLS = flags[pki.RoleServer], flags[pki.RoleAgent], f.client.Clone()
	if f.h, err = startCluster(ctx, o, 1); err != nil {
		return err
	}
	opened, err := f.h.api.OpenTrajectory(ctx, &rotav1.OpenTrajectoryRequest{Name: "files"})
	if err != nil {
		return err
	}
	f.trajectory = opened.Id
	return f.makeFiles()
}

func (f *filesBench) stop() {
	if f.h != nil {
		f.h.stop()
	}
	if f.dir != "" {
		os.RemoveAll(f.dir)
	}
}

// makeFiles writes what is copied, which no layer can compress.
func (f *filesBench) makeFiles() error {
	make := func(name string, bytes int64) error {
		file, err := os.Create(name)
		if err != nil {
			return err
		}
		_, err = io.CopyN(file, rand.Reader, bytes)
		return errors.Join(err, file.Close())
	}
	f.one = filepath.Join(f.dir, "one")
	if err := make(f.one, f.o.Bytes); err != nil {
		return err
	}
	for i := range f.o.Files {
		name := filepath.Join(f.dir, "many-"+strconv.Itoa(i))
		bytes := f.o.Bytes / int64(f.o.Files)
		if i == 0 {
			bytes += f.o.Bytes % int64(f.o.Files)
		}
		if err := make(name, bytes); err != nil {
			return err
		}
		f.many = append(f.many, name)
	}
	return nil
}

// upload copies files to the trajectory, one after the other.
func (f *filesBench) upload(ctx context.Context, names ...string) error {
	for _, name := range names {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		st, err := file.Stat()
		if err == nil {
			err = f.h.api.UploadFile(ctx, f.trajectory, filepath.Base(name), file, st.Size(), st.Mode())
		}
		if err = errors.Join(err, file.Close()); err != nil {
			return err
		}
	}
	return nil
}

// download copies files of the trajectory to this machine, one after the other.
func (f *filesBench) download(ctx context.Context, names ...string) error {
	for _, name := range names {
		file, err := os.Create(name + ".back")
		if err != nil {
			return err
		}
		n, err := f.h.api.DownloadFile(ctx, f.trajectory, filepath.Base(name), file)
		if err = errors.Join(err, file.Close()); err != nil {
			return err
		}
		st, err := os.Stat(name)
		if err != nil {
			return err
		}
		if n != st.Size() {
			return fmt.Errorf("%d bytes of %s came back, want %d", n, filepath.Base(name), st.Size())
		}
	}
	return nil
}

// copy copies the file over one TLS connection into a file.
func (f *filesBench) copy(ctx context.Context) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	sent := make(chan error, 1)
	go func() { sent <- f.send(tls.NewListener(l, f.server)) }()
	dialer := &tls.Dialer{Config: f.client}
	conn, err := dialer.DialContext(ctx, "tcp", l.Addr().String())
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	to, err := os.Create(filepath.Join(f.dir, "copied"))
	if err != nil {
		return err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{conn}, make([]byte, copyBytes))
	if err == nil && n != f.o.Bytes {
		err = fmt.Errorf("%d bytes were copied, want %d", n, f.o.Bytes)
	}
	return errors.Join(err, to.Close(), <-sent)
}

func (f *filesBench) send(l net.Listener) error {
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	file, err := os.Open(f.one)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	defer file.Close()
	_, err = io.CopyBuffer(struct{ io.Writer }{conn}, struct{ io.Reader }{file}, make([]byte, copyBytes))
	return errors.Join(err, conn.Close())
}
