// Command hello is a workload of a test's cluster: it serves the name of its pod, and asks other pods for their
// names.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

const usage = "usage: hello serve ADDRESS | hello get URL"

func main() {
	if len(os.Args) != 3 {
		fail(usage)
	}
	switch os.Args[1] {
	case "serve":
		serve(os.Args[2])
	case "get":
		get(os.Args[2])
	default:
		fail(usage)
	}
}

// serve answers each request with the pod's name, and logs the address of the client.
func serve(address string) {
	name, err := os.Hostname()
	if err != nil {
		fail(err)
	}
	http.HandleFunc("/", func(response http.ResponseWriter, request *http.Request) {
		client, _, _ := net.SplitHostPort(request.RemoteAddr)
		fmt.Println("asked by", client)
		fmt.Fprintln(response, name)
	})
	fmt.Println("serving at", address)
	fail(http.ListenAndServe(address, nil))
}

// get prints what a server answers. Each call is a connection of its own, so that a service may choose another pod.
func get(url string) {
	client := http.Client{Timeout: 5 * time.Second}
	response, err := client.Get(url)
	if err != nil {
		fail(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		fail(response.Status)
	}
	if _, err := io.Copy(os.Stdout, response.Body); err != nil {
		fail(err)
	}
}

func fail(why any) {
	fmt.Fprintln(os.Stderr, "hello:", why)
	os.Exit(1)
}
