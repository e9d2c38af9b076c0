package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// begin is how most clients begin.
const begin = `
	1 joined
	c> {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"capabilities":{"roots":{}}}}
	1< {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"capabilities":{"roots":{}}}}
	1> !accepted 1
	1> {"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}
	c< {"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}
	c> {"jsonrpc":"2.0","method":"notifications/initialized"}
	1< {"jsonrpc":"2.0","method":"notifications/initialized"}
`

// again is how the second server is told of such a client.
const again = `
	2< {"jsonrpc":"2.0","id":$init,"method":"initialize","params":{"capabilities":{"roots":{}}}}
	2> !accepted 1
	2> {"jsonrpc":"2.0","id":$init,"result":{"protocolVersion":"2025-11-25"}}
	2< {"jsonrpc":"2.0","method":"notifications/initialized"}
`

func TestRules(t *testing.T) {
	for name, text := range map[string]string{
		"bytes pass as they are": begin + `
			c> { "id":9007199254740993 ,"method":"x/y", "params":{"b":1.50,"a":"\u00e9</b>\u2028"},"extra":[1e3] }
			1< { "id":9007199254740993 ,"method":"x/y", "params":{"b":1.50,"a":"\u00e9</b>\u2028"},"extra":[1e3] }
			1> {"result" : {"n":18446744073709551615}, "id":9007199254740993}
			c< {"result" : {"n":18446744073709551615}, "id":9007199254740993}
			1> {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}
			c< {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}
			c> {"jsonrpc":"2.0","method":"notifications/other","params":[1]}
			1< {"jsonrpc":"2.0","method":"notifications/other","params":[1]}
		`,
		"ids are bytes": `
			1 joined
			c> {"id":1,"method":"ping"}
			c> {"id":"1","method":"ping"}
			1< {"id":1,"method":"ping"}
			1< {"id":"1","method":"ping"}
			1> {"id":"1","result":{}}
			c< {"id":"1","result":{}}
			1> {"id":1.0,"result":{}}
			1> {"id":1,"result":{}}
			c< {"id":1,"result":{}}
		`,
		"what is no message is answered and the stream goes on": `
			1 joined
			c> hello
			c< {"jsonrpc":"2.0","id":null,"error":{"code":-32700~
			c> !bye
			c< {"jsonrpc":"2.0","id":null,"error":{"code":-32700~
			c> [{"id":1,"method":"ping"}]
			c< {"jsonrpc":"2.0","id":null,"error":{"code":-32600~
			c> {"id":7}
			c< {"jsonrpc":"2.0","id":7,"error":{"code":-32600~
			c> {"id":null,"method":"ping"}
			c< {"jsonrpc":"2.0","id":null,"error":{"code":-32600~
			c> {"id":5,"result":{}}
			c> {"id":2,"method":"ping"}
			1< {"id":2,"method":"ping"}
			1> {"id":2,"result":{}}
			c< {"id":2,"result":{}}
		`,
		"an id in flight is refused": `
			1 joined
			c> {"id":1,"method":"tools/call","params":{"name":"a"}}
			1< {"id":1,"method":"tools/call","params":{"name":"a"}}
			c> {"id":1,"method":"tools/call","params":{"name":"b"}}
			c< {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"id already in flight"}}
			c> {"id":1,"method":7}
			c< {"jsonrpc":"2.0","id":null,"error":{"code":-32600~
			1> {"id":1,"result":{}}
			c< {"id":1,"result":{}}
			c> {"id":1,"method":"tools/call","params":{"name":"b"}}
			1< {"id":1,"method":"tools/call","params":{"name":"b"}}
		`,
		"a second answer is dropped": `
			1 joined
			c> {"id":1,"method":"ping"}
			1< {"id":1,"method":"ping"}
			1> {"id":1,"result":1}
			1> {"id":1,"result":2}
			1> {"id":3,"result":2}
			c< {"id":1,"result":1}
		`,
		"death between calls": begin + `
			1 dies
		` + again + `
			c> {"id":1,"method":"ping"}
			2< {"id":1,"method":"ping"}
			2> {"id":1,"result":{}}
			c< {"id":1,"result":{}}
		`,
		"a call not accepted is sent again": begin + `
			c> {"id":1,"method":"tools/call","params":{"name":"a"}}
			1< {"id":1,"method":"tools/call","params":{"name":"a"}}
			1 dies
		` + again + `
			2< {"id":1,"method":"tools/call","params":{"name":"a"}}
			2> !accepted 2
			2> {"id":1,"result":{}}
			c< {"id":1,"result":{}}
		`,
		"a call accepted is not": begin + `
			c> {"id":"x","method":"tools/call","params":{"name":"a"}}
			1< {"id":"x","method":"tools/call","params":{"name":"a"}}
			c> {"id":2,"method":"tools/call","params":{"name":"a"}}
			1< {"id":2,"method":"tools/call","params":{"name":"a"}}
			1> !accepted 2
			1> !accepted 99
			1> !unknown
			1 dies
			c< {"jsonrpc":"2.0","id":"x","error":{"code":-32603,"message":~"data":{"code":"outcome_unknown"}}}
		` + again + `
			2< {"id":2,"method":"tools/call","params":{"name":"a"}}
		`,
		"numbers begin anew on each link, replays included": begin + `
			c> {"id":1,"method":"tools/call","params":{"name":"a"}}
			1< {"id":1,"method":"tools/call","params":{"name":"a"}}
			1 dies
		` + again + `
			2< {"id":1,"method":"tools/call","params":{"name":"a"}}
			2> !accepted 2
			2 dies
			c< {"jsonrpc":"2.0","id":1,"error":{"code":-32603,~"outcome_unknown"
			sleep 30ms
			3< {"jsonrpc":"2.0","id":$third,"method":"initialize","params":{"capabilities":{"roots":{}}}}
		`,
		"what may run twice is sent again": begin + `
			c> {"id":1,"method":"resources/read","params":{"uri":"a"}}
			1< {"id":1,"method":"resources/read","params":{"uri":"a"}}
			1> !accepted 2
			c> {"id":2,"method":"prompts/list"}
			1< {"id":2,"method":"prompts/list"}
			1> !accepted 3
			c> {"id":3,"method":"vendor/do"}
			1< {"id":3,"method":"vendor/do"}
			1> !accepted 4
			1 dies
			c< {"jsonrpc":"2.0","id":3,"error":~outcome_unknown
		` + again + `
			2< {"id":1,"method":"resources/read","params":{"uri":"a"}}
			2< {"id":2,"method":"prompts/list"}
		`,
		"so are calls of tools that declare it": begin + `
			c> {"id":1,"method":"tools/list"}
			1< {"id":1,"method":"tools/list"}
			1> {"id":1,"result":{"tools":[{"name":"ro","annotations":{"readOnlyHint":true}},{"name":"rw","annotations":{"readOnlyHint":false}},{"name":"bare"}],"nextCursor":"2"}}
			c< {"id":1,"result":{"tools":[{"name":"ro","annotations":{"readOnlyHint":true}},{"name":"rw","annotations":{"readOnlyHint":false}},{"name":"bare"}],"nextCursor":"2"}}
			c> {"id":2,"method":"tools/list","params":{"cursor":"2"}}
			1< {"id":2,"method":"tools/list","params":{"cursor":"2"}}
			1> {"id":2,"result":{"tools":[{"name":"idem","annotations":{"idempotentHint":true}}]}}
			c< {"id":2,"result":{"tools":[{"name":"idem","annotations":{"idempotentHint":true}}]}}
			c> {"id":3,"method":"tools/call","params":{"name":"ro"}}
			c> {"id":4,"method":"tools/call","params":{"name":"rw"}}
			c> {"id":5,"method":"tools/call","params":{"name":"bare"}}
			c> {"id":6,"method":"tools/call","params":{"name":"idem"}}
			1< {"id":3,"method":"tools/call","params":{"name":"ro"}}
			1< {"id":4,"method":"tools/call","params":{"name":"rw"}}
			1< {"id":5,"method":"tools/call","params":{"name":"bare"}}
			1< {"id":6,"method":"tools/call","params":{"name":"idem"}}
			1> !accepted 4
			1> !accepted 5
			1> !accepted 6
			1> !accepted 7
			1 dies
			c< {"jsonrpc":"2.0","id":4,"error":~outcome_unknown
			c< {"jsonrpc":"2.0","id":5,"error":~outcome_unknown
		` + again + `
			2< {"id":3,"method":"tools/call","params":{"name":"ro"}}
			2< {"id":6,"method":"tools/call","params":{"name":"idem"}}
		`,
		"a declaration holds until the list changes": begin + `
			c> {"id":1,"method":"tools/list"}
			1< {"id":1,"method":"tools/list"}
			1> {"id":1,"result":{"tools":[{"name":"a","annotations":{"readOnlyHint":true}}]}}
			c< {"id":1,"result":{"tools":[{"name":"a","annotations":{"readOnlyHint":true}}]}}
			1> {"method":"notifications/tools/list_changed"}
			c< {"method":"notifications/tools/list_changed"}
			c> {"id":2,"method":"tools/call","params":{"name":"a"}}
			1< {"id":2,"method":"tools/call","params":{"name":"a"}}
			1> !accepted 3
			1 dies
			c< {"jsonrpc":"2.0","id":2,"error":~outcome_unknown
		` + again,
		"a request that kills every server is given up": begin + `
			c> {"id":1,"method":"resources/read"}
			1< {"id":1,"method":"resources/read"}
			1> !accepted 2
			1 dies
		` + again + `
			2< {"id":1,"method":"resources/read"}
			2> !accepted 2
			2 dies
			sleep 25ms
			3< {"jsonrpc":"2.0","id":$c,"method":"initialize","params":{"capabilities":{"roots":{}}}}
			3> {"jsonrpc":"2.0","id":$c,"result":{}}
			3< {"jsonrpc":"2.0","method":"notifications/initialized"}
			3< {"id":1,"method":"resources/read"}
			3> !accepted 2
			3 dies
			c< {"jsonrpc":"2.0","id":1,"error":~outcome_unknown
			sleep 50ms
			4< {"jsonrpc":"2.0","id":$d,"method":"initialize","params":{"capabilities":{"roots":{}}}}
		`,
		"death before the first answer": `
			1 joined
			c> {"id":0,"method":"initialize","params":{}}
			1< {"id":0,"method":"initialize","params":{}}
			1> !accepted 1
			1 dies
			2< {"id":0,"method":"initialize","params":{}}
			2> {"id":0,"result":{"v":2}}
			c< {"id":0,"result":{"v":2}}
			c> {"method":"notifications/initialized"}
			2< {"method":"notifications/initialized"}
		`,
		"death before anything": `
			1 joined
			1 dies
			2 joined
			c> {"id":0,"method":"server/discover","params":{}}
			2< {"id":0,"method":"server/discover","params":{}}
			2> {"id":0,"error":{"code":-32601,"message":"no"}}
			c< {"id":0,"error":{"code":-32601,"message":"no"}}
		`,
		"death while the next one is being told": begin + `
			c> {"id":1,"method":"tools/call","params":{"name":"a"}}
			1< {"id":1,"method":"tools/call","params":{"name":"a"}}
			1 dies
			2< {"jsonrpc":"2.0","id":$b,"method":"initialize","params":{"capabilities":{"roots":{}}}}
			c> {"id":2,"method":"ping"}
			2 dies
			sleep 25ms
			3< {"jsonrpc":"2.0","id":$c,"method":"initialize","params":{"capabilities":{"roots":{}}}}
			3> {"jsonrpc":"2.0","id":$c,"result":{}}
			3< {"jsonrpc":"2.0","method":"notifications/initialized"}
			3< {"id":1,"method":"tools/call","params":{"name":"a"}}
			3< {"id":2,"method":"ping"}
		`,
		"death between the answer and initialized": `
			1 joined
			c> {"id":0,"method":"initialize","params":{}}
			1< {"id":0,"method":"initialize","params":{}}
			1> {"id":0,"result":{}}
			c< {"id":0,"result":{}}
			slow 1s
			1 dies
			c> {"method":"notifications/initialized"}
			c> {"id":1,"method":"ping"}
			sleep 1s
			2< {"id":$a,"method":"initialize","params":{}}
			2> {"id":$a,"result":{}}
			2< {"method":"notifications/initialized"}
			2< {"id":1,"method":"ping"}
		`,
		"a next server that refuses the beginning is left": begin + `
			1 dies
			2< {"jsonrpc":"2.0","id":$b,"method":"initialize","params":{"capabilities":{"roots":{}}}}
			2> {"jsonrpc":"2.0","id":$b,"error":{"code":-1,"message":"no"}}
			sleep 25ms
			3< {"jsonrpc":"2.0","id":$c,"method":"initialize","params":{"capabilities":{"roots":{}}}}
		`,
		"the next server is told all in order": begin + `
			c> {"id":1,"method":"logging/setLevel","params":{"level":"info"}}
			1< {"id":1,"method":"logging/setLevel","params":{"level":"info"}}
			1> {"id":1,"result":{}}
			c< {"id":1,"result":{}}
			c> {"id":2,"method":"resources/subscribe","params":{"uri":"a"}}
			1< {"id":2,"method":"resources/subscribe","params":{"uri":"a"}}
			1> {"id":2,"result":{}}
			c< {"id":2,"result":{}}
			c> {"id":3,"method":"resources/subscribe","params":{"uri":"b"}}
			1< {"id":3,"method":"resources/subscribe","params":{"uri":"b"}}
			1> {"id":3,"result":{}}
			c< {"id":3,"result":{}}
			c> {"id":4,"method":"resources/unsubscribe","params":{"uri":"a"}}
			1< {"id":4,"method":"resources/unsubscribe","params":{"uri":"a"}}
			1> {"id":4,"result":{}}
			c< {"id":4,"result":{}}
			c> {"id":5,"method":"tools/call","params":{"name":"majordomus_announce","arguments":{"intent":"i","scope":["x"]},"_meta":{"progressToken":"p","k":1}}}
			1< {"id":5,"method":"tools/call","params":{"name":"majordomus_announce","arguments":{"intent":"i","scope":["x"]},"_meta":{"progressToken":"p","k":1}}}
			1> {"id":5,"result":{}}
			c< {"id":5,"result":{}}
			c> {"id":6,"method":"tools/call","params":{"name":"majordomus_announce","arguments":{"intent":"j","scope":["y"],"claim":"two"}}}
			1< {"id":6,"method":"tools/call","params":{"name":"majordomus_announce","arguments":{"intent":"j","scope":["y"],"claim":"two"}}}
			1> {"id":6,"result":{}}
			c< {"id":6,"result":{}}
			c> {"id":7,"method":"tools/call","params":{"name":"majordomus_announce","arguments":{"intent":"j","scope":[ ],"claim":"two"}}}
			1< {"id":7,"method":"tools/call","params":{"name":"majordomus_announce","arguments":{"intent":"j","scope":[ ],"claim":"two"}}}
			1> {"id":7,"result":{}}
			c< {"id":7,"result":{}}
			c> {"id":8,"method":"logging/setLevel","params":{"level":"debug"}}
			1< {"id":8,"method":"logging/setLevel","params":{"level":"debug"}}
			1> {"id":8,"result":{}}
			c< {"id":8,"result":{}}
			c> {"id":9,"method":"tools/call","params":{"name":"a"}}
			1< {"id":9,"method":"tools/call","params":{"name":"a"}}
			1 dies
		` + again + `
			2< {"id":$b,"method":"resources/subscribe","params":{"uri":"b"}}
			2< {"id":$c,"method":"tools/call","params":{"name":"majordomus_announce","arguments":{"intent":"i","scope":["x"]},"_meta":{"progressToken":$c,"k":1}}}
			2< {"id":$d,"method":"logging/setLevel","params":{"level":"debug"}}
			2< {"id":9,"method":"tools/call","params":{"name":"a"}}
			2> {"method":"notifications/progress","params":{"progressToken":$c,"progress":1}}
			2> {"id":$c,"result":{}}
			2> {"id":$b,"error":{"code":1,"message":"m"}}
			2> {"id":$d,"result":{}}
			2> {"id":9,"result":{}}
			c< {"id":9,"result":{}}
		`,
		"what was refused is not remembered": begin + `
			c> {"id":1,"method":"logging/setLevel","params":{"level":"info"}}
			1< {"id":1,"method":"logging/setLevel","params":{"level":"info"}}
			1> {"id":1,"result":{}}
			c< {"id":1,"result":{}}
			c> {"id":2,"method":"logging/setLevel","params":{"level":"nonsense"}}
			1< {"id":2,"method":"logging/setLevel","params":{"level":"nonsense"}}
			1> {"id":2,"error":{"code":-32602,"message":"no"}}
			c< {"id":2,"error":{"code":-32602,"message":"no"}}
			c> {"id":3,"method":"resources/subscribe","params":{"uri":"a"}}
			1< {"id":3,"method":"resources/subscribe","params":{"uri":"a"}}
			1> {"id":3,"error":{"code":-32602,"message":"no"}}
			c< {"id":3,"error":{"code":-32602,"message":"no"}}
			c> {"id":4,"method":"tools/call","params":{"name":"majordomus_announce","arguments":{"scope":["x"]}}}
			1< {"id":4,"method":"tools/call","params":{"name":"majordomus_announce","arguments":{"scope":["x"]}}}
			1> {"id":4,"result":{"isError":true}}
			c< {"id":4,"result":{"isError":true}}
			1 dies
		` + again + `
			2< {"id":$b,"method":"logging/setLevel","params":{"level":"info"}}
		`,
		"a client that begins anew is told anew": begin + `
			c> {"id":1,"method":"logging/setLevel","params":{"level":"info"}}
			1< {"id":1,"method":"logging/setLevel","params":{"level":"info"}}
			1> {"id":1,"result":{}}
			c< {"id":1,"result":{}}
			c> {"id":"again","method":"initialize","params":{}}
			1< {"id":"again","method":"initialize","params":{}}
			1> !accepted 3
			1 dies
			2< {"id":"again","method":"initialize","params":{}}
		`,
		"cancelled": begin + `
			c> {"id":1,"method":"tools/call","params":{"name":"a"}}
			1< {"id":1,"method":"tools/call","params":{"name":"a"}}
			c> {"method":"notifications/cancelled","params":{"requestId":1}}
			1< {"method":"notifications/cancelled","params":{"requestId":1}}
			# too late, and nobody's
			c> {"method":"notifications/cancelled","params":{"requestId":1}}
			c> {"method":"notifications/cancelled","params":{"requestId":"1"}}
			c> {"method":"notifications/cancelled"}
			1> {"id":1,"result":{}}
			1 dies
		` + again,
		"cancelled before it was sent": `
			1 joined
			slow 1s
			1 dies
			c> {"id":1,"method":"tools/call","params":{"name":"a"}}
			c> {"id":2,"method":"tools/call","params":{"name":"b"}}
			c> {"method":"notifications/cancelled","params":{"requestId":1}}
			sleep 1s
			2< {"id":2,"method":"tools/call","params":{"name":"b"}}
		`,
		"progress belongs to what is in flight": begin + `
			c> {"id":1,"method":"tools/call","params":{"name":"a","_meta":{"progressToken":7}}}
			1< {"id":1,"method":"tools/call","params":{"name":"a","_meta":{"progressToken":7}}}
			1> {"method":"notifications/progress","params":{"progressToken":7,"progress":1}}
			c< {"method":"notifications/progress","params":{"progressToken":7,"progress":1}}
			1> {"method":"notifications/progress","params":{"progressToken":"7","progress":1}}
			1> {"method":"notifications/progress","params":{"progress":1}}
			1> {"id":1,"result":{}}
			1> {"method":"notifications/progress","params":{"progressToken":7,"progress":2}}
			c< {"id":1,"result":{}}
		`,
		"questions": begin + `
			1> {"id":"q1","method":"sampling/createMessage","params":{"_meta":{"progressToken":"t"}}}
			c< {"id":"q1","method":"sampling/createMessage","params":{"_meta":{"progressToken":"t"}}}
			c> {"method":"notifications/progress","params":{"progressToken":"t","progress":1}}
			1< {"method":"notifications/progress","params":{"progressToken":"t","progress":1}}
			c> {"method":"notifications/progress","params":{"progressToken":"u","progress":1}}
			c> {"id":"q1","result":{"x":1.0}}
			1< {"id":"q1","result":{"x":1.0}}
			c> {"id":"q1","result":{"x":1.0}}
			1> {"id":"q2","method":"roots/list"}
			c< {"id":"q2","method":"roots/list"}
			1> {"method":"notifications/cancelled","params":{"requestId":"q2"}}
			c< {"method":"notifications/cancelled","params":{"requestId":"q2"}}
			1> {"method":"notifications/cancelled","params":{"requestId":"q2"}}
			c> {"id":"q2","result":{}}
			1> {"id":"q3","method":"roots/list"}
			c< {"id":"q3","method":"roots/list"}
			1 dies
			c< {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q3",~
		` + again + `
			c> {"id":"q3","result":{"late":true}}
		`,
		"an answer to a question that cannot be read": begin + `
			1> {"id":"q1","method":"roots/list"}
			c< {"id":"q1","method":"roots/list"}
			c> {"id":"q1","result":"LONG"}
			1< {"id":"q1","result":"LONG"}
		`,
		"a changed registry is told after a move": `
			1 joined
			1> !registry aa
		` + begin[len("\n\t1 joined"):] + `
			c> {"id":1,"method":"tools/list"}
			1< {"id":1,"method":"tools/list"}
			1> {"id":1,"result":{"tools":[]}}
			c< {"id":1,"result":{"tools":[]}}
			c> {"id":2,"method":"resources/templates/list"}
			1< {"id":2,"method":"resources/templates/list"}
			1> {"id":2,"result":{}}
			c< {"id":2,"result":{}}
			1> !registry bb
			1 dies
			2< {"jsonrpc":"2.0","id":$init,"method":"initialize","params":{"capabilities":{"roots":{}}}}
			2> !registry cc
			c< {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}
			c< {"jsonrpc":"2.0","method":"notifications/resources/list_changed"}
			2> {"jsonrpc":"2.0","id":$init,"result":{}}
			2< {"jsonrpc":"2.0","method":"notifications/initialized"}
			2 dies
			sleep 25ms
			3< {"jsonrpc":"2.0","id":$c,"method":"initialize","params":{"capabilities":{"roots":{}}}}
			3> !registry cc
		`,
		"listens": `
			1 joined
			1> !registry aa
			c> {"id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"promptsListChanged":false}}}
			1< {"id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"promptsListChanged":false}}}
			1> !accepted 1
			1> {"method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}
			c< {"method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}
			c> {"id":"r","method":"subscriptions/listen","params":{"notifications":{"resourcesListChanged":true}}}
			1< {"id":"r","method":"subscriptions/listen","params":{"notifications":{"resourcesListChanged":true}}}
			1 dies
			2< {"id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"promptsListChanged":false}}}
			2< {"id":"r","method":"subscriptions/listen","params":{"notifications":{"resourcesListChanged":true}}}
			2> !registry bb
			c< {"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}
			c< {"jsonrpc":"2.0","method":"notifications/resources/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"r"}}}
			2> {"method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}
			2> {"method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"r"}}}
			c< {"method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"r"}}}
			2> {"method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}
			c< {"method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}
			2> {"method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"other"}}}
			c> {"method":"notifications/cancelled","params":{"requestId":"r"}}
			2< {"method":"notifications/cancelled","params":{"requestId":"r"}}
			# The one that closes by itself is answered.
			2> {"id":"l","result":{}}
			c< {"id":"l","result":{}}
			2 dies
			3 joined
		`,
		"a listen that a leaving server closes goes on": `
			1 joined
			c> {"id":"l","method":"subscriptions/listen","params":{}}
			1< {"id":"l","method":"subscriptions/listen","params":{}}
			1> {"method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}
			c< {"method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}
			slow 1s
			1> !draining
			1> {"id":"l","result":{}}
			sleep 1s
			1< !bye
			2< {"id":"l","method":"subscriptions/listen","params":{}}
			2> {"method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}
			1 gone
		`,
		"a lost server is left at once when idle": begin + `
			1> !lost
		` + `
			2< {"jsonrpc":"2.0","id":$init,"method":"initialize","params":{"capabilities":{"roots":{}}}}
			2> {"jsonrpc":"2.0","id":$init,"result":{}}
			2< {"jsonrpc":"2.0","method":"notifications/initialized"}
			1< !bye
			1 gone
		`,
		"a lost server is left when its call is done": begin + `
			c> {"id":1,"method":"tools/call","params":{"name":"a"}}
			1< {"id":1,"method":"tools/call","params":{"name":"a"}}
			1> !accepted 2
			1> !lost
			sleep 900ms
			1> {"id":1,"result":{}}
			c< {"id":1,"result":{}}
		` + again + `
			1< !bye
		`,
		"two links at once": begin + `
			c> {"id":1,"method":"tools/call","params":{"name":"a","_meta":{"progressToken":1}}}
			1< {"id":1,"method":"tools/call","params":{"name":"a","_meta":{"progressToken":1}}}
			1> !accepted 2
			1> !draining
			sleep 900ms
			1> !pong
			sleep 900ms
			1> !pong
			sleep 900ms
			1> !pong
			sleep 300ms
			2< {"jsonrpc":"2.0","id":$init,"method":"initialize","params":{"capabilities":{"roots":{}}}}
			2> {"jsonrpc":"2.0","id":$init,"result":{}}
			2< {"jsonrpc":"2.0","method":"notifications/initialized"}
			c> {"id":2,"method":"tools/call","params":{"name":"b"}}
			2< {"id":2,"method":"tools/call","params":{"name":"b"}}
			1> {"method":"notifications/progress","params":{"progressToken":1,"progress":1}}
			c< {"method":"notifications/progress","params":{"progressToken":1,"progress":1}}
			1> {"id":"q1","method":"elicitation/create"}
			c< {"id":"q1","method":"elicitation/create"}
			2> {"id":"q2","method":"elicitation/create"}
			c< {"id":"q2","method":"elicitation/create"}
			c> {"id":"q1","result":{}}
			1< {"id":"q1","result":{}}
			c> {"id":"q2","result":{}}
			2< {"id":"q2","result":{}}
			1> {"id":"q3","method":"elicitation/create"}
			c< {"id":"q3","method":"elicitation/create"}
			c> {"method":"notifications/other"}
			2< {"method":"notifications/other"}
			# An answer counts only from where the call is.
			1> {"id":2,"result":{"wrong":1}}
			2> {"id":1,"result":{"wrong":1}}
			2> {"id":2,"result":{}}
			c< {"id":2,"result":{}}
			1> {"id":1,"result":{}}
			c< {"id":1,"result":{}}
			goes on
			c> {"id":"q3","result":{}}
			1< {"id":"q3","result":{}}
			1< !bye
			1 gone
		`,
		"the old one of two dies": begin + `
			c> {"id":1,"method":"tools/call","params":{"name":"a"}}
			1< {"id":1,"method":"tools/call","params":{"name":"a"}}
			c> {"id":2,"method":"tools/call","params":{"name":"b"}}
			1< {"id":2,"method":"tools/call","params":{"name":"b"}}
			1> !accepted 2
			1> !draining
			sleep 900ms
			1> !pong
			sleep 900ms
			1> !pong
			sleep 900ms
			1> !pong
			sleep 300ms
		` + again + `
			1 dies
			c< {"jsonrpc":"2.0","id":1,"error":~outcome_unknown
			2< {"id":2,"method":"tools/call","params":{"name":"b"}}
		`,
		"the order is kept when both die": begin + `
			c> {"id":1,"method":"tools/call","params":{"name":"a"}}
			1< {"id":1,"method":"tools/call","params":{"name":"a"}}
			1> !draining
			sleep 900ms
			1> !pong
			sleep 900ms
			1> !pong
			sleep 900ms
			1> !pong
			sleep 300ms
			2< {"jsonrpc":"2.0","id":$init,"method":"initialize","params":{"capabilities":{"roots":{}}}}
			c> {"id":2,"method":"tools/call","params":{"name":"b"}}
			1 dies
			2> {"jsonrpc":"2.0","id":$init,"result":{}}
			2< {"jsonrpc":"2.0","method":"notifications/initialized"}
			2< {"id":1,"method":"tools/call","params":{"name":"a"}}
			2< {"id":2,"method":"tools/call","params":{"name":"b"}}
		`,
		"a move that is refused stays": begin + `
			refuse 409 lease_lost
			1> !lost
			c> {"id":1,"method":"ping"}
			1< {"id":1,"method":"ping"}
			1> {"id":1,"result":{}}
			c< {"id":1,"result":{}}
			sleep 99ms
			sleep 1ms
			2< {"jsonrpc":"2.0","id":$init,"method":"initialize","params":{"capabilities":{"roots":{}}}}
		`,
		"a death during a search ends no other one": `
			1 joined
			slow 2s
			1 dies
			sleep 2s
			2 joined
			slow 5s
			sleep 5500ms
			2> !lost
			sleep 600ms
			c> {"id":1,"method":"tools/call","params":{"name":"a"}}
			2< {"id":1,"method":"tools/call","params":{"name":"a"}}
			2 dies
			sleep 4399ms
			sleep 1ms
			3< {"id":1,"method":"tools/call","params":{"name":"a"}}
		`,
		"a client that does not wait": `
			1 joined
			slow 1s
			1 dies
			c> {"id":0,"method":"initialize","params":{}}
			c> {"method":"notifications/initialized"}
			c> {"id":1,"method":"tools/list"}
			sleep 1s
			2< {"id":0,"method":"initialize","params":{}}
			2< {"method":"notifications/initialized"}
			2< {"id":1,"method":"tools/list"}
			2> !accepted 1
			2 dies
			sleep 1s
			sleep 25ms
			3< {"id":0,"method":"initialize","params":{}}
			3< {"method":"notifications/initialized"}
			3< {"id":1,"method":"tools/list"}
			3> {"id":0,"result":{}}
			c< {"id":0,"result":{}}
			3> {"id":1,"result":{}}
			c< {"id":1,"result":{}}
			3 dies
			sleep 1s
			4< {"id":$d,"method":"initialize","params":{}}
			4> {"id":$d,"result":{}}
			4< {"method":"notifications/initialized"}
		`,
		"a listen before there is a server": `
			1 joined
			slow 1s
			1 dies
			c> {"id":"l","method":"subscriptions/listen","params":{}}
			sleep 1s
			2< {"id":"l","method":"subscriptions/listen","params":{}}
		`,
		"tools that are no longer listed": begin + `
			c> {"id":1,"method":"tools/list"}
			1< {"id":1,"method":"tools/list"}
			1> {"id":1,"result":{"tools":[{"name":"a","annotations":{"readOnlyHint":true}}]}}
			c< {"id":1,"result":{"tools":[{"name":"a","annotations":{"readOnlyHint":true}}]}}
			c> {"id":1,"method":"tools/list"}
			1< {"id":1,"method":"tools/list"}
			1> {"id":1,"result":{"tools":[{"name":"b"}]}}
			c< {"id":1,"result":{"tools":[{"name":"b"}]}}
			c> {"id":2,"method":"tools/call","params":{"name":"a"}}
			1< {"id":2,"method":"tools/call","params":{"name":"a"}}
			1> !accepted 4
			1 dies
			c< {"jsonrpc":"2.0","id":2,"error":~outcome_unknown
		` + again,
		"a claim without a name is the default one": begin + `
			c> {"id":1,"method":"tools/call","params":{"name":"majordomus_announce","arguments":{"scope":["x"]}}}
			1< {"id":1,"method":"tools/call","params":{"name":"majordomus_announce","arguments":{"scope":["x"]}}}
			c> {"id":2,"method":"tools/call","params":{"name":"majordomus_announce","arguments":{"scope":["y"],"claim":"default"}}}
			1< {"id":2,"method":"tools/call","params":{"name":"majordomus_announce","arguments":{"scope":["y"],"claim":"default"}}}
			1> {"id":1,"result":{}}
			c< {"id":1,"result":{}}
			1> {"id":2,"result":{}}
			c< {"id":2,"result":{}}
			1 dies
		` + again + `
			2< {"id":$b,"method":"tools/call","params":{"name":"majordomus_announce","arguments":{"scope":["y"],"claim":"default"}}}
		`,
		"a request that nobody lives to take": `
			1 joined
			c> {"id":1,"method":"x"}
			1< {"id":1,"method":"x"}
			1 dies
			2< {"id":1,"method":"x"}
			2 dies
			sleep 25ms
			3< {"id":1,"method":"x"}
			3 dies
			sleep 50ms
			4< {"id":1,"method":"x"}
			4 dies
			sleep 100ms
			5< {"id":1,"method":"x"}
			5 dies
			sleep 200ms
			6< {"id":1,"method":"x"}
			6 dies
			sleep 400ms
			7< {"id":1,"method":"x"}
			7 dies
			sleep 800ms
			8< {"id":1,"method":"x"}
			8 dies
			c< {"jsonrpc":"2.0","id":1,"error":~server_unavailable
			sleep 1s
			9 joined
		`,
		"a move that finds nobody stays": begin + `
			find nobody
			1> !lost
			c> {"id":1,"method":"ping"}
			1< {"id":1,"method":"ping"}
			1> {"id":1,"result":{}}
			c< {"id":1,"result":{}}
			find ok
			sleep 99ms
			sleep 1ms
			2< {"jsonrpc":"2.0","id":$init,"method":"initialize","params":{"capabilities":{"roots":{}}}}
			sleep 1s
			2< !ping
			2> {"jsonrpc":"2.0","id":$init,"result":{}}
			1< !bye
			2< {"jsonrpc":"2.0","method":"notifications/initialized"}
		`,
		"a move during initialize takes it along": `
			1 joined
			c> {"id":0,"method":"initialize"}
			1< {"id":0,"method":"initialize"}
			1> !draining
			sleep 900ms
			1> !pong
			sleep 900ms
			1> !pong
			sleep 900ms
			1> !pong
			sleep 300ms
			2< {"id":0,"method":"initialize"}
			1< !bye
			2> {"id":0,"result":{}}
			c< {"id":0,"result":{}}
			c> {"method":"notifications/initialized"}
			2< {"method":"notifications/initialized"}
		`,
		"a hung server": begin + `
			sleep 1h
			c> {"id":1,"method":"tools/call","params":{"name":"a"}}
			1< {"id":1,"method":"tools/call","params":{"name":"a"}}
			sleep 1s
			1< !ping
			sleep 1999ms
			sleep 1ms
		` + again + `
			2< {"id":1,"method":"tools/call","params":{"name":"a"}}
		`,
		"a slow call of a live server": begin + `
			c> {"id":1,"method":"tools/call","params":{"name":"a"}}
			1< {"id":1,"method":"tools/call","params":{"name":"a"}}
			1> !accepted 2
			sleep 1s
			1< !ping
			sleep 1900ms
			1> !pong
			sleep 1s
			1< !ping
			1> !pong
			sleep 999ms
			1> !ping
			1< !pong
			sleep 999ms
			1> {"id":1,"result":{}}
			c< {"id":1,"result":{}}
			sleep 1h
		`,
		"an idle link is not asked": begin + `
			sleep 24h
			c> {"id":"l","method":"subscriptions/listen","params":{}}
			1< {"id":"l","method":"subscriptions/listen","params":{}}
			sleep 24h
			1> {"id":"q","method":"roots/list"}
			c< {"id":"q","method":"roots/list"}
			sleep 24h
		`,
		"a server that reads nothing": begin + `
			1 hangs
			c> {"method":"notifications/one"}
			c> {"method":"notifications/two"}
			1< {"method":"notifications/one"}
			sleep 3s
		` + again,
		"death while the server is looked for": begin + `
			slow 2s
			1 dies
			c> {"id":1,"method":"ping"}
			sleep 2s
		` + again + `
			2< {"id":1,"method":"ping"}
		`,
		"nobody is found": begin + `
			find no server can be had
			c> {"id":1,"method":"ping"}
			1< {"id":1,"method":"ping"}
			c> {"id":2,"method":"tools/call","params":{"name":"a"}}
			1< {"id":2,"method":"tools/call","params":{"name":"a"}}
			1 dies
			c< {"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"no server can be had","data":{"code":"server_unavailable"}}}
			c< {"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"no server can be had","data":{"code":"server_unavailable"}}}
			c> {"method":"notifications/other"}
			c> {"id":3,"method":"ping"}
			c< {"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"no server can be had","data":{"code":"server_unavailable"}}}
			find ok
			sleep 1h
			c> {"id":4,"method":"ping"}
		` + again + `
			2< {"id":4,"method":"ping"}
		`,
		"an acknowledged listen outlives a failed search": `
			1 joined
			c> {"id":"l","method":"subscriptions/listen","params":{}}
			1< {"id":"l","method":"subscriptions/listen","params":{}}
			1> {"method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}
			c< {"method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}
			find nobody
			1 dies
			c> {"id":"m","method":"subscriptions/listen","params":{}}
			c< {"jsonrpc":"2.0","id":"m","error":~server_unavailable
			find ok
			c> {"id":1,"method":"ping"}
			2< {"id":"l","method":"subscriptions/listen","params":{}}
			2< {"id":1,"method":"ping"}
		`,
		"refused, but not for good": begin + `
			refuse 409 lease_lost
			1 dies
			sleep 25ms
			2< {"jsonrpc":"2.0","id":$init,"method":"initialize","params":{"capabilities":{"roots":{}}}}
		`,
		"refused while draining": begin + `
			refuse 503 draining
			1 dies
			sleep 25ms
			2< {"jsonrpc":"2.0","id":$init,"method":"initialize","params":{"capabilities":{"roots":{}}}}
		`,
		"refused for good": begin + `
			c> {"id":1,"method":"ping"}
			1< {"id":1,"method":"ping"}
			refuse 429 too_many_sessions
			1 dies
			c< {"jsonrpc":"2.0","id":1,"error":~too_many_sessions
			sleep 1h
			c> {"id":2,"method":"ping"}
		` + again + `
			2< {"id":2,"method":"ping"}
		`,
		"a server that sends something else": begin + `
			c> {"id":1,"method":"tools/call","params":{"name":"a"}}
			1< {"id":1,"method":"tools/call","params":{"name":"a"}}
			1> panic: runtime error
		` + again + `
			2< {"id":1,"method":"tools/call","params":{"name":"a"}}
		`,
		"an answer that is none": begin + `
			c> {"id":1,"method":"tools/call","params":{"name":"a"}}
			1< {"id":1,"method":"tools/call","params":{"name":"a"}}
			1> {"id":1}
			c< {"jsonrpc":"2.0","id":1,"error":~invalid_answer
			1> {"id":null,"error":{"code":-32700,"message":"m"}}
		`,
		"the end of input with nothing in flight": begin + `
			c> {"id":"l","method":"subscriptions/listen","params":{}}
			1< {"id":"l","method":"subscriptions/listen","params":{}}
			eof
			1< !bye
			ended
		`,
		"the end of input with a call in flight": begin + `
			c> {"id":1,"method":"tools/call","params":{"name":"a"}}
			1< {"id":1,"method":"tools/call","params":{"name":"a"}}
			1> {"id":"q","method":"roots/list"}
			c< {"id":"q","method":"roots/list"}
			eof
			1< {"jsonrpc":"2.0","id":"q","error":{"code":-32603,"message":"the client has closed its input"}}
			goes on
			1> {"id":"q2","method":"roots/list"}
			1< {"jsonrpc":"2.0","id":"q2","error":{"code":-32603,"message":"the client has closed its input"}}
			1> {"id":1,"result":{}}
			c< {"id":1,"result":{}}
			1< !bye
			ended
		`,
		"the end of input does not wait for ever": begin + `
			c> {"id":1,"method":"tools/call","params":{"name":"a"}}
			1< {"id":1,"method":"tools/call","params":{"name":"a"}}
			1> !accepted 2
			eof
			sleep 1s
			1< !ping
			1> {"method":"notifications/message"}
			c< {"method":"notifications/message"}
			sleep 1s
			1< !ping
			1> !pong
			sleep 1s
			1< !ping
			1 dies
			c< {"jsonrpc":"2.0","id":1,"error":~outcome_unknown
			ended
		`,
		"the end of input before any server": `
			1 joined
			eof
			1< !bye
			ended
		`,
		"the end of input while a server is looked for": `
			1 joined
			slow 5s
			1 dies
			c> {"id":1,"method":"ping"}
			eof
			goes on
			sleep 5s
			2< {"id":1,"method":"ping"}
			2> {"id":1,"result":{}}
			c< {"id":1,"result":{}}
			2< !bye
			ended
		`,
	} {
		t.Run(name, func(t *testing.T) { runScript(t, text) })
	}
}

func TestNothingIsWaitedForWhenTheContextEnds(t *testing.T) {
	s := runScript(t, begin+`
		c> {"id":1,"method":"tools/call","params":{"name":"a"}}
		1< {"id":1,"method":"tools/call","params":{"name":"a"}}
	`)
	if s.endErr != context.Canceled {
		t.Error(s.endErr)
	}
}

func TestTheLastCallIsNotWaitedForForEver(t *testing.T) {
	runScript(t, begin+`
		c> {"id":1,"method":"tools/call","params":{"name":"a"}}
		1< {"id":1,"method":"tools/call","params":{"name":"a"}}
		eof
		sleep 999ms
		goes on
		sleep 1ms
		1< !bye
		ended
	`, func(c *Config, _ *script) { c.DrainTimeout = time.Second; c.ProbeTimeout = time.Minute })
}

func TestServersThatFailAtOnce(t *testing.T) {
	n := 0
	runScript(t, `
		c> {"id":1,"method":"ping"}
		sleep 7999ms
		sleep 1ms
		c< {"jsonrpc":"2.0","id":1,"error":~"message":"opening the server in this process: broken","data":{"code":"server_unavailable"}
		sleep 1h
	`, func(c *Config, s *script) {
		c.Find = func(context.Context, error) (Endpoint, error) {
			n++
			return Endpoint{Open: func(context.Context) (io.ReadWriteCloser, error) { return nil, errors.New("broken") }}, nil
		}
	})
	if n < 8 || n > 20 {
		t.Errorf("searched %d times", n)
	}
}

// A server that lives until it is joined costs no spin either, and every
// search is told what ended the last link.
func TestServersThatDieAtOnce(t *testing.T) {
	s := runScript(t, `
		c> {"id":1,"method":"ping"}
		sleep 8s
		c< {"jsonrpc":"2.0","id":1,"error":~server_unavailable
		sleep 1h
	`, func(c *Config, s *script) {
		find := c.Find
		c.Find = func(ctx context.Context, why error) (Endpoint, error) {
			_, err := find(ctx, why)
			return Endpoint{Open: func(context.Context) (io.ReadWriteCloser, error) {
				ours, theirs := net.Pipe()
				theirs.Close()
				return ours, nil
			}}, err
		}
	})
	if n := len(s.finds); n < 8 || n > 20 || s.finds[0] != nil || s.finds[1] == nil {
		t.Errorf("searched %d times: %v", len(s.finds), s.finds)
	}
}

func TestWhyAServerIsLookedFor(t *testing.T) {
	s := runScript(t, begin+`
		c> {"id":1,"method":"ping"}
		1< {"id":1,"method":"ping"}
		sleep 1s
		1< !ping
		sleep 2s
	`+again+`
		2< {"id":1,"method":"ping"}
		2> {"id":1,"result":{}}
		c< {"id":1,"result":{}}
		2> !lost
		3< {"jsonrpc":"2.0","id":$c,"method":"initialize","params":{"capabilities":{"roots":{}}}}
		3> {"jsonrpc":"2.0","id":$c,"result":{}}
		3< {"jsonrpc":"2.0","method":"notifications/initialized"}
		2< !bye
		3 dies
		4< {"jsonrpc":"2.0","id":$d,"method":"initialize","params":{"capabilities":{"roots":{}}}}
	`)
	want := []error{nil, ErrHung, ErrLeft, io.EOF}
	if !slices.Equal(s.finds, want) {
		t.Errorf("why: %v, want %v", s.finds, want)
	}
}

func TestRoots(t *testing.T) {
	var got [][]string
	runScript(t, `
		1 joined
		c> {"id":0,"method":"initialize","params":{"capabilities":{"roots":{}}}}
		1< {"id":0,"method":"initialize","params":{"capabilities":{"roots":{}}}}
		1> {"id":0,"result":{}}
		c< {"id":0,"result":{}}
		c> {"method":"notifications/initialized"}
		1< {"method":"notifications/initialized"}
		c< {"jsonrpc":"2.0","id":$roots,"method":"roots/list"}
		# The server's own question is another one.
		1> {"id":"q","method":"roots/list"}
		c< {"id":"q","method":"roots/list"}
		c> {"id":"q","result":{"roots":[]}}
		1< {"id":"q","result":{"roots":[]}}
		c> {"id":$roots,"result":{"roots":[{"uri":"file:///a"},{"uri":"https://b"},{"uri":"file:///c"}]}}
		c> {"method":"notifications/roots/list_changed"}
		1< {"method":"notifications/roots/list_changed"}
		c< {"jsonrpc":"2.0","id":$again,"method":"roots/list"}
		c> {"id":$again,"error":{"code":1,"message":"no"}}
		c> {"method":"notifications/roots/list_changed"}
		1< {"method":"notifications/roots/list_changed"}
		c< {"jsonrpc":"2.0","id":$old,"method":"roots/list"}
		c> {"method":"notifications/roots/list_changed"}
		1< {"method":"notifications/roots/list_changed"}
		c< {"jsonrpc":"2.0","id":$more,"method":"roots/list"}
		c> {"id":$old,"result":{"roots":[{"uri":"file:///old"}]}}
		c> {"id":$more,"result":{"roots":[{"uri":"file:///d"}]}}
		2< {"id":$b,"method":"initialize","params":{"capabilities":{"roots":{}}}}
		2> {"id":$b,"result":{}}
		2< {"method":"notifications/initialized"}
		1< !bye
		c> {"method":"notifications/roots/list_changed"}
		2< {"method":"notifications/roots/list_changed"}
	`, func(c *Config, _ *script) {
		c.Roots = func(_ context.Context, uris []string) bool {
			got = append(got, uris)
			return len(uris) == 1
		}
	})
	if want := [][]string{{"file:///a", "file:///c"}, {"file:///d"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("roots: %v, want %v", got, want)
	}
}

// Roots may be told while a server is looked for: the one that is then found
// was looked for in the wrong place.
func TestRootsDuringASearch(t *testing.T) {
	runScript(t, `
		1 joined
		c> {"id":0,"method":"initialize","params":{"capabilities":{"roots":{}}}}
		1< {"id":0,"method":"initialize","params":{"capabilities":{"roots":{}}}}
		1> {"id":0,"result":{}}
		c< {"id":0,"result":{}}
		c> {"method":"notifications/initialized"}
		1< {"method":"notifications/initialized"}
		c< {"jsonrpc":"2.0","id":$roots,"method":"roots/list"}
		slow 1s
		1 dies
		c> {"id":$roots,"result":{"roots":[{"uri":"file:///a"}]}}
		sleep 1s
		2< {"id":$b,"method":"initialize","params":{"capabilities":{"roots":{}}}}
		2> {"id":$b,"result":{}}
		2< {"method":"notifications/initialized"}
		sleep 1s
		3< {"id":$c,"method":"initialize","params":{"capabilities":{"roots":{}}}}
	`, func(c *Config, _ *script) {
		c.Roots = func(context.Context, []string) bool { return true }
	})
}

func TestAClientWithoutRootsIsNotAsked(t *testing.T) {
	runScript(t, `
		1 joined
		c> {"id":0,"method":"initialize","params":{"capabilities":{}}}
		1< {"id":0,"method":"initialize","params":{"capabilities":{}}}
		1> {"id":0,"result":{}}
		c< {"id":0,"result":{}}
		c> {"method":"notifications/initialized"}
		1< {"method":"notifications/initialized"}
	`, func(c *Config, _ *script) {
		c.Roots = func(context.Context, []string) bool { return true }
	})
}

func TestALineThatIsTooLong(t *testing.T) {
	long := strings.Repeat("x", 1000)
	runScript(t, strings.ReplaceAll(`
		1 joined
		c> {"id":1,"method":"tools/call","params":"LONG"}
		c< {"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"message of more than 1000 bytes"}}
		c> {"params":"LONG","method":"tools/call","id":"2"}
		c< {"jsonrpc":"2.0","id":"2","error":{"code":-32600,"message":"message of more than 1000 bytes"}}
		1> {"id":"q","method":"sampling/createMessage"}
		c< {"id":"q","method":"sampling/createMessage"}
		c> {"result":"LONG","id":"q"}
		1< {"jsonrpc":"2.0","id":"q","error":{"code":-32603,"message":"the client's answer cannot be passed on: message of more than 1000 bytes"}}
		c> {"result":"LONG","id":"other"}
		c> {"id":3,"method":"ping"}
		1< {"id":3,"method":"ping"}
		1> {"id":3,"result":"LONG"}
		c< {"jsonrpc":"2.0","id":3,"error":~answer_too_large
		1> {"id":"q","method":"sampling/createMessage","params":"LONG"}
		1< {"jsonrpc":"2.0","id":"q","error":{"code":-32600,~
		1> {"method":"notifications/message","params":"LONG"}
		c> {"id":4,"method":"ping"}
		1< {"id":4,"method":"ping"}
		1> {"id":4,"result":{}}
		c< {"id":4,"result":{}}
	`, "LONG", long), func(c *Config, _ *script) { c.MaxMessage = 1000 })
}

// A client that does not read slows its server down; neither is taken for dead.
func TestASlowClientCostsNoLink(t *testing.T) {
	var text strings.Builder
	text.WriteString(begin + `
		c> {"id":1,"method":"tools/call","params":{"name":"a"}}
		1< {"id":1,"method":"tools/call","params":{"name":"a"}}
		1> !accepted 2
		deaf
		1> {"method":"notifications/message"}
		sleep 1s
		1< !pong
		sleep 1s
		1< !pong
		sleep 1s
		1< !pong
		c> {"method":"notifications/cancelled","params":{"requestId":1}}
		1< {"method":"notifications/cancelled","params":{"requestId":1}}
		hears
		c< {"method":"notifications/message"}
	`)
	runScript(t, text.String())
}

func TestAClientThatIsGone(t *testing.T) {
	s := runScript(t, `
		1 joined
		c> hello
		1< !bye
	`, func(c *Config, _ *script) { c.Out = closedWriter{} })
	if !errors.Is(s.endErr, io.ErrClosedPipe) {
		t.Error(s.endErr)
	}
}

type closedWriter struct{}

func (closedWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestInputThatBreaks(t *testing.T) {
	broken := errors.New("broken")
	s := runScript(t, ``, func(c *Config, s *script) {
		c.In = iotest.ErrReader(broken)
		s.findErr = errors.New("nobody")
	})
	if !errors.Is(s.endErr, broken) {
		t.Error(s.endErr)
	}
}

// brittle is a stream that cannot be written to any more from some line on, but
// still be read.
type brittle struct {
	net.Conn
	writes int
}

func (b *brittle) Write(p []byte) (int, error) {
	if b.writes--; b.writes < 0 {
		return 0, io.ErrClosedPipe
	}
	return b.Conn.Write(p)
}

// What a server wrote before it died counts, although it was met by a write
// that failed first.
func TestTheLastWordsOfAServerCount(t *testing.T) {
	once := func(c *Config, s *script) {
		n := 0
		c.Find = func(ctx context.Context, why error) (Endpoint, error) {
			e, err := s.find(ctx, why)
			if n++; n > 1 {
				return e, err
			}
			return Endpoint{Open: func(ctx context.Context) (io.ReadWriteCloser, error) {
				conn, err := s.open(ctx)
				return &brittle{conn.(net.Conn), 2}, err
			}}, err
		}
	}
	const before = `
		1 joined
		c> {"id":1,"method":"tools/call","params":{"name":"a"}}
		1< {"id":1,"method":"tools/call","params":{"name":"a"}}
		c> {"id":2,"method":"tools/call","params":{"name":"b"}}
		1< {"id":2,"method":"tools/call","params":{"name":"b"}}
		c> {"method":"notifications/lost"}
		c> {"id":3,"method":"tools/call","params":{"name":"c"}}
	`
	runScript(t, before+`
		1> !accepted 1
		1> {"id":1,"result":{}}
		c< {"id":1,"result":{}}
		1> !accepted 2
		1 dies
		c< {"jsonrpc":"2.0","id":2,"error":~outcome_unknown
		2< {"id":3,"method":"tools/call","params":{"name":"c"}}
	`, once)
	// A stream that never ends is not waited for.
	runScript(t, before+`
		sleep 999ms
		sleep 1ms
		2< {"id":1,"method":"tools/call","params":{"name":"a"}}
		2< {"id":2,"method":"tools/call","params":{"name":"b"}}
		2< {"id":3,"method":"tools/call","params":{"name":"c"}}
	`, once)
}

// An acknowledged listen may outlive any number of servers.
func TestAListenOutlivesManyServers(t *testing.T) {
	const listen = `{"id":"l","method":"subscriptions/listen","params":{}}`
	const known = `{"method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}`
	text := "c> " + listen + "\n1< " + listen + "\n1> " + known + "\nc< " + known + "\n"
	for n := range 2 * maxSends {
		text += fmt.Sprintf("sleep 9s\n%d dies\n%d< %s\n%d> %s\n", n+1, n+2, listen, n+2, known)
	}
	runScript(t, text)
}

// A server that asks to be left as soon as it is joined, and is found again, is
// not joined in a circle.
func TestServersThatAskToBeLeftAtOnce(t *testing.T) {
	searches := 0
	runScript(t, `sleep 1m`, func(c *Config, s *script) {
		c.Find = func(context.Context, error) (Endpoint, error) {
			searches++
			return Endpoint{Open: func(ctx context.Context) (io.ReadWriteCloser, error) {
				ours, theirs := net.Pipe()
				go func() { // ends with the link
					io.WriteString(theirs, "!lost\n")
					io.Copy(io.Discard, theirs)
				}()
				return ours, nil
			}}, nil
		}
	})
	if searches < 5 || searches > 20 {
		t.Errorf("%d searches in a minute", searches)
	}
}
