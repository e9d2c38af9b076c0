// Command conformance is the server that the protocol's conformance suite asks
// for, on the fronts of package session. It prints its address, and ends when
// its input does.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"

	"majordomus/server/session"
)

const (
	png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
	wav = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA="
)

func main() {
	m := fixtures()
	core := session.New(session.Config{MCP: m, Generation: "conformance"})
	add(m, "test_trigger_tool_change", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		core.ListChanged("tools")
		return mcp.NewToolResultText("told"), nil
	})
	add(m, "test_trigger_prompt_change", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		core.ListChanged("prompts")
		return mcp.NewToolResultText("told"), nil
	})
	go core.Run(context.Background()) // ends with the process
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("http://%s/mcp\n", ln.Addr())
	go func() {
		io.Copy(io.Discard, os.Stdin) // ignore error: the input has ended either way
		os.Exit(0)
	}()
	srv := &http.Server{Handler: gate(core), ConnContext: core.ConnContext, ConnState: core.ConnState}
	log.Fatal(srv.Serve(ln))
}

// gate stands for the server's: it lets in what comes from this machine.
func gate(next http.Handler) http.Handler {
	local := func(host string) bool {
		return strings.HasPrefix(host, "127.0.0.1:") || strings.HasPrefix(host, "localhost:")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		if !local(r.Host) || origin != "" && !local(strings.TrimPrefix(origin, "http://")) {
			http.Error(w, "forbidden", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

type handler = func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error)

func add(m *mcpserver.MCPServer, name string, f handler) {
	m.AddTool(mcp.NewTool(name, mcp.WithDescription("A fixture.")), mcpserver.ToolHandlerFunc(f))
}

func object(properties string) any {
	return json.RawMessage(`{"type":"object","properties":{` + properties + `}}`)
}

func ask(message, properties string) mcp.ElicitationParams {
	return mcp.ElicitationParams{Message: message, RequestedSchema: object(properties)}
}

func sample(text string, most int) mcp.CreateMessageParams {
	return mcp.CreateMessageParams{MaxTokens: most, Messages: []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: mcp.NewTextContent(text)}}}
}

func fixtures() *mcpserver.MCPServer {
	m := mcpserver.NewMCPServer("conformance", "1", mcpserver.WithToolCapabilities(true), mcpserver.WithResourceCapabilities(true, true),
		mcpserver.WithPromptCapabilities(true), mcpserver.WithLogging(), mcpserver.WithElicitation(), mcpserver.WithRoots(), mcpserver.WithCompletions())
	m.EnableSampling()
	contents(m)
	questions(m)
	rounds(m)
	rest(m)
	return m
}

// contents are results of all kinds.
func contents(m *mcpserver.MCPServer) {
	result := func(name string, c ...mcp.Content) {
		add(m, name, func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: c}, nil
		})
	}
	embedded := func(uri, mime, text string) mcp.Content {
		return mcp.NewEmbeddedResource(mcp.TextResourceContents{URI: uri, MIMEType: mime, Text: text})
	}
	result("test_simple_text", mcp.NewTextContent("This is a simple text response for testing."))
	result("test_image_content", mcp.NewImageContent(png, "image/png"))
	result("test_audio_content", mcp.NewAudioContent(wav, "audio/wav"))
	result("test_embedded_resource", embedded("test://embedded-resource", "text/plain", "This is an embedded resource content."))
	result("test_multiple_content_types", mcp.NewTextContent("Multiple content types test:"), mcp.NewImageContent(png, "image/png"),
		embedded("test://mixed-content-resource", "application/json", `{"test":"data","value":123}`))
	result("test_reconnection", mcp.NewTextContent("Still here."))
	add(m, "test_error_handling", func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultError("This tool intentionally returns an error for testing"), nil
	})
	pause := func() { time.Sleep(50 * time.Millisecond) } // as the suite wants it
	logs := func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i, text := range []string{"Tool execution started", "Tool processing data", "Tool execution completed"} {
			if i > 0 {
				pause()
			}
			if err := m.SendLogMessageToClient(ctx, mcp.NewLoggingMessageNotification(mcp.LoggingLevelInfo, "conformance", text)); err != nil {
				return nil, err
			}
		}
		return mcp.NewToolResultText("logged"), nil
	}
	add(m, "test_tool_with_logging", logs)
	add(m, "test_logging_tool", logs)
	add(m, "test_tool_with_progress", func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for i, at := range []float64{0, 50, 100} {
			if i > 0 {
				pause()
			}
			if err := session.Progress(ctx, at, 100, ""); err != nil {
				return nil, err
			}
		}
		return mcp.NewToolResultText("done"), nil
	})
	m.AddTool(mcp.NewToolWithRawSchema("json_schema_2020_12_tool", "Tool with JSON Schema 2020-12 features", json.RawMessage(`{
		"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
		"$defs":{"address":{"$anchor":"addressDef","type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},
		"properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"},"contactMethod":{"type":"string","enum":["phone","email"]},"phone":{"type":"string"},"email":{"type":"string"}},
		"allOf":[{"anyOf":[{"required":["phone"]},{"required":["email"]}]}],
		"if":{"properties":{"contactMethod":{"const":"phone"}},"required":["contactMethod"]},"then":{"required":["phone"]},"else":{"required":["email"]},
		"additionalProperties":false}`)), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText("done"), nil
	})
	m.AddTool(mcp.NewToolWithRawSchema("test_custom_headers", "A parameter in a header.", json.RawMessage(
		`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"priority":{"type":"integer","x-mcp-header":"Priority"},"verbose":{"type":"boolean","x-mcp-header":"Verbose"}}}`)),
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText("done"), nil
		})
}

// questions are asked while a call runs.
func questions(m *mcpserver.MCPServer) {
	elicits := func(name, said string, params func(mcp.CallToolRequest) mcp.ElicitationParams) {
		add(m, name, func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			a := mcpserver.ElicitationResponse(r.Params.InputResponses, "q")
			if a == nil {
				return mcpserver.NewInputRequestBuilder("").Elicit("q", params(r)).ToolResult(), nil
			}
			content, err := json.Marshal(a.Content)
			if err != nil {
				return nil, err
			}
			return mcp.NewToolResultText(fmt.Sprintf("%s: action=%s, content=%s", said, a.Action, content)), nil
		})
	}
	elicits("test_elicitation", "User response", func(r mcp.CallToolRequest) mcp.ElicitationParams {
		return mcp.ElicitationParams{Message: r.GetString("message", "?"), RequestedSchema: json.RawMessage(
			`{"type":"object","properties":{"username":{"type":"string","description":"User's response"},"email":{"type":"string","description":"User's email address"}},"required":["username","email"]}`)}
	})
	elicits("test_streaming_elicitation", "User response", func(r mcp.CallToolRequest) mcp.ElicitationParams {
		return ask("?", `"ok":{"type":"boolean"}`)
	})
	elicits("test_elicitation_sep1034_defaults", "Elicitation completed", func(mcp.CallToolRequest) mcp.ElicitationParams {
		return ask("Defaults", `"name":{"type":"string","default":"John Doe"},"age":{"type":"integer","default":30},"score":{"type":"number","default":95.5},
			"status":{"type":"string","enum":["active","inactive","pending"],"default":"active"},"verified":{"type":"boolean","default":true}`)
	})
	elicits("test_elicitation_sep1330_enums", "Elicitation completed", func(mcp.CallToolRequest) mcp.ElicitationParams {
		return ask("Enums", `"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},
			"titledSingle":{"type":"string","oneOf":[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"},{"const":"value3","title":"Third Option"}]},
			"legacyEnum":{"type":"string","enum":["opt1","opt2","opt3"],"enumNames":["Option One","Option Two","Option Three"]},
			"untitledMulti":{"type":"array","items":{"type":"string","enum":["option1","option2","option3"]}},
			"titledMulti":{"type":"array","items":{"anyOf":[{"const":"value1","title":"First Choice"},{"const":"value2","title":"Second Choice"},{"const":"value3","title":"Third Choice"}]}}`)
	})
	add(m, "test_sampling", func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		a := mcpserver.SamplingResponse(r.Params.InputResponses, "q")
		if a == nil {
			return mcpserver.NewInputRequestBuilder("").Sample("q", sample(r.GetString("prompt", "?"), 100)).ToolResult(), nil
		}
		b, err := json.Marshal(a.Content)
		if err != nil {
			return nil, err
		}
		return mcp.NewToolResultText("LLM response: " + string(b)), nil
	})
	add(m, "test_missing_capability", func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if capabilities(ctx).Sampling == nil {
			return nil, session.Fail(ctx, -32021, "this tool needs a client that samples", []byte(`{"requiredCapabilities":{"sampling":{}}}`))
		}
		return mcp.NewToolResultText("done"), nil
	})
}

func capabilities(ctx context.Context) mcp.ClientCapabilities {
	if c, ok := mcpserver.ClientSessionFromContext(ctx).(mcpserver.SessionWithClientInfo); ok {
		return c.GetClientCapabilities()
	}
	return mcp.ClientCapabilities{}
}

// rounds ask by returning.
func rounds(m *mcpserver.MCPServer) {
	const name = `"name":{"type":"string"}`
	tool := func(suffix string, f handler) { add(m, "test_input_required_result_"+suffix, f) }
	more := func(b *mcpserver.InputRequestBuilder) (*mcp.CallToolResult, error) { return b.ToolResult(), nil }
	done := func(format string, a ...any) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText(fmt.Sprintf(format, a...)), nil
	}
	tool("elicitation", func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if a := mcpserver.ElicitationResponse(r.Params.InputResponses, "user_name"); a != nil && a.Action != "" {
			return done("Hello, %v", a.Content)
		}
		return more(mcpserver.NewInputRequestBuilder("").Elicit("user_name", ask("What is your name?", name)))
	})
	tool("sampling", func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if a := mcpserver.SamplingResponse(r.Params.InputResponses, "capital_question"); a != nil {
			return done("%v", a.Content)
		}
		return more(mcpserver.NewInputRequestBuilder("").Sample("capital_question", sample("What is the capital of France?", 100)))
	})
	tool("list_roots", func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if a := mcpserver.RootsResponse(r.Params.InputResponses, "client_roots"); a != nil {
			return done("%v", a.Roots)
		}
		return more(mcpserver.NewInputRequestBuilder("").Roots("client_roots"))
	})
	stateful := func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if r.Params.RequestState == "" && len(r.Params.InputResponses) == 0 {
			return more(mcpserver.NewInputRequestBuilder("s1").Elicit("confirm", ask("Please confirm", `"ok":{"type":"boolean"}`)))
		}
		if r.Params.RequestState != "s1" {
			return nil, session.Fail(ctx, mcp.INVALID_PARAMS, "requestState is not one of this server's", nil)
		}
		return done("state-ok")
	}
	tool("request_state", stateful)
	tool("tampered_state", stateful)
	tool("multiple_inputs", func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if len(r.Params.InputResponses) >= 3 {
			return done("all there")
		}
		return more(mcpserver.NewInputRequestBuilder("multi").Elicit("user_name", ask("What is your name?", name)).
			Sample("greeting", sample("Generate a greeting", 50)).Roots("client_roots"))
	})
	tool("multi_round", func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		switch {
		case mcpserver.ElicitationResponse(r.Params.InputResponses, "step2") != nil:
			return done("both there")
		case mcpserver.ElicitationResponse(r.Params.InputResponses, "step1") != nil:
			return more(mcpserver.NewInputRequestBuilder("round-2").Elicit("step2", ask("Step 2: What is your favorite color?", `"color":{"type":"string"}`)))
		}
		return more(mcpserver.NewInputRequestBuilder("round-1").Elicit("step1", ask("Step 1: What is your name?", name)))
	})
	tool("capabilities", func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		b, can := mcpserver.NewInputRequestBuilder(""), capabilities(ctx)
		if can.Sampling != nil {
			b.Sample("greeting", sample("Generate a greeting", 50))
		}
		if can.Elicitation != nil {
			b.Elicit("user_name", ask("What is your name?", name))
		}
		if can.Sampling == nil && can.Elicitation == nil || len(r.Params.InputResponses) > 0 {
			return done("done")
		}
		return more(b)
	})
	m.AddPrompt(mcp.NewPrompt("test_input_required_result_prompt", mcp.WithPromptDescription("A fixture.")), func(_ context.Context, r mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		if a := mcpserver.ElicitationResponse(r.Params.InputResponses, "user_context"); a != nil {
			return mcp.NewGetPromptResult("", []mcp.PromptMessage{mcp.NewPromptMessage(mcp.RoleUser, mcp.NewTextContent(fmt.Sprint(a.Content)))}), nil
		}
		return mcpserver.NewInputRequestBuilder("").Elicit("user_context", ask("What context should the prompt use?", `"context":{"type":"string"}`)).PromptResult(), nil
	})
}

// rest are resources and prompts.
func rest(m *mcpserver.MCPServer) {
	static := func(uri, mime string, c mcp.ResourceContents) {
		m.AddResource(mcp.NewResource(uri, uri, mcp.WithResourceDescription("A fixture."), mcp.WithMIMEType(mime)), func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{c}, nil
		})
	}
	static("test://static-text", "text/plain", mcp.TextResourceContents{URI: "test://static-text", MIMEType: "text/plain", Text: "This is the content of the static text resource."})
	static("test://watched-resource", "text/plain", mcp.TextResourceContents{URI: "test://watched-resource", MIMEType: "text/plain", Text: "Watched."})
	static("test://static-binary", "image/png", mcp.BlobResourceContents{URI: "test://static-binary", MIMEType: "image/png", Blob: png})
	m.AddResourceTemplate(mcp.NewResourceTemplate("test://template/{id}/data", "template", mcp.WithTemplateDescription("A fixture."), mcp.WithTemplateMIMEType("application/json")), func(_ context.Context, r mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
		id := strings.TrimSuffix(strings.TrimPrefix(r.Params.URI, "test://template/"), "/data")
		return []mcp.ResourceContents{mcp.TextResourceContents{URI: r.Params.URI, MIMEType: "application/json", Text: fmt.Sprintf(`{"id":%q,"templateTest":true,"data":"Data for ID: %s"}`, id, id)}}, nil
	})
	prompt := func(p mcp.Prompt, f func(args map[string]string) []mcp.Content) {
		m.AddPrompt(p, func(_ context.Context, r mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			res := &mcp.GetPromptResult{}
			for _, c := range f(r.Params.Arguments) {
				res.Messages = append(res.Messages, mcp.NewPromptMessage(mcp.RoleUser, c))
			}
			return res, nil
		})
	}
	described := mcp.WithPromptDescription("A fixture.")
	argument := func(name string) mcp.PromptOption {
		return mcp.WithArgument(name, mcp.ArgumentDescription("An argument."), mcp.RequiredArgument())
	}
	prompt(mcp.NewPrompt("test_simple_prompt", described), func(map[string]string) []mcp.Content {
		return []mcp.Content{mcp.NewTextContent("This is a simple prompt for testing.")}
	})
	prompt(mcp.NewPrompt("test_prompt_with_arguments", described, argument("arg1"), argument("arg2")), func(a map[string]string) []mcp.Content {
		return []mcp.Content{mcp.NewTextContent(fmt.Sprintf("Prompt with arguments: arg1='%s', arg2='%s'", a["arg1"], a["arg2"]))}
	})
	prompt(mcp.NewPrompt("test_prompt_with_embedded_resource", described, argument("resourceUri")), func(a map[string]string) []mcp.Content {
		return []mcp.Content{mcp.NewEmbeddedResource(mcp.TextResourceContents{URI: a["resourceUri"], MIMEType: "text/plain", Text: "Embedded resource content for testing."}),
			mcp.NewTextContent("Please process the embedded resource above.")}
	})
	prompt(mcp.NewPrompt("test_prompt_with_image", described), func(map[string]string) []mcp.Content {
		return []mcp.Content{mcp.NewImageContent(png, "image/png"), mcp.NewTextContent("Please analyze the image above.")}
	})
}
