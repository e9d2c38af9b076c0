package frame

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// ids that decoders damage or confuse.
var ids = []string{
	`1`, `"1"`, `""`, `0`, `-1`, `1.5`, `1.0`, `9007199254740993`, `18446744073709551615`, `1e3`, `-0`,
	`"` + strings.Repeat("x", 2048) + `"`, `"\u0031"`, `"\ud800"`, `"a\"b"`, "\"\u2028\"",
}

func TestParseKeepsEveryByteOfAnID(t *testing.T) {
	for _, id := range ids {
		for _, form := range []string{
			`{"jsonrpc":"2.0","id":ID,"method":"x","params":{"id":7}}`,
			`{"params":{"id":7},"method":"x", "id" : ID }`,
			`{"id":5,"method":"x","id":ID}`,
			`{"ID":5,"method":"x","id":ID,"Id":6}`,
			`{"\u0069d":ID,"method":"x"}`,
		} {
			line := strings.Replace(form, "ID", id, 1)
			if strings.HasPrefix(form, `{"ID"`) {
				line = `{"ID":5,"method":"x","id":` + id + `,"Id":6}`
			}
			m, err := Parse([]byte(line))
			if err != nil || string(m.ID) != id || !m.IsRequest() || m.IsNotification() || m.IsResponse() || m.Name() != "x" {
				t.Errorf("Parse(%.100s) = id %.40s, %v", line, m.ID, err)
			}
		}
	}
}

func TestParse(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct {
		line     string
		code     int
		id       string
		response bool
		kind     string // request, notification, response
	}{
		{line: `{"method":"x"}`, kind: "notification"},
		{line: ` {"method":"x"} `, kind: "notification"},
		{line: `{"id":1,"result":null}`, kind: "response"},
		{line: `{"id":1,"error":{}}`, kind: "response"},
		{line: `{"id":null,"error":{}}`, kind: "response"},
		{line: `{"id":1,"method":"x","result":1}`, kind: "request"},
		{line: `{"id":1,"method":"x","params":` + deep(9999) + `}`, kind: "request"},
		{line: `{"id":1,"method":"x","params":` + deep(10000) + `}`, code: CodeParse},
		{line: strings.Repeat("[", 5_000_000), code: CodeParse},
		{line: ``, code: CodeParse},
		{line: `   `, code: CodeParse},
		{line: `{`, code: CodeParse},
		{line: `{"id":1,"method":"x"`, code: CodeParse},
		{line: `{"id":1,"method":"x"}}`, code: CodeParse},
		{line: `{"id":1,"method":"x"}{"id":2,"method":"x"}`, code: CodeParse},
		{line: `{"id":1,"method":"x",}`, code: CodeParse},
		{line: `{"id":01,"method":"x"}`, code: CodeParse},
		{line: `{"id":1,"method":"x","params":{"a":"` + "\x01" + `"}}`, code: CodeParse},
		{line: "{\"id\":1,\"method\":\"x\xff\"}", kind: "request"},
		{line: "\ufeff{\"id\":1,\"method\":\"x\"}", code: CodeParse},
		{line: `[]`, code: CodeInvalidRequest},
		{line: `[{"id":1,"method":"x"}]`, code: CodeInvalidRequest},
		{line: `"x"`, code: CodeInvalidRequest},
		{line: `12`, code: CodeInvalidRequest},
		{line: `null`, code: CodeInvalidRequest},
		{line: `{}`, code: CodeInvalidRequest},
		{line: `{"id":1}`, code: CodeInvalidRequest, id: `1`},
		{line: `{"id":null,"method":"x"}`, code: CodeInvalidRequest},
		{line: `{"id":{},"method":"x"}`, code: CodeInvalidRequest},
		{line: `{"id":[1],"method":"x"}`, code: CodeInvalidRequest},
		{line: `{"id":true,"method":"x"}`, code: CodeInvalidRequest},
		{line: `{"id":7,"method":1}`, code: CodeInvalidRequest, id: `7`},
		{line: `{"id":null,"result":1}`, code: CodeInvalidRequest, response: true},
		{line: `{"result":1}`, code: CodeInvalidRequest, response: true},
		{line: `!ping`, code: CodeParse},
	} {
		m, err := Parse([]byte(c.line))
		if c.code != 0 {
			var e *Error
			if !errors.As(err, &e) || e.Code != c.code || string(e.ID) != c.id || e.Response != c.response {
				t.Errorf("Parse(%.80s): %#v, want code %d id %q", c.line, err, c.code, c.id)
			}
			continue
		}
		kind := map[bool]string{m.IsRequest(): "request", m.IsNotification(): "notification", m.IsResponse(): "response"}[true]
		if err != nil || kind != c.kind {
			t.Errorf("Parse(%.80s) = %s, %v; want %s", c.line, kind, err, c.kind)
		}
	}
}

func TestGet(t *testing.T) {
	value := []byte(`{"a":{"b":[1,2],"B":3,"c":{"d":"x"},"c":{"d":"y"}},"":0}`)
	for _, c := range []struct {
		path []string
		want string
	}{
		{[]string{"a", "b"}, `[1,2]`}, {[]string{"a", "B"}, `3`}, {[]string{"a", "c", "d"}, `"y"`}, {[]string{""}, `0`},
		{[]string{"A"}, ``}, {[]string{"a", "b", "c"}, ``}, {[]string{"a", "z", "d"}, ``}, {nil, string(value)},
	} {
		if got := Get(value, c.path...); string(got) != c.want || c.want == "" && got != nil {
			t.Errorf("Get(%v) = %s, want %s", c.path, got, c.want)
		}
	}
	if Get([]byte(`{"a":1`), "a") != nil || Get(nil, "a") != nil {
		t.Error("Get of what is no object found something")
	}
}

func TestMembersStopsAndFails(t *testing.T) {
	var keys []string
	err := Members([]byte(`{"a":1,"\u0062":2,"c":3}`), func(k string, raw []byte) bool {
		keys = append(keys, k+"="+string(raw))
		return k != "b"
	})
	if err != nil || !reflect.DeepEqual(keys, []string{"a=1", "b=2"}) {
		t.Errorf("Members: %v, %v", keys, err)
	}
	for _, bad := range []string{``, `[]`, `{"a":1`, `{"a" 1}`, `1`} {
		if Members([]byte(bad), func(string, []byte) bool { return true }) == nil {
			t.Errorf("Members(%s) has no error", bad)
		}
	}
}

func TestElements(t *testing.T) {
	for _, c := range []struct {
		in   string
		want []string
		bad  bool
	}{
		{in: `[]`}, {in: ` [ ] `}, {in: `[ 1 , {"a":[2]} ,"x"]`, want: []string{`1`, `{"a":[2]}`, `"x"`}},
		{in: `[1,]`, want: []string{`1`}, bad: true}, {in: `[1`, bad: true}, {in: `{}`, bad: true}, {in: ``, bad: true}, {in: `[] 1`, bad: true},
		{in: `[1 2]`, want: []string{`1`}, bad: true}, {in: `[`, bad: true},
	} {
		var got []string
		err := Elements([]byte(c.in), func(raw []byte) bool {
			got = append(got, string(raw))
			return true
		})
		if c.in == `[1` || c.in == `[1 2]` {
			got = c.want // seen before the fault or not, either is allowed
		}
		if (err != nil) != c.bad || !reflect.DeepEqual(got, c.want) {
			t.Errorf("Elements(%s) = %q, %v", c.in, got, err)
		}
	}
}

func TestSetAndAppendTo(t *testing.T) {
	for _, c := range []struct{ object, key, value, want string }{
		{`{}`, "k", `1`, `{"k":1}`},
		{` { } `, "k", `1`, ` {"k":1 } `},
		{`{ "a" : 1.50 }`, "k", `[]`, `{ "a" : 1.50,"k":[] }`},
		{`{"k": 1 ,"b":2}`, "k", `"x"`, `{"k": "x" ,"b":2}`},
		{`{"k":1,"k":2}`, "k", `3`, `{"k":1,"k":3}`},
		{`{"K":1}`, "k", `3`, `{"K":1,"k":3}`},
		{`{}`, "a\"b", `3`, `{"a\"b":3}`},
		{`[1]`, "k", `3`, `[1]`},
		{`{"a":`, "k", `3`, `{"a":`},
	} {
		if got := Set([]byte(c.object), c.key, []byte(c.value)); string(got) != c.want {
			t.Errorf("Set(%s, %s) = %s, want %s", c.object, c.key, got, c.want)
		}
	}
	two := [][]byte{[]byte(`1`), []byte(`{"x":1e2}`)}
	for _, c := range []struct{ object, want string }{
		{`{"k":[]}`, `{"k":[1,{"x":1e2}]}`},
		{`{"k":[ ] , "z":1}`, `{"k":[ 1,{"x":1e2}] , "z":1}`},
		{`{"k":[0 ],"n":null}`, `{"k":[0 ,1,{"x":1e2}],"n":null}`},
		{`{"k":null}`, `{"k":[1,{"x":1e2}]}`},
		{`{"z":0}`, `{"z":0,"k":[1,{"x":1e2}]}`},
		{`{"k":{}}`, `{"k":{}}`},
		{`5`, `5`},
	} {
		if got := AppendTo([]byte(c.object), "k", two); string(got) != c.want {
			t.Errorf("AppendTo(%s) = %s, want %s", c.object, got, c.want)
		}
	}
	if got := AppendTo([]byte(`{"k":[]}`), "k", nil); string(got) != `{"k":[]}` {
		t.Errorf("AppendTo of nothing = %s", got)
	}
}

func TestDrop(t *testing.T) {
	for _, c := range []struct{ object, want string }{
		{`{"x":1}`, `{}`},
		{` { "x" : 1 } `, ` {  } `},
		{`{"x":1,"xx":[2],"x\u0078x":{}}`, `{}`},
		{`{"x":1, "a":2}`, `{"a":2}`},
		{`{ "a" : 1.50 , "x":{"a":1} , "b" : 2 }`, `{ "a" : 1.50,"b" : 2 }`},
		{`{"a":1 , "b":2 , "x":3 }`, `{"a":1 , "b":2 }`},
		{`{"x":1,"a":"x,}","x":2,"x":3}`, `{"a":"x,}"}`},
		{`{"a": 1}`, `{"a": 1}`},
		{`{ }`, `{ }`},
		{`[{"x":1}]`, `[{"x":1}]`},
		{`{"x":1,"a"`, `{"x":1,"a"`},
	} {
		before := []byte(c.object)
		got := Drop(before, func(key string) bool { return strings.HasPrefix(key, "x") })
		if string(got) != c.want || string(before) != c.object {
			t.Errorf("Drop(%s) = %s, want %s", c.object, got, c.want)
		}
	}
}

func TestBuilders(t *testing.T) {
	for got, want := range map[string]string{
		string(Result([]byte(`"a"`), []byte(`{}`))):                `{"jsonrpc":"2.0","id":"a","result":{}}`,
		string(Failure(nil, CodeParse, "no <b>\n", nil)):           `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no <b>\n"}}`,
		string(Failure([]byte(`1e3`), -1, "\u2028", []byte(`[]`))): `{"jsonrpc":"2.0","id":1e3,"error":{"code":-1,"message":"\u2028","data":[]}}`,
		string(Notification("a/b", nil)):                           `{"jsonrpc":"2.0","method":"a/b"}`,
		string(Notification("a/b", []byte(`{"x":1}`))):             `{"jsonrpc":"2.0","method":"a/b","params":{"x":1}}`,
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestMembersDoNotReachIntoOneAnother(t *testing.T) {
	line := []byte(`{"id":1,"method":"x","params":{}}`)
	m, _ := Parse(line)
	_ = append(m.ID, `,"method":"evil"`...)
	if string(line) != `{"id":1,"method":"x","params":{}}` {
		t.Errorf("appending to a member wrote into the line: %s", line)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":[1,2.5e-3,null,true,false,"\ud83d\ude00"]}}}`,
		`[{"a":[]},{}]`, `{"a":{"b":{"c":[[],{}]}}}`, `"\u12G4"`, `-0.0e+1`, `tru`, `{"a":1,}`, "{\"a\":\"\x7f\xff12345678\"}", `{"\u0069d":1,"method":"x"}`, `[1 2]`, `{"a"}`, `  `,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := Parse(line)
		var e *Error
		valid := err == nil || errors.As(err, &e) && e.Code != CodeParse
		if valid != json.Valid(line) {
			t.Fatalf("valid %v, encoding/json says %v: %q", valid, json.Valid(line), line)
		}
		if !valid || m.Method == nil && m.ID == nil {
			return
		}
		var want map[string]json.RawMessage
		if json.Unmarshal(line, &want) != nil {
			t.Fatalf("no object: %q", line)
		}
		for key, got := range map[string][]byte{"id": m.ID, "method": m.Method, "params": m.Params, "result": m.Result, "error": m.Error} {
			if string(got) != string(want[key]) {
				t.Fatalf("%s = %q, want %q in %q", key, got, want[key], line)
			}
		}
	})
}

func FuzzText(f *testing.F) {
	f.Add([]byte(`"a\u00e9\ud800b"`))
	f.Add([]byte(`"` + "\xff" + `"`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, ok := Text(raw)
		var want string
		isText := json.Unmarshal(raw, &want) == nil && len(raw) > 0 && raw[0] == '"' && raw[len(raw)-1] == '"'
		if ok != isText || got != want && isText {
			t.Fatalf("Text(%q) = %q %v, want %q %v", raw, got, ok, want, isText)
		}
	})
}

func FuzzQuote(f *testing.F) {
	f.Add("a\x00\u2028\"\\\xff</b>")
	f.Fuzz(func(t *testing.T, s string) {
		q := Quote(s)
		back, ok := Text(q)
		if want := strings.ToValidUTF8(s, "\ufffd"); !ok || strings.ReplaceAll(back, "\ufffd", "") != strings.ReplaceAll(want, "\ufffd", "") {
			t.Fatalf("Quote(%q) = %s", s, q)
		}
		if strings.ContainsAny(string(q), "\n\r\u2028\u2029") {
			t.Fatalf("a line end in %q", q)
		}
	})
}

func FuzzSet(f *testing.F) {
	f.Add([]byte(`{"a":1,"k":[1]}`), "k", []byte(`{"x":2}`))
	f.Add([]byte(`{ }`), "\u2028", []byte(`1`))
	f.Fuzz(func(t *testing.T, object []byte, key string, value []byte) {
		if !json.Valid(value) || !utf8.ValidString(key) { // no key of ours is invalid
			return
		}
		before := string(object)
		out := Set(object, key, value)
		grown := AppendTo(object, key, [][]byte{value, value})
		if string(object) != before {
			t.Fatal("the object was written to")
		}
		var members map[string]json.RawMessage
		if json.Unmarshal(object, &members) != nil || members == nil {
			if string(out) != before || string(grown) != before {
				t.Fatalf("what is no object was changed: %q %q", out, grown)
			}
			return
		}
		if got := Get(out, key); string(got) != strings.Trim(string(value), " \t\r\n") && string(got) != string(value) {
			t.Fatalf("Set(%q, %q, %q) = %q", object, key, value, out)
		}
		var list []json.RawMessage
		_ = json.Unmarshal(Get(object, key), &list)
		var after []json.RawMessage
		if err := json.Unmarshal(Get(grown, key), &after); err == nil && len(after) != len(list)+2 {
			t.Fatalf("AppendTo(%q) = %q", object, grown)
		}
		// All that was there is there in its order.
		if !subsequence(strip(Get(object, key), object), string(out)) {
			t.Fatalf("Set changed more than one member: %q to %q", object, out)
		}
	})
}

// strip removes the one span that Set may replace.
func strip(span, object []byte) string {
	if span == nil {
		return string(object)
	}
	at := strings.LastIndex(string(object), string(span))
	return string(object[:at])
}

func subsequence(a, b string) bool {
	i := 0
	for j := 0; i < len(a) && j < len(b); j++ {
		if a[i] == b[j] {
			i++
		}
	}
	return i == len(a)
}

func BenchmarkParseSmall(b *testing.B) {
	line := []byte(`{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{"name":"echo","arguments":{"message":"hello world"},"_meta":{"progressToken":3}}}`)
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(line); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseLarge(b *testing.B) {
	for name, text := range map[string]string{
		"plain": strings.Repeat("hello world ", 1<<20),
		"code":  strings.Repeat(`\tif err := f.Close(); err != nil { return fmt.Errorf(\"closing: %w\", err) }\n`, 160_000),
		"short": strings.Repeat(`","number":1.5e3,"flag":true,"name":"`, 340_000),
	} {
		b.Run(name, func(b *testing.B) {
			line := []byte(`{"jsonrpc":"2.0","id":12,"result":{"text":"` + text + `"}}`)
			b.SetBytes(int64(len(line)))
			for b.Loop() {
				if _, err := Parse(line); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A string that ends nowhere, of every length around the steps in which
// strings are skipped, and with an escape at every place.
func TestStringsOfEveryLength(t *testing.T) {
	// Words of eight, and blocks once as much as a quarter of one was plain.
	lengths := []int{3*block + 7}
	for n := range 100 {
		lengths = append(lengths, n)
	}
	for _, n := range lengths {
		text := `{"a":"` + strings.Repeat("x", n)
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("%d bytes of an open string are a message", n)
		}
		for _, stop := range []string{`\`, `\u12`, "\x01", "\n"} {
			if _, err := Parse([]byte(text + stop)); err == nil {
				t.Errorf("%d bytes and %q are a message", n, stop)
			}
		}
		for at := range n + 1 {
			for _, stop := range []string{"\x00", "\x1f", `\x`} {
				whole := `{"id":"` + strings.Repeat("x", at) + stop + strings.Repeat("y", n-at) + `","method":"m"}`
				if _, err := Parse([]byte(whole)); err == nil {
					t.Fatalf("%q is a message", whole)
				}
			}
			for _, escape := range []string{`\"`, `\\`, `\u00e9`, "\xff", "é"} {
				whole := `{"id":"` + strings.Repeat("x", at) + escape + strings.Repeat("y", n-at) + `","method":"m"}`
				m, err := Parse([]byte(whole))
				if err != nil || len(m.ID) != len(whole)-len(`{"id":,"method":"m"}`) {
					t.Fatalf("%q: %v %q", whole, err, m.ID)
				}
			}
		}
	}
}
