package server

// What the tools of the board take and give.

const schemaPeersIn = `{"type":"object","properties":{` +
	`"checkouts":{"type":"string","enum":["this","repository"],"default":"repository","description":"this: only this checkout. repository: also the other git worktrees of its repository"}},` +
	`"additionalProperties":false}`

const schemaPeersOut = `{"type":"object","properties":{` +
	`"you":{"type":"string","description":"the id under which the others see you"},` +
	`"peers":{"type":"array","items":{"$ref":"#/$defs/peer"}},` +
	`"overlaps":{"type":"array","items":{"$ref":"#/$defs/overlap"},"description":"pairs of attached peers whose paths meet"},` +
	`"overlaps_left_out":{"type":"integer","minimum":1,"description":"how many more there are"},` +
	`"boards":{"type":"array","items":{"$ref":"#/$defs/board"},"description":"the checkouts that were looked at"},` +
	`"complete":{"type":"boolean","description":"whether every board that there is was read"},` +
	`"reasons":{"type":"array","items":{"type":"string"},"description":"why worktrees are not among the boards"}},` +
	`"required":["peers","overlaps","boards","complete"],"additionalProperties":false,"$defs":{` +
	`"peer":{"type":"object","properties":{` +
	`"id":{"type":"string"},` +
	`"client":{"type":"string","description":"as it names itself; empty if it does not"},` +
	`"version":{"type":"string"},` +
	`"era":{"type":"string","description":"the protocol revision it speaks"},` +
	`"front":{"type":"string","enum":["link","stdio","http","hand"],"description":"how it is attached; hand: announced by a person, who is not attached"},` +
	`"since":{"type":"string","format":"date-time"},` +
	`"attached":{"type":"boolean","description":"false: it has gone, and this is what it announced"},` +
	`"departed_at":{"type":"string","format":"date-time"},` +
	`"claims":{"type":"array","items":{"type":"object","properties":{` +
	`"claim":{"type":"string","description":"the claim's name"},` +
	`"intent":{"type":"string"},` +
	`"scope":{"type":"array","items":{"type":"string"},"description":"paths below the checkout's root"},` +
	`"at":{"type":"string","format":"date-time"}},"required":["claim","intent","scope","at"],"additionalProperties":false}},` +
	`"touched":{"type":"array","items":{"type":"object","properties":{` +
	`"path":{"type":"string"},` +
	`"wrote":{"type":"boolean","description":"by a tool that does not say that it only reads"},` +
	`"at":{"type":"string","format":"date-time"}},"required":["path","wrote","at"],"additionalProperties":false},"description":"paths that its calls of hosted tools named, the newest first"},` +
	`"checkout":{"type":"string"},"checkout_id":{"type":"string"}},` +
	`"required":["id","client","front","since","attached","claims","touched","checkout","checkout_id"],"additionalProperties":false},` +
	`"overlap":{"type":"object","properties":{` +
	`"kind":{"type":"string","enum":["claimed","touched"],"description":"claimed: both announced it. touched: at least one was only seen there"},` +
	`"between":{"type":"array","minItems":2,"maxItems":2,"items":{"type":"object","properties":{` +
	`"peer":{"type":"string"},"client":{"type":"string"},"checkout":{"type":"string"},"intent":{"type":"string"}},"required":["peer","client","checkout"],"additionalProperties":false}},` +
	`"paths":{"type":"array","items":{"type":"array","minItems":2,"maxItems":2,"items":{"type":"string"}},"description":"where they meet, as each of the two has it"}},` +
	`"required":["kind","between","paths"],"additionalProperties":false},` +
	`"board":{"type":"object","properties":{` +
	`"checkout":{"type":"string"},"checkout_id":{"type":"string"},"root":{"type":"string"},` +
	`"linked_worktree":{"type":"boolean"},"this":{"type":"boolean"},` +
	`"state":{"type":"string","enum":["served","none","unread"],"description":"none: no server runs there, so nobody is attached"},` +
	`"url":{"type":"string"},"peers":{"type":"integer","minimum":0,"description":"attached ones"},` +
	`"reason":{"type":"string","description":"why it is unread"}},` +
	`"required":["checkout","checkout_id","root","linked_worktree","this","state","peers"],"additionalProperties":false}}}`

const schemaAnnounceIn = `{"type":"object","properties":{` +
	`"intent":{"type":"string","maxLength":2000,"description":"what you are going to do, in a sentence"},` +
	`"scope":{"type":"array","maxItems":256,"items":{"type":"string"},"description":"files and folders, relative to the checkout's root or absolute inside it; * and ** are understood; a folder means all that is in it; \".\" is the whole checkout; an empty list withdraws the claim"},` +
	`"claim":{"type":"string","maxLength":100,"default":"default","description":"the claim's name, if you have several at once; the same name replaces the claim"}},` +
	`"required":["scope"],"additionalProperties":false}`

const schemaAnnounceOut = `{"type":"object","properties":{` +
	`"peer":{"type":"string","description":"you"},` +
	`"claim":{"type":"string"},"intent":{"type":"string"},` +
	`"scope":{"type":"array","items":{"type":"string"},"description":"as it was understood"},` +
	`"released":{"type":"array","items":{"type":"string"},"description":"paths of the claim before that this one does not cover"},` +
	`"overlaps":{"type":"array","items":{"type":"object","properties":{` +
	`"kind":{"type":"string","enum":["claimed","touched"],"description":"claimed: that peer announced it. touched: it was seen there"},` +
	`"peer":{"type":"string"},"client":{"type":"string"},` +
	`"attached":{"type":"boolean","description":"false: it has gone, and may have left something half done"},` +
	`"checkout":{"type":"string"},"claim":{"type":"string"},"intent":{"type":"string"},` +
	`"paths":{"type":"array","items":{"type":"string"}}},"required":["kind","peer","client","attached","checkout","paths"],"additionalProperties":false},"description":"who else works there"},` +
	`"complete":{"type":"boolean","description":"whether the boards of all worktrees could be looked at"},` +
	`"reasons":{"type":"array","items":{"type":"string"},"description":"why not"}},` +
	`"required":["peer","claim","intent","scope","released","overlaps","complete"],"additionalProperties":false}`

const schemaExecutionsIn = `{"type":"object","properties":{` +
	`"limit":{"type":"integer","minimum":1,"maximum":1000,"default":20,"description":"how many of those that have ended"}},` +
	`"additionalProperties":false}`

const schemaExecutionsOut = `{"type":"object","properties":{` +
	`"running":{"type":"array","items":{"$ref":"#/$defs/execution"}},` +
	`"ended":{"type":"array","items":{"$ref":"#/$defs/execution"},"description":"the newest first"}},` +
	`"required":["running","ended"],"additionalProperties":false,"$defs":{` +
	`"execution":{"type":"object","properties":{` +
	`"number":{"type":"integer","minimum":1},"peer":{"type":"string"},"client":{"type":"string"},` +
	`"tool":{"type":"string"},"upstream":{"type":"string","description":"the hosted server whose tool it is"},` +
	`"started_at":{"type":"string","format":"date-time"},` +
	`"milliseconds":{"type":"number","minimum":0,"description":"so far, while it runs"},` +
	`"outcome":{"type":"string","enum":["running","ok","error","failed","cancelled","cut"],"description":"error: the tool says so. failed: there is no result. cut: its client has gone"}},` +
	`"required":["number","peer","client","tool","started_at","milliseconds","outcome"],"additionalProperties":false}}}`
