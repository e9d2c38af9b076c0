// Package jsonschema stands in for the JSON-Schema validator that mcp-go links
// for two options this project does not use.
//
// The real one compiles its meta-schemas in package initialisation, which costs
// every process of this binary 4 to 6 ms at start; the most frequent process, an
// editor's bridge, never validates anything. go.mod replaces the module by this
// one. It has just the names that mcp-go refers to, and every one that would
// validate says that it cannot, so that turning such an option on fails loudly
// instead of accepting everything.
package jsonschema

import (
	"encoding/json"
	"errors"
	"io"
)

var errNotLinked = errors.New("jsonschema: the validator is not linked into this program")

// Schema is what Compile would return.
type Schema struct{}

// Validate always fails.
func (*Schema) Validate(any) error { return errNotLinked }

// Compiler compiles nothing.
type Compiler struct{}

// NewCompiler returns a compiler that refuses to compile.
func NewCompiler() *Compiler { return &Compiler{} }

// AddResource always fails.
func (*Compiler) AddResource(string, any) error { return errNotLinked }

// Compile always fails.
func (*Compiler) Compile(string) (*Schema, error) { return nil, errNotLinked }

// ValidationError is never made here; mcp-go asks for it by type.
type ValidationError struct {
	Causes           []*ValidationError
	InstanceLocation []string
	ErrorKind        any
}

func (*ValidationError) Error() string { return errNotLinked.Error() }

// UnmarshalJSON decodes r without keeping numbers exact.
func UnmarshalJSON(r io.Reader) (v any, err error) {
	return v, json.NewDecoder(r).Decode(&v)
}
