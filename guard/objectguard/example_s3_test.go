package objectguard_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/go-fencing/fencing/guard"
	"github.com/go-fencing/fencing/guard/objectguard"
)

// s3 is a bucket of S3, or of a store that speaks like it. With a client of its vendor
// it is the same two requests with the same two headers; switch off its retries for
// the PUT.
type s3 struct {
	client *http.Client // one that signs
	url    string       // of the bucket
}

func (b s3) Get(ctx context.Context, key string) (object []byte, etag string, err error) {
	resp, err := b.do(ctx, http.MethodGet, key, nil, "", "")
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusOK:
		object, err = io.ReadAll(resp.Body)
		return object, resp.Header.Get("ETag"), err
	case http.StatusNotFound:
		return nil, "", objectguard.ErrNoObject
	}
	return nil, "", fmt.Errorf("s3: get %q: %s", key, resp.Status)
}

func (b s3) Put(ctx context.Context, key string, object []byte, etag string) error {
	header, value := "If-Match", etag
	if etag == "" {
		header, value = "If-None-Match", "*"
	}
	resp, err := b.do(ctx, http.MethodPut, key, object, header, value)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	switch {
	case resp.StatusCode == http.StatusOK:
		return nil
	case resp.StatusCode == http.StatusPreconditionFailed, // the ETag is another one, or there is an object already
		resp.StatusCode == http.StatusConflict,               // another PUT was under way
		resp.StatusCode == http.StatusNotFound && etag != "": // there is none; without If-Match it is the bucket that is missing
		return objectguard.ErrChanged
	}
	return fmt.Errorf("s3: put %q: %s", key, resp.Status)
}

func (b s3) do(ctx context.Context, method, key string, body []byte, header, value string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, b.url+"/"+url.PathEscape(key), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if header != "" {
		req.Header.Set(header, value)
	}
	return b.client.Do(req)
}

// A report in an object of S3, written by one worker at a time.
func Example_s3() {
	server := newS3Server()
	defer server.Close()
	store, err := objectguard.New(s3{server.Client(), server.URL})
	if err != nil {
		fmt.Println(err)
		return
	}

	// A lock with lock.WithGuards(store) hands out such fences, and raises them.
	acquire := func(token guard.Token, nonce, holder string) context.Context {
		f := guard.Fence{Resource: "reports/2026-03.csv", Token: token, Nonce: nonce, Holder: holder}
		if err := store.Raise(context.Background(), f); err != nil {
			fmt.Println(err)
		}
		return guard.NewContext(context.Background(), f)
	}
	a := acquire(33, "n-a", "A")
	fmt.Println("A writes:", store.Write(a, "reports/2026-03.csv", []byte("first")))
	b := acquire(34, "n-b", "B") // A has paused, and its lease has ended
	err = store.Write(a, "reports/2026-03.csv", []byte("late"))
	fmt.Println("A is refused:", err != nil)
	data, err := store.Read(b, "reports/2026-03.csv")
	fmt.Printf("B reads: %s %v\n", data, err)
	// Output:
	// A writes: <nil>
	// A is refused: true
	// B reads: first <nil>
}
