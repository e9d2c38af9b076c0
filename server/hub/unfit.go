package hub

import (
	"slices"
	"strconv"
	"strings"

	"majordomus/bridge/frame"
)

// Clients check a list as a whole: one entry that is not as the protocol has it,
// and many show none of any server's. So such an entry is left out, and said to
// be. It is held against what MCP's schema of 2025-11-25, in which hosted servers
// speak with us, says of the members of an entry. What that does not know passes.

// A fault is what is wrong with a value, in words that go behind the path that
// leads to it; "" is nothing.
type fault = string

// A rule is what a member must be.
type rule struct {
	key    string
	check  func(raw []byte) fault
	needed bool
}

func rulesOf(kind int) []rule {
	all := []rule{
		{"name", checkText, true}, {"title", checkText, false}, {"description", checkText, false}, {"icons", listOf(checkIcon), false}, {"_meta", checkObject, false},
	}
	switch kinds[kind].member {
	case "tools":
		return append(all, rule{"inputSchema", checkSchema, true}, rule{"outputSchema", checkSchema, false}, rule{"annotations", checkHints, false}, rule{"execution", checkExecution, false})
	case "prompts":
		return append(all, rule{"arguments", listOf(checkArgument), false})
	}
	return append(all, rule{"mimeType", checkText, false}, rule{"size", checkNumber, false}, rule{"annotations", checkObject, false})
}

// unfit says why an entry cannot be listed; "" is no reason.
func unfit(kind int, raw []byte) string {
	switch f := checkMembers(raw, rulesOf(kind)...); {
	case f == "":
		return ""
	case f[0] == '.':
		return "its " + f[1:]
	default:
		return "it" + f
	}
}

// checkMembers holds an object against rules.
func checkMembers(raw []byte, rules ...rule) (f fault) {
	if f := checkObject(raw); f != "" {
		return f
	}
	seen := map[string]bool{}
	// ignore error: what holds this was read
	_ = frame.Members(raw, func(key string, raw []byte) bool {
		if i := slices.IndexFunc(rules, func(r rule) bool { return r.key == key }); i >= 0 {
			seen[key] = true
			if f = rules[i].check(raw); f != "" {
				f = "." + key + f
			}
		}
		return f == ""
	})
	for _, r := range rules {
		if f == "" && r.needed && !seen[r.key] {
			f = " lacks " + r.key
		}
	}
	return f
}

func must(be bool, what string, raw []byte) fault {
	if be {
		return ""
	}
	return " is " + brief(raw) + ", and must be " + what
}

func checkText(raw []byte) fault   { return must(raw[0] == '"', "a string", raw) }
func checkObject(raw []byte) fault { return must(raw[0] == '{', "an object", raw) }
func checkFlag(raw []byte) fault   { return must(raw[0] == 't' || raw[0] == 'f', "true or false", raw) }
func checkNumber(raw []byte) fault {
	return must(raw[0] == '-' || '0' <= raw[0] && raw[0] <= '9', "a number", raw)
}

func listOf(check func(raw []byte) fault) func(raw []byte) fault {
	return func(raw []byte) (f fault) {
		if f := must(raw[0] == '[', "a list", raw); f != "" {
			return f
		}
		n := 0
		// ignore error: what holds this was read
		_ = frame.Elements(raw, func(raw []byte) bool {
			if f = check(raw); f != "" {
				f = "[" + strconv.Itoa(n) + "]" + f
			}
			n++
			return f == ""
		})
		return f
	}
}

// checkSchema is for what goes into a tool, or comes out of it: at its top it is
// an object's schema and nothing else's. And where JSON Schema lets a property be
// true or false, MCP does not.
func checkSchema(raw []byte) fault {
	return checkMembers(raw, rule{"type", oneOf("object"), true}, rule{"properties", func(raw []byte) (f fault) {
		if f := checkObject(raw); f != "" {
			return f
		}
		// ignore error: what holds this was read
		_ = frame.Members(raw, func(key string, raw []byte) bool {
			if f = checkObject(raw); f != "" {
				f = "." + brief([]byte(key)) + f
			}
			return f == ""
		})
		return f
	}, false}, rule{"required", listOf(checkText), false})
}

func oneOf(words ...string) func(raw []byte) fault {
	return func(raw []byte) fault {
		what := `"` + strings.Join(words, `" or "`) + `"`
		s, ok := frame.Text(raw)
		return must(ok && slices.Contains(words, s), what, raw)
	}
}

func checkIcon(raw []byte) fault {
	return checkMembers(raw, rule{"src", checkText, true}, rule{"mimeType", checkText, false}, rule{"sizes", listOf(checkText), false}, rule{"theme", oneOf("light", "dark"), false})
}

func checkArgument(raw []byte) fault {
	return checkMembers(raw, rule{"name", checkText, true}, rule{"title", checkText, false}, rule{"description", checkText, false}, rule{"required", checkFlag, false})
}

func checkHints(raw []byte) fault {
	return checkMembers(raw, rule{"title", checkText, false}, rule{"readOnlyHint", checkFlag, false}, rule{"destructiveHint", checkFlag, false},
		rule{"idempotentHint", checkFlag, false}, rule{"openWorldHint", checkFlag, false})
}

// checkExecution is for how a tool is run. One that is only run as a task would be listed
// and never answer: tasks/* is not routed.
func checkExecution(raw []byte) fault {
	return checkMembers(raw, rule{"taskSupport", func(raw []byte) fault {
		if s, _ := frame.Text(raw); s == "required" {
			return ` is "required": it is only run as a task, which is not supported yet`
		}
		return oneOf("optional", "forbidden", "required")(raw)
	}, false})
}
