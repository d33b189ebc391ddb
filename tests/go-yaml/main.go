// Reads YAML as Kubernetes' programs do, for tests that ask what is left of what we wrote.
//
// On standard input, a line for each document: the document as a JSON string. On standard output, a line for
// each: {"value": what it holds, as JSON}, or {"error": why it cannot be read}.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"sigs.k8s.io/yaml"
)

type answer struct {
	Value json.RawMessage `json:"value,omitempty"`
	Error string          `json:"error,omitempty"`
}

// read refuses a key that is there twice, as kubelet and kube-apiserver do with their configuration.
func read(document string) answer {
	value, err := yaml.YAMLToJSONStrict([]byte(document))
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Value: value}
}

func main() {
	documents := json.NewDecoder(bufio.NewReader(os.Stdin))
	output := bufio.NewWriter(os.Stdout)
	answers := json.NewEncoder(output)
	for {
		var document string
		switch err := documents.Decode(&document); err {
		case nil:
		case io.EOF:
			if err := output.Flush(); err != nil {
				fail(err)
			}
			return
		default:
			fail(err)
		}
		if err := answers.Encode(read(document)); err != nil {
			fail(err)
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "go-yaml:", err)
	os.Exit(1)
}
