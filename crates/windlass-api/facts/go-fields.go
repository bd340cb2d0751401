//go:build ignore

// Makes go-fields-1.36.json from the source of Kubernetes' modules and from fields-1.36.json: the README beside it
// has the command. It needs Go and no module but those that it reads.
package main

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
)

// The tag of the modules k8s.io/...; Kubernetes' own is v1 instead of v0.
const version = "v0.36.4"

// What is left out says nothing: the field is no pointer, is not written when it is zero, and so on.
type definition struct {
	Always   []string            `json:"always,omitempty"`
	Inline   map[string][]string `json:"inline,omitempty"`
	Pointers []string            `json:"pointers,omitempty"`
	Proto    map[string]string   `json:"proto,omitempty"`
	Types    map[string]string   `json:"types,omitempty"`
}

// A schema of the OpenAPI document, as fields-1.36.json has it.
type schema struct {
	Ref        string            `json:"ref"`
	Type       string            `json:"type"`
	Format     string            `json:"format"`
	Items      *schema           `json:"items"`
	Additional *schema           `json:"additionalProperties"`
	Properties map[string]schema `json:"properties"`
}

// A package: its types, and what the imports of the file of each are called.
type source struct {
	name    string
	types   map[string]ast.Expr
	imports map[string]map[string]string
}

var (
	directories = map[string]string{}
	sources     = map[string]*source{}
)

func main() {
	log.SetFlags(0)
	text, err := os.ReadFile(os.Args[1])
	check(err)
	var fields struct {
		Definitions map[string]schema `json:"definitions"`
		Kubernetes  string            `json:"kubernetes"`
	}
	check(json.Unmarshal(text, &fields))
	if "v0"+strings.TrimPrefix(fields.Kubernetes, "v1") != version {
		log.Fatalf("the schemas are of %s, the modules of %s", fields.Kubernetes, version)
	}
	definitions := map[string]definition{}
	for name, schema := range fields.Definitions {
		if len(schema.Properties) == 0 && schema.Type != "object" {
			continue
		}
		end := strings.LastIndex(name, ".")
		path := "k8s.io/" + strings.ReplaceAll(strings.TrimPrefix(name[:end], "io.k8s."), ".", "/")
		structure, ok := load(path).types[name[end+1:]].(*ast.StructType)
		if !ok || decodesItself[name[end+1:]] {
			continue
		}
		found := definition{Inline: map[string][]string{}, Proto: map[string]string{}, Types: map[string]string{}}
		found.add(path, name[end+1:], structure, "", schema)
		definitions[name] = found
	}
	out := bytes.Buffer{}
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	check(encoder.Encode(map[string]any{"definitions": definitions, "kubernetes": fields.Kubernetes}))
	_, err = os.Stdout.Write(out.Bytes())
	check(err)
}

// Types with methods of their own for JSON: what their fields are called does not matter.
var decodesItself = map[string]bool{
	"FieldsV1": true, "IntOrString": true, "JSON": true, "JSONSchemaPropsOrArray": true, "JSONSchemaPropsOrBool": true,
	"JSONSchemaPropsOrStringArray": true, "MicroTime": true, "Quantity": true, "RawExtension": true, "Time": true,
}

// Adds the fields of a struct, which is embedded by the structs `via` or is the definition itself.
func (d *definition) add(path, owner string, structure *ast.StructType, via string, schema schema) {
	for _, field := range structure.Fields.List {
		tag := reflect.StructTag("")
		if field.Tag != nil {
			text, err := strconv.Unquote(field.Tag.Value)
			check(err)
			tag = reflect.StructTag(text)
		}
		name, options, _ := strings.Cut(tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		if name == "" {
			at, inner := resolve(path, owner, field.Type)
			embedded, ok := load(at).types[inner].(*ast.StructType)
			if inner != "TypeMeta" && ok {
				below := strings.TrimPrefix(via+"."+inner, ".")
				d.add(at, inner, embedded, below, schema)
			}
			continue
		}
		property, known := schema.Properties[name]
		if !known {
			continue
		}
		if via != "" {
			d.Inline[via] = append(d.Inline[via], name)
		}
		star, pointer := field.Type.(*ast.StarExpr)
		kind := field.Type
		if pointer {
			kind = star.X
			d.Pointers = append(d.Pointers, name)
		}
		// A struct is never empty to encoding/json, so `omitempty` does nothing for it.
		omitted := strings.Contains(options, "omitempty") && (pointer || !isStruct(path, owner, kind))
		if !omitted && !strings.Contains(options, "omitzero") {
			d.Always = append(d.Always, name)
		}
		for _, part := range strings.Split(tag.Get("protobuf"), ",") {
			if proto, ok := strings.CutPrefix(part, "name="); ok && proto != name {
				d.Proto[name] = proto
			}
		}
		if printed := print(path, owner, kind); printed != property.goType() {
			d.Types[name] = printed
		}
	}
}

// The Go type that a schema lets one expect.
func (s schema) goType() string {
	switch {
	case s.Ref != "":
		parts := strings.Split(s.Ref, ".")
		return strings.Join(parts[len(parts)-2:], ".")
	case s.Type == "string" && s.Format == "byte":
		return "[]uint8"
	case s.Type == "integer" && s.Format != "":
		return s.Format
	case s.Type == "integer":
		return "int64"
	case s.Type == "number":
		return "float64"
	case s.Type == "boolean":
		return "bool"
	case s.Type == "array":
		return "[]" + s.Items.goType()
	case s.Type == "object" && s.Additional != nil:
		return "map[string]" + s.Additional.goType()
	}
	return s.Type
}

// A type as `reflect` prints it.
func print(path, owner string, kind ast.Expr) string {
	switch kind := kind.(type) {
	case *ast.StarExpr:
		return "*" + print(path, owner, kind.X)
	case *ast.ArrayType:
		return "[]" + print(path, owner, kind.Elt)
	case *ast.MapType:
		return "map[" + print(path, owner, kind.Key) + "]" + print(path, owner, kind.Value)
	}
	at, name := resolve(path, owner, kind)
	switch {
	case at == "" && name == "byte":
		return "uint8"
	case at == "":
		return name
	}
	return load(at).name + "." + name
}

func isStruct(path, owner string, kind ast.Expr) bool {
	switch kind := kind.(type) {
	case *ast.StructType:
		return true
	case *ast.Ident, *ast.SelectorExpr:
		at, name := resolve(path, owner, kind)
		return at != "" && isStruct(at, name, load(at).types[name])
	}
	return false
}

// The package and the name of a type that the file of `owner` mentions; no package if it is one of Go's own.
func resolve(path, owner string, kind ast.Expr) (string, string) {
	switch kind := kind.(type) {
	case *ast.Ident:
		if _, ok := load(path).types[kind.Name]; ok {
			return path, kind.Name
		}
		return "", kind.Name
	case *ast.SelectorExpr:
		alias := kind.X.(*ast.Ident).Name
		return load(path).imports[owner][alias], kind.Sel.Name
	}
	log.Fatalf("%s.%s has a field of a type that is not known: %T", path, owner, kind)
	return "", ""
}

func load(path string) *source {
	if found, ok := sources[path]; ok {
		return found
	}
	found := &source{types: map[string]ast.Expr{}, imports: map[string]map[string]string{}}
	sources[path] = found
	files, err := filepath.Glob(filepath.Join(directory(path), "*.go"))
	check(err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		check(err)
		found.name = file.Name.Name
		imports := map[string]string{}
		for _, spec := range file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			check(err)
			alias := path[strings.LastIndex(path, "/")+1:]
			if spec.Name != nil {
				alias = spec.Name.Name
			}
			imports[alias] = path
		}
		for _, declaration := range file.Decls {
			if group, ok := declaration.(*ast.GenDecl); ok {
				for _, spec := range group.Specs {
					if spec, ok := spec.(*ast.TypeSpec); ok {
						found.types[spec.Name.Name] = spec.Type
						found.imports[spec.Name.Name] = imports
					}
				}
			}
		}
	}
	return found
}

// Where the source of a package is: Go's module cache, which is filled first.
func directory(path string) string {
	parts := strings.SplitN(path, "/", 3)
	if parts[0] != "k8s.io" || len(parts) < 3 {
		return "/nowhere"
	}
	module := parts[0] + "/" + parts[1]
	if _, ok := directories[module]; !ok {
		text, err := exec.Command("go", "mod", "download", "-json", module+"@"+version).Output()
		check(err)
		var answer struct{ Dir string }
		check(json.Unmarshal(text, &answer))
		directories[module] = answer.Dir
	}
	return filepath.Join(directories[module], parts[2])
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
