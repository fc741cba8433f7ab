package objectguard_test

import (
	"crypto/md5"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
)

// An s3Server answers as S3 does: ETags are the MD5 of the bytes, which are equal for
// equal bytes, and conditions are If-Match and If-None-Match: *.
type s3Server struct {
	*httptest.Server
	mu      sync.Mutex
	objects map[string][]byte
	puts    int
	fault   func(put int) s3Fault // of the nth PUT
	faults  map[s3Fault]int       // that happened
}

type s3Fault int

const (
	none        s3Fault = iota
	lostReply           // done, and the connection breaks
	lostRequest         // not done, and the connection breaks
	conflict            // 409
	slowDown            // 503
)

func newS3Server() *s3Server {
	s := &s3Server{objects: make(map[string][]byte), fault: func(int) s3Fault { return none }, faults: make(map[s3Fault]int)}
	s.Server = httptest.NewServer(s)
	return s
}

func etag(object []byte) string { return fmt.Sprintf(`"%x"`, md5.Sum(object)) }

func (s *s3Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	object, found := s.objects[r.URL.Path]
	refuse := func(status int, code string) {
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
	}
	switch r.Method {
	case http.MethodGet:
		if !found {
			refuse(http.StatusNotFound, "NoSuchKey")
			return
		}
		w.Header().Set("ETag", etag(object))
		_, _ = w.Write(object)
	case http.MethodPut:
		s.puts++
		fault := s.fault(s.puts)
		s.faults[fault]++
		switch match, noneMatch := r.Header.Get("If-Match"), r.Header.Get("If-None-Match"); {
		case fault == lostRequest:
			panic(http.ErrAbortHandler)
		case fault == conflict:
			refuse(http.StatusConflict, "ConditionalRequestConflict")
		case fault == slowDown:
			refuse(http.StatusServiceUnavailable, "SlowDown")
		case match != "" && !found:
			refuse(http.StatusNotFound, "NoSuchKey")
		case match != "" && match != etag(object), noneMatch == "*" && found:
			refuse(http.StatusPreconditionFailed, "PreconditionFailed")
		default:
			s.objects[r.URL.Path] = body
			if fault == lostReply {
				panic(http.ErrAbortHandler)
			}
			w.Header().Set("ETag", etag(body))
		}
	}
}
