package hub

import "testing"

func TestCompleted(t *testing.T) {
	for _, test := range []struct{ method, result, want string }{
		{"tools/call", `{}`, `{"resultType":"complete"}`},
		{"tools/call", `{ "a" : [1] }`, `{ "a" : [1] ,"resultType":"complete"}`},
		{"tools/call", `{"resultType":null,"a":1}`, `{"resultType":null,"a":1}`},
		{"tools/call", `{"a":{"resultType":"complete"}}`, `{"a":{"resultType":"complete"},"resultType":"complete"}`},
		{"tools/call", `3`, `3`},
		{"resources/read", `{}`, `{"resultType":"complete","ttlMs":0,"cacheScope":"private"}`},
		{"resources/read", `{"ttlMs":5,"a":1}`, `{"ttlMs":5,"a":1,"resultType":"complete","cacheScope":"private"}`},
		{"resources/read", `{"ttlMs":5,"cacheScope":"public"}`, `{"ttlMs":5,"cacheScope":"public","resultType":"complete"}`},
		{"resources/read", `{"resultType":"input_required"}`, `{"resultType":"input_required"}`},
	} {
		if got := string(completed([]byte(test.result), test.method).Bytes()); got != test.want {
			t.Errorf("%s: %s became %s, want %s", test.method, test.result, got, test.want)
		}
	}
}
