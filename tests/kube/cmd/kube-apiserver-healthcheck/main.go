// Stands for kOps' kube-apiserver-healthcheck: asks the API server for its health with a client certificate, because
// kubelet's probes have none.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
)

func main() {
	authority := flag.String("ca-cert", "", "who signed the API server's certificate")
	certificate := flag.String("client-cert", "", "certificate to show")
	key := flag.String("client-key", "", "its key")
	flag.Parse()

	pem, err := os.ReadFile(*authority)
	if err != nil {
		log.Fatal(err)
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(pem) {
		log.Fatalf("%s: no certificate", *authority)
	}
	pair, err := tls.LoadX509KeyPair(*certificate, *key)
	if err != nil {
		log.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: trusted, Certificates: []tls.Certificate{pair},
	}}}

	ask := func(answer http.ResponseWriter, request *http.Request) {
		response, err := client.Get("https://127.0.0.1" + request.URL.Path)
		if err != nil {
			http.Error(answer, err.Error(), http.StatusBadGateway)
			return
		}
		defer response.Body.Close()
		answer.WriteHeader(response.StatusCode)
		_, _ = io.Copy(answer, response.Body)
	}
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		http.HandleFunc(path, ask)
	}
	http.HandleFunc("/.kube-apiserver-healthcheck/healthz", func(answer http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(answer, "ok")
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:3990", nil))
}
