package hub

import (
	"strings"
	"testing"
)

// An entry that clients refuse together with its whole list, and one that they
// take however odd it is.
func TestUnfit(t *testing.T) {
	for _, c := range []struct {
		kind      int
		raw, says string // what of it must be said; "" where it is fit
	}{
		{0, `{"name":"a","inputSchema":{"type":"object"}}`, ""},
		{0, `{"x-own":null,"name":"a","inputSchema":{"$defs":{"b":true},"x":1e2,"type":"object","anyOf":[{},true],"properties":{"type":{"type":["string","null"]}},"required":[]}}`, ""},
		{0, `{"name":"a","inputSchema":{"type":"object"},"outputSchema":{"type":"object"},"title":"A","description":"","annotations":{"readOnlyHint":true,"x":0},"icons":[{"src":"b","theme":"dark","x":1}],"_meta":{"k":null},"execution":{"taskSupport":"optional"}}`, ""},
		{0, `{"name":"a","inputSchema":{"type":"object"},"execution":{}}`, ""},
		{0, `{"name":"a"}`, "it lacks inputSchema"},
		{0, `{"name":"a","inputSchema":null}`, "its inputSchema is null, and must be an object"},
		{0, `{"name":"a","inputSchema":true}`, "its inputSchema is true"},
		{0, `{"name":"a","inputSchema":{}}`, "its inputSchema lacks type"},
		{0, `{"name":"a","inputSchema":{"type":["object","null"]}}`, `its inputSchema.type is ["object","null"], and must be "object"`},
		{0, `{"name":"a","inputSchema":{"type":"string"}}`, `its inputSchema.type is "string"`},
		{0, `{"name":"a","inputSchema":{"type":"object","properties":{"n":true}}}`, "its inputSchema.properties.n is true, and must be an object"},
		{0, `{"name":"a","inputSchema":{"type":"object","properties":null}}`, "its inputSchema.properties is null"},
		{0, `{"name":"a","inputSchema":{"type":"object","required":["b",1]}}`, "its inputSchema.required[1] is 1, and must be a string"},
		{0, `{"name":"a","inputSchema":{"type":"object","required":null}}`, "its inputSchema.required is null, and must be a list"},
		{0, `{"name":"a","inputSchema":{"type":"object"},"outputSchema":{}}`, "its outputSchema lacks type"},
		{0, `{"name":"a","inputSchema":{"type":"object"},"outputSchema":{"type":"array"}}`, `its outputSchema.type is "array"`},
		{0, `{"name":"a","inputSchema":{"type":"object"},"outputSchema":null}`, "its outputSchema is null"},
		{0, `{"name":"a","inputSchema":{"type":"object"},"title":null}`, "its title is null, and must be a string"},
		{0, `{"name":"a","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":"yes"}}`, `its annotations.readOnlyHint is "yes", and must be true or false`},
		{0, `{"name":"a","inputSchema":{"type":"object"},"icons":[{"src":"b"},{}]}`, "its icons[1] lacks src"},
		{0, `{"name":"a","inputSchema":{"type":"object"},"icons":[{"src":"b","theme":"red"}]}`, `its icons[0].theme is "red", and must be "light" or "dark"`},
		{0, `{"name":"a","inputSchema":{"type":"object"},"_meta":[]}`, "its _meta is []"},
		{0, `{"name":"a","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}`, "only run as a task"},
		{0, `{"name":"a","inputSchema":{"type":"object"},"execution":{"taskSupport":"maybe"}}`, `its execution.taskSupport is "maybe"`},
		{0, `7`, "it is 7, and must be an object"},
		{1, `{"name":"a"}`, ""},
		{1, `{"name":"a","arguments":[{"name":"b","required":true,"x":1}]}`, ""},
		{1, `{"name":"a","arguments":[{}]}`, "its arguments[0] lacks name"},
		{1, `{"name":"a","arguments":{}}`, "its arguments is {}, and must be a list"},
		{2, `{"uri":"a:b","name":"a","size":0.5,"mimeType":"x","annotations":{"priority":1}}`, ""},
		{2, `{"uri":"a:b"}`, "it lacks name"},
		{2, `{"uri":"a:b","name":"a","size":"1"}`, `its size is "1", and must be a number`},
		{3, `{"uriTemplate":"a:{b}","name":"a"}`, ""},
		{3, `{"uriTemplate":"a:{b}","name":"a","mimeType":null}`, "its mimeType is null"},
	} {
		if got := unfit(c.kind, []byte(c.raw)); !strings.Contains(got, c.says) || (got == "") != (c.says == "") {
			t.Errorf("%s: %q, want %q", c.raw, got, c.says)
		}
	}
}
