package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"majordomus/server/session"
)

const (
	png      = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
	document = "demo://resource/static/document/"
	dynamic  = "demo://resource/dynamic/"
	perPage  = 6 // fewer than there are of anything, so that lists come in pages
)

type (
	tool     = func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error)
	question = *mcpserver.InputRequestBuilder
)

// offers is the server's state, the same for all its clients.
type offers struct {
	mcp  *mcpserver.MCPServer
	core *session.Core

	running atomic.Int64 // long operations

	mu       sync.Mutex
	poked    bool
	updating func() // ends the updates; nil when there are none
}

func newCore() *session.Core {
	o := &offers{mcp: mcpserver.NewMCPServer("everything", "1",
		mcpserver.WithToolCapabilities(true), mcpserver.WithResourceCapabilities(true, true), mcpserver.WithPromptCapabilities(true),
		mcpserver.WithLogging(), mcpserver.WithElicitation(), mcpserver.WithRoots(), mcpserver.WithCompletions(), mcpserver.WithPromptCompletionProvider(departments{}),
		mcpserver.WithTaskCapabilities(true, true, true), mcpserver.WithPaginationLimit(perPage), mcpserver.WithInstructions("Call what you like."))}
	o.mcp.EnableSampling()
	o.core = session.New(session.Config{MCP: o.mcp, Generation: "everything"})
	o.answers()
	o.signs()
	o.questions()
	o.resources()
	o.prompts()
	go o.core.Run(context.Background()) // ends with the process
	return o.core
}

func (o *offers) tool(name string, f tool, options ...mcp.ToolOption) {
	o.mcp.AddTool(mcp.NewTool(name, append(options, mcp.WithDescription("A fixture."))...), f)
}

func says(format string, a ...any) (*mcp.CallToolResult, error) {
	return mcp.NewToolResultText(fmt.Sprintf(format, a...)), nil
}

// answers are tools that answer at once.
func (o *offers) answers() {
	o.tool("echo", func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		message, err := r.RequireString("message")
		if err != nil {
			return mcp.NewToolResultErrorFromErr("echo", err), nil
		}
		return says("Echo: %s", message)
	}, mcp.WithString("message", mcp.Required()), mcp.WithReadOnlyHintAnnotation(true))
	o.tool("get-sum", func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		a, errA := r.RequireFloat("a")
		b, errB := r.RequireFloat("b")
		if err := errors.Join(errA, errB); err != nil {
			return mcp.NewToolResultErrorFromErr("get-sum", err), nil
		}
		sum, err := json.Marshal(a + b) // as JavaScript writes numbers
		if err != nil {
			return nil, err
		}
		return says("The sum is %s.", sum)
	}, mcp.WithNumber("a", mcp.Required()), mcp.WithNumber("b", mcp.Required()))
	o.tool("get-structured-content", func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultStructured(map[string]any{"temperature": 33.5, "conditions": "Cloudy in " + r.GetString("location", "?")}, "see the structured content"), nil
	}, mcp.WithString("location", mcp.Required()), mcp.WithRawOutputSchema(json.RawMessage(
		`{"type":"object","properties":{"temperature":{"type":"number"},"conditions":{"type":"string"}},"required":["temperature","conditions"]}`)))
	o.tool("get-tiny-image", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{mcp.NewTextContent("An image:"), mcp.NewImageContent(png, "image/png")}}, nil
	})
	o.tool("get-resource-links", func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		result := &mcp.CallToolResult{}
		for i := range r.GetInt("count", 3) {
			result.Content = append(result.Content, mcp.NewResourceLink(fmt.Sprintf("%stext/%d", dynamic, i+1), fmt.Sprint("text ", i+1), "A fixture.", "text/plain"))
		}
		return result, nil
	}, mcp.WithNumber("count"))
	o.tool("get-resource-reference", func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		kind := strings.ToLower(r.GetString("resourceType", "text"))
		return &mcp.CallToolResult{Content: []mcp.Content{mcp.NewEmbeddedResource(dynamicResource(fmt.Sprintf("%s%s/%d", dynamic, kind, r.GetInt("resourceId", 1))))}}, nil
	}, mcp.WithString("resourceType"), mcp.WithNumber("resourceId"))
}

// signs are tools that tell something besides what they answer.
func (o *offers) signs() {
	o.tool("trigger-long-running-operation", func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		o.running.Add(1)
		defer o.running.Add(-1)
		steps := r.GetInt("steps", 5)
		step := time.Duration(r.GetFloat("duration", 10) / float64(steps) * float64(time.Second))
		for i := 1; i <= steps; i++ {
			select {
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-time.After(step):
			}
			if err := session.Progress(ctx, float64(i), float64(steps), ""); err != nil {
				return nil, err
			}
		}
		return says("Done, in %d steps.", steps)
	}, mcp.WithNumber("duration"), mcp.WithNumber("steps"))
	o.tool("count-long-running-operations", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return says("%d", o.running.Load())
	})
	// A client hears of log lines only while a call of its runs.
	o.tool("toggle-simulated-logging", func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for _, level := range []mcp.LoggingLevel{
			mcp.LoggingLevelDebug, mcp.LoggingLevelInfo, mcp.LoggingLevelNotice, mcp.LoggingLevelWarning,
			mcp.LoggingLevelError, mcp.LoggingLevelCritical, mcp.LoggingLevelAlert, mcp.LoggingLevelEmergency,
		} {
			if err := o.mcp.SendLogMessageToClient(ctx, mcp.NewLoggingMessageNotification(level, "everything", "a line of level "+string(level))); err != nil {
				return nil, err
			}
		}
		return says("One line of each level.")
	})
	o.tool("toggle-subscriber-updates", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.updating != nil {
			o.updating()
			o.updating = nil
			return says("No more updates.")
		}
		var ctx context.Context
		ctx, o.updating = context.WithCancel(context.Background())
		go o.update(ctx) // ends when it is toggled, or with the process
		return says("Updates begin.")
	})
	// poke changes the list of tools, and says of all lists that they have changed.
	o.tool("poke", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.poked = !o.poked; o.poked {
			o.tool("poked", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) { return says("poked") })
		} else {
			o.mcp.DeleteTools("poked")
		}
		for _, kind := range []string{"tools", "prompts", "resources"} {
			o.core.ListChanged(kind)
		}
		return says("Poked.")
	})
	o.tool("simulate-research-query", func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		// A task outlives the request that began it.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 300*time.Millisecond)
		defer cancel()
		<-ctx.Done()
		return says("Research Report: %s", r.GetString("topic", "?"))
	}, mcp.WithString("topic", mcp.Required()), mcp.WithTaskSupport(mcp.TaskSupportOptional))
}

func (o *offers) update(ctx context.Context) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, name := range documents {
			o.core.Updated(document + name)
		}
	}
}

// questions are tools that ask the client.
func (o *offers) questions() {
	object := func(properties string) any {
		return json.RawMessage(`{"type":"object","properties":{` + properties + `}}`)
	}
	ask := func(b question) (*mcp.CallToolResult, error) { return b.ToolResult(), nil }
	o.tool("trigger-sampling-request", func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if a := mcpserver.SamplingResponse(r.Params.InputResponses, "sample"); a != nil {
			said, err := json.Marshal(a.Content)
			return mcp.NewToolResultText("The model says " + string(said)), err
		}
		return ask(mcpserver.NewInputRequestBuilder("").Sample("sample", mcp.CreateMessageParams{
			MaxTokens: r.GetInt("maxTokens", 100),
			Messages:  []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: mcp.NewTextContent(r.GetString("prompt", "?"))}},
		}))
	}, mcp.WithString("prompt", mcp.Required()), mcp.WithNumber("maxTokens"))
	o.tool("trigger-elicitation-request", func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if a := mcpserver.ElicitationResponse(r.Params.InputResponses, "name"); a != nil {
			return says("The person did %s: %v", a.Action, a.Content)
		}
		return ask(mcpserver.NewInputRequestBuilder("").Elicit("name", mcp.ElicitationParams{Message: "Your name?", RequestedSchema: object(`"name":{"type":"string"}`)}))
	})
	o.tool("trigger-url-elicitation", func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		asked := mcp.ElicitationParams{Mode: mcp.ElicitationModeURL, Message: "Look there.", URL: r.GetString("url", ""), ElicitationID: r.GetString("elicitationId", "")}
		if r.GetBool("errorPath", false) {
			return nil, mcp.URLElicitationRequiredError{Elicitations: []mcp.ElicitationParams{asked}}
		}
		a := mcpserver.ElicitationResponse(r.Params.InputResponses, "look")
		if a == nil {
			return ask(mcpserver.NewInputRequestBuilder("").Elicit("look", asked))
		}
		if err := o.mcp.SendElicitationComplete(ctx, mcpserver.ClientSessionFromContext(ctx), asked.ElicitationID); err != nil {
			return nil, err
		}
		return says("The person did %s.", a.Action)
	}, mcp.WithString("url", mcp.Required()), mcp.WithString("elicitationId", mcp.Required()), mcp.WithBoolean("errorPath"))
	o.tool("get-roots-list", func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		a := mcpserver.RootsResponse(r.Params.InputResponses, "roots")
		if a == nil {
			return ask(mcpserver.NewInputRequestBuilder("").Roots("roots"))
		}
		roots, err := json.Marshal(a.Roots)
		return mcp.NewToolResultText(string(roots)), err
	})
}

var documents = []string{"architecture", "extension", "features", "how-it-works", "instructions", "startup", "structure"}

func (o *offers) resources() {
	for _, name := range documents {
		uri := document + name
		o.mcp.AddResource(mcp.NewResource(uri, name, mcp.WithMIMEType("text/plain")), func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{mcp.TextResourceContents{URI: uri, MIMEType: "text/plain", Text: "This is " + name + "."}}, nil
		})
	}
	for _, kind := range []string{"text", "blob"} {
		o.mcp.AddResourceTemplate(mcp.NewResourceTemplate(dynamic+kind+"/{id}", kind), func(_ context.Context, r mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{dynamicResource(r.Params.URI)}, nil
		})
	}
}

func dynamicResource(uri string) mcp.ResourceContents {
	text := "This is " + uri
	if strings.HasPrefix(uri, dynamic+"blob/") {
		return mcp.BlobResourceContents{URI: uri, MIMEType: "application/octet-stream", Blob: base64.StdEncoding.EncodeToString([]byte(text))}
	}
	return mcp.TextResourceContents{URI: uri, MIMEType: "text/plain", Text: text}
}

func (o *offers) prompts() {
	prompt := func(p mcp.Prompt, text func(arguments map[string]string) mcp.Content) {
		o.mcp.AddPrompt(p, func(ctx context.Context, r mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			for _, a := range p.Arguments {
				if a.Required && r.Params.Arguments[a.Name] == "" {
					return nil, session.Fail(ctx, mcp.INVALID_PARAMS, "the argument "+a.Name+" is missing", nil)
				}
			}
			return mcp.NewGetPromptResult("A fixture.", []mcp.PromptMessage{mcp.NewPromptMessage(mcp.RoleUser, text(r.Params.Arguments))}), nil
		})
	}
	prompt(mcp.NewPrompt("simple-prompt"), func(map[string]string) mcp.Content {
		return mcp.NewTextContent("A simple prompt.")
	})
	prompt(mcp.NewPrompt("args-prompt", mcp.WithArgument("city", mcp.RequiredArgument()), mcp.WithArgument("state")), func(a map[string]string) mcp.Content {
		return mcp.NewTextContent("What is the weather in " + a["city"] + "?")
	})
	prompt(mcp.NewPrompt("completable-prompt", mcp.WithArgument("department", mcp.RequiredArgument()), mcp.WithArgument("name", mcp.RequiredArgument())), func(a map[string]string) mcp.Content {
		return mcp.NewTextContent("Promote " + a["name"] + " of " + a["department"] + ".")
	})
	prompt(mcp.NewPrompt("resource-prompt", mcp.WithArgument("resourceId", mcp.RequiredArgument())), func(a map[string]string) mcp.Content {
		return mcp.NewEmbeddedResource(dynamicResource(dynamic + "text/" + a["resourceId"]))
	})
}

// departments completes the arguments of completable-prompt.
type departments struct{}

func (departments) CompletePromptArgument(_ context.Context, prompt string, a mcp.CompleteArgument, known mcp.CompleteContext) (*mcp.Completion, error) {
	staff := map[string][]string{"Engineering": {"Alice", "Bob"}, "Sales": {"David", "Eve"}}
	var from []string
	switch {
	case prompt != "completable-prompt":
	case a.Name == "department":
		from = []string{"Engineering", "Sales"}
	case a.Name == "name":
		from = staff[known.Arguments["department"]]
	}
	c := &mcp.Completion{Values: []string{}}
	for _, v := range from {
		if strings.HasPrefix(v, a.Value) {
			c.Values = append(c.Values, v)
		}
	}
	return c, nil
}
