package frame

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math/bits"
)

// maxDepth is encoding/json's own limit. Sharing it means that nothing passes
// here on which a reader behind us fails.
const maxDepth = 10000

// space returns the first place from i on that is no white space.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// members calls f for each member of the one JSON object that b is: the key
// decoded, where its text begins, and the span of the value. It reports whether
// b is valid; f returning false ends it early and counts as valid.
func members(b []byte, f func(key []byte, at, from, to int) bool) bool {
	i := space(b, 0)
	if i >= len(b) || b[i] != '{' {
		return false
	}
	i = space(b, i+1)
	if i < len(b) && b[i] == '}' {
		return space(b, i+1) == len(b)
	}
	for {
		if i >= len(b) || b[i] != '"' {
			return false
		}
		at := i
		end, escaped, ok := skipString(b, i)
		if !ok {
			return false
		}
		key := b[at+1 : end-1]
		if escaped {
			// Written differently, it is the same key to whoever decodes it.
			var s string
			if json.Unmarshal(b[at:end], &s) != nil {
				return false
			}
			key = []byte(s)
		}
		i = space(b, end)
		if i >= len(b) || b[i] != ':' {
			return false
		}
		from := space(b, i+1)
		to, ok := skipNested(b, from, 1)
		if !ok {
			return false
		}
		if !f(key, at, from, to) {
			return true
		}
		i = space(b, to)
		if i >= len(b) {
			return false
		}
		switch b[i] {
		case ',':
			i = space(b, i+1)
		case '}':
			return space(b, i+1) == len(b)
		default:
			return false
		}
	}
}

// skipValue returns the end of the valid JSON value that begins at i.
func skipValue(b []byte, i int) (end int, ok bool) { return skipNested(b, i, 0) }

// skipNested is skipValue for a value that already stands inside that many
// others. It keeps one bit per open bracket and never recurses: a line of
// brackets must not cost a stack.
func skipNested(b []byte, i, outer int) (end int, ok bool) {
	if i >= len(b) {
		return 0, false
	}
	if b[i] != '{' && b[i] != '[' {
		return skipScalar(b, i)
	}
	var (
		few   [4]uint64 // 256 levels without an allocation
		open  = few[:]  // bit set: an object
		depth = 0
	)
	for {
		// i is at the beginning of a value.
		if i >= len(b) {
			return 0, false
		}
		closed := false
		switch c := b[i]; c {
		case '{', '[':
			if depth++; depth+outer > maxDepth {
				return 0, false
			}
			if depth > len(open)*64 {
				open = append(open, make([]uint64, len(open))...)
			}
			word, bit := (depth-1)/64, uint64(1)<<((depth-1)%64)
			i = space(b, i+1)
			if i >= len(b) {
				return 0, false
			}
			if c == '[' {
				open[word] &^= bit
				if b[i] != ']' {
					continue
				}
			} else {
				open[word] |= bit
				if b[i] != '}' {
					if i, ok = skipKey(b, i); !ok {
						return 0, false
					}
					continue
				}
			}
			closed = true // an empty one
		default:
			if i, ok = skipScalar(b, i); !ok {
				return 0, false
			}
		}
		// i is behind a value, or at the closing bracket of an empty one.
		for {
			if !closed {
				i = space(b, i)
			}
			if i >= len(b) {
				return 0, false
			}
			object := open[(depth-1)/64]&(1<<((depth-1)%64)) != 0
			c := b[i]
			if c == '}' && object || c == ']' && !object {
				i++
				closed = false
				if depth--; depth == 0 {
					return i, true
				}
				continue
			}
			if c != ',' {
				return 0, false
			}
			i = space(b, i+1)
			if object {
				if i, ok = skipKey(b, i); !ok {
					return 0, false
				}
			}
			break
		}
	}
}

// skipKey returns where the value of the member that begins at i begins.
func skipKey(b []byte, i int) (int, bool) {
	if i >= len(b) || b[i] != '"' {
		return 0, false
	}
	i, _, ok := skipString(b, i)
	if !ok {
		return 0, false
	}
	i = space(b, i)
	if i >= len(b) || b[i] != ':' {
		return 0, false
	}
	return space(b, i+1), true
}

func skipScalar(b []byte, i int) (int, bool) {
	switch b[i] {
	case '"':
		end, _, ok := skipString(b, i)
		return end, ok
	case 't':
		return skipWord(b, i, "true")
	case 'f':
		return skipWord(b, i, "false")
	case 'n':
		return skipWord(b, i, "null")
	}
	return skipNumber(b, i)
}

func skipWord(b []byte, i int, word string) (int, bool) {
	end := i + len(word)
	return end, end <= len(b) && string(b[i:end]) == word
}

func skipNumber(b []byte, i int) (int, bool) {
	if i < len(b) && b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else {
		from := i
		if i = digits(b, i); i == from {
			return 0, false
		}
	}
	if i < len(b) && b[i] == '.' {
		from := i + 1
		if i = digits(b, from); i == from {
			return 0, false
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		from := i + 1
		if from < len(b) && (b[from] == '+' || b[from] == '-') {
			from++
		}
		if i = digits(b, from); i == from {
			return 0, false
		}
	}
	return i, true
}

func digits(b []byte, i int) int {
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	return i
}

// stops has the high bit of a byte set if one of the first eight bytes of b up
// to it is below 0x20, a quote or a backslash. It may be set in bytes behind the
// first such one without reason.
func stops(b []byte) uint64 {
	const ones = 0x0101010101010101
	w := binary.LittleEndian.Uint64(b)
	quote := w ^ ones*'"'
	slash := w ^ ones*'\\'
	return (w-ones*0x20)&^w | (quote-ones)&^quote | (slash-ones)&^slash
}

// block is how much of a string is looked at in one go, where as much was plain
// before it.
const block = 512

// plainBlock reports whether in so many bytes there is nothing to stop at. The
// machine looks for one byte in many at once; only that none is below 0x20 has
// to be seen eight by eight.
func plainBlock(b *[block]byte) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	if bytes.IndexByte(b[:], '"') >= 0 || bytes.IndexByte(b[:], '\\') >= 0 {
		return false
	}
	var below uint64
	for i := 0; i < block; i += 32 {
		four := (*[32]byte)(b[i:])
		w, x := binary.LittleEndian.Uint64(four[:]), binary.LittleEndian.Uint64(four[8:])
		y, z := binary.LittleEndian.Uint64(four[16:]), binary.LittleEndian.Uint64(four[24:])
		below |= (w-ones*0x20)&^w | (x-ones*0x20)&^x | (y-ones*0x20)&^y | (z-ones*0x20)&^z
	}
	return below&highs == 0
}

// skipString returns the end of the string whose quote is at i, and whether it
// has escapes in it. It steps from one byte that needs a look to the next: the
// bulk of a large message is text.
func skipString(b []byte, i int) (end int, escaped, ok bool) {
	const highs = 0x8080808080808080
	plain := 0 // bytes since one needed a look
	for i++; ; {
		for i+8 <= len(b) {
			if s := stops(b[i:]) & highs; s != 0 {
				i += bits.TrailingZeros64(s) / 8
				break
			}
			i += 8
			for plain += 8; plain >= block/4 && i+block <= len(b); i += block {
				if !plainBlock((*[block]byte)(b[i:])) {
					plain = 0
					break
				}
			}
		}
		if i >= len(b) {
			return 0, escaped, false
		}
		plain = 0
		switch c := b[i]; {
		case c == '"':
			return i + 1, escaped, true
		case c == '\\':
			escaped = true
			if i+1 >= len(b) {
				return 0, true, false
			}
			switch b[i+1] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
				i += 2
			case 'u':
				if i+6 > len(b) || !hex(b[i+2]) || !hex(b[i+3]) || !hex(b[i+4]) || !hex(b[i+5]) {
					return 0, true, false
				}
				i += 6
			default:
				return 0, true, false
			}
		case c < 0x20:
			return 0, escaped, false
		default:
			i++
		}
	}
}

func hex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}
