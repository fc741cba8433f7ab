package migrations

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// atlasSum returns the file by which atlas notices changes of its folder. Each
// line's hash is over the names and contents up to that file; the first line's
// is over the lines (ariga.io/atlas, sql/migrate, HashFile).
func atlasSum(files []File) File {
	running, total := sha256.New(), sha256.New()
	var lines strings.Builder
	for _, f := range files {
		running.Write([]byte(f.Name + f.Content))
		hash := base64.StdEncoding.EncodeToString(running.Sum(nil))
		total.Write([]byte(f.Name + hash))
		lines.WriteString(f.Name + " h1:" + hash + "\n")
	}
	return File{"atlas.sum", "h1:" + base64.StdEncoding.EncodeToString(total.Sum(nil)) + "\n" + lines.String()}
}
