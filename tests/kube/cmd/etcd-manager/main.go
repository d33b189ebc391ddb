// Stands for etcd-manager in tests: runs a member of an etcd cluster, with certificates issued by the authorities that
// kOps puts on a control-plane machine. It has no volumes and no backups, and its arguments name the other members.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"flag"
	"fmt"
	"log"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	pki := flag.String("pki", "/etc/kubernetes/pki/etcd-manager", "folder of the authorities")
	data := flag.String("data", "/data", "folder of the member")
	client := flag.String("client-urls", "", "where to serve clients")
	peer := flag.String("peer-urls", "", "where to serve peers")
	name := flag.String("name", "a", "the member")
	members := flag.String("members", "", "all members, as etcd's --initial-cluster has them; this one alone if it is not given")
	flag.Parse()
	if *members == "" {
		*members = *name + "=" + *peer
	}
	at, err := url.Parse(*peer)
	if err != nil {
		log.Fatalf("reading where to serve peers: %v", err)
	}
	addresses := []net.IP{net.IPv4(127, 0, 0, 1)}
	if own := net.ParseIP(at.Hostname()); own != nil && !own.IsLoopback() {
		addresses = append(addresses, own)
	}

	arguments := []string{
		"etcd", "--name=" + *name, "--data-dir=" + filepath.Join(*data, "member"),
		"--listen-client-urls=" + *client, "--advertise-client-urls=" + *client,
		"--listen-peer-urls=" + *peer, "--initial-advertise-peer-urls=" + *peer, "--initial-cluster=" + *members,
		"--client-cert-auth", "--peer-client-cert-auth",
		// Test machines live for minutes and share a disk, so etcd does not sync its files.
		"--unsafe-no-fsync",
	}
	for prefix, authority := range map[string]string{"": "etcd-clients-ca", "peer-": "etcd-peers-ca"} {
		pair, err := issue(filepath.Join(*pki, authority), filepath.Join(*data, authority), addresses)
		if err != nil {
			log.Fatalf("issuing a certificate of %s: %v", authority, err)
		}
		arguments = append(arguments, "--"+prefix+"cert-file="+pair+".crt", "--"+prefix+"key-file="+pair+".key",
			"--"+prefix+"trusted-ca-file="+filepath.Join(*pki, authority)+".crt")
	}
	etcdmain.Main(arguments)
}

// issue writes a new key and a certificate of the authority for these addresses, and returns their path without suffix.
func issue(authority, pair string, addresses []net.IP) (string, error) {
	issuer, err := tls.LoadX509KeyPair(authority+".crt", authority+".key")
	if err != nil {
		return "", err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: "etcd"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses:  addresses,
		DNSNames:     []string{"localhost"},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, &template, issuer.Leaf, &key.PublicKey, issuer.PrivateKey)
	if err != nil {
		return "", err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", err
	}
	for suffix, block := range map[string]pem.Block{
		".crt": {Type: "CERTIFICATE", Bytes: certificate},
		".key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(pair+suffix, pem.EncodeToMemory(&block), 0o600); err != nil {
			return "", fmt.Errorf("writing %s: %w", pair+suffix, err)
		}
	}
	return pair, nil
}
