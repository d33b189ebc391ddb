// Reads YAML as Kubernetes' programs do, so that tests can check what those programs read from our files.
//
// Each line of standard input is a document, as a JSON string. Each line of standard output is the result:
// {"value": the document's value, as JSON}, or {"error": why it cannot be read}.
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
