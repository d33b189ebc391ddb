// Command go-client posts a request to a kops-controller with Go's own TLS, set up as kOps' nodeup sets it up
// (pkg/kopscontrollerclient/client.go): the client trusts the authority, and has no certificate of its own. It prints the
// version of TLS, the status and the body.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

func main() {
	if len(os.Args) != 6 {
		fail(fmt.Errorf("usage: %s URL ADDRESS AUTHORITY(file) TOKEN 1.2|1.3, with the body as standard input", os.Args[0]))
	}
	url, address, authority, token, version := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	pem, err := os.ReadFile(authority)
	check(err)
	body, err := io.ReadAll(os.Stdin)
	check(err)

	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	if version == "1.2" {
		config.MaxVersion = tls.VersionTLS12
	}
	client := &http.Client{
		Timeout: 15 * time.Second,
		Transport: &http.Transport{
			TLSClientConfig: config,
			// No DNS server here has the name.
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, address)
			},
		},
	}
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(body))
	check(err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", token)
	response, err := client.Do(request)
	check(err)
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	check(err)
	fmt.Printf("%s\n%d\n%s", tls.VersionName(response.TLS.Version), response.StatusCode, answer)
}

func check(err error) {
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
