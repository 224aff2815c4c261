// A stranger's reader of the trail: Go's golang.org/x/mod/sumdb, which knows nothing of Colibri. It reads a directory
// of tiles (c2sp.org/tlog-tiles), inclusion proofs (c2sp.org/tlog-proof) and consistency proofs (the request of
// c2sp.org/tlog-witness).
//
// Each line of standard input is a question, each line of standard output its answer, "true" or "false: " and why:
//
//	tiles KEY DIR          the checkpoint is signed, the tiles lead to its root, the entries to the tiles
//	proof KEY FILE         the record is under a checkpoint that the key signed
//	growth KEY OLD FILE    the checkpoint of the file continues the one in OLD
package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// A signed checkpoint: c2sp.org/tlog-checkpoint.
func openCheckpoint(key string, text []byte) (tlog.Tree, error) {
	verifier, err := note.NewVerifier(key)
	if err != nil {
		return tlog.Tree{}, err
	}
	signed, err := note.Open(text, note.VerifierList(verifier))
	if err != nil {
		return tlog.Tree{}, err
	}
	// Package note takes any base64 that decodes to the same bytes; a byte that is another is found here.
	for _, signature := range append(signed.Sigs, signed.UnverifiedSigs...) {
		if _, err := base64.StdEncoding.Strict().DecodeString(signature.Base64); err != nil {
			return tlog.Tree{}, err
		}
	}
	lines := strings.Split(signed.Text, "\n")
	if len(lines) != 4 || lines[0] != verifier.Name() {
		return tlog.Tree{}, errors.New("not a checkpoint of this log")
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil || strconv.FormatInt(size, 10) != lines[1] {
		return tlog.Tree{}, errors.New("no tree size")
	}
	hash, err := tlog.ParseHash(lines[2])
	return tlog.Tree{N: size, Hash: hash}, err
}

// The tiles of a directory, as package tlog asks for them.
type directory string

func (dir directory) Height() int { return 8 }

func (dir directory) SaveTiles([]tlog.Tile, [][]byte) {}

func (dir directory) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	var found [][]byte
	for _, tile := range tiles {
		// Package tlog puts the height before the level.
		path := strings.Replace(strings.Replace(tile.Path(), "tile/8/", "tile/", 1), "tile/data/", "tile/entries/", 1)
		data, err := os.ReadFile(filepath.Join(string(dir), path))
		if err != nil {
			return nil, err
		}
		if tile.L >= 0 && len(data) != tile.W*tlog.HashSize {
			return nil, fmt.Errorf("%s has %d bytes", path, len(data))
		}
		found = append(found, data)
	}
	return found, nil
}

func checkTiles(key, dir string) error {
	text, err := os.ReadFile(filepath.Join(dir, "checkpoint"))
	if err != nil {
		return err
	}
	tree, err := openCheckpoint(key, text)
	if err != nil {
		return err
	}
	reader := tlog.TileHashReader(tree, directory(dir))
	_, err = os.Stat(filepath.Join(dir, "tile/entries"))
	entries := err == nil
	for start := int64(0); start < tree.N; start += 256 {
		width := tree.N - start
		if width > 256 {
			width = 256
		}
		var indexes []int64
		for n := start; n < start+width; n++ {
			indexes = append(indexes, tlog.StoredHashIndex(0, n))
		}
		// Each tile that is read is compared with the root.
		hashes, err := reader.ReadHashes(indexes)
		if err != nil || !entries {
			if err != nil {
				return err
			}
			continue
		}
		bundle, err := directory(dir).ReadTiles([]tlog.Tile{{H: 8, L: -1, N: start / 256, W: int(width)}})
		if err != nil {
			return err
		}
		rest := bundle[0]
		for _, hash := range hashes {
			if len(rest) < 2 || len(rest) < 2+int(binary.BigEndian.Uint16(rest)) {
				return errors.New("a bundle is too short")
			}
			entry := rest[2 : 2+int(binary.BigEndian.Uint16(rest))]
			rest = rest[2+len(entry):]
			// A record that is too long for a bundle is there as its hash.
			if tlog.RecordHash(entry) != hash && !bytes.Equal(entry, hash[:]) {
				return errors.New("an entry is another than its hash")
			}
		}
		if len(rest) > 0 {
			return errors.New("a bundle is too long")
		}
	}
	return nil
}

// The lines before the first empty one, and the note behind it.
func split(file string) ([]string, []byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	head, checkpoint, found := bytes.Cut(text, []byte("\n\n"))
	if !found {
		return nil, nil, errors.New("no empty line")
	}
	return strings.Split(string(head), "\n"), checkpoint, nil
}

func parseHashes(lines []string) (hashes []tlog.Hash, err error) {
	for _, line := range lines {
		hash, err := tlog.ParseHash(line)
		if err != nil {
			return nil, err
		}
		if hash.String() != line {
			return nil, errors.New("a hash in another form")
		}
		hashes = append(hashes, hash)
	}
	return hashes, nil
}

func checkProof(key, file string) error {
	lines, checkpoint, err := split(file)
	if err != nil {
		return err
	}
	if len(lines) < 3 || lines[0] != "c2sp.org/tlog-proof@v1" || !strings.HasPrefix(lines[1], "extra ") ||
		!strings.HasPrefix(lines[2], "index ") {
		return errors.New("not a proof")
	}
	entry, err := base64.StdEncoding.Strict().DecodeString(lines[1][len("extra "):])
	if err != nil {
		return err
	}
	index, err := strconv.ParseInt(lines[2][len("index "):], 10, 64)
	if err != nil || lines[2] != fmt.Sprintf("index %d", index) {
		return errors.New("no index")
	}
	path, err := parseHashes(lines[3:])
	if err != nil {
		return err
	}
	tree, err := openCheckpoint(key, checkpoint)
	if err != nil {
		return err
	}
	return tlog.CheckRecord(path, tree.N, tree.Hash, index, tlog.RecordHash(entry))
}

func checkGrowth(key, old, file string) error {
	text, err := os.ReadFile(old)
	if err != nil {
		return err
	}
	before, err := openCheckpoint(key, text)
	if err != nil {
		return err
	}
	lines, checkpoint, err := split(file)
	if err != nil {
		return err
	}
	if lines[0] != fmt.Sprintf("old %d", before.N) {
		return errors.New("it begins elsewhere")
	}
	path, err := parseHashes(lines[1:])
	if err != nil {
		return err
	}
	after, err := openCheckpoint(key, checkpoint)
	if err != nil {
		return err
	}
	return tlog.CheckTree(path, after.N, after.Hash, before.N, before.Hash)
}

func answer(fields []string) (err error) {
	// Package tlog panics for numbers that it takes for its caller's mistakes.
	defer func() {
		if said := recover(); said != nil {
			err = fmt.Errorf("%v", said)
		}
	}()
	key, err := os.ReadFile(fields[1])
	if err != nil {
		return err
	}
	verifier := strings.TrimSpace(string(key))
	switch {
	case fields[0] == "tiles" && len(fields) == 3:
		return checkTiles(verifier, fields[2])
	case fields[0] == "proof" && len(fields) == 3:
		return checkProof(verifier, fields[2])
	case fields[0] == "growth" && len(fields) == 4:
		return checkGrowth(verifier, fields[2], fields[3])
	}
	return errors.New("no such question")
}

func main() {
	questions := bufio.NewScanner(os.Stdin)
	for questions.Scan() {
		if err := answer(strings.Split(questions.Text(), "\t")); err != nil {
			fmt.Printf("false: %q\n", err)
		} else {
			fmt.Println("true")
		}
	}
}
